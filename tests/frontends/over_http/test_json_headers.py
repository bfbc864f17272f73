"""INTERFACES 1: an answer that is JSON is kept by nobody and taken for no page, whichever way it was made."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.http.api import Api, Reply
from tests.support.http.space import MakeHttpSpace


@pytest.fixture
async def api(tmp_path: Path, http_space: MakeHttpSpace) -> AsyncIterator[Api]:
    async with http_space(tmp_path) as made:
        await made.api.post("/v1/queues", {"name": "q"})
        yield made.api


def check(reply: Reply, status: int) -> None:
    assert reply.status == status
    assert reply.headers["Content-Type"].startswith(("application/json", "application/problem+json"))
    assert (reply.headers["Cache-Control"], reply.headers["X-Content-Type-Options"]) == ("no-store", "nosniff")


async def test_every_json_says_so(api: Api) -> None:
    """A publish by the short way and by the long one, lists, problems of handlers and of routes."""
    published = await api.post("/v1/queues/q/messages", b"x")
    check(published, 201)
    check(await api.post("/v1/queues/q/messages?other=1", b"x"), 400)
    check(await api.post("/v1/queues/nowhere/messages", b"x"), 404)
    check(await api.post("/v1/queues/q/messages", b"x", {"Syncbrok-Delay": "no"}), 400)
    check(await api.post("/v1/queues/q/messages", b"x", {"Syncbrok-Key": "k"}), 201)
    check(await api.batch("q", {"content": "x"}), 201)
    for path, status in (("/v1/queues", 200), ("/v1/queues/q", 200), ("/openapi.json", 200), ("/v1/nothing", 404)):
        check(await api.get(path), status)
    check(await api.patch("/v1/queues", {}), 405)
    check(await api.get(published.headers["Location"]), 200)


async def test_so_does_what_answers_no_request(api: Api) -> None:
    """A line that is no HTTP."""
    reader, writer = await asyncio.open_connection("127.0.0.1", api.server.port)
    writer.write(b"\x01\x02\x03\r\n\r\n")
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    writer.close()
    assert "cache-control: no-store\r\n" in head
    assert "x-content-type-options: nosniff\r\n" in head


async def test_contents_are_the_publishers(api: Api) -> None:
    """They are never told to be another type, and may be kept: they do not change."""
    published = await api.post("/v1/queues/q/messages", b"<script>", {"Content-Type": "text/html"})
    content = await api.get(published.headers["Location"] + "/content")
    assert content.headers["X-Content-Type-Options"] == "nosniff"
