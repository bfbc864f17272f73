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
