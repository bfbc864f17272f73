"""A subscriber or a consumer that takes all it can get, and a neighbour that goes on, on a real broker.

Each case stopped all delivery of all queues. What clients do that take all they can get:
``tests/whole/bounds/test_overload.py``. ``python -m tests.soak --what overload`` judges the times of those.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from syncbrok.delivery.webhook.subscriber_route import DIALS_MAX
from tests.support.overload.neighbours import CASES, MEMORY_BYTES, Case, Neighbours, neighbours
from tests.support.polling import eventually_blocking

ARRIVES_S = 2.0
"""a message to a neighbour, on a machine that does other work; while the fault was there it never arrived"""


@pytest.fixture
def street(tmp_path: Path) -> Iterator[Neighbours]:
    with neighbours(tmp_path) as running:
        yield running


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_neighbours_go_on(street: Neighbours, case: Case) -> None:
    """RULES 15, DESIGN 1, bounded: whatever one subscriber or consumer does not give back, its neighbours go on, memory
    stays within 64 MiB (and what is read ahead), and nothing of it is a failed attempt."""
    street.latencies_s(3)
    before_bytes = street.broker.resident_bytes()
    case.run(street, case.few)
    assert max(street.latencies_s(10)) < ARRIVES_S
    assert street.broker.resident_bytes() < before_bytes + MEMORY_BYTES
    assert street.failed() == 0


def test_an_endpoint_that_goes_with_all_it_had_costs_what_had_begun(street: Neighbours) -> None:
    """RULES 29: of a window of 1,000 those spend an attempt whose request was on its way when the endpoint went, and
    the few whose connection was just being made. Who waited for a connection goes back, untried."""
    street.subscribe_hung("gone", 1_000)
    street.publish_small(1_000)
    eventually_blocking(lambda: street.hung.connections >= 100, "it hangs")
    street.hung.close()
    begun = street.hung.connections
    subscriber = "/v1/queues/bad/subscribers/gone"

    def statistics() -> dict[str, Any]:
        return dict(street.broker.request("GET", subscriber).json()["statistics"])

    eventually_blocking(lambda: statistics()["failed"] >= 10 and not statistics()["in_flight"], "nothing is out")
    told = statistics()
    assert told["breaker"] in ("open", "probing")
    assert told["failed"] <= begun + 2 * DIALS_MAX
    assert told["dead_letters"] == 0
