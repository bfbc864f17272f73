"""The handler of subscribers that come for their messages: connections of consumers, and leases of those who pull.

A subscriber has members: whoever consumes for it now, each with a window of its own. What a member has room for is
offered to the scheduler, which hands out no more; so nothing waits here, and a message that nobody has room for stays
where it is. A member acknowledges, refuses, or lets the time run out; when it leaves, what it was given fails, and what
it was never told of is given back.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from syncbrok.delivery.handler import Answer, Delivery, Done
from syncbrok.model.facts import Reason
from syncbrok.model.message import Subscriber

TICK_S: Final = 0.05
"""one coarse timer for all deadlines: a lease that is over is noticed at most this much late"""


class Consumer(Protocol):
    """Who takes messages. All of it is called on the event loop."""

    def receive(self, deliveries: Sequence[Delivery]) -> None:
        """Never more than the member's window leaves room for."""

    def lapsed(self, messages: Sequence[int]) -> None:
        """These (sequences) were not answered in time: they have failed, and no answer is heard any more."""

    def dismissed(self) -> None:
        """The subscriber was deleted, or the broker ends: nothing more will come, and no answer is heard."""


class Lease(NamedTuple):
    """A delivery that a member has not answered yet. ``deadline_s`` is of the monotonic clock."""

    delivery: Delivery
    done: Done
    started_s: float
    deadline_s: float


class Member:
    """One that consumes for a subscriber. Made by ``Consumers.join``."""

    __slots__ = ("_consumers", "consumer", "leases", "subscriber", "window")

    def __init__(self, consumers: "Consumers", subscriber: int, consumer: Consumer, window: int) -> None:
        self._consumers = consumers
        self.subscriber = subscriber
        self.consumer = consumer
        self.window = window
        self.leases: dict[int, Lease] = {}  # by the message's sequence; bounded by the window

    @property
    def room(self) -> int:
        return self.window - len(self.leases)

    def open(self, window: int) -> None:
        """It has room for so many from now on, those it has included."""
        self.window = window
        self._consumers.offer(self.subscriber)

    def acknowledge(self, messages: Iterable[int]) -> int:
        """These (sequences) are done; how many of them it had."""
        return sum([self._answer(message, Reason.NONE) for message in messages])

    def refuse(self, message: int, words: bytes = b"", retry_after_s: float | None = None) -> bool:
        """A failed attempt; the subscriber's schedule says when the next is. Whether it had the message."""
        return self._answer(message, Reason.NACK, words, retry_after_s)

    def give_back(self, message: int) -> bool:
        """It was never told of the message: no attempt was made. Whether it had it."""
        lease = self.leases.pop(message, None)
        if lease is not None:
            self._consumers.answer(lease, None)
        return lease is not None

    def extend(self, message: int, lease_s: float) -> bool:
        """It has so long from now on. Whether it had the message."""
        lease = self.leases.get(message)
        if lease is not None:
            self.leases[message] = lease._replace(deadline_s=time.monotonic() + lease_s)
        return lease is not None

    def leave(self, words: bytes = b"the consumer went away") -> None:
        """It takes nothing more; what it has not answered has failed."""
        for message in list(self.leases):
            self._answer(message, Reason.CONNECT, words)
        self._consumers.left(self)

    def _answer(self, message: int, reason: Reason, words: bytes = b"", retry_after_s: float | None = None) -> bool:
        lease = self.leases.pop(message, None)
        if lease is None:
            return False
        latency_us = int((time.monotonic() - lease.started_s) * 1e6)
        self._consumers.answer(lease, Answer(reason, 0, retry_after_s, latency_us, words))
        return True

    def expire(self, now_s: float) -> None:
        """What has not been answered in time has failed."""
        late = [message for message, lease in self.leases.items() if lease.deadline_s <= now_s]
        for message in late:
            self._answer(message, Reason.TIMEOUT, b"no answer in time")
        if late:
            self.consumer.lapsed(late)


class Consumers:
    """The ``Handler`` of endpoints ``consumer:NAME``. ``offer_room`` tells the scheduler, for a subscriber (number),
    how many deliveries its members have room for, those they have included."""

    def __init__(self, offer_room: Callable[[int, int], None]) -> None:
        self._offer_room = offer_room
        self._members: dict[int, list[Member]] = {}
        self._answers: list[tuple[Lease, Answer | None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._ended = False

    def join(self, subscriber: int, consumer: Consumer, window: int) -> Member:
        """``consumer`` takes messages of the subscriber (number), at most ``window`` at once."""
        member = Member(self, subscriber, consumer, window)
        if self._ended:
            consumer.dismissed()
            return member
        self._members.setdefault(subscriber, []).append(member)
        self.offer(subscriber)
        return member

    # -- what the scheduler hands out ---------------------------------------------------------------------------------

    def deliver(self, subscriber: Subscriber, deliveries: Sequence[Delivery], done: Done) -> None:
        """See ``Handler``. To the member that has waited longest first; what nobody has room for any more is given
        back."""
        members = self._members.get(subscriber.number, [])
        now_s = time.monotonic()
        at = 0
        for _ in range(len(members)):
            if at == len(deliveries):
                break
            member = members.pop(0)
            members.append(member)
            some = deliveries[at : at + max(0, member.room)]
            at += len(some)
            if some:
                for one in some:
                    member.leases[one.attempt.message] = Lease(one, done, now_s, now_s + one.timeout_s)
                member.consumer.receive(some)
        for one in deliveries[at:]:
            self.answer(Lease(one, done, now_s, now_s), None)
        if self._timer is None and at:
            self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def make_ready(self, subscriber: Subscriber, delivery: Delivery) -> None:
        """See ``Handler``: there is nothing to make."""

    def answer(self, lease: Lease, answer: Answer | None) -> None:
        """Told at the end of the turn, all of it together, and never from inside ``deliver``."""
        if not self._answers:
            asyncio.get_running_loop().call_soon(self._tell)
        self._answers.append((lease, answer))

    def _tell(self) -> None:
        answers, self._answers = self._answers, []
        for lease, answer in answers:
            lease.done(lease.delivery, answer)

    def offer(self, subscriber: int) -> None:
        """What the members of a subscriber have room for has changed."""
        members = self._members.get(subscriber, ())
        self._offer_room(subscriber, sum([max(member.window, len(member.leases)) for member in members]))

    def left(self, member: Member) -> None:
        members = self._members.get(member.subscriber, [])
        if member in members:
            members.remove(member)
            self.offer(member.subscriber)
            if not members:
                del self._members[member.subscriber]

    def _tick(self) -> None:
        now_s = time.monotonic()
        for members in list(self._members.values()):
            for member in list(members):
                member.expire(now_s)
        busy = any(member.leases for members in self._members.values() for member in members)
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick) if busy else None

    # -- its end ------------------------------------------------------------------------------------------------------

    def forget(self, subscriber: int) -> None:
        """See ``Handler``."""
        for member in list(self._members.get(subscriber, ())):
            member.leave(b"the subscriber was deleted")
            member.consumer.dismissed()

    async def close(self) -> None:
        """See ``Handler``."""
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for subscriber in list(self._members):
            self.forget(subscriber)
        self._tell()
