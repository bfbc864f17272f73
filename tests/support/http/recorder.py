"""A real HTTP subscriber in a thread: keeps what it receives, in order, and answers as it is told."""

import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple, Self

from tests.support.polling import eventually_blocking


class Received(NamedTuple):
    """One request. Header names are in lower case."""

    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers.get("webhook-id", "")


class Recorder:
    """``answer`` takes a request and says the status; by default everything is acknowledged. ``tls``: how it is spoken
    to, in the clear without. ``port``: one that is held for it; by default one that is free."""

    def __init__(
        self, answer: Callable[[Received], int] = lambda _: 200, tls: ssl.SSLContext | None = None, port: int = 0
    ) -> None:
        self.answer = answer
        self.body = b"true"
        self.more: dict[str, str] = {}
        """headers of each answer"""
        self.requests: list[Received] = []
        self.paths: list[str] = []
        """of each request, with its query"""
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # head and body are two writes: 40 ms an answer otherwise

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = Received(headers, self.rfile.read(length))
                recorder.paths.append(self.path)
                recorder.requests.append(request)
                status = recorder.answer(request)
                self.send_response(status)
                for name, value in recorder.more.items():
                    self.send_header(name, value)
                if status != 204:  # which has no body and no length of one (RFC 9110, 8.6)
                    self.send_header("Content-Length", str(len(recorder.body)))
                self.end_headers()
                if status != 204:
                    self.wfile.write(recorder.body)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            request_queue_size = 128

            def handle_error(self, *_: object) -> None:
                """A broker that is killed resets its connections: no news."""

        self._server = Server(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"http{'' if tls is None else 's'}://127.0.0.1:{self._server.server_address[1]}/"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def wait_for(self, count: int, timeout_s: float = 20.0) -> list[Received]:
        """What has arrived once there are ``count`` requests."""
        eventually_blocking(lambda: len(self.requests) >= count, f"{count} requests", timeout_s)
        return list(self.requests)
