"""Publishing from Node, each way that its client has: ``python -m benchmarks.node_clients``."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

from benchmarks.delivery import statistics
from benchmarks.load import CONNECTIONS, NDJSON, content, lines, wrk
from benchmarks.processes import Broker, Failed, Missing
from benchmarks.program import main
from benchmarks.row import Aim, Options, Reading, Readings, Row, each_run

_PROGRAM: Final = Path(__file__).with_name("node_publish.mjs")
_BUILT: Final = Path(__file__).parents[1] / "clients" / "typescript" / "dist" / "index.js"
_IN_FLIGHT: Final = 1_000
_BATCH: Final = 500
_WITHIN_S: Final = 300


def can_run() -> bool:
    """Node is installed, and the client is built."""
    return bool(shutil.which("node")) and _BUILT.exists()


def once(folder: Path, options: Options) -> Readings:
    if not can_run():
        raise Missing("node or the built TypeScript client is missing: install nodejs and npm, then make client-ts")
    count, seconds = options.messages_or(100_000, 2_000), options.seconds_or(4)
    with Broker(folder) as broker:
        broker.ask("POST", "/v1/queues", {"name": "bench"})
        root = f"http://127.0.0.1:{broker.port}"
        found = {
            "posts": count / _publish("posts", root, count, CONNECTIONS),
            "socket": count / _publish("socket", root, count, _IN_FLIGHT),
            "batches": count / _publish("batches", root, count, _IN_FLIGHT),
        }
        published = 3 * (count + -(-count // 10))
        if (accepted := statistics(broker)["accepted"]) != published:
            raise Failed(f"{accepted} of {published} messages were accepted")
        queue = f"{root}/v1/queues/bench/messages"
        one = wrk(queue, content(), seconds, folder).per_s
        many = _BATCH * wrk(f"{queue}:batch", lines(_BATCH), seconds, folder, connections=1, kind=NDJSON).per_s
    return {
        "posts": Reading(found["posts"], one, {}),
        "socket": Reading(found["socket"], one, {}),
        "batches": Reading(found["batches"], many, {}),
    }


def _publish(way: str, root: str, count: int, in_flight: int) -> float:
    command = ["node", str(_PROGRAM), way, root, str(count), str(in_flight), content().decode()]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=_WITHIN_S, check=False)
    if ran.returncode:
        raise Failed(f"{way} ended with {ran.returncode}: {ran.stderr}")
    return float(ran.stdout)


ROW = Row(
    "node_clients",
    "From one process of Node: a POST for each message over 64 connections (fetch); with the TypeScript client over "
    f"one WebSocket and in its batches, {_IN_FLIGHT} in flight, a promise and a key for each message.",
    {
        "posts": Aim("publish from Node, 64 connections", "msg/s", "wrk, 64 connections, the same broker"),
        "socket": Aim("publish from Node, one WebSocket", "msg/s", "wrk, 64 connections, the same broker"),
        "batches": Aim(
            "publish from Node, the client's batches", "msg/s", "wrk, one connection, batches of 500 ready made"
        ),
    },
    each_run(once),
)

if __name__ == "__main__":
    main([ROW])
