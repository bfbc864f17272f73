"""The edges of the dependency graph, from a message to those that wait for it, by scope (RULES 11 to 14, 21).

==============  ======================================================================================================
live            its children, while neither has ended: columns of ``MessageChunk``, 16 bytes an edge, no object
``ON_HOLD``     its children, when it has ended badly: they are on hold for it, or wait until its replay is over
``IN_REPLAY``   messages of a replay; what they wait for is of it too, or has not ended yet
a subscriber's  messages that wait at that subscriber by themselves, for what is to end there first, or for
number          ``HISTORY``: it starts in the past, or does not count
==============  ======================================================================================================

Live edges are most by far, millions, and are linked through the message table; ``Edges`` has all others, of which each
is an entry of a dictionary. ``Blockers`` says what a message waits for, ``DependencyTracker`` follows an edge when that
has come, and asks again.

What keeps the order of a key is no edge: a message waits until it is the first of its key that has not ended, whichever
stands before it then. As edges between neighbours they would be written anew whenever one in the middle ends early. So
``KeyChains`` and ``KeyLines`` are indexes, of the messages of a key that have not ended.
"""

from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Final

HISTORY: Final = 0
"""stands for what is waited for where that is all that a subscriber is yet to be told of its past"""
ON_HOLD: Final = -1
IN_REPLAY: Final = -2

Told = tuple[tuple[int, ...], str]
"""parents and key of a message, as the log told them; the message table may know it no more"""
Dependents = dict[int, Told | None]
"""who waits, in the order in which they came; for one that does not count the subscriber what was told of it"""
Scope = dict[int, Dependents]
"""message -> who waits for it; no message has nobody"""


class Edges:
    """The edges of all scopes but live ones."""

    __slots__ = ("_scopes", "in_replay", "on_hold", "subscribers")

    def __init__(self) -> None:
        self.on_hold: Scope = {}
        self.in_replay: Scope = {}
        self._scopes: dict[int, Scope] = {ON_HOLD: self.on_hold, IN_REPLAY: self.in_replay}
        self.subscribers: dict[int, dict[int, None]] = {}
        """message -> the subscribers at which somebody waits for it"""

    def of(self, scope: int) -> Mapping[int, Dependents]:
        """Message -> who waits for it in this scope."""
        return self._scopes.get(scope, {})

    def add(self, scope: int, message: int, dependent: int, told: Told | None = None) -> None:
        self._scopes.setdefault(scope, {}).setdefault(message, {})[dependent] = told
        if scope > 0:
            self.subscribers.setdefault(message, {})[scope] = None

    def __contains__(self, message: object) -> bool:
        """Whether somebody waits for the message in any of these scopes."""
        return message in self.in_replay or message in self.on_hold or message in self.subscribers

    def __bool__(self) -> bool:
        return bool(self.in_replay or self.on_hold or self.subscribers)

    def discard(self, scope: int, message: int, dependent: int) -> None:
        """One waits no more. Not of a subscriber, where that is seen once all are taken."""
        dependents = self._scopes[scope].get(message)
        if dependents is not None:
            dependents.pop(dependent, None)
            if not dependents:
                del self._scopes[scope][message]

    def forget_dependents(self, subscriber: int, dependents: set[int]) -> None:
        """These wait for nothing more at the subscriber."""
        for message, waiting in list(self._scopes.get(subscriber, {}).items()):
            for one in waiting.keys() & dependents:
                del waiting[one]
            if not waiting:
                del self._scopes[subscriber][message]
                self._leave(subscriber, message)

    def take(self, scope: int, message: int) -> Dependents:
        """Remove and return who waits for a message in this scope."""
        dependents = self._scopes.get(scope, {}).pop(message, {})
        if dependents and scope > 0:
            self._leave(scope, message)
        return dependents

    def forget(self, subscriber: int) -> None:
        """The subscriber is gone, and with it all who waited there."""
        for message in self._scopes.pop(subscriber, ()):
            self._leave(subscriber, message)

    def _leave(self, subscriber: int, message: int) -> None:
        numbers = self.subscribers[message]
        del numbers[subscriber]
        if not numbers:
            del self.subscribers[message]

    def dump(self) -> list[tuple[int, int, list[int], list[Told | None]]]:
        """All edges, as ``load`` takes them; what was told only where something may have been."""
        return [
            (scope, message, list(dependents), list(dependents.values()) if scope > 0 else [])
            for scope, edges in self._scopes.items()
            for message, dependents in edges.items()
        ]

    def load(self, scope: int, message: int, dependents: Iterable[int], told: Iterable[Told | None]) -> None:
        """Take from a checkpoint the messages that wait for one in a scope."""
        for dependent, one in zip_longest(dependents, told):
            self.add(scope, message, dependent, one)
