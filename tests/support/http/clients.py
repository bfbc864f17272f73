"""Clients of every way in and out over HTTP, beside those of the TCP frontends in ``wire_clients``: each publishes a
content, under parents where it is given some, or takes a queue's messages one after the other and keeps what it saw."""

import base64
import json
from collections.abc import Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any
from urllib.parse import quote

import aiohttp

from syncbrok.client import Client, Received, Unreachable
from tests.support.broker.process import BrokerProcess

_EVENT_SOURCE = "/tests"


class Cut(ConnectionError):
    """The broker did not take it, or nobody knows."""


async def asked(broker: BrokerProcess, path: str, body: Any, headers: dict[str, str] | None = None) -> Any:
    """A POST, in a connection of its own. Raises ``Cut``."""
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.post(broker.url + path, data=body, headers=headers) as answer,
        ):
            if answer.status >= 500:
                raise Cut(await answer.text())
            assert answer.status < 300, await answer.text()
            written = await answer.read()
            return json.loads(written) if written[:1] in (b"{", b"[") else written.decode()
    except (aiohttp.ClientError, OSError) as error:
        raise Cut(str(error)) from error


def _events(content: bytes, parents: Sequence[str]) -> dict[str, Any]:
    """The attributes of a CloudEvent that no other has."""
    return {
        "specversion": "1.0",
        "source": _EVENT_SOURCE,
        "type": "test",
        "id": content.decode(),
        **({"causationid": parents[0]} if parents else {}),
    }


class Ways:
    """Into and out of ``queue`` over HTTP. ``publish_NAME(content, parents)`` returns when it is durable, ``take_NAME``
    goes on until it is cancelled or the broker has gone."""

    def __init__(self, broker: BrokerProcess, queue: str, *, give_up_s: float = 60.0) -> None:
        self._broker = broker
        self._queue = queue
        self._path = f"/v1/queues/{quote(queue, safe='')}"
        self._give_up_s = give_up_s
        self._refs = count()

    # -- in ---------------------------------------------------------------------------------------------------------

    async def publish_http(self, content: bytes, parents: Sequence[str] = ()) -> None:
        headers = {"Syncbrok-Parent": ", ".join(parents)} if parents else {}
        await asked(self._broker, f"{self._path}/messages", content, headers)

    async def publish_original(self, content: bytes, parents: Sequence[str] = ()) -> None:
        parent = {"ParentId": parents[0]} if parents else {}
        await asked(self._broker, "/msg", content, {"queue": self._queue, **parent})

    async def publish_batch(self, content: bytes, parents: Sequence[str] = ()) -> None:
        line = {"content": content.decode(), "parents": list(parents)}
        media = {"Content-Type": "application/x-ndjson"}
        await asked(self._broker, f"{self._path}/messages:batch", json.dumps(line), media)

    async def publish_event(self, content: bytes, parents: Sequence[str] = ()) -> None:
        """A CloudEvent in binary mode."""
        headers = {f"ce-{name}": value for name, value in _events(content, parents).items()}
        await asked(self._broker, f"{self._path}/messages", content, headers)

    async def publish_events(self, content: bytes, parents: Sequence[str] = ()) -> None:
        """A batch of one CloudEvent."""
        event = {**_events(content, parents), "datacontenttype": "text/plain", "data": content.decode()}
        media = {"Content-Type": "application/cloudevents-batch+json"}
        await asked(self._broker, f"{self._path}/messages:batch", json.dumps([event]), media)

    async def publish_socket(self, content: bytes, parents: Sequence[str] = ()) -> None:
        ref = next(self._refs)
        frame = {"type": "publish", "ref": ref, "content": content.decode(), "parents": list(parents)}
        async with self._socket("?window=1") as socket:
            await socket.send_str(json.dumps(frame))
            async for answer in socket:
                told = json.loads(answer.data)
                if told.get("ref") == ref:
                    assert told["type"] == "published", told
                    return
        raise Cut("the socket was closed")

    async def publish_client(self, content: bytes, parents: Sequence[str] = ()) -> None:
        async with self._client() as client:
            try:
                await client.publish(self._queue, content, parents=parents)
            except Unreachable as error:
                raise Cut(str(error)) from error

    # -- out ----------------------------------------------------------------------------------------------------------

    async def take_pull(self, seen: list[bytes]) -> None:
        while True:
            pulled = await asked(self._broker, f"{self._path}/pull", json.dumps({"group": "pulling", "wait": 5}))
            for message in pulled["messages"]:
                seen.append(_content(message))
                await asked(self._broker, f"/v1/leases/{message['lease']}:ack", b"")

    async def take_socket(self, seen: list[bytes]) -> None:
        """As one of a group, which stays."""
        async with self._socket("?group=socket&start=beginning&window=8") as socket:
            async for frame in socket:
                told = json.loads(frame.data)
                if told["type"] == "message":
                    seen.append(_content(told))
                    await socket.send_str(json.dumps({"type": "ack", "sequence": told["sequence"]}))
        raise Cut("the socket was closed")

    async def take_events(self, seen: list[bytes]) -> None:
        """Server-Sent Events, from the beginning."""
        url = f"{self._broker.url}{self._path}/stream?start=beginning"
        try:
            async with aiohttp.ClientSession(timeout=_PATIENT) as session, session.get(url) as answer:
                async for line in answer.content:
                    seen += [_content(json.loads(line[6:]))] if line.startswith(b"data: ") else []
        except (aiohttp.ClientError, OSError) as error:
            raise Cut(str(error)) from error
        raise Cut("the stream has ended")

    async def take_client(self, seen: list[bytes]) -> None:
        """A decorated coroutine that pulls."""
        async with self._client() as client:

            @client.consumer(self._queue, group="client", concurrency=4)
            async def handle(message: Received) -> None:
                seen.append(message.content)

            await client.run()

    async def take_client_stream(self, seen: list[bytes]) -> None:
        """A decorated coroutine over a WebSocket."""
        async with self._client() as client:

            @client.stream(self._queue, group="client-stream", start="beginning", window=4)
            async def handle(message: Received) -> None:
                seen.append(message.content)

            await client.run()

    def _client(self) -> Client:
        return Client(self._broker.url, give_up_s=self._give_up_s)

    @asynccontextmanager
    async def _socket(self, query: str) -> Any:
        url = f"{self._broker.url}{self._path}/stream{query}"
        try:
            async with aiohttp.ClientSession() as session, session.ws_connect(url) as socket:
                yield socket
        except (aiohttp.ClientError, OSError) as error:
            raise Cut(str(error)) from error


_PATIENT = aiohttp.ClientTimeout(total=None)


def _content(shown: dict[str, Any]) -> bytes:
    return base64.b64decode(shown["content_base64"]) if "content_base64" in shown else shown["content"].encode()
