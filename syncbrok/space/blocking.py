"""Calls that block, off the event loop."""

from collections.abc import Awaitable, Callable
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class RunBlocking(Protocol):
    """Runs a blocking call in a reader's thread (``asyncio.to_thread`` will do)."""

    def __call__(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]: ...
