"""The HTTP frontend over a real Space whose http subscribers are one consumer in the test's hand."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tests.support.http.api import Api, Serve
from tests.support.space.spaces import Consumer, Running, running_space

ENDPOINT = "http://127.0.0.1:20000/"
ONCE = {"retry": []}
"""settings of a queue that gives up after the first attempt"""


class HttpSpace(NamedTuple):
    api: Api
    space: Running
    consumer: Consumer


class MakeHttpSpace(Protocol):
    """The fixture ``http_space``; ``options`` are fields of ``HttpOptions``."""

    def __call__(
        self, directory: Path, *, journal: dict[str, Any] | None = None, **options: Any
    ) -> AbstractAsyncContextManager[HttpSpace]: ...


def http_space_with(served: Serve) -> MakeHttpSpace:
    """Makes each with a frontend that ``served`` starts."""

    @asynccontextmanager
    async def http_space(
        directory: Path, *, journal: dict[str, Any] | None = None, **options: Any
    ) -> AsyncIterator[HttpSpace]:
        consumer = Consumer()
        async with running_space(directory, consumer, **journal or {}) as running:
            running.space.handle("http", consumer)
            async with served(running.space.channels, running.view, **options) as api:
                yield HttpSpace(api, running, consumer)

    return http_space
