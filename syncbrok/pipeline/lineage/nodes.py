"""Messages and what became of them -> one row a message with its place in its tree, and one row an edge.

As many joins as stand here, and one shuffle by root, however deep the trees are. Ends are joined to messages by
sequence; when a parent ended that is not a message's first is brought to it by one join over those edges (they may
lead into other trees; most logs have none, and then Spark drops the join); then whole trees come to one place, and
numpy does the rest (``lineage_trees``). A task holds about a million messages, or one tree where that has more; what
is not at its turn yet waits in Spark's sort, on disk where it must.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from syncbrok.pipeline.lineage.trees import NODES_DDL, nodes_of, whole_trees

_BATCH_ROWS: Final = 10_000
_FROM_MESSAGES: Final = ("sequence", "id", "queue", "not_before", "parent_sequences", "root", "depth")
_TIMES: Final = ("first_attempt_at", "complete_at", "ended_at")


def placed_nodes(messages: DataFrame, completions: DataFrame) -> DataFrame:
    """A row a message, columns as ``lineage_trees.NODES_DDL`` says. ``messages`` have ``root`` and ``depth``."""
    ends = completions.select(f.col("message").alias("sequence"), "attempts", *_TIMES)
    known = (
        messages.select(*_FROM_MESSAGES, f.col("time").alias("accepted_at"))
        .join(ends, "sequence", "left")
        .join(_further_edges(messages, ends), "sequence", "left")
    )
    # No nulls among lists: on its way to Python a null costs as much as there are rows before it in its batch.
    others = f.coalesce("others_ended_us", f.array().cast("array<bigint>")).alias("others_ended_us")
    counts = [f.coalesce(name, f.lit(0)).cast("bigint").alias(name) for name in ("attempts", "named")]
    trees = known.select(*_FROM_MESSAGES, "accepted_at", *_TIMES, others, *counts)
    return trees.repartition("root").sortWithinPartitions("root").mapInArrow(_nodes, NODES_DDL)


def edges_of(nodes: DataFrame) -> DataFrame:
    """A row an edge: ``parent``, ``child``, ``position`` among the child's parents (0: the first), ``root`` of the
    child's tree, ``in_tree`` (the parent is in it too), ``parent_ended_at``, ``waited_us`` (how long the child,
    accepted, waited for this parent; null while the parent has no end) and ``critical`` (it was the last the child
    waited for)."""
    waited = f.unix_micros("parent.ended_at") - f.unix_micros("accepted_at")
    return nodes.select("*", f.posexplode("parents").alias("position", "parent")).select(
        f.col("parent.sequence").alias("parent"),
        f.col("sequence").alias("child"),
        "position",
        "root",
        f.col("parent.in_tree").alias("in_tree"),
        f.col("parent.ended_at").alias("parent_ended_at"),
        f.when(waited.isNotNull(), f.greatest(waited, f.lit(0))).alias("waited_us"),
        f.col("parent.sequence").eqNullSafe(f.col("critical_parent")).alias("critical"),
    )


def _further_edges(messages: DataFrame, ends: DataFrame) -> DataFrame:
    """By message: ``others_ended_us``, the ends of its parents but the first, in their order; and ``named``, how many
    name it as such a parent."""
    edges = messages.where(f.size("parent_sequences") > 1).select(
        f.col("sequence").alias("child"), f.posexplode("parent_sequences").alias("position", "parent")
    )
    edges = edges.where("position > 0")
    ended = ends.select(f.col("sequence").alias("parent"), _ended_us().alias("ended_us"))
    upwards = (
        edges.join(ended, "parent", "left")
        .groupBy(f.col("child").alias("sequence"))
        .agg(f.array_sort(f.collect_list(f.struct("position", "ended_us"))).alias("in_order"))
        .select("sequence", f.col("in_order.ended_us").alias("others_ended_us"), f.lit(0).cast("bigint").alias("named"))
    )
    downwards = edges.groupBy(f.col("parent").alias("sequence")).agg(f.count("*").alias("named"))
    both = upwards.unionByName(downwards, allowMissingColumns=True)
    return both.groupBy("sequence").agg(
        f.first("others_ended_us", ignorenulls=True).alias("others_ended_us"), f.sum("named").alias("named")
    )


def _ended_us() -> Column:
    return f.unix_micros(f.coalesce("complete_at", "ended_at"))


def _nodes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for trees in whole_trees(batches):
        yield from nodes_of(trees).to_batches(max_chunksize=_BATCH_ROWS)
