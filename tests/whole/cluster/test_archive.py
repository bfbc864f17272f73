"""Archives of a cluster (CLUSTER, ``note``): a job beside any node tells all of them what retention may drop; the
broker's own copies are made by whoever leads. Three real brokers, a real engine, real jobs on Spark.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("nats", reason="needs syncbrok[cluster]")

from syncbrok.log.segments import retention
from syncbrok.log.segments.sealed_segments import sealed_segments
from tests.support.broker.process import ROOT
from tests.support.cluster.broker_trio import BrokerTrio
from tests.support.crash.traffic import verified
from tests.support.polling import eventually_blocking

pytestmark = pytest.mark.slow
CONTENT = bytes(range(256)) * 200
_RETENTION_S = 150.0
"""it looks once a minute"""


def publish(trio: BrokerTrio, count: int) -> None:
    leader = trio.brokers[trio.leader()]
    for number in range(count):
        assert leader.request("POST", "/v1/queues/q/messages", CONTENT + b"%d" % number).status == 201


def marked(trio: BrokerTrio, name: str) -> list[str]:
    """The lines of a node's file, in the order of the log."""
    return sorted(map(retention.line_of, retention.copies(trio.brokers[name].storage)))


def noted(trio: BrokerTrio, name: str) -> set[int]:
    """The first sequences of segments that the node knows to be archived."""
    return {int(one.name[:20]) for one in retention.copies(trio.brokers[name].storage)}


def begun(path: Path, more: str) -> Iterator[BrokerTrio]:
    with BrokerTrio(path, f"storage: {{segment: 128KiB, retention: 1s, {more}}}\n") as running:
        leader = running.brokers[running.leader()]
        assert leader.request("POST", "/v1/queues", {"name": "q"}).status == 201
        yield running


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[BrokerTrio]:
    yield from begun(tmp_path, "archive: pipeline")


@pytest.fixture
def copying(tmp_path: Path) -> Iterator[BrokerTrio]:
    yield from begun(tmp_path, f"archive: {tmp_path / 'archive'}")


def job(trio: BrokerTrio, name: str, out: Path) -> "subprocess.CompletedProcess[str]":
    """``syncbrok pipeline archive`` beside a node."""
    storage = trio.brokers[name].storage
    config = storage.parent / f"{storage.name}--config.yml"
    command = [sys.executable, "-m", "syncbrok", "pipeline", "archive", "-q", "--storage", str(storage)]
    return subprocess.run(
        [*command, "--config", str(config), "--out", str(out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def firsts(trio: BrokerTrio, name: str) -> set[int]:
    return {one.first for one in sealed_segments(trio.brokers[name].storage)}


def are_dropped(trio: BrokerTrio, gone: set[int]) -> None:
    """Every node that runs has dropped these, and no other."""
    running = [name for name, one in trio.brokers.items() if one.process.poll() is None]
    eventually_blocking(
        lambda: all(not gone & firsts(trio, name) for name in running),
        lambda: f"{gone} are dropped: { ({name: firsts(trio, name) for name in running}) }",
        _RETENTION_S,
    )


def caught_up(trio: BrokerTrio, name: str) -> bool:
    lags = {one["node"]: one["lag_records"] for one in trio.status(name)["nodes"]}
    return len(lags) == len(trio.brokers) and not any(lags.values())


def test_a_job_beside_any_node_lets_all_of_them_drop(trio: BrokerTrio, tmp_path: Path) -> None:
    """The job beside a follower; then the leader is killed, and the job runs beside the one that leads now; a node that
    has lost its disk, and the one that was killed, know what the others know. Nothing goes that was not archived."""
    out = tmp_path / "out"
    publish(trio, 12)
    follower = trio.followers()[0]
    eventually_blocking(lambda: caught_up(trio, follower), "they have all of it")
    archived = firsts(trio, follower)
    done = job(trio, follower, out)
    assert done.returncode == 0, done.stderr
    assert noted(trio, trio.leader()) == archived
    for name in trio.brokers:
        eventually_blocking(lambda name=name: noted(trio, name) == archived, f"{name} has all lines")
        assert marked(trio, name) == marked(trio, trio.leader())
    are_dropped(trio, archived)

    killed = trio.leader()
    trio.brokers[killed].kill()
    leader = trio.leader()
    publish(trio, 12)
    more = firsts(trio, leader)
    assert more
    lost = next(name for name in trio.followers() if name != killed)
    trio.brokers[lost].kill()
    shutil.rmtree(trio.brokers[lost].storage)
    done = job(trio, leader, out)
    assert done.returncode == 0, done.stderr
    new = noted(trio, leader) - archived
    assert new >= more
    for name in (killed, lost):
        trio.brokers[name].start(150)
        eventually_blocking(
            lambda name=name: firsts(trio, name) <= noted(trio, name) | firsts(trio, leader) - new,
            lambda name=name: f"{name} has what it needs: {marked(trio, name)}, {marked(trio, leader)}",
        )
    are_dropped(trio, more)
    for one in trio.brokers.values():
        assert verified(one.storage) == []


def test_without_a_leader_the_archive_is_kept_and_noted_later(trio: BrokerTrio, tmp_path: Path) -> None:
    """The engine has lost its majority: the job says who did not answer and what to do, and ends with 1; nothing is
    dropped. Once somebody leads the next run notes what is archived. Without the configuration of the node it is told
    to give it; a line of another log is refused."""
    publish(trio, 12)
    follower = trio.followers()[0]
    storage = trio.brokers[follower].storage
    alone = [sys.executable, "-m", "syncbrok", "pipeline", "archive", "--storage", str(storage), "--out", "x"]
    here = {"cwd": tmp_path, "env": {"PYTHONPATH": str(ROOT)}}
    done = subprocess.run(alone, capture_output=True, text=True, check=False, **here)
    assert (done.returncode, "--config FILE names it" in done.stderr) == (2, True), done.stderr
    leader = trio.brokers[trio.leader()]
    log = leader.request("GET", "/v1/log/archived").json()["log"]
    for body, status in (({"log": "00", "lines": []}, 409), ({"log": log, "lines": ["x"]}, 400)):
        assert leader.request("POST", "/v1/log/archived", body).status == status
    for one in trio.brokers.values():
        if one.name != follower:
            one.kill()
    trio.brokers[follower].kill()
    trio.brokers[follower].launch()
    trio.engine.servers[0].kill()
    trio.engine.servers[1].kill()
    done = job(trio, follower, tmp_path / "out")
    assert done.returncode == 1, done.stderr
    assert "run this again once a node of the cluster leads" in done.stderr
    assert "Traceback" not in done.stderr
    assert marked(trio, follower) == []


def test_the_leader_copies_and_the_next_one_goes_on(copying: BrokerTrio, tmp_path: Path) -> None:
    """``archive: DIR``, shared by all: each segment stands there once, byte for byte as on the nodes, and each node has
    one line for it, over the death of a leader; followers have copied nothing."""
    trio, archive = copying, tmp_path / "archive"
    publish(trio, 12)
    before = firsts(trio, trio.leader())
    are_dropped(trio, before)
    trio.brokers[trio.leader()].kill()
    publish(trio, 12)
    after = firsts(trio, trio.leader())
    are_dropped(trio, after)
    copied = {int(path.stem) for path in archive.iterdir() if path.suffix == ".log"}
    assert copied >= before | after
    assert min(copied) == 1
    ends = {one.last + 1 for one in sealed_segments(archive)}
    assert copied - ends == {1}  # without a gap
    for name, broker in trio.brokers.items():
        if broker.process.poll() is not None:
            continue  # of what was dropped while it was away it need not know
        eventually_blocking(lambda name=name: copied <= noted(trio, name), f"{name} has all lines")
        assert len(noted(trio, name)) == len(marked(trio, name))
    assert not [path for path in archive.iterdir() if path.suffix == ".tmp"]
