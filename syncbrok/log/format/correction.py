"""Finds the one byte that rotted, by its checksum. Pure.

A CRC-32C tells any two changes of one byte in a header apart, so a header in which a bit has turned can be restored.
A message restored like this is never delivered: a checksum that can be made to fit proves less than one that fitted.
It only tells which record stood there, so that the damage costs that record and no other.
"""

from functools import cache

import numpy as np
import numpy.typing as npt
from crc32c import crc32c


def corrected(data: bytes, crc: int, upto: int) -> bytes | None:
    """``data`` with the one byte among its first ``upto`` changed by which its CRC-32C is ``crc``; None where there is
    none, or more than one."""
    wrong = crc32c(data) ^ crc
    found: bytes | None = None
    changes = _changes_of_last(len(data) - upto)
    steps = _steps()
    for place in range(upto - 1, -1, -1):
        for byte in np.flatnonzero(changes == wrong).tolist():
            if found is not None:
                return None
            found = b"".join((data[:place], bytes((data[place] ^ byte,)), data[place + 1 :]))
        changes = (changes >> np.uint32(8)) ^ steps[changes & np.uint32(0xFF)]
    return found


def corrected_whole(data: bytes, crc: int) -> bytes | None:
    """As ``corrected``, for all of ``data``; ``data`` itself where one byte of the checksum beside it has changed."""
    wrong = crc32c(data) ^ crc
    if any(wrong & ~(0xFF << shift) == 0 for shift in (0, 8, 16, 24)):
        return data
    return corrected(data, crc, len(data))


def _changes_of_last(behind: int) -> npt.NDArray[np.uint32]:
    """The change of the checksum for each change of a byte, with ``behind`` bytes after that byte."""
    zeros = bytes(behind)
    same = crc32c(bytes(behind + 1))
    changes = np.zeros(256, np.uint32)
    for bit in range(8):
        changes[1 << bit : 2 << bit] = changes[: 1 << bit] ^ np.uint32(crc32c(zeros, crc32c(bytes((1 << bit,)))) ^ same)
    return changes


@cache
def _steps() -> npt.NDArray[np.uint32]:
    """The change of the checksum when one more byte follows, by the lowest byte of the change so far."""
    return _changes_of_last(0)
