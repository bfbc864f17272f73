"""The handler of subscribers that come for their messages: connections of consumers, and leases of pulls.

A subscriber has members: those that consume for it now, each with a window of its own. The scheduler is offered what
the members have room for and hands out no more. So nothing waits here; a message without room at any member stays in
the queue. A member acknowledges, refuses, or lets the time run out. When it leaves, messages it was told of fail, and
all others are given back.

A member that tells its peer of one message at a time may hold the next ones in hand before the peer is ready for them.
Then one turn of the dispatcher hands out many, and nothing but the peer's answer lies between two messages. A message
in hand is no attempt yet: ``begin`` makes it one, and a message that has not begun in a moment is given back.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, Protocol

from syncbrok.delivery.attempt_guard import AttemptGuard
from syncbrok.delivery.handler import Attempt, AttemptResult, Delivery, Done
from syncbrok.delivery.trace_context import TraceContexts
from syncbrok.model import limits
from syncbrok.model.budget import Budget
from syncbrok.model.facts import Reason

TICK_S: Final = 0.05
"""one coarse timer for all deadlines: a lease that is over is noticed at most this much late"""
TOGETHER_S: Final = 0.004
"""longest delay of an acknowledgement, so that several are settled together; used only while the consumer has further
messages and nothing waits for the row, which is committed lazily anyway (RULES 24)"""
TOGETHER_MAX: Final = 256
_NOT_BEGUN: Final = 0.0
_SUBSCRIBER: Final[Callable[[Delivery], int]] = attrgetter("attempt.subscriber")


class Consumer(Protocol):
    """Takes messages for a member. All methods are called on the event loop."""

    def receive(self, deliveries: Sequence[Delivery]) -> None:
        """Never more than the member's window leaves room for."""

    def lapsed(self, messages: Sequence[int]) -> None:
        """Hear that these messages (sequences) were taken back. Those that had begun were not answered in time: they
        have failed, and a later answer is ignored. Those in hand that had not begun have not failed; they go out again,
        unless they have ended."""

    def dismissed(self) -> None:
        """The subscriber was deleted, or the broker ends: nothing more will come, and no answer is heard."""


class Lease:
    """A delivery that a member has not answered yet. Both times are of the monotonic clock; ``started_s`` is 0 while
    the message is only in hand. ``holder``: the client that may answer it, where the member serves several."""

    __slots__ = ("deadline_s", "delivery", "done", "holder", "started_s")

    def __init__(self, delivery: Delivery, done: Done, started_s: float, deadline_s: float) -> None:
        self.delivery = delivery
        self.done = done
        self.started_s = started_s
        self.deadline_s = deadline_s
        self.holder = ""


class Member:
    """A consumer of a subscriber. Made by ``Consumers.join``."""

    __slots__ = ("_consumers", "consumer", "leases", "payer", "prefetch_hold_s", "subscriber", "window")

    def __init__(
        self,
        consumers: "Consumers",
        subscriber: int,
        consumer: Consumer,
        window: int,
        prefetch_hold_s: float,
        payer: Hashable | None,
    ) -> None:
        self._consumers = consumers
        self.subscriber = subscriber
        self.consumer = consumer
        self.window = window
        self.prefetch_hold_s = prefetch_hold_s
        """how long what it is given may wait for ``begin``; 0: an attempt begins as it is handed over"""
        self.payer = payer
        self.leases: dict[int, Lease] = {}  # by the message's sequence; bounded by the window

    @property
    def room(self) -> int:
        return self.window - len(self.leases)

    def open(self, window: int) -> None:
        """Set the member's room to ``window`` messages, including those it has."""
        self.window = window
        self._consumers.offer(self.subscriber)

    def begin(self, message: int) -> None:
        """The peer is told of a message that was in hand: this is the attempt, and its time runs from here on."""
        lease = self.leases[message]
        (sequence, number, count, after, handed_over_us, replay, confirmed), content, to = lease.delivery
        now_s = time.monotonic()
        begun_us = handed_over_us + int((now_s - lease.deadline_s + self.prefetch_hold_s) * 1e6)
        new = tuple.__new__  # past the Python-level __new__ of a NamedTuple, which takes three times as long
        attempt = new(Attempt, (sequence, number, count, after, begun_us, replay, confirmed))
        lease.delivery = new(Delivery, (attempt, content, to))
        lease.started_s, lease.deadline_s = now_s, now_s + to.timeout_s

    def acknowledge(self, messages: Iterable[int], *, in_company: bool = False) -> int:
        """Acknowledge these messages (sequences); returns how many of them the member had. ``in_company``: the member
        has more to do before it needs further messages, so the acknowledgement may wait a moment to be settled with
        others, unless somebody waits for it."""
        count = 0
        now_s = time.monotonic()
        for message in messages:
            lease = self._take_off(message)
            if lease is not None:
                count += 1
                latency_us = int((now_s - lease.started_s) * 1e6)
                answer = tuple.__new__(AttemptResult, (Reason.NONE, 0, None, latency_us, b"", 0, 1))  # as in ``begin``
                self._consumers.answer(lease, answer, in_company=in_company)
        return count

    def refuse(self, message: int, words: bytes = b"", retry_after_s: float | None = None) -> bool:
        """Record a failed attempt; the subscriber's schedule sets the next one. False if the member did not have the
        message."""
        return self._answer(message, Reason.NACK, words[: limits.response_bytes_kept], retry_after_s)

    def give_back(self, message: int) -> bool:
        """Give back a message that the peer was never told of: no attempt was made. False if the member did not have
        it."""
        lease = self._take_off(message)
        if lease is not None:
            self._consumers.answer(lease, None)
        return lease is not None

    def written(self, messages: Iterable[int]) -> None:
        """Note that these messages have been written to the peer: their content is dropped from memory, however long
        their leases last."""
        for message in messages:
            lease = self.leases.get(message)
            if lease is not None and lease.delivery.message.content:
                self._consumers.let_go(lease.delivery)
                attempt, content, to = lease.delivery
                lease.delivery = Delivery(attempt, content._replace(content=b""), to)

    def extend(self, message: int, lease_s: float) -> bool:
        """Let the lease end ``lease_s`` from now. False if the member did not have the message."""
        lease = self.leases.get(message)
        if lease is not None:
            lease.deadline_s = time.monotonic() + lease_s
        return lease is not None

    def lend(self, message: int, lease_s: float, holder: str) -> None:
        """A message that it was just given is for ``holder``, for so long."""
        self.leases[message].holder = holder
        self.extend(message, lease_s)

    def leave(self, words: bytes = b"the consumer went away") -> None:
        """End the membership: the member gets nothing more, and messages it has not answered have failed."""
        for message in list(self.leases):
            self._end(message, Reason.CONNECT, words)
        self._consumers.left(self)

    def _end(self, message: int, reason: Reason, words: bytes) -> None:
        """End a delivery that will get no answer. One that was only in hand has not failed by that."""
        if self.leases[message].started_s == _NOT_BEGUN:
            self.give_back(message)
        else:
            self._answer(message, reason, words)

    def _take_off(self, message: int) -> Lease | None:
        """Its lease, which it has no more."""
        lease = self.leases.pop(message, None)
        if lease is not None:
            self._consumers.budget.used -= 1
            if len(self.leases) >= self.window:  # it was one more than it wants
                self._consumers.offer(self.subscriber)
        return lease

    def _answer(self, message: int, reason: Reason, words: bytes, retry_after_s: float | None = None) -> bool:
        lease = self._take_off(message)
        if lease is None:
            return False
        latency_us = int((time.monotonic() - lease.started_s) * 1e6)
        self._consumers.answer(lease, AttemptResult(reason, 0, retry_after_s, latency_us, words))
        return True

    def withdraw(self, messages: Collection[int]) -> None:
        """Take back those of these messages that the peer has not been told of."""
        in_hand = [one for one in sorted(messages) if one in self.leases and self.leases[one].started_s == _NOT_BEGUN]
        for message in in_hand:
            self.give_back(message)
        if in_hand:
            self.consumer.lapsed(in_hand)

    def expire(self, now_s: float) -> None:
        """Fail what was not answered in time. If one message has been in hand for too long, all in hand are taken back:
        later ones would otherwise be sent before it."""
        late = [message for message, lease in self.leases.items() if lease.deadline_s <= now_s]
        if any(self.leases[message].started_s == _NOT_BEGUN for message in late):
            late = [m for m, lease in self.leases.items() if lease.deadline_s <= now_s or lease.started_s == _NOT_BEGUN]
        for message in late:
            self._end(message, Reason.TIMEOUT, b"no answer in time")
        if late:
            self.consumer.lapsed(late)


class Consumers:
    """The ``Handler`` of endpoints ``consumer:NAME``.

    ``offer_room`` tells the scheduler how many deliveries the members of a subscriber (number) have room for, including
    those they have. ``awaited`` asks it whether somebody waits for the end of a message. ``budget``: that of leases;
    the scheduler hands out by it, they are counted here. ``let_go`` is told of deliveries whose content is dropped from
    memory. ``traces``: by which attempts name their spans, where the broker makes traces. ``charge`` is told who pays
    for the content of a subscriber; None: the subscriber itself.
    """

    def __init__(
        self,
        offer_room: Callable[[int, int], None],
        awaited: Callable[[int], bool],
        budget: Budget,
        let_go: Callable[[Delivery], None],
        attempt_guard: AttemptGuard | None = None,
        traces: TraceContexts | None = None,
        charge: Callable[[int, Hashable | None], None] = lambda *_: None,
    ) -> None:
        self._traces = traces
        self._charge = charge
        self.attempt_guard = attempt_guard or AttemptGuard()
        """who writes to a consumer asks it again, before the first byte"""
        self._offer_room = offer_room
        self._awaited = awaited
        self.budget = budget
        self.let_go = let_go
        self._members: dict[int, list[Member]] = {}
        self._answers: list[tuple[Lease, AttemptResult | None]] = []
        self._coming_back: set[int] = set()
        """subscribers with one among those that was not begun: what was taken after it does not go out before it"""
        self._telling: asyncio.Handle | None = None
        self._telling_soon = False
        self._timer: asyncio.TimerHandle | None = None
        self._ended = False

    def join(
        self,
        subscriber: int,
        consumer: Consumer,
        window: int,
        prefetch_hold_s: float = 0.0,
        payer: Hashable | None = None,
    ) -> Member:
        """``consumer`` takes messages of the subscriber (number), at most ``window`` at once. With ``prefetch_hold_s``
        it has to ``begin`` each of them, within that time. ``payer``: the client that answers for what the consumer
        does not read; None where there are several."""
        member = Member(self, subscriber, consumer, window, prefetch_hold_s, payer)
        if self._ended:
            consumer.dismissed()
            return member
        self._members.setdefault(subscriber, []).append(member)
        self._charge_payer(subscriber)
        self.offer(subscriber)
        return member

    def _charge_payer(self, subscriber: int) -> None:
        """The client that has all consumers of the subscriber pays for its content."""
        payers = {member.payer for member in self._members.get(subscriber, ())}
        self._charge(subscriber, payers.pop() if len(payers) == 1 else None)

    # -- what the scheduler hands out ---------------------------------------------------------------------------------

    def deliver(self, deliveries: Sequence[Delivery], done: Done) -> None:
        """See ``Handler``."""
        for subscriber, its in groupby(deliveries, key=_SUBSCRIBER):
            members = self._members.get(subscriber, []) if subscriber not in self._coming_back else []
            self._deliver(members, list(its), done)

    def _deliver(self, members: list[Member], deliveries: list[Delivery], done: Done) -> None:
        """Hand out deliveries, the member that has waited longest first; those without room at any member are given
        back, and all of them where this node does not lead."""
        now_s = time.monotonic()
        at = 0
        if not self.attempt_guard.lets_take(len(deliveries)):
            members = []
        for _ in range(len(members)):
            if at == len(deliveries):
                break
            member = members.pop(0)
            members.append(member)
            some = deliveries[at : at + max(0, member.room)]
            at += len(some)
            if some:
                self.budget.used += len(some)
                started_s = _NOT_BEGUN if member.prefetch_hold_s else now_s
                for one in some:
                    deadline_s = now_s + (member.prefetch_hold_s or one.to.timeout_s)
                    member.leases[one.attempt.message] = Lease(one, done, started_s, deadline_s)
                member.consumer.receive(some)
        for one in deliveries[at:]:
            self.answer(Lease(one, done, now_s, now_s), None)
        if self._timer is None and at:
            self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def make_ready(self, delivery: Delivery) -> None:
        """See ``Handler``: there is nothing to make."""

    def named(self, delivery: Delivery) -> Delivery:
        """The delivery as a consumer that is told of headers gets it: with the span of its attempt among them, where
        the broker makes traces."""
        return delivery if self._traces is None else self._traces.named(delivery)

    def answer(self, lease: Lease, answer: AttemptResult | None, *, in_company: bool = False) -> None:
        """Settle a lease, together with others: at the end of the turn or, ``in_company``, a moment later. Never from
        inside ``deliver``."""
        self._answers.append((lease, answer))
        if answer is None:
            self._coming_back.add(lease.delivery.attempt.subscriber)
        if self._telling_soon:
            return
        loop = asyncio.get_running_loop()
        if not in_company or len(self._answers) >= TOGETHER_MAX or self._awaited(lease.delivery.attempt.message):
            if self._telling is not None:
                self._telling.cancel()
            self._telling_soon = True
            self._telling = loop.call_soon(self._flush_answers)
        elif self._telling is None:
            self._telling = loop.call_later(TOGETHER_S, self._flush_answers)

    def _flush_answers(self) -> None:
        answers, self._answers = self._answers, []
        self._coming_back.clear()
        self._telling, self._telling_soon = None, False
        for lease, answer in answers:
            lease.done(lease.delivery, answer)

    def offer(self, subscriber: int) -> None:
        """Tell the scheduler anew what the members of a subscriber have room for."""
        members = self._members.get(subscriber, ())
        self._offer_room(subscriber, sum([max(member.window, len(member.leases)) for member in members]))

    def full(self, subscriber: int) -> bool:
        """True if the members of this subscriber, or of all, hold so many leases that they get nothing more now."""
        held = sum([len(member.leases) for member in self._members.get(subscriber, ())])
        return held >= limits.window_max or not self.budget.room_beside(held)

    def left(self, member: Member) -> None:
        members = self._members.get(member.subscriber, [])
        if member in members:
            members.remove(member)
            self.offer(member.subscriber)
            if not members:
                del self._members[member.subscriber]
            self._charge_payer(member.subscriber)

    def _tick(self) -> None:
        now_s = time.monotonic()
        for members in list(self._members.values()):
            for member in list(members):
                member.expire(now_s)
        busy = any(member.leases for members in self._members.values() for member in members)
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick) if busy else None

    def withdraw(self, subscriber: int, messages: Collection[int]) -> None:
        """See ``Handler``."""
        for member in self._members.get(subscriber, ()):
            member.withdraw(messages)

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
        if self._telling is not None:
            self._telling.cancel()
        self._flush_answers()
