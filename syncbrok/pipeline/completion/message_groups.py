"""Brings all rows about a message into one bucket: the message, its deliveries, delivery states from carried messages,
and questions of other messages.

    messages ─┬─ blocks, made where they are read ─▶ bucket of the message ─▶ GroupMapper.make_rows: rows about groups
  deliveries ─┘

Blocks of rows of a log are made by the tasks that decode them, so Spark meets no row of them at all.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame

from syncbrok.pipeline.map_in_arrow import MapsInArrow, RecordBatches
from syncbrok.pipeline.numpy_columns import longs
from syncbrok.pipeline.shuffle_blocks import (
    BLOCK_DDL,
    ShuffleBlock,
    batches_of,
    received_groups,
    rows_of_kind,
    shuffle_blocks,
    tables_of,
)
from syncbrok.pipeline.states.completion_state import CompletionTables, completion_state
from syncbrok.pipeline.states.declared_facts import ABOUT, DeclaredFacts, about_messages, put_together
from syncbrok.pipeline.states.input_columns import (
    TaskFacts,
    accepted_rows,
    accepted_schema,
    carried_rows,
    delivery_rows,
    delivery_schema,
    known,
    together,
)

_MESSAGE, _ROW, _FACT, _WAITING = 0, 1, 2, 3
ASKING: Final = 4
"""the least kind of blocks that ``asking`` may make"""
_WAITING_ROWS: Final = pa.schema([("message", pa.int64())])

Asking = Callable[[pa.Table], pa.Table]
"""blocks of what messages ask of others, of a kind from ``ASKING`` on, by the message that they ask"""


class MessageGroup(NamedTuple):
    """All rows about some messages. ``table``: a row for each message and for each row of its deliveries (the columns
    of one kind are null in the other). ``state``: how the messages stand. ``known``: the rare facts. ``came``: every
    block that arrived, for steps that look for their own."""

    table: pa.Table
    state: CompletionTables
    known: TaskFacts
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
    if found.about is not None:
        every = every.unionByName(found.about.mapInArrow(_of_facts, BLOCK_DDL))
    if found.waiting is not None:
        every = every.unionByName(found.waiting.mapInArrow(_of_waiting, BLOCK_DDL))
    first = min(found.records, default=0)
    return every.repartition("bucket").mapInArrow(partial(_map_groups, known(found), first, mapper), mapper.columns)


# -- where rows are read ----------------------------------------------------------------------------------------------


def _of_messages(mapper: GroupMapper, batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    for messages in tables_of(batches):
        accepted = accepted_rows(messages, mapper.of_messages)
        yield from batches_of(shuffle_blocks(accepted, longs(accepted["message"]), _MESSAGE))
        if mapper.asking is not None:
            yield from batches_of(mapper.asking(messages))


def _of_deliveries(mapper: GroupMapper, batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    for deliveries in tables_of(batches):
        rows = delivery_rows(deliveries, mapper.of_deliveries)
        yield from batches_of(shuffle_blocks(rows, longs(rows["message"]), _ROW))


def _of_facts(batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    for facts in tables_of(batches):
        about = about_messages(facts)
        yield from batches_of(shuffle_blocks(about, longs(about["message"]), _FACT))


def _of_waiting(batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    for messages in tables_of(batches):
        rows = messages.cast(_WAITING_ROWS)
        yield from batches_of(shuffle_blocks(rows, longs(rows["message"]), _WAITING))


# -- in the bucket of the messages ------------------------------------------------------------------------------------


def _map_groups(
    declared: TaskFacts, first: int, mapper: GroupMapper, batches: RecordBatches
) -> Iterator[pa.RecordBatch]:
    accepted, rows = accepted_schema(mapper.of_messages), delivery_schema(mapper.of_deliveries)
    for came in received_groups(batches):
        about = put_together(rows_of_kind(came, _FACT, ABOUT), first)
        waiting = longs(rows_of_kind(came, _WAITING, _WAITING_ROWS)["message"])
        facts = declared._replace(replayed=known(about).replayed, waiting=waiting)
        own = pa.concat_tables([rows_of_kind(came, _ROW, rows), carried_rows(about, mapper.of_deliveries)])
        table = together(rows_of_kind(came, _MESSAGE, accepted), own)
        yield from batches_of(mapper.make_rows(MessageGroup(table, completion_state(table, facts), facts, came)))
