"""The Python client, against a real broker: batches, parents, repeats, leases, signatures.

Broken by hand to see these fail: a key that changes with each repeat; a parent of the same batch named by nothing; one
bad message that takes its batch along; an acknowledgement that is never sent.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from syncbrok.client import (
    BadSignature,
    Client,
    Draft,
    Received,
    Refuse,
    Refused,
    SyncClient,
    Unreachable,
    verify,
)
from tests.support.polling import eventually
from tests.support.process import BrokerProcess, free_port
from tests.support.recorder import Recorder

SECRET = "whsec_c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "storage") as running:
        assert running.request("POST", "/v1/queues", {"name": "shop", "retry": ["0s", "0s", "0s"]}).status == 201
        yield running


@pytest.fixture
async def client(broker: BrokerProcess) -> AsyncIterator[Client]:
    async with Client(broker.url) as connected:
        yield connected


def accepted(broker: BrokerProcess) -> int:
    return int(broker.request("GET", "/v1/queues/shop").json()["statistics"]["accepted"])


async def everything(client: Client) -> list[Received]:
    """All messages of the queue, in the order accepted."""
    messages: list[Received] = []
    while some := await client.pull("shop", most=1_000, wait_s=1):
        messages += some
    return sorted(messages, key=lambda message: message.sequence)


async def test_messages_published_at_once_share_batches_and_keep_their_order(
    broker: BrokerProcess, client: Client
) -> None:
    """INTERFACES 3: what was published first is accepted first, whatever the batches; text, bytes and JSON."""
    published = await client.publish_many("shop", [f"{number}" for number in range(2_500)])
    await client.publish("shop", b"\xff")
    await client.publish("shop", {"a": [1]})
    messages = await everything(client)
    assert [message.id for message in messages[:2_500]] == [one.id for one in published]
    assert [message.text() for message in messages[:2_500]] == [str(number) for number in range(2_500)]
    assert messages[2_500].content == b"\xff"
    assert messages[2_501].json() == {"a": [1]}
    assert accepted(broker) == 2_502


async def test_parents_are_messages_published_or_on_their_way(client: Client) -> None:
    """DESIGN 1, causal: a parent may be in the same batch, in an earlier one, in another queue, or named by its id."""
    first = await client.publish("shop", "first")
    on_its_way = await client.post("shop", "second")
    child = await client.post("shop", Draft("child", parents=(first, on_its_way, first.id)))
    grandchild = await client.publish("shop", "grandchild", parents=[child])
    shown = await client.message(grandchild)
    assert shown["parents"] == [(await child).id]
    assert set((await client.message(await child))["parents"]) == {first.id, (await on_its_way).id}


async def test_a_wrong_message_does_not_take_its_batch_along(broker: BrokerProcess, client: Client) -> None:
    """INTERFACES 3: a batch is all or nothing; the client finds the one that was refused and publishes the others."""
    unknown = "01a1fba6-f093-8000-8000-000104aafc26"
    pending = [
        await client.post("shop", Draft(str(number), parents=(unknown,) if number == 7 else ())) for number in range(50)
    ]
    outcomes = await asyncio.gather(*(one.future for one in pending), return_exceptions=True)
    wrong = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, Refused)]
    assert wrong == [7]
    assert accepted(broker) == 49
    with pytest.raises(Refused, match="no queue 'nothing'"):
        await client.publish("nothing", "x")


async def test_a_broker_that_is_killed_gets_each_message_once(broker: BrokerProcess) -> None:
    """RULES 4: what is repeated after silence carries the key it had; kill -9 in the middle, nothing twice and nothing
    missing."""
    async with Client(broker.url, batch_lines_max=50) as client:
        publishing = asyncio.create_task(client.publish_many("shop", [str(number) for number in range(3_000)]))
        for _ in range(3):
            before = accepted(broker)
            await eventually(lambda: accepted(broker) >= min(3_000, before + 200), "some are accepted")  # noqa: B023
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)
        published = await publishing
        assert len({one.id for one in published}) == 3_000
        assert [message.text() for message in await everything(client)] == [str(number) for number in range(3_000)]


async def test_a_broker_that_is_not_there_is_told() -> None:
    """CONTRIBUTING, errors: where it is, how long it was tried and what happened."""
    async with Client(f"http://127.0.0.1:{free_port()}", give_up_s=0.2) as client:
        with pytest.raises(Unreachable, match="did not take it within"):
            await client.publish("shop", "x")


async def test_waiting_for_the_end(broker: BrokerProcess, client: Client) -> None:
    """RULES 8: the state in which a message has ended, or that it has not."""
    message = await client.publish("shop", "x")
    assert await client.wait(message) == "complete"  # nobody subscribes
    broker.request(
        "POST", "/v1/queues/shop/subscribers", {"name": "s", "endpoint": "http://127.0.0.1:1/", "paused": True}
    )
    with pytest.raises(TimeoutError, match="pending"):
        await client.wait(await client.publish("shop", "y"), timeout_s=0.2)


async def test_a_consumer_handles_refuses_and_fails(client: Client) -> None:
    """INTERFACES 3: returning acknowledges, raising refuses, and the queue's schedule brings it again."""
    seen: list[tuple[str, int]] = []

    @client.consumer("shop", group="workers", concurrency=4)
    async def handle(message: Received) -> None:
        seen.append((message.text(), message.attempt))
        if message.text() == "refuse" and message.attempt == 1:
            raise Refuse("not yet")
        if message.text() == "fail" and message.attempt < 3:
            raise ValueError("a mistake of the handler")

    await client.pull("shop", group="workers", wait_s=0)  # the group is there before the messages
    running = asyncio.create_task(client.run())
    published = await client.publish_many("shop", ["fine", "refuse", "fail", *map(str, range(40))])
    assert [await client.wait(one) for one in published] == ["complete"] * 43
    assert {one for one in seen if not one[0].isdigit()} == {
        ("fine", 1), ("refuse", 1), ("refuse", 2), ("fail", 1), ("fail", 2), ("fail", 3),
    }  # fmt: skip
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


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


def test_without_asyncio(broker: BrokerProcess) -> None:
    """The same words for programs that wait: from several threads at once."""
    with SyncClient(broker.url) as client:
        parent = client.publish("shop", "parent")
        child = client.publish("shop", "child", parents=[parent])
        assert client.message(child)["parents"] == [parent.id]
        threads = [
            threading.Thread(target=client.publish_many, args=("shop", [f"{at} {n}" for n in range(100)]))
            for at in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert accepted(broker) == 402
        messages = client.pull("shop", most=10, wait_s=5)
        assert client.acknowledge(*messages) == 10
        assert client.wait(parent) == "complete"


def test_webhooks_of_the_broker_are_verified(broker: BrokerProcess) -> None:
    """INTERFACES 3: what the broker signs is right, and nothing else is."""
    with Recorder() as hook:
        subscriber = {"name": "hook", "endpoint": hook.url, "secret": SECRET}
        assert broker.request("POST", "/v1/queues/shop/subscribers", subscriber).status == 201
        broker.request("POST", "/v1/queues/shop/messages", b"hello")
        (request,) = hook.wait_for(1)
    assert verify(request.body, request.headers, ["whsec_b3RoZXI=", SECRET]) == request.id
    for body, headers in (
        (b"hallo", request.headers),
        (request.body, {**request.headers, "webhook-id": "other"}),
        (request.body, {**request.headers, "webhook-timestamp": "1"}),
        (request.body, {**request.headers, "webhook-signature": "v2,AAAA"}),
        (request.body, {}),
    ):
        with pytest.raises(BadSignature):
            verify(body, headers, SECRET)
    with pytest.raises(BadSignature, match="away from now"):
        verify(request.body, request.headers, SECRET, now_s=int(request.headers["webhook-timestamp"]) + 301)
    with pytest.raises(ValueError, match="whsec_"):
        verify(request.body, request.headers, "whsec_!")
