"""Which segments a log has, and their indexes. Any thread asks; one changes it (a lock sees to the rest)."""

import logging
import time
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from syncbrok.log.index import sidecar
from syncbrok.log.index.segment_index import SegmentIndex
from syncbrok.log.segments import files, segment
from syncbrok.log.segments.damage import DamagedRecords, Examined, examine
from syncbrok.log.segments.segment import SEGMENT_HEADER_BYTES, SegmentInfo, corrupt_error
from syncbrok.model import limits
from syncbrok.model.errors import LogUnreadable

log = logging.getLogger(__name__)

_NAMED_MAX = 20
"""damaged records that are named one by one at once"""


class Part(NamedTuple):
    """A segment to read from."""

    info: SegmentInfo
    active: SegmentIndex | None
    """the index of the segment that is written to; None: sealed, ask ``SegmentList.index``"""


class _Kept(NamedTuple):
    """An index in use. ``stamp``: when the sidecar that it maps was written (ns), 0 for an index in memory.
    ``verified_s``: when its checksum was last checked."""

    known: SegmentIndex
    stamp: int
    verified_s: float


class SegmentList:
    """The segments, oldest first; the last one may be active. Readers work on the tuple they took: it never changes."""

    def __init__(
        self,
        uuid: bytes,
        sealed: tuple[SegmentInfo, ...],
        indexes_max: int = limits.indexes_kept_max,
        id_key: bytes = bytes(16),
    ) -> None:
        """``indexes_max``: of sealed segments, how many are kept in memory or mapped. ``id_key``: the log's."""
        self._uuid = uuid
        self.id_key = id_key
        self._indexes_max = indexes_max
        self.parts: tuple[Part, ...] = tuple(Part(info, None) for info in sealed)
        self._indexes: OrderedDict[int, _Kept] = OrderedDict()
        self._loading = Lock()
        self._examining = Lock()
        self.damaged: dict[str, str] = {}
        """file -> what is wrong in it, found while it was read or scrubbed"""
        self.damages: dict[int, tuple[DamagedRecords, ...]] = {}
        """base of a sealed segment -> what has rotted in it, as far as it is known"""
        self._unread: dict[int, tuple[DamagedRecords, ...]] = {}
        """the same of segments that were written to when it was found"""

    # -- damage -------------------------------------------------------------------------------------------------------

    def found_damage(self, info: SegmentInfo, detail: str) -> None:
        """Say it once for each file: what the disk has lost is for an operator to mend, from a backup or by salvage."""
        if info.path.name not in self.damaged:
            self.damaged[info.path.name] = detail
            log.critical("syncbrok.log.segment_damaged", extra={"file": info.path.name, "detail": detail})

    def found_unread(self, info: SegmentInfo, sequence: int, offset: int, end: int) -> None:
        """Note that a record of the active segment cannot be read. Once the segment is sealed it is examined with all
        others."""
        known = self._unread.get(info.base, ())
        if all(one.first != sequence for one in known):
            self._unread[info.base] = (*known, DamagedRecords(sequence, sequence, offset, end, "it cannot be read"))

    @property
    def all_damages(self) -> Mapping[int, tuple[DamagedRecords, ...]]:
        """All known damage by segment, the active one included."""
        return self._unread | self.damages if self._unread else self.damages

    def examine(self, info: SegmentInfo) -> Examined:
        """Look at every byte of a sealed segment, name the damage, and use an index of the readable records from now
        on. Called where an index leads to nothing: only the segment itself tells whether that is damage. Raises
        ``FileNotFoundError`` where it was dropped meanwhile, and ``LogUnreadable``."""
        with self._examining:
            found = self._examine(info)
            index = SegmentIndex.build(found.data, SEGMENT_HEADER_BYTES, len(found.data), info.base, found.offsets)
            with self._loading:
                self._keep(info, index)
            self._note(info, found.damages)
        return found

    def _examine(self, info: SegmentInfo) -> Examined:
        found = examine(segment.read_sealed(info.path), info.base, info.last, self.id_key)
        if found.damages:
            self.check_disk()
            # The disk may have come back only now: what is damaged is what a disk that reads cannot read.
            found = examine(segment.read_sealed(info.path), info.base, info.last, self.id_key)
        return found

    def check_disk(self) -> None:
        """Raises ``LogUnreadable`` where the disk reads the beginning of no segment: then it is not their records that
        are damaged."""
        if not any(files.can_read(part.info.path) for part in reversed(self.parts)):
            directory = self.parts[-1].info.path.parent
            raise LogUnreadable(f"the disk reads nothing of the log in {directory} (EIO); look at the disk")

    def _note(self, info: SegmentInfo, damages: tuple[DamagedRecords, ...]) -> None:
        self._unread.pop(info.base, None)
        if not damages:
            if self.damages.pop(info.base, None):
                self.damaged.pop(info.path.name, None)
                log.warning("syncbrok.log.segment_mended", extra={"file": info.path.name})
            return
        known = {(damage.first, damage.offset) for damage in self.damages.get(info.base, ())}
        fresh = [damage for damage in damages if (damage.first, damage.offset) not in known]
        self.damages[info.base] = damages
        one = damages[0]
        last = max(one.first, one.last)
        detail = corrupt_error(info.path, one.offset, one.first, last, one.why).detail
        self.found_damage(info, detail)
        self.damaged[info.path.name] = detail
        for damage in fresh[:_NAMED_MAX]:
            log.critical(
                "syncbrok.log.record_damaged",
                extra={"file": info.path.name, "detail": damage.describe(), "first": damage.first,
                       "last": damage.last, "records": damage.records},
            )  # fmt: skip
        if len(fresh) > _NAMED_MAX:
            more = sum(damage.records for damage in fresh[_NAMED_MAX:])
            log.critical("syncbrok.log.more_records_damaged", extra={"file": info.path.name, "records": more})

    def damage_of(self, sequence: int) -> DamagedRecords | None:
        """The known damage at the record of this sequence; None where there is none."""
        part = self.part_of(sequence) if self.damages else None
        damages = self.damages.get(part.info.base, ()) if part is not None else ()
        at = bisect_left(damages, sequence, key=lambda damage: damage.last)
        found = damages[at] if at < len(damages) else None
        return found if found is not None and found.first <= sequence <= found.last else None

    def is_damaged(self, part: Part) -> bool:
        return part.info.base in self.damages

    def scrub(self, info: SegmentInfo) -> None:
        """Read all of a sealed segment against its seal; what is wrong is named."""
        try:
            data = segment.read_sealed(info.path)
            if segment.scrub_bytes(data) is not None or info.base in self.damages:
                self.examine(info)
        except FileNotFoundError:
            return  # dropped meanwhile

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
        Raises ``FileNotFoundError`` where the segment was dropped meanwhile."""
        if part.active is not None:
            return part.active
        base = part.info.base
        with self._loading:
            kept = self._indexes.get(base)
            if kept is not None and self._stands(part.info, kept):
                self._indexes.move_to_end(base)
                return kept.known
            index = self._load(part.info)
            self._keep(part.info, index)
            return index

    def _stands(self, info: SegmentInfo, kept: _Kept) -> bool:
        """True if the index may be used as it is. A mapped sidecar was correct when it was opened, but a page that is
        read in again later may not be."""
        if not kept.stamp:
            return True
        young = time.monotonic() - kept.verified_s < limits.sidecar_verified_every_s
        return young and _stamp(info) == kept.stamp

    def _keep(self, info: SegmentInfo, index: SegmentIndex) -> None:
        stamp = _stamp(info) if info.base not in self.damages else 0
        self._indexes[info.base] = _Kept(index, stamp, time.monotonic())
        if len(self._indexes) > self._indexes_max:
            self._indexes.popitem(last=False)

    def _load(self, info: SegmentInfo) -> SegmentIndex:
        """The index from the sidecar. It is built anew without a sidecar to trust, and always for a damaged segment: an
        entry of the sidecar is no reason to believe in a record that cannot be read."""
        seal = segment.read_seal(info.path)
        sealed = None if seal is None else sidecar.Sealed(self._uuid, info.base, info.bytes, seal[1].crc)
        if sealed is not None and info.base not in self.damages:
            index = sidecar.read(info.path.parent, sealed)
            if index is not None:
                return index
            log.info("syncbrok.log.sidecar_rebuilt", extra={"file": info.path.name})
        data = b"" if sealed is None else segment.read_sealed(info.path)
        if sealed is not None and segment.scrub_bytes(data) is None:
            index = SegmentIndex.build(data, SEGMENT_HEADER_BYTES, info.bytes, info.base)
            self._write_sidecar(info, index, sealed)
            return index
        found = self._examine(info)
        self._note(info, found.damages)
        return SegmentIndex.build(found.data, SEGMENT_HEADER_BYTES, len(found.data), info.base, found.offsets)

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
            self._keep(info, index)
        self.parts = (*self.parts[:-1], Part(info, None))

    def write_sidecar(self, info: SegmentInfo) -> None:
        """Write the sidecar of a sealed segment. A background task calls this after ``sealed``."""
        try:
            index = self.index(Part(info, None))
            self._write_sidecar(info, index, self._sealed(info))
            with self._loading:
                if info.base in self._indexes:
                    self._keep(info, index)
        except FileNotFoundError:
            return  # dropped meanwhile

    def rewritten(self, info: SegmentInfo) -> None:
        """The sealed segment was written anew, with records of the same places and lengths: so are its index and its
        sidecar. Raises ``FileNotFoundError`` where it was dropped meanwhile."""
        with self._loading:
            self._indexes.pop(info.base, None)
            self._keep(info, self._load(info))

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
        self.damages.pop(base, None)
        self._unread.pop(base, None)
        self.damaged.pop(segment.segment_path(Path(), base).name, None)


def _stamp(info: SegmentInfo) -> int:
    """When the sidecar was written, in ns; 0 where there is none."""
    try:
        return sidecar.path_of(info.path.parent, info.base).stat().st_mtime_ns
    except FileNotFoundError:
        return 0
