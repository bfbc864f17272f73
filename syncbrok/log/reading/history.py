"""Reads the log from a sequence on, to build state from it. Consecutive messages come together.

A start may have millions of messages to take in. Every segment goes through one buffer (fresh memory for each would
cost more than the reading) and is verified as a whole; its records are found from the sparse offsets of its index.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from syncbrok.log.format import stream
from syncbrok.log.format.codec import Buffer, Corrupt, walk
from syncbrok.log.format.records import RecordOrRun
from syncbrok.log.index.segment_index import SegmentIndex
from syncbrok.log.index.segment_list import Part, SegmentList
from syncbrok.log.segments import files, segment
from syncbrok.log.segments.descriptors import reading
from syncbrok.log.segments.segment import SEGMENT_HEADER_BYTES, corrupt_error


def read_facts(segment_list: SegmentList, after: int = 0) -> Iterator[RecordOrRun]:
    """Everything with a sequence above ``after``, in order, without content; what else is left out of
    messages: see ``stream.facts_or_runs``. Raises ``LogCorrupt``."""
    buffer = bytearray()
    for part in segment_list.parts:
        if part.active is None and part.info.last <= after:
            continue
        index = segment_list.index(part)
        end = index.end if part.active is not None else part.info.bytes
        if end > len(buffer):
            buffer = bytearray(end)
        for fact in stream.facts_or_runs(*_verified_bytes(segment_list, part, index, buffer, end, after), after):
            if isinstance(fact, Corrupt):
                raise corrupt_error(part.info.path, fact.offset, part.info.base, index.last, fact.why)
            yield fact


def _verified_bytes(
    segment_list: SegmentList, part: Part, index: SegmentIndex, buffer: bytearray, end: int, after: int
) -> tuple[Buffer, npt.NDArray[np.int64]]:
    """The bytes of a segment and the offsets of its records. A sealed segment is verified here; recovery has checked
    the active one record by record. A damaged message is replaced by what is known of it, so that it ends as lost.
    Damage to any other record from ``after`` on is an error: nobody could tell how things stood."""
    data = memoryview(buffer)[:end]
    with reading(part.info.path) as file:
        try:
            files.read_into(file.fileno(), data, 0)
        except OSError:
            if part.active is not None:
                raise
            data[:] = files.read_around(file.fileno(), end, 0)
    if part.active is None and segment.scrub_bytes(data) is not None:
        found = segment_list.examine(part.info)
        for damage in found.damages:
            if damage.last > after and not damage.survived:
                why = f"{damage.describe()}. Without it nobody can tell how things stood, and no checkpoint covers it"
                raise corrupt_error(part.info.path, damage.offset, damage.first, damage.last, why)
        return found.data, found.offsets
    offsets = stream.indexed_offsets(data, index.sparse, index.records, SEGMENT_HEADER_BYTES, end)
    return data, walk(data, SEGMENT_HEADER_BYTES, end)[0] if offsets is None else offsets
