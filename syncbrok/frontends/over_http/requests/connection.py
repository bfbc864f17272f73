"""A connection with deadlines and caps.

aiohttp bounds neither how long a client may take to send a request's headers nor how many connections it holds. The
body's deadline stands where bodies are read (``body.read_body``).
"""

import asyncio
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong

from syncbrok.frontends.bounds import Bounds, Connections
from syncbrok.frontends.listening import is_secure
from syncbrok.frontends.over_http.requests import problems
from syncbrok.frontends.over_http.requests.middleware import JSON_LINES, no_quorum, put_common_headers
from syncbrok.frontends.over_http.requests.payload import GuardedPayload
from syncbrok.frontends.over_http.requests.refused_connection import OverloadedConnection, too_many_bytes
from syncbrok.frontends.over_http.requests.websocket_backlog import WebSocketBacklog
from syncbrok.model import limits
from syncbrok.model.errors import Malformed, SyncbrokError

LINE_BYTES_MAX: Final = 8_190
HEADERS_MAX: Final = 128
READING: Final[dict[str, Any]] = {
    "max_line_size": LINE_BYTES_MAX,
    "max_field_size": LINE_BYTES_MAX,
    "max_headers": HEADERS_MAX,
    "read_bufsize": 64 * limits.KIB,  # of a body, at once: twice as much is read ahead
    "auto_decompress": False,  # the content is kept as it came; see ``body.refuse_early``
}
"""how every connection reads requests: the options of ``HttpConnection``"""
_ANSWERED_LOOK_S: Final = 0.05
_HEAD_WEIGHT: Final = 6
_HEAD_PIECE_BYTES: Final = 8 * limits.KIB
_TRY_AGAIN_LATER: Final = b"\x88\x02\x03\xf5"
"""the close frame of a WebSocket with status 1013"""


_LET_IN_S: Final = 0.5
_LOOK_EVERY_S: Final = 0.005


class Limits:
    """Shared by the connections of one server: its deadlines, and what they may hold."""

    __slots__ = ("bounds", "connections", "headers_timeout_s")

    def __init__(self, headers_timeout_s: float, bounds: Bounds, connections: Connections) -> None:
        self.headers_timeout_s = headers_timeout_s
        self.bounds = bounds
        self.connections = connections


class HttpConnection(web.RequestHandler):
    """aiohttp's connection, to which a ``FastPathConnection`` has handed over. From its first byte a request's headers
    must be complete within ``headers_timeout_s``; else the client gets a 408 and the connection is closed."""

    __slots__ = (
        *("_admitted", "_deadline", "_leaving", "_limits", "_over", "_received", "_since", "_stays"),
        *("_websocket_backlog", "_spoken_by", "_taken", "_taken_by", "address", "owner", "payer", "spoken_for"),
    )

    def __init__(self, server: web.Server, limits: Limits, address: str, since: float, **options: Any) -> None:
        """For a connection that has entered ``limits.connections``; it leaves them at its end. ``since`` is the loop
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
        self.payer = self.owner
        """who answers for the bytes of the request under way: its token, else its address"""
        self._spoken_by = self.owner
        self.spoken_for = 0
        """bytes of the answer, taken before it is written"""
        self._received = 0
        """bytes of a request that is not whole"""
        self._taken = 0
        """of those, and of what was admitted"""
        self._taken_by = self.owner
        self._admitted = False
        """all of the body that is coming was taken"""
        self._over = False
        """more has come than there is room for, or none came in time; nothing more is read"""
        self._websocket_backlog: WebSocketBacklog | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._arm(self._since)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._limits.connections.leave(self)
        self._limits.bounds.sending.emptied(self)
        self._hold(0)
        self._disarm()
        if self._leaving is not None:
            self._leaving.cancel()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]  # aiohttp leaves it at "close"
        """The client sends no more. It may well wait for the answers to what it has sent whole (RFC 9112, 9.6): True
        keeps its connection open for them."""
        if not self._stays or not self._owes() or self.transport is None or is_secure(self.transport):
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
        if len(data) <= _HEAD_PIECE_BYTES or self._deadline is None:
            self._received_piece(data)
            return
        # The next piece of headers is read only once the one before was counted, so endless headers are refused early.
        for at in range(0, len(data), _HEAD_PIECE_BYTES):
            if self._deadline is None or self._over:
                self._received_piece(data[at:])
                return
            self._received_piece(data[at : at + _HEAD_PIECE_BYTES])

    def _received_piece(self, data: bytes) -> None:
        super().data_received(data)
        if self._messages or self._current_request is not None:
            if self._deadline is not None:
                self._disarm()
        elif self._deadline is None and data:
            # Nobody handles a request, none is complete, and there is more than nothing: headers have begun.
            self._arm(self._loop.time())
        if data:
            self._count(data)

    # -- what it holds ----------------------------------------------------------------------------------------------

    def _count(self, data: bytes) -> None:
        """``data`` has come: of a request that is whole now, or of one that is not and has to be kept."""
        if self._upgraded:
            self._count_socket(data)
            return
        body = self._messages[-1][1] if self._messages else None
        if body is None and self._current_request is not None:
            body = self._current_request.content
        if self._deadline is None and (body is None or body.is_eof()):
            self._release_received()
            return
        # Of an incomplete head aiohttp keeps each line as bytes and as text, and the parts that it was split into.
        self._received += len(data) if self._deadline is None else _HEAD_WEIGHT * len(data)
        if self._admitted or self._over or self._received <= limits.uncounted_bytes or self._hold(self._received):
            return
        self._over = True
        if self.transport is None:
            return
        if self._deadline is not None:  # headers: they can be refused without the rest
            self.transport.write(written(too_many_bytes(self.payer)))
            self.force_close()
            self._parser = None  # with all it has read: many may be refused before the first one is closed
            self._release_received()
        else:  # a body: its reader refuses it
            self._pause_transport_reading()

    def _release_received(self) -> None:
        """Give back the room of what was partly received: it is whole by now, or not kept any more."""
        if self._received or self._taken or self._admitted:
            self._received, self._admitted = 0, False
            if self._taken:
                self._hold(0)

    def _count_socket(self, data: bytes) -> None:
        if self._websocket_backlog is None:
            self._websocket_backlog = WebSocketBacklog()
            data = self._message_tail
        self._websocket_backlog.feed(data)
        if not self._hold_socket() and self.transport is not None:
            self.transport.write(_TRY_AGAIN_LATER)
            self.force_close()

    def _hold_socket(self) -> bool:
        assert self._websocket_backlog is not None
        held = self._websocket_backlog.held
        return self._hold(held if held > limits.uncounted_bytes else 0)

    def message_taken(self) -> None:
        """A message of a WebSocket was handed over."""
        if self._websocket_backlog is not None:
            self._websocket_backlog.taken()
            if self._taken:
                self._hold_socket()

    def _hold(self, amount: int) -> bool:
        """Count bytes as being received. False where that is too much; they are counted all the same."""
        more = amount - self._taken
        if amount == more:
            self._taken_by = self.payer
        self._taken = amount
        return self._limits.bounds.receiving.hold(self._taken_by, more)

    async def admit_body(self, amount: int) -> None:
        """Wait until there is room for all of a body, before the rest of it is read. Raises ``Overloaded`` where there
        is none in time, or where too much has come unasked."""
        receiving = self._limits.bounds.receiving
        if self._over:
            raise too_many_bytes(self.payer)
        more = max(0, amount - self._taken)
        if more and not receiving.try_admit(self.payer, more):
            self._pause_transport_reading()
            try:
                async with asyncio.timeout(limits.admission_timeout_s):
                    await receiving.admit(self.payer, more)
            except TimeoutError:
                self._over = True
                raise too_many_bytes(self.payer) from None
            if not (self._reading_paused or self._buffer_paused):
                self._resume_transport_reading()
            if self.transport is None:  # it went meanwhile, and nobody would give back what it has
                receiving.give_back(self.payer, more)
                return
        self._admitted = True
        if self._taken_by != self.payer:  # the beginning, if that was counted, was its address's
            if self._taken:
                receiving.give_back(self._taken_by, self._taken)
                receiving.budget.take(self.payer, self._taken)
            self._taken_by = self.payer
        self._taken += more

    def speaks_for(self, token: str | None, forwarded: str) -> None:
        """Charge the request that is handled now: to the token of this name, else to the address that ``forwarded``
        (its ``X-Forwarded-For``) names."""
        if token is None and not forwarded:
            self.payer = self.owner
        else:
            self.payer = self._limits.bounds.addresses.payer(token, self.address, forwarded)

    def has_turn(self) -> bool:
        """Whether a piece of work may begin now, and ``turn`` need not be awaited: nearly always."""
        return self._limits.bounds.turns.now()

    async def turn(self, *, goes_on: bool = False) -> None:
        """Wait, before a piece of work, until it is this client's turn; see ``Turns``."""
        turns = self._limits.bounds.turns
        if not turns.now():
            await turns.wait(self.payer, goes_on=goes_on)

    def may_ask(self) -> bool:
        """True if the client has so few unread answers that it may get more."""
        return self._limits.bounds.sending.budget.room(self.payer) > 0

    def may_answer(self, amount: int, *, refusable: bool) -> bool:
        """True if an answer of ``amount`` bytes may be written; then they count until they have been read. An answer
        that is not ``refusable`` always may, since the work it answers has been done. An earlier estimate for the same
        answer no longer counts."""
        if self.spoken_for:
            self.answered()
        if amount > limits.uncounted_bytes:
            sending = self._limits.bounds.sending
            if not sending.try_take(self.payer, amount):
                if refusable:
                    return False
                sending.budget.take(self.payer, amount)
            self._spoken_by = self.payer
            self.spoken_for = amount
        return True

    async def until_sent(self) -> None:
        """Wait until the system has taken all that was written; for a connection that carries attempts (see
        ``AttemptGuard.carries``). Raises ``ConnectionError`` where the client has gone."""
        await self._drain_helper()

    def answered(self) -> None:
        """Nearly all of what was taken for an answer has been read."""
        amount, self.spoken_for = self.spoken_for, 0
        if amount:
            self._limits.bounds.sending.give_back(self._spoken_by, amount)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Write the end of an answer; returns when nearly all of it has been read."""
        try:
            if self.spoken_for:  # it takes as long to copy it into the socket as it took to make it
                await self.turn(goes_on=True)
            if self._over and not resp.prepared:
                resp.force_close()
            body = resp.body if isinstance(resp, web.Response) else None
            if isinstance(body, GuardedPayload) and not await body.begins():
                resp = problems.answer(no_quorum())
                put_common_headers(resp)
            return await super().finish_response(request, resp, start_time)
        finally:
            if self.spoken_for:
                self.answered()
            if isinstance(resp, web.Response):
                resp.body = None  # aiohttp keeps the last answer of a connection until it has made the next
            if self._websocket_backlog is None:
                self._release_received()
                if self._over:
                    self._discard_rest()

    def _discard_rest(self) -> None:
        """Throw away what else comes until the client has heard the answer; then the connection ends. (aiohttp would do
        so too, but piece by piece of each connection, and those of all that were refused together are too much.)"""
        if self.transport is not None:
            self._force_close = True  # so that aiohttp leaves the transport alone
            OverloadedConnection(self).discard(self.transport, self._lingering_time)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._limits.bounds.sending.filled(self)

    def resume_writing(self) -> None:
        self._limits.bounds.sending.emptied(self)
        super().resume_writing()

    # -- Holder -----------------------------------------------------------------------------------------------------

    @property
    def unproven(self) -> bool:
        """See ``HeldConnection``."""
        return not self._request_count

    def rests_since(self) -> float | None:
        """See ``HeldConnection``."""
        if self._messages or self._current_request is not None or self._deadline is not None or self.transport is None:
            return None
        return self._next_keepalive_close_time - self._keepalive_timeout

    def make_way(self) -> None:
        """See ``HeldConnection``."""
        self.force_close()

    # -- what goes wrong --------------------------------------------------------------------------------------------

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer a request that aiohttp's parser refuses, or an error outside every handler."""
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun, an error cannot follow")
        if status == 400:
            response = problems.answer(_refused(exc, message or str(exc)))
        elif isinstance(exc, Exception):
            response = problems.answer(problems.unforeseen(request.method, request.path, exc))
        else:
            response = problems.answer_status(status, "the request was given up")
        put_common_headers(response)
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
        slow = problems.TooSlow(f"the request's headers did not arrive within {timeout_s:g} s", timeout_s=timeout_s)
        self.transport.write(written(slow))
        self.force_close()


def written(error: SyncbrokError) -> bytes:
    """The answer to what is no whole request; the connection closes with it."""
    status, body = problems.document(error)
    more = "".join(f"{name}: {value}\r\n" for name, value in problems.headers_of(status, error).items())
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: {problems.CONTENT_TYPE}\r\n{JSON_LINES}{more}"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode("ascii") + body


def _refused(error: BaseException | None, message: str) -> problems.HeadersTooLarge | Malformed:
    """The problem for what aiohttp's parser found, in words of ours: the parser's repeat what was sent."""
    if isinstance(error, LineTooLong):
        what = f"the URL and each header may have {LINE_BYTES_MAX} bytes, one of this request has more"
        return problems.HeadersTooLarge(what, bytes_max=LINE_BYTES_MAX)
    if message.startswith("Too many headers"):
        return problems.HeadersTooLarge(f"a request may have {HEADERS_MAX} headers, this one has more")
    what = message.partition("\n")[0].rstrip(":")
    return Malformed(f"this is not a request of HTTP/1.1: {what[:200]}")


async def all_answered(server: web.Server) -> None:
    """Wait until all connections of ``server`` have been answered and are gone, half a second at most: some have sent
    nothing yet. aiohttp would cut them off."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_LET_IN_S):
            # aiohttp tells nobody when a connection has gone, so this looks.
            while server.connections:  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_EVERY_S)
