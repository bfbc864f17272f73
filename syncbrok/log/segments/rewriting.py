"""Replaces records of a sealed segment by others of the same length: the one way in which a sealed segment changes
(RULES 32).

Offsets, lengths and sequences stay, so whoever has looked them up finds what there is now. The new file is whole and
on the disk before it takes the name; a crash leaves the old one or the new one.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from crc32c import crc32c

from syncbrok.log.format.codec import Decoded, decode
from syncbrok.log.format.layout import CRC_STRUCT, HEAD_STRUCT, SEALED_STRUCT
from syncbrok.log.format.records import SegmentSealed
from syncbrok.log.segments import files
from syncbrok.log.segments.descriptors import open_file
from syncbrok.log.segments.segment import SEAL_BYTES, SEGMENT_HEADER_BYTES, read_segment
from syncbrok.model.errors import LogCorrupt


def changed(data: bytes, records: Mapping[int, bytes]) -> bytearray:
    """The bytes of the sealed segment ``data`` with these records, by offset, and a seal that fits them. Damage
    elsewhere stays damage: the new checksum differs from that of the bytes by what the old one did. Raises
    ``LogCorrupt`` where it does not end with a seal."""
    end = len(data) - SEAL_BYTES
    seal = decode(data, end) if end >= SEGMENT_HEADER_BYTES else None
    if not isinstance(seal, Decoded) or not isinstance(seal.fact, SegmentSealed):
        raise LogCorrupt("a segment that does not end with its seal is not rewritten")
    written = bytearray(data)
    for offset, record in records.items():
        written[offset : offset + len(record)] = record
    assert len(written) == len(data), "records keep their lengths"
    before, after = (crc32c(memoryview(one)[SEGMENT_HEADER_BYTES:end]) for one in (data, written))
    body = SEALED_STRUCT.pack(seal.fact.records, seal.fact.crc ^ before ^ after)
    head = HEAD_STRUCT.pack(*seal.header[:-2], crc32c(body))
    written[end:] = b"".join((head, CRC_STRUCT.pack(crc32c(head)), body))
    assert len(written) == len(data), "the seal keeps its length"
    return written


def replace_records(
    path: Path,
    make: Callable[[bytes], Mapping[int, bytes]],
    renaming: Callable[[], AbstractContextManager[bool]],
) -> bool:
    """Write the segment anew with the records that ``make`` gives for its bytes; whether there were any. ``renaming``
    is entered for the moment in which the new file takes the name, and says whether it may. Raises ``OSError``,
    ``LogFull``, ``LogFailed`` and ``LogCorrupt``; the old file stands then."""
    data = read_segment(path)
    records = make(data)
    if not records:
        return False
    written = bytes(changed(data, records))
    del data
    unfinished = path.with_name(f"{path.name}.tmp")
    with files.unfinished(unfinished):
        descriptor = open_file(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            files.write_at(descriptor, written, 0, unfinished)
            files.sync_new(descriptor, unfinished)
        except OSError as problem:
            raise files.write_problem(problem, path) from problem
        finally:
            os.close(descriptor)
        with renaming() as may:
            if not may:
                raise FileNotFoundError(f"{path} is no part of the log any more")
            with files.new_names(path.parent):
                unfinished.rename(path)
    return True
