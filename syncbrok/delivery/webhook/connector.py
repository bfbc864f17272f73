"""Opening a connection to an endpoint: resolve, ask the guard about each address, dial only those that passed.

The socket is connected to an address that was checked and wrapped in TLS afterwards, so that a name that resolves
differently a moment later (DNS rebinding) changes nothing. Proxies and other settings of the environment are never
looked at: behind a proxy the guard would judge the wrong address.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from typing import Final, TypeVar, cast

import aiohappyeyeballs

from syncbrok.delivery.webhook.address_guard import AddressGuard
from syncbrok.delivery.webhook.endpoint_tls import EndpointTls
from syncbrok.delivery.webhook.http_request import EndpointTarget
from syncbrok.delivery.webhook.known_addresses import KnownAddresses
from syncbrok.delivery.webhook.resolver import LookUpFailed, Resolver
from syncbrok.delivery.webhook.tls_session import OfferedSession, OriginSession
from syncbrok.model.facts import Reason

HAPPY_EYEBALLS_DELAY_S = 0.25  # RFC 8305, section 8

AddressInfo = aiohappyeyeballs.AddrInfoType
P = TypeVar("P", bound=asyncio.Protocol)


class DialFailed(Exception):
    """No connection. ``reason`` is CONNECT, TLS or FORBIDDEN_ADDRESS; ``str()`` says what went wrong."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class NoDescriptor(DialFailed):
    """The system has no descriptor left, or lacks another resource that a socket needs. Nothing was tried, so the
    endpoint is not to blame."""


_SHORT: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))


def _failed(reason: Reason, words: str, error: BaseException) -> DialFailed:
    if isinstance(error, OSError) and error.errno in _SHORT:
        return NoDescriptor(Reason.CONNECT, words)
    return DialFailed(reason, words)


def _descriptor_left() -> bool:
    """True if a descriptor can be opened. A resolver without one only says that no name server could be asked."""
    try:
        socket.socket().close()
    except OSError as error:
        return error.errno not in _SHORT
    return True


class Connector:
    """Opens connections. ``tls`` replaces the system's trust store."""

    def __init__(self, guard: AddressGuard, resolver: Resolver, tls: ssl.SSLContext | None = None) -> None:
        self._guard = guard
        self._known = KnownAddresses(resolver)
        self._tls = tls
        self._everybodys = EndpointTls()

    async def resolve(self, target: EndpointTarget) -> list[AddressInfo]:
        """The addresses of ``target`` that may be dialled, the best first; raises ``DialFailed``. The guard is asked
        about each each time, however long the name's addresses are known."""
        try:
            found = await self._known.addresses(target.host)
        except LookUpFailed as failed:
            words = f"{target.host} cannot be resolved: {failed}"
            if not failed.definite and not _descriptor_left():
                raise NoDescriptor(Reason.CONNECT, words) from failed
            raise DialFailed(Reason.CONNECT, words) from failed
        infos: list[AddressInfo] = [address.info(target.port) for address in found]
        verdicts = [self._guard.why_forbidden(str(info[4][0]), target.port) for info in infos]
        allowed = [info for info, why in zip(infos, verdicts, strict=True) if why is None]
        if not allowed:
            whys = "; ".join(dict.fromkeys(why for why in verdicts if why)) or f"{target.host} has no address"
            raise DialFailed(Reason.FORBIDDEN_ADDRESS if found else Reason.CONNECT, whys)
        return allowed

    async def close(self) -> None:
        """Stop dialling."""
        await self._known.close()

    async def connect(
        self,
        target: EndpointTarget,
        addresses: list[AddressInfo],
        protocol: Callable[[], P],
        session: OriginSession,
        tls: EndpointTls | None = None,
    ) -> P:
        """A connection to one of ``addresses``, which ``resolve`` gave; raises ``DialFailed``. Over TLS, which is
        ``tls`` or else everybody's, it resumes ``session``, which is that of the origin, where the other side agrees.
        """
        loop = asyncio.get_running_loop()
        if not target.tls and len(addresses) == 1 and addresses[0][0] == socket.AF_INET:
            # Nothing to choose from: a third of the cost. The address is numeric, nobody is asked for it again.
            host, port = addresses[0][4][:2]
            try:
                _, connection = await loop.create_connection(protocol, str(host), int(port))
            except (OSError, RuntimeError) as error:  # uvloop raises RuntimeError in places
                raise _failed(Reason.CONNECT, f"{target.authority}: {_words(error)}", error) from error
            return connection
        offered = await self._offered(tls, session) if target.tls else None
        try:
            connected = await aiohappyeyeballs.start_connection(
                addresses, happy_eyeballs_delay=HAPPY_EYEBALLS_DELAY_S, loop=loop
            )
        except (OSError, RuntimeError) as error:  # uvloop raises RuntimeError in places
            raise _failed(Reason.CONNECT, f"{target.authority}: {_words(error)}", error) from error
        try:
            _, connection = await loop.create_connection(
                protocol,
                sock=connected,
                ssl=cast("ssl.SSLContext | None", offered),
                server_hostname=target.host.rstrip(".") if target.tls else None,
            )
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError; a host no certificate can name: ValueError
            reason = Reason.TLS if target.tls else Reason.CONNECT
            raise _failed(reason, f"{target.authority}: {_words(error)}", error) from error
        return connection

    async def _offered(self, tls: EndpointTls | None, session: OriginSession) -> OfferedSession:
        try:
            context = self._tls if tls is None and self._tls is not None else await (tls or self._everybodys).context()
        except OSError as error:
            raise _failed(Reason.TLS, f"the system's trust store: {_words(error)}", error) from error
        return OfferedSession(context, session)


def _words(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
