"""Rows of an archive as data frames: the forms for writing and reading files, and checksums of rows.

A file has all columns of its kind but ``queue``, which stands in its path beside ``day``: the UTC day of ``time``
(``recorded`` of a delivery). Rows without a queue lie in Hive's ``__HIVE_DEFAULT_PARTITION__``. Facts lie by day alone.

Spark escapes a queue's name for its folder, and unescapes it (``%XX`` for what file systems and Hive mind; the rest of
Unicode stands as it is). A name that would be longer than a folder's may be, or that Hive would take for none, has its
beginning, a slash and a digest instead: no queue's name has a slash, so this is no other queue.
Manifests have the name.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from itertools import chain
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the name that everybody knows them by

from syncbrok.pipeline import schema
from syncbrok.pipeline.archive.manifest import ArchivedRange, RowChecksum

_NO_QUEUE: Final = "__HIVE_DEFAULT_PARTITION__"
_FOLDER_BYTES_MAX: Final = 255 - len("queue=")
"""of an escaped name, where file systems take 255 for a folder's"""
_ESCAPED: Final = r"""'[\\x01-\\x1F"#%\'*/:=?\\\\\\x7F{\\[\\]^]'"""
"""what Spark writes as ``%XX`` (``ExternalCatalogUtils.escapePathName``), three bytes for one"""
_IN_FOLDER: Final = (
    f"if(queue = '{_NO_QUEUE}' or octet_length(queue) > {_FOLDER_BYTES_MAX // 3} "
    f"and octet_length(regexp_replace(queue, {_ESCAPED}, '%XX')) > {_FOLDER_BYTES_MAX}, "
    "concat(substring(queue, 1, 30), '/', substring(sha2(queue, 256), 1, 32)), queue)"
)
_DAY_US: Final = 86_400_000_000
_MASK32: Final = (1 << 32) - 1
_MASK64: Final = (1 << 64) - 1
_DAY_OF: Final = {"messages": "time", "deliveries": "recorded", "facts": "time"}
PARTITIONED_BY: Final = {"messages": ("queue", "day"), "deliveries": ("queue", "day"), "facts": ("day",)}


_AGGREGATES: Final = (
    "count(1) as rows",
    "bit_xor(hash) as xor",
    # In two halves: the sum of 64-bit numbers would overflow, which is an error in ANSI mode.
    f"sum(hash & {_MASK32}L) as low",
    f"sum(shiftrightunsigned(hash, 32) & {_MASK32}L) as high",
)


def names(kind: str) -> list[str]:
    """The columns of a kind."""
    return [one.name for one in schema.columns_of(kind)]


def with_day(rows: DataFrame, kind: str) -> DataFrame:
    """``rows`` with the column ``day`` in UTC, whatever the session's time zone is."""
    days = F.expr(f"cast(floor(unix_micros({_DAY_OF[kind]}) / {_DAY_US}) as int)")
    return rows.withColumn("day", F.date_from_unix_date(days))


def order_of(kind: str) -> tuple[str, ...]:
    """The columns that rows are sorted by when they are written: the folder, then the place in the log."""
    return (*PARTITIONED_BY[kind], "sequence", *(("position",) if kind == "deliveries" else ()))


def by_folder(rows: DataFrame, kind: str) -> DataFrame:
    """``rows`` with each queue named as its folder names it."""
    return rows.withColumn("queue", F.expr(_IN_FOLDER)) if "queue" in PARTITIONED_BY[kind] else rows


def is_long_name(queue: str | None) -> bool:
    """True if ``queue``, as a folder names it, stands for a longer name."""
    return queue is not None and "/" in queue


def long_names(rows: DataFrame) -> dict[str, str]:
    """The queues in ``rows`` whose names are too long for a folder, by the name of their folder."""
    named = rows.select(F.expr(_IN_FOLDER).alias("called"), "queue").where("called <> queue").distinct()
    return {row["called"]: row["queue"] for row in named.collect()}


def folder_of(path: str, kind: str) -> tuple[str | None, str]:
    """The queue and the day that the folder of a file of ``kind`` names."""
    values = dict(part.split("=", 1) for part in path.split("/")[:-1] if "=" in part)
    queue = values.get("queue", _NO_QUEUE) if "queue" in PARTITIONED_BY[kind] else _NO_QUEUE
    return (None if queue == _NO_QUEUE else unquote(queue)), values["day"]


def files(
    spark: SparkSession, kind: str, base: str, uris: Sequence[str], long_names: Mapping[str, str] | None = None
) -> DataFrame:
    """The rows of these files below ``base``, with Spark's hidden ``_metadata``; ``uris`` is not empty. ``long_names``:
    see the function of this name."""
    by = PARTITIONED_BY[kind]
    inside = [f"`{one.name}` {one.spark}" for one in schema.columns_of(kind) if one.name not in by]
    in_path = [f"`{name}` {'date' if name == 'day' else 'string'}" for name in by]
    # A name is a name: without the option a "[" or "*" in the archive's path would be taken for a pattern.
    reader = spark.read.schema(", ".join(inside + in_path)).option("basePath", base).option("__globPaths__", "false")
    found = reader.parquet(*uris)
    if kind == "messages":  # files of before have no such column
        found = found.withColumn("erased", F.coalesce(F.col("erased"), F.lit(False)))
    if not long_names:
        return found
    names = F.create_map(*map(F.lit, chain.from_iterable(long_names.items())))
    return found.withColumn("queue", F.coalesce(F.try_element_at(names, F.col("queue")), F.col("queue")))


# -- counts and checksums ---------------------------------------------------------------------------------------------


class FileRows(NamedTuple):
    """The rows of a file in one range of sequences. ``file`` is its name without folders."""

    queue: str | None
    day: str
    file: str
    rows: ArchivedRange
    first: int
    last: int
    from_us: int
    to_us: int


class SequenceRanges:
    """Ranges of sequences: one below the first of ``starts`` (messages that were carried along from older segments),
    and from each start to the next one, the last up to ``last``."""

    def __init__(self, starts: Sequence[int], last: int) -> None:
        assert list(starts) == sorted(set(starts)), "starts rise"
        self._starts = list(starts)
        self._edges = [0, *starts, last + 1]

    def index(self) -> Column:
        """The number of a row's range; a tree of comparisons, since there may be many."""
        return F.expr(self._tree(0, len(self._starts)))

    def _tree(self, low: int, high: int) -> str:
        if low == high:
            return str(low)
        middle = (low + high) // 2
        above, below = self._tree(middle + 1, high), self._tree(low, middle)
        return f"if(sequence >= {self._starts[middle]}L, {above}, {below})"

    def archived_range(self, kind: str, number: int, checksum: RowChecksum) -> ArchivedRange:
        return ArchivedRange(kind, self._edges[number], self._edges[number + 1] - 1, checksum)

    def number_of(self, sequence: int) -> int:
        return bisect_right(self._starts, sequence)


def hashed(rows: DataFrame, kind: str) -> DataFrame:
    """``rows`` with the column ``hash``, over all columns of a row; a null differs from an empty value. Maps have no
    hash; their entries do, in the order in which they are kept."""
    columns = schema.columns_of(kind)
    nulls = " + ".join(f"if(`{one.name}` is null, {1 << number}L, 0L)" for number, one in enumerate(columns))
    values = [f"map_entries(`{one.name}`)" if one.spark.startswith("map") else f"`{one.name}`" for one in columns]
    return rows.withColumn("hash", F.expr(f"xxhash64({nulls}, {', '.join(values)})"))


def aggregates() -> list[Column]:
    """The aggregates over ``hashed`` rows from which ``row_checksum`` is made."""
    return [F.expr(one) for one in _AGGREGATES]


def row_checksum(found: Mapping[str, Any]) -> RowChecksum:
    """The checksum from one row of ``aggregates``; without rows all but their number are null in it."""
    high, low = found["high"] or 0, found["low"] or 0
    return RowChecksum(found["rows"], (found["xor"] or 0) & _MASK64, ((high << 32) + low) & _MASK64)


def checksum_files(rows: DataFrame, kind: str, ranges: SequenceRanges) -> DataFrame:
    """A data frame with a row for each file of ``rows`` (as ``files`` reads them) and each range: number and checksum
    of its rows, and the extremes of sequence and time, for ``file_checksums``. Results of several kinds may be
    united."""
    # Under other names than the files' own: those of facts have a queue in each row.
    by = {
        "of_queue": F.col("queue") if "queue" in PARTITIONED_BY[kind] else F.lit(None).cast("string"),
        "of_day": F.col("day"),
        "file": F.col("_metadata.file_name"),
        "range": ranges.index(),
    }
    wanted = hashed(rows, kind).select("hash", "sequence", "time", *(column.alias(name) for name, column in by.items()))
    extremes = [
        F.min("sequence").alias("first"),
        F.max("sequence").alias("last"),
        F.unix_micros(F.min("time")).alias("from_us"),
        F.unix_micros(F.max("time")).alias("to_us"),
    ]
    return wanted.groupBy(*by).agg(F.first(F.lit(kind)).alias("kind"), *aggregates(), *extremes)


def file_checksums(frame: DataFrame, ranges: SequenceRanges) -> list[FileRows]:
    """The rows of ``checksum_files``, computed."""
    return [
        FileRows(
            row["of_queue"],
            row["of_day"].isoformat(),
            row["file"],
            ranges.archived_range(row["kind"], row["range"], row_checksum(row.asDict())),
            row["first"],
            row["last"],
            row["from_us"],
            row["to_us"],
        )
        for row in frame.collect()
    ]


def total(parts: Iterable[ArchivedRange], kind: str) -> RowChecksum:
    """The checksum of all ranges of ``kind`` together."""
    return reduce(RowChecksum.with_, (one.checksum for one in parts if one.kind == kind), RowChecksum())


def merged(parts: Iterable[ArchivedRange]) -> list[ArchivedRange]:
    """The ranges with the same kind, first and last sequence as one."""
    found: dict[tuple[str, int, int], RowChecksum] = {}
    for one in parts:
        key = (one.kind, one.first, one.last)
        found[key] = found.get(key, RowChecksum()).with_(one.checksum)
    return sorted(ArchivedRange(*key, checksum) for key, checksum in found.items())
