"""A batch of facts in the making: what one commit will write, and whom it answers.

Facts are made against what is applied. Two changes of one queue's declarations would not see each other in one batch,
so the first one ``claim``s the queue, and whatever else concerns it waits for the next batch (``RetryNextBatch``).
"""

import logging
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from types import GeneratorType
from typing import Any, Final, NamedTuple

from syncbrok.model.errors import BrokerFault, SyncbrokError
from syncbrok.model.facts import (
    PARENTS_TOGETHER,
    Action,
    Attributes,
    Extras,
    Fact,
    FactOrRun,
    Keyed,
    Managed,
    Messages,
    Outcomes,
    last_sequence,
)
from syncbrok.model.names import MessageId
from syncbrok.space.commit.channel import ChannelItem
from syncbrok.space.commit.message_ids import Identities

_log = logging.getLogger(__name__)

_TOGETHER: Final = 64
"""so many messages that are looked at one by one are applied without a look at other work"""


class RetryNextBatch(Exception):
    """Not an error: the item cannot be worked on in this batch and keeps its place in line for the next one."""


class _Elsewhere:
    """The receipt is in other hands: a job or a look-up resolves it, or puts the item back."""


ELSEWHERE: Final = _Elsewhere()


class First(NamedTuple):
    """The message that an idempotency key belongs to (RULES 4)."""

    fingerprint: bytes
    id: MessageId
    sequence: int


Step = Callable[["CommitBatch", ChannelItem], Any]
"""Puts the facts of an item into the batch and returns its receipt's result, or ``ELSEWHERE``. Raises ``ClientFault``
or ``BrokerFault`` having changed nothing, or ``RetryNextBatch``."""


def run_step(batch: "CommitBatch", waiting: ChannelItem) -> Any:
    """The step of an item that is one itself: ``item(batch)``."""
    return waiting.item(batch)


class CommitBatch:
    """Sequences are given out in order from ``sequence``; all facts of a batch have one time.

    Units of messages that follow each other become one ``Messages``, each still a unit of its own: so many single
    publishes cost the rest of the way what a batch does.
    """

    __slots__ = ("_contents", "_extras", "_stretches", "added", "after", "answers", "before", "claimed", "deferred",
                 "essential", "facts", "first", "ids", "keys", "now_us", "rows", "sequence", "size_bytes", "slow",
                 "synced", "time_us", "undo", "unit_ends", "urgent")  # fmt: skip

    def __init__(
        self, sequence: int, time_us: int, id_key: bytes = bytes(16), messages: int = 1, now_us: int | None = None
    ) -> None:
        """``time_us`` is the time of its records, never before that of the newest record; ``now_us`` the wall clock,
        from which alone anything due is counted (None: the same), so the ids have that one. ``messages``: how many are
        expected."""
        self.first = self.sequence = sequence
        self.time_us = time_us
        self.now_us = time_us if now_us is None else now_us
        self.ids = Identities(self.now_us // 1_000, id_key, messages)
        self.facts: list[FactOrRun] = []
        """in order; messages stand in here once no more follow them, with ``close`` at the latest"""
        self._contents: list[bytes] = []  # of messages that may be followed by more
        self._stretches: list[tuple[int, Attributes]] = []
        self._extras: dict[int, Extras] = {}
        self.unit_ends: list[int] = []
        """positions of the records that end a unit"""
        self.rows = 0
        """how many outcome rows it takes off the waiting ones, in its first fact"""
        self.urgent = False
        """somebody may wait for one of those"""
        self.size_bytes = 0
        self.answers: list[tuple[ChannelItem, Any]] = []
        """what each item is answered once the facts are durable and applied"""
        self.slow: tuple[ChannelItem, Generator[None, None, Any]] | None = None
        """an item that takes many turns of the loop, and the steps of it that are left; nothing else comes meanwhile"""
        self.claimed: set[str] = set()
        self.deferred: list[ChannelItem] = []
        """items, and parts of items, that go back to the front of the channel being worked off"""
        self.keys: dict[tuple[int, str], First] = {}
        """idempotency keys of this batch's messages, by (queue number, key)"""
        self.added: dict[int, tuple[int, int]] = {}
        """to queues (numbers) that bound their backlog: messages, and bytes of their contents"""
        self.before: list[Callable[[], Awaitable[None]]] = []
        """awaited, one after the other, before the facts are written; also where there are none"""
        self.after: list[Callable[[], None]] = []
        """run on the loop when the facts are durable and applied; also where there are none"""
        self.undo: list[Callable[[], None]] = []
        """run on the loop when the log had no room"""
        self.essential = False
        """may be written from the log's reserve"""
        self.synced = False
        """must be on the disk before it is applied, though the policy would let it wait"""

    @property
    def records(self) -> int:
        """The number of records in the batch."""
        return self.sequence - self.first

    def add(self, *facts: Fact) -> None:
        """Add facts as one unit, of which recovery keeps all or none. Their sequences begin with ``sequence``."""
        assert facts[0].sequence == self.sequence
        self._end_messages(None)
        self.facts.extend(facts)
        self.sequence += len(facts)
        self.unit_ends.append(self.records - 1)

    def say_who(self, by: str, action: Action, queue: int, message: int = 0) -> None:
        """Add who did something whose own facts have no room for a name, as ``Managed`` has it."""
        self.add(Managed(self.sequence, self.time_us, by, action, queue, message))

    def publish(
        self,
        stretches: Iterable[tuple[int, Attributes]],
        contents: Sequence[bytes],
        extras: Mapping[int, Extras] = {},
        keyed: Keyed | None = None,
        *,
        one_unit: bool = True,
    ) -> None:
        """Messages, as one unit or each as its own; the columns are those of ``Messages``. They bear the sequences from
        ``sequence`` on and the ids that ``ids`` gives for those."""
        if keyed is not None:
            self._end_messages(None)
        before, begin, known = self.records, len(self._contents), self._stretches
        self._contents += contents
        for end, attributes in stretches:
            if known and known[-1][1] == attributes:
                known.pop()
            known.append((begin + end, attributes))
        for position, more in extras.items():
            self._extras[begin + position] = more
        self.sequence += len(contents)
        self.size_bytes += sum(map(len, contents))
        if one_unit:
            self.unit_ends.append(self.records - 1)
        else:
            self.unit_ends.extend(range(before, self.records))
        if keyed is not None:
            self._end_messages(keyed)

    def join_unit(self) -> None:
        """Let the last unit be one with that before it: recovery keeps both or none."""
        del self.unit_ends[-2]

    def rewrite(self, sequence: int, content: bytes) -> None:
        """Another content for a message of the batch, which is closed and not yet written."""
        for at, fact in enumerate(self.facts):
            if isinstance(fact, Messages) and fact.sequence <= sequence <= fact.last:
                contents = list(fact.contents)
                contents[sequence - fact.sequence] = content
                self.facts[at] = fact._replace(contents=contents)

    def close(self) -> None:
        """End the batch: ``facts`` has all of it."""
        self._end_messages(None)
        assert not self.facts or last_sequence(self.facts[-1]) == self.sequence - 1, "facts stand in order"

    def _end_messages(self, keyed: Keyed | None) -> None:
        contents = self._contents
        if not contents:
            return
        first = self.sequence - len(contents)
        ids = self.ids.joined(first, len(contents))
        messages = Messages(first, self.time_us, ids, self._stretches, contents, self._extras, keyed)
        if len(self._extras) <= _TOGETHER >= len(self._stretches) and messages.parents <= PARENTS_TOGETHER:
            self.facts.append(messages)
        else:
            self.facts += messages.parts(_TOGETHER)
        self._contents, self._stretches, self._extras = [], [], {}

    def opens_gates(self) -> bool:
        """True if applying this batch could let a dependent message go out. Such a batch must be fsynced first,
        whatever the sync policy (RULES 6 and 13).

        True for an end that somebody waits for, for a message with parents or a key (those before it may have ended a
        moment ago), and for declarations. False for messages without either, and for outcomes nobody waits for."""
        for fact in self.facts:
            match fact:
                case Messages():
                    opens = any(extras.parents or extras.key for extras in fact.extras.values())
                case Outcomes() if self.rows and fact.sequence == self.first:
                    opens = self.urgent
                case _:
                    opens = True
            if opens:
                return True
        return False

    def claim(self, queue: str) -> None:
        """Say that this batch changes declarations of the queue; raises ``RetryNextBatch`` where one did before."""
        if queue in self.claimed:
            raise RetryNextBatch
        self.claimed.add(queue)

    def answer(self, waiting: ChannelItem, step: Step) -> bool:
        """Work on one item; False where it must wait for the next batch."""
        before = self.sequence
        try:
            result = step(self, waiting)
        except RetryNextBatch:
            return False
        except SyncbrokError as why:
            waiting.refuse(why)
        except Exception:
            waiting.refuse(BrokerFault("the broker could not do it because of a defect of its own; its log says more"))
            if self.sequence != before:
                raise  # half of it may stand in the batch: nothing of it must be written
            _log.exception("syncbrok.space.step_failed", extra={"item": type(waiting.item).__name__})
        else:
            if type(result) is GeneratorType:
                self.slow = waiting, result
            elif result is not ELSEWHERE:
                self.answers.append((waiting, result))
        return True

    def go_on(self, has_time: Callable[[], bool]) -> bool:
        """Work on at the ``slow`` item, while there is time; whether it is done."""
        assert self.slow is not None
        waiting, steps = self.slow
        self.slow = None

        def some(*_: object) -> Any:
            try:
                while has_time():
                    next(steps)
            except StopIteration as end:
                return end.value
            return steps

        self.answer(waiting, some)
        return self.slow is None

    def resolve(self) -> None:
        for waiting, result in self.answers:
            waiting.resolve(result)

    def resolve_but(self, kind: type) -> list[tuple[ChannelItem, Any]]:
        """Resolve those whose result is of another kind; the others, in order."""
        left = []
        for answer in self.answers:
            if type(answer[1]) is kind:
                left.append(answer)
            else:
                answer[0].resolve(answer[1])
        return left

    def refuse(self, why: Callable[[], BaseException]) -> None:
        for waiting, _ in (*self.answers, *([self.slow] if self.slow is not None else ())):
            waiting.refuse(why())

    def __repr__(self) -> str:
        return f"<CommitBatch first={self.first} records={self.records} receipts={len(self.answers)}>"
