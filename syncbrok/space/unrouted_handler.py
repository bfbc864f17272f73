"""Fallback for endpoint schemes without a handler: fails every attempt with ``Reason.CONNECT``.

Such endpoints are left from a frontend that is switched off, or from another version.
"""

import asyncio
from collections.abc import Collection, Sequence

from syncbrok.delivery.handler import Answer, Delivery, Done
from syncbrok.model.facts import Reason
from syncbrok.model.units import endpoint_scheme


class UnroutedHandler:
    """Answers every attempt as if the connection had been refused. The retry schedule does the rest."""

    def deliver(self, deliveries: Sequence[Delivery], done: Done) -> None:
        loop = asyncio.get_running_loop()
        for delivery in deliveries:
            scheme = endpoint_scheme(delivery.to.subscriber.settings.endpoint)
            answer = Answer(Reason.CONNECT, detail=f"nothing here delivers to {scheme!r} endpoints".encode())
            loop.call_soon(done, delivery, answer)

    def make_ready(self, delivery: Delivery) -> None:
        """There is nothing to make."""

    def withdraw(self, subscriber: int, messages: Collection[int]) -> None:
        """Nothing waits here."""

    def forget(self, subscriber: int) -> None:
        """Nothing is kept."""

    async def close(self) -> None:
        """Nothing is open."""
