"""Prepares the page from the report's tables: totals, sums by hour, the first rows of each list."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from syncbrok.pipeline.report.aggregation import aggregated
from syncbrok.pipeline.report.hour_grid import CountColumns, quantile_columns
from syncbrok.pipeline.report.latency import percentiles

Row = Mapping[str, Any]

ENDPOINTS_MAX: Final = 20
SUBSCRIBERS_MAX: Final = 60
QUEUES_MAX: Final = 60
_SUMS: Final = ("accepted", "delivered", "attempts", "failed", "dead", "expired", "dropped")


class PageData(NamedTuple):
    """Lists of rows, each with the columns that ``page_data`` gives it; times with their zone, durations in ``_us``."""

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


def page_data(tables: Mapping[str, pa.Table]) -> PageData:
    """The data of the page, from ``tables`` as ``report_tables`` makes them."""
    queues, subscribers = tables["queues"], tables["subscribers"]
    whole = _rows(tables["totals"].filter(pc.field("queue").is_null()))
    return PageData(
        period=_rows(tables["period"])[0],
        hours=sorted(pc.unique(queues["hour"]).to_pylist()),
        flow=_sorted(_summed(subscribers, ["hour"], _SUMS[:4]), "hour"),
        queue_hours=_sorted(queues.select(["queue", "hour", "accepted", "completed", "backlog"]), "queue", "hour"),
        failures=_sorted(_summed(tables["failures"], ["hour", "reason"], ["attempts"]), "hour", "reason"),
        latencies=_by_hour(tables["latencies"]),
        shapes=_sorted(_summed(tables["latencies"], ["what", "bucket"], ["n"]), "what", "bucket"),
        queues=_queues(queues, tables["totals"]),
        subscribers=_subscribers(subscribers),
        endpoints=_sorted(tables["endpoints"], "-attempt_p99_us", "queue", "subscriber")[:ENDPOINTS_MAX],
        blame=_blame(tables["blame"], tables["endpoints"]),
        letters=_letters(tables["dead_letters"]),
        totals={
            **(whole[0] if whole else {}),
            **{f"deliveries_{name}": pc.sum(subscribers[name]).as_py() for name in _SUMS},
            **{f"messages_{name}": pc.sum(queues[name]).as_py() for name in ("accepted", "completed")},
            "letters": pc.sum(tables["dead_letters"]["letters"]).as_py(),
        },
    )


def _by_hour(latencies: pa.Table) -> list[Row]:
    rows = CountColumns(latencies.filter(pc.field("what") == "complete"))
    if not len(rows):
        return []
    hours = rows.column("hour").dictionary_encode()
    found = percentiles(hours.indices.to_numpy(), rows.of("bucket"), rows.n, rows.of("max_us", 0))
    columns = quantile_columns("complete", found, len(hours.dictionary))
    return _sorted(pa.table({"hour": hours.dictionary, **columns}), "hour")


def _queues(queues: pa.Table, totals: pa.Table) -> list[Row]:
    sums = _with_backlog(queues, ["queue"], ("accepted", "completed", "dead", "expired", "dropped"))
    times = {row["queue"]: row for row in _rows(totals)}
    none = dict.fromkeys(totals.column_names)
    return [{**none, **times.get(row["queue"], {}), **row} for row in _sorted(sums, "-accepted", "queue")[:QUEUES_MAX]]


def _subscribers(subscribers: pa.Table) -> list[Row]:
    sums = _with_backlog(subscribers, ["queue", "subscriber"], _SUMS)
    return _sorted(sums, "-accepted", "queue", "subscriber")[:SUBSCRIBERS_MAX]


def _with_backlog(hourly: pa.Table, keys: list[str], sums: Sequence[str]) -> pa.Table:
    """``sums`` over all hours, and the backlog of the last one, by ``keys``."""
    last = pc.equal(hourly["hour"], pc.max(hourly["hour"]))
    backlog = pc.if_else(last, hourly["backlog"], 0)
    return _summed(
        hourly.set_column(hourly.column_names.index("backlog"), "backlog", backlog), keys, (*sums, "backlog")
    )


def _blame(blame: pa.Table, endpoints: pa.Table) -> list[Row]:
    keys = ["queue", "subscriber"]
    sums = {"waited_us": ("waited_us", "sum"), "waiters": ("waiters", "sum"), "longest_us": ("longest_us", "max")}
    charged = aggregated(blame, keys, **sums)
    where = {(row["queue"], row["subscriber"]): row["endpoint"] for row in _rows(endpoints)}
    worst = _sorted(charged, "-waited_us", *keys)[:ENDPOINTS_MAX]
    return [{**row, "endpoint": where.get((row["queue"], row["subscriber"]))} for row in worst]


def _letters(letters: pa.Table) -> list[Row]:
    keys = ["queue", "subscriber", "reason"]
    sums = aggregated(letters, keys, letters=("letters", "sum"), first=("hour", "min"), last=("hour", "max"))
    return _sorted(sums, "-letters", *keys)[:ENDPOINTS_MAX]


def _summed(table: pa.Table, keys: list[str], sums: Iterable[str]) -> pa.Table:
    return aggregated(table, keys, **{name: (name, "sum") for name in sums})


def _sorted(table: pa.Table, *keys: str) -> list[Row]:
    """The rows of ``table`` in the order of ``keys``; of one that begins with a minus the greatest first."""
    order = [(key.removeprefix("-"), "descending" if key.startswith("-") else "ascending") for key in keys]
    return _rows(table.sort_by(order))


def _rows(table: pa.Table) -> list[Row]:
    rows: list[Row] = table.to_pylist()
    return rows
