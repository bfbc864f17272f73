"""Rows of kind ``states``: how each delivery of a message stands at the end of the log. Pure, no Spark.

A delivery is one that the message counts (RULES 3), one to a subscriber that does not count and gets it all the same,
or one that rows are about (RULES 14). An end without a row is one as well: with its subscriber, or its queue, all that
had not ended there was dropped. One that has not ended is ``paused`` where its subscriber is paused or disabled,
``retrying`` where an attempt has failed, else ``open``: whether a parent, a key, the window or a consumer keeps it, no
record about it says.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from syncbrok.model.facts import ALL_SUBSCRIBERS, Outcome
from syncbrok.pipeline.numpy_columns import NEVER, Flags, Longs, places_in_order, taken
from syncbrok.pipeline.schema import STATES, TIME, Column, arrow_schema
from syncbrok.pipeline.states import replay_timeline
from syncbrok.pipeline.states.completion_state import (
    NOBODY,
    CompletedDeliveries,
    CompletionTables,
    sent_to,
    standing_ends,
)
from syncbrok.pipeline.states.input_columns import (
    LAST,
    AcceptedColumns,
    DeliveryColumns,
    SubscriberColumns,
    TaskFacts,
)
from syncbrok.pipeline.states.packed_ends import outcome_names, outcome_of, reason_names, record_of

_NUMBER_BITS = 32


class _Deliveries(NamedTuple):
    """Columns with a row for each delivery. ``who``: the place of its subscriber, -1 where it is not known;
    ``end``: how it stands, packed, ``NEVER`` while it has not ended."""

    place: Longs
    subscriber: Longs
    who: Longs
    counted: Flags
    attempts: Longs
    end: Longs
    end_at: Longs
    rearmed_at: Longs


def states(
    table: pa.Table, found: CompletionTables, known: TaskFacts, columns: tuple[Column, ...] = STATES
) -> pa.Table:
    """A table of ``columns`` of kind ``states``, for the messages of ``table``; by message, then by subscriber.
    ``found``: as ``completion_state`` makes it of both."""
    accepted, subscribers = found.accepted, known.subscribers
    of_somebody = (found.deliveries.place >= 0) & (found.deliveries.subscriber != NOBODY)
    own = CompletedDeliveries._make(column[of_somebody] for column in found.deliveries)
    each = _by_message(_counted(own, subscribers), _apart(own, found.accepted, known))
    tried_at = _tried_at(found, each)
    is_open = each.end == NEVER
    stopped = np.append(subscribers.stopped, [False])[each.who]
    state = np.where(stopped, 0, np.where(tried_at == NEVER, 2, 1))
    names = outcome_names(each.end).to_numpy(zero_copy_only=False)
    accepted_at = accepted.accepted[each.place]
    waits_since = np.where(each.rearmed_at == NEVER, accepted_at, each.rearmed_at)
    waits_since = np.where(tried_at == NEVER, waits_since, tried_at)
    queue = table["queue"].combine_chunks().take(pa.array(accepted.row[each.place]))
    made = {
        "message": pa.array(accepted.message[each.place]),
        "queue": queue,
        "subscriber_number": pa.array(each.subscriber),
        "subscriber": pa.array([*subscribers.id, None], pa.string()).take(pa.array(_or_last(each.who, subscribers))),
        "counted": pa.array(each.counted),
        "state": pa.array(
            np.where(is_open, np.array(("paused", "retrying", "open"), object)[state], names), pa.string()
        ),
        "since": _time(np.where(is_open, waits_since, each.end_at)),
        "ended": _time(np.where(is_open, NEVER, each.end_at)),
        "attempts": pa.array(each.attempts.astype(np.int32)),
        "reason": reason_names(each.end),
        "accepted": _time(accepted_at),
    }
    return pa.table([made[column.name] for column in columns], arrow_schema(columns))


def _counted(own: CompletedDeliveries, subscribers: SubscriberColumns) -> _Deliveries:
    """The deliveries that messages count, where their subscribers count still, or are gone."""
    who = places_in_order(subscribers.number, own.subscriber)
    mine = own.counted & ~_is_apart(subscribers, who)
    end, end_at = standing_ends(own)
    every = _Deliveries(own.place, own.subscriber, who, own.counted, own.attempts, end, end_at, own.rearmed_at)
    return _Deliveries._make(column[mine] for column in every)


def _apart(own: CompletedDeliveries, accepted: AcceptedColumns, known: TaskFacts) -> _Deliveries:
    """The others: to subscribers that do not count, and those that only rows tell of."""
    subscribers = known.subscribers
    first = np.where(subscribers.apart_from == NEVER, LAST, subscribers.apart_from)
    place, number = sent_to(accepted, subscribers, first, subscribers.deleted)
    with_rows = ~own.counted | _is_apart(subscribers, places_in_order(subscribers.number, own.subscriber))
    place, number = np.append(place, own.place[with_rows]), np.append(number, own.subscriber[with_rows])
    _, first_of = np.unique(_codes(place, number), return_index=True)
    place, number = place[first_of], number[first_of]
    at = places_in_order(_codes(own.place, own.subscriber), _codes(place, number))
    who = places_in_order(subscribers.number, number)
    rearmed, rearmed_at = _rearmed(accepted.message[place], number, known)
    end, end_at = taken(own.said, at), taken(own.said_at, at)
    again = (end != NEVER) & (record_of(end) < rearmed)
    # That a filter skipped it for all who count says nothing of one who does not.
    for_all = np.where(outcome_of(accepted.for_all[place]) == Outcome.SKIPPED, LAST, accepted.for_all[place])
    by_all = (end == NEVER) & (for_all != LAST) & (record_of(for_all) > taken(subscribers.told_from, who))
    end = np.where(again, NEVER, np.where(by_all, for_all, end))
    end_at = np.where(again, NEVER, np.where(by_all, accepted.for_all_at[place], end_at))
    deleted = taken(subscribers.deleted, who)
    dropped = (deleted != NEVER) & ((end == NEVER) | (record_of(end) > deleted))
    end = np.where(dropped, taken(subscribers.gone_end, who), end)
    end_at = np.where(dropped, taken(subscribers.gone_us, who), end_at)
    attempts = taken(own.attempts, at, 0)
    return _Deliveries(place, number, who, np.zeros(len(place), np.bool_), attempts, end, end_at, rearmed_at)


def _is_apart(subscribers: SubscriberColumns, who: Longs) -> Flags:
    found: Flags = taken(subscribers.apart_from, who) != NEVER
    return found


def _rearmed(message: Longs, subscriber: Longs, known: TaskFacts) -> tuple[Longs, Longs]:
    """For each delivery the record and the time of the newest replay that opened it again."""
    record, at = np.full(len(message), NEVER), np.full(len(message), NEVER)
    wanted = np.fromiter(known.replayed, np.int64, len(known.replayed))
    for one in np.flatnonzero(np.isin(message, wanted)).tolist():
        for event in known.replayed[int(message[one])]:
            if event.what == replay_timeline.REARMED and event.subscriber == subscriber[one]:
                record[one], at[one] = max(record[one], event.record), max(at[one], event.at_us)
    return record, at


def _by_message(*parts: _Deliveries) -> _Deliveries:
    every = _Deliveries._make(np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((every.subscriber, every.place))
    return _Deliveries._make(column[order] for column in every)


def _tried_at(found: CompletionTables, each: _Deliveries) -> Longs:
    """When the newest attempt of each delivery had failed that is to be made again; ``NEVER`` where none has, or a
    replay came after it."""
    rows = found.rows
    failed = (rows.attempts > 0) & (rows.at != NEVER) & (rows.subscriber != ALL_SUBSCRIBERS)
    failed &= (rows.said == NEVER) | (outcome_of(rows.said) == Outcome.FAILED)
    rows = DeliveryColumns._make(column[failed] for column in rows)
    place = places_in_order(found.accepted.message, rows.message)
    codes = _codes(place, rows.subscriber)
    order = np.lexsort((rows.at, codes))
    codes, at = codes[order], rows.at[order]
    newest = np.append(codes[1:] != codes[:-1], [True])[: len(codes)]
    tried = taken(at[newest], places_in_order(codes[newest], _codes(each.place, each.subscriber)))
    return np.where(tried > each.rearmed_at, tried, NEVER)


def _codes(place: Longs, subscriber: Longs) -> Longs:
    return place << _NUMBER_BITS | subscriber


def _or_last(who: Longs, subscribers: SubscriberColumns) -> Longs:
    return np.where(who < 0, len(subscribers.number), who)


def _time(values: Longs) -> pa.Array:
    return pa.array(values, mask=values == NEVER).cast(TIME)
