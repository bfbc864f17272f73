"""A connection with deadlines and caps.

aiohttp bounds neither how long a client may take to send a request's headers nor how many connections it holds. The
body's deadline stands where bodies are read (``body.read_body``).
"""

import asyncio
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong

from syncbrok.frontends.bounds import Bounds, Connections
from syncbrok.frontends.over_http import problems
from syncbrok.frontends.over_http.gate import SERVER
from syncbrok.model.errors import Malformed

LINE_BYTES_MAX: Final = 8_190
HEADERS_MAX: Final = 128
_ANSWERED_LOOK_S: Final = 0.05


class Limits:
    """Shared by the connections of one server: its deadlines, and what they may hold."""

    __slots__ = ("bounds", "connections", "headers_timeout_s")

    def __init__(self, headers_timeout_s: float, bounds: Bounds, connections: Connections) -> None:
        self.headers_timeout_s = headers_timeout_s
        self.bounds = bounds
        self.connections = connections


class Connection(web.RequestHandler):
    """aiohttp's connection, to which a ``FastLane`` has handed over. From its first byte a request's headers must be
    complete within ``headers_timeout_s``; else the client gets a 408 and the connection is closed."""

    __slots__ = ("_deadline", "_leaving", "_limits", "_since", "_stays", "address", "owner")

    def __init__(self, server: web.Server, limits: Limits, address: str, since: float, **options: Any) -> None:
        """It stands for a connection that has entered ``limits.connections``, and leaves them; ``since`` is the loop
        time at which the first request began to arrive."""
        super().__init__(server, **options)
        self._limits = limits
        self.address = address
        self.owner = limits.bounds.addresses.owner(address)
        self._since = since
        self._deadline: asyncio.TimerHandle | None = None
        self._leaving: asyncio.TimerHandle | None = None
        """set once the client sends no more"""
        self._stays = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._arm(self._since)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._limits.connections.leave(self)
        self._disarm()
        if self._leaving is not None:
            self._leaving.cancel()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]  # aiohttp leaves it at "close"
        """The client sends no more. It may well wait for the answers to what it has sent whole (RFC 9112, 9.6): True
        keeps its connection open for them."""
        if not self._stays or not self._owes():
            return False
        self._leave_when_answered()
        return True

    def ends_with_client(self) -> None:
        """The request that is handled waits for what may come, or goes on for ever: it ends once its client says that
        it sends no more, as a client that has gone does."""
        self._stays = False
        if self._leaving is not None and self.transport is not None:
            self.transport.close()

    def _owes(self) -> bool:
        """Whether a request that has arrived whole is not answered yet."""
        request = self._current_request
        if request is not None:
            return bool(request.content.is_eof())
        if self._messages:
            return bool(self._messages[0][1].is_eof())
        return self._waiter is None  # it is about to begin with one, or has just ended one

    def _leave_when_answered(self) -> None:
        """Aiohttp does not say when it has answered all, so this looks."""
        if self._owes():
            self._leaving = self._loop.call_later(_ANSWERED_LOOK_S, self._leave_when_answered)
        elif self.transport is not None:
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._messages or self._current_request is not None:
            if self._deadline is not None:
                self._disarm()
        elif self._deadline is None and data:
            # Nobody handles a request, none is complete, and there is more than nothing: headers have begun.
            self._arm(self._loop.time())

    # -- Holder -----------------------------------------------------------------------------------------------------

    @property
    def unproven(self) -> bool:
        """See ``Holder``."""
        return not self._request_count

    def rests_since(self) -> float | None:
        """See ``Holder``."""
        if self._messages or self._current_request is not None or self._deadline is not None or self.transport is None:
            return None
        return self._next_keepalive_close_time - self._keepalive_timeout

    def make_way(self) -> None:
        """See ``Holder``."""
        self.force_close()

    # -- what goes wrong --------------------------------------------------------------------------------------------

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What aiohttp's parser refuses, or what went wrong outside every handler."""
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun, an error cannot follow")
        if status == 400:
            response = problems.answer(_refused(exc, message or str(exc)))
        elif isinstance(exc, Exception):
            response = problems.answer(problems.unforeseen(request.method, request.path, exc))
        else:
            response = problems.answer_status(status, "the request was given up")
        response.headers["Server"] = SERVER
        response.force_close()
        return response

    def _arm(self, since: float) -> None:
        self._deadline = self._loop.call_at(since + self._limits.headers_timeout_s, self._too_slow)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        if self.transport is None or self._messages or self._current_request is not None:
            return
        timeout_s = self._limits.headers_timeout_s
        _, body = problems.document(
            problems.TooSlow(f"the request's headers did not arrive within {timeout_s:g} s", timeout_s=timeout_s)
        )
        self.transport.write(
            b"HTTP/1.1 408 Request Timeout\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
            % (problems.CONTENT_TYPE.encode(), len(body), body)
        )
        self.force_close()


def _refused(error: BaseException | None, message: str) -> problems.HeadersTooLarge | Malformed:
    """What aiohttp's parser found, in words of ours: the parser's repeat what was sent."""
    if isinstance(error, LineTooLong):
        what = f"the URL and each header may have {LINE_BYTES_MAX} bytes, one of this request has more"
        return problems.HeadersTooLarge(what, bytes_max=LINE_BYTES_MAX)
    if message.startswith("Too many headers"):
        return problems.HeadersTooLarge(f"a request may have {HEADERS_MAX} headers, this one has more")
    what = message.partition("\n")[0].rstrip(":")
    return Malformed(f"this is not a request of HTTP/1.1: {what[:200]}")
