"""Trees of messages, who waited for whom, and which chain of waits made a tree late.

    found = lineage(messages, completions)
    found.trees.orderBy("took_us", ascending=False).show()

``nodes``           a row a message (``lineage.trees`` says what the columns mean)
``edges``           a row a parent of a message (``lineage.edges.edges_of``)
``trees``           a row a tree (``trees_of``)
``critical_paths``  a row a step of each tree's critical path (``lineage.critical_paths``)

Root and depth are those the broker recorded. If they are missing (rows from elsewhere) they are derived first
(``lineage.root_and_depth``). A salvaged log with gaps does not need that: the messages left of a tree still name its
root.
"""

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from syncbrok.pipeline.archive.store import ArchiveStore
from syncbrok.pipeline.completion import completions as completion
from syncbrok.pipeline.lineage.critical_paths import (
    OF_NODES,
    PATHS,
    TREES,
    critical_paths_of,
    late_trees_of,
    trees_and_paths,
)
from syncbrok.pipeline.lineage.cross_tree_paths import (
    BEYOND,
    FEW,
    STARTS,
    CrossTreePaths,
    beyond_and_starts,
    cross_tree_paths,
    crossings_of,
    leaving,
)
from syncbrok.pipeline.lineage.crossing_rounds import followed
from syncbrok.pipeline.lineage.edges import edges_of
from syncbrok.pipeline.lineage.nodes import (
    ALONG,
    nodes_and_edges,
    nodes_in,
    schemas,
    trees_of_log_together,
    trees_together,
)
from syncbrok.pipeline.lineage.parquet_files import ParquetFiles, read_files, row_count, write_by_tasks
from syncbrok.pipeline.lineage.root_and_depth import with_root_and_depth
from syncbrok.pipeline.log_and_archive import KindRows, frame_of
from syncbrok.pipeline.map_in_arrow import RecordBatches
from syncbrok.pipeline.spark_conf import set_for_now, unset
from syncbrok.pipeline.states import declared_facts

MESSAGES: Final = tuple(dict.fromkeys((*completion.MESSAGES, *ALONG)))
DELIVERIES: Final = completion.DELIVERIES
FACTS: Final = completion.FACTS
"""the columns of a log that are read of each kind"""

_WRITING: Final = {
    # As in the archive: Parquet's own type, which costs a fraction of Spark's default to write.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Joins hash instead of sorting where every partition is small: half the time, and no more memory than there is.
    "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold": "128MB",
    # Shuffle blocks are a tenth of what is in them: by their size Spark would leave a core without work at the end.
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "16MB",
}
"""settings of Spark while the tables are written; a setting of the user stays"""
_BETWEEN: Final = "_crossings"
"""the folder of what tasks need to know of other trees, while the tables are written"""


class LineageTables(NamedTuple):
    nodes: DataFrame
    edges: DataFrame
    trees: DataFrame
    critical_paths: DataFrame
    together: DataFrame | None = None
    """the trees that ``nodes`` is made of, in shuffle blocks; None where it was read back"""


def lineage(messages: DataFrame, completions: DataFrame) -> LineageTables:
    """The tables about the trees of ``messages``. ``completions`` is what ``completion`` made of the same log. Parents
    that are not among ``messages`` (retention, a gap, another time range) count as done from the beginning.

    Nothing is computed until a table is asked for, and each is computed for itself: ``write`` is four times cheaper
    than asking for all four."""
    return _lineage(trees_together(with_root_and_depth(messages), completions))


def lineage_of_log(messages: DataFrame | KindRows, deliveries: DataFrame | KindRows, facts: DataFrame) -> LineageTables:
    """The tables from the three kinds of rows of a log, with the root and depth that the broker recorded. Each kind is
    read once; with ``LogAndArchive.rows`` in half the time. ``MESSAGES`` and ``DELIVERIES`` are the columns needed. The
    declarations are read, and the reading is planned, at once. Raises ``Gone``."""
    found = completion.with_waiting_messages(frame_of(messages), frame_of(deliveries), declared_facts.read(facts))
    return _lineage(trees_of_log_together(messages, deliveries, found))


def _lineage(together: DataFrame) -> LineageTables:
    nodes = nodes_in(together)
    crossings = cross_tree_paths(nodes)
    trees, paths = late_trees_of(nodes, crossings), critical_paths_of(nodes, crossings)
    return LineageTables(nodes, edges_of(nodes), trees, paths, together)


def write(made: LineageTables, out: str, *, copied_max: int = FEW) -> LineageTables:
    """Write the four tables as Parquet below ``out``, in place of those of an earlier run, and return them as read
    back, so that later questions do not compute them again. If more than ``copied_max`` paths lead from tree to tree
    they are joined instead of read by every task. Raises ``FilesMissing``, ``ArchiveUnreachable``."""
    spark = made.nodes.sparkSession
    with set_for_now(spark, unset(spark, _WRITING)):
        folder = ArchiveStore(spark, out).local
        if folder is None or made.together is None:
            return _written_by_spark(made, out, copied_max)
        return _written_by_tasks(made, made.together, out, folder, copied_max)


def _written_by_tasks(
    made: LineageTables, together: DataFrame, out: str, folder: Path, copied_max: int
) -> LineageTables:
    """Write each table by the tasks that make it, on a disk, and read it back. Whole trees were written at once, so
    nothing is brought together anew for what is made of them."""
    spark = together.sparkSession
    write_by_tasks(together, nodes_and_edges, schemas(), folder)
    nodes, edges = _read(made.nodes, f"{out}/nodes"), _read(made.edges, f"{out}/edges")
    count = _crossing(nodes)
    between = folder / _BETWEEN
    shutil.rmtree(between, ignore_errors=True)  # of a run that was killed
    try:
        if 0 < count <= copied_max:
            # By one task, to the disk that all see: the driver meets none of them.
            rows = crossings_of(leaving(nodes), nodes).repartition(1)
            write_by_tasks(rows, partial(beyond_and_starts, copied_max), {"beyond": BEYOND, "starts": STARTS}, between)
        if count > copied_max or row_count(between / "starts") > copied_max:
            return LineageTables(nodes, edges, *_trees_and_paths(nodes, followed(nodes), out))
        files = ParquetFiles(spark, folder / "nodes", OF_NODES)
        write_by_tasks(files, partial(_late, between), {"trees": TREES, "critical_paths": PATHS}, folder)
    finally:
        shutil.rmtree(between, ignore_errors=True)
    trees, paths = _read(made.trees, f"{out}/trees"), _read(made.critical_paths, f"{out}/critical_paths")
    return LineageTables(nodes, edges, trees, paths)


def _crossing(nodes: DataFrame) -> int:
    """The number of messages whose critical parent is in another tree."""
    return nodes.where("crosses").count()


def _late(between: Path, batches: RecordBatches) -> Iterator[dict[str, pa.Table]]:
    beyond, starts = read_files(between / "beyond", BEYOND), read_files(between / "starts", STARTS)
    for whole_trees in batches:
        yield from trees_and_paths(pa.Table.from_batches([whole_trees]), beyond, starts)


def _written_by_spark(made: LineageTables, out: str, copied_max: int) -> LineageTables:
    nodes = _write(made.nodes, f"{out}/nodes")
    edges = _write(edges_of(nodes), f"{out}/edges")
    count = _crossing(nodes)
    crossings = None if not count else cross_tree_paths(nodes) if count <= copied_max else followed(nodes)
    return LineageTables(nodes, edges, *_trees_and_paths(nodes, crossings, out))


def _trees_and_paths(nodes: DataFrame, crossings: CrossTreePaths | None, out: str) -> tuple[DataFrame, DataFrame]:
    """The tables ``trees`` and ``critical_paths``, written by Spark and read back."""
    trees = _write(late_trees_of(nodes, crossings), f"{out}/trees")
    return trees, _write(critical_paths_of(nodes, crossings), f"{out}/critical_paths")


def _write(table: DataFrame, to: str) -> DataFrame:
    table.write.mode("overwrite").parquet(to)
    return _read(table, to)


def _read(table: DataFrame, back: str) -> DataFrame:
    return table.sparkSession.read.schema(table.schema).parquet(back)


def trees_of(messages: DataFrame) -> DataFrame:
    """A row for each ``root``, from the messages alone in one pass: how many ``messages`` there are, the greatest
    ``depth``, when the first and the last were accepted and the time between (``span_us``)."""
    return (
        messages.groupBy("root")
        .agg(
            f.count("*").alias("messages"),
            f.max("depth").alias("depth"),
            f.min("time").alias("first_at"),
            f.max("time").alias("last_at"),
        )
        .withColumn("span_us", f.unix_micros("last_at") - f.unix_micros("first_at"))
    )


def summary(trees: DataFrame) -> list[tuple[str, object]]:
    """Figures about all trees together, each with a label for people."""
    deepest = f.max_by("root", f.struct("depth", -f.col("root")))
    largest = f.max_by("root", f.struct("messages", -f.col("root")))
    row = trees.agg(
        f.count("*").alias("trees"),
        f.sum("messages").alias("messages"),
        f.max("depth").alias("depth"),
        deepest.alias("deepest"),
        f.max("messages").alias("size"),
        largest.alias("largest"),
        f.sum("waiting").alias("waiting"),
    ).first()
    if row is None or not row["trees"]:
        return []
    return [
        ("trees", f"{row['trees']:,} with {row['messages']:,} messages, {row['waiting']:,} of them not ended"),
        ("deepest", f"{row['depth']:,} (root {row['deepest']})"),
        ("largest", f"{row['size']:,} messages (root {row['largest']})"),
    ]


def slowest(trees: DataFrame, count: int) -> DataFrame:
    """The trees that took longest from the first message to the last completion."""
    return trees.orderBy(f.desc_nulls_last("took_us"), f.desc("messages"), "root").limit(count)
