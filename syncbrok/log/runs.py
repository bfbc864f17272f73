"""A run of plain messages -> the bytes of its records, all at once. Pure.

The bytes are those that ``codec`` makes of each message alone (a test holds that). What differs from record to record
is written into a column of all headers; what is left for each is two checksums. 0.5 us a message, where one after the
other costs 2.
"""

from itertools import repeat
from typing import Final, NamedTuple

import numpy as np
from crc32c import crc32c

from syncbrok.log.layout import (
    CRC_STRUCT,
    FAILURE_SHIFT,
    HEAD_STRUCT,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    SCOPE_SHIFT,
    VERSION,
    Buffer,
    Kind,
)
from syncbrok.model.facts import PublishedRun

_MESSAGE: Final = int(Kind.MESSAGE)


class Records(NamedTuple):
    """``pieces`` one after the other are the records; ``sizes_bytes`` has the length of each."""

    pieces: list[bytes]
    sizes_bytes: list[int]


def encode_run(run: PublishedRun, unit_ends: Buffer, batch: int, synced_through: int) -> Records:
    """``unit_ends``: a byte for each message, 1 for those that end a client's unit (``UNIT_END``), else 0."""
    count, contents = run.size, run.contents
    assert len(unit_ends) == len(contents) == count, "a run is written with its contents"
    meta = run.content_type.encode("utf-8", "surrogatepass")
    flags = run.parent_failure << FAILURE_SHIFT | run.scope << SCOPE_SHIFT
    alike = HEAD_STRUCT.pack(
        MAGIC, VERSION, _MESSAGE, flags, 0, len(meta), 0, batch, synced_through, run.time_us, b"", 0, run.queue, 0, 0, 0
    )
    before_bytes = HEADER_BYTES + len(meta)
    raw = bytearray((alike + bytes(CRC_STRUCT.size) + meta) * count)
    heads = np.ndarray(count, HEADER, raw, strides=(before_bytes,))
    sizes = np.fromiter(map(len, contents), np.int64, count)
    heads["flags"] |= np.frombuffer(unit_ends, np.uint8)
    heads["body_bytes"] = sizes + len(meta)
    heads["sequence"] = heads["root"] = np.arange(run.sequence, run.sequence + count, dtype=np.uint64)
    heads["id"] = np.frombuffer(run.ids, "V16")
    heads["body_crc"] = list(map(crc32c, contents, repeat(crc32c(meta))))
    checked = np.ndarray(count, f"V{HEAD_STRUCT.size}", raw, strides=(before_bytes,))
    heads["header_crc"] = list(map(crc32c, checked.tolist()))
    pieces = [b""] * (2 * count)
    pieces[0::2] = np.ndarray(count, f"V{before_bytes}", raw).tolist()
    pieces[1::2] = contents
    return Records(pieces, (sizes + before_bytes).tolist())
