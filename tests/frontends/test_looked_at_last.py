"""The lease of leadership is looked at last, before the first byte, by whoever writes attempts to those who come for
them: pulls, WebSockets, and the four formats over TCP (CLUSTER, R5).

Broken by hand to see these fail: ``lets_begin`` that always says yes; a frontend that looks and then waits for its peer
to read; a withheld message that is failed instead of given back.
"""

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

from syncbrok.delivery.attempt_guard import AttemptGuard
from syncbrok.frontends.ephemeral_subscribers import EphemeralSubscribers
from syncbrok.frontends.over_http.consuming import pull, streams
from syncbrok.frontends.over_http.leases import Leases
from syncbrok.frontends.over_tcp.framed import Framed
from syncbrok.frontends.over_tcp.msgpack_bus import MsgpackBus
from syncbrok.frontends.over_tcp.multiplexed import Multiplexed
from syncbrok.frontends.over_tcp.session.services import TcpServices
from syncbrok.frontends.over_tcp.topics import Topics
from syncbrok.model.message import Message
from tests.support.delivery.leader import HeldLease
from tests.support.http.api import Api, Serve
from tests.support.polling import eventually
from tests.support.space.spaces import Running, running_space
from tests.support.tcp import wire_clients
from tests.support.tcp.wire import HOST, services_of

FORMATS: dict[str, tuple[Callable[[TcpServices], Any], wire_clients.Take]] = {
    "framed": (lambda services: Framed(services, HOST, 0), wire_clients.take_framed),
    "msgpack": (lambda services: MsgpackBus(services, HOST, 0, 0), wire_clients.take_msgpack),
    "multiplexed": (lambda services: Multiplexed(services, HOST, 0), wire_clients.take_multiplexed),
    "topics": (lambda services: Topics(services, HOST, 0), wire_clients.take_topics),
}
LARGE = b"x" * 32_768
SMALL = b"x" * 1_024
MANY = 4_000
UPGRADE = (
    b"GET /v1/queues/q/stream?start=beginning&window=%d HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n"
    b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


class Led(NamedTuple):
    """A Space with the queue ``q`` whose consumers are served while ``lease`` holds."""

    running: Running
    services: TcpServices
    lease: HeldLease
    guard: "RememberingGuard"

    async def publish(self, *contents: bytes) -> int:
        """The sequence of the first of them."""
        return (await self.running.publish_all("q", *map(Message, contents))).sequences[0]


class RememberingGuard(AttemptGuard):
    """Knows which connections carry attempts."""

    def __init__(self, lease: HeldLease) -> None:
        super().__init__(lease)
        self.transports: list[asyncio.Transport] = []

    def carries(self, transport: asyncio.Transport) -> None:
        super().carries(transport)
        self.transports.append(transport)


@asynccontextmanager
async def led(directory: Path) -> AsyncIterator[Led]:
    async with running_space(directory, drain_s=0.1) as running:
        lease = HeldLease()
        lease.lease_s = 60.0  # a slow machine cuts nobody off
        services = services_of(running)
        guard = services.consumers.attempt_guard = RememberingGuard(lease)
        await running.queue("q")
        yield Led(running, services, lease, guard)


@asynccontextmanager
async def over_http(served: Serve, directory: Path) -> AsyncIterator[tuple[Api, Led]]:
    async with led(directory) as place:
        services = place.services
        leases = Leases(services.channels.subscribers, services.consumers, services.number_of)
        ephemeral = EphemeralSubscribers(services.channels.subscribers, services.view, services.number_of, streams.NAME)
        routes = (*pull.routes(leases), *streams.routes(streams.Streams(leases, services.consumers, ephemeral)))
        async with served(services.channels, services.view, *routes, lease=place.lease) as api:
            yield api, place


def attempts(place: Led) -> int:
    """What was delivered or failed."""
    figures = place.running.view.queue("q")
    return figures.delivered + figures.failed


# -- lost between the hand-over and the write -------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
async def test_a_consumer_over_tcp_is_told_of_nothing_without_a_lease(tmp_path: Path, name: str) -> None:
    """The lease holds when messages are handed over and no more when they would be written: no byte of them goes out,
    they are counted as withheld, and go out as first attempts once it holds again."""
    make, take = FORMATS[name]
    async with led(tmp_path) as place, AsyncExitStack() as stack:
        frontend = make(place.services)
        await frontend.start()
        stack.push_async_callback(frontend.stop)
        seen: list[bytes] = []
        client = asyncio.create_task(take(frontend.ports[-1], "q", seen))
        try:
            await place.publish(b"first")
            await eventually(lambda: seen == [b"first"], "it consumes")
            await eventually(lambda: attempts(place) == 1, "and that is recorded")
            place.lease.lasts = 1
            await place.publish(b"second", b"third")
            await eventually(lambda: place.guard.withheld >= 2, "two are withheld: first at the write, then before it")
            assert seen == [b"first"]
            place.lease.lasts = None
            await eventually(lambda: seen == [b"first", b"second", b"third"], "all come")
            assert not place.running.view.queue("q").failed
        finally:
            client.cancel()
            await asyncio.gather(client, return_exceptions=True)


async def test_a_pull_is_told_of_nothing_without_a_lease(tmp_path: Path, served: Serve) -> None:
    """As over TCP; the answer is 503, with nothing of the messages, and the next who pulls gets them as first
    attempts of this leader's epoch. One without a message is told the same: another node may have some."""
    async with over_http(served, tmp_path) as (api, place):
        await place.publish(b"first", b"second")
        place.lease.lasts = 1
        for wait in (20, 0):
            answer = await api.post("/v1/queues/q/pull", {"wait": wait})
            answer.problem(503, "no-quorum")
            assert "Retry-After" in answer.headers
        assert place.guard.withheld >= 2
        place.lease.lasts = None
        found = (await api.post("/v1/queues/q/pull", {"wait": 20})).json()["messages"]
        assert [(one["content"], one["attempt"], one["epoch"]) for one in found] == [("first", 1, 7), ("second", 1, 7)]


async def test_a_socket_is_told_of_nothing_without_a_lease(tmp_path: Path, served: Serve) -> None:
    """As over TCP; the socket stays, and its messages say of which epoch they are."""
    async with over_http(served, tmp_path) as (api, place):
        url = f"{api.server.url}/v1/queues/q/stream?start=beginning&window=4"
        async with aiohttp.ClientSession() as session, session.ws_connect(url) as client:
            assert (await client.receive_json(timeout=30))["type"] == "subscribed"
            place.lease.lasts = 1
            await place.publish(b"first")
            await eventually(lambda: place.guard.withheld >= 1, "it is withheld")
            place.lease.lasts = None
            message = await client.receive_json(timeout=30)
            assert (message["content"], message["attempt"], message["epoch"]) == ("first", 1, 7)


async def test_what_was_read_while_the_lease_ended_is_not_answered(tmp_path: Path, served: Serve) -> None:
    """A read is answered only if nobody else led when it was done: the lease is looked at after it, too."""
    async with over_http(served, tmp_path) as (api, place):
        place.lease.lasts = 1
        (await api.get("/v1/queues/q")).problem(503, "no-quorum")
        place.lease.lasts = 2
        assert (await api.get("/v1/queues/q")).status == 200


# -- lost while the peer does not read --------------------------------------------------------------------------------


class SlowReader:
    """A client with a small buffer that reads only when it is told to."""

    def __init__(self, port: int, first: bytes) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        self._socket.connect((HOST, port))
        self._socket.sendall(first)
        self._socket.setblocking(False)
        self.received = bytearray()

    def read(self) -> None:
        """All that has come."""
        with suppress(BlockingIOError, ConnectionError):
            while data := self._socket.recv(1 << 20):
                self.received += data

    def close(self) -> None:
        self._socket.close()


@asynccontextmanager
async def unread(place: Led, client: SlowReader, most_bytes: int) -> AsyncIterator[None]:
    """Inside the client has left so much unread that nothing more is begun, and the lease is over; what waits for it in
    this process is one write of at most so many bytes."""
    looks: list[int] = []

    def still() -> bool:
        looks.append(place.lease.looks)
        return len(looks) > 20 and looks[-1] == looks[-20] > 1

    try:
        await eventually(still, "nothing more is begun")
        (transport,) = place.guard.transports
        assert 0 < transport.get_write_buffer_size() <= most_bytes
        place.lease.held = False
        yield
        client.read()
        assert place.guard.withheld
        assert not place.running.view.queue("q").failed
    finally:
        client.close()


async def test_what_waits_for_a_slow_stream_is_not_begun_without_a_lease(tmp_path: Path) -> None:
    """Multiplexed: messages for a connection that is not read wait outside its buffer. When it is read again, and the
    lease is over by then, only what had begun comes; the rest has not failed."""
    async with led(tmp_path) as place, AsyncExitStack() as stack:
        frontend = Multiplexed(place.services, HOST, 0)
        await frontend.start()
        stack.push_async_callback(frontend.stop)
        await place.publish(*[LARGE] * 16)
        asked = json.dumps({"MessageType": "Queue", "Name": "q", "Type": "PUBSUB", "Durable": True, "StreamID": "s"})
        client = SlowReader(frontend.listener.port, struct.pack("<I", len(asked)) + asked.encode())
        async with unread(place, client, 2 * len(LARGE)):
            await eventually(lambda: client.read() or place.guard.withheld, "it reads on")
            begun = client.received.count(b'"Body"')
            assert 0 < begun < 16


async def test_what_waits_for_a_slow_socket_is_not_begun_without_a_lease(tmp_path: Path, served: Serve) -> None:
    """As a stream of the multiplexed format."""
    async with over_http(served, tmp_path) as (api, place):
        await place.publish(*[SMALL] * MANY)
        client = SlowReader(api.server.port, UPGRADE % MANY)
        async with unread(place, client, 2 * len(SMALL)):
            await eventually(lambda: client.read() or place.guard.withheld, "it reads on")
            assert 0 < client.received.count(b'"type":"message"') < MANY


async def test_a_long_answer_to_a_pull_breaks_off_without_a_lease(tmp_path: Path, served: Serve) -> None:
    """No later piece of it is written; what nobody can read has not been tried, and is lent to the next who pulls."""
    async with over_http(served, tmp_path) as (api, place):
        first = await place.publish(*[LARGE] * 100)
        asked = b'{"wait": 20}'
        head = b"Host: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(asked)
        client = SlowReader(api.server.port, b"POST /v1/queues/q/pull HTTP/1.1\r\n" + head + asked)
        async with unread(place, client, 3 * len(LARGE)):
            await eventually(lambda: client.read() or place.guard.withheld, "it reads on")
        assert client.received.startswith(b"HTTP/1.1 200 ")
        assert not client.received.endswith(b"]}")
        place.lease.held = True
        again = (await api.post("/v1/queues/q/pull", {"wait": 20, "max": 1})).json()["messages"]
        assert [(one["sequence"], one["attempt"]) for one in again] == [(first, 1)]


async def test_what_nobody_takes_ends_a_connection_after_a_lease(tmp_path: Path) -> None:
    """CLUSTER, R5: bytes that lie in the system go out however long this process is stopped; the system is told for how
    long (``TCP_USER_TIMEOUT``, on Linux). A single machine asks for nothing of it."""
    option = getattr(socket, "TCP_USER_TIMEOUT", None)
    if option is None:
        pytest.skip("this system has none")
    async with led(tmp_path) as place, AsyncExitStack() as stack:
        frontend = Framed(place.services, HOST, 0)
        await frontend.start()
        stack.push_async_callback(frontend.stop)
        client = SlowReader(frontend.listener.port, b"")
        stack.callback(client.close)
        await eventually(lambda: place.guard.transports, "it is accepted")
        system = place.guard.transports[0].get_extra_info("socket")
        assert system.getsockopt(socket.IPPROTO_TCP, option) == 60_000
        alone = AttemptGuard()
        assert not alone.looks
        assert alone.lets_begin()
