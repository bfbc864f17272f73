"""Works out when messages that count nobody ended: once their parents have (RULES 17), through whole chains of them.

Such a message has no rows; its end follows from those above it. The records of end and completion are worked out in
numpy, level by level over all chains at once, in one task: it holds some 60 bytes for each parent of such a message.
Where these are more than a million they come to it range by range (``row_ranges``). Only messages accepted in a queue
without subscribers are of this kind, and only those with parents come here.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from syncbrok.pipeline.audit.row_encoding import DELIVER, FAIL, NEVER, Longs, ranges
from syncbrok.pipeline.row_ranges import ROWS_AT_ONCE, range_by_range

_RESULT: Final = "message bigint, complete bigint, ended bigint"
_ENDS: Final = ("complete", "ended")


def ends_of(
    child: Longs, record: Longs, policy: Longs, cancelled: Longs, parent: Longs, complete: Longs, ended: Longs
) -> tuple[Longs, Longs, Longs]:
    """The messages (each ``child`` once), the records with which each became complete, and ended; ``NEVER``: not yet.

    The arrays have one place for each edge. ``record``, ``policy`` and ``cancelled`` are the child's; ``complete`` and
    ``ended`` the parent's, unless ``parent`` is a child in these arrays itself. The parents of a message are older than
    it, so there is no cycle."""
    order = np.argsort(child, kind="stable")
    child, record, policy, cancelled = child[order], record[order], policy[order], cancelled[order]
    parent, above_complete, above_ended = parent[order], complete[order].copy(), ended[order].copy()
    nodes, first = np.unique(child, return_index=True)
    size = len(nodes)
    bounds = np.append(first, len(child))
    at = np.minimum(np.searchsorted(nodes, parent), max(size - 1, 0))
    inside = nodes[at] == parent
    node = np.repeat(np.arange(size), np.diff(bounds))
    open_parents = np.bincount(node[inside], minlength=size)
    below = np.flatnonzero(inside)[np.argsort(at[inside], kind="stable")]  # edges into nodes, by their parent
    below_bounds = np.searchsorted(at[below], np.arange(size + 1))
    node_complete = np.full(size, NEVER)
    node_ended = np.full(size, NEVER)
    level = np.flatnonzero(open_parents == 0)
    while len(level):
        widths = bounds[level + 1] - bounds[level]
        edges = ranges(bounds[level], widths)
        _settle(level, first, record, policy, cancelled, above_complete[edges], above_ended[edges],
                np.cumsum(widths) - widths, node_complete, node_ended)  # fmt: skip
        following = below[ranges(below_bounds[level], below_bounds[level + 1] - below_bounds[level])]
        above_complete[following] = node_complete[at[following]]
        above_ended[following] = node_ended[at[following]]
        np.subtract.at(open_parents, node[following], 1)
        reached = np.unique(node[following])
        level = reached[open_parents[reached] == 0]
    return nodes, node_complete, node_ended


def _settle(
    level: npt.NDArray[np.intp], first: npt.NDArray[np.intp], record: Longs, policy: Longs, cancelled: Longs,
    above_complete: Longs, above_ended: Longs, starts: npt.NDArray[np.intp], node_complete: Longs, node_ended: Longs,
) -> None:  # fmt: skip
    """Write down when the nodes of ``level`` became complete and ended, in ``node_complete`` and ``node_ended``.
    ``starts`` is where the edges of each begin."""
    own, kind = record[first[level]], policy[first[level]]
    widths = np.diff(np.append(starts, len(above_complete)))
    accepted, delivers = np.repeat(own, widths), np.repeat(kind == DELIVER, widths)
    done = np.where(delivers, above_ended, above_complete)
    complete = np.maximum(own, np.maximum.reduceat(done, starts))
    seen = np.maximum(accepted, above_ended)
    failed = np.minimum.reduceat(np.where(seen < above_complete, seen, NEVER), starts)
    node_complete[level] = np.minimum(complete, NEVER)
    node_ended[level] = np.minimum(np.minimum(complete, cancelled[first[level]]), np.where(kind == FAIL, failed, NEVER))


def _task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    kept = [batch for batch in batches if batch.num_rows]
    if not kept:
        return
    table = pa.Table.from_batches(kept)
    columns = [table.column(name).to_numpy().astype(np.int64) for name in
               ("child", "record", "policy", "cancelled", "parent", "complete", "ended")]  # fmt: skip
    nodes, complete, ended = ends_of(*columns)
    values = [pa.array(one) for one in (nodes, np.minimum(complete, NEVER), np.minimum(ended, NEVER))]
    yield pa.RecordBatch.from_arrays(values, names=["message", "complete", "ended"])


def propagated_ends(
    histories: DataFrame, edges: DataFrame, bad: DataFrame, rows_at_once: int = ROWS_AT_ONCE
) -> DataFrame:
    """A data frame (message, complete, ended) of the records with which messages that follow their parents became
    complete and ended. ``histories``, ``edges`` and ``bad`` are rows of ``causal_rules.CAUSAL_INPUT``; those of ``bad``
    ended badly, and their records are gone. ``rows_at_once``: so many edges are in one task."""
    above = histories.select(
        f.col("message").alias("parent"), f.col("record").alias("above"), "complete", "ended",
        f.col("follows").alias("is_chained"),
    )  # fmt: skip
    met = (
        edges.where("follows").select("child", "record", "policy", "cancelled", "parent").join(above, "parent", "left")
    )
    listed = bad.select(f.col("message").alias("parent"), "since", "mended")
    met = met.join(listed, "parent", "left")
    is_known = f.coalesce(f.col("above") < f.col("record"), f.lit(False))
    is_bad = f.col("above").isNull() & (f.col("since") < f.col("record")) & (f.col("policy") != DELIVER)
    complete = f.when(is_known, f.col("complete")).when(is_bad, f.col("mended")).otherwise(0)
    work = met.select(
        "child",
        "record",
        f.col("policy").cast("bigint").alias("policy"),
        "cancelled",
        # A parent of the same kind is worked out with it; every other one has its place outside.
        f.when(is_known & f.col("is_chained"), f.col("parent")).otherwise(0).alias("parent"),
        complete.alias("complete"),
        f.when(is_known, f.col("ended")).otherwise(0).alias("ended"),
    )
    count = edges.where("follows").count()
    return range_by_range(work, "child", count, _ends_in_range, rows_at_once)


def _ends_in_range(work: DataFrame, before: DataFrame | None) -> DataFrame:
    if before is not None:
        known = before.select(f.col("message").alias("parent"), *(f.col(one).alias(f"{one}_before") for one in _ENDS))
        met = work.join(known, "parent", "left")
        work = met.select(
            *("child", "record", "policy", "cancelled", "parent"),
            *(f.coalesce(f"{one}_before", one).alias(one) for one in _ENDS),
        )
    return work.repartition(1).mapInArrow(_task, _RESULT)
