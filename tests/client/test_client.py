"""The Python client, against a real broker: batches, parents, repeats, leases, signatures.

Broken by hand to see these fail: a key that changes with each repeat; a parent of the same batch named by nothing; one
bad message that takes its batch along; an acknowledgement that is never sent.
"""

import asyncio
import base64
import hmac
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from syncbrok.client import (
    BadSignature,
    Client,
    Draft,
    Received,
    Refused,
    SyncClient,
    Unreachable,
    check_secret,
    verify,
)
from syncbrok.client.messages import Content
from tests.support.broker.process import BrokerProcess, held_port
from tests.support.http.recorder import Recorder
from tests.support.polling import eventually
from tests.support.servers import close_server

SECRET = "whsec_c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0"
OTHER_SECRET = "whsec_b3RoZXIgb3RoZXIgb3RoZXIgb3RoZXIgb3RoZXI="


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


async def test_a_queue_that_is_not_there_is_told_once(client: Client) -> None:
    """CONTRIBUTING, errors: where no line is to blame, a thousand messages are refused by one answer, not searched."""
    pending = [await client.post("nothing", str(number)) for number in range(1_000)]
    outcomes = await asyncio.gather(*(one.future for one in pending), return_exceptions=True)
    assert isinstance(outcomes[0], Refused)
    assert all(outcome is outcomes[0] for outcome in outcomes)


@pytest.mark.parametrize("text", ["a b", "..", "a\r\nX-Y: z", "x?y#z", "a/b", "%zz", "\u00e9"])
async def test_what_is_asked_for_is_one_segment_of_a_path(broker: BrokerProcess, client: Client, text: str) -> None:
    """INTERFACES 5: names and ids go out percent-encoded, whatever they hold: what is none is refused by the broker,
    and never another request or another path."""
    with pytest.raises(Refused) as refused:
        await client.message(text)
    assert refused.value.status == 400
    if text in ("..", "a\r\nX-Y: z", "a/b"):
        with pytest.raises(Refused) as refused:
            await client.pull(text, wait_s=0.0)
        assert refused.value.status == 400
    else:
        await client.declare(text)
        assert (await client.publish(text, "x")).id
        (lent,) = await client.pull(text, wait_s=5.0)
        assert (lent.text(), await client.acknowledge(lent)) == ("x", 1)
    queues = broker.request("GET", "/v1/queues").json()["queues"]
    assert {one["name"] for one in queues} <= {text, "shop"}


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


class AnswerLost:
    """A way to the broker on which the first answer to a batch gets lost: as it begins the broker is killed, and
    started again; so the batch is durable and nobody was told."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self.lost = 0
        self.url = ""

    async def __aenter__(self) -> Self:
        self._serving: set[asyncio.Task[Any]] = set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await close_server(self._server)
        await asyncio.wait(self._serving)  # the client has closed its connections

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        back = writer
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._broker.port)
            asking = asyncio.create_task(self._pass_on(reader, back))
            await self._answer(there, writer)
            writer.close()
            await asking
        except OSError:
            pass  # the broker is not there yet
        finally:
            for one in (writer, back):
                one.close()

    async def _answer(self, there: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while answer := await there.read(65_536):
            if not self.lost and b'"ids"' in answer:
                self.lost += 1
                await asyncio.to_thread(self._broker.kill)
                await asyncio.to_thread(self._broker.start)
                return
            writer.write(answer)

    @staticmethod
    async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while some := await reader.read(65_536):
            writer.write(some)
        writer.close()


@pytest.mark.parametrize("content", ["x", b"\xff", {"a": "\n"}])
async def test_a_batch_whose_answer_was_lost_is_published_once(broker: BrokerProcess, content: Content) -> None:
    """RULES 4: kill -9 between the fsync and the answer; the client repeats the batch, and the next process knows every
    line of it."""
    async with AnswerLost(broker) as way, Client(way.url) as client:
        published = await client.publish_many("shop", [content] * 700)
        assert way.lost == 1
        assert len({one.id for one in published}) == 700
        assert accepted(broker) == 700
        (first, *_), last = await everything(client), published[-1]
        assert first.id == published[0].id
        assert (await client.message(last))["state"] in ("pending", "complete")


async def test_without_keys_a_lost_answer_is_told(broker: BrokerProcess) -> None:
    """INTERFACES 3: no answer means unknown; without keys it is not repeated, and whoever published hears of it."""
    async with AnswerLost(broker) as way, Client(way.url, idempotent=False) as client:
        with pytest.raises(Unreachable, match="not known whether"):
            await client.publish("shop", "x")
        assert accepted(broker) == 1


async def test_parents_in_two_queues_do_not_wait_for_each_other(broker: BrokerProcess, client: Client) -> None:
    """DESIGN 1, causal: families over two queues, nothing awaited in between: each batch goes as soon as it can."""
    assert broker.request("POST", "/v1/queues", {"name": "bills"}).status == 201
    first = await client.post("bills", "first")
    second = await client.post("shop", Draft("second", parents=(first,)))
    third = await client.post("shop", "third")
    fourth = await client.post("bills", Draft("fourth", parents=(third, second)))
    async with asyncio.timeout(20):
        shown = await client.message(await fourth)
    assert shown["parents"] == [(await third).id, (await second).id]


async def test_what_cannot_be_written_is_told_and_harms_nobody(broker: BrokerProcess, client: Client) -> None:
    """CONTRIBUTING, errors: content that is no JSON, a parent that is no message: who gave it is told at once."""
    fine = await client.post("shop", "fine")
    number: Any = 7
    wrong = [Draft({"a": object()}), Draft("x", parents=(number,)), Draft({"not": {1, 2}})]
    for draft in wrong:
        with pytest.raises(TypeError):
            await client.post("shop", draft)
    assert (await fine).queue == "shop"
    assert accepted(broker) == 1


async def test_another_server_is_found_out() -> None:
    """CONTRIBUTING, errors: an address where something else answers 200."""
    with Recorder() as other:
        async with Client(other.url) as client:
            with pytest.raises(Refused, match="is not Syncbrok"):
                await client.publish("shop", "x")


async def test_a_broker_that_is_not_there_is_told() -> None:
    """CONTRIBUTING, errors: where it is, how long it was tried and what happened."""
    with held_port() as port:
        async with Client(f"http://127.0.0.1:{port}", give_up_s=0.2) as client:
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
    assert verify(request.body, request.headers, [OTHER_SECRET, SECRET]) == request.id
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


@pytest.mark.parametrize("secrets", ["", "whsec_", "whsec_" + base64.b64encode(bytes(23)).decode(), [], [SECRET, ""]])
def test_what_anybody_could_sign_is_not_genuine(secrets: str | list[str]) -> None:
    """INTERFACES 3, secrets: with an empty or short secret everybody's webhook would be genuine; it is refused in
    words, and so is the start of a receiver that has none, whatever the request."""
    now, id_ = str(int(time.time())), "0193b1b2-0000-8000-8000-000000000001"
    for secret in [secrets] if isinstance(secrets, str) else secrets:
        key = base64.b64decode(secret.removeprefix("whsec_"))
        signature = base64.b64encode(hmac.digest(key, f"{id_}.{now}.forged".encode(), "sha256")).decode()
        headers = {"webhook-id": id_, "webhook-timestamp": now, "webhook-signature": f"v1,{signature}"}
        for request in (headers, {}):
            with pytest.raises(ValueError, match="secret"):
                verify(b"forged", request, secrets)
    if not secrets:
        with pytest.raises(ValueError, match="secret"):
            verify(b"", {}, secrets)
    if isinstance(secrets, str):
        with pytest.raises(ValueError, match="24 bytes or more, this one has"):
            check_secret(secrets)
    assert check_secret(SECRET) == SECRET
