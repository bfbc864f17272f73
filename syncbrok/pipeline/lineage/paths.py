"""Trees with when they were done, and each one's critical path, step by step.

The path goes from the message of the tree that completed last up to its beginning, at each message through the parent
that ended last (``lineage_trees``); into other trees where that parent is there (``lineage_crossings``). The time from
where it begins (``start_at``) to the last completion is all on it, none of it twice. Between the end of one message
and the end of the next stand, in this order:

``published_us``   the next had not been published yet
``scheduled_us``   it had a time not before which it must not go
``queued_us``      it could go; no attempt had begun
``attempts_us``    from its first attempt to its end, retries and their waits included

``own_us`` is their sum, ``share`` its part of the whole. ``waited_us`` is how long it waited, accepted, for its
           parents:
time that belongs to the steps before it.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from syncbrok.pipeline.lineage.crossings import Crossings, steps_outside


def late_trees_of(nodes: DataFrame, crossings: Crossings | None) -> DataFrame:
    """A row a tree. ``crossings`` is what ``lineage_crossings`` found, None where there is nothing to find.

    ``root`` (a sequence), ``root_id`` (null where its record is gone), ``queue`` of the root, ``messages``, ``depth``,
    ``first_at`` and ``last_at`` (accepted), ``span_us`` between them
    ``complete`` and ``waiting``: how many messages are complete, and have not ended; ``attempts`` of all
    ``complete_at`` and ``last``: when the last of the complete ones was, and which; ``took_us`` since ``first_at``
    ``start``, ``start_at``, ``steps``: where its critical path begins, and how many messages are on it;
    ``critical_us``: from there to ``complete_at``; ``outside``: how many of the steps are in other trees. Null where
    nothing is complete
    """
    trees = nodes.where("tree is not null").select("root", "tree.*")
    joined = _with_beyond(trees, crossings)
    start_at = f.coalesce("start_at", "top_at")
    return joined.select(
        *("root", "root_id", "queue", "messages", "depth", "first_at", "last_at"),
        _us("first_at", "last_at").alias("span_us"),
        *("complete", "waiting", "attempts", "complete_at", "last"),
        _us("first_at", "complete_at").alias("took_us"),
        f.coalesce("start", "top").alias("start"),
        start_at.alias("start_at"),
        (f.unix_micros("complete_at") - f.unix_micros(start_at)).alias("critical_us"),
        (f.col("steps") + 1 + f.coalesce("steps_beyond", f.lit(0))).alias("steps"),
        f.when(f.col("last").isNotNull(), f.coalesce("steps_beyond", f.lit(0))).alias("outside"),
    )


def critical_paths_of(nodes: DataFrame, crossings: Crossings | None) -> DataFrame:
    """A row a step: ``tree`` (its root), ``step`` (1 is where the path begins), ``sequence``, ``id``, ``queue``,
    ``root`` of the message itself; ``accepted_at``, ``parents_at`` (when the parent before it on the path ended),
    ``first_attempt_at``,
    ``ended_at``, ``attempts``; and the durations of the module's text. Of the steps outside of the tree the last
    ``lineage_crossings.STEPS_MAX`` are there."""
    inside = nodes.where("critical").select(f.col("root").alias("tree"), "top", "top_at", "path_end_at", *_OF_NODES)
    if crossings is None:
        return _timed(inside.withColumns({"steps_beyond": f.lit(0), "start_at": f.col("top_at")}), _step_inside())
    staying = inside.where("not leaves").withColumns({"steps_beyond": f.lit(0), "start_at": f.col("top_at")})
    leaving = inside.where("leaves").join(crossings.beyond.drop("start"), "top")
    tops = crossings.rows.where("path_end_at is not null").select("tree", "top", "path_end_at")
    paths = tops.join(crossings.beyond, "top").drop("top", "start")
    elsewhere = steps_outside(nodes.select(*_OF_NODES, "critical_parent", "crosses"), crossings).join(paths, "tree")
    before_them = f.col("steps_beyond") - f.col("before")
    return _timed(staying.unionByName(leaving), _step_inside()).unionByName(_timed(elsewhere, before_them))


_OF_NODES: Final = (
    *("sequence", "id", "queue", "root", "steps", "leaves", "accepted_at", "parents_at", "not_before"),
    *("first_attempt_at", "complete_at", "ended_at", "attempts"),
)


def _step_inside() -> Column:
    return f.col("steps_beyond") + f.col("steps") + 1


def _with_beyond(trees: DataFrame, crossings: Crossings | None) -> DataFrame:
    """With ``start``, ``start_at`` and ``steps_beyond``; null where the path stays in its tree."""
    if crossings is not None:
        return trees.join(crossings.beyond, "top", "left")
    none = {"start": "bigint", "start_at": "timestamp", "steps_beyond": "bigint"}
    return trees.withColumns({name: f.lit(None).cast(kind) for name, kind in none.items()})


def _timed(steps: DataFrame, step: Column) -> DataFrame:
    ended = f.coalesce("complete_at", "ended_at")
    ready = f.greatest("accepted_at", "parents_at")  # a null counts for nothing
    due = f.least(ended, f.greatest(ready, "not_before"))
    began = f.least(ended, f.greatest(due, f.coalesce("first_attempt_at", ended)))
    times = {"ended": ended, "ready": ready, "due": due, "began": began}
    for name, time in times.items():
        steps = steps.withColumn(f"{name}_us", f.unix_micros(time))
    accepted, parents = f.unix_micros("accepted_at"), f.unix_micros("parents_at")
    from_us = f.coalesce(parents, accepted)
    own = f.col("ended_us") - from_us
    return steps.select(
        "tree",
        step.alias("step"),
        *("sequence", "id", "queue", "root", "accepted_at", "parents_at", "first_attempt_at"),
        ended.alias("ended_at"),
        "attempts",
        (f.col("ready_us") - from_us).alias("published_us"),
        f.greatest(parents - accepted, f.lit(0)).alias("waited_us"),
        (f.col("due_us") - f.col("ready_us")).alias("scheduled_us"),
        (f.col("began_us") - f.col("due_us")).alias("queued_us"),
        (f.col("ended_us") - f.col("began_us")).alias("attempts_us"),
        own.alias("own_us"),
        (own / f.nullif(_us("start_at", "path_end_at"), f.lit(0))).alias("share"),
    )


def _us(first: str, last: str) -> Column:
    return f.unix_micros(last) - f.unix_micros(first)
