"""A connection to a node that leads a cluster, until it is known whose it is: a client's, or one that another node
relays for a client of its own, which then is the client (``proxy_protocol``).

Only who shows a certificate that is good for this node's own name is another node: whoever has one could as well be
this node. To anybody else those bytes are no request.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from syncbrok.frontends.over_http.requests.connection import Limits, written
from syncbrok.frontends.over_http.requests.problems import TooSlow
from syncbrok.frontends.over_http.requests.refused_connection import RefusedConnection, too_many_connections
from syncbrok.frontends.proxy_protocol import SIGNATURE, read_header
from syncbrok.model.errors import Malformed, SyncbrokError

_HEADER_S: Final = 5.0


class ProxiedConnection(asyncio.Protocol):
    """``make`` makes the protocol of a client at this address, "" for that of the connection. It is a
    ``HeldConnection`` while it waits for a header. ``own_name``: of this node, as its certificate has it."""

    unproven = True

    def __init__(
        self,
        own_name: str,
        make: Callable[[str], asyncio.Protocol],
        limits: Limits,
        refused: set[RefusedConnection],
    ) -> None:
        self._own_name, self._make, self._limits, self._refused = own_name, make, limits, refused
        self._transport: asyncio.Transport | None = None
        self._held = b""
        self._deadline: asyncio.TimerHandle | None = None
        self.owner = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        found = cast("asyncio.Transport", transport)
        if not names(found.get_extra_info("peercert"), self._own_name):
            self._hand_over(found, "")
            return
        peer = found.get_extra_info("peername")
        self.owner = self._limits.bounds.addresses.owner(str(peer[0]) if peer else "")
        if not self._limits.connections.enter(self):
            RefusedConnection(self._refused).close_with(found, written(too_many_connections()))
            return
        self._transport = found
        self._deadline = asyncio.get_running_loop().call_later(_HEADER_S, self._too_slow)

    def data_received(self, data: bytes) -> None:
        transport = self._transport
        if transport is None:
            return
        self._held += data
        if not self._held.startswith(SIGNATURE[: len(self._held)]):  # a node may be a client itself
            self._let_go()
            self._hand_over(transport, "")
            return
        try:
            header = read_header(self._held)
        except Malformed as wrong:
            self._end(wrong)
            return
        if header is not None:
            self._held = self._held[header.length :]
            self._let_go()
            self._hand_over(transport, header.address)

    def _hand_over(self, transport: asyncio.Transport, address: str) -> None:
        protocol = self._make(address)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if self._held:
            protocol.data_received(self._held)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (of the protocol)
        self._let_go()

    def _let_go(self) -> None:
        if self._transport is not None:
            self._transport = None
            self._limits.connections.leave(self)
        if self._deadline is not None:
            self._deadline.cancel()

    def _too_slow(self) -> None:
        self._end(TooSlow(f"no header of the PROXY protocol within {_HEADER_S:g} s", timeout_s=_HEADER_S))

    def _end(self, why: SyncbrokError) -> None:
        transport = self._transport
        if transport is not None:
            transport.write(written(why))
            transport.close()

    def rests_since(self) -> float | None:
        """See ``HeldConnection``."""
        return None

    def make_way(self) -> None:
        """See ``HeldConnection``."""
        self._end(too_many_connections())


def names(certificate: Mapping[str, Any] | None, name: str) -> bool:
    """Whether a certificate, as ``ssl`` shows one that was verified, is good for ``name``: an address or a name of DNS,
    of which a wildcard stands for the first label."""
    if not certificate or not name:
        return False
    wanted = name.lower()
    wild = "*." + wanted.partition(".")[2]
    found = (str(value).lower() for _, value in certificate.get("subjectAltName", ()))
    return any(value == wanted or (value == wild and wild != "*.") for value in found)
