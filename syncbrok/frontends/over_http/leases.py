"""Messages lent out to those who pull: groups of consumers by name, and leases that end by an answer or by the clock.

A group is a durable subscriber of its queue; all who pull for it share its messages. A lease outlives the request that
asked for it. Its name carries a tag that only this process can make, so it cannot be guessed; and where there are
tokens it belongs to the one that took it, by name, so that a token may be replaced meanwhile.
"""

import asyncio
import hmac
import re
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from syncbrok.delivery.consumers import Consumers, Member
from syncbrok.delivery.handler import Attempt, Delivery
from syncbrok.frontends.poll_queue import Poll, PollQueue
from syncbrok.model import limits
from syncbrok.model.errors import ClientFault, Conflict, Malformed, Overloaded, UnknownSubscriber
from syncbrok.model.message import PULL_ENDPOINT, SubscriberSettings
from syncbrok.model.names import QueueName, SubscriberId
from syncbrok.space.channels import Channel, Subscribe
from syncbrok.space.queries.view import View

ENDPOINT: Final = PULL_ENDPOINT
_LEASE: Final = re.compile(r"([0-9]{1,20})-([0-9]{1,20})-([0-9]{1,20})(?:-([0-9a-f]{32}))?")
"""subscriber, message, attempt and the tag, which older versions gave no lease"""
_TAG_BYTES: Final = 16
_RETRY_AFTER_S: Final = 1


class LeaseOver(ClientFault):
    """The lease was answered, or its time is over: the message goes to another, or has gone."""

    slug = "lease-over"


class LentMessage(NamedTuple):
    """A message and the name of its lease."""

    lease: str
    delivery: Delivery


class LeaseHolder(NamedTuple):
    """Takes leases and answers them: the name of a token, "" where there are none. ``any``: answers everybody's, as an
    admin does, and whoever asks where there are no tokens (any more)."""

    name: str = ""
    any: bool = False


class _Pull(Poll):
    """A request that waits for messages, each of which is lent to ``holder``."""

    __slots__ = ("holder", "lease_s")

    def __init__(self, most: int, lease_s: float, holder: str) -> None:
        super().__init__(most)
        self.lease_s = lease_s
        self.holder = holder


class PullGroup(PollQueue[_Pull]):
    """The pulls from one queue under one name. ``name_of`` makes the name of a lease; ``shown``: the delivery as a
    consumer is told of it."""

    def __init__(self, name_of: Callable[[Attempt], str], shown: Callable[[Delivery], Delivery]) -> None:
        super().__init__(limits.pull_bytes_max)
        self._name_of = name_of
        self._shown = shown
        self._offering = False

    async def pull(self, most: int, wait_s: float, lease_s: float, holder: str) -> list[LentMessage]:
        """At most ``most`` messages, each lent to ``holder`` for ``lease_s``; none where none comes in ``wait_s``."""
        pull = _Pull(most, lease_s, holder)
        await self.wait(pull, wait_s)
        lent = sorted(pull.deliveries, key=lambda delivery: delivery.message.sequence)
        return [LentMessage(self._name_of(delivery.attempt), self._shown(delivery)) for delivery in lent]

    def handed_out(self, member: Member, poll: _Pull, delivery: Delivery) -> None:
        """See ``PollQueue``."""
        member.lend(delivery.attempt.message, poll.lease_s, poll.holder)

    def answered(self) -> None:
        """Offer the room of a lease that was answered; those answered in one turn of the loop are counted together."""
        if not self._offering:
            self._offering = True
            asyncio.get_running_loop().call_soon(self._offer_once)

    def _offer_once(self) -> None:
        self._offering = False
        self.offer()

    def take_back(self, attempts: Sequence[Attempt]) -> None:
        """Give back messages that no client was told of. A lease that is over is over."""
        if self.member is not None:
            held = {message: lease.delivery.attempt.number for message, lease in self.member.leases.items()}
            for one in attempts:
                if held.get(one.message) == one.number:
                    self.member.give_back(one.message)
            self.offer()

    def written(self, lent: Sequence[LentMessage]) -> None:
        """Note that whoever asked for these was told of them: their content need not be kept for as long as they are
        lent."""
        if self.member is not None:
            self.member.written([one.delivery.attempt.message for one in lent])


class Leases:
    """All groups. ``number_of`` gives a subscriber's number by queue and id."""

    def __init__(self, subscribers: Channel, consumers: Consumers, number_of: Callable[[str, str], int]) -> None:
        self._subscribers = subscribers
        self._consumers = consumers
        self.attempt_guard = consumers.attempt_guard
        self._number_of = number_of
        self._key = secrets.token_bytes(32)
        """of the tags: no other process knows it, and leases end with the process"""
        self._groups: dict[int, PullGroup] = {}  # by the subscriber's number; bounded by those there are

    async def group(self, queue: QueueName, name: SubscriberId, start: str) -> PullGroup:
        """The pulls of a group, which is declared, from ``start`` on, where it is not there. Raises as ``number``."""
        number = await self.number(queue, name, start)
        group = self._groups.get(number)
        if group is None or group.member is None:
            group = self._groups[number] = PullGroup(self._name, self._consumers.named)
            group.join(self._consumers, number)
        return group

    async def number(self, queue: QueueName, name: SubscriberId, start: str) -> int:
        """The number of a group's subscriber; declared, from ``start`` on, where it is not there. Raises
        ``UnknownQueue``, ``BrokerFault``."""
        settings = SubscriberSettings(ENDPOINT, name=name, window=limits.window_max, counts=False)
        with suppress(Conflict):  # somebody has changed its settings: theirs is what counts
            await self._subscribers.put(Subscribe(queue, settings, start=start, comes_to_take=True))
        return self._number_of(queue, name)

    @staticmethod
    def check(view: View, queue: QueueName, name: str) -> None:
        """Raises ``UnknownQueue``, and ``Conflict`` where the name is that of a subscriber of another kind."""
        view.queue(queue)
        with suppress(UnknownSubscriber):
            if view.subscriber(queue, name).settings.endpoint != ENDPOINT:
                what = f"subscriber {name!r} of queue {queue!r} is no group of consumers; name another"
                raise Conflict(what, queue=queue, subscriber=name)

    def check_room(self, group: PullGroup) -> None:
        """See why a group was lent nothing. Raises ``Overloaded`` where that is for want of leases."""
        if group.member is not None and self._consumers.full(group.member.subscriber):
            held = len(group.member.leases)
            raise Overloaded(
                f"no more is lent now: this group holds {held} leases, at most {limits.window_max}, and all groups "
                f"together have {limits.leases_max}; answer some of them first",
                retry_after_s=_RETRY_AFTER_S,
            )

    def acknowledge(self, lease: str, holder: LeaseHolder) -> None:
        """Raises ``LeaseOver``."""
        group, member, message = self._find(lease, holder)
        member.acknowledge((message,))
        group.answered()

    def refuse(self, lease: str, holder: LeaseHolder, words: bytes, retry_after_s: float | None) -> None:
        """End the attempt as failed; the next is as the schedule says, not before ``retry_after_s``. Raises
        ``LeaseOver``."""
        group, member, message = self._find(lease, holder)
        member.refuse(message, words, retry_after_s)
        group.answered()

    def extend(self, lease: str, holder: LeaseHolder, lease_s: float) -> None:
        """Let a lease last so long from now on. Raises ``LeaseOver``."""
        _, member, message = self._find(lease, holder)
        member.extend(message, lease_s)

    def _find(self, lease: str, holder: LeaseHolder) -> tuple[PullGroup, Member, int]:
        """The group, member and message (sequence) of a lease. Raises ``LeaseOver``, also for one that is another's."""
        name = parse_lease(lease)
        if hmac.compare_digest(self._tag(name.subscriber, name.message, name.attempt), name.tag):
            group = self._groups.get(name.subscriber)
            if group is not None and group.member is not None:
                held = group.member.leases.get(name.message)
                is_it = held is not None and held.delivery.attempt.number == name.attempt
                if held is not None and is_it and (holder.any or held.holder == holder.name):
                    return group, group.member, name.message
            raise LeaseOver("this lease is over: it was answered, or its time has run out", lease=lease[:80])
        what = "this lease is over: the broker that lent it has ended or leads no more; its message goes out again"
        raise LeaseOver(what, lease=lease[:80])

    def _name(self, attempt: Attempt) -> str:
        subscriber, message, number = attempt.subscriber, attempt.message, attempt.number
        return f"{subscriber}-{message}-{number}-{self._tag(subscriber, message, number)}"

    def _tag(self, subscriber: int, message: int, attempt: int) -> str:
        tag = hmac.digest(self._key, f"{subscriber}-{message}-{attempt}".encode(), "sha256")
        return tag[:_TAG_BYTES].hex()


class LeaseName(NamedTuple):
    """The parts of a lease's name; ``tag`` is "" in one of an older version."""

    subscriber: int
    message: int
    attempt: int
    tag: str


def parse_lease(lease: str) -> LeaseName:
    """Raises ``Malformed``."""
    parts = _LEASE.fullmatch(lease)
    if parts is None:
        raise Malformed("a lease is named as the pull named it", lease=lease[:80])
    return LeaseName(int(parts[1]), int(parts[2]), int(parts[3]), parts[4] or "")
