"""Who counts, seen from outside: those who only come to take messages do not decide the fate of others' (RULES 3)."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from syncbrok.delivery.handler import AttemptResult, Delivery
from syncbrok.frontends.ephemeral_subscribers import EphemeralSubscribers
from syncbrok.frontends.from_yaml import read_queues_file
from syncbrok.frontends.over_http.consuming import pull, streams
from syncbrok.frontends.over_http.leases import Leases
from syncbrok.frontends.over_tcp.framed import CONSUME as FRAMED_CONSUME
from syncbrok.frontends.over_tcp.framed import Framed, encode_message
from syncbrok.model import limits
from syncbrok.model.errors import BadConfig
from syncbrok.model.names import QueueName, SubscriberId, parse_message_id, sequence_of
from tests.support.http.api import Api, Serve
from tests.support.polling import eventually
from tests.support.space.spaces import ACKNOWLEDGED, REFUSED, Consumer, Running, running_space
from tests.support.tcp.wire import HOST, services_of

PATIENCE_S = 30.0


@asynccontextmanager
async def broker(
    served: Serve, directory: Path, answer: Any = lambda _: ACKNOWLEDGED
) -> AsyncIterator[tuple[Api, Running]]:
    """Queue ``shop`` with a webhook ``good``, and all ways to come for its messages."""
    async with running_space(directory, Consumer(answer), drain_s=0.1) as running:
        services = services_of(running)
        leases = Leases(services.channels.subscribers, services.consumers, services.number_of)
        ephemeral = EphemeralSubscribers(services.channels.subscribers, services.view, services.number_of, streams.NAME)
        routes = (*pull.routes(leases), *streams.routes(streams.Streams(leases, services.consumers, ephemeral)))
        async with served(services.channels, services.view, *routes) as api:
            if not running.view.queues(None, 9)[0]:
                await running.queue("shop", subscribers=["good"])
            yield api, running


async def family(api: Api, running: Running) -> list[bytes]:
    """A parent and its child are published; what the webhook has got once both have ended."""
    before = len(running.consumer.seen)
    parent = (await api.publish("shop", b"parent")).json()["id"]
    child = await api.publish("shop", b"child", {"Syncbrok-Parent": parent, "Prefer": "wait=20"})
    assert child.status == 200, "it has ended"
    assert (await api.get(f"/v1/messages/{child.json()['id']}")).json()["state"] == "complete"
    return [content for content, _ in running.consumer.seen[before:]]


async def test_a_silent_websocket_holds_nobody_up(served: Serve, tmp_path: Path) -> None:
    """RULES 3, 10: it neither answers nor leaves, and both go to the webhook."""
    async with (
        broker(served, tmp_path) as (api, running),
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{api.server.url}/v1/queues/shop/stream?start=now") as socket,
    ):
        subscribed = json.loads(await socket.receive_str(timeout=PATIENCE_S))
        shown = (await api.get(f"/v1/queues/shop/subscribers/{subscribed['subscriber']}")).json()
        assert (shown["counts"], shown["counts_since"]) == (False, None)
        assert await family(api, running) == [b"parent", b"child"]
        assert json.loads(await socket.receive_str(timeout=PATIENCE_S))["content"] == "parent"
        assert (await api.delete("/v1/queues/shop")).status == 200, "nothing waits in it"


async def test_a_group_that_pulled_once_holds_nobody_up(served: Serve, tmp_path: Path) -> None:
    """RULES 3: made by its first pull, and never seen again; what it is owed is listed, and counts for nobody."""
    async with broker(served, tmp_path) as (api, running):
        await api.post("/v1/queues/shop/pull", {"group": "ghost", "start": "now"})
        assert await family(api, running) == [b"parent", b"child"]
        id_ = (await api.publish("shop", b"more", {"Prefer": "wait=20"})).json()["id"]
        told = (await api.get(f"/v1/messages/{id_}")).json()
        assert told["state"] == "complete"
        assert [(one["subscriber"], one["state"], one["counted"]) for one in told["deliveries"]] == [
            ("good", "delivered", True),
            ("ghost", "pending", False),
        ]


async def pulled(api: Api, group: str, **asked: Any) -> list[dict[str, Any]]:
    reply = await api.post("/v1/queues/shop/pull", {"group": group, "start": "now", **asked})
    found: list[dict[str, Any]] = reply.json()["messages"]
    return found


async def test_its_child_comes_after_its_own_parent_and_after_the_others(served: Serve, tmp_path: Path) -> None:
    """RULES 11: at the group a child goes when its parents are complete, and the group has answered for them, either
    way."""
    held: list[bool] = [True]

    def answer(_: Delivery) -> AttemptResult | None:
        return None if held[0] else ACKNOWLEDGED

    async with broker(served, tmp_path, answer) as (api, running):
        await pulled(api, "workers")
        parent = (await api.publish("shop", b"parent")).json()["id"]
        await api.publish("shop", b"child", {"Syncbrok-Parent": parent})
        (lent,) = await pulled(api, "workers", wait=5)
        await api.post(f"/v1/leases/{lent['lease']}:nack")
        await eventually(lambda: running.view.subscriber("shop", "workers").dead_letters == 1, "it died there")
        assert await pulled(api, "workers") == [], "the webhook has not answered"
        held[0] = False
        running.consumer.release()
        (child,) = await pulled(api, "workers", wait=20)
        assert child["content"] == "child"
        letters = (await api.get("/v1/queues/shop/dead-letters")).json()["dead_letters"]
        assert [(one["id"], one["subscriber"]) for one in letters] == [(parent, "workers")]
        assert (await api.get(f"/v1/messages/{parent}")).json()["state"] == "complete"
        replayed = (await api.post("/v1/queues/shop/dead-letters/replay", {})).json()
        assert replayed["messages"] == 1
        (again,) = await pulled(api, "workers", wait=20)
        assert (again["id"], again["content"]) == (parent, "parent")


async def test_a_group_that_is_declared_counts(served: Serve, tmp_path: Path) -> None:
    """RULES 3: over HTTP with ``pull``; from then on messages wait for it."""
    async with broker(served, tmp_path) as (api, running):
        declared = await api.post("/v1/queues/shop/subscribers", {"name": "workers", "pull": True})
        assert declared.status == 201
        shown = declared.json()
        assert shown["endpoint"] == "consumer:pull"
        assert (shown["counts"], shown["counts_since"]) == (True, shown["since"])
        assert (await api.post("/v1/queues/shop/subscribers", {"name": "workers", "pull": True})).status == 200
        id_ = (await api.publish("shop", b"one")).json()["id"]
        (lent,) = await pulled(api, "workers", wait=5)
        await eventually(lambda: len(running.consumer.seen) == 1, "the webhook has it")
        assert (await api.get(f"/v1/messages/{id_}")).json()["state"] == "pending"
        await api.post(f"/v1/leases/{lent['lease']}:ack")
        await running.ended(parse_message_id(id_))


@pytest.mark.parametrize(
    "body",
    [
        {"pull": True},
        {"name": "a", "pull": True, "endpoint": "http://127.0.0.1:9/"},
        {"name": "a", "pull": "yes"},
        {"name": "a"},
        {"name": "a", "pull": False},
    ],
)
async def test_a_group_without_a_name_or_with_an_endpoint_is_none(served: Serve, tmp_path: Path, body: Any) -> None:
    """INTERFACES 3: the mistake is named."""
    async with broker(served, tmp_path) as (api, _):
        assert (await api.post("/v1/queues/shop/subscribers", body)).problem(400, "bad-setting")


async def test_it_is_changed_by_patch_and_back(served: Serve, tmp_path: Path) -> None:
    """RULES 3: ``counts: true`` holds for what comes after that fact, over a restart too; ``false`` frees what waits
    only for it."""
    async with broker(served, tmp_path) as (api, running):
        await pulled(api, "workers")
        before = (await api.publish("shop", b"before", {"Prefer": "wait=20"})).json()["id"]
        shown = (await api.patch("/v1/queues/shop/subscribers/workers", {"counts": True})).json()
        assert shown["counts_since"] > sequence_of(parse_message_id(before))
        after = (await api.publish("shop", b"after")).json()["id"]
        child = (await api.publish("shop", b"child", {"Syncbrok-Parent": after})).json()["id"]
    async with broker(served, tmp_path) as (api, running):
        shown = (await api.get("/v1/queues/shop/subscribers/workers")).json()
        assert shown["counts"] is True
        assert (await api.get(f"/v1/messages/{after}")).json()["state"] == "pending"
        assert (await api.get(f"/v1/messages/{before}")).json()["state"] == "complete"
        refused = await api.delete("/v1/queues/shop")
        assert refused.status == 409
        await api.patch("/v1/queues/shop/subscribers/workers", {"counts": False})
        await running.ended(parse_message_id(after), parse_message_id(child))
        got: list[str] = []
        async with asyncio.timeout(PATIENCE_S):
            while len(got) < 3:
                for lent in await pulled(api, "workers", wait=1):
                    got.append(lent["content"])
                    await api.post(f"/v1/leases/{lent['lease']}:ack")
        assert got == ["before", "after", "child"]


async def test_a_webhook_that_is_declared_not_to_count(served: Serve, tmp_path: Path) -> None:
    """RULES 3, 12: it fails, and no child dies of that."""

    def answer(delivery: Delivery) -> AttemptResult:
        return REFUSED if delivery.to.subscriber.id == "audit" else ACKNOWLEDGED

    async with broker(served, tmp_path, answer) as (api, running):
        await running.subscribe("shop", "audit", counts=False)
        assert (await family(api, running)).count(b"child") >= 1
        await eventually(lambda: running.view.subscriber("shop", "audit").dead_letters == 2, "both died there")


async def test_there_are_a_thousand_such_groups_at_most(served: Serve, tmp_path: Path) -> None:
    """RULES 15, bounded: whoever may consume makes no more of them; what is declared is not bounded by that."""
    async with broker(served, tmp_path) as (api, running):
        services = services_of(running)
        leases = Leases(services.channels.subscribers, services.consumers, services.number_of)
        names = [SubscriberId(f"g{one}") for one in range(limits.uncounted_per_queue_max)]
        await asyncio.gather(*(leases.number(QueueName("shop"), name, "now") for name in names))
        assert (await api.post("/v1/queues/shop/pull", {"group": "more"})).problem(429, "overloaded")
        assert (await api.post("/v1/queues/shop/pull", {"group": "g0"})).status == 200
        assert (await api.post("/v1/queues/shop/subscribers", {"name": "more", "pull": True})).status == 201


async def test_a_tcp_consumer_counts_in_a_queue_of_its_own_only(served: Serve, tmp_path: Path) -> None:
    """RULES 3, 17: what its format made counts it as ever; in a queue that was there before it only takes messages."""
    async with broker(served, tmp_path) as (api, running):
        frontend = Framed(services_of(running), HOST, 0)
        await frontend.start()
        try:
            for topic in ("shop", "own"):
                reader, writer = await asyncio.open_connection(HOST, frontend.listener.port)
                writer.write(encode_message(topic, "", b"", 1, FRAMED_CONSUME))
                async with asyncio.timeout(PATIENCE_S):
                    assert await reader.readexactly(4)
                writer.close()
            shown = {
                queue: [
                    (one.settings.counts)
                    for one in running.view.subscribers(queue, None, 9)[0]
                    if one.settings.endpoint.startswith("consumer:")
                ]
                for queue in ("shop", "own")
            }
            assert shown == {"shop": [False], "own": [True]}
            assert await family(api, running) == [b"parent", b"child"]
        finally:
            await frontend.stop()


IDLE_US = 5 * 24 * 3_600 * 1_000_000


async def test_a_group_that_nobody_uses_stops_counting(served: Serve, tmp_path: Path) -> None:
    """RULES 3: what waited for it goes on; it stays, takes what it is owed once somebody comes, and counts again when
    an operator says so."""
    async with broker(served, tmp_path) as (api, running):
        await api.post("/v1/queues/shop/subscribers", {"name": "workers", "pull": True})
        parent = (await api.publish("shop", b"parent")).json()["id"]
        child = (await api.publish("shop", b"child", {"Syncbrok-Parent": parent})).json()["id"]
        await eventually(lambda: len(running.consumer.seen) == 1, "the webhook has the parent")
        await running.space._maintenance.retire_unused(IDLE_US - 1)
        assert (await api.get(f"/v1/messages/{child}")).json()["state"] == "waiting"
        await running.space._maintenance.retire_unused(1)
        await running.ended(parse_message_id(parent), parse_message_id(child))
        shown = (await api.get("/v1/queues/shop/subscribers/workers")).json()
        assert (shown["counts"], shown["counts_since"], shown["declared"]) == (False, None, True)
        await running.space._maintenance.retire_unused(2 * IDLE_US)
        assert [one["content"] for one in await pulled(api, "workers", wait=5)] == ["parent"]
        shown = (await api.patch("/v1/queues/shop/subscribers/workers", {"counts": True})).json()
        assert shown["counts"] is True


async def test_a_group_that_nobody_declared_or_uses_goes(served: Serve, tmp_path: Path) -> None:
    """RULES 3: it was made by a pull, and the next pull would make it again. One that is declared meanwhile stays."""
    async with broker(served, tmp_path) as (api, running):
        await pulled(api, "ghost")
        await pulled(api, "workers")
        assert (await api.get("/v1/queues/shop/subscribers/ghost")).json()["declared"] is False
        declared = await api.post("/v1/queues/shop/subscribers", {"name": "workers", "pull": True})
        assert (declared.status, declared.json()["declared"], declared.json()["counts"]) == (200, True, True)
        await running.space._maintenance.retire_unused(IDLE_US)
        assert (await api.get("/v1/queues/shop/subscribers/ghost")).status == 404
        assert (await api.get("/v1/queues/shop/subscribers/workers")).status == 200


def test_a_file_declares_groups(tmp_path: Path) -> None:
    """RULES 18: ``pull: true`` instead of an endpoint, and ``counts`` for any."""
    path = tmp_path / "queues.yml"
    path.write_text(
        "queues:\n  shop:\n    subscribers:\n"
        "      - {name: workers, pull: true}\n"
        "      - {name: audit, endpoint: 'http://127.0.0.1:9/', counts: false}\n"
    )
    workers, audit = read_queues_file(path, {}).queues[0].subscribers
    assert (workers.id, workers.settings.endpoint, workers.settings.counts) == ("workers", "consumer:pull", True)
    assert audit.settings.counts is False
    path.write_text("queues:\n  shop:\n    subscribers:\n      - {pull: true}\n")
    with pytest.raises(BadConfig, match="name"):
        read_queues_file(path, {})
