"""The HTTP frontend served on a free port, and a client that keeps whole answers."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple, Protocol

import aiohttp
import orjson
from aiohttp.test_utils import BaseTestServer
from aiohttp.web import BaseRunner
from multidict import CIMultiDictProxy
from pytest_aiohttp.plugin import AiohttpClient
from yarl import URL

from syncbrok.delivery.leader_lease import SINGLE_NODE, LeaderLease
from syncbrok.frontends.bounds import Bounds
from syncbrok.frontends.over_http.requests.context import HttpOptions
from syncbrok.frontends.over_http.requests.routes import Route
from syncbrok.frontends.over_http.server import HttpServer

TYPE_PREFIX = "urn:syncbrok:problem:"


class Reply(NamedTuple):
    """An answer, whatever its status."""

    status: int
    headers: CIMultiDictProxy[str]
    body: bytes

    def json(self) -> Any:
        assert self.headers["Content-Type"] in ("application/json", "application/problem+json"), self
        return orjson.loads(self.body)

    def problem(self, status: int, slug: str) -> Any:
        """The problem document, once it is the one expected."""
        found = self.json() if self.headers.get("Content-Type") == "application/problem+json" else None
        assert found, self
        assert (self.status, found["status"], found["type"]) == (status, status, TYPE_PREFIX + slug), self
        assert found["title"], self
        assert found["detail"], self
        return found


class Api:
    """Speaks to one server."""

    def __init__(self, session: aiohttp.ClientSession, server: HttpServer) -> None:
        self._session = session
        self.server = server
        self.headers: dict[str, str] = {}

    async def request(self, method: str, path: str, body: Any = None, headers: Any = None) -> Reply:
        """``body``: bytes as they are, anything else as JSON. ``path`` goes out as it is written."""
        data = body if isinstance(body, bytes | None) or hasattr(body, "__aiter__") else orjson.dumps(body)
        url = URL(self.server.url + path, encoded=True)
        given = [*self.headers.items(), *(headers.items() if isinstance(headers, dict) else headers or ())]
        skip = ("Content-Type",)
        async with self._session.request(method, url, data=data, headers=given, skip_auto_headers=skip) as answer:
            return Reply(answer.status, answer.headers, await answer.read())

    async def get(self, path: str, headers: Any = None) -> Reply:
        return await self.request("GET", path, None, headers)

    async def post(self, path: str, body: Any = None, headers: Any = None) -> Reply:
        return await self.request("POST", path, body, headers)

    async def patch(self, path: str, body: Any) -> Reply:
        return await self.request("PATCH", path, body)

    async def delete(self, path: str, body: Any = None) -> Reply:
        return await self.request("DELETE", path, body)

    async def publish(self, queue: str, content: bytes, headers: Any = None) -> Reply:
        return await self.post(f"/v1/queues/{queue}/messages", content, headers)

    async def batch(self, queue: str, *lines: Any) -> Reply:
        """Each line as bytes, or anything else as JSON."""
        body = b"".join((line if isinstance(line, bytes) else orjson.dumps(line)) + b"\n" for line in lines)
        return await self.post(f"/v1/queues/{queue}/messages:batch", body, {"Content-Type": "application/x-ndjson"})


class ServedFrontend(BaseTestServer):
    """The frontend as aiohttp's test client takes a server. It listens by itself: its fast path, its deadlines and its
    bounds stand before aiohttp's own connections, which a ``TestServer`` of the application alone would leave out."""

    def __init__(self, frontend: HttpServer) -> None:
        super().__init__(scheme="http")
        self.frontend = frontend

    async def start_server(self, loop: asyncio.AbstractEventLoop | None = None, **_: Any) -> None:
        await self.frontend.start()
        self.port = self.frontend.port
        self._root = URL(self.frontend.url)

    async def close(self) -> None:
        await self.frontend.stop()

    async def _make_runner(self, **_: Any) -> BaseRunner:
        raise NotImplementedError("the frontend has a runner of its own")


class Serve(Protocol):
    """The fixture ``served``: a running frontend, until the block ends; ``options`` are fields of ``HttpOptions``."""

    def __call__(
        self,
        channels: Any,
        view: Any,
        *extra_routes: Route,
        bounds: Bounds | None = None,
        lease: LeaderLease = SINGLE_NODE,
        **options: Any,
    ) -> AbstractAsyncContextManager[Api]: ...


def serve_with(aiohttp_client: AiohttpClient) -> Serve:
    """Frontends driven by clients of pytest-aiohttp."""

    @asynccontextmanager
    async def served(
        channels: Any,
        view: Any,
        *extra_routes: Route,
        bounds: Bounds | None = None,
        lease: LeaderLease = SINGLE_NODE,
        **options: Any,
    ) -> AsyncIterator[Api]:
        # Requests that a test writes by hand say ``Host: x``.
        options = {"machine_names": ("x",)} | options
        server = HttpServer(channels, view, HttpOptions(port=0, **options), extra_routes, bounds=bounds, lease=lease)
        client = await aiohttp_client(ServedFrontend(server), auto_decompress=False)
        try:
            yield Api(client.session, server)
        finally:
            await client.close()

    return served


async def raw(api: Api, *pieces: bytes, timeout_s: float = 10.0) -> bytes:
    """Everything a server sends to a socket that writes these bytes, until the server closes it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", api.server.port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        async with asyncio.timeout(timeout_s):
            return await reader.read()
    finally:
        writer.close()


def reset(writer: asyncio.StreamWriter) -> None:
    """Leave as a process that was killed does. Only to say that one sends no more is still to wait for the answer."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
