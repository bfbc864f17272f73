"""Reading an archive: the rows of the files that its manifests name, and nothing else that lies there."""

from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the name that everybody knows them by

from syncbrok.pipeline import schema
from syncbrok.pipeline.archive import parquet_rows
from syncbrok.pipeline.archive.manifest import DataFile, Manifest, MissingSequences
from syncbrok.pipeline.archive.store import ArchiveStore
from syncbrok.pipeline.decode.query import TIME_MAX_US, TIME_MIN_US


def read(
    spark: SparkSession,
    store: ArchiveStore,
    manifests: Sequence[Manifest],
    kind: str,
    since_us: int = TIME_MIN_US,
    until_us: int = TIME_MAX_US,
) -> DataFrame:
    """A data frame of the archived rows of ``kind`` with all its columns: those with a time from ``since_us`` on and
    before ``until_us``. Files of another time are not opened."""
    wanted = [
        one
        for manifest in manifests
        for one in manifest.files
        if one.kind == kind and one.to_us >= since_us and one.from_us < until_us
    ]
    found = rows_of(spark, store, kind, wanted)
    if since_us > TIME_MIN_US:
        found = found.where(F.col("time") >= F.timestamp_micros(F.lit(since_us)))
    if until_us < TIME_MAX_US:
        found = found.where(F.col("time") < F.timestamp_micros(F.lit(until_us)))
    return found


def rows_of(spark: SparkSession, store: ArchiveStore, kind: str, files: Sequence[DataFile]) -> DataFrame:
    """The rows of these files, with the columns of ``kind`` in their order."""
    if not files:
        return spark.createDataFrame([], schema.ddl(schema.columns_of(kind)))
    uris = [store.full(one.path) for one in files]
    found = parquet_rows.files(spark, kind, store.full(kind), uris, long_names(files))
    return found.select(*parquet_rows.names(kind))


def long_names(files: Iterable[DataFile]) -> dict[str, str]:
    """The queues of these files whose names are too long for a folder, by the name of their folder."""
    called = ((parquet_rows.folder_of(one.path, one.kind)[0], one.queue) for one in files)
    return {folder: queue for folder, queue in called if folder is not None and queue is not None and folder != queue}


def without_known(
    spark: SparkSession,
    store: ArchiveStore,
    manifests: Sequence[Manifest],
    lost: Sequence[MissingSequences],
    messages: DataFrame,
    first: int,
) -> DataFrame:
    """``messages``, which were read from the log, without those that the archive has already. Messages with sequences
    from ``first`` on stay. Older ones are carried messages: they stay if their own segment is among the ``lost`` ranges
    and they were not archived from an earlier carried record."""
    old = F.lit(False)
    for gap in lost:
        old = old | F.col("sequence").between(gap.first, gap.last)
    wanted = messages.where((F.col("sequence") >= first) | old)
    last = max((gap.last for gap in lost), default=0)
    files = [one for manifest in manifests for one in manifest.files if one.kind == "messages" and one.first <= last]
    if not files:
        return wanted
    known = rows_of(spark, store, "messages", files).where(old).select("sequence")
    return wanted.join(known, "sequence", "left_anti").select(*wanted.columns)
