"""Consuming with the Python client, against a real broker: by pull, over a WebSocket, with decorators and by hand.

Broken by hand to see these fail: an acknowledgement that is never sent; one that is forgotten when the consumer stops;
a stream that begins at the end after a restart.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from syncbrok.client import Client, Received, Refuse, Refused, SyncClient
from tests.support.broker.process import BrokerProcess
from tests.support.polling import eventually


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "storage") as running:
        assert running.request("POST", "/v1/queues", {"name": "shop", "retry": ["0s", "0s", "0s"]}).status == 201
        yield running


@pytest.fixture
async def client(broker: BrokerProcess) -> AsyncIterator[Client]:
    async with Client(broker.url) as connected:
        yield connected


def subscribers(broker: BrokerProcess) -> list[str]:
    shown = broker.request("GET", "/v1/queues/shop/subscribers").json()["subscribers"]
    return [one["id"] for one in shown]


HANDLED = {("fine", 1), ("refuse", 1), ("refuse", 2), ("fail", 1), ("fail", 2), ("fail", 3)}
"""what ``stumbling`` is sent of these, by text and attempt"""


def stumbling(seen: list[tuple[str, int]]) -> Callable[[Received], Awaitable[None]]:
    """Handles well what is neither to be refused once nor to fail twice."""

    async def handle(message: Received) -> None:
        seen.append((message.text(), message.attempt))
        if message.text() == "refuse" and message.attempt == 1:
            raise Refuse("not yet")
        if message.text() == "fail" and message.attempt < 3:
            raise ValueError("a mistake of the handler")

    return handle


def declare_group(broker: BrokerProcess, name: str) -> None:
    """One that messages wait for (RULES 3)."""
    declared = broker.request("POST", "/v1/queues/shop/subscribers", {"name": name, "pull": True, "start": "beginning"})
    assert declared.status == 201, declared


async def test_a_consumer_handles_refuses_and_fails(broker: BrokerProcess, client: Client) -> None:
    """INTERFACES 3: returning acknowledges, raising refuses, and the queue's schedule brings it again."""
    seen: list[tuple[str, int]] = []
    client.consumer("shop", group="workers", concurrency=4)(stumbling(seen))
    declare_group(broker, "workers")
    running = asyncio.create_task(client.run())
    published = await client.publish_many("shop", ["fine", "refuse", "fail", *map(str, range(40))])
    assert [await client.wait(one) for one in published] == ["complete"] * 43
    assert {one for one in seen if not one[0].isdigit()} == HANDLED
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_consumer_that_stops_has_answered_everything(client: Client) -> None:
    """INTERFACES 3: what was handled is acknowledged before ``run`` returns, over both ways; the rest waits for the
    next of the group."""
    for way, register in (("pull", client.consumer("shop", "pullers", concurrency=2)),
                          ("stream", client.stream("shop", "streamers", start="beginning", window=2))):  # fmt: skip
        handled: list[str] = []

        async def handle(message: Received, handled: list[str] = handled) -> None:
            handled.append(message.id)
            if len(handled) >= 10:
                client.stop()
            await asyncio.sleep(0)

        register(handle)
        published = await client.publish_many("shop", [f"{way} {number}" for number in range(50)])
        async with asyncio.timeout(30):
            await client.run()
        assert 10 <= len(handled) < len(published)
        group = {"pull": "pullers", "stream": "streamers"}[way]
        rest = []
        while some := await client.pull("shop", group, most=100, wait_s=1):
            rest += some
        assert not set(handled) & {message.id for message in rest if message.attempt == 1}
        assert {message.id for message in rest} >= {one.id for one in published} - set(handled)
        client._consumptions.clear()
        client._subscriptions.clear()


@pytest.mark.parametrize("cancelled", [False, True])
async def test_leaving_the_client_ends_a_consumer_that_still_runs(broker: BrokerProcess, cancelled: bool) -> None:
    """Whether its task was cancelled a moment before or forgotten: what was handled is acknowledged, and the task has
    ended as cancelled, not with an error of a connection that was closed under it."""
    done = asyncio.Event()
    async with Client(broker.url) as client:

        @client.consumer("shop", group="workers", start="beginning")
        async def handle(_: Received) -> None:
            done.set()

        running = asyncio.create_task(client.run())
        published = await client.publish("shop", "once")
        await done.wait()
        await asyncio.sleep(0)  # the handler has returned, its acknowledgement lingers
        if cancelled:
            running.cancel()
    assert running.done()
    assert running.cancelled()
    async with Client(broker.url) as client:
        assert await client.wait(published, 5) == "complete"


async def test_a_stream_handles_refuses_and_survives_the_broker(broker: BrokerProcess) -> None:
    """INTERFACES 3: over a WebSocket as by pull: returning acknowledges, raising refuses; a broker that is killed is
    found again, and a group goes on where it was."""
    seen: list[tuple[str, int]] = []
    async with Client(broker.url) as client:
        client.stream("shop", group="watchers", start="beginning", window=4)(stumbling(seen))
        declare_group(broker, "watchers")
        running = asyncio.create_task(client.run())
        published = await client.publish_many("shop", ["fine", "refuse", "fail", *map(str, range(40))])
        assert [await client.wait(one) for one in published] == ["complete"] * 43
        assert {one for one in seen if not one[0].isdigit()} == HANDLED
        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.start)
        assert await client.wait(await client.publish("shop", "after")) == "complete"
        assert ("after", 1) in seen
        client.stop()
        await running


async def test_a_stream_without_a_group_begins_where_it_says(broker: BrokerProcess, client: Client) -> None:
    """INTERFACES 3: ``start`` is now, beginning or a sequence; nothing of it stays behind."""
    published = await client.publish_many("shop", [str(number) for number in range(5)])
    sequence = (await client.message(published[3]))["sequence"]
    seen: dict[str, list[str]] = {"beginning": [], "sequence": [], "now": []}
    for name, start in (("beginning", "beginning"), ("sequence", sequence), ("now", "now")):

        @client.stream("shop", start=start)
        async def handle(message: Received, seen: list[str] = seen[name]) -> None:
            seen.append(message.text())

    running = asyncio.create_task(client.run())
    await eventually(lambda: len(subscribers(broker)) == 3, "all three listen")
    await client.publish("shop", "5")
    expected = {"beginning": [*"012345"], "sequence": [*"345"], "now": ["5"]}
    await eventually(lambda: seen == expected, "each has what it asked for")
    client.stop()
    await running
    await eventually(lambda: subscribers(broker) == [], "they leave nothing behind")


async def test_a_new_group_begins_where_it_says(client: Client) -> None:
    """INTERFACES 3: at the beginning, now, or at a sequence; one that is there already goes on where it was."""
    published = await client.publish_many("shop", ["0", "1", "2"])
    sequence = (await client.message(published[1]))["sequence"]
    assert await client.pull("shop", "late", start="now", wait_s=0) == []
    assert [one.text() for one in await client.pull("shop", "some", start=sequence, wait_s=5)] == ["1", "2"]
    assert [one.text() for one in await client.pull("shop", "all", wait_s=5)] == ["0", "1", "2"]
    await client.publish("shop", "3")
    assert [one.text() for one in await client.pull("shop", "late", start="beginning", wait_s=5)] == ["3"]


async def test_leases_by_hand(client: Client) -> None:
    """INTERFACES 3: extend, refuse, acknowledge; a lease that is over is told."""
    await client.pull("shop", wait_s=0)
    await client.publish("shop", "x")
    (message,) = await client.pull("shop", wait_s=5)
    await client.extend(message, 60)
    await client.refuse(message, "later")
    with pytest.raises(Refused, match="410"):
        await client.extend(message)
    async for again in client.messages("shop"):
        assert again.attempt == 2
        assert await client.acknowledge(message, again) == 1
        break


def test_functions_consume_without_asyncio(broker: BrokerProcess) -> None:
    """INTERFACES 3: the decorators for programs without asyncio: a function handles each message in a thread, may
    publish, and lets ``run`` return."""
    with SyncClient(broker.url) as client:
        seen: list[tuple[str, str]] = []

        def saw(who: str, message: Received) -> None:
            seen.append((who, message.text()))
            if len(seen) == 4:
                client.stop()

        @client.consumer("shop", group="workers", concurrency=4)
        def work(message: Received) -> None:
            if message.text() == "question":
                client.publish("shop", "answer", parents=[message.id])
            saw("worker", message)

        @client.stream("shop", group="watchers", start="beginning")
        def watch(message: Received) -> None:
            saw("watcher", message)

        client.pull("shop", "workers", wait_s=0)
        client.publish("shop", "question")
        client.run()
        for who in ("worker", "watcher"):
            assert [text for one, text in seen if one == who] == ["question", "answer"]
