"""Accepts the connections of a frontend, in clear or with TLS.

    in clear   accepted -> the frontend's own protocol
    with TLS   accepted -> counted as a connection -> handshake, in a task -> the frontend's own protocol

With TLS a connection is counted from the moment it is accepted. asyncio's ``create_server(ssl=...)`` tells a protocol
of its connection only once the handshake is over: half handshakes would hold descriptors that nobody has counted.
(Adding TLS to a counted connection, as asyncio can, was tried: uvloop begins to read before it can be told not to, and
the client's first bytes were lost now and then.)
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final

from syncbrok.frontends.bounds import Addresses, Bounds, Connections, hold_little
from syncbrok.model import limits
from syncbrok.model.errors import BadConfig

_log: Final = logging.getLogger(__name__)
BACKLOG_MAX: Final = 1_024
_BACKLOG_MIN: Final = 16
"""where descriptors are few: those let in together are counted only then"""
_LET_IN_AT_ONCE: Final = 64
"""in one turn of the loop, which a thousand would hold for 50 ms"""
_LOG_EVERY_S: Final = 10.0
_ACCEPT_AGAIN_S: Final = 0.05
_HANDSHAKE: Final = b"\x16"
"""the first byte of a connection with TLS: a record of that type"""
_REQUEST_BYTES: Final = 64 * limits.KIB
_GOODBYE_S: Final = 1.0
"""for the peer's own end of TLS, once a connection is closed here"""


def server_context(
    cert: Path, key: Path, client_ca: Path | None = None, protocols: tuple[str, ...] = ()
) -> ssl.SSLContext:
    """Read PEM files into what a listener needs: TLS 1.2 and later. ``cert``: the certificate and those between it and
    its authority. ``key``: its private key, not encrypted. ``client_ca``: authorities; peers must show a certificate of
    one of them. ``protocols``: for ALPN. Reads the disk. Raises ``BadConfig`` that names the file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    for file in filter(None, (cert, key, client_ca)):
        try:
            file.read_bytes()
        except OSError as error:
            raise BadConfig(f"{file}: {error.strerror}; a TLS listener needs it", key="tls") from error
    try:
        context.load_cert_chain(cert, key, _no_password)
    except (ssl.SSLError, ValueError) as error:
        what = f"{cert} and {key} are no certificate with its private key in PEM ({_reason(error)})"
        mend = "the key must be the one that the certificate was made for, and not be encrypted"
        raise BadConfig(f"{what}; {mend}", key="tls") from error
    if client_ca is not None:
        try:
            context.load_verify_locations(client_ca)
        except ssl.SSLError as error:
            raise BadConfig(f"{client_ca} has no certificate in PEM ({_reason(error)})", key="tls") from error
        context.verify_mode = ssl.CERT_REQUIRED
    if protocols:
        context.set_alpn_protocols(list(protocols))
    return context


def _no_password() -> str:
    """Asked where a key is encrypted: OpenSSL would ask on the terminal."""
    raise ValueError("the key is encrypted")


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", None) or error).replace("_", " ").lower()


class ListenerTls:
    """``context`` is for connections from now on. It may be replaced at any time: those that are open go on, and a
    handshake goes on with what it began with."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.context = context
        self._silent = 0
        self._logged_s = -_LOG_EVERY_S

    def log_failure(self, address: str, error: Exception) -> None:
        """Log a handshake that failed; of many in a few seconds only how many they were."""
        now_s = monotonic()
        if now_s - self._logged_s < _LOG_EVERY_S:
            self._silent += 1
            return
        more = {"address": address, "why": _why(error), "more": self._silent}
        _log.warning("syncbrok.tls.handshake_failed", extra=more)
        self._silent, self._logged_s = 0, now_s


class InClear(OSError):
    """A client spoke in clear where TLS is spoken."""


def _why(error: Exception) -> str:
    if isinstance(error, InClear):
        return "the client speaks without TLS; of HTTP the URL begins with https://"
    if isinstance(error, TimeoutError | ConnectionAbortedError):
        return "the handshake was not over in time"
    if isinstance(error, ssl.SSLError):
        return _reason(error)
    return "the client went in the middle of the handshake"


def backlog(bounds: Bounds) -> int:
    """How many connections may wait to be let in."""
    return min(BACKLOG_MAX, max(_BACKLOG_MIN, bounds.descriptors.total // 4))


class CannotListen(OSError):
    """The address ``host`` and ``port`` cannot be had."""

    def __init__(self, host: str, port: int, why: OSError) -> None:
        super().__init__(why.errno, why.strerror)
        self.host = host
        self.port = port


def open_sockets(host: str, port: int) -> list[socket.socket]:
    """Listening sockets, one for each address of ``host``. Raises ``OSError`` where one cannot be had."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    opened: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
            opened.append(socket.create_server(address, family=family, backlog=BACKLOG_MAX))
            opened[-1].setblocking(False)
            hold_little(opened[-1])
    except OSError:
        for one in opened:
            one.close()
        raise
    return opened


class Listening:
    """The sockets of one frontend that listen. ``make_protocol`` makes the protocol of a new connection; with ``tls``
    it begins once the handshake is over, and until then the connection is one of ``connections``. A handshake that
    takes longer than ``timeout_s`` is given up. ``to_clear``: with ``tls``, the answer to who speaks in clear."""

    def __init__(
        self,
        make_protocol: Callable[[], asyncio.Protocol],
        connections: Connections,
        addresses: Addresses,
        timeout_s: float,
        tls: ListenerTls | None = None,
        to_clear: bytes = b"",
    ) -> None:
        self.make_protocol = make_protocol
        self.connections = connections
        self.addresses = addresses
        self.timeout_s = timeout_s
        self.to_clear = to_clear
        self._tls = tls
        self._servers: list[asyncio.Server] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._handshakes: set[asyncio.Task[None]] = set()  # bounded by the connections

    @property
    def scheme(self) -> str:
        return "http" if self._tls is None else "https"

    async def start(self, listening: socket.socket, backlog: int) -> None:
        """Accept connections on this socket, which is closed by ``close``. ``backlog``: how many may wait for that."""
        loop = asyncio.get_running_loop()
        if self._tls is None:
            at_once = min(_LET_IN_AT_ONCE, backlog)
            self._servers.append(await loop.create_server(self.make_protocol, sock=listening, backlog=at_once))
            listening.listen(backlog)  # asyncio accepts as many in one callback as it lets wait
            return
        listening.setblocking(False)
        listening.listen(backlog)
        task = loop.create_task(self._accept(listening, self._tls), name="syncbrok accept")
        self._accepting.append(task)
        task.add_done_callback(self._ended)

    def close(self) -> None:
        """Accept no more."""
        for server in self._servers:
            server.close()
        for task in self._accepting:
            task.cancel()

    async def stop(self) -> None:
        """End the handshakes under way."""
        self.close()
        for task in self._handshakes:
            task.cancel()
        await asyncio.gather(*self._accepting, *self._handshakes, return_exceptions=True)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._handshakes.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.error("syncbrok.tls.defect", exc_info=error)

    async def _accept(self, listening: socket.socket, tls: ListenerTls) -> None:
        loop = asyncio.get_running_loop()
        with listening:
            while True:
                try:
                    accepted, peer = await loop.sock_accept(listening)
                except OSError as error:  # as a rule the client has gone meanwhile; without a descriptor it waits
                    _log.debug("syncbrok.tls.not_accepted", extra={"why": str(error)})
                    await asyncio.sleep(_ACCEPT_AGAIN_S)
                    continue
                handshake = _Handshake(self, accepted, str(peer[0]) if peer else "")
                if not self.connections.enter(handshake):
                    accepted.close()
                    continue
                task = loop.create_task(handshake.run(tls), name="syncbrok handshake")
                self._handshakes.add(task)
                task.add_done_callback(self._ended)
                task.add_done_callback(handshake.ended)


def is_secure(transport: asyncio.BaseTransport) -> bool:
    """Whether it speaks TLS. Then a peer that closes its side has closed both: asyncio sends nothing after that."""
    return transport.get_extra_info("sslcontext") is not None


def _wake(there: "asyncio.Future[None]") -> None:
    if not there.done():
        there.set_result(None)


class _Handshake(asyncio.Protocol):
    """A connection that is not encrypted yet; see ``HeldConnection``. As a protocol it is told of the connection once
    it is, and hands it over."""

    unproven = True

    def __init__(self, listening: Listening, accepted: socket.socket, address: str) -> None:
        self._listening = listening
        self._accepted = accepted
        self._address = address
        self.owner = listening.addresses.owner(address)
        self._task: asyncio.Task[None] | None = None
        self._begun = False

    def rests_since(self) -> float | None:
        """See ``HeldConnection``."""
        return None

    def make_way(self) -> None:
        """See ``HeldConnection``. Nothing can be said that it would understand."""
        if self._task is not None:
            self._task.cancel()

    async def run(self, tls: ListenerTls) -> None:
        """Returns once the connection is handed over, or closed."""
        self._task = asyncio.current_task()
        self._begun = True
        try:
            if await self._is_in_clear():
                tls.log_failure(self._address, InClear())
                return
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self,
                self._accepted,
                ssl=tls.context,
                ssl_handshake_timeout=self._listening.timeout_s,
                ssl_shutdown_timeout=_GOODBYE_S,
            )
        except (OSError, ssl.SSLError) as error:
            tls.log_failure(self._address, error)

    def ended(self, _: "asyncio.Task[None]") -> None:
        """Its task is over, also where that was cancelled before it began: then nobody else has the connection, and
        a client would wait for its handshake for ever."""
        if not self._begun:
            self._accepted.close()
        self._listening.connections.leave(self)

    async def _is_in_clear(self) -> bool:
        """Whether the client's first byte begins no handshake; then it was told so, and the connection is closed."""
        loop, accepted = asyncio.get_running_loop(), self._accepted
        there: asyncio.Future[None] = loop.create_future()
        loop.add_reader(accepted, _wake, there)
        try:
            async with asyncio.timeout(self._listening.timeout_s):
                await there
            if accepted.recv(1, socket.MSG_PEEK) in (b"", _HANDSHAKE):
                return False
        except BaseException:
            accepted.close()
            raise
        finally:
            loop.remove_reader(accepted)
        with accepted, suppress(OSError):
            accepted.recv(_REQUEST_BYTES)  # what is unread when it closes would take the answer with it
            accepted.send(self._listening.to_clear)
        return True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._task = None
        self._listening.connections.leave(self)  # which the other one enters
        protocol = self._listening.make_protocol()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
