"""The edges of the dependency graph, from a message to those that wait for its end, by scope (RULES 11 to 14, 21).

============  ========================================================================================================
live          its children, while neither has ended: columns of ``MessageChunk``, 16 bytes an edge
on hold       its children, when it has ended badly: they are on hold for it, or wait until its replay is over
in a replay   messages of a replay; what they wait for is of it too, or has not ended yet
at a          numbers of subscribers at which messages wait by themselves (``Cursor.waiting_behind``): it starts in the
subscriber    past, or does not count
============  ========================================================================================================

Live edges are most by far, and are linked through the table. ``Edges`` has the three other scopes.
``DependencyTracker`` follows an edge when what is waited for has come; ``Blockers`` says whether that is enough.
"""

from collections.abc import Iterable


class Dependents(dict[int, dict[int, None]]):
    """The edges of one scope: message -> who waits for it, in the order in which they came. No message has none."""

    def add(self, message: int, dependent: int) -> None:
        self.setdefault(message, {})[dependent] = None

    def discard(self, message: int, dependent: int) -> None:
        waiting = self.get(message)
        if waiting is not None:
            waiting.pop(dependent, None)
            if not waiting:
                del self[message]

    def take(self, message: int) -> Iterable[int]:
        """Remove and return the dependents of a message."""
        return self.pop(message, ())


class Edges:
    """The edges of three scopes, one ``Dependents`` each; live ones stand in the message table."""

    __slots__ = ("at_subscriber", "in_replay", "on_hold")

    def __init__(self) -> None:
        self.on_hold = Dependents()
        self.in_replay = Dependents()
        self.at_subscriber = Dependents()
