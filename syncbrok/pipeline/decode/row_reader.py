"""Makes Arrow record batches with a query's columns from a slice of a log. No Spark, and no loop over records: what is
wanted is found and cut out for thousands of records at once. Only declared facts, which are few, are decoded one by
one.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import numpy as np
import pyarrow as pa

from syncbrok.log.format.layout import Kind
from syncbrok.pipeline import schema
from syncbrok.pipeline.decode.arrow_arrays import Array
from syncbrok.pipeline.decode.block_reader import record_blocks
from syncbrok.pipeline.decode.deliveries import DecodedDeliveries, RowOffsets
from syncbrok.pipeline.decode.facts import DecodedFacts
from syncbrok.pipeline.decode.messages import DecodedMessages, own_sequences
from syncbrok.pipeline.decode.open_segment import declared_in, snapshot_of
from syncbrok.pipeline.decode.query import CarriedRule, Query
from syncbrok.pipeline.decode.record_block import BlockRecords
from syncbrok.pipeline.decode.segment_names import SegmentNames
from syncbrok.pipeline.decode.sidecar_rows import from_index
from syncbrok.pipeline.log_snapshot import SegmentSlice

BATCH_ROWS = 8192
_FEW_ROWS = BATCH_ROWS // 2
_NONE = np.empty(0, np.int64)


class _Rows(Protocol):
    """Rows of a kind, as columns."""

    def column(self, name: str) -> pa.Array: ...

    def number(self, name: str) -> Array: ...

    def of_queues(self, wanted: frozenset[str]) -> Array: ...


class _Source(Protocol):
    """All rows of a kind that a block has."""

    def __len__(self) -> int: ...

    def keep(self, wanted: Array) -> None: ...

    def rows(self, start: int, stop: int) -> _Rows: ...


def read(one: SegmentSlice, uuid: bytes, query: Query, rule: CarriedRule) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a slice of the log ``uuid``, in batches of at most 8,192; some 5,120 where most records are
    rows. Raises ``LogCorrupt`` naming file, offset and sequences, and ``Gone`` where retention has unlinked the segment
    meanwhile."""
    known = from_index(one, uuid, query, rule)
    if known is not None:
        for start in range(0, known.num_rows, BATCH_ROWS):
            yield known.slice(start, BATCH_ROWS)
        return
    yield from _filled(_batches(one, uuid, query, rule))


def _batches(one: SegmentSlice, uuid: bytes, query: Query, rule: CarriedRule) -> Iterator[pa.RecordBatch]:
    arrow = schema.arrow_schema(query.columns)
    names = SegmentNames(snapshot_of(one.segment), lambda: declared_in(one.segment, uuid, verify=query.verify))
    left = one.last - one.first + 1
    for records in record_blocks(one, uuid, verify=query.verify):
        left -= len(records)
        found = _KINDS[query.kind](records, names, rule)
        _keep_wanted(found, query, last=left <= 0)
        for start in range(0, len(found), BATCH_ROWS):
            rows = found.rows(start, min(start + BATCH_ROWS, len(found)))
            yield pa.record_batch([rows.column(column.name) for column in query.columns], arrow)


def _filled(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows, with small batches put together: each batch costs Spark the same, whatever is in it."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if waiting and rows + batch.num_rows > BATCH_ROWS:
            yield _together(waiting)
            waiting, rows = [], 0
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= _FEW_ROWS:
            yield _together(waiting)
            waiting, rows = [], 0
    if waiting:
        yield _together(waiting)


def _together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _keep_wanted(found: _Source, query: Query, *, last: bool) -> None:
    conditions = query.everything()
    if query.queues is None and not conditions and query.fact_kinds is None:
        return
    rows = found.rows(0, len(found))
    fits = np.ones(len(found), dtype=np.bool_)
    if isinstance(rows, DecodedFacts) and query.fact_kinds is not None:
        fits = rows.of_kinds(query.fact_kinds)
        fits[-1:] |= last
    if query.queues is not None:
        fits &= rows.of_queues(query.queues)
    for condition in conditions:
        fits &= condition.holds(rows.number(condition.column))
    found.keep(fits)


class _Each:
    """A source with a row for each record; ``make`` makes the rows of some of them."""

    def __init__(self, records: BlockRecords, make: Callable[[BlockRecords], _Rows]) -> None:
        self._records = records
        self._make = make

    def __len__(self) -> int:
        return len(self._records)

    def keep(self, wanted: Array) -> None:
        self._records = self._records[wanted]

    def rows(self, start: int, stop: int) -> _Rows:
        return self._make(self._records[start:stop])


class _Outcomes:
    """The rows of outcomes records."""

    def __init__(self, records: BlockRecords, names: SegmentNames) -> None:
        self._block = records.block
        self._rows = RowOffsets(records)
        self._names = names

    def __len__(self) -> int:
        return len(self._rows)

    def keep(self, wanted: Array) -> None:
        self._rows.keep(wanted)

    def rows(self, start: int, stop: int) -> _Rows:
        return DecodedDeliveries(self._block, self._names, self._rows, start, stop)


def _messages(records: BlockRecords, names: SegmentNames, rule: CarriedRule) -> _Source:
    wanted = records.are(Kind.MESSAGE)
    carried: Array | None = _NONE
    if rule.through:
        moved = np.flatnonzero(records.are(Kind.CARRIED))
        wanted[moved[_are_rows(records[moved], rule)]] = True
        carried = None
    return _Each(records[wanted], lambda some: DecodedMessages(some, names, carried))


def _are_rows(moved: BlockRecords, rule: CarriedRule) -> Array:
    """For each carried message: true if it is a row by ``rule``."""
    if not len(moved):
        return np.empty(0, dtype=np.bool_)
    sequences = moved.heads["sequence"].astype(np.int64)
    own = own_sequences(moved)
    counted = (own >= rule.low) & (own < rule.below) & (sequences <= rule.through)
    return counted & ~np.isin(sequences, np.array(rule.superseded, dtype=np.int64))


def _deliveries(records: BlockRecords, names: SegmentNames, _: CarriedRule) -> _Source:
    return _Outcomes(records[records.are(Kind.OUTCOMES)], names)


def _facts(records: BlockRecords, names: SegmentNames, _: CarriedRule) -> _Source:
    return _Each(records, lambda some: DecodedFacts(some, names))


_KINDS: dict[str, Callable[[BlockRecords, SegmentNames, CarriedRule], _Source]] = {
    "messages": _messages,
    "deliveries": _deliveries,
    "facts": _facts,
}
