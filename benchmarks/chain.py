"""A chain of parents: ``python -m benchmarks.chain``."""

import os
import time
from pathlib import Path
from typing import Final

import orjson

from benchmarks.delivery import QUEUE, deliver, subscribe
from benchmarks.load import NDJSON, content, wrk
from benchmarks.processes import Broker, Nginx
from benchmarks.program import main
from benchmarks.row import Aim, Options, Reading, Readings, Row, each_run

_RECORD_BYTES: Final = 256


def once(folder: Path, options: Options) -> Readings:
    hops = options.messages_or(5_000, 500)
    body = content().decode()
    chain = [{"content": body, **({"parents": [f"#{line}"]} if line else {})} for line in range(hops)]
    with Nginx(folder, alone=True) as nginx, Broker(folder) as broker:
        posts = wrk(nginx.url, content(), options.seconds_or(3), folder, connections=1)
        ceiling = 1 / (1 / posts.per_s + fsync_s(folder, hops))
        subscribe(broker, nginx.url, paused=True)
        broker.ask("POST", f"/v1/queues/{QUEUE}/messages:batch", b"\n".join(map(orjson.dumps, chain)), NDJSON)
        before = broker.usage()
        seconds = deliver(broker)
        cpu_s = broker.usage().cpu_s - before.cpu_s
    return {"chain": Reading(hops / seconds, ceiling, {"broker CPU us/hop": 1e6 * cpu_s / hops, "hops": float(hops)})}


def fsync_s(folder: Path, times: int) -> float:
    """Seconds that one fsynced write of a record takes, one after the other."""
    file = os.open(folder / "fsync", os.O_WRONLY | os.O_CREAT | os.O_DSYNC, 0o600)
    try:
        os.posix_fallocate(file, 0, _RECORD_BYTES * times)
        began = time.perf_counter()
        for number in range(times):
            os.pwrite(file, b"x" * _RECORD_BYTES, _RECORD_BYTES * number)
        return (time.perf_counter() - began) / times
    finally:
        os.close(file)


ROW = Row(
    "chain",
    "5,000 messages, each the only child of the one before, wait for a paused subscriber; from un-pausing it until all"
    " are complete. A hop is a delivery, its answer, and the fsync of that fact, before the next may begin.",
    {
        "chain": Aim(
            "hops of one parent chain", "hops/s", "wrk on one connection to the same nginx, then an fsync", 2_700, 4_500
        )
    },
    each_run(once),
)

if __name__ == "__main__":
    main([ROW])
