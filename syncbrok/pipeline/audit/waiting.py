"""Rule ``waiting``: what was acknowledged and has not ended has a reason to wait.

A log that is being written always holds deliveries that are on their way or in line; they are no loss. So each delivery
that has not ended is named with its reason, and those that have none are findings only where the log is said to be at
rest, or once they are older than a given age. The age is counted from the record since which nothing keeps the delivery
back, to the newest record of the log; a broker that was down in between has aged them too.
"""

from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from syncbrok.pipeline.audit.gates import is_waiting
from syncbrok.pipeline.audit.keys import chains
from syncbrok.pipeline.audit.rules import NO_REASONS, REASONS
from syncbrok.pipeline.audit.standing import is_open


class AtEnd(NamedTuple):
    """The end of a log: the time of its newest record, and who is paused or disabled then. ``keyed``: some messages
    have keys."""

    end_us: int
    frozen: list[int]
    keyed: bool


def waiting(messages: DataFrame, met: DataFrame, at_end: AtEnd) -> DataFrame:
    """Every delivery that has not ended: message, subscriber (0: a message that counts nobody), record, queue, why,
    since_record (the newest record it had to wait for) and since_us (what was due when, where that is known)."""
    pairs = _open_pairs(messages).join(_parents(met), f.col("message") == f.col("child"), "left")
    if at_end.keyed:
        behind = chains(messages).select("message", "s", "before_is_open", "before_end")
        pairs = pairs.join(behind, ["message", "s"], "left")
    else:
        pairs = pairs.withColumns(
            {"before_is_open": f.lit(False), "before_end": f.lit(None).cast("struct<seq:bigint>")}
        )
    end, last = f.lit(at_end.end_us), f.col("last")
    failed = ~f.col("is_rearmed") & f.coalesce("any_failed", f.lit(False))
    is_held = f.col("policy") == "hold"
    is_retry = last.outcome == "failed"
    why = (
        f.when(f.col("expires_us") < end, "overdue")
        .when(failed & ~is_held, "owed")
        .when(failed, "held")
        .when(f.coalesce("any_open", f.lit(False)), "parents")
        .when(f.col("s").isin(*at_end.frozen) if at_end.frozen else f.lit(False), "paused")
        .when(is_retry, f.when(last.due_us > end, "retrying").otherwise("overdue"))
        .when(f.coalesce("before_is_open", f.lit(False)), "key")
        .when(f.col("not_before_us") > end, "delayed")
        .otherwise("ready")
    )
    due = f.when(f.col("expires_us") < end, f.col("expires_us")).otherwise(f.coalesce(last.due_us, "not_before_us"))
    return pairs.select(
        "message", f.col("s").alias("subscriber"), "record", "queue", "time_us", why.alias("why"),
        f.greatest("record", "parents_done", last.seq, "before_end.seq").alias("since_record"),
        due.alias("due_us"),
    )  # fmt: skip


def _open_pairs(messages: DataFrame) -> DataFrame:
    rearmed = f.filter("events", lambda one: one.marker > 0)
    whom = f.when(f.col("is_tangled"), f.array_union("counted", f.transform(rearmed, lambda one: one.s))).otherwise(
        f.col("counted")
    )
    nobody = (f.size("counted") == 0) & f.col("complete").isNull() & f.col("cancelled").isNull()
    everybody = f.when(nobody, f.array_union(whom, f.array(f.lit(0).cast("bigint")))).otherwise(whom)
    each = messages.where(is_waiting()).select(
        "message", "record", "queue", "time_us", "policy", "not_before_us", "expires_us", "counted", "events",
        f.explode(everybody).alias("s"),
    )  # fmt: skip
    mine = f.filter("events", lambda one: (one.s == f.col("s")) & (f.coalesce(one.outcome, f.lit("")) != "late"))
    found = each.withColumn("mine", mine).withColumn(
        "is_open", is_open("mine", (f.col("s") == 0) | f.array_contains("counted", f.col("s")))
    )
    last = f.array_max(
        f.transform("mine", lambda one: f.struct(one.seq.alias("seq"), one.pos.alias("pos"), one.marker.alias("marker"),
                                                 one.outcome.alias("outcome"), one.due_us.alias("due_us")))
    )  # fmt: skip
    rearmed_now = f.coalesce(f.array_max(f.transform("mine", lambda one: one.marker)) > 0, f.lit(False))
    return found.where("is_open").select(
        *(name for name in each.columns if name not in ("counted", "events")),
        last.alias("last"), rearmed_now.alias("is_rearmed"),
    )  # fmt: skip


def _parents(met: DataFrame) -> DataFrame:
    """How the parents of what waits stand: ``any_failed``, ``any_open``, and the record with which the last was
    done."""
    delivers = f.col("policy") == "deliver"
    done = f.coalesce("complete", f.when(delivers, f.col("ended")))
    is_gone = f.col("above").isNull()
    failed = f.when(is_gone, f.col("bad_since").isNotNull() & ~delivers).otherwise(
        done.isNull() & f.col("ended").isNotNull()
    )
    return (
        met.where("is_waiting")
        .groupBy("child")
        .agg(
            f.max(failed).alias("any_failed"),
            f.max(~is_gone & done.isNull() & f.col("ended").isNull()).alias("any_open"),
            f.max(done).alias("parents_done"),
        )
    )


def overdue(found: DataFrame, facts: DataFrame, end_us: int, pending_us_max: int | None) -> DataFrame:
    """The findings: what waits without a reason, for longer than ``pending_us_max``; None: for however short."""
    loose = found.where(f.col("why").isin(*NO_REASONS))
    since = f.lit("")
    if pending_us_max is not None:
        times = facts.select(f.col("sequence").alias("since_record"), f.unix_micros("time").alias("record_us"))
        aged = loose.join(times, "since_record", "left")
        began = f.greatest(f.coalesce("record_us", "time_us"), "due_us")
        loose = aged.withColumn("age_us", f.lit(end_us) - began).where(f.col("age_us") > pending_us_max)
        since = f.concat(f.lit(" for "), f.floor(f.col("age_us") / 1_000_000), f.lit(" s"))
    return loose.select(
        f.lit("waiting").alias("rule"), f.col("record").alias("sequence"), "message", "subscriber",
        f.concat(f.lit("has not ended"), since, f.lit(": "), _meaning()).alias("what"),
    )  # fmt: skip


def _meaning() -> Column:
    said = f.lit(REASONS["ready"])
    for reason in NO_REASONS:
        said = f.when(f.col("why") == reason, REASONS[reason]).otherwise(said)
    return said
