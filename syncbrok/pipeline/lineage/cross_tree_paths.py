"""Critical paths that leave their tree: a message waited longest for a parent in another tree, and that for its own.

Inside a tree ``lineage.trees`` knows the way up from each message to where it ends or leaves the tree. So only the
messages at which ways leave are left over, with where each goes on; few of them even in a large log. They are a forest
again: each points at the message where the way up from its critical parent leaves that tree. Pointer doubling over them
in one task gives where every way begins and how long it is, exactly; ``FEW`` of them fit there, and ``crossing_rounds``
follows more. Which messages stand on a way is listed for as many steps as ``STEPS_MAX``: a thousand trees may all wait
for the end of the same chain.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from syncbrok.pipeline.lineage.pointer_doubling import above
from syncbrok.pipeline.map_in_arrow import RecordBatches
from syncbrok.pipeline.numpy_columns import NEVER, NONE, Longs, longs, places_of
from syncbrok.pipeline.schema import TIME, ddl_of
from syncbrok.pipeline.shuffle_blocks import ROWS_AT_ONCE, batches_of

FEW: Final = 1 << 20
"""crossings, and starts of paths, that one task may follow and every task may read, some 150 bytes each; more of them
are joined like any other rows"""
STEPS_MAX: Final = 1_000
"""steps listed outside of its own tree for one critical path; its length and its beginning are exact beyond them"""

_ROWS: Final = pa.schema(
    [
        *((name, pa.int64()) for name in ("sequence", "top", "tree")),
        *(("path_end_at", TIME), ("root", pa.int64()), ("next", pa.int64()), ("next_at", TIME)),
        ("steps", pa.int64()),
    ]
)
BEYOND: Final = pa.schema(
    [
        *(("top", pa.int64()), ("start", pa.int64()), ("start_at", TIME)),
        *((name, pa.int64()) for name in ("steps_beyond", "steps_back")),
    ]
)
_OF_PATH: Final = pa.schema(
    [
        *(("tree", pa.int64()), ("before", pa.int64())),
        *(("path_end_at", TIME), ("start_at", TIME), ("steps_beyond", pa.int64())),
    ]
)
STARTS: Final = pa.schema([("sequence", pa.int64()), ("root", pa.int64()), *_OF_PATH])


class CrossTreePaths(NamedTuple):
    """The crossings as data frames: ``rows`` as ``crossings_of`` finds them, ``beyond`` as ``beyond_of``, ``starts`` as
    ``starts_of``."""

    rows: DataFrame
    beyond: DataFrame
    starts: DataFrame


def cross_tree_paths(nodes: DataFrame) -> CrossTreePaths:
    """The crossings as data frames, found when they are asked for, in one task."""
    rows = crossings_of(leaving(nodes), nodes)
    beyond = rows.repartition(1).mapInArrow(_beyond, ddl_of(BEYOND))
    return CrossTreePaths(rows, beyond, rows.repartition(1).mapInArrow(_starts, ddl_of(STARTS)))


def crossings_of(leave: DataFrame, nodes: DataFrame) -> DataFrame:
    """A row for each message whose critical parent is in another tree: ``top`` (the message), its own ``tree``,
    ``path_end_at`` (null if it is not on that tree's critical path; if it is, it is the first there); the parent
    (``sequence``) and its ``root``; and the end of the path up from the parent in its tree: ``next``, ``next_at``,
    ``steps`` further up."""
    reached = nodes.select("sequence", "root", f.col("top").alias("next"), f.col("top_at").alias("next_at"), "steps")
    return leave.join(reached, "sequence").select(*_ROWS.names)


def leaving(nodes: DataFrame) -> DataFrame:
    """A row for each message whose critical parent (``sequence``) is in another tree."""
    return nodes.where("crosses").select(
        f.col("sequence").alias("top"),
        f.col("root").alias("tree"),
        "path_end_at",
        f.col("critical_parent").alias("sequence"),
    )


def beyond_of(rows: pa.Table) -> pa.Table:
    """For each ``top``: the message at which its path begins (``start``, ``start_at``), how many steps up that is, and
    how many of those are in the tree of ``top`` again (``steps_back``)."""
    top, steps = longs(rows["top"]), longs(rows["steps"])
    way = above(_following(rows), steps + 1)
    # The last crossing leads to where the whole way begins.
    last = pa.array(way.top)
    steps_beyond = pa.array(way.steps + steps[way.top] + 1)
    columns = [
        *(pa.array(top), rows["next"].take(last), rows["next_at"].take(last).cast(TIME)),
        *(steps_beyond, pa.array(_steps_back(rows))),
    ]
    return pa.table(columns, schema=BEYOND)


def _steps_back(rows: pa.Table) -> Longs:
    """For each crossing how many steps of the way up from it are in the tree that it leaves. One walk down over the
    forest of crossings, which keeps the steps on the way so far by tree."""
    following, steps = _following(rows).tolist(), (longs(rows["steps"]) + 1).tolist()
    entered, left = longs(rows["root"]).tolist(), longs(rows["tree"]).tolist()
    found = np.zeros(len(following), np.int64)
    if set(entered).isdisjoint(left):
        return found
    below: dict[int, list[int]] = defaultdict(list)
    for at, up in enumerate(following):
        below[up].append(at)
    on_way: dict[int, int] = defaultdict(int)
    ahead = list(below[NONE])
    while ahead:
        at = ahead.pop()
        if at < 0:  # all below it have been there
            on_way[entered[~at]] -= steps[~at]
            continue
        on_way[entered[at]] += steps[at]
        found[at] = on_way.get(left[at], 0)
        ahead.append(~at)
        ahead += below.get(at, ())
    return found


def starts_of(rows: pa.Table) -> Iterator[pa.Table]:
    """Follow the paths from the tops of critical paths from one crossing to the next, all at once: at most
    ``STEPS_MAX`` rounds, in most logs two or three.

    A row is a message (``sequence``, ``root``) at which the path of ``tree`` enters a tree on its way up, with the
    number of outside steps after it (``before``: 0 is the parent that the tree itself waited for); and, for the path as
    a whole, ``path_end_at``, ``start_at`` and ``steps_beyond``.
    """
    following, steps, beyond = _following(rows), longs(rows["steps"]), beyond_of(rows)
    every = {name: rows[name] for name in ("tree", "path_end_at")} | {
        name: beyond[name] for name in ("start_at", "steps_beyond")
    }
    origin = at = np.flatnonzero(longs(rows["path_end_at"]) != NEVER)
    before = np.zeros(len(at), np.int64)
    while len(at):
        here = {name: rows[name].take(pa.array(at)) for name in ("sequence", "root")}
        whole = {name: column.take(pa.array(origin)) for name, column in every.items()}
        columns = here | whole | {"before": pa.array(before)}
        yield pa.table([columns[name] for name in STARTS.names], names=STARTS.names).cast(STARTS)
        before = before + steps[at] + 1
        on = (following[at] != NONE) & (before < STEPS_MAX)
        origin, at, before = origin[on], following[at][on], before[on]


def messages_on_paths(messages: pa.Table, starts: pa.Table) -> Iterator[pa.Table]:
    """Yield the messages on the paths up from each start through its tree, with the columns of ``starts_of``;
    ``before`` is each message's own. ``messages`` has all of a tree or nothing. About a million rows at once."""
    sequence, crosses = longs(messages["sequence"]), longs(messages["crosses"].cast(pa.int8()), 1) == 1
    up = places_of(sequence, np.where(crosses, NEVER, longs(messages["critical_parent"])))
    at = places_of(sequence, longs(starts["sequence"]))
    origin = np.flatnonzero(at != NONE)
    at, before = at[origin], longs(starts["before"])[origin]
    held: list[tuple[Longs, Longs, Longs]] = []
    while len(at):
        held.append((at, origin, before))
        if sum(len(one) for one, _, _ in held) >= ROWS_AT_ONCE:
            yield _steps(messages, starts, held)
            held = []
        before = before + 1
        on = (up[at] != NONE) & (before < STEPS_MAX)
        origin, at, before = origin[on], up[at][on], before[on]
    if held:
        yield _steps(messages, starts, held)


def _steps(messages: pa.Table, starts: pa.Table, held: list[tuple[Longs, Longs, Longs]]) -> pa.Table:
    at, origin, before = (pa.array(np.concatenate(column)) for column in zip(*held, strict=True))
    rows, of_path = messages.take(at), starts.take(origin)
    for name in _OF_PATH.names:
        rows = rows.append_column(name, before if name == "before" else of_path[name])
    return rows


# -- as Spark runs it -------------------------------------------------------------------------------------------------


def steps_outside(nodes: DataFrame, crossings: CrossTreePaths) -> DataFrame:
    """The messages on critical paths outside of their trees, with all columns of ``nodes`` and what ``starts_of`` says
    of the path."""
    entered = nodes.join(crossings.rows.select("root").distinct(), "root", "left_semi")
    # A join puts what it joins by first; what a task gives back is known by its place.
    both = entered.select(*nodes.columns).unionByName(crossings.starts, allowMissingColumns=True).repartition("root")
    columns = ", ".join(f"{name} {kind}" for name, kind in nodes.dtypes)
    return both.mapInArrow(_messages_on_paths, f"{columns}, {ddl_of(_OF_PATH)}")


def beyond_and_starts(count_max: int, batches: RecordBatches) -> Iterator[dict[str, pa.Table]]:
    """The work of the one task that follows few crossings: the tables ``beyond`` and ``starts`` of them. ``starts``
    breaks off behind ``count_max`` rows."""
    rows = _gathered(batches)
    if rows is None:
        return
    yield {"beyond": beyond_of(rows)}
    count = 0
    for some in starts_of(rows):
        yield {"starts": some}
        count += some.num_rows
        if count > count_max:
            return


def _beyond(batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    rows = _gathered(batches)
    if rows is not None:
        yield from batches_of(beyond_of(rows))


def _starts(batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    rows = _gathered(batches)
    if rows is not None:
        for some in starts_of(rows):
            yield from batches_of(some)


def _messages_on_paths(batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    """The work of a task: ``messages_on_paths`` for its rows. Rows with a ``tree`` are starts, the others messages."""
    every = _gathered(batches)
    if every is not None:
        is_start = longs(every["tree"]) != NEVER
        messages = every.filter(pa.array(~is_start)).drop_columns(_OF_PATH.names)
        for rows in messages_on_paths(messages, every.filter(pa.array(is_start))):
            yield from batches_of(rows)


def _following(rows: pa.Table) -> Longs:
    """For each crossing the one at which the path goes on; ``NONE`` where the path begins in that tree."""
    return places_of(longs(rows["top"]), longs(rows["next"]))


def _gathered(batches: RecordBatches) -> pa.Table | None:
    held = [batch for batch in batches if batch.num_rows]
    return pa.Table.from_batches(held).combine_chunks() if held else None
