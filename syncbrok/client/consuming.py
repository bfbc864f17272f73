"""Consuming: messages lent by the broker, handled by a coroutine, answered in batches."""

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, NamedTuple

import orjson

from syncbrok.client.errors import ClientError
from syncbrok.client.transport import Transport

log = logging.getLogger(__name__)

Handle = Callable[["Received"], Awaitable[object]]
_WAIT_S: Final = 20
_PAUSE_S: Final = 1.0
_LINGER_S: Final = 0.002
_MOST: Final = 1_000
"""the broker lends, and takes answers for, so many at once"""


class Refuse(Exception):
    """Raised by a handler: this message was not handled. ``delay_s``: not again before."""

    def __init__(self, reason: str = "", delay_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.delay_s = delay_s


class Received(NamedTuple):
    """A message lent to this consumer. It must be acknowledged while the lease lasts; else it goes to another."""

    id: str
    queue: str
    sequence: int
    attempt: int
    parents: tuple[str, ...]
    key: str
    content_type: str
    headers: dict[str, str]
    content: bytes
    lease: str

    def text(self) -> str:
        return self.content.decode()

    def json(self) -> Any:
        return orjson.loads(self.content)


def received(shown: dict[str, Any]) -> Received:
    """From the broker's JSON."""
    content = shown["content"].encode() if "content" in shown else base64.b64decode(shown["content_base64"])
    return Received(
        shown["id"],
        shown["queue"],
        shown["sequence"],
        shown["attempt"],
        tuple(shown["parents"]),
        shown["key"] or "",
        shown["content_type"] or "",
        shown["headers"],
        content,
        shown.get("lease", ""),
    )


class Consumption(NamedTuple):
    """What a consumer takes and how: ``concurrency`` handlers at once, each message lent for ``lease_s``."""

    queue: str
    group: str
    concurrency: int
    lease_s: float
    handle: Handle


async def pull(
    transport: Transport, queue: str, group: str, *, most: int = 100, wait_s: float = _WAIT_S, lease_s: float = 30.0
) -> list[Received]:
    """What there is, at most ``most``; nothing where nothing came within ``wait_s``."""
    asked = {"group": group, "max": most, "wait": wait_s, "lease": lease_s}
    answer = await transport.request("POST", f"/v1/queues/{queue}/pull", orjson.dumps(asked))
    return [received(shown) for shown in answer["messages"]]


async def acknowledge(transport: Transport, leases: list[str]) -> int:
    """How many of the leases were not over yet."""
    answer = await transport.request("POST", "/v1/leases:ack", orjson.dumps({"leases": leases}))
    return int(answer["answered"])


async def refuse(transport: Transport, lease: str, reason: str, delay_s: float | None) -> None:
    asked = {"reason": reason, **({} if delay_s is None else {"delay": delay_s})}
    await transport.request("POST", f"/v1/leases/{lease}:nack", orjson.dumps(asked))


async def each(transport: Transport, queue: str, group: str, lease_s: float) -> AsyncIterator[Received]:
    """For ever: messages one by one, as long as the caller acknowledges them."""
    while True:
        for message in await pull(transport, queue, group, lease_s=lease_s):
            yield message


async def run(transport: Transport, consumption: Consumption) -> None:
    """For ever: pull, handle, acknowledge. A handler that raises has refused its message."""
    answers = _Answers(transport)
    handling: set[asyncio.Task[None]] = set()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(answers.send())
        while True:
            while len(handling) >= consumption.concurrency:
                _, handling = await asyncio.wait(handling, return_when=asyncio.FIRST_COMPLETED)
            for message in await _some(transport, consumption, consumption.concurrency - len(handling)):
                handling.add(tasks.create_task(_handle(consumption.handle, message, answers)))
            handling = {task for task in handling if not task.done()}


async def _some(transport: Transport, consumption: Consumption, most: int) -> list[Received]:
    """Messages; after a failure none, and not at once."""
    queue, group, _, lease_s, _ = consumption
    try:
        return await pull(transport, queue, group, most=min(most, _MOST), lease_s=lease_s)
    except ClientError as error:
        log.warning("syncbrok.client.pull_failed", extra={"queue": queue, "error": str(error)})
        await asyncio.sleep(_PAUSE_S)
        return []


async def _handle(handle: Handle, message: Received, answers: "_Answers") -> None:
    try:
        await handle(message)
    except Refuse as refusal:
        await answers.refuse(message, refusal.reason, refusal.delay_s)
    except Exception as error:
        log.exception("syncbrok.client.handler_failed", extra={"id": message.id})
        await answers.refuse(message, f"{type(error).__name__}: {error}", None)
    else:
        answers.acknowledge(message)


class _Answers:
    """Acknowledgements, gathered; an answer that does not get through leaves its lease to run out."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._leases: list[str] = []  # bounded by the concurrency
        self._some = asyncio.Event()

    def acknowledge(self, message: Received) -> None:
        self._leases.append(message.lease)
        self._some.set()

    async def send(self) -> None:
        """For ever."""
        while True:
            await self._some.wait()
            await asyncio.sleep(_LINGER_S)
            leases, self._leases = self._leases[:_MOST], self._leases[_MOST:]
            if not self._leases:
                self._some.clear()
            try:
                await acknowledge(self._transport, leases)
            except ClientError as error:
                log.warning("syncbrok.client.answer_failed", extra={"leases": len(leases), "error": str(error)})

    async def refuse(self, message: Received, reason: str, delay_s: float | None) -> None:
        try:
            await refuse(self._transport, message.lease, reason, delay_s)
        except ClientError as error:
            log.warning("syncbrok.client.answer_failed", extra={"id": message.id, "error": str(error)})
