"""Who kept descendants waiting, and for how long.

Waiter *m* could have gone at ``ready`` and had to wait until its ``gate``. Its critical parent, the one that was done
last, had itself been let go at its own gate: what *m* waited since then is charged to the subscriber that the parent
ended with. What *m* waited before, the parent waited too: that is charged one step further up, and so on to the
ancestor that really took the time. So a slow endpoint at the root of a chain is charged once for each message below
that was ready and waited, and the endpoints in between only for their own time. Of the time in which the parent was
let go but its own delay was not over nobody is to blame (``culprit`` null).

Each *m* is charged in full to all steps up to the last one, k, that was done after *m* was ready, and for a part to k
itself: the steps' gates fall on the way up. So k is found by doubling, and how often each step is charged in full is a
sum over the tree below it: numpy in one task, at some 200 bytes for each that had to wait (the others are not needed).
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from syncbrok.pipeline.report.tables import Period

_DDL: Final = "culprit bigint, at timestamp, waited_us double, longest_us bigint, waiters double"
_NEVER: Final = np.int64(-(1 << 62))
_TIME: Final = pa.timestamp("us", tz="UTC")
_OUT: Final = pa.schema(
    [
        ("culprit", pa.int64()),
        ("at", _TIME),
        ("waited_us", pa.float64()),
        ("longest_us", pa.int64()),
        ("waiters", pa.float64()),
    ]
)

Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def blame(waits: DataFrame, subscribers: DataFrame, period: Period) -> DataFrame:
    """By queue and subscriber (of the culprit) and hour (in which the wait for it ended): ``waited_us``, the time that
    descendants were kept waiting, all of them added up; ``waiters``, how many waited for it directly or further down;
    ``longest_us``, the longest one step. Queue and subscriber are null for waits for a parent's own delay."""
    # Where all parents were done before it was accepted, neither it nor anybody below it waited through this step.
    kept = waits.where("gate_at > accepted_at").select(
        "waiter",
        "parent",
        f.unix_micros("gate_at").alias("gate_us"),
        f.unix_micros("ready_at").alias("ready_us"),
        f.unix_micros("parent_ready_at").alias("parent_ready_us"),
        f.coalesce("culprit", f.lit(-1)).alias("culprit"),
        "weight",
    )
    charged = kept.coalesce(1).mapInArrow(_charged, _DDL)
    names = subscribers.select(
        f.col("subscriber").alias("culprit"), "queue", f.col("subscriber_id").alias("subscriber")
    )
    return (
        charged.withColumn("hour", period.hour("at"))
        .where("hour is not null")
        .join(f.broadcast(names), "culprit", "left")
        .groupBy("queue", "subscriber", "hour")
        .agg(
            f.round(f.sum("waited_us")).cast("bigint").alias("waited_us"),
            f.sum("waiters").alias("waiters"),
            f.max("longest_us").alias("longest_us"),
        )
    )


def _charged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    some = [batch for batch in batches if batch.num_rows]
    if some:
        table = pa.Table.from_batches(some)
        columns: dict[str, Any] = {name: table[name].to_numpy() for name in table.column_names}
        yield from charge(**columns).to_batches(max_chunksize=10_000)


def charge(
    waiter: Longs,
    parent: Longs,
    gate_us: Longs,
    ready_us: Longs,
    parent_ready_us: Longs,
    culprit: Longs,
    weight: Floats,
) -> pa.Table:
    """What is charged for the step from each waiter to its critical parent: to whom (``culprit``, null for a delay of
    the parent's own), until when (``at``), for how long in all (``waited_us``) and how many waited. Pure."""
    order = np.argsort(waiter, kind="stable")
    waiter, parent, gate, ready = waiter[order], parent[order], gate_us[order], ready_us[order]
    culprit, weight = culprit[order], weight[order]
    up = _places(waiter, parent)
    above = np.where(up < 0, _NEVER, gate[up])
    begins = np.minimum(np.maximum(above, parent_ready_us[order]), gate)
    own, delay = gate - begins, begins - np.minimum(np.where(above == _NEVER, begins, above), begins)
    waited = gate > ready
    last = _last_step(up, gate, ready, waited)
    times = _below(up, waited, last, weight)
    at, share = last[waited], weight[waited]
    since = np.maximum(begins[at], ready[waited])
    charged = times * own + np.bincount(at, share * np.maximum(gate[at] - since, 0), len(gate))
    idle = times * delay + np.bincount(at, share * np.maximum(begins[at] - ready[waited], 0), len(gate))
    waiters = times + np.bincount(at, share, len(gate))
    longest = np.where(times > 0, own, 0)
    np.maximum.at(longest, at, gate[at] - since)
    return pa.concat_tables(
        [
            _table(culprit, gate, charged, longest, waiters, charged > 0),
            _table(np.full(len(gate), -1), gate, idle, np.zeros_like(gate), np.zeros(len(gate)), idle > 0),
        ]
    )


def _places(waiter: Longs, parent: Longs) -> Longs:
    """Where each one's parent stands among the waiters, -1 where it is none: it had not to wait itself."""
    at = np.minimum(np.searchsorted(waiter, parent), len(waiter) - 1)
    return np.where(waiter[at] == parent, at, -1)


def _last_step(up: Longs, gate: Longs, ready: Longs, waited: npt.NDArray[np.bool_]) -> Longs:
    """For each that waited the highest step on its way up (itself the first) whose gate opened after it was ready."""
    at = np.arange(len(up))
    jumps = [up]
    while (jumps[-1] >= 0).any():
        before = jumps[-1]
        jumps.append(np.where(before < 0, -1, before[before]))
    for jump in reversed(jumps):
        above = jump[at]
        goes = waited & (above >= 0) & (gate[above] > ready)
        at = np.where(goes, above, at)
    return at


def _below(up: Longs, waited: npt.NDArray[np.bool_], last: Longs, weight: Floats) -> Floats:
    """How many waiters each step is charged for in full: those at or below it whose last step is further up."""
    sums = np.where(waited, weight, 0.0) - np.bincount(last[waited], weight[waited], len(up))
    level = _levels(up)
    order = np.argsort(-level, kind="stable")
    start = 0
    for count in np.bincount(level)[:0:-1].tolist():  # from the lowest level up; the top has nothing above it
        some = order[start : start + count]
        np.add.at(sums, up[some], sums[some])
        start += count
    return np.maximum(sums, 0.0)


def _levels(up: Longs) -> Longs:
    """How many steps each is below the top, by doubling."""
    steps = (up >= 0).astype(np.int64)
    jump = up.copy()
    while (jump >= 0).any():
        has = jump >= 0
        steps = steps + np.where(has, steps[jump], 0)
        jump = np.where(has, jump[jump], -1)
    return steps


def _table(
    culprit: Longs, at: Longs, waited: Floats, longest: Longs, waiters: Floats, chosen: npt.NDArray[np.bool_]
) -> pa.Table:
    who = culprit[chosen]
    return pa.table(
        [
            pa.array(who, pa.int64(), mask=who < 0),
            pa.array(at[chosen]).cast(_TIME),
            pa.array(waited[chosen]),
            pa.array(longest[chosen], pa.int64()),
            pa.array(waiters[chosen]),
        ],
        schema=_OUT,
    )
