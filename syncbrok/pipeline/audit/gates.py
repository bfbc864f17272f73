"""Rules ``parents``, ``gate`` and ``inversion``: what a message and its parents have to do with each other.

Every edge is compared once by a few numbers: the earliest ``after`` of the child's attempts against the records of the
parent's end and completion. Where that settles it, it is settled: a parent complete by then is done for every scope.
The edges that are left are looked at attempt by attempt, with every end of the parent; in a sound log those are the
ones of scope ``same`` that used what it allows, and of replays.
"""

from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from syncbrok.pipeline.audit.standing import NORMAL, REPLAYED

_NEVER: Final = 2**62


class Log(NamedTuple):
    """What edges are judged with. ``rearmed`` and ``bad``: None where a log has none; ``doubt`` says since when nothing
    is sure of a ``parent`` whose record is not there; ``first`` is the first record."""

    messages: DataFrame
    rearmed: DataFrame | None
    bad: DataFrame | None
    doubt: Column
    first: int


def is_waiting() -> Column:
    """Whether something of a message may not have ended."""
    open_ones = (f.col("closed") < f.size("counted")) | f.col("is_tangled")
    return f.when(f.size("counted") > 0, open_ones).otherwise(f.col("complete").isNull() | f.col("is_tangled"))


def edges(log: Log) -> DataFrame:
    """Edges with anything to look at, and what it is: ``is_unknown`` (the parent was not accepted before), ``is_early``
    and ``is_inverted`` (may be), ``is_waiting`` (of the child)."""
    child = log.messages.where(f.size("parents") > 0).select(
        f.col("message").alias("child"), f.col("record").alias("child_record"), "own", "is_same", "policy",
        f.col("queue_no").alias("child_queue"), "first_counted", "first_uncounted", "is_replayed",
        is_waiting().alias("is_waiting"), f.explode("parents").alias("parent"),
    )  # fmt: skip
    above = log.messages.select(
        f.col("message").alias("parent"), f.col("record").alias("above"), f.col("queue_no").alias("above_queue"),
        f.col("doubt").alias("above_doubt"), "ended", "complete", "last_counted",
    )  # fmt: skip
    met = child.join(above, "parent", "left")
    if log.bad is None:
        met = met.withColumn("bad_since", f.lit(None).cast("bigint"))
    else:
        met = met.join(log.bad.withColumnRenamed("message", "parent"), "parent", "left")
    judged = met.withColumns(
        {"is_unknown": _is_unknown(log), "is_early": _is_early(), "is_inverted": _may_be_inverted()}
    )
    return judged.where("is_unknown or is_early or is_inverted or is_waiting")


def _is_unknown(log: Log) -> Column:
    was_known = f.col("above") < f.col("child_record")
    is_gone = (f.col("parent") < log.first) | f.coalesce(log.doubt < f.col("child_record"), f.lit(False))
    is_before = (f.col("parent") < f.col("child")) & (f.coalesce(was_known, f.lit(False)) | is_gone)
    # A carried message was judged where it was accepted.
    return f.col("own") & ~is_before


def _is_early() -> Column:
    """Whether an attempt may have begun before the parent was done."""
    delivers, never = f.col("policy") == "deliver", f.lit(_NEVER)
    strict = f.when(~delivers, f.col("first_counted"))
    either = f.when(delivers, f.least("first_counted", "first_uncounted")).otherwise(f.col("first_uncounted"))
    late_known = f.col("above") >= f.col("child_record")
    is_early = (strict < f.coalesce("complete", never)) | (either < f.coalesce("ended", never))
    # A parent whose record is gone counts as complete, unless a snapshot says otherwise (RULES 2).
    is_bad = f.col("above").isNull() & f.col("bad_since").isNotNull() & strict.isNotNull()
    is_known = f.col("above").isNotNull()
    return f.coalesce(f.col("is_replayed") | late_known | (is_known & is_early) | is_bad, f.lit(False))


def _may_be_inverted() -> Column:
    return f.coalesce(f.least("first_counted", "first_uncounted") < f.col("last_counted"), f.lit(False))


def parents(met: DataFrame, messages: DataFrame) -> DataFrame:
    """Rule ``parents``: edges to what was not accepted before, and ids that name another place."""
    digits = f.regexp_replace("id", "-", "")
    high = f.conv(f.substring(digits, 14, 3), 16, 10).cast("bigint")
    low = f.conv(f.substring(digits, 17, 8), 16, 10).cast("bigint").bitwiseAND(0x3FFF_FFFF)
    named = f.shiftleft(high, 30) + low
    ids = messages.where(f.col("own") & (named != f.col("message"))).select(
        *_found("parents", "message", "message", f.lit(0)),
        f.concat(f.lit("its id names sequence "), named).alias("what"),
    )
    what = f.concat(f.lit("parent "), f.col("parent"), f.lit(" was not accepted before it"))
    unknown = met.where("is_unknown").select(*_found("parents", "child", "child", f.lit(0)), what.alias("what"))
    return ids.unionByName(unknown)


def gates(met: DataFrame, log: Log) -> DataFrame:
    """Rule ``gate``, attempt by attempt, for the edges where it is not settled."""
    attempts = log.messages.select(
        f.col("message").alias("child"), f.filter("events", lambda one: one["mode"] != 0).alias("attempts")
    )
    ends = log.messages.select(
        f.col("message").alias("parent"), f.col("counted").alias("above_counted"),
        f.filter("events", lambda one: one.ends).alias("above_ends"),
    )  # fmt: skip
    early = met.where("is_early").join(attempts, "child").join(ends, "parent", "left")
    rows = early.select(
        *(name for name in early.columns if name != "attempts"), f.explode("attempts").alias("row")
    ).withColumn("replay", f.when(f.col("row.mode") == REPLAYED, f.col("row.replay_before")))
    judged = rows.withColumn("done", _done(f.col("row.is_counted") & (f.col("policy") != "deliver")))
    if log.rearmed is not None:
        in_replay = _with_replay(rows, log.rearmed).withColumn("done", _done_in_replay())
        judged = judged.where("replay is null").unionByName(in_replay.select(*judged.columns))
    what = f.concat(
        f.lit("attempt "), f.col("row.attempt"), f.lit(" began after record "), f.col("row.after"),
        f.lit(", its parent "), f.col("parent"), f.lit(" was not done by then"),
    )  # fmt: skip
    return judged.where("not done").select(*_found("gate", "row.seq", "child", f.col("row.s")), what.alias("what"))


def _done(strict: Column) -> Column:
    """Whether the parent was done for ``row`` (RULES 11, 12). Where not ``strict``, any end will do."""
    row, after = f.col("row"), f.col("row.after")
    is_known = f.coalesce(f.col("above") < row.seq, f.lit(False))
    is_doubtful = f.coalesce(f.col("above_doubt") < row.seq, f.lit(False))
    by_one = f.col("is_same") & (f.col("above_queue") == f.col("child_queue"))
    by_one = f.coalesce(by_one & f.array_contains("above_counted", row.s), f.lit(False))
    ended_there = f.exists("above_ends", lambda end: (end.s == row.s) & (end.seq <= after) & (end.good | ~strict))
    by_all = f.coalesce(f.when(strict, f.col("complete")).otherwise(f.col("ended")) <= after, f.lit(False))
    is_bad = f.coalesce(f.col("bad_since") < row.seq, f.lit(False))
    return f.when(~is_known, ~(strict & is_bad)).when(is_doubtful, True).when(by_one, ended_there).otherwise(by_all)


def _with_replay(rows: DataFrame, rearmed: DataFrame) -> DataFrame:
    """Attempts inside replays, with the entries of both messages in the same replay."""
    began = rearmed.groupBy("replay").agg(f.min("record").alias("began"))
    last = rearmed.groupBy("replay", "message").agg(
        f.max(f.struct("record", "queue_no", "subscribers", "parents")).alias("entry")
    )
    own = last.select("replay", f.col("message").alias("child"), f.col("entry.parents").alias("waits_for"))
    above = last.select("replay", f.col("message").alias("parent"), f.col("entry").alias("above_entry"))
    return (
        rows.where("replay is not null")
        .join(own, ["replay", "child"], "left")
        .join(above, ["replay", "parent"], "left")
        .join(began, "replay", "left")
    )


def _done_in_replay() -> Column:
    """Inside a replay a delivery waits for the parents that are in it too, from its beginning on (RULES 21), and for
    the others until they have ended once. An entry for nobody, which no broker writes, holds nothing back."""
    row, after, entry = f.col("row"), f.col("row.after"), f.col("above_entry")
    is_inside = f.coalesce(f.array_contains("waits_for", f.col("parent")) & (entry.record < row.seq), f.lit(False))
    is_known = f.coalesce(f.col("above") < row.seq, f.lit(False))
    is_doubtful = f.coalesce(f.col("above_doubt") < row.seq, f.lit(False))
    by_one = f.col("is_same") & (entry.queue_no == f.col("child_queue")) & f.array_contains(entry.subscribers, row.s)
    gate = f.when(by_one, f.array(row.s)).otherwise(entry.subscribers)
    delivers = f.col("policy") == "deliver"
    has_ended = f.forall(
        gate,
        lambda s: f.exists(
            "above_ends",
            lambda end: (end.s == s) & (end.seq > f.col("began")) & (end.seq <= after) & (end.good | delivers),
        ),
    )
    inside = f.when(~is_known | is_doubtful, True).otherwise(has_ended)
    return f.when(is_inside, inside).otherwise(_done(f.lit(False)))


def inversions(met: DataFrame, messages: DataFrame) -> DataFrame:
    """Rule ``inversion``: each edge once, at the record with which it shows."""
    normal = f.filter("events", lambda one: one["mode"] == NORMAL)
    below = messages.select(f.col("message").alias("child"), f.explode(normal).alias("later"))
    above = messages.select(
        f.col("message").alias("parent"), f.col("counted").alias("above_counted"),
        f.explode(f.filter(normal, lambda one: one.is_counted)).alias("earlier"),
    )  # fmt: skip
    pairs = met.where("is_inverted").select("child", "parent", "is_same", "child_queue", "above_queue").distinct()
    by_one = f.col("is_same") & (f.col("child_queue") == f.col("above_queue"))
    by_one = f.coalesce(by_one & f.array_contains("above_counted", f.col("later.s")), f.lit(False))
    is_inverted = (f.col("earlier.after") > f.col("later.after")) & (~by_one | (f.col("earlier.s") == f.col("later.s")))
    seen = f.greatest(_shown("earlier", "parent"), _shown("later", "child"))
    found = (
        pairs.join(below, "child").join(above, "parent").where(is_inverted)
        .groupBy("child", "parent").agg(f.min(seen).alias("seen"))
    )  # fmt: skip
    what = f.concat(
        f.lit("an attempt of parent "), f.col("parent"), f.lit(" began after one of its child "), f.col("child")
    )
    return found.select(*_found("inversion", "seen.seq", "seen.message", f.col("seen.s")), what.alias("what"))


def _shown(row: str, message: str) -> Column:
    return f.struct(
        f.col(f"{row}.seq").alias("seq"), f.col(f"{row}.pos").alias("pos"), f.col(message).alias("message"),
        f.col(f"{row}.s").alias("s"),
    )  # fmt: skip


def _found(rule: str, sequence: str, message: str, subscriber: Column) -> list[Column]:
    """The columns of a finding but the last."""
    return [
        f.lit(rule).alias("rule"), f.col(sequence).alias("sequence"), f.col(message).alias("message"),
        subscriber.cast("bigint").alias("subscriber"),
    ]  # fmt: skip
