"""Reading ahead: the next run is read while this one is delivered, each message once, within bounds."""

from collections.abc import Sequence

from syncbrok.delivery.dispatch.prefetch import BYTES_MAX, MESSAGES_MAX, Prefetch
from tests.support.delivery.endpoint import message


class Backlog:
    """A subscriber's queue of messages 1..n with a position."""

    def __init__(self, n: int, cached_from: int = 1 << 40) -> None:
        self.n = n
        self.position = 1
        self.cached_from = cached_from

    def upcoming(self, _subscriber: int, limit: int) -> Sequence[int]:
        return range(self.position, min(self.position + limit, self.n + 1))

    def in_memory(self, sequence: int) -> bool:
        return sequence >= self.cached_from


def test_a_backlog_is_read_once_and_before_it_is_needed() -> None:
    """DESIGN 5: after the first miss no message of a backlog has to be waited for, and none is read twice."""
    ahead, backlog = Prefetch(), Backlog(5_000)
    read: list[int] = []
    missed = 0
    while backlog.position <= backlog.n:
        sequence = backlog.position
        backlog.position += 1
        if sequence not in ahead.messages:
            missed += 1
            read.append(sequence)
            ahead.wanted.add(1)
        ahead.passed(1, sequence)
        if ahead.wanted:
            chosen = ahead.choose(backlog.upcoming, backlog.in_memory, 256)
            assert len(chosen) <= 256
            read += chosen
            ahead.keep({one: message(one) for one in chosen})
    assert missed == 1
    assert sorted(read) == list(range(1, 5_001))


def test_what_is_in_memory_anyway_is_not_read() -> None:
    """Near the head of the log the newest batches are in memory."""
    ahead, backlog = Prefetch(), Backlog(100, cached_from=40)
    ahead.wanted.add(1)
    assert ahead.choose(backlog.upcoming, backlog.in_memory, 256) == list(range(1, 40))
    backlog.position = 40
    ahead.wanted.add(1)
    assert ahead.choose(backlog.upcoming, backlog.in_memory, 256) == []
    assert not ahead.passed(1, 41)


def test_subscribers_share_a_run() -> None:
    """Many slow subscribers do not make a run longer, and each gets something."""
    ahead, backlog = Prefetch(), Backlog(5_000)
    ahead.wanted.update(range(300))
    assert len(ahead.choose(backlog.upcoming, backlog.in_memory, 256)) == 300
    ahead.wanted.update((1, 2))
    assert len(ahead.choose(backlog.upcoming, backlog.in_memory, 256)) == 256
    assert not ahead.wanted


def test_what_is_kept_is_bounded() -> None:
    """Memory holds at most this much, the newest reads; what is gone is not an entry."""
    ahead = Prefetch()
    ahead.keep({sequence: message(sequence, bytes(1 << 20)) for sequence in range(40)} | {99: None})
    assert sum(len(one.content) for one in ahead.messages.values()) <= BYTES_MAX
    assert set(ahead.messages) == set(range(40 - (BYTES_MAX >> 20), 40))
    ahead.keep({sequence: message(sequence, b"") for sequence in range(100, 100 + MESSAGES_MAX + 5)})
    assert len(ahead.messages) == MESSAGES_MAX
