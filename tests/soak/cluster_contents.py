"""Scenarios about what is in the log at a takeover: batches in pieces, segments that begin and go, secrets, consumers
of all kinds, very many that wait; and clocks that are wrong."""

import itertools
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

from tests.cluster.test_election import World
from tests.support.broker.process import request
from tests.support.cluster.broker_nodes import BrokerNode
from tests.support.cluster.broker_trio import BrokerTrio
from tests.support.cluster.erasure import CONFIG, erase, fill, holding, is_gone_everywhere, publish
from tests.support.cluster.judge import Published, digest
from tests.support.cluster.ordeal import ClusterOrdeal
from tests.support.cluster.stream_reader import watched
from tests.support.cluster.under_everything import everything_asked
from tests.support.http.webhook_receiver import CLOSING
from tests.support.polling import eventually_blocking

Judged = tuple[str, list[str]]
"""what was done, and what is wrong"""
MANY: Final = 100_000
_LINES: Final = 1_000
_LARGE_LINES, _LARGE_BYTES = 50, 200_000
_STEPS: Final = 1_000_000
_KEPT_S: Final = 30
_DELIVER_S: Final = 900.0
_BEGIN_S: Final = 300.0


def batch_in_pieces(directory: Path, seed: int, times: int = 6) -> Judged:
    """A batch of 10 MB goes into the stream in three pieces; the leader is killed between two of them."""
    with ClusterOrdeal(directory, seed, publishers=2) as cluster:
        for number in range(times):
            cluster.storm(20)
            cluster.leader()
            pids = {node.name: node.process.pid for node in cluster.nodes.nodes}
            struck: list[str] = []

            def strike(headers: dict[str, str], number: int = number, struck: list[str] = struck) -> None:
                if not struck and headers.get("Sb-Piece", "") == f"{number % 2 + 1}/3":
                    name = headers["Sb-N"].partition(".")[0]  # who appends it
                    struck.append(name)
                    os.kill(pids[name], signal.SIGKILL)  # noqa: B023

            urls = [one.server.url for one in cluster.engine.servers]
            with watched(cluster.nodes.space, urls, strike):
                lines = [f"{number}.{line} ".ljust(_LARGE_BYTES, "x") for line in range(_LARGE_LINES)]
                publish_batch(cluster, "customers", lines, f"large-{number}")
            cluster.done["batches"] += 1
            cluster.done["kills between two pieces"] += len(struck)
        return cluster.judged()


def publish_batch(
    cluster: ClusterOrdeal, queue: str, contents: list[str], name: str, parents: list[list[str]] | None = None
) -> list[str]:
    """The ids, once there is an answer; asked for again with its keys until then."""
    lines: list[dict[str, Any]] = [
        {"content": content, "idempotency_key": f"{name}-{at}"} for at, content in enumerate(contents)
    ]
    for line, its in zip(lines, parents or (), strict=False):
        line["parents"] = its
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    path, headers = f"/v1/queues/{queue}/messages:batch", {"Content-Type": "application/x-ndjson"}
    sent_ns = time.monotonic_ns()

    def answered() -> Any:
        try:
            reply = cluster.nodes.request("POST", path, body, headers)
        except OSError:
            return None
        assert reply.status in (200, 201, 429, 503, 507), reply
        return reply if reply.status < 300 else None

    reply = eventually_blocking(answered, lambda: f"a batch is accepted; {cluster.nodes.said()}", _BEGIN_S)
    ids: list[str] = reply.json()["ids"]
    leader = reply.headers.get("Syncbrok-Leader", "")
    node = next((one.name for one in cluster.nodes.nodes if one.advertised == leader), "")
    for at, (id_, content) in enumerate(zip(ids, contents, strict=True)):
        above = tuple(parents[at]) if parents else ()
        what = digest(content.encode())
        one = (f"{name}-{at}", id_, queue, above, what, node, reply.status, sent_ns, time.monotonic_ns())
        cluster.ledger.add(Published(*one))
    return ids


def segments_go(directory: Path, seed: int, times: int = 8) -> Judged:
    """Small segments that are kept for half a minute: they begin and go, and the leader is killed all along."""
    more = f"storage: {{segment: 64KiB, retention: {_KEPT_S}s}}\n"
    with ClusterOrdeal(directory, seed, more=more, size_max=2_000) as cluster:
        for _ in range(times):
            cluster.storm(150)
            leader = cluster.leader()
            with cluster.gap("kills of the leader"):
                leader.kill()
            cluster.pause_s(3.0)
        told, wrong = cluster.judged()
        kinds = [one.kind for one in cluster.stream]
        gone = max(int(name.partition(".")[0]) for logs in cluster.logs().values() for name in logs)
        begun, dropped = kinds.count("roll"), kinds.count("drop")
        wrong += [] if begun and dropped else [f"nothing was tried: {begun} segments begun, {dropped} gone"]
        return f"{told}, {begun} segments begun and {dropped} gone in what is left of the stream, up to {gone}", wrong


def secrets_rotated(directory: Path, seed: int, times: int = 5) -> Judged:
    """A secret is rotated, then the leader dies: everything after that is signed with both."""
    with ClusterOrdeal(directory, seed) as cluster:
        path = f"/v1/queues/customers/subscribers/{CLOSING}/rotate-secret"
        wrong, signed = [], 0
        for number in range(times):
            cluster.storm(30)
            assert cluster.nodes.request("POST", path, {}).status == 200
            cluster.done["rotations"] += 1
            rotated_ns = time.monotonic_ns()
            cluster.leader().kill()
            cluster.storm(60)
            # The very first secret has none before it.
            after = [row for row in cluster.receiver.rows() if row[0] == CLOSING and int(row[3]) > rotated_ns]
            alone = [row for row in after if int(row[7]) < min(2, number + 1)]
            signed += len(after)
            wrong += [f"{len(alone)} of {len(after)} lack a signature after rotation {number + 1}"] if alone else []
        told, found = cluster.judged()
        return f"{told}, {signed} signed after a rotation", wrong + found


def all_kinds_of_consumers(directory: Path, seed: int) -> Judged:
    """Everything that a broker can be asked (``everything_traffic``), of a cluster whose leader is killed: scopes,
    keys, delays, a group that pulls, one on a WebSocket, consumers of two formats over TCP."""
    return everything_asked(directory, seed, kills=4)


def very_many_wait(directory: Path, seed: int, many: int = MANY) -> Judged:
    """They wait for one parent at a subscriber that is paused; the leader is killed, it goes on, the next one is killed
    while they go out; then all are replayed, and the one after that is killed."""
    with ClusterOrdeal(directory, seed, publishers=2, settle_s=_DELIVER_S) as cluster:
        nodes, name = cluster.nodes, "bulk"
        nodes.request("POST", "/v1/queues", {"name": name, "retry": ["50ms", *["1s"] * 14]})
        subscriber = {"name": name, "endpoint": cluster.receiver.url(name), "paused": True}
        assert nodes.request("POST", f"/v1/queues/{name}/subscribers", subscriber).status == 201
        cluster.subscribers[name] = (name,)
        (root,) = publish_batch(cluster, name, ["the parent of all"], "root")
        for batch in range(many // _LINES):
            contents = [f"child {batch}.{line}" for line in range(_LINES)]
            publish_batch(cluster, name, contents, f"bulk-{batch}", [[root]] * _LINES)
        with cluster.gap(f"kills with {many} waiting"):
            cluster.leader().kill()
        path = f"/v1/queues/{name}/subscribers/{name}"
        eventually_blocking(lambda: _done(cluster, "PATCH", path, {"paused": False}), "it goes on", _BEGIN_S)
        eventually_blocking(lambda: cluster.receiver.count(name) > many // 4, "a quarter has gone out", _DELIVER_S)
        with cluster.gap("kills while they go out"):
            cluster.leader().kill()
        eventually_blocking(lambda: _all_had(cluster, name, many), nodes.said, _DELIVER_S)
        asking = threading.Thread(target=_replay, args=(cluster, root), daemon=True)
        asking.start()
        eventually_blocking(lambda: len(cluster.receiver.replayed()) > many // 10, nodes.said, _DELIVER_S)
        with cluster.gap("kills while they are replayed"):
            cluster.leader().kill()
        asking.join(_DELIVER_S)
        eventually_blocking(lambda: len(cluster.receiver.replayed()) > many, nodes.said, _DELIVER_S)
        told, wrong = cluster.judged()
        return f"{told}, {len(cluster.receiver.replayed())} replayed", wrong


def _replay(cluster: ClusterOrdeal, root: str) -> None:
    """With all that came after it. Who has no answer asks again: the rest is replayed then."""

    def replayed() -> bool:
        try:
            url = cluster.leader().url
            answer = request(f"{url}/v1/messages/{root}/replay", "POST", {"descendants": True}, timeout_s=_DELIVER_S)
        except (OSError, HTTPException):
            return False
        return answer.status in (200, 202)

    eventually_blocking(replayed, "it is replayed", _DELIVER_S)


def _done(cluster: ClusterOrdeal, method: str, path: str, asked: dict[str, Any]) -> bool:
    try:
        return cluster.nodes.request(method, path, asked).status in (200, 202)
    except OSError:
        return False


def _all_had(cluster: ClusterOrdeal, name: str, many: int) -> bool:
    return len({row[1] for row in cluster.receiver.rows() if row[0] == name and row[5] == "1"}) > many


def clocks_differ(directory: Path, seed: int) -> Judged:
    """One node's clock is ten seconds ahead, or behind; then it goes slower than the others', and faster, by 15 %: the
    one that leases are counted with, too. That node leads, follows, is killed, is stopped."""
    with ClusterOrdeal(directory, seed) as cluster:
        node = cluster.nodes.nodes[0]
        for wrong in (("10", "1"), ("-10", "1"), ("0", "0.85"), ("0", "1.15")):
            node.wrong_clock = wrong
            _again(cluster, node)
            cluster.lead(node)
            cluster.storm()
            with cluster.stopped(node):
                cluster.nodes.leader_after(node.epoch)
                cluster.storm(30)
            cluster.storm()
            cluster.lead(node)
            cluster.storm(30)
            with cluster.gap(f"kills {wrong[0]} s ahead at the rate {wrong[1]}"):
                node.kill()
            cluster.leader().kill()
            cluster.storm()
        node.wrong_clock = None
        _again(cluster, node)
        return cluster.judged()


def _again(cluster: ClusterOrdeal, node: BrokerNode) -> None:
    """Started anew, and following."""
    if node.runs:
        node.kill()
    eventually_blocking(cluster.level_nearly, lambda: f"all follow; {cluster.nodes.said()}", _BEGIN_S)


def election_simulated(directory: Path, seed: int, steps: int = _STEPS) -> Judged:
    """Random delays, losses, pauses, cuts, restarts and clocks that drift by up to 4 %: never two that may begin
    attempts."""
    del directory
    done, led_s, in_all_s = 0, 0.0, 0.0
    for number, drift in zip(itertools.count(), itertools.cycle((0.0, 0.02, 0.04)), strict=False):
        if done >= steps:
            break
        world = World(seed + number, drift)
        try:
            world.run(steps // 10)
        except AssertionError as two:
            return f"{done} steps", [f"seed {seed + number}, drift {drift}: {two}"]
        done += steps // 10
        led_s, in_all_s = led_s + world.led_s, in_all_s + world.now
    return f"{done} steps, {in_all_s:.0f} s simulated, of which somebody led {led_s:.0f}", []


def erased(directory: Path, _seed: int) -> Judged:
    """A message is erased: no file of a node or of a server of the engine has it in the end, the journals by which the
    servers agree neither, which they shorten by themselves every two minutes."""
    mark = b"mark-of-soak"
    with BrokerTrio(directory, CONFIG) as trio:
        leader = trio.brokers[trio.leader()]
        leader.request("POST", "/v1/queues", {"name": "q"})
        fill(leader)
        id_ = publish(leader, mark)
        fill(leader)
        before = len(holding(trio, mark, journals=True))
        erase(leader, id_)
        is_gone_everywhere(trio, mark)
        try:
            eventually_blocking(lambda: not holding(trio, mark, journals=True), "it is gone from the journals", 400)
        except AssertionError:
            return "a message erased", [f"{path} has it still" for path in holding(trio, mark, journals=True)]
    return f"a message erased, which {before} files had", []


SCENARIOS: Final[dict[str, Callable[[Path, int], Judged]]] = {
    "batch in pieces": batch_in_pieces,
    "segments go": segments_go,
    "erased": erased,
    "secrets rotated": secrets_rotated,
    "very many wait": very_many_wait,
    "all kinds of consumers": all_kinds_of_consumers,
    "clocks differ": clocks_differ,
    "election simulated": election_simulated,
}
