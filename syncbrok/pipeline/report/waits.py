"""Who waited for which parent, and from when to when: the edges that blame goes up along.

A **waiter** is what has a gate of its own (RULES 11): a message of scope ``all``; of scope ``same`` each of its counted
deliveries. It could have gone at ``ready_at`` (accepted, its delay over) and its gate opened at ``gate_at``, when the
last of its parents was done: complete; ended, where its policy is ``deliver``; at the subscriber itself, where its
scope says so. Where the gate never opened it has waited until it ended for that very reason, or waits now.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

_SUBSCRIBER_BITS: Final = 20
"""of a waiter's number the lower ones are the subscriber's, 0 for a message as a whole"""


def waits(messages: DataFrame, ends: DataFrame, done: DataFrame, now: Column) -> DataFrame:
    """A row for each waiter with parents: ``waiter`` (a number for it), ``message``, ``queue``, ``accepted_at``,
    ``ready_at``, ``gate_at``, ``over`` (all its parents are done), ``weight`` (what it counts of its message: 1, or its
    share); and of the parent that was done last ``parent`` (its number as a waiter), ``parent_ready_at`` and
    ``culprit``, the number of the subscriber that it ended with, null for none. ``now`` is the end of the log."""
    edges = messages.where(f.size("parent_sequences") > 0).select(
        f.col("sequence").alias("message"),
        f.col("parent_failure").alias("policy"),
        f.explode(f.array_distinct("parent_sequences")).alias("up"),
    )
    children = done.where("has_parents").select(
        "message",
        "queue",
        "accepted_at",
        "ready_at",
        "ended_at",
        "same",
        f.greatest("subscribers", f.lit(1)).alias("shares"),
    )
    parents = done.select(
        f.col("message").alias("up"),
        f.col("queue").alias("up_queue"),
        f.col("ready_at").alias("up_ready_at"),
        f.col("ended_at").alias("up_ended_at"),
        f.col("complete_at").alias("up_complete_at"),
        f.col("same").alias("up_same"),
        f.col("last_subscriber").alias("up_last"),
    )
    known = edges.join(parents, "up").join(children, "message")
    nowhere = {"own_at": f.lit(None).cast("timestamp"), "at_own": f.lit(False)}
    alike = known.where(~f.col("same")).withColumns({"subscriber": f.lit(0).cast("bigint"), **nowhere})
    # Most logs have no queue of scope ``same``, and looking at every delivery for them would double the time.
    if done.where("same and has_parents").isEmpty():
        return _last_parents(alike, now)
    return _last_parents(alike.unionByName(_at_subscribers(known.where("same"), ends)), now)


def _at_subscribers(known: DataFrame, ends: DataFrame) -> DataFrame:
    """Edges of scope ``same``: one for each counted subscriber; ``at_own``: the parent is judged there, and ``own_at``
    is when it ended there."""
    counted = ends.where("counted").select("message", "subscriber", "ended_at")
    own = counted.select(
        f.col("message").alias("up"), "subscriber", f.col("ended_at").alias("own_at"), f.lit(True).alias("at")
    )
    each = known.join(counted.select("message", "subscriber"), "message").join(own, ["up", "subscriber"], "left")
    here = f.coalesce("at", f.lit(False)) & (f.col("queue") == f.col("up_queue"))
    return each.withColumn("at_own", here).withColumn("own_at", f.when(here, f.col("own_at"))).drop("at")


def _last_parents(edges: DataFrame, now: Column) -> DataFrame:
    ended, complete = f.col("up_ended_at"), f.col("up_complete_at")
    by_all = f.when(f.col("policy") == "deliver", ended).otherwise(complete)
    at = f.when(f.col("at_own"), f.col("own_at")).otherwise(by_all)
    culprit = f.when(f.col("at_own"), f.col("subscriber")).otherwise(f.col("up_last"))
    of_child = ("queue", "accepted_at", "ready_at", "ended_at", "shares", "same")
    told = edges.select(
        "message",
        "subscriber",
        at.isNull().cast("int").alias("open"),
        # A parent that failed holds its child longer than any that is done: until the child ends of it, or still.
        f.unix_micros(f.coalesce(at, now)).alias("done_us"),
        _waiter(f.col("up"), f.when(f.col("up_same"), f.coalesce(culprit, f.lit(0))).otherwise(f.lit(0))).alias(
            "parent"
        ),
        f.unix_micros("up_ready_at").alias("parent_ready_us"),
        culprit.alias("culprit"),
        *of_child,
    )
    last = told.groupBy("message", "subscriber", *of_child).agg(
        f.max("open").alias("open"),
        f.max("done_us").alias("done_us"),
        *(f.max_by(name, "done_us").alias(name) for name in ("parent", "parent_ready_us", "culprit")),
    )
    opened = f.timestamp_micros("done_us")
    gate = f.when(f.col("open") == 1, f.least(opened, f.coalesce("ended_at", now))).otherwise(opened)
    return last.select(
        _waiter(f.col("message"), f.col("subscriber")).alias("waiter"),
        "message",
        "queue",
        "accepted_at",
        "ready_at",
        gate.alias("gate_at"),
        (f.col("open") == 0).alias("over"),
        f.when(f.col("same"), 1 / f.col("shares")).otherwise(1.0).alias("weight"),
        "parent",
        f.timestamp_micros("parent_ready_us").alias("parent_ready_at"),
        "culprit",
    )


def _waiter(message: Column, subscriber: Column) -> Column:
    return f.shiftleft(message, _SUBSCRIBER_BITS) + subscriber
