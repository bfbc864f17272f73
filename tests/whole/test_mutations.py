"""The list of mutations fits the code, and the script tells what is noticed from what is not."""

from tests.mutations import MUTATIONS, misfits, noticed
from tests.soak.cluster_failovers import BLIND
from tools.promises import PROMISES


def test_every_mutation_can_be_made() -> None:
    """DESIGN 1: a mutation whose text is gone breaks nothing, and would be called noticed or not at random."""
    assert list(misfits()) == []
    assert list(misfits(BLIND)) == [], "the brokers that the cluster's soak breaks on purpose"
    assert len(MUTATIONS) >= 16
    assert {one.promise for one in MUTATIONS} == set(PROMISES), "each promise has one at least"


def test_what_breaks_is_noticed_and_what_does_not_is_not() -> None:
    """DESIGN 1, bounded: ``make mutations`` runs all of them; here is one that its tests notice, and an edit that
    changes nothing."""
    (broken,) = (one for one in MUTATIONS if one.file == "syncbrok/model/budget.py")
    assert noticed(broken).by.startswith("tests/model/test_budget.py::")
    harmless = broken._replace(before="Fixed shares", after="Fixed parts")
    assert noticed(harmless).by == ""
