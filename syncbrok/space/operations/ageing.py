"""Which messages of a queue are old enough to be erased, so long after each has ended (RULES 37). Pure.

    passed   a line goes over the messages of its queue in the order accepted, up to the first that is too young
    left     of what it has passed: pieces with a message that has not ended, or not long ago; each with the time before
             which nothing in it can be due. They are looked at again then

So it keeps no message: a few numbers for each piece, and where those become many, neighbours are one. All of it
follows from the log again: after a start a line begins anew, and finds most of what it meets erased.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from syncbrok.model.facts import ALL_SUBSCRIBERS, Outcome, Row

LEFT_MAX: Final = 256
"""pieces left of a line; where there are more, half as many are made of them"""
_OPEN: Final = (Outcome.FAILED, Outcome.LATE)
"""of a row that ends nothing"""


class LinePiece(NamedTuple):
    """The messages of the line's queue from ``first`` to ``last``; ``last`` is None where they are those that it has
    not passed."""

    first: int
    last: int | None


class Met(NamedTuple):
    """A message that was looked at. ``ended_us``: 0 where it has not ended. ``settled``: there is nothing to do for it
    any more, or never was."""

    sequence: int
    accepted_us: int
    ended_us: int
    settled: bool = False


class Left(NamedTuple):
    """A piece that the line has passed and in which nothing is due before ``again_us``."""

    first: int
    last: int
    again_us: int


def ended_us(accepted_us: int, rows: Iterable[Row], departed: Iterable[tuple[int, int]]) -> int:
    """The time at which a message that has ended did so for the last time. ``departed``: (number, time) of the
    subscribers that it was for and that were deleted, each of which ends what had not ended there."""
    latest_us, closed = accepted_us, set[int]()
    for row in rows:
        latest_us = max(latest_us, row.time_us + (row.latency_us if row.attempt else 0))
        if row.outcome not in _OPEN:
            closed.add(row.subscriber)
    if ALL_SUBSCRIBERS in closed:
        return latest_us
    return max([latest_us, *(time_us for number, time_us in departed if number not in closed)])


class Line:
    """The messages of one queue on their way to be erased ``delay_us`` after each has ended."""

    __slots__ = ("_left", "_rest", "delay_us", "passed")

    def __init__(self, delay_us: int) -> None:
        self.delay_us = delay_us
        self.passed = 0
        """sequence of the last message that was looked at once"""
        self._left: list[Left] = []  # in order, apart from each other
        self._rest: LinePiece | None = None
        """of a piece that is being looked at; apart, or it would be looked at again with what it is made one with"""

    def __repr__(self) -> str:
        return f"<Line of {self.delay_us} us passed={self.passed} left={len(self._left)}>"

    @property
    def left(self) -> Sequence[Left]:
        return self._left

    def take(self, now_us: int) -> LinePiece:
        """The piece to judge next: one that was left and whose time has come, else what comes behind all that it has
        passed. It counts as looked at once ``judge`` has been told."""
        if self._rest is not None:
            piece, self._rest = self._rest, None
            return piece
        for at, left in enumerate(self._left):
            if left.again_us <= now_us:
                del self._left[at]
                return LinePiece(left.first, left.last)
        return LinePiece(self.passed + 1, None)

    def give_back(self, piece: LinePiece) -> None:
        """The piece could not be looked at."""
        if piece.last is not None:
            self._rest = piece

    def judge(self, piece: LinePiece, met: Sequence[Met], now_us: int, *, more: bool) -> tuple[list[int], bool]:
        """The messages that are due of those ``met`` in the piece (in order, from its beginning on), and whether there
        may be something left to look at now. ``more``: others follow in the piece. What is due is settled with that:
        who cannot erase it says so by ``again``."""
        due: list[int] = []
        left: list[Left] = []
        looked = piece.first - 1
        is_young = joins = False
        for one in met:
            is_young = piece.last is None and self._is_young(one, now_us)
            if is_young:
                break
            looked = one.sequence
            again_us = 0 if one.settled else (one.ended_us or now_us) + self.delay_us
            if again_us and one.ended_us and again_us <= now_us:
                due.append(one.sequence)
                again_us = 0
            if again_us and joins:
                left[-1] = Left(left[-1].first, one.sequence, min(left[-1].again_us, again_us))
            elif again_us:
                left.append(Left(one.sequence, one.sequence, again_us))
            joins = bool(again_us)
        if piece.last is None:
            self.passed = max(self.passed, looked)
        elif more:
            self._rest = LinePiece(looked + 1, piece.last)
        self._put(left)
        return due, more and not is_young

    def again(self, sequences: Sequence[int], at_us: int) -> None:
        """These (in order) that were due are to be looked at again then."""
        self._put([Left(one, one, at_us) for one in sequences])

    def _is_young(self, one: Met, now_us: int) -> bool:
        """Whether neither it nor, as far as the clock has not been set, one behind it can be due. A time that is still
        to come says nothing."""
        return not one.settled and now_us - self.delay_us < one.accepted_us <= now_us and one.ended_us > 0

    def _put(self, more: Sequence[Left]) -> None:
        if not more:
            return
        ordered = sorted((*self._left, *more))
        joined = ordered[:1]
        for one in ordered[1:]:
            last = joined[-1]
            if one.first <= last.last:
                joined[-1] = Left(last.first, max(last.last, one.last), min(last.again_us, one.again_us))
            else:
                joined.append(one)
        self._left = joined if len(joined) <= LEFT_MAX else _fewer(joined)


def _fewer(left: Sequence[Left]) -> list[Left]:
    """The same, with the closest neighbours made one."""
    gaps = sorted(range(1, len(left)), key=lambda at: left[at].first - left[at - 1].last, reverse=True)
    begins = [0, *sorted(gaps[: LEFT_MAX // 2 - 1])]
    ends = [*begins[1:], len(left)]
    return [
        Left(left[begin].first, left[end - 1].last, min(one.again_us for one in left[begin:end]))
        for begin, end in zip(begins, ends, strict=True)
    ]
