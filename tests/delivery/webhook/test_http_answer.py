"""Answers that are HTTP, though not as RFC 9112 has it written: taken as a client may, and then the connection goes."""

from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncbrok.delivery.webhook.address_guard import AddressGuard
from syncbrok.delivery.webhook.http_response import AnswerReader
from syncbrok.delivery.webhook.odd_response import GarbledAnswer, OddAnswer
from syncbrok.delivery.webhook.webhook import Webhook
from syncbrok.model import limits
from syncbrok.model.facts import Reason
from syncbrok.model.message import Format
from tests.support.delivery.endpoint import TIME_US, Answers, Endpoint, Reply, delivery, send, subscriber

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
ODD = {
    "a length beside chunked, which wins": OK + b"Content-Length: 9\r\n" + CHUNKED + b"\r\n4\r\ntrue\r\n0\r\n\r\n",
    "chunked before a length": OK + CHUNKED + b"Content-Length: 1\r\n\r\n4\r\ntrue\r\n0\r\n\r\n",
    "chunked in two headers": OK + CHUNKED + CHUNKED + b"\r\n4\r\ntrue\r\n0\r\n\r\n",
    "an empty line before it": b"\r\n" + OK + b"Content-Length: 4\r\n\r\ntrue",
    "identity and a length": OK + b"Transfer-Encoding: identity\r\nContent-Length: 4\r\n\r\ntrue",
    "no coding at all and a length": OK + b"Transfer-Encoding:\r\nContent-Length: 4\r\n\r\ntrue",
    "the same length twice": OK + b"Content-Length: 4\r\nContent-Length: 4\r\n\r\ntrue",
    "the same length as a list": OK + b"Content-Length: 4, 4\r\n\r\ntrue",
    "a length and an empty place in its list": OK + b"Content-Length: 4,\r\n\r\ntrue",
    "empty places around the same length": OK + b"Content-Length: ,4 , ,4\r\n\r\ntrue",
    "line feeds alone": b"HTTP/1.1 200 OK\nContent-Length: 4\n\ntrue",
    "line feeds alone around chunks": b"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n4\ntrue\n0\n\n",
    "a folded line": OK + b"X-A: b\r\n c\r\nContent-Length: 4\r\n\r\ntrue",
    "a folded length": OK + b"Content-Length:\r\n\t4\r\n\r\ntrue",
    "a folded line before any header": OK + b" what\r\nContent-Length: 4\r\n\r\ntrue",
    "a blank before a colon": OK + b"X-A : b\r\nContent-Length : 4\r\n\r\ntrue",
    "a carriage return in a value": OK + b"X-A: a\rb\r\nContent-Length: 4\r\n\r\ntrue",
    "a control character in a value": OK + b"X-A: a\x01b\r\nContent-Length: 4\r\n\r\ntrue",
    "blanks behind the size of a chunk": OK + CHUNKED + b"\r\n4  \r\ntrue\r\n0\r\n\r\n",
    "blanks before an extension": OK + CHUNKED + b"\r\n4 ; a=b\r\ntrue\r\n0 \r\nX-Trailer: x\r\n\r\n",
    "two blanks before the status": b"HTTP/1.1  200 OK\r\nContent-Length: 4\r\n\r\ntrue",
    "a later version": b"HTTP/1.2 200 OK\r\nContent-Length: 4\r\n\r\ntrue",
    "an interim answer before it": b"HTTP/1.1 103 Early Hints\nX: x\n\nHTTP/1.1 200 OK\nContent-Length: 4\n\ntrue",
}
REFUSED = {
    "two lengths": OK + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\ntrue",
    "two lengths in a list": OK + b"Content-Length: 4, 5\r\n\r\ntrue",
    "a length with a sign": OK + b"Content-Length: +4\r\n\r\ntrue",
    "a length of nothing": OK + b"Content-Length: ,\r\n\r\ntrue",
    "no length at all": OK + b"Content-Length:\r\n\r\ntrue",
    "chunked twice": b"HTTP/1.1 200 OK\n" + CHUNKED + CHUNKED + b"\r\n4\r\ntrue\r\n0\r\n\r\n",
    "a header without a name": OK + b": x\r\nContent-Length: 4\r\n\r\ntrue",
    "a header without a colon": OK + b"what\r\nContent-Length: 4\r\n\r\ntrue",
    "a zero byte": OK + b"X-A: a\0b\r\nContent-Length: 4\r\n\r\ntrue",
    "a chunk longer than it says": OK + CHUNKED + b"\r\n2 \r\ntrue\r\n0\r\n\r\n",
    "a chunk of no size": OK + CHUNKED + b"\r\n;a\r\ntrue\r\n0\r\n\r\n",
    "another protocol": b"HTTP/1.1 101 Switching\nUpgrade: x\n\n",
    "a status of two digits": b"HTTP/1.1 20 OK\r\nContent-Length: 4\r\n\r\ntrue",
}


@pytest.fixture
async def webhook() -> AsyncIterator[Webhook]:
    handler = Webhook(AddressGuard(loopback_allowed=True), lambda _: (), clock_us=lambda: TIME_US)
    yield handler
    await handler.close()


@pytest.mark.parametrize("data", ODD.values(), ids=ODD)
async def test_an_odd_answer_is_taken_and_its_connection_closed(webhook: Webhook, data: bytes) -> None:
    """RULES 23: what RFC 9112 lets a client take acknowledges, in one piece and byte by byte, body included; nothing
    more is sent on that connection, though the endpoint keeps it open."""
    replies = [Reply((data,)), Reply(tuple(data[i : i + 1] for i in range(len(data))))]
    async with Endpoint(lambda request: replies[request.connection % 2]) as endpoint:
        for _ in range(2):
            answers = Answers()
            send(webhook, subscriber(endpoint.url, Format.ORIGINAL), [delivery(timeout_s=5.0)], answers.done)
            (answer,) = await answers.wait_for(1)
            assert (answer.reason, answer.status, answer.detail) == (Reason.NONE, 200, b"")
        assert endpoint.connections == 2


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED)
def test_what_contradicts_itself_is_refused(data: bytes) -> None:
    """RULES 23: where an answer says two things about itself, or what no reader could take, the attempt has failed."""
    reader = AnswerReader()
    with pytest.raises(GarbledAnswer):
        reader.feed(data)


def test_an_odd_answer_without_a_length_ends_with_its_connection() -> None:
    """RULES 23: until the connection is closed it is not complete; one that is cut short never is."""
    reader = AnswerReader()
    assert not reader.feed(b"HTTP/1.1 503 Busy\nRetry-After: 7\n\nlater")
    assert reader.end()
    assert (reader.status, reader.retry_after, bytes(reader.body), reader.reusable) == (503, b"7", b"later", False)
    cut = AnswerReader()
    assert not cut.feed(b"HTTP/1.1 200 OK\nContent-Length: 4\n\ntru")
    assert not cut.end()


@pytest.mark.parametrize("framing", [b"Content-Length: 99999999999", b"Transfer-Encoding: chunked", b"X-None: x"])
def test_a_long_odd_body_is_cut(framing: bytes) -> None:
    """RULES 23: bodies are read up to 16 KiB, however the answer is framed."""
    reader = AnswerReader()
    begun = b"HTTP/1.1 200 OK\n" + framing + b"\n\n" + (b"fffffff \n" if b"chunked" in framing else b"")
    assert not reader.feed(begun)
    sent = 0
    while not reader.feed(b"x" * 4_096):
        sent += 4_096
        assert sent <= limits.response_bytes_max
    assert (reader.status, reader.oversized, len(reader.body)) == (200, True, limits.response_bytes_max)


def test_odd_headers_without_end_are_cut_off() -> None:
    """Bounded: an odd answer's headers may be as long as any other's."""
    reader = AnswerReader()
    with pytest.raises(GarbledAnswer, match="longer than"):
        reader.feed(b"HTTP/1.1 100 Continue\n\n" * 10_000)


@given(
    status=st.sampled_from([200, 201, 204, 404, 410, 500]),
    body=st.binary(max_size=60),
    chunks=st.booleans(),
    cuts=st.lists(st.integers(0, 250), max_size=6),
)
def test_both_readers_agree_about_plain_answers(status: int, body: bytes, chunks: bool, cuts: list[int]) -> None:
    """RULES 23: where the strict reader takes an answer, the other one reads the same status and body, however the
    bytes come."""
    body = b"" if status == 204 else body
    if chunks and body:
        framed = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    else:
        framed = b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    data = b"HTTP/1.1 %d X\r\nRetry-After: 3\r\n%b" % (status, framed)
    strict, odd = AnswerReader(), OddAnswer()
    assert strict.feed(data)
    ends = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    for begin, end in pairwise(ends):
        odd.feed(data[begin:end])
    assert odd.complete
    assert (odd.status, bytes(odd.body), odd.retry_after) == (strict.status, bytes(strict.body), strict.retry_after)
