"""A wide tree: ``python -m benchmarks.tree``."""

import tempfile
import time
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Final

import orjson

from benchmarks.delivery import QUEUE, deliver, subscribe
from benchmarks.load import NDJSON, content, fill
from benchmarks.processes import Broker, Nginx
from benchmarks.program import main
from benchmarks.row import Aim, Options, Reading, Readings, Row, each_run

_LINES_MAX: Final = 10_000
_AS_THE_BACKLOG: Final = 0.95
_PAIRS: Final = 7
"""one takes a fifth of a second, in which a shared machine may be twice as fast as in the next"""


def once(folder: Path, options: Options) -> Readings:
    children = options.messages_or(10_000, 1_000)
    pairs = 1 if options.quick else _PAIRS
    taken = [(_timed(folder, children, parents=False), _timed(folder, children, parents=True)) for _ in range(pairs)]
    plain_s, plain_cpu_s, _ = (median(plain[at] for plain, _ in taken) for at in range(3))
    seconds, cpu_s, opened_s = (median(tree[at] for _, tree in taken) for at in range(3))
    beside = {
        "messages/s, tree": children / seconds,
        "messages/s, plain": children / plain_s,
        "broker CPU us/message, tree": 1e6 * cpu_s / children,
        "broker CPU us/message, plain": 1e6 * plain_cpu_s / children,
        "ms from the parent's answer to its first child": 1e3 * opened_s,
        "children": float(children),
    }
    return {"tree": Reading(plain_s / seconds, 1.0, beside)}


def _timed(folder: Path, children: int, *, parents: bool) -> tuple[float, float, float]:
    """Seconds from the first attempt of one of them until all are complete; those of the broker's CPU; and those
    between the parent's answer and the first attempt of a child, in which that answer comes to the disk."""
    with tempfile.TemporaryDirectory(dir=folder) as own, Nginx(folder) as nginx, Broker(Path(own)) as broker:
        subscribe(broker, nginx.url, paused=True)
        path = f"/v1/queues/{QUEUE}/messages"
        if parents:
            parent = broker.ask("POST", path, content(), "text/plain")["id"]
            line = orjson.dumps({"content": content().decode(), "parents": [parent]}) + b"\n"
            for at in range(0, children, _LINES_MAX):
                broker.ask("POST", f"{path}:batch", line * min(_LINES_MAX, children - at), NDJSON)
        else:
            fill(broker, QUEUE, children)
        before = broker.usage()
        deliver(broker)
        ended_s, after = time.time(), broker.usage()
        first, second = broker.ask("GET", f"{path}?limit=2")["messages"]
        began_s, latency_s = _attempt(broker, first["id"])
        opened_s = 0.0
        if parents:
            answered_s = began_s + latency_s
            began_s, _ = _attempt(broker, second["id"])
            opened_s = began_s - answered_s
        return ended_s - began_s, after.cpu_s - before.cpu_s, opened_s


def _attempt(broker: Broker, message: str) -> tuple[float, float]:
    """Of its one attempt: when it began (Unix time), and seconds until the answer was read."""
    ((attempt,),) = [one["attempts"] for one in broker.ask("GET", f"/v1/messages/{message}")["deliveries"]]
    return datetime.fromisoformat(attempt["time"]).timestamp(), attempt["latency_ms"] / 1e3


ROW = Row(
    "tree",
    "One parent and 10,000 children wait for a paused subscriber, which is un-paused; from the first attempt of a"
    " child, that is when the parent is complete, until all children are; the rate as a share of that of as many"
    " messages without parents, from their first attempt; medians of seven pairs.",
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
