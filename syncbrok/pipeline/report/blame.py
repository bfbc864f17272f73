"""Charges waits to the subscribers that caused them.

Waiter *m* could have gone at ``ready`` and had to wait until its ``gate``. Its critical parent, the one that was done
last, had itself been let go at its own gate: what *m* waited since then is charged to the subscriber that the parent
ended with. What *m* waited before, the parent waited too: that is charged one step further up, and so on to the
ancestor that really took the time. So a slow endpoint at the root of a chain is charged once for each message below
that was ready and waited, and the endpoints in between only for their own time. Time in which the parent was let go but
its own delay was not over is charged to no subscriber (``culprit`` null).

Each *m* is charged in full to all steps up to the last one, k, that was done after *m* was ready, and for a part to k
itself: the steps' gates fall on the way up. So k is found by doubling, and how often each step is charged in full is a
sum over the tree below it: numpy over whole trees, at some 200 bytes for each that had to wait (the others are not
needed). Where the way up leaves the tree, the claim goes on in the other one, in another call (``blame_rounds``).
"""

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from syncbrok.pipeline.numpy_columns import NEVER, NONE, Longs, longs, places_in_order
from syncbrok.pipeline.report.aggregation import aggregated
from syncbrok.pipeline.report.period import BEFORE, Period
from syncbrok.pipeline.schema import TIME

_ROUNDING: Final = 1e-9
"""what sums of parts may be off: less is nothing"""
_OUT: Final = pa.schema(
    [
        ("culprit", pa.int64()),
        ("at", TIME),
        ("waited_us", pa.float64()),
        ("longest_us", pa.int64()),
        ("waiters", pa.float64()),
    ]
)
CLAIMS: Final = pa.schema(
    [("at", pa.int64()), ("root", pa.int64()), ("ready_us", pa.int64()), ("weight", pa.float64())]
)
"""``at``: the waiter (in the tree of ``root``) at which the way up goes on of one that was ready at ``ready_us``"""

Floats = npt.NDArray[np.float64]


class WaitSteps(NamedTuple):
    """The steps from waiters to their critical parents, columns of ``parent_waits.LAST_PARENTS``. ``above_us``: the
    gate of the parent, where the parent waited itself and is not among these steps; else ``NEVER``."""

    waiter: Longs
    parent: Longs
    gate_us: Longs
    ready_us: Longs
    parent_ready_us: Longs
    culprit: Longs
    weight: Floats
    parent_root: Longs
    above_us: Longs

    @classmethod
    def of(cls, rows: pa.Table) -> "WaitSteps":
        """The steps in ``rows``, in the order of the waiters."""
        rows = rows.sort_by("waiter")
        columns: dict[str, Any] = {name: longs(rows[name]) for name in cls._fields if name != "weight"}
        return cls(**columns, weight=rows["weight"].to_numpy())


def blame(charges: pa.Table, period: Period) -> pa.Table:
    """A table by ``subscriber`` (the number of the culprit, null for a parent's own delay) and hour (in which the wait
    for it ended): ``waited_us``, the time that descendants were kept waiting, all of them added up; ``waiters``, how
    many waited for it directly or further down; ``max_us``, the longest one step. ``charges`` are those of ``charge``.
    """
    hour = period.hours_of(longs(charges["at"]))
    by_hour = charges.append_column("hour", pa.array(hour)).filter(pa.array(hour != BEFORE))
    by_hour = by_hour.rename_columns({"culprit": "subscriber"})
    sums = {"waited_us": ("waited_us", "sum"), "waiters": ("waiters", "sum"), "max_us": ("longest_us", "max")}
    return aggregated(by_hour, ("subscriber", "hour"), **sums)


def own_claims(steps: WaitSteps) -> pa.Table:
    """The claims (``CLAIMS``) of all that waited: each begins at itself."""
    waited = steps.gate_us > steps.ready_us
    columns = [steps.waiter[waited], np.full(int(waited.sum()), NEVER), steps.ready_us[waited], steps.weight[waited]]
    return pa.table([pa.array(one) for one in columns], schema=CLAIMS)


def charge(steps: WaitSteps, claims: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Two tables. First the charges for the steps of whole trees: to whom (``culprit``, null for the parent's own
    delay), until when (``at``), for how long in all (``waited_us``) and how many waited. Then the claims that go on
    in a tree that is not among these. ``steps`` are in the order of the waiters. Pure."""
    gate = steps.gate_us
    up = places_in_order(steps.waiter, steps.parent)  # NONE: the parent is not here, or had not to wait itself
    above = np.where(up < 0, steps.above_us, gate[up])
    begins = np.minimum(np.maximum(above, steps.parent_ready_us), gate)
    own, delay = gate - begins, begins - np.minimum(np.where(above == NEVER, begins, above), begins)
    start = places_in_order(steps.waiter, longs(claims["at"]))
    ready, share = longs(claims["ready_us"])[start != NONE], claims["weight"].to_numpy()[start != NONE]
    start = start[start != NONE]
    last = _last_step(up, gate, start, ready)
    goes_on = (up[last] < 0) & (above[last] > ready)
    times = _in_full(up, start, last, share, goes_on)
    at, part, since = last[~goes_on], share[~goes_on], ready[~goes_on]
    begun = np.maximum(begins[at], since)
    charged = times * own + np.bincount(at, part * np.maximum(gate[at] - begun, 0), len(gate))
    idle = times * delay + np.bincount(at, part * np.maximum(begins[at] - since, 0), len(gate))
    waiters = times + np.bincount(at, part, len(gate))
    longest = np.where(times > 0, own, 0)
    np.maximum.at(longest, at, gate[at] - begun)
    charges = pa.concat_tables(
        [
            _table(steps.culprit, gate, charged, longest, waiters, charged > 0),
            _table(np.full(len(gate), -1), gate, idle, np.zeros_like(gate), np.zeros(len(gate)), idle > 0),
        ]
    )
    top = last[goes_on]
    columns = [steps.parent[top], steps.parent_root[top], ready[goes_on], share[goes_on]]
    return charges, pa.table([pa.array(one) for one in columns], schema=CLAIMS)


def _last_step(up: Longs, gate: Longs, start: Longs, ready: Longs) -> Longs:
    """For each claim the highest step here on the way up from ``start`` whose gate opened after it was ready."""
    at = start
    jumps = [up]
    while (jumps[-1] >= 0).any():
        before = jumps[-1]
        jumps.append(np.where(before < 0, -1, before[before]))
    for jump in reversed(jumps):
        above = jump[at]
        goes = (above >= 0) & (gate[above] > ready)
        at = np.where(goes, above, at)
    return at


def _in_full(up: Longs, start: Longs, last: Longs, share: Floats, goes_on: npt.NDArray[np.bool_]) -> Floats:
    """The number of claims for which each step is charged in full: those that come up to it and go further up, here or
    (``goes_on``) in another tree."""
    ends = ~goes_on
    sums = np.bincount(start, share, len(up)) - np.bincount(last[ends], share[ends], len(up))
    level = _levels(up)
    order = np.argsort(-level, kind="stable")
    begin = 0
    for count in np.bincount(level)[:0:-1].tolist():  # from the lowest level up; the top has nothing above it
        some = order[begin : begin + count]
        np.add.at(sums, up[some], sums[some])
        begin += count
    return np.where(sums > _ROUNDING, sums, 0.0)


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
