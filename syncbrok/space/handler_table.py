"""Which handler delivers to a subscriber: by the scheme of its endpoint."""

import asyncio
from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet

from syncbrok.delivery.handler import AttemptResult, Delivery, Done, Handler
from syncbrok.model import limits
from syncbrok.model.facts import Reason
from syncbrok.model.message import Subscriber
from syncbrok.model.units import endpoint_scheme


class HandlerTable:
    """The handlers of a Space by endpoint scheme. What has none goes to ``UnroutedHandler``."""

    def __init__(self) -> None:
        self._by_scheme: dict[str, Handler] = {}
        self._unrouted = UnroutedHandler()

    @property
    def schemes(self) -> AbstractSet[str]:
        """The schemes with a handler; a live view."""
        return self._by_scheme.keys()

    def put(self, scheme: str, handler: Handler) -> None:
        self._by_scheme[scheme] = handler

    def of(self, subscriber: Subscriber) -> Handler:
        return self._by_scheme.get(endpoint_scheme(subscriber.settings.endpoint), self._unrouted)

    def forget(self, subscriber: Subscriber) -> None:
        """Let its handler keep nothing more for a subscriber that is gone, or goes elsewhere."""
        self.of(subscriber).forget(subscriber.number)

    async def close(self) -> None:
        """Close each, also one that serves several schemes, once."""
        for handler in {id(handler): handler for handler in self._by_scheme.values()}.values():
            await handler.close()


class UnroutedHandler:
    """For endpoints that are left from a frontend that is switched off, or from another version: answers every attempt
    with ``Reason.CONNECT``, as if the connection had been refused. The retry schedule does the rest."""

    def deliver(self, deliveries: Sequence[Delivery], done: Done) -> None:
        loop = asyncio.get_running_loop()
        for delivery in deliveries:
            scheme = endpoint_scheme(delivery.to.subscriber.settings.endpoint)
            words = f"nothing here delivers to {scheme!r} endpoints".encode()
            loop.call_soon(done, delivery, AttemptResult(Reason.CONNECT, detail=words[: limits.response_bytes_kept]))

    def make_ready(self, delivery: Delivery) -> None:
        """There is nothing to make."""

    def withdraw(self, subscriber: int, messages: Collection[int]) -> None:
        """Nothing waits here."""

    def forget(self, subscriber: int) -> None:
        """Nothing is kept."""

    async def close(self) -> None:
        """Nothing is open."""
