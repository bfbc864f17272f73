"""Messages and their completions -> one row a message with its place in its tree.

Two steps of numpy, each after a shuffle of blocks (``shuffle_blocks``), however deep the trees are:

``tree_blocks``      in the bucket of a message: sends its row to the bucket of its tree, and its end to messages that
                     have it as a further parent (which may be of another tree, whose bucket does not know the end)
``nodes_of_blocks``  in the bucket of a tree: finds each message's place in it (``lineage.trees``). A task looks at
                     about a million messages at once, or at one bucket where that has more
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from syncbrok.pipeline.completion import completions as completion
from syncbrok.pipeline.completion.message_groups import ASKING, GroupMapper, MessageGroup, map_groups
from syncbrok.pipeline.lineage.edges import EDGES, edges_in
from syncbrok.pipeline.lineage.trees import NODES_DDL, nodes_of
from syncbrok.pipeline.map_in_arrow import MapsInArrow, RecordBatches
from syncbrok.pipeline.numpy_columns import NONE, longs, places_of, spread
from syncbrok.pipeline.schema import TIME
from syncbrok.pipeline.shuffle_blocks import (
    BLOCK_DDL,
    FEW_NEIGHBOURS,
    ShuffleBlock,
    batches_of,
    received_groups,
    rows_of_kind,
    shuffle_blocks,
    tables_of,
)
from syncbrok.pipeline.states.declared_facts import DeclaredFacts

ALONG: Final = ("id", "not_before", "parent_sequences", "root", "depth")
"""columns of messages that the nodes are made of, beside those of their completions"""

_KNOWN, _ASKED = 0, ASKING
_NODE, _TOLD = 0, 1
_NODES: Final = pa.schema(
    [
        *(("sequence", pa.int64()), ("id", pa.string()), ("queue", pa.string()), ("accepted_at", TIME)),
        *((name, TIME) for name in ("not_before", "first_attempt_at", "complete_at", "ended_at")),
        *(("attempts", pa.int64()), ("root", pa.int64()), ("depth", pa.int32())),
        ("parent_sequences", pa.list_(pa.int64())),
    ]
)
_ASKING: Final = pa.schema([(name, pa.int64()) for name in ("parent", "child", "root", "position")])
_TELLING: Final = pa.schema([(name, pa.int64()) for name in ("sequence", "root", "position", "other_ended_us")])


def trees_together(messages: DataFrame, completions: DataFrame) -> DataFrame:
    """Shuffle blocks in which whole trees are in one bucket. ``messages`` have ``root`` and ``depth``."""
    accepted = messages.select("sequence", f.col("time").alias("accepted_at"), "queue", *ALONG)
    own = completions.select(
        f.col("message").alias("sequence"),
        f.col("attempts").cast("bigint").alias("attempts"),
        *("first_attempt_at", "complete_at", "ended_at"),
    )
    known = accepted.join(own, "sequence", "left").select(*_NODES.names)
    return (
        known.mapInArrow(_to_blocks, BLOCK_DDL)
        .repartition("bucket")
        .mapInArrow(_tree_blocks, BLOCK_DDL)
        .repartition("bucket")
    )


def trees_of_log_together(messages: MapsInArrow, deliveries: MapsInArrow, found: DeclaredFacts) -> DataFrame:
    """Shuffle blocks as of ``trees_together``, from the rows of a log, each read once."""
    return map_groups(
        messages,
        deliveries,
        found,
        GroupMapper(_tree_blocks_of_log, BLOCK_DDL, of_messages=ALONG, asking=parent_questions),
    ).repartition("bucket")


def nodes_in(trees: DataFrame) -> DataFrame:
    """A row a message of the trees that ``trees_together`` brought together, columns as ``lineage.trees.NODES_DDL``
    says."""
    return trees.mapInArrow(_nodes, NODES_DDL)


def schemas() -> dict[str, pa.Schema]:
    """The schemas of the tables that ``nodes_and_edges`` makes."""
    return {"nodes": nodes_of_blocks([]).schema, "edges": EDGES}


def nodes_and_edges(batches: RecordBatches) -> Iterator[dict[str, pa.Table]]:
    """Both tables of the trees that ``trees_together`` brought together, those of about a million messages at once."""
    for came in received_groups(batches):
        nodes = nodes_of_blocks(came)
        yield {"nodes": nodes, "edges": edges_in(nodes)}


# -- the steps --------------------------------------------------------------------------------------------------------


def _to_blocks(batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    for table in tables_of(batches):
        known = table.cast(_NODES)
        yield from batches_of(shuffle_blocks(known, longs(known["sequence"]), _KNOWN))
        yield from batches_of(parent_questions(known))


def _tree_blocks(batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    for came in received_groups(batches):
        yield from batches_of(tree_blocks(rows_of_kind(came, _KNOWN, _NODES), came))


def _tree_blocks_of_log(group: MessageGroup) -> pa.Table:
    known = completion.completion_rows(ALONG, group)
    known = known.rename_columns({"message": "sequence"}).select(_NODES.names).cast(_NODES)
    return tree_blocks(known.combine_chunks(), group.came)


def parent_questions(messages: pa.Table) -> pa.Table:
    """Shuffle blocks of what messages ask of those of their parents which are not the first."""
    sequence, root = longs(messages["sequence"]), longs(messages["root"])
    lists = messages["parent_sequences"].combine_chunks()
    counts = longs(pc.list_value_length(lists), 0)
    child, position = spread(counts)
    further = np.flatnonzero(position)
    parent, child = longs(pc.list_flatten(lists))[further], child[further]
    return shuffle_blocks(
        pa.table([parent, sequence[child], root[child], position[further]], schema=_ASKING), parent, _ASKED
    )


def tree_blocks(known: pa.Table, came: list[ShuffleBlock]) -> pa.Table:
    """Shuffle blocks of messages, for their roots; and for each edge to one of them when it ended: for the child's
    root, at the edge's position; for the parent's, at position 0, that it is named."""
    root = longs(known["root"])
    edges = rows_of_kind(came, _ASKED, _ASKING)
    at = places_of(longs(known["sequence"]), longs(edges["parent"]))
    edge, parent = edges.take(pa.array(np.flatnonzero(at != NONE))), known.take(pa.array(at[at != NONE]))
    ended = pc.coalesce(parent["complete_at"], parent["ended_at"]).cast(pa.int64())
    none = pa.array(np.zeros(len(parent), np.int64))
    mapper = pa.concat_tables(
        [
            pa.table([edge["child"], edge["root"], edge["position"], ended], schema=_TELLING),
            pa.table([parent["sequence"], parent["root"], none, ended], schema=_TELLING),
        ]
    ).combine_chunks()
    by_root = [
        shuffle_blocks(known, root, _NODE, FEW_NEIGHBOURS),
        shuffle_blocks(mapper, longs(mapper["root"]), _TOLD, FEW_NEIGHBOURS),
    ]
    return pa.concat_tables(by_root)


def _nodes(batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    for came in received_groups(batches):
        yield from batches_of(nodes_of_blocks(came))


def nodes_of_blocks(came: list[ShuffleBlock]) -> pa.Table:
    """The nodes of all trees of some buckets."""
    return nodes_of(rows_of_kind(came, _NODE, _NODES), rows_of_kind(came, _TOLD, _TELLING))
