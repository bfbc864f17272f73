"""Due times by the million: buckets of about 66 ms, each an array, in a heap of bucket numbers.

One timer per message was rejected (1.2 us and a hundred bytes each); coarse is enough, since nothing comes early:
a bucket is handed out only when all of its span is over.
"""

from array import array
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

_SHIFT = 16  # 65,536 us


class Wheel:
    """Pairs (kind, value) by due time. Entries are not taken back: whoever reads one checks that it still holds."""

    __slots__ = ("_buckets", "_order")

    def __init__(self) -> None:
        self._buckets: dict[int, array[int]] = {}
        self._order: list[int] = []

    def __len__(self) -> int:
        return sum(len(bucket) for bucket in self._buckets.values()) // 2

    def add(self, due_us: int, kind: int, value: int) -> None:
        """``kind`` (a subscriber's number, or one of the caller's codes) and ``value`` (a sequence) at ``due_us``."""
        number = due_us >> _SHIFT
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = array("Q")
            heappush(self._order, number)
        bucket.append(kind)
        bucket.append(value)

    def next_due_us(self) -> int | None:
        """When the first bucket is over, Unix microseconds."""
        return (self._order[0] + 1) << _SHIFT if self._order else None

    def pop_due(self, now_us: int) -> Iterator[tuple[int, int]]:
        """Everything whose bucket is over, oldest bucket first."""
        while self._order and (self._order[0] + 1) << _SHIFT <= now_us:
            bucket = self._buckets.pop(heappop(self._order))
            yield from zip(bucket[::2], bucket[1::2], strict=True)

    def dump(self) -> bytes:
        """(bucket number, kind, value) of every entry as u64 little-endian, for a checkpoint."""
        rows = array("Q")
        for number, bucket in self._buckets.items():
            for at in range(0, len(bucket), 2):
                rows.extend((number, bucket[at], bucket[at + 1]))
        return rows.tobytes()

    @classmethod
    def load(cls, data: bytes) -> "Wheel":
        """What ``dump`` wrote."""
        rows = array("Q", data)
        loaded = cls()
        for at in range(0, len(rows), 3):
            bucket = loaded._buckets.setdefault(rows[at], array("Q"))
            bucket.append(rows[at + 1])
            bucket.append(rows[at + 2])
        loaded._order = list(loaded._buckets)
        heapify(loaded._order)
        return loaded
