"""A connection to a node that leads a cluster, until it is known whose it is: a client's, or one that another node
relays for a client of its own, which then is the client (``proxy_protocol``).

Only who shows a certificate that is good for this node's own name is another node: whoever has one could as well be
this node. To anybody else those bytes are no request.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from syncbrok.frontends.over_http.requests.connection import Limits, written
from syncbrok.frontends.over_http.requests.first_bytes import FirstBytes
from syncbrok.frontends.over_http.requests.refused_connection import RefusedConnection, too_many_connections
from syncbrok.frontends.proxy_protocol import SIGNATURE, read_header
from syncbrok.model.errors import Malformed

_HEADER_S: Final = 5.0


class ProxiedConnection(FirstBytes):
    """``make`` makes the protocol of a client at this address, "" for that of the connection. ``own_name``: of this
    node, as its certificate has it."""

    def __init__(
        self,
        own_name: str,
        make: Callable[[str], asyncio.Protocol],
        limits: Limits,
        refused: set[RefusedConnection],
    ) -> None:
        super().__init__()
        self._own_name, self._make, self._limits, self._refused = own_name, make, limits, refused

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
        self.wait(found, _HEADER_S, "no header of the PROXY protocol")

    def data_received(self, data: bytes) -> None:
        transport = self.transport
        if transport is None:
            return
        self.held += data
        if not self.held.startswith(SIGNATURE[: len(self.held)]):  # a node may be a client itself
            self.let_go()
            self._hand_over(transport, "")
            return
        try:
            header = read_header(self.held)
        except Malformed as wrong:
            self.end(wrong)
            return
        if header is not None:
            self.held = self.held[header.length :]
            self.let_go()
            self._hand_over(transport, header.address)

    def _hand_over(self, transport: asyncio.Transport, address: str) -> None:
        protocol = self._make(address)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if self.held:
            protocol.data_received(self.held)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (of the protocol)
        self.let_go()

    def let_go(self) -> None:
        """See ``FirstBytes``."""
        if self.transport is not None:
            self._limits.connections.leave(self)
        super().let_go()


def names(certificate: Mapping[str, Any] | None, name: str) -> bool:
    """Whether a certificate, as ``ssl`` shows one that was verified, is good for ``name``: an address or a name of DNS,
    of which a wildcard stands for the first label."""
    if not certificate or not name:
        return False
    wanted = name.lower()
    wild = "*." + wanted.partition(".")[2]
    found = (str(value).lower() for _, value in certificate.get("subjectAltName", ()))
    return any(value == wanted or (value == wild and wild != "*.") for value in found)
