"""All that the report counts of whole messages: a row for each combination that there is, and how many of it.

``attempt``   subscriber, outcome, reason, status: attempts, and how long they took
``delivery``  subscriber, and how it ended: deliveries, from acceptance to an acknowledgement
``message``   queue, and how it ended: messages, from acceptance to completion

each by hours (``period``) and by the bucket of a duration (``latency``). A delivery that a replay opened again counts
with all its moments: it came, it ended, it came again, it ended again. Moments lie close together, so there are few
combinations. Each task counts its rows and adds up what it is given of other tasks. So what comes to the driver is one
table a kind, whose size is that of the combinations, however long the log is. The driver finds the subscribers by their
numbers (``tables``). Counts of a kind travel as one value, an Arrow stream: so they come out beside rows of another
shape, in one pass over the data.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from syncbrok.model.facts import Outcome
from syncbrok.pipeline import arrow_ipc
from syncbrok.pipeline.numpy_columns import NEVER, Longs, longs
from syncbrok.pipeline.report.aggregation import aggregated
from syncbrok.pipeline.report.latency import buckets_of
from syncbrok.pipeline.report.period import BEFORE, Period
from syncbrok.pipeline.states.completion_state import (
    NOBODY,
    CompletedDeliveries,
    CompletedMessages,
    CompletionTables,
    standing_ends,
)
from syncbrok.pipeline.states.packed_ends import outcome_names, outcome_of, reason_names, record_of

ATTEMPT: Final = "attempt"
DELIVERY: Final = "delivery"
MESSAGE: Final = "message"
WAIT: Final = "wait"
BLAME: Final = "blame"
GOES_ON: Final = "goes_on"
"""of blame: steps that lead to a parent in another tree, and claims that go on there"""

_BUCKETS: Final = (("bucket", pa.int64()), ("n", pa.int64()), ("max_us", pa.int64()), ("sum_us", pa.int64()))
_MOMENTS: Final = tuple((name, pa.int64()) for name in ("hour", "ended", "rearmed", "again"))
SCHEMAS: Final = {
    ATTEMPT: pa.schema(
        [
            *(("subscriber", pa.int64()), ("hour", pa.int64()), ("outcome", pa.string()), ("reason", pa.string())),
            *(("status", pa.int32()), *_BUCKETS),
        ]
    ),
    DELIVERY: pa.schema(
        [
            *(("subscriber", pa.int64()), *_MOMENTS, ("outcome", pa.string()), ("last_outcome", pa.string())),
            *(
                ("reason", pa.string()),
                ("dead", pa.bool_()),
                ("open", pa.bool_()),
                ("otherwise", pa.bool_()),
                *_BUCKETS,
            ),
        ]
    ),
    MESSAGE: pa.schema(
        [
            *(("queue", pa.string()), *_MOMENTS, ("complete", pa.int64()), ("outcome", pa.string())),
            *(("open", pa.bool_()), *_BUCKETS),
        ]
    ),
    WAIT: pa.schema([("queue", pa.string()), ("hour", pa.int64()), *_BUCKETS]),
    BLAME: pa.schema(
        [
            *(("subscriber", pa.int64()), ("hour", pa.int64())),
            *(("waited_us", pa.float64()), ("waiters", pa.float64()), ("max_us", pa.int64())),
        ]
    ),
    GOES_ON: pa.schema([("what", pa.string()), ("n", pa.int64())]),
}
"""of the counts of each kind"""
_ADDED_UP: Final = {"n": "sum", "sum_us": "sum", "waited_us": "sum", "waiters": "sum", "max_us": "max"}
"""how the counts of equal rows become one; all other columns say what is counted"""
SENT: Final = pa.schema([("kind", pa.string()), ("counts", pa.binary())])

Counts = Mapping[str, pa.Table]
"""by kind"""


def counts_of(table: pa.Table, state: CompletionTables, period: Period) -> Counts:
    """Counts by kind, from a table of whole messages."""
    return {
        ATTEMPT: _attempts(table, period),
        DELIVERY: _ends(state, period),
        MESSAGE: _completions(table, state.messages, period),
    }


def summed(keys: Mapping[str, pa.Array | Longs], duration_us: Longs) -> pa.Table:
    """A table by ``keys`` and bucket (null without a duration): ``n`` rows, ``max_us`` and ``sum_us``."""
    timed = duration_us != NEVER
    us = np.maximum(duration_us, 0)
    columns = {
        **keys,
        "bucket": pa.array(buckets_of(us), mask=~timed),
        "us": pa.array(us, mask=~timed),
        "one": pa.array(np.ones(len(us), np.int64)),
    }
    sums = {"n": ("one", "sum"), "max_us": ("us", "max"), "sum_us": ("us", "sum")}
    return aggregated(pa.table(columns), (*keys, "bucket"), **sums)


def beside(rows: pa.Table, counts: Counts, **goes_to: int) -> pa.Table:
    """A table of ``rows`` and of a row for each kind of ``counts`` with the columns ``kind`` and ``counts``, all others
    null; but for ``goes_to``: the column by which the rows are shuffled, with a value for these."""
    sent = pa.table(
        {"kind": pa.array(counts, pa.string()), "counts": [arrow_ipc.serialized(one) for one in counts.values()]}
    ).cast(SENT)
    for name, value in goes_to.items():
        sent = sent.append_column(name, pa.array([value] * len(sent), pa.int64()))
    return pa.concat_tables([rows, sent], promote_options="default")


def parted(table: pa.Table) -> tuple[pa.Table, Counts]:
    """The two parts of what ``beside`` made, several times over: the rows, and the counts, added up."""
    is_row = pc.is_null(table["kind"])
    sent = table.filter(pc.invert(is_row)).select(SENT.names).to_pylist()
    kinds = dict.fromkeys(one["kind"] for one in sent)
    counts = {kind: received(kind, (one["counts"] for one in sent if one["kind"] == kind)) for kind in kinds}
    return table.filter(is_row).drop_columns(SENT.names), counts


def received(kind: str, sent: Iterable[bytes]) -> pa.Table:
    """All counts of ``kind``, added up in one table."""
    found = [arrow_ipc.deserialized(one).cast(SCHEMAS[kind]) for one in sent]
    every = pa.concat_tables([SCHEMAS[kind].empty_table(), *found])
    if len(found) < 2:
        return every
    sums = {name: (name, _ADDED_UP[name]) for name in every.column_names if name in _ADDED_UP}
    keys = [name for name in every.column_names if name not in sums]
    return aggregated(every, keys, **sums).select(SCHEMAS[kind].names).cast(SCHEMAS[kind])


def _attempts(table: pa.Table, period: Period) -> pa.Table:
    """Counts of the attempts in the period."""
    hour = period.hours_of(longs(table["at_us"]))
    row = np.flatnonzero((longs(table["attempt"], 0) > 0) & (longs(table["said"]) != NEVER) & (hour != BEFORE))
    mine = table.select(["subscriber", "said", "status", "latency_us"]).take(pa.array(row)).combine_chunks()
    said = longs(mine["said"])
    keys = {
        "subscriber": mine["subscriber"],
        "hour": hour[row],
        "outcome": outcome_names(said),
        "reason": reason_names(said),
        "status": mine["status"],
    }
    return summed(keys, longs(mine["latency_us"]))


def _ends(state: CompletionTables, period: Period) -> pa.Table:
    """Counts of the deliveries of the log. Those from before the period are among them: each was open then, or not."""
    own = state.deliveries
    own = CompletedDeliveries._make(column[own.subscriber != NOBODY] for column in own)
    messages = state.messages
    accepted = np.where(own.counted, messages.accepted[np.maximum(own.place, 0)] if len(messages.row) else NEVER, NEVER)
    acknowledged = own.counted & (own.first != NEVER) & (outcome_of(own.first) == Outcome.DELIVERED)
    stands, _ = standing_ends(own)
    died = np.where((stands != NEVER) & (outcome_of(stands) == Outcome.DEAD), stands, NEVER)
    keys = {
        "subscriber": own.subscriber,
        "hour": period.hours_of(accepted),
        "ended": period.hours_of(own.first_at),
        "rearmed": period.hours_of(own.rearmed_at),
        "again": period.hours_of(own.last_at),
        "outcome": outcome_names(own.first),
        "last_outcome": outcome_names(own.last),
        "reason": reason_names(died),
        "dead": died != NEVER,
        "open": own.last == NEVER,
        "otherwise": (own.last != NEVER) & (own.first != NEVER) & (record_of(own.last) != record_of(own.first)),
    }
    return summed(keys, np.where(acknowledged, own.first_at - accepted, NEVER))


def _completions(table: pa.Table, mine: CompletedMessages, period: Period) -> pa.Table:
    keys = {
        "queue": table["queue"].take(pa.array(mine.row)).combine_chunks(),
        "hour": period.hours_of(mine.accepted),
        "ended": period.hours_of(mine.ended_at),
        "rearmed": period.hours_of(mine.rearmed_at),
        "again": period.hours_of(mine.last_at),
        "complete": period.hours_of(mine.complete_at),
        "outcome": mine.outcome,
        "open": mine.open > 0,
    }
    return summed(keys, np.where(mine.complete_at != NEVER, mine.complete_at - mine.accepted, NEVER))
