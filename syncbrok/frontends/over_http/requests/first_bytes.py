"""A connection until so much of it has come that it is known who serves it; counted from its first moment."""

import asyncio

from syncbrok.frontends.over_http.requests.connection import written
from syncbrok.frontends.over_http.requests.problems import TooSlow
from syncbrok.frontends.over_http.requests.refused_connection import too_many_connections
from syncbrok.model.errors import SyncbrokError


class FirstBytes(asyncio.Protocol):
    """A ``HeldConnection``. Whoever makes one of it counts it, then calls ``wait``, and ``let_go`` once it serves the
    connection; ``held`` has come by then. ``transport`` is None before and after."""

    unproven = True

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.held = b""
        self.owner = ""
        self._deadline: asyncio.TimerHandle | None = None

    def wait(self, transport: asyncio.Transport, timeout_s: float, what: str) -> None:
        """Wait for at most ``timeout_s``; then the client is told ``what`` did not come, and cut off."""
        self.transport = transport
        slow = TooSlow(f"{what} within {timeout_s:g} s", timeout_s=timeout_s)
        self._deadline = asyncio.get_running_loop().call_later(timeout_s, self.end, slow)

    def let_go(self) -> None:
        """Wait no more: the connection is somebody else's, or gone."""
        self.transport = None
        if self._deadline is not None:
            self._deadline.cancel()

    def end(self, why: SyncbrokError) -> None:
        """Say why, and close it."""
        if self.transport is not None:
            self.transport.write(written(why))
            self.transport.close()

    def abort(self) -> None:
        """Close it without a word: whoever would have served it is gone, and somebody else comes."""
        if self.transport is not None:
            self.transport.abort()

    def rests_since(self) -> float | None:
        """See ``HeldConnection``: its client is about to ask for something."""
        return None

    def make_way(self) -> None:
        """See ``HeldConnection``. A client that is perhaps about to ask is told why."""
        self.end(too_many_connections())
