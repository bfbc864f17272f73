"""Answers for bytes that never became a request, and for connections without room.

A connection closed at once, with its request unread, looks broken to the client, which never sees the answer. So it
stays open for a moment; further bytes are read and thrown away.
"""

import asyncio
from typing import Final

from syncbrok.model import limits
from syncbrok.model.errors import Crowded, Overloaded

_HEARD_S: Final = 1.0
_DISCARDED: Final = bytearray(64 * limits.KIB)


def too_many_connections() -> Crowded:
    return Crowded(
        "too many connections are open, from this address or in all; close some, or try again soon", retry_after_s=1
    )


def too_many_bytes(owner: str) -> Overloaded:
    what = f"{owner or 'this client'} is sending more at once than its share; send fewer requests together"
    return Overloaded(what, retry_after_s=1)


class Discarding(asyncio.BufferedProtocol):
    """Reads what a client still sends, keeps nothing of it. All connections read into one buffer: as streams each would
    be handed 256 KiB in the same turn, and a crowd that is refused together would take 256 KiB times all of it."""

    def discard(self, transport: asyncio.Transport, heard_s: float) -> None:
        """Take over ``transport``, to which its answer was written, until the client has had time to hear it."""
        transport.set_protocol(self)
        if transport.can_write_eof():
            transport.write_eof()
        transport.resume_reading()
        asyncio.get_running_loop().call_later(heard_s, transport.abort)

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002 (of the protocol)
        return _DISCARDED

    def buffer_updated(self, nbytes: int) -> None:
        """Ignore the bytes: the client was answered already."""


class RefusedConnection(Discarding):
    """``together``: all there are; beyond ``limits.refused_max`` they are closed without a word."""

    def __init__(self, together: "set[RefusedConnection]") -> None:
        self._together = together

    def close_with(self, transport: asyncio.Transport, answer: bytes) -> None:
        """Take over ``transport``, which nobody else serves, and write ``answer``."""
        if len(self._together) >= limits.refused_max:
            transport.abort()
            return
        self._together.add(self)
        transport.write(answer)
        self.discard(transport, _HEARD_S)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (of the protocol)
        self._together.discard(self)


class OverloadedConnection(Discarding):
    """The rest of ``connection``, whose request was answered before its body was read: it hears of the end."""

    def __init__(self, connection: asyncio.BaseProtocol) -> None:
        self._connection = connection

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)
