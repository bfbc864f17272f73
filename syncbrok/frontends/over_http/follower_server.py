"""The HTTP server of a node of a cluster while it follows: it answers a few routes itself, the leader all else.

    first line of a connection -> a route of the node's own     -> answered here, and the connection ends
                               -> anything else, and a leader   -> spliced to it for good, byte for byte
                               -> anything else, and no leader  -> 503, and the connection ends; but for the files of
                                                                   the web page, which shows then who is there
                               -> what another node relays      -> 503 as well: it has not heard yet that this one,
                                                                   which has led, only follows since it began again

Only the first request of a connection is looked at: whatever follows it on a splice is the leader's, even where a route
of the node's own is asked for. So the answers of the node end their connection.
"""

import asyncio
import socket
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Protocol, Self, cast

from aiohttp import web
from aiohttp.typedefs import Handler

from syncbrok.frontends.listening import ListenerTls, Listening, backlog, open_sockets
from syncbrok.frontends.over_http.app import make_node_app
from syncbrok.frontends.over_http.proxied_connection import names
from syncbrok.frontends.over_http.requests import problems, render
from syncbrok.frontends.over_http.requests.connection import (
    LINE_BYTES_MAX,
    READING,
    HttpConnection,
    Limits,
    all_answered,
    written,
)
from syncbrok.frontends.over_http.requests.context import LEADER, HttpContext, HttpOptions
from syncbrok.frontends.over_http.requests.first_bytes import FirstBytes
from syncbrok.frontends.over_http.requests.middleware import MIDDLEWARE
from syncbrok.frontends.over_http.requests.refused_connection import RefusedConnection, too_many_connections
from syncbrok.frontends.over_http.requests.routes import Reply, Route
from syncbrok.frontends.over_http.resources.cluster import PATH, YIELD_PATH, ClusterNode, node_routes
from syncbrok.frontends.over_http.resources.health import EXPOSITION, LIVENESS
from syncbrok.frontends.over_http.resources.log_archived import PATH as ARCHIVED_PATH
from syncbrok.frontends.over_http.resources.page import file_routes
from syncbrok.frontends.over_http.shapes.answers import StatusAnswer
from syncbrok.frontends.proxy_protocol import SIGNATURE
from syncbrok.frontends.relay import Entered, Relay, Upstream
from syncbrok.model.errors import Malformed, NoLeader
from syncbrok.model.tokens import Token

_OWN: Final = (b"/healthz", b"/readyz", b"/metrics", PATH.encode())
_OWN_BELOW: Final = (PATH.encode() + b"/", b"/v1/log/")
_LEADERS: Final = (YIELD_PATH.encode(), ARCHIVED_PATH.encode())
"""below those, and the leader's all the same"""


class FollowerNode(ClusterNode, Protocol):
    """A node of a cluster while it follows."""

    @property
    def leader_url(self) -> str:
        """The URL at which the leader says it is reached; empty while nobody is known to lead."""
        ...

    def upstream(self) -> Upstream | None:
        """The address at which the leader's HTTP listens; None while nobody is known to lead, or this node does."""
        ...

    @property
    def ready(self) -> bool:
        """Whether it has heard lately from a leader."""
        ...

    def metrics(self) -> bytes:
        """In the text format of Prometheus."""
        ...


class FollowerServer:
    """As a context manager: listens and answers. ``sockets`` go on listening at the end of the block, where all
    connections end: clients that connect before the broker serves wait in them."""

    def __init__(
        self, options: HttpOptions, limits: Limits, node: FollowerNode, relay: Relay, tls: ListenerTls | None = None
    ) -> None:
        self._options, self._limits, self._node, self._relay = options, limits, node, relay
        self._listening = Listening(
            lambda: _FirstLine(self),
            limits.connections,
            limits.bounds.addresses,
            options.headers_timeout_s,
            tls,
            written(Malformed("this port speaks TLS: the URL begins with https://")),
        )
        app = make_node_app(_routes(node), options, [self._as_follower()])
        self._middleware = app[MIDDLEWARE]
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        self.refused: set[RefusedConnection] = set()
        self._silent: set[FirstBytes] = set()
        """let in, and nothing said yet; bounded by the connections"""
        self.sockets: list[socket.socket] = []

    @property
    def port(self) -> int:
        """The port it listens on, also where port 0 was asked for."""
        return int(self.sockets[0].getsockname()[1])

    def set_tokens(self, tokens: Sequence[Token]) -> None:
        """Replace the configured tokens."""
        self._middleware.set_tokens(tokens)

    def set_created_tokens(self, tokens: Sequence[Token]) -> None:
        """Replace those that were created on this log, as this node has it."""
        self._middleware.set_created(tokens)

    async def __aenter__(self) -> Self:
        self.sockets = open_sockets(self._options.host, self._options.port)
        await self._runner.setup()
        for one in self.sockets:
            await self._listening.start(one.dup(), backlog(self._limits.bounds))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listening.close()
        assert self._runner.server is not None
        await all_answered(self._runner.server)
        await self._listening.stop()
        for silent in list(self._silent):
            silent.abort()
        await self._runner.cleanup()
        if kind is not None:
            self.close()

    def close(self) -> None:
        """Stop listening, where no broker came to take the sockets over."""
        for one in self.sockets:
            one.close()

    # -- connections --------------------------------------------------------------------------------------------------

    def lets_in(self, one: FirstBytes, transport: asyncio.Transport) -> bool:
        """Count a new connection; False where there is no room, and it was told so."""
        if self._limits.connections.enter(one):
            self._silent.add(one)
            return True
        RefusedConnection(self.refused).close_with(transport, written(too_many_connections()))
        return False

    def owner(self, address: str) -> str:
        return self._limits.bounds.addresses.owner(address)

    def left(self, one: FirstBytes) -> None:
        """Forget a connection that was closed before it said anything."""
        self._silent.discard(one)
        self._limits.connections.leave(one)

    @property
    def headers_timeout_s(self) -> float:
        return self._options.headers_timeout_s

    def is_node(self, transport: asyncio.Transport) -> bool:
        """Whether another node has made this connection, by the certificate that it shows."""
        return names(transport.get_extra_info("peercert"), self._options.node_name)

    def refuse_relayed(self, one: FirstBytes, transport: asyncio.Transport) -> None:
        """Another node believes that this one leads: its client comes again, and is relayed no further from here."""
        self.left(one)
        RefusedConnection(self.refused).close_with(transport, written(self._no_leader()))

    def go_on(self, entered: "_FirstLine", transport: asyncio.Transport, held: bytes, path: bytes) -> None:
        """The first line of a connection is there, and asks for ``path``."""
        self._silent.discard(entered)
        if not path or _is_own(path):  # without a path it is no request, whoever leads
            self._answer_here(entered, transport, held)
        else:
            self._relay.splice(
                entered, transport, held, self._limits.connections, self._node.upstream, self._answer_here
            )

    def _answer_here(self, entered: Entered, transport: asyncio.Transport, held: bytes) -> None:
        loop, server = asyncio.get_running_loop(), self._runner.server
        assert server is not None
        options: dict[str, Any] = {"loop": loop, "access_log": None, **READING}
        connection = HttpConnection(server, self._limits, entered.address, loop.time(), **options)
        self._limits.connections.become(entered, connection)
        transport.set_protocol(connection)
        connection.connection_made(transport)
        connection.data_received(held)
        if entered.ended and not connection.eof_received():
            transport.close()

    def _as_follower(self) -> Any:
        """The outermost middleware of the node's own routes: each answer ends its connection, and a route that is not
        the node's is answered as one without a leader."""

        @web.middleware
        async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
            response = await handler(request)
            if response.prepared:
                response.force_close()
                return response
            if response.status in (404, 405) and not _is_own(request.path.encode("utf-8", "surrogateescape")):
                response = problems.answer(self._no_leader())
            if self._node.leader_url:
                response.headers[LEADER] = self._node.leader_url
            response.force_close()  # the next request may be the leader's
            return response

        return middleware

    def _no_leader(self) -> NoLeader:
        url = self._node.leader_url
        if url:
            return NoLeader(f"this node follows {url}, which does not answer", retry_after_s=1)
        return NoLeader("this node follows, and nobody is known to lead", retry_after_s=1)


def _routes(node: FollowerNode) -> tuple[Route, ...]:
    async def ready(_context: HttpContext, _request: web.Request) -> web.StreamResponse:
        if node.upstream() is None or not node.ready:
            raise NoLeader("not ready: this node follows, and has heard from no leader lately", retry_after_s=1)
        return render.json(StatusAnswer("following"))

    async def measured(_context: HttpContext, _request: web.Request) -> web.StreamResponse:
        return web.Response(body=node.metrics(), headers={"Content-Type": EXPOSITION})

    answered = {200: Reply("See the leader's.")}
    return (
        LIVENESS,
        Route("GET", "/readyz", ready, None, "health", "Readiness", answered, of_node=True),
        Route("GET", "/metrics", measured, "read", "health", "Prometheus metrics", answered, of_node=True),
        *node_routes(node),
        *file_routes(),
    )


def _is_own(path: bytes) -> bool:
    """Whether a node that follows answers it itself."""
    return path in _OWN or (path.startswith(_OWN_BELOW) and path not in _LEADERS)


def path_of(line: bytes) -> bytes:
    """The path that a request's first line asks for, without its query; empty where it asks for none."""
    parts = line.split()
    target = parts[1] if len(parts) > 1 else b""
    if b"://" in target.partition(b"?")[0]:  # "http://name/path" (RFC 9112, 3.2.2)
        target = b"/" + target.partition(b"://")[2].partition(b"/")[2]
    return target.partition(b"?")[0].partition(b"#")[0]


class _FirstLine(FirstBytes):
    """A connection until its first line is there."""

    ended = False

    def __init__(self, server: FollowerServer) -> None:
        super().__init__()
        self._server = server
        self._is_node = False
        self.address = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if peer else ""
        self.owner = self._server.owner(self.address)
        found = cast("asyncio.Transport", transport)
        if self._server.lets_in(self, found):
            self._is_node = self._server.is_node(found)
            self.wait(found, self._server.headers_timeout_s, "the request's headers did not arrive")

    def data_received(self, data: bytes) -> None:
        transport = self.transport
        if transport is None:
            return
        self.held += data
        if self._is_node and SIGNATURE.startswith(self.held[: len(SIGNATURE)]):
            if len(self.held) >= len(SIGNATURE):
                self.let_go()
                self._server.refuse_relayed(self, transport)
            return
        self.held = self.held.lstrip(b"\r\n")  # servers pass over an empty line before a request (RFC 9112, 2.2)
        line, found, _ = self.held.partition(b"\n")
        if found or len(line) > LINE_BYTES_MAX:  # what is too long is the leader's to refuse
            self.let_go()
            self._server.go_on(self, transport, self.held, path_of(line))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (of the protocol)
        if self.transport is not None:
            self.let_go()
            self._server.left(self)
