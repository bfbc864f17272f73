"""The multiplexed wire format: its codec, its recorded clients, streams, and messages that wait for one.

Broken by hand to see these fail: a message done before it has left for every stream; the length read big-endian;
a mistake of one stream that ends the connection.
"""

import base64
import json
import random
import struct
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncbrok.frontends.over_tcp.multiplexed import (
    Assert,
    MalformedFrame,
    Multiplexed,
    MultiplexedCodec,
    StreamMessages,
)
from syncbrok.frontends.over_tcp.session.peer_session import PeerFault
from tests.support.polling import eventually
from tests.support.tcp.wire import HOST, HOW, Client, contents, frontend_on, play, recorded, said, split

multiplexed_on = partial(frontend_on, make=lambda services: Multiplexed(services, HOST, 0))
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=20)


def framed(message: object) -> bytes:
    written = json.dumps(message).encode()
    return struct.pack("<I", len(written)) + written


def asserts(queue: str, stream: str, type_: str = "P2P") -> bytes:
    return framed({"MessageType": "Queue", "Name": queue, "Type": type_, "Durable": True, "StreamID": stream})


def publishes(route: str, content: bytes, stream: str = "p") -> bytes:
    body = base64.b64encode(content).decode()
    return framed({"MessageType": "EPMessage", "Route": route, "Type": "P2P", "Body": body, "StreamID": stream})


def frames(data: bytes) -> list[dict[str, Any]]:
    found = []
    while data:
        (length,) = struct.unpack_from("<I", data)
        found.append(json.loads(data[4 : 4 + length]))
        data = data[4 + length :]
    return found


async def next_frame(client: Client) -> dict[str, Any]:
    (length,) = struct.unpack("<I", await client.receive(4))
    frame: dict[str, Any] = json.loads(await client.receive(length))
    return frame


async def next_content(client: Client, stream: str) -> bytes:
    frame = await next_frame(client)
    assert (frame["MessageType"], frame["StreamID"]) == ("EPMessage", stream)
    return base64.b64decode(frame["Body"])


@given(
    st.lists(
        st.one_of(
            st.tuples(NAMES, NAMES, st.binary(max_size=50)),
            st.tuples(NAMES, NAMES.filter(bool)).map(lambda both: Assert(both[0], "PUBSUB", both[1])),
        )
    ),
    st.integers(),
)
def test_messages_are_the_same_in_any_split(commands: list[Any], seed: int) -> None:
    """INTERFACES 4: what was encoded is read again, however TCP cuts it."""
    data = b"".join(
        asserts(one.queue, one.stream, "PUBSUB") if isinstance(one, Assert) else publishes(one[0], one[2], one[1])
        for one in commands
    )
    codec = MultiplexedCodec()
    told: list[object] = []
    for command in [command for piece in split(data, random.Random(seed)) for command in codec.feed(piece)]:
        if isinstance(command, StreamMessages):
            told += [(command.route, command.stream, one) for one in command.contents]
        else:
            told.append(command)
    assert told == commands
    assert not codec.partial_bytes


@pytest.mark.parametrize(
    "message",
    [
        [],
        {"MessageType": "Nothing", "StreamID": "s"},
        {"MessageType": "Queue", "Name": 1, "Type": "P2P", "StreamID": "s"},
        {"MessageType": "Queue", "Name": "q", "Type": "NEITHER", "StreamID": "s"},
        {"MessageType": "EPMessage", "Route": "q", "Body": "no base64!", "StreamID": "s"},
        {"MessageType": "EPMessage", "Route": "q", "StreamID": "s"},
    ],
)
def test_a_message_that_makes_no_sense_is_a_mistake_of_its_stream(message: object) -> None:
    """INTERFACES 4: it is told, and what follows is read."""
    wrong, asserted = MultiplexedCodec().feed(framed(message) + asserts("q", "s"))
    assert isinstance(wrong, MalformedFrame)
    assert asserted == Assert("q", "P2P", "s")


def test_a_hostile_length_is_refused() -> None:
    """DESIGN 1, bounded: before anything is kept for it."""
    (fault,) = MultiplexedCodec().feed(struct.pack("<I", 0xFFFF_FFFF))
    assert isinstance(fault, PeerFault)


@pytest.mark.parametrize("how", HOW)
async def test_the_recorded_session(tmp_path: Path, how: str, seed: int) -> None:
    """INTERFACES 4: the recorded clients are served as they were. The recorded server had turned its two messages
    around; here they come in the order published."""
    pieces = recorded("multiplexed")
    async with multiplexed_on(tmp_path) as broker:
        received = await play(pieces, broker.port, how, random.Random(seed))
    for connection, data in received.items():
        assert frames(data) == frames(said(pieces, connection))[::-1]
        assert sorted(data) == sorted(said(pieces, connection))


async def test_messages_wait_while_nobody_is_subscribed(tmp_path: Path) -> None:
    """INTERFACES 4: also over a restart, and before the first stream ever came."""
    async with multiplexed_on(tmp_path) as broker:
        client = await Client.connect(broker.port)
        await client.send(publishes("route", b"early"))
        await eventually(lambda: bool(broker.running.view.queues(None, 9)[0]), "it is published")
        await client.send(asserts("route", "one"))
        assert await next_content(client, "one") == b"early"
        await client.close()
        await eventually(lambda: not broker.frontend.listener._sessions, "it has gone")
        for number in range(3):
            await broker.running.publish("route", b"%d" % number)
    async with multiplexed_on(tmp_path) as broker:
        client = await Client.connect(broker.port)
        await client.send(asserts("route", "two"))
        assert [await next_content(client, "two") for _ in range(3)] == [b"0", b"1", b"2"]
        await client.close()


async def test_every_stream_receives_every_message(tmp_path: Path) -> None:
    """INTERFACES 4: several streams of one connection, and of another; each with its own id."""
    async with multiplexed_on(tmp_path) as broker:
        one, other = await Client.connect(broker.port), await Client.connect(broker.port)
        await one.send(asserts("route", "a") + asserts("route", "b") + asserts("other", "c"))
        await other.send(asserts("route", "d"))
        hub = lambda: broker.frontend._hubs.get("route")  # noqa: E731
        await eventually(lambda: hub() is not None and len(hub()._streams) == 3, "all have subscribed")
        id_ = await broker.running.publish("route", b"x")
        assert {(await next_frame(one))["StreamID"] for _ in range(2)} == {"a", "b"}
        assert (await next_frame(other))["StreamID"] == "d"
        await broker.running.ended(id_)
        await one.close()
        await broker.running.publish("route", b"y")
        assert await next_content(other, "d") == b"y"
        await other.close()


async def test_a_mistake_is_told_to_its_stream(tmp_path: Path) -> None:
    """INTERFACES 4: an ErrorMessage with the reason in base64, and the connection goes on."""
    async with multiplexed_on(tmp_path) as broker:
        client = await Client.connect(broker.port)
        for wrong in (asserts("../etc", "s"), publishes("../etc", b"x", "s"), framed({"MessageType": "?"})):
            await client.send(wrong)
            frame = await next_frame(client)
            assert frame["MessageType"] == "ErrorMessage"
            assert base64.b64decode(frame["Body"])
        await client.send(publishes("fine", b"x"))
        client.writer.write_eof()
        assert await client.rest() == b""
        await client.close()
        assert await contents(broker.running, "fine") == [b"x"]


async def test_a_stream_that_does_not_read_holds_a_bounded_share(tmp_path: Path) -> None:
    """DESIGN 1, bounded: what is not read stays in the log, not in memory, and is there for it when it reads on."""
    async with multiplexed_on(tmp_path) as broker:
        client = await Client.connect(broker.port)
        await client.send(asserts("route", "slow"))
        await eventually(lambda: bool(broker.frontend._hubs), "it has subscribed")
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        size, count = 200_000, 200
        for _ in range(count):
            await broker.running.publish("route", bytes(size))
        (hub,) = broker.frontend._hubs.values()
        await eventually(lambda: bool(hub._leaving), "some cannot leave")
        assert len(hub._leaving) <= 16
        waiting = broker.running.view.subscriber("route", "multiplexed")
        assert waiting.backlog + waiting.in_flight > count // 2
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        for _ in range(count):
            assert len(await next_content(client, "slow")) == size
        await client.close()
