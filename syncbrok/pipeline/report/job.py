"""What was accepted, delivered, slow and dead, by queue, subscriber and hour, and who kept others waiting.

    frames = Whole(spark, "storage/", archive)
    found = report(*(frames.read(kind, columns=...) for kind in ("messages", "deliveries", "facts")))
    write(found, "out/")        # out/report/<table>/ as Parquet, out/report.html

``report`` takes the data frames of the source, which must end at the same record (those of one ``Whole`` do), and gives
small tables, each an aggregate; nothing but those ever comes to the driver. What the columns of each table say stands
in ``report_tables`` and ``report_blame``:

``queues``        by queue and hour: accepted, completed, backlog, times to completion and of waiting for parents
``subscribers``   by queue, subscriber and hour: accepted, delivered, attempts, failed, backlog, times
``failures``      by queue, subscriber, hour, reason and HTTP status: attempts that failed
``dead_letters``  by queue, subscriber, hour and reason: those that stand
``endpoints``     by queue and subscriber: attempts and their times over the period
``blame``         by queue, subscriber and hour: how long it kept descendants waiting
``latencies``     ``what`` (attempt, complete, parents), queue, subscriber, hour, bucket: how many, to draw or sum up
``totals``        by queue: percentiles over the whole period
``period``        one row: since, until, first and last sequence of the facts read, when the report was made
"""

from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from syncbrok.model.errors import BadSetting
from syncbrok.pipeline.completion import declared as completion_declared
from syncbrok.pipeline.completion import ends as completion
from syncbrok.pipeline.report import page as report_page
from syncbrok.pipeline.report import place as report_place
from syncbrok.pipeline.report import tables as report_tables
from syncbrok.pipeline.report.blame import blame
from syncbrok.pipeline.report.gather import Page, Row, gather
from syncbrok.pipeline.report.latency import percentiles
from syncbrok.pipeline.report.tables import Period, hour_of
from syncbrok.pipeline.report.waits import waits

MESSAGES: Final = completion.MESSAGES
DELIVERIES: Final = (*completion.DELIVERIES, "status", "latency_us")
FACTS: Final = completion.FACTS
"""the columns that are read of each kind"""

__all__ = ["DELIVERIES", "FACTS", "MESSAGES", "Report", "Row", "Written", "report", "write"]

_LEAST: Final = timedelta(microseconds=1)


class Report(NamedTuple):
    """``tables`` by name. ``kept`` are the data frames held in memory and on disk for them, until ``forget``."""

    spark: SparkSession
    tables: dict[str, DataFrame]
    kept: tuple[DataFrame, ...]

    def forget(self) -> None:
        for frame in self.kept:
            frame.unpersist()


class _Seen(NamedTuple):
    """Of the facts: what they declare, from when to when they are, and their sequences."""

    tables: completion_declared.Tables
    began: datetime
    ended: datetime
    first: int
    last: int


def report(
    messages: DataFrame,
    deliveries: DataFrame,
    facts: DataFrame,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
) -> Report:
    """The tables for the time from ``since`` on and before ``until`` (with a zone; by default all there is). What came
    before ``since`` must be in the data all the same, or the backlog starts from nothing. Reads the rare facts at once
    and the rest when a table is used. Raises ``BadSetting`` where there is nothing in that time."""
    if until is not None:
        end = f.lit(until)
        messages, facts = messages.where(f.col("time") < end), facts.where(f.col("time") < end)
        deliveries = deliveries.where(f.col("recorded") < end)
    seen = _look(facts)
    period = Period(since or seen.began, until or seen.ended + _LEAST)
    if period.since >= period.until:
        raise BadSetting(f"there is nothing from {period.since} on: the log ends at {seen.ended}")
    # Each is used several times; so each of the log's two kinds of rows is read once.
    messages, deliveries = messages.select(*MESSAGES).persist(), deliveries.select(*DELIVERIES).persist()
    ends = completion.ends(messages, deliveries, seen.tables).persist()
    done = completion.completions(messages, deliveries, seen.tables, ends).persist()
    waited = waits(messages, ends, done, f.lit(period.until)).persist()
    attempts = report_tables.named(report_tables.attempts_cube(deliveries, period), seen.tables.subscribers).persist()
    made = _tables(ends, done, waited, attempts, seen, period)
    return Report(messages.sparkSession, made, (messages, deliveries, ends, done, waited, attempts))


class Written(NamedTuple):
    """``where`` the page is, ``tables`` the folder of the tables; ``page`` is what the page shows."""

    where: str
    tables: str
    page: Page


def write(report: Report, out: str, *, source: str = "") -> Written:
    """Writes ``out``/report/<table>/ as Parquet and ``out``/report.html, and says where the page is. ``out`` is a
    folder or a URL of any file system that Spark knows; what an earlier report left there is replaced, each table and
    the page at once where the file system can rename. ``source``: what the page says it was made of."""
    place = report_place.ReportPlace(report.spark, out)
    for name, table in report.tables.items():
        place.write_table(f"report/{name}", table)
    read = {name: place.read_table(f"report/{name}") for name in report.tables}
    shown = gather(read)
    where = place.write_text("report.html", report_page.page(shown, source))
    return Written(where, where.removesuffix(".html"), shown)


def _look(facts: DataFrame) -> _Seen:
    observed = Observation()
    looked = facts.observe(
        observed,
        f.unix_micros(f.min("time")).alias("began"),
        f.unix_micros(f.max("time")).alias("ended"),
        f.min("sequence").alias("first"),
        f.max("sequence").alias("last"),
    )
    tables = completion_declared.read(looked)
    told = observed.get
    if told.get("began") is None:
        raise BadSetting("there is nothing to report on: no record of the log is in that time")
    return _Seen(tables, _time(told["began"]), _time(told["ended"]), told["first"], told["last"])


def _time(us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)


def _tables(
    ends: DataFrame, done: DataFrame, waited: DataFrame, attempts: DataFrame, seen: _Seen, period: Period
) -> dict[str, DataFrame]:
    spark = ends.sparkSession
    subscribers = seen.tables.subscribers
    hours = spark.range(1).select(
        f.explode(
            f.sequence(hour_of(f.lit(period.since)), hour_of(f.lit(period.until - _LEAST)), f.expr("interval 1 hour"))
        ).alias("hour")
    )
    completed, parents = report_tables.completion_cube(done, period), report_tables.waits_cube(waited, period)
    about = spark.range(1).select(
        f.lit(period.since).alias("since"),
        f.lit(period.until).alias("until"),
        f.lit(seen.first).alias("first_sequence"),
        f.lit(seen.last).alias("last_sequence"),
        f.lit(datetime.now(UTC)).alias("made_at"),
    )
    return {
        "queues": report_tables.queues_hourly(done, waited, hours, period),
        "subscribers": report_tables.subscribers_hourly(attempts, ends, hours, period),
        "failures": report_tables.failures(attempts),
        "dead_letters": report_tables.dead_letters(ends, period),
        "endpoints": report_tables.endpoints(attempts, subscribers),
        "blame": blame(waited, subscribers, period),
        "latencies": _latencies(attempts, completed, parents),
        "totals": _totals(completed, parents),
        "period": about,
    }


def _latencies(attempts: DataFrame, completed: DataFrame, parents: DataFrame) -> DataFrame:
    keys = ("what", "queue", "subscriber", "hour", "bucket")
    each = [
        cube.withColumn("what", f.lit(what)).withColumn("subscriber", name)
        for what, cube, name in (
            ("attempt", attempts, f.col("subscriber")),
            ("complete", completed, f.lit(None).cast("string")),
            ("parents", parents, f.lit(None).cast("string")),
        )
    ]
    summed = [one.groupBy(*keys).agg(f.sum("n").alias("n"), f.max("max_us").alias("max_us")) for one in each]
    return summed[0].unionByName(summed[1]).unionByName(summed[2])


def _totals(completed: DataFrame, parents: DataFrame) -> DataFrame:
    """By queue, and one row for all (queue null)."""
    found = []
    for keys in (("queue",), ()):
        both = [
            percentiles(cube, keys, prefix).withColumn("all", f.lit(1))
            for cube, prefix in ((completed, "complete"), (parents, "parents"))
        ]
        found.append(both[0].join(both[1], [*keys, "all"], "full").drop("all"))
    return found[0].unionByName(found[1], allowMissingColumns=True)
