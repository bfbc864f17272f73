"""Publishing for peers that hear no answer: in order, bounded, and durable within a commit.

What is refused (the disk is full, the broker stops) ends the session: closing the connection is the only word such
a peer understands. What was handed over before and after may have been accepted.

A queue that bounds its backlog is no such refusal: what is too much for it is handed over again when there is room,
and nothing more is read of the peer meanwhile. To such a queue one unit is under way at a time, or a later one would
take the room of an earlier one; what was read together is one unit no longer than there is room for it.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

from syncbrok.frontends.over_tcp.session.first_use import FirstUse
from syncbrok.model import limits
from syncbrok.model.errors import BacklogFull, Overloaded, SyncbrokError, TooLarge, UnknownQueue
from syncbrok.model.message import Message
from syncbrok.model.names import QueueName
from syncbrok.space.channels import MessageChannel, Publish

_PAUSE_S: Final = 0.005
_FULL_PAUSE_S: Final = 1.0
"""what a full queue refused is handed over again at the latest then: some end without a fact, with their subscriber"""
_MESSAGE_BYTES: Final = 100
"""what a message weighs besides its content"""


class UnackedPublisher:
    """Publishes for one session. ``refused`` is told the first error."""

    def __init__(self, queues: FirstUse, messages: MessageChannel, refused: Callable[[BaseException], None]) -> None:
        self._queues = queues
        self._messages = messages
        self._refused = refused
        self._unsettled_bytes = 0
        self._aside: deque[Publish] = deque()
        """units for queues that bound their backlog: one, or those that were under way when the bound came"""
        self._room = asyncio.Event()
        self._room.set()

    def publish(self, queue: str, contents: list[bytes], key: str = "") -> Awaitable[None] | None:
        """Publish messages as one unit, all with this key where one is given. To be awaited, where there is something
        to wait for, before the next is published."""
        extras = {at: Message(content, key=key) for at, content in enumerate(contents)} if key else {}
        unit = Publish(QueueName(queue), "", contents, _size_bytes(contents), extras)
        if self._queues.bounds_backlog(queue):
            return self._in_order(unit)
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

    async def _in_order(self, unit: Publish) -> None:
        """Publish to a queue that bounds its backlog, as many messages at once as there is room for; each is durable,
        or was refused for good, on return."""
        await self._queues.queue(unit.queue)
        self._unsettled_bytes += unit.size_bytes
        self._set_aside(unit)
        await self.settled()

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
        error = None if receipt.cancelled() else receipt.exception()
        if isinstance(error, BacklogFull) or (isinstance(error, TooLarge) and len(unit.contents) > 1):
            self._set_aside(unit)  # its queue bounds its backlog since a moment ago
        else:
            self._over(unit, error)

    # -- where a backlog is bounded -----------------------------------------------------------------------------------

    def _set_aside(self, unit: Publish) -> None:
        """Publish the unit behind those that were set aside before it, in parts for which there is room."""
        self._room.clear()
        self._aside.append(unit)
        if len(self._aside) == 1:
            self._put_part(len(unit.contents))

    def _put_part(self, size: int) -> None:
        """Hand over the next so many messages of what is set aside."""
        unit = self._aside[0]
        size = min(size, len(unit.contents))
        try:
            receipt = self._messages.put(_part(unit, 0, size))
        except Overloaded:
            asyncio.get_running_loop().call_later(_PAUSE_S, self._put_part, size)
        except SyncbrokError as error:
            self._part_over(size, error)
        else:
            receipt.add_done_callback(partial(self._part_settled, size))

    def _part_settled(self, size: int, receipt: "asyncio.Future[Any]") -> None:
        error = None if receipt.cancelled() else receipt.exception()
        if size > 1 and isinstance(error, (BacklogFull, TooLarge)):
            self._put_part(size // 2)
        elif isinstance(error, BacklogFull):
            self._wait_for_room()
        else:
            self._part_over(size, error)

    def _wait_for_room(self) -> None:
        """Hand over the next message once there is room for it."""
        unit = self._aside[0]
        room = self._queues.backlog_room(unit.queue, len(unit.contents[0]))
        timer = asyncio.get_running_loop().call_later(_FULL_PAUSE_S, room.cancel)

        def go_on(_: "asyncio.Future[None]") -> None:
            timer.cancel()
            self._put_part(1)

        room.add_done_callback(go_on)

    def _part_over(self, size: int, error: BaseException | None) -> None:
        """So many of what is set aside are durable; what was refused for good takes the rest of its unit along."""
        unit = self._aside.popleft()
        done = size if error is None else len(unit.contents)
        rest = _part(unit, done, len(unit.contents))
        if rest.contents:
            self._aside.appendleft(rest)
        following = self._aside[0] if self._aside else None
        self._over(_part(unit, 0, done), error)
        if following is not None:
            self._put_part(2 * size)

    def _over(self, unit: Publish, error: BaseException | None) -> None:
        """The unit is durable, or was refused for good."""
        self._unsettled_bytes -= unit.size_bytes
        if self._unsettled_bytes <= limits.tcp_unsettled_bytes_max // 2 and not self._aside:
            self._room.set()
        if error is not None:
            if isinstance(error, UnknownQueue):
                self._queues.forget(unit.queue)
            self._refused(error)


def _part(unit: Publish, start: int, stop: int) -> Publish:
    contents = unit.contents[start:stop]
    extras = {at - start: unit.extras[at] for at in range(start, stop) if at in unit.extras}
    return Publish(unit.queue, "", contents, _size_bytes(contents), extras)


def _size_bytes(contents: Sequence[bytes]) -> int:
    return sum([len(content) for content in contents]) + _MESSAGE_BYTES * len(contents)
