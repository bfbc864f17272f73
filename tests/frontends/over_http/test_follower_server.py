"""The front of a node that follows: its own routes, and everything else byte for byte to a real leader's server."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from syncbrok.frontends.over_http.follower_server import path_of
from syncbrok.frontends.over_http.resources.log_segments import HeldSegment, ReadableLog
from syncbrok.frontends.relay import Upstream
from syncbrok.model.tokens import Token
from tests.support.broker.process import held_port
from tests.support.cluster.followers import Follower, SomeNode, following
from tests.support.http.api import TYPE_PREFIX, Api, Serve
from tests.support.polling import eventually
from tests.support.space.fake_space import FakeSpace

PUBLISH = b"POST /v1/queues/q/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"


@pytest.fixture
async def leader(served: Serve) -> AsyncIterator[Api]:
    """A leader with a queue ``q``."""
    space = FakeSpace()
    async with served(space.channels, space, leader_url="http://leader") as api:
        assert (await api.post("/v1/queues", {"name": "q"})).status == 201
        yield api


@pytest.fixture
async def follower(leader: Api) -> AsyncIterator[Follower]:
    """It follows ``leader``."""
    async with following(SomeNode(leader.server.port)) as running:
        yield running


async def said(port: int, *pieces: bytes, eof: bool = False) -> bytes:
    """All that is answered until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        if eof:
            writer.write_eof()
        async with asyncio.timeout(10):
            return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("path", "shown"),
    [("/healthz", b'"ok"'), ("/readyz", b'"following"'), ("/metrics", b"cluster"), ("/v1/cluster", b'"node":"b"')],
)
async def test_a_nodes_own_routes_are_answered_by_the_node(follower: Follower, path: str, shown: bytes) -> None:
    """Each names the leader and ends its connection: the next request may be the leader's."""
    answer = await said(follower.server.port, f"GET {path}?a=1 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head = answer.partition(b"\r\n\r\n")[0].lower()
    expected = b" 400 " if path == "/v1/cluster" else b" 200 "  # routes of ours know every name of their query
    assert expected in head.split(b"\r\n")[0], answer
    assert b"connection: close" in head
    assert b"syncbrok-leader: http://127.0.0.1:%d" % follower.node.port in head
    if expected == b" 400 ":
        answer = await said(follower.server.port, b"GET /v1/cluster HTTP/1.1\r\nHost: x\r\n\r\n")
    assert shown in answer
    assert not follower.relay.splices


async def test_everything_else_is_the_leaders(follower: Follower, leader: Api) -> None:
    """Publishes, reads and declarations through a follower are those of the leader, over one connection too; the leader
    names itself on every answer, of the short way and of the long one."""
    url = f"http://127.0.0.1:{follower.server.port}"
    content = bytes(range(256)) * 4_000
    async with aiohttp.ClientSession(url) as client:
        for sent in (b"small", content):
            async with client.post("/v1/queues/q/messages", data=sent) as answer:
                assert (answer.status, answer.headers["Syncbrok-Leader"]) == (201, "http://leader")
                id_ = (await answer.json())["id"]
            async with client.get(f"/v1/messages/{id_}/content") as answer:
                found = await answer.read()
                assert (answer.status, answer.headers["Syncbrok-Leader"]) == (200, "http://leader")
                assert hashlib.sha256(found).digest() == hashlib.sha256(sent).digest()
        async with client.get("/v1/nothing") as answer:
            assert (answer.status, answer.headers["Syncbrok-Leader"]) == (404, "http://leader")
        async with client.post("/v1/cluster/yield") as answer:
            assert answer.status == 404, "this leader has no cluster: it was asked, and not the follower"
    await eventually(lambda: not follower.relay.splices, "the splices end with their clients")
    assert not follower.bounds.descriptors.used


@pytest.mark.parametrize("cut", [1, 30, len(PUBLISH) - 2])
async def test_bytes_may_come_in_any_pieces(follower: Follower, cut: int) -> None:
    """The first line is waited for; what has come with it goes along, and so do requests sent ahead."""
    reader, writer = await asyncio.open_connection("127.0.0.1", follower.server.port)
    for piece in (b"\r\n", PUBLISH[:cut], PUBLISH[cut:] + PUBLISH, PUBLISH):
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0)
    for _ in range(3):
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 201 ")
        await reader.readuntil(b"}")
    writer.close()


async def test_who_sends_no_more_is_answered(follower: Follower) -> None:
    """Half-close (RFC 9112, 9.6) passes the splice, and so does the leader's end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", follower.server.port)
    writer.write(PUBLISH)
    writer.write_eof()
    async with asyncio.timeout(10):
        assert (await reader.read()).startswith(b"HTTP/1.1 201 ")
    writer.close()
    await eventually(lambda: not follower.relay.splices, "both sides are closed")


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "DELETE"])
async def test_without_a_leader_it_says_so(method: str, known: bool) -> None:
    """503 ``no-leader`` with Retry-After, where nobody leads and where who does cannot be reached."""
    with held_port() as nobody:
        node = SomeNode(nobody if known else 0)
        async with following(node) as follower, aiohttp.ClientSession() as client:
            url = f"http://127.0.0.1:{follower.server.port}/v1/queues/q"
            async with client.request(method, url, data=b"x" * 100_000 if method != "GET" else None) as answer:
                assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
                assert (await answer.json())["type"] == TYPE_PREFIX + "no-leader"
                assert answer.headers.get("Syncbrok-Leader", "") == node.leader_url
            answer = await said(follower.server.port, PUBLISH, eof=True)
            assert answer.startswith(b"HTTP/1.1 503 ")
            async with client.get(f"http://127.0.0.1:{follower.server.port}/healthz") as answer:
                assert answer.status == 200
        await eventually(lambda: not follower.bounds.descriptors.used, "all are given back")


@pytest.mark.parametrize("known", [False, True])
async def test_nobody_is_cut_off_before_it_is_answered(leader: Api, known: bool) -> None:
    """Where nobody leads, and where another one comes to lead while the connection to the one before is made: the
    relay's look at where its splices go ends none that has not begun, so each client reads what is wrong."""
    node = SomeNode(leader.server.port if known else 0)
    async with following(node) as follower:

        def look() -> None:
            node.epoch += 1
            follower.relay.check()

        def upstream(of: SomeNode = node) -> Upstream | None:
            if of.epoch == 1:
                asyncio.get_running_loop().call_soon(look)
            return SomeNode.upstream(of)

        node.upstream = upstream  # type: ignore[method-assign]
        assert (await said(follower.server.port, PUBLISH)).startswith(b"HTTP/1.1 503 ")
        await eventually(lambda: not follower.relay.splices, "it has ended")


async def test_without_a_leader_it_serves_the_files_of_the_page() -> None:
    """Whoever opens the page of a node then reads there what is wrong; what the page would show of messages is 503."""
    async with following(SomeNode()) as follower:
        for path, status in ((b"/", 200), (b"/web/cluster.js", 200), (b"/v1/overview", 503), (b"/web/none.js", 503)):
            answer = await said(follower.server.port, b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % path)
            assert answer.startswith(b"HTTP/1.1 %d " % status), path


@pytest.mark.parametrize(("leads", "ready", "status"), [(True, True, 200), (True, False, 503), (False, True, 503)])
async def test_it_is_ready_while_it_has_somebody_to_relay_to(
    leader: Api, leads: bool, ready: bool, status: int
) -> None:
    """Known, and heard lately."""
    node = SomeNode(leader.server.port if leads else 0, ready=ready)
    async with following(node) as follower:
        answer = await said(follower.server.port, b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 %d " % status)


async def test_splices_end_with_their_leader(follower: Follower, leader: Api) -> None:
    """Another one leads, at the same address even: clients come again. So it is when nobody leads any more."""
    for change in (lambda: setattr(follower.node, "epoch", 2), lambda: setattr(follower.node, "port", 0)):
        reader, writer = await asyncio.open_connection("127.0.0.1", follower.server.port)
        writer.write(PUBLISH)
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 201 ")
        change()
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        writer.close()
    assert leader.server.port


@pytest.mark.parametrize("sent", [b"", b"GET /v1/queues"])
async def test_the_first_line_must_arrive_in_time(leader: Api, sent: bytes) -> None:
    """INTERFACES 5: within the time for headers; the rest of them is the leader's to wait for."""
    async with following(SomeNode(leader.server.port), headers_timeout_s=0.2) as follower:
        answer = await said(follower.server.port, sent)
        assert answer.startswith(b"HTTP/1.1 408 ")
        await eventually(lambda: not follower.bounds.descriptors.used, "its place is free")


async def test_its_own_routes_ask_for_tokens() -> None:
    """As the leader's do: metrics and the cluster with the scope ``read``."""
    token = Token("ops", hashlib.sha256(b"secret").hexdigest(), frozenset({"read"}))
    async with following(SomeNode(), tokens=(token,)) as follower, aiohttp.ClientSession() as client:
        url = f"http://127.0.0.1:{follower.server.port}"
        for path, status in (("/v1/cluster", 401), ("/metrics", 401), ("/healthz", 200), ("/readyz", 503)):
            async with client.get(url + path) as answer:
                assert answer.status == status
        async with client.get(url + "/v1/cluster", headers={"Authorization": "Bearer secret"}) as answer:
            assert answer.status == 200


@pytest.mark.parametrize(
    ("line", "path"),
    [
        (b"GET /metrics HTTP/1.1\r", b"/metrics"),
        (b"GET /metrics?x=http://y HTTP/1.1", b"/metrics"),
        (b"GET http://name/v1/cluster?x HTTP/1.1", b"/v1/cluster"),
        (b"GET http://name HTTP/1.1", b"/"),
        (b"OPTIONS * HTTP/1.1", b"*"),
        (b"GET", b""),
        (b"", b""),
        (b"\x00\xff\xfe", b""),
    ],
)
def test_the_path_of_a_first_line(line: bytes, path: bytes) -> None:
    """In both forms that a target has; never an error."""
    assert path_of(line) == path


async def test_who_has_said_nothing_is_let_go_at_the_end(leader: Api) -> None:
    """CLUSTER, Life of a node: a client that has connected and asked for nothing yet is closed when its node begins to
    lead, and comes again; it would have been nobody's until its time was up."""
    async with following(SomeNode(leader.server.port)) as follower:
        reader, writer = await asyncio.open_connection("127.0.0.1", follower.server.port)
        await eventually(lambda: follower.bounds.descriptors.used == 1, "it is let in")
    async with asyncio.timeout(5):
        assert await reader.read() == b""
    writer.close()


@pytest.fixture
async def holding(tmp_path: Path) -> AsyncIterator[tuple[Follower, bytes]]:
    """A node that holds one sealed segment, with a token for each of two who ask; and the segment."""
    path = tmp_path / f"{7:020d}.log"
    data = bytes(range(256)) * 4_000
    path.write_bytes(data)
    tokens = tuple(
        Token(scope, hashlib.sha256(scope.encode()).hexdigest(), frozenset({scope})) for scope in ("publish", "admin")
    )
    node = SomeNode(held=[HeldSegment(path, 7, 90, len(data), "0badcafe")])
    is_peer = lambda authorization, method, path, digest: authorization == f"Node {method} {path}"  # noqa: E731
    async with following(node, tokens=tokens, is_peer=is_peer) as running:
        yield running, data


SEGMENT = "/v1/log/segments/7"


async def test_a_segment_goes_out_whole_or_in_part(holding: tuple[Follower, bytes]) -> None:
    """INTERFACES 3, `/v1/log/segments`: the list, the bytes, a range of them; the ETag is the checksum."""
    follower, data = holding
    url, admin = f"http://127.0.0.1:{follower.server.port}", {"Authorization": "Bearer admin"}
    async with aiohttp.ClientSession(headers=admin) as session:
        async with session.get(url + "/v1/log/segments") as answer:
            shown = {"name": f"{7:020d}.log", "first": 7, "last": 90, "bytes": len(data), "checksum": "0badcafe"}
            shown |= {"sealed": True, "records": None, "first_at": None, "last_at": None}
            assert await answer.json() == {"segments": [shown], "erased_before": 0, "log": "00ff", "durable": 90}
        async with session.get(url + SEGMENT) as answer:
            assert (answer.status, answer.headers["ETag"]) == (200, '"0badcafe"')
            assert await answer.read() == data
        for asked, part in (("bytes=5-9", data[5:10]), ("bytes=-7", data[-7:]), ("bytes=1000000-", data[1_000_000:])):
            async with session.get(url + SEGMENT, headers={"Range": asked}) as answer:
                assert (answer.status, await answer.read()) == (206, part)
        async with session.get(url + SEGMENT, headers={"Range": "bytes=5-9", "If-Range": '"other"'}) as answer:
            assert (answer.status, await answer.read()) == (200, data)
        async with session.get(url + SEGMENT, headers={"Range": f"bytes={len(data)}-"}) as answer:
            assert (answer.status, answer.headers["Content-Range"]) == (416, f"bytes */{len(data)}")
        async with session.head(url + SEGMENT) as answer:
            assert (answer.status, answer.headers["Content-Length"]) == (200, str(len(data)))
        for path in ("/v1/log/segments/8", "/v1/log/segments/x"):
            async with session.get(url + path) as answer:
                assert (answer.status, (await answer.json())["type"]) == (404, TYPE_PREFIX + "unknown-segment")


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        ("Bearer admin", 200),
        ("Node GET " + SEGMENT, 200),
        ("Node GET /v1/log/segments/8", 401),
        ("Bearer publish", 403),
        ("", 401),
    ],
)
async def test_segments_are_for_operators_and_nodes(
    holding: tuple[Follower, bytes], authorization: str, status: int
) -> None:
    """INTERFACES 3: who may only publish does not read the log; a node of the same cluster does without a token, what
    it has signed for and nothing else. A signature opens no other route."""
    follower, _ = holding
    given = {"Authorization": authorization} if authorization else {}
    async with aiohttp.ClientSession(headers=given) as session:
        async with session.get(f"http://127.0.0.1:{follower.server.port}{SEGMENT}") as answer:
            assert answer.status == status
        async with session.get(f"http://127.0.0.1:{follower.server.port}/v1/cluster") as answer:
            assert answer.status in (401, 403)


async def test_another_node_hears_of_sealed_segments_alone(tmp_path: Path) -> None:
    """INTERFACES 3: one of a version before this takes each of the list for sealed, and would fetch the open one."""

    class Writing(SomeNode):
        def readable(self) -> ReadableLog:
            return ReadableLog("00ff", 95, [*self.held, HeldSegment(tmp_path / "open", 91, 95, 10, "", sealed=False)])

    node = Writing(held=[HeldSegment(tmp_path / "sealed", 7, 90, 20, "0badcafe")])
    admin = Token("admin", hashlib.sha256(b"admin").hexdigest(), frozenset({"admin"}))
    is_peer = lambda authorization, *_: authorization == "Syncbrok-Node 00ff"  # noqa: E731
    async with following(node, tokens=(admin,), is_peer=is_peer) as follower, aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{follower.server.port}/v1/log/segments"
        for authorization, firsts in (("Syncbrok-Node 00ff", [7]), ("Bearer admin", [7, 91])):
            async with session.get(url, headers={"Authorization": authorization}) as answer:
                assert [one["first"] for one in (await answer.json())["segments"]] == firsts


async def test_what_is_no_longer_there_is_not_half_sent(holding: tuple[Follower, bytes]) -> None:
    """A file that is shorter than its seal said is cut off in the middle of its answer; who reads it knows."""
    follower, data = holding
    held = follower.node.held[0]
    held.path.write_bytes(data[:-1])
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer admin"}) as session:
        with pytest.raises(aiohttp.ClientPayloadError):
            async with session.get(f"http://127.0.0.1:{follower.server.port}{SEGMENT}") as answer:
                await answer.read()
