"""The sidecar ``{base}.idx`` of a sealed segment: its index as raw arrays, so that opening it costs one look.

It only repeats what the segment says. It is valid for exactly one segment (log uuid, base, size and checksum as
sealed); anything else about it that is odd makes ``read`` answer None, and it is built again. The last segment gets one
too when the log is closed in good order, with the size and checksum of its records then. Little-endian::

     0   4  magic, "SYIX"
     4   2  version, 3
     6   2  number of arrays
     8  16  uuid of the log
    24   8  base: the segment's first sequence
    32   8  last sequence
    40   8  number of records
    48   8  end: offset at which the last record ends
    56   8  time of the first record, Unix microseconds
    64   8  time of the last record
    72   8  size of the segment's file in bytes
    80   4  CRC-32C of the segment as sealed
    84   2  records per entry of ``sparse``, 256
    86   2  records per entry of ``checksums``; 5,120 as written here
    88   4  CRC-32C of all bytes from 96 on
    92   4  CRC-32C of bytes 0 to 91
    96  40 for each array: name (24 bytes, ASCII and zeros), type (4, as numpy writes it: "<u4" or "<u8" and zeros),
           number of entries (4), where it begins in this file (8)
     .   8  CRC-32C of the descriptions of the arrays, and four zeros: a reader that only asks whether a table is empty
            need not read the rest (``rows``)
     .   .  the arrays, each followed by zeros up to a multiple of 8

Arrays: ``sparse`` (u4, the offset in the segment of each 256th record, the first included: ``codec.lockstep`` makes
all offsets of it); for those who read all of the segment ``offsets`` (u4, that of each record), ``times`` (u8, that of
each record) and ``checksums`` (u4, the CRC-32C of all records before each 5,120th, beginning with that of none, 0: a
part can be verified alone, by going on from the checksum before it to the one after it, or to the seal's);
``jumps.after`` and ``jumps.missing`` (u8: sequences that do not follow their predecessor, and how many are missing up
to there; empty but in salvaged logs); and the columns of ``columns.TABLES`` as ``table.column``.
"""

import mmap
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from crc32c import crc32c

from syncbrok.log.format.codec import Buffer
from syncbrok.log.index.columns import TABLES, Array, Columns
from syncbrok.log.index.record_positions import RecordPositions
from syncbrok.log.index.segment_index import SegmentIndex
from syncbrok.log.segments import files
from syncbrok.log.segments.descriptors import reading
from syncbrok.model import limits

_MAGIC = b"SYIX"
_VERSION = 3
_HEAD = struct.Struct("<4sHH16sQQQQqqQIHHI")
_CRC = struct.Struct("<I")
_ENTRY = struct.Struct("<24s4sIQ")
_ENTRIES_CRC = struct.Struct("<I4x")
_BEGINNING_BYTES = 4_096
_TYPES: dict[str, np.dtype[Any]] = {"<u4": np.dtype("<u4"), "<u8": np.dtype("<u8")}
assert _HEAD.size + _CRC.size == 96
assert _ENTRY.size == 40


class Sealed(NamedTuple):
    """The segment as sealed; a sidecar is valid only for exactly this one."""

    uuid: bytes
    base: int
    file_bytes: int
    crc: int


def encode(index: SegmentIndex, sealed: Sealed) -> bytes:
    """The bytes of the sidecar of the segment that ``sealed`` names."""
    arrays = _arrays(index)
    entries: list[bytes] = []
    pieces: list[bytes] = []
    at = _HEAD.size + _CRC.size + len(arrays) * _ENTRY.size + _ENTRIES_CRC.size
    for name, array in arrays.items():
        data = array.tobytes()
        data += bytes(-len(data) % 8)
        entries.append(_ENTRY.pack(name.encode("ascii"), array.dtype.str.encode("ascii"), len(array), at))
        pieces.append(data)
        at += len(data)
    directory = b"".join(entries)
    rest = b"".join((directory, _ENTRIES_CRC.pack(crc32c(directory)), *pieces))
    head = _HEAD.pack(
        _MAGIC,
        _VERSION,
        len(arrays),
        sealed.uuid,
        sealed.base,
        index.last,
        index.records,
        index.end,
        *index.times_us,
        sealed.file_bytes,
        sealed.crc,
        limits.offsets_every,
        index.positions.every,
        crc32c(rest),
    )
    return b"".join((head, _CRC.pack(crc32c(head)), rest))


def _arrays(index: SegmentIndex) -> dict[str, Array]:
    tables = index.compact()
    jumps = np.array(index.jumps, dtype="<u8").reshape(-1, 2)
    arrays: dict[str, Array] = {
        "sparse": index.sparse,
        "offsets": index.positions.offsets,
        "times": index.positions.times_us,
        "checksums": index.positions.checksums,
        "jumps.after": jumps[:, 0],
        "jumps.missing": jumps[:, 1],
    }
    for table, names in TABLES.items():
        for (name, dtype), column in zip(names, tables.table(table), strict=True):
            arrays[f"{table}.{name}"] = column.astype(dtype, copy=False)
    return arrays


def decode(buffer: Buffer, sealed: Sealed) -> SegmentIndex | None:
    """The index in ``buffer``, which it goes on using; None where it is not the one of ``sealed``, whole and right."""
    size = _HEAD.size
    if not _is_head_whole(buffer):
        return None
    rest_crc = _HEAD.unpack_from(buffer)[-1]
    if crc32c(memoryview(buffer)[size + _CRC.size :]) != rest_crc:
        return None
    return _decode_whole(buffer, sealed)


def read_head(path: Path) -> tuple[bytes, int] | None:
    """The log (uuid) of the segment that the sidecar at ``path`` was written for, and its last sequence; None where it
    cannot be read. The rest of it may be damaged."""
    try:
        with reading(path) as file:
            data = file.read(_HEAD.size + _CRC.size)
    except OSError:
        return None
    if not _is_head_whole(data):
        return None
    magic, version, _, uuid, _, last, *_ = _HEAD.unpack_from(data)
    return (uuid, last) if (magic, version) == (_MAGIC, _VERSION) else None


def _is_head_whole(buffer: Buffer) -> bool:
    size = _HEAD.size
    return len(buffer) >= size + _CRC.size and crc32c(buffer[:size]) == _CRC.unpack_from(buffer, size)[0]


def _decode_whole(buffer: Buffer, sealed: Sealed) -> SegmentIndex | None:
    magic, version, count, uuid, base, last, records, end, first_us, last_us, file_bytes, crc, every, sums_every, _ = (
        _HEAD.unpack_from(buffer)
    )
    described = (magic, version, every, Sealed(uuid, base, file_bytes, crc))
    if described != (_MAGIC, _VERSION, limits.offsets_every, sealed):
        return None
    arrays = _read_arrays(buffer, count)
    tables = [tuple(arrays[f"{table}.{name}"] for name, _ in names) for table, names in TABLES.items()]
    jumps = tuple(zip(arrays["jumps.after"].tolist(), arrays["jumps.missing"].tolist(), strict=True))
    return SegmentIndex.restore(
        base,
        Columns(records, *tables),
        RecordPositions(arrays["offsets"], arrays["times"], arrays["checksums"], sums_every, crc),
        arrays["sparse"],
        jumps,
        last=last,
        end=end,
        first_time_us=first_us,
        last_time_us=last_us,
    )


def _read_arrays(buffer: Buffer, count: int) -> dict[str, Any]:
    arrays = {}
    for number in range(count):
        name, dtype, length, at = _ENTRY.unpack_from(buffer, _HEAD.size + _CRC.size + number * _ENTRY.size)
        kind = _TYPES[dtype.rstrip(b"\0").decode("ascii")]
        arrays[name.rstrip(b"\0").decode("ascii")] = np.frombuffer(buffer, kind, length, at)
    return arrays


def rows_in(buffer: bytes, sealed: Sealed, table: str) -> int | None:
    """See ``rows``; ``buffer`` begins as the file does."""
    if not _is_head_whole(buffer):
        return None
    magic, version, count, uuid, base, *_, file_bytes, crc, _, _, _ = _HEAD.unpack_from(buffer)
    start = _HEAD.size + _CRC.size
    end = start + count * _ENTRY.size
    if (magic, version, Sealed(uuid, base, file_bytes, crc)) != (_MAGIC, _VERSION, sealed) or (
        len(buffer) < end + _ENTRIES_CRC.size or crc32c(buffer[start:end]) != _ENTRIES_CRC.unpack_from(buffer, end)[0]
    ):
        return None
    column = f"{table}.{TABLES[table][0][0]}".encode("ascii")
    found = {name.rstrip(b"\0"): int(length) for name, _, length, _ in _ENTRY.iter_unpack(buffer[start:end])}
    return found[column]


# -- the file ---------------------------------------------------------------------------------------------------------


def path_of(directory: Path, base: int) -> Path:
    return directory / f"{base:020d}.idx"


def write(directory: Path, index: SegmentIndex, sealed: Sealed) -> None:
    """Write the sidecar beside its segment; ``index`` goes on with the file's pages, which need not stay in memory.
    Not fsynced: a crash that spoils it costs only building it again. Raises ``OSError``: the log is whole without."""
    path = path_of(directory, sealed.base)
    unfinished = path.with_suffix(".idx.tmp")
    with files.unfinished(unfinished):
        unfinished.write_bytes(encode(index, sealed))
        unfinished.replace(path)
    written = read(directory, sealed)
    if written is not None:
        index.become(written)


def read(directory: Path, sealed: Sealed) -> SegmentIndex | None:
    """The index beside the segment; None where there is none to be trusted. Its pages are the file's: they come into
    memory when they are asked about, and the system can take them back."""
    try:
        with reading(path_of(directory, sealed.base)) as file:
            # Verified in a copy that is let go: verifying in the mapped pages would bring in all of them to stay.
            data = file.read()
            if decode(data, sealed) is None:
                return None
            try:
                whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            except OSError:  # it takes a descriptor of its own, and there may be none: then the copy does
                whole = memoryview(data)
    except (OSError, ValueError):
        return None
    return _decode_whole(whole, sealed)


def rows(directory: Path, sealed: Sealed, table: str) -> int | None:
    """The number of rows in a table of ``columns.TABLES``, read from the first KiB of the sidecar. None where there is
    no sidecar to trust, or its beginning is damaged."""
    try:
        with reading(path_of(directory, sealed.base)) as file:
            return rows_in(file.read(_BEGINNING_BYTES), sealed, table)
    except OSError:
        return None
