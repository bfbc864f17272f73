"""Trees with when they were done, and each one's critical path, step by step.

The path goes from the message of the tree that completed last up to its beginning, at each message through the parent
that ended last (``lineage.trees``); into other trees where that parent is there (``lineage.cross_tree_paths``). The
time from where it begins (``start_at``) to the last completion is all on it, none of it twice. Between the end of one
message and the end of the next stand, in this order:

``published_us``   the next had not been published yet
``scheduled_us``   it had a time not before which it must not go
``queued_us``      it could go; no attempt had begun
``attempts_us``    from its first attempt to its end, retries and their waits included

``own_us`` is their sum, ``share`` its part of the whole. ``waited_us`` is how long it waited, accepted, for its
parents: time that belongs to the steps before it.
"""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from syncbrok.pipeline.lineage.cross_tree_paths import CrossTreePaths, messages_on_paths, steps_outside
from syncbrok.pipeline.lineage.trees import TREE
from syncbrok.pipeline.map_in_arrow import RecordBatches
from syncbrok.pipeline.numpy_columns import NONE, longs, places_of
from syncbrok.pipeline.schema import TIME, ddl_of
from syncbrok.pipeline.shuffle_blocks import batches_of, tables_of

TREES: Final = pa.schema(
    [
        *(("root", pa.int64()), ("root_id", pa.string()), ("queue", pa.string()), ("messages", pa.int64())),
        *(("depth", pa.int32()), ("first_at", TIME), ("last_at", TIME), ("span_us", pa.int64())),
        *((name, pa.int64()) for name in ("complete", "waiting", "attempts")),
        *(("complete_at", TIME), ("last", pa.int64()), ("took_us", pa.int64())),
        *(("start", pa.int64()), ("start_at", TIME), ("critical_us", pa.int64())),
        *((name, pa.int64()) for name in ("steps", "outside")),
    ]
)
PATHS: Final = pa.schema(
    [
        *(("tree", pa.int64()), ("step", pa.int64()), ("sequence", pa.int64()), ("id", pa.string())),
        *(("queue", pa.string()), ("root", pa.int64())),
        *((name, TIME) for name in ("accepted_at", "parents_at", "first_attempt_at", "ended_at")),
        ("attempts", pa.int64()),
        *((f"{name}_us", pa.int64()) for name in ("published", "waited", "scheduled", "queued", "attempts", "own")),
        ("share", pa.float64()),
    ]
)
_STEP: Final = (
    *("sequence", "id", "queue", "root", "accepted_at", "parents_at", "not_before"),
    *("first_attempt_at", "complete_at", "ended_at", "attempts"),
)
_OF_STEPS: Final = ("tree", "step", *_STEP, "path_end_at", "start_at")
"""what ``timed_steps`` needs of each"""
_UP: Final = ("critical_parent", "crosses", "critical", "top", "top_at", "steps", "path_end_at")
OF_NODES: Final = (*_STEP, *_UP, "tree")
"""the columns of nodes that are needed"""


def late_trees_of(nodes: DataFrame, crossings: CrossTreePaths | None) -> DataFrame:
    """A row a tree. ``crossings`` is what ``lineage.cross_tree_paths`` found, None where there is nothing to find.

    ``root`` (a sequence), ``root_id`` (null where its record is gone), ``queue`` of the root, ``messages``, ``depth``,
    ``first_at`` and ``last_at`` (accepted), ``span_us`` between them
    ``complete`` and ``waiting``: how many messages are complete, and have not ended; ``attempts`` of all
    ``complete_at`` and ``last``: when the last of the complete ones was, and which; ``took_us`` since ``first_at``
    ``start``, ``start_at``, ``steps``: where its critical path begins, and how many messages are on it;
    ``critical_us``: from there to ``complete_at``; ``outside``: how many of the steps are in other trees. Null where
    nothing is complete
    """
    trees = nodes.where("tree is not null").select("root", "tree.*")
    return _with_beyond(trees, crossings).mapInArrow(_late, ddl_of(TREES))


def critical_paths_of(nodes: DataFrame, crossings: CrossTreePaths | None) -> DataFrame:
    """A row a step: ``tree`` (its root), ``step`` (1 is where the path begins), ``sequence``, ``id``, ``queue``,
    ``root`` of the message itself; ``accepted_at``, ``parents_at`` (when the parent before it on the path ended),
    ``first_attempt_at``, ``ended_at``, ``attempts``; and the durations of the module's text. Of the steps outside of
    the tree the last ``lineage.cross_tree_paths.STEPS_MAX`` are there."""
    inside = nodes.where("critical").withColumn("tree", f.col("root")).select("tree", *_STEP, *_UP)
    steps_beyond = f.coalesce("steps_beyond", f.lit(0))
    own = _with_beyond(inside, crossings).withColumn("start_at", f.coalesce("start_at", "top_at"))
    steps = _stepped(own, steps_beyond + f.col("steps") + 1)
    if crossings is not None:
        outside = steps_outside(nodes.select(*_STEP, "critical_parent", "crosses"), crossings)
        steps = steps.unionByName(_stepped(outside, f.col("steps_beyond") - f.col("before")))
    return steps.mapInArrow(_timed_steps, ddl_of(PATHS))


def trees_and_paths(nodes: pa.Table, beyond: pa.Table, starts: pa.Table) -> Iterator[dict[str, pa.Table]]:
    """Both tables of some whole trees, without Spark. ``nodes`` have the columns ``OF_NODES``; ``beyond`` and
    ``starts`` are those of all crossings, by ``lineage.cross_tree_paths``."""
    roots = nodes.filter(pc.is_valid(nodes["tree"]))
    trees = pa.table([roots["root"], *roots["tree"].combine_chunks().flatten()], names=["root", *dict(TREE)])
    inside = nodes.filter(nodes["critical"]).drop_columns("tree")
    own = _beside_beyond(inside.append_column("tree", inside["root"]), beyond)
    own = own.append_column("step", pc.add(pc.add(pc.fill_null(own["steps_beyond"], 0), own["steps"]), 1))
    start_at = pc.coalesce(own["start_at"], own["top_at"])
    own = own.set_column(own.column_names.index("start_at"), "start_at", start_at)
    yield {"trees": late_trees(_beside_beyond(trees, beyond)), "critical_paths": timed_steps(own)}
    for outside in messages_on_paths(nodes.select([*_STEP, "critical_parent", "crosses"]), starts):
        step = pc.subtract(outside["steps_beyond"], outside["before"])
        yield {"critical_paths": timed_steps(outside.append_column("step", step))}


def _with_beyond(found: DataFrame, crossings: CrossTreePaths | None) -> DataFrame:
    """``found`` with the columns ``start``, ``start_at``, ``steps_beyond`` and ``steps_back`` of its path outside of
    its tree; null where the path stays there."""
    if crossings is not None:
        return found.join(crossings.beyond, "top", "left")
    none = {"start": "bigint", "start_at": "timestamp", "steps_beyond": "bigint", "steps_back": "bigint"}
    return found.withColumns({name: f.lit(None).cast(kind) for name, kind in none.items()})


def _beside_beyond(found: pa.Table, beyond: pa.Table) -> pa.Table:
    """The same for a table in this process."""
    at = places_of(longs(beyond["top"]), longs(found["top"]))
    own = beyond.take(pa.array(at, mask=at == NONE))
    for name in ("start", "start_at", "steps_beyond", "steps_back"):
        found = found.append_column(name, own[name])
    return found


def _stepped(found: DataFrame, step: Column) -> DataFrame:
    return found.withColumn("step", step.cast("bigint")).select(*_OF_STEPS)


def _late(batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    for trees in tables_of(batches):
        yield from batches_of(late_trees(trees))


def _timed_steps(batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    for steps in tables_of(batches):
        yield from batches_of(timed_steps(steps))


# -- arithmetic -------------------------------------------------------------------------------------------------------


def late_trees(trees: pa.Table) -> pa.Table:
    """The columns of ``late_trees_of``. ``trees`` has of each tree its root, what ``lineage.trees.TREE`` says, and
    where its path begins in another (``start``, ``start_at``, ``steps_beyond``, ``steps_back``)."""
    start_at = pc.coalesce(trees["start_at"], trees["top_at"])
    # A path may come back into its own tree.
    beyond, back = pc.fill_null(trees["steps_beyond"], 0), pc.fill_null(trees["steps_back"], 0)
    found = {
        "span_us": _us(trees["first_at"], trees["last_at"]),
        "took_us": _us(trees["first_at"], trees["complete_at"]),
        "start": pc.coalesce(trees["start"], trees["top"]),
        "start_at": start_at,
        "critical_us": _us(start_at, trees["complete_at"]),
        "steps": pc.add(pc.add(trees["steps"], 1), beyond),
        "outside": pc.if_else(pc.is_valid(trees["last"]), pc.subtract(beyond, back), None),
    }
    return _table(found, trees, TREES)


def timed_steps(steps: pa.Table) -> pa.Table:
    """The columns of ``critical_paths_of`` for steps with the columns ``_OF_STEPS``."""
    accepted, parents, due_from, tried, ended = (
        steps[name].cast(pa.int64())
        for name in ("accepted_at", "parents_at", "not_before", "first_attempt_at", "complete_at")
    )
    ended = pc.coalesce(ended, steps["ended_at"].cast(pa.int64()))
    begins = pc.coalesce(parents, accepted)
    # A null counts for nothing, with the least and the greatest.
    ready = pc.max_element_wise(accepted, parents)
    due = pc.min_element_wise(ended, pc.max_element_wise(ready, due_from))
    began = pc.min_element_wise(ended, pc.max_element_wise(due, pc.coalesce(tried, ended)))
    own, whole = pc.subtract(ended, begins), _us(steps["start_at"], steps["path_end_at"])
    nothing = pc.equal(whole, 0)
    found = {
        "ended_at": ended,
        "published_us": pc.subtract(ready, begins),
        "waited_us": pc.max_element_wise(pc.subtract(parents, accepted), 0),
        "scheduled_us": pc.subtract(due, ready),
        "queued_us": pc.subtract(began, due),
        "attempts_us": pc.subtract(ended, began),
        "own_us": own,
        "share": pc.divide(own.cast(pa.float64()), pc.if_else(nothing, None, whole).cast(pa.float64())),
    }
    return _table(found, steps, PATHS)


def _us(first: pa.ChunkedArray, last: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.subtract(last.cast(pa.int64()), first.cast(pa.int64()))


def _table(found: dict[str, pa.ChunkedArray], beside: pa.Table, schema: pa.Schema) -> pa.Table:
    """A table of ``schema``: the columns in ``found``, and the others as they are in ``beside``."""
    columns = {name: found[name] if name in found else beside[name] for name in schema.names}
    return pa.table(columns).cast(schema)
