"""Rows of messages, by the thousand: 4,096 neighbouring sequences as a handful of arrays. Pure; see ``ledger``."""

from array import array
from collections.abc import Iterator
from typing import Final

from syncbrok.delivery.lifecycle import MessageState

CHUNK: Final = 4096
CHUNK_SHIFT: Final = 12
CHUNK_MASK: Final = CHUNK - 1


class Sparse(dict[int, int]):
    """A column of a thinned chunk: what is not in it has the value of an ended message."""

    __slots__ = ("absent",)

    def __init__(self, absent: int) -> None:
        super().__init__()
        self.absent = absent

    def __missing__(self, key: int) -> int:
        return self.absent


class Chunk:
    """The rows of 4,096 neighbouring sequences. ``open`` counts those that have not ended."""

    __slots__ = ("edge_count", "edge_start", "edges", "first_child", "flags", "last_child", "left", "links", "open",
                 "queue", "state", "thin")  # fmt: skip

    def __init__(self) -> None:
        self.queue: array[int] | Sparse = array("I", bytes(4 * CHUNK))
        self.state: bytearray | Sparse = bytearray(CHUNK)
        self.left: array[int] | Sparse = array("H", bytes(2 * CHUNK))
        self.flags: bytearray | Sparse = bytearray(CHUNK)
        self.open = 0
        self.thin = False
        self.edges: array[int] = array("Q")
        self.links: array[int] = array("Q")
        self.edge_start: array[int] | None = None
        self.edge_count: bytearray | None = None
        self.first_child: array[int] | None = None
        self.last_child: array[int] | None = None

    def accept(self, start: int, stop: int, queue: int, left: int, state: int) -> None:
        """Rows of plain messages from ``start`` to before ``stop``."""
        count = stop - start
        self.open += count
        if isinstance(self.state, Sparse):
            for i in range(start, stop):
                self.queue[i], self.state[i], self.left[i], self.flags[i] = queue, state, left, 0
            return
        assert isinstance(self.queue, array)
        assert isinstance(self.left, array)
        self.queue[start:stop] = array("I", (queue,)) * count
        self.left[start:stop] = array("H", (left,)) * count
        self.state[start:stop] = bytes((state,)) * count

    def open_rows(self, start: int = 0) -> Iterator[int]:
        """Places from ``start`` on of the messages that have not ended, in order."""
        if isinstance(self.state, Sparse):
            yield from sorted(i for i, state in self.state.items() if 0 < state < MessageState.COMPLETE and i >= start)
            return
        for i in range(start, CHUNK):
            if 0 < self.state[i] < MessageState.COMPLETE:
                yield i

    def make_thin(self) -> None:
        """Keep only the rows of messages that have not ended."""
        rows = list(self.open_rows())
        queue, left, flags = Sparse(0), Sparse(0), Sparse(0)
        state = Sparse(MessageState.COMPLETE)
        for i in rows:
            queue[i], state[i], left[i], flags[i] = self.queue[i], self.state[i], self.left[i], self.flags[i]
        self.queue, self.state, self.left, self.flags = queue, state, left, flags
        self.thin = True
