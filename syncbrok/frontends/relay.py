"""Joins connections of clients to connections of another broker, byte for byte and both ways.

    client <-> near side <-> far side <-> the broker that leads

What one side sends is written to the other. A side whose peer does not read is read no further itself, so a splice
holds no more than a socket's buffer for each way. A peer that sends no more is told to the other side (half-close);
where one end is gone, the other gets what is left for it and is closed. Where a splice goes to is asked again and
again: once that is another broker, or this one, it ends, and its client comes again.
"""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol, cast

from syncbrok.frontends.bounds import HIGH_WATER_BYTES, Bounds, Connections, HeldConnection
from syncbrok.frontends.listening import BACKLOG_MAX, CannotListen, Listening, is_secure, open_sockets
from syncbrok.frontends.proxy_protocol import header
from syncbrok.model import limits

_DIAL_S: Final = 2.0
_LOOK_S: Final = 0.1
_CHECK_S: Final = 1.0
_LAST_BYTES_S: Final = 5.0
"""for a peer to read what is left for it, once the other end is gone"""


class Upstream(NamedTuple):
    """An address that connections are joined to. ``epoch``: of two that are otherwise alike, another one is another
    broker's. ``tls``: how its listener is spoken to; None: in clear, or with whatever TLS the client speaks through
    here. ``proxied``: it is told first who the client is."""

    epoch: int
    host: str
    port: int
    tls: ssl.SSLContext | None = None
    proxied: bool = False


class Entered(HeldConnection, Protocol):
    """A connection that was let in, until now served by somebody else."""

    address: str
    ended: bool
    """its client sends no more"""


UpstreamOf = Callable[[], Upstream | None]
"""where to now; None: nowhere"""
Refuse = Callable[[Entered, asyncio.Transport, bytes], None]
"""take a connection back that nobody could be found for, with the bytes that have come"""


class Relay:
    """All splices of one process. From ``start`` to ``stop``. ``dial_timeout_s``: a broker that has not answered by
    then leads nobody; its client is refused."""

    def __init__(self, bounds: Bounds, dial_timeout_s: float = _DIAL_S) -> None:
        self.bounds = bounds
        self.dial_timeout_s = dial_timeout_s
        self._splices: set[_Splice] = set()  # bounded by the connections
        self._looking: asyncio.TimerHandle | None = None
        self._check_due_s = 0.0

    @property
    def splices(self) -> int:
        """How many there are, those that are being dialled too."""
        return len(self._splices)

    def start(self) -> None:
        """Look again and again whether each splice still goes where it should."""
        loop = asyncio.get_running_loop()
        self.check()
        if loop.time() >= self._check_due_s:
            self._check_due_s = loop.time() + _CHECK_S
            self.bounds.sending.check(loop.time())
        self._looking = loop.call_later(_LOOK_S, self.start)

    def check(self) -> None:
        """End each splice that goes where nobody leads by now."""
        for splice in list(self._splices):
            splice.end_if_stale()

    async def stop(self) -> None:
        """End all splices. What peers have not read by now is lost to them."""
        if self._looking is not None:
            self._looking.cancel()
        dials = [one.dial for one in self._splices]
        for splice in list(self._splices):
            splice.end()
        await asyncio.gather(*dials, return_exceptions=True)

    def splice(
        self,
        entered: Entered,
        transport: asyncio.Transport,
        held: bytes,
        connections: Connections,
        upstream: UpstreamOf,
        refuse: Refuse,
    ) -> None:
        """Join ``transport``, whose first bytes ``held`` are, to where ``upstream`` says. ``entered`` is its place
        among ``connections``. Called on the event loop; dialling goes on in a task."""
        self._splices.add(_Splice(self, entered, transport, held, connections, upstream, refuse))

    def ended(self, splice: "_Splice") -> None:
        """Forget it."""
        self._splices.discard(splice)


class _Splice:
    """The connection of one client, joined to one that was dialled for it; bytes go both ways until either ends."""

    def __init__(
        self,
        relay: Relay,
        entered: Entered,
        transport: asyncio.Transport,
        held: bytes,
        connections: Connections,
        upstream: UpstreamOf,
        refuse: Refuse,
    ) -> None:
        self._relay, self._connections, self._refuse = relay, connections, refuse
        self._upstream = upstream
        self._goes_to: Upstream | None = upstream()
        self.held = held
        """of the client, for a far side that is not there yet"""
        self.near = _Side(self, entered.owner, entered.address, is_near=True)
        self.far = _Side(self, entered.owner, entered.address, is_near=False)
        self.near.other, self.far.other = self.far, self.near
        connections.become(entered, self.near)
        transport.set_protocol(self.near)
        self.near.connection_made(transport)
        transport.pause_reading()
        self.dial = asyncio.get_running_loop().create_task(self._dial(transport), name="syncbrok relay")

    async def _dial(self, transport: asyncio.Transport) -> None:
        found = self._goes_to
        if found is None or not self._relay.bounds.descriptors.try_take(self.near.owner):
            self._give_back(transport)
            return
        self.far.counted = True
        try:
            async with asyncio.timeout(self._relay.dial_timeout_s):  # with its handshake
                await asyncio.get_running_loop().create_connection(
                    lambda: self.far, found.host, found.port, ssl=found.tls
                )
        except (OSError, ssl.SSLError):  # a dial that took too long is an OSError too
            self.far.uncount()
            self._give_back(transport)
            return
        except BaseException:
            self.far.uncount()
            raise

    def joined(self, far: asyncio.Transport) -> None:
        """The far side is there: at once, before anything else comes, what has come goes first."""
        near = self.near.transport
        if near is None:  # the client has gone meanwhile
            far.abort()
            return
        if self._is_stale():  # while it was dialled somebody else came to lead; nothing was sent yet
            self._give_back(near)
            far.abort()
            return
        held, self.held = self.held, b""
        if self._goes_to is not None and self._goes_to.proxied:
            far.write(header(*(_host_and_port(near.get_extra_info(end)) for end in ("peername", "sockname"))))
        far.write(held)
        if self.near.ended:
            self.far.end_writing()
        near.resume_reading()

    def _give_back(self, transport: asyncio.Transport) -> None:
        """Nobody could be reached: whoever let the client in says so."""
        if transport.is_closing():
            return
        self._relay.ended(self)
        held, self.held = self.held, b""
        self.near.transport = None
        self._relay.bounds.sending.emptied(self.near)
        transport.resume_reading()
        self._refuse(self.near, transport, held)

    def end_if_stale(self) -> None:
        """End it if it goes to somebody who leads no more. While the far side is not there its client has not been
        answered: it is joined, or told, by who dials."""
        if self.far.transport is not None and self._is_stale():
            self.end()

    def _is_stale(self) -> bool:
        now, then = self._upstream(), self._goes_to
        return now is None or then is None or now[:3] != then[:3]

    def end(self) -> None:
        """End both sides now."""
        self.dial.cancel()
        for side in (self.near, self.far):
            if side.transport is not None:
                side.transport.abort()

    def lost(self, side: "_Side") -> None:
        """A side is closed: the other one gets what is left for it."""
        if side is self.near:
            self._connections.leave(side)
            self.dial.cancel()
        side.uncount()
        self._relay.bounds.sending.emptied(side)
        rest = side.other.transport
        if rest is None:
            self._relay.ended(self)
        elif not rest.is_closing():
            rest.close()
            asyncio.get_running_loop().call_later(_LAST_BYTES_S, rest.abort)

    def filled(self, side: "_Side") -> None:
        self._relay.bounds.sending.filled(side)

    def emptied(self, side: "_Side") -> None:
        self._relay.bounds.sending.emptied(side)

    def give_back_descriptor(self, owner: str) -> None:
        self._relay.bounds.descriptors.give_back(owner)


def _host_and_port(end: Any) -> tuple[str, int] | None:
    return (str(end[0]), int(end[1])) if isinstance(end, tuple) else None


class _Side(asyncio.Protocol):
    """One of the two connections; the near one is a ``HeldConnection`` and ``Unread``."""

    unproven = False
    spoken_for = 0

    def __init__(self, splice: _Splice, owner: str, address: str, *, is_near: bool) -> None:
        self._splice = splice
        self.owner = self.payer = owner
        self.address = address
        self._is_near = is_near
        self.other: _Side
        self.transport: asyncio.Transport | None = None
        self.ended = False
        """its peer sends no more"""
        self.counted = False
        """it has taken a descriptor of its own"""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        if not self._is_near:
            self._splice.joined(self.transport)

    def data_received(self, data: bytes) -> None:
        there = self.other.transport
        if there is None:
            self._splice.held += data  # what TLS had read already when it was told to stop
        else:
            there.write(data)

    def eof_received(self) -> bool:
        """True keeps this side open for what its peer still waits for."""
        self.ended = True
        if self.transport is None or is_secure(self.transport):
            return False
        if self.other.transport is None:
            return True
        if not self._is_near:  # who has said all it had to say may still throw away what comes, but for a moment only
            asyncio.get_running_loop().call_later(_LAST_BYTES_S, self._splice.end)
        return self.other.end_writing() and not self.other.ended

    def end_writing(self) -> bool:
        """Tell the peer that no more comes. False where that cannot be told: TLS has no half-close."""
        if self.transport is None or not self.transport.can_write_eof():
            return False
        with suppress(OSError):
            self.transport.write_eof()
        return True

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (of the protocol)
        if self.transport is not None:
            self.transport = None
            self._splice.lost(self)

    def pause_writing(self) -> None:
        if self.other.transport is not None:
            self.other.transport.pause_reading()
        if self._is_near:
            self._splice.filled(self)

    def resume_writing(self) -> None:
        if self._is_near:
            self._splice.emptied(self)
        if self.other.transport is not None:
            self.other.transport.resume_reading()

    def uncount(self) -> None:
        if self.counted:
            self.counted = False
            self._splice.give_back_descriptor(self.owner)

    def rests_since(self) -> float | None:
        """See ``HeldConnection``: nobody here knows what its client waits for."""
        return None

    def make_way(self) -> None:
        """See ``HeldConnection``."""
        self._splice.end()


class TcpRelay:
    """A listener all of whose connections are spliced as they are, TLS and all, to where ``upstream`` says. A client
    that comes while that is nowhere is closed without a word."""

    def __init__(self, relay: Relay, host: str, port: int, upstream: UpstreamOf) -> None:
        self._relay, self._host, self._port, self._upstream = relay, host, port, upstream
        bounds = relay.bounds
        self._connections = bounds.connections(bounds.descriptors.total, limits.tcp_connections_max)
        self._listening = Listening(self._admit, self._connections, bounds.addresses, _DIAL_S)
        self.ports: list[int] = []

    async def start(self) -> None:
        """Raises ``CannotListen``."""
        try:
            sockets = open_sockets(self._host, self._port)
        except OSError as error:
            raise CannotListen(self._host, self._port, error) from error
        self.ports = [one.getsockname()[1] for one in sockets]
        for one in sockets:
            await self._listening.start(one, BACKLOG_MAX)

    async def stop(self) -> None:
        """Listen no more. Splices go on until the relay stops."""
        await self._listening.stop()

    def _admit(self) -> asyncio.Protocol:
        return _Newcomer(self._relay, self._connections, self._upstream)


class _Newcomer(asyncio.Protocol):
    """The protocol of a connection that a ``TcpRelay`` has just taken: once it is made, a splice has its place."""

    unproven = True
    ended = False

    def __init__(self, relay: Relay, connections: Connections, upstream: UpstreamOf) -> None:
        self._relay, self._connections, self._upstream = relay, connections, upstream
        self.address = self.owner = ""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("peername")
        self._transport = cast("asyncio.Transport", transport)
        self.address = str(peer[0]) if peer else ""
        self.owner = self._relay.bounds.addresses.owner(self.address)
        if not self._connections.enter(self):
            self._transport.abort()
            return
        self._relay.splice(self, self._transport, b"", self._connections, self._upstream, self._closed)

    def _closed(self, entered: Entered, transport: asyncio.Transport, held: bytes) -> None:
        del held
        self._connections.leave(entered)
        transport.abort()

    def rests_since(self) -> float | None:
        """See ``HeldConnection``."""
        return None

    def make_way(self) -> None:
        """See ``HeldConnection``."""
        if self._transport is not None:
            self._transport.abort()
