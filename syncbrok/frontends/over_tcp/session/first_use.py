"""Queues and subscribers that are declared when a TCP peer first speaks of them: its format has no word for it."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from syncbrok.model.errors import Conflict
from syncbrok.model.message import QueueSettings, SubscriberSettings
from syncbrok.model.names import QueueName, SubscriberId, parse_queue_name
from syncbrok.space.channels import Channels, DeclareQueue, Subscribe


class DeclaredQueues(Protocol):
    """The declared queues, as far as a peer may speak of them. See ``View`` for each."""

    def subscriber_number(self, queue: str, id: str) -> int: ...  # noqa: A002 (the word of the domain)
    def bounds_backlog(self, queue: str) -> bool: ...
    def backlog_room(self, queue: str, size_bytes: int) -> "asyncio.Future[None]": ...


class FirstUse:
    """Declares queues and subscribers once. ``defaults``: of a queue."""

    def __init__(self, channels: Channels, view: DeclaredQueues, defaults: QueueSettings) -> None:
        self._defaults = defaults
        self._channels = channels
        self.bounds_backlog = view.bounds_backlog
        self.backlog_room = view.backlog_room
        self._number_of = view.subscriber_number
        self._known: set[str] = set()  # bounded by the number of queues there are
        self._made: set[str] = set()  # bounded as ``_known``

    def known(self, queue: str) -> bool:
        """Whether it was there when somebody last asked."""
        return queue in self._known

    def forget(self, queue: str) -> None:
        """Forget a queue that is not there any more."""
        self._known.discard(queue)
        self._made.discard(queue)

    def made(self, queue: str) -> bool:
        """Whether it was declared here, when somebody first spoke of it: then its consumers count as they always did.
        In one that was there before they only come to take messages (RULES 3)."""
        return queue in self._made

    async def queue(self, name: str) -> QueueName:
        """The queue of this name, declared with default settings where it is not there yet. Raises ``BadName`` and
        ``BrokerFault``."""
        queue = parse_queue_name(name)
        if queue not in self._known:
            with suppress(Conflict):  # it is there, with settings of its own
                declared = await self._channels.queues.put(DeclareQueue(queue, self._defaults))
                if declared.what == "created":
                    self._made.add(queue)
            self._known.add(queue)
        return queue

    async def subscriber(self, queue: QueueName, settings: SubscriberSettings, start: str) -> int:
        """The number of the subscriber that ``settings`` name, declared where it is not there yet, then from ``start``
        on. Raises ``ClientFault`` and ``BrokerFault``."""
        assert settings.name is not None
        name, settings = settings.name, replace(settings, counts=self.made(queue))
        with suppress(Conflict):  # somebody has changed it meanwhile: theirs is what counts
            await self._channels.subscribers.put(Subscribe(queue, settings, start=start, comes_to_take=True))
        return self._number_of(queue, name)


def named(endpoint: str, name: str, **settings: object) -> SubscriberSettings:
    """The settings of a consumed subscriber."""
    return SubscriberSettings(endpoint, name=SubscriberId(name), **settings)  # type: ignore[arg-type]
