"""The history of replayed messages, event by event: ended, opened again, ended anew. They are few beside the others."""

from collections import defaultdict
from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

import numpy as np

from syncbrok.pipeline.numpy_columns import NEVER
from syncbrok.pipeline.states.packed_ends import is_good

COUNTED: Final = "counted"
"""the message was accepted and counts the subscriber"""
ENDED: Final = "ended"
"""a row of this delivery"""
IF_OPEN: Final = "if_open"
"""a row for all, or what a carried message says: an end of what was open"""
GONE: Final = "gone"
"""the subscriber or its queue was deleted: as ``IF_OPEN``; what ended badly there keeps no replay from mending"""
REARMED: Final = "rearmed"


class DeliveryEvent(NamedTuple):
    """An event of a delivery. ``end`` is packed (``packed_ends``)."""

    record: int
    position: int
    subscriber: int
    what: str
    at_us: int
    end: int = NEVER


class DeliveryChange(NamedTuple):
    """An event that changes how its delivery stands: closed or open after it, and well or not."""

    event: DeliveryEvent
    ends: bool
    closed: bool
    good: bool


class DeliveryEnds(NamedTuple):
    """The first end of a delivery and its latest, packed, and their times; the latest is ``NEVER`` while it is open
    again."""

    first_end: int
    first_at: int
    last_end: int
    last_at: int
    rearmed_at: int


class MessageTimeline(NamedTuple):
    """The timeline of a message: its deliveries, and the record and time with which all of them had ended for the first
    time, and all of them well."""

    deliveries: dict[int, DeliveryEnds]
    ended: tuple[int, int]
    complete: tuple[int, int]


def history(events: Iterable[DeliveryEvent]) -> MessageTimeline:
    """The timeline from all events of one message."""
    of_each: dict[int, list[DeliveryEvent]] = defaultdict(list)
    for event in sorted(events, key=attrgetter("record", "position")):
        of_each[event.subscriber].append(event)
    changes = {subscriber: _changes(each) for subscriber, each in of_each.items()}
    counted = [each for each in changes.values() if any(change.event.what == COUNTED for change in each)]
    return MessageTimeline(
        {subscriber: _delivery(each) for subscriber, each in changes.items() if each}, *_end_and_completion(counted)
    )


def _changes(events: list[DeliveryEvent]) -> list[DeliveryChange]:
    """The events that change how a delivery stands. An end of what is not open changes nothing."""
    found = []
    before = COUNTED
    for event in events:
        was_open = before in (COUNTED, REARMED)
        before = event.what
        opens = event.what in (COUNTED, REARMED)
        ends = event.what == ENDED or (event.what in (IF_OPEN, GONE) and was_open)
        if not (ends or opens or event.what == GONE):
            continue
        well = ends and bool(is_good(np.array([event.end]))[0])
        found.append(DeliveryChange(event, ends, not opens, well))
    return found


def _delivery(changes: list[DeliveryChange]) -> DeliveryEnds:
    ends = [change.event for change in changes if change.ends]
    moved = [change.event for change in changes if change.ends or change.event.what == REARMED]
    rearmed = max((event.at_us for event in moved if event.what == REARMED), default=NEVER)
    first = (ends[0].end, ends[0].at_us) if ends else (NEVER, NEVER)
    stands = bool(moved) and moved[-1].what != REARMED
    return DeliveryEnds(*first, *((moved[-1].end, moved[-1].at_us) if stands else (NEVER, NEVER)), rearmed)


def _end_and_completion(deliveries: list[list[DeliveryChange]]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Two pairs of record and time: when all deliveries had ended for the first time, and when all were well. Events at
    the same place in the log happened at once. The first end takes all deliveries (RULES 10, 12). After it a replay can
    mend the message without the subscribers that are gone by then."""
    closed, good, gone = set[int](), set[int](), set[int]()
    ended = complete = (NEVER, NEVER)
    every = sorted((change for each in deliveries for change in each), key=_place)
    for _, group in groupby(every, key=_place):
        together = list(group)
        for change in together:
            who = change.event.subscriber
            if change.event.what == GONE and not change.ends:
                gone.add(who)
                continue
            (closed.add if change.closed else closed.discard)(who)
            (good.add if change.good else good.discard)(who)
        last = next((change.event for change in together if change.ends), None)
        if last is None:
            continue
        well = good | gone if ended[0] != NEVER else good
        if len(well) == len(deliveries) and complete[0] == NEVER:
            complete = (last.record, last.at_us)
        if len(closed) == len(deliveries) and ended[0] == NEVER:
            ended = (last.record, last.at_us)
    return ended, complete


def _place(change: DeliveryChange) -> tuple[int, int]:
    return change.event.record, change.event.position
