"""The alerts of ``config/`` at a real Prometheus (``python -m tests.soak --what alerts`` tries all of them)."""

import re
import time
from pathlib import Path

import pytest

from syncbrok.space import meters
from tests.support.alerts.bad_states import BAD_STATES, declared, injected, strace_is_missing, tried
from tests.support.alerts.prometheus import ALERTS, Prometheus, names, shortened
from tests.support.alerts.watching import watch
from tests.support.broker.process import BrokerProcess
from tests.support.disk import bad_disk
from tests.support.polling import eventually_blocking


@pytest.mark.skipif(Prometheus.command is None, reason="no prometheus on this machine")
def test_alerts_fire_in_the_bad_state_that_they_are_for(tmp_path: Path) -> None:
    """RULES 14, 15 and 29, INTERFACES 3: a real Prometheus fires for real brokers in bad states, and for none that is
    well: an endpoint that hangs, the first 500, a subscriber that was paused when all had been tried."""
    seen = watch(tmp_path, ["breaker open", "faults", "paused after a failure"])
    assert seen.wrong == []
    assert len(seen.after_s) == 3


def pass_s(seconds: float) -> None:
    """Let the time pass between two scrapes."""
    until_s = time.monotonic() + seconds
    eventually_blocking(lambda: time.monotonic() > until_s, f"{seconds} s pass")


@pytest.mark.skipif(bool(strace_is_missing()), reason=strace_is_missing())
def test_a_broker_whose_log_has_failed_is_scraped_once_more(broker: BrokerProcess) -> None:
    """INTERFACES 3: who scrapes sees ``syncbrok_log_failed`` before the broker ends with 74."""
    declared(broker, "http://127.0.0.1:1/", paused=True)
    with injected(broker, "error=EIO"):
        broker.request("GET", "/metrics")
        pass_s(4.0)
        broker.request("GET", "/metrics")
        assert tried(broker) in (0, 503)
        pass_s(1.0)
        assert "syncbrok_log_failed 1.0" in broker.request("GET", "/metrics").body.decode()
        assert broker.process.wait(30.0) == bad_disk.FAILED


def test_each_alert_has_a_bad_state_in_which_it_is_seen() -> None:
    """Nobody adds an alert that has not been seen to fire."""
    assert {state.alert for state in BAD_STATES.values()} == set(names(ALERTS.read_text()))


def test_times_are_shortened_and_nothing_else() -> None:
    """The alerts that are seen to fire are those of the file: only numbers differ, those of seconds."""
    text = ALERTS.read_text()
    numbers = re.compile(r"\d[\d.e]*( \* \d+)?[smhd]?")
    assert numbers.sub("N", shortened(text)) == numbers.sub("N", text)


@pytest.mark.parametrize("metric", ["commit_seconds", "loop_lag_seconds", "queue_latency_seconds"])
def test_a_histogram_can_show_what_its_alert_asks_for(metric: str) -> None:
    """A quantile is never more than the last bound of a histogram: there is one above each threshold."""
    bounds = {
        "commit_seconds": meters.COMMIT_BOUNDS_S,
        "loop_lag_seconds": meters.LAG_BOUNDS_S,
        "queue_latency_seconds": meters.LATENCY_BOUNDS_S,
    }
    (threshold,) = re.findall(rf"syncbrok_{metric}_bucket.* > ([\d.]+)$", ALERTS.read_text(), re.MULTILINE)
    assert bounds[metric][-1] > 2 * float(threshold)
