"""Brings all rows about a message into one bucket: the message, its deliveries, delivery states from carried messages,
and questions of other messages.

    messages ─┬─ blocks, made where they are read ─▶ bucket of the message ─▶ GroupMapper.make_rows: rows about groups
  deliveries ─┘

Blocks of rows of a log are made by the tasks that decode them, so Spark meets no row of them at all.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from syncbrok.model.facts import Outcome, Reason
from syncbrok.pipeline.completion.completion_state import HAS_PARENTS, SAME, CompletionTables, completion_state
from syncbrok.pipeline.completion.declared_facts import DeclaredFacts
from syncbrok.pipeline.completion.input_columns import TaskFacts, known
from syncbrok.pipeline.completion.packed_ends import packed, packed_as
from syncbrok.pipeline.map_in_arrow import MapsInArrow, RecordBatches
from syncbrok.pipeline.numpy_columns import longs
from syncbrok.pipeline.schema import columns_of
from syncbrok.pipeline.shuffle_blocks import (
    BLOCK_DDL,
    ShuffleBlock,
    batches_of,
    received_groups,
    rows_of_kind,
    shuffle_blocks,
    tables_of,
)

_MESSAGE, _ROW = 0, 1
ASKING: Final = 2
"""the least kind of blocks that ``asking`` may make"""

_ACCEPTED: Final = pa.schema(
    [
        *((name, pa.int64()) for name in ("message", "accepted_us", "ready_us", "only", "holds")),
        ("queue", pa.string()),
    ]
)
_ROWS: Final = pa.schema(
    [(name, pa.int64()) for name in ("message", "subscriber", "position", "said", "at_us", "attempt", "began_us")]
)

Asking = Callable[[pa.Table], pa.Table]
"""blocks of what messages ask of others, of a kind from ``ASKING`` on, by the message that they ask"""


class MessageGroup(NamedTuple):
    """All rows about some messages. ``table``: a row for each message and for each row of its deliveries (the columns
    of one kind are null in the other). ``state``: how the messages stand. ``came``: every block that arrived, for steps
    that look for their own."""

    table: pa.Table
    state: CompletionTables
    came: list[ShuffleBlock]


class GroupMapper(NamedTuple):
    """A job's function on message groups: ``make_rows`` makes rows of ``columns`` from a group. ``of_messages`` and
    ``of_deliveries``: input columns that it needs in addition to the common ones."""

    make_rows: Callable[[MessageGroup], pa.Table]
    columns: str
    of_messages: tuple[str, ...] = ()
    of_deliveries: tuple[str, ...] = ()
    asking: Asking | None = None


def map_groups(messages: MapsInArrow, deliveries: MapsInArrow, found: DeclaredFacts, mapper: GroupMapper) -> DataFrame:
    """A data frame of the rows that ``mapper`` makes of all message groups. Each message is in one group, and so is
    each delivery row whose message is not there."""
    every = messages.mapInArrow(partial(_of_messages, mapper), BLOCK_DDL).unionByName(
        deliveries.mapInArrow(partial(_of_deliveries, mapper), BLOCK_DDL)
    )
    if found.carried_ends or found.carried_attempts:
        carried = _carried(found, mapper)
        every = every.unionByName(
            every.sparkSession.createDataFrame(shuffle_blocks(carried, longs(carried["message"]), _ROW))
        )
    return every.repartition("bucket").mapInArrow(partial(_map_groups, known(found), mapper), mapper.columns)


# -- where rows are read ----------------------------------------------------------------------------------------------


def _of_messages(mapper: GroupMapper, batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    for messages in tables_of(batches):
        accepted = _accepted(messages, mapper)
        yield from batches_of(shuffle_blocks(accepted, longs(accepted["message"]), _MESSAGE))
        if mapper.asking is not None:
            yield from batches_of(mapper.asking(messages))


def _of_deliveries(mapper: GroupMapper, batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    for deliveries in tables_of(batches):
        # A row that stands for many messages, which do not count the subscriber, is about none of them.
        for_many = pc.fill_null(pc.equal(deliveries["reason"].cast(pa.string()), "retention"), fill_value=False)
        rows = _rows(deliveries.filter(pc.invert(for_many)), mapper)
        yield from batches_of(shuffle_blocks(rows, longs(rows["message"]), _ROW))


def _accepted(messages: pa.Table, mapper: GroupMapper) -> pa.Table:
    accepted_us = longs(messages["time"])
    has_parents = longs(pc.list_value_length(messages["parent_sequences"]), 0) > 0
    is_same = np.zeros(len(accepted_us), np.bool_)
    if "scope" in messages.column_names:
        is_same = longs(pc.equal(messages["scope"], "same").cast(pa.int8()), 0) == 1
    columns = {
        "message": messages["sequence"],
        "accepted_us": accepted_us,
        "ready_us": np.maximum(accepted_us, longs(messages["not_before"])),
        "only": messages["only_subscriber"],
        "holds": np.where(has_parents, HAS_PARENTS, 0) + np.where(is_same, SAME, 0),
        "queue": messages["queue"],
        **{name: messages[name] for name in mapper.of_messages},
    }
    return pa.table(columns).cast(_schema(_ACCEPTED, "messages", mapper.of_messages))


def _rows(deliveries: pa.Table, mapper: GroupMapper) -> pa.Table:
    attempt = deliveries["attempt"]
    columns = {
        "message": deliveries["message"],
        "subscriber": deliveries["subscriber_number"],
        "position": deliveries["position"],
        "said": packed(longs(deliveries["sequence"]), deliveries["outcome"], deliveries["reason"]),
        "at_us": deliveries["recorded"].cast(pa.int64()),
        "attempt": attempt,
        "began_us": pc.if_else(pc.greater(attempt, 0), deliveries["time"].cast(pa.int64()), None),
        **{name: deliveries[name] for name in mapper.of_deliveries},
    }
    return pa.table(columns).cast(_schema(_ROWS, "deliveries", mapper.of_deliveries))


def _carried(found: DeclaredFacts, mapper: GroupMapper) -> pa.Table:
    """Delivery rows for the delivery states in carried records."""
    ends = [
        {
            "message": message,
            "subscriber": number,
            "said": packed_as(record, Outcome[outcome.upper()], Reason.NONE),
            "at_us": at_us,
        }
        for message, number, record, at_us, outcome in found.carried_ends
    ]
    tried = [
        {"message": message, "subscriber": number, "attempt": attempts}
        for message, number, attempts in found.carried_attempts
    ]
    return pa.Table.from_pylist([*ends, *tried], _schema(_ROWS, "deliveries", mapper.of_deliveries))


def _schema(own: pa.Schema, kind: str, more: Sequence[str]) -> pa.Schema:
    along = columns_of(kind, ",".join(more)) if more else ()
    return pa.schema([*own, *((one.name, one.arrow) for one in along)])


# -- in the bucket of the messages ------------------------------------------------------------------------------------


def _map_groups(known: TaskFacts, mapper: GroupMapper, batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    accepted = _schema(_ACCEPTED, "messages", mapper.of_messages)
    rows = _schema(_ROWS, "deliveries", mapper.of_deliveries)
    for came in received_groups(batches):
        both = [rows_of_kind(came, _MESSAGE, accepted), rows_of_kind(came, _ROW, rows)]
        table = pa.concat_tables(both, promote_options="default").combine_chunks()
        yield from batches_of(mapper.make_rows(MessageGroup(table, completion_state(table, known), came)))
