"""The one thread that writes the log, and how the event loop hands it work.

A future per commit through an executor would wake the loop twice and go through its locks; one queue and one
``call_soon_threadsafe`` is a single hop there and a single one back.
"""

import asyncio
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple

Done = Callable[[Any, BaseException | None], None]


class _Job(NamedTuple):
    work: Callable[[], Any]
    done: Done


class Writer:
    """Works off its jobs in order. ``stop`` waits for the last one; a job handed over later is a defect."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="syncbrok-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], Any], done: Done) -> None:
        """``done(result, error)`` is called on the event loop when ``work`` has run in the thread."""
        assert self._thread.is_alive()
        self._jobs.put(_Job(work, done))

    async def call(self, work: Callable[[], Any]) -> Any:
        """Run ``work`` in the thread; its result, or what it raised. For what is rare."""
        answer: asyncio.Future[Any] = self._loop.create_future()

        def done(result: Any, error: BaseException | None) -> None:
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(result)

        self.submit(work, done)
        return await answer

    def stop(self) -> None:
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            result, error = None, None
            try:
                result = job.work()
            except BaseException as problem:  # noqa: BLE001 (whatever it is, it is told to whoever handed the job over)
                error = problem
            try:
                self._loop.call_soon_threadsafe(job.done, result, error)
            except RuntimeError:
                return  # the loop is closed: nobody is left to tell
