"""Reads neighbouring records with one call, and decodes them. From any thread.

A call costs as much as copying tens of kilobytes, and more where several threads share the interpreter: it is let go of
and waited for each time. So records that stand close to each other are read together, with what is between them.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from syncbrok.log.format.codec import Decoded, Header, decode, read_header
from syncbrok.log.format.layout import HEADER_BYTES
from syncbrok.log.format.message_decoder import read_messages
from syncbrok.log.format.records import Record
from syncbrok.log.index.segment_index import Extent
from syncbrok.log.index.segment_list import Part
from syncbrok.log.segments import files
from syncbrok.log.segments.segment import corrupt_error
from syncbrok.model.facts import StoredMessage
from syncbrok.model.limits import KIB, MIB

READ_BYTES_MAX: Final = 4 * MIB
"""read with one call, but for a record that is larger"""
GAP_BYTES_MAX: Final = 32 * KIB
"""of records that nobody asked for, read with those around them"""


def together(extents: Iterable[Extent]) -> Iterator[list[Extent]]:
    """Extents, in the order of the file, in groups that are read with one call each."""
    group: list[Extent] = []
    for extent in extents:
        far = group and extent.start - group[-1].end > GAP_BYTES_MAX
        if far or (group and extent.end - group[0].start > READ_BYTES_MAX):
            yield group
            group = []
        group.append(extent)
    if group:
        yield group


def read_group(descriptor: int, part: Part, group: list[Extent], facts: list[Record]) -> None:
    """Append the records of the group, each verified, to ``facts``. Raises ``LogCorrupt``, which names the first that
    cannot be read."""
    shift = group[0].start
    data = files.read_around(descriptor, group[-1].end - shift, shift)
    for extent in group:
        sequence, end, at = extent.sequence, extent.sequence + extent.records, extent.start - shift
        while sequence < end:
            messages: list[StoredMessage] = []
            at = read_messages(data, at, sequence, end - sequence, messages)
            facts += messages
            sequence += len(messages)
            if sequence < end:
                fact, at = _decoded(data, at, shift, part, sequence)
                facts.append(fact)
                sequence += 1


def _decoded(data: bytes, at: int, shift: int, part: Part, sequence: int) -> tuple[Record, int]:
    """The fact of any record, and where the next one begins."""
    found = decode(data, at)
    if not isinstance(found, Decoded):
        why = getattr(found, "why", "the record is cut short")
        raise corrupt_error(part.info.path, at + shift, sequence, sequence, why)
    if found.header.sequence != sequence:
        why = f"a record of sequence {found.header.sequence} stands here"
        raise corrupt_error(part.info.path, at + shift, sequence, sequence, why)
    return found.fact, found.end


def read_header_at(descriptor: int, part: Part, at: int, sequence: int) -> Header:
    """The header of the record of this sequence, which stands at ``at``. Raises ``LogCorrupt``."""
    header = read_header(files.read_around(descriptor, HEADER_BYTES, at))
    if not isinstance(header, Header):
        raise corrupt_error(part.info.path, at, sequence, sequence, getattr(header, "why", "the file ends"))
    if header.sequence != sequence:
        why = f"a record of sequence {header.sequence} stands here"
        raise corrupt_error(part.info.path, at, sequence, sequence, why)
    return header
