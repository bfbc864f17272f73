"""The fixed parts of a record: numbers, flags, the header. Pure. The diagram stands in ``codec``, the words in
``syncbrok.log``; the numpy types here are the same bytes for those who gather many records at once.
"""

import struct
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from crc32c import crc32c

from syncbrok.model.names import MessageId

Buffer = bytes | bytearray | memoryview

MAGIC = 0x5242_5953
"""``SYBR`` in the file; one byte order only, so it tells also a file turned around"""
VERSION = 1
NEWEST_VERSION = 2
"""of a record that a program which reads version 1 alone would misread; see ``codec``"""
LATER = "a later version of Syncbrok wrote it: go on with that one"
"""what stands in the reason, and so in the error, where what cannot be read is not damaged"""


class Kind(IntEnum):
    """The kind of a record. A number is never given twice."""

    MESSAGE = 1
    OUTCOMES = 2
    CARRIED = 3
    QUEUE_SET = 4
    QUEUE_DELETED = 5
    SUBSCRIBER_SET = 6
    SUBSCRIBER_DELETED = 7
    FILE_APPLIED = 8
    REARMED = 9
    SEGMENT_OPENED = 10
    SEGMENT_SEALED = 11
    GAP = 12
    ERASED = 13
    JOB = 14
    MANAGED = 16


UNIT_END = 0x0001
"""last record of a client's unit: a unit is kept whole or not at all"""
HAS_KEY = 0x0002
HAS_IDEMPOTENCY = 0x0004
HAS_DUE = 0x0008
HAS_EXPIRES = 0x0010
HAS_HEADERS = 0x0020
HAS_ONLY = 0x0040
HAS_ERASE_AFTER = 0x1000
"""the extras end with ``erase_after_us``; the record is of version 2"""
EXTRAS = HAS_KEY | HAS_IDEMPOTENCY | HAS_DUE | HAS_EXPIRES | HAS_HEADERS | HAS_ONLY | HAS_ERASE_AFTER
"""any of these: a block ``EXTRA`` stands in the meta of the message"""
SCOPE_SHIFT = 8
"""``scope`` as a number of one bit"""
FAILURE_SHIFT = 9
"""``parent_failure`` as a number of two bits"""
ERASED = 0x0800
"""of a message its content, or of outcomes some details, were erased: zeros stand where they stood"""

HEADER = np.dtype(
    [
        ("magic", "<u4"),
        ("version", "u1"),
        ("kind", "u1"),
        ("flags", "<u2"),
        ("body_bytes", "<u4"),
        ("meta_bytes", "<u4"),
        ("sequence", "<u8"),
        ("batch", "<u8"),
        ("synced_through", "<u8"),
        ("time_us", "<i8"),
        ("id", "V16"),
        ("root", "<u8"),
        ("queue", "<u4"),
        ("depth", "<u4"),
        ("items", "<u4"),
        ("body_crc", "<u4"),
        ("header_crc", "<u4"),
    ]
)
EXTRA = np.dtype(
    [
        ("due_us", "<i8"),
        ("expires_us", "<i8"),
        ("only", "<u4"),
        ("headers_bytes", "<u4"),
        ("key_bytes", "<u2"),
        ("idempotency_key_bytes", "<u2"),
        ("fingerprint_bytes", "<u2"),
    ]
)
ROW = np.dtype(
    [
        ("message", "<u8"),
        ("time_us", "<i8"),
        ("due_us", "<i8"),
        ("after", "<u8"),
        ("subscriber", "<u4"),
        ("latency_us", "<u4"),
        ("attempt", "<u2"),
        ("status", "<u2"),
        ("detail_bytes", "<u2"),
        ("outcome", "u1"),
        ("reason", "u1"),
    ]
)
HEAD_STRUCT = struct.Struct("<IBBHIIQQQq16sQIIII")
HEADER_STRUCT = struct.Struct("<IBBHIIQQQq16sQIIIII")
CRC_STRUCT = struct.Struct("<I")
EXTRA_STRUCT = struct.Struct("<qqIIHHH")
ROW_STRUCT = struct.Struct("<QqqQIIHHHBB")
ERASE_AFTER_STRUCT = struct.Struct("<q")
CARRIED_STRUCT = struct.Struct("<QqII")
ENDED_STRUCT = struct.Struct("<IB")
TRIED_STRUCT = struct.Struct("<IIq")
SEALED_STRUCT = struct.Struct("<QI")
WALK_STRUCT = struct.Struct("<I4xI")
"""magic and ``body_bytes`` of a header"""
VERIFY_STRUCT = struct.Struct("<I4xI72xII")
"""magic, ``body_bytes``, ``body_crc`` and ``header_crc`` of a header"""

HEADER_BYTES = HEADER_STRUCT.size
ID_BYTES = 16
ROW_BYTES = ROW_STRUCT.size
TIME_AT = 40
"""where ``time_us`` stands in a header"""
SEQUENCE_AT = 16
"""where ``sequence`` stands in a header"""
LENGTH_AT = 8
"""where ``body_bytes`` stands in a header, for those who walk"""
LENGTH_STRUCT = struct.Struct("<I")
assert HEADER.fields is not None
assert HEADER.fields["time_us"][1] == TIME_AT
assert HEADER.itemsize == HEADER_BYTES == HEAD_STRUCT.size + CRC_STRUCT.size
assert VERIFY_STRUCT.size == HEADER_BYTES
assert EXTRA.itemsize == EXTRA_STRUCT.size
assert ROW.itemsize == ROW_BYTES


class Header(NamedTuple):
    """A record's header as read; the names are those of ``HEADER``."""

    magic: int
    version: int
    kind: int
    flags: int
    body_bytes: int
    meta_bytes: int
    sequence: int
    batch: int
    synced_through: int
    time_us: int
    id: MessageId
    root: int
    queue: int
    depth: int
    items: int
    """parents of a message, rows of outcomes, entries of a replay"""
    body_crc: int
    header_crc: int

    @property
    def record_bytes(self) -> int:
        return HEADER_BYTES + self.body_bytes

    @property
    def ends_unit(self) -> bool:
        return bool(self.flags & UNIT_END)


class Stretch(NamedTuple):
    """Consecutive records that are bare messages of one queue: position and sequence of the first, their count, the
    number of the queue. The index is built from this, without reading their bytes."""

    position: int
    sequence: int
    size: int
    queue: int


class Incomplete(NamedTuple):
    """The buffer ends before the record at ``offset`` does; ``needed`` bytes from ``offset`` on would tell more."""

    offset: int
    needed: int


class Corrupt(NamedTuple):
    """The bytes at ``offset`` are not a record."""

    offset: int
    why: str


def read_header(buffer: Buffer, offset: int = 0, *, verify: bool = True) -> Header | Incomplete | Corrupt:
    """The header at ``offset``, its checksum verified; the body may lie beyond the buffer."""
    if len(buffer) - offset < HEADER_BYTES:
        return Incomplete(offset, HEADER_BYTES)
    header = Header._make(HEADER_STRUCT.unpack_from(buffer, offset))
    if header.magic != MAGIC:
        return Corrupt(offset, "no record begins here")
    if verify and crc32c(buffer[offset : offset + HEAD_STRUCT.size]) != header.header_crc:
        return Corrupt(offset, "the header's checksum does not fit")
    if not VERSION <= header.version <= NEWEST_VERSION:
        what = f"a record of version {header.version}, this program reads versions {VERSION} to {NEWEST_VERSION}"
        return Corrupt(offset, f"{what}; {LATER}")
    if header.meta_bytes > header.body_bytes:
        return Corrupt(offset, "the meta is longer than the body")
    return header
