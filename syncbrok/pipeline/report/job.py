"""The report: accepted, delivered, slow and dead messages by queue, subscriber and hour, and who kept others waiting.

    whole = LogAndArchive(spark, "storage/", archive)
    messages, deliveries = whole.rows("messages", ",".join(MESSAGES)), whole.rows("deliveries", ",".join(DELIVERIES))
    found = report(messages, deliveries, whole.read("facts", ",".join(FACTS)))
    write(found, "out/")        # out/report/<table>/ as Parquet, out/report.html

``report`` takes the rows of a ``LogAndArchive``, or data frames of the source, which must end at the same record (those
of one ``LogAndArchive`` do), and makes small tables, each an aggregate. Spark counts everything in one query, and
nothing but those counts ever comes to the driver, which sums them up (``tables`` explains the columns):

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

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from syncbrok.model.errors import BadSetting
from syncbrok.pipeline.completion import completions as completion
from syncbrok.pipeline.completion.message_groups import GroupMapper, map_groups
from syncbrok.pipeline.log_and_archive import KindRows
from syncbrok.pipeline.report import blame_rounds, shuffle_steps
from syncbrok.pipeline.report import page as report_page
from syncbrok.pipeline.report import store as report_store
from syncbrok.pipeline.report import tables as report_tables
from syncbrok.pipeline.report.counts import BLAME
from syncbrok.pipeline.report.page_data import PageData, Row, page_data
from syncbrok.pipeline.report.period import HOURS_MAX, Period
from syncbrok.pipeline.report.tables import ReportCounts
from syncbrok.pipeline.spark_conf import UNMEASURED, set_for_now, unset
from syncbrok.pipeline.states import declared_facts

MESSAGES: Final = (*completion.MESSAGES, "root")
DELIVERIES: Final = (*completion.DELIVERIES, "status", "latency_us")
FACTS: Final = completion.FACTS
"""the columns that are read of each kind"""

__all__ = ["DELIVERIES", "FACTS", "MESSAGES", "Report", "ReportWritten", "Row", "report", "write"]

_LEAST: Final = timedelta(microseconds=1)


class Report(NamedTuple):
    """The tables of a report, by name."""

    spark: SparkSession
    tables: dict[str, pa.Table]

    def frame(self, name: str) -> DataFrame:
        """A table as a data frame."""
        return self.spark.createDataFrame(self.tables[name])


class _Seen(NamedTuple):
    """Figures about the facts: their declarations, first and last time, and sequences."""

    declared: declared_facts.DeclaredFacts
    began: datetime
    ended: datetime
    first: int
    last: int


def report(
    messages: DataFrame | KindRows,
    deliveries: DataFrame | KindRows,
    facts: DataFrame,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
) -> Report:
    """The tables for the time from ``since`` on and before ``until`` (with a zone; by default all there is). The data
    must have all messages before ``since`` too, or the backlog starts from nothing. Raises ``BadSetting`` where there
    is nothing in that time, or it is longer than ``HOURS_MAX``."""
    messages, deliveries = _rows(messages, MESSAGES), _rows(deliveries, DELIVERIES)
    if until is not None:
        messages, deliveries = messages.before("time", until), deliveries.before("recorded", until)
        facts = facts.where(f.col("time") < f.lit(until))
    seen = _figures_of(facts)
    period = Period(since or seen.began, until or seen.ended + _LEAST)
    if period.since >= period.until:
        raise BadSetting(f"there is nothing from {period.since} on: the log ends at {seen.ended}")
    if period.hours > HOURS_MAX:
        raise BadSetting(
            f"from {period.since} to {period.until} are {period.hours:,} hours, a report has at most {HOURS_MAX:,}: say"
            f" a time nearer to that of the log, which is from {seen.began} to {seen.ended}"
        )
    spark = facts.sparkSession
    with set_for_now(spark, unset(spark, UNMEASURED)):
        counted = _counted(messages, deliveries, seen, period)
    return Report(spark, report_tables.tables(counted, seen.first, seen.last))


def _rows(given: DataFrame | KindRows, columns: Sequence[str]) -> KindRows:
    """A frame's other columns, contents perhaps, do not come along."""
    return given if isinstance(given, KindRows) else KindRows([given.select(*columns)])


class ReportWritten(NamedTuple):
    """A report as it was written. ``where`` the page is, ``tables`` the folder of the tables; ``page`` is what the page
    shows."""

    where: str
    tables: str
    page: PageData


def write(report: Report, out: str, *, source: str = "") -> ReportWritten:
    """Writes ``out``/report/<table>/ as Parquet and ``out``/report.html, and says where the page is. ``out`` is a
    folder or a URL of any file system that Spark knows; what an earlier report left there is replaced, each table and
    the page at once where the file system can rename. ``source``: what the page says it was made of."""
    place = report_store.ReportStore(report.spark, out)
    for name, table in report.tables.items():
        place.write_table(f"report/{name}", table)
    shown = page_data(report.tables)
    where = place.write_text("report.html", report_page.page(shown, source))
    return ReportWritten(where, where.removesuffix(".html"), shown)


def _figures_of(facts: DataFrame) -> _Seen:
    observed = Observation()
    looked = facts.observe(
        observed,
        f.unix_micros(f.min("time")).alias("began"),
        f.unix_micros(f.max("time")).alias("ended"),
        f.min("sequence").alias("first"),
        f.max("sequence").alias("last"),
    )
    found = declared_facts.read(looked, facts)
    figures = observed.get
    if figures.get("began") is None:
        raise BadSetting("there is nothing to report on: no record of the log is in that time")
    return _Seen(found, _time(figures["began"]), _time(figures["ended"]), figures["first"], figures["last"])


def _time(us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)


def _counted(messages: KindRows, deliveries: KindRows, seen: _Seen, period: Period) -> ReportCounts:
    """The counts of all steps. Rows go from step to step, to where they are needed next, and all that is counted on the
    way goes along."""
    found = completion.with_waiting_messages(messages.frame(), deliveries.frame(), seen.declared)
    same = frozenset(found.queues[number].name for number, scopes in found.scopes.items() if "same" in scopes)
    rows = map_groups(
        messages,
        deliveries,
        found,
        GroupMapper(
            partial(shuffle_steps.whole_messages, same, period),
            shuffle_steps.AFTER_MESSAGES,
            of_messages=("parent_sequences", "parent_failure", "root"),
            of_deliveries=("status", "latency_us"),
        ),
    )
    rows = rows.repartition("key").mapInArrow(partial(shuffle_steps.at_parents, period), shuffle_steps.AFTER_PARENTS)
    rows = rows.repartition("key").mapInArrow(partial(shuffle_steps.at_waiters, period), shuffle_steps.AFTER_WAITERS)
    rows.persist(StorageLevel.MEMORY_AND_DISK_DESER)
    charged = rows.repartition("root").mapInArrow(partial(shuffle_steps.at_trees, period), shuffle_steps.AFTER_END)
    counts = blame_rounds.added_up(charged)
    sent = {kind: [one] for kind, one in counts.items()}
    if blame_rounds.goes_on(counts):
        sent[BLAME] = blame_rounds.blame_over_trees(rows.where("kind is null"), period)
    rows.unpersist()
    return ReportCounts.of(sent, report_tables.SubscriberNames(found), period)
