"""A subscriber or a consumer that takes all it can get, and a neighbour that goes on, on a real broker.

Each case stopped all delivery of all queues. What clients do that take all they can get:
``tests/whole/bounds/test_overload.py``. ``python -m tests.soak --what overload`` judges the times of those.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.overload.neighbours import CASES, MEMORY_BYTES, Case, Neighbours, neighbours

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
