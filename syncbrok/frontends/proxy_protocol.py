"""The PROXY protocol, version 2: what a relay says first on a connection, so that the other end sees its client. Pure.

    12 bytes that begin no HTTP request | version, command | family | length | addresses | what else the relay tells

Of haproxy's proxy-protocol.txt. Written are TCP over IPv4 and IPv6; read are those too, additions are passed over.
"""

import struct
from ipaddress import IPv6Address, ip_address
from typing import Final, NamedTuple

from syncbrok.model.errors import Malformed

SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
_HEAD: Final = struct.Struct(">12sBBH")
_VERSION: Final = 0x20
_LOCAL, _PROXY = 0x0, 0x1
_TCP4, _TCP6 = 0x11, 0x21
_ADDRESS_BYTES: Final = {_TCP4: 4, _TCP6: 16}
_LENGTH_MAX: Final = 4_096


class ProxyHeader(NamedTuple):
    """``address``: the client's; empty where the relay speaks for itself, or its client has none. ``length``: bytes of
    the header, behind which the client's begin."""

    address: str
    length: int


def header(source: tuple[str, int] | None, destination: tuple[str, int] | None) -> bytes:
    """The bytes that a relay sends before those of a client. ``source``, ``destination``: numeric address and port of
    its connection; where they are not known it says that the relay speaks for itself."""
    if source is None or destination is None:
        return _HEAD.pack(SIGNATURE, _VERSION | _LOCAL, 0, 0)
    both = [ip_address(one[0].partition("%")[0]) for one in (source, destination)]
    if any(isinstance(one, IPv6Address) and one.ipv4_mapped is None for one in both):
        family, packed = _TCP6, b"".join(_as_v6(one.packed) for one in both)
    else:
        found = [one.ipv4_mapped if isinstance(one, IPv6Address) else one for one in both]
        family, packed = _TCP4, b"".join(one.packed for one in found if one is not None)
    packed += struct.pack(">HH", source[1], destination[1])
    return _HEAD.pack(SIGNATURE, _VERSION | _PROXY, family, len(packed)) + packed


def _as_v6(packed: bytes) -> bytes:
    return packed if len(packed) == 16 else b"\0" * 10 + b"\xff\xff" + packed


def read_header(data: bytes) -> ProxyHeader | None:
    """The header that ``data`` begins with; None while more of it has to come. Raises ``Malformed`` where it is none,
    or longer than 4 KiB."""
    if not data.startswith(SIGNATURE[: len(data)]):
        raise Malformed("no header of the PROXY protocol, version 2")
    if len(data) < _HEAD.size:
        return None
    _, command, family, length = _HEAD.unpack_from(data)
    if command not in (_VERSION | _LOCAL, _VERSION | _PROXY) or length > _LENGTH_MAX:
        raise Malformed("a header of the PROXY protocol that is none of version 2, or too long")
    whole = _HEAD.size + length
    if len(data) < whole:
        return None
    size = _ADDRESS_BYTES.get(family)
    if command == _VERSION | _LOCAL or size is None:
        return ProxyHeader("", whole)
    if length < 2 * size + 4:
        raise Malformed("a header of the PROXY protocol without room for its addresses")
    address = ip_address(data[_HEAD.size : _HEAD.size + size])
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return ProxyHeader(str(mapped or address), whole)
