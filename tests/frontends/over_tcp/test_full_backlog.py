"""What a queue that bounds its backlog means for peers that hear no answers: they are not read until there is room."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from syncbrok.frontends.over_tcp.framed import Framed
from syncbrok.frontends.over_tcp.msgpack_bus import MsgpackBus
from syncbrok.frontends.over_tcp.multiplexed import Multiplexed
from syncbrok.frontends.over_tcp.session.services import TcpServices
from syncbrok.frontends.over_tcp.session.unacked_publisher import UnackedPublisher
from syncbrok.frontends.over_tcp.topics import Topics
from syncbrok.model.message import BacklogBound, QueueSettings
from syncbrok.model.names import QueueName
from syncbrok.space.channels import ChangeQueue, MessageChannel
from tests.frontends.over_tcp.test_largest_message import PUBLISHES
from tests.support.polling import eventually
from tests.support.space.spaces import ACKNOWLEDGED, Running
from tests.support.tcp.wire import HOST, Client, contents, frontend_on

PEERS: dict[str, Callable[[TcpServices], Any]] = {
    "framed": lambda services: Framed(services, HOST, 0),
    "topics": lambda services: Topics(services, HOST, 0),
    "multiplexed": lambda services: Multiplexed(services, HOST, 0),
}


def backlog(running: Running) -> int:
    return running.view.queue("shop").backlog


@pytest.mark.parametrize("name", PEERS)
async def test_a_peer_is_not_read_while_its_queue_is_full(name: str, tmp_path: Path) -> None:
    """RULES 35, INTERFACES 4: 300 messages for a queue that lets 7 stand come through it all, in order, as others end:
    never more than 7 stand, the connection stays, and what the peer sends beyond that is not read."""
    async with frontend_on(tmp_path, PEERS[name]) as broker:
        running = broker.running
        running.consumer.answer = lambda _: None
        await running.queue("shop", QueueSettings(max_backlog=BacklogBound(7)), subscribers=["a"])
        client = await Client.connect(broker.port)
        sent = [b"%d" % number for number in range(300)]
        written = [PUBLISHES[name](b"shop", one) for one in sent]
        if name == "topics":  # it says once that it publishes
            written = [written[0], *(one[2:] for one in written[1:])]
        for one in written:
            await client.send(one)
        most = 0
        while running.view.queue("shop").accepted < len(sent):
            await eventually(lambda: backlog(running) > 0, "there is something")
            most = max(most, backlog(running))
            running.consumer.release()
            await asyncio.sleep(0)  # the broker has its turn
        assert 1 <= most <= 7
        assert await contents(running, "shop") == sent
        running.consumer.answer = lambda _: ACKNOWLEDGED
        running.consumer.release()
        await eventually(lambda: backlog(running) == 0, "nothing is stuck")
        await client.close()


class CountingChannel:
    """Hands over to another channel, and counts."""

    def __init__(self, channel: MessageChannel) -> None:
        self._channel = channel
        self.put_shared = channel.put_shared
        self.count = 0

    def put(self, item: Any) -> "asyncio.Future[Any]":
        self.count += 1
        return self._channel.put(item)


async def test_a_full_queue_is_asked_again_when_it_has_room(tmp_path: Path) -> None:
    """RULES 35: who waits for room is told of it. What a full queue has refused is handed over once more, however long
    it was full: many peers that wait for one dead subscriber cost nothing."""
    async with frontend_on(tmp_path, PEERS["framed"]) as broker:
        running = broker.running
        running.consumer.answer = lambda _: None
        await running.queue("shop", QueueSettings(max_backlog=BacklogBound(1)), subscribers=["a"])
        channel = CountingChannel(running.space.channels.messages)
        refused: list[BaseException] = []
        publisher = UnackedPublisher(broker.services.queues, channel, refused.append)
        both = [asyncio.ensure_future(publisher.publish("shop", [one]) or _nothing()) for one in (b"first", b"second")]
        await asyncio.wait(both, timeout=0.3)
        assert (channel.count, backlog(running)) == (2, 1)
        running.consumer.release()
        async with asyncio.timeout(0.5):  # the look that misses nothing comes after a second
            await asyncio.gather(*both)
        assert (channel.count, refused) == (3, [])
        assert await contents(running, "shop") == [b"first", b"second"]


async def _nothing() -> None:
    """There is nothing to wait for."""


async def test_a_producer_that_has_gone_is_published_when_there_is_room(tmp_path: Path) -> None:
    """RULES 35: one who sends a message and closes has published it, though its queue was full then."""
    async with frontend_on(tmp_path, lambda services: MsgpackBus(services, HOST, 0, 0)) as broker:
        running = broker.running
        running.consumer.answer = lambda _: None
        await running.queue("shop", QueueSettings(max_backlog=BacklogBound(1)), subscribers=["a"])
        await running.publish("shop", b"first")
        client = await Client.connect(broker.frontend.producers.port)
        await client.send(PUBLISHES["msgpack_bus.producer_port"](b"shop", b"second"))
        client.writer.write_eof()
        rest = asyncio.create_task(client.rest())
        await eventually(lambda: len(running.consumer.held) == 1, "the first is out")
        assert await contents(running, "shop") == [b"first"]
        running.consumer.release()
        assert await rest == b""
        assert await contents(running, "shop") == [b"first", b"second"]
        await client.close()


async def test_what_was_under_way_when_the_bound_came_is_not_lost(tmp_path: Path) -> None:
    """RULES 35: a bound set while a peer publishes: each message of it is accepted, once there is room."""
    async with frontend_on(tmp_path, PEERS["framed"]) as broker:
        running = broker.running
        running.consumer.answer = lambda _: None
        await running.queue("shop", subscribers=["a"])
        client = await Client.connect(broker.port)
        sent = [b"%d" % number for number in range(2_000)]
        change = running.put(ChangeQueue(QueueName("shop"), {"max_backlog": BacklogBound(3)}))
        await asyncio.gather(change, *(client.send(PUBLISHES["framed"](b"shop", one)) for one in sent))
        running.consumer.answer = lambda _: ACKNOWLEDGED
        running.consumer.release()
        await eventually(lambda: running.view.queue("shop").accepted == len(sent), "all of them")
        assert sorted(await contents(running, "shop")) == sorted(sent)
        await client.close()
