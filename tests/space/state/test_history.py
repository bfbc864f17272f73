"""The minutes of a day, as they are kept (INTERFACES 3, ``GET /v1/history``)."""

import pytest

from syncbrok.model import limits
from syncbrok.space.state.history import NOTHING, Figures, History, Minute, percentile_ms, unpacked

BOUNDS_S = (0.01, 0.1, 1.0)


def minute(number: int, accepted: int = 1, **queues: Figures) -> Minute:
    return Minute(number, Figures(accepted, backlog=number, latencies=(1, 2)), queues)


def kept(history: History, first: int = 0) -> list[Minute]:
    return list(unpacked(history.since(first)))


def written(history: History) -> bytes:
    return b"".join(history.encode())


def test_a_file_gives_back_what_was_kept() -> None:
    """INTERFACES 3: kept over restarts."""
    history = History()
    for number in range(5):
        history.put(minute(100 + number, q=Figures(1, 2, 3, 4, 5, 6, (0, 7)), other=Figures(dead=9)))
    assert kept(History.decode(written(history))) == kept(history)
    assert [one.number for one in kept(history, 103)] == [103, 104]


@pytest.mark.parametrize("at", [0, 5, 19, 25, 60, 130, -1])
def test_what_is_torn_or_damaged_costs_no_more_than_itself(at: int) -> None:
    """A file that was cut off, or of which a byte has rotted, is no reason not to start: what fits is taken."""
    history = History()
    for number in range(5):
        history.put(minute(100 + number))
    whole = written(history)
    left = kept(History.decode(whole[:at]))
    assert left == kept(history)[: len(left)]
    assert len(left) == (4 if at == -1 else len(left))
    rotten = bytearray(whole)
    rotten[at] ^= 0x41
    for one in kept(History.decode(bytes(rotten))):
        assert one._replace(number=0) in [two._replace(number=0) for two in kept(history)]
    assert len(History.decode(b"")) == len(History.decode(b"something else")) == 0


def test_no_more_than_a_day_is_kept() -> None:
    """Bounded: the oldest go."""
    history = History()
    for number in range(1_000, 1_000 + limits.history_minutes_max + 50):
        history.put(minute(number))
    assert len(history) == limits.history_minutes_max
    assert kept(history)[0].number == 1_050


def test_a_clock_that_is_set_back_adds_up_and_one_that_was_far_ahead_is_forgotten() -> None:
    """Minutes that come again count what they had and what they have; what lies more than an hour ahead goes, since
    nobody can tell when it was; and the order is that of time."""
    history = History()
    for number in (1_000, 1_001, 1_002):
        history.put(minute(number, 2, q=Figures(5, latencies=(1,))))
    history.put(minute(1_001, 3, q=Figures(1, latencies=(0, 4)), later=Figures(7)))
    once, again, after = kept(history)
    assert (once.number, again.number, after.number) == (1_000, 1_001, 1_002)
    assert (again.whole.accepted, again.whole.latencies) == (5, (2, 4))
    assert again.queues == {"q": Figures(6, latencies=(1, 4)), "later": Figures(7)}
    history.put(minute(900))
    assert [one.number for one in kept(history)] == [900]


def test_a_queue_and_some_of_them_are_told_apart() -> None:
    """A queue that is not kept by name has no figures; of several they are added up, and the oldest age is theirs."""
    one = minute(1, 10, a=Figures(1, backlog=2, oldest_ms=5), b=Figures(2, backlog=3, oldest_ms=9), c=Figures(4))
    assert one.of("a", None) == Figures(1, backlog=2, oldest_ms=5)
    assert one.of("z", None) is None
    assert one.of(None, None) == one.whole
    assert one.of(None, lambda name: name != "c") == Figures(3, backlog=5, oldest_ms=9)
    assert one.of(None, lambda name: False) == NOTHING


def test_percentiles_come_from_bounds() -> None:
    """Between two bounds by the share of what lies there; beyond the last bound it is that one."""
    assert percentile_ms((), BOUNDS_S, 0.5) is None
    assert percentile_ms((0, 0), BOUNDS_S, 0.5) is None
    assert percentile_ms((10,), BOUNDS_S, 0.5) == 5.0
    assert percentile_ms((0, 10), BOUNDS_S, 0.5) == 55.0
    assert percentile_ms((98, 0, 2), BOUNDS_S, 0.99) == 550.0
    assert percentile_ms((0, 0, 0, 5), BOUNDS_S, 0.5) == 1_000.0
