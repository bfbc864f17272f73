"""The journal in segment files (``model.journal.Log``): appends batches, makes them durable, reads them back, rolls
and drops segments. As a ``Follower`` it does so with batches that another one has encoded, byte for byte. It is one
subject: what is written, what is fsynced and what is said of it move together, under one writer.

Who may call what:

* the event loop: ``prepare``, ``prepare_snapshot``, ``cached``, ``cached_many``, ``in_memory``, ``sections``,
  ``damages``, ``damaged`` and the numbers; no system call is made there. ``has_room`` asks the disk for its free space;
* **one** writer at a time: ``append``, ``sync``, ``close``. A second one meanwhile is a mistake of the program and
  raises at once, it is not made to wait;
* any thread: everything that reads, ``trim_oldest``, ``sweep``, ``save_checkpoint``.

A section of the port is a segment here: a file that begins with a snapshot and, once sealed, never changes.

A commit is one system call: the segment is opened ``O_DSYNC``, and a writer thread that must get hold of a busy
interpreter once more between write and fsync was seen to wait for 100 ms (DESIGN section 5).
"""

import errno
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Self

from syncbrok.log.erasing import Erasing
from syncbrok.log.format.codec import Header, encode_batch, read_header
from syncbrok.log.format.records import SegmentOpened, facts_of
from syncbrok.log.index.ages import Ages
from syncbrok.log.index.segment_index import SegmentIndex
from syncbrok.log.index.segment_list import SegmentList
from syncbrok.log.reading.copies import read_copy
from syncbrok.log.reading.history import read_facts
from syncbrok.log.reading.reader import Reader
from syncbrok.log.reading.recent import Batch, OpeningBatch, Recent
from syncbrok.log.recovery.recovery import Recovered, RecoveryReport, recover
from syncbrok.log.segments import checkpoint, files, retention, segment
from syncbrok.log.segments.damage import DamagedRecords
from syncbrok.log.segments.directory_lock import DirectoryLock
from syncbrok.log.segments.options import PIPELINE, FileOptions
from syncbrok.log.segments.preallocation import PreallocatedFile
from syncbrok.log.segments.reserve import Reserve
from syncbrok.log.segments.segment import SEGMENT_HEADER_BYTES, ActiveSegment, SegmentHeader, SegmentInfo
from syncbrok.log.segments.single_writer import SingleWriter
from syncbrok.log.segments.watermark import Mark, Watermark
from syncbrok.model import limits
from syncbrok.model.errors import LogDiverged, LogFailed, LogFull
from syncbrok.model.facts import Fact, FactOrRun, Messages, Row, StoredMessage, Tried, last_sequence
from syncbrok.model.journal import (
    JournalOptions,
    KindName,
    LogIdentity,
    PreparedBatch,
    Section,
    TakeSnapshot,
    TimedRow,
)
from syncbrok.model.names import MessageId

__all__ = ["Batch", "FileJournal", "FileOptions", "RecoveryReport", "SegmentInfo"]

log = logging.getLogger(__name__)


class FileJournal:
    """See the module, and ``model.journal`` for what each method promises. Made by ``open``."""

    blocks_long = False
    refetches = False
    """others have what a start cuts off"""

    def __init__(
        self,
        directory: Path,
        options: JournalOptions,
        clock_us: Callable[[], int],
        in_files: FileOptions,
        recovered: Recovered,
        lock: DirectoryLock,
        identity: LogIdentity,
    ) -> None:
        self._directory = directory
        self._files = in_files
        self._clock_us = clock_us
        self._lock = lock
        self.identity = identity
        """see ``Follower``"""
        self.uuid, self.id_key = identity
        self.recovery: RecoveryReport = recovered.report
        """of its opening; see ``Journal``"""
        self.next_sequence = recovered.durable + 1
        """of the record that is appended next"""
        self.durable_sequence = self.synced_sequence = recovered.durable
        """through where the log survives what it promises to; and through where these files are fsynced"""
        self.lost_through = recovered.lost_through
        """records up to there stood here once, and whoever has them must be asked; 0: none"""
        self._prepared = self._written = recovered.batch
        """numbers of the last batch prepared and of the last one written"""
        self._always = options.sync == "always"
        self._syncs_each = self._always and in_files.syncs_each
        self._writing = SingleWriter()
        self._segment_list = SegmentList(self.uuid, recovered.sealed, in_files.indexes_max, self.id_key)
        self._ages = Ages(self._segment_list)
        self._reader = Reader(self._segment_list, lambda: self.next_sequence)
        self._recent = Recent()
        self._reserve = Reserve(directory, in_files.reserve_bytes)
        self._changing = Lock()
        """held while the watermark or the set of segments changes: two threads may (writer, retention)"""
        self._saving = Lock()
        self._erasing = Erasing(directory, self._segment_list, self.id_key, self._changing)
        self._watermark = Watermark(directory)
        self._marked_us = 0
        self._misread: int | None = None
        """the first record of the active segment that an older version would misread; None: there is none, 0: the
        watermark vouches for it"""
        self._oldest = recovered.mark.oldest if recovered.mark else 0
        self._active: ActiveSegment | None = None
        self._index: SegmentIndex | None = None
        self._synced_place = (0, 0)
        """``synced_sequence`` and where in the active segment its record ends: one value, so that a mark that another
        thread saves has both of one moment"""
        self._background = ThreadPoolExecutor(1, thread_name_prefix="syncbrok-log")
        self._preallocated = PreallocatedFile(directory, in_files.segment_bytes, self._background)
        if recovered.active:
            info, crc, places = recovered.active
            self._adopt(ActiveSegment(info.path, info, crc, every_write_synced=self._syncs_each), places)

    @classmethod
    def open(
        cls,
        directory: Path,
        options: JournalOptions,
        clock_us: Callable[[], int],
        progress: Callable[[int, int], None] | None = None,
        *,
        in_files: FileOptions = FileOptions(),  # noqa: B008 (frozen)
        identity: LogIdentity | None = None,
    ) -> Self:
        """Take the lock, recover what is there. An empty directory makes an empty log without a segment:
        it ``wants_snapshot`` then. ``progress`` is told (segments looked at, segments in all). ``identity``: of the log
        that it is to be a copy of; ``LogDiverged`` where it is of another. Raises ``LogLocked``, ``LogCorrupt``,
        ``LogFull`` or ``LogFailed``."""
        lock = DirectoryLock(directory)
        try:
            recovered = recover(directory, progress, refetches=cls.refetches)
            if recovered.report.broken:
                log.warning("syncbrok.log.tail_cut", extra=recovered.report._asdict())
            own = recovered.identity(directory, identity)
            retention.drop_leftovers(recovered.leftovers, clock_us())
            journal = cls(directory, options, clock_us, in_files, recovered, lock, own)
            journal._reserve.make()
            if recovered.header:
                journal._mark(clean=False)
        except OSError as problem:
            lock.release()
            raise files.opening_problem(problem, directory) from problem
        except BaseException:
            lock.release()
            raise
        return journal

    def __repr__(self) -> str:
        writing, full = self._writing, self._reserve.short
        state = "failed" if writing.failed else "closed" if writing.closed else "full" if full else "open"
        return f"<FileJournal {state} segments={len(self._segment_list.parts)} next={self.next_sequence}>"

    # -- numbers ------------------------------------------------------------------------------------------------------

    @property
    def first_sequence(self) -> int:
        """See ``Journal``."""
        return self._segment_list.oldest

    @property
    def wants_snapshot(self) -> bool:
        """The active segment is full, or there is none."""
        active = self._active
        if active is None:
            return True
        # A snapshot as large as a segment (of thousands of queues, of a million messages that ended badly) would fill
        # each new one, and the log would roll for ever: as much again must follow it.
        return active.end >= max(self._files.segment_bytes, 2 * active.snapshot_end)

    def sections(self) -> tuple[SegmentInfo, ...]:
        """All segments, oldest first; the active one last."""
        while True:
            last, parts, active = self.next_sequence - 1, self._segment_list.parts, self._active
            infos = [part.info for part in parts]
            if parts and parts[-1].active is not None:
                if active is None or active.base != infos[-1].base:
                    continue  # the writer has sealed it since, and told the list before it changed ``_active``
                infos[-1] = active.info(max(last, infos[-1].last))
            return tuple(infos)

    def synced_sections(self) -> tuple[SegmentInfo, ...]:
        """As ``sections``, for those who read the files: the active segment only as far as it is fsynced, in whole
        batches."""
        while True:
            active, infos, (sequence, end) = self._active, self.sections(), self._synced_place
            if not infos or infos[-1].sealed:
                return infos
            if active is not None and active is self._active and infos[-1].base == active.base <= sequence:
                return (*infos[:-1], infos[-1]._replace(last=sequence, bytes=end))

    def has_room(self) -> bool:
        """True if appending may be tried again after ``LogFull``."""
        return self._reserve.has_room()

    # -- writing ------------------------------------------------------------------------------------------------------

    def prepare(self, facts: Sequence[FactOrRun], unit_ends: Collection[int] | None = None) -> Batch:
        """Encode one write. The sequences of ``facts`` must follow each other. ``unit_ends``: positions of the records
        that end a client's unit, None for all of them; the last record always ends one."""
        self._prepared += 1
        first, last = facts[0].sequence, last_sequence(facts[-1])
        # Where each write is synced all before it are on the disk when it is written, so it says so of them.
        synced_through = first - 1 if self._syncs_each else self.synced_sequence
        encoded = encode_batch(facts, batch=self._prepared, synced_through=synced_through, unit_ends=unit_ends)
        assert last - first == len(encoded.ends) - 1, "sequences follow each other"
        assert unit_ends is None or last - first in unit_ends, "a unit does not reach over batches"
        messages = tuple([fact for fact in facts if type(fact) is Messages])
        data, ends, stretches, misread = encoded
        return Batch(self._prepared, first, last, facts[-1].time_us, data, ends, stretches, messages, misread)

    def append(self, batch: PreparedBatch, *, essential: bool = False) -> None:
        """Append a batch whose first sequence is ``next_sequence``; that of a snapshot seals the active segment and
        begins the next. Raises ``LogFull``: nothing was written and its sequences are free again, but that the seal may
        have been: then no segment is active. Raises ``LogFailed``: never usable again.

        ``essential``: where the disk is full the reserve is released for it, and it may go into a full segment where
        the roll found no room."""
        with self._writing:
            if isinstance(batch, OpeningBatch):
                self._roll(batch, essential=essential)
                return
            assert isinstance(batch, Batch), "prepared by another journal"
            self.check_next(batch, essential=essential)
            active = self._active
            assert active is not None
            if batch.synced_through > self.synced_sequence:
                self._sync()
            at = active.end
            self._append(active, batch, essential=essential)
            self._count(batch, at)
            self._mark_if_due()

    def check_next(self, batch: Batch | OpeningBatch, *, essential: bool) -> None:
        """Raises ``LogFull`` where it is known that there is no room, ``AssertionError`` for one that is not next."""
        if isinstance(batch, OpeningBatch):
            first = self._opening_sequence() if self._segment_list.parts else batch.first
            assert batch.first == first, f"snapshot {batch.first}, not {first}"
        else:
            assert batch.first == self.next_sequence, f"batch {batch.first}, next is {self.next_sequence}"
        assert batch.number > self._written, "batches are written in the order in which they were prepared"
        if self._reserve.short and not essential and not self.has_room():
            raise LogFull("no room on the disk for the log; only outcomes are still recorded")
        if self._active is None and isinstance(batch, Batch):
            raise LogFull("no room on the disk for a segment of the log")

    def _append(self, active: ActiveSegment, batch: Batch, *, essential: bool) -> None:
        try:
            active.append(batch.data, len(batch.ends), batch.time_us)
        except LogFull:
            log.warning("syncbrok.log.full", extra={"next_sequence": self.next_sequence, "essential": essential})
            if not self._reserve.ran_short(essential=essential):
                raise
            active.append(batch.data, len(batch.ends), batch.time_us)

    def _count(self, batch: Batch, at: int) -> None:
        """Add the written batch to what readers of the log see."""
        assert self._index is not None
        self._index.extend(batch.data, at, [0, *batch.ends[:-1]], batch.stretches)
        self._recent.add(batch)
        self.next_sequence = batch.last + 1
        self._written = batch.number
        if batch.misread and self._misread is None:
            self._misread = batch.first
        if self._syncs_each:
            self._now_synced()

    def _now_synced(self) -> None:
        assert self._active is not None
        self._synced_place = (self.next_sequence - 1, self._active.end)
        self.durable_sequence = self.synced_sequence = self.next_sequence - 1

    def sync(self) -> bool:
        """Make what was written durable and save the watermark; returns True if it must be called again in a second.

        Everything written is on the disk on return. The watermark is saved if a second has passed since the last time.
        True means that the watermark is still behind what is on the disk:
        without another call, readers beside an idle broker would never see the last records. Raises ``LogFailed``.
        """
        with self._writing:
            self._sync()
            self._mark_if_due()
            return self._is_mark_behind()

    def _sync(self) -> None:
        if self._active is not None and self.synced_sequence < self.next_sequence - 1:
            self._active.sync()
            self._now_synced()

    # -- segments -----------------------------------------------------------------------------------------------------

    def prepare_snapshot(self, take: TakeSnapshot, time_us: int) -> OpeningBatch:
        """The snapshot that the next segment will begin with; the seal of the active one goes before it."""
        parts = self._segment_list.parts
        if self._active is None and parts:
            # There was no room behind the seal, or a crash: as if both were of now. A copy tells one from the other.
            number, time_us = self._written + 1, parts[-1].info.last_time_us
        else:
            number = self._prepared + 2  # the one before is the seal's
        self._prepared = max(self._prepared, number)
        snapshot = take(self._opening_sequence(), time_us)
        return OpeningBatch(number, SegmentOpened.of(snapshot, self._clock_us()))

    def _opening_sequence(self) -> int:
        return self.next_sequence + (self._active is not None)

    def _roll(self, batch: OpeningBatch, *, essential: bool) -> None:
        self.check_next(batch, essential=essential)
        if not self._segment_list.parts and batch.first != (self._oldest or 1):
            self._begin_at(batch.first)
        try:
            active = self._begin(batch)
        except LogFull:
            if not self._reserve.ran_short(essential=essential):
                raise
            active = self._begin(batch)
        data = batch.data
        index = SegmentIndex(batch.first)
        index.extend(data, SEGMENT_HEADER_BYTES, [0])
        self._recent.add(Batch(batch.number, batch.first, batch.first, batch.opened.time_us, data, [len(data)]))
        self._written = batch.number
        self._adopt(active, index)
        self._mark(clean=False)
        self._preallocated.begin(SEGMENT_HEADER_BYTES + 2 * len(data))

    def _begin(self, batch: OpeningBatch) -> ActiveSegment:
        blank = self._preallocated.wait(SEGMENT_HEADER_BYTES + len(batch.data))
        if self._active is not None:
            if self._watermark.saved is None:
                # There was no room for it. A start takes a sealed end without a watermark for a log that lost its rest.
                with self._changing:
                    self._save_mark(clean=False, oldest=self._oldest or self._segment_list.oldest)
            self._seal(self._active, batch.number - 1, batch.opened.time_us)
        header = SegmentHeader(self.uuid, self.id_key, batch.first, batch.opened.time_us)
        return ActiveSegment.create(blank, header, batch.data, batch.opened, every_write_synced=self._syncs_each)

    def _begin_at(self, first: int) -> None:
        """Say before it is there that the log begins with this segment, where another one may have been expected:
        else a start would miss those before it."""
        self._oldest = first
        with self._changing:
            now_us = self._clock_us()
            self._watermark.save(Mark(self.uuid, 0, first, SEGMENT_HEADER_BYTES, now_us, first, clean=False))

    def _seal(self, active: ActiveSegment, number: int, time_us: int) -> None:
        self._sync()
        sequence = self.next_sequence
        info = active.seal(sequence, time_us, number, sequence - 1)
        assert self._index is not None
        seal = segment.read_segment(info.path, info.bytes - segment.SEAL_BYTES, info.bytes)
        self._index.extend(seal, info.bytes - segment.SEAL_BYTES, [0])
        self._recent.add(Batch(number, sequence, sequence, time_us, seal, [len(seal)]))
        self.next_sequence, self._written = sequence + 1, number
        with self._changing:
            self.durable_sequence = self.synced_sequence = sequence
            self._segment_list.sealed(info)
            self._active = self._index = None
        self._background.submit(self._segment_list.write_sidecar, info)

    def _adopt(self, active: ActiveSegment, index: SegmentIndex) -> None:
        """Go on in this segment, all of which is durable. Readers find what is in it before they are told of it; a
        watermark that another thread saves meanwhile says where it ends, not where the one before did."""
        with self._changing:
            self._active, self._index, self._synced_place = active, index, (index.last, active.end)
            self._segment_list.opened(active.info(index.last), index)
            self.next_sequence, self.durable_sequence, self.synced_sequence = index.last + 1, index.last, index.last
        self._misread = None

    def opened_us(self, section: Section) -> int:
        """See ``Sections``."""
        return self._ages.opened_us(self._info(section))

    def sealed_us(self, section: Section) -> int:
        """See ``Sections``."""
        return self._ages.sealed_us(self._info(section))

    def expired(self, before_us: int) -> tuple[SegmentInfo, ...]:
        """See ``Sections``."""
        return retention.expired(self.sections(), before_us, self._ages.sealed_us)

    def held_back(self, section: Section) -> bool:
        """True while the pipeline archives the log and has not archived this section yet."""
        path = segment.segment_path(self._directory, section.first)
        return self._files.archive == PIPELINE and not retention.may_drop(path, PIPELINE)

    def stands_in(self, section: Section, messages: Sequence[int]) -> bool:
        """See ``Sections``."""
        return self._reader.stands_in(self._info(section), messages)

    def check(self, section: Section) -> None:
        """See ``Sections``."""
        self._segment_list.scrub(self._info(section))

    @property
    def damages(self) -> Mapping[int, tuple[DamagedRecords, ...]]:
        """See ``Sections``."""
        return self._segment_list.all_damages

    @property
    def damaged(self) -> Mapping[str, str]:
        """See ``Sections``."""
        return self._segment_list.damaged

    @staticmethod
    def _info(section: Section) -> SegmentInfo:
        assert isinstance(section, SegmentInfo), "a section of another journal"
        return section

    def trim_oldest(self) -> None:
        """See ``Sections``. A later ``sweep`` unlinks the file."""
        self._ready_to_trim()
        self._trim()

    def _ready_to_trim(self) -> None:
        """All that may keep the oldest segment from going."""
        self._writing.check()
        info = self._segment_list.parts[0].info
        assert info.sealed, "only a sealed segment is dropped, the last one stays"
        damaged = info.base in self._segment_list.damages
        if damaged:
            self._segment_list.check_disk()
        archive, writer = self._files.archive, self._files.archive_writer
        if retention.archive_first(info.path, archive, self._note_archived, damaged=damaged, writer=writer) and damaged:
            what = {"file": info.path.name, "detail": self._segment_list.damaged.get(info.path.name, "")}
            log.warning("syncbrok.log.damage_archived", extra=what)

    def _note_archived(self, copy: retention.Copy) -> None:
        """A segment was copied into the archive: from now on a start knows."""
        retention.note(self._directory, [copy])

    def _trim(self) -> None:
        parts = self._segment_list.parts
        info = parts[0].info
        with self._changing:
            # First the decision, then the deed: a start in between finishes it, and so does a sweep.
            self._save_mark(clean=False, oldest=parts[1].info.base)
            self._oldest = parts[1].info.base
            # Readers know of it before the file goes: who does not find the file looks again, and elsewhere.
            self._segment_list.dropped(info.base)
            try:
                retention.drop_leftovers([info.path], self._clock_us())
            except OSError as problem:
                raise LogFailed(f"dropping {info.path} failed: {problem}") from problem

    # -- a copy -------------------------------------------------------------------------------------------------------

    def prepare_copy(self, data: bytes) -> tuple[Batch | OpeningBatch, tuple[FactOrRun, ...]]:
        """See ``Follower``. Where not each write is synced, what a record says of those before it is made true when it
        is appended: they are synced first."""
        opening = self._opening_sequence() if self._segment_list.parts else None
        batch, facts = read_copy(data, self.next_sequence, opening, self._written)
        if isinstance(batch, Batch) and self._active is None:
            raise LogDiverged(f"the batch of {batch.first} stands in a segment that has not been opened here")
        self._prepared = batch.number
        return batch, facts

    def drop_before(self, first: int) -> None:
        """See ``Follower``."""
        if first > self.first_sequence and all(section.first != first for section in self.sections()):
            raise LogDiverged(f"no segment begins with {first}, so those before it cannot be dropped")
        while self.first_sequence < first:
            self.trim_oldest()

    def sweep(self, now_us: int) -> None:
        """Unlink what was dropped a while ago. Raises ``OSError`` or ``LogFailed``."""
        bases = segment.segment_bases(self._directory) if self._oldest else ()
        left = [segment.segment_path(self._directory, base) for base in bases if base < self._oldest]
        retention.drop_leftovers(left, now_us)
        gone = retention.sweep(self._directory, now_us)
        if gone:
            log.info("syncbrok.log.swept", extra={"files": gone})

    # -- reading ------------------------------------------------------------------------------------------------------

    def facts(self, after: int = 0) -> Iterator[Fact]:
        """See ``Journal``."""
        return self._erasing.redacted_facts(facts_of(self._reader.replay(after)))

    def facts_or_runs(self, after: int = 0) -> Iterator[FactOrRun]:
        """See ``Journal``."""
        return facts_of(read_facts(self._segment_list, after))

    def inherited(self) -> Iterator[Fact]:
        """See ``Journal``."""
        return facts_of(self._reader.inherited())

    def read_many(self, sequences: Sequence[int], bytes_max: int | None = None) -> list[StoredMessage | None]:
        """See ``MessageIndex``."""
        return self._erasing.redacted_messages(self._reader.messages(sequences, bytes_max))

    def lost(self, sequence: int) -> StoredMessage | None:
        """See ``MessageIndex``."""
        return self._reader.lost(sequence)

    def place_of(self, sequence: int) -> tuple[MessageId, int] | None:
        """See ``MessageIndex``."""
        return self._reader.places_of((sequence,))[0]

    def places_of(self, sequences: Sequence[int]) -> list[tuple[MessageId, int] | None]:
        """See ``MessageIndex``."""
        return self._reader.places_of(sequences)

    def rows_of(self, sequence: int) -> list[tuple[int, Row]]:
        """See ``MessageIndex``."""
        return [(one.record, one.row) for one in self.timed_rows_of(sequence)]

    def carried_tries(self, sequence: int) -> tuple[Tried, ...]:
        """See ``MessageIndex``."""
        return self._reader.carried_tries(sequence)

    def timed_rows_of(self, sequence: int) -> list[TimedRow]:
        """See ``MessageIndex``."""
        return self.timed_rows_of_many((sequence,))[0]

    def timed_rows_of_many(self, sequences: Sequence[int]) -> list[list[TimedRow]]:
        """See ``MessageIndex``."""
        rows = self._reader.rows_of_many(sequences)
        return [self._erasing.redacted_rows(sequence, rows[sequence]) for sequence in sequences]

    def children_of(self, sequence: int, limit: int) -> list[int]:
        """See ``MessageIndex``."""
        return self._reader.children_of(sequence, limit)

    def queue_sequences(self, queue: int, after: int, limit: int) -> list[int]:
        """See ``MessageIndex``."""
        return self._reader.queue_sequences(queue, after, limit)

    def sequences_between(
        self, queues: Collection[int] | None, after: int, before: int, limit: int, *, newest_first: bool
    ) -> list[int]:
        """See ``MessageIndex``."""
        return self._reader.sequences_between(queues, after, before, limit, newest_first=newest_first)

    def others_between(
        self, after: int, before: int, limit: int, *, newest_first: bool
    ) -> list[tuple[int, Fact | None]]:
        """See ``MessageIndex``."""
        found = self._reader.others_between(after, before, limit, newest_first=newest_first)
        return [(at, None if one is None else next(facts_of((one,)), None)) for at, one in found]

    def first_at(self, time_us: int) -> int:
        """See ``MessageIndex``."""
        return self._reader.first_at(time_us)

    def with_key(self, key: str, queue: int | None, limit: int, before: int | None = None) -> list[int]:
        """See ``MessageIndex``."""
        return self._reader.with_key(key, queue, limit, before, self._erasing.hidden)

    def with_idempotency_key(self, key: str, queue: int | None, since_us: int) -> list[int]:
        """See ``MessageIndex``."""
        return self._reader.with_idempotency_key(key, queue, since_us)

    def cached(self, sequence: int) -> StoredMessage | None:
        """A message written lately, from memory alone; an erased one is not there."""
        return None if sequence in self._erasing.hidden else self._recent.message(sequence)

    def cached_many(self, sequences: Sequence[int]) -> list[StoredMessage | None]:
        """As ``cached`` for each of these, in ascending order."""
        hidden, found = self._erasing.hidden, self._recent.messages(sequences)
        return [None if one is None or one[0] in hidden else one for one in found] if hidden.count else found

    def in_memory(self, sequence: int) -> bool:
        """Whether ``cached`` has it, if it is a message."""
        return self._recent.find(sequence) is not None

    def kind_of(self, sequence: int) -> KindName:
        """See ``MessageIndex``."""
        found = self._recent.find(sequence) if sequence >= self._segment_list.oldest else None
        if found is not None:
            header = read_header(*found, verify=False)
            if isinstance(header, Header):
                return "message" if header.kind == 1 else "other"
        return self._reader.kind_of(sequence)

    # -- erasure ------------------------------------------------------------------------------------------------------

    def hide(self, messages: Collection[int]) -> None:
        """See ``Erasure``."""
        self._erasing.hide(messages)

    def erase_waits_for_snapshot(self, messages: Collection[int], through: int) -> bool:
        """See ``Erasure``."""
        del through
        return self._erasing.in_open_segment(messages)

    def erase(self, messages: Collection[int], before: int | None = None) -> int:
        """See ``Erasure``. ``before``: only out of segments that begin before this record."""
        self._writing.check()
        return self._erasing.erase(messages, self._files.archive, before)

    # -- checkpoints and the watermark --------------------------------------------------------------------------------

    def save_checkpoint(self, through: int, parts: Mapping[str, bytes]) -> None:
        """Replace the checkpoint by one of the state after ``through``. Raises ``OSError``, also where the record of
        ``through`` cannot be read, ``LogUnreadable`` or ``LogFailed``."""
        self._writing.check()
        record_crc = self._crc_of_record(through)
        if record_crc is None:
            raise OSError(errno.EIO, f"the record {through}, which it would end with, is damaged")
        if through <= self.synced_sequence:
            with self._saving:  # two would write into the same unfinished file
                checkpoint.save(self._directory, self.uuid, through, record_crc, parts)

    def load_checkpoint(self) -> tuple[int, dict[str, bytes]] | None:
        """(through, parts) of the newest checkpoint that fits this log."""
        return checkpoint.load(self._directory, self.uuid, self._crc_of_record)

    def _crc_of_record(self, sequence: int) -> int | None:
        header = self._reader.header(sequence)
        return header.header_crc if header else None

    def _mark_if_due(self) -> None:
        # An older version may take what it would misread for a torn tail, above the watermark. Below it it refuses.
        misread = self._misread and self._misread <= self.synced_sequence
        late = abs(self._clock_us() - self._marked_us) >= limits.watermark_every_s * 1e6
        if self._is_mark_behind() and (misread or late):
            self._mark(clean=False)
            if misread and not self._is_mark_behind():
                self._misread = 0

    def _is_mark_behind(self) -> bool:
        saved = self._watermark.saved
        return saved is None or saved.durable < self.synced_sequence

    def _mark(self, *, clean: bool) -> None:
        parts = self._segment_list.parts
        with self._changing:
            try:
                self._save_mark(clean=clean, oldest=self._oldest or (parts[0].info.base if parts else 0))
            except LogFull:
                log.warning("syncbrok.log.no_watermark")  # without a new one less is vouched for, and that is all

    def _save_mark(self, *, clean: bool, oldest: int) -> None:
        parts = self._segment_list.parts
        if not parts:
            return
        self._marked_us = self._clock_us()
        newest = parts[-1].info
        durable, end = self._synced_place if self._active else (newest.last, newest.bytes)
        mark, saved = Mark(self.uuid, durable, newest.base, end, self._marked_us, oldest, clean), self._watermark.saved
        if durable < self.lost_through and saved is not None:
            mark = saved._replace(time_us=self._marked_us, oldest=oldest, clean=False)  # or nobody knew what is missing
        self._watermark.save(mark)

    def close(self) -> None:
        """Make everything durable, say that it is, let go of the lock. A failed journal only lets go."""
        if self._writing.closed:
            return
        with self._writing.last() as is_usable:
            self._preallocated.close()
            self._background.shutdown(wait=True)
            try:
                if is_usable:
                    self._sync()
                    if self._active is not None:
                        self._segment_list.write_active_sidecar(self._active.path, self._active.crc)
                    self._mark(clean=True)
                    with suppress(OSError):  # the next start takes it away
                        self._preallocated.path.unlink()
            finally:
                if self._active is not None:
                    self._active.close()
                self._watermark.close()
                self._lock.release()
