"""The names by which this broker answers, and the sites whose web pages may ask it.

A page anywhere on the web can make its reader's browser speak to a broker on loopback. Two headers, which no page can
forge, tell such requests from others:

- ``Origin``: where the page came from. It must be the address that the request itself names, or one of ``origins``.
- ``Host``: the name in the page's own address. A page whose name resolves to 127.0.0.1 once it is loaded (DNS
  rebinding) has an ``Origin`` that fits its ``Host``; but it needs a name for that. So any address is accepted, and
  only those names that no foreign DNS can point here, and ``hosts``.

Where tokens are set and ``hosts`` is not, any ``Host`` is taken: a page of another site does not have the token.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from syncbrok.model.errors import ClientFault, Forbidden, Malformed

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_ORIGIN_CHARS_MAX: Final = 300
_HOST_CHARS_MAX: Final = 300
"""a name of DNS has 253"""
_HOSTS_KEPT: Final = 256
_AUTHORITY: Final = re.compile(r"(?:\[[^\[\]@]*\]|[^\[\]@]*)(?::[0-9]*)?")
"""without user info, and nothing between an address in brackets and the port: ``urlsplit`` would pass it over"""


class Misdirected(ClientFault):
    """The request names an authority that this broker does not answer for."""

    slug = "misdirected"


class Authorities:
    """``hosts`` are names without a port, ``origins`` such as ``https://shop.example``. ``any_host`` may change."""

    def __init__(self, hosts: Iterable[str] = (), origins: Iterable[str] = (), *, any_host: bool = False) -> None:
        self.any_host = any_host
        self._hosts = frozenset(_plain_name(host) for host in hosts)
        self._origins = frozenset(filter(None, map(_origin, origins)))
        # Clients write the same few over and over; to take one apart costs a tenth of a whole small request.
        self._is_own = lru_cache(maxsize=_HOSTS_KEPT)(self._names_this_broker)

    def answers_for(self, host: str) -> bool:
        """Whether the value of a ``Host`` header names this broker. Ports are not compared: a proxy or a container may
        show another one."""
        return self.any_host or (len(host) <= _HOST_CHARS_MAX and self._is_own(host))

    def _names_this_broker(self, host: str) -> bool:
        name = _host_name(host)
        if name is None:
            return False
        return name == "localhost" or name.endswith(".localhost") or name in self._hosts or _is_address(name)

    def check_host(self, hosts: list[str], *, optional: bool) -> None:
        """``hosts``: every ``Host`` header of the request; ``optional``: it may have none (HTTP/1.0). Raises
        ``Misdirected``, and ``Malformed`` where there is not exactly one."""
        if not hosts and optional:
            return
        if len(hosts) != 1:
            raise Malformed(f"a request has one Host header (RFC 9112, 3.2), this one has {len(hosts)}")
        self.check_name(hosts[0])

    def check_name(self, host: str) -> None:
        """``host``: a ``Host``, or the authority that the request's target names itself. Raises ``Misdirected``."""
        if not self.answers_for(host):
            raise Misdirected(f"this broker does not answer by the name {host[:_ORIGIN_CHARS_MAX]!r}")

    def trusts(self, origin: str) -> bool:
        """Whether ``origin`` is one of ``http.origins``: then it may read the answers too (CORS)."""
        return _origin(origin) in self._origins

    def check_origin(self, origin: str, host: str) -> None:
        """``origin``: the header's value, ``host``: that of the same request. Raises ``Forbidden`` where the page is
        another's: then the request does nothing."""
        asked = _origin(origin)
        if asked is None:  # null: a file, a sandboxed frame, a redirect
            raise Forbidden(f"a page without an origin may not ask this broker ({origin[:40]!r})")
        scheme, name, port = asked
        if asked in self._origins or (name, port) == _split_port(host, _DEFAULT_PORTS[scheme]):
            return
        what = f"a page of {origin[:_ORIGIN_CHARS_MAX]!r} may not ask this broker, which it calls {host[:100]!r}"
        raise Forbidden(what, mend="http.origins in config/broker.yml lists other sites whose pages may")


def _origin(text: str) -> tuple[str, str, int] | None:
    """Scheme, name and port of a serialized origin (RFC 6454, 6.2); None for ``null`` and whatever is none."""
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or parts.path or parts.query or parts.fragment:
        return None
    if not _AUTHORITY.fullmatch(parts.netloc):
        return None
    return parts.scheme, _plain_name(parts.hostname), port or _DEFAULT_PORTS[parts.scheme]


def _split_port(host: str, default: int) -> tuple[str, int] | None:
    """Name and port of a ``Host`` header; None where it is not written as one."""
    try:
        parts = urlsplit(f"//{host.strip()}")
        port = parts.port
    except ValueError:
        return None
    if not parts.hostname or parts.netloc != host.strip() or not _AUTHORITY.fullmatch(parts.netloc):
        return None
    return _plain_name(parts.hostname), port or default


def _host_name(host: str) -> str | None:
    found = _split_port(host, 0)
    return None if found is None else found[0]


def _plain_name(name: str) -> str:
    """``name`` as names are compared: lower case, without the root's dot."""
    return name.lower().removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
