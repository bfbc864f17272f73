"""Counts what the Space does, for ``/metrics``: how long commits take, and what the process uses.

Counts of messages and deliveries are not here: the scheduler keeps those. ``Meters`` is written on the event loop by
the committer and read there by the view; nothing in it is durable.
"""

import os
import platform
import resource
import time
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path

from syncbrok import __version__
from syncbrok.model.budget import Budget
from syncbrok.space.reports import Histogram, ProcessReport, StartReport

COMMIT_BOUNDS_S = (0.000_25, 0.000_5, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0, 4.0)
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

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum_s += seconds
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


class Meters:
    """The counts. The committer tells as it goes: ``commit`` after each batch, ``full`` and ``failed`` as they
    change."""

    __slots__ = (
        *("budgets", "bytes_written", "clock_step_s", "clock_steps", "commits", "failed", "full"),
        *("breakers_opened", "records_written", "start", "untaken_dropped", "confirmations_waiting", "unconfirmed"),
    )

    def __init__(self) -> None:
        self.commits = Durations()
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
        self.budgets: Sequence[Budget] = ()
        """of the process; set by the Space"""
        self.start = NOT_STARTED
        """set by the Space when recovery is done"""

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
