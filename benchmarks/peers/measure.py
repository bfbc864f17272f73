"""One run of one peer: its server on a fresh folder, a backlog delivered, a chain where it has one, then publishing in
every way it has."""

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from platform import python_version
from typing import Any, Final, NamedTuple, Protocol

import orjson

from benchmarks.load import CONNECTIONS, NDJSON, content, fill, wrk
from benchmarks.machine import machine as described
from benchmarks.peers.figures import ALIKE, LAYERS, MANY, Reading, Way
from benchmarks.peers.node import Node
from benchmarks.peers.servers import BullMQ, Nats, RabbitMQ, Redis, Server, number_in, program, said
from benchmarks.processes import Broker, Failed, Missing, Nginx, usage
from syncbrok import __version__
from syncbrok.bench.processes import SinkProcess

PREFETCH: Final = 256
"""What a consumer may hold: enough that 64 posts are always in flight while acknowledgements travel."""
_FILL_IN_FLIGHT: Final = 1_000
_BACKLOG_BYTES: Final = 100 << 20
"""of a backlog: a quarter of the messages at 4 KiB"""
_PIPELINED: Final = Way("publish", "Node, one connection with 64 in flight")
_PIPELINED_MANY: Final = Way("publish", f"Node, one connection with {MANY:,} in flight", MANY)
_BATCHES: Final = Way("publish", "Node, batches of what is sent together, 64 in flight")
_BATCHES_MANY: Final = Way("publish", f"Node, batches of what is sent together, {MANY:,} in flight", MANY)
_WRK: Final = Way("publish", "wrk, 64 connections")
_REDIS_BENCHMARK: Final = Way("publish", "redis-benchmark, 64 connections")
_DELIVER: Final = Way("deliver", "Node and undici, 64 in flight")
_HOPS: Final = Way("hops", "Node and undici, 64 in flight")
_ITSELF: Final = "the broker itself, 64 in flight"
_SYNCBROK_FROM_NODE: Final = {
    ALIKE: "syncbrok",
    _BATCHES: "syncbrok_batches",
    Way("publish", "Node, one WebSocket with 64 in flight"): "syncbrok_websocket",
    _BATCHES_MANY: "syncbrok_batches",
    Way("publish", f"Node, one WebSocket with {MANY:,} in flight", MANY): "syncbrok_websocket",
}
"""way -> the client's script; the first alone has more than one connection"""


class Scale(NamedTuple):
    """``seconds`` of each publishing, ``backlog`` messages to deliver, ``chain`` hops, ``message_bytes`` of each."""

    seconds: float
    backlog: int
    chain: int
    message_bytes: int

    def sized(self, message_bytes: int) -> "Scale":
        """The same with other messages; the backlog is as long as its bytes allow."""
        most = max(1, _BACKLOG_BYTES // message_bytes)
        return self._replace(message_bytes=message_bytes, backlog=min(self.backlog, most))


class Run(NamedTuple):
    """What came of one run; ``stolen`` as in ``figures.Row``."""

    readings: Mapping[Way, Reading]
    stolen: float


class Bench(NamedTuple):
    """What every peer is measured with."""

    node: Node
    nginx: Nginx
    scale: Scale

    def published(self, script: str, port: int, server_cpu_s: Callable[[], float], **wish: Any) -> Reading:
        """Publish for as long as the scale says, and what each message cost on both sides. Raises ``Failed``."""
        before_s = server_cpu_s()
        always = {"port": port, "bytes": self.scale.message_bytes, "seconds": self.scale.seconds}
        done = self.node.run(script, "publish", **{**always, **wish})
        server_s = server_cpu_s() - before_s
        return Reading(done.per_s, 1e6 * done.cpu_s / done.messages, 1e6 * server_s / (done.warming + done.messages))


class Peer(Protocol):
    """``looked_at`` first: it finds out what is installed; then any number of runs, each in an empty folder."""

    name: str
    version: str
    durable: bool | None
    settings: tuple[str, ...]

    def looked_at(self, folder: Path, node: Node, /) -> None:
        """Set version and settings. Raises ``Missing`` where the peer is not installed."""

    def once(self, folder: Path, bench: Bench, /) -> Mapping[Way, Reading]:
        """One run. Raises ``Failed`` where a figure would mean nothing."""


class ByNode:
    """A peer with a server of its own, spoken to by a client for Node. ``batches``: it takes batches, too, which the
    script of that name makes."""

    def __init__(
        self, script: str, server: type[Server], library: str, *, chain: bool = False, batches: str = ""
    ) -> None:
        self._script = script
        self._server = server
        self._library = library
        self._chain = chain
        self._batches = batches
        self.name = server.name
        self.version = ""
        self.durable: bool | None = True
        self.settings: tuple[str, ...] = ()

    def looked_at(self, folder: Path, node: Node) -> None:
        server = self._server(folder)
        self.version = f"{server.version} ({self._library} {node.library(self._library)})"
        self.settings = server.settings

    def once(self, folder: Path, bench: Bench) -> Mapping[Way, Reading]:
        scale = bench.scale
        with self._server(folder) as server:

            def run(job: str, **wish: Any) -> Reading:
                always = {"port": server.port, "url": bench.nginx.url, "bytes": scale.message_bytes}
                wish = {**always, "prefetch": PREFETCH, "in_flight": CONNECTIONS, **wish}
                return Reading(bench.node.run(self._script, job, **wish).per_s)

            def published(script: str, connections: int, in_flight: int) -> Reading:
                wish = {"queue": f"{script}{connections}-{in_flight}", "in_flight": in_flight}
                return bench.published(script, server.port, server.cpu_s, connections=connections, **wish)

            run("fill", queue="backlog", connections=1, in_flight=_FILL_IN_FLIGHT, count=scale.backlog)
            readings = {_DELIVER: run("deliver", queue="backlog", count=scale.backlog)}
            if self._chain:
                readings[_HOPS] = run("hops", queue="chain", count=scale.chain)
            readings[ALIKE] = published(self._script, CONNECTIONS, CONNECTIONS)
            for way in (_PIPELINED, _PIPELINED_MANY):
                readings[way] = published(self._script, 1, way.in_flight)
            for way in (_BATCHES, _BATCHES_MANY) if self._batches else ():
                readings[way] = published(self._batches, 1, way.in_flight)
            if self._server is Redis:
                readings[_REDIS_BENCHMARK] = _redis_benchmark(server.port, readings[ALIKE].per_s, scale)
        return readings


def _redis_benchmark(port: int, about_per_s: float, scale: Scale) -> Reading:
    """Redis's own load generator, as wrk is to HTTP: XADD over 64 connections. It knows counts only, so it is told what
    takes about as long as the scale says where it is three times as fast as Node."""
    command = [program("redis-benchmark", "redis-tools"), "-h", "127.0.0.1", "-p", str(port), "-c", str(CONNECTIONS)]
    command += ["-n", str(max(1, round(3 * about_per_s * scale.seconds))), "--csv"]
    command += ["XADD", "bench", "*", "content", content(scale.message_bytes).decode()]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"redis-benchmark: {done.stderr.strip()}")
    return Reading(float(done.stdout.splitlines()[-1].split('","')[1]))


class Syncbrok:
    """The broker itself, in the same set-up."""

    name = "Syncbrok"
    version = __version__
    durable: bool | None = True
    settings: tuple[str, ...] = (
        "defaults: every publish fsynced before its answer, every outcome logged",
        "delivers by itself",
        "clients undici and ws; batches of up to 500 lines or 5 ms, frames of one turn of the event loop in one write",
    )

    def looked_at(self, _folder: Path, _node: Node, /) -> None:
        program("wrk", "wrk")

    def once(self, folder: Path, bench: Bench) -> Mapping[Way, Reading]:
        scale = bench.scale
        with Broker(folder) as broker:
            _subscribed(broker, "backlog", bench.nginx.url)
            fill(broker, "backlog", scale.backlog, scale.message_bytes)
            readings = {Way("deliver", _ITSELF): Reading(scale.backlog / _resumed(broker, "backlog"))}
            _subscribed(broker, "chain", bench.nginx.url)
            chain = _chained(scale.chain, scale.message_bytes)
            broker.ask("POST", "/v1/queues/chain/messages:batch", chain, NDJSON)
            readings[Way("hops", _ITSELF)] = Reading(scale.chain / _resumed(broker, "chain"))

            for number, (way, script) in enumerate(_SYNCBROK_FROM_NODE.items()):
                queue, connections = f"node{number}", CONNECTIONS if way == ALIKE else 1
                broker.ask("POST", "/v1/queues", {"name": queue})
                wish = {"queue": queue, "connections": connections, "in_flight": way.in_flight}
                readings[way] = bench.published(script, broker.port, partial(_cpu_s, broker.pid), **wish)
            broker.ask("POST", "/v1/queues", {"name": "wrk"})
            url = f"http://127.0.0.1:{broker.port}/v1/queues/wrk/messages"
            readings[_WRK] = Reading(wrk(url, content(scale.message_bytes), scale.seconds, folder).per_s)
        return readings


def _chained(count: int, message_bytes: int) -> bytes:
    first = {"content": content(message_bytes).decode()}
    rest = ({**first, "parents": [f"#{line}"]} for line in range(1, count))
    return b"".join(orjson.dumps(line) + b"\n" for line in (first, *rest))


def _subscribed(broker: Broker, queue: str, endpoint: str) -> None:
    """A queue with one subscriber that is paused, so that what is published waits."""
    broker.ask("POST", "/v1/queues", {"name": queue})
    broker.ask("POST", f"/v1/queues/{queue}/subscribers", {"name": "nginx", "endpoint": endpoint})
    broker.ask("PATCH", f"/v1/queues/{queue}/subscribers/nginx", {"paused": True})


def _resumed(broker: Broker, queue: str, within_s: float = 300.0) -> float:
    """The seconds from letting it go until every delivery is logged."""
    began = time.perf_counter()
    broker.ask("PATCH", f"/v1/queues/{queue}/subscribers/nginx", {"paused": False})
    while broker.ask("GET", f"/v1/queues/{queue}")["statistics"]["waiting"]:
        if time.perf_counter() - began > within_s:
            raise Failed(f"queue {queue} was not delivered within {within_s:g} s")
        time.sleep(0.02)
    return time.perf_counter() - began


class NoBroker:
    """The ceiling of every peer whose deliveries a Node program makes: the same program without a peer."""

    name = "(no broker)"
    version = ""
    durable: bool | None = None
    settings: tuple[str, ...] = (
        "Node and undici posting to nginx: what a delivering client in Node can reach at most",
        "bare server: uvloop and httptools; it commits a group by appending it to a file opened O_DSYNC",
    )

    def looked_at(self, _folder: Path, node: Node, /) -> None:
        self.version = f"Node {node.version}"

    def once(self, folder: Path, bench: Bench, /) -> Mapping[Way, Reading]:
        scale, connections = bench.scale, {"connections": CONNECTIONS, "in_flight": CONNECTIONS}
        wish = {"url": bench.nginx.url, "bytes": scale.message_bytes, "in_flight": CONNECTIONS, "count": scale.backlog}
        readings = {_DELIVER: Reading(bench.node.run("none", "deliver", **wish).per_s)}
        at_once, bare, commits = LAYERS
        readings[at_once] = bench.published("bare", bench.nginx.ports[0], bench.nginx.cpu_s, **connections)
        for way, log in ((bare, None), (commits, folder / "bare.log")):
            with SinkProcess(log) as sink:
                readings[way] = bench.published("bare", sink.port, partial(_cpu_s, sink.pid), **connections)
        return readings


def _cpu_s(pid: int) -> float:
    return usage(pid).cpu_s


PEERS: Final[Mapping[str, Peer]] = {
    "syncbrok": Syncbrok(),
    "redis": ByNode("redis", Redis, "ioredis"),
    "rabbitmq": ByNode("rabbitmq", RabbitMQ, "amqplib"),
    "bullmq": ByNode("bullmq", BullMQ, "bullmq", chain=True),
    "nats": ByNode("nats", Nats, "@nats-io/jetstream", batches="nats_batches"),
    "none": NoBroker(),
}


def machine(folder: Path, node: Node) -> str:
    """What the figures belong to, in one line, with what its disk can do."""
    try:
        nginx = number_in(said(program("nginx", "nginx-light"), "-v"))
    except Missing:
        nginx = "?"
    what = described()
    return (
        f"{what['processor']}, {what['cores']} cores, {what['memory']}, {what['kernel']}, Python {python_version()}, "
        f"Node {node.version}, nginx {nginx}, {_fdatasyncs_per_s(folder):,.0f} fdatasync of 256 B a second"
    )


def _fdatasyncs_per_s(folder: Path, seconds: float = 0.5) -> float:
    file = os.open(folder / "fdatasync", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.posix_fallocate(file, 0, 1 << 24)
        os.fsync(file)
        count, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            os.pwrite(file, b"x" * 256, 256 * (count % 65_536))
            os.fdatasync(file)
            count += 1
        return count / (time.perf_counter() - began)
    finally:
        os.close(file)
