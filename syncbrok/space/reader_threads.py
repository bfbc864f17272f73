"""Calls that block, off the event loop."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, ParamSpec, Protocol, TypeVar

from syncbrok.model.errors import Draining

P = ParamSpec("P")
T = TypeVar("T")

_threads_max: Final = 4


class RunBlocking(Protocol):
    """Runs a blocking call in a reader's thread (``asyncio.to_thread`` will do)."""

    def __call__(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]: ...


class ReaderThreads:
    """The threads that read the log for those who ask. Called with a function and its arguments, it answers what that
    returns. Raises ``Draining`` once it is closed: the Space has ended, its frontends go on for a moment."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_threads_max, thread_name_prefix="syncbrok-reader")

    async def __call__(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            reading = asyncio.get_running_loop().run_in_executor(self._threads, partial(work, *args, **kwargs))
        except RuntimeError as ended:
            raise Draining("the broker is stopping") from ended
        try:
            return await reading
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise Draining("the broker is stopping") from None  # it stood in line when they went

    def close(self) -> None:
        """End them; what has not begun is cancelled."""
        self._threads.shutdown(wait=True, cancel_futures=True)
