"""Archive and live log as one data frame: archived rows from the archive, later ones from the log.

    frames = LogAndArchive(spark, "storage/", "hdfs://name/archive")
    frames.read("messages"), frames.read("deliveries")

Both are looked at once, when ``LogAndArchive`` is made, and every frame shows that moment. So a frame that is computed
twice is the same twice, frames of different kinds fit each other, and no row is missing or there twice while segments
are appended, archived and dropped. If retention has dropped a part of the log before a frame is computed, that is an
error (``Gone``) and not fewer rows: make a new ``LogAndArchive``; the part is in the archive by then.

A carried message is there once: from its own segment if the log or the archive has it, else from the record that
carries it (``carried`` is true).
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial, reduce
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from syncbrok.model.errors import BadSetting
from syncbrok.model.units import parse_time_us
from syncbrok.pipeline import log_snapshot, schema
from syncbrok.pipeline.archive import archive_reader
from syncbrok.pipeline.archive import commit as archive_commit
from syncbrok.pipeline.archive.commit import AnotherLog
from syncbrok.pipeline.archive.manifest import Manifest, gaps
from syncbrok.pipeline.archive.plan import check_owner, check_same, cut
from syncbrok.pipeline.archive.range_source import LogRange
from syncbrok.pipeline.archive.store import ArchiveStore
from syncbrok.pipeline.broker_log import BrokerLog
from syncbrok.pipeline.decode.open_segment import has_erased
from syncbrok.pipeline.decode.query import TIME_MAX_US, TIME_MIN_US
from syncbrok.pipeline.log_snapshot import LogSnapshot, Place
from syncbrok.pipeline.map_in_arrow import ArrowFunction, RecordBatches

_SNAPSHOTS_MAX: Final = 5
"""A segment may be sealed and archived between the snapshot of the log and the look at the archive; then both are
repeated."""


def read(
    spark: SparkSession,
    storage: Path | str | BrokerLog | None,
    archive: str | None = None,
    kind: str = "messages",
    columns: str | None = None,
    since: str | datetime | None = None,
    until: str | datetime | None = None,
) -> DataFrame:
    """The rows of one kind; ``LogAndArchive`` where several are needed. ``storage``: a directory, a broker's URL, or
    ``broker_log(...)`` of one that asks for a token; None: the archive alone.
    ``columns`` is a comma list, ``since`` (inclusive) and ``until`` (exclusive) are on ``time``: RFC 3339 or datetimes
    with a zone.

    Raises ``AnotherLog``, ``ArchiveDamaged``, ``ArchiveUnreachable``, ``LogCorrupt`` and ``BadSetting``."""
    return LogAndArchive(spark, storage, archive).read(kind, columns, since, until)


class LogAndArchive:
    """A log and its archive at one moment. ``gaps``: sequences that neither has any more. Raises as ``read``."""

    def __init__(self, spark: SparkSession, storage: Path | str | BrokerLog | None, archive: str | None = None) -> None:
        if storage is None and archive is None:
            raise BadSetting("neither a log nor an archive to read: give the one or the other, or both")
        self._spark = spark
        self._store = ArchiveStore(spark, archive) if archive is not None else None
        self._log: LogSnapshot | None = None
        if storage is None:
            found = self._archived()
            self._cut = found[-1].name.last if found else 0
            self.gaps = gaps([one.name for one in found], self._cut + 1)
        else:
            self._log, found = self._both(log_snapshot.place_of(storage))
            self._cut = cut(self._log, found)
            # If a manifest in the middle is lost, the log has all records behind it.
            found = [one for one in found if one.name.last <= self._cut]
            self.gaps = gaps([one.name for one in found], self._log.oldest)
        self._manifests = found

    @property
    def log_id(self) -> str:
        """The uuid of the log that the rows are of."""
        return self._manifests[0].log if self._log is None else self._log.uuid.hex()

    def _archived(self, log: LogSnapshot | None = None) -> list[Manifest]:
        """The manifests of the archive. None of them for an empty archive of ``log``, as long as nothing of that is
        sealed: the log has it all. Raises ``BadSetting`` where there is no archive, or an empty one and no log."""
        if self._store is None:
            return []
        found = archive_commit.manifests(self._store)
        if found:
            return found
        owner = archive_commit.owner(self._store)
        if owner is None:
            raise BadSetting(
                f"there is no archive at {self._store.uri}: it has no manifest in {archive_commit.FOLDER}/. Write one "
                "with: syncbrok pipeline archive"
            )
        if log is None:
            raise BadSetting(
                f"the archive at {self._store.uri} is empty: nothing of log {owner} was sealed when it was written. "
                "Read it together with the log, or write it again when a segment is full"
            )
        check_owner(log, owner)
        return []

    def _both(self, place: Place) -> tuple[LogSnapshot, list[Manifest]]:
        """A snapshot of the log, and the archive's manifests. The log is looked at first: what it no longer has was
        archived before it was dropped, so the archive has it then."""
        for looked in range(1, _SNAPSHOTS_MAX + 1):
            log = log_snapshot.take_snapshot(place)
            found = self._archived(log)
            try:
                check_same(log, found, partial(has_erased, uuid=log.uuid))
            except AnotherLog:
                if looked == _SNAPSHOTS_MAX:
                    raise
                continue
            return log, found
        raise AssertionError("the last attempt returns or raises")

    def read(
        self,
        kind: str = "messages",
        columns: str | None = None,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        *,
        fact_kinds: Iterable[str] | None = None,
    ) -> DataFrame:
        """The rows of ``kind``; see ``read`` of the module. ``fact_kinds``: other facts are not needed, and left out
        where that saves reading them."""
        return self.rows(kind, columns, since, until, fact_kinds=fact_kinds).frame()

    def rows(
        self,
        kind: str = "messages",
        columns: str | None = None,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        *,
        fact_kinds: Iterable[str] | None = None,
    ) -> "KindRows":
        """The rows of ``kind`` as of ``read``, for work in Arrow before they become Spark's."""
        names = [one.name for one in schema.columns_of(kind, columns)]
        options = {name: _text(time) for name, time in (("since", since), ("until", until)) if time is not None}
        if fact_kinds is not None:
            options["factKinds"] = ",".join(fact_kinds)
        parts: list[LogRange | DataFrame] = []
        if self._store is not None and self._manifests:
            since_us = parse_time_us(options["since"]) if since is not None else TIME_MIN_US
            until_us = parse_time_us(options["until"]) if until is not None else TIME_MAX_US
            archived = archive_reader.read(self._spark, self._store, self._manifests, kind, since_us, until_us)
            parts.append(archived.select(*names))
        if self._log is not None:
            parts.append(self._live(self._log, kind, names, options))
        return KindRows(parts)

    def _live(self, log: LogSnapshot, kind: str, names: Sequence[str], options: dict[str, str]) -> LogRange | DataFrame:
        first, last = self._cut + 1, log.durable
        carried = bool(self.gaps) and kind == "messages"
        if not carried or self._store is None:
            below = log.oldest if carried else 0
            chosen = options | {"columns": ",".join(names)}
            return LogRange(self._spark, log.place, kind, first, last, below, **chosen)
        chosen = options | {"columns": ",".join(dict.fromkeys([*names, "sequence"]))}
        found = LogRange(self._spark, log.place, kind, first, last, log.oldest, **chosen).frame()
        known = archive_reader.without_known(self._spark, self._store, self._manifests, self.gaps, found, first)
        return known.select(*names)


class KindRows:
    """The rows of a kind, from the archive and from the log."""

    def __init__(self, parts: Sequence["LogRange | _Before | DataFrame"]) -> None:
        self._parts = parts

    def before(self, column: str, time: datetime) -> "KindRows":
        """The rows whose ``column`` is before ``time``, which has a zone."""
        return KindRows(
            [
                one.where(f.col(column) < f.lit(time)) if isinstance(one, DataFrame) else _Before(one, column, time)
                for one in self._parts
            ]
        )

    def frame(self) -> DataFrame:
        """The rows as a data frame."""
        frames = [one if isinstance(one, DataFrame) else one.frame() for one in self._parts]
        return reduce(DataFrame.unionByName, frames)

    def mapInArrow(self, func: ArrowFunction, schema: str) -> DataFrame:  # noqa: N802  # as data frames have it
        """The result of ``func`` on the rows, as of a data frame. ``func`` gets rows of the log in the tasks that read
        them, which are planned now. Raises as ``LogRange``."""
        return reduce(DataFrame.unionByName, [one.mapInArrow(func, schema) for one in self._parts])


class _Before(NamedTuple):
    """Rows of a log, of which those are left out that are too late where they are decoded."""

    rows: "LogRange | _Before"
    column: str
    time: datetime

    def frame(self) -> DataFrame:
        return self.rows.frame().where(f.col(self.column) < f.lit(self.time))

    def mapInArrow(self, func: ArrowFunction, schema: str) -> DataFrame:  # noqa: N802  # as data frames have it
        return self.rows.mapInArrow(partial(_only_before, self.column, self.time, func), schema)


def _only_before(column: str, time: datetime, func: ArrowFunction, batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    end = pa.scalar(time, schema.TIME)
    return func(batch.filter(pc.less(batch[column], end)) for batch in batches)


def frame_of(rows: DataFrame | KindRows) -> DataFrame:
    """``rows`` as a data frame."""
    return rows if isinstance(rows, DataFrame) else rows.frame()


def _text(time: str | datetime) -> str:
    if isinstance(time, str):
        return time
    if time.tzinfo is None:
        raise BadSetting(f"{time.isoformat()} has no time zone; say which, for instance datetime(..., tzinfo=UTC)")
    return time.isoformat()
