"""Frontends other than HTTP, and the Python client: ``python -m benchmarks.frontends``."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.delivery import statistics, wait_until_complete
from benchmarks.load import NDJSON, lines, wrk
from benchmarks.processes import Broker, Failed, free_ports
from benchmarks.program import main
from benchmarks.row import Aim, Options, Reading, Readings, Row, each_run

CONNECTIONS: Final = 8
_CLIENT_LINES: Final = 5_000


def once(folder: Path, options: Options) -> Readings:
    count = options.messages_or(200_000, 4_000)
    framed, topics = free_ports(2)
    config = f"frontends: {{framed: {{port: {framed}}}, topics: {{port: {topics}}}}}\n"
    with Broker(folder, config) as broker:
        broker.ask("POST", "/v1/queues", {"name": "bench"})
        published = count / _peer("send", framed, count, CONNECTIONS)
        if (accepted := statistics(broker)["accepted"]) != count:
            raise Failed(f"{accepted} of {count} messages were accepted")
        for number in range(CONNECTIONS):
            broker.ask("POST", "/v1/queues", {"name": f"bench{number}"})
            broker.ask("POST", f"/v1/queues/bench{number}/messages:batch", lines(count // CONNECTIONS // 4), NDJSON)
        taken = count // CONNECTIONS // 4 * CONNECTIONS
        before = broker.usage()
        delivered = taken / _peer("take", topics, taken, CONNECTIONS)
        cpu_us = 1e6 * (broker.usage().cpu_s - before.cpu_s) / taken
        wait_until_complete(broker)
        client = count / _peer("publish", f"http://127.0.0.1:{broker.port}", count)
        seconds = options.seconds_or(4)
        url = f"http://127.0.0.1:{broker.port}/v1/queues/bench/messages:batch"
        most = _CLIENT_LINES * wrk(url, lines(_CLIENT_LINES), seconds, folder, connections=1, kind=NDJSON).per_s
    with _bare("drain") as port:
        sent = count / _peer("send", port, count, CONNECTIONS)
    with _bare("ping") as port:
        pinged = taken / _peer("take", port, taken, CONNECTIONS)
    return {
        "framed": Reading(published, sent, {}),
        "topics": Reading(delivered, pinged, {"broker CPU us/message": cpu_us}),
        "client": Reading(client, most, {}),
    }


def _peer(what: str, *arguments: object) -> float:
    command = [sys.executable, "-m", "benchmarks.tcp_peers", what, *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if ran.returncode:
        raise Failed(f"{what} ended with {ran.returncode}: {ran.stderr}")
    return float(ran.stdout)


@contextmanager
def _bare(what: str) -> Iterator[int]:
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "benchmarks.tcp_peers", what, str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield port
        finally:
            process.terminate()


ROW = Row(
    "frontends",
    "Framed publishers over 8 connections until all is durable; a backlog to 8 acknowledging topics connections, one "
    "topic each; the Python client, one process, a key for each message. Each until the last message.",
    {
        "framed": Aim(
            "framed publish, 8 connections", "msg/s", "the same senders to a server that reads and throws away", 60_000
        ),
        "topics": Aim(
            "topics delivery, 8 connections", "msg/s", "the same takers at a server with nothing behind it", 25_000
        ),
        "client": Aim(
            "publish through the Python client", "msg/s", "wrk, one connection, the same batches ready made", 60_000
        ),
    },
    each_run(once),
)

if __name__ == "__main__":
    main([ROW])
