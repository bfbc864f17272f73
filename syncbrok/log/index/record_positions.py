"""For readers of a whole segment: where each record stands, when it was written, and checksums of parts, so that a part
can be read and verified alone. Pure.

The arrays grow with the segment. A growing array has spare room behind it, which belongs to the newest array of its
kind. Copying all of it for each batch would cost more the longer the segment gets.
"""

from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from syncbrok.log.format.codec import Buffer
from syncbrok.log.format.layout import HEADER_BYTES, TIME_AT

_Number = TypeVar("_Number", bound=np.unsignedinteger)


class RecordPositions(NamedTuple):
    """For each record its offset in the file and its time (Unix microseconds). The CRC-32C of all records before record
    0, ``every``, 2 * ``every`` and so on; that before record 0 is 0. ``crc``: the CRC-32C of all records."""

    offsets: npt.NDArray[np.uint32]
    times_us: npt.NDArray[np.uint64]
    checksums: npt.NDArray[np.uint32]
    every: int
    crc: int = 0

    @classmethod
    def nothing(cls, every: int) -> "RecordPositions":
        return cls(np.empty(0, np.uint32), np.empty(0, np.uint64), np.empty(0, np.uint32), every)

    def grown(self, buffer: Buffer, offsets: npt.NDArray[np.int64], shift: int, end: int) -> "RecordPositions":
        """A copy that has the records at ``offsets`` of ``buffer`` too; ``buffer`` stands at ``shift`` in the file, up
        to ``end``. Of several copies grown from the same object only the last may grow again."""
        checksums, crc = self._checked(memoryview(buffer)[: end - shift], offsets)
        places = len(buffer) - HEADER_BYTES + 1
        times_us = np.ndarray(places, "<u8", buffer, TIME_AT, (1,))[offsets]
        return RecordPositions(
            _appended(self.offsets, (offsets + shift).astype(np.uint32)),
            _appended(self.times_us, times_us),
            checksums,
            self.every,
            crc,
        )

    def _checked(self, buffer: memoryview, offsets: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.uint32], int]:
        crc, start = self.crc, int(offsets[0])
        found: list[int] = []
        for border in offsets[-len(self.offsets) % self.every :: self.every].tolist():
            crc = crc32c(buffer[start:border], crc)
            start = border
            found.append(crc)
        checksums = np.concatenate((self.checksums, np.array(found, np.uint32))) if found else self.checksums
        return checksums, crc32c(buffer[start:], crc)


def _appended(now: npt.NDArray[_Number], more: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
    room, size = now.base, len(now) + len(more)
    if not isinstance(room, np.ndarray) or len(room) < size:
        room = np.empty(2 * size, dtype=now.dtype)
        room[: len(now)] = now
    room[len(now) : size] = more
    return room[:size]
