"""``/v1/queues/{queue}/stream``: a WebSocket to publish and consume on, and the same queue read-only as Server-Sent
Events. ``socket_frames`` has the frames of the WebSocket.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import orjson
from aiohttp import WSMsgType, web

from syncbrok.delivery.consumers import Consumers, Member
from syncbrok.delivery.handler import Delivery
from syncbrok.frontends.ephemeral_subscribers import EphemeralSubscriber, EphemeralSubscribers
from syncbrok.frontends.over_http.consuming import socket_frames
from syncbrok.frontends.over_http.consuming.socket_frames import Acknowledge, PublishOne, RefuseFrame, Resize
from syncbrok.frontends.over_http.leases import Leases
from syncbrok.frontends.over_http.requests import parameters, render
from syncbrok.frontends.over_http.requests.context import HttpContext
from syncbrok.frontends.over_http.requests.middleware import MIDDLEWARE, SERVER, client_of
from syncbrok.frontends.over_http.requests.parameters import Parameter
from syncbrok.frontends.over_http.requests.paths import queue_of
from syncbrok.frontends.over_http.requests.reach import check_parents_of
from syncbrok.frontends.over_http.requests.routes import Reply, Route
from syncbrok.frontends.over_http.resources import events
from syncbrok.frontends.over_http.shapes.answers import StoredAnswer
from syncbrok.model import limits
from syncbrok.model.errors import ClientFault, Forbidden, Malformed, SyncbrokError, Unauthorized
from syncbrok.model.names import SEQUENCE_MAX, QueueName, SubscriberId, parse_subscriber_id
from syncbrok.model.tokens import CONSUME, PUBLISH
from syncbrok.space.channels import Accepted, Publish

NAME: Final = "stream"
_HEARTBEAT_S: Final = 20.0
_LOOK_S: Final = 1.0
"""how often a socket looks whether the broker is stopping"""
_OUTSTANDING_MAX: Final = 1_000
"""publishes of a socket that are not durable yet; then it is not read"""
_TAIL_LOOK_S: Final = 0.1
_TAIL_IDLE_S: Final = 15.0
_TAIL_TOGETHER: Final = 256
_LAST_WORDS_S: Final = 5.0
"""how long what is left to say may take once a socket ends"""


class Streams:
    """State that the sockets share: the durable groups, the handler of consumers, and the subscribers of sockets
    without a group. ``tails``: see ``limits.tails_reading_max``."""

    def __init__(self, leases: Leases, consumers: Consumers, ephemeral: EphemeralSubscribers) -> None:
        self.tails = asyncio.Semaphore(limits.tails_reading_max)
        self.leases = leases
        self.consumers = consumers
        self.ephemeral = ephemeral


async def stream(streams: Streams, context: HttpContext, request: web.Request) -> web.StreamResponse:
    queue = queue_of(request)
    context.view.queue(queue)
    socket = web.WebSocketResponse(
        heartbeat=_HEARTBEAT_S, max_msg_size=2 * context.options.content_bytes_max, compress=False
    )
    socket.headers["Server"] = SERVER  # the middleware comes too late for a stream
    if not socket.can_prepare(request).ok:
        return await _tail(streams, context, request, queue)
    window = _WINDOW.in_query(request)
    connection = _Socket(streams, context, request, queue, socket)
    await connection.join(_GROUP.in_query(request), _START.in_query(request), window)
    try:
        await socket.prepare(request)
        await connection.serve()
    finally:
        connection.leave()
    return socket


class _Socket:
    """One WebSocket: frames in, one at a time; frames out through a line that its window and its publishes bound."""

    def __init__(
        self,
        streams: Streams,
        context: HttpContext,
        request: web.Request,
        queue: QueueName,
        socket: web.WebSocketResponse,
    ) -> None:
        self._streams = streams
        self._context = context
        self._request = request
        self._queue = queue
        self._socket = socket
        self._out: deque[bytes | Delivery | None] = deque()
        """what is still to be sent; bounded by the window and by ``_OUTSTANDING_MAX``"""
        self._more = asyncio.Event()
        self._unsent_bytes = 0
        """of answers in it"""
        self._outstanding = 0
        self._room = asyncio.Event()
        self._subscriber: EphemeralSubscriber | None = None
        self._member: Member | None = None

    async def join(self, group: str | None, start: str, window: int) -> None:
        """Begin to consume, as a member of a durable group or on its own. Raises ``ClientFault``."""
        streams = self._streams
        if group is None:
            self._subscriber = await streams.ephemeral.declare(self._queue, start, window=limits.window_max)
            number, name = self._subscriber.number, self._subscriber.id
        else:
            name = SubscriberId(parse_subscriber_id(group))
            streams.leases.check(self._context.view, self._queue, name)
            number = await streams.leases.number(self._queue, name, start)
        self._member = streams.consumers.join(number, self, window, payer=client_of(self._request).payer)
        begins = {"queue": self._queue, "subscriber": name, "window": window, "sequence": self._begins_behind(name)}
        self._say({"type": "subscribed", **begins})

    def _begins_behind(self, name: SubscriberId) -> int:
        """The sequence after which the subscriber gets messages. A client that is cut off before the first of them goes
        on from there."""
        declared = self._context.view.subscriber(self._queue, name)
        start = declared.settings.start
        return declared.since if start is None else max(0, start - 1)

    async def serve(self) -> None:
        """Run until the client or the broker ends the stream."""
        if self._request.transport is not None:
            self._streams.consumers.attempt_guard.carries(self._request.transport)
        async with asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(self._send(), name="syncbrok stream")
            try:
                await self._receive()
            finally:
                self._put(None)
                await asyncio.wait((sending,), timeout=_LAST_WORDS_S)
                sending.cancel()

    def leave(self) -> None:
        """Leave the group. Messages that were not acknowledged have failed, and go to another member."""
        if self._member is not None:
            self._member.leave()
        if self._subscriber is not None:
            self._streams.ephemeral.delete(self._subscriber)

    # -- frames in ----------------------------------------------------------------------------------------------------

    async def _receive(self) -> None:
        while not self._socket.closed:
            try:
                message = await self._socket.receive(timeout=_LOOK_S)
            except TimeoutError:
                if self._context.view.state != "serving":
                    return
                continue
            if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
                client_of(self._request).message_taken()
                await self._frame(message.data)
            elif message.type in (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR):
                return

    async def _frame(self, written: str | bytes) -> None:
        ref: Any = None
        await client_of(self._request).turn()  # one who sends and sends is not the only one
        try:
            options = self._context.options
            opened = socket_frames.open_frame(written)
            ref = opened.ref
            frame = socket_frames.read(opened, options.content_bytes_max, options.parents_max)
            if isinstance(frame, PublishOne):
                await self._check_publish(frame)
            self._do(ref, frame)
        except SyncbrokError as error:
            self._problem(ref, error)
        while self._outstanding >= _OUTSTANDING_MAX or self._unsent_bytes > limits.stream_unsent_bytes_max:
            self._room.clear()
            await self._room.wait()

    def _do(self, ref: Any, frame: socket_frames.Frame) -> None:
        assert self._member is not None
        if isinstance(frame, PublishOne):
            self._publish(ref, frame)
        elif isinstance(frame, Acknowledge):
            self._member.acknowledge(frame.sequences)
        elif isinstance(frame, RefuseFrame):
            self._member.refuse(frame.sequence, frame.reason, frame.delay_s)
        else:
            assert isinstance(frame, Resize)
            self._member.open(frame.window)

    async def _check_publish(self, frame: PublishOne) -> None:
        """Raises ``Unauthorized``, ``Forbidden`` and ``UnknownParent``. Asked for each: the handshake needed another
        scope, and this one may have been taken away since."""
        request, middleware = self._request, self._request.app[MIDDLEWARE]
        try:
            token = middleware.authorize(request.headers.get("Authorization", ""), PUBLISH, None, self._queue)
        except (Unauthorized, Forbidden) as refused:
            middleware.refused_tokens.note(refused, client_of(request).payer, "PUBLISH", request.path)
            raise
        if token is not None and token.narrowed:
            await check_parents_of(self._context, token, ((0, frame.message),))

    def _publish(self, ref: Any, frame: PublishOne) -> None:
        receipt = self._context.channels.messages.put(Publish.one(self._queue, frame.message))
        self._outstanding += 1
        receipt.add_done_callback(partial(self._published, ref))

    def _published(self, ref: Any, receipt: "asyncio.Future[Accepted]") -> None:
        self._outstanding -= 1
        self._room.set()
        if receipt.cancelled():
            return
        error = receipt.exception()
        if isinstance(error, SyncbrokError):
            self._problem(ref, error)
        elif error is None:
            self._say(socket_frames.published(ref, receipt.result()))

    def _problem(self, ref: Any, error: SyncbrokError) -> None:
        self._say(socket_frames.problem(ref, error))

    def _say(self, frame: dict[str, Any]) -> None:
        text = orjson.dumps(frame)
        self._unsent_bytes += len(text)
        self._put(text)

    def _put(self, *frames: bytes | Delivery | None) -> None:
        self._out += frames
        self._more.set()

    # -- frames out ---------------------------------------------------------------------------------------------------

    async def _send(self) -> None:
        try:
            while await self._send_next():
                pass
            await self._socket.close(code=1001 if self._context.view.state != "serving" else 1000)
        except (ConnectionError, RuntimeError):
            # It has gone, or has stopped reading. There is nobody to tell.
            if self._request.transport is not None:
                self._request.transport.abort()

    async def _send_next(self) -> bool:
        """Wait for what comes next, and send it; False where that is the end."""
        while not self._out:
            self._more.clear()
            await self._more.wait()
        frame = self._out.popleft()
        if frame is not None:
            await self._send_one(frame)
        return frame is not None

    async def _send_one(self, frame: bytes | Delivery) -> None:
        if not isinstance(frame, Delivery):
            await client_of(self._request).turn(goes_on=True)
            await self._socket.send_str(frame.decode())
            self._unsent_bytes -= len(frame)
            self._room.set()
            return
        client, guard, member = client_of(self._request), self._streams.consumers.attempt_guard, self._member
        await client.turn(goes_on=True)
        message = render.received(self._streams.consumers.named(frame), self._context.lease.epoch)
        text = orjson.dumps({"type": "message", **message}).decode()
        if guard.looks:
            await client.until_sent()
        if guard.lets_begin():
            await self._socket.send_str(text)
            # It returns, too, where a reader that stood still was cut off. Room made then goes to further messages,
            # which are read for who is about to leave.
            if member is not None and not self._is_cut_off():
                member.written((frame.attempt.message,))
        elif member is not None:
            member.give_back(frame.attempt.message)

    def _is_cut_off(self) -> bool:
        transport = self._request.transport
        return transport is None or transport.is_closing()

    # -- Consumer -----------------------------------------------------------------------------------------------------

    def receive(self, deliveries: Sequence[Delivery]) -> None:
        """See ``Consumer``. Rendered when it is sent: until then it is held once, and counted."""
        self._put(*deliveries)

    def lapsed(self, messages: Sequence[int]) -> None:
        """See ``Consumer``. What was not sent yet is held no more: it comes again, and a reader that stands still would
        hold as much again with each lapse. Nor may a message that has ended go out."""
        gone = {*messages}
        self._out = deque(one for one in self._out if not (isinstance(one, Delivery) and one.attempt.message in gone))
        self._say({"type": "lapsed", "sequences": list(messages)})

    def dismissed(self) -> None:
        """See ``Consumer``."""
        self._put(None)


# -- Server-Sent Events -----------------------------------------------------------------------------------------------


async def _tail(streams: Streams, context: HttpContext, request: web.Request, queue: QueueName) -> web.StreamResponse:
    """Send every message accepted, in the order accepted, which is a causal order. Messages do not wait for the
    reader."""
    for name in (_GROUP.name, _WINDOW.name):
        if name in request.query:
            what = f"{name} is for a WebSocket: Server-Sent Events acknowledge nothing and share nothing; leave it out"
            raise Malformed(f"{what}, or ask for an upgrade", parameter=name)
    after = _after(context, request, queue)
    response = web.StreamResponse(headers=events.HEADERS)
    await response.prepare(request)
    if request.method == "HEAD":
        return response
    idle_s = 0.0
    try:
        await events.write(request, response, events.opening(after))
        while context.view.state == "serving":
            async with streams.tails:
                text, after = await _read_on(context, request, queue, after)
            if text:
                idle_s = 0.0
                await events.write_counted(request, response, text)
                text = b""
                continue
            await asyncio.sleep(_TAIL_LOOK_S)
            idle_s += _TAIL_LOOK_S
            if idle_s >= _TAIL_IDLE_S:
                idle_s = 0.0
                await events.write(request, response, b": still here\n\n")
    except ConnectionError:
        if request.transport is not None:
            request.transport.abort()
    except ClientFault:
        pass  # the queue was deleted
    return response


async def _read_on(context: HttpContext, request: web.Request, queue: QueueName, after: int) -> tuple[bytes, int]:
    """(bytes, sequence): what a stream tells next, counted as its client's, and through where that is; no bytes where
    nothing is new. Raises as ``events.write``, and ``ClientFault`` once the queue is gone."""
    messages = await context.view.read(queue, after, _TAIL_TOGETHER, limits.tail_bytes_max)
    if not messages:
        return b"", after
    texts = []
    for message in messages:
        await client_of(request).turn(goes_on=True)
        texts.append(_event(render.stored(message, queue)))
    text = b"".join(texts)
    await events.count(request, len(text))
    return text, messages[-1].sequence


def _event(message: StoredAnswer) -> bytes:
    return b"id: %d\nevent: message\ndata: %s\n\n" % (message["sequence"], orjson.dumps(message))


def _after(context: HttpContext, request: web.Request, queue: QueueName) -> int:
    """The sequence behind which the stream begins. Raises ``Malformed``."""
    resumed = request.headers.get(_LAST_EVENT_ID.name) or None  # empty: a reader that has seen no id yet
    start = _parse_start(_START.in_query(request)) if resumed is None else _LAST_EVENT_ID.read(resumed)
    if start == "beginning":
        return 0
    if isinstance(start, str):
        return context.view.queue(queue).last_sequence
    return max(0, start - 1) if resumed is None else start


def _parse_start(given: str) -> int | str:
    """A sequence, or ``now`` or ``beginning``. Raises ``Malformed``."""
    if given in ("now", "beginning"):
        return given
    found = parameters.whole_number(given, 0, SEQUENCE_MAX)
    if found is None:
        raise Malformed(f'start is "now", "beginning" or a sequence, not {given[:40]!r}')
    return found


_START: Final = Parameter("start", "now, beginning, or a sequence.", {**parameters.TEXT, "default": "now"}, str, "now")
_GROUP: Final = parameters.text("group", "WebSocket: consume for this group, which stays.")
_WINDOW: Final = parameters.number(
    "window", "WebSocket: how many messages may be out unacknowledged.", limits.window_default, 1, limits.window_max
)
_LAST_EVENT_ID: Final[Parameter[int | str]] = Parameter(
    "Last-Event-ID", "Go on after this message.", parameters.SEQUENCE, _parse_start, "now"
)


def routes(streams: Streams) -> tuple[Route, ...]:
    """The route of the stream."""
    return (
        Route(
            "GET",
            "/v1/queues/{queue}/stream",
            partial(stream, streams),
            CONSUME,
            "pull",
            "Publish and consume over a WebSocket; without an upgrade: read the queue as Server-Sent Events",
            {
                101: Reply("A WebSocket; docs/frontends.md has its frames."),
                200: Reply("Server-Sent Events: each message accepted.", {"type": "string"}, "text/event-stream"),
            },
            (404, 409, 429, 503, 507),
            query=(_START, _GROUP, _WINDOW),
            headers=(_LAST_EVENT_ID,),
            lasts=True,
            operation="stream_queue",
        ),
    )
