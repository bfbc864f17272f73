"""A thousand origins that answer late, over HTTPS and over HTTP: ``python -m benchmarks.origins``."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.delivery import statistics
from benchmarks.endpoint_processes import Endpoints
from benchmarks.latency import Points, accepted, points, publish
from benchmarks.processes import Broker, Failed
from benchmarks.program import main
from benchmarks.row import Aim, Options, Reading, Readings, Row, each_run

ORIGINS: Final = 1_000
EACH_PER_S: Final = 5
SUBSCRIBERS: Final = 50
"""of each queue; a message goes to all of them"""
CONTENT_BYTES: Final = 4096
DELAY_S: Final = 0.1
_POLL_S: Final = 0.1
_COMPLETE_WITHIN_S: Final = 60.0


class Side(NamedTuple):
    """What one scheme gave: of the broker, and of the bare client (``bare_``)."""

    cpu_us: float
    first_byte_ms: Points
    bare_cpu_us: float
    bare_first_byte_ms: Points
    beside: dict[str, float]


def bare(endpoints: Endpoints, origins: int, warm_s: float, seconds: float) -> tuple[float, list[int]]:
    """A client without a broker: its CPU a delivery in microseconds, and nanoseconds from sent to first byte."""
    queues = origins // SUBSCRIBERS
    per_s = EACH_PER_S * queues
    said = endpoints.client(
        "steady", groups=queues, per_s=per_s, seconds=warm_s + seconds, message_bytes=CONTENT_BYTES, first=0
    )
    seen, sent_ns = endpoints.ended()["seen"], said["sent_ns"]
    if len(seen) != len(sent_ns) * SUBSCRIBERS:
        raise Failed(f"{len(seen)} of {len(sent_ns) * SUBSCRIBERS} came without a broker")
    taken = [came_ns - sent_ns[number] for number, _, came_ns in seen if number >= int(per_s * warm_s)]
    return 1e6 * said["cpu_s"] / len(seen), taken


def declare(broker: Broker, endpoints: Endpoints, origins: int) -> list[str]:
    """The names of the queues, each with its share of the origins as subscribers."""
    queues = [f"q{number}" for number in range(origins // SUBSCRIBERS)]
    for queue in queues:
        broker.ask("POST", "/v1/queues", {"name": queue})

    def one(origin: int) -> None:
        subscriber = {"name": f"at-{origin}", "endpoint": endpoints.url(origin)}
        broker.ask("POST", f"/v1/queues/{queues[origin % len(queues)]}/subscribers", subscriber)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(origins)))
    return queues


def wait_until_complete(broker: Broker, queues: list[str]) -> None:
    """Until nothing waits in any of them. Raises ``Failed`` where that takes too long or a delivery ended dead."""
    began = time.perf_counter()
    for queue in queues:
        while (found := statistics(broker, queue))["waiting"]:
            if time.perf_counter() - began > _COMPLETE_WITHIN_S:
                raise Failed(f"{found['waiting']} deliveries of {queue} still wait")
            time.sleep(_POLL_S)
        if found["dead"]:
            raise Failed(f"{found['dead']} deliveries of {queue} ended dead")


def measured(folder: Path, origins: int, warm_s: float, seconds: float, *, tls: bool) -> Side:
    """Both sides of one scheme, the bare client first."""
    folder.mkdir()
    with Endpoints(folder, origins, tls=tls, delay_s=DELAY_S) as endpoints:
        bare_cpu_us, bare_taken_ns = bare(endpoints, origins, warm_s, seconds)
    with Endpoints(folder, origins, tls=tls, delay_s=DELAY_S) as endpoints, Broker(folder) as broker:
        queues = declare(broker, endpoints, origins)
        paths, per_s = [f"/v1/queues/{queue}/messages" for queue in queues], float(EACH_PER_S * len(queues))
        resident, others = broker.usage().resident_bytes, sockets_of(broker)
        # one to each queue, slowly: it opens the connections, and none has to be opened for what piled up behind them
        warm = len(queues)
        publish(broker.port, paths, warm_s, per_s=warm / warm_s, message_bytes=CONTENT_BYTES)
        wait_until_complete(broker, queues)
        before, endpoints_before_s = broker.usage(), endpoints.cpu_s()
        connections = sockets_of(broker) - others
        sent = publish(broker.port, paths, seconds, first=warm, per_s=per_s, message_bytes=CONTENT_BYTES)
        wait_until_complete(broker, queues)
        after, endpoints_s = broker.usage(), endpoints.cpu_s() - endpoints_before_s
        descriptors = len(descriptors_of(broker))
        accepted_ns = {queue: accepted(broker, queue) for queue in queues}
        seen = [one for one in endpoints.ended()["seen"] if one[0] >= warm]
    wanted = len(sent["sent_ns"]) * SUBSCRIBERS
    if len(seen) != wanted or len({(number, sequence) for number, sequence, _ in seen}) != len(sent["sent_ns"]):
        raise Failed(f"{len(seen)} deliveries of {wanted} came")
    came_ns = [one[2] for one in seen]
    beside = {
        "descriptors of the broker": float(descriptors),
        "connections": float(connections),
        "KB a connection": (before.resident_bytes - resident) / 1e3 / max(1, connections),
        "MB resident": after.resident_bytes / 1e6,
        "deliveries/s reached": wanted / ((max(came_ns) - min(came_ns)) / 1e9 + 1 / per_s),
        "messages/s": per_s,
        "origins": float(origins),
        "endpoint CPU us/delivery": 1e6 * endpoints_s / wanted,
    }
    taken_ns = [came - accepted_ns[queues[number % len(queues)]][sequence] for number, sequence, came in seen]
    cpu_us = 1e6 * (after.cpu_s - before.cpu_s) / wanted
    return Side(cpu_us, points(taken_ns), bare_cpu_us, points(bare_taken_ns), beside)


def descriptors_of(broker: Broker) -> list[Path]:
    return list(Path(f"/proc/{broker.pid}/fd").iterdir())


def sockets_of(broker: Broker) -> int:
    """How many it has open, those that listen too."""
    sockets = 0
    for one in descriptors_of(broker):
        with suppress(FileNotFoundError):  # closed since
            sockets += str(one.readlink()).startswith("socket:")
    return sockets


def once(folder: Path, options: Options) -> Readings:
    origins = 2 * SUBSCRIBERS if options.quick else ORIGINS
    warm_s, seconds = options.seconds_or(4, 1), options.seconds_or(10, 1)
    readings: Readings = {}
    for scheme in ("https", "http"):
        side = measured(folder / scheme, origins, warm_s, seconds, tls=scheme == "https")
        readings[f"origins_{scheme}_cpu"] = Reading(side.cpu_us, side.bare_cpu_us, side.beside)
        for name, value, ceiling in zip(Points._fields, side.first_byte_ms, side.bare_first_byte_ms, strict=True):
            readings[f"origins_{scheme}_{name}"] = Reading(value, ceiling, {})
    return readings


_BARE: Final = "a bare client, the same messages at the same pace over the same number of open connections"


def _aims(scheme: str) -> dict[str, Aim]:
    title = f"1,000 {scheme.upper()} origins"
    latencies = {
        f"origins_{scheme}_{name}": Aim(
            f"{title}, accepted -> first byte, {name}",
            "ms",
            f"{_BARE}, from when it begins to send a message to the first byte at each origin",
            less_is_better=True,
        )
        for name in Points._fields
    }
    cpu = Aim(f"{title}, CPU of the broker a delivery", "us", f"the CPU of {_BARE}", less_is_better=True)
    return {f"origins_{scheme}_cpu": cpu, **latencies}


ROW = Row(
    "origins",
    "1,000 origins, an address and a certificate each, answer after 100 ms; 20 queues with 50 of them as subscribers"
    " each; 100 messages of 4 KiB a second, in turn to the queues, for 10 s after each"
    " queue had one: 5,000 deliveries a"
    " second, over HTTPS and then over HTTP. CPU of the broker a delivery, publishing and log in it; from the time of"
    " acceptance that the broker recorded to the first byte at the origin.",
    {**_aims("https"), **_aims("http")},
    each_run(once),
)

if __name__ == "__main__":
    main([ROW])
