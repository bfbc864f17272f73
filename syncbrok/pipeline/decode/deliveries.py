"""The rows of outcomes records as Arrow columns. Pure, no Spark."""

from collections.abc import Callable
from functools import cached_property

import numpy as np
import pyarrow as pa

from syncbrok.log.format.layout import ERASED, HEADER_BYTES, ROW, ROW_BYTES
from syncbrok.model.facts import Outcome, Reason
from syncbrok.pipeline import schema
from syncbrok.pipeline.decode.arrow_arrays import Array, NameLookup, cut, gather_field, numbers, spread
from syncbrok.pipeline.decode.record_block import BlockRecords, RecordBlock
from syncbrok.pipeline.decode.segment_names import SegmentNames

_OUTCOMES = NameLookup({int(outcome): outcome.name.lower() for outcome in Outcome})
_REASONS = NameLookup({int(reason): reason.name.lower() for reason in Reason})
_DETAIL_BYTES_AT = 44
"""where a row says how long its detail is"""


class RowOffsets:
    """The places of rows, ascending: offset, number of the record in ``heads``, position in the record, offset of the
    detail."""

    def __init__(self, records: BlockRecords) -> None:
        """The rows of these outcomes records."""
        block, places = records.block, records.places
        self.heads = records.heads
        items_bytes = self.heads["items"].astype(np.int64) * ROW_BYTES
        rows_fit = (items_bytes == self.heads["meta_bytes"]) & (items_bytes <= self.heads["body_bytes"])
        block.check(places, rows_fit, "rows and meta differ in length")
        self.record_places, self.positions = spread(self.heads["items"])
        bodies = places + HEADER_BYTES
        self.offsets = bodies[self.record_places] + self.positions * ROW_BYTES
        lengths = gather_field(block.view, self.offsets + _DETAIL_BYTES_AT, "<u2").astype(np.int64)
        contents_bytes = self.heads["body_bytes"] - self.heads["meta_bytes"]
        details_fit = np.bincount(self.record_places, lengths, len(places)).astype(np.int64) == contents_bytes
        block.check(places, details_fit, "details and body differ in length")
        before = np.cumsum(lengths) - lengths
        firsts = np.flatnonzero(self.positions == 0)
        contents = (bodies + self.heads["meta_bytes"])[self.record_places[firsts]]
        counts = np.diff(firsts, append=len(self.positions))
        self.details = before + np.repeat(contents - before[firsts], counts)

    def __len__(self) -> int:
        return len(self.offsets)

    def keep(self, wanted: Array) -> None:
        """Leave only the ``wanted`` rows."""
        self.record_places, self.positions = self.record_places[wanted], self.positions[wanted]
        self.offsets, self.details = self.offsets[wanted], self.details[wanted]


class DecodedDeliveries:
    """The rows from number ``start`` to ``stop``, as Arrow columns. A column is made when it is asked for."""

    def __init__(self, block: RecordBlock, names: SegmentNames, rows: RowOffsets, start: int, stop: int) -> None:
        self._view = block.view
        self.names = names
        self.heads = rows.heads
        self.record_places = rows.record_places[start:stop]
        self.positions = rows.positions[start:stop]
        self.offsets = rows.offsets[start:stop]
        self.details = rows.details[start:stop]

    def column(self, name: str) -> pa.Array:
        return _COLUMNS[name](self)

    def of_queues(self, wanted: frozenset[str]) -> Array:
        """For each row: true if it is for a subscriber of one of the queues."""
        numbers = self.subscribers
        return self.names.queues_of_subscribers.among(numbers, wanted)

    def number(self, name: str) -> Array:
        """A column of numbers, for conditions: a time is microseconds."""
        found: Array = self.rows[_OF_ROW[name]] if name in _OF_ROW else self.heads[_OF_RECORD[name]][self.record_places]
        return found

    @cached_property
    def rows(self) -> Array:
        return gather_field(self._view, self.offsets, ROW)

    @cached_property
    def subscribers(self) -> Array:
        """The subscribers' numbers. Asked for before their names: it makes sure that these are known."""
        found = np.ascontiguousarray(self.rows["subscriber"])
        self.names.know(subscribers=found)
        return found

    def as_subscriber(self) -> pa.Array:
        numbers = self.subscribers  # first: it makes the names known
        return self.names.subscribers.take(numbers)

    def as_queue(self) -> pa.Array:
        numbers = self.subscribers
        return self.names.queues_of_subscribers.take(numbers)

    def as_detail(self) -> pa.Array:
        ends = self.details + self.rows["detail_bytes"]
        for at in np.flatnonzero(self.heads["flags"][self.record_places] & ERASED).tolist():
            if not bytes(self._view[self.details[at] : ends[at]]).strip(b"\0"):
                ends[at] = self.details[at]
        return cut(pa.py_buffer(self._view), self.details, ends)

    def as_due(self) -> pa.Array:
        due_us = self.rows["due_us"]
        return numbers(due_us, schema.TIME, due_us != 0)


_OF_RECORD = {"sequence": "sequence", "recorded": "time_us"}
_OF_ROW = {
    "message": "message",
    "subscriber_number": "subscriber",
    "attempt": "attempt",
    "status": "status",
    "time": "time_us",
    "after": "after",
    "latency_us": "latency_us",
}
_COLUMNS: dict[str, Callable[[DecodedDeliveries], pa.Array]] = {
    "sequence": lambda one: numbers(one.number("sequence"), schema.LONG),
    "position": lambda one: numbers(one.positions, schema.INT),
    "recorded": lambda one: numbers(one.number("recorded"), schema.TIME),
    "message": lambda one: numbers(one.rows["message"], schema.LONG),
    "subscriber_number": lambda one: numbers(one.rows["subscriber"], schema.LONG),
    "subscriber": DecodedDeliveries.as_subscriber,
    "queue": DecodedDeliveries.as_queue,
    "attempt": lambda one: numbers(one.rows["attempt"], schema.INT),
    "outcome": lambda one: _OUTCOMES.take(one.rows["outcome"]),
    "reason": lambda one: _REASONS.take(one.rows["reason"]),
    "status": lambda one: numbers(one.rows["status"], schema.INT),
    "time": lambda one: numbers(one.rows["time_us"], schema.TIME),
    "due": DecodedDeliveries.as_due,
    "after": lambda one: numbers(one.rows["after"], schema.LONG),
    "latency_us": lambda one: numbers(one.rows["latency_us"], schema.LONG),
    "detail": DecodedDeliveries.as_detail,
}
