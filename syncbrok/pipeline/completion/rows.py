"""What is known of messages and their deliveries before anything is said of how they stand: the rows of a table, as
columns of numbers, and what the rare facts declare."""

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from syncbrok.model.facts import Outcome, Reason
from syncbrok.pipeline.completion import replays
from syncbrok.pipeline.completion.declared import DeclaredFacts
from syncbrok.pipeline.completion.moments import NEVER, Flags, Longs, is_end, longs, packed_as
from syncbrok.pipeline.completion.replays import DeliveryEvent

LAST: Final = int(np.iinfo(np.int64).max)
"""instead of the least of numbers: there is none"""


class Subscribers(NamedTuple):
    """All of the log, in the order of their numbers. ``gone`` is the record that deleted one, else ``NEVER``."""

    number: Longs
    queue: list[str | None]
    since: Longs
    gone: Longs
    gone_us: Longs
    gone_end: Longs
    """what is then the end of what is open there, packed"""


class RareFacts(NamedTuple):
    """What the rare facts say, for every task: the subscribers; and of the messages that a replay has taken up what it
    opened again and what had ended when they were carried."""

    subscribers: Subscribers
    replayed: dict[int, list[DeliveryEvent]]
    waiting: Longs
    """messages that count nobody and are not complete"""


class AcceptedColumns(NamedTuple):
    row: Longs
    message: Longs
    accepted: Longs
    ready: Longs
    holds: Longs
    only: Longs
    queue: pa.Array
    whole: Longs
    """the first row that ended all that was open of it; ``LAST``: none"""
    whole_at: Longs


class DeliveryRows(NamedTuple):
    """Of deliveries."""

    message: Longs
    subscriber: Longs
    position: Longs
    said: Longs
    ends: Flags
    at: Longs
    attempts: Longs
    began: Longs


def known(declared: DeclaredFacts) -> RareFacts:
    """As every task needs it."""
    every = sorted(declared.subscribers.values(), key=lambda one: one.number)
    gone_end = [
        packed_as(
            one.gone_record, Outcome.DROPPED, Reason.QUEUE_DELETED if one.gone_with_queue else Reason.UNSUBSCRIBED
        )
        for one in every
    ]
    subscribers = Subscribers(
        np.array([one.number for one in every], np.int64),
        [declared.queues.get(one.queue) for one in every],
        np.array([one.since for one in every], np.int64),
        np.array([one.gone_record or NEVER for one in every], np.int64),
        np.array([one.gone_us for one in every], np.int64),
        np.array(gone_end, np.int64),
    )
    replayed: dict[int, list[DeliveryEvent]] = {}
    for message, subscriber, record, at_us in declared.rearmed:
        replayed.setdefault(message, []).append(DeliveryEvent(record, 0, subscriber, replays.REARMED, at_us))
    for message, subscriber, record, at_us, outcome in declared.carried_ends:
        if message in replayed:
            end = packed_as(record, Outcome[outcome.upper()], Reason.NONE)
            replayed[message].append(DeliveryEvent(record, 0, subscriber, replays.IF_OPEN, at_us, end))
    return RareFacts(subscribers, replayed, np.array(declared.waiting, np.int64))


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


def rows_in(table: pa.Table) -> DeliveryRows:
    mine = np.flatnonzero(longs(table["accepted_us"]) == NEVER)
    names = ("message", "subscriber", "position", "said", "at_us", "attempt", "began_us")
    message, subscriber, position, said, at, attempts, began = (longs(table[name])[mine] for name in names)
    ends = (said != NEVER) & is_end(said)
    return DeliveryRows(message, subscriber, position, said, ends, at, attempts, began)


def with_whole(accepted: AcceptedColumns, whole: DeliveryRows) -> AcceptedColumns:
    place = places_in_order(accepted.message, whole.message)
    some = whole.ends & (place >= 0)
    np.minimum.at(accepted.whole, place[some], whole.said[some])
    np.minimum.at(accepted.whole_at, place[some], whole.at[some])
    return accepted


def places_in_order(known: Longs, wanted: Longs) -> Longs:
    """Where each of ``wanted`` stands in ``known``, which ascends; -1 where it does not."""
    if not len(known):
        return np.full(len(wanted), -1)
    at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[at] == wanted, at, -1)
