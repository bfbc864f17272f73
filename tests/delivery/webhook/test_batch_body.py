"""INTERFACES 3: what a request with several messages looks like."""

import base64
import hmac
import json
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncbrok.client import messages_of, verify
from syncbrok.delivery.handler import DeliveryBatch
from syncbrok.delivery.webhook.address_guard import AddressGuard
from syncbrok.delivery.webhook.http_request import RequestForm
from syncbrok.delivery.webhook.webhook import Webhook
from syncbrok.frontends.over_http.publishing.ndjson import parse_one
from syncbrok.model.message import BatchPolicy, Signature
from syncbrok.model.signature_settings import credential
from tests.support.delivery.endpoint import Answers, Endpoint, delivery, message, message_id, reply, subscriber
from tests.support.polling import eventually

NOW_S = "1700000123"
FOUR = ("id", "queue", "sequence", "attempt")


def rendered(*of: object, **settings: object) -> tuple[dict[str, str], bytes]:
    to = subscriber("http://hooks.example/in", batch=BatchPolicy(), **settings)
    form = RequestForm(to, "or ders")
    members = [delivery(of=one) for one in of]  # type: ignore[arg-type]
    request = form.render(DeliveryBatch(members, members[0].to), NOW_S, ())
    head, _, body = request.partition(b"\r\n\r\n")
    headers = dict(line.lower().split(": ", 1) for line in head.decode().split("\r\n")[1:])
    assert int(headers["content-length"]) == len(body)
    return headers, body


@given(
    st.binary(max_size=30)
    | st.text(max_size=20).map(str.encode)
    | st.just(b'{"a":\r\n[1, 1.50, 12345678901234567890]}'),
    st.sampled_from(
        ["", "application/json", "text/plain", "application/x+json; v=1", "image/png", "text/x; charset=l1"]
    ),
)
def test_any_content_comes_through(content: bytes, media: str) -> None:
    """INTERFACES 3: what a line says is what was published, bytes and type; JSON is the same JSON. It is a line that a
    publisher may send."""
    headers, body = rendered(message(7, content=content, content_type=media, key="k", parents=(message_id(3),)))
    assert headers["content-type"] == "application/x-ndjson"
    assert body.count(b"\n") == 1
    line = json.loads(body)
    assert [line[name] for name in FOUR] == [line["id"], "or ders", 7, 1]
    again = parse_one({name: value for name, value in line.items() if name not in FOUR}, 0, 1_000_000, 9)
    (got,) = messages_of(body)
    for kind, found in ((again.content_type, again.content), (got.content_type, got.content)):
        assert kind == (media or "application/octet-stream")
        if "data" in line:
            assert json.loads(found) == json.loads(content)
        else:
            assert found == content
    assert (again.key, again.parents, got.key, got.parents) == ("k", (message_id(3),), "k", (line["parents"][0],))


def test_headers_are_those_that_a_request_would_have() -> None:
    """INTERFACES 3: of a publisher's headers a line has those that it would have alone; hops stand at each line, and
    the most of them at the request, which has no sequence of its own."""
    own = (("x-shop", "7"), ("authorization", "Basic eA=="), ("x-forwarded-for", "1"), ("ce-type", "t\udcff"))
    headers, body = rendered(
        message(7, headers=own), message(9, headers=(("syncbrok-hops", "3"),)), headers=(("x-own", "1"),)
    )
    first, second = map(json.loads, body.splitlines())
    assert first["headers"] == {"x-shop": "7", "ce-type": "t\ufffd", "content-type": "text/plain", "syncbrok-hops": "1"}
    assert second["headers"] == {"content-type": "text/plain", "syncbrok-hops": "4"}
    assert (headers["syncbrok-hops"], headers["x-own"]) == ("4", "1")
    assert headers["webhook-id"] == f"batch-{first['id']}-2"
    assert not {"syncbrok-sequence", "syncbrok-attempt", "syncbrok-parents"} & headers.keys()


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with Endpoint() as running:
        yield running


async def test_the_whole_body_is_signed_and_answered_once(endpoint: Endpoint) -> None:
    """RULES 19 and 36: every signature is of the whole body; one answer is called back, for all."""
    secret = bytes(range(32))
    own = Signature("hmac", "sha256", "x-own", "{hex}", "{id}.{body}")
    handler = Webhook(
        AddressGuard(loopback_allowed=True),
        lambda _: (secret,),
        credentials=lambda _number, _sequence: {credential("x-own"): "k" * 16},
    )
    try:
        to = subscriber(endpoint.url, batch=BatchPolicy(), signatures=(Signature("v1"), own))
        members = [delivery(sequence) for sequence in (1, 2, 3)]
        batch = DeliveryBatch(members, members[0].to._replace(subscriber=to))
        endpoint.answer = lambda _: reply("202 Accepted", b"")
        answers = Answers()
        handler.deliver([batch], answers.done)
        (answer,) = await answers.wait_for(1)
        assert (answer.status, answers.all[0][0]) == (202, batch)
        (request,) = endpoint.requests
        key = "whsec_" + base64.b64encode(secret).decode()
        id_ = verify(request.body, request.headers, key, now_s=float(request.headers["webhook-timestamp"]))
        assert id_ == request.headers["webhook-id"]
        right = hmac.new(b"k" * 16, f"{id_}.".encode() + request.body, "sha256").hexdigest()
        assert request.headers["x-own"] == right
    finally:
        await handler.close()


async def test_a_batch_that_waits_is_withdrawn_as_a_whole(endpoint: Endpoint) -> None:
    """RULES 36: where one of its messages must not go, the request has not begun: all are given back. One whose
    subscriber gets a request for each message by now is, too."""
    handler = Webhook(AddressGuard(loopback_allowed=True), lambda _: ())
    try:
        to = subscriber(endpoint.url, batch=BatchPolicy())
        members = [delivery(sequence) for sequence in (1, 2, 3)]
        where = members[0].to._replace(subscriber=to)
        answers = Answers()
        handler.deliver([DeliveryBatch(members, where)], answers.done)
        handler.withdraw(1, {2})
        await eventually(lambda: answers.given_back == [1], "it is given back")
        async with Endpoint() as other:  # to which nothing is open yet
            batched, plain = (
                where._replace(subscriber=subscriber(other.url, number=2, batch=batch))
                for batch in (BatchPolicy(), None)
            )
            handler.deliver([DeliveryBatch([delivery(7), delivery(8)], batched)], answers.done)
            handler.deliver([delivery(9)._replace(to=plain)], answers.done)
            await answers.wait_for(1)
            assert answers.given_back == [1, 7]
            assert [request.headers["syncbrok-sequence"] for request in other.requests] == ["9"]
            assert not endpoint.requests
    finally:
        await handler.close()
