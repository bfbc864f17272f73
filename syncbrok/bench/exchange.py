"""HTTP exchanges at the speed of the machine: the load generator's connections and the subscriber's.

asyncio protocols on httptools, as the broker's own sender has them: a generator built on a client library would
measure that library.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import httptools

ACKNOWLEDGED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\ntrue"


class Asker(asyncio.Protocol):
    """One kept-alive connection: sends what ``next_request`` gives, one request at a time, until it gives None."""

    def __init__(self, next_request: Callable[[], bytes | None], answered: Callable[[int, float], None]) -> None:
        """``answered`` is told the status and the seconds each exchange took."""
        self._next_request = next_request
        self._answered = answered
        self._sent_at = 0.0
        self._transport: Any = None
        self._parser: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        """Called by the parser."""
        self._answered(self._parser.get_status_code(), time.perf_counter() - self._sent_at)
        self._send()

    def _send(self) -> None:
        request = self._next_request()
        if request is None:
            self._transport.close()
            return
        self._parser = httptools.HttpResponseParser(self)
        self._sent_at = time.perf_counter()
        self._transport.write(request)


class Answerer(asyncio.Protocol):
    """The subscriber's side: hands each body to ``received`` and answers at once, or with ``wait`` when told."""

    def __init__(self, received: Callable[[bytes], None], later: Callable[[Callable[[], None]], None] | None) -> None:
        """``later``, where given, is handed the sending of the answer, and calls it when it may go."""
        self._received = received
        self._later = later
        self._body: list[bytes] = []
        self._transport: Any = None
        self._parser = httptools.HttpRequestParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, data: bytes) -> None:
        """Called by the parser."""
        self._body.append(data)

    def on_message_complete(self) -> None:
        """Called by the parser."""
        self._received(b"".join(self._body))
        self._body.clear()
        if self._later is None:
            self._answer()
        else:
            self._later(self._answer)

    def _answer(self) -> None:
        if not self._transport.is_closing():
            self._transport.write(ACKNOWLEDGED)


def request(path: str, port: int, body: bytes, headers: str = "") -> bytes:
    """A POST as bytes. ``headers`` are whole lines, each with its CRLF."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
