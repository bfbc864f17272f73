"""When a message was tried, ended and became complete, from the rows that the log has of it. Pure.

As the pipeline's job ``completions`` finds it from the whole log, and by the same times: an end is when the record of
it was written, an attempt begins when its row says so.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from syncbrok.model.facts import ALL_SUBSCRIBERS, Outcome, Reason, Row
from syncbrok.model.journal import TimedRow
from syncbrok.space.state.registry import Departed

_BAD: Final = frozenset({Outcome.DEAD, Outcome.EXPIRED})
_BY_OPERATOR: Final = frozenset({Reason.CANCELLED, Reason.PURGED, Reason.QUEUE_DELETED, Reason.ERASED})


class MessageEnds(NamedTuple):
    """Times are Unix microseconds, 0 for not yet. ``attempts`` are those of all whom it counts. ``ended_us``: all these
    had ended, for the first time; ``complete_us``: it was complete. ``subscriber`` (number, 0 for none) kept it
    longest: it has not ended there, else it ended badly there, else it ended there last."""

    first_attempt_us: int
    attempts: int
    ended_us: int
    complete_us: int
    subscriber: int

    @property
    def done_us(self) -> int:
        """When it kept its children no longer."""
        return self.complete_us or self.ended_us


class _Stand(NamedTuple):
    """How a delivery stands: whether well, and the record that says so."""

    is_good: bool
    record: int


def message_ends(
    accepted_us: int, counted: Mapping[int, Departed | None], rows: Sequence[TimedRow], *, has_ended: bool
) -> MessageEnds:
    """``counted``: the subscribers (numbers) that it counts, with their deletion where they are gone. ``has_ended``: it
    has ended, whether or not the log still says how."""
    if not counted:
        ended_us = next((one.time_us for one in rows if one.row.subscriber == ALL_SUBSCRIBERS), accepted_us)
        bad = any(_is_bad(one.row) for one in rows if one.row.subscriber == ALL_SUBSCRIBERS)
        return MessageEnds(0, 0, ended_us * has_ended, 0 if bad else ended_us * has_ended, 0)
    ended_us, complete_us, stands = _followed(counted, rows)
    if has_ended and not ended_us:  # retention has taken the rows
        ended_us = complete_us = accepted_us
    tried = [one.row for one in rows if one.row.attempt and one.row.subscriber in counted]
    attempts: dict[int, int] = {}
    for row in tried:
        attempts[row.subscriber] = max(row.attempt, attempts.get(row.subscriber, 0))
    first_us = min((row.time_us for row in tried), default=0)
    return MessageEnds(first_us, sum(attempts.values()), ended_us, complete_us, _slowest(counted, stands))


def _followed(counted: Mapping[int, Departed | None], rows: Sequence[TimedRow]) -> tuple[int, int, dict[int, _Stand]]:
    """When it ended and when it was complete, and how each delivery stands that has ended."""
    stands: dict[int, _Stand] = {}
    closed, good, gone = set[int](), set[int](), set[int]()
    ended_us = complete_us = 0
    for record, time_us, number, row in _events(counted, rows):
        if row is not None and row.outcome is Outcome.FAILED:  # a replay had opened it again, if it had ended
            closed.discard(number)
            good.discard(number)
            continue
        ends = _ended_by(number, row, counted, closed)
        if not ends:
            gone.update((number,) if row is None else ())
            continue
        is_good = row is None or not _is_bad(row)
        closed.update(ends)
        (good.update if is_good else good.difference_update)(ends)
        stands.update(dict.fromkeys(ends, _Stand(is_good, record)))
        # The first end takes all deliveries. After it a replay mends the message without those that are gone by then.
        if not complete_us and len(good | gone if ended_us else good) == len(counted):
            complete_us = time_us
        if not ended_us and len(closed) == len(counted):
            ended_us = time_us
    return ended_us, complete_us, stands


def _events(
    counted: Mapping[int, Departed | None], rows: Iterable[TimedRow]
) -> Iterator[tuple[int, int, int, Row | None]]:
    """(record, time, subscriber, row) in the order of the log; no row: the subscriber was deleted."""
    events: list[tuple[int, int, int, Row | None]] = [
        (one.until, one.time_us, number, None) for number, one in counted.items() if one is not None
    ]
    events += [(one.record, one.time_us, one.row.subscriber, one.row) for one in rows]
    yield from sorted(events, key=lambda event: event[0])  # stable: rows of a record stay in its order


def _ended_by(
    number: int, row: Row | None, counted: Mapping[int, Departed | None], closed: AbstractSet[int]
) -> list[int]:
    """The subscribers at whom an event ends the delivery: one about everybody, or a deletion, only what is open."""
    if row is not None and row.outcome is Outcome.LATE:
        return []
    if row is not None and number != ALL_SUBSCRIBERS:
        return [number] * (number in counted)
    return [one for one in (counted if row is not None else (number,)) if one not in closed]


def _is_bad(row: Row) -> bool:
    return row.outcome in _BAD or row.reason in _BY_OPERATOR


def _slowest(counted: Iterable[int], stands: Mapping[int, _Stand]) -> int:
    open_at = [number for number in counted if number not in stands]
    if open_at:
        return min(open_at)
    bad = {number: stand for number, stand in stands.items() if not stand.is_good} or stands
    last = max(stand.record for stand in bad.values())
    return min(number for number, stand in bad.items() if stand.record == last)
