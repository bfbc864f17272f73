"""The topics wire format: its codec, its recorded clients, acknowledgement, and where a subscription starts.

Broken by hand to see these fail: two deliveries out at once on a connection; an answer that came too late taken for the
next message; subscribers of a connection that was cut left behind; a hand that is never given back.
"""

from __future__ import annotations

import asyncio
import json
import random
import struct
import time
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncbrok.delivery.consumers import Member
from syncbrok.frontends.over_tcp import topics
from syncbrok.frontends.over_tcp.session.peer_session import PeerFault
from syncbrok.frontends.over_tcp.topics import (
    Answered,
    TopicMessages,
    Topics,
    TopicsCodec,
    TopicSubscribe,
    TopicUnsubscribe,
    encode_begin,
)
from syncbrok.model.message import SubscriberSettings
from syncbrok.model.names import QueueName, SubscriberId
from syncbrok.space.channels import Cancel
from syncbrok.space.channels import Subscribe as Declare
from tests.support.polling import eventually
from tests.support.space.spaces import running_space
from tests.support.tcp.wire import HOST, HOW, Client, Replayed, contents, frontend_on, play, recorded, said, split

topics_on = partial(frontend_on, make=lambda services: Topics(services, HOST, 0))
ACK, NACK = struct.pack(">H", topics.ACK), struct.pack(">H", topics.NACK)
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=20)


def asks(names: list[str], start: int = topics.NOW, position: int | None = None) -> bytes:
    listed = json.dumps(names).encode()
    tail = b"" if position is None else struct.pack(">H", position)
    return struct.pack(">HI", topics.SUBSCRIBE, len(listed)) + listed + struct.pack(">H", start) + tail


def wants_no_more(names: list[str]) -> bytes:
    listed = json.dumps(names).encode()
    return struct.pack(">HI", topics.UNSUBSCRIBE, len(listed)) + listed


def message(topic: str, content: bytes) -> bytes:
    name = b"topic:" + topic.encode()
    return struct.pack(">H", len(name)) + name + struct.pack(">I", len(content)) + content


async def subscribed(port: int, *names: str, start: int = topics.NOW, position: int | None = None) -> Client:
    client = await Client.connect(port)
    await client.send(asks(list(names), start, position))
    assert await client.receive(2) == struct.pack(">H", topics.SUBSCRIBED)
    return client


async def next_message(client: Client) -> tuple[str, bytes]:
    (length,) = struct.unpack(">H", await client.receive(2))
    topic = (await client.receive(length)).decode()
    (length,) = struct.unpack(">Q", await client.receive(8))
    return topic, await client.receive(length)


class Prompt:
    """A client that answers at once, and is told by ``next`` of each message once. What comes again is passed over only
    where the broker may have taken the client for silent: two seconds after the answer before it, so on a machine that
    stood still. (Nothing tells when the broker sent it; that was after the client's last answer.)"""

    def __init__(self, client: Client, asked_s: float) -> None:
        self.client = client
        self._answered_s = asked_s
        self._since_s: dict[tuple[str, bytes], float] = {}
        """by message: when the one before it was answered"""

    @classmethod
    async def subscribed(cls, port: int, *names: str, start: int = topics.NOW, position: int | None = None) -> Prompt:
        """Its clock begins before it subscribes: the first message may be sent with the answer, long before the test
        reads it."""
        asked_s = time.monotonic()
        return cls(await subscribed(port, *names, start=start, position=position), asked_s)

    async def next(self) -> tuple[str, bytes]:
        """The next message, to be answered with ``acknowledge`` before another is asked for."""
        while True:
            came = await next_message(self.client)
            if came not in self._since_s:
                self._since_s[came] = self._answered_s
                return came
            assert time.monotonic() - self._since_s[came] > topics.ANSWER_S, f"{came} came twice"
            await self.acknowledge()

    async def acknowledge(self) -> None:
        self._answered_s = time.monotonic()
        await self.client.send(ACK)

    async def take(self) -> tuple[str, bytes]:
        """The next message, acknowledged."""
        came = await self.next()
        await self.acknowledge()
        return came


def members(broker: Replayed) -> list[Member]:
    """Those who consume now."""
    return [member for some in broker.services.consumers._members.values() for member in some]


# -- the codec --------------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.one_of(
            st.builds(Answered, st.booleans()),
            st.builds(TopicUnsubscribe, st.lists(NAMES, max_size=3).map(tuple)),
            st.tuples(st.lists(NAMES, max_size=3).map(tuple), st.sampled_from((0, 1))).map(
                lambda both: TopicSubscribe(*both)
            ),
            st.tuples(st.lists(NAMES, max_size=3).map(tuple), st.integers(0, 0xFFFF)).map(
                lambda both: TopicSubscribe(both[0], topics.FROM, both[1])
            ),
        )
    ),
    st.lists(st.tuples(NAMES, st.binary(max_size=50))),
    st.integers(),
)
def test_actions_are_the_same_in_any_split(
    commands: list[object], published: list[tuple[str, bytes]], seed: int
) -> None:
    """INTERFACES 4: what was encoded is read again, however TCP cuts it; after action 3 there are only messages. Those
    of length 0 are read and not published, and pairs of zero bytes where a topic's length is expected are passed
    over: so lengths of 32 bits are read as well."""
    data = b""
    for command in commands:
        if isinstance(command, Answered):
            data += ACK if command.well else NACK
        elif isinstance(command, TopicUnsubscribe):
            data += wants_no_more(list(command.topics))
        else:
            assert isinstance(command, TopicSubscribe)
            position = command.position if command.start == topics.FROM else None
            data += asks(list(command.topics), command.start, position)
    chance = random.Random(seed)
    data += struct.pack(">H", topics.PUBLISH)
    data += b"".join(bytes(chance.choice((0, 0, 2, 4, 6_000))) + message(*one) for one in published)
    codec = TopicsCodec()
    read = [command for piece in split(data, random.Random(seed)) for command in codec.feed(piece)]
    told: list[object] = []
    for command in read:
        told += [(command.topic, one) for one in command.contents] if isinstance(command, TopicMessages) else [command]
    assert told == [*commands, *(one for one in published if one[1])]
    assert not codec.partial_bytes


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (struct.pack(">H", 9), "action 9"),
        (struct.pack(">HI", 1, 0xFFFF_FFFF), "at most"),
        (struct.pack(">HI", 1, 2) + b"{}" + b"\0\0", "JSON list"),
        (struct.pack(">HI", 1, 2) + b"[[" + b"\0\0", "not JSON"),
        (struct.pack(">HI", 1, 2) + b"[]" + b"\0\7", "start 7"),
        (struct.pack(">HH", 3, 3) + b"abc" + struct.pack(">I", 0), "topic:NAME"),
        (struct.pack(">HH", 3, 7) + b"topic:a" + struct.pack(">I", 1 << 30), "at most"),
    ],
)
def test_an_action_that_cannot_be_is_told(data: bytes, words: str) -> None:
    """DESIGN 1, bounded: hostile lengths are refused before anything is kept for them, and nothing is read after."""
    codec = TopicsCodec()
    *_, fault = codec.feed(data)
    assert isinstance(fault, PeerFault)
    assert words in str(fault)
    assert not codec.feed(ACK)


# -- recorded clients -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", HOW)
async def test_the_recorded_session(tmp_path: Path, how: str, seed: int) -> None:
    """INTERFACES 4: the recorded publisher and subscribers are served as they were, whatever the pieces."""
    pieces = recorded("topic-push")
    async with topics_on(tmp_path) as broker:
        received = await play(pieces, broker.port, how, random.Random(seed))
    assert received == {connection: said(pieces, connection) for connection in received}


# -- what it does -----------------------------------------------------------------------------------------------------


async def test_one_delivery_at_a_time_over_all_topics(tmp_path: Path) -> None:
    """INTERFACES 4: the next message comes when the last one is answered, whatever topic it is of."""
    async with topics_on(tmp_path) as broker:
        for queue in "ab":
            await broker.running.queue(queue)
        for number in range(4):
            await broker.running.publish("ab"[number % 2], b"%d" % number)
        client = await subscribed(broker.port, "a", "b", start=topics.BEGINNING)
        got = []
        for _ in range(4):
            got.append(await next_message(client))
            assert sum(lease.started_s > 0 for member in members(broker) for lease in member.leases.values()) == 1
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await client.reader.read(1)
            await client.send(ACK)
        assert sorted(got) == [("a", b"0"), ("a", b"2"), ("b", b"1"), ("b", b"3")]
        await client.close()


async def test_a_quick_client_gets_all_of_it_in_order(tmp_path: Path) -> None:
    """DESIGN 5: its next messages are in hand when its answer comes; each topic's come as they were accepted, each
    once, and all of them are recorded as delivered in one attempt."""
    async with topics_on(tmp_path) as broker:
        for queue in "ab":
            await broker.running.queue(queue)
        for number in range(400):
            await broker.running.publish("ab"[number % 2], b"%d" % number)
        prompt = await Prompt.subscribed(broker.port, "a", "b", start=topics.BEGINNING)
        ids = [await broker.running.publish("ab"[number % 2], b"%d" % number) for number in range(400, 800)]
        got: dict[str, list[bytes]] = {"a": [], "b": []}
        most = 0
        for _ in range(800):
            topic, content = await prompt.next()
            got[topic].append(content)
            most = max(most, sum(len(member.leases) for member in members(broker)))
            await prompt.acknowledge()
        assert got == {"a": [b"%d" % n for n in range(0, 800, 2)], "b": [b"%d" % n for n in range(1, 800, 2)]}
        assert 8 < most <= 64
        await broker.running.ended(*ids)
        reports = [await broker.running.view.message(id_) for id_ in ids]
        assert {report.state for report in reports} == {"complete"}
        await prompt.client.close()


async def test_nothing_stays_in_the_hand_of_a_client_that_stops(tmp_path: Path) -> None:
    """DESIGN 1, bounded: what a client has not been sent goes back as it pauses, with no attempt counted: it can be
    cancelled, and whoever comes for the rest gets it in order."""
    async with topics_on(tmp_path) as broker:
        prompt = await Prompt.subscribed(broker.port, "a")
        ids = [await broker.running.publish("a", b"%d" % number) for number in range(60)]
        for number in range(20):
            assert await prompt.take() == ("a", b"%d" % number)
        assert await prompt.next() == ("a", b"20")
        (member,) = members(broker)
        assert len(member.leases) > 1
        await eventually(lambda: len(member.leases) == 1, "only what was sent is out")
        await broker.running.put(Cancel(ids[21]))
        await prompt.acknowledge()
        for number in range(22, 60):
            assert await prompt.take() == ("a", b"%d" % number)
        await broker.running.ended(*ids)
        assert await broker.running.states(*ids[20:23]) == ["complete", "dropped", "complete"]
        await prompt.client.close()


async def test_the_answer_to_an_unwanted_topic_is_not_the_next_ones(tmp_path: Path) -> None:
    """INTERFACES 4: answers carry no names. One that was owed when its topic was unsubscribed is still that message's,
    and the other topics go on when it has come, or is not to be expected any more."""
    async with topics_on(tmp_path) as broker:
        client = await subscribed(broker.port, "a", "b")
        for _ in range(2):
            await broker.running.publish("a", b"unwanted")
            assert await next_message(client) == ("a", b"unwanted")
            kept = await broker.running.publish("b", b"kept")
            await client.send(wants_no_more(["a"]))
            assert await client.receive(2) == struct.pack(">H", topics.UNSUBSCRIBED)
            await client.send(NACK)
            assert await next_message(client) == ("b", b"kept")
            await client.send(ACK)
            await broker.running.ended(kept)
            await client.send(asks(["a"]))
            assert await client.receive(2) == struct.pack(">H", topics.SUBSCRIBED)
        await broker.running.publish("a", b"never answered")
        assert await next_message(client) == ("a", b"never answered")
        await client.send(wants_no_more(["a"]))
        assert await client.receive(2) == struct.pack(">H", topics.UNSUBSCRIBED)
        await broker.running.publish("b", b"goes on")
        assert await next_message(client) == ("b", b"goes on")
        await client.close()


async def test_a_nack_is_tried_again_and_the_fifth_is_the_last(tmp_path: Path) -> None:
    """INTERFACES 4: nack is retried after a second, five deliveries at most; then it is a dead letter."""
    async with topics_on(tmp_path) as broker:
        client = await subscribed(broker.port, "a")
        id_ = await broker.running.publish("a", b"no")
        for _ in range(5):
            assert await next_message(client) == ("a", b"no")
            await client.send(NACK)
        await broker.running.ended(id_)
        assert await broker.running.states(id_) == ["dead"]
        await broker.running.publish("a", b"next")
        assert await next_message(client) == ("a", b"next")
        await client.close()


async def test_an_answer_after_two_seconds_is_about_nothing(tmp_path: Path) -> None:
    """INTERFACES 4: silence counts as a failure; the client's late answer is not taken for the next message's."""
    async with topics_on(tmp_path) as broker:
        client = await subscribed(broker.port, "a")
        id_ = await broker.running.publish("a", b"slow")
        for _ in range(2):
            assert await next_message(client) == ("a", b"slow")
        await eventually(lambda: not any(member.leases for member in members(broker)), "it has lapsed")
        await client.send(ACK)
        assert await next_message(client) == ("a", b"slow")
        assert await broker.running.states(id_) == ["pending"]
        await client.send(ACK)
        await broker.running.ended(id_)
        await client.close()


async def test_a_child_comes_after_its_parent_is_acknowledged_everywhere(tmp_path: Path) -> None:
    """DESIGN 1, causal: a message posted over HTTP with a parent reaches a topics subscriber after the parent was
    acknowledged by all of its subscribers."""
    async with topics_on(tmp_path) as broker:
        one, other = await subscribed(broker.port, "a"), await subscribed(broker.port, "a", "b")
        parent = await broker.running.publish("a", b"parent")
        child = await broker.running.publish("b", b"child", parent)
        assert await next_message(one) == ("a", b"parent")
        assert await next_message(other) == ("a", b"parent")
        await other.send(ACK)
        assert await broker.running.states(child) == ["waiting"]
        await one.send(ACK)
        assert await next_message(other) == ("b", b"child")
        await one.close()
        await other.close()


async def test_who_goes_leaves_nothing_behind(tmp_path: Path) -> None:
    """RULES 14: a connection's subscribers go with it, also one that was cut in the middle of a delivery, and what
    waited for it does not wait any more; an unsubscribe does the same for one topic."""
    async with topics_on(tmp_path) as broker:
        client = await subscribed(broker.port, "a", "b")
        ids = [await broker.running.publish(queue, b"x") for queue in "aab"]
        await next_message(client)
        client.writer.transport.abort()
        await broker.running.ended(*ids)
        await eventually(lambda: all(not broker.running.view.subscribers(q, None, 9)[0] for q in "ab"), "both are gone")
        client = await subscribed(broker.port, "a", "b")
        await client.send(wants_no_more(["a"]))
        assert await client.receive(2) == struct.pack(">H", topics.UNSUBSCRIBED)
        await eventually(lambda: not broker.running.view.subscribers("a", None, 9)[0], "one is gone")
        await broker.running.publish("b", b"still")
        assert await next_message(client) == ("b", b"still")
        await client.close()


async def test_what_a_crash_left_behind_is_deleted(tmp_path: Path) -> None:
    """RULES 14: a subscriber of a connection that no process holds any more would hold up every child for ever."""
    async with running_space(tmp_path, drain_s=0.1) as running:
        running.space.handle("consumer", running.consumer)
        await running.queue("a")
        await running.put(
            Declare(QueueName("a"), SubscriberSettings("consumer:topics", name=SubscriberId("topics-left")))
        )
    async with topics_on(tmp_path) as broker:
        assert broker.running.view.subscribers("a", None, 9)[0] == []


async def test_published_messages_are_kept_in_order(tmp_path: Path) -> None:
    """INTERFACES 4: no answers, but durable when the broker closes its side, in the order sent."""
    async with topics_on(tmp_path) as broker:
        client = await Client.connect(broker.port)
        await client.send(struct.pack(">H", topics.PUBLISH) + b"".join(message("a", b"%d" % n) for n in range(3_000)))
        client.writer.write_eof()
        assert await client.rest() == b""
        await client.close()
        assert await contents(broker.running, "a") == [b"%d" % number for number in range(3_000)]


async def test_mistakes_are_told(tmp_path: Path) -> None:
    """CONTRIBUTING, errors: a topic that cannot be a queue is refused with the reason, and the connection goes on."""
    async with topics_on(tmp_path) as broker:
        client = await Client.connect(broker.port)
        await client.send(asks(["fine", "../etc"]))
        assert await client.receive(2) == struct.pack(">H", topics.ERROR)
        (length,) = struct.unpack(">H", await client.receive(2))
        assert b"is not a queue name" in await client.receive(length)
        await client.send(asks(["fine"]))
        assert await client.receive(2) == struct.pack(">H", topics.SUBSCRIBED)
        await broker.running.publish("fine", b"x")
        assert await next_message(client) == ("fine", b"x")
        await client.close()


def test_a_message_is_encoded_as_recorded() -> None:
    """INTERFACES 4: byte for byte."""
    begin = encode_begin("topic-a", b"message 1")
    assert (begin + b"message 1").hex() == "0007746f7069632d6100000000000000096d6573736167652031"
