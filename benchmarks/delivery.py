"""What the rows about delivery share: a queue with a paused subscriber, and waiting until all of it is complete."""

import time
from typing import Any, Final

from benchmarks.processes import Broker, Failed, Serving

QUEUE: Final = "bench"
_POLL_MIN_S: Final = 0.002
_POLL_MAX_S: Final = 0.5
_PATIENCE: Final = 0.3
_NOTED_WITHIN_S: Final = 60.0
_NOTED_POLL_S: Final = 0.05


def subscribe(broker: Serving, url: str, *, paused: bool, queue: str = QUEUE, secret: str = "") -> None:
    """A queue with nginx as its one subscriber, everything else as it is by default (window 64); signed with
    ``secret`` where there is one."""
    broker.ask("POST", "/v1/queues", {"name": queue})
    signed = {"secret": secret} if secret else {}
    broker.ask("POST", f"/v1/queues/{queue}/subscribers", {"name": "nginx", "endpoint": url, "paused": paused} | signed)


def statistics(broker: Serving, queue: str = QUEUE) -> dict[str, Any]:
    found: dict[str, Any] = broker.ask("GET", f"/v1/queues/{queue}")["statistics"]
    return found


def deliver(broker: Serving, queue: str = QUEUE) -> float:
    """Un-pause the subscriber; the seconds until everything in the queue is complete."""
    began = time.perf_counter()
    resume(broker, queue)
    wait_until_complete(broker, queue=queue)
    return time.perf_counter() - began


def resume(broker: Serving, queue: str = QUEUE) -> None:
    """The subscriber gets what waits and what comes, until ``pause``."""
    broker.ask("PATCH", f"/v1/queues/{queue}/subscribers/nginx", {"paused": False})


def pause(broker: Serving, queue: str = QUEUE) -> None:
    """The subscriber gets nothing more, until ``deliver``."""
    broker.ask("PATCH", f"/v1/queues/{queue}/subscribers/nginx", {"paused": True})


def wait_until_complete(broker: Serving, timeout_s: float = 900.0, *, queue: str = QUEUE) -> None:
    """Until nothing in the queue waits. It asks rarely while much is left, and often near the end: so the broker
    hardly feels it, and the end is known to a few milliseconds. Raises ``Failed`` where a message died or it takes
    too long."""
    began = asked = time.perf_counter()
    left = statistics(broker, queue)["waiting"]
    while left:
        passed_s = time.perf_counter() - began
        if passed_s > timeout_s:
            raise Failed(f"{left} messages still wait after {timeout_s:g} s")
        time.sleep(_POLL_MIN_S)
        before, before_at, left, asked = left, asked, statistics(broker, queue)["waiting"], time.perf_counter()
        rest_s = left * (asked - before_at) / (before - left) if before > left else 0.0
        # not longer than it has taken so far either: the beginning of a delivery is slower than its middle
        time.sleep(min(_POLL_MAX_S, _PATIENCE * rest_s, _PATIENCE * (asked - began)))
    if dead := statistics(broker, queue)["dead"]:
        raise Failed(f"{dead} deliveries ended dead")


def left_over(broker: Broker) -> tuple[float, float]:
    """How many messages wait, in all queues, and how many attempts failed, once nothing waits or patience is over. An
    endpoint has its request, and the benchmark has counted it, before the broker has noted the answer."""
    began = time.perf_counter()
    while (waiting := broker.metric("syncbrok_waiting_messages")) and time.perf_counter() - began < _NOTED_WITHIN_S:
        time.sleep(_NOTED_POLL_S)
    return waiting, broker.metric("syncbrok_failed_total")
