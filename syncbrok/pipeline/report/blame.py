"""Charges waits to the subscribers that caused them.

Waiter *m* could have gone at ``ready`` and had to wait until its ``gate``. Its critical parent, the one that was done
last, had itself been let go at its own gate: what *m* waited since then is charged to the subscriber that the parent
ended with. What *m* waited before, the parent waited too: that is charged one step further up, and so on to the
ancestor that really took the time. So a slow endpoint at the root of a chain is charged once for each message below
that was ready and waited, and the endpoints in between only for their own time. Time in which the parent was let go but
its own delay was not over is charged to no subscriber (``culprit`` null).

Each *m* is charged in full to all steps up to the last one, k, that was done after *m* was ready, and for a part to k
itself: the steps' gates fall on the way up. So k is found by doubling, and how often each step is charged in full is a
sum over the tree below it: numpy in one task, at some 200 bytes for each that had to wait (the others are not needed).
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from syncbrok.pipeline.numpy_columns import Longs, longs, places_in_order
from syncbrok.pipeline.report.aggregation import aggregated
from syncbrok.pipeline.report.period import BEFORE, Period
from syncbrok.pipeline.schema import TIME

_NEVER: Final = np.int64(-(1 << 62))
_OUT: Final = pa.schema(
    [
        ("culprit", pa.int64()),
        ("at", TIME),
        ("waited_us", pa.float64()),
        ("longest_us", pa.int64()),
        ("waiters", pa.float64()),
    ]
)

Floats = npt.NDArray[np.float64]


def blame(waiters: pa.Table, period: Period) -> pa.Table:
    """A table by ``subscriber`` (the number of the culprit, null for a parent's own delay) and hour (in which the wait
    for it ended): ``waited_us``, the time that descendants were kept waiting, all of them added up; ``waiters``, how
    many waited for it directly or further down; ``max_us``, the longest one step. The argument ``waiters`` has all that
    had to wait, as of ``parent_waits.last_parents``."""
    columns: dict[str, Any] = {name: waiters[name].to_numpy() for name in waiters.column_names}
    charged = charge(**columns)
    hour = period.hours_of(longs(charged["at"]))
    by_hour = charged.append_column("hour", pa.array(hour)).filter(pa.array(hour != BEFORE))
    by_hour = by_hour.rename_columns({"culprit": "subscriber"})
    sums = {"waited_us": ("waited_us", "sum"), "waiters": ("waiters", "sum"), "max_us": ("longest_us", "max")}
    return aggregated(by_hour, ("subscriber", "hour"), **sums)


def charge(
    waiter: Longs,
    parent: Longs,
    gate_us: Longs,
    ready_us: Longs,
    parent_ready_us: Longs,
    culprit: Longs,
    weight: Floats,
) -> pa.Table:
    """The charge for the step from each waiter to its critical parent: to whom (``culprit``, null for the parent's own
    delay), until when (``at``), for how long in all (``waited_us``) and how many waited. Pure."""
    order = np.argsort(waiter, kind="stable")
    waiter, parent, gate, ready = waiter[order], parent[order], gate_us[order], ready_us[order]
    culprit, weight = culprit[order], weight[order]
    up = places_in_order(waiter, parent)  # -1: the parent had not to wait itself
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


def _last_step(up: Longs, gate: Longs, ready: Longs, waited: npt.NDArray[np.bool_]) -> Longs:
    """For each waiter the highest step on its way up (itself is the first) whose gate opened after the waiter was
    ready."""
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
    """The number of waiters for which each step is charged in full: those at or below it whose last step is further
    up."""
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
    """For each place the number of steps to the top, by doubling."""
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
            pa.array(at[chosen]).cast(TIME),
            pa.array(waited[chosen]),
            pa.array(longest[chosen], pa.int64()),
            pa.array(waiters[chosen]),
        ],
        schema=_OUT,
    )
