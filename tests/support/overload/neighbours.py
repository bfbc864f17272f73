"""Cases of one that takes all it can get, next to a neighbour that only wants its messages."""

import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.support.broker.process import BrokerProcess
from tests.support.polling import eventually_blocking

MEMORY_BYTES: Final = 96 << 20
"""more than before: 64 MiB for the case, and the caches of the log and of what is read ahead, which 300 messages of a
megabyte fill whoever gets them"""
MIB: Final = 1 << 20
NDJSON: Final = {"Content-Type": "application/x-ndjson"}


class BareEndpoint:
    """An endpoint on one thread that reads everything and answers each piece of it, a small request, with ``answer``:
    with nothing, it hangs."""

    def __init__(self, answer: bytes = b"") -> None:
        self._answer = answer
        self.answered = 0
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=4_096)
        self.port = int(self._listener.getsockname()[1])
        self._held: list[socket.socket] = []
        self._ending = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def connections(self) -> int:
        return len(self._held)

    def _run(self) -> None:
        with selectors.DefaultSelector() as ready:
            ready.register(self._listener, selectors.EVENT_READ)
            while not self._ending:
                for key, _ in ready.select(0.05):
                    one = key.fileobj
                    assert isinstance(one, socket.socket)
                    if one is self._listener:
                        self._held.append(one.accept()[0])
                        ready.register(self._held[-1], selectors.EVENT_READ)
                    elif not _read(one):
                        ready.unregister(one)
                    elif self._answer:
                        one.send(self._answer)
                        self.answered += 1

    def close(self) -> None:
        self._ending = True
        self._thread.join()
        for one in (self._listener, *self._held):
            one.close()


def _read(one: socket.socket) -> bool:
    """Whether there was something."""
    try:
        return bool(one.recv(MIB))
    except OSError:
        return False


class Neighbours:
    """A broker with the queue ``good``, whose subscriber answers at once, and ``bad`` for the case."""

    def __init__(self, broker: BrokerProcess, arrived: list[float], hung: BareEndpoint) -> None:
        self.broker = broker
        self._arrived = arrived
        self.hung = hung

    def ask(self, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        reply = self.broker.request("POST", path, body, headers)
        assert reply.status < 300, (path, reply.body[:300])
        return reply.json()

    def latencies_s(self, count: int) -> list[float]:
        """From publish to arrival at the good subscriber, one message after the other."""
        latencies_s: list[float] = []
        for _ in range(count):
            before, began_s = len(self._arrived), time.monotonic()
            self.ask("/v1/queues/good/messages", b"x")
            eventually_blocking(lambda: len(self._arrived) > before, "the neighbour gets its message")  # noqa: B023
            latencies_s.append(self._arrived[before] - began_s)
        return latencies_s

    def failed(self) -> float:
        """Attempts that have failed so far."""
        metrics = self.broker.request("GET", "/metrics").body.decode()
        return next(
            float(line.split()[1]) for line in metrics.splitlines() if line.startswith("syncbrok_failed_total ")
        )

    def subscribe_hung(self, name: str, window: int) -> None:
        endpoint = f"http://127.0.0.1:{self.hung.port}/{name}"
        self.ask("/v1/queues/bad/subscribers", {"name": name, "endpoint": endpoint, "window": window})

    def publish_large(self, count: int) -> None:
        for _ in range(count):
            self.ask("/v1/queues/bad/messages", b"A" * MIB)

    def publish_small(self, count: int) -> None:
        for _ in range(count // 1_000):
            self.ask("/v1/queues/bad/messages:batch", b'{"content":"x"}\n' * 1_000, NDJSON)

    def pull(self, group: str, most: int, stop_at: int) -> None:
        """Lend for twelve hours until so many are held, or none is lent any more."""
        held = 0
        while held < stop_at:
            asked = {"max": most, "wait": 1, "lease": "12h", "group": group}
            lent = len(self.ask("/v1/queues/bad/pull", asked)["messages"])
            if not lent:
                return
            held += lent


def _hung_webhook(street: Neighbours, count: int) -> None:
    """With the largest window, and so many large messages."""
    street.subscribe_hung("h", 10_000)
    street.publish_large(count)
    eventually_blocking(lambda: street.hung.connections >= 20, "it hangs")


def _two_hung_windows(street: Neighbours, count: int) -> None:
    for name in ("h0", "h1"):
        street.subscribe_hung(name, 10_000)
    street.publish_small(count)
    eventually_blocking(lambda: street.hung.connections >= 500, "they hang")


def _large_leases(street: Neighbours, count: int) -> None:
    street.publish_large(count)
    street.pull("g", count, count)


def _small_leases(street: Neighbours, count: int) -> None:
    street.publish_small(count)
    for group in ("a", "b", "c"):
        street.pull(group, 1_000, count)


class Case(NamedTuple):
    """``few``: how many messages there are in a test of some seconds; ``many``: in the soak."""

    run: Callable[[Neighbours, int], None]
    few: int
    many: int


CASES: Final[dict[str, Case]] = {
    "a hung webhook": Case(_hung_webhook, 150, 300),
    "two hung windows": Case(_two_hung_windows, 5_000, 10_000),
    "large leases": Case(_large_leases, 100, 300),
    "small leases": Case(_small_leases, 7_000, 7_000),
}


@contextmanager
def neighbours(directory: Path) -> Iterator[Neighbours]:
    arrived: list[float] = []

    class Good(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            arrived.append(time.monotonic())
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Not of interest."""

    good = ThreadingHTTPServer(("127.0.0.1", 0), Good)
    good.daemon_threads = True
    threading.Thread(target=good.serve_forever, daemon=True).start()
    with ExitStack() as stack:
        stack.callback(good.server_close)
        stack.callback(good.shutdown)
        hung = stack.enter_context(closing(BareEndpoint()))
        broker = stack.enter_context(BrokerProcess(directory / "storage", probed=True))
        street = Neighbours(broker, arrived, hung)
        street.ask("/v1/queues", {"name": "good"})
        street.ask("/v1/queues", {"name": "bad", "timeout": "300s"})
        endpoint = f"http://127.0.0.1:{good.server_port}/"
        street.ask("/v1/queues/good/subscribers", {"name": "g", "endpoint": endpoint})
        yield street
