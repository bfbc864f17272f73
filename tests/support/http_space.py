"""The HTTP frontend over a real Space whose http subscribers are one consumer in the test's hand."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tests.support.http_api import Api, Serve
from tests.support.spaces import Consumer, Running, running_space

ENDPOINT = "http://127.0.0.1:20000/"
ONCE = {"retry": []}
"""settings of a queue that gives up after the first attempt"""


class Surface(NamedTuple):
    api: Api
    space: Running
    consumer: Consumer


class MakeSurface(Protocol):
    """The fixture ``surface``; ``options`` are fields of ``HttpOptions``."""

    def __call__(
        self, directory: Path, *, journal: dict[str, Any] | None = None, **options: Any
    ) -> AbstractAsyncContextManager[Surface]: ...


def surface_with(served: Serve) -> MakeSurface:
    """Surfaces whose frontends ``served`` starts."""

    @asynccontextmanager
    async def surface(
        directory: Path, *, journal: dict[str, Any] | None = None, **options: Any
    ) -> AsyncIterator[Surface]:
        consumer = Consumer()
        async with running_space(directory, consumer, **journal or {}) as running:
            running.space.handle("http", consumer)
            async with served(running.space.channels, running.view, **options) as api:
                yield Surface(api, running, consumer)

    return surface
