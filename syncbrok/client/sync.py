"""The client for programs without asyncio: the same words, each call waits."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Self, TypeVar

from syncbrok.client.client import Client
from syncbrok.client.messages import Content, Draft, Published
from syncbrok.client.received import Received

T = TypeVar("T")
Handle = Callable[[Received], object]
Register = Callable[[Handle], Handle]
_THREADS_MAX: Final = 64
"""in which handlers run: no more messages are handled at once, whatever the concurrency"""


class SyncClient:
    """Use it as a context manager. Any thread may call it, and calls at once share batches: an event loop in a thread
    of its own does the work."""

    def __init__(
        self, url: str | Sequence[str] = "http://127.0.0.1:10000", token: str | None = None, **settings: Any
    ) -> None:
        """As ``Client``, with its settings."""
        self._arguments = (url, token)
        self._settings = settings
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="syncbrok client", daemon=True)
        self._client: Client | None = None

    def __enter__(self) -> Self:
        self._loop.set_default_executor(ThreadPoolExecutor(_THREADS_MAX, "syncbrok handler"))
        self._thread.start()
        self._client = self._do(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        assert self._client is not None
        self._do(self._client.__aexit__())
        self._do(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _open(self) -> Client:
        return await Client(*self._arguments, **self._settings).__aenter__()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    @property
    def _open_client(self) -> Client:
        if self._client is None:
            raise RuntimeError("use the client as a context manager: with SyncClient(...) as broker")
        return self._client

    def declare(self, queue: str, **settings: Any) -> None:
        """See ``Client.declare``."""
        self._do(self._open_client.declare(queue, **settings))

    def publish(self, queue: str, content: Content, **fields: Any) -> Published:
        """See ``Client.publish``."""
        return self._do(self._open_client.publish(queue, content, **fields))

    def publish_many(self, queue: str, messages: Iterable[Draft | Content]) -> list[Published]:
        """See ``Client.publish_many``."""
        return self._do(self._open_client.publish_many(queue, messages))

    def wait(self, message: Published | str, timeout_s: float = 60.0) -> str:
        """See ``Client.wait``."""
        return self._do(self._open_client.wait(message, timeout_s))

    def message(self, message: Published | str) -> dict[str, Any]:
        """See ``Client.message``."""
        return self._do(self._open_client.message(message))

    def deliveries(self, queue: str, subscriber: str, **asked: Any) -> list[dict[str, Any]]:
        """See ``Client.deliveries``."""
        return self._do(self._open_client.deliveries(queue, subscriber, **asked))

    def pull(self, queue: str, group: str = "pull", **settings: Any) -> list[Received]:
        """See ``Client.pull``."""
        return self._do(self._open_client.pull(queue, group, **settings))

    def messages(
        self, queue: str, group: str = "pull", *, start: str | int = "beginning", lease_s: float = 30.0
    ) -> Iterator[Received]:
        """Yield messages one by one, for ever. Acknowledge each."""
        while True:
            yield from self.pull(queue, group, start=start, lease_s=lease_s)

    def acknowledge(self, *messages: Received) -> int:
        """See ``Client.acknowledge``."""
        return self._do(self._open_client.acknowledge(*messages))

    def refuse(self, message: Received, reason: str = "", delay_s: float | None = None) -> None:
        """See ``Client.refuse``."""
        self._do(self._open_client.refuse(message, reason, delay_s))

    def extend(self, message: Received, lease_s: float = 30.0) -> None:
        """See ``Client.extend``."""
        self._do(self._open_client.extend(message, lease_s))

    def consumer(self, queue: str, group: str = "pull", **settings: Any) -> Register:
        """As ``Client.consumer``, for a function: it is called in a thread of its own for each message."""
        return self._registered(self._open_client.consumer(queue, group, **settings))

    def stream(self, queue: str, group: str | None = None, **settings: Any) -> Register:
        """As ``Client.stream``, for a function: it is called in a thread of its own for each message."""
        return self._registered(self._open_client.stream(queue, group, **settings))

    @staticmethod
    def _registered(register: Callable[[Callable[[Received], Coroutine[Any, Any, object]]], object]) -> Register:
        def registered(handle: Handle) -> Handle:
            register(lambda message: asyncio.to_thread(handle, message))
            return handle

        return registered

    def run(self) -> None:
        """Consume with all that was registered, until ``stop`` is called (by a handler, or another thread) and what is
        being handled is answered."""
        running = asyncio.run_coroutine_threadsafe(self._open_client.run(), self._loop)
        try:
            running.result()
        finally:
            running.cancel()  # where this thread was interrupted

    def stop(self) -> None:
        """Let ``run`` return."""
        self._loop.call_soon_threadsafe(self._open_client.stop)
