"""Small tables that every message or row is looked up in: who subscribed when, what a gap put in doubt.

They come from declarations and gaps, which are few; Spark sends them to every worker.
"""

import json
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from syncbrok.pipeline.audit.declared import FOREVER, Declared

_BINS_MAX: Final = 100_000
"""rows by which audiences are found: a queue with many changes is cut into that many stretches of records"""


class Lookup:
    """The tables of one log, whose records are ``first`` to ``last``."""

    def __init__(self, spark: SparkSession, known: Declared, first: int, last: int) -> None:
        self._spark = spark
        self._known = known
        self._first = first
        queues = max(1, len({one.name for one in known.audiences}))
        self._bin = max(1, (last - first + 1) // max(1, _BINS_MAX // queues))
        self._last_bin = (last - first) // self._bin

    def with_audience(self, messages: DataFrame) -> DataFrame:
        """``messages`` (queue, record, sequence, only) with ``queue_no`` (null: not declared then), ``queue_gone`` and
        who is counted: ``counted`` (numbers) beside ``counted_gone`` (the records that deleted them, or null)."""
        stretches = [
            (one.name, number, one.begins, one.ends, one.queue, one.queue_gone or None, audience)
            for audience, one in enumerate(self._known.audiences)
            for number in range(self._bin_of(one.begins + 1), min(self._bin_of(one.ends), self._last_bin) + 1)
        ]
        schema = (
            "queue string, bin bigint, begins bigint, ends bigint, queue_no bigint, queue_gone bigint, audience int"
        )
        bins = f.broadcast(self._spark.createDataFrame(stretches, schema))
        binned = messages.withColumn("bin", f.floor((f.col("record") - self._first) / self._bin))
        is_then = (f.col("record") > f.col("begins")) & (f.col("record") <= f.col("ends"))
        placed = binned.join(bins.withColumnRenamed("queue", "queue_"),
                             (f.col("queue") == f.col("queue_")) & (binned["bin"] == bins["bin"]) & is_then,
                             "left")  # fmt: skip
        audiences = [(number, list(one.members)) for number, one in enumerate(self._known.audiences)]
        members = f.broadcast(
            self._spark.createDataFrame(
                audiences, "audience int, members array<struct<number: bigint, since: bigint, gone: bigint>>"
            )
        )
        is_counted = f.filter(
            f.coalesce(f.col("members"), f.array().cast("array<struct<number:bigint,since:bigint,gone:bigint>>")),
            lambda one: (
                (one.since < f.col("sequence"))
                & (f.col("only").isNull() | (f.col("only") == 0) | (f.col("only") == one.number))
            ),
        )
        gone = lambda one: f.when(one.gone > f.col("record"), one.gone)  # noqa: E731
        return (
            placed.join(members, "audience", "left")
            .withColumn("counting", is_counted)
            .withColumn("counted", f.col("counting.number"))
            .withColumn("counted_gone", f.transform("counting", gone))
            .drop("bin", "queue_", "begins", "ends", "audience", "members", "counting")
        )

    def with_subscriber(self, rows: DataFrame) -> DataFrame:
        """``rows`` with what is known of the subscriber ``s``: its queue, the records that declared and deleted it,
        and from where on it may catch up."""
        table = [
            (one.number, one.queue, one.begins, one.gone or None, one.starts or None)
            for one in self._known.subscribers.values()
        ]
        schema = (
            "s bigint, s_queue bigint, s_begins bigint, s_gone bigint, s_starts array<struct<record: bigint, "
            "start: bigint>>"
        )
        return rows.join(f.broadcast(self._spark.createDataFrame(table, schema)), "s", "left")

    def doubt_since(self, sequence: Column, record: Column | None = None) -> Column:
        """From which record on nothing is sure of the message ``sequence``: a gap behind it may have swallowed
        something of it. With ``record``, its own, also what may be missing before it. Null: never."""
        doubt: Column = f.lit(None).cast("bigint")
        if self._known.gaps:
            gaps = json.dumps([{"record": one.record, "last": one.last} for one in self._known.gaps])
            table = f.from_json(f.lit(gaps), "array<struct<record: bigint, last: bigint>>")
            doubt = f.array_min(f.filter(table, lambda gap: gap.last >= sequence).record)
        if record is not None and self._known.doubtful:
            stretches = json.dumps([{"above": above, "to": to} for above, to in self._known.doubtful])
            table = f.from_json(f.lit(stretches), "array<struct<above: bigint, to: bigint>>")
            is_doubtful = f.exists(table, lambda one: (record > one.above) & (record <= one.to))
            doubt = f.when(is_doubtful, f.lit(0)).otherwise(doubt)
        return doubt

    def frozen(self) -> list[int]:
        """Subscribers that are paused or disabled at the end."""
        return [one.number for one in self._known.subscribers.values() if one.frozen and not one.gone]

    def _bin_of(self, record: int) -> int:
        return (min(record, FOREVER) - self._first) // self._bin
