"""The shared read position of a queue: whoever asks gets the next message, and each message goes to one of them.

The position is a durable subscriber, so it survives a restart. What is handed out to one who asks is acknowledged when
it has been written to the connection; one who has gone meanwhile gives it back. While they ask quickly the desk has the
next messages in its hand, and whoever asks need not wait for them.
"""

from collections.abc import Sequence
from typing import Final

from syncbrok.delivery.consumers import Consumers, Member
from syncbrok.delivery.handler import Delivery
from syncbrok.frontends.over_tcp.first_use import FirstUse
from syncbrok.frontends.over_tcp.hand import IN_HAND_S, Hand
from syncbrok.frontends.poll_queue import Poll, PollQueue
from syncbrok.model.message import SubscriberSettings
from syncbrok.model.names import QueueName

_EMPTY_AFTER_S: Final = 0.02
"""who asks is told that there is nothing when nothing has come for so long: a read from the disk takes less"""
_FIRST_EMPTY_AFTER_S: Final = 0.5
"""the first one after the subscriber was joined waits longer: what was there before is looked up in the log"""


class Desk(PollQueue[Poll]):
    """Of one queue; made by ``Desks``. Each poll asks for one message."""

    def __init__(self) -> None:
        super().__init__(None)
        self._hand: Hand[None] = Hand()
        self._fresh = True

    @property
    def open(self) -> bool:
        return self.member is not None

    def take(self) -> Delivery | None:
        """The next message, where it is in hand. To be acknowledged or given back, as one of ``next``."""
        taken = self._hand.take() if self.member is not None else None
        if taken is None or self.member is None:
            return None
        self.member.begin(taken[1].attempt.message)
        return taken[1]

    async def next(self) -> Delivery | None:
        """The next message; None where there is none now. To be acknowledged or given back."""
        delivery = self.take()
        if delivery is not None:
            return delivery
        poll = Poll(1)
        try:
            await self.wait(poll, _FIRST_EMPTY_AFTER_S if self._fresh else _EMPTY_AFTER_S)
        finally:
            self._fresh = False
        if poll.deliveries:
            return poll.deliveries[0]
        self._hand.close()
        self.offer()
        return None

    def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """They have been written to who asked for them."""
        if self.member is not None:
            messages = [delivery.attempt.message for delivery in deliveries]
            plenty = self._hand.plenty
            self.member.acknowledge(messages, in_company=plenty)
            if not plenty:
                self._hand.runs_low(max([len(delivery.message.content) for delivery in deliveries], default=0))
                self.offer()

    def handed_out(self, member: Member, poll: Poll, delivery: Delivery) -> None:  # noqa: ARG002
        """See ``PollQueue``."""
        member.begin(delivery.attempt.message)

    def not_asked_for(self, deliveries: Sequence[Delivery]) -> None:
        """See ``PollQueue``: for whoever asks next."""
        self._hand.put(None, deliveries)

    @property
    def room_besides(self) -> int:
        """See ``PollQueue``: what is in hand was not handed out to anybody, and the hand has room of its own."""
        return self._hand.room - len(self._hand)

    def lapsed(self, messages: Sequence[int]) -> None:
        """See ``Consumer``. Messages in hand, which no connection has asked for yet, go out again later. For one that
        a connection was given, that connection handles the lapse."""
        self._hand.stayed(messages)
        super().lapsed(messages)

    def dismissed(self) -> None:
        """See ``Consumer``: the next who asks declares the subscriber anew."""
        super().dismissed()
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
            desk.join(self._consumers, number, IN_HAND_S)
        return desk
