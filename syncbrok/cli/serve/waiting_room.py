"""Answers HTTP while the broker reads its log: alive, not ready, come back. Gone once the broker itself does."""

import asyncio
import socket
from types import TracebackType
from typing import Final, Self, cast

from aiohttp import web

from syncbrok.frontends.listening import ListenerTls, Listening, backlog, open_sockets
from syncbrok.frontends.over_http.requests.connection import READING, HttpConnection, Limits, all_answered, written
from syncbrok.frontends.over_http.requests.problems import answer, comes_again_if_cut_off
from syncbrok.frontends.over_http.requests.refused_connection import RefusedConnection, too_many_connections
from syncbrok.model.errors import Draining

_RETRY_AFTER: Final = {"Retry-After": "1"}


async def _answer(request: web.BaseRequest) -> web.StreamResponse:
    if request.path == "/healthz":
        response = web.json_response({"status": "ok"})
    else:
        response = answer(Draining("the broker is reading its log", state="starting"), _RETRY_AFTER)
        if comes_again_if_cut_off(request, response.status) and request.transport is not None:
            request.transport.close()
    response.force_close()  # the next request shall find the broker
    return response


class WaitingRoom:
    """As a context manager: listens on ``host`` and ``port`` and answers until the broker does, ``limits`` clients at
    once: the log must find descriptors for its files while it is read, whoever waits here. Raises ``OSError`` where it
    cannot listen: better before a long recovery than after it. With port 0 nobody knows where to ask, so it answers
    nobody.

    ``sockets`` go on listening at the end of the block: clients that connect before the broker serves wait in them and
    are not turned away.
    """

    def __init__(self, host: str, port: int, limits: Limits, tls: ListenerTls | None = None) -> None:
        self._host, self._port = host, port
        self._limits = limits
        self._listening = Listening(
            self._admit, limits.connections, limits.bounds.addresses, limits.headers_timeout_s, tls
        )
        self._server = web.Server(_answer, access_log=None)
        self._runner = web.ServerRunner(self._server, shutdown_timeout=0.1)
        self._refused: set[RefusedConnection] = set()
        self.sockets: list[socket.socket] = []

    async def __aenter__(self) -> Self:
        self.sockets = open_sockets(self._host, self._port)
        await self._runner.setup()
        if self._port:
            for one in self.sockets:
                await self._listening.start(one.dup(), backlog(self._limits.bounds))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listening.close()
        await all_answered(self._server)
        await self._listening.stop()
        await self._runner.cleanup()
        if kind is not None:
            self.close()

    def _admit(self) -> asyncio.Protocol:
        return _Admission(self._server, self._limits, self._refused)

    def close(self) -> None:
        """Stop listening, where no broker came to take the sockets over."""
        for one in self.sockets:
            one.close()


class _Admission(asyncio.Protocol):
    """Lets a client in, as one connection of its address, or turns it away where there is no room."""

    def __init__(self, server: web.Server, limits: Limits, refused: set[RefusedConnection]) -> None:
        self._server = server
        self._limits = limits
        self._refused = refused

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer, loop = transport.get_extra_info("peername"), asyncio.get_running_loop()
        options = {"loop": loop, "access_log": None, **READING}
        connection = HttpConnection(self._server, self._limits, str(peer[0]) if peer else "", loop.time(), **options)
        if not self._limits.connections.enter(connection):
            answer = written(too_many_connections())
            RefusedConnection(self._refused).close_with(cast("asyncio.Transport", transport), answer)
            return
        transport.set_protocol(connection)
        connection.connection_made(transport)
