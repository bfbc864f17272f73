"""Polls that wait for messages of one subscriber: which poll gets the next message, and for how many there is room.

Each message goes to the poll that has waited longest. The scheduler is offered room for the messages handed out and not
answered yet, for those the polls still want, and for those a derived class keeps besides; so a poll that ends takes its
room along. A message for a poll that has gone is given back: no attempt was made, and the next poll gets it.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Generic, TypeVar

from syncbrok.delivery.consumers import Consumers, Member
from syncbrok.delivery.handler import Delivery
from syncbrok.model import limits

_TOGETHER_S: Final = 0.004
"""a poll waits at least so long, and what comes within this after another is answered with it"""
_TYPICAL_BYTES: Final = 16 * limits.KIB
"""of a content, as long as none has come"""


class Poll:
    """One who asks, for at most ``most`` messages; those that came for it, in the order handed out."""

    __slots__ = ("content_bytes", "deliveries", "most", "some")

    def __init__(self, most: int) -> None:
        self.most = most
        self.deliveries: list[Delivery] = []
        self.content_bytes = 0
        self.some: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """done when the first has come or none will; cancelled when nobody waits for it any more"""

    @property
    def missing(self) -> int:
        """The number of further messages that it asks for."""
        return self.most - len(self.deliveries)


P = TypeVar("P", bound=Poll)


class PollQueue(Generic[P]):
    """The polls of one subscriber, as its ``Consumer``. ``answer_bytes_max``: what all that comes for one poll may have
    of content, up to the message that exceeds it; twice as much is asked for at once. None: each may be as large as it
    is."""

    def __init__(self, answer_bytes_max: int | None) -> None:
        self._answer_bytes_max = answer_bytes_max
        self._typical_bytes = _TYPICAL_BYTES
        """of a content: that of those that came last; no more is asked for than the answers may hold"""
        self.member: Member | None = None
        self._polls: deque[P] = deque()  # each wants at least one; bounded by the connections
        self._missing = 0
        """of them all"""

    def join(self, consumers: Consumers, subscriber: int, prefetch_hold_s: float = 0.0) -> None:
        """Take the messages of the subscriber (number), as they are asked for; see ``Consumers.join``."""
        self.member = consumers.join(subscriber, self, 0, prefetch_hold_s)

    # -- what whoever derives from it says ----------------------------------------------------------------------------

    def handed_out(self, member: Member, poll: P, delivery: Delivery) -> None:
        """Note that ``delivery`` is for ``poll`` from now on."""
        raise NotImplementedError

    def not_asked_for(self, deliveries: Sequence[Delivery]) -> None:
        """Take deliveries that no poll wants: give them back, unless a derived class keeps them."""
        self.give_back(deliveries)

    @property
    def room_besides(self) -> int:
        """Room for messages beyond those handed out and those that polls want."""
        return 0

    # -- polls --------------------------------------------------------------------------------------------------------

    async def wait(self, poll: P, wait_s: float) -> None:
        """Wait until messages have come, until ``wait_s`` is over, or until none can come. If the waiter is cancelled
        its messages are given back."""
        self._polls.append(poll)
        self._missing += poll.missing
        self.offer()
        try:
            async with asyncio.timeout(max(wait_s, _TOGETHER_S)):
                await poll.some
            await self._gather(poll)
        except TimeoutError:
            pass  # what came in the very moment the time was over is there all the same
        except asyncio.CancelledError:
            self.give_back(poll.deliveries)
            raise
        finally:
            self._remove(poll)
            self.offer()

    async def _gather(self, poll: P) -> None:
        """Wait on while more comes: a backlog comes in several pieces."""
        before = 0
        while self._wanted(poll) and len(poll.deliveries) > before:
            before = len(poll.deliveries)
            await asyncio.sleep(_TOGETHER_S)

    def _remove(self, poll: P) -> None:
        with suppress(ValueError):
            self._polls.remove(poll)
            self._missing -= poll.missing

    def _first(self) -> P | None:
        """The poll that gets the next message. A poll whose wait has just ended (its client has gone, or its time is
        over) is passed over."""
        while self._polls:
            if not self._polls[0].some.cancelled():
                return self._polls[0]
            self._missing -= self._polls.popleft().missing
        return None

    def _wanted(self, poll: P) -> int:
        """The number of further messages that fit into its answer, if each is as large as the last ones."""
        if self._answer_bytes_max is None:
            return poll.missing
        left_bytes = self._answer_bytes_max - poll.content_bytes
        return 0 if left_bytes <= 0 else min(poll.missing, max(1, left_bytes // self._typical_bytes))

    def _wanted_by_all(self) -> int:
        if self._answer_bytes_max is None:
            return self._missing
        at_once = max(1, 2 * self._answer_bytes_max // self._typical_bytes)
        return min(at_once, sum([self._wanted(poll) for poll in self._polls]))

    def offer(self) -> None:
        """Tell the scheduler how much room there is; to be called when ``room_besides`` or the leases have changed."""
        member = self.member
        if member is not None:
            room = len(member.leases) + self.room_besides + self._wanted_by_all()
            window = min(room, limits.window_max)
            if window != member.window:
                member.open(window)

    def give_back(self, deliveries: Sequence[Delivery]) -> None:
        """Give back deliveries that no client was told of: the next poll gets them."""
        if self.member is not None:
            for delivery in deliveries:
                self.member.give_back(delivery.attempt.message)
            self.offer()

    # -- Consumer -----------------------------------------------------------------------------------------------------

    def receive(self, deliveries: Sequence[Delivery]) -> None:
        """See ``Consumer``."""
        assert self.member is not None
        if self._answer_bytes_max is not None:
            self._typical_bytes = max(1, sum([len(one.message.content) for one in deliveries]) // len(deliveries))
        for place, delivery in enumerate(deliveries):
            poll = self._first()
            if poll is None:
                self.not_asked_for(deliveries[place:])
                break
            poll.deliveries.append(delivery)
            poll.content_bytes += len(delivery.message.content)
            self._missing -= 1
            if not self._wanted(poll):
                self._missing -= self._polls.popleft().missing
            self.handed_out(self.member, poll, delivery)
            if not poll.some.done():
                poll.some.set_result(None)
        self.offer()

    def lapsed(self, messages: Sequence[int]) -> None:  # noqa: ARG002
        """See ``Consumer``. A client learns of it when it answers such a message."""
        self.offer()

    def dismissed(self) -> None:
        """See ``Consumer``: those who wait are told that nothing comes."""
        self.member = None
        for poll in self._polls:
            if not poll.some.done():
                poll.some.set_result(None)
        self._polls.clear()
        self._missing = 0
