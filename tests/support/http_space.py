"""The HTTP frontend over a real Space whose http subscribers are one consumer in the test's hand."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.http_api import Api, served
from tests.support.spaces import Consumer, Running, running_space

ENDPOINT = "http://127.0.0.1:20000/"
ONCE = {"retry": []}
"""settings of a queue that gives up after the first attempt"""


class Surface(NamedTuple):
    api: Api
    space: Running
    consumer: Consumer


@asynccontextmanager
async def surface(directory: Path, *, journal: dict[str, Any] | None = None, **options: Any) -> AsyncIterator[Surface]:
    """``options`` are fields of ``HttpOptions``."""
    consumer = Consumer()
    async with running_space(directory, consumer, **journal or {}) as running:
        running.space.handle("http", consumer)
        async with served(running.space.channels, running.view, **options) as api:
            yield Surface(api, running, consumer)
