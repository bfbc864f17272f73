"""How many bytes the contents of a queue's messages have that have not ended. Pure.

Kept for queues that bound it, and for no others: a column costs 4 bytes a message and a look at its end. So a queue
that gets its bound later has messages of which nobody has said it yet, and so has a start from a checkpoint that does
not say it: they stand in the span ``unknown`` until who can read the log has filled it in.
"""

from array import array
from collections.abc import Iterable, Sequence
from typing import Final

from syncbrok.delivery.scheduler.message_chunk import CHUNK, CHUNK_MASK, CHUNK_SHIFT, Sparse

_THIN_BELOW: Final = CHUNK // 64
_KNOWN: Final = 1
"""is added to each size: what is not in a column, or has ended, is 0 there"""
_ALL: Final = (0).to_bytes(4, "little")
_FEW: Final = (1).to_bytes(4, "little")


class ContentSizes:
    """``total``: the sum of all that are in it. ``unknown``: after the first of these sequences and through the second
    there may be messages that are not; (0, 0) for none."""

    def __init__(self) -> None:
        self.total = 0
        self.unknown = (0, 0)
        self._columns: dict[int, array[int] | Sparse] = {}
        self._open: dict[int, int] = {}
        """by column: how many are in it"""
        self._newest = 0

    def add_run(self, first: int, sizes: Sequence[int]) -> None:
        """Messages at neighbouring sequences from ``first`` on, newer than all that are in it."""
        at, count = 0, len(sizes)
        while at < count:
            number, start = first + at >> CHUNK_SHIFT, first + at & CHUNK_MASK
            stop = min(count, at + CHUNK - start)
            some = sizes[at:stop]
            column = self._column(number)
            if isinstance(column, Sparse):
                column.update(zip(range(start, start + stop - at), (size + _KNOWN for size in some), strict=True))
            else:
                column[start : start + stop - at] = array("I", [size + _KNOWN for size in some])
            self._open[number] += stop - at
            self.total += sum(some)
            at = stop

    def add(self, sequence: int, size: int) -> None:
        """A message, however old; one that is in it already stays."""
        column = self._column(sequence >> CHUNK_SHIFT)
        if not column[sequence & CHUNK_MASK]:
            column[sequence & CHUNK_MASK] = size + _KNOWN
            self._open[sequence >> CHUNK_SHIFT] += 1
            self.total += size

    def take(self, sequence: int) -> None:
        """The message has ended."""
        self.take_some(sequence >> CHUNK_SHIFT, (sequence & CHUNK_MASK,))

    def take_some(self, number: int, places: Iterable[int]) -> None:
        """The messages at these places of 4,096 neighbours have ended."""
        column = self._columns.get(number)
        if column is None:
            return
        taken = 0
        for i in places:
            size = column[i]
            if size:
                column[i] = 0
                self.total -= size - _KNOWN
                taken += 1
        self._open[number] -= taken
        if number != self._newest:
            self._settle(number)

    def __contains__(self, sequence: int) -> bool:
        column = self._columns.get(sequence >> CHUNK_SHIFT)
        return column is not None and column[sequence & CHUNK_MASK] > 0

    def lacks(self, first: int, last: int) -> None:
        """Note that nobody has said it of these neighbours."""
        after, through = self.unknown
        self.unknown = (min(after, first - 1), max(through, last)) if through else (first - 1, last)

    def looked_through(self, sequence: int) -> None:
        """All up to here that have not ended are in it."""
        after, through = self.unknown
        self.unknown = (max(after, sequence), through) if sequence < through else (0, 0)
        if not self.unknown[1]:
            for number in [one for one in self._columns if one != self._newest]:
                self._settle(number)

    def _column(self, number: int) -> "array[int] | Sparse":
        column = self._columns.get(number)
        if column is None:
            before, self._newest = self._newest, max(self._newest, number)
            column = self._columns[number] = array("I", bytes(4 * CHUNK))
            self._open[number] = 0
            if before in self._columns and before != self._newest:
                self._settle(before)
        return column

    def _settle(self, number: int) -> None:
        """Let go of a column in which all have ended; of one in which few have not keep those."""
        if not self._open[number]:
            del self._columns[number], self._open[number]
        elif self._open[number] < _THIN_BELOW and not isinstance(self._columns[number], Sparse):
            column = self._columns[number]
            self._columns[number] = thin = Sparse(0)
            thin.update((i, size) for i, size in enumerate(column) if size)

    # -- in a checkpoint ----------------------------------------------------------------------------------------------

    def dump(self) -> dict[int, bytes]:
        """Columns by number: 0 and the sizes of 4,096 neighbours, or 1, places and sizes (4 bytes each)."""
        parts: dict[int, bytes] = {}
        for number, column in self._columns.items():
            if isinstance(column, Sparse):
                places, some = array("I", column.keys()), array("I", column.values())
                parts[number] = _FEW + places.tobytes() + some.tobytes()
            elif self._open[number]:
                parts[number] = _ALL + column.tobytes()
        return parts

    def load(self, number: int, data: bytes) -> None:
        """A column that ``dump`` has given."""
        words = array("I", data[len(_ALL) :])
        column: array[int] | Sparse = words
        if data[: len(_FEW)] == _FEW:
            count = len(words) // 2
            column = Sparse(0)
            column.update(zip(words[:count], words[count:], strict=True))
        elif len(words) != CHUNK:
            raise ValueError(f"{len(words)} sizes of {CHUNK}")
        sizes = column.values() if isinstance(column, Sparse) else column
        self._columns[number] = column
        self._open[number] = known = sum(size > 0 for size in sizes)
        self.total += sum(sizes) - known * _KNOWN
        self._newest = max(self._newest, number)
