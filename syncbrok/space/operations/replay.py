"""Plans what a replay re-arms, in causal order (RULES 21).

The log order is a causal order, so messages are looked at by rising sequence: when one is reached, each of its parents
that belongs to the replay has been taken already. Children are found in the log's own index.
"""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple, Protocol

from syncbrok.delivery.scheduler.lifecycle import OF_A_PARENT
from syncbrok.model import limits
from syncbrok.model.errors import TooLarge
from syncbrok.model.facts import RearmedEntry, Reason, Row, StoredMessage, Tried
from syncbrok.model.names import MessageId, sequence_of
from syncbrok.model.sequence_set import SequenceSet
from syncbrok.space.pause import pauses
from syncbrok.space.state.registry import Registry

SLICE: Final = 64
"""messages read at once"""
NOBODY: Final[frozenset[int]] = frozenset()
"""a message that is not wanted, but may be a descendant of one"""
_through_parent: Final = OF_A_PARENT | {Reason.HOLD_EXPIRED}


class ReplayedState(Protocol):
    """The scheduler's knowledge of messages; see ``delivery.scheduler.queries``."""

    def ended(self, sequence: int) -> bool: ...

    def delivery_state(self, sequence: int, subscriber: int) -> str: ...

    def dead_letter(self, sequence: int, subscriber: int) -> Reason | None: ...


class MessageHistory(NamedTuple):
    """The history of a message in the log. ``rows`` are all its rows, oldest first; ``tried`` tells of those that
    retention has dropped."""

    rows: tuple[Row, ...]
    tried: tuple[Tried, ...]
    children: tuple[int, ...]


Read = Callable[[list[int]], Awaitable[list[StoredMessage | None]]]
"""Messages of at most ``SLICE`` sequences, in that order; None for what retention has dropped."""
ReadHistories = Callable[[list[int]], Awaitable[list[MessageHistory]]]
"""Histories of at most ``SLICE`` of them, in that order."""


class ReplaySource(Protocol):
    """The messages that a replay begins with."""

    async def after(self, sequence: int) -> list[int]:
        """The lowest behind ``sequence``, in order, some of them; none where there are no more."""
        ...

    def at(self, sequence: int) -> AbstractSet[int] | None:
        """The subscribers (numbers) to send it to; none of them where it is not wanted. None means those that have not
        received it, or all of them if each has."""
        ...


class Wish(NamedTuple):
    """A replay as an operator asked for it.

    ``descendants``: whether descendants that had been delivered go out too. ``subscriber``: the number of the only one
    that descendants go to, 0 for no such limit."""

    source: ReplaySource
    descendants: bool
    subscriber: int = 0


class Resumed(NamedTuple):
    """How far an earlier plan of the replay had come: the last message that it armed, all of those, and their children
    behind that one."""

    through: int = 0
    taken: SequenceSet | None = None
    children: Collection[int] = ()


class ReplayStep(NamedTuple):
    entry: RearmedEntry
    id: MessageId


class _Upcoming:
    """Messages to look at, by rising sequence: those wanted, and the children found on the way."""

    def __init__(self, source: ReplaySource, resumed: Resumed) -> None:
        self._source = source
        self._page: deque[int] = deque()
        self._through = resumed.through
        self._all_read = False
        self._children = list(resumed.children)
        heapify(self._children)
        self._queued = set(self._children)
        """those among the children, and those that are being looked at"""
        self._looked_at: list[int] = []

    async def some(self) -> list[int]:
        """The next ones, taken out; none at the end. Those of before have been looked at."""
        self._queued.difference_update(self._looked_at)
        found: list[int] = []
        self._looked_at = found
        while len(found) < SLICE:
            if not self._page and not self._all_read:
                self._page.extend(await self._source.after(self._through))
                self._all_read = not self._page
                self._through = self._page[-1] if self._page else self._through
            if self._children and (not self._page or self._children[0] <= self._page[0]):
                one = heappop(self._children)
                if self._page and self._page[0] == one:
                    self._page.popleft()
            elif self._page:
                one = self._page.popleft()
            else:
                break
            found.append(one)
            self._queued.add(one)
        return found

    def add(self, children: Iterable[int]) -> None:
        for child in children:
            if child not in self._queued:
                self._queued.add(child)
                heappush(self._children, child)

    def put_back(self, at: int) -> None:
        """Let those that were taken out come again, from that place on."""
        back = self._looked_at[at:]
        self._looked_at = self._looked_at[:at]
        for sequence in back:
            heappush(self._children, sequence)

    def is_first(self, sequence: int) -> bool:
        """Whether nothing that is here comes before it."""
        return not self._children or sequence <= self._children[0]


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
        self.erased = 0
        self.left = 0

    async def count(self, wish: Wish) -> int:
        """How many messages would go, as the log stands. Raises ``TooLarge``."""
        total = 0
        async for _ in self.steps(wish):
            total += 1
            if total > (most := limits.replay_messages_max):
                raise TooLarge(f"more than {most} messages would go; ask about fewer at once", limit=most)
        return total

    async def steps(self, wish: Wish, resumed: Resumed = Resumed()) -> AsyncIterator[ReplayStep]:  # noqa: B008 (frozen)
        """Parents before children."""
        taken = resumed.taken or SequenceSet()
        upcoming = _Upcoming(wish.source, resumed)
        pause = pauses()
        while together := await upcoming.some():
            # Looked at before the read: the rows of what ends during it may be missing from what is read.
            ended = [self._state.ended(sequence) for sequence in together]
            wanted = await self._wanted(wish, together, pause)
            messages = await self._read(together)
            histories = await self._histories(await self._concerned(wish, messages, wanted, pause))
            for at, message in enumerate(messages):
                if not upcoming.is_first(together[at]):  # a child just found comes before the rest of the slice
                    upcoming.put_back(at)
                    break
                await pause()  # one message may go to thousands
                if message is not None and message.erased:
                    self.erased += wanted[at] != NOBODY
                    continue
                if not ended[at]:
                    self.skipped += wanted[at] != NOBODY
                    continue
                history = histories.get(together[at])
                if message is None or history is None:
                    continue
                entry = self._entry(message, history, wish, wanted[at], taken)
                left = self._left(message, wish, wanted[at], () if entry is None else entry.subscribers)
                self.left += left
                if entry is not None:
                    taken.add(entry.message)
                    yield ReplayStep(entry, message.id)
                upcoming.add(history.children if entry is not None or left else ())

    async def _wanted(
        self, wish: Wish, sequences: Sequence[int], pause: Callable[[], Awaitable[None]]
    ) -> list[AbstractSet[int] | None]:
        found = []
        for sequence in sequences:
            found.append(wish.source.at(sequence))
            await pause()  # each may be looked for at thousands of subscribers
        return found

    async def _concerned(
        self,
        wish: Wish,
        messages: Sequence[StoredMessage | None],
        wanted: Sequence[AbstractSet[int] | None],
        pause: Callable[[], Awaitable[None]],
    ) -> list[StoredMessage]:
        """The messages whose history says what becomes of them."""
        found = []
        for one, to in zip(messages, wanted, strict=True):
            if one is not None and not one.erased and (wish.descendants or to != NOBODY or self._failed(one)):
                found.append(one)
            await pause()
        return found

    def _failed(self, message: StoredMessage) -> bool:
        """False where it stays as it is whatever becomes of its parents. It is asked before the history is read: a root
        may have thousands of children that were delivered, and to decode the rows of one takes most of a millisecond.
        """
        counted = self._registry.counted(message.queue, message.sequence, message.only)
        return any(self._failed_through(message.sequence, number) for number in counted)

    async def _histories(self, messages: Collection[StoredMessage]) -> Mapping[int, MessageHistory]:
        sequences = [message.sequence for message in messages]
        return dict(zip(sequences, await self._read_histories(sequences), strict=True)) if sequences else {}

    def _entry(
        self,
        message: StoredMessage,
        history: MessageHistory,
        wish: Wish,
        at: AbstractSet[int] | None,
        taken: SequenceSet,
    ) -> RearmedEntry | None:
        """None where it stays as it is. ``at``: see ``ReplaySource``."""
        sequence = message.sequence
        subscribers = self._subscribers(message, wish, at, taken)
        if not subscribers:
            return None
        attempts = attempts_of(history.rows, history.tried)
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

    def _subscribers(
        self, message: StoredMessage, wish: Wish, at: AbstractSet[int] | None, taken: SequenceSet
    ) -> tuple[int, ...]:
        """The subscribers (numbers) to deliver it to again. ``at`` names them. None: those that have not received it,
        or all if every one has. Empty: those where it failed through a parent in ``taken``, or all with
        ``descendants``."""
        counted = self._registry.counted(message.queue, message.sequence, message.only)
        if at is None:
            missed = tuple(number for number in counted if not self._went_well(message.sequence, number))
            return missed or counted
        if at:
            present = self._registry.subscribers(message.queue)
            return tuple(subscriber.number for subscriber in present if subscriber.number in at)
        if not any(sequence_of(parent) in taken for parent in message.parents):
            return ()  # looked at for the sake of what is left alone
        return tuple(
            number
            for number in counted
            if wish.subscriber in (0, number) and (wish.descendants or self._failed_through(message.sequence, number))
        )

    def _left(
        self, message: StoredMessage, wish: Wish, at: AbstractSet[int] | None, subscribers: Collection[int]
    ) -> int:
        """How many dead letters of the message a replay to everyone would send and this one, to ``subscribers``, does
        not."""
        if not wish.subscriber:
            return 0
        sequence = message.sequence
        every = at != NOBODY or wish.descendants
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


def attempts_of(rows: Iterable[Row], tried: Iterable[Tried]) -> dict[int, int]:
    """Subscriber -> the highest number an attempt has had: by the rows, and by a record that carries the message."""
    highest = {one.subscriber: one.attempts for one in tried}
    for row in rows:
        highest[row.subscriber] = max(row.attempt, highest.get(row.subscriber, 0))
    return highest
