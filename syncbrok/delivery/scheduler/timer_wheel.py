"""Due times by the million: buckets of about 66 ms, each an array, in a heap of bucket numbers.

One timer per message was rejected (1.2 us and a hundred bytes each); coarse is enough, since nothing comes early:
a bucket is handed out only when all of its span is over.

What is due later than in some seconds lies in wide buckets of about 17 s, in the form in which a checkpoint has it, and
is sorted into the others when it comes near: where few messages expire in some weeks, a bucket each would be 200 bytes
each, and a checkpoint would look at every one. There also lie the expiries of messages that have long ended, which are
most of them: they are swept out little by little, as new ones come.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

_SHIFT: Final = 16  # 65,536 us
_WIDE_SHIFT: Final = 8  # 256 buckets are a wide one
_SWEEP_EVERY: Final = 4_096
"""entries that come to the wide buckets between two sweeps; each looks at twice as many, so that it keeps up"""
_STEP: Final = 1_024


class TimerWheel:
    """Pairs (kind, value) by due time. Entries are not taken back: whoever reads one checks that it still holds."""

    __slots__ = ("_buckets", "_come", "_horizon", "_order", "_round", "_unswept", "_wide", "_wide_order")

    def __init__(self) -> None:
        self._buckets: dict[int, array[int]] = {}
        self._order: list[int] = []
        self._wide: dict[int, array[int]] = {}  # (bucket number, kind, value) of each entry
        self._wide_order: list[int] = []
        self._horizon = 0
        """number of the first wide bucket that has not been sorted into the others"""
        self._come = 0
        self._round: list[int] = []
        """wide buckets that this round of sweeping has still to look at"""
        self._unswept = 0
        """how much of the last of them it has not looked at, from its beginning on; 0: it has not begun"""

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values())) // 2 + sum(map(len, self._wide.values())) // 3

    def add(self, due_us: int, kind: int, value: int) -> None:
        """``kind`` (a subscriber's number, or one of the caller's codes) and ``value`` (a sequence) at ``due_us``."""
        number = due_us >> _SHIFT
        wide = number >> _WIDE_SHIFT
        if wide >= self._horizon:
            self._come += 1
            entries = self._wide.get(wide)
            if entries is None:
                entries = self._wide[wide] = array("Q")
                heappush(self._wide_order, wide)
            entries.extend((number, kind, value))
            return
        bucket = self._bucket(number)
        bucket.append(kind)
        bucket.append(value)

    def _bucket(self, number: int) -> "array[int]":
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = array("Q")
            heappush(self._order, number)
        return bucket

    def next_due_us(self) -> int | None:
        """When the first bucket is over, Unix microseconds; or when a wide one begins, and what is first is not yet
        known."""
        if self._order:
            return (self._order[0] + 1) << _SHIFT
        return self._wide_order[0] << _WIDE_SHIFT + _SHIFT if self._wide_order else None

    def pop_due(self, now_us: int) -> Iterator[tuple[int, int]]:
        """Everything whose bucket is over, oldest bucket first."""
        self._horizon = max(self._horizon, (now_us >> _WIDE_SHIFT + _SHIFT) + 2)
        while self._wide_order and self._wide_order[0] < self._horizon:
            for number, rows in _groups(self._wide.pop(heappop(self._wide_order), b""), 0):
                self._bucket(number).frombytes(rows[:, 1:].tobytes())
        while self._order and (self._order[0] + 1) << _SHIFT <= now_us:
            bucket = self._buckets.pop(heappop(self._order))
            yield from zip(bucket[::2], bucket[1::2], strict=True)

    def sweep_some(self, holds: Callable[[int, int], bool]) -> None:
        """If enough has come since the last time, look at some of what is due later and let go of what does not hold
        any more: what is left is not much more than what holds, however long the others would have been there."""
        if self._come >= _SWEEP_EVERY:
            self.sweep(holds, 2 * self._come)

    def sweep(self, holds: Callable[[int, int], bool], most: int) -> None:
        """As ``sweep_some``, now, and at most (about) so many; it goes on where it stopped, one round after another."""
        self._come = 0
        if not self._round:
            if len(self._wide_order) > 2 * len(self._wide):  # else numbers of those that were swept empty pile up
                self._wide_order = list(self._wide)
                heapify(self._wide_order)
            self._round, self._unswept = list(self._wide), 0
        while self._round and most > 0:
            bucket = self._wide.get(self._round[-1])
            if bucket:
                end = self._unswept or len(bucket)
                start = max(0, end - 3 * _STEP)
                some = bucket[start:end]
                kept = [at for at in range(0, len(some), 3) if holds(some[at + 1], some[at + 2])]
                if 3 * len(kept) < len(some):
                    bucket[start:end] = array("Q", [word for at in kept for word in some[at : at + 3]])
                most -= max(1, len(some) // 3)
                self._unswept = start
            if not bucket or not self._unswept:
                number = self._round.pop()
                self._unswept = 0
                if bucket is not None and not bucket:
                    del self._wide[number]

    def dump(self) -> Callable[[], bytes]:
        """(bucket number, kind, value) of every entry as u64 little-endian, for a checkpoint. The buckets are copied;
        who calls the result, in any thread, puts them into one."""
        near = [(number, bucket.tobytes()) for number, bucket in self._buckets.items()]
        return partial(_rows_of, near, [entries.tobytes() for entries in self._wide.values()])

    @classmethod
    def load(cls, data: bytes) -> "TimerWheel":
        """The entries that ``dump`` wrote."""
        loaded = cls()
        for wide, rows in _groups(data, _WIDE_SHIFT):
            loaded._wide[wide] = array("Q", rows.tobytes())
        loaded._wide_order = list(loaded._wide)
        heapify(loaded._wide_order)
        return loaded


def _rows_of(near: Sequence[tuple[int, bytes]], wide: Sequence[bytes]) -> bytes:
    some = []
    for number, bucket in near:
        rows = np.empty((len(bucket) // 16, 3), np.uint64)
        rows[:, 0] = number
        rows[:, 1:] = np.frombuffer(bucket, np.uint64).reshape(-1, 2)
        some.append(rows.tobytes())
    return b"".join((*some, *wide))


def _groups(entries: "array[int] | bytes", shift: int) -> Iterator[tuple[int, npt.NDArray[np.uint64]]]:
    """The rows by bucket number, shifted; each number once, those of one number in the order in which they came."""
    rows = np.frombuffer(entries, np.uint64).reshape(-1, 3)
    numbers = rows[:, 0] >> np.uint64(shift)
    order = np.argsort(numbers, kind="stable")
    rows, numbers = rows[order], numbers[order]
    starts = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(rows)]
    for start, end in pairwise(starts):
        if start < end:
            yield int(numbers[start]), rows[start:end]
