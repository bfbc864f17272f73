"""A small DNS server on 127.0.0.1 that answers as a test wants, or not at all."""

import asyncio
import ipaddress
import struct
from collections.abc import Callable
from typing import Self, cast

A, CNAME, AAAA = 1, 5, 28
NO_SUCH_NAME, FAILED = 3, 2
"""codes of an answer"""

Records = list[tuple[str, int, str]]
"""owner, type, and an address or the name that a CNAME leads to"""


class NameServer(asyncio.DatagramProtocol):
    """``answer`` is given a name and a type; what it returns: records (none: no such records), a code, or None for no
    answer at all. By default every name is 127.0.0.1. ``delay_s``: how long the answer about a name takes."""

    def __init__(
        self,
        answer: Callable[[str, int], Records | int | None] | None = None,
        delay_s: Callable[[str], float] = lambda _: 0.0,
    ) -> None:
        self.answer = answer or (lambda name, kind: [(name, A, "127.0.0.1")] if kind == A else [])
        self.delay_s = delay_s
        self.asked: list[tuple[str, int]] = []

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(lambda: self, ("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._transport.get_extra_info('sockname')[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._transport.close()

    def count(self, name: str, kind: int = A) -> int:
        """How often it was asked."""
        return self.asked.count((name, kind))

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        name, end = _name(data, 12)
        (kind,) = struct.unpack_from(">H", data, end)
        self.asked.append((name.lower(), kind))
        found = self.answer(name.lower(), kind)
        if found is None:
            return
        records = found if isinstance(found, list) else []
        code = found if isinstance(found, int) else 0
        head = data[:2] + struct.pack(">HHHHH", 0x8580 | code, 1, len(records), 0, 0)
        answer = head + data[12 : end + 4] + b"".join(map(_record, records))
        transport = cast("asyncio.DatagramTransport", self._transport)
        asyncio.get_running_loop().call_later(self.delay_s(name), transport.sendto, answer, addr)


def _name(data: bytes, at: int) -> tuple[str, int]:
    labels = []
    while length := data[at]:
        labels.append(data[at + 1 : at + 1 + length].decode())
        at += 1 + length
    return ".".join(labels), at + 1


def _encoded(name: str) -> bytes:
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


def _record(record: tuple[str, int, str]) -> bytes:
    owner, kind, value = record
    data = _encoded(value) if kind == CNAME else ipaddress.ip_address(value).packed
    return _encoded(owner) + struct.pack(">HHIH", kind, 1, 0, len(data)) + data  # it may not be kept
