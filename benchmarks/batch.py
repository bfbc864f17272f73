"""Publishing in batches of 500: ``python -m benchmarks.batch``."""

from pathlib import Path
from typing import Final

from benchmarks.load import NDJSON, lines, wrk
from benchmarks.processes import Broker
from benchmarks.program import main
from benchmarks.row import Aim, Options, Reading, Readings, Row, each_run
from syncbrok.bench.processes import SinkProcess

LINES: Final = 500
CONNECTIONS: Final = 4


def once(folder: Path, options: Options) -> Readings:
    seconds, body = options.seconds_or(10), lines(LINES)
    with SinkProcess(folder / "bare.log") as bare:
        ceiling = wrk(bare.url, body, seconds, folder, connections=CONNECTIONS, kind=NDJSON)
    with Broker(folder) as broker:
        broker.ask("POST", "/v1/queues", {"name": "bench"})
        before = broker.usage()
        url = f"http://127.0.0.1:{broker.port}/v1/queues/bench/messages:batch"
        seen = wrk(url, body, seconds, folder, connections=CONNECTIONS, kind=NDJSON)
        cpu_s = broker.usage().cpu_s - before.cpu_s
    messages = LINES * seen.requests
    beside = {
        "broker CPU us/message": 1e6 * cpu_s / messages,
        "wrk CPU us/message": 1e6 * seen.cpu_s / messages,
        "p50 ms/batch": seen.p50_ms,
        "p99 ms/batch": seen.p99_ms,
    }
    return {"batch": Reading(LINES * seen.per_s, LINES * ceiling.per_s, beside)}


ROW = Row(
    "batch",
    "wrk, 4 connections, each POST an NDJSON batch of 500 messages, answered once all of it is fsynced; no subscriber.",
    {
        "batch": Aim(
            "publish, batches of 500",
            "msg/s",
            "the same bodies, unread, to a bare HTTP server on httptools that only appends and group-commits",
            250_000,
            500_000,
        )
    },
    each_run(once),
)

if __name__ == "__main__":
    main([ROW])
