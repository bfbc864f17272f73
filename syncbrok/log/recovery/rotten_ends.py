"""The ends of a sealed segment that has rotted there: what a start needs of them is read from other places.

The name of a segment and its neighbours repeat what its header says; its records and the name of the next segment
repeat what its seal says. So damage to header or seal alone costs nothing but a closer look. Records that rotted beside
them, or cannot be read with them, are lost; the code that reads records decides about those. A segment that is missing
is not handled here: the caller refuses it.
"""

from pathlib import Path

from syncbrok.log.format.codec import Corrupt, gather
from syncbrok.log.format.correction import corrected_whole
from syncbrok.log.segments import files, segment
from syncbrok.log.segments.damage import Examined, examine
from syncbrok.log.segments.descriptors import reading
from syncbrok.log.segments.segment import SEAL_BYTES, SEGMENT_HEADER_BYTES, SegmentHeader, SegmentInfo
from syncbrok.model.errors import LogCorrupt

_CRC_AT = SEGMENT_HEADER_BYTES - 4


def segment_header(path: Path, last: SegmentHeader) -> SegmentHeader:
    """The header of the sealed segment at ``path``, also where one byte of it has rotted. If nothing of it is left, or
    the disk cannot read it, it is made from the file's name and from ``last``, the header of the log's last segment;
    ``created_us`` is too late then. Raises ``LogCorrupt`` for a header that says something else, since the segment may
    belong to another log."""
    with reading(path) as file:
        data = files.read_around(file.fileno(), SEGMENT_HEADER_BYTES, 0)
    if len(data) == SEGMENT_HEADER_BYTES and not any(data):
        return last._replace(base=int(path.stem))
    try:
        return segment.checked_header(path, data)
    except LogCorrupt:
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
    """The entry in the segment list for the sealed segment at ``path``; ``following`` is the first sequence of the next
    one. None where it was never sealed or is shorter than it was. Raises ``LogCorrupt`` for a segment of another
    log."""
    seal, first = segment.read_seal(path), segment.read_first_header(path)
    if seal is not None and not isinstance(first, Corrupt):
        return segment.info_of_sealed(path, first, seal)
    data = segment.read_sealed(path)
    sequence = following - 1 if seal is None else seal[0].sequence
    found = examine(data, header.base, sequence, header.id_key)
    if seal is None and not _reaches_the_end(found, len(data), sequence):
        return None
    lost = sum(one.last - one.first + 1 for one in found.damages if one.fact is None)
    heads = gather(found.data, found.offsets[[0, -1]]) if len(found.offsets) else None
    # The snapshot and the segment's header are of one moment.
    first_us = header.created_us if heads is None else min(header.created_us, int(heads["time_us"][0]))
    last_us = first_us if heads is None else int(heads["time_us"][1])
    hit = found.damages[-1].header if seal is None else None
    return SegmentInfo(
        header.base,
        sequence,
        len(data),
        len(found.offsets) + lost,
        first_us,
        last_us if hit is None else hit.time_us,
        True,
        path,
    )


def _reaches_the_end(found: Examined, size: int, sequence: int) -> bool:
    """True if the rotten bytes cover the place of the seal (``sequence``) and the file ends with them. A file that was
    cut short ends in a record or behind one instead."""
    if not found.damages:
        return False
    last = found.damages[-1]
    return (last.last, last.end) == (sequence, size) and last.offset <= size - SEAL_BYTES
