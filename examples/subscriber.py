#!/usr/bin/env python3
"""A subscriber: prints what it receives, in the order it arrives, and acknowledges it. Standard library only.

    python3 examples/subscriber.py                      listen on http://127.0.0.1:20000/
    python3 examples/subscriber.py --fail-first 3       answer 503 three times, then acknowledge
    python3 examples/subscriber.py --hang               read every request, never answer
    python3 examples/subscriber.py --slow 0.5           think half a second before each answer

It answers both kinds of delivery: the v1 webhook (2xx acknowledges) and the original format (a JSON object with the
content in base64, acknowledged by 2xx and the body ``true``).

Shortcomings of an example: it checks no signature (``verify_webhook.py`` does), keeps nothing, and does not drop
duplicates by ``webhook-id``, which a real subscriber does, since delivery is at least once.
"""

import argparse
import base64
import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Subscriber(ThreadingHTTPServer):
    """How it was told to answer, and what it has counted so far."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__((options.host, options.port), Delivery)
        self.fail_first: int = options.fail_first
        self.hang: bool = options.hang
        self.slow_s: float = options.slow
        self.received = 0
        self.turn = threading.Lock()


class Delivery(BaseHTTPRequestHandler):
    """One delivery: read it, print one line, answer."""

    server: Subscriber
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        """The broker delivers with POST."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with self.server.turn:
            self.server.received += 1
            number = self.server.received
            fails = number <= self.server.fail_first
            print(f"{number:>4}  {self.describe(body)}{'  -> 503' if fails else ''}", flush=True)
        if self.server.hang:
            threading.Event().wait()
        time.sleep(self.server.slow_s)
        self.answer(503 if fails else 200, b"not now" if fails else b"true")

    def describe(self, body: bytes) -> str:
        """The content, and what the headers say about it."""
        message_id = self.headers.get("webhook-id")
        if message_id is None:
            try:
                original = json.loads(body)
                return f"{readable(base64.b64decode(original['content']))}  id {original['id']} (original format)"
            except (ValueError, KeyError, TypeError):
                return f"{readable(body)}  (not from Syncbrok)"
        line = f"{readable(body)}  id {message_id}"
        if parents := self.headers.get("syncbrok-parents"):
            line += f"  after {parents}"
        if (attempt := self.headers.get("syncbrok-attempt", "1")) != "1":
            line += f"  attempt {attempt}"
        if replay := self.headers.get("syncbrok-replay"):
            line += f"  replay {replay}"
        return line

    def answer(self, status: int, body: bytes) -> None:
        """A whole answer in one write, so that the connection can be used again."""
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """The line printed above says it better."""


def readable(content: bytes) -> str:
    """Text as it is, shortened; of anything else the size."""
    try:
        shown = content.decode()
    except UnicodeDecodeError:
        return f"<{len(content)} bytes>"
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def main() -> None:
    """Read the options, serve until Ctrl-C."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=20000)
    parser.add_argument("--fail-first", type=int, default=0, metavar="N", help="answer 503 to the first N deliveries")
    parser.add_argument("--hang", action="store_true", help="never answer")
    parser.add_argument("--slow", type=float, default=0.0, metavar="SECONDS", help="wait before each answer")
    options = parser.parse_args()
    server = Subscriber(options)
    print(f"listening on http://{options.host}:{server.server_address[1]}/", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        sys.exit(0)


if __name__ == "__main__":
    main()
