"""The rows of the benchmark. Each returns its figure and the ceiling measured beside it (DESIGN section 5)."""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from syncbrok.bench.processes import Broker, SinkProcess, load

CONTENT: Final = "x" * 200
CONNECTIONS: Final = 64
BATCH_LINES: Final = 500


class Figure(NamedTuple):
    """``value`` and ``ceiling`` in ``unit``; for latencies less is better."""

    job: str
    value: float
    ceiling: float
    unit: str
    ceiling_is: str

    @property
    def ratio(self) -> float:
        """The share of the ceiling that is reached; for latencies how many times as long as the ceiling."""
        return self.value / self.ceiling if self.ceiling else 0.0


class Scale(NamedTuple):
    """The size of a measurement: ``seconds`` of each load, ``backlog`` messages to deliver, ``chain`` hops."""

    seconds: float = 5.0
    backlog: int = 50_000
    chain: int = 2_000


QUICK: Final = Scale(1.0, 5_000, 200)


def publish(directory: Path, scale: Scale) -> list[Figure]:
    """One POST a message, 64 connections, each answered when fsynced; nobody subscribed."""
    with SinkProcess(directory / "bare.log") as bare:
        ceiling = load(port=bare.port, path="/", connections=CONNECTIONS, seconds=scale.seconds, body=CONTENT)
    with Broker(directory) as broker:
        broker.ask("POST", "/v1/queues", {"name": "bench"})
        path = "/v1/queues/bench/messages"
        figure = load(port=broker.port, path=path, connections=CONNECTIONS, seconds=scale.seconds, body=CONTENT)
    name = "an HTTP server that only group-commits"
    return [Figure("publish, one POST each", figure["per_second"], ceiling["per_second"], "msg/s", name)]


def batch(directory: Path, scale: Scale) -> list[Figure]:
    """NDJSON batches of 500."""
    lines = (orjson.dumps({"content": CONTENT}).decode() + "\n") * BATCH_LINES
    with SinkProcess(directory / "bare.log") as bare:
        ceiling = load(port=bare.port, path="/", connections=4, seconds=scale.seconds, body=lines)
    with Broker(directory) as broker:
        broker.ask("POST", "/v1/queues", {"name": "bench"})
        figure = load(
            port=broker.port,
            path="/v1/queues/bench/messages:batch",
            connections=4,
            seconds=scale.seconds,
            body=lines,
            headers="Content-Type: application/x-ndjson\r\n",
        )
    name = "the same bodies to a server that only group-commits"
    return [
        Figure(
            "publish, batches of 500",
            figure["per_second"] * BATCH_LINES,
            ceiling["per_second"] * BATCH_LINES,
            "msg/s",
            name,
        )
    ]


def deliver(directory: Path, scale: Scale) -> list[Figure]:
    """A backlog that waits for a paused subscriber, from the moment it is resumed until all of it is durable."""
    with SinkProcess() as sink:
        ceiling = load(port=sink.port, path="/", connections=CONNECTIONS, seconds=scale.seconds, body=CONTENT)
    with SinkProcess() as sink, Broker(directory) as broker:
        _paused(broker, sink)
        _fill(broker, [orjson.dumps({"content": CONTENT})] * scale.backlog)
        seconds = _resumed(broker)
    name = "the load generator posting to the same subscriber"
    return [Figure("deliver a backlog", scale.backlog / seconds, ceiling["per_second"], "msg/s", name)]


def hops(directory: Path, scale: Scale) -> list[Figure]:
    """One chain: each message the parent of the next, so each hop waits for an answer and an fsync."""
    ceiling = _hop_ceiling(directory, scale)
    first = [orjson.dumps({"content": CONTENT})]
    rest = [orjson.dumps({"content": CONTENT, "parents": [f"#{line}"]}) for line in range(1, scale.chain)]
    with SinkProcess() as sink, Broker(directory) as broker:
        _paused(broker, sink)
        _fill(broker, first + rest, lines_max=scale.chain)
        seconds = _resumed(broker)
    name = "one connection: POST, then fsync, then the next"
    return [Figure("hops of one parent chain", scale.chain / seconds, ceiling, "hops/s", name)]


def latency(directory: Path, scale: Scale) -> list[Figure]:
    """1,000 messages a second, from the publisher's send to the first byte at the subscriber: the accepting fsync is in
    it, so this is more than from acceptance."""
    paced: dict[str, Any] = {"connections": 16, "seconds": scale.seconds, "per_second": 1_000, "body": CONTENT}
    with SinkProcess() as sink:
        load(port=sink.port, path="/", **paced)
        least = sink.report()
    with SinkProcess() as sink, Broker(directory) as broker:
        _subscribed(broker, sink)
        load(port=broker.port, path="/v1/queues/bench/messages", **paced)
        broker.wait_until_empty("bench")
        seen = sink.report()
    name = "sent straight to the subscriber"
    return [
        Figure(f"sent -> subscriber at 1,000/s, {point}", seen[f"{point}_ms"], least[f"{point}_ms"], "ms", name)
        for point in ("p50", "p99")
    ]


JOBS: Final[dict[str, Callable[[Path, Scale], list[Figure]]]] = {
    "publish": publish,
    "batch": batch,
    "deliver": deliver,
    "hops": hops,
    "latency": latency,
}


def run(job: str, scale: Scale, storage: Path | None = None) -> list[Figure]:
    """Measure one job in a directory of its own below ``storage`` (default: the system's for temporary files)."""
    with tempfile.TemporaryDirectory(dir=storage, prefix="syncbrok-bench-") as directory:
        return JOBS[job](Path(directory), scale)


def _subscribed(broker: Broker, sink: SinkProcess) -> None:
    broker.ask("POST", "/v1/queues", {"name": "bench"})
    broker.ask("POST", "/v1/queues/bench/subscribers", {"name": "sink", "endpoint": sink.url})


def _paused(broker: Broker, sink: SinkProcess) -> None:
    _subscribed(broker, sink)
    broker.ask("PATCH", "/v1/queues/bench/subscribers/sink", {"paused": True})


def _resumed(broker: Broker) -> float:
    began = time.perf_counter()
    broker.ask("PATCH", "/v1/queues/bench/subscribers/sink", {"paused": False})
    broker.wait_until_empty("bench")
    return time.perf_counter() - began


def _fill(broker: Broker, lines: list[bytes], lines_max: int = 5_000) -> None:
    for at in range(0, len(lines), lines_max):
        body = b"\n".join(lines[at : at + lines_max]) + b"\n"
        broker.ask("POST", "/v1/queues/bench/messages:batch", body, "application/x-ndjson")


def _hop_ceiling(directory: Path, scale: Scale) -> float:
    """POST and fsync, one after the other, as often as the chain has hops."""
    with SinkProcess() as sink:
        posts = load(port=sink.port, path="/", connections=1, requests=scale.chain, body=CONTENT)
    file = os.open(directory / "hops.log", os.O_WRONLY | os.O_CREAT | os.O_DSYNC, 0o600)
    try:
        os.posix_fallocate(file, 0, 512 * scale.chain)
        began = time.perf_counter()
        for hop in range(scale.chain):
            os.pwrite(file, b"x" * 256, 256 * hop)
        fsyncs_s = time.perf_counter() - began
    finally:
        os.close(file)
    return scale.chain / (float(posts["seconds"]) + fsyncs_s)
