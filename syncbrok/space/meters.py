"""Counts what the Space does, for ``/metrics``: how long commits take, and what the process uses.

Counts of messages and deliveries are not here: the scheduler keeps those. ``Meters`` is written on the event loop by
the committer and read there by the view; of all of it the history alone is kept over a restart.
"""

import os
import platform
import resource
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

from syncbrok import __version__
from syncbrok.model.budget import Budget
from syncbrok.model.facts import Outcome, Row
from syncbrok.space.acceptance_times import AcceptanceTimes
from syncbrok.space.reports import Histogram, ProcessReport, StartReport
from syncbrok.space.state.history import History

COMMIT_BOUNDS_S = (0.000_25, 0.000_5, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0, 4.0)
LATENCY_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 300.0, 3_600.0, 86_400.0)
LAG_BOUNDS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
SAMPLES_MAX: Final = 2
"""rows of a commit of which the latency is looked at"""
NOT_STARTED = StartReport(started_us=0, clean=True, records=0, torn_bytes=0, recovery_s=0.0)

_STATM = Path("/proc/self/statm")
_DESCRIPTORS = "/proc/self/fd"


class Durations:
    """A histogram of durations. One observation costs a bisection of a short tuple."""

    __slots__ = ("_bounds", "_counts", "_max_s", "_sum_s")

    def __init__(self, bounds_s: tuple[float, ...] = COMMIT_BOUNDS_S) -> None:
        self._bounds = bounds_s
        self._counts = [0] * (len(bounds_s) + 1)
        self._sum_s = 0.0
        self._max_s = 0.0

    def observe(self, seconds: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += times
        self._sum_s += seconds * times
        self._max_s = max(self._max_s, seconds)

    @property
    def count(self) -> int:
        """How many were observed."""
        return sum(self._counts)

    def report(self) -> Histogram:
        below, buckets = 0, []
        for bound, count in zip(self._bounds, self._counts, strict=False):
            below += count
            buckets.append((bound, below))
        return Histogram(tuple(buckets), self.count, self._sum_s, self._max_s)


class Latencies:
    """How long deliveries took from acceptance, by queue (number). Of a commit with many a few are looked at, each in
    place of its neighbours: there is no work for each message."""

    __slots__ = ("_by_queue", "_turn", "accepted_at")

    def __init__(self) -> None:
        self.accepted_at = AcceptanceTimes()
        self._by_queue: dict[int, Durations] = {}
        self._turn = 0

    def observe(self, rows: Sequence[Row], queue_of: Callable[[Row], int]) -> None:
        """These rows are durable. ``queue_of`` gives the queue of one, or 0 where it is not to be counted."""
        each = -(-len(rows) // SAMPLES_MAX) or 1
        self._turn += 1  # or always the same places of commits that are alike
        for row in rows[self._turn % each :: each]:
            if row.outcome is Outcome.DELIVERED and (queue := queue_of(row)):
                durations = self._by_queue.get(queue)
                if durations is None:
                    durations = self._by_queue[queue] = Durations(LATENCY_BOUNDS_S)
                took_us = row.time_us + row.latency_us - self.accepted_at.of(row.message)
                durations.observe(max(0, took_us) / 1e6, each)

    def of(self, queue: int) -> Histogram:
        durations = self._by_queue.get(queue)
        return _NO_LATENCIES if durations is None else durations.report()

    def keep(self, queues: Collection[int]) -> None:
        """Let go of all but these."""
        for gone in self._by_queue.keys() - queues:
            del self._by_queue[gone]


_NO_LATENCIES: Final = Durations(LATENCY_BOUNDS_S).report()


class Meters:
    """The counts. The committer tells as it goes: ``commit`` after each batch, ``full`` and ``failed`` as they
    change."""

    __slots__ = (
        *("budgets", "bytes_written", "clock_step_s", "clock_steps", "commits", "failed", "full"),
        *("committing_since_s", "history", "latencies", "loop_lag"),
        *("breakers_opened", "records_written", "start", "untaken_dropped", "confirmations_waiting", "unconfirmed"),
        *("spans_lost", "spans_sent"),
    )

    def __init__(self) -> None:
        self.commits = Durations()
        self.latencies = Latencies()
        self.loop_lag = Durations(LAG_BOUNDS_S)
        """how much later than it was to the event loop woke somebody"""
        self.history = History()
        """the last day; the one thing here that a file keeps"""
        self.committing_since_s = 0.0
        """when the batch was handed to the writer that is not on disk yet, by ``time.perf_counter``; 0 for none"""
        self.records_written = 0
        self.bytes_written = 0
        self.full = False
        """appending is refused for want of room; cleared when a batch fits again"""
        self.failed = False
        """the log failed; never cleared"""
        self.clock_steps = 0
        """how often the wall clock was set, and by how much the last time"""
        self.clock_step_s = 0.0
        self.untaken_dropped = 0
        """how often retention ended what a subscriber that does not count had not taken"""
        self.breakers_opened = 0
        """how often a circuit breaker has opened, that of a subscriber or of an origin"""
        self.confirmations_waiting = 0
        """messages that are written, whose publishers wait for another broker to have them"""
        self.unconfirmed = 0
        """messages whose publishers were answered without"""
        self.spans_sent = 0
        """spans that a collector of traces has taken"""
        self.spans_lost = 0
        """what would have become spans and was given up"""
        self.budgets: Sequence[Budget] = ()
        """of the process; set by the Space"""
        self.start = NOT_STARTED
        """set by the Space when recovery is done"""

    @property
    def committing_s(self) -> float:
        """For how long the present commit has gone on, 0 where none is under way: of one that hangs ``commits`` does
        not tell."""
        return time.perf_counter() - self.committing_since_s if self.committing_since_s else 0.0

    def commit(self, records: int, size_bytes: int, seconds: float) -> None:
        """A batch of ``records`` is on disk; ``seconds`` from handing it to the writer to its fsync."""
        self.commits.observe(seconds)
        self.records_written += records
        self.bytes_written += size_bytes
        self.full = False


def process_report() -> ProcessReport:
    """The resources that this process uses now; two short reads of ``/proc`` where there is one."""
    return ProcessReport(
        version=__version__,
        python=platform.python_version(),
        pid=os.getpid(),
        cpu_s=time.process_time(),
        resident_bytes=_resident_bytes(),
        open_files=_open_files(),
    )


def _resident_bytes() -> int:
    try:
        return int(_STATM.read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return 0


def _open_files() -> int:
    try:
        return len(os.listdir(_DESCRIPTORS))  # noqa: PTH208 - a Path per descriptor is what this would cost otherwise
    except OSError:
        return 0
