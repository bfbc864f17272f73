"""Both ends of the latency row, each a process: ``python -m benchmarks.stopwatch publisher|subscriber ...``.

Every message begins with its number. The publisher notes when it was sent and when it was answered, the subscriber
when its first byte came: all in Unix nanoseconds of the one clock of this machine, so that they can be compared with
each other and with the time of acceptance that the broker recorded.
"""

import asyncio
import select
import socket
import sys
import time
from typing import Any, Final

import httptools
import orjson
import uvloop

from syncbrok.bench.exchange import ACKNOWLEDGED, request

NUMBER_DIGITS: Final = 10


class Publisher:
    """A connection that sends one message at a time."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.number = -1
        self._parser: Any = None
        self._answered = False

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, number: int, data: bytes) -> None:
        self.number = number
        self._answered = False
        self._parser = httptools.HttpResponseParser(self)
        self.socket.sendall(data)

    def answered(self) -> bool:
        """Read what is there; whether that was the end of the answer. Ends the process unless it was a 2xx."""
        data = self.socket.recv(65536)
        if not data:
            raise SystemExit("the broker closed a connection")
        self._parser.feed_data(data)
        if self._answered and self._parser.get_status_code() >= 300:
            raise SystemExit(f"refused: {self._parser.get_status_code()}")
        return self._answered

    def on_message_complete(self) -> None:
        """Called by the parser."""
        self._answered = True


def publish(wish: dict[str, Any]) -> dict[str, Any]:
    """``port``, ``paths``, ``connections``, ``per_s``, ``seconds``, ``message_bytes``, ``first`` number -> due, sent
    and answered times. The paths take turns, by number. A message that finds every connection busy is sent late, which
    its due time tells.

    No event loop: their timers count whole milliseconds, and messages would come in bursts; ``select`` waits to the
    microsecond and takes no CPU meanwhile, which the broker needs.
    """
    free = [Publisher(wish["port"]) for _ in range(wish["connections"])]
    busy: set[Publisher] = set()
    count = int(wish["per_s"] * wish["seconds"])
    began_ns = time.time_ns()
    due_ns = [began_ns + int(number * 1e9 / wish["per_s"]) for number in range(count)]
    sent_ns: list[int] = []
    answered_ns = [0] * count
    while len(sent_ns) < count or busy:
        number = len(sent_ns)
        if number < count and free and time.time_ns() >= due_ns[number]:
            body = b"%0*d" % (NUMBER_DIGITS, wish["first"] + number)
            path = wish["paths"][(wish["first"] + number) % len(wish["paths"])]
            data = request(path, wish["port"], body.ljust(wish["message_bytes"], b"x"))
            # the one that has rested longest: all connections are used in turn
            connection = free.pop(0)
            sent_ns.append(time.time_ns())
            connection.send(number, data)
            busy.add(connection)
            continue
        wait_s = max(0.0, (due_ns[number] - time.time_ns()) / 1e9) if number < count and free else 1.0
        for connection in select.select(busy, (), (), wait_s)[0]:
            if connection.answered():
                answered_ns[connection.number] = time.time_ns()
                busy.remove(connection)
                free.append(connection)
    return {"due_ns": due_ns, "sent_ns": sent_ns, "answered_ns": answered_ns}


class Subscriber(asyncio.Protocol):
    """Acknowledges, and keeps (number, sequence the broker gave it, first byte) of each; the number is -1 where a
    message has none."""

    def __init__(self, seen: list[tuple[int, int, int]]) -> None:
        self._seen = seen
        self._came_ns = self._received_ns = 0
        self._sequence = 0
        self._body = b""
        self._transport: Any = None
        self._parser = httptools.HttpRequestParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received_ns = time.time_ns()
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        """Called by the parser."""
        self._came_ns = self._received_ns

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser."""
        if name.lower() == b"syncbrok-sequence":
            self._sequence = int(value)

    def on_body(self, data: bytes) -> None:
        """Called by the parser."""
        self._body += data

    def on_message_complete(self) -> None:
        """Called by the parser."""
        digits = self._body[:NUMBER_DIGITS]
        self._seen.append((int(digits) if digits.isdigit() else -1, self._sequence, self._came_ns))
        self._body, self._sequence = b"", 0
        self.answer()

    def answer(self) -> None:
        """Acknowledge what came whole."""
        self._transport.write(ACKNOWLEDGED)


async def subscribe() -> dict[str, Any]:
    """Says its port; at the end of standard input what it has seen."""
    loop = asyncio.get_running_loop()
    seen: list[tuple[int, int, int]] = []
    server = await loop.create_server(lambda: Subscriber(seen), "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await loop.run_in_executor(None, sys.stdin.read)
    return {"seen": seen}


if __name__ == "__main__":
    came = publish(orjson.loads(sys.argv[2])) if sys.argv[1] == "publisher" else uvloop.run(subscribe())
    sys.stdout.buffer.write(orjson.dumps(came) + b"\n")
