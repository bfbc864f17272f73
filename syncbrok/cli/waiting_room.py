"""Answers HTTP while the broker reads its log: alive, not ready, come back. Gone once the broker itself does."""

import asyncio
import socket
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from aiohttp import web

from syncbrok.frontends.over_http.requests.problems import answer
from syncbrok.frontends.over_http.server import open_sockets
from syncbrok.model.errors import Draining

_RETRY_AFTER: Final = {"Retry-After": "1"}
_LET_IN_S: Final = 0.5
_LOOK_EVERY_S: Final = 0.005


async def _answer(request: web.BaseRequest) -> web.StreamResponse:
    if request.path == "/healthz":
        response = web.json_response({"status": "ok"})
    else:
        response = answer(Draining("the broker is reading its log", state="starting"), _RETRY_AFTER)
    response.force_close()  # the next request shall find the broker
    return response


class WaitingRoom:
    """As a context manager: listens on ``host`` and ``port`` and answers until the broker does. Raises ``OSError``
    where it cannot listen: better before a long recovery than after it. With port 0 nobody knows where to ask, so it
    answers nobody.

    ``sockets`` go on listening at the end of the block: clients that connect before the broker serves wait in them and
    are not turned away.
    """

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._runner = web.ServerRunner(web.Server(_answer, access_log=None), shutdown_timeout=0.1)
        self.sockets: list[socket.socket] = []

    async def __aenter__(self) -> Self:
        self.sockets = open_sockets(self._host, self._port)
        await self._runner.setup()
        if self._port:
            for one in self.sockets:
                await web.SockSite(self._runner, one.dup()).start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for site in list(self._runner.sites):
            await site.stop()
        await self._answered()
        await self._runner.cleanup()
        if kind is not None:
            self.close()

    async def _answered(self) -> None:
        """Wait until all clients have been answered, or have sent nothing for too long. aiohttp would cut them off."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LET_IN_S):
                # aiohttp tells nobody when a connection has gone, so this looks.
                while self._runner.server is not None and self._runner.server.connections:  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_EVERY_S)

    def close(self) -> None:
        """Stop listening, where no broker came to take the sockets over."""
        for one in self.sockets:
            one.close()
