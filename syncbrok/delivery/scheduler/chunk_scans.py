"""Vectorised scans: how many consecutive rows of the table are alike, and the first of a queue. Pure.

One scan costs as much as some forty single checks. So callers try it only after ``WORTH_IT`` matching rows in a row, as
a wide tree has them; other rows are checked one by one.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from syncbrok.delivery.scheduler.lifecycle import MessageState
from syncbrok.delivery.scheduler.message_chunk import CHUNK, CHUNK_MASK, CHUNK_SHIFT, MessageChunk
from syncbrok.delivery.scheduler.message_table import ONE_BY_ONE, MessageTable

WORTH_IT: Final = 64

CHUNKS_MAX: Final = 500
"""looked at for the first message of a queue: a millisecond or two"""

_WAITING: Final = int(MessageState.WAITING)
_Rows = npt.NDArray[Any]


def lone_children(chunk: MessageChunk, child: int, parent: int, most: int) -> int:
    """How many from ``child`` on, each the next in its parent's list, are of one queue and wait for that parent alone:
    at most ``most``, none beyond the chunk, which is not thin. ``child`` itself is one."""
    assert chunk.edge_start is not None
    assert chunk.edge_count is not None
    start = child & CHUNK_MASK
    stop = min(CHUNK, start + most)
    alike = _column(chunk.state, np.uint8)[start:stop] == _WAITING
    alike &= _column(chunk.flags, np.uint8)[start:stop] & ONE_BY_ONE == 0
    alike &= _column(chunk.edge_count, np.uint8)[start:stop] == 1
    alike &= _column(chunk.left, np.uint16)[start:stop] != 0
    queues = _column(chunk.queue, np.uint32)[start:stop]
    alike &= queues == queues[0]
    count = _leading(alike)
    edges_at = _column(chunk.edge_start, np.uint32)[start : start + count]
    alike = _column(chunk.edges, np.uint64)[edges_at] == parent
    following = _column(chunk.links, np.uint64)[edges_at]
    alike[1:] &= following[:-1] == np.arange(child + 1, child + count, dtype=np.uint64)
    return _leading(alike)


def waiting_neighbours(chunk: MessageChunk, number: int, sequences: _Rows) -> int:
    """How many of ``sequences``, from the first on, are in the chunk of that number and wait, for all alike; none
    where the chunk is thin."""
    if chunk.thin:
        return 0
    sequences = sequences[: _leading(sequences >> CHUNK_SHIFT == number)]
    places = sequences & CHUNK_MASK
    flags = _column(chunk.flags, np.uint8)[places]
    return _leading((_column(chunk.state, np.uint8)[places] == _WAITING) & (flags & ONE_BY_ONE == 0))


def first_unended(table: MessageTable, queue: int, start: int) -> tuple[int, int]:
    """(the lowest sequence from ``start`` on of a message of the queue that has not ended, 0 for none so far; where to
    go on looking where there may be one, 0 at the end)."""
    numbers = [start >> CHUNK_SHIFT]  # mostly it is there
    for asked in range(2):
        for number in numbers:
            if found := _first_in(table.chunks.get(number), queue, max(0, start - (number << CHUNK_SHIFT))):
                return (number << CHUNK_SHIFT) + found - 1, 0
        if not asked:
            numbers = sorted([n for n, chunk in table.chunks.items() if chunk.open and n > numbers[0]])
            rest = numbers[CHUNKS_MAX:]
            del numbers[CHUNKS_MAX:]
    return 0, rest[0] << CHUNK_SHIFT if rest else 0


def _first_in(chunk: MessageChunk | None, queue: int, start: int) -> int:
    """One more than the first place from ``start`` on in the chunk; 0 for none."""
    if chunk is None or not chunk.open:
        return 0
    if chunk.thin:
        return next((i + 1 for i in chunk.open_rows(start) if chunk.queue[i] == queue), 0)
    places = np.flatnonzero(_column(chunk.queue, np.uint32)[start:] == queue)
    if not len(places):
        return 0
    states = _column(chunk.state, np.uint8)[start:][places]
    at = np.flatnonzero((states > MessageState.NONE) & (states < MessageState.COMPLETE))
    return start + int(places[at[0]]) + 1 if len(at) else 0


def _column(column: Any, kind: type) -> _Rows:
    """Without a copy. The column cannot grow while the answer lives."""
    return np.frombuffer(column, kind)


def _leading(alike: _Rows) -> int:
    """How many are true before the first that is not."""
    return len(alike) if alike.all() else int(alike.argmin())
