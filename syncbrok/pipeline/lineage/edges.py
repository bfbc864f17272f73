"""The edges of the causal graph: a row for each parent of a message."""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from syncbrok.pipeline.map_in_arrow import RecordBatches
from syncbrok.pipeline.numpy_columns import longs, spread
from syncbrok.pipeline.schema import TIME, ddl_of

_NEEDED: Final = ("sequence", "root", "accepted_at", "critical_parent", "parents")
EDGES: Final = pa.schema(
    [
        *(("parent", pa.int64()), ("child", pa.int64()), ("position", pa.int32()), ("root", pa.int64())),
        *(("in_tree", pa.bool_()), ("parent_ended_at", TIME), ("waited_us", pa.int64()), ("critical", pa.bool_())),
    ]
)


def edges_of(nodes: DataFrame) -> DataFrame:
    """A data frame with a row for each parent of a message: ``parent``, ``child``, ``position`` among the child's
    parents (0: the first), ``root`` of the child's tree, ``in_tree`` (the parent is in it too), ``parent_ended_at``,
    ``waited_us`` (how long the child, accepted, waited for this parent; null while the parent has no end) and
    ``critical`` (it was the last the child waited for)."""
    return nodes.select(*_NEEDED).mapInArrow(_edges, ddl_of(EDGES))


def _edges(batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from edges_in(pa.Table.from_batches([batch])).to_batches()


def edges_in(nodes: pa.Table) -> pa.Table:
    """The same rows for some of the nodes, without Spark."""
    lists = nodes["parents"].combine_chunks()
    child, position = spread(longs(pc.list_value_length(lists), 0))
    parent, ended_at, in_tree = pc.list_flatten(lists).flatten()
    own = nodes.select(["sequence", "root", "accepted_at", "critical_parent"]).take(pa.array(child))
    waited = pc.subtract(ended_at.cast(pa.int64()), own["accepted_at"].cast(pa.int64()))
    columns = {
        "parent": parent,
        "child": own["sequence"],
        "position": pa.array(position),
        "root": own["root"],
        "in_tree": in_tree,
        "parent_ended_at": ended_at,
        "waited_us": pc.max_element_wise(waited, 0, skip_nulls=False),
        "critical": pc.fill_null(pc.equal(parent, own["critical_parent"]), False),
    }
    return pa.table(columns).cast(EDGES)
