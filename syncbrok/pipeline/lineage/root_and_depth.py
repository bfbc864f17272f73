"""Works out root and depth of messages that do not say them: rows of elsewhere, or of before they were recorded.

``root``   where the way up along first parents ends
``depth``  1 + the depth of the deepest parent, 0 without parents

as the broker records them; a parent that is not among the messages counts as not being there, and a message that says
its own root and depth is believed. A task goes through the messages in the order of the log, in which parents stand
before their children, a block at a time, and keeps 20 bytes a message. Millions of them come range by range
(``row_ranges``): what is known of parents in earlier ranges comes along. Inside a block ways are followed by pointer
doubling, so a chain of a thousand takes ten rounds; only a block in which messages have several parents is walked
message by message for the depths (1 us each), since the longest of several ways cannot be doubled.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from syncbrok.pipeline.lineage.pointer_doubling import above
from syncbrok.pipeline.map_in_arrow import RecordBatches
from syncbrok.pipeline.numpy_columns import NEVER, NONE, Longs, longs, places_in_order
from syncbrok.pipeline.row_ranges import range_by_range
from syncbrok.pipeline.shuffle_blocks import ROWS_AT_ONCE, tables_of

_ROOT_AND_DEPTH: Final = pa.schema([("sequence", pa.int64()), ("root", pa.int64()), ("depth", pa.int32())])
RANGE_ROWS: Final = 8 * ROWS_AT_ONCE
"""messages that a task goes through: 160 MB"""
_ROOT_AND_DEPTH_DDL: Final = "sequence bigint, root bigint, depth int"


def with_root_and_depth(messages: DataFrame, rows_at_once: int = RANGE_ROWS) -> DataFrame:
    """``messages`` as they are where all of them say root and depth (a look at these two columns); else with both
    filled in. ``rows_at_once``: so many are in one task."""
    missing = [name for name in ("root", "depth") if name not in messages.columns]
    messages = messages.withColumns({name: f.lit(None).cast("bigint") for name in missing})
    unsaid = "root is null or root < 1 or depth is null"
    if not missing and messages.select("root", "depth").where(unsaid).isEmpty():
        return messages
    order = messages.select("sequence", "parent_sequences", "root", "depth")
    places = range_by_range(order, "sequence", order.count(), _places_in_range, rows_at_once)
    return messages.drop("root", "depth").join(places, "sequence")


def _places_in_range(rows: DataFrame, before: DataFrame | None) -> DataFrame:
    every = rows.withColumn("is_before", f.lit(False))
    if before is not None:
        named = rows.select(f.explode("parent_sequences").alias("sequence")).distinct()
        known = before.join(named, "sequence", "left_semi").withColumns(
            {"parent_sequences": f.array().cast("array<bigint>"), "is_before": f.lit(True)}
        )
        every = every.unionByName(known)
    in_order = every.repartition(1).sortWithinPartitions("sequence")
    return in_order.mapInArrow(_places, _ROOT_AND_DEPTH_DDL)


class RootsAndDepths:
    """The state of the computation: roots and depths of the messages so far, in the order of their sequences."""

    def __init__(self) -> None:
        self._count = 0
        self._sequence, self._root, self._depth = (np.empty(1024, np.int64) for _ in range(3))

    def add(self, block: pa.Table) -> tuple[Longs, Longs]:
        """Root and depth of each message of ``block``: sequence (ascending, behind all before), parent_sequences, and
        root and depth where they are said."""
        sequence = longs(block["sequence"])
        start, self._count = self._count, self._count + len(sequence)
        self._grow()
        self._sequence[start : self._count] = sequence
        lists = block["parent_sequences"].combine_chunks()
        counts = longs(pc.list_value_length(lists), 0)
        parents = self._places(longs(pc.list_flatten(lists)))
        said = (longs(block["root"], 0) > 0) & (longs(block["depth"]) != NEVER)
        first = np.full(len(sequence), NONE, np.int64)
        first[counts > 0] = parents[(np.cumsum(counts) - counts)[counts > 0]]
        inside = np.where((first >= start) & ~said, first - start, NONE)
        way = above(inside)
        self._root[start : self._count] = self._root_of_top(said, longs(block["root"], 0), first, sequence, start)[
            way.top
        ]
        given = np.where(said, longs(block["depth"], 0), NEVER)
        if int(np.count_nonzero(parents != NONE)) == int(np.count_nonzero(first != NONE)):
            own = np.where(first != NONE, self._depth[np.minimum(first, start)] + 1, 0)
            own = np.where(said, given, own)
            self._depth[start : self._count] = own[way.top] + way.steps
        else:
            self._walk(start, given, counts, parents)
        return self._root[start : self._count], self._depth[start : self._count]

    def _root_of_top(self, said: Longs, root: Longs, first: Longs, sequence: Longs, start: int) -> Longs:
        """The root for messages at which a path ends in the block: the recorded one, else the root of its first parent
        in an earlier block, else itself. Values for other messages mean nothing."""
        earlier = self._root[np.clip(first, 0, max(start - 1, 0))]
        return np.where(said, root, np.where((first != NONE) & (first < start), earlier, sequence))

    def _walk(self, start: int, given: Longs, counts: Longs, parents: Longs) -> None:
        """The depths of a block, one after the other: parents stand before their children."""
        before = self._depth[np.clip(parents, 0, max(start - 1, 0))].tolist()
        depths: list[int] = []
        at = 0
        places = parents.tolist()
        for own, count in zip(given.tolist(), counts.tolist(), strict=True):
            deepest = -1
            for edge in range(at, at + count):
                if places[edge] >= start:
                    deepest = max(deepest, depths[places[edge] - start])
                elif places[edge] != NONE:
                    deepest = max(deepest, before[edge])
            at += count
            depths.append(deepest + 1 if own == NEVER else own)
        self._depth[start : self._count] = depths

    def _places(self, wanted: Longs) -> Longs:
        return places_in_order(self._sequence[: self._count], wanted)

    def _grow(self) -> None:
        size = len(self._sequence)
        if self._count > size:
            more = max(self._count, 2 * size) - size
            self._sequence, self._root, self._depth = (
                np.append(column, np.empty(more, np.int64)) for column in (self._sequence, self._root, self._depth)
            )


def _places(batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    places = RootsAndDepths()
    for block in tables_of(batches, ROWS_AT_ONCE):
        root, depth = places.add(block)
        columns = [block["sequence"].combine_chunks(), pa.array(root), pa.array(depth.astype(np.int32))]
        found = pa.Table.from_arrays(columns, schema=_ROOT_AND_DEPTH).filter(pc.invert(block["is_before"]))
        yield from found.combine_chunks().to_batches(max_chunksize=10_000)
