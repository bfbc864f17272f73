"""Messages and what became of them -> one row a message with its place in its tree.

Three steps of numpy, between which parcels (``lineage_parcels``) are brought together anew, however deep the trees are:

``sent``    what is known of each message, to where its tree is; and to where its parents are which of them are not its
            first: when those ended is not known in its tree, they may be of another
``met``     at a parent: when it ended, to the trees of both
``placed``  whole trees come to one place (``lineage_trees``): a task looks at about a million messages at once, or at
            one place where that has more
"""

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from syncbrok.pipeline.completion import ends as completion
from syncbrok.pipeline.completion.declared import Declared
from syncbrok.pipeline.completion.moments import longs
from syncbrok.pipeline.completion.standing import Standing
from syncbrok.pipeline.lineage.edges import edges_in
from syncbrok.pipeline.lineage.forest import NONE, places_of
from syncbrok.pipeline.lineage.parcels import DDL, PARCELS, opened, parcels, together
from syncbrok.pipeline.lineage.trees import BLOCK_ROWS, NODES_DDL, nodes_of

ALONG: Final = ("id", "not_before", "parent_sequences", "root", "depth")
"""columns of messages that the nodes are made of, beside those of their completions"""

_BATCH_ROWS: Final = 10_000
_NODE, _ASKED, _PARENT, _TOLD = 0, 1, 2, 3
_TIME: Final = pa.timestamp("us", tz="UTC")
_NODES: Final = pa.schema(
    [
        *(("sequence", pa.int64()), ("id", pa.string()), ("queue", pa.string()), ("accepted_at", _TIME)),
        *((name, _TIME) for name in ("not_before", "first_attempt_at", "complete_at", "ended_at")),
        *(("attempts", pa.int64()), ("root", pa.int64()), ("depth", pa.int32())),
        ("parent_sequences", pa.list_(pa.int64())),
    ]
)
_ASKING: Final = pa.schema([(name, pa.int64()) for name in ("parent", "child", "root", "position")])
_PARENTS: Final = pa.schema([(name, pa.int64()) for name in ("sequence", "root", "ended_us")])
_TELLING: Final = pa.schema([(name, pa.int64()) for name in ("sequence", "root", "position", "other_ended_us")])


def trees_together(messages: DataFrame, completions: DataFrame) -> DataFrame:
    """Parcels in which whole trees are at one place. ``messages`` have ``root`` and ``depth``."""
    accepted = messages.select("sequence", f.col("time").alias("accepted_at"), "queue", *ALONG)
    own = completions.select(
        f.col("message").alias("sequence"),
        f.col("attempts").cast("bigint").alias("attempts"),
        *("first_attempt_at", "complete_at", "ended_at"),
    )
    known = accepted.join(own, "sequence", "left").select(*_NODES.names)
    return _together(known.mapInArrow(_sent, DDL))


def trees_of_log_together(messages: DataFrame, deliveries: DataFrame, found: Declared) -> DataFrame:
    """The same of the rows of a log, each read once."""
    rows = completion.gathered(messages, deliveries, found, ALONG)
    return _together(completion.told_of(rows, found, _sent_of_log, DDL))


def _together(sent: DataFrame) -> DataFrame:
    return sent.repartition("place").mapInArrow(_met, DDL).repartition("place")


def nodes_in(trees: DataFrame) -> DataFrame:
    """A row a message of the trees that are ``together``, columns as ``lineage_trees.NODES_DDL`` says."""
    return trees.mapInArrow(_nodes, NODES_DDL)


def nodes_and_edges(received: pa.Table) -> dict[str, pa.Table]:
    """Both tables of all trees of some places."""
    nodes = placed(received)
    return {"nodes": nodes, "edges": edges_in(nodes)}


# -- the steps --------------------------------------------------------------------------------------------------------


def _sent(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    some = [batch for batch in batches if batch.num_rows]
    if some:
        yield from sent(pa.Table.from_batches(some).cast(_NODES).combine_chunks()).to_batches()


def _sent_of_log(table: pa.Table, standing: Standing) -> pa.Table:
    known = completion.told_of_messages(ALONG, table, standing)
    return sent(known.rename_columns({"message": "sequence"}).select(_NODES.names).cast(_NODES).combine_chunks())


def sent(known: pa.Table) -> pa.Table:
    """Parcels of messages, for their roots; of what is asked of parents, and of what parents can tell, for those."""
    sequence, root = longs(known["sequence"]), longs(known["root"])
    lists = known["parent_sequences"].combine_chunks()
    counts = longs(pc.list_value_length(lists), 0)
    child = np.repeat(np.arange(len(sequence)), counts)
    position = np.arange(len(child)) - np.repeat(np.cumsum(counts) - counts, counts)
    further = np.flatnonzero(position)
    parent = longs(pc.list_flatten(lists))[further]
    child = child[further]
    asked = pa.table([parent, sequence[child], root[child], position[further]], schema=_ASKING)
    ended = known["complete_at"].combine_chunks().fill_null(known["ended_at"].combine_chunks()).cast(pa.int64())
    parents = pa.table([sequence, root, ended], schema=_PARENTS)
    return pa.concat_tables(
        [parcels(known, root, _NODE), parcels(asked, parent, _ASKED), parcels(parents, sequence, _PARENT)]
    )


def _met(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    held = []
    for batch in batches:
        is_node = pc.equal(batch["kind"], _NODE)
        yield batch.filter(is_node)
        held.append(batch.filter(pc.invert(is_node)))
    yield from met(pa.Table.from_batches(held, PARCELS)).to_batches()


def met(received: pa.Table) -> pa.Table:
    """For each edge to a parent that is there when that ended, in parcels: for the child's root, at the edge's
    position; for the parent's, at position 0, that it is named."""
    asked = opened(received.filter(pc.equal(received["kind"], _ASKED)), _ASKING)
    parents = opened(received.filter(pc.equal(received["kind"], _PARENT)), _PARENTS)
    at = places_of(longs(parents["sequence"]), longs(asked["parent"]))
    edge, at = asked.take(pa.array(np.flatnonzero(at != NONE))), at[at != NONE]
    parent = parents.take(pa.array(at))
    none = pa.array(np.zeros(len(at), np.int64))
    told = pa.concat_tables(
        [
            pa.table([edge["child"], edge["root"], edge["position"], parent["ended_us"]], schema=_TELLING),
            pa.table([parent["sequence"], parent["root"], none, parent["ended_us"]], schema=_TELLING),
        ]
    ).combine_chunks()
    return parcels(told, longs(told["root"]), _TOLD)


def _nodes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for received in together(pa.Table.from_batches(list(batches), PARCELS), BLOCK_ROWS):
        yield from placed(received).to_batches(max_chunksize=_BATCH_ROWS)


def placed(received: pa.Table) -> pa.Table:
    """The nodes of all trees of some places."""
    messages = opened(received.filter(pc.equal(received["kind"], _NODE)), _NODES)
    told = opened(received.filter(pc.equal(received["kind"], _TOLD)), _TELLING)
    return nodes_of(messages, told)
