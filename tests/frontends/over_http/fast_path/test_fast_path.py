"""The short way of a simple publish answers as the long way does, and takes nothing that could be read differently."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import orjson
import pytest
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import HttpRequestParser
from hypothesis import given
from hypothesis import strategies as st

from syncbrok.frontends.bounds import Bounds
from syncbrok.frontends.over_http.fast_path.fast_connection import HEAD_BYTES_MAX
from syncbrok.frontends.over_http.fast_path.request_head import RequestHead, parse_head
from syncbrok.model import errors, limits
from syncbrok.model.limits import KIB
from syncbrok.model.message import QueueSettings
from syncbrok.model.names import QueueName
from syncbrok.space.budgets import Budgets
from syncbrok.space.channels import Publish
from tests.frontends.over_http.requests.test_auth import token
from tests.support.http.api import Api, Serve, reset
from tests.support.polling import eventually
from tests.support.space.fake_space import FakeSpace

REQUEST = "POST /v1/queues/orders/messages HTTP/1.1"
ORDERS = QueueName("orders")
UNKNOWN = "01a1fba6-f093-8000-8000-000104aafc26"


@pytest.fixture
def space() -> FakeSpace:
    return FakeSpace()


@pytest.fixture
async def api(space: FakeSpace, served: Serve) -> AsyncIterator[Api]:
    async with served(space.channels, space) as running:
        assert (await running.post("/v1/queues", {"name": "orders"})).status == 201
        yield running


def publish(content: bytes, *headers: str, queue: str = "orders") -> bytes:
    lines = [REQUEST.replace("orders", queue), "Host: x", f"Content-Length: {len(content)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + content


class Wire:
    """A client's end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def answer(self) -> tuple[int, dict[str, str], Any]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in head[1:-2])
        body = await self.reader.readexactly(int(headers["Content-Length"]))
        return int(head[0].split(" ")[1]), headers, orjson.loads(body)

    async def ask(self, *pieces: bytes) -> tuple[int, dict[str, str], Any]:
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
        return await self.answer()


Connect = Callable[[Api], Awaitable[Wire]]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Opens connections; they are closed with the test."""
    wires: list[Wire] = []

    async def open_one(api: Api) -> Wire:
        wires.append(Wire(*await asyncio.open_connection("127.0.0.1", api.server.port)))
        return wires[-1]

    yield open_one
    for wire in wires:
        wire.writer.transport.abort()
    await asyncio.gather(*(wire.writer.wait_closed() for wire in wires), return_exceptions=True)


# -- the two ways -----------------------------------------------------------------------------------------------------

LONG_WAY = "Sec-Fetch-Site: none"
"""a header that means nothing and is not of a simple publish"""


@pytest.mark.parametrize(
    "request_headers",
    [
        (),
        ("Content-Type: text/plain",),
        ("Idempotency-Key: first",),
        ("Idempotency-Key: other",),
        ("Syncbrok-Key: k", "Syncbrok-Delay: 5s", "traceparent: 00", "Syncbrok-Forward-X-A: b"),
        ("Syncbrok-Parent: first",),
        (f"Syncbrok-Parent: {UNKNOWN}",),
        ("Syncbrok-Parent: ?",),
        ("Syncbrok-Parnet: x",),
        ("Syncbrok-Delay: soon",),
        ("Content-Type: " + "x" * 300,),
        ("ce-id: 1",),
        ("ce-id: 1", "ce-source: /s", "ce-type: t", "ce-specversion: 1.0"),
    ],
)
@pytest.mark.parametrize(
    "refusal", [None, errors.Overloaded("full", retry_after_s=3), errors.LogFull("full"), OSError()]
)
async def test_both_ways_answer_alike(
    connect: Connect, api: Api, space: FakeSpace, request_headers: tuple[str, ...], refusal: Exception | None
) -> None:
    """One interface: status, headers and body are the same whichever way a publish takes."""
    status, _, first = await (await connect(api)).ask(publish(b"first", "Idempotency-Key: first"))
    assert status == 201
    headers = [line.replace("Syncbrok-Parent: first", f"Syncbrok-Parent: {first['id']}") for line in request_headers]
    space.refuse_later = refusal
    short, long = await connect(api), await connect(api)
    await short.ask(publish(b"first", *headers))  # so that an idempotency key is known to both
    answers = [await short.ask(publish(b"first", *headers)), await long.ask(publish(b"first", *headers, LONG_WAY))]
    assert api.server.fast_path_connections == 1 + 1, "the short way did not take what it is for"
    for _, answered, body in answers:
        for changing in ("Date", "Location", "Content-Length"):
            answered.pop(changing, None)
        for changing in ("id", "sequence", "time", "state"):
            body.pop(changing, None)
    assert answers[0] == answers[1]


async def test_tokens_are_asked_for_on_both_ways(connect: Connect, space: FakeSpace, served: Serve) -> None:
    """The short way is not a way around the tokens."""
    async with served(space.channels, space, tokens=(token("a", "publish"), token("b", "read"))) as api:
        space.settings[ORDERS] = QueueSettings()
        for more in ((), (LONG_WAY,)):
            wire = await connect(api)
            assert (await wire.ask(publish(b"x", *more)))[0] == 401
            assert (await wire.ask(publish(b"x", "Authorization: Bearer secret of b", *more)))[0] == 403
            assert (await wire.ask(publish(b"x", "Authorization: Bearer secret of nobody", *more)))[0] == 401
            assert not space.put_items
            assert (await wire.ask(publish(b"x", "authorization: bearer secret of a", *more)))[0] == 201
            space.put_items.clear()


async def test_a_body_that_stops_is_its_tokens_and_not_its_addresss(
    connect: Connect, space: FakeSpace, served: Serve
) -> None:
    """INTERFACES 5, bytes being received: who shares an address with a greedy client, but not its token, keeps its
    own share; on the short way too."""
    budgets = Budgets.of()
    tokens = (token("a", "publish"), token("b", "publish"))
    async with served(space.channels, space, tokens=tokens, bounds=Bounds(budgets)) as api:
        space.settings[ORDERS] = QueueSettings()
        wire = await connect(api)
        for name in "ab":
            whole = publish(bytes(60 * KIB), f"Authorization: Bearer secret of {name}")
            wire.writer.write(whole[: 40 * KIB])
            await eventually(lambda name=name: budgets.receiving.held(f"token {name}") > 39 * KIB, str(budgets))
            assert budgets.receiving.owners == 1, budgets.receiving
            assert (await wire.ask(whole[40 * KIB :]))[0] == 201
            assert not budgets.receiving.owners
        assert api.server.fast_path_connections == 1


async def test_a_conversation_may_be_cut_anywhere(connect: Connect, api: Api, space: FakeSpace) -> None:
    """Wherever packets end, requests are the same; after anything else than a simple publish aiohttp goes on."""
    requests = [
        publish(b"1"),
        publish(b"22", "Syncbrok-Key: k"),
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
        publish(b""),
    ]
    stream = b"".join(requests)
    for cut in range(1, len(stream)):
        wire = await connect(api)
        wire.writer.write(stream[:cut])
        await asyncio.sleep(0)
        wire.writer.write(stream[cut:])
        assert [(await wire.answer())[0] for _ in requests] == [201, 201, 200, 201], cut
        wire.writer.close()
    contents = [message.content for message in space.contents.values()]
    assert contents == [b"1", b"22", b""] * (len(stream) - 1)


async def test_bytes_one_by_one_are_requests_too(connect: Connect, api: Api, space: FakeSpace) -> None:
    """However slowly it comes, as long as it comes in time."""
    wire = await connect(api)
    sent = publish(b"content", "Syncbrok-Key: k")
    assert (await wire.ask(*[sent[at : at + 1] for at in range(len(sent))]))[0] == 201
    assert api.server.fast_path_connections == 1
    assert [message.content for message in space.contents.values()] == [b"content"]


async def test_bodies_of_any_size_are_whole(connect: Connect, api: Api, space: FakeSpace) -> None:
    """Long ones come in many pieces, and what follows them in the last piece is the next request."""
    for size in (0, 1, limits.uncounted_bytes, limits.uncounted_bytes + 1, 100_000, 1_000_000):
        content = random.Random(size).randbytes(size)
        wire = await connect(api)
        sent = publish(content) + publish(b"next")
        for at in range(0, len(sent), 50_000):
            wire.writer.write(sent[at : at + 50_000])
            await wire.writer.drain()
        for expected in (content, b"next"):
            status, _, found = await wire.answer()
            assert status == 201
            assert (await api.get(f"/v1/messages/{found['id']}/content")).body == expected
        assert api.server.fast_path_connections == 1
        wire.writer.close()
        await eventually(lambda: api.server.fast_path_connections == 0, "closed")


async def test_room_for_a_long_body_is_taken_whole_and_given_back(connect: Connect, api: Api) -> None:
    """INTERFACES 5, bytes received: all of a body counts from its beginning, so that every sender who is let in can
    finish; and nothing of it once it is whole, or its client has gone."""
    budget = api.server._fast_path.limits.bounds.receiving.budget
    before = budget.used
    for leaves in (False, True):
        wire = await connect(api)
        sent = publish(b"x" * 300_000)
        wire.writer.write(sent[:100])
        await eventually(lambda: budget.used == before + 300_000, "all of it is counted")
        if leaves:
            wire.writer.close()
        else:
            assert (await wire.ask(sent[100:]))[0] == 201
        await eventually(lambda: budget.used == before, "none of it is")


async def test_a_long_body_for_which_there_is_no_room_waits(connect: Connect, api: Api) -> None:
    """It takes the long way, where it waits in line; when there is room it is taken, and the content is whole."""
    bounds = api.server._fast_path.limits.bounds
    receiving, owner = bounds.receiving, bounds.addresses.owner("127.0.0.1")
    taken = receiving.budget.room(owner) * 7 // 8  # what is left is for beginnings
    assert receiving.budget.try_take(owner, taken)
    wire = await connect(api)
    content = random.Random(7).randbytes(300_000)
    wire.writer.write(publish(content)[:1_000])
    await eventually(lambda: api.server.fast_path_connections == 0 and receiving._line, "it waits in line")
    receiving.give_back(owner, taken)
    status, _, found = await wire.ask(publish(content)[1_000:])
    assert status == 201
    assert (await api.get(f"/v1/messages/{found['id']}/content")).body == content


async def test_a_client_that_does_not_read_is_not_read_from(connect: Connect, api: Api, space: FakeSpace) -> None:
    """Pipelining without reading the answers fills the client's own buffers, not the broker's memory."""
    wire = await connect(api)
    wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
    sent = publish(b"x") * 1_000
    for _ in range(200):
        wire.writer.write(sent)
        try:
            async with asyncio.timeout(0.5):
                await wire.writer.drain()
        except TimeoutError:
            break
    else:
        pytest.fail("the broker takes everything and keeps the answers")
    (publisher,) = api.server._fast_path.open
    assert len(publisher._held) < 1_000_000
    assert publisher._transport is not None
    assert publisher._transport.get_write_buffer_size() < 1_000_000
    wire.writer.transport.resume_reading()  # type: ignore[attr-defined]
    for _ in range(1_000):
        assert (await wire.answer())[0] == 201


async def test_who_leaves_before_the_answer_breaks_nothing(connect: Connect, api: Api, space: FakeSpace) -> None:
    """The receipt of a client that has gone is settled all the same, refused ones too."""
    receipts: list[asyncio.Future[Any]] = []

    def put(item: Publish) -> asyncio.Future[Any]:
        receipts.append(asyncio.get_running_loop().create_future())
        return receipts[-1]

    space.put = put  # type: ignore[method-assign]
    space.channels = None  # type: ignore[assignment]
    for settle in (
        lambda one: one.set_exception(errors.LogFull("full")),
        lambda one: one.cancel(),
        lambda one: one.set_result(None),
    ):
        wire = await connect(api)
        wire.writer.write(publish(b"x"))
        await eventually(lambda: receipts, "the publish")
        reset(wire.writer)
        await eventually(lambda: api.server.fast_path_connections == 0, "gone")
        settle(receipts.pop())
        await asyncio.sleep(0)
    assert (await api.get("/healthz")).status == 200


async def test_a_stopping_server_answers_what_it_has_taken(connect: Connect, space: FakeSpace, served: Serve) -> None:
    """Shutdown: a publish that waits for its fsync is answered, connections at rest are closed."""
    receipt: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    async with served(space.channels, space, stop_timeout_s=5.0) as api:
        space.settings[ORDERS] = QueueSettings()
        resting, busy = await connect(api), await connect(api)
        assert (await resting.ask(publish(b"x")))[0] == 201
        accepted = space._work(space.put_items[-1])
        space.put = lambda _: receipt  # type: ignore[method-assign,assignment]
        busy.writer.write(publish(b"y"))
        await eventually(lambda: any(one._answering for one in api.server._fast_path.open), "an answer under way")
        stopping = asyncio.ensure_future(api.server.stop())
        assert await resting.reader.read() == b""
        receipt.set_result(accepted)
        assert (await busy.answer())[0] == 201
        async with asyncio.timeout(2.5):
            assert await busy.reader.read() == b""
            await stopping
        assert (api.server.connections, api.server.fast_path_connections) == (0, 0)


async def test_a_server_does_not_wait_for_ever(connect: Connect, space: FakeSpace, served: Serve) -> None:
    """Shutdown is bounded: what has no answer within the time is closed without one."""
    async with served(space.channels, space, stop_timeout_s=0.1) as api:
        space.put = lambda _: asyncio.get_running_loop().create_future()  # type: ignore[method-assign,assignment]
        wire = await connect(api)
        wire.writer.write(publish(b"y"))
        await eventually(lambda: any(one._answering for one in api.server._fast_path.open), "an answer under way")
        await api.server.stop()
        with suppress(ConnectionError):  # it may be a reset: no answer either way
            assert await wire.reader.read() == b""
        assert api.server.connections == 0


async def test_connections_at_rest_are_closed_in_the_end(connect: Connect, space: FakeSpace, served: Serve) -> None:
    """A kept-alive connection may rest for ``keepalive_timeout_s``; nobody is told anything."""
    options = {"keepalive_timeout_s": 0.2, "headers_timeout_s": 0.4}
    async with served(space.channels, space, **options) as api:
        space.settings[ORDERS] = QueueSettings()
        wire = await connect(api)
        assert (await wire.ask(publish(b"x")))[0] == 201
        async with asyncio.timeout(5):
            assert await wire.reader.read() == b""


# -- what is taken ----------------------------------------------------------------------------------------------------


def head(*headers: str, request: str = REQUEST) -> bytes:
    return "\r\n".join([request, *headers]).encode("latin-1")


def test_a_simple_publish_is_read() -> None:
    """Header names in lower case, values without the blanks around them."""
    found = parse_head(head("Host: x", "CONTENT-LENGTH:  7 ", "Connection: Keep-Alive", "X-A:b:c", "Authorization: t"))
    given = [("content-length", "7"), ("connection", "Keep-Alive"), ("x-a", "b:c"), ("authorization", "t")]
    assert found == RequestHead(ORDERS, 7, "x", "t", [("host", "x"), *given])


@pytest.mark.parametrize(
    "lines",
    [
        (),
        ("Content-Length: 1", "Content-Type: a", "Content-Type: b"),
        ("Content-Length: 1", "Host: y"),
        ("Content-Length: 1", "Content-Length: 1"),
        ("Content-Length: 1", "content-length: 2"),
        ("Content-Length: +1",),
        ("Content-Length: -1",),
        ("Content-Length: 1 1",),
        ("Content-Length: 0x1",),
        ("Content-Length: 1_0",),
        ("Content-Length: 123456789",),
        ("Content-Length : 1",),
        (" Content-Length: 1",),
        ("Content-Length: 1", " folded: x"),
        ("Content-Length: 1", "Transfer-Encoding: chunked"),
        ("Content-Length: 1", "transfer-encoding: identity"),
        ("Content-Length: 1", "Transfer-Encoding : chunked"),
        ("Content-Length: 1", "Transfer_Encoding: chunked"),
        ("Content-Length: 1", "Connection: close"),
        ("Content-Length: 1", "Connection: upgrade", "Upgrade: h2c"),
        ("Content-Length: 1", "Expect: 100-continue"),
        ("Content-Length: 1", "Prefer: wait=1"),
        ("Content-Length: 1", "Content-Encoding: gzip"),
        ("Content-Length: 1", "ce-causationid: x"),
        ("Content-Length: 1", "Authorization: a", "Authorization: b"),
        ("Content-Length: 1", "nothing"),
        ("Content-Length: 1", ": x"),
        ("Content-Length: 1", "-: x"),
        ("Content-Length: 1", "X-A: caf\xe9"),
        ("Content-Length: 1", "X-A: a\x00b"),
        ("Content-Length: 1", "X-A: a\tb"),
        ("Content-Length: 1", "X-A: a\nTransfer-Encoding: chunked"),
        ("Content-Length: 1", "X-A: a\rb"),
    ],
)
def test_what_is_in_doubt_is_left_to_aiohttp(lines: tuple[str, ...]) -> None:
    """Nothing that two readers of HTTP could read as different requests takes the short way (request smuggling)."""
    assert parse_head(head("Host: x", "Content-Length: 1")) is not None
    assert parse_head(head("Host: x", *lines)) is None
    assert parse_head(head("Content-Length: 1")) is None


@pytest.mark.parametrize(
    "request_line",
    [
        "POST /v1/queues/orders/messages HTTP/1.0",
        "POST /v1/queues/orders/messages  HTTP/1.1",
        "POST /v1/queues/orders/messages?x=1 HTTP/1.1",
        "POST /v1/queues/orders/messages:batch HTTP/1.1",
        "POST /v1/queues/../messages HTTP/1.1",
        "POST /v1/queues//messages HTTP/1.1",
        "POST /v1/queues/a/b/messages HTTP/1.1",
        "POST /v1/queues/a%2Fb/messages HTTP/1.1",
        "POST /v1/queues/orders HTTP/1.1",
    ],
)
def test_other_requests_are_left_to_aiohttp(request_line: str) -> None:
    """Only the one route, spelt plainly."""
    assert parse_head(head("Host: x", "Content-Length: 1", request=request_line)) is None


NAMES = ["Host", "Content-Length", "content-length", "Transfer-Encoding", "X-A", "Connection", "keep-alive", "close"]
MARKS = [":", ": ", " ", "\t", "\r", "\n", "\r\n", "1", "0", "+", "chunked", "\x00", "\x7f", ",", "_", "-"]
PIECES = st.sampled_from([*NAMES, *MARKS])


@given(st.lists(PIECES, max_size=12).map("".join))
def test_whatever_is_taken_aiohttp_would_read_the_same(more: str) -> None:
    """The two readers agree on every head that the strict one takes: the same headers, the same length of body."""
    text = head("Host: x", "Content-Length: 3", *more.split("\r\n"))
    found = parse_head(text)
    if found is None:
        return
    loop = asyncio.new_event_loop()
    try:
        protocol = BaseProtocol(loop)
        parser = HttpRequestParser(protocol, loop, 2**16, max_field_size=8_190, max_line_size=8_190)
        ((message, payload),), upgraded, tail = parser.feed_data(text + b"\r\n\r\nabc")
        assert payload.is_eof()
        assert payload.read_nowait() == b"abc"
    except HttpProcessingError as error:
        raise AssertionError(f"aiohttp refuses what the short way takes: {text!r}") from error
    finally:
        loop.close()
    assert (message.method, message.path, message.should_close, upgraded, tail) == (
        "POST",
        "/v1/queues/orders/messages",
        False,
        False,
        b"",
    )
    assert found.content_bytes == 3
    assert [(name.lower(), value) for name, value in message.headers.items()] == found.headers


async def test_heads_without_end_are_left_to_aiohttp(connect: Connect, api: Api) -> None:
    """What could be the begin of a simple publish is held up to a bound, then aiohttp refuses it in its own way."""
    wire = await connect(api)
    status, _, body = await wire.ask(publish(b"", "X-A: " + "x" * HEAD_BYTES_MAX))
    assert (status, body["type"]) == (431, "urn:syncbrok:problem:headers-too-large")
