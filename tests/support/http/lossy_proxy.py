"""A network that loses something: a TCP proxy which, now and then, cuts a connection rather than pass on what came."""

import asyncio
import contextlib
import random
import threading
from collections.abc import Callable
from typing import Self

_CHUNK = 65_536


class LossyProxy:
    """Passes connections on to a port of loopback; each piece of a request or an answer is lost with ``share``, and its
    connection with it. ``to`` gives the port, 0 while nobody listens. As a context manager it runs in a thread."""

    def __init__(self, to: Callable[[], int], chance: random.Random, share: float) -> None:
        self._to = to
        self._chance = chance
        self.share = share
        self.lost = 0
        """pieces, so far"""
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._listens = threading.Event()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),), name="lossy proxy")

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._listens.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set_result, None)
        self._thread.join(10)
        assert not self._thread.is_alive()
        self._loop.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    async def _run(self) -> None:
        passing: set[asyncio.Task[None]] = set()

        def came(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = self._loop.create_task(self._pass(reader, writer))
            passing.add(task)
            task.add_done_callback(passing.discard)

        server = await asyncio.start_server(came, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._listens.set()
        await self._over
        server.close()
        for task in passing:
            task.cancel()
        await asyncio.gather(*passing, return_exceptions=True)
        await server.wait_closed()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError):
                there, back = await asyncio.open_connection("127.0.0.1", self._to() or 1)
                try:
                    ways = [self._loop.create_task(self._copy(*one)) for one in ((reader, back), (there, writer))]
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                    for way in ways:
                        way.cancel()
                    await asyncio.gather(*ways, return_exceptions=True)
                finally:
                    back.close()
        finally:
            writer.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK):
            if self._chance.random() < self.share:
                self.lost += 1
                return
            writer.write(data)
            await writer.drain()
