"""Scenarios in which disks of a cluster are emptied, fill up, fail or rot: a node's, or a server's of the engine."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tests.support.broker.process import ROOT
from tests.support.cluster.broker_nodes import BrokerNode, BrokerNodes
from tests.support.cluster.nats_engine import NatsEngine, NatsServer
from tests.support.cluster.ordeal import ClusterOrdeal
from tests.support.cluster.stream_reader import ask_engine
from tests.support.disk.small_disk import fill, mounted
from tests.support.polling import eventually_blocking

Judged = tuple[str, list[str]]
"""what was done, and what is wrong"""
FULL: Final = 73
REFUSED: Final = 78
FLIPS: Final = 60
_BEGIN_S: Final = 300.0
_FULL_S: Final = 300.0
_REFUSES_S: Final = 90.0
_STALLED: Final = "syncbrok.cluster.stalled"
_LOG_FULL: Final = "syncbrok.space.log_full"


def disk_emptied(directory: Path, seed: int, times: int = 2) -> Judged:
    """A follower comes back without its log, a server of the engine without its stream; both have all of it again
    before another one of its kind is killed."""
    with ClusterOrdeal(directory, seed) as cluster:
        for _ in range(times):
            cluster.storm()
            eventually_blocking(
                cluster.level_nearly, lambda: f"there is something to lose; {cluster.nodes.said()}", _BEGIN_S
            )
            leader = cluster.leader()
            follower = cluster.followers()[0]
            with cluster.down(follower):
                follower.kill()
                shutil.rmtree(follower.storage)
                cluster.done["followers emptied"] += 1
                cluster.storm(30)
            eventually_blocking(cluster.level_nearly, lambda: f"it has all; {cluster.nodes.said()}", _BEGIN_S)
            leader.kill()
            cluster.storm()
            server = cluster.chance.choice(cluster.engine.servers)
            server.kill()
            server.lose_disk()
            server.start()
            cluster.done["servers emptied"] += 1
            eventually_blocking(lambda: _replicas_current(cluster), "the stream has three replicas", _BEGIN_S)
            next(one for one in cluster.engine.servers if one is not server).kill()
            cluster.storm()
            cluster.heal()
        return cluster.judged()


def _replicas_current(cluster: ClusterOrdeal) -> bool:
    try:
        told = ask_engine(
            [one.server.url for one in cluster.engine.servers if one.process is not None],
            f"STREAM.INFO.SB_{cluster.nodes.space}",
        )
    except Exception:  # noqa: BLE001 (of nats-py: nobody answers yet)
        return False
    of_cluster = told.get("cluster", {})
    replicas = of_cluster.get("replicas", ())
    return bool(of_cluster.get("leader")) and len(replicas) == 2 and all(one["current"] for one in replicas)


def engine_emptied(directory: Path, seed: int) -> Judged:
    """All servers lose their disks: every node refuses to start; the longest log is put into a new stream, and nothing
    that was acknowledged is lost."""
    with ClusterOrdeal(directory, seed) as cluster:
        cluster.may_end.add(REFUSED)
        wrong = []
        for _ in range(2):
            cluster.storm(100)
            with _all_nodes_down(cluster):
                for server in cluster.engine.servers:
                    server.kill()
                    server.lose_disk()
                cluster.engine.start()
                wrong += [f"{node.name} did not refuse" for node in cluster.nodes.nodes if not _refuses(node)]
                wrong += _reseed(cluster)
                cluster.done["engines emptied"] += 1
            cluster.storm(100)
        told, found = cluster.judged()
        return told, wrong + found


def stream_truncated(directory: Path, seed: int) -> Judged:
    """The engine comes back with an older state of its disks: who has more refuses; then as above."""
    with ClusterOrdeal(directory, seed) as cluster:
        cluster.may_end.add(REFUSED)
        cluster.storm(100)
        for server in cluster.engine.servers:
            server.pause(paused=True)
        for server in cluster.engine.servers:
            shutil.copytree(server.store, directory / f"old-{server.name}")
        for server in cluster.engine.servers:
            server.pause(paused=False)
        cluster.storm(100)
        with _all_nodes_down(cluster):
            for server in cluster.engine.servers:
                server.kill()
                server.lose_disk()
                shutil.copytree(directory / f"old-{server.name}", server.store)
            cluster.engine.start()
            refused = [node for node in cluster.nodes.nodes if _refuses(node)]
            said = [node.name for node in refused if "the engine has lost its end" in node.output()]
            cluster.done["nodes that refused a shorter stream"] += len(said)
            wrong = [] if said else ["no node refused a stream that had lost its end"]
            for node in cluster.nodes.nodes:
                if node.runs:
                    node.kill()
            for server in cluster.engine.servers:
                server.kill()
                server.lose_disk()
            cluster.engine.start()
            wrong += _reseed(cluster)
        cluster.storm(100)
        told, found = cluster.judged()
        return told, wrong + found


@contextmanager
def _all_nodes_down(cluster: ClusterOrdeal) -> Iterator[None]:
    """Inside all are killed, and nobody starts them."""
    with ExitStack() as down:
        for node in cluster.nodes.nodes:
            down.enter_context(cluster.down(node))
        for node in cluster.nodes.nodes:
            if node.runs:
                node.kill()
        yield


def _refuses(node: BrokerNode) -> bool:
    """Whether it ends with 78 by itself; else it runs."""
    node.launch()
    try:
        return node.process.wait(_REFUSES_S) == REFUSED
    except subprocess.TimeoutExpired:
        return False


def _reseed(cluster: ClusterOrdeal) -> list[str]:
    """As an operator does: a log that is not the longest is refused, and named."""
    wrong = []
    for node in cluster.nodes.nodes:
        others = [("--compare", str(one.storage)) for one in cluster.nodes.nodes if one is not node]
        config = node.storage.parent / f"{node.name}--config.yml"
        command = ("cluster", "reseed", "--config", str(config), "--from", str(node.storage))
        ran = subprocess.run(
            [sys.executable, "-m", "syncbrok", *command, *(word for other in others for word in other)],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if ran.returncode == 0:
            return []
        if "take that one" not in ran.stderr:
            wrong.append(f"reseed from {node.name} ended with {ran.returncode}: {ran.stderr[-500:]}")
    return [*wrong, "no log was taken"]


def disk_full(directory: Path, seed: int) -> Judged:
    """One node's disk has 4 MiB and is filled while it follows, which it stops until there is room, and while it
    leads."""
    with mounted(directory / "a") as disk:
        if disk is None:
            return "no small disk: only root may mount one", []
        more = "storage: {segment: 64KiB, reserve: 128KiB}\n"
        filler = disk / "filler"
        with ClusterOrdeal(directory, seed, more=more) as cluster:
            cluster.may_end.add(FULL)
            node = cluster.nodes.nodes[0]
            for number in range(3):
                cluster.storm()
                if cluster.leader() is not node:
                    stalled = _said(node, _STALLED)
                    fill(filler)
                    eventually_blocking(
                        lambda stalled=stalled: _said(node, _STALLED) > stalled, cluster.nodes.said, _FULL_S
                    )
                    cluster.done["followers that stalled without room"] += 1
                    cluster.storm()
                    filler.unlink()
                eventually_blocking(cluster.level_nearly, lambda: f"it follows; {cluster.nodes.said()}", _BEGIN_S)
                cluster.lead(node)
                cluster.storm()
                said = _said(node, _LOG_FULL)
                fill(filler)
                eventually_blocking(lambda said=said: _said(node, _LOG_FULL) > said, cluster.nodes.said, _FULL_S)
                cluster.done["leaders without room"] += 1
                if number == 1:
                    node.kill()
                    cluster.storm()
                filler.unlink()
                cluster.storm()
            return cluster.judged()


def _said(node: BrokerNode, event: str) -> int:
    """How often."""
    return node.output().count(event)


def fsync_fails(directory: Path, seed: int) -> Judged:
    """Every fsync of one server of the engine fails from some moment on; every write of another one to its files."""
    with ClusterOrdeal(directory, seed) as cluster:
        for call in ("fsync", "pwrite64"):
            cluster.storm()
            server = cluster.engine_leader()
            trace = directory / f"{server.name}.{call}"
            server.kill()
            inject = f"inject={call}:error=EIO:when=20+"  # counted by thread
            server.before = ("strace", "-D", "-f", "-qq", "-o", str(trace), "-e", f"trace={call}", "-e", inject)
            try:
                server.start()
            except FileNotFoundError:
                return "no strace here", []
            cluster.storm(200)
            said = trace.read_text(errors="replace").count("INJECTED") if trace.exists() else 0
            cluster.done[f"{call} failed"] += said
            server.kill()
            server.before = ()
            server.start()
            cluster.storm()
        return cluster.judged()


def bits_flip(directory: Path, seed: int, times: int = 3) -> Judged:
    """Bits turn in the files of one server of the engine while it is down; of the next one not before the stream has
    three replicas again: two damaged ones are a majority, and make of the third one's stream an orphan."""
    with ClusterOrdeal(directory, seed) as cluster:
        for _ in range(times):
            cluster.storm(150)
            server = cluster.chance.choice(cluster.engine.servers)
            server.kill()
            cluster.done["bits turned"] += _flip(server, cluster)
            server.start()
            cluster.done["servers with them"] += 1
            cluster.storm(100)
            follower = cluster.followers()[0]
            follower.kill()
            cluster.storm(50)
            eventually_blocking(lambda: _replicas_current(cluster), "the stream has three replicas", _BEGIN_S)
        return cluster.judged()


def _flip(server: NatsServer, cluster: ClusterOrdeal) -> int:
    """In files of messages and of the engine's own log; how many."""
    files = [path for path in server.store.rglob("*.blk") if path.stat().st_size]
    for _ in range(FLIPS):
        path = cluster.chance.choice(files)
        with path.open("r+b") as file:
            at = cluster.chance.randrange(path.stat().st_size)
            file.seek(at)
            turned = file.read(1)[0] ^ 1 << cluster.chance.randrange(8)
            file.seek(at)
            file.write(bytes([turned]))
    return FLIPS


def engine_unfit(directory: Path, seed: int) -> Judged:
    """An engine that keeps less than it should, or a stream that somebody has changed: no node starts."""
    del seed
    wrong, done = [], 0
    with NatsEngine(directory / "lazy", sync='"2m"') as lazy:
        wrong += _unfit(directory / "of-lazy", lazy, {}, "sync_interval: always")
        done += 1
    changes: dict[str, dict[str, object]] = {
        "replicas is 1": {"num_replicas": 1},
        "discard is": {"discard": "old", "max_msgs": 100},
        "allow_direct is": {"allow_direct": False},
        "subjects is": {"subjects": ["sb.SPACE.log", "sb.SPACE.more"]},
    }
    with NatsEngine(directory / "engine") as engine:
        for said, change in changes.items():
            wrong += _unfit(directory / f"of-{done}", engine, change, said)
            done += 1
    return f"{done} engines that are unfit", wrong


def _unfit(directory: Path, engine: NatsEngine, change: dict[str, object], said: str) -> list[str]:
    directory.mkdir()
    nodes = BrokerNodes(directory, engine.addresses)
    nodes.bear()
    urls = [one.server.url for one in engine.servers]
    if change:
        stream = f"SB_{nodes.space}"
        config = ask_engine(urls, f"STREAM.INFO.{stream}")["config"] | change
        if "subjects" in change:
            config["subjects"] = [one.replace("SPACE", nodes.space) for one in config["subjects"]]
        answer = ask_engine(urls, f"STREAM.UPDATE.{stream}", json.dumps(config).encode())
        assert "error" not in answer, answer
    node = nodes.nodes[0]
    try:
        if not _refuses(node):
            return [f"an engine where {said} was taken: {node.output()[-500:]}"]
        return [] if said in node.output() else [f"not said that {said}: {node.output()[-500:]}"]
    finally:
        node.__exit__()


SCENARIOS: Final[dict[str, Callable[[Path, int], Judged]]] = {
    "engine emptied": engine_emptied,
    "stream truncated": stream_truncated,
    "disk emptied": disk_emptied,
    "engine unfit": engine_unfit,
    "disk full": disk_full,
    "fsync fails": fsync_fails,
    "bits flip": bits_flip,
}
