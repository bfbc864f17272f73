"""A cluster of three beside a single node: ``python -m benchmarks.cluster``."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import orjson

from benchmarks.batch import CONNECTIONS as BATCHES_AT_ONCE
from benchmarks.batch import LINES
from benchmarks.chain import fsync_s
from benchmarks.cluster_nodes import ClusterNodes
from benchmarks.delivery import QUEUE, deliver, pause, subscribe
from benchmarks.load import CONNECTIONS, NDJSON, content, fill, lines, wrk
from benchmarks.log_end import LagWatch
from benchmarks.processes import Broker, Failed, Nginx, Serving
from benchmarks.program import main
from benchmarks.quorum import append_s, read_mb_per_s
from benchmarks.row import Aim, Options, Reading, Readings, Row, each_run, progress

_NOBODYS: Final = "nobodys"
_APPENDS: Final = 300
_APPEND_BYTES: Final = 4_096
_SINGLE: Final = "a single node in the same run, in turns: the same processes, disk and minute"


class Part(NamedTuple):
    """``per_s``: messages. ``cpu_us``: of the broker that is asked, for each of them."""

    per_s: float
    cpu_us: float


class Sides(NamedTuple):
    """What is loaded, one after the other. ``chained``: nginx where the kernel likes, ``nginx``: aside."""

    nginx: Nginx
    chained: Nginx
    folder: Path
    options: Options


def published(broker: Serving, sides: Sides) -> Part:
    """64 connections, one POST a message; no subscriber."""
    return _posted(broker, sides, "messages", content(), "text/plain", 1, CONNECTIONS)


def published_in_batches(broker: Serving, sides: Sides) -> Part:
    """Batches of 500 over four connections; no subscriber."""
    return _posted(broker, sides, "messages:batch", lines(LINES), NDJSON, LINES, BATCHES_AT_ONCE)


def _posted(broker: Serving, sides: Sides, path: str, body: bytes, kind: str, messages: int, connections: int) -> Part:
    before_s = broker.usage().cpu_s
    url = f"http://127.0.0.1:{broker.port}/v1/queues/{_NOBODYS}/{path}"
    seconds = sides.options.seconds_or(4)
    seen = wrk(url, body, seconds, sides.folder, connections=connections, kind=kind)
    cpu_s = broker.usage().cpu_s - before_s
    return Part(messages * seen.per_s, 1e6 * cpu_s / (messages * seen.requests))


def chained(broker: Serving, sides: Sides) -> Part:
    """As the row *chain*."""
    hops = sides.options.messages_or(2_000, 100)
    body = content().decode()
    chain = [{"content": body, **({"parents": [f"#{line}"]} if line else {})} for line in range(hops)]
    return _delivered(broker, sides.chained, hops, lambda queue: _batch(broker, queue, chain))


def delivered(broker: Serving, sides: Sides) -> Part:
    """As the row *backlog*."""
    messages = sides.options.messages_or(100_000, 2_000)
    return _delivered(broker, sides.nginx, messages, lambda queue: fill(broker, queue, messages))


def _batch(broker: Serving, queue: str, chain: list[dict[str, object]]) -> None:
    broker.ask("POST", f"/v1/queues/{queue}/messages:batch", b"\n".join(map(orjson.dumps, chain)), NDJSON)


def _delivered(broker: Serving, nginx: Nginx, messages: int, publish: Callable[[str], object]) -> Part:
    subscriber = f"/v1/queues/{QUEUE}/subscribers/nginx"
    broker.ask("PATCH", subscriber, {"endpoint": nginx.url})
    publish(QUEUE)
    before_s = broker.usage().cpu_s
    seconds = deliver(broker)
    cpu_s = broker.usage().cpu_s - before_s
    pause(broker)
    return Part(messages / seconds, 1e6 * cpu_s / messages)


PARTS: Final[dict[str, Callable[[Serving, Sides], Part]]] = {
    "publish": published,
    "batch": published_in_batches,
    "chain": chained,
    "backlog": delivered,
}


def once(folder: Path, options: Options, *, followers: bool = True) -> Readings:
    """A fresh cluster beside a fresh single node, each part in turns. ``followers`` false: they are stopped first."""
    single_place, cluster_place, alone_place = (folder / name for name in ("single", "cluster", "alone"))
    single_place.mkdir()
    alone_place.mkdir()
    readings: Readings = {}
    with (
        Nginx(folder) as nginx,
        Nginx(alone_place, alone=True) as chained_,
        Broker(single_place) as single,
        ClusterNodes(cluster_place) as cluster,
    ):
        sides = Sides(nginx, chained_, folder, options)
        if not followers:
            cluster.stop_followers()
        leader = cluster.leader()
        for broker in (single, leader):
            broker.ask("POST", "/v1/queues", {"name": _NOBODYS})
            subscribe(broker, nginx.url, paused=True)
            fill(broker, QUEUE, 100)
            deliver(broker)  # the first of a broker's life is slower than all that follow
            pause(broker)
        appends = options.messages_or(_APPENDS, 20)
        raw_s, disk_s = append_s(cluster.engine, appends, _APPEND_BYTES), fsync_s(folder, appends)
        lags_s: list[float] = []
        for name, part in PARTS.items():
            with cluster.resting():
                alone = part(single, sides)
            if name == "publish" and followers:
                ends = [cluster.log_end(one) for one in (leader.name, *cluster.followers())]
                with LagWatch(ends[0], ends[1:]) as watch:
                    together = part(leader, sides)
                lags_s = watch.lags_s()
            else:
                together = part(leader, sides)
            readings[name] = _beside(alone, together, raw_s, disk_s)
        if cluster.leader().pid != leader.pid:
            raise Failed("another node has taken the lead meanwhile")
        if followers:
            readings["lag"] = _lag(lags_s, raw_s)
            readings["catch_up"] = _caught_up(cluster)
    return readings


def _beside(alone: Part, together: Part, raw_s: float, disk_s: float) -> Reading:
    beside = {
        "messages/s, cluster": together.per_s,
        "messages/s, single": alone.per_s,
        "leader CPU us/message": together.cpu_us,
        "single CPU us/message": alone.cpu_us,
        "ms an append of 4 KiB to the engine by nats-py alone": 1e3 * raw_s,
        "ms an fsync": 1e3 * disk_s,
    }
    return Reading(together.per_s / alone.per_s, 1.0, beside)


def _lag(lags_s: list[float], raw_s: float) -> Reading:
    """99 % of the looks found less."""
    beside = {"p50 ms": 1e3 * lags_s[len(lags_s) // 2], "longest ms": 1e3 * lags_s[-1], "looks": float(len(lags_s))}
    return Reading(max(lags_s[len(lags_s) * 99 // 100], 1e-6), raw_s, beside)


def _caught_up(cluster: ClusterNodes) -> Reading:
    """A follower that has lost its disk, from the first byte that it has again until it has all."""
    raw = read_mb_per_s(cluster.engine)
    leader, name = cluster.leader().name, cluster.followers()[0]
    target = cluster.log_end(leader).look()
    cluster.broker(name).stop(60.0)
    shutil.rmtree(cluster.log(name))
    cluster.log(name).mkdir()
    launched_s = time.perf_counter()
    cluster.broker(name).start()
    end = cluster.log_end(name)
    cluster.wait_for(lambda: end.look().at > 0, "an empty follower has begun to read")
    began_s, began_bytes = time.perf_counter(), end.bytes
    cluster.wait_for(lambda: end.look() >= target, "an empty follower has caught up")
    ended_s = time.perf_counter()
    megabytes = (end.bytes - began_bytes) / 1e6
    progress(f"    caught up with {end.bytes / 1e6:,.0f} MB in {ended_s - launched_s:.1f} s, its start included")
    return Reading(
        megabytes / (ended_s - began_s), raw, {"MB": end.bytes / 1e6, "s, start included": ended_s - launched_s}
    )


def ratio(title: str, at_least: float) -> Aim:
    """``title``: of a part of ``PARTS``."""
    return Aim(title, "of a single node", _SINGLE, at_least)


ROW = Row(
    "cluster",
    "Three brokers and three servers of the engine, one of each for a host, all on this machine, beside a single node"
    " in the same run, in turns: wrk on the leader, 64 connections, one POST each; batches of 500; 2,000 hops of a"
    " chain; 100,000 messages delivered. While 64 connections publish, how long until a follower's file has what the"
    " leader's has, looked at every 5 ms. Then a follower that has lost its disk reads all of it.",
    {
        "publish": ratio("cluster: publish, one POST each", 0.6),
        "batch": ratio("cluster: publish, batches of 500", 0.3),
        "chain": ratio("cluster: hops of one parent chain", 0.2),
        "backlog": ratio("cluster: deliver a backlog", 0.7),
        "lag": Aim(
            "cluster: a follower's lag, p99",
            "s",
            "one append of 4 KiB to the engine by nats-py alone",
            0.2,
            less_is_better=True,
        ),
        "catch_up": Aim(
            "cluster: an empty follower catches up",
            "MB/s",
            "the same stream read by nats-py and thrown away",
            50,
        ),
    },
    each_run(once),
)

if __name__ == "__main__":
    main([ROW])
