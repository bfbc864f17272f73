"""The files of a log that this process has open, as they are read over the network (``SegmentHolder``)."""

from collections.abc import Callable
from pathlib import Path

from syncbrok.frontends.over_http.resources.log_segments import HeldSegment, ReadableLog
from syncbrok.log.index import sidecar
from syncbrok.log.journal import FileJournal, SegmentInfo
from syncbrok.log.segments.retention import DROPPED
from syncbrok.log.segments.sealed_segments import sealed_segment, sealed_segments
from syncbrok.log.segments.segment import segment_path
from syncbrok.model.errors import Gone


class LogFiles:
    """The files in ``directory``. ``journal``: what is open there, None while nothing is. See ``SegmentHolder``."""

    def __init__(self, directory: Path, journal: Callable[[], FileJournal | None]) -> None:
        self._directory = directory
        self._journal = journal

    def held_segments(self) -> list[HeldSegment]:
        """See ``SegmentHolder``."""
        return [HeldSegment(self._directory / one.name, *one) for one in sealed_segments(self._directory)]

    def erased_before(self) -> int | None:
        """See ``SegmentHolder``: of a single broker nobody asks."""
        return None

    def readable(self) -> ReadableLog | None:
        """See ``SegmentHolder``."""
        journal = self._journal()
        if journal is None:
            return None
        sections = journal.synced_sections()
        durable = sections[-1].last if sections else 0
        return ReadableLog(journal.uuid.hex(), durable, [_held(one) for one in sections])

    def held_segment(self, first: int) -> HeldSegment | None:
        """See ``SegmentHolder``."""
        journal = self._journal()
        path = segment_path(self._directory, first)
        if journal is not None:
            sections = journal.synced_sections()
            found = next((one for one in sections if one.base == first), None)
            if found is not None:
                return _held(found)
            path = path.with_name(path.name + DROPPED)  # for a while yet, for those who are at it
        sealed = sealed_segment(path)
        if sealed is not None:
            return HeldSegment(path, *sealed)
        if journal is not None and first < journal.first_sequence:
            raise Gone(f"retention has dropped the log up to sequence {journal.first_sequence - 1}", first=first)
        return None

    def held_index(self, first: int) -> HeldSegment | None:
        """See ``SegmentHolder``."""
        held = self.held_segment(first)
        if held is None or not held.sealed:
            return None
        path = sidecar.path_of(self._directory, first)
        try:
            return held._replace(path=path, bytes=path.stat().st_size)
        except FileNotFoundError:
            return None


def _held(one: SegmentInfo) -> HeldSegment:
    sealed = sealed_segment(one.path) if one.sealed else None
    return HeldSegment(
        one.path,
        one.base,
        one.last,
        one.bytes,
        "" if sealed is None else sealed.checksum,
        one.sealed,
        one.records if one.sealed else None,
        one.first_time_us,
        one.last_time_us if one.sealed else None,
    )
