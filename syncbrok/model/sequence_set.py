"""A set of sequences that costs a bit each, and gives them back in order.

Messages wait in millions, and mostly in neighbourhoods: blocks of 4,096 sequences, each one Python integer used as a
bitmap (about 550 bytes when touched). A ``set`` was rejected for its 60 bytes an entry, a sorted array for its
insertions; the integers cost 0.2 us an operation, which is little beside an attempt.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

_SHIFT = 12
_MASK = (1 << _SHIFT) - 1
_WORD = (1 << 64) - 1
_FEW = 4
"""sequences that sooner move one by one than as bitmaps"""


class SequenceSet:
    """Sequences, each once. Not bounded by itself: whoever owns one says what bounds it."""

    __slots__ = ("_blocks", "_order", "count")

    def __init__(self, sequences: Iterable[int] = ()) -> None:
        self._blocks: dict[int, int] = {}
        self._order: list[int] = []  # heap of block numbers; may hold numbers of blocks that have become empty
        self.count = 0
        """as ``len``, without the call"""
        for sequence in sequences:
            self.add(sequence)

    def __len__(self) -> int:
        return self.count

    def __contains__(self, sequence: Any) -> bool:
        block = self._blocks.get(sequence >> _SHIFT)
        return block is not None and bool(block >> (sequence & _MASK) & 1)

    def __iter__(self) -> Iterator[int]:
        for number in sorted(self._blocks):
            block = self._blocks[number]
            while block:
                lowest = block & -block
                yield number << _SHIFT | lowest.bit_length() - 1
                block ^= lowest

    def __repr__(self) -> str:
        return f"<SequenceSet of {self.count}>"

    def add(self, sequence: int) -> None:
        number = sequence >> _SHIFT
        bit = 1 << (sequence & _MASK)
        block = self._blocks.get(number)
        if block is None:
            self._blocks[number] = bit
            heappush(self._order, number)
            self.count += 1
        elif not block & bit:
            self._blocks[number] = block | bit
            self.count += 1

    def update(self, sequences: Iterable[int]) -> None:
        """As ``add``, for many."""
        for number, bits in _blocks_of(sequences).items():
            self._put(number, self._blocks.get(number, 0) | bits)

    def discard(self, sequence: int) -> bool:
        """Take it out; whether it was in."""
        number = sequence >> _SHIFT
        block = self._blocks.get(number)
        if block is None:
            return False
        bit = 1 << (sequence & _MASK)
        if not block & bit:
            return False
        self.count -= 1
        block ^= bit
        if block:
            self._blocks[number] = block
        else:
            del self._blocks[number]
        return True

    def pop_first(self) -> int:
        """Take out and return the lowest; ``KeyError`` when empty."""
        number = self._first_block()
        block = self._blocks[number]
        lowest = block & -block
        sequence = number << _SHIFT | lowest.bit_length() - 1
        self.discard(sequence)
        return sequence

    def lowest(self, most: int) -> list[int]:
        """The lowest, at most ``most``, in order; they stay."""
        return self.after(-1, most)

    def after(self, sequence: int, most: int) -> list[int]:
        """The lowest behind ``sequence``, at most ``most``, in order; they stay."""
        found: list[int] = []
        first = sequence + 1
        for number in sorted(number for number in self._blocks if number >= first >> _SHIFT):
            block, base = self._blocks[number], number << _SHIFT
            if base < first:
                block, base = block >> (first - base), first
            while block and len(found) < most:
                found += _numbers(block & _WORD, base, most - len(found))
                block >>= 64
                base += 64
            if len(found) >= most:
                break
        return found

    def before(self, sequence: int, most: int) -> list[int]:
        """The highest below ``sequence``, at most ``most``, from the highest down; they stay."""
        found: list[int] = []
        for number in sorted((number for number in self._blocks if number <= sequence >> _SHIFT), reverse=True):
            block, base = self._blocks[number], number << _SHIFT
            if base + _MASK >= sequence:
                block &= (1 << max(0, sequence - base)) - 1
            while block and len(found) < most:
                highest = block.bit_length() - 1
                found.append(base + highest)
                block ^= 1 << highest
            if len(found) >= most:
                break
        return found

    def count_between(self, first: int, end: int) -> int:
        """How many there are from ``first`` to before ``end``."""
        count = 0
        for number, block in self._blocks.items():
            base = number << _SHIFT
            if base >= end or base + _MASK < first:
                continue
            if base < first:
                block >>= first - base
                base = first
            if base + block.bit_length() > end:
                block &= (1 << end - base) - 1
            count += block.bit_count()
        return count

    def pop_some(self, most: int) -> list[int]:
        """Take out and return the lowest, at most ``most``, in order: some that lie close together, at least one where
        there is any. Looked at by words of 64: an operation on a whole block costs as much as ten on a word."""
        if not self.count or most <= 0:
            return []
        number = self._first_block()
        block = self._blocks[number]
        lowest = (block & -block).bit_length() - 1
        word, base = block >> lowest & _WORD, (number << _SHIFT) + lowest
        found = _numbers(word, base, most)
        block ^= (word & (1 << found[-1] - base + 1) - 1) << lowest
        self.count -= len(found)
        if block:
            self._blocks[number] = block
        else:
            del self._blocks[number]
        return found

    def move(self, sequences: Collection[int], other: "SequenceSet") -> int:
        """Move those of ``sequences`` that are in here to ``other``; how many they are."""
        moved = 0
        if len(sequences) < _FEW:
            for sequence in sequences:
                if self.discard(sequence):
                    other.add(sequence)
                    moved += 1
            return moved
        for number, bits in _blocks_of(sequences).items():
            block = self._blocks.get(number, 0)
            both = block & bits
            if both:
                moved += both.bit_count()
                self._put(number, block ^ both)
                other._put(number, other._blocks.get(number, 0) | both)  # noqa: SLF001 - one of its own kind
        return moved

    def add_all(self, other: "SequenceSet") -> None:
        """All that are in ``other``."""
        for number, block in other._blocks.items():  # noqa: SLF001 - one of its own kind
            self._put(number, self._blocks.get(number, 0) | block)

    def subtract(self, other: "SequenceSet") -> None:
        """Take out what is in ``other``."""
        mine, others = self._blocks, other._blocks  # noqa: SLF001 - one of its own kind
        few, many = (mine, others) if len(mine) < len(others) else (others, mine)
        for number in [number for number in few if number in many]:
            self._put(number, mine[number] & ~others[number])

    def _put(self, number: int, block: int) -> None:
        """The block of that number is this from now on."""
        before = self._blocks.get(number)
        self.count += block.bit_count() - (before.bit_count() if before else 0)
        if block:
            self._blocks[number] = block
            if before is None:
                heappush(self._order, number)
        elif before is not None:
            del self._blocks[number]

    def forget_through(self, sequence: int) -> int:
        """Take out all up to ``sequence``; the highest of them, 0 where there was none."""
        highest = next(iter(self.before(sequence + 1, 1)), 0)
        for number in [number for number in self._blocks if number <= sequence >> _SHIFT]:
            base = number << _SHIFT
            self._put(number, self._blocks[number] >> sequence + 1 - base << sequence + 1 - base)
        return highest

    def first(self) -> int:
        """The lowest; ``KeyError`` when empty."""
        number = self._first_block()
        block = self._blocks[number]
        return number << _SHIFT | (block & -block).bit_length() - 1

    def dump(self) -> bytes:
        """Block number (8 bytes) and bitmap (512 bytes) of every block, little-endian, for a checkpoint."""
        size = (_MASK + 1) // 8
        return b"".join(
            number.to_bytes(8, "little") + block.to_bytes(size, "little")
            for number, block in sorted(self._blocks.items())
        )

    @classmethod
    def load(cls, data: bytes) -> "SequenceSet":
        """The set that ``dump`` wrote."""
        loaded = cls()
        step = 8 + (_MASK + 1) // 8
        for at in range(0, len(data), step):
            block = int.from_bytes(data[at + 8 : at + step], "little")
            loaded._blocks[int.from_bytes(data[at : at + 8], "little")] = block
            loaded.count += block.bit_count()
        loaded._order = list(loaded._blocks)
        heapify(loaded._order)
        return loaded

    def _first_block(self) -> int:
        while self._order:
            number = self._order[0]
            if number in self._blocks:
                return number
            heappop(self._order)
        raise KeyError("empty")


def as_range(ascending: Sequence[int]) -> Sequence[int]:
    """The same, as a range where they follow each other: a set takes those in without a look at each."""
    if ascending and ascending[-1] - ascending[0] == len(ascending) - 1:
        return range(ascending[0], ascending[-1] + 1)
    return ascending


def _blocks_of(sequences: Iterable[int]) -> dict[int, int]:
    """The sequences as bitmaps, by number of block."""
    if isinstance(sequences, range) and sequences.step == 1:
        return _blocks_between(sequences.start, sequences.stop)
    blocks: dict[int, bytearray] = {}
    number, bits = -1, bytearray()
    for sequence in sequences:
        if sequence >> _SHIFT != number:
            number = sequence >> _SHIFT
            bits = blocks.setdefault(number, bytearray((_MASK + 1) // 8))
        bits[(sequence & _MASK) >> 3] |= 1 << (sequence & 7)
    return {number: int.from_bytes(bits, "little") for number, bits in blocks.items()}


def _blocks_between(first: int, end: int) -> dict[int, int]:
    """The blocks of all sequences from ``first`` to before ``end``, made without a look at each."""
    blocks: dict[int, int] = {}
    while first < end:
        count = min(end - first, _MASK + 1 - (first & _MASK))
        blocks[first >> _SHIFT] = ((1 << count) - 1) << (first & _MASK)
        first += count
    return blocks


def _numbers(word: int, base: int, most: int) -> list[int]:
    """``base`` and the place of each bit that is set, in order, at most so many."""
    if not word & word + 1:  # they follow each other, as in a backlog or in a wide tree
        return list(range(base, base + min(word.bit_length(), most)))
    found: list[int] = []
    while word and most > 0:
        lowest = word & -word
        found.append(base + lowest.bit_length() - 1)
        word ^= lowest
        most -= 1
    return found
