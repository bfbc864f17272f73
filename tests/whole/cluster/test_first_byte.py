"""A leader that is stopped for longer than its lease, with a pull, a WebSocket and a TCP consumer open on it: when it
goes on no delivery of its begins any more, whatever it had in hand (CLUSTER, R5). What it has lent is over at the next
leader, and a receiver that knows of that one costs a message no attempt.

Broken by hand to see these fail: no look at the lease before the first byte (``tests/mutations.py``).
"""

import json
import re
import socket
import struct
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import pytest

pytest.importorskip("nats", reason="needs syncbrok[cluster]")

from tests.support.cluster.broker_nodes import BrokerNode, BrokerNodes
from tests.support.cluster.nats_engine import NatsEngine
from tests.support.http.recorder import Received, Recorder
from tests.support.polling import eventually_blocking

SMALL: Final = "s" * 4_096
LARGE: Final = "l" * 131_072
QUEUES: Final = """queues:
  socket: {}
  pull: {}
  topic: {subscribers: [{name: hook, endpoint: HOOK}]}
"""
UPGRADE: Final = (
    b"GET /v1/queues/socket/stream?start=beginning&group=g&window=2000 HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


class Piece(NamedTuple):
    """What one ``recv`` gave, and when."""

    at_s: float
    offset: int
    data: bytes


class Consumer:
    """A connection to one node that is read in a thread: slowly at first, then as fast as it goes. As a context manager
    it is open inside."""

    def __init__(self, port: int, first: bytes, answer: bytes = b"") -> None:
        """``answer``: said to each piece that comes."""
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 131_072)
        self._socket.connect(("127.0.0.1", port))
        self._socket.settimeout(0.02)
        self._socket.sendall(first)
        self._answer = answer
        self.hurries = threading.Event()
        if answer:
            self.hurries.set()
        self._over = False
        self.pieces: list[Piece] = []
        self._thread = threading.Thread(target=self._read)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        self._thread.join()
        self._socket.close()

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def _read(self) -> None:
        offset = 0
        while not self._over:
            try:
                data = self._socket.recv(1 << 16 if self.hurries.is_set() else 4_096)
                if data and self._answer:
                    self._socket.sendall(self._answer)
            except TimeoutError:
                continue
            except OSError:
                return
            if not data:
                return
            self.pieces.append(Piece(time.monotonic(), offset, data))
            offset += len(data)
            self.hurries.wait(0.01)  # the pace of a consumer that is slow, and not gone

    @property
    def received(self) -> bytes:
        return b"".join(piece.data for piece in self.pieces)

    def begun_after(self, at_s: float, mark: bytes, ahead: int = 0) -> int:
        """How many deliveries began to come after that moment. Each has this mark, so many bytes behind its first."""
        received, offsets = self.received, [piece.offset for piece in self.pieces]
        places = [found.start() for found in re.finditer(re.escape(mark), received)]
        return sum(self.pieces[bisect_right(offsets, place - ahead) - 1].at_s > at_s for place in places)


class Hook:
    """A webhook that knows when the first attempt of each epoch came."""

    def __init__(self) -> None:
        self.firsts: dict[int, float] = {}
        self.recorder = Recorder(self._answer)

    def _answer(self, request: Received) -> int:
        self.firsts.setdefault(int(request.headers["syncbrok-epoch"]), time.monotonic())
        return 200


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsEngine]:
    with NatsEngine(tmp_path_factory.mktemp("engine")) as running:
        yield running


def publish(nodes: BrokerNodes, queue: str, content: str, count: int) -> None:
    line = json.dumps({"content": content}).encode() + b"\n"
    kind = {"Content-Type": "application/x-ndjson"}
    each = max(1, 1_000_000 // len(line))
    for at in range(0, count, each):
        some = min(each, count - at)
        reply = nodes.request("POST", f"/v1/queues/{queue}/messages:batch", line * some, kind)
        assert reply.status == 201, reply


def pulls(node: BrokerNode, most: int, group: str) -> bytes:
    body = json.dumps({"max": most, "wait": 20, "group": group, "lease": "10m"}).encode()
    head = f"POST /v1/queues/pull/pull HTTP/1.1\r\nHost: {node.url[7:]}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def subscribes(topic: str) -> bytes:
    listed = json.dumps([topic]).encode()
    return struct.pack(">HI", 1, len(listed)) + listed + struct.pack(">H", 0)


def stands_still(figure: Callable[[], Any]) -> Callable[[], bool]:
    """Whether it has been the same for a while of looks."""
    seen: list[Any] = []

    def still() -> bool:
        seen.append(figure())
        return len(seen) > 30 and bool(seen[-1]) and seen[-1] == seen[-30]

    return still


def test_a_stopped_leader_begins_no_delivery_to_a_consumer(engine: NatsEngine, tmp_path: Path) -> None:
    """CLUSTER, R5: a slow WebSocket, a slow pull and a quick TCP consumer, all with more to come from the leader in
    whose hand it is. It is stopped until the next one has begun its first attempt; they read on meanwhile, and when it
    goes on nothing more begins: no frame, no message, and the answer to the pull never is whole. Its next process tells
    that it was fenced."""
    hook = Hook()
    with hook.recorder, ExitStack() as stack:
        queues = QUEUES.replace("HOOK", hook.recorder.url)
        nodes = stack.enter_context(BrokerNodes(tmp_path, engine.addresses, queues, formats=("topics",)))
        leader = nodes.leader_after(0)
        publish(nodes, "socket", SMALL, 2_000)
        publish(nodes, "pull", LARGE, 64)
        publish(nodes, "topic", "t", 8_000)
        quick = stack.enter_context(Consumer(leader.tcp["topics"], subscribes("topic"), struct.pack(">H", 4)))
        eventually_blocking(lambda: len(quick.pieces) > 100, "it takes one after the other", 60)
        slow = [Consumer(leader.port, UPGRADE), Consumer(leader.port, pulls(leader, 64, "g"))]
        for one in slow:
            stack.enter_context(one)
        eventually_blocking(lambda: all(len(one.pieces) > 30 for one in slow), "both are in the middle of it", 60)
        assert not any(one.ended for one in slow)
        leader.pause(paused=True)
        for one in slow:
            one.hurries.set()
        nodes.leader_after(leader.epoch)
        publish(nodes, "topic", "of the next leader", 1)
        eventually_blocking(lambda: max(hook.firsts, default=0) > leader.epoch, "it has begun an attempt", 60)
        everybody = [*slow, quick]
        eventually_blocking(stands_still(lambda: sum(len(one.pieces) for one in everybody)), "they have read all", 60)
        goes_on_s = time.monotonic()
        leader.pause(paused=False)
        assert leader.process.wait(30) == 76, leader.output()
        eventually_blocking(lambda: all(one.ended for one in everybody), "each is cut off", 30)
        leader.launch()
        eventually_blocking(lambda: leader.follows, "it follows", 60)
        assert b"\nsyncbrok_cluster_fenced_total 1\n" in leader.request("GET", "/metrics").body
    frame = b'{"type":"message"'  # behind the four bytes of the head of a frame
    assert 0 < slow[0].begun_after(0.0, frame, 4) < 2_000
    assert slow[0].begun_after(goes_on_s, frame, 4) == 0
    assert quick.begun_after(0.0, b"\0\5topic") > 100
    assert quick.begun_after(goes_on_s, b"\0\5topic") == 0
    assert slow[1].received.startswith(b"HTTP/1.1 200")
    assert not slow[1].received.endswith(b"]}"), "or its client would have read it all"
    assert min(at_s for epoch, at_s in hook.firsts.items() if epoch > leader.epoch) < goes_on_s


def test_what_a_leader_has_lent_is_over_at_the_next(engine: NatsEngine, tmp_path: Path) -> None:
    """CLUSTER, Life of a node: the name of a lease means nothing to another leader, whatever is said of it, and no
    delivery of its own is answered by it; the message goes out again, with a later epoch."""
    with BrokerNodes(tmp_path, engine.addresses) as nodes:
        assert nodes.request("POST", "/v1/queues", {"name": "q"}).status == 201
        assert nodes.request("POST", "/v1/queues/q/messages", b"lent").status == 201
        lent = pulled(nodes)
        leader = nodes.leader_after(0)
        assert lent["epoch"] == leader.epoch
        leader.kill()
        nodes.leader_after(leader.epoch)
        again = pulled(nodes)
        assert (again["id"], again["attempt"], again["epoch"]) == (lent["id"], 1, nodes.leader_after(0).epoch)
        assert again["epoch"] > lent["epoch"]
        for verb in ("ack", "nack", "extend"):
            reply = nodes.request("POST", f"/v1/leases/{lent['lease']}:{verb}", {})
            assert (reply.status, reply.json()["type"]) == (410, "urn:syncbrok:problem:lease-over")
            assert "leads no more" in reply.json()["detail"]
            many = nodes.request("POST", f"/v1/leases:{verb}", {"leases": [lent["lease"]]})
            assert many.json() == {"answered": 0, "over": [lent["lease"]]}
        assert nodes.request("POST", f"/v1/leases/{again['lease']}:ack", {}).json() == {"answered": 1, "over": []}


def pulled(nodes: BrokerNodes) -> Any:
    """The message that there is."""

    def found() -> Any:
        reply = nodes.request("POST", "/v1/queues/q/pull", {"wait": 5, "lease": "10m"})
        return reply.status == 200 and reply.json()["messages"]

    (message,) = eventually_blocking(found, "it is lent")
    return message


def test_a_receiver_that_knows_of_a_later_leader_costs_no_attempt(engine: NatsEngine, tmp_path: Path) -> None:
    """RULES, 409: with a greater ``Syncbrok-Epoch`` it spends nothing and lets the leader find out whether it still
    leads. It does: so the next such answer is a failure as any other, and nobody is asked again and again."""
    with Recorder() as endpoint, BrokerNodes(tmp_path, engine.addresses) as nodes:
        leader = nodes.leader_after(0)
        endpoint.more = {"Syncbrok-Epoch": str(leader.epoch + 1)}
        endpoint.answer = lambda _: 409
        assert nodes.request("POST", "/v1/queues", {"name": "q", "retry": ["10m"]}).status == 201
        made = {"name": "s", "endpoint": endpoint.url}
        assert nodes.request("POST", "/v1/queues/q/subscribers", made).status == 201
        id_ = nodes.request("POST", "/v1/queues/q/messages", b"x").json()["id"]

        def attempts() -> Any:
            (delivery,) = nodes.request("GET", f"/v1/messages/{id_}").json()["deliveries"]
            return delivery["attempts"]

        failed = eventually_blocking(attempts, "it has failed once the leader knows that it leads")
        assert [(one["attempt"], one["status"]) for one in failed] == [(1, 409)]
        assert len(endpoint.requests) > 1
        assert {one.headers["syncbrok-attempt"] for one in endpoint.requests} == {"1"}
        assert nodes.leader_after(0).epoch == leader.epoch
