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
PAUSE_S: Final = 0.5
"""before another try where the system has none though the budget has"""


class Dialling(Protocol):
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
        self._waiting: dict[Dialling, None] = {}  # bounded by the subscribers
        self._serving: asyncio.Handle | None = None
        self._closed = 0
        """idle ones, in this turn"""
        budget.when_freed(self._freed)
        budget.when_short(self._close_one)

    def take(self, origin: Hashable, route: Dialling) -> bool:
        """One descriptor; where there is none now, the route dials again when there may be."""
        if self._budget.try_take(origin):
            return True
        self._waiting[route] = None
        return False

    def give_back(self, origin: Hashable) -> None:
        self._budget.give_back(origin)

    def system_has_none(self, route: Dialling) -> None:
        """What the budget allowed the system refused, so others hold more than was thought."""
        self._waiting[route] = None
        self._close_one()
        if self._serving is None:
            self._serving = asyncio.get_running_loop().call_later(PAUSE_S, self._serve)

    def forget(self, route: Dialling) -> None:
        """It wants none any more."""
        self._waiting.pop(route, None)

    def close(self) -> None:
        """Nobody dials any more."""
        self._waiting.clear()
        if self._serving is not None:
            self._serving.cancel()

    def _freed(self) -> None:
        if self._waiting and self._serving is None:
            self._serving = asyncio.get_running_loop().call_soon(self._serve)

    def _serve(self) -> None:
        self._serving = None
        before = self._budget.used
        for route in list(self._waiting)[:TOGETHER]:
            del self._waiting[route]
            route.dial()
        if self._budget.used > before:
            self._freed()  # there may be room for more of them

    def _close_one(self) -> None:
        """What has been idle longest, whoever's it is."""
        if self._closed >= TOGETHER:
            return
        idlest = min(self._idle(), key=lambda pool: pool.idle_longest_s(), default=None)
        if idlest is not None and idlest.idle_longest_s() < inf:
            if not self._closed:
                asyncio.get_running_loop().call_soon(self._next_turn)
            self._closed += 1
            idlest.close_idlest()

    def _next_turn(self) -> None:
        self._closed = 0
