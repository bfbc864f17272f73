"""The report's page: figures with units, nothing from the log believed, nothing fetched."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from syncbrok.pipeline.report import charts
from syncbrok.pipeline.report.charts import Series
from syncbrok.pipeline.report.formatting import count, duration, endpoint, share
from syncbrok.pipeline.report.page import page
from syncbrok.pipeline.report.page_data import PageData
from syncbrok.pipeline.report.tables import SubscriberNames
from syncbrok.pipeline.states.declared_facts import DeclaredFacts, DeclaredQueue, DeclaredSubscriber

BEGAN = datetime(2026, 7, 1, 10, tzinfo=UTC)
HOSTILE = '<script>alert("x")</script>'


def shown(hours: int = 3, **changes: Any) -> PageData:
    """A page of one queue with one subscriber, over so many hours."""
    times = [BEGAN + timedelta(hours=at) for at in range(hours)]
    who = {"queue": "orders", "subscriber": "crm", "endpoint": f"https://me:pw@host.example/hook/{HOSTILE}?token=t"}
    quantiles = {f"attempt_{name}_us": 1_500 for name in ("p50", "p90", "p99", "max")}
    complete = {f"complete_{name}_us": 40_000_000 for name in ("p50", "p90", "p99", "max")}
    flow = [{"hour": hour, "accepted": 10, "delivered": 9, "attempts": 12, "failed": 3} for hour in times]
    queue_hours = [{"queue": "orders", "hour": hour, "accepted": 10, "completed": 8, "backlog": 2} for hour in times]
    sums = {"accepted": 30, "delivered": 27, "attempts": 36, "failed": 9, "dead": 1, "expired": 0, "dropped": 0}
    data = PageData(
        period={"since": BEGAN, "until": times[-1], "made_at": BEGAN, "first_sequence": 1, "last_sequence": 1234},
        hours=times,
        flow=flow,
        queue_hours=queue_hours,
        failures=[{"hour": times[0], "reason": "not_true", "attempts": 9}],
        latencies=[{"hour": hour, **complete} for hour in times],
        shapes=[{"what": "attempt", "bucket": 300 + at, "n": 5} for at in range(9)],
        queues=[{"queue": "orders", **sums, "completed": 24, "backlog": 2, **complete, "parents_p99_us": None}],
        subscribers=[{**who, **sums, "backlog": 2}],
        endpoints=[{**who, "attempts": 36, "failed": 9, "busy_us": 54_000, **quantiles}],
        blame=[{**who, "waited_us": 7_200_000_000, "waiters": 12.0, "longest_us": 900_000_000}],
        letters=[{**who, "reason": "parent_failed", "letters": 1, "first": times[0], "last": times[0]}],
        totals={f"deliveries_{name}": value for name, value in sums.items()}
        | {"messages_accepted": 30, "letters": 1, "complete_p50_us": 1_250, "complete_p99_us": None},
    )
    return data._replace(**changes)


def test_a_page_needs_nothing_else_and_believes_nothing() -> None:
    """No script, no address to fetch, and what came from the log is text; secrets in an endpoint are not shown."""
    text = page(shown(), source=f"/data/{HOSTILE}")
    assert "<script" not in text
    assert text.count("&lt;script&gt;") >= 2
    assert not re.search(r'(?:src|href|url|@import)\s*[=("]', text)
    assert "pw@" not in text
    assert "token" not in text
    assert "https://host.example/hook/" in text


def test_a_page_says_what_it_covers_and_gives_units() -> None:
    """Period, source, when it was made, and the figures as people read them."""
    text = page(shown(), source="/data/log")
    for said in ("2026-07-01 10:00:00 UTC to 2026-07-01 12:00:00 UTC", "/data/log", "Made 2026-07-01", "1,234"):
        assert said in text
    for figure in ("1.25 ms", "40 s", "2 h", "25 %", "parent failed", "not true"):
        assert figure in text
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text


def test_a_page_of_nothing_and_of_a_year() -> None:
    """Nothing accepted is no error; a year of hours makes no more columns than fit."""
    empty = {name: [] for name in ("flow", "queue_hours", "failures", "latencies", "shapes", "queues", "subscribers")}
    empty |= {name: [] for name in ("endpoints", "blame", "letters")}
    assert "None in this time" in page(shown(1, **empty, totals={"letters": None}))
    year = page(shown(24 * 365))
    assert year.count("<rect") < 1_500
    assert len(year) < 400_000


def test_charts_draw_what_they_are_given() -> None:
    """Bars stand on each other and the tallest reaches its tick; a line breaks where there is nothing."""
    bars = charts.bars([Series("a", "c1", [1, 3]), Series("b", "c2", [1, 1])], [], count, ["one", "two"])
    heights = [float(found) for found in re.findall(r'height="([\d.]+)"', bars)]
    assert heights == [50.0, 50.0, 150.0, 50.0]
    assert "<title>two: a 3 · b 1</title>" in bars
    lines = charts.lines([Series("p50", "c1", [10, None, 1_000, 2_000])], [], duration)
    assert lines.count("<polyline") == 2


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "0 µs"),
        (850, "850 µs"),
        (1_250, "1.25 ms"),
        (42e6, "42 s"),
        (3_600e6, "60 min"),
        (12_600e6, "3.50 h"),
        (None, "-"),
    ],
)
def test_durations(us: float | None, text: str) -> None:
    """Three digits and a unit."""
    assert duration(us) == text


def test_counts_shares_and_endpoints() -> None:
    """Counts are exact while they are short; a share of nothing is no number; an endpoint without its secrets."""
    assert [count(one) for one in (0, 9_999, 12_345, 4_560_000)] == ["0", "9,999", "12.3 k", "4.56 M"]
    assert [share(1, 8), share(0, 8), share(1, 0)] == ["12.5 %", "0 %", "-"]
    assert endpoint("consumer:me") == "consumer:me"
    assert endpoint("http://[::1]:80/a?b=c") == "http://[::1]:80/a?…"


def test_tables_have_no_query_of_an_endpoint() -> None:
    """RULES 19: the log has it, what the report writes does not."""
    crm = DeclaredSubscriber(1, 1, "crm", 1, "http://host.example/in?token=s3cret")
    names = SubscriberNames(DeclaredFacts({1: DeclaredQueue("orders", {})}, subscribers={1: crm}))
    assert names.endpoints == {("orders", "crm"): "http://host.example/in?token=***"}
