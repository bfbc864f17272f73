"""The listening socket and its lifetime. The application comes from ``app``, the deadlines from ``connection``."""

import asyncio
import socket
from collections.abc import Sequence
from typing import Final

from aiohttp import web

from syncbrok.delivery.leader_lease import SINGLE_NODE, LeaderLease
from syncbrok.frontends.bounds import Bounds
from syncbrok.frontends.listening import ListenerTls, Listening, backlog, open_sockets
from syncbrok.frontends.over_http.app import CONTEXT, make_app
from syncbrok.frontends.over_http.fast_path.fast_connection import FastPathConnection
from syncbrok.frontends.over_http.fast_path.fast_path import FastPath
from syncbrok.frontends.over_http.proxied_connection import ProxiedConnection
from syncbrok.frontends.over_http.requests.connection import READING, HttpConnection, Limits, written
from syncbrok.frontends.over_http.requests.context import HttpOptions
from syncbrok.frontends.over_http.requests.middleware import MIDDLEWARE
from syncbrok.frontends.over_http.requests.routes import Route
from syncbrok.model.errors import Malformed
from syncbrok.model.tokens import Token
from syncbrok.space.channels import Channels
from syncbrok.space.queries.view import View

_SWEEP_S: Final = 1.0


def _ports(sockets: Sequence[socket.socket]) -> list[int]:
    return [one.getsockname()[1] for one in sockets]


class HttpServer:
    """The HTTP frontend: ``start`` binds and serves, ``stop`` lets answers under way finish. ``sockets`` that listen
    already are taken over, and clients waiting in them are served. With ``tls`` it speaks nothing else."""

    def __init__(
        self,
        channels: Channels,
        view: View,
        options: HttpOptions,
        extra_routes: Sequence[Route] = (),
        sockets: Sequence[socket.socket] = (),
        bounds: Bounds | None = None,
        tls: ListenerTls | None = None,
        lease: LeaderLease = SINGLE_NODE,
    ) -> None:
        """``lease``: see ``make_app``."""
        self._options = options
        self._sockets = list(sockets)
        self.ports = _ports(sockets)
        """those it listens on, or will once it has started"""
        app = make_app(channels, view, options, extra_routes, lease)
        # The runner sees to start-up, shutdown and waiting for answers under way. It can only be made to build
        # aiohttp's own connections, so the listening socket is opened here. It waits twice: for the answer, and for a
        # handler that it has cancelled.
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=options.stop_timeout_s / 2)
        self._bounds = bounds or Bounds()
        self._connections = self._bounds.connections(options.connections_max, options.connections_per_address_max)
        self._limits = Limits(options.headers_timeout_s, self._bounds, self._connections)
        self._listening = Listening(
            self._relayed if options.node_name else self.connect,
            self._connections,
            self._bounds.addresses,
            options.headers_timeout_s,
            tls,
            written(Malformed("this port speaks TLS: the URL begins with https://")),
        )
        self._middleware = app[MIDDLEWARE]
        self._fast_path = FastPath(app[CONTEXT], self._middleware, self._limits, self._hand_over)
        self._sweep_s = min(_SWEEP_S, options.headers_timeout_s / 4, options.body_timeout_s / 4)
        self._sweeping: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        """The port it listens on, also where port 0 was asked for."""
        assert self.ports, "not started"
        return self.ports[0]

    @property
    def url(self) -> str:
        host = self._options.host
        return f"{self._listening.scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

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
        for one in sockets:
            await self._listening.start(one, backlog(self._bounds))

    def set_tokens(self, tokens: Sequence[Token]) -> None:
        """Replace the configured tokens. Requests under way with a token that is gone, or may do less, are ended."""
        self._middleware.set_tokens(tokens)
        self._fast_path.head_cache.clear()

    def set_created_tokens(self, tokens: Sequence[Token]) -> None:
        """As ``set_tokens``, those that were created on this log."""
        self._middleware.set_created(tokens)
        self._fast_path.head_cache.clear()

    async def scraped_once_more(self) -> None:
        """Return when whoever scrapes the metrics has seen how they stand now; see ``Scrapes``."""
        await self._middleware.scrapes.once_more()

    def connect(self, address: str = "") -> FastPathConnection:
        """The protocol of a new connection; ``address``: see there."""
        return FastPathConnection(self._fast_path, address)

    def _relayed(self) -> ProxiedConnection:
        """The protocol of a new connection that another node may have made for a client."""
        options, refused = self._options, self._fast_path.refused_connections
        return ProxiedConnection(options.node_name, self.connect, self._limits, refused)

    async def stop(self) -> None:
        """Listen no more, close what rests, give answers under way ``stop_timeout_s``."""
        await self._listening.stop()
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
        self._middleware.check_expired()
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
