"""Where a subscription over the topics wire format starts, and that a client finds its place again.

Broken by hand to see these fail: an index that is not there yet taken for "now".
"""

import asyncio
import random
from pathlib import Path

from syncbrok.frontends.over_tcp import topics
from tests.frontends.over_tcp.test_topics import Prompt, next_message, subscribed, topics_on
from tests.support.broker.process import BrokerProcess


async def test_where_a_subscription_starts(tmp_path: Path) -> None:
    """INTERFACES 4: at the beginning, now, or from an index of the topic, which a client that comes back names."""
    async with topics_on(tmp_path) as broker:
        await broker.running.queue("a")
        for number in range(5):
            await broker.running.publish("a", b"%d" % number)
        beginning = await subscribed(broker.port, "a", start=topics.BEGINNING)
        third = await subscribed(broker.port, "a", start=topics.FROM, position=3)
        beyond = await subscribed(broker.port, "a", start=topics.FROM, position=99)
        now = await subscribed(broker.port, "a")
        await broker.running.publish("a", b"new")
        for client, expected in ((beginning, b"0"), (third, b"3"), (beyond, b"new"), (now, b"new")):
            assert await next_message(client) == ("a", expected)
            await client.close()


async def test_an_index_that_is_not_there_yet_is_the_next_message(tmp_path: Path) -> None:
    """INTERFACES 4: a client that has had everything names the index after it. What is accepted while it subscribes has
    that index, and is not missed."""
    async with topics_on(tmp_path) as broker:
        await broker.running.queue("a")
        for number in range(40):
            publishing = asyncio.create_task(broker.running.publish("a", b"%d" % number))
            client = await subscribed(broker.port, "a", start=topics.FROM, position=number)
            assert await next_message(client) == ("a", b"%d" % number)
            await publishing
            await client.close()


async def test_a_position_survives_a_crash(tmp_path: Path, seed: int) -> None:
    """INTERFACES 4: a client that comes back after kill -9 and names the index it has come to gets exactly the messages
    from there on, in order, those accepted since among them."""
    chance = random.Random(seed)
    broker = BrokerProcess(tmp_path / "storage", frontends=["topics"])

    async def publish(first: int, count: int) -> None:
        lines = "".join(f'{{"content": "{number}"}}\n' for number in range(first, first + count)).encode()
        sent = ("POST", "/v1/queues/a/messages:batch", lines, {"Content-Type": "application/x-ndjson"})
        assert (await asyncio.to_thread(broker.request, *sent)).status == 201

    with broker:
        broker.request("POST", "/v1/queues", {"name": "a"})
        position = 0
        for first in (0, 400, 800):
            await publish(first, 400)
            prompt = await Prompt.subscribed(broker.tcp["topics"], "a", start=topics.FROM, position=position)
            enough = position + chance.randint(50, 350)
            while position < enough:
                assert await prompt.take() == ("a", b"%d" % position)
                position += 1
            broker.kill()
            await prompt.client.close()
            broker.start()
        prompt = await Prompt.subscribed(broker.tcp["topics"], "a", start=topics.FROM, position=position)
        await publish(1_200, 100)
        while position < 1_300:
            assert await prompt.take() == ("a", b"%d" % position)
            position += 1
        await prompt.client.close()
