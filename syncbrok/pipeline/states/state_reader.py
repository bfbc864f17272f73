"""Reads the kinds that follow from all records together, ``schema.DERIVED``, from a log. No Spark.

The messages of a few segments are the work of one task: it reads them, and of the segments from there on what is about
them. Which parts of those that is, their sidecars say when it is planned; so most of the log is read once, whatever the
number of tasks. A segment without a sidecar, the one that is written to, is read by each of them.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import orjson
import pyarrow as pa

from syncbrok.log.index.segment_index import SegmentIndex
from syncbrok.model import limits
from syncbrok.model.errors import BadSetting
from syncbrok.pipeline import log_snapshot, schema
from syncbrok.pipeline.decode import plan as decode_plan
from syncbrok.pipeline.decode import row_reader
from syncbrok.pipeline.decode.open_segment import index_of
from syncbrok.pipeline.decode.query import TIME_MAX_US, TIME_MIN_US, CarriedRule, Condition, Query
from syncbrok.pipeline.log_snapshot import LogSnapshot, SegmentSlice, SegmentSnapshot
from syncbrok.pipeline.numpy_columns import Longs
from syncbrok.pipeline.states import declared_rows, delivery_states
from syncbrok.pipeline.states.completion_state import completion_state
from syncbrok.pipeline.states.declared_facts import KINDS, DeclaredFact, DeclaredFacts
from syncbrok.pipeline.states.input_columns import (
    accepted_rows,
    accepted_schema,
    carried_rows,
    delivery_rows,
    delivery_schema,
    known,
    together,
)

PARTITION_BYTES_MAX: Final = 128 * limits.MIB
"""of messages whose states one task works out: it needs at most some 800 bytes of memory for each delivery"""
_RUNS_MAX: Final = 8
_MESSAGES: Final = "sequence,time,queue,only_subscriber,not_before"
_DELIVERIES: Final = "sequence,position,recorded,message,subscriber_number,attempt,outcome,reason,time"
_FACTS: Final = "sequence,time,kind,detail"
_NONE_CARRIED: Final = CarriedRule()


class StateSlices(NamedTuple):
    """The work of one task: the messages with sequences from ``low`` to ``high`` that stand in the slices ``messages``
    (by ``rule``, where they were carried), and the slices from there to the end of the log that tell of them."""

    low: int
    high: int
    messages: list[SegmentSlice]
    rule: CarriedRule
    others: list[SegmentSlice]


# -- planning ----------------------------------------------------------------------------------------------------------


def plan(log: LogSnapshot, query: Query, partition_bytes: int, least: int) -> list[StateSlices]:
    """The tasks for the rows of ``query``. Raises ``LogCorrupt``."""
    if not log.segments:
        return []
    if query.kind != "states":
        _refuse_times(query)
        return _with_others(log, [StateSlices(0, -1, [], _NONE_CARRIED, [])])
    wanted = decode_plan.plan(log, _of_messages(query))
    parts = [one for one in wanted.parts if one.last >= one.first]
    work = [
        StateSlices(part[0].first, part[-1].last, part, _NONE_CARRIED, [])
        for part in log_snapshot.share_out(parts, min(partition_bytes, PARTITION_BYTES_MAX), least)
    ]
    if wanted.rule.through:
        carrying = decode_plan.carried(log, 0, log.oldest, log.durable)[1]
        slices = [one for one in log_snapshot.slices(log) if one.segment.base in carrying]
        work.append(StateSlices(0, log.oldest - 1, slices, wanted.rule, []))
    return _with_others(log, work)


def _refuse_times(query: Query) -> None:
    if (query.since_us, query.until_us) != (TIME_MIN_US, TIME_MAX_US):
        raise BadSetting(
            f"since and until are for rows with a time, and kind {query.kind} is what is declared at the end of the "
            "log; filter by its columns declared and deleted"
        )


def _with_others(log: LogSnapshot, work: list[StateSlices]) -> list[StateSlices]:
    """The tasks, each with the slices that tell of its messages: all of the segments from its first one on that have
    facts of another kind, or rows about its messages."""
    begins = [one.messages[0].segment.base if one.messages and one.low else 0 for one in work]
    for segment in log.segments:
        index = index_of(segment, log.uuid)
        others = None if index is None else _other_places(index)
        for one, begin in zip(work, begins, strict=True):
            if segment.base < begin:
                continue
            is_first = segment.base == max(begin, log.segments[0].base)
            if index is None or others is None:
                one.others.append(SegmentSlice(segment, segment.base, segment.last))
            else:
                places = np.append(others if is_first else others[others > 0], _row_places(index, one.low, one.high))
                one.others.extend(_blocks(segment, places, index.positions.every))
    return work


def _other_places(index: SegmentIndex) -> Longs | None:
    """The places of all records but messages and outcomes; None where the number of a record is not its place."""
    if index.jumps:
        return None
    tables = index.compact()
    is_other = np.ones(index.records, np.bool_)
    is_other[tables.queues[1]] = False
    is_other[tables.rows[1]] = False
    is_other[-1:] = False  # the seal
    return np.flatnonzero(is_other)


def _row_places(index: SegmentIndex, low: int, high: int) -> Longs:
    messages, places, _ = index.compact().rows
    first, last = np.searchsorted(messages, np.array([low, max(high + 1, low)], messages.dtype)).tolist()
    return np.unique(places[first:last]).astype(np.int64)


def _blocks(segment: SegmentSnapshot, places: Longs, every: int) -> Iterator[SegmentSlice]:
    """Slices with these places, of whole blocks, since a block is verified as a whole; few slices."""
    blocks = np.unique(places // every)
    if not len(blocks):
        return
    breaks = np.flatnonzero(np.diff(blocks) > 1)
    if len(breaks) >= _RUNS_MAX:
        breaks = breaks[:0]
    firsts, lasts = blocks[np.append(0, breaks + 1)], blocks[np.append(breaks, len(blocks) - 1)]
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        until = min(segment.base + (last + 1) * every - 1, segment.last)
        yield SegmentSlice(segment, segment.base + first * every, until)


def _of_messages(query: Query) -> Query:
    return query._replace(kind="messages", columns=schema.columns_of("messages", _MESSAGES))


# -- reading -----------------------------------------------------------------------------------------------------------


def read(work: StateSlices, uuid: bytes, query: Query) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ``query`` that one task makes. Raises as ``row_reader.read``."""
    found = _declared(work, uuid, verify=query.verify)
    if query.kind == "states":
        made = _states(work, uuid, query, found)
    else:
        make = declared_rows.queues if query.kind == "queues" else declared_rows.subscribers
        made = make(found, query.columns, query.queues)
    yield from made.to_batches(max_chunksize=row_reader.BATCH_ROWS)


def _declared(work: StateSlices, uuid: bytes, *, verify: bool) -> DeclaredFacts:
    """The declarations of the log, and of the other rare facts what they say of the messages of the task."""
    query = Query("facts", schema.columns_of("facts", _FACTS), verify=verify, fact_kinds=frozenset(KINDS))
    found = DeclaredFacts()
    for one in work.others:
        for batch in row_reader.read(one, uuid, query, _NONE_CARRIED):
            times = batch["time"].cast(pa.int64())
            columns = (batch["sequence"], batch["kind"], batch["detail"], times)
            for row in zip(*(column.to_pylist() for column in columns), strict=True):
                fact = _fact(work, *row)
                if fact is not None:
                    found.apply(fact)
    return found


def _fact(work: StateSlices, sequence: int, kind: str | None, detail: str, time_us: int) -> DeclaredFact | None:
    """The fact in a row, with what it says of messages of the task alone; None where it says nothing."""
    if kind not in KINDS:
        return None
    said = orjson.loads(detail)
    if kind == "carried_message" and not work.low <= said["message"] <= work.high:
        return None
    if kind == "rearmed":
        said["entries"] = [one for one in said["entries"] if work.low <= one["message"] <= work.high]
    return DeclaredFact(sequence, time_us, kind, said)


def _states(work: StateSlices, uuid: bytes, query: Query, declared: DeclaredFacts) -> pa.Table:
    bounds = (Condition("message", ">=", (work.low,)), Condition("message", "<=", (work.high,)))
    of_rows = Query("deliveries", schema.columns_of("deliveries", _DELIVERIES), None, conditions=bounds)
    of_messages = _of_messages(query)
    if work.rule.through:
        of_messages = of_messages._replace(conditions=(Condition("sequence", "<=", (work.high,)),))
    rows = [delivery_rows(one) for one in _tables(work.others, uuid, of_rows._replace(verify=query.verify))]
    accepted = [accepted_rows(one) for one in _tables(work.messages, uuid, of_messages, work.rule)]
    facts = known(declared)
    table = together(
        pa.concat_tables([accepted_schema().empty_table(), *accepted]),
        pa.concat_tables([delivery_schema().empty_table(), *rows, carried_rows(declared)]),
    )
    return delivery_states.states(table, completion_state(table, facts), facts, query.columns)


def _tables(
    slices: Sequence[SegmentSlice], uuid: bytes, query: Query, rule: CarriedRule = _NONE_CARRIED
) -> Iterable[pa.Table]:
    for one in slices:
        batches = list(row_reader.read(one, uuid, query, rule))
        if batches:
            yield pa.Table.from_batches(batches)
