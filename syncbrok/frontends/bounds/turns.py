"""Shares out the event loop's time for work of clients: a bounded amount in each turn of the loop, and owners that wait
for more are served in turn.

A thousand requests of one client may be ready at once. Done in one go they would hold up everybody else until all of
them are done. Shared out, a neighbour waits for a few milliseconds, whatever their number. While there is little to do
nothing is delayed, and asking costs a look at the clock.
"""

import asyncio
from collections import deque
from collections.abc import Hashable
from time import perf_counter
from typing import Final

TURN_S: Final = 0.002
"""A message passes three turns of the loop on its way to a subscriber; with this, others add less than 10 ms to it."""
_AT_ONCE_MAX: Final = 64


class Turns:
    """Shares out one event loop. Before work that takes more than a few microseconds call::

    if not turns.now():
        await turns.wait(owner)
    """

    def __init__(self) -> None:
        self._began_s: float | None = None
        """when the first work of this turn of the loop began"""
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}
        """by owner, who has its turn next first; bounded by the connections, of which each does one thing at a time"""
        self._granted_s = 0.0
        self._at_once = 1
        """how many may go on in one turn of the loop: as many as were done in ``TURN_S`` before"""

    def now(self) -> bool:
        """True if there is time in this turn of the loop: nobody waits, and not much has been done."""
        if self._waiting:
            return False
        now_s = perf_counter()
        if self._began_s is None:
            self._began_s = now_s
            asyncio.get_running_loop().call_soon(self._ended)
            return True
        return now_s - self._began_s < TURN_S

    async def wait(self, owner: Hashable, *, goes_on: bool = False) -> None:
        """Wait for the turn of ``owner``. ``goes_on``: go ahead of other work of the same owner. Half-done work holds
        memory, so it is finished before the next is begun."""
        await self.later(owner, goes_on=goes_on)

    def later(self, owner: Hashable, *, goes_on: bool = False) -> asyncio.Future[None]:
        """As ``wait``, for callers that are no task: a future that is done when it is the owner's turn. Cancel it to
        leave the line."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        if not self._waiting and self._began_s is None:
            loop.call_soon(self._ended)
        line = self._waiting.setdefault(owner, deque())
        if goes_on:
            line.appendleft(turn)
        else:
            line.append(turn)
        return turn

    def _ended(self) -> None:
        """End the turn of the loop in which work was done."""
        self._began_s = None
        if self._waiting:
            self._grant()

    def _grant(self) -> None:
        """Let the next ones go. The time they take is seen between two calls of ours."""
        loop = asyncio.get_running_loop()
        loop.call_soon(self._granted)
        count = 0
        while count < self._at_once and self._waiting:
            owner, line = next(iter(self._waiting.items()))
            del self._waiting[owner]
            turn = line.popleft()
            if line:
                self._waiting[owner] = line  # behind all others
            if not turn.done():  # else its client has gone
                turn.set_result(None)
                count += 1
        loop.call_soon(self._measured, count)

    def _granted(self) -> None:
        self._began_s = self._granted_s = perf_counter()

    def _measured(self, count: int) -> None:
        took_s = perf_counter() - self._granted_s
        if count:
            at_once = min(_AT_ONCE_MAX, 2 * self._at_once, int(TURN_S * count / max(took_s, 1e-6)))
            self._at_once = max(1, at_once)
        self._ended()
