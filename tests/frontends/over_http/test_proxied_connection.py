"""Who the client is, of a connection that another node relays over mutual TLS; and that nobody else is believed."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from syncbrok.frontends.bounds import Bounds
from syncbrok.frontends.listening import ListenerTls, server_context
from syncbrok.frontends.over_http.proxied_connection import names
from syncbrok.frontends.over_http.requests.context import HttpOptions
from syncbrok.frontends.over_http.server import HttpServer
from syncbrok.frontends.proxy_protocol import header
from syncbrok.frontends.relay import Upstream
from tests.support.certificates import Authority, Files
from tests.support.cluster.followers import SomeNode, following
from tests.support.polling import eventually
from tests.support.space.fake_space import FakeSpace

ASKED = b"GET /v1/queues HTTP/1.1\r\nHost: x\r\n\r\n"
FROM = header(("192.0.2.7", 41_000), ("10.0.0.1", 10_000))


class SecureLeader:
    """``node`` is a certificate of a node, ``client`` one of somebody else whom the authority knows."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory)
        self.node: Files = self.authority.signs("node")
        self.client: Files = self.authority.signs("client", "client.example")
        self.bounds = Bounds()
        self.listener = ListenerTls(server_context(self.node.cert, self.node.key, self.authority.file))
        space = FakeSpace()
        options = HttpOptions(port=0, machine_names=("x",), leader_url="https://127.0.0.1", node_name="127.0.0.1")
        self.server = HttpServer(space.channels, space, options, bounds=self.bounds, tls=self.listener)

    async def connect(
        self, shows: Files, port: int = 0, source: str = "127.0.0.1"
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        tls = self.authority.client(shows)
        where = {"server_hostname": "127.0.0.1", "local_addr": (source, 0)}
        return await asyncio.open_connection("127.0.0.1", port or self.server.port, ssl=tls, **where)

    @asynccontextmanager
    async def asked(
        self, shows: Files, *pieces: bytes, port: int = 0, source: str = "127.0.0.1"
    ) -> AsyncIterator[bytes]:
        """The beginning of the answer to a connection that stays open meanwhile."""
        reader, writer = await self.connect(shows, port, source)
        try:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            async with asyncio.timeout(10):
                yield await reader.readline()
        finally:
            writer.close()
            with suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()

    def held(self, address: str) -> int:
        return self.bounds.descriptors.held(address)


@pytest.fixture
async def leader(tmp_path: Path) -> AsyncIterator[SecureLeader]:
    made = SecureLeader(tmp_path)
    await made.server.start()
    yield made
    await made.server.stop()
    await eventually(lambda: not made.bounds.descriptors.used, "all are given back")


@pytest.mark.parametrize("cut", [1, 13, len(FROM), len(FROM) + 5])
async def test_a_node_says_for_whom_it_relays(leader: SecureLeader, cut: int) -> None:
    """The client's address owns the connection and what it takes, not the node's."""
    sent = FROM + ASKED
    async with leader.asked(leader.node, sent[:cut], sent[cut:]) as answer:
        assert answer == b"HTTP/1.1 200 OK\r\n"
        assert (leader.held("192.0.2.7"), leader.held("127.0.0.1")) == (1, 0)


@pytest.mark.parametrize("sent", [ASKED, header(None, None) + ASKED])
async def test_a_node_may_be_a_client_itself(leader: SecureLeader, sent: bytes) -> None:
    """Without a header, and with one that says so."""
    async with leader.asked(leader.node, sent) as answer:
        assert answer == b"HTTP/1.1 200 OK\r\n"
        assert leader.held("127.0.0.1") == 1


async def test_nobody_else_is_believed(leader: SecureLeader) -> None:
    """Another certificate of the same authority: those bytes are a bad request, and without them it is served."""
    async with leader.asked(leader.client, FROM + ASKED) as answer:
        assert b" 400 " in answer
        assert not leader.held("192.0.2.7")
    async with leader.asked(leader.client, ASKED) as answer:
        assert answer == b"HTTP/1.1 200 OK\r\n"


async def test_a_header_that_is_none_is_refused(leader: SecureLeader) -> None:
    """A node that sends half a one, or another version."""
    async with leader.asked(leader.node, FROM[:12] + b"\x11" + FROM[13:] + ASKED) as answer:
        assert b" 400 " in answer


async def test_a_follower_relays_over_mutual_tls(leader: SecureLeader) -> None:
    """From end to end: the leader sees the address of the follower's client."""

    class Secure(SomeNode):
        def upstream(self) -> Upstream:
            tls: ssl.SSLContext = leader.authority.client(leader.node)
            return Upstream(1, "127.0.0.1", self.port, tls, proxied=True)

    async with following(Secure(leader.server.port), tls=leader.listener) as follower:
        port = follower.server.port
        async with leader.asked(leader.client, ASKED, port=port, source="127.0.0.5") as answer:
            assert answer == b"HTTP/1.1 200 OK\r\n"
            assert (leader.held("127.0.0.5"), leader.held("127.0.0.1")) == (1, 0)
        await eventually(lambda: not follower.relay.splices, "they have ended")


@pytest.mark.parametrize("cut", [1, 3, 13, len(FROM), len(FROM) + 5])
async def test_a_node_that_leads_no_more_says_so(leader: SecureLeader, cut: int) -> None:
    """It was killed and runs again, and another node does not know yet that it only follows: the client of that one is
    told to come again, since nothing is wrong with what it has sent. It is relayed no further, and to anybody else the
    bytes are a bad request."""
    sent = FROM + ASKED
    async with following(SomeNode(leader.server.port), tls=leader.listener, node_name="127.0.0.1") as follower:
        port = follower.server.port
        async with leader.asked(leader.node, sent[:cut], sent[cut:], port=port) as answer:
            assert b" 503 " in answer
            assert not follower.relay.splices
        async with leader.asked(leader.client, sent[:cut], sent[cut:], port=port) as answer:
            assert b" 400 " in answer
        assert not leader.held("192.0.2.7")
        await eventually(lambda: not follower.bounds.descriptors.used, "all are given back")


async def test_in_clear_nobody_is_believed() -> None:
    """A cluster without TLS, and a single node: the bytes are a bad request, whoever sends them."""
    space = FakeSpace()
    server = HttpServer(space.channels, space, HttpOptions(port=0, leader_url="http://127.0.0.1"))
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(FROM + ASKED)
    assert b" 400 " in await reader.readline()
    writer.close()
    await writer.wait_closed()
    await server.stop()


@pytest.mark.parametrize(
    ("name", "good"),
    [
        *(("a.example", True), ("A.Example", True), ("10.0.0.1", True), ("x.b.example", True)),
        *(("b.example", False), ("y.x.b.example", False), ("", False), ("10.0.0.2", False)),
    ],
)
def test_for_which_names_a_certificate_is_good(name: str, good: bool) -> None:
    """One of its own, or one label under a wildcard."""
    shown = {"subjectAltName": (("DNS", "a.example"), ("DNS", "*.b.example"), ("IP Address", "10.0.0.1"))}
    assert names(shown, name) is good
    assert not names(None, name)
