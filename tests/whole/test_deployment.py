"""The files for machines around the broker (Prometheus, Grafana, systemd) name things that exist."""

import re
from pathlib import Path

import pytest
import yaml

from syncbrok.cluster.local_cluster import STAYS_DOWN
from syncbrok.model import errors, limits
from tests.support.broker.process import BrokerProcess
from tests.whole.test_tidy import ROOT
from tools.dashboard import TARGET, dashboard

CONFIG = ROOT / "config"


def test_the_dashboard_is_up_to_date() -> None:
    """The dashboard in config/ is the one tools/dashboard.py writes."""
    assert TARGET.read_text() == dashboard(), "run: make docs"


@pytest.mark.parametrize("file", [CONFIG / "alerts.yml", TARGET], ids=lambda path: path.name)
def test_every_metric_named_is_shown(broker: BrokerProcess, file: Path) -> None:
    """An alert on a metric that does not exist never fires: all that alerts and dashboard name is in /metrics."""
    broker.request("POST", "/v1/queues", {"name": "orders"})
    broker.request("POST", "/v1/queues/orders/subscribers", {"endpoint": "http://127.0.0.1:1/", "paused": True})
    broker.request("PUT", "/v1/log/readers/warehouse", {})
    shown = set(re.findall(r"^(\w+)[{ ]", broker.request("GET", "/metrics").body.decode(), re.MULTILINE))
    named = set(re.findall(r"\b(?:syncbrok|process)_[a-z_]+\b", file.read_text()))
    assert len(named) > 8
    assert not named - shown


@pytest.mark.parametrize("name", ["alerts.yml", "cluster-alerts.yml"])
def test_alerts_say_what_to_do(name: str) -> None:
    """Whoever is woken by an alert reads in it what is wrong and what to do."""
    rules = yaml.safe_load((CONFIG / name).read_text())["groups"][0]["rules"]
    for rule in rules:
        assert set(rule["annotations"]) == {"summary", "action"}, rule["alert"]
        assert rule["labels"]["severity"] in {"page", "ticket"}, rule["alert"]


def test_systemd_does_not_restart_what_only_a_person_can_mend() -> None:
    """A damaged log, a log in use and a bad configuration stay down; a failed disk write is tried by a fresh start."""
    unit = (CONFIG / "syncbrok.service").read_text()
    stays_down = {int(code) for code in re.search(r"^RestartPreventExitStatus=(.*)$", unit, re.MULTILINE)[1].split()}
    assert stays_down == {kind.exit_code for kind in (errors.BadConfig, errors.LogCorrupt, errors.LogLocked)}


def test_systemd_starts_a_fenced_node_again_and_no_refused_one() -> None:
    """A node of a cluster that was fenced or has given way comes back as a follower; one that is refused stays down,
    as the supervisor of `make cluster` has it."""
    unit = (CONFIG / "syncbrok-node.conf").read_text()
    assert re.search(r"^Restart=always$", unit, re.MULTILINE)
    stays_down = re.search(r"^RestartPreventExitStatus=(.*)$", unit, re.MULTILINE)[1].split()
    assert {int(code) for code in stays_down} == STAYS_DOWN


def test_systemd_waits_for_the_drain() -> None:
    """The unit's stop timeout is longer than the broker's drain, so that a stop ends clean."""
    unit = (CONFIG / "syncbrok.service").read_text()
    assert int(re.search(r"^TimeoutStopSec=(\d+)s$", unit, re.MULTILINE)[1]) > limits.drain_timeout_s
