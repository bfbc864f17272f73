"""From a damaged log to a new one that holds everything the old one still does. The old one is only read.

The new log has a uuid of its own (a checkpoint or a sidecar of the old one says nothing about it) and the old one's id
key, so ids stay valid. Every record keeps its bytes, its sequence and its segment; only snapshots, seals and gaps are
written anew:

- A ``Gap`` names lost sequences. It has the last of them as its own sequence.
- A unit with a record that is known to be lost goes as a whole, and its sequences are named with the others (RULES 5).
  If a damaged record hides whether it ended a unit, the records behind it are kept: the client was told that all of
  the unit is safe, so part of it is better than nothing.
- A segment whose snapshot is lost gets the one that the facts before it give. One whose seal is lost is sealed again.
- A missing segment is named by a gap at the end of the one before it.
- Records behind the last one that the watermark (or a checkpoint, a sidecar) vouches for are named too, so that no
  sequence is given twice.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from syncbrok.log.format.codec import Corrupt, encode
from syncbrok.log.format.records import Gap, Record, SegmentOpened, SegmentSealed
from syncbrok.log.recovery.evidence import gather_evidence, known_through
from syncbrok.log.segments import files, watermark
from syncbrok.log.segments.descriptors import reading
from syncbrok.log.segments.scan import FoundRecord, UnreadableBytes, scan, span_of
from syncbrok.log.segments.segment import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    pack_segment_header,
    read_sealed,
    segment_bases,
    segment_path,
    unpack_segment_header,
)
from syncbrok.log.segments.watermark import Mark, Watermark
from syncbrok.model.errors import Conflict, LogCorrupt, Malformed
from syncbrok.model.facts import FileApplied, Outcome, QueueDeleted, QueueSet, SubscriberDeleted, SubscriberSet
from syncbrok.model.names import SEQUENCE_MAX

_TAKEN_ALONG = ("secrets.json",)
"""not the log's, but without it subscribers could not check what they are sent"""


class LostSequences(NamedTuple):
    """Sequences that are in no record of the new log. ``file`` and ``offset`` are where the damage begins."""

    first: int
    last: int
    file: str
    offset: int
    why: str


@dataclass(slots=True)
class SalvageReport:
    """The result of a salvage. ``notes`` say in words which parts had to be made anew."""

    segments: int = 0
    records: int = 0
    bytes: int = 0
    last: int = 0
    lost: list[LostSequences] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def lost_records(self) -> int:
        return sum(lost.last - lost.first + 1 for lost in self.lost)


def salvage(
    directory: Path, target: Path, progress: Callable[[int, int], None] = lambda _done, _total: None
) -> SalvageReport:
    """Write what can be read of the log in ``directory`` into ``target``, which must not exist or be empty
    (``Conflict``). ``progress(bytes done, bytes in all)`` is called after each segment. Raises ``Malformed`` where
    there is no log, ``LogCorrupt``, ``LogFailed``, ``OSError``; what was written by then is not a log."""
    if target.exists() and any(target.iterdir()):
        raise Conflict(f"{target} is not empty; salvage writes into a new directory", target=str(target))
    report = SalvageReport()
    salvager = _Salvager(directory, target, report)
    if not salvager.bases:
        raise Malformed(f"there is no log in {directory}")
    files.make_directory(target)
    sizes = {base: segment_path(directory, base).stat().st_size for base in salvager.bases}
    done = 0
    for base in salvager.bases:
        salvager.segment(base)
        done += sizes[base]
        progress(done, sum(sizes.values()))
    salvager.finish()
    return report


class _Declared:
    """Queues and subscribers as the facts so far declare them, for the snapshots that are lost."""

    def __init__(self) -> None:
        self._queues: dict[int, QueueSet] = {}
        self._subscribers: dict[int, SubscriberSet] = {}
        self._applied: dict[tuple[str, bool], FileApplied] = {}
        self._bad: tuple[tuple[int, Outcome], ...] = ()
        self._lost: tuple[tuple[int, int], ...] = ()
        self._rules = 1

    def apply(self, fact: Record) -> None:
        match fact:
            case QueueSet():
                self._queues[fact.number] = fact
            case SubscriberSet():
                self._subscribers[fact.number] = fact
            case FileApplied():
                self._applied[_place_of(fact)] = fact
            case SubscriberDeleted():
                self._subscribers.pop(fact.number, None)
            case QueueDeleted():
                self._queues.pop(fact.number, None)
                kept = {number: one for number, one in self._subscribers.items() if one.queue != fact.number}
                self._subscribers = kept
            case SegmentOpened():
                self._queues = {one.number: one for one in fact.queues}
                self._subscribers = {one.number: one for one in fact.subscribers}
                self._applied = {_place_of(one): one for one in fact.applied}
                self._bad, self._lost, self._rules = fact.bad, fact.lost, fact.rules
            case _:
                pass

    def snapshot(self, sequence: int, time_us: int) -> SegmentOpened:
        return SegmentOpened(
            sequence,
            time_us,
            tuple(self._queues.values()),
            tuple(self._subscribers.values()),
            tuple(self._applied.values()),
            self._bad,
            rules=self._rules,
            lost=self._lost,
        )


def _place_of(fact: FileApplied) -> tuple[str, bool]:
    """The numbers given last stand among the entries, under a name that a queue may have as well; they have a blank
    between them, and no hash has one."""
    return fact.entry, " " in fact.hash


class _Output:
    """A segment of the new log. ``end``, ``records`` and ``crc`` as of what was written."""

    def __init__(self, target: Path, header: SegmentHeader) -> None:
        self._file = segment_path(target, header.base).open("xb")
        self._file.write(pack_segment_header(header))
        self.end = SEGMENT_HEADER_BYTES
        self.records = 0
        self.crc = 0

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self.end += len(data)
        self.records += 1
        self.crc = crc32c(data, self.crc)

    def close(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()


class _Salvager:
    """Writes one segment after the other. ``_last`` is the sequence up to which the new log says something."""

    def __init__(self, directory: Path, target: Path, report: SalvageReport) -> None:
        self._directory = directory
        self._target = target
        self._report = report
        self._declared = _Declared()
        self._mark = _read_mark(directory, report)
        headers = {base: _header(segment_path(directory, base)) for base in segment_bases(directory)}
        uuid = self._mark.uuid if self._mark else next((one.uuid for one in headers.values() if one), None)
        for base, header in headers.items():
            if header and header.uuid != uuid:
                report.notes.append(f"{segment_path(directory, base).name} belongs to another log; left out")
        own = {base: header for base, header in headers.items() if not header or header.uuid == uuid}
        evidence = gather_evidence(directory, max(own, default=0))
        self._durable = max(self._mark.durable if self._mark else 0, known_through(evidence, uuid or b""))
        known = next((header for header in own.values() if header), None)
        if known is None:
            report.notes.append("the id key is lost: ids given out so far count as never issued")
        self.bases = list(own)
        self._uuid = os.urandom(16)
        self._id_key = known.id_key if known else os.urandom(16)
        self._created = {base: header.created_us if header else 0 for base, header in own.items()}
        self._last = self.bases[0] - 1 if self.bases else 0
        self._batch = self._time_us = self._end = 0

    def segment(self, base: int) -> None:
        """Take over the segment of ``base``. Raises ``LogCorrupt``, ``OSError``."""
        path = segment_path(self._directory, base)
        output = _Output(self._target, SegmentHeader(self._uuid, self._id_key, base, self._created[base]))
        try:
            # Read, not mapped: should a broker cut the file after all, that must not end the process.
            self._take(path.name, base, memoryview(read_sealed(path)), output)
        finally:
            output.close()
        self._end = output.end
        self._report.segments += 1
        self._report.bytes += output.end

    def finish(self) -> None:
        """Make it a log: take the secrets along, write the watermark last."""
        for name in _TAKEN_ALONG:
            if (self._directory / name).exists():
                shutil.copyfile(self._directory / name, self._target / name)
                (self._target / name).chmod(0o600)
                self._report.notes.append(f"{name} was copied")
        files.sync_directory(self._target)
        oldest = self.bases[0]
        mark = Watermark(self._target)
        mark.save(Mark(self._uuid, self._last, self.bases[-1], self._end, self._time_us, oldest, clean=True))
        mark.close()
        self._report.last = self._last

    def _take(self, name: str, base: int, view: memoryview, output: _Output) -> None:
        below = next((other for other in self.bases if other > base), 0)
        damage: UnreadableBytes | None = None
        sealed_at = below - 1 if below else 0
        for met in _whole_units(scan(view, SEGMENT_HEADER_BYTES, last=base - 1, below=below or SEQUENCE_MAX)):
            if isinstance(met, UnreadableBytes):
                damage = damage or met
                continue
            fact, header = met.record.fact, met.record.header
            if isinstance(fact, SegmentSealed):
                sealed_at = sealed_at or fact.sequence
                continue
            if not output.records and not isinstance(fact, SegmentOpened):
                self._snapshot(name, base, output)
            self._gap(name, span_of(fact)[0] - 1, damage, output)
            self._batch, self._time_us = header.batch, header.time_us
            self._put(fact, bytes(view[met.offset : met.offset + header.record_bytes]), output)
            self._report.records += 1
            damage = None
        if not output.records:
            self._snapshot(name, base, output)
        if not below and sealed_at < self._durable:
            sealed_at = 0  # the segments after it are gone: what they held is named here
        self._gap(name, sealed_at - 1 if sealed_at else self._durable, damage, output)
        if sealed_at:
            self._seal(name, sealed_at, output)

    # -- records made anew ---------------------------------------------------------------------------------------------

    def _snapshot(self, name: str, base: int, output: _Output) -> None:
        self._report.notes.append(f"{name}: its snapshot is lost; made anew of the facts before it")
        self._time_us = self._time_us or self._created[base]
        self._made(self._declared.snapshot(base, self._time_us), output)

    def _gap(self, name: str, last: int, damage: UnreadableBytes | None, output: _Output) -> None:
        """Name what is missing up to ``last``, if anything is."""
        first = self._last + 1
        if last >= first:
            damage = damage or UnreadableBytes(output.end, output.end, "the records are missing", None)
            self._report.lost.append(LostSequences(first, last, name, damage.offset, damage.why))
            self._made(Gap(last, self._time_us, first, last, f"{name}, offset {damage.offset}: {damage.why}"), output)

    def _seal(self, name: str, sequence: int, output: _Output) -> None:
        if self._last != sequence - 1:
            raise LogCorrupt(f"{name} holds sequence {self._last}, where its seal belongs: no broker wrote that")
        self._made(SegmentSealed(sequence, self._time_us, output.records, output.crc), output)

    def _made(self, fact: Record, output: _Output) -> None:
        self._put(fact, encode(fact, batch=self._batch), output)

    def _put(self, fact: Record, data: bytes, output: _Output) -> None:
        output.write(data)
        self._declared.apply(fact)
        self._last = span_of(fact)[1]


def _whole_units(places: Iterator[FoundRecord | UnreadableBytes]) -> Iterator[FoundRecord | UnreadableBytes]:
    """``places`` without the records of units of which one is known to be lost; each such unit is a ``UnreadableBytes``
    too."""
    held: list[FoundRecord] = []
    broken_batch = -1
    for met in places:
        if isinstance(met, UnreadableBytes):
            yield met
            if held:
                yield _broken(held)
                held = []
            header = met.header
            broken_batch = header.batch if header is not None and not header.ends_unit else -1
            continue
        header = met.record.header
        if header.batch == broken_batch:
            yield _broken([met])
            broken_batch = -1 if header.ends_unit else broken_batch
            continue
        broken_batch = -1
        held.append(met)
        if header.ends_unit:
            yield from held
            held = []
    if held:
        yield _broken(held)


def _broken(held: list[FoundRecord]) -> UnreadableBytes:
    end = held[-1].offset + held[-1].record.header.record_bytes
    return UnreadableBytes(held[0].offset, end, "another record of its unit is lost", None)


def _read_mark(directory: Path, report: SalvageReport) -> Mark | None:
    try:
        return watermark.read(directory)
    except LogCorrupt as problem:
        report.notes.append(problem.detail)
        return None


def _header(path: Path) -> SegmentHeader | None:
    with reading(path) as file:
        header = unpack_segment_header(files.read_around(file.fileno(), SEGMENT_HEADER_BYTES, 0))
    return None if isinstance(header, Corrupt) else header
