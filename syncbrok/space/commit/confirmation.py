"""Publishers that are answered once another broker has their messages in its file too.

    hold        a batch is written and applied; its publishers wait for the last record that the log has now
    confirmed   how far another broker has the log: whoever waits for no more is answered
    over        nobody has come so far in time, or nobody was heard for as long: answered without, and that is said

In order, so that who repeats a message is not answered before who published it. ``ConfirmationLine`` is pure; times
are ``time.monotonic``.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from syncbrok.model import limits
from syncbrok.model.journal import QUORUM
from syncbrok.space.channels import Accepted
from syncbrok.space.commit.channel import ChannelItem
from syncbrok.space.commit.commit_batch import CommitBatch
from syncbrok.space.meters import Meters

_HELD_MAX: Final = limits.channel_items_max
"""messages; with more of them no further ones are taken"""
_CHECKS: Final = 20
"""at the time, while it runs out once"""


class Copies(Protocol):
    """How far other brokers have this log in their files."""

    @property
    def patience_s(self) -> float:
        """How long publishers wait for one."""
        ...

    def confirmed_through(self) -> tuple[int, float]:
        """The last record that some other broker has, and when one was heard last."""
        ...

    def listen(self, changed: Callable[[], object]) -> None:
        """``changed`` is called whenever one is heard, from any thread; who listened before is forgotten."""
        ...


class ConfirmationStatistics(NamedTuple):
    """Messages: those that wait now, and those that were answered without since the start."""

    waiting: int
    unconfirmed: int


class HeldAnswers(NamedTuple):
    """The answers to the publishers of one batch. ``through``: the record to wait for."""

    through: int
    since_s: float
    records: int
    answers: Sequence[tuple[ChannelItem, Accepted]]


class ConfirmationLine:
    """The held answers of all batches, first in, first out; ``confirmed`` says what lets them go."""

    def __init__(self, patience_s: float, now_s: float) -> None:
        self._patience_s = patience_s
        self._line: deque[HeldAnswers] = deque()
        self._through = 0
        self._heard_s = now_s
        self.records = 0
        """that are waited for"""

    def add(self, held: HeldAnswers) -> None:
        self._line.append(held)
        self.records += held.records

    def confirmed(self, through: int, at_s: float) -> None:
        """Another broker has the log through here, and was heard then. (One that has lost its disk has less.)"""
        self._through, self._heard_s = through, max(self._heard_s, at_s)

    def due(self, now_s: float) -> Iterator[tuple[HeldAnswers, bool]]:
        """Take out those that wait no more, oldest first; for each whether it is confirmed."""
        while self._line:
            first = self._line[0]
            confirmed = first.through <= self._through
            if not confirmed and now_s < min(first.since_s, self._heard_s) + self._patience_s:
                return
            yield self._pop(), confirmed

    def pop_all(self) -> Iterator[HeldAnswers]:
        """Take out all that still wait."""
        while self._line:
            yield self._pop()

    def _pop(self) -> HeldAnswers:
        first = self._line.popleft()
        self.records -= first.records
        return first


class Confirmations:
    """Holds the answers of a committer. On the event loop."""

    def __init__(self, copies: Copies, meters: Meters) -> None:
        self._copies = copies
        self._meters = meters
        self._line = ConfirmationLine(copies.patience_s, time.monotonic())
        self.check_every_s = copies.patience_s / _CHECKS

    @property
    def waits(self) -> bool:
        """Whether ``check`` is to be called again."""
        return self._line.records > 0

    @property
    def full(self) -> bool:
        return self._line.records >= _HELD_MAX

    def hold(self, batch: CommitBatch, through: int) -> None:
        """The log ends with ``through``, and what is in the batch is in it: publishers wait, all others are
        answered."""
        answers = batch.resolve_but(Accepted)
        if answers:
            records = sum(max(1, len(accepted.id_bytes) // 16) for _, accepted in answers)
            self._line.add(HeldAnswers(through, time.monotonic(), records, answers))
            self.check()

    def listen(self, changed: Callable[[], object]) -> None:
        """See ``Copies``."""
        self._copies.listen(changed)

    def check(self) -> None:
        """Answer those that wait no more."""
        self._line.confirmed(*self._copies.confirmed_through())
        for held, confirmed in self._line.due(time.monotonic()):
            self._answer(held, confirmed=confirmed)
        self._meters.confirmations_waiting = self._line.records

    def end(self) -> None:
        """Nobody is waited for any more: a quorum has all of it."""
        for held in self._line.pop_all():
            self._answer(held, confirmed=False)

    def _answer(self, held: HeldAnswers, *, confirmed: bool) -> None:
        if not confirmed:
            self._meters.unconfirmed += held.records
        for waiting, accepted in held.answers:
            waiting.resolve(accepted if confirmed else accepted._replace(sync=QUORUM, weaker=True))
