"""One run of one peer: its server on a fresh folder, a backlog delivered, a chain where it has one, then publishing."""

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from platform import python_version
from typing import Any, Final, NamedTuple, Protocol

import orjson

from benchmarks.load import CONNECTIONS, MESSAGE_BYTES, content, fill, wrk
from benchmarks.machine import machine as described
from benchmarks.peers.figures import ALIKE, Way
from benchmarks.peers.node import Node
from benchmarks.peers.servers import BullMQ, Nats, RabbitMQ, Redis, Server, number_in, program, said
from benchmarks.processes import Broker, Failed, Missing, Nginx
from syncbrok import __version__

PREFETCH: Final = 256
"""What a consumer may hold: enough that 64 posts are always in flight while acknowledgements travel."""
_FILL_IN_FLIGHT: Final = 1_000
_PIPELINED: Final = Way("publish", "Node, one connection with 64 in flight")
_WRK: Final = Way("publish", "wrk, 64 connections")
_REDIS_BENCHMARK: Final = Way("publish", "redis-benchmark, 64 connections")
_DELIVER: Final = Way("deliver", "Node and undici, 64 in flight")
_HOPS: Final = Way("hops", "Node and undici, 64 in flight")
_ITSELF: Final = "the broker itself, 64 in flight"


class Scale(NamedTuple):
    """``seconds`` of each publishing, ``backlog`` messages to deliver, ``chain`` hops."""

    seconds: float
    backlog: int
    chain: int


class Run(NamedTuple):
    """What came of one run; ``stolen`` as in ``figures.Row``."""

    per_s: Mapping[Way, float]
    stolen: float


class Bench(NamedTuple):
    """What every peer is measured with."""

    node: Node
    nginx: Nginx
    scale: Scale


class Peer(Protocol):
    """``looked_at`` first: it finds out what is installed; then any number of runs, each in an empty folder."""

    name: str
    version: str
    durable: bool | None
    settings: tuple[str, ...]

    def looked_at(self, folder: Path, node: Node, /) -> None:
        """Set version and settings. Raises ``Missing`` where the peer is not installed."""

    def once(self, folder: Path, bench: Bench, /) -> Mapping[Way, float]:
        """One run. Raises ``Failed`` where a figure would mean nothing."""


class ByNode:
    """A peer with a server of its own, spoken to by a client for Node."""

    def __init__(self, script: str, server: type[Server], library: str, *, chain: bool = False) -> None:
        self._script = script
        self._server = server
        self._library = library
        self._chain = chain
        self.name = server.name
        self.version = ""
        self.durable: bool | None = True
        self.settings: tuple[str, ...] = ()

    def looked_at(self, folder: Path, node: Node) -> None:
        server = self._server(folder)
        self.version = f"{server.version} ({self._library} {node.library(self._library)})"
        self.durable = server.durable
        self.settings = server.settings

    def once(self, folder: Path, bench: Bench) -> Mapping[Way, float]:
        scale = bench.scale
        with self._server(folder) as server:

            def per_s(job: str, **wish: Any) -> float:
                always = {"port": server.port, "url": bench.nginx.url, "bytes": MESSAGE_BYTES, "prefetch": PREFETCH}
                return bench.node.per_s(self._script, job, **{**always, "in_flight": CONNECTIONS, **wish})

            per_s("fill", queue="backlog", connections=1, in_flight=_FILL_IN_FLIGHT, count=scale.backlog)
            figures = {_DELIVER: per_s("deliver", queue="backlog", count=scale.backlog)}
            if self._chain:
                figures[_HOPS] = per_s("hops", queue="chain", count=scale.chain)
            figures[ALIKE] = per_s("publish", queue="many", connections=CONNECTIONS, seconds=scale.seconds)
            figures[_PIPELINED] = per_s("publish", queue="one", connections=1, seconds=scale.seconds)
            if self._server is Redis:
                figures[_REDIS_BENCHMARK] = _redis_benchmark(server.port, round(3 * figures[ALIKE] * scale.seconds))
        return figures


def _redis_benchmark(port: int, count: int) -> float:
    """Redis's own load generator, as wrk is to HTTP: so many XADD over 64 connections."""
    command = [program("redis-benchmark", "redis-tools"), "-h", "127.0.0.1", "-p", str(port), "-c", str(CONNECTIONS)]
    command += ["-n", str(count), "--csv", "XADD", "bench", "*", "content", content().decode()]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"redis-benchmark: {done.stderr.strip()}")
    return float(done.stdout.splitlines()[-1].split('","')[1])


class Syncbrok:
    """The broker itself, in the same set-up."""

    name = "Syncbrok"
    version = __version__
    durable: bool | None = True
    settings: tuple[str, ...] = (
        "defaults: every publish fsynced before its answer, every outcome logged",
        "delivers by itself",
    )

    def looked_at(self, _folder: Path, _node: Node, /) -> None:
        program("wrk", "wrk")

    def once(self, folder: Path, bench: Bench) -> Mapping[Way, float]:
        scale = bench.scale
        with Broker(folder) as broker:
            _subscribed(broker, "backlog", bench.nginx.url)
            fill(broker, "backlog", scale.backlog)
            figures = {Way("deliver", _ITSELF): scale.backlog / _resumed(broker, "backlog")}
            _subscribed(broker, "chain", bench.nginx.url)
            broker.ask("POST", "/v1/queues/chain/messages:batch", _chained(scale.chain), "application/x-ndjson")
            figures[Way("hops", _ITSELF)] = scale.chain / _resumed(broker, "chain")
            for queue in ("many", "wrk"):
                broker.ask("POST", "/v1/queues", {"name": queue})
            wish = {"connections": CONNECTIONS, "in_flight": CONNECTIONS, "bytes": MESSAGE_BYTES}
            port, seconds = broker.port, scale.seconds
            figures[ALIKE] = bench.node.per_s("syncbrok", "publish", port=port, queue="many", seconds=seconds, **wish)
            url = f"http://127.0.0.1:{port}/v1/queues/wrk/messages"
            figures[_WRK] = wrk(url, content(), seconds, folder).per_s
        return figures


def _chained(count: int) -> bytes:
    first = {"content": content().decode()}
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
    )

    def looked_at(self, _folder: Path, node: Node, /) -> None:
        self.version = f"Node {node.version}"

    def once(self, _folder: Path, bench: Bench, /) -> Mapping[Way, float]:
        wish = {"url": bench.nginx.url, "bytes": MESSAGE_BYTES, "in_flight": CONNECTIONS, "count": bench.scale.backlog}
        return {_DELIVER: bench.node.per_s("none", "deliver", **wish)}


PEERS: Final[Mapping[str, Peer]] = {
    "syncbrok": Syncbrok(),
    "redis": ByNode("redis", Redis, "ioredis"),
    "rabbitmq": ByNode("rabbitmq", RabbitMQ, "amqplib"),
    "bullmq": ByNode("bullmq", BullMQ, "bullmq", chain=True),
    "nats": ByNode("nats", Nats, "@nats-io/jetstream"),
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
