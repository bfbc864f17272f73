"""Answers for bytes that never became a request, and for connections without room.

A connection closed at once, with its request unread, looks broken to the client, which never sees the answer. So it
stays open for a moment; further bytes are read and thrown away.
"""

import asyncio
from typing import Final

from syncbrok.model import limits
from syncbrok.model.errors import Crowded, Overloaded

_HEARD_S: Final = 1.0


def too_many_connections() -> Crowded:
    return Crowded(
        "too many connections are open, from this address or in all; close some, or try again soon", retry_after_s=1
    )


def too_many_bytes(owner: str) -> Overloaded:
    what = f"{owner or 'this client'} is sending more at once than its share; send fewer requests together"
    return Overloaded(what, retry_after_s=1)


class RefusedConnection(asyncio.Protocol):
    """``together``: all there are; beyond ``limits.refused_max`` they are closed without a word."""

    def __init__(self, together: "set[RefusedConnection]") -> None:
        self._together = together

    def close_with(self, transport: asyncio.Transport, answer: bytes) -> None:
        """Take over ``transport``, which nobody else serves, and write ``answer``."""
        if len(self._together) >= limits.refused_max:
            transport.abort()
            return
        self._together.add(self)
        transport.set_protocol(self)
        transport.write(answer)
        if transport.can_write_eof():
            transport.write_eof()
        asyncio.get_running_loop().call_later(_HEARD_S, transport.abort)

    def data_received(self, data: bytes) -> None:
        """Ignore the bytes: the client was answered already."""

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (of the protocol)
        self._together.discard(self)
