"""Which addresses lead back into this process.

An endpoint that leads to the broker's own publish route makes it deliver to itself without end, and one that leads to
a TCP frontend speaks there with the broker's own address. Each of this machine's addresses counts, also the public one
and also for a listener on another of them: a rule of the firewall may join the two.
"""

import errno
import socket
from collections.abc import Callable, Collection
from ipaddress import IPv6Address, ip_address

_NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


class OwnSockets:
    """``ports`` gives the ports that this process listens on now."""

    def __init__(self, ports: Callable[[], Collection[int]]) -> None:
        self._ports = ports

    def __call__(self, address: str, port: int) -> bool:
        """Whether a connection to ``address``, which is numeric, and ``port`` would end here. Asks the kernel (15 us),
        and only for a port that is one of ours."""
        return port in self._ports() and is_local(address)


def is_local(address: str) -> bool:
    """Whether ``address``, which is numeric, is one of this machine. A socket can be bound to those and to no others;
    where that cannot be found out, the answer is yes."""
    parsed = ip_address(address.partition("%")[0])
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
        address = str(parsed)
    if parsed.is_loopback or parsed.is_unspecified:
        return True
    family = socket.AF_INET if parsed.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:  # nothing is sent
            probe.bind((address, 0))
    except OSError as error:
        return error.errno not in _NOT_HERE
    return True
