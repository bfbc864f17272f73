"""Plans a query: the slices that may hold its rows, and the carried messages that are rows. No Spark.

A message that had not ended when retention dropped its segment stands in the log again, as a record of another sequence
with its own sequence inside (and once more when that segment goes). It becomes a row only if its own record is gone,
and only from the last record that carries it. That is decided here, from the sidecars' tables of carried messages,
since no single segment can tell.
"""

from contextlib import closing
from typing import NamedTuple

import numpy as np

from syncbrok.log.format.layout import Kind
from syncbrok.pipeline.decode.arrow_arrays import Array, gather_header
from syncbrok.pipeline.decode.messages import own_sequences
from syncbrok.pipeline.decode.open_segment import OpenSegment, index_of, sealed_as
from syncbrok.pipeline.decode.query import (
    RECORDED_AFTER_US,
    RECORDED_BEFORE_US,
    TIME_MAX_US,
    TIME_MIN_US,
    CarriedRule,
    Query,
)
from syncbrok.pipeline.decode.record_block import BlockRecords
from syncbrok.pipeline.log_snapshot import LogSnapshot, SegmentSlice, SegmentSnapshot, slices


class DecodePlan(NamedTuple):
    """The parts of the log to read for a query, ``parts``; ``rule`` says which carried messages are among its rows."""

    parts: list[SegmentSlice]
    rule: CarriedRule


def plan(log: LogSnapshot, query: Query) -> DecodePlan:
    """The plan to read all readable parts of the log that the query needs. Raises ``LogCorrupt``."""
    rule, carrying = CarriedRule(), frozenset[int]()
    if query.kind == "messages" and log.oldest > 1:
        rule, carrying = carried(log, 0, log.oldest, log.durable)
    return DecodePlan(narrowed(slices(log), query, carrying), rule)


# -- carried messages --------------------------------------------------------------------------------------------------


def carried(log: LogSnapshot, low: int, below: int, through: int) -> tuple[CarriedRule, frozenset[int]]:
    """The rule for messages with own sequences from ``low`` to before ``below``, carried by records up to ``through``;
    and the bases of the segments that have such records."""
    owns, records, bases = [np.empty(0, np.int64)], [np.empty(0, np.int64)], set()
    for one in log.segments:
        if one.base > through:
            break
        own, record = _carried_in(one, log.uuid)
        wanted = (own >= low) & (own < below) & (record <= through)
        if wanted.any():
            owns.append(own[wanted])
            records.append(record[wanted])
            bases.add(one.base)
    if not bases:
        return CarriedRule(), frozenset()
    own, record = np.concatenate(owns), np.concatenate(records)
    order = np.lexsort((record, own))
    own, record = own[order], record[order]
    superseded = np.sort(record[:-1][own[:-1] == own[1:]])
    return CarriedRule(low, below, through, tuple(superseded.tolist())), frozenset(bases)


def _carried_in(one: SegmentSnapshot, uuid: bytes) -> tuple[Array, Array]:
    """Own sequence and sequence of the record of each carried message of a segment."""
    nothing = np.empty(0, np.int64)
    # Most have none, and a look at the beginning of the sidecar spares reading it.
    if one.sealed and one.place.index_rows(one.path, sealed_as(one, uuid), "carried") == 0:
        return nothing, nothing
    index = index_of(one, uuid)
    if index is not None:
        own, places, _ = index.compact().carried
        return own.astype(np.int64), places.astype(np.int64) + one.base
    with closing(OpenSegment(one, uuid, verify=True, gaps=True)) as opened:
        every = opened.every_offset()
        moved = BlockRecords(opened, every[gather_header(opened.view, every, "kind") == Kind.CARRIED])
        if not len(moved):
            return nothing, nothing
        return own_sequences(moved), moved.heads["sequence"].astype(np.int64)


# -- what need not be read ---------------------------------------------------------------------------------------------


def narrowed(parts: list[SegmentSlice], query: Query, carrying: frozenset[int] = frozenset()) -> list[SegmentSlice]:
    """The parts that may hold rows of the query, cut down to the sequences that may. ``carrying``: the bases of
    segments with carried messages, whose sequences and times belong to another part of the log."""
    first, last = _bounds(query, "sequence", -(1 << 62), 1 << 62)
    since_us, until_us = _times(query)
    found: list[SegmentSlice] = []
    for one in parts:
        if one.segment.base in carrying:
            found.append(one)
        elif one.segment.last_time_us >= since_us and one.segment.first_time_us <= until_us:
            cut = one._replace(first=max(one.first, first), last=min(one.last, last))
            if cut.first <= cut.last:
                found.append(cut)
    return found


def _times(query: Query) -> tuple[int, int]:
    """The times between which the records of its rows were written."""
    since_us, until_us = _bounds(query, "time", TIME_MIN_US, TIME_MAX_US)
    if query.kind != "deliveries":
        return since_us, until_us
    recorded = _bounds(query, "recorded", TIME_MIN_US, TIME_MAX_US)
    return max(since_us - RECORDED_BEFORE_US, recorded[0]), min(until_us + RECORDED_AFTER_US, recorded[1])


def _bounds(query: Query, column: str, low: int, high: int) -> tuple[int, int]:
    """The smallest and the greatest value that the conditions leave a column, both possible."""
    for condition in query.everything():
        if condition.column != column:
            continue
        if not condition.values:
            return 1, 0
        if condition.operation in ("=", ">", ">=", "in"):
            low = max(low, min(condition.values) + (condition.operation == ">"))
        if condition.operation in ("=", "<", "<=", "in"):
            high = min(high, max(condition.values) - (condition.operation == "<"))
    return low, high
