"""Publishes gathered into batches: one request, one fsync and one answer for hundreds of messages.

What is published while a batch is being sent goes into the next one; the first waits ``linger_s`` for company. The
messages of a queue stay in the order given. A parent that is in the same batch is named by its line; one that is in
another batch is waited for.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Container
from itertools import count
from typing import Final

from syncbrok.client.errors import ClientError, Refused
from syncbrok.client.messages import Content, Draft, Parent, Pending, Published, bare_line, with_parents
from syncbrok.client.paths import queue_path
from syncbrok.client.transport import Transport

_NDJSON: Final = "application/x-ndjson"
_BATCH_BYTES: Final = 4 * 1024 * 1024
_TURN: Final = 256
"""messages put without a pause. The loop also writes the batch before to the socket, and the broker should be reading
it meanwhile"""
_NOT_OF_A_LINE: Final = (401, 403, 404)
"""statuses that refuse a batch whatever is in it: no token for it, no such queue"""


class Batching:
    """Gathers messages of all queues into batches. A batch has at most ``lines_max`` messages; a queue has one batch
    under way, since two would overtake each other. At most ``waiting_max`` messages are in memory; ``room`` waits for
    more. ``idempotent``: every message has a key, so that a repeat after silence publishes nothing twice."""

    def __init__(
        self,
        transport: Transport,
        *,
        lines_max: int = 5_000,
        linger_s: float = 0.002,
        waiting_max: int = 20_000,
        idempotent: bool = True,
    ) -> None:
        self._transport = transport
        self._lines_max = lines_max
        self._linger_s = linger_s
        self._waiting_max = waiting_max
        self._idempotent = idempotent
        self._key = secrets.token_urlsafe(12)
        self._numbers = count()
        self._lines: dict[str, deque[Pending]] = {}
        self._senders: dict[str, asyncio.Task[None]] = {}
        self._waiting = 0
        self._put_since_pause = 0
        self._room = asyncio.Event()
        self._room.set()

    @property
    def pause_is_due(self) -> bool:
        """There is no room for another message, or others have had no turn for long."""
        return self._put_since_pause >= _TURN or not self._room.is_set()

    async def pause(self) -> None:
        """Others have their turn; returns when there is room for another message."""
        self._put_since_pause = 0
        await asyncio.sleep(0)
        await self._room.wait()

    def put(self, queue: str, message: Draft | Content) -> Pending:
        """Hand it over. It is written as it is now, while the batch before is on its way. Raises ``TypeError`` where
        it cannot be."""
        # The key is given once, so that every repeat has the same.
        key = f"{self._key}-{next(self._numbers)}" if self._idempotent else ""
        loop = asyncio.get_running_loop()
        if isinstance(message, Draft):
            written = message.line(message.idempotency_key or key)
            pending = Pending(queue, written, message.parents, loop.create_future())
        else:
            pending = Pending(queue, bare_line(message, key), (), loop.create_future())
        line = self._lines.get(queue)
        if line is None:
            line = self._lines[queue] = deque()
        line.append(pending)
        self._waiting += 1
        self._put_since_pause += 1
        if self._waiting >= self._waiting_max:
            self._room.clear()
        if queue not in self._senders:
            self._senders[queue] = loop.create_task(self._send_all(queue, line))
        return pending

    async def finished(self) -> None:
        """Everything handed over was answered."""
        while self._senders:
            await asyncio.gather(*self._senders.values())

    async def _send_all(self, queue: str, line: deque[Pending]) -> None:
        """Until there is nothing left to send to this queue."""
        try:
            while line:
                if len(line) < self._lines_max:
                    await asyncio.sleep(self._linger_s)
                await self._send(queue, self._take(line))
        finally:
            del self._senders[queue]

    def _take(self, line: deque[Pending]) -> list[Pending]:
        """The next batch of the queue. It ends before a message whose parent is under way in another batch: that
        message may wait, but those before it must not wait with it, since others may depend on them."""
        taken: dict[Pending, None] = {}
        size_bytes = 0
        while line and len(taken) < self._lines_max and size_bytes < _BATCH_BYTES:
            pending = line[0]
            if pending.parents and taken and _waits(pending, taken):
                break
            taken[line.popleft()] = None
            size_bytes += len(pending.line)
        return list(taken)

    async def _send(self, queue: str, batch: list[Pending]) -> None:
        try:
            body = await self._body(batch)
            path = f"{queue_path(queue)}/messages:batch"
            answer = await self._transport.request("POST", path, body, kind=_NDJSON, again=self._idempotent)
            for pending, id_ in zip(batch, answer["ids"], strict=True):
                if not pending.future.done():
                    pending.future.set_result(Published(id_, queue))
        except ClientError as error:
            if isinstance(error, Refused) and error.status not in _NOT_OF_A_LINE and len(batch) > 1:
                await self._send_halves(queue, batch)  # one of them is wrong: the others are not to suffer
            else:
                _fail(batch, error)
        except Exception as error:  # noqa: BLE001 (whatever it is, nobody must wait for ever)
            _fail(batch, error)
        finally:
            self._waiting -= len(batch)
            if self._waiting < self._waiting_max:
                self._room.set()

    async def _send_halves(self, queue: str, batch: list[Pending]) -> None:
        middle = len(batch) // 2
        for half in (batch[:middle], batch[middle:]):
            self._waiting += len(half)
            await self._send(queue, half)

    @staticmethod
    async def _body(batch: list[Pending]) -> bytes:
        at: dict[Pending, int] = {}
        lines: list[bytes] = []
        for number, pending in enumerate(batch, 1):
            line = pending.line
            if pending.parents:
                line = with_parents(line, [await _named(parent, at) for parent in pending.parents])
            lines.append(line)
            at[pending] = number
        return b"\n".join(lines)


def _waits(pending: Pending, batch: Container[Pending]) -> bool:
    """Whether the id of a parent is not known yet, and it stands in another batch."""
    return any(
        isinstance(parent, Pending) and parent not in batch and not parent.future.done() for parent in pending.parents
    )


async def _named(parent: Parent, at: dict[Pending, int]) -> str:
    if isinstance(parent, str):
        return parent
    if isinstance(parent, Published):
        return parent.id
    return f"#{at[parent]}" if parent in at else (await parent.future).id


def _fail(batch: list[Pending], error: Exception) -> None:
    for pending in batch:
        if not pending.future.done():
            pending.future.set_exception(error)
            pending.future.exception()  # whoever does not await it is not told twice
