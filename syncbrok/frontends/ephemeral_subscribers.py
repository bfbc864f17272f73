"""Subscribers that are there as long as a connection is: declared when it begins to consume, deleted when it goes."""

import asyncio
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from syncbrok.model import limits
from syncbrok.model.errors import SyncbrokError
from syncbrok.model.message import SubscriberSettings
from syncbrok.model.names import QueueName, SubscriberId
from syncbrok.space.channels import Channel, Subscribe, Unsubscribe
from syncbrok.space.queries.view import View


class EphemeralSubscriber(NamedTuple):
    """An ephemeral subscriber: its queue, id and number."""

    queue: QueueName
    id: SubscriberId
    number: int


class EphemeralSubscribers:
    """The ephemeral subscribers of one frontend, whose endpoint is ``consumer:NAME``; each is named ``NAME-`` and
    something random."""

    def __init__(self, subscribers: Channel, view: View, number_of: Callable[[str, str], int], name: str) -> None:
        self._subscribers = subscribers
        self._view = view
        self._number_of = number_of
        self._name = name
        self.endpoint = f"consumer:{name}"

    async def declare(
        self, queue: QueueName, start: str, *, counts: bool = False, **settings: Any
    ) -> EphemeralSubscriber:
        """Declare a subscriber with these settings and return it; messages wait for it only where it ``counts``. Raises
        ``ClientFault`` and ``BrokerFault``."""
        id_ = SubscriberId(f"{self._name}-{secrets.token_hex(6)}")
        declared = self._subscribers.put(
            Subscribe(
                queue,
                SubscriberSettings(self.endpoint, name=id_, counts=counts, **settings),
                start=start,
                comes_to_take=True,
            )
        )
        try:
            await declared
        except asyncio.CancelledError:  # whoever wanted it has gone: it may have been declared all the same
            self._delete(queue, id_)
            raise
        return EphemeralSubscriber(queue, id_, self._number_of(queue, id_))

    def delete(self, subscriber: EphemeralSubscriber) -> None:
        """Delete it. Where that cannot be done now (the broker stops) it is a leftover of the next start."""
        self._delete(subscriber.queue, subscriber.id)

    def _delete(self, queue: QueueName, id_: SubscriberId) -> None:
        with suppress(SyncbrokError):
            self._subscribers.put(Unsubscribe(queue, id_)).add_done_callback(_ignore_result)

    async def delete_leftovers(self) -> None:
        """Delete what a crash has left, at a start: nobody comes back for it, and it would hold up every child for
        ever."""
        after = None
        while True:
            queues, after = self._view.queues(after, limits.list_limit_max)
            for queue in queues:
                await self._delete_leftovers_of(queue.name)
            if after is None:
                return

    async def _delete_leftovers_of(self, queue: QueueName) -> None:
        after = None
        left: list[str] = []
        while True:
            subscribers, after = self._view.subscribers(queue, after, limits.list_limit_max)
            left += [one.id for one in subscribers if one.settings.endpoint == self.endpoint]
            if after is None:
                break
        for id_ in left:
            await self._subscribers.put(Unsubscribe(queue, SubscriberId(id_)))


def _ignore_result(deleted: "asyncio.Future[Any]") -> None:
    """Ignore how a deletion ended: its queue may have gone before."""
    if not deleted.cancelled():
        deleted.exception()
