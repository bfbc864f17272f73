"""The job ``archive``: sealed segments of a log become Parquet, exactly once, and retention is told.

    OUT/messages/queue=QUEUE/day=DAY/{first}-{last}-00000.parquet      all that was published, sorted by sequence
    OUT/deliveries/queue=QUEUE/day=DAY/...                             every attempt and every end
    OUT/facts/day=DAY/...                                              every record: what was declared, carried, sealed
    OUT/_syncbrok/{first}-{last}.000000.json                           the manifest: what counts, with checksums
    OUT/_syncbrok/log                                                  which log's archive it is, also while it is empty
    OUT/{facts,deliveries,messages}/_delta_log                         the same files as Delta tables, once they were
                                                                       asked for (archive.delta_tables)

Each row of the log is in the archive exactly once, whatever happens: a run may be killed at any point and repeated, and
segments may be sealed and dropped meanwhile (a run looks at the log once and archives the segments sealed by then).
Archived segments are noted in the file ``archived`` beside the log, in a cluster by its leader for all nodes, and a
broker with ``storage.archive: pipeline`` drops only those.
"""

import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import IO, Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from syncbrok.log.segments import retention
from syncbrok.log.segments.retention import Copy
from syncbrok.log.segments.segment import segment_path
from syncbrok.model.errors import SyncbrokError
from syncbrok.model.limits import MIB
from syncbrok.pipeline import log_snapshot
from syncbrok.pipeline.archive import archive_reader
from syncbrok.pipeline.archive import commit as archive_commit
from syncbrok.pipeline.archive.compaction import CompactionResult, compact_all
from syncbrok.pipeline.archive.delta_tables import DeltaTables
from syncbrok.pipeline.archive.erasing import ErasedMessages, erased_behind, take_out
from syncbrok.pipeline.archive.group_writer import write_group
from syncbrok.pipeline.archive.manifest import ArchiveDamaged, ArchivedSegment, Manifest, MissingSequences, gaps
from syncbrok.pipeline.archive.plan import SegmentGroup, check_owner, check_same, plan
from syncbrok.pipeline.archive.range_source import LogRange
from syncbrok.pipeline.archive.retention_list import MarkerFile, NoList, RetentionList
from syncbrok.pipeline.archive.store import ArchiveStore
from syncbrok.pipeline.broker_log import BrokerLog
from syncbrok.pipeline.decode.open_segment import has_erased
from syncbrok.pipeline.log_snapshot import LogSnapshot, Place
from syncbrok.pipeline.schema import KINDS

KEEP_REPLACED_S: Final = 86_400.0
"""how long files that were compacted stay for those who read them"""
KEEP_VERSIONS_S: Final = 7 * 86_400.0
"""the same where there are Delta tables, whose readers may ask for an earlier version"""
_GROUP_BYTES_MIN: Final = 2_048 * MIB
_GROUP_BYTES_EACH: Final = 1_024 * MIB
"""for each core: a commit costs some seconds, however much it holds"""


class ArchiveBusy(SyncbrokError):
    """Another run archives this log, or this process may not write beside it."""

    slug = "archive-busy"


class ArchivedKind(NamedTuple):
    """The archived rows of one kind."""

    rows: int
    files: int
    bytes: int


class ArchiveResult(NamedTuple):
    """The result of a run.

    ``log`` is the log's uuid, ``out`` the archive's URI. ``segments`` with sequences from ``first`` to ``last`` (0:
    none) and ``log_bytes`` were archived, ``written`` by kind. ``noted`` segments are new in retention's list. The
    archive ends with sequence ``through``. ``gaps`` are missing in both archive and log. ``waiting`` segments are not
    sealed yet. ``removed_files`` were left from compactions long enough ago; ``erased_files`` were written anew,
    without what the broker has erased. ``tables``: the versions of the Delta tables, by kind; none if there are none.
    """

    log: str
    out: str
    segments: int
    first: int
    last: int
    log_bytes: int
    written: dict[str, ArchivedKind]
    noted: int
    through: int
    gaps: tuple[MissingSequences, ...]
    waiting: int
    compacted: CompactionResult
    removed_files: int
    erased_files: int
    tables: dict[str, int]
    seconds: float

    @property
    def messages_per_s(self) -> float:
        return self.written["messages"].rows / self.seconds


def archive(
    spark: SparkSession,
    storage: Path | str | BrokerLog,
    out: str,
    *,
    compact: bool = False,
    progress: Callable[[str], None] = lambda _: None,
    delta: bool = False,
    keep_replaced_s: float | None = None,
    group_bytes: int | None = None,
    of_cluster: RetentionList | None = None,
) -> ArchiveResult:
    """Archive the sealed segments of the log at ``storage`` that are not yet in the archive at ``out`` (a path or URI
    of any Hadoop file system). ``progress`` is told each step. ``group_bytes`` of the log are committed together.
    ``delta``: its rows are Delta tables too, from now on. ``keep_replaced_s``: how long replaced files stay; None: a
    day, a week where there are tables. ``of_cluster``: who is told what is archived, where the log is a node's; nothing
    is written to ``storage`` then. Of a log over the network nobody is told.

    Raises ``ArchiveBusy``, ``AnotherLog``, ``ArchiveDamaged``, ``ArchiveDiffers``, ``ArchiveUnreachable``,
    ``BadSetting`` (``delta`` where there can be none), ``LogCorrupt``, Spark's errors, and what ``of_cluster`` raises.
    Earlier commits stay, and the next run goes on from there."""
    started_s = time.monotonic()
    place = log_snapshot.place_of(storage)
    retention_list, lock = _beside(place, of_cluster)
    with ExitStack() as held:
        held.enter_context(lock)
        store = ArchiveStore(spark, out)
        progress("looking")
        log = log_snapshot.take_snapshot(place)
        held.enter_context(retention_list.alone(log.uuid.hex()))
        if isinstance(place, BrokerLog):
            held.enter_context(_alone_here(place, log.uuid.hex()))
        before = _own(store, log)
        told = _Told(retention_list, log.uuid.hex(), store)
        tables = _Following(store, log.uuid.hex(), asked=delta)
        tables.follow()
        erased = erased_behind(spark, log, before)
        erased_files = take_out(spark, store, log, before, erased, progress, tables.follow)
        before = archive_commit.manifests(store)
        planned = plan(log, before, group_bytes or _group_bytes(spark))
        noted = told.known(before, planned.known)
        made: list[Manifest] = []
        for number, group in enumerate(planned.groups, 1):
            progress(f"segments {group.segments[0].base} to {group.segments[-1].last} ({number}/{len(planned.groups)})")
            read = _reader(spark, store, log, group, [*before, *made], erased)
            made.append(write_group(spark, store, group, log.uuid, read))
            noted += told.archived(made[-1].segments)
            tables.follow()
        compacted = compact_all(spark, store, progress) if compact else CompactionResult()
        tables.follow(rearranged=True)
        swept = archive_commit.drop_replaced(store, int(time.time() * 1000), tables.keep_s(keep_replaced_s))
    segments = [one for manifest in made for one in manifest.segments]
    return ArchiveResult(
        log=log.uuid.hex(),
        out=store.uri,
        segments=len(segments),
        first=segments[0].base if segments else 0,
        last=segments[-1].last if segments else 0,
        log_bytes=sum(one.bytes for one in segments),
        written={kind: _written(kind, made) for kind in KINDS},
        noted=noted,
        through=max((one.name.last for one in (*before, *made)), default=0),
        gaps=planned.gaps,
        waiting=planned.waiting,
        compacted=compacted,
        removed_files=swept.files,
        erased_files=erased_files,
        tables=tables.versions,
        seconds=time.monotonic() - started_s,
    )


class _Following:
    """The Delta tables of an archive that has some, or was ``asked`` for them; else nothing is done."""

    def __init__(self, store: ArchiveStore, log: str, *, asked: bool) -> None:
        self._store, self._tables = store, DeltaTables(store, log)
        self._kept = asked or self._tables.exist()
        self.versions: dict[str, int] = {}

    def keep_s(self, asked: float | None) -> float:
        """How long replaced files stay: as ``asked``, or as readers need."""
        return (KEEP_VERSIONS_S if self._kept else KEEP_REPLACED_S) if asked is None else asked

    def follow(self, *, rearranged: bool = False) -> None:
        """See ``DeltaTables``."""
        if self._kept:
            self.versions = self._tables.follow(archive_commit.manifests(self._store), rearranged=rearranged)


def _own(store: ArchiveStore, log: LogSnapshot) -> list[Manifest]:
    """The manifests of the archive, which is this log's from now on; what a killed run has left is gone. Raises
    ``AnotherLog`` where it is another's."""
    found = archive_commit.manifests(store)
    check_same(log, found, partial(has_erased, uuid=log.uuid))
    if not found:
        _begin(store, log)
    archive_commit.clean(store)  # only now: it is this log's archive, so nobody else is at work here
    return found


def _begin(store: ArchiveStore, log: LogSnapshot) -> None:
    """Make an archive without a manifest this log's. Raises ``AnotherLog`` where it is another's already."""
    owner = archive_commit.owner(store)
    if owner is None:
        archive_commit.begin(store, log.uuid.hex())
    else:
        check_owner(log, owner)


def _written(kind: str, made: Sequence[Manifest]) -> ArchivedKind:
    files = [one for manifest in made for one in manifest.files if one.kind == kind]
    return ArchivedKind(sum(one.rows for one in files), len(files), sum(one.bytes for one in files))


def _group_bytes(spark: SparkSession) -> int:
    return max(_GROUP_BYTES_MIN, _GROUP_BYTES_EACH * spark.sparkContext.defaultParallelism)


def _reader(
    spark: SparkSession,
    store: ArchiveStore,
    log: LogSnapshot,
    group: SegmentGroup,
    archived: Sequence[Manifest],
    erased: ErasedMessages,
) -> Callable[[str], DataFrame]:
    """A reader of the rows of a group. A carried message is a row only if it is archived nowhere else: its own segment
    was dropped before it was archived, and no earlier group has the message. What is ``erased`` is left out."""
    name = group.name
    lost = gaps(sorted(one.name for one in archived), log.oldest)

    def read(kind: str) -> DataFrame:
        return erased.left_out(found(kind), kind)

    def found(kind: str) -> DataFrame:
        if kind != "messages" or not lost:
            return LogRange(spark, log.place, kind, name.first, name.last).frame()
        rows = LogRange(spark, log.place, kind, name.first, name.last, log.oldest).frame()
        return archive_reader.without_known(spark, store, archived, lost, rows, name.first)

    return read


class _Told:
    """Tells retention that segments may go, which are in the archive of ``store``."""

    def __init__(self, noted: RetentionList, log: str, store: ArchiveStore) -> None:
        self._list, self._log, self._store = noted, log, store

    def archived(self, segments: Sequence[ArchivedSegment]) -> int:
        """These may go. Returns how many were not noted before."""
        return self._list.note(
            self._log,
            [Copy(segment_path(Path(), one.base).name, one.bytes, one.crc, self._store.uri) for one in segments],
        )

    def known(self, archived: Sequence[Manifest], known: Sequence[ArchivedSegment]) -> int:
        """The ``known`` segments may go that an earlier run has archived and not noted: it may have been killed in
        between. Returns how many are new. Raises ``ArchiveDamaged`` where their files are not there."""
        if isinstance(self._list, NoList):
            return 0
        noted = {(copy.name, copy.crc) for copy in self._list.copies(self._log) if copy.place == self._store.uri}
        new = [one for one in known if (segment_path(Path(), one.base).name, one.crc) not in noted]
        if not new:
            return 0
        for manifest in archived:
            if any(manifest.name.first <= one.base <= manifest.name.last for one in new):
                _check_files(self._store, manifest)
        return self.archived(new)


def _check_files(store: ArchiveStore, manifest: Manifest) -> None:
    """Raise ``ArchiveDamaged`` unless all files of ``manifest`` are there with their sizes. Asked before the log drops
    anything in their favour."""
    for file, size in zip(manifest.files, store.sizes([one.path for one in manifest.files]), strict=True):
        if size != file.bytes:
            raise ArchiveDamaged(
                f"{store.full(file.path)}, which {manifest.name.file} names with {file.bytes} bytes, "
                f"{'is missing' if size is None else f'has {size}'}; restore it from a copy, or move the manifest away "
                "to archive its sequences again, while the log has them"
            )


def _beside(place: Place, of_cluster: RetentionList | None) -> tuple[RetentionList, AbstractContextManager[None]]:
    """The list that is told what is archived, and a lock that keeps a second run away."""
    if isinstance(place, BrokerLog):
        return NoList(), nullcontext()
    directory = log_snapshot.directory_of(str(place))
    if of_cluster is not None:
        return of_cluster, _alone_beside(directory)
    return MarkerFile(directory), _alone(directory)


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Holds the lock of the log's archive while the block runs: one run at a time changes it. Raises
    ``ArchiveBusy``."""
    path = directory / retention.MARKER
    try:
        marker = path.open("ab")
    except OSError as problem:
        raise ArchiveBusy(
            f"{path} cannot be written: {problem.strerror}. What is archived is noted there for retention: run this as "
            "the user that the broker runs as"
        ) from problem
    with marker:
        _lock(marker, directory)
        yield


@contextmanager
def _alone_beside(directory: Path) -> Iterator[None]:
    """As ``_alone``, and writes nothing there."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _lock(descriptor, directory)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _alone_here(place: BrokerLog, log: str) -> Iterator[None]:
    """As ``_alone``, of a log that is elsewhere: among the runs of this user on this machine."""
    with (Path(tempfile.gettempdir()) / f"syncbrok-{os.getuid()}-{log}.lock").open("ab") as held:
        _lock(held, place)
        yield


def _lock(held: int | IO[bytes], where: Path | BrokerLog) -> None:
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as problem:
        raise ArchiveBusy(f"another run archives the log in {where}; wait until it has ended") from problem
