"""One consumer and a backlog, for each way out but webhooks: ``python -m benchmarks.consumers``."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from benchmarks.delivery import QUEUE, deliver, statistics, subscribe, wait_until_complete
from benchmarks.load import fill
from benchmarks.processes import Broker, Failed, Nginx, aside, free_ports
from benchmarks.program import main
from benchmarks.row import Aim, Options, Reading, Readings, Row, each_run

_CEILING: Final = "no limit but a measure: the same backlog to nginx as a webhook (window 64)"
_ACKNOWLEDGED_WITHIN_S: Final = 60.0
_POLL_S: Final = 0.01
_UNACKNOWLEDGED: Final = "events"
"""nobody waits for who reads them: no delivery is counted"""


def once(folder: Path, options: Options) -> Readings:
    messages = options.messages_or(50_000, 2_000)
    ceiling = messages / _to_nginx(_below(folder, "nginx"), messages)
    return {what: _to_consumer(_below(folder, what), what, messages, ceiling) for what in AIMS}


def _below(folder: Path, name: str) -> Path:
    own = folder / name
    own.mkdir()
    return own


def _to_nginx(folder: Path, messages: int) -> float:
    with Nginx(folder) as nginx, Broker(folder) as broker:
        subscribe(broker, nginx.url, paused=True)
        fill(broker, QUEUE, messages)
        return deliver(broker)


def _to_consumer(folder: Path, what: str, messages: int, ceiling: float) -> Reading:
    multiplexed, producers, consumers = free_ports(3)
    bus = f"{{producer_port: {producers}, consumer_port: {consumers}}}"
    with Broker(folder, f"frontends: {{multiplexed: {{port: {multiplexed}}}, msgpack_bus: {bus}}}\n") as broker:
        broker.ask("POST", "/v1/queues", {"name": QUEUE})
        fill(broker, QUEUE, messages)
        before = broker.usage()
        port = {"multiplexed": multiplexed, "msgpack_bus": consumers}.get(what, broker.port)
        seconds, consumer_s = _peer(what, port, messages)
        cpu_s = broker.usage().cpu_s - before.cpu_s
        wait_until_complete(broker, _ACKNOWLEDGED_WITHIN_S)
        wanted = 0 if what == _UNACKNOWLEDGED else messages
        delivered = _delivered(broker, wanted)
    if delivered != wanted:
        raise Failed(f"{what}: {delivered} of {messages} messages were acknowledged")
    beside = {
        "broker CPU us/message": 1e6 * cpu_s / messages,
        "consumer CPU us/message": 1e6 * consumer_s / messages,
        "messages": float(messages),
    }
    return Reading(messages / seconds, ceiling, beside)


def _delivered(broker: Broker, wanted: int) -> int:
    """How many deliveries were acknowledged, once it is ``wanted`` or too late: an acknowledgement of a group that does
    not count is answered before its row is written."""
    until_s = time.perf_counter() + _ACKNOWLEDGED_WITHIN_S
    while True:
        delivered: int = statistics(broker)["delivered"]
        if delivered >= wanted or time.perf_counter() > until_s:
            return delivered
        time.sleep(_POLL_S)


def _peer(what: str, port: int, messages: int) -> tuple[float, float]:
    """The seconds it took, and those of the consumer's own CPU."""
    command = [sys.executable, "-m", "benchmarks.consumer_peers", what, str(port), str(messages)]
    try:
        ran = subprocess.run(aside(command), capture_output=True, text=True, timeout=300, check=False)
    except subprocess.TimeoutExpired as late:
        raise Failed(f"{what} had not taken {messages} messages after {late.timeout:g} s") from None
    if ran.returncode:
        raise Failed(f"{what} ended with {ran.returncode}: {ran.stderr}")
    seconds, cpu_s = map(float, ran.stdout.split())
    return seconds, cpu_s


AIMS: Final = {
    "pull": Aim("pull, 1,000 at a time", "msg/s", _CEILING),
    "websocket": Aim("WebSocket stream, window 2,000", "msg/s", _CEILING),
    "events": Aim("Server-Sent Events", "msg/s", _CEILING),
    "multiplexed": Aim("multiplexed, one stream", "msg/s", _CEILING),
    "msgpack_bus": Aim("msgpack bus, one look after the other", "msg/s", _CEILING),
}

ROW = Row(
    "consumers",
    "50,000 messages wait in a queue without subscribers; then one consumer takes them from the beginning. From before"
    " it connects until the last has come, with pull until its acknowledgement is answered; then all must be complete."
    " Each has a broker of its own, and so has the webhook beside them: it is paused until its messages are there.",
    AIMS,
    each_run(once),
)

if __name__ == "__main__":
    main([ROW])
