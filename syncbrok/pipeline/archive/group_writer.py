"""Makes one group of segments part of an archive: writes their rows, reads them back, compares and commits.

The comparison covers, for each kind of rows, their number and a checksum over all columns, taken once while they came
out of the log and again from the written files; the number of facts against the seals; messages and outcomes, which are
read separately, against the facts; and the bytes of each segment against the checksum in its seal. So a task that ran
twice, a file that a store lost or a bit that a disk turned is found before the archive names any of these rows.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import reduce
from typing import Final, NamedTuple
from uuid import uuid4

from crc32c import crc32c
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the name that everybody knows them by

from syncbrok.model.errors import SyncbrokError
from syncbrok.pipeline.archive import parquet_rows
from syncbrok.pipeline.archive.commit import STAGING, commit
from syncbrok.pipeline.archive.manifest import (
    ArchivedRange,
    ArchivedSegment,
    DataFile,
    Manifest,
    ManifestName,
    RowChecksum,
)
from syncbrok.pipeline.archive.parquet_rows import FileRows, SequenceRanges
from syncbrok.pipeline.archive.plan import SegmentGroup, range_starts
from syncbrok.pipeline.archive.store import ArchiveStore, StoredFile
from syncbrok.pipeline.decode.open_segment import OpenSegment
from syncbrok.pipeline.log_snapshot import SegmentSnapshot as LogSegment
from syncbrok.pipeline.schema import KINDS
from syncbrok.pipeline.spark_conf import set_for_now

SETTINGS: Final = {
    # Else times are written in a form of 96 bits that has no statistics and that others read as nanoseconds.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # One open file for each task: with many queues the buffers of many would not fit into memory.
    "spark.sql.maxConcurrentOutputFileWriters": "0",
}
Read = Callable[[str], DataFrame]
"""the rows of a kind"""


class ArchiveDiffers(SyncbrokError):
    """The rows that were read back differ from the log. Nothing was committed."""

    slug = "archive-differs"


class StagedFile(NamedTuple):
    """A file in the staging folder, and what it is to become."""

    path: str
    file: DataFile


def write_group(spark: SparkSession, store: ArchiveStore, group: SegmentGroup, uuid: bytes, read: Read) -> Manifest:
    """Archive the segments of ``group``; ``read`` gives the rows of them. Raises ``ArchiveDiffers``,
    ``ArchiveUnreachable`` and what Spark raises; nothing of the group is part of the archive then."""
    name = group.name
    folder = new_folder(name)
    ranges = SequenceRanges(range_starts(group), name.last)
    checked = checksums(spark, group.segments, uuid)
    read_were = {kind: write_rows(spark, read(kind), kind, store.full(f"{folder}/{kind}")) for kind in KINDS}
    staged, by_file = read_back(spark, store, folder, name, ranges, read)
    found = parquet_rows.merged(one.rows for one in by_file)
    compare(read_were, found, f"sequences {name.first} to {name.last}")
    _check_facts(spark, store, folder, group, found)
    manifest = Manifest(name, uuid.hex(), now(), checked, tuple(found), tuple(one.file for one in staged))
    commit(store, manifest, [one.path for one in staged])
    store.delete_folder(folder)
    return manifest


def new_folder(name: ManifestName) -> str:
    """The folder where the files of a manifest are written first. Never the same twice, since workers of a killed run
    may go on writing for a while."""
    return f"{STAGING}/{name.stem}-{uuid4().hex}"


def now() -> str:
    """The time, RFC 3339."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


# -- writing and reading back -----------------------------------------------------------------------------------------


def write_rows(spark: SparkSession, frame: DataFrame, kind: str, uri: str) -> RowChecksum:
    """Write ``frame``, rows of ``kind``, as Parquet below ``uri``: each file has rows of one queue and day from one
    Spark partition, sorted. Returns the checksum of the rows as they were before they were sorted and written."""
    seen = Observation()
    # If a task is repeated only the run that counts is seen; if both were, the files would differ from them.
    observed = parquet_rows.hashed(frame, kind).observe(seen, *parquet_rows.aggregates()).drop("hash")
    ordered = parquet_rows.with_day(parquet_rows.by_folder(observed, kind), kind).sortWithinPartitions(
        *parquet_rows.order_of(kind)
    )
    with set_for_now(spark, SETTINGS):
        writer = ordered.write.mode("errorifexists").option("compression", "zstd")
        writer.partitionBy(*parquet_rows.PARTITIONED_BY[kind]).parquet(uri)
    return parquet_rows.row_checksum(seen.get)


def read_back(
    spark: SparkSession, store: ArchiveStore, folder: str, name: ManifestName, ranges: SequenceRanges, read: Read
) -> tuple[list[StagedFile], list[FileRows]]:
    """Read what Spark has written below ``folder`` from the disk. Returns the files as the manifest will name them, and
    counts and checksums of their rows. ``read`` gives the rows that were written; it is only asked for names of queues
    that the folders do not have."""
    entries = [one for one in store.walk(folder) if one.path.endswith(".parquet")]
    store.settle(one.path for one in entries)
    kinds = sorted({one.path.removeprefix(f"{folder}/").partition("/")[0] for one in entries})
    if not kinds:
        return [], []
    uris = {kind: store.full(f"{folder}/{kind}") for kind in kinds}
    others = {
        kind: parquet_rows.long_names(read(kind)) for kind in kinds if _calls_others(entries, f"{folder}/{kind}/", kind)
    }
    frames = [
        parquet_rows.checksum_files(parquet_rows.files(spark, kind, uri, [uri], others.get(kind)), kind, ranges)
        for kind, uri in uris.items()
    ]
    found = parquet_rows.file_checksums(_united(frames), ranges)
    return _named(entries, folder, name, found, others), found


def _calls_others(entries: Sequence[StoredFile], below: str, kind: str) -> bool:
    paths = {one.path.removeprefix(below) for one in entries if one.path.startswith(below)}
    return any(parquet_rows.is_long_name(parquet_rows.folder_of(path, kind)[0]) for path in paths)


def _named(
    entries: Sequence[StoredFile],
    folder: str,
    name: ManifestName,
    found: Sequence[FileRows],
    others: Mapping[str, Mapping[str, str]],
) -> list[StagedFile]:
    """The staged files, each with the name that it is to have: the range of the manifest and a number in the folder.
    The next attempt gives the same names."""
    by_file: dict[tuple[str, str | None, str, str], list[FileRows]] = {}
    for one in found:
        by_file.setdefault((one.rows.kind, one.queue, one.day, one.file), []).append(one)
    numbers: dict[str, int] = {}
    staged = []
    for entry in sorted(entries):
        relative = entry.path.removeprefix(f"{folder}/")
        kind, file = relative.partition("/")[0], relative.rpartition("/")[2]
        called, day = parquet_rows.folder_of(relative, kind)
        queue = None if called is None else others.get(kind, {}).get(called, called)
        parts = by_file.get((kind, queue, day, file), [])
        if not parts:
            continue  # a file without rows: nothing to name
        target = relative.rpartition("/")[0]
        numbers[target] = numbers.get(target, -1) + 1
        path = f"{target}/{name.stem}-{numbers[target]:05d}.parquet"
        staged.append(StagedFile(entry.path, _data_file(kind, queue, day, path, entry.bytes, parts)))
    return staged


def _data_file(
    kind: str, queue: str | None, day: str, path: str, size_bytes: int, parts: Sequence[FileRows]
) -> DataFile:
    return DataFile(
        kind,
        queue,
        day,
        path,
        sum(one.rows.checksum.rows for one in parts),
        size_bytes,
        min(one.first for one in parts),
        max(one.last for one in parts),
        min(one.from_us for one in parts),
        max(one.to_us for one in parts),
    )


# -- comparing --------------------------------------------------------------------------------------------------------


def compare(expected: Mapping[str, RowChecksum], found: Sequence[ArchivedRange], what: str) -> None:
    """Raise ``ArchiveDiffers`` where rows of a kind are not those expected, naming the first kind."""
    for kind, wanted in expected.items():
        written = parquet_rows.total(found, kind)
        if wanted != written:
            raise ArchiveDiffers(
                f"{what} were not archived: of {kind} there should be {wanted.rows} rows and {written.rows} were "
                f"written{', which differ in content' if wanted.rows == written.rows else ''}. Nothing was committed; "
                "run it again, and if it stays, check the archive's disk and syncbrok log verify"
            )


def _check_facts(
    spark: SparkSession, store: ArchiveStore, folder: str, group: SegmentGroup, found: Sequence[ArchivedRange]
) -> None:
    """Raise ``ArchiveDiffers`` unless messages and deliveries are as many as the facts say, and the facts as many as
    the seals say."""
    uri = store.full(f"{folder}/facts")
    counted = parquet_rows.files(spark, "facts", uri, [uri]).agg(
        F.count(F.lit(1)).alias("facts"),
        F.count_if(F.col("kind") == "message").alias("messages"),
        F.sum(F.when(F.col("kind") == "outcomes", F.col("items")).otherwise(0)).alias("deliveries"),
    )
    said = counted.collect()[0].asDict()
    sealed = sum(one.records for one in group.segments)
    own = {
        kind: sum(one.checksum.rows for one in found if one.kind == kind and one.first >= group.name.first)
        for kind in ("messages", "deliveries")
    }
    if said != {"facts": sealed, **own}:
        raise ArchiveDiffers(
            f"sequences {group.name.first} to {group.name.last} were not archived: the seals count {sealed} records, "
            f"the facts read from them are {said['facts']}, with {said['messages']} messages and {said['deliveries']} "
            f"deliveries, where {own['messages']} and {own['deliveries']} were read. Check the log: syncbrok log verify"
        )


def checksums(spark: SparkSession, segments: Sequence[LogSegment], uuid: bytes) -> tuple[ArchivedSegment, ...]:
    """The segments as the manifest names them, each with the checksum of its file, after its records were compared with
    the seal. Each worker checks a few at a time. Raises what Spark raises, with ``LogCorrupt`` in it where a segment is
    damaged."""
    context = spark.sparkContext
    parts = min(len(segments), 4 * context.defaultParallelism)
    pairs = context.parallelize([(one, uuid) for one in segments], parts)
    return tuple(pairs.map(_checksum).collect())


def _checksum(pair: tuple[LogSegment, bytes]) -> ArchivedSegment:
    one, uuid = pair
    with closing(OpenSegment(one, uuid, verify=True)) as opened:
        return ArchivedSegment(one.base, one.last, one.end, crc32c(opened.view), one.crc)


# -- how --------------------------------------------------------------------------------------------------------------


def _united(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionByName, frames)
