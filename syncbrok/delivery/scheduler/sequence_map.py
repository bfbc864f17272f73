"""A map from sequences to small numbers, in order, that costs a dozen bytes an entry however far apart they stand.

Two columns, sorted, in pieces of at most 2,048: to put one in moves some kilobytes of one piece, a microsecond. A
dictionary was rejected for its 100 bytes an entry, bitmaps for the 550 of each block in which there is a single one.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator
from typing import Final

import numpy as np

_PIECE_MAX: Final = 2_048
_SHRINKS_EVERY: Final = 256
"""an array from which single ones are taken keeps the memory of all"""


class SequenceMap:
    """Sequence -> a number from 1 on that fits ``code``, a type of ``array``. Not bounded by itself."""

    __slots__ = ("_code", "_count", "_firsts", "_numbers", "_sequences")

    def __init__(self, code: str) -> None:
        self._code = code
        self._firsts: list[int] = []
        """lowest of each piece when it was made; what is put in before the first piece goes into that"""
        self._sequences: list[array[int]] = []
        self._numbers: list[array[int]] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def get(self, sequence: int) -> int:
        """Its number; 0 where it is not in here."""
        if not self._count:
            return 0
        at, place = self._place(sequence)
        piece = self._sequences[at]
        return self._numbers[at][place] if place < len(piece) and piece[place] == sequence else 0

    def put(self, sequence: int, number: int) -> None:
        if not self._sequences:
            self._add_piece(0, array("Q"), array(self._code), sequence)
        at, place = self._place(sequence)
        piece = self._sequences[at]
        if place < len(piece) and piece[place] == sequence:
            self._numbers[at][place] = number
            return
        if len(piece) >= _PIECE_MAX:
            at, place = self._split(at, place, sequence)
        self._sequences[at].insert(place, sequence)
        self._numbers[at].insert(place, number)
        self._count += 1

    def pop(self, sequence: int) -> int:
        """Take it out; its number, 0 where it is not in here."""
        number = self.get(sequence)
        if number:
            at, place = self._place(sequence)
            self._take(at, place, place + 1)
        return number

    def between(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield sequences from ``first`` to before ``end``, with their numbers, in order; nothing changes meanwhile."""
        for at, low, high in self._spans(first, end):
            yield from zip(self._sequences[at][low:high], self._numbers[at][low:high], strict=True)

    def count_between(self, first: int, end: int, numbers: Collection[int] = ()) -> int:
        """How many there are from ``first`` to before ``end``, of these numbers or, where none is named, of any."""
        spans = self._spans(first, end)
        if not numbers:
            return sum(high - low for _, low, high in spans)
        return sum(self._numbers[at][low:high].count(one) for at, low, high in spans for one in numbers)

    def after(self, sequence: int, most: int) -> list[int]:
        """The lowest behind ``sequence``, at most ``most``, in order."""
        found: list[int] = []
        if not self._count:
            return found
        at, place = self._place(sequence + 1)
        while len(found) < most and at < len(self._sequences):
            found += self._sequences[at][place : place + most - len(found)]
            at, place = at + 1, 0
        return found

    def before(self, sequence: int, most: int) -> list[int]:
        """The highest below ``sequence``, at most ``most``, from the highest down."""
        found: list[int] = []
        if not self._count:
            return found
        at, place = self._place(sequence)
        while len(found) < most and at >= 0:
            found += self._sequences[at][max(0, place - most + len(found)) : place][::-1]
            at -= 1
            place = len(self._sequences[at])
        return found

    def numbers(self) -> dict[int, int]:
        """How many there are of each number; looks at all of them."""
        counts: dict[int, int] = {}
        for column in self._numbers:
            for number in set(column):
                counts[number] = counts.get(number, 0) + column.count(number)
        return counts

    def columns(self) -> tuple[bytes, bytes]:
        """All sequences, 8 bytes each, and all numbers, in order."""
        return b"".join(self._sequences), b"".join(self._numbers)

    def load(self, sequences: bytes, numbers: bytes) -> None:
        """Fill an empty one with what ``columns`` gave. Raises ``ValueError`` for anything else."""
        all_sequences, all_numbers = array("Q", sequences), array(self._code, numbers)
        if len(all_sequences) != len(all_numbers):
            raise ValueError(f"{len(all_sequences)} sequences with {len(all_numbers)} numbers")
        known = np.frombuffer(sequences, np.uint64)
        if not (known[1:] > known[:-1]).all():
            raise ValueError("sequences that do not rise")
        for begin in range(0, len(all_sequences), _PIECE_MAX):
            piece, its = all_sequences[begin : begin + _PIECE_MAX], all_numbers[begin : begin + _PIECE_MAX]
            self._add_piece(len(self._sequences), piece, its, piece[0])
        self._count = len(all_sequences)

    def _place(self, sequence: int) -> tuple[int, int]:
        """(piece, place in it) where it stands, or would."""
        at = max(0, bisect_right(self._firsts, sequence) - 1)
        return at, bisect_left(self._sequences[at], sequence)

    def _spans(self, first: int, end: int) -> Iterator[tuple[int, int, int]]:
        """(piece, place of the first, place behind the last) of all from ``first`` to before ``end``."""
        if not self._count or end <= first:
            return
        at, low = self._place(first)
        last, high = self._place(end)
        for one in range(at, last):
            yield one, low, len(self._sequences[one])
            low = 0
        yield last, low, high

    def _split(self, at: int, place: int, sequence: int) -> tuple[int, int]:
        """Make room in a full piece; where the sequence goes then. What comes at the end of all begins a new piece, so
        that those that come in order leave full ones."""
        piece, numbers = self._sequences[at], self._numbers[at]
        if place == len(piece) and at == len(self._sequences) - 1:
            self._add_piece(at + 1, array("Q"), array(self._code), sequence)
            return at + 1, 0
        half = _PIECE_MAX // 2
        self._add_piece(at + 1, piece[half:], numbers[half:], piece[half])
        del piece[half:], numbers[half:]
        return (at, place) if place <= half and sequence < self._firsts[at + 1] else (at + 1, place - half)

    def _add_piece(self, at: int, sequences: "array[int]", numbers: "array[int]", first: int) -> None:
        self._firsts.insert(at, first)
        self._sequences.insert(at, sequences)
        self._numbers.insert(at, numbers)

    def _take(self, at: int, low: int, high: int) -> None:
        del self._sequences[at][low:high], self._numbers[at][low:high]
        self._count -= high - low
        if not self._sequences[at]:
            self._drop_piece(at)
            return
        if not len(self._sequences[at]) % _SHRINKS_EVERY:
            self._sequences[at], self._numbers[at] = self._sequences[at][:], self._numbers[at][:]
        for one in (at, at - 1):  # small neighbours become one piece
            if 0 <= one < len(self._firsts) - 1:
                self._join(one)

    def _join(self, at: int) -> None:
        """Make one of this piece and the next, if both are small."""
        if len(self._sequences[at]) + len(self._sequences[at + 1]) <= _PIECE_MAX // 4:
            self._sequences[at] = self._sequences[at] + self._sequences[at + 1]
            self._numbers[at] = self._numbers[at] + self._numbers[at + 1]
            self._drop_piece(at + 1)

    def _drop_piece(self, at: int) -> None:
        del self._firsts[at], self._sequences[at], self._numbers[at]
