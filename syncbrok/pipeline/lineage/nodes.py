"""Messages and their completions -> one row a message with its place in its tree.

Two steps of numpy, each after a shuffle of parcels (``parcels``), however deep the trees are:

``sent``    at the place of a message: sends its row to the place of its tree, and its end to messages that have it as a
            further parent (which may be of another tree, whose place does not know the end)
``placed``  at the place of a tree: finds each message's place in it (``lineage.trees``). A task looks at about a
            million messages at once, or at one place where that has more
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from syncbrok.pipeline.completion import ends as completion
from syncbrok.pipeline.completion.declared import DeclaredFacts
from syncbrok.pipeline.completion.message_groups import ASKING, Gathered, Telling, told
from syncbrok.pipeline.completion.moments import longs
from syncbrok.pipeline.in_arrow import Batches, InArrow
from syncbrok.pipeline.lineage.edges import EDGES, edges_in
from syncbrok.pipeline.lineage.forest import NONE, places_of
from syncbrok.pipeline.lineage.trees import NODES_DDL, nodes_of
from syncbrok.pipeline.shuffle_blocks import (
    BLOCK_ROWS,
    DDL,
    FEW_NEIGHBOURS,
    Parcel,
    batches_of,
    blocks,
    opened,
    parcels,
    received,
    together,
)

ALONG: Final = ("id", "not_before", "parent_sequences", "root", "depth")
"""columns of messages that the nodes are made of, beside those of their completions"""

_KNOWN, _ASKED = 0, ASKING
_NODE, _TOLD = 0, 1
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
    return known.mapInArrow(_parcelled, DDL).repartition("place").mapInArrow(_sent, DDL).repartition("place")


def trees_of_log_together(messages: InArrow, deliveries: InArrow, found: DeclaredFacts) -> DataFrame:
    """As ``trees_together``, from the rows of a log, each read once."""
    return told(messages, deliveries, found, Telling(_sent_of_log, DDL, of_messages=ALONG, asking=asked)).repartition(
        "place"
    )


def nodes_in(trees: DataFrame) -> DataFrame:
    """A row a message of the trees that are ``together``, columns as ``lineage.trees.NODES_DDL`` says."""
    return trees.mapInArrow(_nodes, NODES_DDL)


def schemas() -> dict[str, pa.Schema]:
    """The schemas of the tables that ``nodes_and_edges`` makes."""
    return {"nodes": placed([]).schema, "edges": EDGES}


def nodes_and_edges(batches: Batches) -> Iterator[dict[str, pa.Table]]:
    """Both tables of the trees that are ``together``, those of about a million messages at once."""
    for came in together(received(batches), BLOCK_ROWS):
        nodes = placed(came)
        yield {"nodes": nodes, "edges": edges_in(nodes)}


# -- the steps --------------------------------------------------------------------------------------------------------


def _parcelled(batches: Batches) -> Iterator[pa.RecordBatch]:
    for table in blocks(batches):
        known = table.cast(_NODES)
        yield from batches_of(parcels(known, longs(known["sequence"]), _KNOWN))
        yield from batches_of(asked(known))


def _sent(batches: Batches) -> Iterator[pa.RecordBatch]:
    for came in together(received(batches), BLOCK_ROWS):
        yield from batches_of(sent(opened(came, _KNOWN, _NODES), came))


def _sent_of_log(about: Gathered) -> pa.Table:
    known = completion.told_of_messages(ALONG, about)
    known = known.rename_columns({"message": "sequence"}).select(_NODES.names).cast(_NODES)
    return sent(known.combine_chunks(), about.came)


def asked(messages: pa.Table) -> pa.Table:
    """Parcels of what messages ask of those of their parents which are not the first."""
    sequence, root = longs(messages["sequence"]), longs(messages["root"])
    lists = messages["parent_sequences"].combine_chunks()
    counts = longs(pc.list_value_length(lists), 0)
    child = np.repeat(np.arange(len(sequence)), counts)
    position = np.arange(len(child)) - np.repeat(np.cumsum(counts) - counts, counts)
    further = np.flatnonzero(position)
    parent, child = longs(pc.list_flatten(lists))[further], child[further]
    return parcels(pa.table([parent, sequence[child], root[child], position[further]], schema=_ASKING), parent, _ASKED)


def sent(known: pa.Table, came: list[Parcel]) -> pa.Table:
    """Parcels of messages, for their roots; and for each edge to one of them when it ended: for the child's root, at
    the edge's position; for the parent's, at position 0, that it is named."""
    root = longs(known["root"])
    edges = opened(came, _ASKED, _ASKING)
    at = places_of(longs(known["sequence"]), longs(edges["parent"]))
    edge, parent = edges.take(pa.array(np.flatnonzero(at != NONE))), known.take(pa.array(at[at != NONE]))
    ended = pc.coalesce(parent["complete_at"], parent["ended_at"]).cast(pa.int64())
    none = pa.array(np.zeros(len(parent), np.int64))
    telling = pa.concat_tables(
        [
            pa.table([edge["child"], edge["root"], edge["position"], ended], schema=_TELLING),
            pa.table([parent["sequence"], parent["root"], none, ended], schema=_TELLING),
        ]
    ).combine_chunks()
    by_root = [
        parcels(known, root, _NODE, FEW_NEIGHBOURS),
        parcels(telling, longs(telling["root"]), _TOLD, FEW_NEIGHBOURS),
    ]
    return pa.concat_tables(by_root)


def _nodes(batches: Batches) -> Iterator[pa.RecordBatch]:
    for came in together(received(batches), BLOCK_ROWS):
        yield from batches_of(placed(came))


def placed(came: list[Parcel]) -> pa.Table:
    """The nodes of all trees of some places."""
    return nodes_of(opened(came, _NODE, _NODES), opened(came, _TOLD, _TELLING))
