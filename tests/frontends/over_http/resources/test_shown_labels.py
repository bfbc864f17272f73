"""Who has labels of its own in ``/metrics`` (syncbrok/frontends/over_http/resources/shown_labels.py)."""

from collections.abc import Collection

import pytest

from syncbrok.frontends.over_http.requests.time_slices import at_once
from syncbrok.frontends.over_http.resources.shown_labels import Label, Ranked, ShownLabels

KEPT_US = 1_000


@pytest.fixture
def shown() -> ShownLabels:
    return ShownLabels(2, KEPT_US)


def scraped(shown: ShownLabels, now_us: int, **weights: int) -> str:
    """Who is shown, in one word; weights and counters are the same here."""
    named = choose(shown, now_us, [Ranked(("q", name), "q", weight, (weight,)) for name, weight in weights.items()])
    return "".join(sorted(label[1] for label in named))


def choose(shown: ShownLabels, now_us: int, ranked: list[Ranked]) -> Collection[Label]:
    return at_once(shown.choose(ranked, now_us))


def test_the_largest_are_shown_and_stay_for_a_while(shown: ShownLabels) -> None:
    """INTERFACES 3, ``/metrics``: those with the largest backlog have a name, and keep it for a time once shown."""
    assert scraped(shown, 0, a=1, b=9, c=5, d=0) == "bc"
    assert scraped(shown, 1, a=7, b=9, c=5, d=0) == "abc"
    assert scraped(shown, KEPT_US, a=7, b=9, c=0, d=0) == "abc"
    assert scraped(shown, KEPT_US + 2, a=7, b=9, c=0, d=0) == "ab"


def test_what_is_shown_is_bounded(shown: ShownLabels) -> None:
    """DESIGN 1, bounded: whatever comes and goes, no more than twice as many are shown; who was largest longest ago
    loses its name first."""
    names = "abcdefgh"
    for at, name in enumerate(names):
        told = scraped(shown, at, **{other: 1 + place for place, other in enumerate(names[: at + 1])})
        assert len(told) <= 4
        assert name in told
    assert told == "efgh"


def test_equals_keep_their_names(shown: ShownLabels) -> None:
    """Thousands with no backlog do not take turns: series would begin and end with each scrape."""
    assert scraped(shown, 0, c=0, d=0, a=0, b=0) == "cd"
    assert scraped(shown, 9 * KEPT_US, a=0, b=0, c=0, d=0) == "cd"


def test_the_deleted_are_forgotten(shown: ShownLabels) -> None:
    """A name that is gone takes no place, and one of the same name begins anew."""
    scraped(shown, 0, a=9, b=8, c=1)
    assert scraped(shown, 1, c=1) == "c"
    assert scraped(shown, 2, a=0, b=0, c=1) == "ac"


def test_what_the_others_count_never_falls(shown: ShownLabels) -> None:
    """A counter that falls looks like a restart, and all it ever counted like new: not when one of the others gets a
    name, nor when one that had a name joins them. What they count meanwhile is counted once."""

    def counted(now_us: int, **counts: tuple[int, int]) -> float:
        """``counts``: weight, and what each has counted."""
        choose(shown, now_us, [Ranked(("q", name), "q", weight, (count,)) for name, (weight, count) in counts.items()])
        return sum(shown.rest("q"))

    assert counted(0, a=(9, 1_000), b=(8, 500), c=(0, 70), d=(0, 80)) == 0
    assert counted(1, a=(9, 1_001), b=(8, 502), c=(0, 73), d=(0, 84)) == 7
    # c has a name from now on, until it is over; then what it counts is one of the others' again.
    assert counted(2, a=(9, 1_001), b=(8, 502), c=(9, 75), d=(0, 84)) == 7
    assert counted(3, a=(9, 1_001), b=(8, 502), c=(0, 90), d=(0, 85)) == 8
    assert counted(3 * KEPT_US, a=(9, 1_001), b=(8, 502), c=(0, 91), d=(0, 85)) == 9
    # A new one begins at nothing, so all it counts is counted; a queue that is gone has no sum.
    assert counted(3 * KEPT_US, a=(9, 1_001), b=(8, 502), e=(0, 5)) == 14
    choose(shown, 3 * KEPT_US, [Ranked(("other", "a"), "other", 1, (1,))])
    assert shown.rest("q") == ()
