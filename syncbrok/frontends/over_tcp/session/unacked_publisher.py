"""Publishing for peers that hear no answer: in order, bounded, and durable within a commit.

What is refused (the disk is full, the broker stops) ends the session: closing the connection is the only word such
a peer understands. What was handed over before and after may have been accepted.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from syncbrok.frontends.over_tcp.session.first_use import FirstUse
from syncbrok.model import limits
from syncbrok.model.errors import Overloaded, UnknownQueue
from syncbrok.model.message import Message
from syncbrok.model.names import QueueName
from syncbrok.space.channels import MessageChannel, Publish

_PAUSE_S: Final = 0.005
_MESSAGE_BYTES: Final = 100
"""what a message weighs besides its content"""


class UnackedPublisher:
    """Publishes for one session. ``refused`` is told the first error."""

    def __init__(self, queues: FirstUse, messages: MessageChannel, refused: Callable[[BaseException], None]) -> None:
        self._queues = queues
        self._messages = messages
        self._refused = refused
        self._unsettled_bytes = 0
        self._room = asyncio.Event()
        self._room.set()

    def publish(self, queue: str, contents: list[bytes], key: str = "") -> Awaitable[None] | None:
        """Publish messages as one unit, all with this key where one is given. To be awaited, where there is something
        to wait for, before the next is published."""
        size_bytes = sum([len(content) for content in contents]) + _MESSAGE_BYTES * len(contents)
        extras = {at: Message(content, key=key) for at, content in enumerate(contents)} if key else {}
        unit = Publish(QueueName(queue), "", contents, size_bytes, extras)
        handed_over = self._queues.known(queue) and self._put(unit)
        if handed_over and self._room.is_set():
            return None
        return self._in_time(unit, handed_over=handed_over)

    async def settled(self) -> None:
        """Wait until all of it is durable, or was refused."""
        while self._unsettled_bytes:
            self._room.clear()
            await self._room.wait()

    async def _in_time(self, unit: Publish, *, handed_over: bool) -> None:
        """Declare the queue, or wait for room, and hand ``unit`` over if it is not yet."""
        if not handed_over:
            await self._queues.queue(unit.queue)
            while not self._put(unit):  # noqa: ASYNC110 - nobody tells when a channel has room again
                await asyncio.sleep(_PAUSE_S)
        await self._room.wait()

    def _put(self, unit: Publish) -> bool:
        try:
            receipt = self._messages.put(unit)
        except Overloaded:
            return False
        self._unsettled_bytes += unit.size_bytes
        if self._unsettled_bytes > limits.tcp_unsettled_bytes_max:
            self._room.clear()
        receipt.add_done_callback(partial(self._settled, unit))
        return True

    def _settled(self, unit: Publish, receipt: "asyncio.Future[Any]") -> None:
        self._unsettled_bytes -= unit.size_bytes
        if self._unsettled_bytes <= limits.tcp_unsettled_bytes_max // 2:
            self._room.set()
        error = None if receipt.cancelled() else receipt.exception()
        if error is not None:
            if isinstance(error, UnknownQueue):
                self._queues.forget(unit.queue)
            self._refused(error)
