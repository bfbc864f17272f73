"""Some of a segment's bytes in memory, and what is said where they are not as they should be. Pure, no Spark."""

from pathlib import Path

import numpy as np

from syncbrok.log.codec import gather
from syncbrok.log.layout import HEADER_BYTES
from syncbrok.log.segment import corrupt_error
from syncbrok.model.errors import LogCorrupt
from syncbrok.pipeline.decode.gather import Array, gather_header
from syncbrok.pipeline.log_files import Segment


class Piece:
    """``view`` are the bytes of the segment's file from ``shift`` on, up to where a record ends."""

    def __init__(self, segment: Segment, view: memoryview, shift: int) -> None:
        self.segment = segment
        self.view = view
        self.shift = shift

    def check(self, places: Array, fits: Array, why: str) -> None:
        """That something holds of all records at ``places``; else the error for the first of which it does not. What
        was not verified could lead anywhere."""
        if not fits.all():
            at = int(places[int(np.argmin(fits))])
            raise self.damaged(self.shift + at, int(gather(self.view, np.array([at]))["sequence"][0]), why)

    def damaged(self, offset: int, first: int, why: str) -> LogCorrupt:
        """The error for what stands at ``offset`` of the file, where sequence ``first`` should be."""
        return corrupt_error(Path(self.segment.path), offset, first, self.segment.last, why)


def led_on(view: memoryview, places: Array, end: int) -> bool:
    """Whether the records at ``places`` lead from each to the next, and the last to ``end``: an index is never trusted
    over its segment."""
    if not len(places) or int(places[0]) < 0 or int(places.max()) > end - HEADER_BYTES:
        return False
    lengths = gather_header(view, places, "body_bytes")
    ends = places + HEADER_BYTES + lengths
    return int(ends[-1]) == end and bool((ends[:-1] == places[1:]).all())
