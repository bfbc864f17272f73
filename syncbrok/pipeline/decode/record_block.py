"""Blocks of a segment's bytes in memory, the records in them, and the error where they are damaged. Pure, no Spark."""

from pathlib import Path

import numpy as np

from syncbrok.log.format.codec import gather
from syncbrok.log.format.layout import HEADER, HEADER_BYTES, Kind
from syncbrok.log.segments.segment import corrupt_error
from syncbrok.model.errors import LogCorrupt
from syncbrok.pipeline.decode.arrow_arrays import Array, gather_header
from syncbrok.pipeline.log_snapshot import SegmentSnapshot

_OPAQUE = np.dtype(("V", HEADER_BYTES))


class RecordBlock:
    """A block of a segment's file in memory. ``view`` are the bytes from ``shift`` on, up to where a record ends."""

    def __init__(self, segment: SegmentSnapshot, view: memoryview, shift: int) -> None:
        self.segment = segment
        self.view = view
        self.shift = shift

    def check(self, places: Array, fits: Array, why: str) -> None:
        """Raise ``LogCorrupt`` for the first of the records at ``places`` where ``fits`` is false. Bytes that were not
        verified could lead anywhere."""
        if not fits.all():
            at = int(places[int(np.argmin(fits))])
            raise self.damaged(self.shift + at, int(gather(self.view, np.array([at]))["sequence"][0]), why)

    def damaged(self, offset: int, first: int, why: str) -> LogCorrupt:
        """The error for what stands at ``offset`` of the file, where sequence ``first`` should be."""
        return corrupt_error(Path(self.segment.path), offset, first, self.segment.last, why)


class BlockRecords:
    """Records of a block, in its order: their offsets, and their headers, which are gathered once for all readers."""

    def __init__(self, block: RecordBlock, places: Array, heads: Array | None = None) -> None:
        self.block = block
        self.places = places
        self.heads: Array = gather(block.view, places) if heads is None else heads

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, wanted: "slice | Array") -> "BlockRecords":
        """The wanted records; the same object where all are wanted."""
        if isinstance(wanted, slice):
            whole = wanted.indices(len(self)) == (0, len(self), 1)
        else:
            whole = wanted.dtype == np.bool_ and bool(wanted.all())
        if whole:
            return self
        # As opaque bytes, as ``gather`` takes them: field by field it costs fourteen times as much.
        return BlockRecords(self.block, self.places[wanted], self.heads.view(_OPAQUE)[wanted].view(HEADER))

    def are(self, kind: Kind) -> Array:
        """For each record: true if it is of the kind."""
        found: Array = self.heads["kind"] == int(kind)
        return found


def all_records(block: RecordBlock, places: Array) -> BlockRecords | None:
    """The records of a block at the offsets from an index; None where the index cannot be right."""
    end = len(block.view)
    if not _inside(places, end):
        return None
    found = BlockRecords(block, places)
    return found if _lead_on(places, found.heads["body_bytes"], end) else None


def led_on(view: memoryview, places: Array, end: int) -> bool:
    """True if the records at ``places`` lead from each to the next, and the last to ``end``. An index is never trusted
    over its segment."""
    return _inside(places, end) and _lead_on(places, gather_header(view, places, "body_bytes"), end)


def _inside(places: Array, end: int) -> bool:
    return bool(len(places)) and int(places.min()) >= 0 and int(places.max()) <= end - HEADER_BYTES


def _lead_on(places: Array, lengths: Array, end: int) -> bool:
    ends = places + HEADER_BYTES + lengths
    return int(ends[-1]) == end and bool((ends[:-1] == places[1:]).all())
