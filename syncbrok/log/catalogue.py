"""Which segments a log has, and their indexes. Any thread asks; one changes it (a lock sees to the rest)."""

import logging
from bisect import bisect_right
from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from syncbrok.log import segment, sidecar
from syncbrok.log.codec import Header, read_header
from syncbrok.log.index import SegmentIndex
from syncbrok.log.segment import SEGMENT_HEADER_BYTES, SegmentInfo, corrupt_error
from syncbrok.model import limits

log = logging.getLogger(__name__)


class Part(NamedTuple):
    """A segment to read from."""

    info: SegmentInfo
    active: SegmentIndex | None
    """the index of the segment that is written to; None: sealed, ask ``Catalogue.index``"""


class Catalogue:
    """The segments, oldest first; the last one may be active. Readers work on the tuple they took: it never changes."""

    def __init__(
        self, uuid: bytes, sealed: tuple[SegmentInfo, ...], indexes_max: int = limits.indexes_kept_max
    ) -> None:
        """``indexes_max``: of sealed segments, how many are kept in memory or mapped."""
        self._uuid = uuid
        self._indexes_max = indexes_max
        self.parts: tuple[Part, ...] = tuple(Part(info, None) for info in sealed)
        self._indexes: OrderedDict[int, SegmentIndex] = OrderedDict()
        self._loading = Lock()
        self.damaged: dict[str, str] = {}
        """file -> what is wrong in it, found while it was read or scrubbed"""

    def found_damage(self, info: SegmentInfo, detail: str) -> None:
        """Say it once for each file: what the disk has lost is for an operator to mend, from a backup or by salvage."""
        if info.path.name not in self.damaged:
            self.damaged[info.path.name] = detail
            log.critical("syncbrok.log.segment_damaged", extra={"file": info.path.name, "detail": detail})

    def scrub(self, info: SegmentInfo) -> None:
        """Read all of a sealed segment against its seal; what is wrong goes to ``damaged``."""
        try:
            data = segment.read_segment(info.path)
        except FileNotFoundError:
            return  # dropped meanwhile
        damage = segment.scrub_bytes(data)
        if damage is not None:
            header = read_header(data, damage.offset)
            first, last = (header.sequence, header.sequence) if isinstance(header, Header) else (info.base, info.last)
            self.found_damage(info, corrupt_error(info.path, damage.offset, first, last, damage.why).detail)

    @property
    def oldest(self) -> int:
        """The first sequence of the log; 1 while there is no segment."""
        return self.parts[0].info.base if self.parts else 1

    def part_of(self, sequence: int) -> Part | None:
        """The segment that holds ``sequence``, if any does."""
        parts = self.parts
        at = bisect_right(parts, sequence, key=lambda part: part.info.base) - 1
        if at < 0 or (parts[at].active is None and sequence > parts[at].info.last):
            return None
        return parts[at]

    def from_segment_of(self, sequence: int) -> tuple[Part, ...]:
        """The segments that may hold what was recorded after ``sequence``, oldest first."""
        parts = self.parts
        return parts[max(0, bisect_right(parts, sequence, key=lambda part: part.info.base) - 1) :]

    def index(self, part: Part) -> SegmentIndex:
        """The index of a segment: from memory, from its sidecar, or built from its bytes (and then kept beside it).
        Raises ``LogCorrupt``, and ``FileNotFoundError`` where the segment was dropped meanwhile."""
        if part.active is not None:
            return part.active
        base = part.info.base
        with self._loading:
            index = self._indexes.get(base)
            if index is not None:
                self._indexes.move_to_end(base)
                return index
            index = self._load(part.info)
            self._keep(base, index)
            return index

    def _keep(self, base: int, index: SegmentIndex) -> None:
        self._indexes[base] = index
        if len(self._indexes) > self._indexes_max:
            self._indexes.popitem(last=False)

    def _load(self, info: SegmentInfo) -> SegmentIndex:
        sealed = self._sealed(info)
        index = sidecar.read(info.path.parent, sealed)
        if index is None:
            log.info("syncbrok.log.sidecar_rebuilt", extra={"file": info.path.name})
            index = build_index(info)
            self._write_sidecar(info, index, sealed)
        return index

    def _sealed(self, info: SegmentInfo) -> sidecar.Sealed:
        seal = segment.read_seal(info.path)
        if seal is None:
            raise corrupt_error(info.path, info.bytes, info.base, info.last, "the seal is gone")
        return sidecar.Sealed(self._uuid, info.base, info.bytes, seal[1].crc)

    def _write_sidecar(self, info: SegmentInfo, index: SegmentIndex, sealed: sidecar.Sealed) -> None:
        try:
            sidecar.write(info.path.parent, index, sealed)
        except OSError as problem:
            # The log is whole without it: it is built again when it is asked for.
            log.warning("syncbrok.log.sidecar_failed", extra={"file": info.path.name, "problem": str(problem)})

    # -- changes ------------------------------------------------------------------------------------------------------

    def opened(self, info: SegmentInfo, index: SegmentIndex) -> None:
        """A new active segment."""
        self.parts = (*self.parts, Part(info, index))

    def sealed(self, info: SegmentInfo) -> None:
        """The active segment was sealed as ``info``; its index stays in memory."""
        index = self.parts[-1].active
        assert index is not None, "only the active segment is sealed"
        with self._loading:
            self._keep(info.base, index)
        self.parts = (*self.parts[:-1], Part(info, None))

    def write_sidecar(self, info: SegmentInfo) -> None:
        """For the background, after ``sealed``."""
        try:
            self._write_sidecar(info, self.index(Part(info, None)), self._sealed(info))
        except FileNotFoundError:
            return  # dropped meanwhile

    def write_active_sidecar(self, path: Path, crc: int) -> None:
        """When the log is closed in good order: the next start finds the records of the active segment by it. ``crc``
        is that of all their bytes, as a seal has it."""
        index = self.parts[-1].active
        assert index is not None, "a sealed segment has its own"
        try:
            sidecar.write(path.parent, index, sidecar.Sealed(self._uuid, index.base, index.end, crc))
        except OSError as problem:
            log.warning("syncbrok.log.sidecar_failed", extra={"file": path.name, "problem": str(problem)})

    def dropped(self, base: int) -> None:
        self.parts = tuple(part for part in self.parts if part.info.base != base)
        with self._loading:
            self._indexes.pop(base, None)


def build_index(info: SegmentInfo) -> SegmentIndex:
    """The index of a sealed segment from its bytes, which are verified first. Raises ``LogCorrupt``."""
    data = segment.read_segment(info.path, 0, info.bytes)
    damage = segment.scrub_bytes(data)
    if damage is not None:
        raise corrupt_error(info.path, damage.offset, info.base, info.last, damage.why)
    return SegmentIndex.build(data, SEGMENT_HEADER_BYTES, info.bytes, info.base)
