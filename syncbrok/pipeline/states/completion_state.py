"""The state of deliveries and messages, from all rows about them: Arrow in, numpy, no Spark.

Follows ``OrderChecker`` and RULES 3, 10, 14, 17 and 20; see ``completions``. Whole messages come in: one table has the
row of each message and every row of its deliveries, in any order.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from syncbrok.model.facts import ALL_SUBSCRIBERS, DELETED_SUBSCRIBER, Outcome
from syncbrok.pipeline.numpy_columns import NEVER, Flags, Longs, group_starts, longs, places_in_order, reduced, taken
from syncbrok.pipeline.states import replay_timeline
from syncbrok.pipeline.states.input_columns import (
    LAST,
    AcceptedColumns,
    DeliveryColumns,
    SubscriberColumns,
    TaskFacts,
    accepted_in,
    rows_in,
    with_rows_for_all,
)
from syncbrok.pipeline.states.packed_ends import is_good, outcome_of, record_of
from syncbrok.pipeline.states.replay_timeline import DeliveryEvent

NOBODY: Final = -1
"""instead of a subscriber: the message counts none"""

_WORST: Final = 1 << 62


class CompletedDeliveries(NamedTuple):
    """Columns with a row for each counted delivery and for each that rows are about, by message, then by subscriber."""

    place: Longs
    """of the message in ``CompletedMessages``; -1 where it is not there"""
    message: Longs
    subscriber: Longs
    counted: Flags
    """also where the subscriber is ``NOBODY``"""
    first_attempt: Longs
    attempts: Longs
    first: Longs
    """its first end, packed; and how it stands: differs only after a replay, ``NEVER`` while that has opened it"""
    first_at: Longs
    last: Longs
    last_at: Longs
    rearmed_at: Longs
    gone: Longs
    said: Longs
    """the newest row of its own that ended it, packed"""
    said_at: Longs


class CompletedMessages(NamedTuple):
    """Columns with a row for each message, in the order of their sequences. ``row``: its place in the input table.
    ``completions.completions`` explains the other columns."""

    row: Longs
    message: Longs
    accepted: Longs
    ready: Longs
    holds: Longs
    nobody: Flags
    subscribers: Longs
    open: Longs
    first_attempt: Longs
    attempts: Longs
    ended: Longs
    ended_at: Longs
    complete: Longs
    complete_at: Longs
    outcome: pa.Array
    rearmed_at: Longs
    last_at: Longs
    last_subscriber: Longs


_Greatest = Callable[[Longs | Flags], Longs]


class CompletionTables(NamedTuple):
    deliveries: CompletedDeliveries
    messages: CompletedMessages
    accepted: AcceptedColumns
    rows: DeliveryColumns


def completion_state(table: pa.Table, known: TaskFacts) -> CompletionTables:
    """How all deliveries and messages stand, from ``table``, which has the columns that ``message_groups`` makes of
    messages and of rows of deliveries. Other columns of a message are found by ``CompletedMessages.row``."""
    accepted, rows = accepted_in(table), rows_in(table)
    for_all = rows.subscriber == ALL_SUBSCRIBERS
    own = DeliveryColumns._make(column[~for_all] for column in rows)
    accepted = with_rows_for_all(accepted, DeliveryColumns._make(column[for_all] for column in rows))
    deliveries = _deliveries(accepted, own, known.subscribers)
    messages_of_replays = _replayed(accepted, rows, deliveries, known)
    _write_over(deliveries, messages_of_replays)
    messages = _messages(accepted, deliveries, messages_of_replays, known.waiting)
    return CompletionTables(deliveries, messages, accepted, rows)


# -- deliveries -------------------------------------------------------------------------------------------------------


def _counted(accepted: AcceptedColumns, subscribers: SubscriberColumns, died: Longs) -> tuple[Longs, Longs]:
    """Two columns, a row for each counted delivery: the place of the message and the number of the subscriber;
    ``NOBODY`` for a message without one. Messages that ``died`` at a deleted subscriber count that one as well."""
    at = places_in_order(accepted.message, died)
    at = at[at >= 0]
    place, number = sent_to(accepted, subscribers, subscribers.since + 1, subscribers.gone)
    alone = np.ones(len(accepted.message), np.bool_)
    alone[at] = alone[place] = False
    nobody = np.flatnonzero(alone)
    numbers = [np.full(len(at), DELETED_SUBSCRIBER), number, np.full(len(nobody), NOBODY)]
    return np.concatenate([at, place, nobody]), np.concatenate(numbers)


def sent_to(
    accepted: AcceptedColumns, subscribers: SubscriberColumns, first: Longs, gone: Longs
) -> tuple[Longs, Longs]:
    """Two columns, a row for each message that goes to a subscriber: the place of the one and the number of the other.
    By subscriber: the ``first`` sequence that goes there, and the record with which that was over (``NEVER``)."""
    by_queue: dict[str | None, list[int]] = {}
    for place, queue in enumerate(subscribers.queue):
        by_queue.setdefault(queue, []).append(place)
    queues = accepted.queue.dictionary_encode("encode")
    codes = longs(queues.indices)
    places, numbers = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for code, queue in enumerate(queues.dictionary.to_pylist()):
        here = np.flatnonzero(codes == code)
        sequences = accepted.message[here]
        for one in by_queue.get(queue, ()):
            # Sequences ascend: those that go there are a slice.
            until = gone[one] if gone[one] != NEVER else LAST
            low, high = np.searchsorted(sequences, [first[one], until])
            mine = here[low:high]
            only = accepted.only[mine]
            mine = mine[(only == NEVER) | (only == subscribers.number[one])]
            places.append(mine)
            numbers.append(np.full(len(mine), subscribers.number[one]))
    return np.concatenate(places), np.concatenate(numbers)


def _deliveries(accepted: AcceptedColumns, own: DeliveryColumns, subscribers: SubscriberColumns) -> CompletedDeliveries:
    place, number = _counted(accepted, subscribers, np.unique(own.message[own.subscriber == DELETED_SUBSCRIBER]))
    nothing, last = np.zeros(len(place), np.int64), np.full(len(place), LAST)
    message = np.concatenate([accepted.message[place], own.message])
    subscriber = np.concatenate([number, own.subscriber])
    order = np.lexsort((subscriber, message))
    message, subscriber = message[order], subscriber[order]
    starts = group_starts(message, subscriber)

    def least(of_rows: Longs) -> Longs:
        return reduced(np.minimum, np.concatenate([last, of_rows])[order], starts)

    tried = own.attempts > 0
    counted = reduced(np.maximum, np.concatenate([nothing + 1, np.zeros(len(own.message), np.int64)])[order], starts)
    attempts = reduced(np.maximum, np.concatenate([nothing, np.where(tried, own.attempts, 0)])[order], starts)
    first_attempt = least(np.where(tried & (own.began != NEVER), own.began, LAST))
    end, end_at = least(np.where(own.ends, own.said, LAST)), least(np.where(own.ends, own.at, LAST))
    said, said_at = (
        reduced(np.maximum, np.concatenate([nothing + NEVER, np.where(own.ends, one, NEVER)])[order], starts)
        for one in (own.said, own.at)
    )
    message, subscriber = message[starts], subscriber[starts]
    found = places_in_order(accepted.message, message)
    end, end_at, gone = _first_end(accepted, subscribers, found, subscriber, counted == 1, end, end_at)
    return CompletedDeliveries(
        found, message, subscriber, counted == 1, np.where(first_attempt == LAST, NEVER, first_attempt), attempts,
        end, end_at, end.copy(), end_at.copy(), np.full(len(message), NEVER), gone, said, said_at,
    )  # fmt: skip


def _first_end(
    accepted: AcceptedColumns,
    subscribers: SubscriberColumns,
    place: Longs,
    number: Longs,
    counted: Flags,
    own: Longs,
    own_at: Longs,
) -> tuple[Longs, Longs, Longs]:
    """Three columns: the end of each delivery as if no replay had opened it again, its time, and the record that its
    subscriber went with."""
    for_all, for_all_at = np.full(len(own), LAST), np.full(len(own), LAST)
    for_all[counted], for_all_at[counted] = accepted.for_all[place[counted]], accepted.for_all_at[place[counted]]
    end, at = np.minimum(own, for_all), np.where(own <= for_all, own_at, for_all_at)
    who = places_in_order(subscribers.number, number)
    gone = taken(subscribers.gone, who)
    nameless = counted & (number == DELETED_SUBSCRIBER)
    gone[nameless] = record_of(own[nameless])
    dropped = counted & (gone != NEVER) & ((end == LAST) | (record_of(end) > gone))
    end = np.where(dropped, taken(subscribers.gone_end, who), np.where(end == LAST, NEVER, end))
    at = np.where(dropped, taken(subscribers.gone_us, who), at)
    return end, np.where(end == NEVER, NEVER, at), gone


def standing_ends(own: CompletedDeliveries) -> tuple[Longs, Longs]:
    """How each counted delivery stands, packed, and since when. A dead letter that was dropped has another row of its
    own behind its end."""
    newer = (own.said > own.last) & (own.last != NEVER) & ((own.gone == NEVER) | (record_of(own.said) < own.gone))
    return np.where(newer, own.said, own.last), np.where(newer, own.said_at, own.last_at)


# -- replays ----------------------------------------------------------------------------------------------------------


def _replayed(
    accepted: AcceptedColumns, rows: DeliveryColumns, deliveries: CompletedDeliveries, known: TaskFacts
) -> dict[int, tuple[int, replay_timeline.MessageTimeline]]:
    """The place and the timeline of each replayed message, by message."""
    if not known.replayed:
        return {}
    wanted = np.fromiter(known.replayed, np.int64, len(known.replayed))
    at = np.flatnonzero(np.isin(deliveries.message, wanted) & deliveries.counted)
    events_of: dict[int, list[DeliveryEvent]] = {}
    subscribers = known.subscribers
    for one in at.tolist():
        message, number = int(deliveries.message[one]), int(deliveries.subscriber[one])
        events = events_of.setdefault(message, list(known.replayed[message]))
        events.append(
            DeliveryEvent(message, -1, number, replay_timeline.COUNTED, int(accepted.accepted[deliveries.place[one]]))
        )
        if deliveries.gone[one] != NEVER:
            who = int(np.searchsorted(subscribers.number, number))
            gone_us, end = int(subscribers.gone_us[who]), int(subscribers.gone_end[who])
            events.append(DeliveryEvent(int(deliveries.gone[one]), 0, number, replay_timeline.GONE, gone_us, end))
    # The states in a carried message have no position, and are among the known ones.
    for row in np.flatnonzero(np.isin(rows.message, wanted) & rows.ends & (rows.position != NEVER)).tolist():
        message = int(rows.message[row])
        events = events_of.setdefault(message, list(known.replayed[message]))
        events += _events_of_row(rows, row, events, subscribers)
    places = places_in_order(accepted.message, np.fromiter(events_of, np.int64, len(events_of))).tolist()
    return {
        message: (place, replay_timeline.history(events))
        for (message, events), place in zip(events_of.items(), places, strict=True)
    }


def _events_of_row(
    rows: DeliveryColumns, row: int, events: list[DeliveryEvent], subscribers: SubscriberColumns
) -> list[DeliveryEvent]:
    number, end = int(rows.subscriber[row]), int(rows.said[row])
    record, at_us = int(record_of(rows.said[row])), int(rows.at[row])
    position = int(rows.position[row])
    if number == ALL_SUBSCRIBERS:
        counted = [event.subscriber for event in events if event.what == replay_timeline.COUNTED]
        return [DeliveryEvent(record, position, one, replay_timeline.IF_OPEN, at_us, end) for one in counted]
    who = int(places_in_order(subscribers.number, np.array([number]))[0])
    if who >= 0 and subscribers.gone[who] != NEVER and record > subscribers.gone[who]:
        return []  # a row for a subscriber that is gone changes nothing
    return [DeliveryEvent(record, position, number, replay_timeline.ENDED, at_us, end)]


def _write_over(
    deliveries: CompletedDeliveries, histories: dict[int, tuple[int, replay_timeline.MessageTimeline]]
) -> None:
    for message, (_, history) in histories.items():
        first, last = np.searchsorted(deliveries.message, [message, message + 1])
        for at in range(first, last):
            timeline = history.deliveries.get(int(deliveries.subscriber[at]))
            if timeline is None or deliveries.subscriber[at] == NOBODY:
                continue
            deliveries.first[at], deliveries.first_at[at] = timeline.first_end, timeline.first_at
            deliveries.last[at], deliveries.last_at[at] = timeline.last_end, timeline.last_at
            deliveries.rearmed_at[at] = timeline.rearmed_at


# -- messages ---------------------------------------------------------------------------------------------------------


def _messages(
    accepted: AcceptedColumns,
    deliveries: CompletedDeliveries,
    histories: dict[int, tuple[int, replay_timeline.MessageTimeline]],
    waiting: Longs,
) -> CompletedMessages:
    own = CompletedDeliveries._make(column[deliveries.counted] for column in deliveries)
    starts = group_starts(own.place)
    is_somebody = own.subscriber != NOBODY

    def greatest(values: Longs | Flags) -> Longs:
        return reduced(np.maximum, np.asarray(values, np.int64), starts)

    def count(which: Flags) -> Longs:
        return reduced(np.add, which.astype(np.int64), starts)

    first_attempt = reduced(np.minimum, np.where(own.first_attempt == NEVER, LAST, own.first_attempt), starts)
    stands_bad = (own.last != NEVER) & ~is_good(own.last)
    stands_bad &= (own.gone == NEVER) | (outcome_of(own.last) == Outcome.DROPPED)
    bad = (own.first != NEVER) & ~is_good(own.first)
    record = np.where(own.first == NEVER, NEVER, record_of(own.first))
    last_end, last_end_at = greatest(record), greatest(own.first_at)
    all_ended = count(own.first == NEVER) == 0
    well = all_ended & (count(bad) == 0)
    ends = [
        np.where(all_ended, last_end, NEVER), np.where(all_ended, last_end_at, NEVER),
        np.where(well, last_end, NEVER), np.where(well, last_end_at, NEVER),
    ]  # fmt: skip
    for place, history in histories.values():
        if place >= 0:
            for column, known in zip(ends, (*history.ended, *history.complete), strict=True):
                column[place] = known
    ended, ended_at, complete, complete_at = ends
    nobody = greatest(~is_somebody) == 1
    at_once = nobody & (ended == NEVER) & (accepted.ready <= accepted.accepted)
    at_once &= ~np.isin(accepted.message, waiting)
    for column, value in zip(ends, (accepted.message, accepted.accepted) * 2, strict=True):
        column[at_once] = value[at_once]
    open_ = count(is_somebody & (own.last == NEVER))
    return CompletedMessages(
        accepted.row, accepted.message, accepted.accepted, accepted.ready, accepted.holds, nobody, count(is_somebody),
        open_, np.where(first_attempt == LAST, NEVER, first_attempt), reduced(np.add, own.attempts, starts),
        ended, ended_at, complete, complete_at,
        _outcomes(complete != NEVER, (ended == NEVER) | (open_ > 0), own, bad, greatest),
        greatest(own.rearmed_at), greatest(own.last_at), _held_longest(own, stands_bad, starts),
    )  # fmt: skip


def _outcomes(complete: Flags, is_open: Flags, own: CompletedDeliveries, bad: Flags, greatest: _Greatest) -> pa.Array:
    """The outcome of each message; null while a delivery is open. A bad end is decided once (RULES 12), by the first
    end of each delivery. Later events can only make the message complete."""
    how = outcome_of(own.first)
    dropped, expired = (greatest(bad & (how == one)) == 1 for one in (Outcome.DROPPED, Outcome.EXPIRED))
    # A message that a replay has opened again is open, though it stays complete for its children.
    code = np.select([is_open, complete, dropped, expired], [4, 0, 1, 2], 3)
    return pa.array(["complete", "dropped", "expired", "dead", None], pa.string()).take(pa.array(code))


def _held_longest(own: CompletedDeliveries, stands_bad: Flags, starts: Longs) -> Longs:
    """The subscriber that has not ended, else that ended badly, else that ended last."""
    last = record_of(own.last)
    weight = np.where(own.last == NEVER, _WORST, np.where(stands_bad, last + (_WORST >> 1), last))
    most = np.repeat(reduced(np.maximum, weight, starts), np.diff(np.append(starts, len(weight))))
    number = reduced(np.minimum, np.where((weight == most) & (own.subscriber != NOBODY), own.subscriber, LAST), starts)
    return np.where(number == LAST, NEVER, number)
