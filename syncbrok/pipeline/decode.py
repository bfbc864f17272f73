"""From a slice of a log to Arrow record batches of a query's columns. No Spark, and no loop over records: what is
wanted is found and cut out for thousands of records at once. Only declared facts, which are few, are decoded one by one.
"""

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import pyarrow as pa

from syncbrok.log.layout import HEADER, Kind
from syncbrok.pipeline import schema
from syncbrok.pipeline.decode_deliveries import Deliveries, Rows
from syncbrok.pipeline.decode_facts import KIND_NAMES, Facts
from syncbrok.pipeline.decode_gather import Array, gather_field
from syncbrok.pipeline.decode_index import from_index
from syncbrok.pipeline.decode_messages import Messages
from syncbrok.pipeline.decode_names import Names
from syncbrok.pipeline.decode_query import CarriedRule, Query
from syncbrok.pipeline.decode_segment import OpenSegment, snapshot_of
from syncbrok.pipeline.log_files import Slice

BATCH_ROWS = 8192
_KIND_AT = HEADER.fields["kind"][1]


class _Rows(Protocol):
    def column(self, name: str) -> pa.Array: ...

    def number(self, name: str) -> Array: ...


def read(one: Slice, uuid: bytes, query: Query, rule: CarriedRule) -> Iterator[pa.RecordBatch]:
    """The rows of a slice of the log ``uuid``, in batches of at most 8,192. Raises ``LogCorrupt`` naming file, offset
    and sequences, and ``Gone`` where retention has unlinked the segment meanwhile."""
    known = from_index(one, uuid, query, rule)
    if known is not None:
        for start in range(0, known.num_rows, BATCH_ROWS):
            yield known.slice(start, BATCH_ROWS)
        return
    opened = OpenSegment(one.segment, uuid, verify=query.verify, hint=one.hint)
    names = Names(snapshot_of(one.segment), opened.declared)
    offsets = opened.offsets(one.first, one.last)
    match query.kind:
        case "messages":
            found = _messages(opened, names, offsets, query, rule)
        case "deliveries":
            found = _deliveries(opened, names, offsets, query)
        case _:
            found = _facts(opened, names, offsets, query)
    arrow = schema.arrow_schema(query.columns)
    for rows in found:
        yield pa.record_batch([rows.column(column.name) for column in query.columns], arrow)


def _messages(opened: OpenSegment, names: Names, offsets: Array, query: Query, rule: CarriedRule) -> Iterator[_Rows]:
    kinds = gather_field(opened.view, offsets + _KIND_AT, np.uint8)
    wanted = kinds == Kind.MESSAGE
    if rule.through:
        moved = np.flatnonzero(kinds == Kind.CARRIED)
        if len(moved):
            wanted[moved[_counted(opened, names, offsets[moved], rule)]] = True
    places = offsets[wanted]
    if query.queues is not None or query.everything():
        places = places[_fits(opened, names, places, query)]
    for start in range(0, len(places), BATCH_ROWS):
        yield Messages(opened, names, places[start : start + BATCH_ROWS])


def _counted(opened: OpenSegment, names: Names, places: Array, rule: CarriedRule) -> Array:
    """Which of the carried messages are rows."""
    records = gather_field(opened.view, places + HEADER.fields["sequence"][1], "<i8")
    own = Messages(opened, names, places).number("sequence")
    counted = (own >= rule.low) & (own < rule.below) & (records <= rule.through)
    return counted & ~np.isin(records, np.array(rule.superseded, dtype=np.int64))


def _fits(opened: OpenSegment, names: Names, places: Array, query: Query) -> Array:
    rows = Messages(opened, names, places)
    fits = np.ones(len(places), dtype=np.bool_)
    if query.queues is not None:
        numbers = rows.number("queue")
        names.know(queues=numbers)
        fits &= names.queues.among(numbers, query.queues)
    for condition in query.everything():
        fits &= condition.holds(rows.number(condition.column))
    return fits


def _deliveries(opened: OpenSegment, names: Names, offsets: Array, query: Query) -> Iterator[_Rows]:
    kinds = gather_field(opened.view, offsets + _KIND_AT, np.uint8)
    rows = Rows(opened, offsets[kinds == Kind.OUTCOMES])
    if query.queues is not None or query.everything():
        every = Deliveries(opened, names, rows, 0, len(rows))
        fits = np.ones(len(rows), dtype=np.bool_)
        if query.queues is not None:
            fits &= names_among(every, names, query.queues)
        for condition in query.everything():
            fits &= condition.holds(every.number(condition.column))
        rows.keep(fits)
    for start in range(0, len(rows), BATCH_ROWS):
        yield Deliveries(opened, names, rows, start, start + BATCH_ROWS)


def names_among(every: Deliveries, names: Names, queues: frozenset[str]) -> Array:
    subscribers = every.subscribers
    return names.queues_of_subscribers.among(subscribers, queues)


def _facts(opened: OpenSegment, names: Names, places: Array, query: Query) -> Iterator[_Rows]:
    if query.queues is not None or query.everything():
        rows = Facts(opened, names, places)
        fits = np.ones(len(places), dtype=np.bool_)
        if query.queues is not None:
            numbers = rows.number("queue_number")
            names.know(queues=numbers)
            fits &= names.queues.among(numbers, query.queues)
        for condition in query.everything():
            fits &= condition.holds(rows.number(condition.column))
        places = places[fits]
    for start in range(0, len(places), BATCH_ROWS):
        yield Facts(opened, names, places[start : start + BATCH_ROWS])
