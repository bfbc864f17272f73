"""The msgpack bus: one connection a message, one connection a look.

Broken by hand to see these fail: a look that ends before what waits has been read; a message acknowledged that was not
written; a producer's bytes kept without a bound.
"""

import random
from functools import partial
from pathlib import Path

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncbrok.frontends.over_tcp.msgpack_bus import ConsumerCodec, FetchTopic, MsgpackBus, ProducerCodec
from syncbrok.frontends.over_tcp.session.peer_session import PeerFault
from syncbrok.model import limits
from tests.support.tcp.wire import HOST, Client, contents, frontend_on, split

bus_on = partial(frontend_on, make=lambda services: MsgpackBus(services, HOST, 0, 0))
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",), exclude_characters="\r\n"), max_size=20)


async def produce(port: int, data: bytes) -> None:
    """Send it as one connection; returns when the broker has closed it."""
    client = await Client.connect(port)
    await client.send(data)
    client.writer.write_eof()
    assert await client.rest() == b""
    await client.close()


async def look(port: int, topic: bytes) -> list[bytes]:
    client = await Client.connect(port)
    await client.send(topic + b"\n")
    received = await client.rest()
    await client.close()
    return received.splitlines()


@given(NAMES, st.one_of(st.binary(), NAMES), st.integers())
def test_a_message_is_the_same_in_any_split(topic: str, data: bytes | str, seed: int) -> None:
    """INTERFACES 4: bytes and strings, however TCP cuts them."""
    codec = ProducerCodec()
    for piece in split(msgpack.packb({"Topic": topic, "Data": data}), random.Random(seed)):
        assert not codec.feed(piece)
    assert codec.message() == (topic, data.encode() if isinstance(data, str) else data)


@given(NAMES, st.integers())
def test_a_look_is_the_same_in_any_split(topic: str, seed: int) -> None:
    """INTERFACES 4: up to the line feed, whatever follows."""
    codec = ConsumerCodec()
    pieces = split(topic.encode() + b"\nand more\n", random.Random(seed))
    assert [command for piece in pieces for command in codec.feed(piece)] == [FetchTopic(topic)]


@pytest.mark.parametrize("data", [b"\xc1", b"\x01", msgpack.packb({"Topic": "a"}), msgpack.packb([1, 2]), b"\x81\xa1a"])
def test_what_is_no_message_is_told(data: bytes) -> None:
    """CONTRIBUTING, errors: not one map with Topic and Data."""
    codec = ProducerCodec()
    codec.feed(data)
    with pytest.raises(PeerFault):
        codec.message()


def test_what_is_kept_is_bounded() -> None:
    """DESIGN 1, bounded: a producer that never ends costs one message of the largest size."""
    codec = ProducerCodec()
    for _ in range(100):
        if faults := codec.feed(bytes(limits.content_bytes_max // 10)):
            break
    assert isinstance(faults[0], PeerFault)
    assert not codec.partial_bytes
    (fault,) = ConsumerCodec().feed(bytes(2_000))
    assert isinstance(fault, PeerFault)


async def test_what_is_produced_is_consumed_once_and_in_order(tmp_path: Path) -> None:
    """INTERFACES 4: each look receives what waits, one line each; the position is shared and survives a restart."""
    async with bus_on(tmp_path) as broker:
        producers, consumers = broker.frontend.producers.port, broker.frontend.consumers.port
        for number in range(5):
            await produce(producers, msgpack.packb({"Topic": "orders", "Data": b"%d" % number}))
        assert await contents(broker.running, "orders") == [b"0", b"1", b"2", b"3", b"4"]
        assert await look(consumers, b"orders") == [b"0", b"1", b"2", b"3", b"4"]
        assert await look(consumers, b"orders") == []
        await produce(producers, msgpack.packb({"Topic": "orders", "Data": "text"}))
    async with bus_on(tmp_path) as broker:
        assert await look(broker.frontend.consumers.port, b"orders") == [b"text"]


async def test_a_mistake_closes_the_connection_and_publishes_nothing(tmp_path: Path) -> None:
    """CONTRIBUTING, errors: its format has no word for a mistake; the connection is closed, the log says why."""
    async with bus_on(tmp_path) as broker:
        await produce(broker.frontend.producers.port, b"nonsense")
        await produce(broker.frontend.producers.port, msgpack.packb({"Topic": "../etc", "Data": b"x"}))
        await produce(broker.frontend.producers.port, b"")
        assert await look(broker.frontend.consumers.port, b"../etc") == []
        assert broker.running.view.queues(None, 9) == ([], None)
