"""What a node tells Prometheus of its cluster; the alerts ask for nothing else."""

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

pytest.importorskip("nats", reason="needs syncbrok[cluster]")

from syncbrok.cli.serve.cluster_metrics import ClusterFigures, exposition

ALERTS = Path(__file__).parents[3] / "config" / "cluster-alerts.yml"
FIGURES = ClusterFigures(
    leads=True,
    stalled=False,
    epoch=7,
    lease_s=2.5,
    append_s=0.25,
    appended=100,
    found=1,
    not_found=2,
    claims_won=1,
    claims_lost=4,
    fenced=5,
    withheld=3,
    unsynced_records=2,
    confirmations_waiting=4,
    unconfirmed=5,
    lag_records=0,
    lag_s=0.0,
    differing=0,
    mended=0,
    sync_always={"nats://10.0.0.1:4222": True, "nats://10.0.0.2:4222": False},
    stream_bytes=4_096,
    stream_lost=0,
)


def test_every_metric_that_the_alerts_ask_for_is_told() -> None:
    """CLUSTER, Metrics: an alert on a name that nobody tells would never ring."""
    told = {
        sample.name for one in text_string_to_metric_families(exposition(FIGURES).decode()) for sample in one.samples
    }
    asked = set(re.findall(r"syncbrok_cluster_\w+", ALERTS.read_text()))
    assert asked
    assert asked <= told


def test_a_server_that_does_not_fsync_has_a_row_of_its_own() -> None:
    """``syncbrok_cluster_engine_sync_always`` names the server; the stream's size is left out where it is not known."""
    text = exposition(FIGURES._replace(stream_bytes=None)).decode()
    assert 'syncbrok_cluster_engine_sync_always{server="nats://10.0.0.2:4222"} 0\n' in text
    assert "stream_bytes" not in text


def test_the_rest_is_told_by_its_labels() -> None:
    """CLUSTER, Metrics: ``append_unknown_total{found}``, ``claims_total{won}``, and how often the node was fenced."""
    text = exposition(FIGURES).decode()
    for sample in (
        'append_unknown_total{found="true"} 1',
        'append_unknown_total{found="false"} 2',
        'claims_total{won="true"} 1',
        'claims_total{won="false"} 4',
        "fenced_total 5",
        "stream_lost_messages 0",
    ):
        assert f"syncbrok_cluster_{sample}\n" in text
