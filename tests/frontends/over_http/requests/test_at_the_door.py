"""What other people's programs write that is right, or nearly: taken as the standards say, or refused in words."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from syncbrok.frontends.over_http.publishing.quoted import elements, without_parameters
from tests.support.http.api import Api, Serve, raw
from tests.support.http.space import ONCE, MakeHttpSpace
from tests.support.space.fake_space import FakeSpace

MARK = b"\xef\xbb\xbf"
EVENT: dict[str, Any] = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
STRUCTURED = {"Content-Type": "application/cloudevents+json; charset=utf-8"}


@pytest.fixture
async def api(served: Serve) -> AsyncIterator[Api]:
    space = FakeSpace()
    async with served(space.channels, space) as running:
        assert (await running.post("/v1/queues", {"name": "orders"})).status == 201
        yield running


@pytest.fixture
async def kept(tmp_path: Path, http_space: MakeHttpSpace) -> AsyncIterator[Api]:
    """One with a real Space behind it, which knows keys again."""
    async with http_space(tmp_path) as made:
        assert (await made.api.post("/v1/queues", {"name": "orders", **ONCE})).status == 201
        yield made.api


async def test_a_byte_order_mark_is_passed_over(api: Api) -> None:
    """RFC 8259, 8.1: before a batch of either kind, an event, and settings."""
    batch, line = "/v1/queues/orders/messages:batch", b'{"content":"a"}\n'
    assert (await api.post(batch, MARK + line, {"Content-Type": "application/x-ndjson"})).status == 201
    events = {"Content-Type": "application/cloudevents-batch+json"}
    assert (await api.post(batch, MARK + b"[]", events)).status == 200
    assert (await api.post("/v1/queues", MARK + b'{"name": "r"}')).status == 201
    event = MARK + b'{"specversion":"1.0","id":"1","source":"/s","type":"t"}'
    assert (await api.publish("orders", event, STRUCTURED)).status == 201
    assert (await api.publish("orders", MARK + b"content")).status == 201
    (await api.post("/v1/queues", MARK)).problem(400, "malformed")


async def test_an_empty_batch_of_events_is_fine(api: Api) -> None:
    """CloudEvents JSON format 4: an empty batch is one. Nothing is new (RULES 4); the queue must be there."""
    media = {"Content-Type": "application/cloudevents-batch+json"}
    reply = await api.post("/v1/queues/orders/messages:batch", b"[]", media)
    assert (reply.status, reply.json()) == (200, {"ids": []})
    (await api.post("/v1/queues/nothing/messages:batch", b"[]", media)).problem(404, "unknown-queue")


async def test_a_structured_event_is_known_again(kept: Api) -> None:
    """INTERFACES 3: one event on /messages, in either mode and in a batch, is the same event by its source and id."""
    first = await kept.post("/v1/queues/orders/messages", {**EVENT, "data": {"a": 1}}, STRUCTURED)
    assert first.status == 201
    again = await kept.post("/v1/queues/orders/messages", {**EVENT, "data": {"a": 1}}, STRUCTURED)
    assert (again.status, again.json()["id"]) == (200, first.json()["id"])
    binary = {f"ce-{name}": value for name, value in EVENT.items()}
    same = await kept.publish("orders", b'{"a":1}', {**binary, "Content-Type": "application/json"})
    assert (same.status, same.json()["id"]) == (200, first.json()["id"])
    caused = {**EVENT, "id": "2", "causationid": "1"}
    child = await kept.post("/v1/queues/orders/messages", caused, STRUCTURED)
    assert (child.status, child.json()["parents"]) == (201, [first.json()["id"]])
    content = await kept.get(f"/v1/messages/{first.json()['id']}/content")
    assert (content.body, content.headers["Content-Type"]) == (b'{"a":1}', "application/json")


async def test_a_key_with_parameters_is_the_same_key(kept: Api) -> None:
    """The Idempotency-Key is a string of RFC 9651, which may have parameters; bare keys are taken as they are."""
    first = await kept.publish("orders", b"x", {"Idempotency-Key": '"k"'})
    assert first.status == 201
    for same in ('"k"; v=1', '"k";v', "k"):
        assert (await kept.publish("orders", b"x", {"Idempotency-Key": same})).status == 200, same
    assert (await kept.publish("orders", b"x", {"Idempotency-Key": "k;v=1"})).status == 201
    (await kept.publish("orders", b"x", {"Idempotency-Key": '""; v=1'})).problem(400, "malformed")


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ('"k"', "k"),
        ('"k" ; a="x;y"', "k"),
        ('"a\\"b";v', 'a"b'),
        ('"k"x', '"k"x'),
        ("k;v", "k;v"),
        ('"open', '"open'),
        ("", ""),
    ],
)
def test_where_a_quoted_key_ends(value: str, key: str) -> None:
    """RFC 9651, 3.3.3: at its closing quote, if nothing or parameters follow."""
    assert without_parameters(value) == key


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("wait=1", ["wait=1"]),
        ("a, wait=1;x=2 , b", ["a", "wait=1", "b"]),
        ('note="a, wait=5", wait=1', ['note="a, wait=5"', "wait=1"]),
        ('a="\\", wait=9"; b="c, wait=8", wait=1', ['a="\\", wait=9"', "wait=1"]),
        ('a="open, wait=5', ['a="open, wait=5']),
        ("", [""]),
        (",,", ["", "", ""]),
    ],
)
def test_commas_in_quotes_separate_nothing(value: str, found: list[str]) -> None:
    """RFC 9110, 5.6.1 and 5.6.4."""
    assert list(elements(value)) == found


@pytest.mark.parametrize("prefer", ["wait=soon", "wait", 'wait=""', "respond-async, wait=-1", "wait=1e9999"])
async def test_a_preference_that_cannot_be_read_is_as_if_it_were_not_there(api: Api, prefer: str) -> None:
    """RFC 7240, 2: a preference is never a reason to refuse a request."""
    reply = await api.publish("orders", b"x", {"Prefer": prefer})
    assert reply.status == 201
    assert "Preference-Applied" not in reply.headers


async def test_http_1_0_is_not_asked_to_go_on(api: Api) -> None:
    """RFC 9110, 10.1.1: no 100 (Continue) to HTTP/1.0; its body is on the way anyway."""
    head = b"POST /v1/queues/orders/messages HTTP/1.%d\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\nConnection: close\r\n\r\nhi"  # noqa: E501
    old = await raw(api, head % 0)
    assert old.startswith(b"HTTP/1.0 201")
    assert b"100 Continue" not in old
    assert (await raw(api, head % 1)).startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201")


@pytest.mark.parametrize("coding", [b"gzip, chunked", b"gzip,chunked", b"deflate, chunked", b"chunked, chunked"])
async def test_a_transfer_coding_that_is_not_undone_is_refused(api: Api, coding: bytes) -> None:
    """RFC 9112, 6.1: taken for chunked alone, what is compressed would be kept as the content."""
    head = b"POST /v1/queues/orders/messages HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: %s\r\nConnection: close\r\n\r\n"
    answer = await raw(api, head % coding + b"2\r\nhi\r\n0\r\n\r\n")
    assert int(answer.split(b" ", 2)[1]) in (400, 415), answer


async def half_closed(api: Api, sent: bytes) -> bytes:
    """What a client gets that says at once that it will send no more."""
    reader, writer = await asyncio.open_connection("127.0.0.1", api.server.port)
    try:
        writer.write(sent)
        writer.write_eof()
        async with asyncio.timeout(10):
            return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize("more", [b"", b"Sec-Fetch-Site: none\r\n"], ids=["short way", "long way"])
async def test_a_client_that_sends_no_more_gets_its_answers(kept: Api, more: bytes) -> None:
    """RFC 9112, 9.6: a half-closed connection is answered, every request of it, on both ways; then it is closed."""
    one = b"POST /v1/queues/orders/messages HTTP/1.1\r\nHost: x\r\n" + more + b"Content-Length: 2\r\n\r\nhi"
    read = b"GET /v1/queues HTTP/1.1\r\nHost: x\r\n\r\n"
    assert (await half_closed(kept, one)).startswith(b"HTTP/1.1 201")
    assert (await half_closed(kept, one * 3)).count(b"HTTP/1.1 201") == 3
    assert (await half_closed(kept, read)).startswith(b"HTTP/1.1 200")
    mixed = await half_closed(kept, one + read + one)
    assert (mixed.count(b"HTTP/1.1 201"), mixed.count(b"HTTP/1.1 200")) == (2, 1)


@pytest.mark.parametrize("more", [b"", b"Sec-Fetch-Site: none\r\n"], ids=["short way", "long way"])
async def test_half_a_request_is_none(kept: Api, more: bytes) -> None:
    """DESIGN 1, nothing lost: what broke off before its end is not kept."""
    head = b"POST /v1/queues/orders/messages HTTP/1.1\r\nHost: x\r\n" + more + b"Content-Length: 9\r\n\r\n"
    for part in (head + b"half", head[:-10], head):
        assert b" 201 " not in await half_closed(kept, part)
    assert (await kept.get("/v1/queues/orders/messages")).json()["messages"] == []


async def test_who_waits_for_messages_must_stay(kept: Api) -> None:
    """INTERFACES 3: a pull or a stream ends with its client, which has gone when it says that it sends no more: a
    message lent to nobody would wait for its lease to end."""
    body = b'{"wait": 20, "group": "g"}'
    pull = b"POST /v1/queues/orders/pull HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    stream = b"GET /v1/queues/orders/stream HTTP/1.1\r\nHost: x\r\n\r\n"
    async with asyncio.timeout(8):
        await half_closed(kept, pull)
        await half_closed(kept, stream)
