"""Many queues against one: ``python -m benchmarks.queues``."""

import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from benchmarks.delivery import left_over
from benchmarks.load import content, wrk
from benchmarks.processes import Broker, Failed, Nginx
from benchmarks.program import main
from benchmarks.row import Aim, Options, Reading, Readings, Row, each_run

QUEUES: Final = 1_000
_PAIRS: Final = 3
"""of one queue and many, in turns: a shared machine may be twice as fast in one ten seconds as in the next"""
SUBSCRIBERS: Final = 3
_POLL_S: Final = 0.01
_QUIET_S: Final = 0.5


class Traffic(NamedTuple):
    """``per_s``: messages a second from the first publish until every subscriber has all of them."""

    per_s: float
    published_per_s: float
    broker_cpu_us: float
    idle_mb: float


def traffic(folder: Path, queues: int, seconds: float, subscribers: int = SUBSCRIBERS) -> Traffic:
    """Publish to the queues in turn, each with so many subscribers; then the rest is delivered."""
    with (
        tempfile.TemporaryDirectory(dir=folder) as own,
        Nginx(folder, max(1, subscribers)) as nginx,
        Broker(Path(own)) as broker,
    ):
        declare(broker, nginx.ports[:subscribers], queues)
        idle = broker.usage()
        received = nginx.received()
        began = time.perf_counter()
        url = f"http://127.0.0.1:{broker.port}/v1/queues/qN/messages"
        seen = wrk(url, content(), seconds, folder, paths=queues)
        ended = quiet_since(nginx) if subscribers else time.perf_counter()
        cpu_s = broker.usage().cpu_s - idle.cpu_s
        accepted = _checked(broker, nginx.received() - received, subscribers)
        return Traffic(accepted / (ended - began), seen.per_s, 1e6 * cpu_s / accepted, idle.resident_bytes / 1e6)


def declare(broker: Broker, ports: list[int], queues: int) -> None:
    """Queues ``q0`` and so on, each with a subscriber at every port. Those that are there already stay."""

    def one(number: int) -> None:
        broker.ask("POST", "/v1/queues", {"name": f"q{number}"})
        for port in ports:
            endpoint = {"name": f"at-{port}", "endpoint": f"http://127.0.0.1:{port}/q{number}"}
            broker.ask("POST", f"/v1/queues/q{number}/subscribers", endpoint)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(queues)))


def quiet_since(nginx: Nginx) -> float:
    """When nginx received the last delivery. It is nginx that is asked: a broker with 1,000 queues would feel the
    question more than one with a single queue."""
    count, since = nginx.received(), time.perf_counter()
    while (now := time.perf_counter()) - since < _QUIET_S:
        time.sleep(_POLL_S)
        if (received := nginx.received()) != count:
            count, since = received, now
    return since


def _checked(broker: Broker, received: int, subscribers: int) -> int:
    """How many messages were accepted. Raises ``Failed`` unless each subscriber has received every one of them once."""
    accepted = broker.metric("syncbrok_queue_accepted_total")
    waiting, failed = left_over(broker)
    if waiting or failed or received != subscribers * accepted:
        raise Failed(f"{accepted:g} accepted, {received} received, {waiting:g} wait, {failed:g} attempts failed")
    return int(accepted)


def once(folder: Path, options: Options) -> Readings:
    queues = 20 if options.quick else QUEUES
    seconds = options.seconds_or(5)
    pairs = 1 if options.quick else _PAIRS
    taken = [(traffic(folder, 1, seconds), traffic(folder, queues, seconds)) for _ in range(pairs)]
    one, many = (Traffic(*map(median, zip(*side, strict=True))) for side in zip(*taken, strict=True))
    beside = {
        "messages/s over many": many.per_s,
        "messages/s over one": one.per_s,
        "published/s over many": many.published_per_s,
        "published/s over one": one.published_per_s,
        "broker CPU us/message over many": many.broker_cpu_us,
        "broker CPU us/message over one": one.broker_cpu_us,
        "MB idle with many": many.idle_mb,
        "queues": float(queues),
    }
    return {"queues": Reading(many.per_s / one.per_s, 1.0, beside)}


ROW = Row(
    "queues",
    "wrk, 64 connections, publishes for 5 s to 1,000 queues in turn, each with 3 subscribers (three nginx ports, an"
    " endpoint each); messages a second from the first publish until every subscriber has all, as a share of the same"
    " with one queue of 3 subscribers; medians of three pairs.",
    {
        "queues": Aim(
            "1,000 queues x 3 subscribers", "of one queue", "one queue with 3 subscribers, in the same run", 0.75, 0.9
        )
    },
    each_run(once),
)

if __name__ == "__main__":
    main([ROW])
