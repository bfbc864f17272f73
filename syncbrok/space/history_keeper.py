"""Keeps the history: once a minute it looks at what was counted since, and writes the day to a file.

The file is written anew beside the old one and renamed: it is whole, or the one before. It is not the log: what it
lacks after a crash is a minute that nobody knows of, so a full disk or one that fails costs that and no more.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from heapq import nlargest
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple

from syncbrok.model import limits
from syncbrok.model.names import QueueName
from syncbrok.space.queries.view import View
from syncbrok.space.reader_threads import RunBlocking
from syncbrok.space.reports import Histogram, QueueReport, SpaceReport
from syncbrok.space.side_file import replace_whole
from syncbrok.space.state.history import MINUTE_US, NOTHING, Figures, History, Minute

_log = logging.getLogger(__name__)

FILE: Final = "history"
_LATE_S: Final = 0.05
"""after a minute has ended it is looked at"""
_MARGIN_US: Final = 500_000
_STEP: Final = 100
"""queues looked at in one turn of the loop"""


class _Counted(NamedTuple):
    """The counters of a queue since the start, and its latencies by bound."""

    counts: tuple[int, int, int, int]
    latencies: tuple[int, ...]


class HistoryKeeper:
    """``history`` is what the view shows; ``directory``: the storage directory."""

    def __init__(
        self, view: View, history: History, directory: Path, clock_us: Callable[[], int], run_blocking: RunBlocking
    ) -> None:
        self._view = view
        self._history = history
        self._path = directory / FILE
        self._clock_us = clock_us
        self._run_blocking = run_blocking
        self._writing = Lock()
        """one that was cut off by the end may still be at it"""
        self._before: Mapping[str, _Counted] | None = None

    async def run(self) -> None:
        """A look whenever a minute has ended. Runs until it is cancelled."""
        await self._look()  # what was counted before it, a recovery counts: it is nobody's minute
        while True:
            into_us = self._clock_us() % MINUTE_US
            await asyncio.sleep((MINUTE_US - into_us) / 1e6 + _LATE_S)
            await self.keep()

    async def keep(self) -> None:
        """Put what was counted since the last look into the minute that is ending; write the file. Raises nothing."""
        before = self._before
        now_us = self._clock_us()
        report, oldest_us = await self._look()
        if before is None:
            return
        found: dict[str, Figures] = {}
        whole = NOTHING
        for at, queue in enumerate(report.queues):
            if at % _STEP == 0:
                await asyncio.sleep(0)
            oldest = oldest_us.get(queue.name)
            age_ms = 0 if oldest is None else max(1, (now_us - oldest) // 1_000)
            figures = _figures(queue, before.get(queue.name), report.latencies[queue.name], age_ms)
            if figures != NOTHING:
                found[queue.name] = figures
                whole = whole.beside(figures)
        largest = nlargest(limits.history_queues_max, found, key=lambda name: _weight(found[name]))
        self._history.put(
            Minute((now_us - _MARGIN_US) // MINUTE_US, whole, {name: found[name] for name in sorted(largest)})
        )
        try:
            await self._run_blocking(self._write, self._history.encode())
        except OSError as problem:
            _log.warning("syncbrok.space.history_unwritten", extra={"path": str(self._path), "detail": str(problem)})

    async def _look(self) -> tuple[SpaceReport, Mapping[QueueName, int]]:
        """The report of the moment, which the next look compares with; and since when what is oldest waits."""
        steps = self._view.statistics_in_steps()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                report: SpaceReport = end.value
                break
            await asyncio.sleep(0)
        oldest_us = await self._view.oldest_us(report.queues)
        before: dict[str, _Counted] = {}
        for at, one in enumerate(report.queues):
            if at % _STEP == 0:
                await asyncio.sleep(0)
            before[one.name] = _counted(one, report.latencies[one.name])
        self._before = before
        return report, oldest_us

    def _write(self, pieces: Sequence[bytes]) -> None:
        with self._writing:
            replace_whole(self._path, pieces)


def _counted(queue: QueueReport, latencies: Histogram) -> _Counted:
    below, by_bound = 0, []
    for _, upto in (*latencies.buckets, (0.0, latencies.count)):
        by_bound.append(upto - below)
        below = upto
    return _Counted((queue.accepted, queue.delivered, queue.failed, queue.dead), tuple(by_bound))


def _figures(queue: QueueReport, before: _Counted | None, latencies: Histogram, oldest_ms: int) -> Figures:
    now = _counted(queue, latencies)
    if before is None or any(one < then for one, then in zip(now.counts, before.counts, strict=True)):
        before = _Counted((0, 0, 0, 0), (0,) * len(now.latencies))  # another queue of that name
    accepted, delivered, failed, dead = (one - then for one, then in zip(now.counts, before.counts, strict=True))
    grown = [max(0, one - then) for one, then in zip(now.latencies, before.latencies, strict=True)]
    while grown and not grown[-1]:
        grown.pop()
    return Figures(accepted, delivered, failed, dead, queue.waiting, oldest_ms, tuple(grown))


def _weight(figures: Figures) -> int:
    return figures.happened + figures.backlog


def read_history(directory: Path) -> History:
    """The history in a storage directory, or as much of it as can be read."""
    try:
        return History.decode((directory / FILE).read_bytes())
    except OSError:
        return History()
