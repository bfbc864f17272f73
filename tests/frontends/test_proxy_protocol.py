"""The PROXY protocol, version 2, as haproxy's proxy-protocol.txt has it."""

import random

import pytest

from syncbrok.frontends.proxy_protocol import SIGNATURE, header, read_header
from syncbrok.model.errors import Malformed

V4 = bytes.fromhex("0d0a0d0a000d0a515549540a 21 11 000c c0000207 0a000001 a028 2710")
"""192.0.2.7:41000 to 10.0.0.1:10000"""


def test_it_is_written_as_it_is_specified() -> None:
    """Byte for byte, for IPv4; an address of IPv4 in IPv6 is one of IPv4."""
    assert header(("192.0.2.7", 41_000), ("10.0.0.1", 10_000)) == V4
    assert header(("::ffff:192.0.2.7", 41_000), ("::ffff:10.0.0.1", 10_000)) == V4
    assert header(None, ("10.0.0.1", 1)) == SIGNATURE + bytes.fromhex("20 00 0000")


@pytest.mark.parametrize(
    ("source", "destination", "address"),
    [
        ("192.0.2.7", "10.0.0.1", "192.0.2.7"),
        ("2001:db8::7", "2001:db8::1", "2001:db8::7"),
        ("fe80::7%eth0", "fe80::1%eth0", "fe80::7"),
        ("::ffff:192.0.2.7", "2001:db8::1", "192.0.2.7"),
    ],
)
def test_what_is_written_is_read(source: str, destination: str, address: str) -> None:
    """In pieces too: until all is there, nothing is."""
    data = header((source, 1), (destination, 65_535))
    for length in range(len(data)):
        assert read_header(data[:length]) is None
    assert read_header(data + b"GET / HTTP/1.1") == (address, len(data))


def test_what_else_is_told_is_passed_over() -> None:
    """Additions behind the addresses, families that are not ours, and a relay that speaks for itself."""
    longer = bytearray(V4 + b"\x04\x00\x01x")
    longer[14:16] = (16).to_bytes(2, "big")
    assert read_header(bytes(longer)) == ("192.0.2.7", len(longer))
    unix = SIGNATURE + bytes.fromhex("21 31 0004 00000000")
    assert read_header(unix) == ("", len(unix))
    local = header(None, None)
    assert read_header(local + b"G") == ("", len(local))


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"PROXY TCP4 192.0.2.7 10.0.0.1 1 2\r\n",
        SIGNATURE + bytes.fromhex("11 11 000c") + bytes(12),
        SIGNATURE + bytes.fromhex("22 11 000c") + bytes(12),
        SIGNATURE + bytes.fromhex("21 11 000b") + bytes(11),
        SIGNATURE + bytes.fromhex("21 21 000c") + bytes(12),
        SIGNATURE + bytes.fromhex("21 11 ffff"),
    ],
)
def test_what_is_none_is_refused(data: bytes) -> None:
    """At once, before more of it is waited for."""
    with pytest.raises(Malformed):
        read_header(data)


def test_no_bytes_break_it(seed: int) -> None:
    """Whatever comes: read, to be waited for, or refused."""
    chance = random.Random(seed)
    for _ in range(20_000):
        data = bytearray(V4 + chance.randbytes(20))
        for _ in range(chance.randrange(4)):
            data[chance.randrange(12, len(data))] = chance.randrange(256)
        try:
            found = read_header(bytes(data[: chance.randrange(len(data))]))
        except Malformed:
            continue
        assert found is None or 16 <= found.length <= len(data)
