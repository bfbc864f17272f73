"""One message to a thousand subscribers: ``python -m benchmarks.fan_out``."""

import http.client
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from benchmarks.declared import declared
from benchmarks.delivery import left_over
from benchmarks.load import content, wrk
from benchmarks.processes import Broker, Failed, Nginx
from benchmarks.program import main
from benchmarks.row import Aim, Options, Reading, Readings, Row, each_run

SUBSCRIBERS: Final = 1_000
ORIGINS: Final = 10
CONTENT_BYTES: Final = 4_096
SECRET: Final = "whsec_YmVuY2htYXJrcy1vZi1zeW5jYnJvay0zMi1ieXRlcyE="
_PATH: Final = "/v1/queues/q0/messages"
_POLL_S: Final = 0.001
_REST_S: Final = 0.1
_PATIENCE_S: Final = 60.0
_MS: Final = 1e3


class Spread(NamedTuple):
    """Of one message, in milliseconds. ``answered``: from when its publish was sent until the answer; ``last``: from
    that answer until the last subscriber had it."""

    answered: float
    last: float


class Publisher:
    """Publishes on one connection, and looks when nginx has what was published."""

    def __init__(self, broker: Broker, nginx: Nginx, subscribers: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", broker.port, timeout=_PATIENCE_S)
        self._nginx = nginx
        self._subscribers = subscribers

    def close(self) -> None:
        self._connection.close()

    def publish(self) -> Spread:
        """One message. Return a moment after the last subscriber has it: what follows a delivery is then done. Raises
        ``Failed`` where it is refused, or not everybody gets it."""
        received = self._nginx.received() + self._subscribers
        sent = time.perf_counter()
        self._connection.request("POST", _PATH, content(CONTENT_BYTES), {"Content-Type": "text/plain"})
        answer = self._connection.getresponse()
        answered = time.perf_counter()
        said = answer.read()
        if answer.status != 201:
            raise Failed(f"publishing: {answer.status} {said.decode(errors='replace')}")
        while (now := self._nginx.received()) < received:
            if time.perf_counter() - answered > _PATIENCE_S:
                raise Failed(f"{received - now} of {self._subscribers} subscribers never got a message")
            time.sleep(_POLL_S)
        last = time.perf_counter()
        time.sleep(_REST_S)
        return Spread((answered - sent) * _MS, (last - answered) * _MS)


def spread(folder: Path, options: Options, origins: int, secret: str = "") -> Reading:
    """Milliseconds until the last subscriber has a message: the median of many, one after the other."""
    subscribers, repeats, warm = (100, 3, 2) if options.quick else (SUBSCRIBERS, options.messages or 30, 6)
    with (
        tempfile.TemporaryDirectory(dir=folder) as own,
        Nginx(Path(own), origins) as nginx,
        Broker(Path(own), queues=declared(1, subscribers, nginx.ports, secret)) as broker,
    ):
        publisher = Publisher(broker, nginx, subscribers)
        for _ in range(warm):
            publisher.publish()
        connections, before, nginx_before_s = nginx.connections(), broker.usage(), nginx.cpu_s()
        taken = [publisher.publish() for _ in range(repeats)]
        cpu_s, nginx_s = broker.usage().cpu_s - before.cpu_s, nginx.cpu_s() - nginx_before_s
        connections_after = nginx.connections()
        publisher.close()
        _check(broker, (warm + repeats) * subscribers)
        ceiling = wrk(
            nginx.url, content(CONTENT_BYTES), options.seconds_or(3), Path(own), connections=connections_after
        )
    last_ms = sorted(one.last for one in taken)
    beside = {
        "worst ms": last_ms[-1],
        "best ms": last_ms[0],
        "publish sent -> answer ms": median(one.answered for one in taken),
        "publish sent -> last ms": median(one.answered + one.last for one in taken),
        "deliveries/s": subscribers / median(last_ms) * _MS,
        "broker CPU us/delivery": 1e6 * cpu_s / (repeats * subscribers),
        "nginx CPU us/delivery": 1e6 * nginx_s / (repeats * subscribers),
        "connections": float(connections_after),
        "of them opened meanwhile": float(connections_after - connections),
        "subscribers": float(subscribers),
        "origins": float(origins),
        "messages": float(repeats),
    }
    return Reading(median(last_ms), subscribers / ceiling.per_s * _MS, beside)


def _check(broker: Broker, expected: int) -> None:
    """Raises ``Failed`` unless every delivery succeeded at its first attempt."""
    waiting, failed = left_over(broker)
    if waiting or failed:
        raise Failed(f"of {expected} deliveries {waiting:g} messages wait, {failed:g} attempts failed")


def once(folder: Path, options: Options) -> Readings:
    return {
        "fan_out": spread(folder, options, 1),
        "fan_out_signed": spread(folder, options, 1, SECRET),
        "fan_out_origins": spread(folder, options, ORIGINS),
    }


def _aim(of: str) -> Aim:
    ceiling_is = (
        "wrk on as many connections as the broker had open, posting the same 4 KiB to one port of the same nginx: the"
        " time of as many of its requests, none of them signed"
    )
    return Aim(f"one message to 1,000 subscribers{of}", "ms", ceiling_is, less_is_better=True)


ROW = Row(
    "fan_out",
    "One message of 4 KiB to the 1,000 subscribers of a queue, a path each at one nginx; with a signature each; and 100"
    " each at 10 ports of that nginx. From the answer to the publish until the last subscriber has it (nginx is asked"
    " each millisecond), with connections open from 6 messages before; median of 30 messages, one after the other.",
    {"fan_out": _aim(""), "fan_out_signed": _aim(", signed"), "fan_out_origins": _aim(" at 10 origins")},
    each_run(once),
)

if __name__ == "__main__":
    main([ROW])
