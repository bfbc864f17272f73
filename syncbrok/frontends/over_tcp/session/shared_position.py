"""The shared read position of a queue: whoever asks gets the next message, and each message goes to one of them.

The position is a durable subscriber, so it survives a restart. What is handed out to one who asks is acknowledged when
it has been written to the connection; one who has gone meanwhile gives it back. While they ask quickly the next
messages are prefetched, and whoever asks need not wait for them.
"""

from collections.abc import Sequence
from typing import Final

from syncbrok.delivery.consumers import Consumers, Member
from syncbrok.delivery.handler import Delivery
from syncbrok.frontends.over_tcp.session.first_use import FirstUse
from syncbrok.frontends.over_tcp.session.prefetch_buffer import PREFETCH_HOLD_S, PrefetchBuffer
from syncbrok.frontends.poll_queue import Poll, PollQueue
from syncbrok.model.message import SubscriberSettings
from syncbrok.model.names import QueueName

_EMPTY_AFTER_S: Final = 0.02
"""who asks is told that there is nothing when nothing has come for so long: a read from the disk takes less"""
_FIRST_EMPTY_AFTER_S: Final = 0.5
"""the first one after the subscriber was joined waits longer: what was there before is looked up in the log"""


class SharedPosition(PollQueue[Poll]):
    """The shared position of one queue; made by ``SharedPositions``. Each poll asks for one message."""

    def __init__(self) -> None:
        super().__init__(None)
        self._prefetched: PrefetchBuffer[None] = PrefetchBuffer()
        self._fresh = True

    @property
    def open(self) -> bool:
        return self.member is not None

    def take(self) -> Delivery | None:
        """The next message, where it is prefetched. To be acknowledged or given back, as one of ``next``."""
        taken = self._prefetched.take() if self.member is not None else None
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
        self._prefetched.close()
        self.offer()
        return None

    def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge messages that have been written to who asked for them."""
        if self.member is not None:
            messages = [delivery.attempt.message for delivery in deliveries]
            plenty = self._prefetched.plenty
            self.member.acknowledge(messages, in_company=plenty)
            if not plenty:
                self._prefetched.runs_low(max([len(delivery.message.content) for delivery in deliveries], default=0))
                self.offer()

    def handed_out(self, member: Member, poll: Poll, delivery: Delivery) -> None:  # noqa: ARG002
        """See ``PollQueue``."""
        member.begin(delivery.attempt.message)

    def not_asked_for(self, deliveries: Sequence[Delivery]) -> None:
        """See ``PollQueue``: for whoever asks next."""
        self._prefetched.put(None, deliveries)

    @property
    def room_besides(self) -> int:
        """See ``PollQueue``: what is in hand was not handed out to anybody, and the hand has room of its own."""
        return self._prefetched.room - len(self._prefetched)

    def lapsed(self, messages: Sequence[int]) -> None:
        """See ``Consumer``. Messages in hand, which no connection has asked for yet, go out again later. For one that
        a connection was given, that connection handles the lapse."""
        self._prefetched.stayed(messages)
        super().lapsed(messages)

    def dismissed(self) -> None:
        """See ``Consumer``: the next who asks declares the subscriber anew."""
        super().dismissed()
        self._prefetched = PrefetchBuffer()
        self._fresh = True


class SharedPositions:
    """One for each queue that somebody has asked for messages of; ``settings`` are those of their subscribers."""

    def __init__(self, queues: FirstUse, consumers: Consumers, settings: SubscriberSettings) -> None:
        self._queues = queues
        self._consumers = consumers
        self.attempt_guard = consumers.attempt_guard
        self._settings = settings
        self._positions: dict[QueueName, SharedPosition] = {}  # bounded by the number of queues

    def opened(self, queue: str) -> SharedPosition | None:
        """The shared position of a queue; None where it has none yet."""
        position = self._positions.get(QueueName(queue))
        return position if position is not None and position.open else None

    async def of(self, queue: str) -> SharedPosition:
        """Raises ``ClientFault`` and ``BrokerFault``."""
        opened = self.opened(queue)
        if opened is not None:
            return opened
        name = await self._queues.queue(queue)
        number = await self._queues.subscriber(name, self._settings, "beginning")
        position = self._positions.setdefault(name, SharedPosition())
        if not position.open:  # nobody else was quicker
            position.join(self._consumers, number, PREFETCH_HOLD_S)
        return position
