"""Several messages in one request to an endpoint that takes a while: ``python -m benchmarks.request_batches``."""

from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.delivery import QUEUE, deliver
from benchmarks.endpoint_processes import Endpoints
from benchmarks.load import fill
from benchmarks.processes import Broker
from benchmarks.program import main
from benchmarks.row import Aim, Options, Reading, Readings, Row, each_run

DELAY_S: Final = 0.005
BATCH: Final = {"max": 100, "wait": "50ms"}


class Delivered(NamedTuple):
    """Of a backlog. ``endpoint_us``: of its CPU, a message."""

    cpu_us: float
    per_s: float
    requests: int
    endpoint_us: float


def delivered(folder: Path, messages: int, batch: dict[str, Any] | None) -> Delivered:
    """A backlog of so many, to one subscriber whose every answer takes ``DELAY_S``."""
    folder.mkdir()
    with Endpoints(folder, 1, tls=False, delay_s=DELAY_S) as endpoint, Broker(folder) as broker:
        broker.ask("POST", "/v1/queues", {"name": QUEUE})
        given = {"name": "nginx", "endpoint": endpoint.url(0), "paused": True, "batch": batch}
        broker.ask("POST", f"/v1/queues/{QUEUE}/subscribers", given)
        fill(broker, QUEUE, messages)
        before_s, endpoint_before_s = broker.usage().cpu_s, endpoint.cpu_s()
        seconds = deliver(broker)
        cpu_s, endpoint_s = broker.usage().cpu_s - before_s, endpoint.cpu_s() - endpoint_before_s
        requests = len(endpoint.ended()["seen"])
    return Delivered(1e6 * cpu_s / messages, messages / seconds, requests, 1e6 * endpoint_s / messages)


def once(folder: Path, options: Options) -> Readings:
    messages = options.messages_or(100_000, 2_000)
    single, together = delivered(folder / "single", messages, None), delivered(folder / "together", messages, BATCH)
    beside = {
        "msg/s": together.per_s,
        "msg/s, one a request": single.per_s,
        "endpoint CPU us/message": together.endpoint_us,
        "endpoint CPU us/message, one a request": single.endpoint_us,
        "messages": float(messages),
    }
    per_1000 = 1_000 / messages
    return {
        "request_batches_cpu": Reading(together.cpu_us, single.cpu_us, beside),
        "request_batches": Reading(per_1000 * together.requests, per_1000 * single.requests, {}),
    }


_ONE_EACH: Final = "the same backlog to the same endpoint, a message a request"

ROW = Row(
    "request_batches",
    "100,000 messages wait for a paused subscriber (window 64) whose every answer takes 5 ms; from un-pausing it until"
    " all are complete, with `batch: {max: 100, wait: 50ms}` and without: CPU of the broker a message, and requests a"
    " thousand messages.",
    {
        "request_batches_cpu": Aim("a backlog in batches, CPU of the broker", "us", _ONE_EACH, less_is_better=True),
        "request_batches": Aim("a backlog in batches, requests", "/1,000 msg", _ONE_EACH, less_is_better=True),
    },
    each_run(once),
)

if __name__ == "__main__":
    main([ROW])
