"""The first broker's clients, byte for byte as Go's net/http sends them (INTERFACES 2)."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from syncbrok.model.message import Format, SubscriberSettings
from syncbrok.space.channels import Subscribe
from tests.support.http.api import Api, Serve
from tests.support.http.space import MakeHttpSpace
from tests.support.polling import eventually
from tests.support.space.fake_space import FakeSpace


@pytest.fixture
def space() -> FakeSpace:
    return FakeSpace()


@pytest.fixture
async def api(space: FakeSpace, served: Serve) -> AsyncIterator[Api]:
    async with served(space.channels, space) as running:
        yield running


def go(path: str, body: bytes | None, **headers: str) -> bytes:
    """A POST as Go 1.x writes it: Host, User-Agent, Content-Length, then headers in canonical case, sorted."""
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1:10000", "User-Agent: Go-http-client/1.1"]
    lines.append(f"Content-Length: {len(body or b'')}")
    lines += [f"{name}: {value}" for name, value in sorted(headers.items())]
    lines.append("Accept-Encoding: gzip")
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes, bytes]:
    """Status, headers and body, as Go's client reads them."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    return int(head.split(b" ")[1]), head, await reader.readexactly(length)


ID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


async def test_the_originals_conversation(tmp_path: Path, http_space: MakeHttpSpace) -> None:
    """Queue, subscriber, message, child, on one kept-alive connection: 200 each; for a message the id, nothing else.
    The child is delivered after its parent (INTERFACES 2)."""
    async with http_space(tmp_path) as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.api.server.port)
        for sent in (
            go("/queue", None, Queue="orders"),
            go("/subscrib", None, Queue="orders", Endpoint="http://127.0.0.1:20000/"),
        ):
            writer.write(sent)
            status, head, body = await answer(reader)
            assert (status, body) == (200, b"")
            assert b"connection: close" not in head.lower()
        running.consumer.answer = lambda _: None
        ids = []
        for content, more in ((b"\x00\xffparent", {}), (b"child", {"Parentid": "?"})):
            headers = {name: ids[0].decode() for name in more}
            writer.write(go("/msg", content, Queue="orders", **headers, **{"Content-Type": "text/plain"}))
            status, head, body = await answer(reader)
            assert (status, bool(ID.fullmatch(body))) == (200, True)
            assert b"content-type: text/plain" in head.lower()
            ids.append(body)
        await eventually(lambda: running.consumer.held, "the parent")
        assert running.consumer.contents == [b"\x00\xffparent"]
        running.consumer.release()
        await eventually(lambda: len(running.consumer.seen) == 2, "the child")
        (subscriber,) = running.space.view.subscribers("orders", None, 9)[0]
        assert subscriber.settings.format is Format.ORIGINAL
        writer.close()


async def test_a_known_subscription_stays_as_it_is(tmp_path: Path, http_space: MakeHttpSpace) -> None:
    """A client that subscribes at each start does not undo what an operator has set, and is not refused for it; one
    that would get another format is."""
    async with http_space(tmp_path) as running:
        api = running.api
        headers = {"queue": "orders", "endpoint": "http://127.0.0.1:20000/"}
        for path in ("/queue", "/subscrib", "/subscrib"):
            assert (await api.post(path, None, headers)).status == 200
        (one,) = (await api.get("/v1/queues/orders/subscribers")).json()["subscribers"]
        path = f"/v1/queues/orders/subscribers/{one['id']}"
        assert (await api.patch(path, {"paused": True, "window": 3, "retry": ["1s"]})).status == 200
        assert (await api.post("/subscrib", None, headers)).status == 200
        assert (await api.get(path)).json()["state"] == "paused"
        assert (await api.patch(path, {"format": "raw"})).status == 200
        (await api.post("/subscrib", None, headers)).problem(409, "conflict")


async def test_a_subscriber_of_the_original_gets_the_originals_format(api: Api, space: FakeSpace) -> None:
    """INTERFACES 2: a subscriber added through /subscrib gets the original's delivery."""
    await api.post("/queue", None, {"queue": "orders"})
    await api.post("/subscrib", None, {"queue": "orders", "endpoint": "http://127.0.0.1:20000/"})
    assert space.put_items[-1] == Subscribe(
        "orders", SubscriberSettings("http://127.0.0.1:20000/", format=Format.ORIGINAL), by="local"
    )


async def test_declaring_again_is_no_error(api: Api, space: FakeSpace) -> None:
    """The original's clients declare queue and subscription at each start: 200 also when the queue has got other
    settings since."""
    for _ in range(2):
        assert (await api.post("/queue", None, {"queue": "orders"})).status == 200
        reply = await api.post("/subscrib", None, {"queue": "orders", "endpoint": "http://127.0.0.1:20000/"})
        assert reply.status == 200
    assert (await api.post("/v1/queues", {"name": "other", "window": 3})).status == 201
    assert (await api.post("/queue", None, {"queue": "other"})).status == 200


async def test_mistakes_say_what_to_do(api: Api, space: FakeSpace) -> None:
    """Errors of the original's routes are problems too: missing headers 400, unknown queues 404, parents 422."""
    assert (await api.post("/msg", b"x")).problem(400, "malformed")["header"] == "queue"
    (await api.post("/queue", None)).problem(400, "malformed")
    (await api.post("/queue", None, {"queue": "a/b"})).problem(400, "bad-name")
    assert (
        "POST /v1/queues" in (await api.post("/msg", b"x", {"queue": "orders"})).problem(404, "unknown-queue")["mend"]
    )
    await api.post("/queue", None, {"queue": "orders"})
    assert (await api.post("/subscrib", None, {"queue": "orders"})).problem(400, "malformed")["header"] == "endpoint"
    for endpoint in (
        "ftp://x/",
        "127.0.0.1:1",
        "http://",
        "http://u:p@x/",
        "javascript:alert(1)",
        "file:///etc/passwd",
    ):
        (await api.post("/subscrib", None, {"queue": "orders", "endpoint": endpoint})).problem(400, "bad-setting")
    (await api.post("/msg", b"x", {"queue": "orders", "ParentId": "?"})).problem(400, "malformed")
    unknown = "01a1fba6-f093-8000-8000-000104aafc26"
    problem = (await api.post("/msg", b"x", {"queue": "orders", "ParentId": unknown})).problem(422, "unknown-parent")
    assert "publish the parent first" in problem["mend"]
    for headers in ([("ParentId", unknown), ("ParentId", unknown[:-1] + "7")], [("Syncbrok-Parent", unknown)]):
        (await api.post("/msg", b"x", [("queue", "orders"), *headers])).problem(400, "malformed")
    assert not space.reports
