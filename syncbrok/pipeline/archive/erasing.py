"""Takes erased messages out of an archive (RULES 32): the next run writes the files that have them anew, and removes
the old ones at once.

The facts that say which messages are erased stand in the part of the log that is not archived yet: what they name is
taken out of the archive, and left out of what is added, before that part is archived. So a run that was killed is
repeated whole, and nothing is noted of how far it came.

A segment that the broker has written anew has another seal than the archive knows. It is the same segment where all of
its records are what the archive has as facts: then the archive knows it by the new seal from there on.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the name that everybody knows them by

from syncbrok.model.names import parse_message_id, sequence_of
from syncbrok.pipeline import schema
from syncbrok.pipeline.archive import archive_reader, parquet_rows
from syncbrok.pipeline.archive.commit import commit, drop_replaced
from syncbrok.pipeline.archive.group_writer import (
    ArchiveDiffers,
    checksums,
    compare,
    new_folder,
    now,
    read_back,
    write_rows,
)
from syncbrok.pipeline.archive.manifest import ArchivedRange, DataFile, Manifest, ManifestName, RowChecksum
from syncbrok.pipeline.archive.parquet_rows import SequenceRanges
from syncbrok.pipeline.archive.plan import another_past, cut
from syncbrok.pipeline.archive.range_source import LogRange
from syncbrok.pipeline.archive.store import ArchiveStore
from syncbrok.pipeline.kept import kept
from syncbrok.pipeline.log_snapshot import LogSnapshot, SegmentSnapshot
from syncbrok.pipeline.map_in_arrow import RecordBatches

_MESSAGE_OF: Final = {"messages": "sequence", "deliveries": "message"}
_COPIED_MAX: Final = 1 << 16
"""erased messages that every task gets a copy of, half a MiB; more are joined like any other rows"""
_STANDS: Final = {"messages": "not erased", "deliveries": "octet_length(detail) > 0"}
"""which rows still say something that an erasure takes"""


class ErasedMessages:
    """The messages that are erased as far as the log says so behind its archive. ``first``: the least of their
    sequences, None without any. They stay in Spark: one request may erase millions."""

    def __init__(self, messages: DataFrame) -> None:
        """``messages``: their sequences, in the column ``gone``."""
        said: Any = messages.agg(F.min("gone").alias("first"), F.count("*").alias("count")).collect()[0]
        self.first: int | None = said["first"]
        is_little = said["count"] <= _COPIED_MAX
        self._gone = messages if self.first is None else kept(messages.distinct())
        self._gone = F.broadcast(self._gone) if is_little else self._gone

    def left_out(self, rows: DataFrame, kind: str) -> DataFrame:
        """``rows`` without what these messages said."""
        if self.first is None or kind not in _MESSAGE_OF:
            return rows
        gone = F.col("gone").isNotNull()
        if kind == "messages":
            told = gone & ~F.col("erased")  # of a record that was written anew the digests of the keys stay
            nothing = {one: F.lit(None) for one in ("content", "key", "idempotency_key")}
            changed = {name: F.when(~told, F.col(name)).otherwise(value) for name, value in nothing.items()}
            changed["headers"] = F.when(told, F.expr("cast(map() as map<string,string>)")).otherwise(F.col("headers"))
            changed["erased"] = gone | F.col("erased")
        else:
            changed = {"detail": F.when(gone, F.lit(b"")).otherwise(F.col("detail"))}
        return self._joined(rows, kind, "left").withColumns(changed).select(*rows.columns)

    def standing(self, rows: DataFrame, kind: str) -> DataFrame:
        """The rows that still say something of these messages."""
        return self._joined(rows.where(_STANDS[kind]), kind, "left_semi")

    def _joined(self, rows: DataFrame, kind: str, how: str) -> DataFrame:
        return rows.join(self._gone, F.col(_MESSAGE_OF[kind]) == F.col("gone"), how)


class _Anew(NamedTuple):
    """A manifest that is replaced: by one with other ``files``, and with these segments as the log has them."""

    manifest: Manifest
    files: tuple[DataFile, ...]
    segments: tuple[SegmentSnapshot, ...]


def erased_behind(spark: SparkSession, log: LogSnapshot, archived: Sequence[Manifest]) -> ErasedMessages:
    """The messages that facts of the log name which are not archived yet."""
    first = cut(log, archived) + 1
    chosen = {"columns": "kind,detail", "factKinds": "erased"}
    facts = LogRange(spark, log.place, "facts", max(first, log.oldest), log.durable, 0, **chosen).frame()
    return ErasedMessages(facts.where("kind = 'erased'").select("detail").mapInArrow(_named, "gone bigint"))


def _named(batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    """The sequences of the messages that facts of kind ``erased`` name."""
    for batch in batches:
        said = [json.loads(detail) for detail in batch["detail"].to_pylist()]
        gone = [sequence_of(parse_message_id(one)) for fact in said for one in fact["messages"]]
        yield pa.record_batch([pa.array(gone, schema.LONG)], ["gone"])


def take_out(
    spark: SparkSession,
    store: ArchiveStore,
    log: LogSnapshot,
    archived: Sequence[Manifest],
    erased: ErasedMessages,
    progress: Callable[[str], None],
    replaced: Callable[[], None] = lambda: None,
) -> int:
    """Write the files of ``archived`` that say something of ``erased`` anew, and remove every file that is replaced, by
    this or before, once ``replaced`` has been called; how many were written anew. Raises ``AnotherLog`` where a segment
    of the log is not the one that was archived, ``ArchiveDiffers``, ``ArchiveUnreachable``, what Spark raises, and what
    ``replaced`` does."""
    count = 0
    for manifest in archived:
        seals = {one.base: one.seal_crc for one in manifest.segments}
        rewritten = tuple(one for one in log.segments if seals.get(one.base, one.crc) != one.crc)
        _check_same_facts(spark, store, log, manifest, rewritten)
        files = tuple(one for kind in _MESSAGE_OF for one in _with_rows(spark, store, manifest, kind, erased))
        if files or rewritten:
            progress(f"taking what was erased out of {len(files)} files")
            _replace(spark, store, log, _Anew(manifest, files, rewritten), erased)
            count += len(files)
    if erased.first is not None or count:
        replaced()
        drop_replaced(store, int(time.time() * 1000), float("-inf"))
    return count


def _with_rows(
    spark: SparkSession, store: ArchiveStore, manifest: Manifest, kind: str, erased: ErasedMessages
) -> list[DataFile]:
    """The files of ``kind`` that still say something of ``erased``."""
    if erased.first is None:
        return []
    possible = [one for one in manifest.files if one.kind == kind and one.last >= erased.first]
    if not possible:
        return []
    rows = _rows_in(spark, store, kind, possible).withColumn("file", F.col("_metadata.file_name"))
    found = erased.standing(rows, kind).select("queue", F.col("day").cast("string").alias("day"), "file").distinct()
    named = {(row["queue"], row["day"], row["file"]) for row in found.collect()}
    return [one for one in possible if (one.queue, one.day, one.path.rpartition("/")[2]) in named]


def _rows_in(spark: SparkSession, store: ArchiveStore, kind: str, files: Sequence[DataFile]) -> DataFrame:
    uris = [store.full(one.path) for one in files]
    return parquet_rows.files(spark, kind, store.full(kind), uris, archive_reader.long_names(files))


def _replace(spark: SparkSession, store: ArchiveStore, log: LogSnapshot, anew: _Anew, erased: ErasedMessages) -> None:
    """Commit a manifest of the next generation in the place of one."""
    before = anew.manifest
    name = before.name._replace(generation=before.name.generation + 1)
    folder = new_folder(name)
    by_kind = {kind: [one for one in anew.files if one.kind == kind] for kind in _MESSAGE_OF}
    rows = {kind: erased.left_out(archive_reader.rows_of(spark, store, kind, files), kind)
            for kind, files in by_kind.items() if files}  # fmt: skip
    read_were = {kind: write_rows(spark, frame, kind, store.full(f"{folder}/{kind}")) for kind, frame in rows.items()}
    for kind, found in read_were.items():
        if found.rows != sum(one.rows for one in by_kind[kind]):
            raise ArchiveDiffers(f"{kind} of {before.name.file} have {found.rows} rows, which is not what it names; "
                                 "nothing was changed: check the archive's disk")  # fmt: skip
    everything = SequenceRanges([], name.last)
    staged, by_file = read_back(spark, store, folder, name, everything, rows.__getitem__)
    written = parquet_rows.merged(one.rows for one in by_file)
    compare(read_were, written, f"files of {before.name.file}, written anew without what was erased,")
    kept = [one for one in before.files if one not in anew.files]
    ranges = [one for one in before.ranges if one.kind not in read_were]
    for kind in read_were:
        others = [one for one in kept if one.kind == kind]
        ranges.append(_whole(spark, store, kind, name, others, parquet_rows.total(written, kind)))
    now_are = {one.base: one for one in checksums(spark, anew.segments, log.uuid)} if anew.segments else {}
    segments = tuple(now_are.get(one.base, one) for one in before.segments)
    files = (*kept, *(one.file for one in staged))
    made = Manifest(name, before.log, now(), segments, tuple(ranges), files)
    commit(store, made, [*[""] * len(kept), *(one.path for one in staged)])
    store.delete_folder(folder)


def _whole(
    spark: SparkSession, store: ArchiveStore, kind: str, name: ManifestName, kept: Sequence[DataFile], new: RowChecksum
) -> ArchivedRange:
    """The checksum of all rows of ``kind``: those of the files that are kept, and the new ones."""
    everything = SequenceRanges([], name.last)
    if kept:
        frame = parquet_rows.checksum_files(_rows_in(spark, store, kind, kept), kind, everything)
        for one in parquet_rows.file_checksums(frame, everything):
            new = new.with_(one.rows.checksum)
    return everything.archived_range(kind, 0, new)


def _check_same_facts(
    spark: SparkSession, store: ArchiveStore, log: LogSnapshot, manifest: Manifest, rewritten: Sequence[SegmentSnapshot]
) -> None:
    """Raise ``AnotherLog`` unless the records of these segments are the facts that the archive has of them."""
    if not rewritten:
        return
    first, last = rewritten[0].base, rewritten[-1].last
    files = [one for one in manifest.files if one.kind == "facts" and one.first <= last and one.last >= first]
    both = (
        LogRange(spark, log.place, "facts", first, last).frame(),
        archive_reader.rows_of(spark, store, "facts", files),
    )
    found = []
    for frame in both:
        same = frame.where(F.col("segment").isin([one.base for one in rewritten])).where("kind <> 'segment_sealed'")
        row = parquet_rows.hashed(same, "facts").agg(*parquet_rows.aggregates()).collect()[0]
        found.append(parquet_rows.row_checksum(row.asDict()))
    if found[0] != found[1]:
        raise another_past(log, first, last)
