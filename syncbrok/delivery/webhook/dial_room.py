"""Descriptors for connections that go out: shared by origin, and with those that come in.

A subscriber keeps its connections for a while, since the next message is sooner out on one that is open. Where
descriptors are few, what has been idle longest is closed for those who need one, and who gets none waits: that is no
attempt, and so none that failed.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable
from math import inf
from typing import Final, Protocol

from syncbrok.model.budget import Budget

TOGETHER: Final = 64
"""routes that dial again, and idle connections that are closed, in one turn of the loop"""
DIALS_PER_TURN: Final = 8
"""begun in one turn of the loop, of all routes: each takes a fifth of a millisecond until it is open"""
PAUSE_S: Final = 0.5
"""before another try where the system has none though the budget has"""


class DialingRoute(Protocol):
    """A route that wants connections."""

    def dial(self) -> None:
        """Open as many as it may."""


class Idle(Protocol):
    """A pool with connections that it can do without."""

    def idle_longest_s(self) -> float:
        """Since when, of the monotonic clock; infinite where none is idle."""

    def close_idlest(self) -> None:
        """Close that one."""


class DialRoom:
    """``idle``: all the pools. An origin owns what it took; each descriptor is given back once."""

    def __init__(self, budget: Budget, idle: Callable[[], Iterable[Idle]]) -> None:
        self._budget = budget
        self._idle = idle
        self.waiting: dict[DialingRoute, None] = {}
        """routes that want a descriptor, the next one first; bounded by the subscribers"""
        self._serving: asyncio.Handle | None = None
        self._closed = 0
        """idle ones, in this turn"""
        self._begun = 0
        """dials, in this turn"""
        self._later: dict[DialingRoute, None] = {}
        """routes that dial in one of the next turns, the first one first; bounded by the subscribers"""
        self._turning: asyncio.Handle | None = None
        budget.when_freed(self._freed)
        budget.when_short(self._close_one)

    def has_time(self, route: DialingRoute, begun: int) -> bool:
        """Whether another dial may begin in this turn of the loop; if not, the route dials again in one of the next.
        ``begun``: how many it has begun just now; while others wait for time each begins one."""
        if self._begun >= DIALS_PER_TURN or (begun and self._later):
            self._later[route] = None
            return False
        self._begun += 1
        self._schedule_turn()
        return True

    def take(self, origin: Hashable, route: DialingRoute) -> bool:
        """Take one descriptor. False where there is none now: the route dials again when there may be one."""
        if self._budget.try_take(origin):
            return True
        self.waiting[route] = None
        return False

    def give_back(self, origin: Hashable) -> None:
        self._budget.give_back(origin)

    def idled(self) -> None:
        """A connection has become idle while routes wait: those who need it more ask again, and it is closed for them.
        They asked while none was idle, and nothing else would tell them until an exchange has reached its deadline."""
        self._freed()

    def system_has_none(self, route: DialingRoute) -> None:
        """The system refused a descriptor that the budget allowed: others hold more than the budget assumed."""
        self.waiting[route] = None
        self._close_one()
        if self._serving is None:
            self._serving = asyncio.get_running_loop().call_later(PAUSE_S, self._serve)

    def forget(self, route: DialingRoute) -> None:
        """The route wants no descriptor any more."""
        self.waiting.pop(route, None)
        self._later.pop(route, None)

    def close(self) -> None:
        """Stop dialling."""
        self.waiting.clear()
        self._later.clear()
        for handle in (self._serving, self._turning):
            if handle is not None:
                handle.cancel()

    def _freed(self) -> None:
        if self.waiting and self._serving is None:
            self._serving = asyncio.get_running_loop().call_soon(self._serve)

    def _serve(self) -> None:
        self._serving = None
        before = self._budget.used
        for route in list(self.waiting)[:TOGETHER]:
            del self.waiting[route]
            route.dial()
        if self._budget.used > before:
            self._freed()  # there may be room for more of them

    def _close_one(self) -> None:
        """Close the connection that has been idle longest, whichever pool has it."""
        if self._closed >= TOGETHER:
            return
        idlest = min(self._idle(), key=lambda pool: pool.idle_longest_s(), default=None)
        if idlest is not None and idlest.idle_longest_s() < inf:
            self._closed += 1
            self._schedule_turn()
            idlest.close_idlest()

    def _schedule_turn(self) -> None:
        if self._turning is None:
            self._turning = asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turning = None
        self._closed = self._begun = 0
        while self._later and self._begun < DIALS_PER_TURN:
            route = next(iter(self._later))
            del self._later[route]
            route.dial()  # it has begun one, or wants none any more
        if self._later:
            self._schedule_turn()
