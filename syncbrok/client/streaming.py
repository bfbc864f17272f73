"""Consuming over a WebSocket: the broker sends as soon as it may, no more than the window unanswered.

A connection that breaks is made again, at the next address where there are several. A group goes on where it was.
Without a group the broker forgets the consumer with its connection; then the next one begins with what was not
acknowledged, or behind the last that came.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, NamedTuple

import aiohttp
import orjson
from yarl import URL

from syncbrok.client.paths import queue_path
from syncbrok.client.received import Handle, Received, Refuse, handled, received
from syncbrok.client.transport import Transport, address

log = logging.getLogger(__name__)

_HEARTBEAT_S: Final = 20.0
_LINGER_S: Final = 0.002
_PAUSE_S: Final = 1.0


class Subscription(NamedTuple):
    """Settings of a consumer: ``window`` messages handled at once."""

    queue: str
    group: str | None
    start: str | int
    window: int
    handle: Handle


async def run(transport: Transport, subscription: Subscription, stopping: asyncio.Event) -> None:
    """Receive, handle, acknowledge, until ``stopping`` and what was received is answered. A handler that raises has
    refused its message."""
    start = subscription.start
    tried: set[str] = set()
    while not stopping.is_set():
        url = transport.addresses.next(tried)
        assert url is not None
        conversation = _Conversation(subscription, start, stopping)
        try:
            await conversation.hold(transport, url)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            extra = {"queue": subscription.queue, "error": f"{type(error).__name__}: {error}"}
            log.warning("syncbrok.client.stream_failed", extra=extra)
        start = conversation.resume
        tried.add(url)
        if transport.addresses.next(tried) is not None:
            continue
        tried.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(_PAUSE_S):
                await stopping.wait()


class _Conversation:
    """One connection."""

    def __init__(self, subscription: Subscription, start: str | int, stopping: asyncio.Event) -> None:
        self._subscription = subscription
        self._start = start
        self._stopping = stopping
        self._owed: set[int] = set()  # received and not answered yet; bounded by the window
        self._handled: list[int] = []  # so is this
        self._some = asyncio.Event()
        self._none = asyncio.Event()  # owed
        self._none.set()
        self._last = 0
        self._began: int | None = None
        """the sequence behind which this one is sent messages, as the broker said"""

    @property
    def resume(self) -> str | int:
        """The ``start`` of the next connection, for a consumer without a group. (For a group the broker keeps the
        place.)"""
        if self._owed:
            return min(self._owed)
        if self._last:
            return self._last + 1
        return self._start if self._began is None else self._began + 1

    async def hold(self, transport: Transport, url: str) -> None:
        """Keep the connection to ``url`` until it breaks and messages under way have been handled. For a group these
        come again all the same."""
        queue, group, _, window, _ = self._subscription
        asked = {"start": str(self._start), "window": str(window), **({"group": group} if group else {})}
        there = address(url, f"{queue_path(queue)}/stream").with_query(asked)
        async with _opened(transport, url, there) as socket, asyncio.TaskGroup() as tasks:
            beside = [tasks.create_task(self._answer(socket)), tasks.create_task(self._end(socket))]
            async for frame in socket:
                if frame.type is not aiohttp.WSMsgType.TEXT:
                    break
                self._take(orjson.loads(frame.data), socket, tasks)
            for task in beside:
                task.cancel()

    def _take(self, frame: dict[str, Any], socket: aiohttp.ClientWebSocketResponse, tasks: asyncio.TaskGroup) -> None:
        if frame["type"] == "message":
            message = received(frame)
            self._last = max(self._last, message.sequence)
            self._owed.add(message.sequence)
            self._none.clear()
            tasks.create_task(self._handle(message, socket))
        elif frame["type"] == "subscribed":
            self._began = frame.get("sequence")
        elif frame["type"] == "problem":
            log.warning("syncbrok.client.stream_problem", extra={"problem": frame["problem"]})

    async def _handle(self, message: Received, socket: aiohttp.ClientWebSocketResponse) -> None:
        refusal = await handled(self._subscription.handle, message)
        if refusal is None:
            self._handled.append(message.sequence)
            self._some.set()
        else:
            await _refuse(socket, message, refusal)
        self._owed.discard(message.sequence)
        if not self._owed:
            self._none.set()

    async def _answer(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        """Acknowledgements, gathered, for ever."""
        while True:
            await self._some.wait()
            await asyncio.sleep(_LINGER_S)
            await self._acknowledge(socket)

    async def _acknowledge(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._some.clear()
        handled, self._handled = self._handled, []
        await _send(socket, {"type": "ack", "sequences": handled})

    async def _end(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        """Take no more, answer what is here, close."""
        await self._stopping.wait()
        await _send(socket, {"type": "window", "size": 0})
        await self._none.wait()
        await self._acknowledge(socket)
        await socket.close()


@asynccontextmanager
async def _opened(transport: Transport, url: str, there: URL) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    """A socket; whether it could be opened, and broke, decides which address is next."""
    try:
        async with asyncio.timeout(transport.answer_s):
            socket = await transport.session.ws_connect(there, heartbeat=_HEARTBEAT_S, max_msg_size=0)
    except aiohttp.WSServerHandshakeError as refused:
        if refused.status == 503:
            transport.addresses.failed(url)
        raise
    except (aiohttp.ClientError, TimeoutError, OSError):
        transport.addresses.failed(url)
        raise
    transport.addresses.answered(url)
    try:
        yield socket
    finally:
        await socket.close()
        if socket.close_code in (None, aiohttp.WSCloseCode.ABNORMAL_CLOSURE):
            transport.addresses.failed(url)


async def _refuse(socket: aiohttp.ClientWebSocketResponse, message: Received, refusal: Refuse) -> None:
    frame = {"type": "nack", "sequence": message.sequence, "reason": refusal.reason}
    await _send(socket, frame if refusal.delay_s is None else {**frame, "delay": refusal.delay_s})


async def _send(socket: aiohttp.ClientWebSocketResponse, frame: dict[str, Any]) -> None:
    with suppress(ConnectionError, aiohttp.ClientError):  # it is broken: whoever reads it hears of that
        await socket.send_str(orjson.dumps(frame).decode())
