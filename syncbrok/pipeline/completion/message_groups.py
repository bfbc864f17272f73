"""Brings all rows about a message to one place, in parcels: the message, its deliveries, delivery states from carried
messages, and questions of other messages.

    messages ─┬─ parcelled where they are read ─▶ place of the message ─▶ Telling.tell: rows about whole messages
  deliveries ─┘

Rows of a log are parcelled by the tasks that decode them, so Spark meets no row of them at all.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from syncbrok.model.facts import Outcome, Reason
from syncbrok.pipeline.completion.declared import DeclaredFacts
from syncbrok.pipeline.completion.moments import longs, packed, packed_as
from syncbrok.pipeline.completion.rows import RareFacts, known
from syncbrok.pipeline.completion.standing import HAS_PARENTS, SAME, CompletionTables, standing
from syncbrok.pipeline.in_arrow import Batches, InArrow
from syncbrok.pipeline.schema import columns_of
from syncbrok.pipeline.shuffle_blocks import (
    BLOCK_ROWS,
    DDL,
    Parcel,
    batches_of,
    blocks,
    opened,
    parcels,
    received,
    together,
)

_MESSAGE, _ROW = 0, 1
ASKING: Final = 2
"""the least kind of parcels that ``asking`` may make"""

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
"""parcels of what messages ask of others, of a kind from ``ASKING`` on, by the message that they ask"""


class Gathered(NamedTuple):
    """Everything about some messages. ``table``: a row for each message and for each row of its deliveries (the columns
    of one kind are null in the other). ``standing``: their state. ``came``: every parcel that arrived, for steps that
    look for their own."""

    table: pa.Table
    standing: CompletionTables
    came: list[Parcel]


class Telling(NamedTuple):
    """How whole messages become rows: ``tell`` makes rows of ``columns`` from them. ``of_messages`` and
    ``of_deliveries``: input columns that it needs in addition to the common ones."""

    tell: Callable[[Gathered], pa.Table]
    columns: str
    of_messages: tuple[str, ...] = ()
    of_deliveries: tuple[str, ...] = ()
    asking: Asking | None = None


def told(messages: InArrow, deliveries: InArrow, found: DeclaredFacts, telling: Telling) -> DataFrame:
    """The rows that ``telling`` makes of all messages, and of delivery rows whose message is not there, each once."""
    every = messages.mapInArrow(partial(_of_messages, telling), DDL).unionByName(
        deliveries.mapInArrow(partial(_of_deliveries, telling), DDL)
    )
    if found.carried_ends or found.carried_attempts:
        carried = _carried(found, telling)
        every = every.unionByName(every.sparkSession.createDataFrame(parcels(carried, longs(carried["message"]), _ROW)))
    return every.repartition("place").mapInArrow(partial(_told, known(found), telling), telling.columns)


# -- where rows are read ----------------------------------------------------------------------------------------------


def _of_messages(telling: Telling, batches: Batches) -> Iterator[pa.RecordBatch]:
    for messages in blocks(batches):
        accepted = _accepted(messages, telling)
        yield from batches_of(parcels(accepted, longs(accepted["message"]), _MESSAGE))
        if telling.asking is not None:
            yield from batches_of(telling.asking(messages))


def _of_deliveries(telling: Telling, batches: Batches) -> Iterator[pa.RecordBatch]:
    for deliveries in blocks(batches):
        # A row that stands for many messages, at a subscriber that does not count, is about none of them.
        for_many = pc.fill_null(pc.equal(deliveries["reason"].cast(pa.string()), "retention"), fill_value=False)
        rows = _rows(deliveries.filter(pc.invert(for_many)), telling)
        yield from batches_of(parcels(rows, longs(rows["message"]), _ROW))


def _accepted(messages: pa.Table, telling: Telling) -> pa.Table:
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
        **{name: messages[name] for name in telling.of_messages},
    }
    return pa.table(columns).cast(_schema(_ACCEPTED, "messages", telling.of_messages))


def _rows(deliveries: pa.Table, telling: Telling) -> pa.Table:
    attempt = deliveries["attempt"]
    columns = {
        "message": deliveries["message"],
        "subscriber": deliveries["subscriber_number"],
        "position": deliveries["position"],
        "said": packed(longs(deliveries["sequence"]), deliveries["outcome"], deliveries["reason"]),
        "at_us": deliveries["recorded"].cast(pa.int64()),
        "attempt": attempt,
        "began_us": pc.if_else(pc.greater(attempt, 0), deliveries["time"].cast(pa.int64()), None),
        **{name: deliveries[name] for name in telling.of_deliveries},
    }
    return pa.table(columns).cast(_schema(_ROWS, "deliveries", telling.of_deliveries))


def _carried(found: DeclaredFacts, telling: Telling) -> pa.Table:
    """The delivery states in carried records, as delivery rows."""
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
    return pa.Table.from_pylist([*ends, *tried], _schema(_ROWS, "deliveries", telling.of_deliveries))


def _schema(own: pa.Schema, kind: str, more: Sequence[str]) -> pa.Schema:
    along = columns_of(kind, ",".join(more)) if more else ()
    return pa.schema([*own, *((one.name, one.arrow) for one in along)])


# -- at the place of the messages -------------------------------------------------------------------------------------


def _told(known: RareFacts, telling: Telling, batches: Batches) -> Iterator[pa.RecordBatch]:
    accepted = _schema(_ACCEPTED, "messages", telling.of_messages)
    rows = _schema(_ROWS, "deliveries", telling.of_deliveries)
    for came in together(received(batches), BLOCK_ROWS):
        both = [opened(came, _MESSAGE, accepted), opened(came, _ROW, rows)]
        table = pa.concat_tables(both, promote_options="default").combine_chunks()
        yield from batches_of(telling.tell(Gathered(table, standing(table, known), came)))
