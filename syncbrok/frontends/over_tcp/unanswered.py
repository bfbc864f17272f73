"""Publishing for peers that hear no answer: in order, bounded, and durable within a commit.

What is refused (the disk is full, the broker stops) ends the conversation: closing the connection is the only word such
a peer understands. What was handed over before and after may have been accepted.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from syncbrok.frontends.over_tcp.first_use import FirstUse
from syncbrok.model import limits
from syncbrok.model.errors import Overloaded, UnknownQueue
from syncbrok.model.message import Message
from syncbrok.model.names import QueueName
from syncbrok.space.channels import MessageChannel, Publish, PublishBatch

_PAUSE_S: Final = 0.005
_MESSAGE_BYTES: Final = 100
"""what a message weighs besides its content"""


class Unanswered:
    """One conversation's. ``refused`` is told the first error."""

    def __init__(self, queues: FirstUse, messages: MessageChannel, refused: Callable[[BaseException], None]) -> None:
        self._queues = queues
        self._messages = messages
        self._refused = refused
        self._unsettled_bytes = 0
        self._room = asyncio.Event()
        self._room.set()

    def publish_plain(self, queue: str, contents: list[bytes]) -> Awaitable[None] | None:
        """Messages that are content and nothing else. To be awaited, where there is something to wait for, before the
        next is published."""
        size_bytes = sum([len(content) for content in contents]) + _MESSAGE_BYTES * len(contents)
        item = PublishBatch(QueueName(queue), "", contents, size_bytes)
        return self._publish(queue, item, size_bytes)

    def publish(self, queue: str, message: Message) -> Awaitable[None] | None:
        """One message of any kind, as ``publish_plain``."""
        return self._publish(queue, Publish(QueueName(queue), (message,)), len(message.content) + _MESSAGE_BYTES)

    async def settled(self) -> None:
        """All of it is durable, or was refused."""
        while self._unsettled_bytes:
            self._room.clear()
            await self._room.wait()

    def _publish(self, queue: str, item: Any, size_bytes: int) -> Awaitable[None] | None:
        handed_over = self._queues.known(queue) and self._put(item, size_bytes)
        if handed_over and self._room.is_set():
            return None
        return self._in_time(queue, item, size_bytes, handed_over=handed_over)

    async def _in_time(self, queue: str, item: Any, size_bytes: int, *, handed_over: bool) -> None:
        """The queue is to be declared first, or there is no room just now."""
        if not handed_over:
            await self._queues.queue(queue)
            while not self._put(item, size_bytes):  # noqa: ASYNC110 - nobody tells when a channel has room again
                await asyncio.sleep(_PAUSE_S)
        await self._room.wait()

    def _put(self, item: Any, size_bytes: int) -> bool:
        try:
            receipt = self._messages.put(item)
        except Overloaded:
            return False
        self._unsettled_bytes += size_bytes
        if self._unsettled_bytes > limits.tcp_unsettled_bytes_max:
            self._room.clear()
        receipt.add_done_callback(partial(self._settled, size_bytes, item))
        return True

    def _settled(self, size_bytes: int, item: Any, receipt: "asyncio.Future[Any]") -> None:
        self._unsettled_bytes -= size_bytes
        if self._unsettled_bytes <= limits.tcp_unsettled_bytes_max // 2:
            self._room.set()
        error = None if receipt.cancelled() else receipt.exception()
        if error is not None:
            if isinstance(error, UnknownQueue):
                self._queues.forget(item.queue)
            self._refused(error)
