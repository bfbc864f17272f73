"""Memory that sealed segments are read into: pages of 2 MiB, the same for one segment after the other.

Mapping a file was rejected. It has pages of 4 KiB, 16,384 in a segment, and a virtual machine looks each of them up in
two tables: mapping, verifying and unmapping took a third of the time of a full read. And a disk that fails under a
mapping kills the process, where a read that fails says so.
"""

import mmap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from syncbrok.model.limits import MIB

BYTES_MAX: Final = 128 * MIB
"""larger segments are mapped all the same: a worker's memory is bounded"""
_PAGE_BYTES: Final = 2 * MIB
_free: list[mmap.mmap] = []
"""at most one; a task reads its segments one after the other"""


def borrow(size_bytes: int) -> mmap.mmap:
    """Memory of at least that size; what was in it before is still there."""
    with suppress(IndexError):
        found = _free.pop()
        if len(found) >= size_bytes:
            return found
    made = mmap.mmap(-1, -(-size_bytes // _PAGE_BYTES) * _PAGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without large pages
        made.madvise(mmap.MADV_HUGEPAGE)
    return made


def give_back(memory: mmap.mmap) -> None:
    """Return memory that nobody looks at any more; the next borrower overwrites it."""
    if not _free:
        _free.append(memory)


@contextmanager
def borrowed(size_bytes: int) -> Iterator[memoryview]:
    """Memory of at least that size, for as long as the block lasts."""
    memory = borrow(size_bytes)
    try:
        yield memoryview(memory)
    finally:
        give_back(memory)
