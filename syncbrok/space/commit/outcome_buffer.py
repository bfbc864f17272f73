"""Outcomes of deliveries on their way to the log: who waits for them, and what overtakes them. No clock, no I/O."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import Final

from syncbrok.model import limits
from syncbrok.model.facts import ALL_SUBSCRIBERS, FactOrRun, Outcome, Outcomes, Row

_SUBSCRIBER: Final = itemgetter(Row._fields.index("subscriber"))
_together: Final = 256
"""so many are not kept waiting for company"""


class OutcomeBuffer:
    """Rows that wait to be written, in order. Not bounded here: the committer stops attempts where there are many."""

    __slots__ = ("_rows", "_urgent", "hurry")

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._urgent = 0
        """up to this place somebody may wait for one of them"""
        self.hurry = False
        """somebody waits for one of them, or they have lingered long enough"""

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def urgent(self) -> bool:
        """Whether somebody may wait for one of the oldest to be durable."""
        return self._urgent > 0

    def put(self, rows: Sequence[Row], urgent: bool) -> None:
        """``urgent``: somebody waits for one of them."""
        self._rows.extend(rows)
        self.hurry = self.hurry or urgent or len(self._rows) >= _together
        if urgent:
            self._urgent = len(self._rows)

    def first(self, count: int, ends: Callable[[Row], int]) -> tuple[Row, ...]:
        """The oldest, at most ``count``, to be written now; they stay until they are ``written``. Fewer where some end
        their message at all its subscribers, which are applied in one piece: ``ends`` tells how many deliveries those
        are (``limits.ends_slice``)."""
        rows = tuple(self._rows[:count])
        if ALL_SUBSCRIBERS in map(_SUBSCRIBER, rows):
            weights = accumulate([ends(row) if row.subscriber == ALL_SUBSCRIBERS else 1 for row in rows])
            rows = rows[: max(1, bisect_right(list(weights), limits.ends_slice))]
        self.hurry = len(rows) < len(self._rows)
        return rows

    def written(self, count: int, facts: Iterable[FactOrRun], *, opened: bool) -> None:
        """The oldest ``count`` are durable, in ``facts``; ``opened``: and among those may be what waits for one of the
        others. Answers that came while a row that ends their message as a whole was being written are ``LATE``."""
        del self._rows[:count]
        self._urgent = len(self._rows) if opened else max(0, self._urgent - count)
        if not self._rows:
            return
        ended = {
            row.message
            for fact in facts
            if isinstance(fact, Outcomes) and ALL_SUBSCRIBERS in map(_SUBSCRIBER, fact.rows)
            for row in fact.rows
            if row.subscriber == ALL_SUBSCRIBERS
        }
        for at, row in enumerate(self._rows if ended else ()):
            if row.message in ended and row.attempt:
                self._rows[at] = row._replace(outcome=Outcome.LATE, due_us=0)
