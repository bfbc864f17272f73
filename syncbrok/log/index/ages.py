"""The age of segments by the wall clock. The times of their records may be ahead of it.

Times of records never go back: after a record that was written while the clock was ahead, all have its time until the
clock has caught up. So a segment's age counts from its sealing, which the first record of the next segment tells.
"""

from syncbrok.log.format.codec import Decoded
from syncbrok.log.format.records import SegmentOpened
from syncbrok.log.index.segment_list import SegmentList
from syncbrok.log.segments.segment import SegmentInfo, read_first_record


class Ages:
    """Reads the first record of a segment once, when it is asked for. Any thread may ask."""

    def __init__(self, segment_list: SegmentList) -> None:
        self._segment_list = segment_list
        self._opened: dict[int, int] = {}

    def opened_us(self, info: SegmentInfo) -> int:
        """When the segment was begun; the time of its first record where that does not say it, or cannot be read."""
        known = self._opened.get(info.base)
        if known is None:
            known = self._read(info) or info.first_time_us
            there = {part.info.base for part in self._segment_list.parts}
            self._opened = {base: us for base, us in self._opened.items() if base in there} | {info.base: known}
        return known

    def sealed_us(self, info: SegmentInfo) -> int:
        """When the segment was sealed; the time of its last record where nothing follows it."""
        following = next((part.info for part in self._segment_list.parts if part.info.base == info.last + 1), None)
        return self.opened_us(following) if following else info.last_time_us

    @staticmethod
    def _read(info: SegmentInfo) -> int:
        try:
            first = read_first_record(info.path)
        except FileNotFoundError:
            return 0  # dropped meanwhile
        return first.fact.sealed_us if isinstance(first, Decoded) and isinstance(first.fact, SegmentOpened) else 0
