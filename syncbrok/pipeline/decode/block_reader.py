"""Cuts a slice of a log into blocks from which rows are made. No Spark.

A sealed segment comes in blocks of 5,120 records, a MiB or so. Each is read, verified by the checksums of the sidecar
and made into rows before the next, so that all of it stays in the processor's cache. A segment without such a sidecar
is one block whose records are decoded as many at a time.
"""

from collections.abc import Iterator
from contextlib import closing

import numpy as np

from syncbrok.log.index.segment_index import SegmentIndex
from syncbrok.log.segments.segment import SEAL_BYTES, SEGMENT_HEADER_BYTES
from syncbrok.model import limits
from syncbrok.pipeline.broker_log import SegmentRewritten
from syncbrok.pipeline.decode import huge_pages
from syncbrok.pipeline.decode.arrow_arrays import Array
from syncbrok.pipeline.decode.open_segment import OpenSegment, filled, index_of, opened_file
from syncbrok.pipeline.decode.record_block import BlockRecords, RecordBlock, all_records
from syncbrok.pipeline.log_place import SegmentFile
from syncbrok.pipeline.log_snapshot import SegmentSlice, SegmentSnapshot


def record_blocks(
    one: SegmentSlice, uuid: bytes, *, verify: bool, at_once: int = limits.checksums_every
) -> Iterator[BlockRecords]:
    """The slice's records in order, those of a block of its segment's bytes together; ``at_once`` where no sidecar says
    how many a block has. A block is gone when the next is asked for. Raises ``LogCorrupt``, and ``Gone`` where
    retention has unlinked the file."""
    first = one.first
    for records in _by_sidecar(one, uuid, verify=verify):
        yield records
        first += len(records)
    if first <= one.last:  # the sidecar, if there is one, knows no more; whose fault that is, looking at all will tell
        with closing(OpenSegment(one.segment, uuid, verify=verify, hint=one.hint, gaps=True)) as opened:
            places = opened.offsets(first, one.last)
            for start in range(0, len(places), at_once):
                yield BlockRecords(opened, places[start : start + at_once])


def _by_sidecar(one: SegmentSlice, uuid: bytes, *, verify: bool) -> Iterator[BlockRecords]:
    """Yield the blocks that the sidecar knows, up to the first that is not as it says."""
    segment = one.segment
    index = index_of(segment, uuid) if segment.records == segment.last - segment.base + 1 else None
    borders = None if index is None else _borders(index, segment)
    if index is None or borders is None:
        return
    with opened_file(segment) as file, huge_pages.borrowed(int(np.diff(borders).max())) as memory:
        if file.size != segment.end:
            return
        every = index.positions.every
        for number in range((one.first - segment.base) // every, (one.last - segment.base) // every + 1):
            start, end = borders[number : number + 2].tolist()
            view = memory[: end - start]
            if not _read(file, view, start, _Sums(index, number, segment) if verify else None):
                return
            places = index.positions.offsets[number * every : (number + 1) * every].astype(np.int64) - start
            found = all_records(RecordBlock(segment, view, start), places)
            if found is None:
                return
            begins = segment.base + number * every
            yield found[max(one.first - begins, 0) : one.last - begins + 1]


def _borders(index: SegmentIndex, segment: SegmentSnapshot) -> Array | None:
    """The offset of each block in the file and the end of the last one; None where the index cannot be right."""
    offsets, _, checksums, every, _ = index.positions
    found = np.append(offsets[::every].astype(np.int64), segment.end)
    if len(offsets) != segment.records or len(checksums) != len(found) - 1 or found[0] != SEGMENT_HEADER_BYTES:
        return None
    lengths = np.diff(found)
    return found if lengths.min() > 0 and lengths.max() <= huge_pages.BYTES_MAX else None


class _Sums:
    """The running checksum of all records before and after a block. That of the last block ends with the sum in the
    seal, before the seal itself."""

    def __init__(self, index: SegmentIndex, number: int, segment: SegmentSnapshot) -> None:
        checksums = index.positions.checksums
        last = number + 1 == len(checksums)
        self.before = int(checksums[number])
        self.after = segment.crc if last else int(checksums[number + 1])
        self.left_out_bytes = SEAL_BYTES if last else 0


def _read(file: SegmentFile, view: memoryview, start: int, sums: _Sums | None) -> bool:
    """Fill the view with what stands in the file from ``start`` on. True if it is all there, and right by ``sums``."""
    until = len(view) - sums.left_out_bytes if sums else 0
    try:
        got, crc = filled(file, view, start, slice(0, until), sums.before if sums else 0)
    except SegmentRewritten:
        return False
    return got == len(view) and (sums is None or crc == sums.after)
