"""The sealed segments of a directory as copies are compared: what its files say of themselves, whether or not a broker
has the log open. Sealed segments are the same bytes on every node of a cluster, so the checksum that a seal holds tells
whether two of them are one.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from syncbrok.log.format.codec import walk_verified
from syncbrok.log.format.layout import ERASED, EXTRAS, Header, read_header
from syncbrok.log.segments import files, segment, watermark
from syncbrok.log.segments.descriptors import reading
from syncbrok.log.segments.segment import SEAL_BYTES, SEGMENT_HEADER_BYTES, SegmentHeader, segment_path
from syncbrok.model import limits
from syncbrok.model.errors import LogCorrupt, LogDiverged

_CHUNK_BYTES = limits.MIB


class SealedSegment(NamedTuple):
    """``first`` and ``last`` are sequences, the seal's is ``last``. ``checksum``: CRC-32C of all records before the
    seal, as the seal says, in eight hexadecimal digits."""

    first: int
    last: int
    bytes: int
    checksum: str

    @property
    def name(self) -> str:
        return segment_path(Path(), self.first).name


def sealed_segments(directory: Path) -> list[SealedSegment]:
    """The segments of the log in ``directory`` that end with their seal, oldest first; what retention has dropped is
    not among them. Only their ends are read. Raises ``OSError``."""
    return [found for base in bases(directory) if (found := sealed_segment(segment_path(directory, base)))]


def bases(directory: Path) -> list[int]:
    """The first sequences of the segments that are part of the log, lowest first."""
    oldest = 0
    with suppress(LogCorrupt):
        mark = watermark.read(directory)
        oldest = mark.oldest if mark else 0
    return [base for base in segment.segment_bases(directory) if base >= oldest]


def sealed_segment(path: Path) -> SealedSegment | None:
    """The segment as its seal tells of it; None where the file does not end with one, or is gone."""
    try:
        seal = segment.read_seal(path)
        size = path.stat().st_size
    except FileNotFoundError:
        return None
    if seal is None:
        return None
    return SealedSegment(int(path.name.partition(".")[0]), seal[0].sequence, size, f"{seal[1].crc:08x}")


def check_copy(path: Path, wanted: SealedSegment, of: SegmentHeader | None = None) -> SegmentHeader:
    """Look at every byte of a file that is to be ``wanted``: its length, its header, its seal, and the checksum that
    the seal has. ``of``: a header of the log that it must be part of. The header that it has. Raises ``LogDiverged``
    that says what does not fit, and ``OSError``."""
    with reading(path) as file:
        size = os.fstat(file.fileno()).st_size
        header = segment.unpack_segment_header(file.read(SEGMENT_HEADER_BYTES))
    if not isinstance(header, SegmentHeader):
        raise LogDiverged(f"{wanted.name}: {header.why}")
    if header.base != wanted.first or (of and (of.uuid, of.id_key) != (header.uuid, header.id_key)):
        raise LogDiverged(f"{wanted.name} is a segment of another log, or of another place in it")
    seal = segment.read_seal(path)
    found = seal and SealedSegment(header.base, seal[0].sequence, size, f"{seal[1].crc:08x}")
    if found != wanted:
        raise LogDiverged(f"{wanted.name} ends otherwise than was said: {found or 'without a seal'}")
    crc = 0
    for chunk in _records(path, size - SEAL_BYTES):
        crc = crc32c(chunk, crc)
    if f"{crc:08x}" != wanted.checksum:
        raise LogDiverged(f"the records of {wanted.name} do not have the checksum that its seal says")
    return header


def begins_with(whole: Path, part: Path, end: int) -> bool:
    """Whether ``whole``, a sealed segment, begins with the records of ``part``, the same one before it was sealed,
    which end at the offset ``end`` of it; or with what is left of them where some were erased. Raises ``OSError``."""
    if end > whole.stat().st_size:
        return False
    if all(mine == its for mine, its in zip(_records(part, end), _records(whole, end), strict=True)):
        return True
    return _erased_alike(segment.read_segment(whole, 0, end), segment.read_segment(part, 0, end))


def _erased_alike(whole: bytes, part: bytes) -> bool:
    """Whether the records of ``whole`` are those of ``part``, but for what was erased in either of them."""
    offsets, stopped = walk_verified(whole, SEGMENT_HEADER_BYTES, len(whole))
    if stopped != len(whole):
        return False
    for begin, end in pairwise([*offsets.tolist(), stopped]):
        if whole[begin:end] != part[begin:end]:
            mine, its = read_header(whole[begin:end]), read_header(part[begin:end])
            if not (isinstance(mine, Header) and isinstance(its, Header) and _kept(mine) == _kept(its)):
                return False
            if not (mine.flags | its.flags) & ERASED:
                return False
    return True


def _kept(header: Header) -> Header:
    """The header without what erasing changes."""
    flags = header.flags & ~(EXTRAS | ERASED)
    return header._replace(version=0, flags=flags, meta_bytes=0, body_crc=0, header_crc=0)


def _records(path: Path, end: int) -> Iterator[bytes]:
    """The bytes from behind the segment's header up to ``end``, piece by piece."""
    with reading(path) as file:
        for at in range(SEGMENT_HEADER_BYTES, end, _CHUNK_BYTES):
            yield files.read_at(file.fileno(), min(_CHUNK_BYTES, end - at), at)
