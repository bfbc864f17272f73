"""Publishing messages of real sizes, one by one and in batches: ``python -m benchmarks.publish_sizes``."""

from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.batch import CONNECTIONS as BATCHES_AT_ONCE
from benchmarks.batch import LINES
from benchmarks.load import CONNECTIONS, NDJSON, Load, content, lines, wrk
from benchmarks.processes import Broker, usage
from benchmarks.program import main
from benchmarks.row import Aim, Options, Reading, Readings, Row, each_run
from syncbrok.bench.processes import SinkProcess

KIB: Final = 1_024
SINGLE_KIB: Final = (1, 4, 16, 64, 1_024)
BATCH_KIB: Final = (1, 4, 16, 64)
_BATCH_BYTES_MAX: Final = 8 * KIB * KIB
_LEAST: Final = {4: 0.8, 1_024: 0.6}


class Body(NamedTuple):
    """What one POST sends."""

    kib: int
    batch: bool

    @property
    def messages(self) -> int:
        return min(LINES, _BATCH_BYTES_MAX // (self.kib * KIB)) if self.batch else 1

    @property
    def key(self) -> str:
        return f"{'batch' if self.batch else 'single'}_{self.kib}k"

    @property
    def words(self) -> str:
        size = f"{self.kib} KiB" if self.kib < KIB else f"{self.kib // KIB} MiB"
        return f"publish {size}, batches of {self.messages}" if self.batch else f"publish {size}, one POST each"

    def post(self, url: str, seconds: float, folder: Path, connections: int) -> Load:
        """Post it for so long; ``connections`` for single ones."""
        if not self.batch:
            return wrk(url, content(self.kib * KIB), seconds, folder, connections=connections)
        data = lines(self.messages, self.kib * KIB)
        return wrk(url, data, seconds, folder, connections=BATCHES_AT_ONCE, kind=NDJSON)


BODIES: Final = (*(Body(kib, batch=False) for kib in SINGLE_KIB), *(Body(kib, batch=True) for kib in BATCH_KIB))


def once(folder: Path, options: Options) -> Readings:
    readings = Readings()
    # A broker on a slow disk refuses a part of 64 MiB that come at once (INTERFACES 5), and then there is no figure.
    connections = 8 if options.quick else CONNECTIONS
    for body in BODIES:
        # On a machine that is busy besides a batch of 8 MiB takes more than a second: then there would be no figure.
        is_large = body.batch and body.messages < LINES
        seconds = options.seconds_or(2, quick=2 if is_large else 0.5)
        with SinkProcess(folder / "bare.log") as bare:
            before_s = usage(bare.pid).cpu_s
            ceiling = body.post(bare.url, seconds, folder, connections)
            bare_us = 1e6 * (usage(bare.pid).cpu_s - before_s) / (body.messages * ceiling.requests)
        (folder / "bare.log").unlink()
        place = folder / body.key
        place.mkdir()
        with Broker(place) as broker:
            broker.ask("POST", "/v1/queues", {"name": "bench"})
            before = broker.usage()
            path = "/v1/queues/bench/messages:batch" if body.batch else "/v1/queues/bench/messages"
            seen = body.post(f"http://127.0.0.1:{broker.port}{path}", seconds, folder, connections)
            cpu_us = 1e6 * (broker.usage().cpu_s - before.cpu_s) / (body.messages * seen.requests)
        beside = {
            "broker CPU us/message": cpu_us,
            "bare server CPU us/message": bare_us,
            "MB/s": body.messages * seen.per_s * body.kib * KIB / 1e6,
            "p99 ms": seen.p99_ms,
        }
        readings[body.key] = Reading(body.messages * seen.per_s, body.messages * ceiling.per_s, beside)
    return readings


def _aim(body: Body) -> Aim:
    ceiling_is = "the same bodies, unread, to a bare HTTP server on httptools that only appends and group-commits"
    least = None if body.batch else _LEAST.get(body.kib)
    return Aim(body.words, "msg/s", ceiling_is, least, of_ceiling=least is not None)


ROW = Row(
    "publish_sizes",
    f"wrk: single POSTs over {CONNECTIONS} connections, batches over {BATCHES_AT_ONCE} of at most 8 MiB, each answered"
    " once all of it is fsynced; a broker of its own for each, no subscriber.",
    {body.key: _aim(body) for body in BODIES},
    each_run(once),
)

if __name__ == "__main__":
    main([ROW])
