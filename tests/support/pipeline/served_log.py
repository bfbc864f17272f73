"""A log that a test writes and that is read over HTTP: a real server with the routes that a broker has for it, on a
thread of its own, and a way to it that fails as the test wants."""

import asyncio
import hashlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from syncbrok.cli.serve.log_files import LogFiles
from syncbrok.frontends.listening import ListenerTls
from syncbrok.frontends.over_http.requests.context import HttpOptions
from syncbrok.frontends.over_http.resources import log_segments
from syncbrok.frontends.over_http.server import HttpServer
from syncbrok.log.journal import FileJournal
from syncbrok.model.tokens import Token, parse_scopes
from tests.support.broker.process import request
from tests.support.space.fake_space import FakeSpace

TOKEN = "very-secret-token"
NARROW = "narrow-token"


def _token(name: str, secret: str, *queues: str) -> Token:
    return Token(name, hashlib.sha256(secret.encode()).hexdigest(), *parse_scopes({"read": list(queues)}))


@contextmanager
def served_log(directory: Path, journal: FileJournal, tls: ListenerTls | None = None) -> Iterator[str]:
    """The URL of a broker whose log is ``journal``, which the test writes meanwhile; it asks for ``TOKEN``."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="served log")
    thread.start()

    async def start() -> HttpServer:
        space = FakeSpace()
        tokens = (_token("reader", TOKEN, "*"), _token("some", NARROW, "shop.*"))
        routes = log_segments.routes(LogFiles(directory, lambda: journal))
        server = HttpServer(space.channels, space, HttpOptions(port=0, tokens=tokens), routes, tls=tls)  # type: ignore[arg-type]
        await server.start()
        return server

    try:
        server = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
        try:
            yield server.url
        finally:
            asyncio.run_coroutine_threadsafe(server.stop(), loop).result(20)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


Fault = Callable[[str, str], str]
"""(method, path) of a request -> what becomes of it: ``pass``, ``busy``, ``cut`` (half of the answer), or another
status"""


@contextmanager
def failing_way(url: str, fault: Fault) -> Iterator[str]:
    """The URL of a proxy to ``url``."""

    class Way(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:  # as the library calls it
            what = fault(self.command, self.path)
            if what not in ("pass", "cut"):
                self._answer(429 if what == "busy" else int(what), {"Retry-After": "0"}, b"")
                return
            passed = {name: value for name, value in self.headers.items() if name != "Host"}
            reply = request(url + self.path, self.command, None, passed)
            self._answer(reply.status, reply.headers, reply.body, cut=what == "cut")

        do_HEAD = do_GET  # noqa: N815

        def _answer(self, status: int, headers: dict[str, str], body: bytes, *, cut: bool = False) -> None:
            self.send_response(status)
            kept = {name: value for name, value in headers.items() if name in ("ETag", "Retry-After")}
            length = headers.get("Content-Length") if self.command == "HEAD" else str(len(body))
            for name, value in (kept | {"Content-Length": length or "0"}).items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(body[: len(body) // 2] if cut else body)
            if cut:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Way)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="failing way")
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()
