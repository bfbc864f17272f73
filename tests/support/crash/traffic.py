"""Traffic for a broker that is killed under it: publishers that keep what was acknowledged, and the promises it must
have kept in the end, judged from what the subscribers received."""

import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.broker.process import ROOT, BrokerProcess
from tests.support.http.recorder import Received, Recorder
from tests.support.polling import eventually_blocking

QUEUES = """
queues:
  customers:
    retry: [50ms, 100ms, 100ms, 200ms, 200ms, 500ms, 500ms, 1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s]
    subscribers: [{name: crm, endpoint: "CRM"}, {name: billing, endpoint: "BILLING"}]
  cards:
    retry: [50ms, 100ms, 100ms, 200ms, 200ms, 500ms, 500ms, 1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s]
    subscribers: [{name: crm, endpoint: "CRM"}]
"""


class Acknowledged(NamedTuple):
    """A message the broker answered 201 for."""

    id: str
    queue: str
    parents: tuple[str, ...]


class Endpoint(Recorder):
    """A subscriber that fails now and then; remembers which requests it acknowledged, in the order they came."""

    def __init__(self, chance: random.Random, share_failing: float) -> None:
        self.trace: list[tuple[str, bool]] = []
        self._lock = threading.Lock()

        def answer(request: Received) -> int:
            with self._lock:
                well = chance.random() >= share_failing
                self.trace.append((request.id, well))
            return 200 if well else 500

        super().__init__(answer)


class Publisher(threading.Thread):
    """Publishes families until told to stop; a request without an answer is forgotten, as a client without an
    idempotency key would."""

    def __init__(self, broker: BrokerProcess, chance: random.Random, pause_s: float = 0.0) -> None:
        """``pause_s``: between two messages."""
        super().__init__(daemon=True)
        self._pause_s = pause_s
        self.acknowledged: list[Acknowledged] = []
        self._broker = broker
        self._chance = chance
        self._stop_asked = threading.Event()

    def run(self) -> None:
        while not self._stop_asked.is_set():
            recent = self.acknowledged[-20:]
            parents = tuple(
                {message.id for message in self._chance.sample(recent, min(len(recent), self._chance.randrange(3)))}
            )
            queue = self._chance.choice(("customers", "cards"))
            headers = {"Syncbrok-Parent": ", ".join(parents)} if parents else {}
            try:
                reply = self._broker.request("POST", f"/v1/queues/{queue}/messages", b"x" * 50, headers)
            except OSError:
                self._stop_asked.wait(0.02)
                continue
            if reply.status == 201:
                self.acknowledged.append(Acknowledged(reply.json()["id"], queue, parents))
                if self._pause_s:
                    self._stop_asked.wait(self._pause_s)
            else:
                assert reply.status == 503, reply  # starting or stopping
                self._stop_asked.wait(0.02)

    def stop(self) -> list[Acknowledged]:
        """End it; what it got acknowledged."""
        self._stop_asked.set()
        self.join(80)
        assert not self.is_alive()
        return self.acknowledged


def waiting(broker: BrokerProcess) -> int:
    """Messages in all queues that have not ended."""
    queues: list[dict[str, Any]] = broker.request("GET", "/v1/queues").json()["queues"]
    return sum(queue["statistics"]["waiting"] if "statistics" in queue else queue["waiting"] for queue in queues)


def broken_promises(messages: list[Acknowledged], endpoints: dict[str, list[Endpoint]]) -> list[str]:
    """What was lost or early. ``endpoints`` are those of each queue's subscribers."""
    wrong: list[str] = []
    first: dict[tuple[str, int], int] = {}
    last: dict[tuple[str, int], int] = {}
    good: dict[tuple[str, int], int] = {}
    distinct = {id(endpoint): endpoint for both in endpoints.values() for endpoint in both}
    for number, endpoint in distinct.items():
        for at, (message, well) in enumerate(endpoint.trace):
            first.setdefault((message, number), at)
            last[message, number] = at
            if well:
                good.setdefault((message, number), at)
    for message in messages:
        for endpoint in endpoints[message.queue]:
            where = (message.id, id(endpoint))
            if where not in good:
                wrong.append(f"lost: {message.id} of {message.queue} was never acknowledged by one of its subscribers")
                continue
            for parent in message.parents:
                above = (parent, id(endpoint))
                if above in first and not (above in good and good[above] < first[where]):
                    wrong.append(f"early: {message.id} went out before its parent {parent} was acknowledged")
                if above in last and last[above] > first[where]:
                    wrong.append(f"late parent: {parent} was tried again after its child {message.id}")
    return wrong


class Survived(NamedTuple):
    """What came of an ordeal: how many messages were acknowledged, and which promises were broken."""

    messages: int
    wrong: list[str]


def ordeal(storage: Path, seed: int, cycles: int, *, politely: bool = False) -> Survived:
    """Traffic from four publishers, endpoints that fail one request in ten, and ``cycles`` ends of the broker in the
    middle of it: by SIGKILL, or by SIGTERM with ``politely``. Everything must have arrived in the end, in order."""
    chance = random.Random(seed)
    crm, billing = Endpoint(random.Random(seed + 1), 0.1), Endpoint(random.Random(seed + 2), 0.1)
    queues = QUEUES.replace("CRM", crm.url).replace("BILLING", billing.url)
    with crm, billing, BrokerProcess(storage, queues=queues) as broker:
        publishers = [Publisher(broker, random.Random(seed + 3 + i)) for i in range(4)]
        for publisher in publishers:
            publisher.start()
        for _ in range(cycles):
            wanted = _count(publishers) + chance.randrange(10, 200)
            _wait_for_messages(publishers, wanted)
            if politely:
                assert broker.terminate() == 0, broker.output()
            else:
                broker.kill()
            broker.start()
        messages = [message for publisher in publishers for message in publisher.stop()]
        eventually_blocking(lambda: waiting(broker) == 0, "everything delivered", 60)
        assert broker.terminate() == 0, broker.output()
    wrong = broken_promises(messages, {"customers": [crm, billing], "cards": [crm]})
    return Survived(len(messages), wrong + verified(storage))


def verified(storage: Path) -> list[str]:
    """What ``syncbrok log verify`` says against the log; nothing where it is well."""
    command = [sys.executable, "-m", "syncbrok", "log", "verify", "--storage", str(storage)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return [] if ran.returncode == 0 else [f"log verify exits {ran.returncode}: {ran.stdout}{ran.stderr}"]


def _count(publishers: list[Publisher]) -> int:
    return sum(len(publisher.acknowledged) for publisher in publishers)


def _wait_for_messages(publishers: list[Publisher], wanted: int) -> None:
    eventually_blocking(lambda: _count(publishers) >= wanted, "some more messages accepted", 30)
