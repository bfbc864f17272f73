"""Looks up the addresses of names: at the name servers directly, or through the system.

``DnsResolver`` asks the name servers itself, all names at once, so a slow answer delays only its own name. It reads
/etc/hosts, and the servers, search domains and options of /etc/resolv.conf. ``SystemResolver`` asks ``getaddrinfo``,
which knows all else that is set up (mDNS, LDAP), but holds a thread during a look-up. Slow names can hold all threads
and delay all others, so it is used only where it is configured.
"""

import asyncio
import re
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol

import aiodns

from syncbrok.model import limits

_AddressInfo = tuple[int, int, int, str, tuple[str, int] | tuple[str, int, int, int]]
_NO_SUCH_NAME: Final = (aiodns.error.ARES_ENOTFOUND, aiodns.error.ARES_ENODATA, aiodns.error.ARES_EBADNAME)
_NO_SUCH_NAME_SYSTEM: Final = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))
_NUMBER_LAST: Final = re.compile(r"(?:.*\.)?(?:0[xX][0-9a-fA-F]*|[0-9]+)")
"""how every spelling of an IPv4 address ends, 127.1 and 0x7f000001 included, and hardly any name"""
_TRIES: Final = 6
"""c-ares waits five times as long as the server took for other names (a quarter of a second at least), then asks again
and waits for up to twice as long, and takes no answer to an earlier try. With its three tries a name that takes a quick
server more than a second would never be found; the sixth waits for four seconds or more."""


class LookUpFailed(Exception):
    """``str()`` says why. ``definite``: the name has no address. Otherwise no name server could be asked, or none
    answered."""

    def __init__(self, words: str, *, definite: bool) -> None:
        super().__init__(words)
        self.definite = definite


class Address(NamedTuple):
    """A machine's address, numeric."""

    family: int
    host: str
    flow_info: int = 0
    scope_id: int = 0

    def info(self, port: int) -> _AddressInfo:
        """As ``getaddrinfo`` gives it."""
        to = (self.host, port) if self.family == socket.AF_INET else (self.host, port, self.flow_info, self.scope_id)
        return self.family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", to


class Resolver(Protocol):
    """``running_max``: look-ups at once; the rest wait for one to end."""

    running_max: int

    async def look_up(self, host: str) -> list[Address]:
        """The addresses of the name, the best first, one at least. Raises ``LookUpFailed``."""

    async def close(self) -> None:
        """Stop; look-ups that are running may fail."""


class DnsResolver:
    """``servers``: ``ADDRESS`` or ``ADDRESS:PORT``, ``[ADDRESS]:PORT`` for IPv6, instead of the system's. After
    ``timeout_s`` without an answer they are given up."""

    running_max = limits.look_ups_max

    def __init__(self, servers: Sequence[str] = (), timeout_s: float = limits.look_up_timeout_s) -> None:
        self._servers = servers
        self._timeout_s = timeout_s
        self._asking: aiodns.DNSResolver | None = None

    async def look_up(self, host: str) -> list[Address]:
        """See ``Resolver``."""
        if self._asking is None:  # it has a thread: only where there are names
            self._asking = aiodns.DNSResolver(self._servers or None, tries=_TRIES)
        try:
            async with asyncio.timeout(self._timeout_s):
                found = await self._asking.getaddrinfo(host, type=socket.SOCK_STREAM)
        except TimeoutError:
            words = f"no name server answered within {self._timeout_s:g} s"
            raise LookUpFailed(words, definite=False) from None
        except aiodns.error.DNSError as error:
            number, words = error.args
            raise LookUpFailed(str(words), definite=number in _NO_SUCH_NAME) from error
        addresses = [Address(node.family, _text(node.addr[0]), *node.addr[2:4]) for node in found.nodes]
        if not addresses:
            raise LookUpFailed("the name has no address", definite=True)
        return addresses

    async def close(self) -> None:
        """See ``Resolver``."""
        asking, self._asking = self._asking, None
        if asking is not None:
            await asking.close()


class SystemResolver:
    """Looks names up with ``getaddrinfo``, in a thread for each. The threads do not hold up the end of the process."""

    running_max = limits.look_up_threads_max

    async def look_up(self, host: str) -> list[Address]:
        """See ``Resolver``."""
        loop = asyncio.get_running_loop()
        told: asyncio.Future[list[Address] | LookUpFailed] = loop.create_future()

        def notify(answer: list[Address] | LookUpFailed) -> None:
            if not told.done():
                told.set_result(answer)

        def ask() -> None:
            answer = _ask_system(host)
            with suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(notify, answer)

        threading.Thread(target=ask, name="syncbrok look-up", daemon=True).start()
        answer = await told
        if isinstance(answer, LookUpFailed):
            raise answer
        return answer

    async def close(self) -> None:
        """See ``Resolver``."""


@lru_cache(maxsize=1_024)
def numeric(host: str) -> tuple[Address, ...]:
    """The address that ``host`` is, in any notation; empty for a name. Looks nothing up."""
    if ":" not in host and not _NUMBER_LAST.fullmatch(host):
        return ()
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return ()
    return tuple(_addresses(found))


def _ask_system(host: str) -> list[Address] | LookUpFailed:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        return LookUpFailed(str(error), definite=True)
    except OSError as error:
        return LookUpFailed(error.strerror or str(error), definite=error.errno in _NO_SUCH_NAME_SYSTEM)
    return _addresses(found)


def _addresses(found: Sequence[tuple[int, int, int, str, tuple[Any, ...]]]) -> list[Address]:
    return [Address(family, to[0], *to[2:4]) for family, _, _, _, to in found]


def _text(address: str | bytes) -> str:
    return address.decode("ascii") if isinstance(address, bytes) else address
