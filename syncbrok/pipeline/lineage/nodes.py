"""Messages and what became of them -> one row a message with its place in its tree, and one row an edge.

One shuffle by root, however deep the trees are. Whole trees come to one place, and numpy does the rest
(``lineage_trees``). A task holds about a million messages, or one tree where that has more; what is not at its turn
yet waits in Spark's sort, on disk where it must. When a parent ended that is not a message's first is found by one join
over those edges (they may lead into other trees); what is found goes along to the trees of both.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from syncbrok.pipeline.lineage.trees import NODES_DDL, nodes_of, whole_trees

_BATCH_ROWS: Final = 10_000
ALONG: Final = ("id", "not_before", "parent_sequences", "root", "depth")
"""columns of messages that the nodes are made of, beside those of their completions"""
_OF_COMPLETIONS: Final = ("queue", "accepted_at", "first_attempt_at", "complete_at", "ended_at")


def known_of(messages: DataFrame, completions: DataFrame) -> DataFrame:
    """``completions`` with ``ALONG`` of their ``messages``. Of a log they come along by themselves
    (``completion.completions``), without this join."""
    accepted = messages.select(f.col("sequence").alias("message"), f.col("time").alias("accepted_at"), "queue", *ALONG)
    own = completions.select("message", "attempts", "first_attempt_at", "complete_at", "ended_at")
    return accepted.join(own, "message", "left")


def placed_nodes(known: DataFrame) -> DataFrame:
    """A row a message, columns as ``lineage_trees.NODES_DDL`` says. ``known`` is used three times."""
    messages = known.select(
        f.col("message").alias("sequence"),
        *_OF_COMPLETIONS,
        f.coalesce("attempts", f.lit(0)).cast("bigint").alias("attempts"),
        *ALONG,
    )
    # No nulls among lists: on its way to Python a null costs as much as there are rows before it in its batch.
    told = _further_edges(messages).withColumn("parent_sequences", f.array().cast("array<bigint>"))
    trees = messages.unionByName(told, allowMissingColumns=True)
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


def _further_edges(messages: DataFrame) -> DataFrame:
    """Two rows for each edge to a parent that is there and is not the first: in the child's tree when the parent ended,
    in the parent's (position 0) that it is named."""
    edges = messages.where(f.size("parent_sequences") > 1).select(
        f.col("sequence").alias("child"),
        f.col("root").alias("child_root"),
        f.posexplode("parent_sequences").alias("position", "parent"),
    )
    ended = f.unix_micros(f.coalesce("complete_at", "ended_at")).alias("other_ended_us")
    parents = messages.select(f.col("sequence").alias("parent"), f.col("root").alias("parent_root"), ended)
    met = edges.where("position > 0").join(parents, "parent")
    at_child = "named_struct('sequence', child, 'root', child_root, 'position', position)"
    at_parent = "named_struct('sequence', parent, 'root', parent_root, 'position', 0)"
    both = met.select("other_ended_us", f.expr(f"explode(array({at_child}, {at_parent}))").alias("row"))
    return both.select("row.*", "other_ended_us")


def _nodes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for trees in whole_trees(batches):
        yield from nodes_of(trees).to_batches(max_chunksize=_BATCH_ROWS)
