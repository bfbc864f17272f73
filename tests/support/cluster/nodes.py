"""Servers that play the nodes of a cluster, for what only asks: one leads, one follows, one has no leader, one is
silent, one is gone."""

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self


class Asked(NamedTuple):
    """A request that a node was sent."""

    method: str
    path: str
    token: str | None
    body: bytes


class Node:
    """``asked`` is what it was sent. Unless ``status`` or ``silent`` says otherwise it does what it is asked: a batch
    is given ids, all else an empty document; and it names ``leader``."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.asked: list[Asked] = []
        self.leader: str | None = None
        self.status = 200
        self.problem = ""
        self.location = ""
        self.retry_after = ""
        self.silent = threading.Event()
        """set: no answer until it is cleared, or the node ends"""
        self._ended = threading.Event()
        node = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"] or 0))
                node.asked.append(Asked(self.command, self.path, self.headers["Authorization"], body))
                if node.silent.is_set():
                    node._ended.wait(30)
                    self.close_connection = True
                    return
                node._answer(self, body)

            def do_POST(self) -> None:
                self.do_GET()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    def _answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        shown: dict[str, Any] = {"ids": [str(number) for number in range(body.count(b"\n") + 1)]}
        if self.status != 200:
            shown = {"type": f"urn:syncbrok:problem:{self.problem}", "detail": f"it is {self.problem}"}
        written = json.dumps(shown).encode()
        handler.send_response(self.status)
        headers = {"Syncbrok-Leader": self.leader, "Location": self.location, "Retry-After": self.retry_after}
        for name, value in headers.items():
            if value:
                handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(written)))
        handler.end_headers()
        handler.wfile.write(written)

    def says(self, problem: str, retry_after: str = "") -> None:
        """From now on it answers 503 with this problem."""
        self.status, self.problem, self.retry_after = 503, problem, retry_after

    def serves(self) -> None:
        """From now on it does what it is asked."""
        self.status = 200

    def paths(self) -> list[str]:
        return [one.path for one in self.asked]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """From now on connections are refused."""
        if not self._ended.is_set():
            self._ended.set()
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()
