"""The client for asyncio."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Self

import orjson

from syncbrok.client import consuming, streaming
from syncbrok.client.batching import Batching
from syncbrok.client.consuming import Consumption
from syncbrok.client.messages import Content, Draft, Parent, Pending, Published
from syncbrok.client.paths import segment
from syncbrok.client.received import Handle, Received
from syncbrok.client.streaming import Subscription
from syncbrok.client.transport import Transport

_ENDED: Final = frozenset({"complete", "dead", "expired", "dropped"})
_LOOK_S: Final = 0.05
_PAGE: Final = 1_000


class Client:
    """Use it as a context manager; leaving it cancels a ``run`` that still goes on, acknowledges what was handled, and
    waits for everything published.

    ``url``: the broker's address, or those of the nodes of a cluster. A node that cannot be reached, is silent or says
    that it cannot now (503 ``no-leader``, ``no-quorum``, ``draining``) makes way for the next. Where answers name the
    node that leads, that is asked directly; to which names a token is taken, ``addresses`` says.
    ``idempotent``: each message is given an idempotency key, so that a repeat after silence publishes nothing twice.
    ``give_up_s``: for how long a request is repeated before ``Unreachable``. ``tls``: for a URL with https whose
    certificate this system does not know, or that asks for one: ``ssl.create_default_context(cafile="ca.pem")``.
    """

    def __init__(
        self,
        url: str | Sequence[str] = "http://127.0.0.1:10000",
        token: str | None = None,
        *,
        idempotent: bool = True,
        give_up_s: float = 60.0,
        batch_lines_max: int = 5_000,
        linger_s: float = 0.002,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._transport = Transport(url, token, give_up_s, tls)
        self._batching = Batching(self._transport, lines_max=batch_lines_max, linger_s=linger_s, idempotent=idempotent)
        self._consumptions: list[Consumption] = []
        self._subscriptions: list[Subscription] = []
        self._stopping = asyncio.Event()
        self._running: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._running:
            if not task.cancelling():  # a second time would cut off its last acknowledgements
                task.cancel()
        if self._running:
            await asyncio.wait(self._running)
        await self._batching.finished()
        await self._transport.__aexit__()

    async def declare(self, queue: str, **settings: Any) -> None:
        """The queue is there when this returns; ``settings`` as in the body of ``POST /v1/queues``. Raises ``Refused``
        (409) where it is there with others."""
        await self._transport.request("POST", "/v1/queues", orjson.dumps({"name": queue, **settings}))

    # -- publishing ---------------------------------------------------------------------------------------------------

    async def publish(
        self,
        queue: str,
        content: Content,
        *,
        parents: Iterable[Parent] = (),
        key: str = "",
        idempotency_key: str = "",
        headers: Mapping[str, str] | None = None,
        delay_s: float | None = None,
        parent_failure: str | None = None,
        erase_after_s: float | None = None,
    ) -> Published:
        """Returns once the message is on the broker's disk. Raises ``Refused`` and ``Unreachable``. Many calls at once
        share batches: ``asyncio.gather`` them, or take ``post`` or ``publish_many``."""
        draft = Draft(content, tuple(parents), key, idempotency_key, headers, delay_s, parent_failure, erase_after_s)
        return await (await self.post(queue, draft)).future

    async def post(self, queue: str, draft: Draft | Content) -> Pending:
        """Hand a message over and go on; waits only while too many are under way. The ``Pending`` may be a parent of
        the next, and is awaited for the outcome."""
        if self._batching.pause_is_due:
            await self._batching.pause()
        return self._batching.put(queue, draft)

    async def publish_many(self, queue: str, messages: Iterable[Draft | Content]) -> list[Published]:
        """All of them, in this order, in as few requests as may be. Raises for the first that was refused; the others
        are published."""
        pending = [await self.post(queue, message) for message in messages]
        return [await one.future for one in pending]

    async def wait(self, message: Published | str, timeout_s: float = 60.0) -> str:
        """Wait for a message's end: ``complete``, ``dead``, ``expired`` or ``dropped``. Raises ``TimeoutError``."""
        until_s = time.monotonic() + timeout_s
        pause_s = _LOOK_S
        while (state := (await self.message(message))["state"]) not in _ENDED:
            if time.monotonic() + pause_s > until_s:
                raise TimeoutError(f"it is {state} after {timeout_s:g} s")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, 1.0)
        return str(state)

    async def message(self, message: Published | str) -> dict[str, Any]:
        """The JSON of ``GET /v1/messages/{id}``: state, deliveries, attempts, why it waits."""
        id_ = message if isinstance(message, str) else message.id
        shown: dict[str, Any] = await self._transport.request("GET", f"/v1/messages/{segment(id_)}")
        return shown

    async def deliveries(
        self, queue: str, subscriber: str, *, after: int = 0, through: int | None = None, state: str | None = None
    ) -> list[dict[str, Any]]:
        """The deliveries at one subscriber of the messages of a queue with a sequence above ``after`` and up to
        ``through``, perhaps of one state: ``id``, ``sequence``, ``state``, ``reason``, ``attempts``, ``tried_at``."""
        asked = f"/v1/queues/{segment(queue)}/subscribers/{segment(subscriber)}/deliveries?limit={_PAGE}"
        asked += f"&state={segment(state)}" if state is not None else ""
        asked += f"&through={through}" if through is not None else ""
        found: list[dict[str, Any]] = []
        place: int | None = after
        while place is not None:
            page = await self._transport.request("GET", f"{asked}&after={place}")
            found += page["deliveries"]
            place = page["next"]
        return found

    # -- consuming ----------------------------------------------------------------------------------------------------

    async def pull(
        self,
        queue: str,
        group: str = "pull",
        *,
        start: str | int = "beginning",
        most: int = 100,
        wait_s: float = 20.0,
        lease_s: float = 30.0,
    ) -> list[Received]:
        """Up to ``most`` messages, each lent for ``lease_s``; an empty list when none came within ``wait_s``. ``start``
        is where a new group begins: ``beginning``, ``now`` or a sequence."""
        return await consuming.pull(
            self._transport, queue, group, start=start, most=most, wait_s=wait_s, lease_s=lease_s
        )

    def messages(
        self, queue: str, group: str = "pull", *, start: str | int = "beginning", lease_s: float = 30.0
    ) -> AsyncIterator[Received]:
        """Yield messages one by one, for ever. Acknowledge each."""
        return consuming.each(self._transport, queue, group, start, lease_s)

    async def acknowledge(self, *messages: Received) -> int:
        """How many of them were still lent to us."""
        return await consuming.acknowledge(self._transport, [message.lease for message in messages])

    async def refuse(self, message: Received, reason: str = "", delay_s: float | None = None) -> None:
        """A failed attempt; the queue's retry schedule says when it comes again. Raises ``Refused`` (410) where it is
        not lent to us any more."""
        await consuming.refuse(self._transport, message.lease, reason, delay_s)

    async def extend(self, message: Received, lease_s: float = 30.0) -> None:
        """Keep it so long from now on. Raises ``Refused`` (410) where it is not lent to us any more."""
        asked = orjson.dumps({"lease": lease_s})
        await self._transport.request("POST", f"/v1/leases/{segment(message.lease)}:extend", asked)

    def consumer(
        self,
        queue: str,
        group: str = "pull",
        *,
        start: str | int = "beginning",
        concurrency: int = 16,
        lease_s: float = 30.0,
    ) -> Callable[[Handle], Handle]:
        """A decorator: the coroutine handles each message of the queue, ``concurrency`` at once, while ``run`` runs. It
        returns: acknowledged. It raises: tried again as the queue's retry schedule says (``Refuse`` with a reason).
        ``start`` is where a group begins that is not there yet."""

        def register(handle: Handle) -> Handle:
            self._consumptions.append(Consumption(queue, group, start, concurrency, lease_s, handle))
            return handle

        return register

    def stream(
        self, queue: str, group: str | None = None, *, start: str | int = "now", window: int = 64
    ) -> Callable[[Handle], Handle]:
        """As ``consumer``, over a WebSocket: what is accepted is sent at once, ``window`` messages handled together.
        Each is to be handled within the queue's ``timeout``. Without a ``group`` the consumer begins at ``start``
        (``now``, ``beginning`` or a sequence) and nothing is kept for it while it is away; a group is the one that is
        pulled for too, and ``start`` says where a new one begins."""

        def register(handle: Handle) -> Handle:
            self._subscriptions.append(Subscription(queue, group, start, window, handle))
            return handle

        return register

    async def run(self) -> None:
        """Consume with all that was registered, until ``stop`` is called and what is being handled is answered, or
        until cancelled, which cancels the handlers."""
        self._stopping.clear()
        mine = asyncio.current_task()
        assert mine is not None
        self._running.add(mine)
        try:
            async with asyncio.TaskGroup() as tasks:
                for consumption in self._consumptions:
                    tasks.create_task(consuming.run(self._transport, consumption, self._stopping))
                for subscription in self._subscriptions:
                    tasks.create_task(streaming.run(self._transport, subscription, self._stopping))
        finally:
            self._running.discard(mine)

    def stop(self) -> None:
        """Let ``run`` return."""
        self._stopping.set()
