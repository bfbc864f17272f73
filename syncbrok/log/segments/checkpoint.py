"""State to start from, so that a start need not read the whole log: named blobs, applied through one sequence.

A checkpoint is an assertion about a log, so it names the log (uuid) and the record it ends with (its header's CRC,
which covers the body's). Where either differs, or a byte of it is wrong, it is not there: the log alone decides. Two
generations are kept, since the newer one may name records of a torn tail. Little-endian::

     0   8  "SYBRCKPT"
     8   2  version, 1
    10   2  number of parts
    12   4  CRC of the record ``through`` (``header_crc``)
    16  16  uuid of the log
    32   8  through: sequence of the last record that is applied in it
    40   8  size of this file
    48   4  zero
    52   4  CRC-32C of the table of parts
    56   4  CRC-32C of the parts
    60   4  CRC-32C of bytes 0 to 59
    64  40 for each part: name (32 bytes, ASCII and zeros), length (8)
     .   .  the parts, one after the other
"""

import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple

from crc32c import crc32c

from syncbrok.log.segments import files
from syncbrok.log.segments.descriptors import naming, reading

_MAGIC = b"SYBRCKPT"
_VERSION = 1
_HEAD = struct.Struct("<8sHHI16sQQIII")
_CRC = struct.Struct("<I")
_ENTRY = struct.Struct("<32sQ")
_HEAD_BYTES = _HEAD.size + _CRC.size
assert _HEAD_BYTES == 64

NAME = "checkpoint"
NAME_BEFORE = "checkpoint.before"


class CheckpointHead(NamedTuple):
    """The first bytes of a checkpoint; see the module."""

    uuid: bytes
    through: int
    record_crc: int
    parts: int
    size: int
    table_crc: int
    crc: int


def save(directory: Path, uuid: bytes, through: int, record_crc: int, parts: Mapping[str, bytes]) -> None:
    """Replace the checkpoint; the one before it is kept. Whenever this is cut short, at least one whole checkpoint
    remains where there was one. Raises ``OSError`` (then the ones before stand) or ``LogFailed``."""
    entries = b"".join(_ENTRY.pack(name.encode("ascii"), len(part)) for name, part in parts.items())
    assert all(len(name) <= 32 for name in parts), "names of parts have at most 32 characters"
    crc = 0
    size = _HEAD_BYTES + len(entries)
    for part in parts.values():
        crc = crc32c(part, crc)
        size += len(part)
    head = _HEAD.pack(_MAGIC, _VERSION, len(parts), record_crc, uuid, through, size, 0, crc32c(entries), crc)
    unfinished = directory / f"{NAME}.tmp"
    with files.unfinished(unfinished), naming(unfinished), unfinished.open("wb", buffering=0) as file:
        for piece in (head + _CRC.pack(crc32c(head)), entries, *parts.values()):
            _write(file, piece)
        os.fsync(file.fileno())
    newest = directory / NAME
    if newest.exists():
        newest.replace(directory / NAME_BEFORE)
    unfinished.replace(newest)
    files.sync_directory(directory)


def load(
    directory: Path, uuid: bytes, crc_of_record: Callable[[int], int | None]
) -> tuple[int, dict[str, bytes]] | None:
    """(through, parts) of the newest checkpoint that fits the log; None where none does. ``crc_of_record`` gives the
    CRC of the record of a sequence, None where the log has no such record."""
    for name in (NAME, NAME_BEFORE):
        found = _read(directory / name, uuid, crc_of_record)
        if found is not None:
            return found
    return None


def read_head(path: Path) -> CheckpointHead | None:
    """The head of a checkpoint file; None where there is none of this version, or the head is damaged. The parts are
    not checked."""
    try:
        with reading(path) as file:
            return _unpack_head(file.read(_HEAD_BYTES))
    except OSError:
        return None


def _unpack_head(data: bytes) -> CheckpointHead | None:
    if len(data) < _HEAD_BYTES or crc32c(data[: _HEAD.size]) != _CRC.unpack_from(data, _HEAD.size)[0]:
        return None
    magic, version, count, record_crc, uuid, through, size, _, table_crc, crc = _HEAD.unpack_from(data)
    return (
        CheckpointHead(uuid, through, record_crc, count, size, table_crc, crc)
        if (magic, version) == (_MAGIC, _VERSION)
        else None
    )


def _read(path: Path, uuid: bytes, crc_of_record: Callable[[int], int | None]) -> tuple[int, dict[str, bytes]] | None:
    try:
        with reading(path) as file:
            head = _unpack_head(file.read(_HEAD_BYTES))
            if head is None or head.uuid != uuid or head.size != os.fstat(file.fileno()).st_size:
                return None
            if crc_of_record(head.through) != head.record_crc:
                return None
            table = file.read(head.parts * _ENTRY.size)
            if crc32c(table) != head.table_crc:
                return None
            parts = _read_parts(file, table, head.crc)
            return None if parts is None else (head.through, parts)
    except OSError:
        # An unreadable checkpoint is no reason not to start: the log says the same, slower.
        return None


def _read_parts(file: BinaryIO, table: bytes, crc: int) -> dict[str, bytes] | None:
    found = 0
    parts: dict[str, bytes] = {}
    for name, length in _ENTRY.iter_unpack(table):
        part = file.read(length)
        found = crc32c(part, found)
        parts[name.rstrip(b"\0").decode("ascii", "replace")] = part
    return parts if found == crc else None


def _write(file: BinaryIO, piece: bytes) -> None:
    # Unbuffered files may write less than asked (2 GiB at most in one call).
    view = memoryview(piece)
    while view:
        view = view[file.write(view) :]
