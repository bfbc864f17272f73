"""The report as one HTML page that asks nobody for anything: pictures inline, light and dark, readable on a phone.

Pure: rows in, text out. Whatever comes from the log (endpoints, reasons, names) is escaped where it is written.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any, Final

from syncbrok.pipeline.report import charts
from syncbrok.pipeline.report.charts import Series
from syncbrok.pipeline.report.formatting import NONE, count, duration, endpoint, hour_labels, share, utc_time, words
from syncbrok.pipeline.report.latency import middle_us
from syncbrok.pipeline.report.page_data import PageData, Row
from syncbrok.pipeline.report.page_style import STYLE

_COLUMNS_MAX: Final = 168
"""more hours than a week has are drawn several to a column"""
_TONES: Final = ("c1", "c2", "c3", "c5", "c6", "c7", "c4")
_SHAPES: Final = (
    ("complete", "accepted → complete", "c1"),
    ("parents", "waiting for parents", "c5"),
    ("attempt", "one attempt", "c2"),
)

Cell = tuple[str, str]
"""the class of a table's cell, and its HTML"""


def page(data: PageData, source: str = "") -> str:
    """The page as HTML. ``source``: what the report was made of, in words."""
    times = _Columns(data.hours)
    parts = [
        _header(data, source),
        _tiles(data),
        _pair(
            _card("Messages accepted", "By queue and hour.", _by_queue(data, times, "accepted", sum)),
            _card(
                "Backlog",
                "Messages not ended at the end of each hour, by queue.",
                _by_queue(data, times, "backlog", _last),
            ),
        ),
        _pair(
            _card(
                "Accepted to complete",
                "Half, nine in ten and 99 in 100 messages took no longer.",
                _latencies(data, times),
            ),
            _card(
                "How long things took",
                "Of all in this time, how many took how long; those that took no time are left out.",
                _shapes(data),
            ),
        ),
        _pair(
            _card("Deliveries", "Acknowledged deliveries, and attempts that failed.", _deliveries(data, times)),
            _card("Failed attempts", "By reason and hour.", _failures(data, times)),
        ),
        _card("Blame", _BLAME, _blame(data)),
        _card("Slowest endpoints", "Attempts of each subscriber, the slowest first.", _endpoints(data)),
        _card("Dead letters", "Those that stand, by reason: no replay has taken them up.", _letters(data)),
        _card("Queues", "Messages, by how they stand now.", _queues(data)),
        _card("Subscribers", "Deliveries and attempts.", _subscribers(data)),
        _footer(data),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Syncbrok report, {_span(data.period)}</title><style>{STYLE}</style></head>"
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )


_BLAME: Final = (
    "How long each endpoint kept the descendants of its messages waiting, all of them added up. A wait is charged to "
    "whoever took the time, however far up the chain."
)


# -- frame ------------------------------------------------------------------------------------------------------------


def _header(data: PageData, source: str) -> str:
    made = f" Made {utc_time(data.period['made_at'])}."
    of = f"Of <b>{escape(source)}</b>. " if source else ""
    return f"<header><h1>Syncbrok report</h1><p><b>{_span(data.period)}</b></p><p>{of}{made}</p></header>"


def _span(period: Row) -> str:
    return f"{utc_time(period['since'])} to {utc_time(period['until'])}"


def _tiles(data: PageData) -> str:
    totals = data.totals
    backlog = sum(row["backlog"] or 0 for row in data.queues)
    attempts, failed = totals.get("deliveries_attempts"), totals.get("deliveries_failed")
    letters = totals.get("letters") or 0
    tiles = [
        ("", "messages accepted", count(totals.get("messages_accepted"))),
        ("", "deliveries acknowledged", count(totals.get("deliveries_delivered"))),
        ("", "not ended at the end", count(backlog)),
        ("", "accepted → complete, half", duration(totals.get("complete_p50_us"))),
        ("", "99 in 100 within", duration(totals.get("complete_p99_us"))),
        ("", "attempts that failed", share(failed, attempts)),
        ("bad" if letters else "", "dead letters", count(letters)),
    ]
    inside = "".join(
        f'<div class="tile {kind}"><span>{name}</span><strong>{value}</strong></div>' for kind, name, value in tiles
    )
    return f'<section class="tiles">{inside}</section>'


def _footer(data: PageData) -> str:
    period = data.period
    records = f"{period['first_sequence']:,} to {period['last_sequence']:,}"
    return (
        f"<footer><p>Records {records}. Hours are UTC and begin at the full hour; what happened counts in the hour its "
        "record was written. Percentiles are right to 1 %, maxima exact.</p>"
        "<p>The tables stand beside this page as Parquet, in report/.</p></footer>"
    )


def _card(title: str, says: str, inside: str) -> str:
    return f'<section class="card"><h2>{title}</h2><p>{says}</p>{inside}</section>'


def _pair(*cards: str) -> str:
    return f'<div class="pair">{"".join(cards)}</div>'


# -- charts -----------------------------------------------------------------------------------------------------------


class _Columns:
    """Hours as columns of a chart: one each, or several together where there are many."""

    def __init__(self, hours: Sequence[datetime]) -> None:
        self._together = max(1, -(-len(hours) // _COLUMNS_MAX))
        self._at = {hour: place // self._together for place, hour in enumerate(hours)}
        firsts = hours[:: self._together]
        self.names = [f"{first:%Y-%m-%d %H:%M}" for first in firsts]
        self.labels = hour_labels(firsts)

    def of(self, rows: Iterable[Row], name: str, add: Callable[[list[float]], float]) -> list[float | None]:
        """A value for each column of the chart: what ``add`` makes of the values of its hours, in their order; None
        where there are none."""
        values: dict[int, list[float]] = defaultdict(list)
        for row in rows:
            if row[name] is not None and row["hour"] in self._at:
                values[self._at[row["hour"]]].append(row[name])
        return [add(values[at]) if values[at] else None for at in range(len(self.names))]


def _last(values: list[float]) -> float:
    return values[-1]


def _by_queue(data: PageData, times: _Columns, name: str, add: Callable[[list[float]], float]) -> str:
    rows: dict[str | None, list[Row]] = defaultdict(list)
    for row in data.queue_hours:
        rows[row["queue"]].append(row)
    ordered = sorted(rows, key=lambda queue: -sum(row[name] or 0 for row in rows[queue]))
    ordered = [queue for queue in ordered if any(row[name] for row in rows[queue])]
    shown, rest = ordered[: len(_TONES)], ordered[len(_TONES) :]
    series = [
        Series(queue or NONE, tone, times.of(rows[queue], name, add))
        for queue, tone in zip(shown, _TONES, strict=False)
    ]
    if rest:
        columns = [times.of(rows[queue], name, add) for queue in rest]
        others = [sum(value or 0 for value in values) for values in zip(*columns, strict=True)]
        series.append(Series(f"{len(rest)} others", "c8", others))
    return _bars(series, times)


def _bars(series: list[Series], times: _Columns) -> str:
    if not any(any(one.values) for one in series):
        return '<p class="none">Nothing in this time.</p>'
    return charts.bars(series, times.labels, count, times.names)


def _deliveries(data: PageData, times: _Columns) -> str:
    found = [Series("acknowledged", "c2", times.of(data.flow, "delivered", sum))]
    return _bars([*found, Series("failed attempts", "c4", times.of(data.flow, "failed", sum))], times)


def _failures(data: PageData, times: _Columns) -> str:
    rows: dict[str, list[Row]] = defaultdict(list)
    for row in data.failures:
        rows[row["reason"]].append(row)
    ordered = sorted(rows, key=lambda reason: -sum(row["attempts"] for row in rows[reason]))
    tones = ("c4", "c3", "c5", "c1", "c6", "c7", "c8")
    series = [
        Series(words(reason), tones[min(at, len(tones) - 1)], times.of(rows[reason], "attempts", sum))
        for at, reason in enumerate(ordered)
    ]
    return _bars(series, times)


def _latencies(data: PageData, times: _Columns) -> str:
    shown = (("p50", "half", "c2"), ("p90", "90 %", "c3"), ("p99", "99 %", "c4"))
    series = [
        Series(name, tone, times.of(data.latencies, f"complete_{quantile}_us", max)) for quantile, name, tone in shown
    ]
    return charts.lines(series, times.labels, duration)


def _shapes(data: PageData) -> str:
    """Counts in steps of an eighth of a decade: enough to see a shape, too few to see noise."""
    curves = []
    for what, name, tone in _SHAPES:
        steps: dict[int, int] = defaultdict(int)
        for row in data.shapes:
            if row["what"] == what and row["bucket"]:
                steps[round(math.log10(max(middle_us(row["bucket"]), 1)) * 8)] += row["n"]
        whole = sum(steps.values())
        places = range(min(steps) - 1, max(steps) + 2) if steps else range(0)
        curves.append((name, tone, [(10 ** (place / 8), steps[place] / whole) for place in places]))
    return charts.shapes(curves, duration)


# -- tables -----------------------------------------------------------------------------------------------------------


def _table(heads: Sequence[Cell], rows: Sequence[Sequence[Cell]]) -> str:
    if not rows:
        return '<p class="none">None in this time.</p>'
    head = "".join(f'<th class="{kind}">{text}</th>' for kind, text in heads)
    body = "".join("<tr>" + "".join(f'<td class="{kind}">{text}</td>' for kind, text in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _who(row: Mapping[str, Any]) -> Cell:
    if row["subscriber"] is None:
        return "t", "a parent's own delay" if row["queue"] is None else escape(row["queue"])
    where = f"<small>{escape(endpoint(row['endpoint']))}</small>" if row.get("endpoint") else ""
    return "t", f"{escape(row['queue'] or NONE)} / {escape(row['subscriber'])}{where}"


def _heads(first: str, *names: str) -> list[Cell]:
    return [("t", first), *(("", name) for name in names)]


def _blame(data: PageData) -> str:
    whole = sum(row["waited_us"] for row in data.blame) or 1
    rows = [
        [
            _who(row),
            ("", charts.bar(row["waited_us"] / whole, "c5")),
            ("", share(row["waited_us"], whole)),
            ("", duration(row["waited_us"])),
            ("", count(row["waiters"])),
            ("", duration(row["waited_us"] / row["waiters"] if row["waiters"] else None)),
            ("", duration(row["longest_us"] or None)),
        ]
        for row in data.blame
    ]
    return _table(_heads("waited for", "", "share", "waited in all", "waiters", "each, mean", "longest"), rows)


def _endpoints(data: PageData) -> str:
    slowest = max((row["attempt_p99_us"] for row in data.endpoints), default=0) or 1
    rows = [
        [
            _who(row),
            ("", charts.bar(row["attempt_p99_us"] / slowest, "c3")),
            ("", count(row["attempts"])),
            ("bad" if row["failed"] else "", share(row["failed"], row["attempts"])),
            *(("", duration(row[f"attempt_{name}_us"])) for name in ("p50", "p90", "p99", "max")),
            ("", duration(row["busy_us"])),
        ]
        for row in data.endpoints
    ]
    return _table(_heads("endpoint", "", "attempts", "failed", "half", "90 %", "99 %", "slowest", "time in all"), rows)


def _letters(data: PageData) -> str:
    rows = [
        [
            _who(row),
            ("t", escape(words(row["reason"]))),
            ("bad", count(row["letters"])),
            ("", f"{row['first']:%Y-%m-%d %H:%M}"),
            ("", f"{row['last']:%Y-%m-%d %H:%M}"),
        ]
        for row in data.letters
    ]
    return _table([("t", "subscriber"), ("t", "reason"), ("", "letters"), ("", "first hour"), ("", "last hour")], rows)


def _queues(data: PageData) -> str:
    names = ("accepted", "completed", "dead", "expired", "dropped", "backlog")
    times = ("complete_p50_us", "complete_p99_us", "complete_max_us", "parents_p99_us")
    rows = [
        [
            ("t", escape(row["queue"] or NONE)),
            *(("bad" if name == "dead" and row[name] else "", count(row[name])) for name in names),
            *(("", duration(row[name])) for name in times),
        ]
        for row in data.queues
    ]
    return _table(_heads("queue", *names, "complete, half", "99 %", "slowest", "parents, 99 %"), rows)


def _subscribers(data: PageData) -> str:
    names = ("accepted", "delivered", "attempts", "failed", "dead", "expired", "dropped", "backlog")
    rows = [
        [_who(row), *(("bad" if name == "dead" and row[name] else "", count(row[name])) for name in names)]
        for row in data.subscribers
    ]
    return _table(_heads("subscriber", *names), rows)
