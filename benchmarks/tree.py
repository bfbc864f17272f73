"""A wide tree: ``python -m benchmarks.tree``."""

import tempfile
from pathlib import Path
from typing import Final

import orjson

from benchmarks.delivery import QUEUE, deliver, subscribe
from benchmarks.load import NDJSON, content, fill
from benchmarks.processes import Broker, Nginx
from benchmarks.program import main
from benchmarks.row import Aim, Options, Reading, Readings, Row, each_run

_LINES_MAX: Final = 10_000


def once(folder: Path, options: Options) -> Readings:
    children = options.messages_or(10_000, 1_000)
    plain_s, _ = _timed(folder, children, parents=False)
    seconds, cpu_s = _timed(folder, children, parents=True)
    beside = {"broker CPU us/message": 1e6 * cpu_s / (children + 1), "children": float(children)}
    return {"tree": Reading((children + 1) / seconds, (children + 1) / plain_s, beside)}


def _timed(folder: Path, children: int, *, parents: bool) -> tuple[float, float]:
    """Seconds, and those of the broker's CPU, from un-pausing until all are complete."""
    with tempfile.TemporaryDirectory(dir=folder) as own, Nginx(folder) as nginx, Broker(Path(own)) as broker:
        subscribe(broker, nginx.url, paused=True)
        if parents:
            path = f"/v1/queues/{QUEUE}/messages"
            parent = broker.ask("POST", path, content(), "text/plain")["id"]
            line = orjson.dumps({"content": content().decode(), "parents": [parent]}) + b"\n"
            for at in range(0, children, _LINES_MAX):
                broker.ask("POST", f"{path}:batch", line * min(_LINES_MAX, children - at), NDJSON)
        else:
            fill(broker, QUEUE, children + 1)
        before = broker.usage()
        seconds = deliver(broker)
        return seconds, broker.usage().cpu_s - before.cpu_s


ROW = Row(
    "tree",
    "One parent and 10,000 children wait for a paused subscriber; from un-pausing it (so the parent's own delivery,"
    " about a millisecond, is in it) until all are complete.",
    {
        "tree": Aim(
            "a wide tree, 10,000 children",
            "msg/s",
            "as many messages without parents, in the same run: at least 1 means as the backlog",
        )
    },
    each_run(once),
)

if __name__ == "__main__":
    main([ROW])
