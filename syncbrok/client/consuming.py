"""Consuming: messages lent by the broker, handled by a coroutine, answered in batches."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final, NamedTuple

import orjson

from syncbrok.client.errors import ClientError
from syncbrok.client.paths import queue_path, segment
from syncbrok.client.received import Handle, Received, Refuse, handled, received
from syncbrok.client.transport import Transport

log = logging.getLogger(__name__)

_WAIT_S: Final = 20
_PAUSE_S: Final = 1.0
_LINGER_S: Final = 0.002
_LAST_WORDS_S: Final = 5.0
_MOST: Final = 1_000
"""the broker lends, and takes answers for, so many at once"""


class Consumption(NamedTuple):
    """Settings of a consumer: ``concurrency`` handlers at once, each message lent for ``lease_s``."""

    queue: str
    group: str
    start: str | int
    concurrency: int
    lease_s: float
    handle: Handle


async def pull(
    transport: Transport,
    queue: str,
    group: str,
    *,
    start: str | int = "beginning",
    most: int = 100,
    wait_s: float = _WAIT_S,
    lease_s: float = 30.0,
) -> list[Received]:
    """Up to ``most`` messages; an empty list when none came within ``wait_s``."""
    asked = {"group": group, "start": start, "max": most, "wait": wait_s, "lease": lease_s}
    answer = await transport.request("POST", f"{queue_path(queue)}/pull", orjson.dumps(asked), wait_s=wait_s)
    return [received(shown) for shown in answer["messages"]]


async def acknowledge(transport: Transport, leases: list[str]) -> int:
    """How many of the leases were not over yet."""
    answer = await transport.request("POST", "/v1/leases:ack", orjson.dumps({"leases": leases}))
    return int(answer["answered"])


async def refuse(transport: Transport, lease: str, reason: str, delay_s: float | None) -> None:
    asked = {"reason": reason, **({} if delay_s is None else {"delay": delay_s})}
    await transport.request("POST", f"/v1/leases/{segment(lease)}:nack", orjson.dumps(asked))


async def each(
    transport: Transport, queue: str, group: str, start: str | int, lease_s: float
) -> AsyncIterator[Received]:
    """Yield messages one by one, for ever, as long as the caller acknowledges them."""
    while True:
        for message in await pull(transport, queue, group, start=start, lease_s=lease_s):
            yield message


async def run(transport: Transport, consumption: Consumption, stopping: asyncio.Event) -> None:
    """Pull, handle, acknowledge, until ``stopping`` and what was pulled is answered. A handler that raises has refused
    its message."""
    answers = _Answers(transport)
    async with asyncio.TaskGroup() as tasks:
        sending = tasks.create_task(answers.send())
        async with asyncio.TaskGroup() as group:
            pulling = group.create_task(_pull_on(transport, consumption, answers, group))
            await stopping.wait()
            pulling.cancel()
        sending.cancel()


async def _pull_on(
    transport: Transport, consumption: Consumption, answers: "_Answers", tasks: asyncio.TaskGroup
) -> None:
    """For ever."""
    handling: set[asyncio.Task[None]] = set()
    while True:
        while len(handling) >= consumption.concurrency:
            _, handling = await asyncio.wait(handling, return_when=asyncio.FIRST_COMPLETED)
        for message in await _some(transport, consumption, consumption.concurrency - len(handling)):
            handling.add(tasks.create_task(_handle(consumption.handle, message, answers)))
        handling = {task for task in handling if not task.done()}


async def _some(transport: Transport, consumption: Consumption, most: int) -> list[Received]:
    """Messages; after a failure none, and not at once."""
    queue, group, start, _, lease_s, _ = consumption
    try:
        return await pull(transport, queue, group, start=start, most=min(most, _MOST), lease_s=lease_s)
    except ClientError as error:
        log.warning("syncbrok.client.pull_failed", extra={"queue": queue, "error": str(error)})
        await asyncio.sleep(_PAUSE_S)
        return []


async def _handle(handle: Handle, message: Received, answers: "_Answers") -> None:
    refusal = await handled(handle, message)
    if refusal is None:
        answers.acknowledge(message)
    else:
        await answers.refuse(message, refusal)


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
        """Send acknowledgements until cancelled; those of messages handled by then are still sent."""
        try:
            while True:
                await self._some.wait()
                await asyncio.sleep(_LINGER_S)
                await self._send()
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_WORDS_S):
                    while self._leases:
                        await self._send()

    async def _send(self) -> None:
        leases = self._leases[:_MOST]
        try:
            await acknowledge(self._transport, leases)
        except ClientError as error:
            log.warning("syncbrok.client.answer_failed", extra={"leases": len(leases), "error": str(error)})
        del self._leases[: len(leases)]
        if not self._leases:
            self._some.clear()

    async def refuse(self, message: Received, refusal: Refuse) -> None:
        try:
            await refuse(self._transport, message.lease, refusal.reason, refusal.delay_s)
        except ClientError as error:
            log.warning("syncbrok.client.answer_failed", extra={"id": message.id, "error": str(error)})
