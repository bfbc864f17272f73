"""Clients that take all they can get, against a real broker, and a neighbour that goes about its business meanwhile.

The judge knows nothing of the broker but its address, its process and what it is configured to listen on. Each attack
is a function of ``Target`` and of how many of its kind there are; it returns when it has done its worst.
"""

import http.client
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from tests.support.process import BrokerProcess

MIB: Final = 1 << 20
NEIGHBOUR: Final = "127.0.0.2"
"""the address from which the neighbour connects"""


class Target(NamedTuple):
    """A broker, and the ports of its TCP frontends by name."""

    broker: BrokerProcess
    tcp: dict[str, int]


@contextmanager
def attacked(
    storage: Path, *, config: str = "", descriptors: int | None = None, probed: bool = False
) -> Iterator[Target]:
    """A broker with queues ``mine`` (the neighbour's) and ``theirs``, and every TCP frontend."""
    tcp = {name: _free_port() for name in ("framed", "topics", "multiplexed")}
    frontends = ", ".join(f"{name}: {{port: {port}}}" for name, port in tcp.items())
    config = f"{config}frontends: {{{frontends}}}\n"
    with BrokerProcess(storage, config=config, descriptors=descriptors, probed=probed) as broker:
        for queue in ("mine", "theirs", "warm"):
            assert broker.request("POST", "/v1/queues", {"name": queue}).status == 201
        yield Target(broker, tcp)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# -- the judge --------------------------------------------------------------------------------------------------------


class Watch:
    """While it is open a neighbour publishes, and the broker's memory is looked at. ``answers``: status and seconds of
    each of its requests, in order; ``grown_bytes``: how far memory has been above what it was before, at most."""

    def __init__(self, target: Target, every_s: float = 0.02) -> None:
        self._target = target
        self._every_s = every_s
        self._over = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._publish, self._weigh)]
        self.answers: list[tuple[int, float]] = []
        self._before = resident_bytes(target)
        self._most = self._before

    def __enter__(self) -> Self:
        for one in self._threads:
            one.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for one in self._threads:
            one.join()

    @property
    def grown_bytes(self) -> int:
        return self._most - self._before

    @property
    def refused(self) -> list[tuple[int, float]]:
        return [one for one in self.answers if one[0] != 201]

    def latency_s(self, share: float) -> float:
        """Of its publishes: that of the quickest ``share``."""
        took = sorted(seconds for _, seconds in self.answers)
        return took[min(len(took) - 1, int(len(took) * share))]

    def _publish(self) -> None:
        connection: http.client.HTTPConnection | None = None
        while not self._over.wait(self._every_s):
            began = time.monotonic()
            try:
                if connection is None:
                    port = self._target.broker.port
                    connection = http.client.HTTPConnection("127.0.0.1", port, 30, source_address=(NEIGHBOUR, 0))
                connection.request("POST", "/v1/queues/mine/messages", b"x")
                answer = connection.getresponse()
                answer.read()
                self.answers.append((answer.status, time.monotonic() - began))
            except (OSError, http.client.HTTPException):
                self.answers.append((0, time.monotonic() - began))
                connection = None
        if connection is not None:
            connection.close()

    def _weigh(self) -> None:
        while not self._over.wait(self._every_s):
            self._most = max(self._most, resident_bytes(self._target))


def resident_bytes(target: Target) -> int:
    """Of the broker's process."""
    status = Path(f"/proc/{target.broker.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


# -- sockets ----------------------------------------------------------------------------------------------------------


class Crowd:
    """Sockets that are closed together; as a context manager, at its end."""

    def __init__(self) -> None:
        self.sockets: list[socket.socket] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.sockets:
            one.close()

    def connect(self, port: int, *, small: bool = False) -> socket.socket:
        """One more; ``small``: it has room for next to nothing that it does not read."""
        one = socket.socket()
        self.sockets.append(one)
        if small:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        one.settimeout(10.0)
        one.connect(("127.0.0.1", port))
        return one


def last(seconds: float) -> None:
    """An attack goes on for so long, while the judge looks; nothing is waited for."""
    threading.Event().wait(seconds)


def send_all_it_takes(sockets: list[socket.socket], data: bytes, seconds: float) -> None:
    """``data`` on each of them, as far as the other side takes it within so many seconds in all."""
    left = {one: memoryview(data) for one in sockets}
    for one in sockets:
        one.setblocking(False)
    until = time.monotonic() + seconds
    while left and time.monotonic() < until:
        moved = False
        for one, rest in list(left.items()):
            try:
                sent = one.send(rest[: 256 * 1024])
            except BlockingIOError:
                continue
            except OSError:
                del left[one]
                continue
            moved = True
            left[one] = rest[sent:]
            if not left[one]:
                del left[one]
        if not moved:
            last(0.01)


def frame(payload: bytes) -> bytes:
    """A client's text frame of a WebSocket; its mask is zeros."""
    size = len(payload)
    if size < 126:
        head = bytes([0x81, 0x80 | size])
    elif size < 65_536:
        head = b"\x81\xfe" + struct.pack(">H", size)
    else:
        head = b"\x81\xff" + struct.pack(">Q", size)
    return head + bytes(4) + payload


def web_socket(crowd: Crowd, target: Target, more: str = "") -> socket.socket:
    """One that consumes from ``theirs``."""
    one = crowd.connect(target.broker.port)
    one.sendall(
        f"GET /v1/queues/theirs/stream?start=now{more} HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n".encode()
        + b"Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    assert b" 101 " in one.recv(64)
    return one


def publish_large(target: Target, count: int, queue: str = "theirs") -> list[str]:
    """So many messages of 1 MiB; their ids."""
    path = f"/v1/queues/{queue}/messages"
    return [target.broker.request("POST", path, os.urandom(MIB)).json()["id"] for _ in range(count)]


# -- attacks ----------------------------------------------------------------------------------------------------------


def a_socket_that_never_reads(target: Target, seconds: int) -> None:
    """It sends what is refused, and what is published, and reads none of the answers."""
    with Crowd() as crowd:
        for content in (b'{"type":"nope","ref":"%s"}', b'{"type":"publish","content":"x","ref":"%s"}'):
            for reference in (b"r" * 1_000, b"r" * MIB):
                one = web_socket(crowd, target)
                send_all_it_takes([one], frame(content % reference) * (100 * MIB // len(reference)), seconds / 4)


def bodies_that_stop(target: Target, count: int) -> None:
    """Batches and messages that lack their last bytes."""
    with Crowd() as crowd:
        for path, size in (("messages:batch", 16 * MIB), ("messages", MIB)):
            head = (
                f"POST /v1/queues/theirs/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-ndjson\r\n"
                f"Content-Length: {size}\r\n\r\n".encode()
            )
            sockets = [crowd.connect(target.broker.port) for _ in range(count // 2)]
            send_all_it_takes(sockets, head + bytes(size - 1_000), 3.0)


def half_frames(target: Target, count: int) -> None:
    """Frames that lack their last bytes, on each TCP frontend."""
    size = 900_000
    framed = struct.pack(">IBq", 9 + 8 + size, 2, 0) + b"\x06theirs\x00" + bytes(size - 1_000)
    topics = struct.pack(">HH", 3, 12) + b"topic:theirs" + struct.pack(">I", size) + bytes(size - 1_000)
    multiplexed = struct.pack("<I", size) + b"{" + b" " * (size - 1_000)
    with Crowd() as crowd:
        for name, data in (("framed", framed), ("topics", topics), ("multiplexed", multiplexed)):
            sockets = []
            for _ in range(count // 3):
                with suppress(OSError):
                    sockets.append(crowd.connect(target.tcp[name]))
            send_all_it_takes(sockets, data, 3.0)


def half_heads(target: Target, count: int) -> None:
    """Requests whose headers go on and on, each header as long as it may be."""
    lines = b"".join(b"X-%d: %s\r\n" % (n, b"y" * 8_000) for n in range(120))
    with Crowd() as crowd:
        sockets = [crowd.connect(target.broker.port) for _ in range(count)]
        send_all_it_takes(sockets, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n" + lines, 3.0)


def contents_that_nobody_reads(target: Target, count: int) -> None:
    """Each asks for a message of 1 MiB, and stays."""
    ids = publish_large(target, 1)
    ask = f"GET /v1/messages/{ids[0]}/content HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    _ask_and_do_not_read(target, ask, count)


def pulls_that_nobody_reads(target: Target, count: int) -> None:
    """Each asks for a thousand messages of 1 MiB."""
    publish_large(target, 40)
    body = b'{"max": 1000, "wait": "1s", "lease": "5m"}'
    head = b"POST /v1/queues/theirs/pull HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n"
    _ask_and_do_not_read(target, head % len(body) + body, count)


def event_streams_that_nobody_reads(target: Target, count: int) -> None:
    """Each reads along from the beginning of a queue of large messages."""
    publish_large(target, 40)
    ask = b"GET /v1/queues/theirs/stream?start=beginning HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    _ask_and_do_not_read(target, ask, count)


def _ask_and_do_not_read(target: Target, ask: bytes, count: int) -> None:
    with Crowd() as crowd:
        for _ in range(count):
            crowd.connect(target.broker.port, small=True).sendall(ask)
        last(1.0)


def a_consumer_that_does_not_read(target: Target, window: int) -> None:
    """A WebSocket that asks for large messages and reads none."""
    with Crowd() as crowd:
        web_socket(crowd, target, f"&window={window}")
        publish_large(target, 80)
        last(0.5)


def streams_that_nobody_reads(target: Target, count: int) -> None:
    """Peers of the multiplexed format, each with a stream of one queue, while large messages are published."""
    stream = b'{"MessageType":"Queue","Name":"theirs","Type":"PUBSUB","Durable":false,"StreamID":"1"}'
    for _ in range(3):
        target.broker.request("POST", "/v1/queues/theirs/messages", b"small ones come first")
    with Crowd() as crowd:
        for _ in range(count):
            crowd.connect(target.tcp["multiplexed"], small=True).sendall(struct.pack("<I", len(stream)) + stream)
        publish_large(target, 40)
        last(0.5)


def topics_that_nobody_reads(target: Target, count: int) -> None:
    """Peers of the topics format, each subscribed to one queue, while large messages are published."""
    topics = b'["theirs"]'
    with Crowd() as crowd:
        for _ in range(count):
            asked = struct.pack(">HI", 1, len(topics)) + topics + struct.pack(">H", 1)
            crowd.connect(target.tcp["topics"], small=True).sendall(asked)
        publish_large(target, 20)
        last(0.5)


def idle_sockets(target: Target, count: int) -> None:
    """Sockets that ask for nothing, and sockets that have asked once. A newcomer of the same address is served."""
    with Crowd() as crowd:
        for asked in (b"", b"POST /v1/queues/theirs/mess", b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"):
            for _ in range(count):
                one = crowd.connect(target.broker.port)
                with suppress(OSError):  # it may have made way
                    one.sendall(asked)
            answer = target.broker.request("POST", "/v1/queues/theirs/messages", b"x")
            assert answer.status == 201, answer


Attack = Callable[[Target, int], None]

ATTACKS: Final[dict[str, tuple[Attack, int, int]]] = {
    "a socket that never reads": (a_socket_that_never_reads, 4, 60),
    "bodies that stop": (bodies_that_stop, 40, 300),
    "half TCP frames": (half_frames, 150, 1_000),
    "half heads": (half_heads, 200, 1_000),
    "contents that nobody reads": (contents_that_nobody_reads, 150, 800),
    "pulls that nobody reads": (pulls_that_nobody_reads, 40, 400),
    "event streams that nobody reads": (event_streams_that_nobody_reads, 100, 400),
    "a consumer that does not read": (a_consumer_that_does_not_read, 1_000, 10_000),
    "streams that nobody reads": (streams_that_nobody_reads, 30, 40),
    "topics that nobody reads": (topics_that_nobody_reads, 40, 400),
    "idle sockets": (idle_sockets, 1_100, 2_000),
}
"""Each with how many there are in a test of some seconds, and how many in the soak."""


def budgets(target: Target) -> dict[str, Any]:
    """How much of each is used, as ``/metrics`` says."""
    text = target.broker.request("GET", "/metrics").body.decode()
    lines = [line for line in text.splitlines() if line.startswith("syncbrok_budget_used{")]
    return {line.split('"')[1]: float(line.rsplit(" ", 1)[1]) for line in lines}
