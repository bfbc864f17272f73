"""From acceptance to the subscriber at 1,000 messages a second: ``python -m benchmarks.latency``."""

import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from benchmarks.delivery import QUEUE, subscribe, wait_until_complete
from benchmarks.load import CONNECTIONS, MESSAGE_BYTES
from benchmarks.processes import Broker, Failed
from benchmarks.program import main
from benchmarks.row import Aim, Options, Reading, Readings, Row, each_run

PER_S: Final = 1_000
_PROGRAM: Final = (sys.executable, "-m", "benchmarks.stopwatch")
_PAGE: Final = 1_000


class Stopwatch:
    """The subscriber that notes times."""

    def __init__(self) -> None:
        arguments = [*_PROGRAM, "subscriber"]
        self._process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()

    def seen(self) -> dict[int, tuple[int, int]]:
        """End it; number -> (sequence, nanoseconds of the first byte of its first attempt)."""
        said, _ = self._process.communicate("")
        found: dict[int, tuple[int, int]] = {}
        for number, sequence, came_ns in json.loads(said)["seen"]:
            found.setdefault(number, (sequence, came_ns))
        return found


class Points(NamedTuple):
    """Milliseconds."""

    p50: float
    p99: float


def points(taken_ns: list[int]) -> Points:
    ordered = sorted(taken_ns)
    return Points(ordered[len(ordered) // 2] / 1e6, ordered[len(ordered) * 99 // 100] / 1e6)


def once(folder: Path, options: Options) -> Readings:
    seconds, warm_s = options.seconds_or(10), options.seconds_or(1)
    warm = int(PER_S * warm_s)
    with Stopwatch() as stopwatch:
        sent = publish(stopwatch.port, ["/"], seconds)
        seen = stopwatch.seen()
        least = points([seen[number][1] - at for number, at in enumerate(sent["sent_ns"])])
    with Stopwatch() as stopwatch, Broker(folder) as broker:
        subscribe(broker, f"http://127.0.0.1:{stopwatch.port}/", paused=False)
        publish(broker.port, [f"/v1/queues/{QUEUE}/messages"], warm_s)
        wait_until_complete(broker)
        before = broker.usage()
        sent = publish(broker.port, [f"/v1/queues/{QUEUE}/messages"], seconds, first=warm)
        cpu_s = broker.usage().cpu_s - before.cpu_s
        wait_until_complete(broker)
        accepted_ns = accepted(broker)
        seen = stopwatch.seen()
    numbers = range(warm, warm + len(sent["sent_ns"]))
    if any(number not in seen for number in numbers):
        raise Failed("a message never reached the subscriber")
    came = [seen[number] for number in numbers]
    figures = points([came_ns - accepted_ns[sequence] for sequence, came_ns in came])
    since_sent = points([one[1] - at for one, at in zip(came, sent["sent_ns"], strict=True)])
    since_due = points([one[1] - at for one, at in zip(came, sent["due_ns"], strict=True)])
    since_answered = points([one[1] - at for one, at in zip(came, sent["answered_ns"], strict=True)])
    beside = {"broker CPU us/message": 1e6 * cpu_s / len(came)}
    return {
        f"latency_{name}": Reading(
            getattr(figures, name),
            getattr(least, name),
            {
                f"sent -> first byte ms, {name}": getattr(since_sent, name),
                f"due -> first byte ms, {name}": getattr(since_due, name),
                f"201 at the publisher -> first byte ms, {name}": getattr(since_answered, name),
                **beside,
            },
        )
        for name in Points._fields
    }


def publish(
    port: int,
    paths: list[str],
    seconds: float,
    *,
    first: int = 0,
    per_s: float = PER_S,
    message_bytes: int = MESSAGE_BYTES,
) -> dict[str, Any]:
    """Evenly spread over ``seconds`` and in turn to the paths; see ``stopwatch.publish``."""
    wish = {
        "port": port,
        "paths": paths,
        "connections": CONNECTIONS,
        "per_s": per_s,
        "seconds": seconds,
        "message_bytes": message_bytes,
        "first": first,
    }
    done = subprocess.run([*_PROGRAM, "publisher", json.dumps(wish)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"the publisher ended with {done.returncode}: {done.stderr}")
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def accepted(broker: Broker, queue: str = QUEUE) -> dict[int, int]:
    """Sequence -> when the broker accepted it, Unix nanoseconds (recorded in microseconds)."""
    found: dict[int, int] = {}
    after = 0
    while page := broker.ask("GET", f"/v1/queues/{queue}/messages?after={after}&limit={_PAGE}")["messages"]:
        for message in page:
            at = datetime.fromisoformat(message["accepted_at"])
            found[message["sequence"]] = int(at.timestamp()) * 1_000_000_000 + at.microsecond * 1_000
        after = page[-1]["sequence"]
    return found


def _aim(name: str, at_least: float, beyond: float) -> Aim:
    ceiling_is = "the same publisher sending straight to the same subscriber, from sent to first byte"
    return Aim(f"accepted -> first byte, {name}", "ms", ceiling_is, at_least, beyond, less_is_better=True)


ROW = Row(
    "latency",
    "1,000 messages a second, evenly spread over 64 connections, for 10 s after one of warming up. From the time of"
    " acceptance that the broker recorded (before the fsync: that is in the figure) to the first byte at the"
    " subscriber, a Python process that notes when it comes. Beside it: from the publisher's send, from when that was"
    " due, and from the 201 at the publisher (that may come after the delivery: less than nothing).",
    {"latency_p50": _aim("p50", 1.5, 0.7), "latency_p99": _aim("p99", 8, 3)},
    each_run(once),
)

if __name__ == "__main__":
    main([ROW])
