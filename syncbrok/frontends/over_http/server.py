"""The listening socket and its lifetime. The application comes from ``app``, the deadlines from ``connection``."""

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Final

from aiohttp import web

from syncbrok.frontends.bounds import Bounds, hold_little
from syncbrok.frontends.over_http.app import CONTEXT, make_app
from syncbrok.frontends.over_http.fast_path.fast_connection import FastPathConnection
from syncbrok.frontends.over_http.fast_path.fast_path import FastPath
from syncbrok.frontends.over_http.requests.connection import READING, HttpConnection, Limits
from syncbrok.frontends.over_http.requests.context import HttpOptions, Token
from syncbrok.frontends.over_http.requests.middleware import MIDDLEWARE
from syncbrok.frontends.over_http.requests.routes import Route
from syncbrok.space.channels import Channels
from syncbrok.space.queries.view import View

_SWEEP_S: Final = 1.0
_BACKLOG: Final = 1_024
_BACKLOG_MIN: Final = 16
"""where descriptors are few: those let in together are counted only then"""
_LET_IN_AT_ONCE: Final = 64
"""in one turn of the loop, which a thousand would hold for 50 ms"""


def open_sockets(host: str, port: int) -> list[socket.socket]:
    """Listening sockets, one for each address of ``host``. Raises ``OSError`` where one cannot be had."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    opened: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
            opened.append(socket.create_server(address, family=family, backlog=_BACKLOG))
            opened[-1].setblocking(False)
            hold_little(opened[-1])
    except OSError:
        for one in opened:
            one.close()
        raise
    return opened


def backlog(bounds: Bounds) -> int:
    """How many connections may wait to be let in."""
    return min(_BACKLOG, max(_BACKLOG_MIN, bounds.descriptors.total // 4))


async def let_in(make: Callable[[], asyncio.Protocol], one: socket.socket, bounds: Bounds) -> asyncio.Server:
    """Accept at ``one``, a listening socket, a few in each turn of the loop; ``backlog`` may wait. ``make`` makes the
    protocol of a connection."""
    waiting = backlog(bounds)
    listener = await asyncio.get_running_loop().create_server(make, sock=one, backlog=min(_LET_IN_AT_ONCE, waiting))
    one.listen(waiting)  # asyncio accepts as many in one callback as it lets wait
    return listener


def _ports(sockets: Sequence[socket.socket]) -> list[int]:
    return [one.getsockname()[1] for one in sockets]


class HttpServer:
    """The HTTP frontend: ``start`` binds and serves, ``stop`` lets answers under way finish. ``sockets`` that listen
    already are taken over, and clients waiting in them are served."""

    def __init__(
        self,
        channels: Channels,
        view: View,
        options: HttpOptions,
        extra_routes: Sequence[Route] = (),
        sockets: Sequence[socket.socket] = (),
        bounds: Bounds | None = None,
    ) -> None:
        self._options = options
        self._sockets = list(sockets)
        self.ports = _ports(sockets)
        """those it listens on, or will once it has started"""
        app = make_app(channels, view, options, extra_routes)
        # The runner sees to start-up, shutdown and waiting for answers under way. It can only be made to build
        # aiohttp's own connections, so the listening socket is opened here. It waits twice: for the answer, and for a
        # handler that it has cancelled.
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=options.stop_timeout_s / 2)
        self._bounds = bounds or Bounds()
        self._connections = self._bounds.connections(options.connections_max, options.connections_per_address_max)
        self._limits = Limits(options.headers_timeout_s, self._bounds, self._connections)
        self._middleware = app[MIDDLEWARE]
        self._fast_path = FastPath(app[CONTEXT], self._middleware, self._limits, self._hand_over)
        self._sweep_s = min(_SWEEP_S, options.headers_timeout_s / 4, options.body_timeout_s / 4)
        self._sweeping: asyncio.TimerHandle | None = None
        self._listeners: list[asyncio.Server] = []

    @property
    def port(self) -> int:
        """The port it listens on, also where port 0 was asked for."""
        assert self._listeners, "not started"
        return int(self._listeners[0].sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        host = self._options.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return self._connections.count

    @property
    def fast_path_connections(self) -> int:
        """The number of connections that have seen simple publishes only."""
        return len(self._fast_path.open)

    async def start(self) -> None:
        """Bind and serve. Raises ``OSError`` where the address cannot be had."""
        await self._runner.setup()
        self._sweep()
        sockets = self._sockets or open_sockets(self._options.host, self._options.port)
        self.ports = _ports(sockets)
        self._listeners += [await let_in(self.connect, one, self._bounds) for one in sockets]

    def set_tokens(self, tokens: Sequence[Token]) -> None:
        """Replace the tokens. Requests under way with a token that is gone, or may do less, are ended."""
        self._middleware.set_tokens(tokens)
        self._fast_path.head_cache.clear()

    def connect(self) -> FastPathConnection:
        """The protocol of a new connection."""
        return FastPathConnection(self._fast_path)

    async def stop(self) -> None:
        """Listen no more, close what rests, give answers under way ``stop_timeout_s``."""
        for listener in self._listeners:
            listener.close()
        self._fast_path.stop()
        await self._runner.cleanup()
        try:
            async with asyncio.timeout(self._options.stop_timeout_s):
                await self._fast_path.emptied.wait()
        except TimeoutError:
            self._fast_path.abort()
        if self._sweeping is not None:
            self._sweeping.cancel()

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self._fast_path.sweep(loop.time())
        self._bounds.sending.check(loop.time())
        self._sweeping = loop.call_later(self._sweep_s, self._sweep)

    def _hand_over(self, fast: FastPathConnection, transport: asyncio.Transport, held: bytes, since: float) -> None:
        """Hand a connection that asks for more than simple publishes to aiohttp."""
        server, options = self._runner.server, self._options
        assert server is not None
        connection = HttpConnection(
            server,
            self._limits,
            fast.address,
            since,
            loop=asyncio.get_running_loop(),
            access_log=None,
            keepalive_timeout=options.keepalive_timeout_s,
            lingering_time=options.linger_s,
            **READING,
        )
        self._connections.become(fast, connection)
        transport.set_protocol(connection)
        connection.connection_made(transport)
        connection.data_received(held)
        if fast.ended and not connection.eof_received():
            transport.close()
