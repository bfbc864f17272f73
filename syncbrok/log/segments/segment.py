"""One append-only file of records: its header, reading it, writing it, sealing it. The bytes: see ``syncbrok.log``."""

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from syncbrok.log.format.codec import (
    Buffer,
    Corrupt,
    Decoded,
    Header,
    Incomplete,
    Kind,
    decode,
    encode,
    read_header,
    walk_verified,
)
from syncbrok.log.format.layout import HEADER_BYTES, LATER, SEALED_STRUCT
from syncbrok.log.format.records import SegmentOpened, SegmentSealed
from syncbrok.log.segments import files
from syncbrok.log.segments.descriptors import naming, open_file, reading
from syncbrok.model.errors import LogCorrupt, LogFailed, LogFull
from syncbrok.model.limits import MIB

SEGMENT_HEADER_BYTES = 128
SEAL_BYTES = HEADER_BYTES + SEALED_STRUCT.size
"""the last record of a sealed segment always has this length, so it is found from the end of the file"""
FORMAT_VERSION = 1
_MAGIC = b"SYNCBROK"
_CHECKSUM = b"crc32c\0\0"
_HEADER = struct.Struct("<8sHHI8s16s16sQq52x")
_CRC = struct.Struct("<I")
_BLOCK_BYTES = 4 * MIB
assert _HEADER.size + _CRC.size == SEGMENT_HEADER_BYTES


class SegmentHeader(NamedTuple):
    """The contents of a segment's header. ``uuid`` and ``id_key`` (16 bytes each) are the log's."""

    uuid: bytes
    id_key: bytes
    base: int
    created_us: int


class SegmentInfo(NamedTuple):
    """A segment as others see it. ``last`` is the sequence of its last record (``base`` - 1: none yet), ``bytes``
    where the last record ends, ``records`` counts all of them, the seal too."""

    base: int
    last: int
    bytes: int
    records: int
    first_time_us: int
    last_time_us: int
    sealed: bool
    path: Path

    @property
    def first(self) -> int:
        """See ``model.journal.Section``."""
        return self.base

    @property
    def name(self) -> str:
        """See ``model.journal.Section``."""
        return self.path.name


def segment_path(directory: Path, base: int) -> Path:
    return directory / f"{base:020d}.log"


def segment_bases(directory: Path) -> list[int]:
    """The bases of the segments in a directory by their names, lowest first."""
    return sorted(int(path.stem) for path in directory.glob("*.log") if len(path.stem) == 20 and path.stem.isdecimal())


def pack_segment_header(header: SegmentHeader) -> bytes:
    data = _HEADER.pack(
        _MAGIC,
        FORMAT_VERSION,
        SEGMENT_HEADER_BYTES,
        0,
        _CHECKSUM,
        header.uuid,
        header.id_key,
        header.base,
        header.created_us,
    )
    return data + header_crc(data)


def header_crc(data: bytes) -> bytes:
    """The checksum that ends a segment's header, of the bytes before it."""
    return _CRC.pack(crc32c(data))


def unpack_segment_header(data: Buffer) -> SegmentHeader | Corrupt:
    """The header of a segment from the first bytes of its file."""
    data = bytes(data[:SEGMENT_HEADER_BYTES])
    if len(data) < SEGMENT_HEADER_BYTES:
        return Corrupt(0, "the file ends in its own header")
    magic, version, length, _, checksum, uuid, id_key, base, created_us = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        return Corrupt(0, "not a segment of a log")
    if crc32c(data[: _HEADER.size]) != _CRC.unpack_from(data, _HEADER.size)[0]:
        return Corrupt(0, "the checksum of the segment's header does not fit")
    if (version, length, checksum) != (FORMAT_VERSION, SEGMENT_HEADER_BYTES, _CHECKSUM):
        return Corrupt(0, f"a log of format {version}, this program reads format {FORMAT_VERSION}; {LATER}")
    return SegmentHeader(uuid, id_key, base, created_us)


def corrupt_error(path: Path, offset: int, first: int, last: int | None, why: str) -> LogCorrupt:
    """The error that names file, offset and sequences; ``last`` None: all from ``first`` on."""
    sequences = f"from sequence {first} on" if last is None else f"sequences {first} to {last}"
    damaged = "The log is damaged and is left as it is: restore it, or keep what can be read with: syncbrok log salvage"
    return LogCorrupt(
        f"{path}, offset {offset}, {sequences}: {why}. {'The log is left as it is.' if LATER in why else damaged}",
        file=path.name,
        offset=offset,
        first=first,
        last=last,
    )


# -- reading ----------------------------------------------------------------------------------------------------------


def read_segment_header(path: Path) -> SegmentHeader:
    """The header of the segment at ``path``. Raises ``LogCorrupt``, and ``OSError`` where it cannot be read."""
    return checked_header(path, read_segment(path, 0, SEGMENT_HEADER_BYTES))


def checked_header(path: Path, data: Buffer) -> SegmentHeader:
    """The header that ``data``, the first bytes of the segment at ``path``, holds. Raises ``LogCorrupt``."""
    header = unpack_segment_header(data)
    base = int(path.stem)
    if isinstance(header, Corrupt):
        raise corrupt_error(path, 0, base, None, header.why)
    if header.base != base:
        raise corrupt_error(path, 0, base, None, f"the segment is that of sequence {header.base} by its header")
    return header


def read_seal(path: Path) -> tuple[Header, SegmentSealed] | None:
    """The footer of a sealed segment; None where the file does not end with one."""
    with reading(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size < SEGMENT_HEADER_BYTES + SEAL_BYTES:
            return None
        last = decode(files.read_around(file.fileno(), SEAL_BYTES, size - SEAL_BYTES))
    if isinstance(last, Decoded) and isinstance(last.fact, SegmentSealed) and last.end == SEAL_BYTES:
        return last.header, last.fact
    return None


def read_first_record(path: Path) -> Decoded | Incomplete | Corrupt:
    """The record that a segment begins with, verified, and no more of the file; what cannot be read is damage."""
    with reading(path) as file:
        data = files.read_around(file.fileno(), HEADER_BYTES, SEGMENT_HEADER_BYTES)
        header = read_header(data)
        if not isinstance(header, Header):
            return header
        return decode(files.read_around(file.fileno(), header.record_bytes, SEGMENT_HEADER_BYTES))


def read_segment(path: Path, start: int = 0, end: int | None = None) -> bytes:
    """The bytes of a segment from ``start`` to ``end`` (None: to the end of the file)."""
    with reading(path) as file:
        length = (os.fstat(file.fileno()).st_size if end is None else end) - start
        return files.read_at(file.fileno(), length, start)


def read_sealed(path: Path) -> bytes:
    """All bytes of a segment that is not being written; what the disk cannot read is damage as any other
    (``files.read_around``)."""
    with reading(path) as file:
        return files.read_around(file.fileno(), os.fstat(file.fileno()).st_size, 0)


class FilePlace(NamedTuple):
    """Something found in a file: ``what`` begins at ``offset`` of the file."""

    offset: int
    what: Decoded | Incomplete | Corrupt


def read_records(
    path: Path, start: int = SEGMENT_HEADER_BYTES, end: int | None = None, *, content: bool = True
) -> Iterator[FilePlace]:
    """Yield the records from ``start`` (where one begins) to ``end`` (None: the end of the file), verified and in
    order, in blocks of 4 MiB. If the bytes do not end with a record, the last place says what stands there instead.

    ``Decoded.end`` counts from the beginning of a block, not of the file: use ``header.record_bytes``.
    """
    with reading(path) as file:
        descriptor = file.fileno()
        size = os.fstat(descriptor).st_size if end is None else end
        at, block_bytes = start, _BLOCK_BYTES
        while at < size:
            block = files.read_at(descriptor, min(block_bytes, size - at), at)
            inside = 0
            found: Decoded | Incomplete | Corrupt = Incomplete(0, 1)
            while inside < len(block):
                found = decode(block, inside, content=content)
                if not isinstance(found, Decoded):
                    break
                yield FilePlace(at + inside, found)
                inside = found.end
            at += inside
            if isinstance(found, Decoded):
                block_bytes = _BLOCK_BYTES
                continue
            if isinstance(found, Corrupt) or at + found.needed > size:
                yield FilePlace(at, found._replace(offset=at))
                return
            block_bytes = max(_BLOCK_BYTES, found.needed)


def scrub_bytes(data: Buffer) -> Corrupt | None:
    """Compare all bytes of a sealed segment with its seal; None where all is well. 64 MiB take about 30 ms."""
    header = unpack_segment_header(data)
    if isinstance(header, Corrupt):
        return header
    end = len(data) - SEAL_BYTES
    seal = decode(data, end) if end >= SEGMENT_HEADER_BYTES else None
    if not isinstance(seal, Decoded) or not isinstance(seal.fact, SegmentSealed):
        return Corrupt(max(end, 0), "the segment does not end with its seal")
    if crc32c(memoryview(data)[SEGMENT_HEADER_BYTES:end]) == seal.fact.crc:
        return None
    _, bad = walk_verified(bytes(data), SEGMENT_HEADER_BYTES, end)
    if bad < end:
        return Corrupt(bad, "a record is damaged: a checksum does not fit")
    return Corrupt(SEGMENT_HEADER_BYTES, "the checksum of all records does not fit the seal, though each record's does")


def read_first_header(path: Path) -> Header | Incomplete | Corrupt:
    """The header of the first record of a segment: that of its snapshot, unless it is damaged."""
    with reading(path) as file:
        return read_header(files.read_around(file.fileno(), HEADER_BYTES, SEGMENT_HEADER_BYTES))


def info_of_sealed(path: Path, first: Header | Incomplete | Corrupt, seal: tuple[Header, SegmentSealed]) -> SegmentInfo:
    """The entry in the segment list for a sealed segment, from the header of its first record and from its last
    record."""
    header, fact = seal
    base, size = int(path.stem), path.stat().st_size
    if not isinstance(first, Header) or first.kind != Kind.SEGMENT_OPENED or first.sequence != base:
        raise corrupt_error(path, SEGMENT_HEADER_BYTES, base, base, "the segment does not begin with its snapshot")
    return SegmentInfo(base, header.sequence, size, fact.records + 1, first.time_us, header.time_us, True, path)


# -- writing ----------------------------------------------------------------------------------------------------------


def _flags(every_write_synced: bool) -> int:
    return os.O_RDWR | (os.O_DSYNC if every_write_synced else 0)


class ActiveSegment:
    """The segment that is written to, by one thread. ``end`` is where the next record goes; ``records`` and ``crc``
    are what its seal will say."""

    def __init__(
        self, path: Path, info: SegmentInfo, crc: int, *, every_write_synced: bool, descriptor: int | None = None
    ) -> None:
        """``descriptor``: of ``path``, where it is open already."""
        self.path = path
        self.base = info.base
        self.end = info.bytes
        self.records = info.records
        self.first_time_us = info.first_time_us
        self.last_time_us = info.last_time_us
        self.crc = crc
        self._uncut = False
        self._descriptor = open_file(path, _flags(every_write_synced)) if descriptor is None else descriptor
        self.snapshot_end = SEGMENT_HEADER_BYTES + self._first_record_bytes()

    @classmethod
    def create(
        cls, blank: Path, header: SegmentHeader, first: bytes, opened: SegmentOpened, *, every_write_synced: bool
    ) -> "ActiveSegment":
        """Turn ``blank``, a file of zeros beside the others, into the segment with ``first``, the record of ``opened``.
        After a crash the segment is there with its first record, or it is not there. Raises ``LogFull`` or
        ``LogFailed``."""
        path = segment_path(blank.parent, header.base)
        with files.new_names(path.parent):
            try:
                # Opened once and for good: it must not lack a descriptor when it has its name.
                descriptor = open_file(blank, _flags(every_write_synced))
                try:
                    files.write_at(descriptor, pack_segment_header(header) + first, 0, blank)
                    files.sync_new(descriptor, blank)
                    blank.rename(path)
                except BaseException:
                    os.close(descriptor)
                    raise
            except OSError as problem:
                raise files.write_problem(problem, path) from problem
        end = SEGMENT_HEADER_BYTES + len(first)
        info = SegmentInfo(header.base, header.base, end, 1, opened.time_us, opened.time_us, False, path)
        return cls(path, info, crc32c(first), every_write_synced=every_write_synced, descriptor=descriptor)

    def _first_record_bytes(self) -> int:
        with naming(self.path):
            first = read_header(files.read_at(self._descriptor, HEADER_BYTES, SEGMENT_HEADER_BYTES))
        assert isinstance(first, Header), f"{self.path} was looked at before it was opened"
        return first.record_bytes

    def append(self, data: bytes, records: int, time_us: int) -> None:
        """Append ``data`` with one system call. It is durable on return if every write is synced. After ``LogFull``
        nothing of ``data`` is in the file; if cutting it off needed room too, that is done before the next write. After
        ``LogFailed`` the state of the file is unknown."""
        if self._uncut:
            self.cut_back()
        try:
            files.write_at(self._descriptor, data, self.end, self.path)
        except LogFull:
            self.cut_back()
            raise
        self.end += len(data)
        self.records += records
        self.crc = crc32c(data, self.crc)
        self.last_time_us = time_us

    def claim(self, length: int) -> None:
        """Take room on the disk for so many more bytes, whatever fills it until they are appended. Raises ``LogFull``
        and ``LogFailed``."""
        if self._uncut:
            self.cut_back()
        try:
            enough = os.fstat(self._descriptor).st_size >= self.end + length
            if not enough and not files.give_room(self._descriptor, self.end + length):
                raise LogFull(f"no room on the disk for {length} bytes more of {self.path.name}")
        except OSError as problem:
            raise files.write_problem(problem, self.path) from problem

    def cut_back(self) -> None:
        """Cut off the bytes behind ``end``, durably: refused records must not come back after a crash."""
        self._uncut = True
        self._truncate(self.end)
        self._sync_length()
        self._uncut = False

    def _truncate(self, length: int) -> None:
        try:
            os.ftruncate(self._descriptor, length)
        except OSError as problem:
            raise files.write_problem(problem, self.path) from problem

    def _sync_length(self) -> None:
        try:
            os.fsync(self._descriptor)
        except OSError as problem:
            raise LogFailed(f"cutting {self.path} back to {self.end} failed: {problem.strerror}") from problem

    def sync(self) -> None:
        files.sync(self._descriptor, self.path)

    def seal(self, sequence: int, time_us: int, batch: int, synced_through: int) -> SegmentInfo:
        """Give back the room that was not used, write the seal. Raises ``LogFull`` (nothing has changed) or
        ``LogFailed``."""
        # First the room: where a file system wants some to give some back, no seal stands in the middle of a file yet.
        self._truncate(self.end + SEAL_BYTES)
        fact = SegmentSealed(sequence, time_us, self.records, self.crc)
        self.append(encode(fact, batch=batch, synced_through=synced_through), 1, time_us)
        self._sync_length()  # the seal is durable too
        self.close()
        return self.info(sequence)._replace(sealed=True)

    def info(self, last: int) -> SegmentInfo:
        return SegmentInfo(
            self.base, last, self.end, self.records, self.first_time_us, self.last_time_us, False, self.path
        )

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
