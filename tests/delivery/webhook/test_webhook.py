"""The webhook handler against real sockets: what answers mean, which connections carry what, what ends how."""

import asyncio
import base64
import socket
from collections.abc import AsyncIterator

import pytest

from syncbrok.delivery.handler import AttemptResult, Delivery
from syncbrok.delivery.webhook.address_guard import AddressGuard
from syncbrok.delivery.webhook.webhook import Webhook
from syncbrok.model import limits
from syncbrok.model.facts import Reason
from syncbrok.model.message import Format
from tests.support.delivery.endpoint import (
    HANG,
    TIME_US,
    Answers,
    Endpoint,
    Reply,
    Request,
    delivery,
    message,
    reply,
    send,
    subscriber,
)
from tests.support.polling import eventually
from tests.support.servers import close_server

TRUE = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ntrue"


@pytest.fixture
async def webhook() -> AsyncIterator[Webhook]:
    handler = Webhook(AddressGuard(loopback_allowed=True), lambda _: (), clock_us=lambda: TIME_US)
    yield handler
    await handler.close()


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with Endpoint() as running:
        yield running


async def ask(webhook: Webhook, url: str, kind: Format = Format.RAW, *deliveries: Delivery) -> list[AttemptResult]:
    """What came of the deliveries (one plain one where none is given)."""
    answers = Answers()
    wanted = deliveries or (delivery(),)
    send(webhook, subscriber(url, kind), wanted, answers.done)
    assert not answers.all, "done was called from inside deliver"
    return await answers.wait_for(len(wanted))


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
async def test_2xx_acknowledges(webhook: Webhook, endpoint: Endpoint, status: int) -> None:
    """INTERFACES 3: 2xx acknowledges, whatever the body says."""
    endpoint.answer = lambda _: (
        Reply((f"HTTP/1.1 {status} X\r\n\r\n".encode(),)) if status == 204 else reply(f"{status} X")
    )
    (answer,) = await ask(webhook, endpoint.url)
    assert (answer.reason, answer.status, answer.detail) == (Reason.NONE, status, b"")
    assert 0 < answer.latency_us < 10_000_000


@pytest.mark.parametrize("status", [300, 301, 302, 304, 307, 308, 400, 401, 404, 409, 422, 500, 501])
async def test_other_statuses_fail(webhook: Webhook, endpoint: Endpoint, status: int) -> None:
    """INTERFACES 3: 3xx is a failure and is never followed; so are 4xx and 5xx. The body's first KiB is kept."""
    async with Endpoint() as elsewhere:
        body = b"" if status == 304 else b"no, because " + b"x" * 2_000
        endpoint.answer = lambda _: reply(f"{status} X", body, f"Location: {elsewhere.url}")
        (answer,) = await ask(webhook, endpoint.url)
        assert (answer.reason, answer.status) == (Reason.STATUS, status)
        assert answer.detail == body[: limits.response_bytes_kept]
        assert elsewhere.connections == 0


async def test_410_is_gone(webhook: Webhook, endpoint: Endpoint) -> None:
    """INTERFACES 3: 410 disables the subscriber; here it is only told apart."""
    endpoint.answer = lambda _: reply("410 Gone", b"closed the shop")
    assert await ask(webhook, endpoint.url) == [
        AttemptResult(Reason.GONE, 410, None, pytest.approx(0, abs=10_000_000), b"closed the shop")  # type: ignore[arg-type]
    ]


@pytest.mark.parametrize(
    ("status", "value", "seconds"),
    [
        (429, "120", 120.0),
        (503, "0", 0.0),
        (502, "7", 7.0),
        (504, "7", 7.0),
        (429, "Tue, 14 Nov 2023 22:14:20 GMT", 60.0),
        (503, "Tue, 14 Nov 2023 22:00:00 GMT", 0.0),
        (503, "99999999999", limits.retry_after_max_s),
        (429, "soon", None),
        (429, "-5", None),
        (500, "120", None),
    ],
)
async def test_retry_after_is_passed_on(
    webhook: Webhook, endpoint: Endpoint, status: int, value: str, seconds: float | None
) -> None:
    """INTERFACES 3: 429 and 503 (and 502, 504) honour ``Retry-After``, in seconds or as a date."""
    endpoint.answer = lambda _: reply(f"{status} X", b"", f"Retry-After: {value}")
    (answer,) = await ask(webhook, endpoint.url)
    assert (answer.reason, answer.status, answer.retry_after_s) == (Reason.STATUS, status, seconds)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"true", Reason.NONE),
        (b" true\n", Reason.NONE),
        (b"false", Reason.NOT_TRUE),
        (b"", Reason.NOT_TRUE),
        (b'"true"', Reason.NOT_TRUE),
    ],
)
async def test_the_original_format_wants_true(
    webhook: Webhook, endpoint: Endpoint, body: bytes, reason: Reason
) -> None:
    """INTERFACES 2: it has acknowledged when it answers 2xx with the body ``true``, and only then."""
    endpoint.answer = lambda _: reply("200 OK", body)
    (answer,) = await ask(webhook, endpoint.url, Format.ORIGINAL)
    assert (answer.reason, answer.status, answer.detail) == (reason, 200, b"" if reason is Reason.NONE else body)


async def test_a_format_changed_on_the_way_is_judged_anew(webhook: Webhook, endpoint: Endpoint) -> None:
    """RULES 3: the format is read at each attempt; an answer known from the old format means nothing in the new."""
    endpoint.answer = lambda _: reply("200 OK", b"fine")
    kinds = (Format.RAW, Format.RAW, Format.ORIGINAL)
    reasons = [(await ask(webhook, endpoint.url, kind))[0].reason for kind in kinds]
    assert reasons == [Reason.NONE, Reason.NONE, Reason.NOT_TRUE]
    assert endpoint.connections == 1


@pytest.mark.parametrize(
    "pieces",
    [
        (b"HTTP/1.1 100 Continue\r\n\r\n" + TRUE,),
        (b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", TRUE),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\ntr\r\n", b"2\r\nue\r\n0\r\n\r\n"),
        tuple(TRUE[i : i + 1] for i in range(len(TRUE))),
        (b"HTTP/1.0 200 OK\r\n\r\ntrue",),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\ntr", b"ue"),
        (TRUE + b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n",),
        (TRUE + b"\x00garbage",),
        (TRUE.replace(b"\r\n\r\n", b"\r\nX-Long: " + b"y" * 20_000 + b"\r\n\r\n"),),
    ],
    ids=["100", "103", "chunked", "byte by byte", "1.0 until the end", "close", "two answers", "garbage after", "long"],
)
async def test_every_way_to_say_true_is_understood(
    webhook: Webhook, endpoint: Endpoint, pieces: tuple[bytes, ...]
) -> None:
    """Real servers answer in all these ways. What follows an answer is not taken for the next one."""
    closes = b"1.0" in pieces[0] or b"Connection: close" in pieces[0]
    endpoint.answer = lambda _: Reply(pieces, close=closes)
    for _ in range(2):
        (answer,) = await ask(webhook, endpoint.url, Format.ORIGINAL)
        assert (answer.reason, answer.status) == (Reason.NONE, 200)
    out_of_step = closes or (
        pieces[-1].startswith(TRUE) and len(pieces[-1]) > len(TRUE) and b"X-Long" not in pieces[-1]
    )
    assert endpoint.connections == (2 if out_of_step else 1)


@pytest.mark.parametrize(
    "pieces",
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n",),
        (b"HTTP/1.1 abc\r\n\r\n",),
        (b"\x15\x03\x01\x00\x02\x02\x46",),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\ntrue",),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\ntrue",),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ntrue\r\n",),
        (),
    ],
    ids=["ssh", "status", "tls alert", "101", "lengths", "cut body", "cut chunk", "nothing"],
)
async def test_garbage_is_a_protocol_failure(webhook: Webhook, endpoint: Endpoint, pieces: tuple[bytes, ...]) -> None:
    """What is not a whole HTTP answer fails the attempt, and costs no more memory than its bounds."""
    endpoint.answer = lambda _: Reply(pieces, close=True)
    (answer,) = await ask(webhook, endpoint.url)
    assert answer.reason is Reason.PROTOCOL
    assert answer.detail


async def test_a_body_behind_an_answer_that_has_none_begins_no_other(webhook: Webhook, endpoint: Endpoint) -> None:
    """DESIGN 1, at least once: an endpoint that writes ``true`` behind a 204 (RFC 9112, 6.3: it has no body) is not
    sent a second copy because that was taken for the beginning of the next answer."""
    met: set[int] = set()

    def late(request: Request) -> Reply:
        """The body comes when the next request is there already."""
        body = b"true" if request.connection in met else b""
        met.add(request.connection)
        return Reply((body + b"HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\n",))

    endpoint.answer = late
    for sequence in range(3):
        answers = Answers()
        send(webhook, subscriber(endpoint.url), [delivery(sequence)], answers.done)
        (answer,) = await answers.wait_for(1)
        assert (answer.reason, answer.status) == (Reason.NONE, 204), answer


@pytest.mark.parametrize(
    "pieces", [b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000, b"HTTP/1.1 100 Continue\r\n\r\n" * 4_000]
)
async def test_headers_without_end_are_cut_off(webhook: Webhook, endpoint: Endpoint, pieces: bytes) -> None:
    """An endpoint that never comes to the point is not read for the whole timeout, nor kept in memory."""
    endpoint.answer = lambda _: Reply((pieces,))
    (answer,) = await ask(webhook, endpoint.url, Format.RAW, delivery(timeout_s=60.0))
    assert (answer.reason, b"longer than" in answer.detail) == (Reason.PROTOCOL, True)


async def test_long_bodies_are_cut_and_judged_by_the_status(webhook: Webhook, endpoint: Endpoint) -> None:
    """RULES 23: bodies are read up to 16 KiB. The connection is given up; the next attempt has a new one."""
    endless = (b"HTTP/1.1 200 OK\r\n\r\n", *(b"x" * 8_192 for _ in range(8)))
    endpoint.answer = lambda _: Reply(endless)
    for kind, reason in ((Format.RAW, Reason.NONE), (Format.ORIGINAL, Reason.NOT_TRUE)):
        (answer,) = await ask(webhook, endpoint.url, kind)
        assert (answer.reason, answer.status) == (reason, 200)
    assert endpoint.connections == 2


async def test_a_large_message_goes_out_whole(webhook: Webhook, endpoint: Endpoint) -> None:
    """INTERFACES 5: bodies up to 1 MiB, byte for byte."""
    content = bytes(range(256)) * 4_096
    (answer,) = await ask(webhook, endpoint.url, Format.RAW, delivery(of=message(content=content)))
    assert answer.reason is Reason.NONE
    assert endpoint.requests[0].body == content
    (answer,) = await ask(webhook, endpoint.url, Format.ORIGINAL, delivery(of=message(content=content)))
    assert base64.b64encode(content) in endpoint.requests[1].body


async def test_an_early_answer_to_half_a_request_closes_the_connection(webhook: Webhook) -> None:
    """A server that refuses a body without reading it has answered; the rest of the body must not become the next
    request on that connection."""
    taken: list[asyncio.StreamWriter] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")

    narrow = socket.socket()
    narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    narrow.bind(("127.0.0.1", 0))
    server = await asyncio.start_server(refuse, sock=narrow)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    big = delivery(of=message(content=bytes(32 * limits.MIB)))  # more than the kernel takes in
    for _ in range(2):
        (answer,) = await ask(webhook, url, Format.RAW, big)
        assert (answer.reason, answer.status) == (Reason.STATUS, 413)
    assert len(taken) == 2
    await webhook.close()
    for writer in taken:
        writer.transport.abort()
    await close_server(server)
    await server.wait_closed()


async def test_silence_is_a_timeout(webhook: Webhook, endpoint: Endpoint) -> None:
    """INTERFACES 3: no answer in ``timeout``, or one that does not end, is a failure; its connection is gone."""
    replies = {1: HANG, 2: Reply((b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n",))}
    endpoint.answer = lambda request: replies[int(request.headers["syncbrok-sequence"])]
    answers = await ask(webhook, endpoint.url, Format.RAW, delivery(1, timeout_s=0.1), delivery(2, timeout_s=0.2))
    assert [answer.reason for answer in answers] == [Reason.TIMEOUT, Reason.TIMEOUT]
    assert [answer.latency_us // 100_000 for answer in answers] == [1, 2]
    await eventually(lambda: endpoint.open == 0, "both connections closed")


async def test_one_that_hangs_holds_up_no_neighbour(webhook: Webhook, endpoint: Endpoint) -> None:
    """RULES 15: neighbours of a message that hangs notice nothing: no answer waits behind another."""
    endpoint.answer = lambda request: HANG if request.headers["syncbrok-sequence"] == "1" else reply()
    answers = Answers()
    send(webhook, subscriber(endpoint.url), [delivery(i) for i in range(1, 20)], answers.done)
    await answers.wait_for(18)
    assert 1 not in {given.attempt.message for given, _ in answers.all}


def dead_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.mark.parametrize("url", ["http://127.0.0.1:DEAD/", "http://no-such-name.invalid/", "http://[::1]:9/"])
async def test_no_connection_is_told_apart(webhook: Webhook, url: str) -> None:
    """``Reason.CONNECT``: refused, unreachable, name not found; one failure for each attempt."""
    answers = await ask(webhook, url.replace("DEAD", str(dead_port())), Format.RAW, *(delivery(i) for i in range(5)))
    assert [answer.reason for answer in answers] == [Reason.CONNECT] * 5
    assert all(answer.detail for answer in answers)


async def test_a_bad_endpoint_is_an_answer(webhook: Webhook) -> None:
    """``deliver`` never raises, whatever is in the log."""
    for url in ("", "ftp://x/", "http://", "http://h:99999/", "http://a b/"):
        (answer,) = await ask(webhook, url)
        assert answer.reason is Reason.CONNECT


async def test_a_secret_that_is_lost_is_an_answer(endpoint: Endpoint) -> None:
    """A message that cannot be signed is not sent unsigned."""
    webhook = Webhook(AddressGuard(loopback_allowed=True), {}.__getitem__)
    (answer,) = await ask(webhook, endpoint.url)
    assert answer.reason is Reason.CONNECT
    assert not endpoint.requests
    await webhook.close()


async def test_a_message_that_cannot_be_rendered_is_an_answer(webhook: Webhook, endpoint: Endpoint) -> None:
    """One message that breaks the rendering fails alone; its connection serves the others."""
    broken = delivery(of=message(content_type=None))
    answers = await ask(webhook, endpoint.url, Format.ORIGINAL, delivery(of=message(content=None)), delivery(8), broken)
    assert sorted(answer.reason for answer in answers) == [Reason.PROTOCOL, Reason.NOT_TRUE, Reason.NOT_TRUE]
    assert await ask(webhook, endpoint.url)
