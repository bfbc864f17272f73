"""The owner of a client without a token: its address. Pure.

An IPv6 client has a /64 to itself and takes another address of it whenever it likes, so all of the /64 counts as one.
Behind a proxy all clients have the proxy's address; the ``X-Forwarded-For`` of proxies that are listed is believed. A
listed proxy is its one address, IPv6 too: its neighbours in the /64 are not what is listed.
"""

import re
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

Network = IPv4Network | IPv6Network

_PREFIX: Final = 64
_WITH_PORT: Final = re.compile(r"(?P<v4>[0-9.]+):[0-9]+|\[(?P<v6>[^]]+)\](?::[0-9]+)?")
_KNOWN_MAX: Final = 4_096


class Addresses:
    """Names the owner of each client address. ``proxies``: networks whose ``X-Forwarded-For`` is believed."""

    def __init__(self, proxies: Sequence[Network] = ()) -> None:
        self._proxies = tuple(proxies)
        self._owners: dict[str, str] = {}  # at most _KNOWN_MAX: reading an address takes 2 us

    def owner(self, address: str) -> str:
        """The owner that is charged for what comes from ``address``; "" where it has none (a Unix socket)."""
        owner = self._owners.get(address)
        if owner is None:
            if len(self._owners) >= _KNOWN_MAX:
                self._owners.clear()
            owner = self._owners[address] = _owner(address, prefix=128 if self._trusts(address) else _PREFIX)
        return owner

    def is_proxy(self, owner: str) -> bool:
        """Whether many clients stand behind it. The owner of all of a /64 is no proxy: a listed one is an address."""
        return bool(self._proxies) and self._trusts(owner)

    def behind(self, address: str, forwarded: str) -> str:
        """As ``owner``, for a request that came from ``address`` with these ``X-Forwarded-For`` values (joined by
        commas, the nearest last): the last one that no listed proxy wrote of another."""
        if not self._proxies or not forwarded or not self._trusts(address):
            return self.owner(address)
        for named in reversed(forwarded.split(",")):
            name = _without_port(named.strip())
            if not _is_address(name):
                break  # written by nobody who is believed
            address = name
            if not self._trusts(name):
                break
        return self.owner(address)

    def payer(self, token: str | None, address: str, forwarded: str) -> str:
        """The owner that is charged for the bytes of a request: its token by name, else the client (``behind``)."""
        return self.behind(address, forwarded) if token is None else f"token {token}"

    def _trusts(self, address: str) -> bool:
        try:
            found = ip_address(address)
        except ValueError:
            return False
        if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        return any(found in network for network in self._proxies)


def _without_port(text: str) -> str:
    """``192.0.2.7:41000`` and ``[2001:db8::1]:41000``, as some proxies write an address; anything else as it is."""
    found = _WITH_PORT.fullmatch(text)
    return text if found is None else found["v4"] or found["v6"]


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _owner(address: str, prefix: int) -> str:
    """``prefix``: how many bits of an IPv6 address name its owner."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(found if prefix == 128 else IPv6Network((int(found) >> 128 - prefix << 128 - prefix, prefix)))
    return str(found)
