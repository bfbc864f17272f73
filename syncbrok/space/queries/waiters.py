"""Waits until every delivery of a message has ended (RULES 8), and until a queue that bounds its backlog has room for
one (RULES 35): one future per waiter, none per message."""

import asyncio
from collections import deque
from collections.abc import Sequence

from syncbrok.model import limits
from syncbrok.model.errors import Overloaded
from syncbrok.model.names import QueueName
from syncbrok.space.queries.sources import Schedule
from syncbrok.space.state.registry import Registry


class Waiter:
    """Waits for the ``left`` messages that have not ended. ``done`` is settled with True when none is left, and with
    False when nobody may wait any longer."""

    __slots__ = ("done", "left")

    def __init__(self, left: set[int], done: "asyncio.Future[bool]") -> None:
        self.left = left
        self.done = done


class Waiters:
    """All waiters, at most ``limits.waiters_max``. The scheduler watches the messages that they wait for, and tells
    each end once, through ``ended``."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._by_sequence: dict[int, list[Waiter]] = {}
        self._count = 0
        self._closed = False

    def __len__(self) -> int:
        return self._count

    def ended(self, sequences: Sequence[int]) -> None:
        """Note that these messages have ended, durably."""
        if not self._by_sequence:
            return
        for sequence in sequences:
            for waiter in self._by_sequence.pop(sequence, ()):
                waiter.left.discard(sequence)
                if not waiter.left and not waiter.done.done():
                    waiter.done.set_result(True)

    def close(self) -> None:
        """The broker is stopping: settle all waiters with False and refuse new ones."""
        self._closed = True
        for waiting in self._by_sequence.values():
            for waiter in waiting:
                if not waiter.done.done():
                    waiter.done.set_result(False)

    async def wait(self, sequences: Sequence[int], timeout_s: float) -> bool:
        """Whether all of them have ended within ``timeout_s``; False at once when the broker stops. Raises
        ``Overloaded`` when too many wait already."""
        left = {sequence for sequence in sequences if not self._schedule.ended(sequence)}
        if not left:
            return True
        if self._closed:
            return False
        if self._count >= limits.waiters_max:
            raise Overloaded(f"{self._count} publishers wait for their messages already", retry_after_s=1)
        waiter = Waiter(left, asyncio.get_running_loop().create_future())
        for sequence in left:
            self._by_sequence.setdefault(sequence, []).append(waiter)
            self._schedule.watch(sequence)
        self._count += 1
        try:
            async with asyncio.timeout(timeout_s):
                return await waiter.done
        except TimeoutError:
            return False
        finally:
            self._count -= 1
            self._forget(waiter)

    def _forget(self, waiter: Waiter) -> None:
        for sequence in waiter.left:
            waiting = self._by_sequence.get(sequence)
            if waiting is not None:
                waiting.remove(waiter)
                if not waiting:
                    del self._by_sequence[sequence]
                    self._schedule.unwatch(sequence)


class RoomWaiters:
    """Lines of those who wait for room in a queue that bounds its backlog. Bounded by the sessions there are: each has
    one message there at a time."""

    def __init__(self, registry: Registry, schedule: Schedule) -> None:
        self._registry = registry
        self._schedule = schedule
        self.lines: dict[QueueName, deque[tuple[asyncio.Future[None], int]]] = {}
        """with the size of the content that each has"""
        self._closed = False

    def wait(self, queue: QueueName, size_bytes: int) -> "asyncio.Future[None]":
        """See ``View.backlog_room``. Who waits no longer cancels it."""
        room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.lines.setdefault(queue, deque()).append((room, size_bytes))
        self._let_in(queue)
        return room

    def applied(self) -> None:
        """Messages may have ended, settings may have changed: let in those for whom there is room now."""
        for queue in tuple(self.lines):
            self._let_in(queue)

    def close(self) -> None:
        """The broker is stopping: nobody waits any longer."""
        self._closed = True
        self.applied()

    def _let_in(self, queue: QueueName) -> None:
        line = self.lines[queue]
        known = self._registry.queues.get(queue)
        bound = None if known is None or self._closed else known.settings.max_backlog
        messages = size_bytes = 0
        if known is not None and bound is not None:
            standing = self._schedule.standing(known.number)
            messages, size_bytes = standing.messages, standing.bytes
            bound = bound if standing.is_delivered else None
        while line:
            room, more_bytes = line[0]
            if not room.done():
                messages, size_bytes = messages + 1, size_bytes + more_bytes
                if bound is not None and not bound.holds(messages, size_bytes):
                    return
                room.set_result(None)
            line.popleft()
        del self.lines[queue]
