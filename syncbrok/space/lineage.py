"""Where recent messages stand in the causal graph, so that most publishes with parents need no disk.

Three columns in a ring: id, root, depth; 28 bytes a message. A parent older than the ring is read from the log.
"""

from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from syncbrok.model.facts import Published, PublishedRun
from syncbrok.model.names import MessageId

_capacity: Final = 1 << 18


class Place(NamedTuple):
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

    def note(self, message: Published) -> None:
        at = message.sequence & self._mask
        self._ids[16 * at : 16 * at + 16] = message.id
        self._root[at] = message.root
        self._depth[at] = message.depth

    def note_all(self, messages: Sequence[Published]) -> None:
        """As ``note``, for a batch."""
        first, count = messages[0].sequence, len(messages)
        start = first & self._mask
        if messages[-1].sequence - first != count - 1 or start + count > self._mask + 1:
            for message in messages:
                self.note(message)
            return
        self._ids[16 * start : 16 * (start + count)] = b"".join([message.id for message in messages])
        self._root[start : start + count] = array("Q", [message.root for message in messages])
        self._depth[start : start + count] = array("I", [message.depth for message in messages])

    def note_run(self, run: PublishedRun) -> None:
        """As ``note`` for each message of the run."""
        first, count = run.sequence, run.size
        if count > self._mask + 1:  # only its end would be left
            first, count = first + count - self._mask - 1, self._mask + 1
        done = 0
        while done < count:
            start = first + done & self._mask
            some = min(count - done, self._mask + 1 - start)
            ids_at = 16 * (first - run.sequence + done)
            self._ids[16 * start : 16 * (start + some)] = run.ids[ids_at : ids_at + 16 * some]
            self._roots[start : start + some] = np.arange(first + done, first + done + some, dtype=np.uint64)
            self._depths[start : start + some] = 0
            done += some

    def place(self, id: MessageId, sequence: int) -> Place | None:  # noqa: A002 (the word of the domain)
        """Of the message with this id, whose sequence is in it; None where it is not among the recent ones."""
        at = sequence & self._mask
        if not sequence:
            return None  # of no message; the nil UUID is what an empty place holds
        if bytes(self._ids[16 * at : 16 * at + 16]) != id:  # an id holds its sequence: it can stand nowhere else
            return None
        return Place(self._root[at], self._depth[at])
