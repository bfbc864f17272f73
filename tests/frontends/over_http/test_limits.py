"""Bounds of size, time and number at the HTTP border (INTERFACES 5), over real sockets."""

import asyncio
import gzip
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable

import orjson
import pytest

from syncbrok.frontends.bounds import Bounds
from syncbrok.frontends.listening import Listening, open_sockets
from syncbrok.model import limits
from tests.support.http.api import Api, Serve, raw
from tests.support.polling import eventually
from tests.support.space.fake_space import FakeSpace

PATH = b"/v1/queues/orders/messages"
HEAD = b"POST %s HTTP/1.1\r\nHost: x\r\n" % PATH


@pytest.fixture
def space() -> FakeSpace:
    return FakeSpace()


@pytest.fixture
async def api(space: FakeSpace, served: Serve) -> AsyncIterator[Api]:
    """Small bounds, so that they are reached quickly."""
    bounds = {
        "content_bytes_max": 1_000,
        "batch_bytes_max": 2_000,
        "batch_lines_max": 3,
        "parents_max": 2,
        "headers_timeout_s": 0.3,
        "body_timeout_s": 0.3,
        "linger_s": 0.2,
        "connections_max": 8,
        "connections_per_address_max": 6,
    }
    async with served(space.channels, space, **bounds) as running:
        assert (await running.post("/v1/queues", {"name": "orders"})).status == 201
        yield running


def problem(answer: bytes, status: int, slug: str) -> None:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.split(b" ")[1] == b"%d" % status, answer
    assert b"application/problem+json" in head, answer
    assert orjson.loads(body)["type"] == f"urn:syncbrok:problem:{slug}", answer


async def within(seconds: float, action: Callable[[], object]) -> bytes:
    started = time.monotonic()
    answer = await action()  # type: ignore[misc]
    assert time.monotonic() - started < seconds, answer
    assert isinstance(answer, bytes)
    return answer


# -- time -------------------------------------------------------------------------------------------------------------


OTHER = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize("sent", [b"", b"P", HEAD, HEAD + b"X-Slow: ", b"G", OTHER, OTHER + b"X-Slow: "])
async def test_headers_must_arrive_in_time(api: Api, space: FakeSpace, sent: bytes) -> None:
    """INTERFACES 5: request headers within 10 s, also on a connection that sends nothing at all."""
    problem(await within(5, lambda: raw(api, sent)), 408, "request-timeout")


async def test_trickled_headers_do_not_move_the_deadline(api: Api) -> None:
    """A client that sends a byte now and then (slowloris) has no longer than one that sends none."""

    async def trickle() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", api.server.port)
        writer.write(HEAD)
        # Not until its end: a line that crosses with the answer has the connection reset behind it.
        reading = asyncio.ensure_future(reader.readuntil(b"}"))
        while not reading.done():
            writer.write(b"X-A: b\r\n")
            await asyncio.wait([reading], timeout=0.05)
        writer.close()
        return reading.result()

    problem(await within(5, trickle), 408, "request-timeout")


@pytest.mark.parametrize(("head", "end"), [(HEAD, b"Content-Length: 1\r\n\r\nx"), (OTHER, b"\r\n")])
async def test_headers_of_the_next_request_must_arrive_in_time_too(api: Api, head: bytes, end: bytes) -> None:
    """A kept-alive connection gets the deadline anew with the first byte of each request, and none while it rests."""
    reader, writer = await asyncio.open_connection("127.0.0.1", api.server.port)
    for _ in range(2):
        writer.write(head + end)
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 20")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.6):
                await reader.read(1)
    writer.write(head)
    async with asyncio.timeout(5):
        problem(await reader.read(), 408, "request-timeout")
    writer.close()


@pytest.mark.parametrize(
    "framing", [b"Content-Length: 100\r\n\r\n0123", b"Transfer-Encoding: chunked\r\n\r\n4\r\n0123\r\n"]
)
async def test_a_body_must_arrive_in_time(api: Api, space: FakeSpace, framing: bytes) -> None:
    """INTERFACES 5: the body within 30 s; nothing of it is published."""
    problem(await within(5, lambda: raw(api, HEAD + framing)), 408, "request-timeout")
    assert not space.reports


async def test_a_body_nobody_reads_does_not_hold_the_connection(api: Api) -> None:
    """A refusal before the body is read closes the connection soon, whatever the client goes on to send."""
    sent = b"POST /v1/nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n0123"
    problem(await within(8, lambda: raw(api, sent)), 404, "unknown-route")


async def test_a_slow_body_that_comes_in_time_is_whole(api: Api, space: FakeSpace) -> None:
    """A body in many pieces is the same body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", api.server.port)
    writer.write(HEAD + b"Content-Length: 10\r\n\r\n")
    for piece in (b"012", b"34567", b"89"):
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0)
    assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 201 ")
    assert [message.content for message in space.contents.values()] == [b"0123456789"]
    writer.close()


# -- size -------------------------------------------------------------------------------------------------------------


async def test_a_body_over_the_limit_is_refused(api: Api, space: FakeSpace) -> None:
    """INTERFACES 5: 413, where Content-Length says so before a byte of the body is read; nothing changes."""
    assert (await api.publish("orders", b"x" * 1_000)).status == 201
    problem(await within(5, lambda: raw(api, HEAD + b"Content-Length: 1001\r\n\r\n")), 413, "too-large")
    reply = await api.publish("orders", b"x" * 1_001)
    assert reply.problem(413, "too-large")["bytes_max"] == 1_000
    (await api.post("/msg", b"x" * 1_001, {"queue": "orders"})).problem(413, "too-large")
    (await api.post("/v1/queues", b"x" * (limits.json_bytes_max + 1))).problem(413, "too-large")
    assert len(space.reports) == 1


async def test_a_body_without_a_length_is_refused_while_it_is_read(api: Api, space: FakeSpace) -> None:
    """Chunked bodies are counted as they come."""
    chunk = b"64\r\n%s\r\n" % (b"x" * 100)
    sent = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    problem(await within(5, lambda: raw(api, sent + chunk * 12 + b"0\r\n\r\n")), 413, "too-large")
    problem(await within(5, lambda: raw(api, sent, *[chunk] * 12)), 413, "too-large")
    assert not space.reports


async def test_batches_have_bounds_of_their_own(api: Api, space: FakeSpace) -> None:
    """INTERFACES 5: lines, bytes, each content, parents."""
    assert (await api.batch("orders", *[{"content": "x" * 500}] * 3)).status == 201
    known = len(space.reports)
    (await api.batch("orders", *[{"content": "x"}] * 4)).problem(413, "too-large")
    assert (await api.batch("orders", {"content": "x"}, {"content": "x" * 1_001})).problem(413, "too-large")[
        "line"
    ] == 2
    (await api.batch("orders", {"content": "x" * 2_000})).problem(413, "too-large")
    (await api.batch("orders", {"data": 1}, {"data": 1}, {"data": 1, "parents": ["#1", "#2", "#1"]})).problem(
        400, "malformed"
    )
    assert len(space.reports) == known


async def test_compressed_bodies_are_refused(api: Api, space: FakeSpace) -> None:
    """Content-Encoding is rejected, so no gzip bomb is ever unpacked."""
    for coding in ("gzip", "deflate", "br", "zstd", "gzip, identity"):
        (await api.publish("orders", gzip.compress(b"x"), {"Content-Encoding": coding})).problem(
            415, "unsupported-media-type"
        )
        (await api.post("/v1/queues", b"x", {"Content-Encoding": coding})).problem(415, "unsupported-media-type")
    assert not space.reports
    assert (await api.publish("orders", b"x", {"Content-Encoding": "identity"})).status == 201


async def test_an_expectation_is_met_or_refused_before_the_body(api: Api, space: FakeSpace) -> None:
    """RFC 9110, 10.1.1: a client that asks first is not made to send what will be refused."""
    reader, writer = await asyncio.open_connection("127.0.0.1", api.server.port)
    writer.write(HEAD + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\n")
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"abc")
    assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 201 ")
    writer.close()
    sent = HEAD + b"Expect: 100-continue\r\nContent-Length: 3000\r\n\r\n"
    refused = await within(5, lambda: raw(api, sent))
    problem(refused, 413, "too-large")
    assert b"Syncbrok-Sync: always\r\n" in refused
    assert b"aiohttp" not in refused


async def test_long_lines_and_many_headers_are_refused(api: Api, space: FakeSpace) -> None:
    """Headers are bounded line by line and in number: 431, naming the limit (RFC 6585)."""
    for sent, limit in (
        (b"POST /" + b"x" * 9_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", b"8190 bytes"),
        (HEAD + b"X-Long: " + b"x" * 9_000 + b"\r\n\r\n", b"8190 bytes"),
        (HEAD + b"X-" + b"x" * 9_000 + b": y\r\n\r\n", b"8190 bytes"),
        (HEAD + b"".join(b"X-%d: y\r\n" % n for n in range(200)) + b"\r\n", b"128 headers"),
        (HEAD + b"".join(b"X-%d: y\r\n" % n for n in range(20_000)) + b"\r\n", b"128 headers"),
    ):
        answer = await within(5, lambda: raw(api, sent))  # noqa: B023 (awaited within the loop)
        problem(answer, 431, "headers-too-large")
        assert limit in answer
        assert b"xxxx" not in answer, "what was sent is not repeated"
    assert not space.reports


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / SIP/2.0\r\n\r\n",
        b"nonsense\r\n\r\n",
        HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        HEAD + b"Content-Length: -3\r\n\r\n",
        HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"Bad Header: x\r\n\r\n",
        HEAD + b"X-A: a\x00b\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
async def test_what_is_no_request_is_refused_and_closed(api: Api, space: FakeSpace, sent: bytes) -> None:
    """Framing that two servers could read differently (request smuggling) is refused, and nothing is published."""
    problem(await within(5, lambda: raw(api, sent)), 400, "malformed")
    assert not space.reports


# -- number -----------------------------------------------------------------------------------------------------------


async def test_connections_are_capped(space: FakeSpace, served: Serve) -> None:
    """INTERFACES 5, connections: caps per address and in total. Who comes while the others are expected to ask hears
    that there is no room; who is there is served."""
    for caps, allowed in (((8, 6), 6), ((4, 6), 4)):
        options = {"connections_max": caps[0], "connections_per_address_max": caps[1]}
        async with served(space.channels, space, **options) as api:
            held = [await asyncio.open_connection("127.0.0.1", api.server.port) for _ in range(allowed)]
            await eventually(lambda: api.server.connections == allowed, "every one counted")  # noqa: B023
            refused = await raw(api, HEAD)
            problem(refused, 503, "crowded")
            assert b"Retry-After: 1\r\n" in refused
            for reader, writer in held:
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200 ")
            held[0][1].close()
            await eventually(lambda: api.server.connections == allowed - 1, "one gone")  # noqa: B023
            assert (await api.get("/healthz")).status == 200
            for _, writer in held:
                writer.close()


async def test_a_newcomer_takes_the_place_of_the_one_that_has_rested_longest(space: FakeSpace, served: Serve) -> None:
    """INTERFACES 5, connections: those that rest between requests, on either path, lock nobody out. The one that has
    rested longest is closed, the others go on."""
    one = HEAD + b"Content-Length: 1\r\n\r\nx"
    other = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    for asked in (one, other):
        async with served(space.channels, space, connections_per_address_max=4) as api:
            if asked is one:
                await api.post("/v1/queues", {"name": "orders"})
                await api._session.close()
                await eventually(lambda: api.server.connections == 0, "the client gone")
            held = [await asyncio.open_connection("127.0.0.1", api.server.port) for _ in range(4)]
            for reader, writer in held:
                writer.write(asked)
                await reader.readuntil(b"}")
            held[0][1].write(asked)  # the second has now rested longest
            await held[0][0].readuntil(b"}")
            assert b" 20" in await raw(api, asked.replace(b"Host: x", b"Host: x\r\nConnection: close"))
            assert await held[1][0].read() == b"", "it was closed"
            for reader, writer in (held[0], *held[2:]):
                writer.write(asked)
                assert b" 20" in await reader.readuntil(b"\r\n")
            for _, writer in held:
                writer.close()


async def test_sockets_that_ask_for_nothing_lock_nobody_out(space: FakeSpace, served: Serve) -> None:
    """INTERFACES 5, connections: of those that never asked the newest but sixteen makes way, and hears why. So who came
    first and asks is served, and who comes last too."""
    async with served(space.channels, space, connections_per_address_max=20) as api:
        asked = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        held = [await asyncio.open_connection("127.0.0.1", api.server.port) for _ in range(20)]
        await eventually(lambda: api.server.connections == 20, "every one counted")
        for _ in range(3):
            assert b" 200 " in await raw(api, asked)
        for reader, _ in held[3:4]:
            problem(await reader.read(), 503, "crowded")
        held[0][1].write(asked)
        assert b" 200 " in await held[0][0].read()
        for _, writer in held:
            writer.close()


async def test_pipelined_requests_are_answered_in_order(api: Api) -> None:
    """RFC 9112, 9.3.2: several requests in one packet."""
    sent = b"".join(HEAD + b"Content-Length: 1\r\n\r\n%d" % n for n in range(5))
    reader, writer = await asyncio.open_connection("127.0.0.1", api.server.port)
    writer.write(sent)
    sequences = []
    for _ in range(5):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        sequences.append(orjson.loads(await reader.readexactly(length))["sequence"])
    assert sequences == [1, 2, 3, 4, 5]
    writer.close()


async def test_a_client_that_goes_away_breaks_nothing(api: Api, space: FakeSpace) -> None:
    """Its message may be published or not; the next client is served."""
    for sent in (HEAD + b"Content-Length: 9\r\n\r\nabc", HEAD + b"Content-Length: 1\r\n\r\nx", b"GET / HT"):
        _, writer = await asyncio.open_connection("127.0.0.1", api.server.port)
        writer.write(sent)
        await writer.drain()
        writer.transport.abort()
    assert (await api.publish("orders", b"last")).status == 201
    assert [message.content for message in space.contents.values()] in ([b"x", b"last"], [b"last"])


async def test_a_crowd_is_let_in_some_at_a_turn_of_the_loop() -> None:
    """DESIGN 1, bounded: no callback of the loop over 50 ms. A thousand that connect at once wait in the system, and
    are let in some by some."""
    loop, turn, at = asyncio.get_running_loop(), 0, list[int]()

    def next_turn() -> None:
        nonlocal turn
        turn += 1
        if len(at) < 500:
            loop.call_soon(next_turn)

    def make() -> asyncio.Protocol:
        at.append(turn)
        return asyncio.Protocol()

    (one,), bounds = open_sockets("127.0.0.1", 0), Bounds()
    listening = Listening(make, bounds.connections(1_000, 1_000), bounds.addresses, 1.0)
    await listening.start(one, 1_024)
    try:
        crowd = [socket.create_connection(one.getsockname(), timeout=10) for _ in range(500)]
        next_turn()
        await eventually(lambda: len(at) == 500, "all are in")
        for connection in crowd:
            connection.close()
    finally:
        await listening.stop()
    assert max(Counter(at).values()) <= 64
