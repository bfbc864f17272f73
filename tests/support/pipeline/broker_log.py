"""A log for the pipeline's tests, written by a real broker under load, with what the broker itself says about it.

Families over four queues, keys, headers, idempotency keys, delays, batches, a chain, a wide tree; endpoints that fail
now and then, one that is down, one that is gone, one that hangs; dead letters with their cascades, and a replay of
them; a paused subscriber, a deleted one; cancels and expiries; kill -9 in the middle of all that and a start on what it
left. Small segments, so that there are many sealed ones and a live one. In the end the broker answers ``/v1`` about
everything and is stopped in order.

``real_log`` is a session fixture: whoever changes files of the log works on ``RealLog.copied``.
"""

import json
import os
import random
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from syncbrok.log.format.codec import walk
from syncbrok.log.segments.segment import SEGMENT_HEADER_BYTES
from tests.support.broker.process import BrokerProcess
from tests.support.crash.traffic import Acknowledged
from tests.support.http.recorder import Received, Recorder
from tests.support.polling import eventually_blocking

SEGMENT_KIB: Final = 64
SINGLES: Final = 1_500
"""messages published one by one while endpoints fail; the broker is killed when half of them are there"""
CHAIN: Final = 200
TREE: Final = 300
TICKS: Final = 1_500
NDJSON: Final = {"Content-Type": "application/x-ndjson"}

_RETRY: Final = "[30ms, 60ms, 120ms, 250ms, 500ms, 500ms, 500ms, 500ms]"
QUEUES: Final = f"""
queues:
  customers:
    retry: {_RETRY}
    subscribers:
      - {{name: crm, endpoint: "FLAKY", headers: {{x-shop: "1"}}}}
      - {{name: billing, endpoint: "STEADY"}}
  cards:
    retry: {_RETRY}
    scope: same
    subscribers:
      - {{name: crm, endpoint: "FLAKY"}}
      - {{name: print, endpoint: "SLOW", timeout: 150ms, breaker: {{probe: [1s, 2s]}}}}  # on a busy machine it opens
  notices:
    retry: [20ms, 20ms]
    subscribers: [{{name: mail, endpoint: "DOWN"}}]
  held:
    retry: []
    parent_failure: hold
    subscribers: [{{name: desk, endpoint: "DOWN"}}]
  exports:
    subscribers:
      - {{name: warehouse, endpoint: "STEADY", paused: true}}
      - {{name: legacy, endpoint: "STEADY", paused: true}}
      - {{name: fax, endpoint: "GONE"}}
  letters:
    subscribers: [{{endpoint: "STEADY", format: original}}]
  ticks: {{}}
"""


class Answers(NamedTuple):
    """What ``/v1`` said when all was quiet. Everything is the JSON of the answers."""

    queues: dict[str, dict[str, Any]]
    subscribers: dict[tuple[str, str], dict[str, Any]]
    """by queue and id"""
    messages: dict[int, dict[str, Any]]
    """every message by its sequence, with its deliveries but without their attempts"""
    dead_letters: list[dict[str, Any]]
    detailed: list[dict[str, Any]]
    """some messages of each queue and state, with every attempt"""
    trees: list[dict[str, Any]]
    """of the largest families and a few others, up and down"""
    metrics: dict[str, float]
    """the rows of ``/metrics`` without labels"""


class RealLog(NamedTuple):
    storage: Path
    answers: Answers
    seed: int
    acknowledged: list[Acknowledged]
    """what a publisher was answered 201 for, one by one; those of batches are in ``answers`` only"""
    killed_at: int
    """last sequence of the log when the broker was killed"""
    legacy: tuple[str, str]
    """queue and id of the subscriber that was deleted while messages waited for it"""

    def copied(self, folder: Path) -> Path:
        """A copy of the storage directory below ``folder``, for whoever changes it."""
        return Path(shutil.copytree(self.storage, folder / "storage"))


# -- the endpoints ----------------------------------------------------------------------------------------------------


class Endpoints:
    """The subscribers, each an HTTP server. ``mended`` set: the one that is down acknowledges."""

    def __init__(self, chance: random.Random) -> None:
        self.mended = threading.Event()
        never = threading.Event()

        def slow(_: Received) -> int:
            if chance.random() < 0.01:
                never.wait(0.3)  # longer than the subscriber's timeout
            return 200 if chance.random() >= 0.03 else 503

        self.of = {
            "FLAKY": Recorder(lambda _: 200 if chance.random() >= 0.08 else 500),
            "STEADY": Recorder(),
            "SLOW": Recorder(slow),
            "DOWN": Recorder(lambda _: 200 if self.mended.is_set() else 500),
            "GONE": Recorder(lambda _: 410),
        }

    def queues(self) -> str:
        """``QUEUES`` with their addresses."""
        text = QUEUES
        for name, recorder in self.of.items():
            text = text.replace(name, recorder.url)
        return text


# -- the traffic ------------------------------------------------------------------------------------------------------


class Shop:
    """A publisher: families over the queues, one message a request; what gets no answer is published again with the
    same idempotency key, as a good client does."""

    def __init__(self, broker: BrokerProcess, chance: random.Random, name: str) -> None:
        self.acknowledged: list[Acknowledged] = []
        self._broker = broker
        self._chance = chance
        self._name = name

    def open(self, messages: int) -> list[Acknowledged]:
        """Publish so many; those acknowledged, each once."""
        for number in range(messages):
            queue = self._chance.choices(*_MIX)[0]
            parents = self._parents()
            headers = self._headers(queue, parents)
            body = {"shop": self._name, "number": number, "filler": "x" * self._chance.randrange(60)}
            headers["Idempotency-Key"] = f"{self._name}-{number}"
            id_ = ""
            for _ in range(1 + (self._chance.random() < 0.03)):
                id_ = self._publish(queue, json.dumps(body).encode(), headers)
            self.acknowledged.append(Acknowledged(id_, queue, parents))
        return self.acknowledged

    def _parents(self) -> tuple[str, ...]:
        near = self.acknowledged[-12:]
        chosen = self._chance.sample(near, min(len(near), self._chance.choices((0, 1, 2, 3), (4, 4, 2, 1))[0]))
        # What hangs on an endpoint that is down or paused drags its descendants along: a few, not everybody.
        return tuple(one.id for one in chosen if one.queue in _WELL or self._chance.random() < 0.15)

    def _headers(self, queue: str, parents: tuple[str, ...]) -> dict[str, str]:
        chance, headers = self._chance, {"Content-Type": "application/json"}
        if parents:
            headers["Syncbrok-Parent"] = ", ".join(parents)
            if chance.random() < 0.2:
                headers["Syncbrok-Parent-Failure"] = chance.choice(("deliver", "hold", "fail"))
        if chance.random() < 0.15:
            headers["Syncbrok-Key"] = f"customer-{chance.randrange(5)}"
        if chance.random() < 0.1:
            headers["Syncbrok-Forward-X-Campaign"] = f"autumn {chance.randrange(3)}"
        if chance.random() < 0.06:
            headers["Syncbrok-Delay"] = f"{chance.randrange(20, 400)}ms"
        if queue == "exports" and chance.random() < 0.3:
            headers["Syncbrok-Expires"] = "1s"  # two of its subscribers are paused
        return headers

    def _publish(self, queue: str, body: bytes, headers: dict[str, str]) -> str:
        """The id, once the broker has answered."""

        def tried() -> str:
            try:
                reply = self._broker.request("POST", f"/v1/queues/{queue}/messages", body, headers)
            except OSError:
                return ""  # it was killed
            assert reply.status in {200, 201, 503}, reply
            return "" if reply.status == 503 else str(reply.json()["id"])

        return eventually_blocking(tried, "a publish answered", 30)


_MIX: Final = (("customers", "cards", "notices", "held", "exports", "letters"), (6, 5, 1, 1, 1, 1))
_WELL: Final = {"customers", "cards", "letters"}


def batch(broker: BrokerProcess, queue: str, lines: list[dict[str, Any]]) -> list[str]:
    """Publish all lines as one unit; their ids."""
    data = b"\n".join(json.dumps(line).encode() for line in lines)
    reply = broker.request("POST", f"/v1/queues/{queue}/messages:batch", data, NDJSON)
    assert reply.status == 201, reply
    ids: list[str] = reply.json()["ids"]
    return ids


def families(broker: BrokerProcess) -> list[str]:
    """Batches: a chain, a wide tree with a second level, one that dies from its root on, bare messages that nobody
    subscribed to. Ids of the four first messages."""
    chain: list[dict[str, Any]] = [{"content": "link 1"}]
    chain += [{"content": f"link {n}", "parents": [f"#{n - 1}"]} for n in range(2, CHAIN + 1)]
    tree: list[dict[str, Any]] = [{"content": "trunk"}]
    tree += [{"data": {"branch": n}, "parents": ["#1"], "headers": {"x-side": "left"}} for n in range(TREE)]
    tree += [{"content": "leaf", "parents": ["#1", f"#{TREE}", f"#{TREE + 1}"], "key": "leaves"} for _ in range(20)]
    dying: list[dict[str, Any]] = [{"content": "root of what dies"}]
    dying += [{"content": "child", "parents": ["#1"]} for _ in range(10)]
    dying += [{"content": "grandchild", "parents": [f"#{2 + n % 10}"]} for n in range(30)]
    ticks = [{"content": f"tick {n}"} for n in range(TICKS)]
    wanted = (("customers", chain), ("cards", tree), ("notices", dying), ("ticks", ticks))
    return [batch(broker, queue, lines)[0] for queue, lines in wanted]


# -- what the broker says ---------------------------------------------------------------------------------------------


def pages(broker: BrokerProcess, path: str, name: str) -> Iterator[dict[str, Any]]:
    """All items of a list, page by page."""
    after: object = 0
    while after is not None:
        reply = broker.request("GET", f"{path}?limit=500" + (f"&after={after}" if after else ""))
        assert reply.status == 200, reply
        yield from reply.json()[name]
        after = reply.json()["next"]


def metrics(broker: BrokerProcess) -> dict[str, float]:
    rows = (line.rpartition(" ") for line in broker.request("GET", "/metrics").body.decode().splitlines())
    return {name: float(value) for name, _, value in rows if name and name[0] != "#" and "{" not in name}


def last_sequence(storage: Path) -> int:
    """Of a log that nobody has open."""
    segment = max(storage.glob("*.log"))
    data = segment.read_bytes()
    offsets, _ = walk(data, SEGMENT_HEADER_BYTES, len(data))
    return int(segment.stem) + len(offsets) - 1


def settle(broker: BrokerProcess, still_s: float = 1.2) -> None:
    """Wait until everything has come as far as it can: nothing is under way, and for ``still_s`` (longer than any
    delay or expiry in the traffic) the log has not grown."""
    last: list[tuple[float, float]] = []

    def still() -> bool:
        busy = any(
            sum(one["statistics"][what] for what in ("in_flight", "retrying", "backlog"))
            for queue in pages(broker, "/v1/queues", "queues")
            for one in pages(broker, f"/v1/queues/{queue['name']}/subscribers", "subscribers")
            if one["state"] == "active"
        )
        sequence = metrics(broker)["syncbrok_log_sequence"]
        if busy or not last or last[0][0] != sequence:
            last[:] = [(sequence, time.monotonic())]
        return time.monotonic() - last[0][1] >= still_s

    eventually_blocking(still, "the broker with nothing left to do", 60)


def ask(broker: BrokerProcess, chance: random.Random, roots: list[str]) -> Answers:
    """All that ``/v1`` says, now."""
    queues = {queue["name"]: queue for queue in pages(broker, "/v1/queues", "queues")}
    messages = {
        one["sequence"]: one for name in queues for one in pages(broker, f"/v1/queues/{name}/messages", "messages")
    }
    kinds: dict[tuple[str, str], list[str]] = {}
    for one in messages.values():
        kinds.setdefault((one["queue"], one["state"]), []).append(one["id"])
    some = [id_ for ids in kinds.values() for id_ in chance.sample(ids, min(len(ids), 4))]
    deepest = sorted(messages.values(), key=lambda one: -one["depth"])[:2]
    asked = [(root, "down") for root in roots] + [(one["id"], "up") for one in deepest]
    asked += [(id_, way) for id_ in some[::3] for way in ("up", "down")]
    return Answers(
        queues,
        {
            (name, one["id"]): one
            for name in queues
            for one in pages(broker, f"/v1/queues/{name}/subscribers", "subscribers")
        },
        messages,
        [one for name in queues for one in pages(broker, f"/v1/queues/{name}/dead-letters", "dead_letters")],
        [broker.request("GET", f"/v1/messages/{id_}").json() for id_ in some],
        [broker.request("GET", f"/v1/messages/{id_}/tree?direction={way}&depth=10000").json() for id_, way in asked],
        metrics(broker),
    )


# -- the story --------------------------------------------------------------------------------------------------------


@contextmanager
def live_broker(folder: Path, seed: int, config: str = "") -> Iterator[tuple[BrokerProcess, Endpoints]]:
    """A broker on an empty log with the queues, subscribers and small segments of the story."""
    endpoints = Endpoints(random.Random(seed))
    for recorder in endpoints.of.values():
        recorder.__enter__()
    settings = config or f"storage: {{segment: {SEGMENT_KIB}KiB}}\n"
    try:
        with BrokerProcess(folder / "storage", queues=endpoints.queues(), config=settings) as broker:
            yield broker, endpoints
    finally:
        for recorder in endpoints.of.values():
            recorder.__exit__()


def write_log(folder: Path, seed: int) -> RealLog:
    """The whole story, in about ten seconds; the broker is stopped when it returns."""
    chance = random.Random(seed)
    with live_broker(folder, seed) as (broker, endpoints), ThreadPoolExecutor(3) as pool:
        shops = [Shop(broker, random.Random(seed + number), f"shop-{number}") for number in range(3)]
        open_: list[Future[list[Acknowledged]]] = [pool.submit(shop.open, SINGLES // 3) for shop in shops]
        roots = families(broker)
        _until(shops, open_, SINGLES // 2)
        assert broker.request("DELETE", "/v1/queues/exports/subscribers/legacy").status in {200, 204}
        broker.kill()
        killed_at = last_sequence(broker.storage)
        # A checkpoint has the counters of its moment in it; without one they begin at 0.
        (broker.storage / "checkpoint").unlink(missing_ok=True)
        broker.start()
        acknowledged = [one for each in open_ for one in each.result()]
        _mend(broker, endpoints)
        _end_otherwise(broker)
        settle(broker)
        # Nobody is subscribed to ticks, so no fact follows that could roll the segment: the live one has a message.
        batch(broker, "ticks", [{"content": "last tick"}])
        answers = ask(broker, chance, roots)
        assert broker.terminate() == 0, broker.output()
    return RealLog(folder / "storage", answers, seed, acknowledged, killed_at, ("exports", "legacy"))


def _until(shops: list[Shop], open_: list["Future[list[Acknowledged]]"], wanted: int) -> None:
    def enough() -> bool:
        for shop in open_:
            if shop.done():
                shop.result()  # what it raised
        return sum(len(shop.acknowledged) for shop in shops) >= wanted

    eventually_blocking(enough, f"{wanted} messages acknowledged", 60)


def _mend(broker: BrokerProcess, endpoints: Endpoints) -> None:
    """Replay the dead letters of ``notices`` while its endpoint works again for a while; then more of them die. Where
    the replay cascades into other queues it waits for the keys and parents of what has not ended there, which may be
    for ever."""

    def letters() -> int:
        return len(list(pages(broker, "/v1/queues/notices/dead-letters", "dead_letters")))

    before = letters()
    assert before > 10
    endpoints.mended.set()
    plan = broker.request("POST", "/v1/queues/notices/dead-letters/replay", {}).json()
    assert plan["replay"], plan
    settle(broker)
    assert letters() < before
    endpoints.mended.clear()
    batch(broker, "notices", [{"content": "bad news"}, *({"content": "more", "parents": ["#1"]} for _ in range(8))])


def _end_otherwise(broker: BrokerProcess) -> None:
    """A test message, cancels, a child that is held."""
    reply = broker.request("POST", "/v1/queues/customers/subscribers/billing/test", {})
    assert reply.status < 300, reply
    for number in range(3):
        headers = {"Syncbrok-Delay": "1h", "Idempotency-Key": f"cancelled-{number}"}
        id_ = broker.request("POST", "/v1/queues/customers/messages", b"never mind", headers).json()["id"]
        assert broker.request("DELETE", f"/v1/messages/{id_}").json()["dropped"] == 2
    # Chance alone makes three such families on average, and in one story of some twenty none.
    batch(broker, "held", [{"content": "bad news"}, {"content": "held", "parents": ["#1"]}])


@pytest.fixture(scope="session")
def real_log(tmp_path_factory: pytest.TempPathFactory) -> RealLog:
    """See the module. Read only."""
    seed = int(os.environ.get("SYNCBROK_TEST_SEED") or random.SystemRandom().randrange(2**32))
    print(f"seed of the real log: SYNCBROK_TEST_SEED={seed}")
    return write_log(tmp_path_factory.mktemp("real-log"), seed)
