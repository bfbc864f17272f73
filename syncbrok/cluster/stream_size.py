"""Keeps the stream about as large as it is to be (``keep`` is a size): the leader forgets its oldest segments, whole
ones, once another node has them too. They stay part of the log, in the files of the nodes, which send them to each
other.

A segment that only the leader has on its disk stays in the stream: until then the engine is its other place.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from syncbrok.cluster.following import ReadableEngine, beginning_of, roll_of
from syncbrok.cluster.membership import NodeReport
from syncbrok.model.journal import Section


class PurgeableEngine(ReadableEngine, Protocol):
    """The questions to the engine that stand here (``engine.Engine``)."""

    def purge(self, before: int) -> None: ...


def is_held(begin: int, end: int, others: Sequence[NodeReport]) -> bool:
    """Whether another node has the segment from ``begin`` up to ``end``, where the next one begins: who has begun with
    that has sealed and fsynced the one before."""
    return any(0 < one.first <= begin and one.sequence >= end for one in others)


class StreamErasure:
    """Has the stream forget what was erased. ``others``: the other nodes that were heard lately. ``patience_s``: for so
    long it waits until one of them has what the stream would forget; ``clock_s`` never goes back."""

    def __init__(
        self,
        engine: PurgeableEngine,
        others: Callable[[], Sequence[NodeReport]],
        patience_s: float,
        clock_s: Callable[[], float],
    ) -> None:
        self._engine = engine
        self._others = others
        self._patience_s = patience_s
        self._clock_s = clock_s
        self._asked = (0, 0.0)
        """what it was asked last to forget, and when for the first time"""

    def note_wanted(self, first: int) -> None:
        """Count from now on how long all before ``first`` has waited to be forgotten. A node that follows hears of it
        in the stream: once it leads it waits for no longer than the leader before would have."""
        if self._asked[0] != first:
            self._asked = (first, self._clock_s())

    def forget(self, first: int) -> None:
        """Forget all before the roll of the segment that begins with ``first``. Raises ``OSError`` where that must
        wait, or the engine does not answer."""
        self.note_wanted(first)
        begin = beginning_of(self._engine)
        if begin >= first:
            return
        roll = roll_of(self._engine, first)
        if roll is None:
            raise OSError(f"no segment begins with {first} in the stream")
        patient = self._clock_s() - self._asked[1] < self._patience_s
        if patient and not is_held(begin, first, self._others()):
            raise OSError(f"the stream keeps what was erased until another node has all before {first}")
        self._engine.purge(roll.sequence)


class StreamSize:
    """``bytes_max``: what the stream is to have at most, if segments and the other nodes allow. ``sections``: of the
    leader's log. ``others``: the other nodes that were heard lately."""

    def __init__(
        self,
        engine: PurgeableEngine,
        bytes_max: int,
        sections: Callable[[], Sequence[Section]],
        others: Callable[[], Sequence[NodeReport]],
    ) -> None:
        self._engine = engine
        self._bytes_max = bytes_max
        self._sections = sections
        self._others = others

    def keep(self) -> int:
        """Forget what is too much; how many segments that were. Raises ``OSError`` where the engine does not answer."""
        forgotten = 0
        if self._engine.state().bytes <= self._bytes_max:
            return forgotten
        begin = beginning_of(self._engine)
        for end in (one.first for one in self._sections() if one.first > begin):
            roll = roll_of(self._engine, end) if is_held(begin, end, self._others()) else None
            if roll is None:
                break
            self._engine.purge(roll.sequence)
            begin, forgotten = end, forgotten + 1
            if self._engine.state().bytes <= self._bytes_max:
                break
        return forgotten
