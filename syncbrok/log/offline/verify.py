"""Checks a whole log, byte for byte, without changing it and without its lock: beside a running broker too.

It checks the header of every segment; header and body of every record against their checksums; that sequences follow
each other and batch numbers never fall; that units are whole; that snapshots stand first and seals last, with the right
count and checksum; that sidecars agree with their segments. In the active segment it reads records above the watermark
as far as they go, and reports nothing about where they end: the broker may be writing there.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from syncbrok.log.format.codec import Corrupt
from syncbrok.log.format.layout import LATER
from syncbrok.log.format.records import Gap, Record, SegmentOpened, SegmentSealed
from syncbrok.log.index import sidecar
from syncbrok.log.index.segment_index import SegmentIndex
from syncbrok.log.index.sidecar import Sealed
from syncbrok.log.recovery.evidence import UNKNOWN_BEGINNING, UNKNOWN_END, Evidence, gather_evidence
from syncbrok.log.segments import watermark
from syncbrok.log.segments.scan import FoundRecord, UnreadableBytes, scan, span_of
from syncbrok.log.segments.segment import (
    SEAL_BYTES,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    read_sealed,
    read_segment,
    segment_bases,
    segment_path,
    unpack_segment_header,
)
from syncbrok.model.errors import LogCorrupt
from syncbrok.model.limits import MIB
from syncbrok.model.names import SEQUENCE_MAX

_PROGRESS_BYTES = 4 * MIB


class Progress(NamedTuple):
    done_bytes: int
    total_bytes: int


class Finding(NamedTuple):
    """Something that is not as it must be. ``sequence`` is the record's, or the one that was expected there, 0 where
    none is concerned. ``harmless``: mended by itself, nothing is lost (a sidecar is built again)."""

    file: str
    offset: int
    sequence: int
    what: str
    harmless: bool = False


def verify(
    directory: Path, fact: Callable[[Record], None] | None = None, lost: Callable[[Gap], None] | None = None
) -> Iterator[Progress | Finding]:
    """Yield findings as they are met, and the progress about every 4 MiB. ``fact`` is called with every fact that can
    be read, in order and without content (``order`` judges by them), ``lost`` between them with a gap for the sequences
    that are missing there: a disk that rots is no broken promise about order. Raises ``OSError``."""
    evidence = gather_evidence(directory, max(segment_bases(directory), default=0))
    try:
        mark = watermark.read(directory)
        sizes = _sizes(directory)
        bases = list(sizes)
        # Read again: retention moves the mark before it takes a segment away, so this one knows of all that are gone.
        oldest = watermark.read(directory)
    except LogCorrupt as problem:
        yield Finding(watermark.NAME, 0, 0, problem.detail)
        mark = oldest = None
        sizes = _sizes(directory)
        bases = list(sizes)
    if oldest is not None and bases and bases[0] > oldest.oldest:
        what = "the segments before this one are missing"
        yield Finding(segment_path(directory, bases[0]).name, 0, oldest.oldest, what)
    if mark is None and bases and bases[0] > 1:
        yield Finding(segment_path(directory, bases[0]).name, 0, 1, UNKNOWN_BEGINNING)
    walk = _Walk(directory, bases, mark, evidence, fact or (lambda _: None), lost or (lambda _: None))
    done = 0
    for base in bases:
        for met in walk.segment(base):
            yield met if isinstance(met, Finding) else Progress(done + met, sum(sizes.values()))
        done += sizes[base]
        yield Progress(done, sum(sizes.values()))
    yield from walk.missing_end()


@dataclass(slots=True)
class _Passed:
    """Progress of the check of one segment. ``whole``: nothing of it was unreadable so far."""

    end: int = SEGMENT_HEADER_BYTES
    records: int = 0
    whole: bool = True
    seal: SegmentSealed | None = None


def _sizes(directory: Path) -> dict[int, int]:
    """The bytes of each segment that is there, by base."""
    sizes: dict[int, int] = {}
    for base in segment_bases(directory):
        with suppress(FileNotFoundError):
            sizes[base] = segment_path(directory, base).stat().st_size
    return sizes


class _Walk:
    """Goes through the segments in order; holds what must be the same or go on from one to the next."""

    def __init__(
        self,
        directory: Path,
        bases: list[int],
        mark: watermark.Mark | None,
        evidence: list[Evidence],
        fact: Callable[[Record], None],
        lost: Callable[[Gap], None],
    ) -> None:
        self._directory = directory
        self._bases = bases
        self._mark = mark
        self._evidence = evidence
        self._fact = fact
        self._lost = lost
        self._log: SegmentHeader | None = None
        self._last = bases[0] - 1 if bases else 0
        self._batch = 0
        self._ends_unit = True
        self._is_sealed = False
        self._end = 0

    def segment(self, base: int) -> Iterator[Finding | int]:
        """Findings and, now and then, how many bytes of the segment are done."""
        path = segment_path(self._directory, base)
        try:
            # Read, not mapped: the broker may cut the file it writes to while it is looked at.
            view = memoryview(read_segment(path))
        except FileNotFoundError:
            return  # retention took it while the ones before were looked at
        except OSError as problem:
            # Zeros stand in the place of what is missing; at the end of the log they would say that nothing follows.
            yield Finding(path.name, 0, base, f"the disk cannot read all of it: {problem.strerror}")
            view = memoryview(read_sealed(path))
        yield from self._header(path.name, base, view)
        yield from self._records(path.name, base, view)

    def missing_end(self) -> Iterator[Finding]:
        """Yield findings about records behind the last segment that are known to have been on the disk."""
        mark = self._mark
        if mark is not None and self._last < mark.durable:
            what = f"the log ends here, but was on the disk up to sequence {mark.durable}"
            yield Finding(segment_path(self._directory, mark.base).name, mark.offset, self._last + 1, what)
            return
        for one in self._evidence:
            if one.through > self._last and (self._log is None or one.uuid == self._log.uuid):
                what = f"the log ends at sequence {self._last}, but was on the disk up to {one.through}"
                yield Finding(one.file, 0, self._last + 1, what)
                return
        if mark is None and self._is_sealed:
            yield Finding(segment_path(self._directory, self._bases[-1]).name, self._end, self._last + 1, UNKNOWN_END)

    def _header(self, name: str, base: int, view: memoryview) -> Iterator[Finding]:
        header = unpack_segment_header(view)
        if isinstance(header, Corrupt):
            yield Finding(name, 0, base, header.why)
            return
        self._log = self._log or header
        if (header.uuid, header.id_key) != (self._log.uuid, self._log.id_key):
            yield Finding(name, 0, base, "the segment belongs to another log")
        if header.base != base:
            yield Finding(name, 0, base, f"by its header this is the segment of sequence {header.base}")

    def _records(self, name: str, base: int, view: memoryview) -> Iterator[Finding | int]:
        below = next((other for other in self._bases if other > base), SEQUENCE_MAX)
        self._last = base - 1
        passed = _Passed()
        reported = 0
        for met in scan(view, SEGMENT_HEADER_BYTES, last=base - 1, below=below):
            if isinstance(met, UnreadableBytes):
                if LATER not in met.why and self._is_open_end(base, met.offset, below):
                    return
                passed.whole = False
                yield Finding(name, met.offset, self._last + 1, met.why)
                continue
            yield from self._record(name, met, passed)
            if passed.end - reported >= _PROGRESS_BYTES:
                reported = passed.end
                yield reported
        self._is_sealed, self._end = passed.seal is not None, passed.end
        if passed.seal is not None or below != SEQUENCE_MAX:
            yield from self._closing(name, base, view, below, passed)

    def _closing(self, name: str, base: int, view: memoryview, below: int, passed: "_Passed") -> Iterator[Finding]:
        """Check the end of a segment that is sealed or that another segment follows."""
        end, seal = passed.end, passed.seal
        if not self._ends_unit:
            yield Finding(name, end, self._last, "the unit that this record belongs to has no end")
            self._ends_unit = True
        if below != SEQUENCE_MAX and self._last < below - 1:
            yield Finding(name, end, self._last + 1, f"sequences {self._last + 1} to {below - 1} are missing")
            self._lost(Gap(below - 1, 0, self._last + 1, below - 1, ""))
        if seal is None:
            yield Finding(name, end, below - 1, "the segment is not sealed, though another follows it")
            return
        if seal.records != passed.records - 1:
            what = f"the seal counts {seal.records} records before it, there are {passed.records - 1}"
            yield Finding(name, end, seal.sequence, what)
        if crc32c(view[SEGMENT_HEADER_BYTES : end - SEAL_BYTES]) != seal.crc:
            yield Finding(name, end, seal.sequence, "the checksum of all records is not that of the seal")
        if end != len(view) and below != SEQUENCE_MAX:
            yield Finding(name, end, seal.sequence, f"{len(view) - end} bytes stand behind the seal")
        if passed.whole:
            yield from self._sidecar(base, view[:end], seal)

    def _is_open_end(self, base: int, offset: int, below: int) -> bool:
        """Whether this is the end of what is being written: it may be in the middle of anything."""
        mark = self._mark
        return below == SEQUENCE_MAX and (mark is None or mark.base < base or offset >= mark.offset)

    def _record(self, name: str, met: FoundRecord, passed: "_Passed") -> Iterator[Finding]:
        header, fact = met.record.header, met.record.fact
        wrong: list[str] = []
        first, last = span_of(fact)
        if first > self._last + 1:
            wrong.append(f"sequences {self._last + 1} to {first - 1} are missing before it")
            self._lost(Gap(first - 1, 0, self._last + 1, first - 1, ""))
        elif header.batch != self._batch and not self._ends_unit:
            wrong.append("the unit before this record has no end")
        if header.batch < self._batch:
            wrong.append(f"its batch {header.batch} follows batch {self._batch}")
        if header.synced_through >= fact.sequence:
            wrong.append(f"it says that {header.synced_through} was on the disk before it")
        if passed.seal is not None:
            wrong.append("it stands behind the seal")
        if (passed.records == 0) != isinstance(fact, SegmentOpened):
            wrong.append("only the first record of a segment is a snapshot, and it must be one")
        yield from (Finding(name, met.offset, fact.sequence, what) for what in wrong)
        self._last, self._batch, self._ends_unit = last, header.batch, header.ends_unit
        passed.seal = fact if isinstance(fact, SegmentSealed) else None
        passed.records += 1
        passed.end = met.offset + header.record_bytes
        self._fact(fact)

    def _sidecar(self, base: int, view: memoryview, seal: SegmentSealed) -> Iterator[Finding]:
        path = sidecar.path_of(self._directory, base)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return
        if self._log is None:
            return
        sealed = Sealed(self._log.uuid, base, len(view), seal.crc)
        built = SegmentIndex.build(view, SEGMENT_HEADER_BYTES, len(view), base)
        if data != sidecar.encode(built, sealed):
            yield Finding(path.name, 0, base, "the sidecar does not say what its segment says", harmless=True)
