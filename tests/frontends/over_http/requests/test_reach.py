"""A token for some queues only sees those, whichever way it asks (INTERFACES 1, tokens)."""

import asyncio
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from syncbrok.cli.serve.log_files import LogFiles
from syncbrok.frontends.ephemeral_subscribers import EphemeralSubscribers
from syncbrok.frontends.over_http.app import _ROUTES
from syncbrok.frontends.over_http.consuming import pull, streams
from syncbrok.frontends.over_http.leases import Leases
from syncbrok.frontends.over_http.resources import events, log_readers, log_segments, page, tokens
from syncbrok.model.tokens import SCOPES, Token, parse_scopes
from tests.support.http.api import Api, Reply, Serve
from tests.support.http.space import ENDPOINT
from tests.support.space.spaces import Consumer, journal_of, running_space
from tests.support.tcp.wire import services_of

NEVER = "01a1fba6-f093-8000-8000-000104aafc26"


def token(name: str, scopes: Any) -> Token:
    return Token(name, sha256(f"secret of {name}".encode()).hexdigest(), *parse_scopes(scopes))


TOKENS = (
    *(token(f"{scope}-only", {scope: ["shop.*"]}) for scope in SCOPES),
    token("all", [*SCOPES]),
    token("shop", {scope: ["shop.*"] for scope in SCOPES}),
    token("till", {"publish": ["shop.*", "bills"]}),
)


def of(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer secret of {name}"}


SHOP = of("shop")


@pytest.fixture
async def api(tmp_path: Path, served: Serve) -> AsyncIterator[Api]:
    """Everything that a broker serves over HTTP, on a real Space."""
    async with running_space(tmp_path, drain_s=0.1) as running:
        running.space.handle("http", Consumer())
        services = services_of(running)
        leases = Leases(services.channels.subscribers, services.consumers, services.number_of)
        ephemeral = EphemeralSubscribers(services.channels.subscribers, services.view, services.number_of, streams.NAME)
        more = (*pull.routes(leases), *streams.routes(streams.Streams(leases, services.consumers, ephemeral)))
        more = (*events.ROUTES, *page.routes(), *tokens.routes(running.space.tokens.created_tokens), *more)
        more = (*more, *log_segments.routes(LogFiles(tmp_path, lambda: journal_of(running))))
        more = (*more, *log_readers.routes(running.space.log_readers))
        async with served(services.channels, services.view, *more, tokens=TOKENS) as api:
            for queue in ("shop.orders", "bills"):
                assert (await api.post("/v1/queues", {"name": queue}, of("all"))).status == 201
            yield api


async def published(api: Api, queue: str, *parents: str, **headers: str) -> str:
    named = {"Syncbrok-Parent": ", ".join(parents)} if parents else {}
    reply = await api.publish(queue, b"x", {**of("all"), **named, **headers})
    assert reply.status == 201, reply
    return str(reply.json()["id"])


async def test_lists_have_only_what_it_sees(api: Api) -> None:
    """Queues, messages found by their key, and the page's overview."""
    mine = await published(api, "shop.orders", **{"Syncbrok-Key": "k"})
    other = await published(api, "bills", **{"Syncbrok-Key": "k"})
    assert [one["name"] for one in (await api.get("/v1/queues", SHOP)).json()["queues"]] == ["shop.orders"]
    found = (await api.get("/v1/messages?key=k", SHOP)).json()["messages"]
    assert [one["id"] for one in found] == [mine]
    assert len((await api.get("/v1/messages?key=k", of("all"))).json()["messages"]) == 2
    assert other


async def test_other_queues_are_refused_whether_there_are_such_or_not(api: Api) -> None:
    """403 with the scope that is missing there, alike for one that is there and one that is not; nothing changes."""
    for queue in ("bills", "nowhere"):
        for method, path, body in (
            ("GET", "", None), ("GET", "/messages", None), ("GET", "/subscribers", None), ("GET", "/stream", None),
            ("GET", "/dead-letters", None), ("POST", "/messages", b"x"), ("POST", "/messages:batch", b"{}"),
            ("POST", "/pull", {}), ("POST", "/purge", {}), ("POST", "/subscribers", {"endpoint": ENDPOINT}),
            ("DELETE", "", None),
        ):  # fmt: skip
            refused = (await api.request(method, f"/v1/queues/{queue}{path}", body, SHOP)).problem(403, "forbidden")
            assert queue in refused["detail"]
    (await api.post("/v1/queues", {"name": "nowhere"}, SHOP)).problem(403, "forbidden")
    (await api.get("/v1/events?queue=bills", SHOP)).problem(403, "forbidden")
    assert (await api.post("/v1/queues", {"name": "shop.new"}, SHOP)).status == 201
    for path in ("/msg", "/queue", "/subscrib"):
        (await api.post(path, b"x", {**SHOP, "queue": "bills", "endpoint": ENDPOINT})).problem(403, "forbidden")
        assert (await api.post(path, b"x", {**SHOP, "queue": "shop.new", "endpoint": ENDPOINT})).status == 200
    assert (await api.get("/v1/queues/bills", of("all"))).json()["statistics"]["accepted"] == 0


async def test_messages_of_others_are_unknown(api: Api) -> None:
    """404 in the words for an id that was never issued; nothing is cancelled, replayed or erased."""
    mine, other = await published(api, "shop.orders"), await published(api, "bills")
    reading = [("GET", tail) for tail in ("", "/content", "/tree", "/critical-path")]
    changing = [("DELETE", ""), ("POST", "/replay"), ("POST", "/retry"), ("DELETE", "/content")]
    for method, path in reading + changing:
        refused = (await api.request(method, f"/v1/messages/{other}{path}", None, SHOP)).problem(404, "unknown-message")
        never = (await api.request(method, f"/v1/messages/{NEVER}{path}", None, of("all"))).problem(
            404, "unknown-message"
        )
        assert refused["detail"] == never["detail"].replace(NEVER, other)
        assert (await api.request(method, f"/v1/messages/{mine}{path}", None, SHOP)).status == 200
    (await api.post(f"/v1/messages/{mine}/replay", {"descendants": True}, SHOP)).problem(403, "forbidden")


async def test_trees_show_others_as_id_and_state(api: Api) -> None:
    """What a message waits for is named by its id; in which queue, and at whom, is not told."""
    subscribers = "/v1/queues/bills/subscribers"
    assert (await api.post(subscribers, {"endpoint": ENDPOINT, "paused": True}, of("all"))).status == 201
    other = await published(api, "bills")
    mine = await published(api, "shop.orders", other)
    nodes = (await api.get(f"/v1/messages/{mine}/tree?direction=up", SHOP)).json()["nodes"]
    assert [(one["id"], one["queue"], one["state"]) for one in nodes] == [
        (mine, "shop.orders", "waiting"), (other, "", "pending"),
    ]  # fmt: skip
    assert nodes[1]["parents"] == []
    path = (await api.get(f"/v1/messages/{mine}/critical-path", SHOP)).json()
    assert [(one["id"], one["queue"], one["state"], one["subscriber"]) for one in path["steps"]] == [
        (other, "", "pending", None), (mine, "shop.orders", "waiting", None),
    ]  # fmt: skip
    assert path["steps"][0]["endpoint"] == ""
    for path in (f"/v1/messages/{mine}", "/v1/queues/shop.orders/messages", "/v1/overview"):
        shown = await api.get(path, SHOP)
        assert shown.status == 200
        assert b"bills" not in shown.body
        assert b"paused" not in shown.body
    assert (await api.get(f"/v1/messages/{mine}", SHOP)).json()["waits_for"] == f"waits for {other}"
    assert b"bills" in (await api.get(f"/v1/messages/{mine}", of("all"))).body


async def test_what_is_about_all_queues_is_refused(api: Api) -> None:
    """/metrics, what is about the whole log, and whatever says nothing of narrowed tokens: 403."""
    of_the_log = "/v1/log/erased"
    for path in ("/metrics", "/v1/tokens", of_the_log, "/v1/log/readers", "/v1/log/segments", "/v1/log/segments/1"):
        (await api.get(path, SHOP)).problem(403, "forbidden")
        assert (await api.get(path, of("all"))).status == 200
    for route in _ROUTES:
        assert route.narrowed or "{queue}" in route.path or route.scope is None or route.path == of_the_log, route.path


async def test_a_parent_of_others_is_unknown(api: Api) -> None:
    """422 in the words for one that was never accepted, in each way to publish; who may publish there may name it."""
    other = await published(api, "bills")
    own = await published(api, "shop.orders")

    async def each(headers: dict[str, str], parent: str) -> list[Reply]:
        line = f'{{"content": "a"}}\n{{"content": "b", "parents": ["{parent}"]}}'.encode()
        return [
            await api.publish("shop.orders", b"x", {**headers, "Syncbrok-Parent": parent}),
            await api.request(
                "POST",
                "/v1/queues/shop.orders/messages:batch",
                line,
                {**headers, "Content-Type": "application/x-ndjson"},
            ),
            await api.post("/msg", b"x", {**headers, "queue": "shop.orders", "ParentId": parent}),
        ]

    unknown = await each(of("all"), NEVER)
    for refused, never in zip(await each(SHOP, other), unknown, strict=True):
        told = refused.problem(422, "unknown-parent")
        assert told["detail"] == never.problem(422, "unknown-parent")["detail"].replace(NEVER, other)
        assert told.get("line") == never.json().get("line")
    for headers, parent in ((SHOP, own), (of("till"), other), (of("all"), other)):
        assert [one.status // 100 for one in await each(headers, parent)] == [2, 2, 2]


async def test_a_socket_is_no_way_around(api: Api) -> None:
    """A WebSocket: another queue is refused at the handshake, a parent of others in its frame."""
    other = await published(api, "bills")
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(f"{api.server.url}/v1/queues/bills/stream", headers=SHOP)
        assert refused.value.status == 403
        async with session.ws_connect(f"{api.server.url}/v1/queues/shop.orders/stream", headers=SHOP) as socket:
            assert (await socket.receive_json())["type"] == "subscribed"
            await socket.send_json({"type": "publish", "ref": 1, "content": "x", "parents": [other]})
            answer = await socket.receive_json()
            assert (answer["type"], answer["problem"]["status"]) == ("problem", 422)


async def test_events_of_other_queues_are_not_told(api: Api) -> None:
    """GET /v1/events without a queue tells of those it sees."""
    async with aiohttp.ClientSession() as session, session.get(f"{api.server.url}/v1/events", headers=SHOP) as stream:
        await published(api, "bills")
        mine = await published(api, "shop.orders")
        told = b""
        while mine.encode() not in told:
            told += await asyncio.wait_for(stream.content.readany(), 20)
    assert b"bills" not in told


async def test_events_say_who_did_it_as_far_as_one_may_know(api: Api) -> None:
    """INTERFACES 1 and 3: who declared, changed or deleted a queue or subscriber; a token for some queues is told its
    own name and no other's."""
    async with aiohttp.ClientSession() as session:
        urls = [(f"{api.server.url}/v1/events", headers) for headers in (of("all"), SHOP)]
        streams = [await session.get(url, headers=headers) for url, headers in urls]
        one = {"name": "a", "pull": True}
        assert (await api.post("/v1/queues/shop.orders/subscribers", one, of("all"))).status == 201
        path = "/v1/queues/shop.orders/subscribers/a"
        assert (await api.request("PATCH", path, {"paused": True}, SHOP)).status == 200
        assert (await api.request("DELETE", path, None, of("all"))).status == 200
        told = []
        for stream in streams:
            text = b""
            while b"event: subscriber_deleted" not in text or not text.endswith(b"\n\n"):
                text += await asyncio.wait_for(stream.content.readany(), 20)
            events = [orjson.loads(line[6:]) for line in text.split(b"\n") if line.startswith(b"data: ")]
            told.append([(event["kind"], event.get("by")) for event in events])
            stream.close()
    kinds = ["subscriber", "subscriber", "subscriber_deleted"]
    assert told[0] == list(zip(kinds, ["all", "shop", "all"], strict=True))
    assert told[1] == list(zip(kinds, [None, "shop", None], strict=True))


async def test_an_admin_of_some_queues_answers_its_own_leases_only(api: Api) -> None:
    """INTERFACES 3, leases: to a token that is admin of some queues another's lease is over."""
    assert (await api.post("/v1/queues/bills/pull", {"wait": 0}, of("all"))).status == 200
    await published(api, "bills")
    (lent,) = (await api.post("/v1/queues/bills/pull", {"wait": 5}, of("all"))).json()["messages"]
    (await api.post(f"/v1/leases/{lent['lease']}:ack", {}, SHOP)).problem(410, "lease-over")
    assert (await api.post(f"/v1/leases/{lent['lease']}:ack", {}, of("all"))).status == 200


async def test_a_token_is_told_what_it_may_do(api: Api) -> None:
    """INTERFACES 3, `GET /v1/token`: any token hears of its own scopes and queues, and of no other's; one that is not
    known is refused and counted as everywhere."""
    assert (await api.get("/v1/token", SHOP)).json() == {
        "name": "shop", "scopes": {scope: ["shop.*"] for scope in SCOPES}, "expires_at": None,
    }  # fmt: skip
    assert (await api.get("/v1/token", of("till"))).json()["scopes"] == {"publish": ["bills", "shop.*"]}
    assert (await api.get("/v1/token", of("all"))).json()["scopes"] == {scope: ["*"] for scope in SCOPES}
    (await api.get("/v1/token")).problem(401, "unauthorized")
    (await api.get("/v1/token", of("nobody"))).problem(401, "unauthorized")
    metrics = (await api.get("/metrics", of("all"))).body
    assert b'syncbrok_http_tokens_refused_total{why="wrong"} 1.0' in metrics


async def test_the_short_way_of_a_publish_is_no_way_around(api: Api) -> None:
    """A publish that aiohttp never sees: another queue is refused, known head or not, a parent of others is unknown, a
    wrong token is answered after a moment; what is allowed goes through, and all are counted."""
    other = await published(api, "bills")
    reader, writer = await asyncio.open_connection("127.0.0.1", api.server.port)

    async def sent(queue: str, secret: str, *lines: str) -> int:
        head = [f"POST /v1/queues/{queue}/messages HTTP/1.1", "Host: x", f"Authorization: Bearer {secret}", *lines]
        writer.write("\r\n".join([*head, "Content-Length: 1", "", "x"]).encode())
        answer = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)).decode()
        length = next(line for line in answer.split("\r\n") if line.startswith("Content-Length: "))
        await reader.readexactly(int(length.partition(": ")[2]))
        return int(answer.split(" ", 2)[1])

    for _ in range(2):
        assert await sent("shop.orders", "secret of shop") == 201
        assert await sent("bills", "secret of shop") == 403
        assert await sent("shop.orders", "wrong") == 401
    assert await sent("shop.orders", "secret of all", f"Syncbrok-Parent: {other}") == 201
    assert api.server.fast_path_connections == 1
    assert await sent("shop.orders", "secret of shop", f"Syncbrok-Parent: {other}") == 422
    writer.close()
    metrics = (await api.get("/metrics", of("all"))).body
    for why, count in (("scope", 2), ("wrong", 2), ("missing", 0)):
        assert f'syncbrok_http_tokens_refused_total{{why="{why}"}} {count}.0'.encode() in metrics
