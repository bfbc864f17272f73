"""The input of the computation: messages and their deliveries as columns of numbers, and the contents of the rare
facts. Made from rows of the source, or from what jobs have sent through a shuffle."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from syncbrok.model.facts import Outcome, Reason
from syncbrok.pipeline.numpy_columns import NEVER, Flags, Longs, longs, places_in_order
from syncbrok.pipeline.schema import columns_of
from syncbrok.pipeline.states import replay_timeline
from syncbrok.pipeline.states.declared_facts import DeclaredFacts
from syncbrok.pipeline.states.packed_ends import is_end, packed, packed_as
from syncbrok.pipeline.states.replay_timeline import DeliveryEvent

LAST: Final = int(np.iinfo(np.int64).max)
"""instead of the least of numbers: there is none"""
HAS_PARENTS: Final = 1
SAME: Final = 2
"""bits of ``holds``"""
_ACCEPTED: Final = pa.schema(
    [
        *((name, pa.int64()) for name in ("message", "accepted_us", "ready_us", "only", "holds")),
        ("queue", pa.string()),
    ]
)
_ROWS: Final = pa.schema(
    [(name, pa.int64()) for name in ("message", "subscriber", "position", "said", "at_us", "attempt", "began_us")]
)


class SubscriberColumns(NamedTuple):
    """Columns of all subscribers of the log, in the order of their numbers. ``gone`` is the record that deleted one,
    else ``NEVER``."""

    number: Longs
    id: list[str]
    queue: list[str | None]
    since: Longs
    gone: Longs
    gone_us: Longs
    gone_end: Longs
    """what is then the end of what is open there, packed"""
    apart_from: Longs
    """it does not count, and gets messages from this sequence on, else ``NEVER``"""
    told_from: Longs
    """the record from which on what becomes of messages concerns it, whether it counts or not"""
    deleted: Longs
    """as ``gone``, where it is not its counting alone that ended"""
    stopped: Flags
    """paused or disabled at the end"""


class TaskFacts(NamedTuple):
    """The rare facts in the form in which every task gets them: the subscribers; and for each replayed message what the
    replay opened again and which deliveries had ended when the message was carried."""

    subscribers: SubscriberColumns
    replayed: dict[int, list[DeliveryEvent]]
    waiting: Longs
    """messages without counted subscribers that are not complete, of those that the task has"""


class AcceptedColumns(NamedTuple):
    row: Longs
    message: Longs
    accepted: Longs
    ready: Longs
    holds: Longs
    only: Longs
    queue: pa.Array
    for_all: Longs
    """the first row that ended all that was open of it; ``LAST``: none"""
    for_all_at: Longs


class DeliveryColumns(NamedTuple):
    """Columns of delivery rows."""

    message: Longs
    subscriber: Longs
    position: Longs
    said: Longs
    ends: Flags
    at: Longs
    attempts: Longs
    began: Longs


def known(declared: DeclaredFacts) -> TaskFacts:
    """``declared`` in the form in which every task gets it."""
    every = sorted(declared.subscribers.values(), key=lambda one: one.number)
    gone_end = [
        packed_as(
            one.gone_record, Outcome.DROPPED, Reason.QUEUE_DELETED if one.gone_with_queue else Reason.UNSUBSCRIBED
        )
        for one in every
    ]
    subscribers = SubscriberColumns(
        np.array([one.number for one in every], np.int64),
        [one.id for one in every],
        [declared.queue_name(one.queue) for one in every],
        np.array([one.since for one in every], np.int64),
        np.array([one.gone_record or NEVER for one in every], np.int64),
        np.array([one.gone_us for one in every], np.int64),
        np.array(gone_end, np.int64),
        np.array([NEVER if one.counts else one.settings.get("start") or one.said_since for one in every], np.int64),
        np.array([one.said_since for one in every], np.int64),
        np.array([one.deleted or NEVER for one in every], np.int64),
        np.array([one.is_stopped for one in every], np.bool_),
    )
    replayed: dict[int, list[DeliveryEvent]] = {}
    for message, subscriber, record, at_us in declared.rearmed:
        replayed.setdefault(message, []).append(DeliveryEvent(record, 0, subscriber, replay_timeline.REARMED, at_us))
    for message, subscriber, record, at_us, outcome in declared.carried_ends:
        if message in replayed:
            end = packed_as(record, Outcome[outcome.upper()], Reason.NONE)
            replayed[message].append(DeliveryEvent(record, 0, subscriber, replay_timeline.IF_OPEN, at_us, end))
    return TaskFacts(subscribers, replayed, np.empty(0, np.int64))


def accepted_in(table: pa.Table) -> AcceptedColumns:
    row = np.flatnonzero(longs(table["accepted_us"]) != NEVER)
    row = row[np.argsort(longs(table["message"])[row], kind="stable")]
    mine = table.select(["message", "accepted_us", "ready_us", "holds", "only", "queue"]).take(pa.array(row))
    return AcceptedColumns(
        row,
        longs(mine["message"]),
        longs(mine["accepted_us"]),
        longs(mine["ready_us"]),
        longs(mine["holds"], 0),
        longs(mine["only"]),
        mine["queue"].combine_chunks(),
        np.full(len(row), LAST),
        np.full(len(row), LAST),
    )


def rows_in(table: pa.Table) -> DeliveryColumns:
    mine = np.flatnonzero(longs(table["accepted_us"]) == NEVER)
    names = ("message", "subscriber", "position", "said", "at_us", "attempt", "began_us")
    message, subscriber, position, said, at, attempts, began = (longs(table[name])[mine] for name in names)
    ends = (said != NEVER) & is_end(said)
    return DeliveryColumns(message, subscriber, position, said, ends, at, attempts, began)


def with_rows_for_all(accepted: AcceptedColumns, for_all: DeliveryColumns) -> AcceptedColumns:
    place = places_in_order(accepted.message, for_all.message)
    some = for_all.ends & (place >= 0)
    np.minimum.at(accepted.for_all, place[some], for_all.said[some])
    np.minimum.at(accepted.for_all_at, place[some], for_all.at[some])
    return accepted


# -- from rows of the source ------------------------------------------------------------------------------------------


def accepted_schema(more: Sequence[str] = ()) -> pa.Schema:
    """The columns of ``accepted_rows``."""
    return _with(_ACCEPTED, "messages", more)


def delivery_schema(more: Sequence[str] = ()) -> pa.Schema:
    """The columns of ``delivery_rows``."""
    return _with(_ROWS, "deliveries", more)


def accepted_rows(messages: pa.Table, more: Sequence[str] = ()) -> pa.Table:
    """Rows of kind messages as input; the columns named in ``more`` come along."""
    accepted_us = longs(messages["time"])
    holds = np.zeros(len(accepted_us), np.int64)
    if "parent_sequences" in messages.column_names:
        holds[longs(pc.list_value_length(messages["parent_sequences"]), 0) > 0] += HAS_PARENTS
    if "scope" in messages.column_names:
        holds[longs(pc.equal(messages["scope"], "same").cast(pa.int8()), 0) == 1] += SAME
    columns = {
        "message": messages["sequence"],
        "accepted_us": accepted_us,
        "ready_us": np.maximum(accepted_us, longs(messages["not_before"])),
        "only": messages["only_subscriber"],
        "holds": holds,
        "queue": messages["queue"],
        **{name: messages[name] for name in more},
    }
    return pa.table(columns).cast(accepted_schema(more))


def delivery_rows(deliveries: pa.Table, more: Sequence[str] = ()) -> pa.Table:
    """Rows of kind deliveries as input; likewise."""
    # A row that stands for many messages, which do not count the subscriber, is about none of them.
    reason = pc.fill_null(deliveries["reason"].cast(pa.string()), "")
    passed_over = pc.and_(pc.equal(reason, "seek"), pc.equal(deliveries["outcome"].cast(pa.string()), "dropped"))
    for_many = pc.or_(pc.equal(reason, "retention"), pc.fill_null(passed_over, fill_value=False))
    deliveries = deliveries.filter(pc.invert(for_many))
    attempt = deliveries["attempt"]
    columns = {
        "message": deliveries["message"],
        "subscriber": deliveries["subscriber_number"],
        "position": deliveries["position"],
        "said": packed(longs(deliveries["sequence"]), deliveries["outcome"], deliveries["reason"]),
        "at_us": deliveries["recorded"].cast(pa.int64()),
        "attempt": attempt,
        "began_us": pc.if_else(pc.greater(attempt, 0), deliveries["time"].cast(pa.int64()), None),
        **{name: deliveries[name] for name in more},
    }
    return pa.table(columns).cast(delivery_schema(more))


def carried_rows(found: DeclaredFacts, more: Sequence[str] = ()) -> pa.Table:
    """Delivery rows for the delivery states in carried records. One that is to be tried again has a time and says
    nothing."""
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
        {"message": message, "subscriber": number, "attempt": attempts, "at_us": at_us or None}
        for message, number, attempts, at_us in found.carried_attempts
    ]
    return pa.Table.from_pylist([*ends, *tried], delivery_schema(more))


def together(accepted: pa.Table, rows: pa.Table) -> pa.Table:
    """Both in one table, as ``completion_state`` takes them."""
    return pa.concat_tables([accepted, rows], promote_options="default").combine_chunks()


def _with(own: pa.Schema, kind: str, more: Sequence[str]) -> pa.Schema:
    along = columns_of(kind, ",".join(more)) if more else ()
    return pa.schema([*own, *((one.name, one.arrow) for one in along)])
