"""Waits until every delivery of a message has ended (RULES 8): one future per waiter, none per message."""

import asyncio
from collections.abc import Sequence

from syncbrok.model import limits
from syncbrok.model.errors import Overloaded
from syncbrok.space.queries.sources import Schedule


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
