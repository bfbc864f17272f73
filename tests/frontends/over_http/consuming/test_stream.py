"""The WebSocket to publish and consume on, and the queue as Server-Sent Events.

Broken by hand to see these fail: a window that hands out more; a socket that leaves its subscriber behind; events that
begin one too late after a resume.
"""

import asyncio
import base64
import hashlib
import json
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncbrok.frontends.bounds import Bounds
from syncbrok.frontends.ephemeral_subscribers import EphemeralSubscribers
from syncbrok.frontends.over_http.consuming import pull, socket_frames, streams
from syncbrok.frontends.over_http.leases import Leases
from syncbrok.model.errors import ClientFault
from syncbrok.model.message import BacklogBound
from syncbrok.model.names import QueueName
from syncbrok.model.tokens import Token
from syncbrok.space.channels import ChangeQueue
from tests.support.http.api import Api, Serve
from tests.support.polling import eventually
from tests.support.space.spaces import Running, running_space
from tests.support.tcp.wire import services_of

PATIENCE_S = 30.0
UPGRADE = (
    b"GET /v1/queues/orders/stream?start=beginning&window=100 HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
    b"Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


@asynccontextmanager
async def streaming(served: Serve, directory: Path, **options: Any) -> AsyncIterator[tuple[Api, Running]]:
    """The HTTP frontend with its streams and leases over a running Space that has the queue ``orders``."""
    async with running_space(directory, drain_s=0.1) as running:
        services = services_of(running)
        leases = Leases(services.channels.subscribers, services.consumers, services.number_of)
        ephemeral = EphemeralSubscribers(services.channels.subscribers, services.view, services.number_of, streams.NAME)
        routes = (*pull.routes(leases), *streams.routes(streams.Streams(leases, services.consumers, ephemeral)))
        async with served(services.channels, services.view, *routes, **options) as api:
            await running.queue("orders")
            yield api, running


def held(running: Running) -> int:
    """How many messages are with a consumer."""
    return sum(one.in_flight for one in running.view.subscribers("orders", None, 9)[0])


def failed(running: Running) -> int:
    """How many attempts have failed at the first subscriber, once there is one."""
    return sum(one.failed for one in running.view.subscribers("orders", None, 9)[0])


class Socket:
    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket

    async def send(self, **frame: Any) -> None:
        await self._socket.send_str(json.dumps(frame))

    async def next(self, kind: str) -> dict[str, Any]:
        frame: dict[str, Any] = json.loads(await self._socket.receive_str(timeout=PATIENCE_S))
        assert frame["type"] == kind, frame
        return frame

    async def closed(self) -> None:
        ended = await self._socket.receive(timeout=PATIENCE_S)
        assert ended.type in (aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR), ended

    async def nothing(self) -> None:
        with pytest.raises(TimeoutError):
            await self._socket.receive(timeout=0.1)

    async def publish(self, content: str, **more: Any) -> dict[str, Any]:
        await self.send(type="publish", ref=content, content=content, **more)
        published = await self.next("published")
        assert published["ref"] == content
        return published


@asynccontextmanager
async def socket_to(api: Api, query: str = "", **headers: str) -> AsyncIterator[Socket]:
    url = f"{api.server.url}/v1/queues/orders/stream{query}"
    async with aiohttp.ClientSession() as session, session.ws_connect(url, headers=headers) as connected:
        socket = Socket(connected)
        await socket.next("subscribed")
        yield socket


async def events(api: Api, count: int, query: str = "", **headers: str) -> list[tuple[int, dict[str, Any]]]:
    """The first events: (id, data)."""
    found: list[tuple[int, dict[str, Any]]] = []
    url = f"{api.server.url}/v1/queues/orders/stream{query}"
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        number = 0
        async with asyncio.timeout(PATIENCE_S):
            async for line in answer.content:
                if line.startswith(b"id: "):
                    number = int(line[4:])
                elif line.startswith(b"data: "):
                    found.append((number, json.loads(line[6:])))
                    if len(found) == count:
                        break
    return found


async def test_publish_and_consume_on_one_connection(tmp_path: Path, served: Serve) -> None:
    """INTERFACES 3: what is published is answered once durable, and received, a child after its parent's ack."""
    async with streaming(served, tmp_path) as (api, _), socket_to(api) as socket:
        parent = await socket.publish("parent")
        message = await socket.next("message")
        assert (message["id"], message["content"], message["attempt"]) == (parent["id"], "parent", 1)
        await socket.publish("child", parents=[parent["id"]])
        await socket.nothing()


async def test_a_full_queue_answers_the_frame_that_is_too_many(tmp_path: Path, served: Serve) -> None:
    """RULES 35, INTERFACES 3: a publish beyond ``max_backlog`` is a problem with its ref; the socket goes on, and so
    does who publishes when there is room."""
    async with streaming(served, tmp_path) as (api, running), socket_to(api) as socket:
        await running.put(ChangeQueue(QueueName("orders"), {"max_backlog": BacklogBound(1)}))
        await running.publish("orders", b"waits", delay_us=3_600_000_000)
        await socket.send(type="publish", ref=2, content="too many", delay="1h")
        problem = await socket.next("problem")
        assert (problem["ref"], problem["problem"]["status"]) == (2, 429)
        assert problem["problem"]["type"].endswith("backlog-full")
        await running.put(ChangeQueue(QueueName("orders"), {"max_backlog": None}))
        await socket.publish("there is room", delay="1h")


async def test_a_stream_names_no_library(tmp_path: Path, served: Serve) -> None:
    """As everything else that is answered: ``Server`` says Syncbrok, not what it is built with in which version."""
    async with streaming(served, tmp_path) as (api, _), aiohttp.ClientSession() as session:
        url = f"{api.server.url}/v1/queues/orders/stream"
        async with session.get(url) as events, session.ws_connect(url) as socket:
            assert events.headers.getall("Server") == ["Syncbrok"]
            assert socket._response.headers.getall("Server") == ["Syncbrok"]


async def test_an_acknowledged_parent_lets_its_child_go(tmp_path: Path, served: Serve) -> None:
    """DESIGN 1, causal: over a socket as over anything."""
    async with streaming(served, tmp_path) as (api, running), socket_to(api) as socket:
        parent = await running.publish("orders", b"parent")
        await running.publish("orders", b"\xff", parent)
        first = await socket.next("message")
        await socket.send(type="ack", sequence=first["sequence"])
        second = await socket.next("message")
        assert base64.b64decode(second["content_base64"]) == b"\xff"


async def test_the_window_holds_back(tmp_path: Path, served: Serve) -> None:
    """DESIGN 1, bounded: no more than the window is out; acks and a wider window let more come."""
    async with streaming(served, tmp_path) as (api, running):
        for number in range(10):
            await running.publish("orders", b"%d" % number)
        async with socket_to(api, "?start=beginning&window=2") as socket:
            first, second = await socket.next("message"), await socket.next("message")
            assert held(running) == 2
            await socket.send(type="ack", sequences=[first["sequence"], second["sequence"]])
            third, _ = await socket.next("message"), await socket.next("message")
            assert third["content"] == "2"
            await socket.send(type="window", size=5)
            assert [(await socket.next("message"))["content"] for _ in range(3)] == ["4", "5", "6"]
            assert held(running) == 5


async def test_a_reader_that_is_cut_off_makes_no_room(tmp_path: Path, served: Serve) -> None:
    """DESIGN 1, bounded: one that reads nothing is closed, and what it had is given back. The message that it was being
    sent is not taken for written, and what waited for room is not read: in the room that it left, thirty of a MiB were
    taken and read for who was gone (89 MiB more than before, instead of 35)."""
    bounds, loop, freed = Bounds(), asyncio.get_running_loop(), list[int]()
    async with streaming(served, tmp_path, bounds=bounds) as (api, running):
        content = running.space.budgets.content_in_flight
        content.total, content.reserve = 2_000_000, 250_000
        for _ in range(6):
            await running.publish("orders", bytes(600_000))
        with socket.socket() as reader:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            reader.setblocking(False)
            await loop.sock_connect(reader, ("127.0.0.1", api.server.port))
            await loop.sock_sendall(reader, UPGRADE)
            await eventually(lambda: bounds.sending.budget.used and content.used == 1_200_000, "it does not read")
            content.when_freed(lambda: freed.append(content.used))
            bounds.sending.check(loop.time() + 60)
            await eventually(lambda: not running.view.subscribers("orders", None, 9)[0], "it is gone")
            await eventually(lambda: not content.used, "nothing is held for it")
    assert freed == [600_000, 0]


async def test_sockets_of_one_client_have_one_share(tmp_path: Path, served: Serve) -> None:
    """RULES 15: sockets without a group that read nothing hold together what one subscriber may: as newcomers each,
    they took all there is for content, and a neighbour waited for them for seconds."""
    loop = asyncio.get_running_loop()
    async with streaming(served, tmp_path) as (api, running):
        content = running.space.budgets.content_in_flight
        content.total, content.reserve = 4_000_000, 500_000
        for _ in range(20):
            await running.publish("orders", bytes(200_000))
        readers = [socket.socket() for _ in range(30)]
        try:
            for reader in readers:
                reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
                reader.setblocking(False)
                await loop.sock_connect(reader, ("127.0.0.1", api.server.port))
                await loop.sock_sendall(reader, UPGRADE)
            await eventually(lambda: len(running.view.subscribers("orders", None, 99)[0]) == 30, "all are there")
            await eventually(lambda: held(running) and not content.room("127.0.0.1"), "they hold what they may")
            assert content.owners == 1
            assert content.used <= 2_000_000
            assert content.free > content.reserve + 1_000_000
        finally:
            for reader in readers:
                reader.close()
        await eventually(lambda: not content.used, "nothing is held for them")


async def test_what_has_lapsed_is_not_sent_any_more(tmp_path: Path, served: Serve) -> None:
    """DESIGN 1, bounded: of the messages behind a reader that stands still, those that were taken back are neither held
    nor sent: each lapse held as much again (101 MiB more than before, instead of 35). The one that is on its way goes
    out, and then each as its last attempt has it."""
    loop, received = asyncio.get_running_loop(), bytearray()
    async with streaming(served, tmp_path) as (api, running):
        await api.patch("/v1/queues/orders", {"retry": ["0s"] * 30, "timeout": "200ms"})
        ids = [await running.publish("orders", b"x" * 1_500_000) for _ in range(4)]
        with socket.socket() as reader:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            reader.setblocking(False)
            await loop.sock_connect(reader, ("127.0.0.1", api.server.port))
            await loop.sock_sendall(reader, UPGRADE)
            await eventually(lambda: failed(running) >= 2 * len(ids), "each has lapsed, and more than once")
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            async with asyncio.timeout(PATIENCE_S):
                while len(received) < 4_600_000:  # three of them
                    received += await loop.sock_recv(reader, 1 << 20)
    attempts = [int(one) for one in re.findall(rb'"attempt":(\d+)', received)]
    assert attempts[0] == 1, "what was being written"
    assert 1 not in attempts[1:], attempts


async def test_a_nack_comes_again_and_a_lapse_is_told(tmp_path: Path, served: Serve) -> None:
    """RULES 9: a refusal is a failed attempt, with its reason; the queue's schedule says when it comes again."""
    async with streaming(served, tmp_path) as (api, running):
        await api.patch("/v1/queues/orders", {"retry": ["0s", "0s"], "timeout": "200ms"})
        async with socket_to(api) as socket:
            id_ = await running.publish("orders", b"x")
            message = await socket.next("message")
            await socket.send(type="nack", sequence=message["sequence"], reason="busy")
            assert (await socket.next("message"))["attempt"] == 2
            assert (await socket.next("lapsed"))["sequences"] == [message["sequence"]]
            assert (await socket.next("message"))["attempt"] == 3
            await socket.send(type="ack", sequence=message["sequence"])
            await running.ended(id_)


async def test_a_group_stays_and_is_shared_with_those_who_pull(tmp_path: Path, served: Serve) -> None:
    """INTERFACES 3: what a group has not acknowledged waits for whoever consumes for it next, over either way."""
    async with streaming(served, tmp_path) as (api, running):
        async with socket_to(api, "?group=workers&start=beginning&window=1"):
            pass
        await running.publish("orders", b"one")
        await running.publish("orders", b"two")
        pulled = (await api.post("/v1/queues/orders/pull", {"group": "workers", "max": 1, "wait": 5})).json()
        assert [message["content"] for message in pulled["messages"]] == ["one"]
        async with socket_to(api, "?group=workers") as socket:
            assert (await socket.next("message"))["content"] == "two"


async def test_a_socket_without_a_group_leaves_nothing_behind(tmp_path: Path, served: Serve) -> None:
    """RULES 14: its subscriber goes with it, and what waited for it does not wait any more."""
    async with streaming(served, tmp_path) as (api, running):
        async with socket_to(api) as socket:
            id_ = await running.publish("orders", b"x")
            await socket.next("message")
            assert len(running.view.subscribers("orders", None, 9)[0]) == 1
        await running.ended(id_)
        await eventually(lambda: not running.view.subscribers("orders", None, 9)[0], "it is deleted")


async def test_mistakes_are_told_and_the_socket_goes_on(tmp_path: Path, served: Serve) -> None:
    """CONTRIBUTING, errors: RFC 9457 with the ref of the frame that was wrong; nothing changed."""
    async with streaming(served, tmp_path) as (api, running), socket_to(api) as socket:
        for wrong in (
            {"type": "publish", "ref": 1, "content": "x", "parents": ["nonsense"]},
            {"type": "publish", "ref": 1},
            {"type": "ack", "ref": 1, "sequence": "12"},
            {"type": "what", "ref": 1},
            {"type": "window", "ref": 1, "size": 10**9},
        ):
            await socket.send(**wrong)
            answer = await socket.next("problem")
            assert answer["ref"] == 1
            assert answer["problem"]["status"] == 400
        unknown = "01a1fba6-f093-8000-8000-000104aafc26"
        await socket.send(type="publish", ref=2, content="x", parents=[unknown])
        assert (await socket.next("problem"))["problem"]["status"] in (400, 422)
        await socket.publish("fine")
        assert running.view.queue("orders").accepted == 1
        (await api.get("/v1/queues/nothing/stream")).problem(404, "unknown-queue")


async def test_a_socket_publishes_only_with_the_scope(tmp_path: Path, served: Serve) -> None:
    """INTERFACES 3: tokens; consuming is one scope, publishing another."""
    secret = "only to read"
    tokens = (Token("reader", hashlib.sha256(secret.encode()).hexdigest(), frozenset({"consume"})),)
    async with streaming(served, tmp_path, tokens=tokens) as (api, _):
        async with socket_to(api, Authorization=f"Bearer {secret}") as socket:
            await socket.send(type="publish", ref=1, content="x")
            assert (await socket.next("problem"))["problem"]["status"] == 403
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await session.ws_connect(f"{api.server.url}/v1/queues/orders/stream")
            assert refused.value.status == 401


async def test_a_page_of_another_site_gets_no_socket(tmp_path: Path, served: Serve) -> None:
    """DESIGN 1: browsers open sockets across sites without asking; this is the only thing that stops them."""
    async with streaming(served, tmp_path) as (api, running):
        async with aiohttp.ClientSession() as session:
            headers = {"Sec-Fetch-Site": "cross-site"}
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await session.ws_connect(f"{api.server.url}/v1/queues/orders/stream", headers=headers)
            assert refused.value.status == 403
        assert running.view.subscribers("orders", None, 9)[0] == []


async def test_events_follow_a_queue_and_resume(tmp_path: Path, served: Serve) -> None:
    """INTERFACES 3: each message accepted, in order, from the beginning, a sequence, or where a reader left off; nobody
    is subscribed by reading."""
    async with streaming(served, tmp_path) as (api, running):
        for number in range(600):
            await running.publish("orders", b"%d" % number)
        found = await events(api, 600, "?start=beginning")
        assert [data["content"] for _, data in found] == [str(number) for number in range(600)]
        assert all(number == data["sequence"] for number, data in found)
        resumed = await events(api, 1, **{"Last-Event-ID": str(found[9][0])})
        assert resumed == [found[10]]
        assert await events(api, 1, f"?start={found[20][0]}") == [found[20]]
        live = asyncio.create_task(events(api, 1))
        await eventually(lambda: api.server.connections >= 1, "it listens")
        for _ in range(200):
            await running.publish("orders", b"new")
            if live.done():
                break
            await asyncio.wait((live,), timeout=0.05)
        assert (await live)[0][1]["content"] == "new"
        assert running.view.subscribers("orders", None, 9)[0] == []


async def test_events_have_no_groups(tmp_path: Path, served: Serve) -> None:
    """CONTRIBUTING, errors: what only a WebSocket can do is refused where events were asked for, not passed over."""
    async with streaming(served, tmp_path) as (api, _):
        for asked, name in (("?group=workers", "group"), ("?window=5", "window")):
            problem = (await api.get(f"/v1/queues/orders/stream{asked}")).problem(400, "malformed")
            assert problem["parameter"] == name


def test_a_frame_may_begin_with_a_byte_order_mark() -> None:
    """INTERFACES 3: JSON may begin with one, in a frame of either kind as in a body."""
    for written in ('\ufeff{"type": "ack", "sequence": 1}', b'\xef\xbb\xbf{"type": "ack", "sequence": 1}'):
        assert socket_frames.open_frame(written) == socket_frames.OpenedFrame("ack", None, {"sequence": 1})


@given(st.one_of(st.binary(), st.text().map(str.encode), st.recursive(st.none(), st.lists).map(json.dumps)))
def test_no_frame_breaks_the_parser(written: bytes | str) -> None:
    """CONTRIBUTING, errors: whatever is sent is a frame or a client's fault."""
    with suppress(ClientFault):
        socket_frames.read(socket_frames.open_frame(written), 1_000, 64)


async def test_a_socket_publishes_while_its_token_may(tmp_path: Path, served: Serve) -> None:
    """INTERFACES 1, tokens: once SIGHUP has taken the scope ``publish`` from a token, a socket that has published with
    it publishes no more, though it goes on consuming; once ``consume`` is taken too it ends."""

    def app(*scopes: str) -> Token:
        return Token("app", hashlib.sha256(b"app").hexdigest(), frozenset(scopes))

    async with (
        streaming(served, tmp_path, tokens=(app("publish", "consume"),)) as (api, running),
        socket_to(api, Authorization="Bearer app") as socket,
    ):
        await socket.publish("before")
        await socket.next("message")
        await socket.send(type="ack", sequences=[2])
        api.server.set_tokens((app("consume"),))
        await socket.send(type="publish", ref="after", content="after")
        assert (await socket.next("problem"))["problem"]["type"].endswith("forbidden")
        await running.publish("orders", b"of another")
        assert (await socket.next("message"))["content"] == "of another"
        api.server.set_tokens((app("publish"),))
        await socket.closed()


async def test_the_first_tokens_end_what_was_let_in_without(tmp_path: Path, served: Serve) -> None:
    """INTERFACES 1, tokens: where SIGHUP gives an open broker its first tokens, nobody goes on who has shown none, with
    a socket, an event stream or a pull: a stream lasts for days."""
    async with (
        streaming(served, tmp_path) as (api, running),
        socket_to(api) as socket,
        aiohttp.ClientSession(f"{api.server.url}/v1/queues/orders/") as session,
        session.get("stream") as events_,
        asyncio.timeout(PATIENCE_S),
    ):
        await events_.content.readline()
        pull_ = asyncio.create_task(session.post("pull", json={"wait": PATIENCE_S, "group": "workers"}))
        await eventually(lambda: len(running.view.subscribers("orders", None, 9)[0]) == 2, "the group of the pull")
        api.server.set_tokens((Token("app", hashlib.sha256(b"app").hexdigest(), frozenset({"consume"})),))
        await socket.closed()
        with pytest.raises(aiohttp.ClientError):
            await events_.content.read()
        with pytest.raises(aiohttp.ClientError):
            await pull_


async def test_a_socket_of_a_group_gets_what_its_filter_and_rate_let_through(tmp_path: Path, served: Serve) -> None:
    """RULES 31 and 33: they hold for whoever takes messages of a group, by whichever way; what is filtered is skipped
    and takes no token."""
    async with streaming(served, tmp_path) as (api, running):
        group = {"name": "g", "pull": True, "filter": "size > 3", "rate": "1/h"}
        assert (await api.post("/v1/queues/orders/subscribers", group)).status == 201
        async with socket_to(api, "?group=g") as socket:
            for content in (b"few", b"enough", b"few", b"enough too"):
                await running.publish("orders", content)
            message = await socket.next("message")
            assert message["content"] == "enough"
            await socket.send(type="ack", sequences=[message["sequence"]])
            await eventually(lambda: running.view.subscriber("orders", "g").delivered == 1, "it was acknowledged")
            states = [
                one["state"]
                for one in (await api.get("/v1/queues/orders/subscribers/g/deliveries")).json()["deliveries"]
            ]
            assert states[:2] == ["skipped", "delivered"]
            assert states[3] == "pending", "there is no token for another"
