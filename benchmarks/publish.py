"""Publishing, one POST a message: ``python -m benchmarks.publish``."""

from pathlib import Path

from benchmarks.load import content, wrk
from benchmarks.processes import Broker
from benchmarks.program import main
from benchmarks.row import Aim, Options, Reading, Readings, Row, each_run
from syncbrok.bench.processes import SinkProcess


def once(folder: Path, options: Options) -> Readings:
    seconds = options.seconds_or(10)
    with SinkProcess(folder / "bare.log") as bare:
        ceiling = wrk(bare.url, content(), seconds, folder)
    with Broker(folder) as broker:
        broker.ask("POST", "/v1/queues", {"name": "bench"})
        before = broker.usage()
        seen = wrk(f"http://127.0.0.1:{broker.port}/v1/queues/bench/messages", content(), seconds, folder)
        cpu_s = broker.usage().cpu_s - before.cpu_s
    beside = {
        "broker CPU us/message": 1e6 * cpu_s / seen.requests,
        "wrk CPU us/message": 1e6 * seen.cpu_s / seen.requests,
        "p50 ms": seen.p50_ms,
        "p99 ms": seen.p99_ms,
    }
    return {"publish": Reading(seen.per_s, ceiling.per_s, beside)}


ROW = Row(
    "publish",
    "wrk, 64 connections, one POST a message, each answered once it is fsynced; no subscriber.",
    {
        "publish": Aim(
            "publish, one POST each",
            "msg/s",
            "a bare HTTP server on httptools that only appends and group-commits, under the same wrk",
            20_000,
            45_000,
        )
    },
    each_run(once),
)

if __name__ == "__main__":
    main([ROW])
