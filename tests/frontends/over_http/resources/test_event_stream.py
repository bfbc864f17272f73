"""``GET /v1/events`` over a real connection to a real Space."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from syncbrok.frontends.over_http.resources import events
from syncbrok.model.message import Message
from syncbrok.model.names import id_text
from tests.support.http.api import Api, Serve
from tests.support.polling import eventually
from tests.support.space.spaces import Running, running_space

Told = tuple[int | None, str, dict[str, Any]]


class Stream:
    """An open event stream. ``next`` is (id, kind, data); id is None where the event carries none."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.answer = answer
        self.last: int | None = None

    async def block(self) -> list[str]:
        async with asyncio.timeout(20):
            text = await self.answer.content.readuntil(b"\n\n")
        return text.decode().strip("\n").split("\n")

    async def next(self) -> Told:
        while True:
            fields = dict(line.split(": ", 1) for line in await self.block() if not line.startswith(":"))
            if "data" in fields:
                id_ = int(fields["id"]) if "id" in fields else None
                self.last = id_ or self.last
                return id_, fields["event"], orjson.loads(fields["data"])

    async def until(self, kind: str) -> list[Told]:
        told = [await self.next()]
        while told[-1][1] != kind:
            told.append(await self.next())
        return told


@asynccontextmanager
async def streaming(api: Api, path: str = "/v1/events", headers: Any = None) -> AsyncIterator[Stream]:
    url = f"http://127.0.0.1:{api.server.port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers.getall("Server") == ["Syncbrok"], "no names and versions of what it is built with"
        stream = Stream(answer)
        retry, id_ = await stream.block()
        assert (retry, id_[:4]) == ("retry: 2000", "id: ")
        yield stream


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    async with running_space(tmp_path) as running:
        await running.queue("orders", subscribers=["billing"])
        yield running


@pytest.fixture
async def api(running: Running, served: Serve) -> AsyncIterator[Api]:
    async with served(running.space.channels, running.view, *events.ROUTES) as api:
        yield api
        running.view.close()


async def test_what_happens_arrives_as_it_becomes_durable(running: Running, api: Api) -> None:
    """Each event has a kind, a time and what it is about; its id is the sequence of its record."""
    async with streaming(api) as stream:
        message = await running.publish("orders", b"x")
        told = await stream.until("complete")
    assert [kind for _, kind, _ in told] == ["published", "delivered", "complete"]
    assert all(data["message"] == id_text(message) and data["queue"] == "orders" for _, _, data in told)
    assert told[1][2]["subscriber"] == "billing"
    assert (told[1][2]["attempt"], told[1][2]["status"]) == (1, 200)
    assert told[1][0] is None, "an id in the middle of a record would lose the rest of it to who resumes"
    assert told[2][0] == told[2][2]["id"] > told[0][0]


async def test_a_break_loses_nothing(running: Running, api: Api) -> None:
    """With ``Last-Event-ID`` the stream goes on where it was, also with what happened while nobody listened."""
    async with streaming(api) as stream:
        await running.publish("orders", b"1")
        seen = await stream.until("complete")
    away = [await running.publish("orders", b"2"), await running.publish("orders", b"3")]
    await running.ended(*away)
    async with streaming(api, headers={"Last-Event-ID": str(stream.last)}) as stream:
        missed = await stream.until("complete") + await stream.until("complete")
        await running.publish("orders", b"4")
        await stream.until("complete")
    assert {data["message"] for _, _, data in missed} == {id_text(id_) for id_ in away}
    first = seen[0][0]
    assert first is not None
    async with streaming(api, f"/v1/events?after={first - 1}") as stream:
        again = [await stream.next() for _ in range(len(seen) + len(missed))]
    assert sorted(map(str, again)) == sorted(map(str, seen + missed))


async def test_one_queue_alone(running: Running, api: Api) -> None:
    """``?queue=`` narrows the stream; a queue that is not there is a 404 before any stream."""
    await running.queue("other", subscribers=["s"])
    async with streaming(api, "/v1/events?queue=orders") as stream:
        await running.publish("other", b"x")
        await running.publish("orders", b"y")
        assert {data["queue"] for _, _, data in await stream.until("complete")} == {"orders"}
    (await api.get("/v1/events?queue=nowhere")).problem(404, "unknown-queue")


async def test_what_cannot_be_read_is_refused(api: Api) -> None:
    """A bad place to go on from, or a bad rate, is a 400."""
    (await api.get("/v1/events", {"Last-Event-ID": "yesterday"})).problem(400, "malformed")
    (await api.get("/v1/events?after=-1")).problem(400, "malformed")
    (await api.get("/v1/events?rate=fast")).problem(400, "malformed")


async def test_a_listener_that_leaves_is_forgotten(running: Running, api: Api) -> None:
    """The next event, or the next sign of life, shows that it has gone; it then costs nothing more."""
    async with streaming(api):
        await eventually(lambda: running.view.statistics().listeners == 1, "it listens")

    for number in range(3):
        await running.publish("orders", str(number).encode())
    await eventually(lambda: running.view.statistics().listeners == 0, "it is forgotten")


async def test_streams_end_when_the_broker_stops(tmp_path: Path, served: Serve) -> None:
    """A stop does not wait for listeners: their streams end, and the client may come back to the next broker."""
    async with running_space(tmp_path) as running:
        await running.queue("orders")
        async with served(running.space.channels, running.view, *events.ROUTES) as api, streaming(api) as stream:
            await running.publish("orders", b"x")
            await stream.until("complete")
            await running.space.drain()
            async with asyncio.timeout(10):
                assert await stream.answer.content.read() == b""


async def test_a_listener_that_stops_reading_is_cut_off(running: Running, api: Api) -> None:
    """It is told so by the last event of its stream, and what it missed is there for it when it comes back."""
    async with streaming(api) as stream:
        first = await running.publish("orders", b"first")
        told = await stream.until("complete")
        assert told[0][2]["message"] == id_text(first)
        stream.answer.content._protocol.pause_reading()
        for _ in range(30):
            accepted = await running.publish_all("orders", *(Message(b"%d" % n) for n in range(1_000)))
        await running.ended(*accepted.ids[-1:])
        stream.answer.content._protocol.resume_reading()
        rest = await stream.until("cut")
        assert "Last-Event-ID" in rest[-1][2]["text"]
        async with asyncio.timeout(10):
            assert await stream.answer.content.read() == b""
    async with streaming(api, headers={"Last-Event-ID": str(stream.last)}) as stream:
        assert (await stream.next())[2]["id"] > rest[-1][2]["id"]
