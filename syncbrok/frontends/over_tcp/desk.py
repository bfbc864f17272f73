"""The shared read position of a queue: whoever asks gets the next message, and each message goes to one of them.

The position is a durable subscriber, so it survives a restart. What is handed out to one who asks is acknowledged when
it has been written to the connection; one who has gone meanwhile gives it back. While they ask quickly the desk has the
next messages in its hand, and whoever asks need not wait for them.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

from syncbrok.delivery.consumers import Consumers, Member
from syncbrok.delivery.handler import Delivery
from syncbrok.frontends.over_tcp.first_use import FirstUse
from syncbrok.frontends.over_tcp.hand import IN_HAND_S, Hand
from syncbrok.model.message import SubscriberSettings
from syncbrok.model.names import QueueName

_EMPTY_AFTER_S: Final = 0.02
"""who asks is told that there is nothing when nothing has come for so long: a read from the disk takes less"""
_FIRST_EMPTY_AFTER_S: Final = 0.5
"""the first one after the subscriber was joined waits longer: what was there before is looked up in the log"""

Poll = asyncio.Future[Delivery]


class Desk:
    """Of one queue; made by ``Desks``."""

    def __init__(self) -> None:
        self._member: Member | None = None
        self._polls: deque[Poll] = deque()  # bounded by the connections: each asks for one at a time
        self._hand: Hand[None] = Hand()
        self._fresh = True

    def join(self, consumers: Consumers, subscriber: int) -> None:
        self._member = consumers.join(subscriber, self, 0, IN_HAND_S)

    @property
    def open(self) -> bool:
        return self._member is not None

    def take(self) -> Delivery | None:
        """The next message, where it is in hand. To be acknowledged or given back, as one of ``next``."""
        taken = self._hand.take() if self._member is not None else None
        if taken is None or self._member is None:
            return None
        self._member.begin(taken[1].attempt.message)
        return taken[1]

    async def next(self) -> Delivery | None:
        """The next message; None where there is none now. To be acknowledged or given back."""
        delivery = self.take()
        if delivery is not None:
            return delivery
        poll: Poll = asyncio.get_running_loop().create_future()
        self._polls.append(poll)
        self._ask()
        try:
            async with asyncio.timeout(_FIRST_EMPTY_AFTER_S if self._fresh else _EMPTY_AFTER_S):
                return await poll
        except TimeoutError:
            if poll.done() and not poll.cancelled():
                return poll.result()  # it came in the very moment the time was over
            self._hand.close()
            return None
        except asyncio.CancelledError:
            if poll.done() and not poll.cancelled():
                self.give_back(poll.result())
            raise
        finally:
            self._fresh = False
            if poll in self._polls:
                self._polls.remove(poll)
            self._ask()

    def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """They have been written to who asked for them."""
        if self._member is not None:
            messages = [delivery.attempt.message for delivery in deliveries]
            plenty = self._hand.plenty
            self._member.acknowledge(messages, in_company=plenty)
            if not plenty:
                self._hand.runs_low(max([len(delivery.message.content) for delivery in deliveries], default=0))
                self._ask()

    def give_back(self, delivery: Delivery) -> None:
        """Who asked for it has gone: it is for the next."""
        if self._member is not None:
            self._member.give_back(delivery.attempt.message)
            self._ask()

    def _ask(self) -> None:
        """For as many as are asked for, those that are being written, and those that there is room for in the hand."""
        if self._member is not None:
            written = len(self._member.leases) - len(self._hand)
            self._member.open(len(self._polls) + written + self._hand.room)

    # -- Consumer -----------------------------------------------------------------------------------------------------

    def receive(self, deliveries: Sequence[Delivery]) -> None:
        """See ``Consumer``."""
        assert self._member is not None
        for delivery in deliveries:
            while self._polls and self._polls[0].done():
                self._polls.popleft()
            if self._polls:
                self._member.begin(delivery.attempt.message)
                self._polls.popleft().set_result(delivery)
            else:
                self._hand.put(None, (delivery,))

    def lapsed(self, messages: Sequence[int]) -> None:
        """See ``Consumer``. Messages in hand, which no connection has asked for yet, go out again later. For one that
        a connection was given, that connection handles the lapse."""
        self._hand.stayed(messages)
        self._ask()

    def dismissed(self) -> None:
        """See ``Consumer``: the next who asks declares the subscriber anew."""
        self._member = None
        self._hand = Hand()
        self._fresh = True


class Desks:
    """One for each queue that somebody has asked for messages of; ``settings`` are those of their subscribers."""

    def __init__(self, queues: FirstUse, consumers: Consumers, settings: SubscriberSettings) -> None:
        self._queues = queues
        self._consumers = consumers
        self._settings = settings
        self._desks: dict[QueueName, Desk] = {}  # bounded by the number of queues

    def opened(self, queue: str) -> Desk | None:
        """The queue's, where it has one already."""
        desk = self._desks.get(QueueName(queue))
        return desk if desk is not None and desk.open else None

    async def of(self, queue: str) -> Desk:
        """Raises ``ClientFault`` and ``BrokerFault``."""
        opened = self.opened(queue)
        if opened is not None:
            return opened
        name = await self._queues.queue(queue)
        number = await self._queues.subscriber(name, self._settings, "beginning")
        desk = self._desks.setdefault(name, Desk())
        if not desk.open:  # nobody else was quicker
            desk.join(self._consumers, number)
        return desk
