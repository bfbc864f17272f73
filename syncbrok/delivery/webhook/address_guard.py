"""Which addresses may be dialled. Pure: an address goes in, a verdict comes out (``own_sockets`` asks the kernel).

An endpoint is named by whoever may declare a subscriber, and the broker dials it from inside the network. So only
addresses of the public internet pass, and what an operator allows on purpose. ``ipaddress.is_global`` alone is not
enough: it passes NAT64, 6to4, multicast and more. Here IPv4 must be global and outside ``_DENIED_V4``; IPv6 must be
inside 2000::/3, the only range given out for the public internet, and outside ``_DENIED_V6``.

Names are not judged, only addresses: the dialler resolves a name, asks here about each address and connects to those
that passed, so a name that resolves differently a moment later changes nothing.
"""

from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import NamedTuple

Network = IPv4Network | IPv6Network

_DENIED_V4 = tuple(
    (IPv4Network(cidr), why)
    for cidr, why in (
        ("0.0.0.0/8", "this network"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "carrier-grade NAT"),
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "a cloud's host agent"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "protocol assignments"),
        ("192.0.2.0/24", "documentation"),
        ("192.31.196.0/24", "AS112"),
        ("192.52.193.0/24", "automatic multicast tunnelling"),
        ("192.88.99.0/24", "6to4 relay"),
        ("192.168.0.0/16", "private"),
        ("192.175.48.0/24", "AS112"),
        ("198.18.0.0/15", "benchmarking"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
)
_DENIED_V6 = tuple(
    (IPv6Network(cidr), why)
    for cidr, why in (
        ("2001::/23", "protocol assignments (Teredo, ORCHID, benchmarking and others)"),
        ("2001:db8::/32", "documentation"),
        ("2002::/16", "6to4"),
        ("2620:4f:8000::/48", "AS112"),
        ("3ffe::/16", "6bone, given back"),
        ("3fff::/20", "documentation"),
    )
)
_PUBLIC_V6 = IPv6Network("2000::/3")
_ISATAP_MARKS = (0x0000_5EFE, 0x0200_5EFE)
"""bits 63..32 of an address that carries an IPv4 address behind them (RFC 5214)"""


class NetworkPorts(NamedTuple):
    """A network, and the ports from ``first`` to ``last`` there."""

    network: Network
    first: int
    last: int


Allowed = Network | NetworkPorts
"""a network with all its ports, or with some"""


def nobody_listens(_address: str, _port: int) -> bool:
    """No socket of this process is there."""
    return False


class AddressGuard(NamedTuple):
    """The rules of an operator for addresses beyond public ones. Loopback is allowed while the broker listens only
    there.

    ``own`` tells whether address and port are a socket of this process. Such a socket is forbidden, on public addresses
    too, unless ``allow`` names its network and port, because a message delivered there may come round again.
    """

    allow: tuple[Allowed, ...] = ()
    loopback_allowed: bool = False
    own: Callable[[str, int], bool] = nobody_listens

    def why_forbidden(self, address: str, port: int = 0) -> str | None:
        """See ``classify``."""
        why = classify(address, self.allow, port, loopback_allowed=self.loopback_allowed)
        if why is None and self.own(address, port):
            parsed = _unwrap(ip_address(address.partition("%")[0]))
            named = [one for one in self.allow if isinstance(one, NetworkPorts)]
            if not _allows(named, parsed, port):
                return f"{address} port {port} is this broker itself; only guard.allow, naming the port too, allows it"
        return why


def classify(address: str, allow: Sequence[Allowed], port: int = 0, *, loopback_allowed: bool) -> str | None:
    """None if ``address`` (numeric, as ``getaddrinfo`` gives it) may be dialled, else the reason why not."""
    try:
        parsed = _unwrap(ip_address(address.partition("%")[0]))
    except ValueError:
        return f"{address} is not a numeric address"
    if _allows(allow, parsed, port):
        return None
    if loopback_allowed and parsed.is_loopback:
        return None
    why = _why_not_public(parsed)
    return (
        None
        if why is None
        else f"{address} is not a public address ({why}); guard.allow lists others that may be called"
    )


def _allows(allow: Sequence[Allowed], address: IPv4Address | IPv6Address, port: int) -> bool:
    for one in allow:
        network, first, last = one if isinstance(one, NetworkPorts) else (one, 0, 65_535)
        if network.version == address.version and address in network and first <= port <= last:
            return True
    return False


def _unwrap(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    # ::ffff:127.0.0.1 reaches 127.0.0.1 through an IPv4 socket, so it is judged as that. The other forms that carry
    # an IPv4 address (NAT64, 6to4, Teredo, compatible, translated, ISATAP) are denied as ranges, whatever they carry.
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _why_not_public(address: IPv4Address | IPv6Address) -> str | None:
    if isinstance(address, IPv4Address):
        for network, why in _DENIED_V4:
            if address in network:
                return why
        return None if address.is_global else "special purpose"
    if address.is_loopback:
        return "loopback"
    if address not in _PUBLIC_V6:
        return "outside the public range 2000::/3"
    for network6, why in _DENIED_V6:
        if address in network6:
            return why
    if int(address) >> 32 & 0xFFFF_FFFF in _ISATAP_MARKS:
        return "ISATAP"
    return None if address.is_global else "special purpose"
