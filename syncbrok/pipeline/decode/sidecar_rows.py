"""Rows that a sidecar knows without its segment: of messages the sequence, the time and the queue, of deliveries where
each row stands and its message, of facts the sequence and the time. So a count reads a tenth of the bytes or less. No
Spark.
"""

import numpy as np
import pyarrow as pa

from syncbrok.log.index.segment_index import SegmentIndex
from syncbrok.pipeline import schema
from syncbrok.pipeline.decode.arrow_arrays import Array, numbers
from syncbrok.pipeline.decode.open_segment import declared_in, index_of, snapshot_of
from syncbrok.pipeline.decode.query import RECORDED_AFTER_US, RECORDED_BEFORE_US, CarriedRule, Query
from syncbrok.pipeline.decode.segment_names import SegmentNames
from syncbrok.pipeline.log_snapshot import SegmentSlice

_POSITION_BITS = 20
_KNOWN = {
    "messages": frozenset({"sequence", "time", "queue"}),
    "deliveries": frozenset({"sequence", "position", "message"}),
    "facts": frozenset({"sequence", "time"}),
}


def may_know(query: Query) -> bool:
    """True if sidecars alone can answer the query, but for times at the edges."""
    known = query.names <= _KNOWN[query.kind] and not query.conditions and query.fact_kinds is None
    return known and (query.kind == "messages" or query.queues is None)


def from_index(one: SegmentSlice, uuid: bytes, query: Query, rule: CarriedRule) -> pa.RecordBatch | None:
    """A batch of all rows of the slice; None where the index does not know enough, or there is none to be trusted."""
    if not may_know(query) or not _is_within(one, query):
        return None
    index = index_of(one.segment, uuid)
    if index is None or (query.kind == "messages" and rule.through and len(index.compact().carried[0])):
        return None
    if index.jumps and query.kind != "deliveries" and (query.kind == "facts" or "time" in query.names):
        return None  # the number of a record is not its place
    if query.kind == "messages":
        found = _messages(one, uuid, query, index)
    elif query.kind == "deliveries":
        found = _deliveries(one, index)
    else:
        found = {"sequence": numbers(np.arange(one.first, one.last + 1), schema.LONG)}
        if "time" in query.names:
            found["time"] = numbers(_times(one, index), schema.TIME)
    return pa.record_batch([found[column.name] for column in query.columns], schema.arrow_schema(query.columns))


def _is_within(one: SegmentSlice, query: Query) -> bool:
    """True if every row of the segment is of the time that is asked for. The index knows when records were written,
    which of a delivery is not its time."""
    after_us, before_us = (RECORDED_AFTER_US, RECORDED_BEFORE_US) if query.kind == "deliveries" else (0, 0)
    first_us, last_us = one.segment.first_time_us - after_us, one.segment.last_time_us + before_us
    return first_us >= query.since_us and last_us < query.until_us


def _messages(one: SegmentSlice, uuid: bytes, query: Query, index: SegmentIndex) -> dict[str, pa.Array]:
    queues, places = index.compact().queues
    skipped, size = one.first - one.segment.base, one.last - one.first + 1
    if size < one.segment.last - one.segment.base + 1:
        inside = (places >= skipped) & (places < skipped + size)
        queues, places = queues[inside], places[inside]
    names: SegmentNames | None = None
    if "queue" in query.names or query.queues is not None:
        names = SegmentNames(snapshot_of(one.segment), lambda: declared_in(one.segment, uuid, verify=query.verify))
    if names is not None and query.queues is not None:
        names.know(queues=queues)
        wanted = names.queues.among(queues, query.queues)
        queues, places = queues[wanted], places[wanted]
    # The table is sorted by queue; the rows come in the order of the log.
    of_place = np.zeros(size, dtype=np.uint32)
    is_message = np.zeros(size, dtype=np.bool_)
    of_place[places - np.uint32(skipped)] = queues
    is_message[places - np.uint32(skipped)] = True
    rows = np.flatnonzero(is_message)
    found = {"sequence": numbers(rows + one.first, schema.LONG)}
    if "time" in query.names:
        found["time"] = numbers(_times(one, index)[rows], schema.TIME)
    if names is not None:
        found["queue"] = names.queue_names(of_place[rows])
    return found


def _times(one: SegmentSlice, index: SegmentIndex) -> Array:
    """The times of all records of the slice."""
    skipped = one.first - one.segment.base
    return index.positions.times_us[skipped : skipped + one.last - one.first + 1]


def _deliveries(one: SegmentSlice, index: SegmentIndex) -> dict[str, pa.Array]:
    messages, places, positions = index.compact().rows
    sequences = places.astype(np.int64) + one.segment.base
    inside = (sequences >= one.first) & (sequences <= one.last)
    if not inside.all():
        messages, sequences, positions = messages[inside], sequences[inside], positions[inside]
    # The table is sorted by message; the rows come in the order of the log, however they are read: who publishes them
    # through the sink names each by its place.
    order = np.argsort(sequences << _POSITION_BITS | positions, kind="stable")
    messages, sequences, positions = messages[order], sequences[order], positions[order]
    return {
        "sequence": numbers(sequences, schema.LONG),
        "position": numbers(positions, schema.INT),
        "message": numbers(messages, schema.LONG),
    }
