"""The ends of a sealed segment that has rotted there: what a start must know of it, from what else says the same.

The segment's own header repeats what its name and its neighbours say, its seal what its records and the name of the
next one do. So damage there costs nothing but a closer look. What is missing altogether is another matter: the caller
refuses it.
"""

import os
from pathlib import Path

from syncbrok.log import files, segment
from syncbrok.log.codec import Corrupt, Header, Kind, read_header
from syncbrok.log.correction import corrected_whole
from syncbrok.log.damage import Examined, examine
from syncbrok.log.descriptors import reading
from syncbrok.log.layout import HEADER_BYTES
from syncbrok.log.segment import SEAL_BYTES, SEGMENT_HEADER_BYTES, SegmentHeader, SegmentInfo
from syncbrok.model.errors import LogCorrupt

_CRC_AT = SEGMENT_HEADER_BYTES - 4


def segment_header(path: Path) -> SegmentHeader:
    """The header of the segment at ``path``, also where one byte of it has rotted. Raises ``LogCorrupt``."""
    try:
        return segment.read_segment_header(path)
    except LogCorrupt:
        data = segment.read_segment(path, 0, SEGMENT_HEADER_BYTES)
        found = _corrected(data)
        if found is None or found.base != int(path.stem):
            raise
        return found


def _corrected(data: bytes) -> SegmentHeader | None:
    if len(data) < SEGMENT_HEADER_BYTES:
        return None
    head = corrected_whole(data[:_CRC_AT], int.from_bytes(data[_CRC_AT:], "little"))
    found = None if head is None else segment.unpack_segment_header(head + segment.header_crc(head))
    return found if isinstance(found, SegmentHeader) else None


def sealed_info(path: Path, header: SegmentHeader, following: int) -> SegmentInfo | None:
    """What others see of the sealed segment at ``path``; ``following`` is the first sequence of the next one. None
    where it was never sealed, or records at its end are missing. Raises ``LogCorrupt`` where it is another's."""
    seal = segment.read_seal(path)
    if seal is None:
        return _without_seal(path, header, following)
    with reading(path) as file:
        first = read_header(files.read_at(file.fileno(), HEADER_BYTES, SEGMENT_HEADER_BYTES))
        size = os.fstat(file.fileno()).st_size
    if isinstance(first, Corrupt):
        sealed, fact = seal
        # The snapshot and the segment's header are of one moment.
        times_us = header.created_us, sealed.time_us
        return SegmentInfo(header.base, sealed.sequence, size, fact.records + 1, *times_us, True, path)
    return segment.info_of_sealed(path, seal)


def _without_seal(path: Path, header: SegmentHeader, following: int) -> SegmentInfo | None:
    """Where all but the seal is accounted for, it is the seal that has rotted."""
    data = segment.read_sealed(path)
    found = examine(data, header.base, following - 1, header.id_key)
    if not _lacks_the_seal_alone(found, len(data), following - 1):
        return None
    last = found.damages[-1].header
    if last is None and len(found.offsets):
        before = read_header(found.data, int(found.offsets[-1]), verify=False)
        last = before if isinstance(before, Header) else None
    times_us = header.created_us, header.created_us if last is None else last.time_us
    return SegmentInfo(header.base, following - 1, len(data), len(found.offsets) + 1, *times_us, True, path)


def _lacks_the_seal_alone(found: Examined, size: int, sequence: int) -> bool:
    if not found.damages:
        return False
    last = found.damages[-1]
    its_place = (last.first, last.last, last.offset, last.end) == (sequence, sequence, size - SEAL_BYTES, size)
    return its_place and (last.header is None or last.header.kind == Kind.SEGMENT_SEALED)
