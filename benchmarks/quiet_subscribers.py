"""Ten thousand subscribers with little traffic each: ``python -m benchmarks.quiet_subscribers``."""

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.declared import declared
from benchmarks.delivery import left_over
from benchmarks.load import content, wrk
from benchmarks.processes import Broker, Failed, Nginx
from benchmarks.program import main
from benchmarks.queues import quiet_since
from benchmarks.row import Aim, Options, Reading, Readings, Row, each_run

QUEUES: Final = 1_000
"""of ``SUBSCRIBERS`` each: many small ones, as an application has that makes a queue for each customer or topic. A
hundred queues of 100 would be a tenth of the publishes, in bursts of 100: that is what ``fan_out`` is about"""
SUBSCRIBERS: Final = 10
EVERY_S: Final = 10
"""each subscriber gets a message so often"""
CONTENT_BYTES: Final = 4_096
_SETTLED_AFTER_S: Final = 3.0
_CONNECTIONS: Final = 8
_KIB: Final = 1_024
_MB: Final = 1e6


class Part(NamedTuple):
    """A broker with its own endpoints; ``start_s`` until it served."""

    broker: Broker
    nginx: Nginx
    queues: int
    start_s: float


class Traffic(NamedTuple):
    """``cpu_us`` of the broker a delivery, a share of the publish included; ``connections`` open at the endpoints."""

    cpu_us: float
    per_s: float
    connections: int
    resident_bytes: int


def started(stack: ExitStack, folder: Path, queues: int, subscribers: int) -> Part:
    """With so many queues of so many subscribers, which are declared before it starts."""
    own = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder)))
    nginx = stack.enter_context(Nginx(own))
    text = declared(queues, subscribers, nginx.ports) if queues else "queues: {}\n"
    began = time.perf_counter()
    broker = stack.enter_context(Broker(own, queues=text))
    return Part(broker, nginx, queues, time.perf_counter() - began)


def idle_percent(parts: list[Part], seconds: float) -> list[float]:
    """Percent of one processor that each of the brokers takes while nothing is asked of it. They rest side by side, so
    they are disturbed alike."""
    before_s = [part.broker.usage().cpu_s for part in parts]
    time.sleep(seconds)
    return [100 * (part.broker.usage().cpu_s - was) / seconds for part, was in zip(parts, before_s, strict=True)]


def traffic(part: Part, folder: Path, published_per_s: float, seconds: float, subscribers: int) -> Traffic:
    """So many messages a second to the queues in turn. Raises ``Failed`` where not every subscriber has got each of
    them at once."""
    broker, nginx = part.broker, part.nginx
    accepted = broker.metric("syncbrok_queue_accepted_total")
    received, before = nginx.received(), broker.usage()
    url = f"http://127.0.0.1:{broker.port}/v1/queues/qN/messages"
    body = content(CONTENT_BYTES)
    began = time.perf_counter()
    wrk(url, body, seconds, folder, connections=_CONNECTIONS, per_s=published_per_s, paths=part.queues)
    passed_s = quiet_since(nginx) - began
    after, deliveries = broker.usage(), nginx.received() - received
    accepted = broker.metric("syncbrok_queue_accepted_total") - accepted
    waiting, failed = left_over(broker)
    if waiting or failed or deliveries != subscribers * accepted:
        raise Failed(f"{accepted:g} accepted, {deliveries} received, {waiting:g} wait, {failed:g} attempts failed")
    cpu_us = 1e6 * (after.cpu_s - before.cpu_s) / deliveries
    return Traffic(cpu_us, deliveries / passed_s, nginx.connections(), after.resident_bytes)


def once(folder: Path, options: Options) -> Readings:
    queues = 20 if options.quick else QUEUES
    idle_s, seconds = options.seconds_or(10, 1), options.seconds_or(EVERY_S, 1)
    published_per_s = queues / EVERY_S
    deliveries_per_s = published_per_s * SUBSCRIBERS
    with ExitStack() as stack:
        none = started(stack, folder, 0, 0)
        one = started(stack, folder, 1, 1)
        ten = started(stack, folder, 1, SUBSCRIBERS)
        many = started(stack, folder, queues, SUBSCRIBERS)
        time.sleep(0.2 if options.quick else _SETTLED_AFTER_S)
        idle, idle_none = idle_percent([many, none], idle_s)
        resident, resident_none = many.broker.usage().resident_bytes, none.broker.usage().resident_bytes
        warm_s = min(1, seconds)
        traffic(ten, folder, published_per_s, warm_s, SUBSCRIBERS)
        few = traffic(ten, folder, published_per_s, seconds / 2, SUBSCRIBERS)
        traffic(one, folder, deliveries_per_s, warm_s, 1)
        single = traffic(one, folder, deliveries_per_s, seconds / 2, 1)
        first = traffic(many, folder, 2 * published_per_s, seconds / 2, SUBSCRIBERS)
        spread = traffic(many, folder, published_per_s, seconds, SUBSCRIBERS)
        (idle_after,) = idle_percent([many], idle_s / 3)
    number = queues * SUBSCRIBERS
    beside = {"subscribers": float(number), "start s": many.start_s, "start with none s": none.start_s}
    memory = {
        "KiB/subscriber": (resident - resident_none) / number / _KIB,
        "KiB/subscriber after traffic": (spread.resident_bytes - resident_none) / number / _KIB,
    }
    delivery = {
        "deliveries/s": spread.per_s,
        "us/delivery, the first to each at twice the pace": first.cpu_us,
        "connections": float(spread.connections),
        "us/delivery to one subscriber": single.cpu_us,
        "deliveries/s to one subscriber": single.per_s,
        "connections to one subscriber": float(single.connections),
        "connections to ten subscribers": float(few.connections),
    }
    return {
        "quiet_idle": Reading(idle, idle_none, {"% after traffic": idle_after, **beside}),
        "quiet_memory": Reading(resident / _MB, resident_none / _MB, memory),
        "quiet_delivery": Reading(spread.cpu_us, few.cpu_us, delivery),
    }


_TEN: Final = "the same publishes to one queue with 10 subscribers; beside it as many deliveries to one subscriber"

ROW = Row(
    "quiet_subscribers",
    "10,000 subscribers, a path each at one nginx: 1,000 queues of 10, declared in queues.yml. At first 10 s without"
    " traffic: CPU, and resident memory in millions of bytes, beside a broker that has none of them. Then, once each"
    " has had a message, 100 of 4 KiB a second to the queues in turn for 10 s, so that each subscriber gets another:"
    " CPU of the broker a delivery, with its tenth of a publish.",
    {
        "quiet_idle": Aim(
            "idle, 10,000 subscribers", "% CPU", "a broker without queues, side by side", 1, less_is_better=True
        ),
        "quiet_memory": Aim("memory, 10,000 subscribers", "MB", "a broker without queues", less_is_better=True),
        "quiet_delivery": Aim("1,000 deliveries/s to 10,000 subscribers", "us CPU", _TEN, less_is_better=True),
    },
    each_run(once),
)

if __name__ == "__main__":
    main([ROW])
