"""Subscribers that come for their messages: windows, leases, and what becomes of both when a consumer goes.

Broken by hand to see these fail: ``offer`` that forgets who left; a window of one that hands out two; ``give_back``
that counts as an attempt; a lease that is never over; what was only in hand failed when its time is over, or when its
member leaves; an acknowledgement in company that somebody waits for.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from syncbrok.delivery.consumers import TOGETHER_S, Consumers, Member
from syncbrok.delivery.handler import Delivery
from syncbrok.model import limits
from syncbrok.model.budget import Budget
from syncbrok.model.message import CONSUMER_SCHEME, QueueSettings, RetryPolicy, SubscriberSettings
from syncbrok.model.names import QueueName, SubscriberId
from syncbrok.space.channels import Cancel, Subscribe, Unsubscribe
from tests.support.delivery.endpoint import delivery, send, subscriber
from tests.support.polling import eventually
from tests.support.space.spaces import NEVER_AGAIN, Running, consumers_of, running_space

AT_ONCE = QueueSettings(retry=RetryPolicy((0.0,) * 4, 0.0))


class Inbox:
    """A consumer that keeps what it is given, in order, until the test answers."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self.late: list[int] = []
        self.over = False

    def receive(self, deliveries: Sequence[Delivery]) -> None:
        self.deliveries += deliveries

    def lapsed(self, messages: Sequence[int]) -> None:
        self.late += messages

    def dismissed(self) -> None:
        self.over = True

    @property
    def contents(self) -> list[bytes]:
        return [delivery.message.content for delivery in self.deliveries]

    @property
    def messages(self) -> list[int]:
        return [delivery.attempt.message for delivery in self.deliveries]


class Shop:
    """A running Space whose queue ``shop`` has the consumed subscriber ``desk``."""

    def __init__(self, running: Running, consumers: Consumers) -> None:
        self.running = running
        self.consumers = consumers

    def join(self, inbox: Inbox, window: int) -> Member:
        return self.consumers.join(self.running.view.subscriber_number("shop", "desk"), inbox, window)

    def join_with_hand(self, inbox: Inbox, window: int, prefetch_hold_s: float) -> Member:
        return self.consumers.join(self.running.view.subscriber_number("shop", "desk"), inbox, window, prefetch_hold_s)


@asynccontextmanager
async def shop(directory: Path, queue: QueueSettings = NEVER_AGAIN, timeout_s: float = 9.0) -> AsyncIterator[Shop]:
    async with running_space(directory, drain_s=0.1) as running:
        consumers = consumers_of(running.space)
        running.space.handle(CONSUMER_SCHEME, consumers)
        await running.queue("shop", queue)
        settings = SubscriberSettings("consumer:test", name=SubscriberId("desk"), timeout_s=timeout_s)
        await running.put(Subscribe(QueueName("shop"), settings))
        yield Shop(running, consumers)


async def test_messages_wait_while_nobody_consumes(tmp_path: Path) -> None:
    """RULES 17: what is published for an absent consumer is there when it comes, in order, and nothing was tried."""
    async with shop(tmp_path) as place:
        ids = [await place.running.publish("shop", b"%d" % number) for number in range(5)]
        assert await place.running.states(*ids) == ["pending"] * 5
        inbox = Inbox()
        member = place.join(inbox, 10)
        await eventually(lambda: inbox.contents == [b"0", b"1", b"2", b"3", b"4"], "the messages come")
        assert {delivery.attempt.number for delivery in inbox.deliveries} == {1}
        assert member.acknowledge(inbox.messages) == 5
        await place.running.ended(*ids)


async def test_a_member_never_has_more_than_its_window(tmp_path: Path) -> None:
    """DESIGN 1, bounded: two consumers of one subscriber share its messages, each within its own window."""
    async with shop(tmp_path) as place:
        one, other = Inbox(), Inbox()
        first, second = place.join(one, 1), place.join(other, 3)
        ids = [await place.running.publish("shop", b"%d" % number) for number in range(8)]
        await eventually(lambda: len(one.deliveries) + len(other.deliveries) == 4, "the messages come")
        assert (len(one.deliveries), len(other.deliveries)) == (1, 3)
        for _ in range(8):
            first.acknowledge(one.messages)
            second.acknowledge(other.messages)
            assert len(first.leases) <= 1
            assert len(second.leases) <= 3
            await place.running.states(*ids)
        await eventually(lambda: len(one.deliveries) + len(other.deliveries) == 8, "the messages come")
        first.acknowledge(one.messages)
        second.acknowledge(other.messages)
        await place.running.ended(*ids)
        assert sorted(one.contents + other.contents) == [b"%d" % number for number in range(8)]


async def test_a_child_comes_after_its_parent_is_acknowledged(tmp_path: Path) -> None:
    """DESIGN 1, causal: room for many makes no difference to a child."""
    async with shop(tmp_path) as place:
        inbox = Inbox()
        member = place.join(inbox, 10)
        parent = await place.running.publish("shop", b"parent")
        child = await place.running.publish("shop", b"child", parent)
        await eventually(lambda: bool(inbox.deliveries), "the messages come")
        assert await place.running.states(child) == ["waiting"]
        member.acknowledge(inbox.messages)
        await eventually(lambda: inbox.contents == [b"parent", b"child"], "the messages come")


async def test_what_is_refused_or_not_answered_is_tried_again(tmp_path: Path) -> None:
    """RULES 9: a refusal and a lease that is over are failed attempts, the next has the next number."""
    async with shop(tmp_path, AT_ONCE, timeout_s=0.05) as place:
        inbox = Inbox()
        member = place.join(inbox, 1)
        id_ = await place.running.publish("shop", b"hello")
        await eventually(lambda: len(inbox.deliveries) == 1, "the messages come")
        member.refuse(inbox.messages[0], b"not now")
        await eventually(lambda: len(inbox.deliveries) == 3, "the messages come")  # and one was left to run out
        assert [delivery.attempt.number for delivery in inbox.deliveries] == [1, 2, 3]
        assert inbox.late == inbox.messages[:1]
        member.extend(inbox.messages[0], 60.0)
        member.acknowledge(inbox.messages)
        await place.running.ended(id_)
        assert await place.running.states(id_) == ["complete"]


async def test_what_was_not_begun_is_no_attempt(tmp_path: Path) -> None:
    """DESIGN 1: a consumer may give back what it never looked at, and no number is used up: with a single attempt
    allowed the message is still delivered."""
    async with shop(tmp_path) as place:
        inbox = Inbox()
        member = place.join(inbox, 2)
        id_ = await place.running.publish("shop", b"hello")
        await eventually(lambda: len(inbox.deliveries) == 1, "the messages come")
        member.open(0)
        member.give_back(inbox.messages[0])
        member.leave()
        other = Inbox()
        again = place.join(other, 2)
        await eventually(lambda: other.contents == [b"hello"], "the messages come")
        assert other.deliveries[0].attempt.number == 1
        again.acknowledge(other.messages)
        await place.running.ended(id_)


async def test_what_is_in_hand_is_no_attempt_until_it_begins(tmp_path: Path) -> None:
    """DESIGN 1: a consumer may have messages in hand that its peer is not told of yet. Their attempts begin when it is,
    and so does the time for an answer; what has not begun in a moment is given back, and no attempt is counted."""
    async with shop(tmp_path) as place:
        inbox = Inbox()
        member = place.join_with_hand(inbox, 2, 0.2)
        ids = [await place.running.publish("shop", b"%d" % number) for number in range(2)]
        await eventually(lambda: len(inbox.deliveries) == 2, "the messages come")
        first, second = inbox.messages
        began_us = inbox.deliveries[0].attempt.started_us
        member.begin(first)
        await eventually(lambda: inbox.late == [second], "what has not begun is given back")
        assert began_us <= member.leases[first].delivery.attempt.started_us
        await eventually(lambda: len(inbox.deliveries) == 3, "it comes again")
        assert inbox.deliveries[2].attempt[:3] == inbox.deliveries[1].attempt[:3]
        member.begin(second)
        assert member.acknowledge((first, second), in_company=True) == 2
        await place.running.ended(*ids)
        assert await place.running.states(*ids) == ["complete", "complete"]


async def test_what_came_to_hand_later_goes_back_with_what_stayed_too_long() -> None:
    """docs/frontends.md, order: it would be sent before what is taken back. What has been begun stays out."""
    consumers = Consumers(lambda *_: None, lambda _: False, Budget("leases", 8), lambda _: None)
    inbox = Inbox()
    member = consumers.join(1, inbox, 4, 1.0)
    given = [delivery(sequence) for sequence in range(1, 5)]
    back: list[int] = []
    send(consumers, subscriber("consumer:test"), given, lambda one, _: back.append(one.attempt.message))
    member.begin(1)
    for message in (3, 4):
        member.leases[message].deadline_s += 60.0  # as if they had come later
    member.expire(member.leases[2].deadline_s)
    assert (inbox.late, list(member.leases)) == ([2, 3, 4], [1])
    await eventually(lambda: back == [2, 3, 4], "they are given back")
    await consumers.close()


async def test_nothing_goes_out_before_what_is_on_its_way_back() -> None:
    """docs/frontends.md, order: what comes in the turn in which another is given back goes back with it, though there
    is room for it again; and what there is no room for is overtaken by nothing."""
    consumers = Consumers(lambda *_: None, lambda _: False, Budget("leases", 8), lambda _: None)
    inbox = Inbox()
    member = consumers.join(1, inbox, 2, 1.0)
    back: list[int] = []

    def deliver(*sequences: int) -> None:
        given = [delivery(sequence) for sequence in sequences]
        send(consumers, subscriber("consumer:test"), given, lambda one, _: back.append(one.attempt.message))

    deliver(1, 2)
    member.give_back(2)
    deliver(3)
    await eventually(lambda: back == [2, 3], "both are given back")
    deliver(2, 3)
    assert member.give_back(1)
    deliver(4)
    await eventually(lambda: back == [2, 3, 3, 1, 4], "again")
    deliver(5)
    assert inbox.messages == [1, 2, 2, 5]
    await consumers.close()


async def test_acknowledgements_are_settled_together_unless_somebody_waits() -> None:
    """RULES 24: rows that nobody waits for may linger some milliseconds for company; a child's way does not wait."""
    consumers = Consumers(lambda *_: None, lambda message: message == 3, Budget("leases", 8), lambda _: None)
    inbox = Inbox()
    member = consumers.join(1, inbox, 3)
    told: list[int] = []
    deliveries = [delivery(sequence) for sequence in (1, 2, 3)]
    send(consumers, subscriber("consumer:test"), deliveries, lambda one, _: told.append(one.attempt.message))
    began_s = time.monotonic()
    member.acknowledge((1,), in_company=True)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not told or time.monotonic() - began_s >= TOGETHER_S  # on a machine that stood still it may be over
    member.acknowledge((3,), in_company=True)
    for _ in range(3):
        await asyncio.sleep(0)
    assert told == [1, 3]
    member.acknowledge((2,), in_company=True)
    await eventually(lambda: told == [1, 3, 2], "the moment is over")
    await consumers.close()


async def test_what_ends_in_hand_does_not_begin(tmp_path: Path) -> None:
    """RULES 22: a member is not told of a message that was cancelled while it was in its hand, and it has the slot
    back; what it has been told of it may still answer, late."""
    async with shop(tmp_path, timeout_s=60.0) as place:
        inbox = Inbox()
        member = place.join_with_hand(inbox, 2, 60.0)
        ids = [await place.running.publish("shop", content) for content in (b"a", b"b", b"c")]
        await eventually(lambda: inbox.contents == [b"a", b"b"], "two are in hand")
        member.begin(inbox.messages[0])
        for id_ in ids[:2]:
            await place.running.put(Cancel(id_))
        await eventually(lambda: inbox.contents == [b"a", b"b", b"c"], "the slot is free again")
        assert inbox.late == [inbox.messages[1]]
        assert member.acknowledge(inbox.messages[:2]) == 1


async def test_who_leaves_gives_back_what_was_only_in_hand(tmp_path: Path) -> None:
    """DESIGN 1: with a single attempt allowed, what its peer was told of is a dead letter and the rest is delivered."""
    async with shop(tmp_path) as place:
        inbox = Inbox()
        member = place.join_with_hand(inbox, 3, 9.0)
        ids = [await place.running.publish("shop", b"%d" % number) for number in range(3)]
        await eventually(lambda: len(inbox.deliveries) == 3, "the messages come")
        member.begin(inbox.messages[0])
        member.leave()
        other = Inbox()
        again = place.join(other, 3)
        await eventually(lambda: other.contents == [b"1", b"2"], "the messages come")
        again.acknowledge(other.messages)
        await place.running.ended(*ids)
        assert await place.running.states(*ids) == ["dead", "complete", "complete"]


async def test_who_leaves_is_offered_nothing_more(tmp_path: Path) -> None:
    """DESIGN 1: what a consumer had when it went away has failed once, and goes to the one that stays."""
    async with shop(tmp_path, AT_ONCE) as place:
        gone, stays = Inbox(), Inbox()
        leaving = place.join(gone, 1)
        id_ = await place.running.publish("shop", b"hello")
        await eventually(lambda: len(gone.deliveries) == 1, "the messages come")
        staying = place.join(stays, 1)
        leaving.leave()
        await eventually(lambda: len(stays.deliveries) == 1, "the messages come")
        assert stays.deliveries[0].attempt.number == 2
        assert not leaving.acknowledge(gone.messages)
        staying.acknowledge(stays.messages)
        await place.running.ended(id_)
        assert len(gone.deliveries) == 1


async def test_who_wants_nothing_more_is_offered_nothing_once_it_has_nothing() -> None:
    """DESIGN 1, bounded: room for what a consumer still had when it closed its window goes with that. Left open, it
    would be taken and given back in every turn of the loop, and whoever publishes would wait behind it."""
    offered: list[int] = []
    consumers = Consumers(lambda _, room: offered.append(room), lambda _: False, Budget("leases", 8), lambda _: None)
    inbox = Inbox()
    closing, open_ = consumers.join(1, inbox, 2), consumers.join(1, inbox, 1)
    send(consumers, subscriber("consumer:test"), [delivery(sequence) for sequence in (1, 2, 3)], lambda *_: None)
    closing.open(0)
    assert offered[-1] == 3, "what is out counts, or the other one would have no room"
    closing.acknowledge((1,))
    assert offered[-1] == 2
    closing.expire(closing.leases[2].deadline_s)
    assert offered[-1] == 1
    before = len(offered)
    open_.acknowledge((3,))
    assert len(offered) == before, "a window that is open stays as it is"
    await consumers.close()


async def test_a_deleted_subscriber_dismisses_its_consumers(tmp_path: Path) -> None:
    """RULES 14: its pending deliveries end dropped, and whoever consumed for it hears of it."""
    async with shop(tmp_path) as place:
        inbox = Inbox()
        place.join(inbox, 1)
        ids = [await place.running.publish("shop", b"hello") for _ in range(3)]
        await eventually(lambda: len(inbox.deliveries) == 1, "the messages come")
        await place.running.put(Unsubscribe(QueueName("shop"), SubscriberId("desk")))
        await eventually(lambda: inbox.over, "the messages come")
        await place.running.ended(*ids)


async def test_a_restart_loses_nothing_that_was_not_acknowledged(tmp_path: Path) -> None:
    """DESIGN 1, durable: what a consumer held when the broker stopped is there for the next one."""
    async with shop(tmp_path) as place:
        inbox = Inbox()
        member = place.join(inbox, 2)
        ids = [await place.running.publish("shop", b"%d" % number) for number in range(3)]
        await eventually(lambda: len(inbox.deliveries) == 2, "the messages come")
        member.acknowledge(inbox.messages[:1])
        await place.running.ended(ids[0])
    assert inbox.over
    async with running_space(tmp_path, drain_s=0.1) as running:
        consumers = consumers_of(running.space)
        running.space.handle(CONSUMER_SCHEME, consumers)
        after = Inbox()
        consumers.join(running.view.subscriber_number("shop", "desk"), after, 9)
        await eventually(lambda: after.contents[-2:] == [b"1", b"2"], "the messages come")
        assert b"0" not in after.contents


async def test_what_was_written_is_held_no_more(tmp_path: Path) -> None:
    """RULES 15: the content of a lease is given back once it is written, however long the lease lasts; its answer is
    heard as ever."""
    async with shop(tmp_path) as place:
        space = place.running.space
        inbox = Inbox()
        member = place.join(inbox, 10)
        content = b"x" * limits.content_bytes_max
        ids = [await place.running.publish("shop", content) for _ in range(4)]
        await eventually(lambda: len(inbox.deliveries) == 4, "the messages come")
        assert (space.dispatcher.bytes_in_flight, space.budgets.leases.used) == (4 * len(content), 4)
        member.written(inbox.messages)
        member.written(inbox.messages)
        assert (space.dispatcher.bytes_in_flight, space.budgets.leases.used) == (0, 4)
        assert [lease.delivery.message.content for lease in member.leases.values()] == [b""] * 4
        assert member.acknowledge(inbox.messages) == 4
        await place.running.ended(*ids)
        assert (space.dispatcher.bytes_in_flight, space.budgets.leases.used) == (0, 0)


async def test_leases_of_those_who_leave_are_given_back(tmp_path: Path) -> None:
    """DESIGN 1, bounded: whatever ends a lease - a refusal, its time, who leaves, the subscriber's end - none stays
    counted."""
    async with shop(tmp_path, AT_ONCE, timeout_s=0.1) as place:
        space = place.running.space
        for content in (b"refused", b"late", b"left"):
            await place.running.publish("shop", content)
        inbox = Inbox()
        member = place.join(inbox, 3)
        await eventually(lambda: len(inbox.deliveries) == 3, "the messages come")
        assert member.refuse(inbox.messages[0])
        await eventually(lambda: inbox.late, "a lease is over")
        member.leave()
        await eventually(lambda: not space.dispatcher.in_flight, "all of it is settled")
        other = Inbox()
        place.join(other, 3)
        await eventually(lambda: bool(other.deliveries), "they come again")
        await place.running.put(Unsubscribe(QueueName("shop"), SubscriberId("desk")))
        await eventually(lambda: not space.dispatcher.in_flight, "the subscriber is gone")
        assert space.budgets.leases.used == 0
