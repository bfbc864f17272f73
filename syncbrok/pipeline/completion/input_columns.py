"""The input of the computation: messages and their deliveries as columns of numbers, and the contents of the rare
facts."""

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from syncbrok.model.facts import Outcome, Reason
from syncbrok.pipeline.completion import replay_timeline
from syncbrok.pipeline.completion.declared_facts import DeclaredFacts
from syncbrok.pipeline.completion.packed_ends import is_end, packed_as
from syncbrok.pipeline.completion.replay_timeline import DeliveryEvent
from syncbrok.pipeline.numpy_columns import NEVER, Flags, Longs, longs, places_in_order

LAST: Final = int(np.iinfo(np.int64).max)
"""instead of the least of numbers: there is none"""


class SubscriberColumns(NamedTuple):
    """Columns of all subscribers of the log, in the order of their numbers. ``gone`` is the record that deleted one,
    else ``NEVER``."""

    number: Longs
    queue: list[str | None]
    since: Longs
    gone: Longs
    gone_us: Longs
    gone_end: Longs
    """what is then the end of what is open there, packed"""


class TaskFacts(NamedTuple):
    """The rare facts in the form in which every task gets them: the subscribers; and for each replayed message what the
    replay opened again and which deliveries had ended when the message was carried."""

    subscribers: SubscriberColumns
    replayed: dict[int, list[DeliveryEvent]]
    waiting: Longs
    """messages without counted subscribers that are not complete"""


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
        [declared.queues.get(one.queue) for one in every],
        np.array([one.since for one in every], np.int64),
        np.array([one.gone_record or NEVER for one in every], np.int64),
        np.array([one.gone_us for one in every], np.int64),
        np.array(gone_end, np.int64),
    )
    replayed: dict[int, list[DeliveryEvent]] = {}
    for message, subscriber, record, at_us in declared.rearmed:
        replayed.setdefault(message, []).append(DeliveryEvent(record, 0, subscriber, replay_timeline.REARMED, at_us))
    for message, subscriber, record, at_us, outcome in declared.carried_ends:
        if message in replayed:
            end = packed_as(record, Outcome[outcome.upper()], Reason.NONE)
            replayed[message].append(DeliveryEvent(record, 0, subscriber, replay_timeline.IF_OPEN, at_us, end))
    return TaskFacts(subscribers, replayed, np.array(declared.waiting, np.int64))


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
