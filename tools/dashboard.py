"""Writes the Grafana dashboard, config/grafana-dashboard.json: ``python -m tools.dashboard`` (``make docs``).

A dashboard is mostly repetition; here a panel is one line. ``tests/whole/test_deployment.py`` checks that the file is
up to date and that the broker really shows every metric it names.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

TARGET = Path(__file__).parents[1] / "config" / "grafana-dashboard.json"
SOURCE = {"type": "prometheus", "uid": "${source}"}


class Panel(NamedTuple):
    """``queries`` are (PromQL, legend). ``kind`` is ``timeseries`` or ``stat``; ``unit`` as Grafana names it."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    kind: str = "timeseries"


def quantile(share: float, histogram: str = "syncbrok_commit_seconds", by: str = "le") -> str:
    return f"histogram_quantile({share}, sum by ({by}) (rate({histogram}_bucket[$__rate_interval])))"


PANELS = (
    Panel("Ready", "none", (("syncbrok_ready", "ready"),), "stat"),
    Panel("Messages waiting", "short", (("syncbrok_waiting_messages", "waiting"),), "stat"),
    Panel("Dead letters", "short", (("syncbrok_dead_letters", "dead letters"),), "stat"),
    Panel("Log", "bytes", (("syncbrok_log_bytes", "on disk"),), "stat"),
    Panel("Accepted", "cps", (("rate(syncbrok_queue_accepted_total[$__rate_interval])", "{{queue}}"),)),
    Panel(
        "Attempts",
        "cps",
        (
            ("rate(syncbrok_delivered_total[$__rate_interval])", "acknowledged"),
            ("rate(syncbrok_failed_total[$__rate_interval])", "failed"),
            ("rate(syncbrok_dead_total[$__rate_interval])", "dead letters"),
        ),
    ),
    Panel("Waiting, by queue", "short", (("syncbrok_queue_waiting", "{{queue}}"),)),
    Panel("Age of the oldest, by queue", "s", (("syncbrok_queue_oldest_age_seconds > 0", "{{queue}}"),)),
    Panel(
        "From acceptance to delivery, p99 by queue",
        "s",
        ((quantile(0.99, "syncbrok_queue_latency_seconds", "queue, le"), "{{queue}}"),),
    ),
    Panel("Backlog, by subscriber", "short", (("syncbrok_subscriber_backlog", "{{queue}} / {{subscriber}}"),)),
    Panel("Failing for", "s", (("syncbrok_subscriber_failing_seconds > 0", "{{queue}} / {{subscriber}}"),)),
    Panel(
        "In flight and between attempts",
        "short",
        (("syncbrok_in_flight", "in flight"), ("syncbrok_retrying", "between attempts")),
    ),
    Panel("Commit: write and fsync", "s", tuple((quantile(q), f"p{100 * q:g}") for q in (0.5, 0.99, 0.999))),
    Panel(
        "Records of a commit",
        "short",
        (
            (
                (
                    "rate(syncbrok_log_records_written_total[$__rate_interval])"
                    " / rate(syncbrok_commit_seconds_count[$__rate_interval])"
                ),
                "records",
            ),
        ),
    ),
    Panel("HTTP answers", "cps", (("rate(syncbrok_http_answers_total[$__rate_interval])", "{{status}}"),)),
    Panel("Processor", "percentunit", (("rate(process_cpu_seconds_total[$__rate_interval])", "of one core"),)),
    Panel("Memory", "bytes", (("process_resident_memory_bytes", "resident"),)),
    Panel("Open files", "short", (("process_open_fds", "open"),)),
    Panel("Event loop late by", "s", ((quantile(0.99, "syncbrok_loop_lag_seconds"), "p99"),)),
    Panel("Taken of what is shared", "percentunit", (("syncbrok_budget_used / syncbrok_budget_total", "{{budget}}"),)),
)


def dashboard() -> str:
    """The file's text: four small figures in the first row, then two panels a row."""
    stats = [panel for panel in PANELS if panel.kind == "stat"]
    series = [panel for panel in PANELS if panel.kind != "stat"]
    placed = [_panel(panel, 6 * place, 0, 6, 4) for place, panel in enumerate(stats)]
    placed += [_panel(panel, 12 * (place % 2), 4 + 8 * (place // 2), 12, 8) for place, panel in enumerate(series)]
    whole = {
        "title": "Syncbrok",
        "uid": "syncbrok",
        "schemaVersion": 39,
        "tags": ["syncbrok"],
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "templating": {
            "list": [{"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"}]
        },
        "panels": [{"id": number, **panel} for number, panel in enumerate(placed, 1)],
    }
    return json.dumps(whole, indent=1) + "\n"


def _panel(panel: Panel, x: int, y: int, width: int, height: int) -> dict[str, Any]:
    return {
        "type": panel.kind,
        "title": panel.title,
        "datasource": SOURCE,
        "gridPos": {"x": x, "y": y, "w": width, "h": height},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + place), "datasource": SOURCE, "expr": query, "legendFormat": legend}
            for place, (query, legend) in enumerate(panel.queries)
        ],
    }


if __name__ == "__main__":
    TARGET.write_text(dashboard())
