"""Publishing and delivering at once, sustained: ``python -m benchmarks.publish_and_deliver``.

Sustained means: the backlog does not grow. A closed loop of publishers alone would not show that, since nothing tells
it to wait for deliveries; so wrk is paced. First the rate is searched for, in short windows: free-running, then by
halving the range between what was sustained and what was not. Then one window of 60 s at the rate found; where the
backlog at its end is more than a third of a second's traffic, the window is repeated 4 % slower. The figure is the
lesser of what was published and what was delivered within the window, by its length.
"""

from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.delivery import QUEUE, statistics, subscribe, wait_until_complete
from benchmarks.load import content, wrk
from benchmarks.processes import Broker, Failed, Nginx
from benchmarks.program import main
from benchmarks.row import Aim, Options, Reading, Readings, Row, each_run, progress
from syncbrok.bench.processes import SinkProcess

BACKLOG_MAX_S: Final = 1 / 3
_FOUND_WITHIN: Final = 0.04
_SLOWER: Final = 0.96
_TRIES_MAX: Final = 8


class Window(NamedTuple):
    """What happened between the first and the last second of the load."""

    published_per_s: float
    delivered_per_s: float
    backlog: int
    broker_cpu_us: float
    nginx_cpu_us: float
    p99_ms: float

    @property
    def rate(self) -> float:
        return min(self.published_per_s, self.delivered_per_s)

    @property
    def sustained(self) -> bool:
        return self.backlog <= BACKLOG_MAX_S * self.published_per_s


def window(broker: Broker, nginx: Nginx, folder: Path, seconds: float, per_s: float = 0.0) -> Window:
    """Publish for so long, at most ``per_s`` (0: as fast as answers come), then let the broker deliver the rest."""
    url = f"http://127.0.0.1:{broker.port}/v1/queues/{QUEUE}/messages"
    before, used, nginx_used_s = statistics(broker), broker.usage(), nginx.cpu_s()
    seen = wrk(url, content(), seconds, folder, per_s=per_s)
    after, cpu_s, nginx_cpu_s = statistics(broker), broker.usage().cpu_s - used.cpu_s, nginx.cpu_s() - nginx_used_s
    delivered = after["delivered"] - before["delivered"]
    wait_until_complete(broker)
    return Window(
        seen.per_s,
        delivered / seen.seconds,
        after["waiting"],
        1e6 * cpu_s / seen.requests,
        1e6 * nginx_cpu_s / max(1, delivered),
        seen.p99_ms,
    )


def sustained_per_s(broker: Broker, nginx: Nginx, folder: Path, seconds: float) -> float:
    """The rate to begin the long window with; 0 where publishers need no pacing for deliveries to keep up."""
    free = window(broker, nginx, folder, seconds)
    progress(f"    free-running: published {free.published_per_s:,.0f}/s, delivered {free.delivered_per_s:,.0f}/s")
    if free.sustained:
        return 0.0
    low, high = 0.5 * min(free.rate, free.published_per_s), free.published_per_s
    while high - low > _FOUND_WITHIN * high:
        middle = (low + high) / 2
        tried = window(broker, nginx, folder, seconds, middle)
        progress(f"    paced at {middle:,.0f}/s: backlog {tried.backlog:,}")
        if tried.sustained and tried.published_per_s < 0.98 * middle:
            # it cannot publish faster, and delivers all of it
            return tried.published_per_s
        low, high = (middle, high) if tried.sustained else (low, middle)
    return low


def once(folder: Path, options: Options) -> Readings:
    seconds, short_s = options.seconds_or(60), options.seconds_or(4)
    with Nginx(folder) as nginx, Broker(folder) as broker:
        with SinkProcess(folder / "bare.log") as bare:
            publishing = wrk(bare.url, content(), min(5, short_s), folder)
        delivering = wrk(nginx.url, content(), min(5, short_s), folder)
        ceiling = 1 / (1 / publishing.per_s + 1 / delivering.per_s)
        subscribe(broker, nginx.url, paused=False)
        per_s = 2_000.0 if options.quick else sustained_per_s(broker, nginx, folder, min(4, short_s))
        for _ in range(_TRIES_MAX):
            seen = window(broker, nginx, folder, seconds, per_s)
            if seen.sustained:
                break
            progress(f"    not sustained: {seen.rate:,.0f}/s, backlog {seen.backlog:,}")
            per_s = _SLOWER * (per_s or seen.rate)
        else:
            raise Failed(f"the backlog grew at every rate that was tried, at last {per_s:,.0f} msg/s")
    beside = {
        "published/s": seen.published_per_s,
        "delivered/s": seen.delivered_per_s,
        "backlog at the end": float(seen.backlog),
        "broker CPU us/message": seen.broker_cpu_us,
        "nginx CPU us/message": seen.nginx_cpu_us,
        "publish p99 ms": seen.p99_ms,
    }
    return {"publish_and_deliver": Reading(seen.rate, ceiling, beside)}


ROW = Row(
    "publish_and_deliver",
    "wrk, 64 connections, paced, publishes for 60 s while nginx receives; the highest rate found at which no more than"
    " a third of a second's traffic waits at the end. The figure is the lesser of published and delivered a second.",
    {
        "publish_and_deliver": Aim(
            "publish and deliver at once",
            "msg/s",
            "both ceilings, of publishing and of delivering, one after the other: 1 / (1/a + 1/b)",
            10_000,
            20_000,
        )
    },
    each_run(once),
)

if __name__ == "__main__":
    main([ROW])
