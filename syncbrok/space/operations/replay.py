"""Plans what a replay re-arms, in causal order (RULES 21).

The log order is a causal order, so messages are looked at by rising sequence: when one is reached, each of its parents
that belongs to the replay has been taken already. Children are found in the log's own index.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple, Protocol

from syncbrok.delivery.scheduler.lifecycle import OF_A_PARENT
from syncbrok.model.facts import RearmedEntry, Reason, Row, StoredMessage
from syncbrok.model.names import MessageId, sequence_of
from syncbrok.space.pause import pauses
from syncbrok.space.state.registry import Registry

SLICE: Final = 64
"""messages read at once"""
_through_parent: Final = OF_A_PARENT | {Reason.HOLD_EXPIRED}


class ReplayedState(Protocol):
    """The scheduler's knowledge of messages; see ``delivery.scheduler.queries``."""

    def ended(self, sequence: int) -> bool: ...

    def delivery_state(self, sequence: int, subscriber: int) -> str: ...

    def dead_letter(self, sequence: int, subscriber: int) -> Reason | None: ...


class MessageHistory(NamedTuple):
    """The history of a message in the log. ``rows`` are all its rows, oldest first."""

    rows: tuple[Row, ...]
    children: tuple[int, ...]


Read = Callable[[list[int]], Awaitable[list[StoredMessage | None]]]
"""Messages of at most ``SLICE`` sequences, in that order; None for what retention has dropped."""
ReadHistories = Callable[[list[int]], Awaitable[list[MessageHistory]]]
"""Histories of at most ``SLICE`` of them, in that order."""


class Wish(NamedTuple):
    """A replay as an operator asked for it.

    ``messages``: the messages it begins with, each with the numbers of the subscribers to redeliver to. None means
    those that have not received it, or all of them if each has. ``descendants``: whether descendants that had been
    delivered go out too. ``subscriber``: the number of the only one that descendants go to, 0 for no such limit."""

    messages: Mapping[int, frozenset[int] | None]
    descendants: bool
    subscriber: int = 0


class ReplayStep(NamedTuple):
    entry: RearmedEntry
    id: MessageId


class Planner:
    """Makes the entries of one replay. ``skipped`` counts the messages asked for that have not ended, ``left`` the dead
    letters that a replay to everyone would send, and one that is narrowed to a subscriber leaves as they are.
    ``erased``: the messages asked for of which nothing is left to send."""

    def __init__(self, state: ReplayedState, registry: Registry, read: Read, read_histories: ReadHistories) -> None:
        self._state = state
        self._registry = registry
        self._read = read
        self._read_histories = read_histories
        self.skipped = 0
        self.erased: set[int] = set()
        self.left = 0

    async def steps(self, wish: Wish) -> AsyncIterator[ReplayStep]:
        """Parents before children."""
        taken: set[int] = set()
        queued = set(wish.messages)
        heap = list(queued)
        heapify(heap)
        pause = pauses()
        while heap:
            together = [heappop(heap) for _ in range(min(SLICE, len(heap)))]
            # Looked at before the read: the rows of what ends during it may be missing from what is read.
            ended = [self._state.ended(sequence) for sequence in together]
            messages = self._without_erased(await self._read(together), wish)
            histories = await self._histories([m for m in messages if m is not None and self._concerns(m, wish)])
            for at, message in enumerate(messages):
                if heap and heap[0] < together[at]:  # a child just found comes before the rest of the slice
                    for sequence in together[at:]:
                        heappush(heap, sequence)
                    break
                await pause()  # one message may go to thousands
                if not ended[at]:
                    self.skipped += together[at] in wish.messages
                    continue
                history = histories.get(together[at])
                if message is None or history is None:
                    continue
                entry = self._entry(message, history.rows, wish, taken)
                left = self._left(message, wish, () if entry is None else entry.subscribers)
                self.left += left
                if entry is not None:
                    taken.add(entry.message)
                    yield ReplayStep(entry, message.id)
                for child in history.children if entry is not None or left else ():
                    if child not in queued:
                        queued.add(child)
                        heappush(heap, child)

    def _without_erased(self, messages: list[StoredMessage | None], wish: Wish) -> list[StoredMessage | None]:
        """The messages of which something is left to send, in their places."""
        erased = [one.sequence for one in messages if one is not None and one.erased]
        self.erased.update(wish.messages.keys() & erased)
        return [None if one is None or one.erased else one for one in messages]

    def _concerns(self, message: StoredMessage, wish: Wish) -> bool:
        """False where it stays as it is whatever becomes of its parents. It is asked before the history is read: a root
        may have thousands of children that were delivered, and to decode the rows of one takes most of a millisecond.
        """
        if wish.descendants or message.sequence in wish.messages:
            return True
        counted = self._registry.counted(message.queue, message.sequence, message.only)
        return any(self._failed_through(message.sequence, number) for number in counted)

    async def _histories(self, messages: Collection[StoredMessage]) -> Mapping[int, MessageHistory]:
        sequences = [message.sequence for message in messages]
        return dict(zip(sequences, await self._read_histories(sequences), strict=True)) if sequences else {}

    def _entry(self, message: StoredMessage, rows: Iterable[Row], wish: Wish, taken: set[int]) -> RearmedEntry | None:
        """None where it stays as it is."""
        sequence = message.sequence
        subscribers = self._subscribers(message, wish, taken)
        if not subscribers:
            return None
        attempts = _attempts(rows)
        return RearmedEntry(
            sequence,
            message.queue,
            subscribers,
            tuple(
                parent
                for parent in map(sequence_of, message.parents)
                if parent in taken or not self._state.ended(parent)
            ),
            tuple(attempts.get(number, 0) for number in subscribers),
            message.parent_failure,
            "" if message.only else message.key,
        )

    def _subscribers(self, message: StoredMessage, wish: Wish, taken: set[int]) -> tuple[int, ...]:
        """Numbers of those to whom it goes again."""
        counted = self._registry.counted(message.queue, message.sequence, message.only)
        if message.sequence in wish.messages:
            wanted = wish.messages[message.sequence]
            if wanted is not None:
                present = self._registry.subscribers(message.queue)
                return tuple(subscriber.number for subscriber in present if subscriber.number in wanted)
            missed = tuple(number for number in counted if not self._went_well(message.sequence, number))
            return missed or counted
        if taken.isdisjoint(map(sequence_of, message.parents)):
            return ()  # looked at for the sake of what is left alone
        return tuple(
            number
            for number in counted
            if wish.subscriber in (0, number) and (wish.descendants or self._failed_through(message.sequence, number))
        )

    def _left(self, message: StoredMessage, wish: Wish, subscribers: Collection[int]) -> int:
        """How many dead letters of the message a replay to everyone would send and this one, to ``subscribers``, does
        not."""
        if not wish.subscriber:
            return 0
        sequence = message.sequence
        every = sequence in wish.messages or wish.descendants
        sent_to = frozenset(subscribers)
        return sum(
            number not in sent_to
            and (self._state.dead_letter(sequence, number) is not None if every
                 else self._failed_through(sequence, number))
            for number in self._registry.counted(message.queue, sequence, message.only)
        )  # fmt: skip

    def _went_well(self, sequence: int, number: int) -> bool:
        return self._state.delivery_state(sequence, number) in ("delivered", "skipped")

    def _failed_through(self, sequence: int, number: int) -> bool:
        """Whether the delivery died because a parent had not become complete."""
        return self._state.dead_letter(sequence, number) in _through_parent


def _attempts(rows: Iterable[Row]) -> dict[int, int]:
    """Subscriber -> the highest number an attempt has had."""
    highest: dict[int, int] = {}
    for row in rows:
        highest[row.subscriber] = max(row.attempt, highest.get(row.subscriber, 0))
    return highest
