"""From a slice of a log to Arrow record batches of a query's columns. No Spark, and no loop over records: what is
wanted is found and cut out for thousands of records at once. Only declared facts, which are few, are decoded one by
one.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Protocol

import numpy as np
import pyarrow as pa

from syncbrok.log.layout import Kind
from syncbrok.pipeline import schema
from syncbrok.pipeline.decode.deliveries import Deliveries, Rows
from syncbrok.pipeline.decode.facts import Facts
from syncbrok.pipeline.decode.gather import Array, gather_header
from syncbrok.pipeline.decode.index import from_index
from syncbrok.pipeline.decode.messages import Messages, own_sequences
from syncbrok.pipeline.decode.names import Names
from syncbrok.pipeline.decode.query import CarriedRule, Query
from syncbrok.pipeline.decode.segment import OpenSegment, snapshot_of
from syncbrok.pipeline.log_files import Slice

BATCH_ROWS = 8192


class _Rows(Protocol):
    """Some rows of a kind."""

    def column(self, name: str) -> pa.Array: ...

    def number(self, name: str) -> Array: ...

    def of_queues(self, wanted: frozenset[str]) -> Array: ...


class _Source(Protocol):
    """All rows of a kind that a slice has."""

    def __len__(self) -> int: ...

    def keep(self, wanted: Array) -> None: ...

    def rows(self, start: int, stop: int) -> _Rows: ...


def read(one: Slice, uuid: bytes, query: Query, rule: CarriedRule) -> Iterator[pa.RecordBatch]:
    """The rows of a slice of the log ``uuid``, in batches of at most 8,192. Raises ``LogCorrupt`` naming file, offset
    and sequences, and ``Gone`` where retention has unlinked the segment meanwhile."""
    known = from_index(one, uuid, query, rule)
    if known is not None:
        for start in range(0, known.num_rows, BATCH_ROWS):
            yield known.slice(start, BATCH_ROWS)
        return
    with closing(OpenSegment(one.segment, uuid, verify=query.verify, hint=one.hint)) as opened:
        found = _KINDS[query.kind](opened, opened.offsets(one.first, one.last), rule)
        _keep_wanted(found, query)
        arrow = schema.arrow_schema(query.columns)
        for start in range(0, len(found), BATCH_ROWS):
            rows = found.rows(start, min(start + BATCH_ROWS, len(found)))
            yield pa.record_batch([rows.column(column.name) for column in query.columns], arrow)


def _keep_wanted(found: _Source, query: Query) -> None:
    conditions = query.everything()
    if query.queues is None and not conditions and query.fact_kinds is None:
        return
    rows = found.rows(0, len(found))
    fits = np.ones(len(found), dtype=np.bool_)
    if isinstance(rows, Facts) and query.fact_kinds is not None:
        fits = rows.of_kinds(query.fact_kinds)
        fits[-1:] = True
    if query.queues is not None:
        fits &= rows.of_queues(query.queues)
    for condition in conditions:
        fits &= condition.holds(rows.number(condition.column))
    found.keep(fits)


class _Places:
    """Records as rows."""

    def __init__(self, opened: OpenSegment, places: Array, make: type[Messages] | type[Facts]) -> None:
        self._opened = opened
        self._places = places
        self._make = make
        self._names = _names(opened)

    def __len__(self) -> int:
        return len(self._places)

    def keep(self, wanted: Array) -> None:
        self._places = self._places[wanted]

    def rows(self, start: int, stop: int) -> _Rows:
        return self._make(self._opened, self._names, self._places[start:stop])


class _Outcomes:
    """The rows of outcomes records."""

    def __init__(self, opened: OpenSegment, records: Array) -> None:
        self._opened = opened
        self._rows = Rows(opened, records)
        self._names = _names(opened)

    def __len__(self) -> int:
        return len(self._rows)

    def keep(self, wanted: Array) -> None:
        self._rows.keep(wanted)

    def rows(self, start: int, stop: int) -> _Rows:
        return Deliveries(self._opened, self._names, self._rows, start, stop)


def _names(opened: OpenSegment) -> Names:
    return Names(snapshot_of(opened.segment), opened.declared)


def _messages(opened: OpenSegment, offsets: Array, rule: CarriedRule) -> _Source:
    kinds = gather_header(opened.view, offsets, "kind")
    wanted = kinds == Kind.MESSAGE
    if rule.through:
        moved = np.flatnonzero(kinds == Kind.CARRIED)
        wanted[moved[_are_rows(opened, offsets[moved], rule)]] = True
    return _Places(opened, offsets[wanted], Messages)


def _are_rows(opened: OpenSegment, places: Array, rule: CarriedRule) -> Array:
    """Which of the carried messages are rows."""
    if not len(places):
        return np.empty(0, dtype=np.bool_)
    records = gather_header(opened.view, places, "sequence").astype(np.int64)
    own = own_sequences(opened, places)
    counted = (own >= rule.low) & (own < rule.below) & (records <= rule.through)
    return counted & ~np.isin(records, np.array(rule.superseded, dtype=np.int64))


def _deliveries(opened: OpenSegment, offsets: Array, _: CarriedRule) -> _Source:
    return _Outcomes(opened, offsets[gather_header(opened.view, offsets, "kind") == Kind.OUTCOMES])


def _facts(opened: OpenSegment, offsets: Array, _: CarriedRule) -> _Source:
    return _Places(opened, offsets, Facts)


_KINDS: dict[str, Callable[[OpenSegment, Array, CarriedRule], _Source]] = {
    "messages": _messages,
    "deliveries": _deliveries,
    "facts": _facts,
}
