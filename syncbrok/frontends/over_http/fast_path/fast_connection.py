"""The short way of a simple publish. Every connection begins here: one object, no task, no timer of its own.

    bytes -> a whole simple publish -> channel -> receipt -> answer        (here, over and over)
    anything else -> the connection goes to aiohttp, with every byte not yet worked on, and stays there

A simple publish is ``POST /v1/queues/{queue}/messages`` with a body of stated length and no header that asks for more
than publishing (``Prefer``, ``Expect``, other framing, ...). Such a request means the same to every HTTP server.
It is read strictly here, and any doubtful request is left to aiohttp, so the two never disagree about where a request
ends. Both ways share the reading of headers, the channel and the words of every answer.

Simple publishes go into the channel without a future each, and all that one commit made durable are answered in one
pass. Most publish a bare message, with a head that was seen before (``request_head``).

Why there are two: aiohttp spends 30 to 45 us on a request before the handler begins, twice what accepting, writing
and fsyncing the message costs. A protocol on httptools for the whole API was rejected: it would have to be an HTTP
server, with all the ways there are to be wrong about HTTP.
"""

import asyncio
from typing import Final, cast

from syncbrok.frontends.bounds import HIGH_WATER_BYTES
from syncbrok.frontends.listening import is_secure
from syncbrok.frontends.over_http.fast_path.fast_path import STATUS, FastPath
from syncbrok.frontends.over_http.fast_path.request_head import BEGIN, RequestHead
from syncbrok.frontends.over_http.publishing import publish
from syncbrok.frontends.over_http.publishing.headers import parse_publish
from syncbrok.frontends.over_http.requests import problems
from syncbrok.frontends.over_http.requests.context import SYNC
from syncbrok.frontends.over_http.requests.middleware import JSON_LINES, SERVER
from syncbrok.frontends.over_http.requests.refused_connection import (
    RefusedConnection,
    too_many_bytes,
    too_many_connections,
)
from syncbrok.model import limits
from syncbrok.model.errors import Forbidden, SyncbrokError, Unauthorized
from syncbrok.model.tokens import PUBLISH
from syncbrok.space.channels import Publish

HEAD_BYTES_MAX: Final = 8 * limits.KIB


class FastPathConnection(asyncio.Protocol):
    """A connection with simple publishes, until it is handed over. It answers one request at a time and holds bytes
    that come meanwhile."""

    __slots__ = (
        *("_answering", "_fresh", "_head", "_held", "_fast_path", "_loop", "_pieces", "_since", "_transport"),
        *("_counted", "_missing_bytes", "_turn", "_unread", "address", "ended", "owner", "payer"),
    )

    def __init__(self, fast_path: FastPath, address: str = "") -> None:
        """``address``: of the client, where that is not whom the connection comes from."""
        self._fast_path = fast_path
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self.address = address
        self.owner = ""
        self.payer = ""
        """who is charged for the bytes held: the token of the request whose content is still arriving, else the
        client's address"""
        self._held = b""
        """received, not worked on"""
        self._head: RequestHead | None = None
        """the head of the request whose content is still arriving"""
        self._pieces: list[bytes] = []
        self._missing_bytes = 0
        """of a long content, all of which is counted before it arrives: what has come of it, and what has not"""
        self._answering = False
        """the request that has come is under way: it is being answered, or waits for its turn to be handed over"""
        self._turn: asyncio.Future[None] | None = None
        self._counted = 0
        """of what is held, how much was taken for it"""
        self._unread = False
        """the client does not read what it is answered"""
        self.ended = False
        """the client sends no more, and waits for answers"""
        self._fresh = True
        """no request has come yet"""
        self._since = 0.0
        """loop time at which it began to wait for what it is waiting for"""

    # -- the transport calls these --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("peername")
        limits_ = self._fast_path.limits
        if not self.address:
            self.address = str(peer[0]) if peer else ""
        self.owner = self.payer = limits_.bounds.addresses.owner(self.address)
        if self._fast_path.stopping:
            transport.close()
        elif not limits_.connections.enter(self):
            answer = self._problem(too_many_connections())
            RefusedConnection(self._fast_path.refused_connections).close_with(
                cast("asyncio.Transport", transport), answer
            )
        else:
            self._transport = cast("asyncio.Transport", transport)
            self._transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
            self._since = self._loop.time()
            self._fast_path.open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (of the protocol)
        self._held, self._pieces, self._missing_bytes = b"", [], 0
        if self._turn is not None:
            self._turn.cancel()
        if self._transport is not None:
            self._transport = None
            self._fast_path.limits.connections.leave(self)
            self._fast_path.limits.bounds.sending.emptied(self)
            self._count_held()
            self._fast_path.left(self)

    def data_received(self, data: bytes) -> None:
        transport = self._transport
        if transport is None:
            return
        if self._answering or self._unread:
            self._held += data
            transport.pause_reading()  # so no more than one piece is held
            self._count_held()
            return
        if self._held:
            self._held += data
        else:
            if self._head is None:  # nearly always: a whole publish, in one piece, and its head is known
                text, _, content = data.partition(b"\r\n\r\n")
                head = self._fast_path.head_cache.cached(text)
                if head is not None and len(content) == head.content_bytes:
                    self._fresh = False
                    self._publish(transport, head, content)
                    return
            elif self._missing_bytes:
                self._collect(transport, data)
                return
            self._held = data
            self._since = self._since if self._fresh else self._loop.time()
        self._advance(transport)
        if not self._count_held() and self._transport is not None:
            self._refuse(transport, too_many_bytes(self.payer))
            transport.close()

    def _count_held(self) -> bool:
        """Count the bytes held. False where they are too many; they are counted all the same."""
        if self._missing_bytes:
            return True
        held = len(self._held)
        more = (held if held > limits.uncounted_bytes else 0) - self._counted
        if not more:
            return True
        self._counted += more
        return self._fast_path.limits.bounds.receiving.hold(self.payer, more)

    def _speaks_for(self, head: RequestHead) -> None:
        """Charge bytes held from now on to the token of this request. If it will be refused, it is answered once it is
        whole."""
        try:
            token = self._fast_path.middleware.authorize(head.authorization, PUBLISH)
        except SyncbrokError:
            token = None
        forwarded = _forwarded(head)
        bounds, counted = self._fast_path.limits.bounds, self._counted
        if counted:
            bounds.receiving.give_back(self.payer, counted)
        self.payer = bounds.addresses.payer(token and token.name, self.address, forwarded)
        if counted:
            bounds.receiving.budget.take(self.payer, counted)

    def eof_received(self) -> bool:
        """As ``HttpConnection``'s: True keeps the connection open for the answer that is owed."""
        self.ended = self._answering and self._transport is not None and not is_secure(self._transport)
        return self.ended

    def pause_writing(self) -> None:
        self._unread = True
        self._fast_path.limits.bounds.sending.filled(self)

    def resume_writing(self) -> None:
        self._unread = False
        self._fast_path.limits.bounds.sending.emptied(self)
        if self._transport is not None and not self._answering:
            self._go_on(self._transport)

    # -- Holder, Unread ---------------------------------------------------------------------------------------------

    spoken_for = 0

    @property
    def transport(self) -> asyncio.Transport | None:
        """See ``Unread``."""
        return self._transport

    @property
    def unproven(self) -> bool:
        """See ``HeldConnection``."""
        return self._fresh

    def rests_since(self) -> float | None:
        """See ``HeldConnection``."""
        return None if self._answering or self._unread or self._held or self._head is not None else self._since

    def make_way(self) -> None:
        """See ``HeldConnection``. A client that has not asked for anything yet, and perhaps is about to, is told
        why."""
        if self._transport is not None:
            if self._fresh:
                self._refuse(self._transport, too_many_connections())
            self._transport.close()

    # -- the server calls these -----------------------------------------------------------------------------------

    def check(self, now: float) -> None:
        """Close what is too slow, or has rested too long. ``now`` is the loop's time."""
        transport = self._transport
        if transport is None or self._answering:
            return
        options = self._fast_path.context.options
        waited_s = now - self._since
        if self._unread:
            if waited_s > options.keepalive_timeout_s:
                transport.abort()
            return
        if self._head is None and not self._held and not self._fresh:
            if waited_s > options.keepalive_timeout_s:
                transport.close()
            return
        what, timeout_s = "headers", options.headers_timeout_s
        if self._head is not None:
            what, timeout_s = "body", options.body_timeout_s
        if waited_s > timeout_s:
            slow = problems.TooSlow(f"the request's {what} did not arrive within {timeout_s:g} s", timeout_s=timeout_s)
            self._refuse(transport, slow)
            transport.close()

    def close_if_idle(self) -> None:
        """Close, unless an answer is under way: the server stops."""
        if self._transport is not None and not self._answering:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def write_answer(self, answer: bytes, now: float) -> None:
        """Write the answer to the message that was put last; the client may have gone. ``now`` is the loop's time."""
        self._answering = False
        self._since = now
        transport = self._transport
        if transport is None:
            return
        transport.write(answer)
        if self._held or self.ended or self._fast_path.stopping:
            self._go_on(transport)

    def refuse(self, why: BaseException) -> None:
        """Write the problem document for the message that was put last."""
        self._answering = False
        self._since = self._loop.time()
        if self._transport is not None:
            self._refuse(self._transport, why)
            self._go_on(self._transport)

    def give_up(self, error: Exception) -> None:
        """Close after an unforeseen error, so that the client sees that it has no answer."""
        problems.unforeseen("POST", "a simple publish", error)
        self.abort()

    # -- requests -------------------------------------------------------------------------------------------------

    def _advance(self, transport: asyncio.Transport) -> None:
        """Work on what is held, as far as it goes."""
        while self._held and not (self._answering or self._unread or transport.is_closing()):
            if self._head is None and not self._read_head(transport):
                return
            head = self._head
            if head is None or len(self._held) < head.content_bytes:
                return
            content = self._held[: head.content_bytes]
            self._held = self._held[head.content_bytes :]
            self._head = None
            self._fresh = False
            self._publish(transport, head, content)

    def _read_head(self, transport: asyncio.Transport) -> bool:
        """True if the head of a simple publish is there, in ``_head``. Any other request goes to aiohttp."""
        held = self._held
        if not held.startswith(BEGIN[: len(held)]):
            self._leave(transport)
            return False
        end = held.find(b"\r\n\r\n", 0, HEAD_BYTES_MAX)
        if end < 0 and len(held) < HEAD_BYTES_MAX:
            return False
        head = self._fast_path.head_cache.read(held[:end]) if end >= 0 else None
        if head is None or (head.content_type is None and self._fast_path.middleware.narrows(head.authorization)):
            self._leave(transport)  # what a token of some queues may name as parents, the log must be asked
            return False
        came_bytes = len(held) - end - 4
        if came_bytes < head.content_bytes:
            self._since = self._loop.time()
            self._speaks_for(head)
            if head.content_bytes > limits.uncounted_bytes and not self._admits(head.content_bytes):
                self._leave(transport)  # there it waits for room
                return False
        self._head = head
        self._held = held[end + 4 :]
        if self._missing_bytes:
            self._pieces, self._held = [self._held], b""
            self._missing_bytes -= came_bytes
        return True

    def _admits(self, content_bytes: int) -> bool:
        """Count all of a content that has begun to arrive. False where there is no room for it now."""
        more = content_bytes - self._counted
        if more > 0 and not self._fast_path.limits.bounds.receiving.try_admit(self.payer, more):
            return False
        self._counted = max(self._counted, content_bytes)
        self._missing_bytes = content_bytes
        return True

    def _collect(self, transport: asyncio.Transport, data: bytes) -> None:
        """Take another piece of a long content. Its pieces are joined once: held bytes would be copied with each."""
        missing_bytes, head = self._missing_bytes, self._head
        assert head is not None
        self._pieces.append(data if len(data) <= missing_bytes else data[:missing_bytes])
        self._missing_bytes = max(missing_bytes - len(data), 0)
        if self._missing_bytes:
            return
        content, self._pieces = b"".join(self._pieces), []
        self._held, self._head, self._fresh = data[missing_bytes:], None, False
        self._publish(transport, head, content)
        self._advance(transport)
        self._count_held()

    def _publish(self, transport: asyncio.Transport, head: RequestHead, content: bytes) -> None:
        fast_path = self._fast_path
        context = fast_path.context
        try:
            fast_path.middleware.authorize(head.authorization, PUBLISH, None, head.queue)
            if head.content_type is not None:
                unit = Publish.bare(head.queue, head.content_type, content)
            else:
                asked = parse_publish(head.headers, content, context.options.parents_max, publish.now_us())
                unit = Publish.one(head.queue, asked.message)
            context.channels.messages.put_shared(unit, self, fast_path)
        except Exception as error:  # noqa: BLE001 (whatever it is, the client gets an answer and the log the trace)
            self._since = self._loop.time()
            if isinstance(error, Unauthorized | Forbidden):
                self._token_refused(head, error)
            else:
                self._refuse(transport, error)
            return
        self._answering = True

    def _token_refused(self, head: RequestHead, error: SyncbrokError) -> None:
        """Count and log it, and answer it once it should be."""
        addresses = self._fast_path.limits.bounds.addresses
        client = addresses.behind(self.address, _forwarded(head))
        path = f"{BEGIN.decode().partition(' ')[2]}{head.queue}/messages"
        delay_s = self._fast_path.middleware.refused_tokens.note(error, client, "POST", path)
        self._answering = True
        self._loop.call_later(delay_s, self.refuse, error.with_traceback(None))

    def _go_on(self, transport: asyncio.Transport) -> None:
        """Work on the bytes that came while a request was answered."""
        if self._fast_path.stopping:
            transport.close()
        elif self._held:
            self._since = self._loop.time()
            self._advance(transport)
            if self._transport is None:
                return
            self._count_held()
            if self._answering or self._unread:
                return
            if not self.ended:
                transport.resume_reading()
        if self.ended:  # and what may be held is no whole request
            transport.close()

    def _refuse(self, transport: asyncio.Transport, error: BaseException) -> None:
        transport.write(self._problem(error))

    def _problem(self, error: BaseException) -> bytes:
        """The bytes of the problem document for ``error``; the same ones that aiohttp's way would make."""
        if isinstance(error, SyncbrokError):
            publish.without_line(error)
        else:
            error = problems.unforeseen("POST", "a simple publish", error)
        status, body = problems.document(error)
        headers = {SYNC: self._fast_path.context.options.sync, **problems.headers_of(status, error)}
        more = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return self._answered(status, problems.CONTENT_TYPE, more, body)

    def _answered(self, status: int, media: str, more: str, body: bytes) -> bytes:
        self._fast_path.middleware.answers[status] += 1
        head = (
            f"HTTP/1.1 {STATUS[status]}\r\nContent-Type: {media}\r\n{more}Server: {SERVER}\r\n{JSON_LINES}"
            f"{self._fast_path.more}Content-Length: {len(body)}\r\nDate: {self._fast_path.date}\r\n\r\n"
        )
        return head.encode("ascii") + body

    def _leave(self, transport: asyncio.Transport) -> None:
        """Hand the connection to aiohttp, which takes long enough for it to be done in turns. A large beginning does
        not wait: it would be kept as it is, and aiohttp's connection refuses most of it."""
        turns = self._fast_path.limits.bounds.turns
        if len(self._held) > limits.uncounted_bytes or turns.now():
            self._hand_over(transport)
            return
        self._answering = True
        transport.pause_reading()
        self._turn = turns.later(self.owner)
        self._turn.add_done_callback(self._leave_now)

    def _leave_now(self, turn: "asyncio.Future[None]") -> None:
        self._turn = None
        transport = self._transport
        if transport is None or transport.is_closing() or turn.cancelled():
            return
        if self._fast_path.stopping:
            transport.close()
            return
        self._answering = False
        transport.resume_reading()
        self._hand_over(transport)

    def _hand_over(self, transport: asyncio.Transport) -> None:
        """Hand the connection to aiohttp for good."""
        held, self._held = self._held, b""
        self._transport = None
        self._count_held()
        self._fast_path.limits.bounds.sending.emptied(self)
        self._fast_path.left(self)
        self._fast_path.hand_over(self, transport, held, self._since)


def _forwarded(head: RequestHead) -> str:
    return next((value for name, value in head.headers if name == "x-forwarded-for"), "")
