"""Clients that take all they can get, against a real broker, and a neighbour that goes about its business meanwhile.

The judge knows nothing of the broker but its address, its process and what it is configured to listen on. Each attack
is a function of ``Target`` and of how many of its kind there are; it returns when it has done its worst.
"""

import asyncio
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from tests.support.broker.process import ROOT, BrokerProcess
from tests.support.delivery.name_server import A, NameServer
from tests.support.overload.bystander import ADDRESS, Told
from tests.support.overload.neighbours import CASES, NDJSON, BareEndpoint, Case, Neighbours
from tests.support.polling import eventually_blocking

MIB: Final = 1 << 20
NAMED: Final = "bystander.test"
AT_LENGTH_S: Final = 2.0
"""an attack that is held for so long is one of the soak: it may take half a minute"""


class Target(NamedTuple):
    """A broker, and the ports of its TCP frontends by name."""

    broker: BrokerProcess
    tcp: dict[str, int]
    hold_s: float = 0.5
    """how long an attack stays as it is once it has done its worst"""


@contextmanager
def attacked(
    storage: Path, *, config: str = "", descriptors: int | None = None, probed: bool = False
) -> Iterator[Target]:
    """A broker with queues ``mine`` (the bystander's) and ``theirs``, every TCP frontend, and a name server of its own
    that knows the bystander as ``NAMED`` and says nothing of any other name."""
    tcp = ("framed", "topics", "multiplexed")
    with _names() as names:
        config = f"{config}resolver: ['{names}']\n"
        with BrokerProcess(storage, config=config, frontends=tcp, descriptors=descriptors, probed=probed) as broker:
            for queue in ("mine", "theirs", "warm"):
                assert broker.request("POST", "/v1/queues", {"name": queue}).status == 201
            yield Target(broker, broker.tcp)


@contextmanager
def _names() -> Iterator[str]:
    """The address of the name server, which is a thread."""
    loop = asyncio.new_event_loop()
    server = NameServer(lambda name, kind: [(name, kind, ADDRESS)] if (name, kind) == (NAMED, A) else _other(name))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result()
    try:
        yield server.address
    finally:
        asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _other(name: str) -> list[Any] | None:
    """No address of this kind; of other names not even that."""
    return [] if name == NAMED else None


# -- the judge --------------------------------------------------------------------------------------------------------


class Watch:
    """While it is open a bystander publishes and is delivered to, and the broker's memory is looked at; what came of it
    is ``told`` when it is closed. ``grown_bytes``: how far memory has been above what it was before, at most."""

    def __init__(self, target: Target, host: str = ADDRESS, every_s: float = 0.02) -> None:
        self._before_bytes = target.broker.resident_bytes()
        broker = target.broker
        asked = (str(broker.port), str(broker.process.pid), str(every_s), host, str(broker.storage.parent))
        command = [sys.executable, "-m", "tests.support.overload.bystander", *asked]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.told = Told([], [], 0, 0, [])

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        said, _ = self._process.communicate(timeout=90)
        self.told = Told(**json.loads(said))

    @property
    def grown_bytes(self) -> int:
        return self.told.most_bytes - self._before_bytes

    @property
    def refused(self) -> list[int]:
        return [one for one in self.told.statuses if one != 201]


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


def web_socket(
    crowd: Crowd, target: Target, more: str = "", *, start: str = "now", small: bool = False
) -> socket.socket:
    """One that consumes from ``theirs``."""
    one = crowd.connect(target.broker.port, small=small)
    one.sendall(
        f"GET /v1/queues/theirs/stream?start={start}{more} HTTP/1.1\r\nHost: 127.0.0.1\r\n".encode()
        + b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        + b"Sec-WebSocket-Version: 13\r\n\r\n"
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
        last(target.hold_s)


def bodies_that_break_off(target: Target, count: int) -> None:
    """Batches whose clients go one after the other: each makes room for one that waits, whose beginning lies ready."""
    size = 16 * MIB
    head = (
        "POST /v1/queues/theirs/messages:batch HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-ndjson\r\n"
        f"Content-Length: {size}\r\n\r\n"
    )
    with Crowd() as crowd:
        sockets = [crowd.connect(target.broker.port) for _ in range(count)]
        send_all_it_takes(sockets, head.encode() + bytes(size - 1_000), 1.0)
        for one in sockets:
            one.close()
            last(0.02)


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
        last(target.hold_s)


def half_heads(target: Target, count: int) -> None:
    """Requests whose headers go on and on, each header as long as it may be."""
    lines = b"".join(b"X-%d: %s\r\n" % (n, b"y" * 8_000) for n in range(120))
    with Crowd() as crowd:
        sockets = [crowd.connect(target.broker.port) for _ in range(count)]
        send_all_it_takes(sockets, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n" + lines, 3.0)
        last(target.hold_s)


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
        last(target.hold_s)


def a_consumer_that_does_not_read(target: Target, window: int) -> None:
    """A WebSocket that asks for large messages and reads none; at length it stays until it is closed for that, and what
    it held goes back."""
    with Crowd() as crowd:
        web_socket(crowd, target, f"&window={window}")
        publish_large(target, 80)
        last(target.hold_s)
        if target.hold_s >= AT_LENGTH_S:
            eventually_blocking(lambda: not budgets(target)["leases"], "it is closed", 90)
            last(AT_LENGTH_S)


def sockets_that_nobody_reads(target: Target, count: int) -> None:
    """WebSockets without a group, each a subscriber of its own, from the beginning of a queue that has 18 MB."""
    for _ in range(300):
        assert target.broker.request("POST", "/v1/queues/theirs/messages", bytes(60_000)).status == 201
    with Crowd() as crowd:
        for _ in range(count):
            web_socket(crowd, target, start="beginning", small=True)
        last(target.hold_s)


def streams_that_nobody_reads(target: Target, count: int) -> None:
    """Peers of the multiplexed format, each with a stream of one queue, while large messages are published."""
    stream = b'{"MessageType":"Queue","Name":"theirs","Type":"PUBSUB","Durable":false,"StreamID":"1"}'
    for _ in range(3):
        target.broker.request("POST", "/v1/queues/theirs/messages", b"small ones come first")
    with Crowd() as crowd:
        for _ in range(count):
            crowd.connect(target.tcp["multiplexed"], small=True).sendall(struct.pack("<I", len(stream)) + stream)
        publish_large(target, 40)
        last(target.hold_s)


def topics_that_nobody_reads(target: Target, count: int) -> None:
    """Peers of the topics format, each subscribed to one queue, while large messages are published."""
    topics = b'["theirs"]'
    with Crowd() as crowd:
        for _ in range(count):
            asked = struct.pack(">HI", 1, len(topics)) + topics + struct.pack(">H", 1)
            crowd.connect(target.tcp["topics"], small=True).sendall(asked)
        publish_large(target, 20)
        last(target.hold_s)


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
        last(target.hold_s)


def healthy_subscribers(target: Target, count: int) -> None:
    """All of one queue; each answers at once, and gets every message."""
    with closing(BareEndpoint(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")) as quick:
        for number in range(count):
            endpoint = f"http://127.0.0.1:{quick.port}/{number}"
            settings = {"name": f"s{number}", "endpoint": endpoint}
            assert target.broker.request("POST", "/v1/queues/theirs/subscribers", settings).status == 201
        messages = 8 + int(4 * target.hold_s)
        for _ in range(messages):
            assert target.broker.request("POST", "/v1/queues/theirs/messages", b"x").status == 201
            last(0.3)
        eventually_blocking(lambda: quick.answered == messages * count, lambda: f"{quick.answered} delivered", 60)


def lines_with_many_parents(target: Target, size_bytes: int) -> None:
    """A batch of so many bytes, each of whose lines waits for 64 messages."""
    batch = "/v1/queues/theirs/messages:batch"
    parents = target.broker.request("POST", batch, b'{"content":"x"}\n' * 64, NDJSON).json()["ids"]
    line = json.dumps({"content": "c", "parents": parents}).encode() + b"\n"
    assert target.broker.request("POST", batch, line * (size_bytes // len(line)), NDJSON).status == 201
    last(target.hold_s)


def lines_with_keys(target: Target, count: int) -> None:
    """A batch of so many lines, each with a key, an idempotency key and a header."""
    line = b'{"content":"x","key":"k%d","idempotency_key":"i%d","headers":{"x-a":"b"}}\n'
    lines = b"".join([line % (number, number) for number in range(count)])
    assert target.broker.request("POST", "/v1/queues/theirs/messages:batch", lines, NDJSON).status == 201
    last(target.hold_s)


def scrapes(target: Target, count: int) -> None:
    """Of ``/metrics``, with so many subscribers, on fifty queues."""
    for number in range(count):
        queue = f"scraped{number % 50}"
        target.broker.request("POST", "/v1/queues", {"name": queue})
        settings = {"name": f"s{number}", "endpoint": "http://127.0.0.1:9/"}
        path = f"/v1/queues/{queue}/subscribers"
        assert target.broker.request("POST", path, settings).status == 201
    for _ in range(10):
        assert target.broker.request("GET", "/metrics").status == 200


def names_that_do_not_answer(target: Target, count: int) -> None:
    """Subscribers at as many names."""
    for number in range(count):
        settings = {"name": f"s{number}", "endpoint": f"http://slow{number}.test/"}
        assert target.broker.request("POST", "/v1/queues/theirs/subscribers", settings).status == 201
    for _ in range(100):
        target.broker.request("POST", "/v1/queues/theirs/messages", b"x")
        last(0.03)


def _beside(case: Case) -> Callable[[Target, int], None]:
    def attack(target: Target, count: int) -> None:
        with closing(BareEndpoint()) as hung:
            street = Neighbours(target.broker, [], hung)
            street.ask("/v1/queues", {"name": "bad", "timeout": "300s"})
            case.run(street, count)
            last(target.hold_s)

    return attack


class Attack(NamedTuple):
    """``few``: how many there are in a test of some seconds; ``many``: in the soak. ``host``: what the bystander is
    called by."""

    run: Callable[[Target, int], None]
    few: int
    many: int
    host: str = ADDRESS
    descriptors: int | None = None
    grown_bytes_max: int = 64 * MIB


ATTACKS: Final[dict[str, Attack]] = {
    "a socket that never reads": Attack(a_socket_that_never_reads, 4, 60),
    "bodies that stop": Attack(bodies_that_stop, 40, 150),
    "bodies that break off": Attack(bodies_that_break_off, 30, 150),
    "half TCP frames": Attack(half_frames, 150, 1_000),
    "half heads": Attack(half_heads, 200, 1_000),
    "contents that nobody reads": Attack(contents_that_nobody_reads, 150, 800),
    "pulls that nobody reads": Attack(pulls_that_nobody_reads, 40, 400),
    "event streams that nobody reads": Attack(event_streams_that_nobody_reads, 100, 400),
    "a consumer that does not read": Attack(a_consumer_that_does_not_read, 1_000, 10_000),
    "sockets that nobody reads": Attack(sockets_that_nobody_reads, 60, 100),
    "streams that nobody reads": Attack(streams_that_nobody_reads, 60, 400),
    "topics that nobody reads": Attack(topics_that_nobody_reads, 60, 400),
    "idle sockets": Attack(idle_sockets, 1_100, 2_000),
    "healthy subscribers": Attack(healthy_subscribers, 200, 1_000),
    "healthy subscribers, 4,096 descriptors": Attack(healthy_subscribers, 200, 1_000, descriptors=4_096),
    "lines with many parents": Attack(lines_with_many_parents, 4 * MIB, 15 * MIB),
    "lines with keys": Attack(lines_with_keys, 3_000, 10_000),
    "scrapes": Attack(scrapes, 300, 3_000),
    "names that do not answer": Attack(names_that_do_not_answer, 2, 2, NAMED),
}

BESIDE: Final = {name: Attack(_beside(case), case.few, case.many) for name, case in CASES.items()}
"""The cases of ``neighbours``, whose tests are their own."""


def budgets(target: Target) -> dict[str, Any]:
    """How much of each is used, as ``/metrics`` says."""
    text = target.broker.request("GET", "/metrics").body.decode()
    lines = [line for line in text.splitlines() if line.startswith("syncbrok_budget_used{")]
    return {line.split('"')[1]: float(line.rsplit(" ", 1)[1]) for line in lines}
