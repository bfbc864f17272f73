"""Bytes in any split: what every codec does with the frame that is not whole yet, and with names."""

import struct
from collections.abc import Sequence
from typing import Any

from syncbrok.frontends.over_tcp.session.peer_session import PeerFault


def text_of(written: bytes, what: str) -> str:
    """``written`` as text; raises ``PeerFault`` where it is no UTF-8: with other characters in place of its bytes
    it would name another queue, or key. ``what`` it is."""
    try:
        return written.decode()
    except UnicodeDecodeError:
        raise PeerFault(f"{what} is not UTF-8: {written[:80]!r}") from None


def sized(data: bytes, at: int, size: struct.Struct, bytes_max: int, what: str) -> tuple[bytes, int] | None:
    """Bytes behind their length, and where they end; None where they are not whole yet. Raises
    ``PeerFault`` where ``what`` they are is longer than ``bytes_max``."""
    if len(data) - at < size.size:
        return None
    (length,) = size.unpack_from(data, at)
    if length > bytes_max:
        raise PeerFault(f"{what} of {length} bytes; at most {bytes_max} are taken")
    end = at + size.size + length
    return (data[at + size.size : end], end) if end <= len(data) else None


class FrameReader:
    """The reading half of a wire format derives from it; pure. It keeps what ``take`` has not taken: a frame at most,
    where ``take`` refuses one that is too long as soon as its length is known."""

    def __init__(self) -> None:
        self._rest = b""
        self._broken = False

    @property
    def partial_bytes(self) -> int:
        """See ``peer_session.WireFormat``."""
        return len(self._rest)

    def drop(self) -> None:
        """See ``peer_session.WireFormat``."""
        self._broken, self._rest = True, b""

    def take(self, data: bytes, at: int, commands: list[Any]) -> int:
        """Take in what begins at ``at``, which is inside ``data``; where the next begins, 0 where it is not whole yet.
        Raises ``PeerFault``."""
        raise NotImplementedError

    def feed(self, data: bytes) -> Sequence[Any]:
        """See ``peer_session.WireFormat``."""
        if self._broken:
            return ()
        commands: list[Any] = []
        data = self._rest + data if self._rest else data
        at = 0
        try:
            while at < len(data) and (following := self.take(data, at, commands)):
                at = following
        except PeerFault as fault:
            self._broken, self._rest = True, b""
            return [*commands, fault]
        self._rest = data[at:]
        return commands
