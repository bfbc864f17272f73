"""The rows of one message, sorted by subscriber: what the log says of each of its deliveries.

Rows are sorted once and read for one subscriber after the other, so thousands of subscribers cost no more than their
rows. Pure: whoever reads rows in a thread sorts them there.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import chain

from syncbrok.model.facts import ALL_SUBSCRIBERS, Outcome, Reason, Row

_ENDS = frozenset(Outcome) - {Outcome.FAILED, Outcome.LATE}
_WELL = (Outcome.DELIVERED, Outcome.SKIPPED)
_Placed = tuple[int, Row]
"""a row and its place among those of its message"""


class MessageRows:
    """``rows``: those of one message, oldest first."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._own: dict[int, list[_Placed]] = {}
        self._everywhere: list[_Placed] = []
        """rows that end the message at whoever has not ended it"""
        for at, row in enumerate(rows):
            if row.subscriber == ALL_SUBSCRIBERS:
                self._everywhere.append((at, row))
            else:
                self._own.setdefault(row.subscriber, []).append((at, row))

    @property
    def subscribers(self) -> Collection[int]:
        """Numbers of those that have rows of their own, in the order in which they first appear."""
        return self._own.keys()

    def any_of(self, reason: Reason) -> bool:
        """Whether one of them gives this reason."""
        own = (row for placed in self._own.values() for _, row in placed)
        return any(row.reason == reason for row in chain(own, (row for _, row in self._everywhere)))

    def of(
        self, subscriber: int, *, from_start: bool = True, skipped: bool = True, until_us: int | None = None
    ) -> list[Row]:
        """The rows of its delivery, oldest first. One that ends the message everywhere is among them where the delivery
        had not ended before (RULES 20). It is not one of these that is earlier than the delivery's own first row,
        unless the message was for it ``from_start``; that says ``skipped``, where that does not count for it; and that
        is later than ``until_us``."""
        own = self._own.get(subscriber, ())
        begins = -1 if from_start or not own else own[0][0]
        ends = [
            (at, row)
            for at, row in self._everywhere
            if at > begins
            and (skipped or row.outcome is not Outcome.SKIPPED)
            and (until_us is None or row.time_us <= until_us)
        ]
        if not ends:
            return [row for _, row in own]
        found: list[Row] = []
        ended: Outcome | None = None
        for _, row in sorted((*own, *ends), key=_place):
            if row.subscriber == ALL_SUBSCRIBERS:
                # A delivery that ended badly and ends again was re-armed in between; one that ended well stays so.
                if ended not in _WELL:
                    found.append(row._replace(subscriber=subscriber))
                    ended = row.outcome
                continue
            found.append(row)
            if row.outcome in _ENDS:
                ended = row.outcome
            elif row.outcome is Outcome.FAILED:
                ended = None  # a replay has armed it again
        return found


def _place(placed: _Placed) -> int:
    return placed[0]


def last_end(rows: Sequence[Row]) -> Row | None:
    """The last of a delivery's rows that ended it; None where none has."""
    return next((row for row in reversed(rows) if row.outcome in _ENDS), None)


def of_its_death(rows: Sequence[Row], reason: int) -> Sequence[Row]:
    """The rows of a dead letter. A row behind it that ends the message everywhere ended a replay to others; the log
    does not say with the row whom that was for, the scheduler knows who it was not."""
    deaths = (at for at, row in enumerate(rows, 1) if row.outcome is Outcome.DEAD and row.reason == reason)
    died = max(deaths, default=len(rows))
    return [*rows[:died], *(row for row in rows[died:] if row.outcome not in _ENDS)]
