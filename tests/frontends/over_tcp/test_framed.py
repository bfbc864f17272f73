"""The framed wire format: its codec, its recorded clients, and what they publish and take.

Broken by hand to see these fail: the two bytes that ``length`` leaves out counted; an empty answer that keeps its place
in the line; a message acknowledged when it is handed out, not when it is written; a frame without an end kept for ever.
"""

import random
import struct
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncbrok.frontends.over_tcp import framed
from syncbrok.frontends.over_tcp.framed import (
    Consume,
    Framed,
    FramedCodec,
    FramedPublish,
    Goodbye,
    encode_message,
    encode_notice,
)
from syncbrok.frontends.over_tcp.session.peer_session import PeerFault
from syncbrok.model import limits
from tests.support.polling import eventually
from tests.support.tcp.wire import HOST, HOW, Client, contents, frontend_on, play, recorded, said, split

framed_on = partial(frontend_on, make=lambda services: Framed(services, HOST, 0))
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=20)


def asks(topic: str) -> bytes:
    return encode_message(topic, "", b"", 1, framed.CONSUME)


def publishes(topic: str, content: bytes, key: str = "") -> bytes:
    return encode_message(topic, key, content, 1, framed.PUBLISH)


async def one_frame(client: Client) -> bytes:
    """A frame from the server, its timestamp blanked."""
    length, kind = struct.unpack(">IB", head := await client.receive(5))
    frame = head + await client.receive(length - 1 + (2 if kind in (framed.PUBLISH, framed.CONSUME) else 0))
    return frame[:5] + bytes(8) + frame[13:]


async def next_message(client: Client, topic: str) -> bytes:
    """Poll until there is one."""
    while True:
        await client.send(asks(topic))
        frame = await one_frame(client)
        if frame[4] == framed.CONSUME:
            return frame


def blanked(data: bytes) -> list[bytes]:
    """Frames of a recorded session, their timestamps blanked."""
    frames = []
    while data:
        length, kind = struct.unpack_from(">IB", data)
        end = 4 + length + (2 if kind in (framed.PUBLISH, framed.CONSUME) else 0)
        frames.append(data[:5] + bytes(8) + data[13:end])
        data = data[end:]
    return frames


# -- the codec --------------------------------------------------------------------------------------------------------


def flat(commands: list[framed.Command]) -> list[object]:
    """With runs of messages taken apart: how many come together depends on the pieces they came in."""
    told: list[object] = []
    for command in commands:
        if isinstance(command, FramedPublish):
            told += [(command.topic, command.key, content) for content in command.contents]
        else:
            told.append(command)
    return told


@given(
    st.lists(
        st.one_of(
            st.tuples(NAMES, NAMES, st.binary(max_size=50)),
            NAMES.map(Consume),
            NAMES.map(Goodbye),
        )
    ),
    st.integers(),
)
def test_frames_are_the_same_in_any_split(commands: list[object], seed: int) -> None:
    """INTERFACES 4: what was encoded is read again, however TCP cuts it."""
    data = b""
    for command in commands:
        if isinstance(command, Consume):
            data += asks(command.topic)
        elif isinstance(command, Goodbye):
            data += encode_notice(framed.GOODBYE, command.words.encode(), 1)
        else:
            topic, key, content = command
            data += publishes(topic, content, key)
    codec = FramedCodec()
    read = [command for piece in split(data, random.Random(seed)) for command in codec.feed(piece)]
    assert flat(read) == commands
    assert not codec.partial_bytes


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (struct.pack(">IBq", 3, 2, 0), "length 3"),
        (struct.pack(">IBq", 0xFFFF_FFFF, 2, 0), "at most"),
        (struct.pack(">IBq", 9, 9, 0), "type 9"),
        (struct.pack(">IBqB", 10, 2, 0, 200) + bytes(20), "topic"),
        (struct.pack(">IBqBcB", 10, 2, 0, 1, b"t", 77) + bytes(20), "key"),
    ],
)
def test_a_frame_that_cannot_be_is_told(data: bytes, words: str) -> None:
    """DESIGN 1, bounded: hostile lengths are refused before anything is kept for them, and nothing is read after."""
    codec = FramedCodec()
    *_, fault = codec.feed(data)
    assert isinstance(fault, PeerFault)
    assert words in str(fault)
    assert not codec.feed(publishes("topic", b"later"))


def test_at_most_one_frame_is_kept() -> None:
    """DESIGN 1, bounded: a peer that never ends its frame costs one message of the largest size."""
    codec = FramedCodec()
    head = struct.pack(">IBq", limits.content_bytes_max, 2, 0)
    assert codec.feed(head) == []
    for _ in range(30):
        commands = codec.feed(bytes(limits.content_bytes_max // 16))
        if commands:
            break
    assert len(codec._rest) <= limits.content_bytes_max + 600


# -- recorded clients -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", HOW)
async def test_the_recorded_session(tmp_path: Path, how: str, seed: int) -> None:
    """INTERFACES 4: the recorded producer and consumer are served as they were, whatever the pieces."""
    pieces = recorded("framed-pull")
    async with framed_on(tmp_path) as broker:
        received = await play(pieces, broker.port, how, random.Random(seed))
    for connection, data in received.items():
        assert blanked(data) == blanked(said(pieces, connection))


# -- what it does -----------------------------------------------------------------------------------------------------


async def test_publishes_are_kept_in_order_and_durable_at_the_end(tmp_path: Path) -> None:
    """INTERFACES 4: a client that publishes and closes has published all of it, in order, when the connection is closed
    by the broker; keys order as Syncbrok-Key does."""
    async with framed_on(tmp_path) as broker:
        client = await Client.connect(broker.port)
        await client.send(b"".join(publishes("shop", b"%d" % number) for number in range(2_500)))
        await client.send(publishes("shop", b"keyed", "k1"))
        client.writer.write_eof()
        assert await client.rest() == b""
        await client.close()
        assert await contents(broker.running, "shop") == [b"%d" % number for number in range(2_500)] + [b"keyed"]


async def test_all_who_ask_share_one_position(tmp_path: Path) -> None:
    """INTERFACES 4: each message goes to one poller, in order; a restart goes on behind the last one taken."""
    async with framed_on(tmp_path) as broker:
        for number in range(6):
            await broker.running.publish("shop", b"%d" % number) if number else await broker.running.queue("shop")
        one, other = await Client.connect(broker.port), await Client.connect(broker.port)
        taken = []
        for client in (one, other, one, other):
            await client.send(asks("shop"))
            taken.append((await one_frame(client))[-1:])
        assert taken == [b"1", b"2", b"3", b"4"]
        await broker.running.publish("shop", b"x")
        await one.close()
        await other.close()
    async with framed_on(tmp_path) as broker:
        client = await Client.connect(broker.port)
        for expected in (b"5", b"x"):
            await client.send(asks("shop"))
            assert (await one_frame(client))[-1:] == expected
        await client.send(asks("shop"))
        assert await one_frame(client) == encode_notice(framed.CONSUME_EMPTY, b"", 0)
        (members,) = broker.services.consumers._members.values()
        assert [member.window for member in members] == [0]  # nobody asks: nothing is handed out
        await client.close()


async def test_a_child_is_not_handed_out_before_its_parent(tmp_path: Path) -> None:
    """DESIGN 1, causal, over this frontend as over any: the parent is taken first, by whoever asks."""
    async with framed_on(tmp_path) as broker:
        await broker.running.queue("other")
        await broker.running.subscribe("other", "s", paused=True)
        await broker.running.queue("shop")
        parent = await broker.running.publish("other", b"parent")
        child = await broker.running.publish("shop", b"child", parent)
        client = await Client.connect(broker.port)
        await client.send(asks("shop"))
        assert await one_frame(client) == encode_notice(framed.CONSUME_EMPTY, b"", 0)
        await client.send(asks("shop"))
        assert await one_frame(client) == encode_notice(framed.CONSUME_EMPTY, b"", 0)
        await broker.running.put(unpause("other", "s"))
        await broker.running.ended(parent)
        assert (await next_message(client, "shop"))[-5:] == b"child"
        await broker.running.ended(child)
        await client.close()


def unpause(queue: str, name: str) -> object:
    from syncbrok.model.names import QueueName, SubscriberId
    from syncbrok.space.channels import ChangeSubscriber

    return ChangeSubscriber(QueueName(queue), SubscriberId(name), {"paused": False})


async def test_a_bad_name_is_told_and_the_connection_closed(tmp_path: Path) -> None:
    """CONTRIBUTING, errors: the goodbye says what is wrong with the topic, and nothing was published."""
    async with framed_on(tmp_path) as broker:
        client = await Client.connect(broker.port)
        await client.send(publishes("../etc", b"x"))
        goodbye = await one_frame(client)
        assert goodbye[4] == framed.GOODBYE
        assert b"is not a queue name" in goodbye
        assert await client.rest() == b""
        await client.close()
        assert broker.running.view.queues(None, 10) == ([], None)


async def test_one_who_goes_before_the_answer_takes_nothing(tmp_path: Path) -> None:
    """DESIGN 1, nothing lost: a poller that has gone when its message comes leaves it to the next."""
    async with framed_on(tmp_path) as broker:
        await broker.running.queue("shop")
        for _ in range(3):
            client = await Client.connect(broker.port)
            await client.send(asks("shop"))
            client.writer.transport.abort()
        id_ = await broker.running.publish("shop", b"hello")
        await eventually(lambda: not broker.frontend.listener._sessions, "those who went are gone")
        client = await Client.connect(broker.port)
        assert (await next_message(client, "shop"))[-5:] == b"hello"
        await broker.running.ended(id_)
        await client.close()
