"""The tables of the report but blame, from ends, completions and rows of deliveries.

Every one is an aggregate by queue, subscriber and hour. An hour is named by its beginning, in UTC; what happened is
counted in the hour in which its record was written, a message in the hour it was accepted in.
"""

from datetime import datetime
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from syncbrok.pipeline.report.latency import counted, micros_between, percentiles

QUEUE: Final = ("queue", "hour")
SUBSCRIBER: Final = ("queue", "subscriber", "hour")
_HOUR_S: Final = 3600


class Period(NamedTuple):
    """What the report covers: from ``since`` on, before ``until`` (both with a zone); the log stood then as it stood at
    ``until``."""

    since: datetime
    until: datetime

    def hour(self, time: str) -> Column:
        """The hour of a column; null for a time before the period."""
        return f.when(f.col(time) >= f.lit(self.since), hour_of(f.col(time)))


def hour_of(time: Column) -> Column:
    """The beginning of its hour in UTC, whatever zone the session is in."""
    seconds = f.unix_seconds(time)
    return f.timestamp_seconds(seconds - f.pmod(seconds, f.lit(_HOUR_S)))


def attempts_cube(deliveries: DataFrame, period: Period) -> DataFrame:
    """Every attempt in the period, counted: by subscriber_number, hour, outcome, reason, status and bucket of its
    latency."""
    rows = deliveries.where("attempt > 0").withColumn("hour", period.hour("recorded")).where("hour is not null")
    keys = ("subscriber_number", "hour", "outcome", "reason", "status")
    return counted(rows, keys, f.col("latency_us"))


def named(cube: DataFrame, subscribers: DataFrame) -> DataFrame:
    """With ``queue`` and ``subscriber`` (its id) for ``subscriber_number``."""
    names = subscribers.select(
        f.col("subscriber").alias("subscriber_number"), "queue", f.col("subscriber_id").alias("subscriber")
    )
    return cube.join(f.broadcast(names), "subscriber_number", "left")


def failures(attempts: DataFrame) -> DataFrame:
    """Attempts that failed, the last ones of dead letters among them: ``attempts`` by reason and HTTP status."""
    failed = attempts.where(~f.col("outcome").isin("delivered", "late") & (f.col("reason") != "none"))
    return failed.groupBy(*SUBSCRIBER, "reason", "status").agg(f.sum("n").alias("attempts"))


def subscribers_hourly(attempts: DataFrame, ends: DataFrame, hours: DataFrame, period: Period) -> DataFrame:
    """By queue, subscriber and hour: ``accepted`` (deliveries owed), ``delivered``, ``skipped``, ``dropped``,
    ``expired``, ``dead`` (ends, replays' among them), ``attempts``, ``failed`` attempts, percentiles of an attempt and
    of the time from acceptance to the delivery, ``backlog`` (deliveries open at the end of the hour)."""
    owed = ends.where("subscriber is not null").withColumn("subscriber", f.col("subscriber_id"))
    tried = attempts.groupBy(*SUBSCRIBER).agg(
        f.sum("n").alias("attempts"),
        f.sum(f.when(~f.col("outcome").isin("delivered", "late"), f.col("n")).otherwise(0)).alias("failed"),
    )
    delivered = owed.where("outcome = 'delivered' and counted").withColumn("hour", period.hour("ended_at"))
    waited = counted(delivered.where("hour is not null"), SUBSCRIBER, micros_between("accepted_at", "ended_at"))
    names = ("queue", "subscriber")
    found = _flow(owed, names, hours, period)
    for more in (
        _outcomes(owed, names, period),
        tried,
        percentiles(attempts, SUBSCRIBER, "attempt"),
        percentiles(waited, SUBSCRIBER, "delivered"),
    ):
        found = found.join(more, list(SUBSCRIBER), "left")
    return _zeros(found, "attempts", "failed", *_OUTCOMES)


def queues_hourly(done: DataFrame, waits: DataFrame, hours: DataFrame, period: Period) -> DataFrame:
    """By queue and hour, messages: ``accepted``, ``completed``, ``dead``, ``expired``, ``dropped`` (by how they stand
    now), percentiles of the time from acceptance to completion and of waiting for parents, ``backlog`` (not ended)."""
    found = _flow(done, ("queue",), hours, period)
    ended = done.withColumn("hour", period.hour("ended_at")).where("hour is not null")
    ways = {"complete": "completed", "dead": "dead", "expired": "expired", "dropped": "dropped"}
    outcomes = ended.groupBy(*QUEUE).agg(
        *(f.sum((f.col("outcome") == way).cast("bigint")).alias(name) for way, name in ways.items())
    )
    found = found.join(outcomes, list(QUEUE), "left")
    for buckets, prefix in ((completion_cube(done, period), "complete"), (waits_cube(waits, period), "parents")):
        found = found.join(percentiles(buckets, QUEUE, prefix), list(QUEUE), "left")
    return _zeros(found, *ways.values())


def completion_cube(done: DataFrame, period: Period) -> DataFrame:
    """Messages completed in the period by queue, hour and bucket of the time from acceptance to completion."""
    complete = done.withColumn("hour", period.hour("complete_at")).where("hour is not null")
    return counted(complete, QUEUE, micros_between("accepted_at", "complete_at"))


def waits_cube(waits: DataFrame, period: Period) -> DataFrame:
    """Messages (of scope ``same``: deliveries) whose parents were all done in the period, by queue, hour and bucket of
    the time they had waited for them."""
    over = waits.where("over").withColumn("hour", period.hour("gate_at")).where("hour is not null")
    return counted(over, QUEUE, micros_between("ready_at", "gate_at"))


def dead_letters(ends: DataFrame, period: Period) -> DataFrame:
    """Dead letters that stand at the end of the period (not those that a replay has taken up, nor of subscribers that
    are gone) and died in it: ``letters`` by queue, subscriber, hour of death and reason."""
    dead = ends.where("last_outcome = 'dead' and gone_record is null and subscriber is not null")
    hourly = dead.select(
        "queue",
        f.col("subscriber_id").alias("subscriber"),
        period.hour("last_at").alias("hour"),
        f.col("last_reason").alias("reason"),
    )
    return hourly.where("hour is not null").groupBy(*SUBSCRIBER, "reason").agg(f.count("*").alias("letters"))


def endpoints(attempts: DataFrame, subscribers: DataFrame) -> DataFrame:
    """A row for each subscriber that was tried in the period: ``endpoint``, ``attempts``, ``failed``, ``busy_us`` (the
    time of all attempts together) and percentiles of an attempt."""
    names = ("queue", "subscriber")
    tried = attempts.groupBy(*names).agg(
        f.sum("n").alias("attempts"),
        f.sum(f.when(~f.col("outcome").isin("delivered", "late"), f.col("n")).otherwise(0)).alias("failed"),
        f.sum("sum_us").alias("busy_us"),
    )
    where = subscribers.groupBy("queue", f.col("subscriber_id").alias("subscriber")).agg(
        f.max_by("endpoint", "since").alias("endpoint")
    )
    timed = tried.join(percentiles(attempts, names, "attempt").drop("attempt_n"), list(names))
    return timed.join(f.broadcast(where), list(names), "left")


_OUTCOMES: Final = ("delivered", "skipped", "dropped", "expired", "dead")


def _outcomes(owed: DataFrame, names: tuple[str, ...], period: Period) -> DataFrame:
    """How many deliveries ended how; one that a replay brought to another end counts in both hours."""
    first = owed.select(*names, period.hour("ended_at").alias("hour"), "outcome")
    again = owed.where("rearmed_at is not null and last_record != ended_record").select(
        *names, period.hour("last_at").alias("hour"), f.col("last_outcome").alias("outcome")
    )
    return (
        first.unionByName(again)
        .where("hour is not null")
        .groupBy(*names, "hour")
        .agg(*(f.sum((f.col("outcome") == one).cast("bigint")).alias(one) for one in _OUTCOMES))
    )


def _flow(rows: DataFrame, names: tuple[str, ...], hours: DataFrame, period: Period) -> DataFrame:
    """``accepted`` and ``backlog`` for every hour of the period: what came less what ended, from the beginning of the
    log on. What a replay opens again comes again."""
    counts = rows.where("accepted_at is not null")
    reopened = f.col("rearmed_at").isNotNull()
    moments = (
        (counts, "accepted_at", 1),
        (counts.where("ended_at is not null"), "ended_at", -1),
        (counts.where(reopened & f.col("ended_at").isNotNull()), "rearmed_at", 1),
        (counts.where(reopened & f.col("ended_at").isNotNull() & _closed_again(counts)), "last_at", -1),
    )
    changes = None
    for some, at, step in moments:
        each = some.groupBy(*names, period.hour(at).alias("hour")).agg((f.count("*") * step).alias("step"))
        each = each.withColumn("accepted", f.col("step") if at == "accepted_at" else f.lit(0))
        changes = each if changes is None else changes.unionByName(each)
    assert changes is not None
    summed = changes.groupBy(*names, "hour").agg(f.sum("step").alias("step"), f.sum("accepted").alias("accepted"))
    opening = summed.where("hour is null").select(*names, f.col("step").alias("opening"))
    grid = summed.select(*names).distinct().crossJoin(f.broadcast(hours)).join(opening, list(names), "left")
    so_far = Window.partitionBy(*names).orderBy("hour")
    hourly = grid.join(summed.where("hour is not null"), [*names, "hour"], "left")
    backlog = f.coalesce("opening", f.lit(0)) + f.sum(f.coalesce("step", f.lit(0))).over(so_far)
    return hourly.select(*names, "hour", f.coalesce("accepted", f.lit(0)).alias("accepted"), backlog.alias("backlog"))


def _closed_again(rows: DataFrame) -> Column:
    """Whether what a replay opened has ended again: of a delivery, and of a message with all its deliveries."""
    return f.col("open") == 0 if "open" in rows.columns else f.col("last_record").isNotNull()


def _zeros(table: DataFrame, *names: str) -> DataFrame:
    return table.withColumns({name: f.coalesce(name, f.lit(0)) for name in names})
