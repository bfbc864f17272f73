"""Settings of the process's memory: the C library's heap and Python's collector.

By default the C library keeps what was freed, and after large messages ever larger blocks of it: a burst of them left
500 MiB behind. Giving every large block back at once costs as much: a fresh block of 1 MiB takes 0.5 to 2 ms in a
virtual machine, whose pages are given out one by one, and one from the heap 0.03. So blocks stay in the heap. Its end
goes back by itself, and holes inside go back now and then. There is one heap for all threads: the library would give
each its own, and what the loop has freed of the contents it sent would not serve the threads that read the next.
"""

import asyncio
import ctypes
import gc
from typing import Final

from syncbrok.model import limits

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_FROM_THE_SYSTEM_BYTES: Final = 4 * limits.MIB
"""larger blocks are taken from it and given back to it each time: batches, tables of messages"""
_FREE_AT_END_BYTES: Final = 8 * limits.MIB
_TRIM_EVERY_S: Final = 5.0
_COLLECT_AFTER: Final = 20_000
"""objects more than at the last collection; Python's own 700 costs 3 us a message"""


def keep_blocks() -> None:
    """Make the C library keep freed blocks in its heap. Without effect where the library has no such settings."""
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    set_option(_M_MMAP_THRESHOLD, _FROM_THE_SYSTEM_BYTES)
    set_option(_M_TRIM_THRESHOLD, _FREE_AT_END_BYTES)
    set_option(_M_ARENA_MAX, 1)


def collect_seldom() -> None:
    """Make Python's collector run seldom. Objects that exist now live as long as the process, so it need not go through
    them again and again. A turn of the loop makes a few hundred tuples and drops them again, which is no reason to look
    for cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, *gc.get_threshold()[1:])


async def give_back(every_s: float = _TRIM_EVERY_S) -> None:
    """The holes of the heap, every few seconds, until cancelled. In a thread: 7 ms for each 100 MiB, 0.2 for none."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return
    trim.argtypes = [ctypes.c_size_t]
    while True:
        await asyncio.sleep(every_s)
        await asyncio.to_thread(trim, 0)
