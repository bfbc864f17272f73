"""The places of recent messages in the causal graph, so that most publishes with parents need no disk.

Three columns in a ring: id, root, depth; 28 bytes a message. A parent older than the ring is read from the log.
"""

from array import array
from typing import Final, NamedTuple

import numpy as np

from syncbrok.model.facts import Messages
from syncbrok.model.names import MessageId, sequence_of

_capacity: Final = 1 << 18
_FEW: Final = 8
"""fewer messages than this are written without numpy, whose calls cost as much"""


class GraphPlace(NamedTuple):
    """``root``: sequence of the first parent's root, its own without parents. ``depth``: 1 + the deepest parent's."""

    root: int
    depth: int


class Lineage:
    """Filled by the facts that are applied; live and on recovery alike."""

    def __init__(self, capacity: int = _capacity) -> None:
        assert capacity & (capacity - 1) == 0
        self._mask = capacity - 1
        self._ids = bytearray(16 * capacity)
        self._root = array("Q", bytes(8 * capacity))
        self._depth = array("I", bytes(4 * capacity))
        self._roots = np.frombuffer(self._root, np.uint64)  # the same memory, written in stretches
        self._depths = np.frombuffer(self._depth, np.uint32)

    def note(self, messages: Messages) -> None:
        """Take in the places of messages that are durable now."""
        first, count = messages.sequence, messages.size
        begin = done = max(count - self._mask - 1, 0)  # of more than it holds only the end would be left
        while done < count:
            start = first + done & self._mask
            some = min(count - done, self._mask + 1 - start)
            self._ids[16 * start : 16 * (start + some)] = messages.ids[16 * done : 16 * (done + some)]
            if some < _FEW:
                for at in range(start, start + some):
                    self._root[at], self._depth[at] = first + done + at - start, 0
            else:
                self._roots[start : start + some] = np.arange(first + done, first + done + some, dtype=np.uint64)
                self._depths[start : start + some] = 0
            done += some
        for position, extras in messages.extras.items():
            if extras.parents and position >= begin:
                at = first + position & self._mask
                self._root[at], self._depth[at] = extras.root, extras.depth

    def place(self, id: MessageId, sequence: int) -> GraphPlace | None:  # noqa: A002 (the word of the domain)
        """The place of the message with this id, whose sequence is in it; None where it is not among the recent
        ones."""
        at = sequence & self._mask
        if not sequence:
            return None  # of no message; the nil UUID is what an empty place holds
        if bytes(self._ids[16 * at : 16 * at + 16]) != id:  # an id holds its sequence: it can stand nowhere else
            return None
        return GraphPlace(self._root[at], self._depth[at])

    def id_at(self, sequence: int) -> MessageId | None:
        """The id of the message; None where it is not among the recent ones. Any thread may ask this and ``root_at``:
        what is being written over is no answer."""
        at = sequence & self._mask
        found = MessageId(bytes(self._ids[16 * at : 16 * at + 16]))
        return found if sequence and sequence_of(found) == sequence else None

    def root_at(self, sequence: int) -> MessageId | None:
        """The id of the root of the message's tree; None unless both are among the recent ones."""
        root = self._root[sequence & self._mask]
        return self.id_at(root) if self.id_at(sequence) is not None else None
