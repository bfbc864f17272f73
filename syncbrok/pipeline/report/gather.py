"""What the page shows, out of the report's tables: totals, sums by hour, the first rows of each list."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from syncbrok.pipeline.report.latency import WIDTH, percentiles

Row = Mapping[str, Any]

ENDPOINTS_MAX: Final = 20
SUBSCRIBERS_MAX: Final = 60
QUEUES_MAX: Final = 60
_SUMS: Final = ("accepted", "delivered", "attempts", "failed", "dead", "expired", "dropped")


class Page(NamedTuple):
    """Lists of rows, each with the columns that ``gather`` gives it; times with their zone, durations in ``_us``."""

    period: Row
    hours: list[datetime]
    flow: list[Row]
    """by hour: accepted, delivered, attempts, failed; over all subscribers"""
    queue_hours: list[Row]
    """by queue and hour: accepted, completed, backlog"""
    failures: list[Row]
    """by hour and reason: attempts"""
    latencies: list[Row]
    """by hour, from acceptance to completion: complete_p50_us and so on"""
    shapes: list[Row]
    """by what and bucket: n"""
    queues: list[Row]
    subscribers: list[Row]
    endpoints: list[Row]
    blame: list[Row]
    letters: list[Row]
    totals: Row
    """over everything: sums of deliveries, and percentiles"""


def gather(tables: Mapping[str, DataFrame]) -> Page:
    """``tables`` as ``report`` makes them, best read back from where they were written: each is used more than once."""
    queues, subscribers = tables["queues"], tables["subscribers"]
    whole = _rows(tables["totals"].where("queue is null"))
    sums = _rows(subscribers.agg(*_sums(*_SUMS)))
    messages = _rows(queues.agg(*_sums("accepted", "completed")))
    letters = _rows(tables["dead_letters"].agg(f.sum("letters").alias("letters")))
    return Page(
        period=_rows(tables["period"])[0],
        hours=[row["hour"] for row in _rows(queues.select("hour").distinct().orderBy("hour"))],
        flow=_rows(
            subscribers.groupBy("hour").agg(*_sums("accepted", "delivered", "attempts", "failed")).orderBy("hour")
        ),
        queue_hours=_rows(queues.select("queue", "hour", "accepted", "completed", "backlog").orderBy("queue", "hour")),
        failures=_rows(tables["failures"].groupBy("hour", "reason").agg(*_sums("attempts")).orderBy("hour", "reason")),
        latencies=_rows(
            percentiles(tables["latencies"].where("what = 'complete'"), ["hour"], "complete").orderBy("hour")
        ),
        shapes=_rows(tables["latencies"].groupBy("what", "bucket").agg(*_sums("n")).orderBy("what", "bucket")),
        queues=_queues(queues, tables["totals"]),
        subscribers=_subscribers(subscribers),
        endpoints=_rows(
            tables["endpoints"].orderBy(f.desc("attempt_p99_us"), "queue", "subscriber").limit(ENDPOINTS_MAX)
        ),
        blame=_blame(tables["blame"], tables["endpoints"]),
        letters=_letters(tables["dead_letters"]),
        totals={
            **(whole[0] if whole else {}),
            **{f"deliveries_{name}": value for name, value in sums[0].items()},
            **{f"messages_{name}": value for name, value in messages[0].items()},
            **letters[0],
        },
    )


def middle_us(bucket: int) -> float:
    """The middle of a bucket of durations."""
    return float(WIDTH ** (bucket + 0.5) - 1)


def _queues(queues: DataFrame, totals: DataFrame) -> list[Row]:
    sums = queues.groupBy("queue").agg(
        *_sums("accepted", "completed", "dead", "expired", "dropped"), f.max_by("backlog", "hour").alias("backlog")
    )
    return _rows(sums.join(totals, "queue", "left").orderBy(f.desc("accepted"), "queue").limit(QUEUES_MAX))


def _subscribers(subscribers: DataFrame) -> list[Row]:
    sums = subscribers.groupBy("queue", "subscriber").agg(*_sums(*_SUMS), f.max_by("backlog", "hour").alias("backlog"))
    return _rows(sums.orderBy(f.desc("accepted"), "queue", "subscriber").limit(SUBSCRIBERS_MAX))


def _blame(blame: DataFrame, endpoints: DataFrame) -> list[Row]:
    charged = blame.groupBy("queue", "subscriber").agg(
        *_sums("waited_us", "waiters"), f.max("longest_us").alias("longest_us")
    )
    where = endpoints.select("queue", "subscriber", "endpoint")
    named = charged.join(where, ["queue", "subscriber"], "left")
    return _rows(named.orderBy(f.desc("waited_us")).limit(ENDPOINTS_MAX))


def _letters(letters: DataFrame) -> list[Row]:
    sums = letters.groupBy("queue", "subscriber", "reason").agg(
        *_sums("letters"), f.min("hour").alias("first"), f.max("hour").alias("last")
    )
    return _rows(sums.orderBy(f.desc("letters"), "queue", "subscriber", "reason").limit(ENDPOINTS_MAX))


def _sums(*names: str) -> list[Column]:
    return [f.sum(name).alias(name) for name in names]


def _rows(frame: DataFrame) -> list[Row]:
    return [
        {name: value.astimezone(UTC) if isinstance(value, datetime) else value for name, value in row.items()}
        for row in frame.toArrow().to_pylist()
    ]
