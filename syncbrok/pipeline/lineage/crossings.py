"""Critical paths that leave their tree: a message waited longest for a parent in another tree, and that for its own.

Inside a tree ``lineage_trees`` knows the way up from each message to where it ends or leaves the tree. So only the
messages at which ways leave are left over, with where each goes on; few of them even in a large log. They are a forest
again: each points at the message where the way up from its critical parent leaves that tree. Pointer doubling over them
in one task gives where every way begins and how long it is, exactly. Which messages stand on it is listed for as many
steps as ``STEPS_MAX``: a thousand trees may all wait for the end of the same chain.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from syncbrok.pipeline.completion.moments import NEVER, longs
from syncbrok.pipeline.lineage.forest import NONE, Longs, above, places_of
from syncbrok.pipeline.lineage.trees import whole_trees

STEPS_MAX: Final = 1_000
"""steps listed outside of its own tree for one critical path; its length and its beginning are exact beyond them"""

_TIME: Final = pa.timestamp("us", tz="UTC")
_BEYOND: Final = pa.schema(
    [("top", pa.int64()), ("start", pa.int64()), ("start_at", _TIME), ("steps_beyond", pa.int64())]
)
_BEYOND_DDL: Final = "top bigint, start bigint, start_at timestamp, steps_beyond bigint"
_HOPS: Final = pa.schema([("top", pa.int64()), ("sequence", pa.int64()), ("root", pa.int64()), ("before", pa.int64())])
_HOPS_DDL: Final = "top bigint, sequence bigint, root bigint, before bigint"
_LISTED: Final = pa.schema([("tree", pa.int64()), ("sequence", pa.int64()), ("before", pa.int64())])
_LISTED_DDL: Final = "tree bigint, sequence bigint, before bigint"


class Crossings(NamedTuple):
    """``rows`` as ``crossings_of`` finds them, ``beyond`` as ``_beyond``."""

    rows: DataFrame
    beyond: DataFrame


def crossing(nodes: DataFrame) -> Crossings:
    """Found when they are asked for."""
    rows = crossings_of(nodes)
    return Crossings(rows, rows.repartition(1).mapInArrow(_beyond, _BEYOND_DDL))


def found(nodes: DataFrame) -> Crossings:
    """Found now, on the driver: they are few, and what is at hand is joined at once."""
    rows = crossings_of(nodes).toArrow()
    beyond = pa.Table.from_batches(_beyond(rows.to_batches()), _BEYOND)
    spark = nodes.sparkSession
    return Crossings(spark.createDataFrame(rows), spark.createDataFrame(beyond))


def crossings_of(nodes: DataFrame) -> DataFrame:
    """A row for each message whose critical parent is in another tree: ``top`` (the message), the parent
    (``sequence``) and its ``root``, and where the way up from that ends in its tree:
    ``next``, ``next_at``, ``steps`` further up."""
    leaving = nodes.where("crosses").select(f.col("sequence").alias("top"), f.col("critical_parent").alias("sequence"))
    reached = nodes.select("sequence", "root", f.col("top").alias("next"), f.col("top_at").alias("next_at"), "steps")
    return leaving.join(reached, "sequence")


def entered(nodes: DataFrame, crossings: Crossings) -> DataFrame:
    """The nodes of trees that a way leads into from another: all that may stand on a path outside of their own."""
    return nodes.join(crossings.rows.select("root").distinct(), "root", "left_semi")


def steps_outside(nodes: DataFrame, crossings: Crossings, leaving: DataFrame) -> DataFrame:
    """The messages on critical paths outside of their trees: ``tree``, ``sequence`` and how many outside steps come
    after it (``before``: 0 is the parent that the tree itself waited for). ``leaving`` has the ``tree`` and its
    ``top``, ``nodes`` are those of ``entered`` trees."""
    wanted = leaving.select("top", f.lit(True).alias("wanted")).distinct()
    hops = crossings.rows.join(wanted, "top", "left").repartition(1).mapInArrow(_hops, _HOPS_DDL)
    starts = leaving.join(hops, "top").select("root", "sequence", "tree", "before")
    through = nodes.select("root", "sequence", "critical_parent", "crosses")
    both = through.unionByName(starts, allowMissingColumns=True)
    return both.repartition("root").sortWithinPartitions("root").mapInArrow(_listed, _LISTED_DDL)


def _beyond(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For each ``top``: the message its way up begins at (``start``, ``start_at``) and how many steps up that is."""
    table = _together(batches)
    if table is None:
        return
    top, following = longs(table["top"]), _following(table)
    way = above(following, longs(table["steps"]) + 1)
    # The last crossing leads to where the whole way begins.
    last = way.top
    columns = [
        pa.array(top),
        table["next"].combine_chunks().take(pa.array(last)),
        table["next_at"].combine_chunks().take(pa.array(last)),
        pa.array(way.steps + longs(table["steps"])[last] + 1),
    ]
    yield from pa.Table.from_arrays(columns, schema=_BEYOND).to_batches(max_chunksize=10_000)


def _hops(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One crossing after the other, all ways at once: at most ``STEPS_MAX`` rounds, in most logs two or three."""
    table = _together(batches)
    if table is None:
        return
    following = _following(table)
    sequence, root, steps = longs(table["sequence"]), longs(table["root"]), longs(table["steps"])
    top = longs(table["top"])
    origin = at = np.flatnonzero(longs(table["wanted"].cast(pa.int8()), 0))
    before = np.zeros(len(at), np.int64)
    while len(at):
        columns = [pa.array(one) for one in (top[origin], sequence[at], root[at], before)]
        yield from pa.Table.from_arrays(columns, schema=_HOPS).to_batches(max_chunksize=10_000)
        before = before + steps[at] + 1
        on = (following[at] != NONE) & (before < STEPS_MAX)
        origin, at, before = origin[on], following[at][on], before[on]


def _listed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Up from each start through its tree; rows with a ``tree`` are starts, the others messages."""
    for block in whole_trees(batches):
        tree, before = longs(block["tree"]), longs(block["before"])
        sequence, starts = longs(block["sequence"]), np.flatnonzero(tree != NEVER)
        messages = np.flatnonzero(tree == NEVER)
        parent = np.where(longs(block["crosses"].cast(pa.int8()), 1) == 1, NEVER, longs(block["critical_parent"]))
        up = places_of(sequence[messages], parent[messages])
        at = places_of(sequence[messages], sequence[starts])
        tree, before = tree[starts], before[starts]
        while len(at):
            columns = [pa.array(one) for one in (tree, sequence[messages][at], before)]
            yield from pa.Table.from_arrays(columns, schema=_LISTED).to_batches(max_chunksize=10_000)
            before = before + 1
            on = (up[at] != NONE) & (before < STEPS_MAX)
            tree, at, before = tree[on], up[at][on], before[on]


def _following(table: pa.Table) -> Longs:
    """Of each crossing, the one at which the way goes on; ``NONE`` where it begins in that tree."""
    return places_of(longs(table["top"]), longs(table["next"]))


def _together(batches: Iterable[pa.RecordBatch]) -> pa.Table | None:
    held = [batch for batch in batches if batch.num_rows]
    return pa.Table.from_batches(held).combine_chunks() if held else None
