"""Listens on one address for a TCP frontend and keeps account of its sessions."""

import asyncio
import socket
from collections.abc import Callable
from time import monotonic
from typing import Final

from syncbrok.frontends.bounds import HIGH_WATER_BYTES, Bounds
from syncbrok.frontends.listening import BACKLOG_MAX, CannotListen, ListenerTls, Listening, open_sockets
from syncbrok.frontends.over_tcp.session.peer_session import PeerSession
from syncbrok.model import limits

_CHECK_EVERY_S: Final = 1.0


class TcpListener:
    """A listening socket. ``make_session`` makes the session of a new connection; it is given this listener as
    owner. With ``tls`` it speaks nothing else."""

    def __init__(
        self,
        host: str,
        port: int,
        make_session: Callable[["TcpListener"], PeerSession],
        bounds: Bounds,
        tls: ListenerTls | None = None,
    ) -> None:
        self._host = host
        self.port = port
        """the port it listens on; once it has started never 0"""
        self._make_session = make_session
        self.bounds = bounds
        self._connections = bounds.connections(bounds.descriptors.total, limits.tcp_connections_max)
        self._listening = Listening(
            self._session, self._connections, bounds.addresses, limits.request_headers_timeout_s, tls
        )
        self._sessions: set[PeerSession] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._empty: asyncio.Event = asyncio.Event()

    def _session(self) -> PeerSession:
        return self._make_session(self)

    async def start(self) -> None:
        """Listen. Raises ``CannotListen``."""
        loop = asyncio.get_running_loop()
        try:
            sockets = open_sockets(self._host, self.port)
        except OSError as error:
            raise CannotListen(self._host, self.port, error) from error
        for one in sockets:
            await self._listening.start(one, BACKLOG_MAX)
        self.port = sockets[0].getsockname()[1]
        self._timer = loop.call_later(_CHECK_EVERY_S, self._check)

    async def stop(self) -> None:
        """Close every connection, wait for what they have begun."""
        if self._timer is not None:
            self._timer.cancel()
        await self._listening.stop()
        for session in list(self._sessions):
            session.send_away("the broker is stopping")
        try:
            async with asyncio.timeout(_CHECK_EVERY_S):
                while self._sessions:
                    self._empty.clear()
                    await self._empty.wait()
        except TimeoutError:  # peers that do not read their farewell
            for session in list(self._sessions):
                if session.transport is not None:
                    session.transport.abort()
        for session in list(self._sessions):
            await session.finished()

    # -- its sessions --------------------------------------------------------------------------------------------

    def opened(self, session: PeerSession) -> bool:
        """See ``SessionOwner``."""
        transport = session.transport
        assert transport is not None
        self._sessions.add(session)
        peer = transport.get_extra_info("peername")
        session.owner = self.bounds.addresses.owner(str(peer[0]) if peer else "")
        transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        connection = transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a consumer may say nothing for hours
        return self._connections.enter(session)

    def closed(self, session: PeerSession) -> None:
        """See ``SessionOwner``."""
        self._connections.leave(session)
        self._sessions.discard(session)
        if not self._sessions:
            self._empty.set()

    def _check(self) -> None:
        now_s = monotonic()
        for session in list(self._sessions):
            session.check(now_s)
        self.bounds.sending.check(asyncio.get_running_loop().time())
        self._timer = asyncio.get_running_loop().call_later(_CHECK_EVERY_S, self._check)


class OnOnePort:
    """A frontend that has one listener."""

    listener: TcpListener

    @property
    def ports(self) -> list[int]:
        """The ports that it listens on."""
        return [self.listener.port]
