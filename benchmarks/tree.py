"""A wide tree: ``python -m benchmarks.tree``."""

import tempfile
import time
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import orjson

from benchmarks.delivery import QUEUE, deliver, pause, subscribe
from benchmarks.load import NDJSON, content
from benchmarks.processes import Broker, Nginx
from benchmarks.program import main
from benchmarks.row import Aim, Options, Reading, Readings, Row, each_run

_AS_THE_BACKLOG: Final = 0.95
_PAIRS: Final = 21
"""one part takes a fifth of a second, in which a shared machine may be twice as fast as in the next"""


class Part(NamedTuple):
    """``seconds``: from the first attempt of one of them until all are complete; ``cpu_s`` of the broker, from
    un-pausing on; ``opened_s``: between the parent's answer and the first attempt of a child, in which that answer
    comes to the disk."""

    seconds: float
    cpu_s: float
    opened_s: float


def once(folder: Path, options: Options) -> Readings:
    children = options.messages_or(10_000, 1_000)
    plain: list[Part] = []
    tree: list[Part] = []
    # One broker for all, and the two in turns: what the machine does from one second to the next, both feel.
    with tempfile.TemporaryDirectory(dir=folder) as own, Nginx(folder) as nginx, Broker(Path(own)) as broker:
        subscribe(broker, nginx.url, paused=True)
        for _ in range(1 if options.quick else _PAIRS):
            plain.append(delivered_backlog(broker, children, parents=False))
            tree.append(delivered_backlog(broker, children, parents=True))
    plain_s, plain_cpu_s, _ = map(median, zip(*plain, strict=True))
    seconds, cpu_s, opened_s = map(median, zip(*tree, strict=True))
    beside = {
        "messages/s, tree": children / seconds,
        "messages/s, plain": children / plain_s,
        "broker CPU us/message, tree": 1e6 * cpu_s / children,
        "broker CPU us/message, plain": 1e6 * plain_cpu_s / children,
        "ms from the parent's answer to its first child": 1e3 * opened_s,
        "children": float(children),
    }
    return {"tree": Reading(plain_s / seconds, 1.0, beside)}


def delivered_backlog(broker: Broker, children: int, *, parents: bool) -> Part:
    """Publish so many messages, children of one parent or of none, to a paused subscriber, and have them delivered."""
    path = f"/v1/queues/{QUEUE}/messages"
    one: dict[str, object] = {"content": content().decode()}
    if parents:
        parent = broker.ask("POST", path, content(), "text/plain")["id"]
        one["parents"] = [parent]
    first = broker.ask("POST", f"{path}:batch", (orjson.dumps(one) + b"\n") * children, NDJSON)["ids"][0]
    before = broker.usage()
    deliver(broker)
    ended_s, after = time.time(), broker.usage()
    pause(broker)
    began_s, _ = _attempt(broker, first)
    opened_s = began_s - sum(_attempt(broker, parent)) if parents else 0.0
    return Part(ended_s - began_s, after.cpu_s - before.cpu_s, opened_s)


def _attempt(broker: Broker, message: str) -> tuple[float, float]:
    """Of its one attempt: when it began, Unix time, and the seconds until its answer was read."""
    ((attempt,),) = [one["attempts"] for one in broker.ask("GET", f"/v1/messages/{message}")["deliveries"]]
    return datetime.fromisoformat(attempt["time"]).timestamp(), attempt["latency_ms"] / 1e3


ROW = Row(
    "tree",
    "One parent and 10,000 children wait for a paused subscriber, which is un-paused; from the first attempt of a"
    " child, that is when the parent is complete, until all children are; the rate as a share of that of as many"
    " messages without parents, from their first attempt; one broker, medians of 21 pairs.",
    {
        "tree": Aim(
            "a wide tree, 10,000 children",
            "of the backlog",
            "a backlog of as many messages without parents, in the same run; 0.95 counts as the same",
            _AS_THE_BACKLOG,
            _AS_THE_BACKLOG,
        )
    },
    each_run(once),
)

if __name__ == "__main__":
    main([ROW])
