"""Runs writes of the log: in one thread, or, where that is quicker, on the event loop itself. Never in both at once.

A future per commit through an executor would wake the loop twice and go through its locks; one queue and one
``call_soon_threadsafe`` is a single hop there and a single one back. Even so, two hops through a sleeping thread take
as long as the fsync between them. So a batch that fits in a page is written by the loop while the disk answers
promptly. One slow answer (a busy interpreter that keeps the thread waiting looks like one too) sends writing back to
the thread until the disk has been prompt for a while. So a stalling disk holds the loop up once, not at each commit.
"""

import asyncio
import time
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, NamedTuple

Done = Callable[[Any, BaseException | None], None]

PAGE_BYTES: Final = 4_096
PROMPT_S: Final = 0.000_4
"""a write and fsync of one page on a solid-state disk takes 0.1 to 0.2 ms"""
_WEIGHT: Final = 1 / 16
_STALL_S: Final = 25 * PROMPT_S
"""longer ones count as this: sixteen prompt writes or so, and one is forgotten"""


class _Job(NamedTuple):
    work: Callable[[], Any]
    done: Done
    paced: bool
    """what it takes says how prompt the disk is"""


class Pace:
    """How promptly the disk answers: the running mean of about the last sixteen writes, in seconds. Pure."""

    __slots__ = ("usual_s",)

    def __init__(self) -> None:
        self.usual_s = 4 * PROMPT_S  # unknown: some writes in the thread show it

    def took(self, seconds: float) -> None:
        self.usual_s += (min(seconds, _STALL_S) - self.usual_s) * _WEIGHT

    @property
    def prompt(self) -> bool:
        return self.usual_s <= PROMPT_S


class Writer:
    """Works off its jobs in order. ``stop`` waits for the last one; a job handed over later is a defect. With
    ``may_block_loop`` false all of them run in the thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, may_block_loop: bool = True) -> None:
        self._loop = loop
        self._may_block_loop = may_block_loop
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._in_thread = 0
        """jobs handed to the thread that the loop has not heard the end of"""
        self._pace = Pace()
        self._thread = Thread(target=self._run, name="syncbrok-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], Any], done: Done) -> None:
        """``done(result, error)`` is called on the event loop when ``work`` has run in the thread."""
        self._hand_over(_Job(work, done, paced=False))

    def write(self, work: Callable[[], Any], done: Done, size_bytes: int) -> None:
        """As ``submit``, for work that writes ``size_bytes`` to the log: done here and now where that is quicker; then
        ``done`` has been called when this returns."""
        if self._may_block_loop and size_bytes <= PAGE_BYTES and not self._in_thread and self._pace.prompt:
            result, error, seconds = _timed(work)
            self._pace.took(seconds)
            done(result, error)
        else:
            self._hand_over(_Job(work, done, paced=True))

    def _hand_over(self, job: _Job) -> None:
        assert self._thread.is_alive()
        self._in_thread += 1
        self._jobs.put(job)

    def stop(self) -> None:
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            timed = _timed(job.work)
            try:
                self._loop.call_soon_threadsafe(self._came_back, job, *timed)
            except RuntimeError:
                return  # the loop is closed: nobody is left to tell

    def _came_back(self, job: _Job, result: Any, error: BaseException | None, seconds: float) -> None:
        self._in_thread -= 1
        if job.paced:
            self._pace.took(seconds)
        job.done(result, error)


def _timed(work: Callable[[], Any]) -> tuple[Any, BaseException | None, float]:
    """The result of ``work`` or its exception, and the seconds it took."""
    began = time.perf_counter()
    try:
        return work(), None, time.perf_counter() - began
    except BaseException as problem:  # noqa: BLE001 (whatever it is, it is told to whoever handed the work over)
        return None, problem, time.perf_counter() - began
