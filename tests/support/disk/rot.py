"""Rots a log on the disk: finds the records of a segment by the format alone, and turns bits in them.

Nothing of the broker is imported: what is said of the bytes here is read in ``docs/log-format.md``, so that a test that
damages a log does not believe the code that it tries.
"""

import struct
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

SEGMENT_HEADER_BYTES = 128
RECORD_HEADER_BYTES = 92
_HEADER = struct.Struct("<4sBBHIIQ24x16s20x4x4x")
_OF_ID = struct.Struct(">QQ")
_ROW = struct.Struct("<Q38xBB")
_CONTENT_LOST = 20
_SIDECAR_HEAD_BYTES, _SIDECAR_ENTRY_BYTES, _SIDECAR_ARRAYS_AT = 96, 40, 6
_SIDECAR_UUID_AT, _SIDECAR_REST_CRC_AT, _SIDECAR_HEAD_CRC_AT = 8, 88, 92
MESSAGE, OUTCOMES, CARRIED, QUEUE_SET, SUBSCRIBER_SET, REARMED, OPENED, SEALED = 1, 2, 3, 4, 6, 9, 10, 11
assert _HEADER.size == RECORD_HEADER_BYTES


class Record(NamedTuple):
    """A record where it stands. ``own`` is the sequence that its id names: of a carried message the message's own; 0
    without an id."""

    path: Path
    at: int
    kind: int
    sequence: int
    own: int
    meta_bytes: int
    body_bytes: int

    @property
    def end(self) -> int:
        return self.at + RECORD_HEADER_BYTES + self.body_bytes

    @property
    def body_at(self) -> int:
        return self.at + RECORD_HEADER_BYTES

    @property
    def content_at(self) -> int:
        return self.body_at + self.meta_bytes


def sequence_of(id_: str) -> int:
    """The sequence that an id in its text form names."""
    high, low = _OF_ID.unpack(bytes.fromhex(id_.replace("-", "")))
    return (high & 0xFFF) << 30 | low >> 32 & 0x3FFF_FFFF


def segments(storage: Path) -> list[Path]:
    """Oldest first; the last one is being written."""
    return sorted(storage.glob("*.log"))


def records(path: Path) -> list[Record]:
    """Of an undamaged segment, in order."""
    data, found, at = path.read_bytes(), [], SEGMENT_HEADER_BYTES
    while at + RECORD_HEADER_BYTES <= len(data):
        magic, _, kind, _, body_bytes, meta_bytes, sequence, id_ = _HEADER.unpack_from(data, at)
        if magic != b"SYBR":
            break
        own = sequence_of(id_.hex()) if any(id_) else 0
        found.append(Record(path, at, kind, sequence, own, meta_bytes, body_bytes))
        at = found[-1].end
    return found


def flip(path: Path, offset: int, bit: int = 0) -> None:
    """Turn one bit of a file where it stands, as a disk does: neither its length nor its name changes."""
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes((byte ^ 1 << bit,)))


def lost_rows(path: Path) -> set[int]:
    """The messages that a row of this undamaged segment ends because their content is lost."""
    data, lost = path.read_bytes(), set()
    for record in records(path):
        if record.kind == OUTCOMES:
            for message, _, reason in _ROW.iter_unpack(data[record.body_at : record.content_at]):
                lost |= {message} if reason == _CONTENT_LOST else set()
    return lost


# -- sidecars ----------------------------------------------------------------------------------------------------------


def sidecar_parts(path: Path) -> dict[str, tuple[int, int]]:
    """Where each part of a sidecar begins and ends: what it says of its arrays, and those."""
    data = path.read_bytes()
    arrays_at = _SIDECAR_HEAD_BYTES + 8
    arrays_at += _SIDECAR_ENTRY_BYTES * struct.unpack_from("<H", data, _SIDECAR_ARRAYS_AT)[0]
    return {"directory": (_SIDECAR_HEAD_BYTES, arrays_at), "arrays": (arrays_at, len(data))}


def turn_every_word(path: Path, start: int, end: int, bit: int) -> None:
    """One bit in every eight bytes of this part of a file."""
    data = bytearray(path.read_bytes())
    for at in range(start + bit // 8, end, 8):
        data[at] ^= 1 << bit % 8
    with path.open("r+b") as file:
        file.write(data)


def make_anothers(path: Path) -> None:
    """The sidecar is whole, with all its checksums, and another log's: it says other things under the same name."""
    turn_every_word(path, *sidecar_parts(path)["arrays"], 0)
    data = bytearray(path.read_bytes())
    data[_SIDECAR_UUID_AT] ^= 1
    data[_SIDECAR_REST_CRC_AT:_SIDECAR_HEAD_CRC_AT] = crc32c(data[_SIDECAR_HEAD_BYTES:]).to_bytes(4, "little")
    data[_SIDECAR_HEAD_CRC_AT:_SIDECAR_HEAD_BYTES] = crc32c(data[:_SIDECAR_HEAD_CRC_AT]).to_bytes(4, "little")
    with path.open("r+b") as file:
        file.write(data)
