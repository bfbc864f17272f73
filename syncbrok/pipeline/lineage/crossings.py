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

STEPS_MAX: Final = 1_000
"""steps listed outside of its own tree for one critical path; its length and its beginning are exact beyond them"""

_TIME: Final = pa.timestamp("us", tz="UTC")
_BEYOND: Final = pa.schema(
    [("top", pa.int64()), ("start", pa.int64()), ("start_at", _TIME), ("steps_beyond", pa.int64())]
)
_BEYOND_DDL: Final = "top bigint, start bigint, start_at timestamp, steps_beyond bigint"
_HOPS: Final = pa.schema([("tree", pa.int64()), ("sequence", pa.int64()), ("root", pa.int64()), ("before", pa.int64())])
_HOPS_DDL: Final = "tree bigint, sequence bigint, root bigint, before bigint"
_STARTING: Final = ("tree", "before")
"""columns of the rows at which ways up start, and of the messages on them"""


class Crossings(NamedTuple):
    """``rows`` as ``crossings_of`` finds them, ``beyond`` as ``_beyond``."""

    rows: DataFrame
    beyond: DataFrame


def crossing(nodes: DataFrame) -> Crossings:
    """Found when they are asked for."""
    rows = crossings_of(_leaving(nodes), nodes)
    return Crossings(rows, rows.repartition(1).mapInArrow(_beyond, _BEYOND_DDL))


def found(nodes: DataFrame) -> Crossings | None:
    """Found now, on the driver: they are few, and what is at hand is joined at once. None where there are none, and
    then no join looks for them."""
    spark = nodes.sparkSession
    leaving = _leaving(nodes).toArrow()
    if not leaving.num_rows:
        return None
    rows = crossings_of(spark.createDataFrame(leaving), nodes).toArrow()
    beyond = pa.Table.from_batches(_beyond(rows.to_batches()), _BEYOND)
    return Crossings(spark.createDataFrame(rows), spark.createDataFrame(beyond))


def crossings_of(leaving: DataFrame, nodes: DataFrame) -> DataFrame:
    """A row for each message whose critical parent is in another tree: ``top`` (the message), its own ``tree``,
    ``path_end_at`` (null where it is not on that tree's critical path; it is the first there else); the parent
    (``sequence``) and its ``root``; and where the way up from that ends in its tree: ``next``, ``next_at``, ``steps``
    further up."""
    reached = nodes.select("sequence", "root", f.col("top").alias("next"), f.col("top_at").alias("next_at"), "steps")
    return leaving.join(reached, "sequence")


def _leaving(nodes: DataFrame) -> DataFrame:
    return nodes.where("crosses").select(
        f.col("sequence").alias("top"),
        f.col("root").alias("tree"),
        "path_end_at",
        f.col("critical_parent").alias("sequence"),
    )


def steps_outside(nodes: DataFrame, crossings: Crossings) -> DataFrame:
    """The messages on critical paths outside of their trees, with all columns of ``nodes``; ``tree`` (whose path it
    is) and how many outside steps come after it (``before``: 0 is the parent that the tree itself waited for)."""
    entered = nodes.join(crossings.rows.select("root").distinct(), "root", "left_semi")
    starts = crossings.rows.repartition(1).mapInArrow(_hops, _HOPS_DDL)
    # A join puts what it joins by first; what a task gives back is known by its place.
    both = entered.select(*nodes.columns).unionByName(starts, allowMissingColumns=True).repartition("root")
    columns = [*nodes.dtypes, *((name, "bigint") for name in _STARTING)]
    return both.mapInArrow(_listed, ", ".join(f"{name} {kind}" for name, kind in columns))


def _beyond(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For each ``top``: the message its way up begins at (``start``, ``start_at``) and how many steps up that is."""
    table = _gathered(batches)
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
    """From the tops of critical paths, one crossing after the other, all ways at once: at most ``STEPS_MAX`` rounds, in
    most logs two or three."""
    table = _gathered(batches)
    if table is None:
        return
    following = _following(table)
    tree, sequence, root, steps = (longs(table[name]) for name in ("tree", "sequence", "root", "steps"))
    origin = at = np.flatnonzero(longs(table["path_end_at"]) != NEVER)
    before = np.zeros(len(at), np.int64)
    while len(at):
        columns = [pa.array(one) for one in (tree[origin], sequence[at], root[at], before)]
        yield from pa.Table.from_arrays(columns, schema=_HOPS).to_batches(max_chunksize=10_000)
        before = before + steps[at] + 1
        on = (following[at] != NONE) & (before < STEPS_MAX)
        origin, at, before = origin[on], following[at][on], before[on]


def _listed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Up from each start through its tree; rows with a ``tree`` are starts, the others messages. All of a tree is
    there."""
    block = _gathered(batches)
    if block is None:
        return
    is_start = longs(block["tree"]) != NEVER
    starts, messages = block.filter(pa.array(is_start)), block.filter(pa.array(~is_start)).drop_columns(list(_STARTING))
    sequence, crosses = longs(messages["sequence"]), longs(messages["crosses"].cast(pa.int8()), 1) == 1
    up = places_of(sequence, np.where(crosses, NEVER, longs(messages["critical_parent"])))
    at = places_of(sequence, longs(starts["sequence"]))
    tree, before = longs(starts["tree"]), longs(starts["before"])
    while len(at):
        rows = messages.take(pa.array(at)).combine_chunks()
        rows = rows.append_column("tree", pa.array(tree)).append_column("before", pa.array(before))
        yield from rows.to_batches(max_chunksize=10_000)
        before = before + 1
        on = (up[at] != NONE) & (before < STEPS_MAX)
        tree, at, before = tree[on], up[at][on], before[on]


def _following(table: pa.Table) -> Longs:
    """Of each crossing, the one at which the way goes on; ``NONE`` where it begins in that tree."""
    return places_of(longs(table["top"]), longs(table["next"]))


def _gathered(batches: Iterable[pa.RecordBatch]) -> pa.Table | None:
    held = [batch for batch in batches if batch.num_rows]
    return pa.Table.from_batches(held).combine_chunks() if held else None
