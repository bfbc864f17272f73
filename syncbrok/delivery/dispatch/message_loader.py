"""Reads messages from the log that are not in memory: those of attempts that were taken, in runs, and those expected
next.

There are two readers. One reads the messages that attempts wait for, the other those that ``Prefetch`` expects next. In
one run with the expected ones, the first messages of a backlog would wait for a thousand others. Messages go to the
dispatcher as they arrive, for consumers in the order taken (``ReorderBuffer``).
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Final, Protocol

from syncbrok.delivery.dispatch.content_room import ContentRoom
from syncbrok.delivery.dispatch.prefetch import Prefetch
from syncbrok.delivery.dispatch.reorder_buffer import Pair, ReorderBuffer
from syncbrok.delivery.handler import Attempt, Destination
from syncbrok.model import limits
from syncbrok.model.facts import StoredMessage

READERS: Final = 2
READ_RUN_MAX: Final = 1_024
READ_RUN_BYTES: Final = 4 * limits.MIB
"""messages and, as far as can be told before, bytes read at once; and as many again of those that come next. Long runs
are cheap: with short ones the readers and the loop take the interpreter from each other all the time."""


class Receiver(Protocol):
    """Receives what was read: the dispatcher."""

    def fetched(self, pairs: list[Pair]) -> None:
        """Take messages that may go out now: there is room for them. Those to one subscriber stand together."""

    def lost(self, attempt: Attempt) -> None:
        """Its message is gone from the log."""

    def may_begin(self, pairs: list[Pair]) -> list[Pair]:
        """The pairs whose attempts may still begin. The other attempts are not out any more."""

    def put_back(self, pairs: list[Pair]) -> None:
        """Take back messages that must not go out now; they will be taken again."""

    def not_begun(self, attempts: list[Attempt]) -> None:
        """Hear that these attempts were withdrawn before they were read, and are not out any more."""

    def too_late(self, count: int) -> None:
        """``count`` attempts were still being read at the end of the drain; they never began."""


class MessageLoader:
    """``read`` fetches messages from the log, only the first of those asked for where all would be too many bytes;
    ``in_memory`` says of one whether that is needless: it is there, and is not made for the question, which would copy
    a megabyte for nothing. ``upcoming`` and ``destination``: see ``dispatcher``."""

    def __init__(
        self,
        receiver: Receiver,
        room: ContentRoom,
        read: Callable[[Sequence[int]], Awaitable[list[StoredMessage | None]]],
        in_memory: Callable[[int], bool],
        upcoming: Callable[[int, int], Sequence[int]],
        destination: Callable[[int], Destination],
    ) -> None:
        self._receiver = receiver
        self._room = room
        self._read = read
        self._in_memory = in_memory
        self._upcoming = upcoming
        self._unread: deque[Attempt] = deque()
        self._some = asyncio.Event()
        self.ahead = Prefetch()  # others may put by what they have read
        self.order = ReorderBuffer(destination)
        self._content_bytes = READ_RUN_BYTES // READ_RUN_MAX
        """how large the largest messages read lately were"""
        self._over = False
        self._under_way: dict[int, list[Attempt]] = {}
        """messages (sequences) that are being read, with the attempts that have come for them since: a second read of
        the same would take as long as the rest of this one"""
        self._doubtful = False
        self._forgotten: set[int] = set()
        """messages that are being read and may not be delivered as they are read"""

    def __len__(self) -> int:
        """Attempts that wait for their message, or for room for it."""
        return len(self._unread) + len(self._room)

    def fetch(self, attempt: Attempt) -> None:
        """Its message is not in memory. ``wake`` when all are told."""
        if attempt.subscriber in self._room.waiting:
            self._room.wait(attempt)
        elif attempt.message in self._under_way:
            self._under_way[attempt.message].append(attempt)
        else:
            self._unread.append(attempt)
        self.order.read(attempt)

    def put_off(self, attempt: Attempt) -> None:
        """There is no room for its message: it is read when there is."""
        self._room.wait(attempt)
        self.order.read(attempt)

    def wake(self) -> None:
        """There is something to read, or room for it."""
        if self._room.waiting:
            self._let_go()
            self._unread.extend(self._room.let_in(self._content_bytes))
        if self._unread or self.ahead.wanted or self.ahead.expected:
            self._some.set()

    def _let_go(self) -> None:
        """A consumer whose next message finds no room, because all room is taken by messages behind it, lets go of the
        last of them; they are read again in their turn. Nothing else would ever make room. (To read the next one all
        the same was tried: 400 consumers took 30 MiB more than there is for all.)"""
        for subscriber, waiting in [*self._room.waiting.items()]:
            line = self.order.lines.get(subscriber)
            if line is None or self._room.has(subscriber) or line[0] not in waiting:
                continue
            if line[0] != waiting[0]:  # some were refused, some let go of: they are read in the order they go out
                self._room.sort(subscriber, line)
            while not self._room.has(subscriber) and self._let_go_of_last(line[0]):
                pass

    def _admit_first(self, attempt: Attempt, message: StoredMessage) -> bool:
        """As ``ContentRoom.admit``, of a message for which others behind it make room."""
        while self._let_go_of_last(attempt):
            if self._room.admit(attempt.subscriber, message):
                return True
        return False

    def _let_go_of_last(self, first: Attempt) -> bool:
        """False where not all that the subscriber holds waits behind ``first``."""
        subscriber = first.subscriber
        if not self._room.only_behind(self.order.held_up(first), subscriber):
            return False
        attempt, message = self.order.let_go(subscriber)
        self._room.release(subscriber, message)
        self._room.wait(attempt)
        return True

    def expect(self, subscriber: int, messages: Sequence[int]) -> None:
        """See ``Prefetch``; the first of them, as many as one run has."""
        self.ahead.expect(subscriber, messages[: self._run_max])
        self.wake()

    def doubt(self) -> None:
        """Note that some of these messages may not be wanted any more: each is asked about when it has arrived, until
        all have."""
        self._doubtful = bool(self._under_way or self._unread or self.order.lines or self._room.waiting)

    def withdraw(self, subscriber: int, messages: Collection[int]) -> None:
        """See ``Handler``, for messages that have not been read."""
        self.doubt()
        gone = self._room.withdraw(subscriber, messages)
        if gone:
            self._receiver.not_begun(gone)
            self._go_out([pair for attempt in gone for pair in self.order.arrived(attempt, None)])

    def forget(self, messages: Iterable[int]) -> None:
        """These are erased: what was read of them, or is being read, is not delivered."""
        self.ahead.forget(messages)
        self._forgotten.update(self._under_way.keys() & set(messages))

    def clear(self) -> int:
        """Nothing is wanted any more: how many that are neither out nor being read waited here."""
        self._over = True
        count = len(self._unread) + self._room.clear() + self.order.clear()
        self._unread.clear()
        return count

    @property
    def _run_max(self) -> int:
        return min(READ_RUN_MAX, max(READ_RUN_BYTES // self._content_bytes, 1))

    async def run(self) -> None:
        """One reader. Runs until it is cancelled. Raises whatever ``read`` raises."""
        ahead = self.ahead
        while True:
            await self._some.wait()
            if not (self._unread or ahead.wanted or ahead.expected):
                self._some.clear()  # the dispatcher sets it again
                continue
            run_max = self._run_max
            run = self._next_run(run_max)
            if run:  # they are waited for; what comes after them is the other reader's
                ahead.wanted.update(attempt.subscriber for attempt in run)
                wanted = {attempt.message for attempt in run}
            else:
                wanted = set(ahead.choose(self._upcoming, self._in_memory, run_max)) - self._under_way.keys()
            if not wanted:
                continue
            asked = sorted(wanted)
            self._under_way.update((sequence, []) for sequence in asked)
            messages = dict(zip(asked, await self._read(asked), strict=False))
            if self._forgotten:
                messages.update(dict.fromkeys(self._forgotten.intersection(messages)))
                self._forgotten.difference_update(asked)
            run += [attempt for sequence in asked for attempt in self._under_way.pop(sequence)]
            largest = max([len(message.content) for message in messages.values() if message is not None], default=0)
            self._content_bytes = max(largest, self._content_bytes // 2, 1)
            ahead.keep(messages)
            self._arrived(run, messages)

    def _next_run(self, most: int) -> list[Attempt]:
        """The attempts to read next, for at most so many messages. Those without room for their content wait. All that
        want one message get it from one read: each read makes a copy of its content."""
        some: list[Attempt] = []
        wanted: set[int] = set()
        while self._unread and len(some) < READ_RUN_MAX:
            attempt = self._unread[0]
            if attempt.message in self._under_way:  # by now
                self._under_way[attempt.message].append(self._unread.popleft())
                continue
            if len(wanted) == most and attempt.message not in wanted:
                break
            some.append(self._unread.popleft())
            wanted.add(attempt.message)
        if self._room.plenty:
            return some
        run: list[Attempt] = []
        short: list[Attempt] = []
        for attempt in some:
            (run if self._room.has(attempt.subscriber) else short).append(attempt)
        if short:
            self._room.wait_first(short)
            self.wake()  # one of them may be what others wait behind
        return run

    def _arrived(self, run: list[Attempt], messages: dict[int, StoredMessage | None]) -> None:
        if self._over:
            self._receiver.too_late(len(run))
            return
        found: dict[int, list[Pair]] = {}
        refused: list[Attempt] = []
        for attempt in run:
            if attempt.message not in messages:
                self._unread.append(attempt)  # the run was cut short
                continue
            message = messages[attempt.message]
            pairs = found.setdefault(attempt.subscriber, [])
            if message is None:
                pairs += self.order.arrived(attempt, None)
                self._receiver.lost(attempt)
            elif self._room.admit(attempt.subscriber, message) or self._admit_first(attempt, message):
                pairs += self.order.arrived(attempt, message)
            else:
                refused.append(attempt)  # larger than expected; read again when there is room
        self._room.wait_first(refused)
        arrived = [pair for pairs in found.values() for pair in pairs]
        if self._doubtful:
            arrived = self._receiver.may_begin(arrived)
            self.doubt()
        self._go_out(arrived)

    def _go_out(self, pairs: list[Pair]) -> None:
        early = self.order.early(pairs)
        if early:
            self._receiver.put_back(early)
            back = {attempt for attempt, _ in early}
            pairs = [pair for pair in pairs if pair[0] not in back]
        self._receiver.fetched(pairs)
