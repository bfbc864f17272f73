"""Everything a broker can be asked, at once, while it is killed over and over; see ``everything_judge``."""

import asyncio
import base64
import json
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.broker.process import BrokerProcess
from tests.support.crash.everything_judge import Asked, Life, Seen, broken, counts, spoilt
from tests.support.crash.traffic import verified, waiting
from tests.support.http.recorder import Received, Recorder
from tests.support.polling import eventually_blocking
from tests.support.tcp.readers import FramedReader, MultiplexedReader, TcpReader

RETRY = "[50ms, 100ms, 200ms, 200ms, 500ms, 500ms, 1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s]"
TWO = '[{name: crm, endpoint: "CRM"}, {name: bill, endpoint: "BILL"}]'
QUEUES = f"""
queues:
  customers: {{scope: all, retry: {RETRY}, subscribers: {TWO}}}
  accounts: {{scope: same, retry: {RETRY}, subscribers: {TWO}}}
  letters: {{scope: all, retry: {RETRY}, subscribers: [{{name: post, endpoint: "POST"}}]}}
"""
SCOPES = {"customers": "all", "accounts": "same", "letters": "all"}
SUBSCRIBERS = {
    "customers": ("customers/crm", "customers/bill", "customers/multiplexed"),
    "accounts": ("accounts/crm", "accounts/bill", "accounts/workers"),
    "letters": ("letters/post", "letters/readers", "letters/framed"),
}
OVER_TCP: dict[str, type[TcpReader]] = {"letters/framed": FramedReader, "customers/multiplexed": MultiplexedReader}
KEYS = 4
REFUSED_SHARE = 0.1
_PAUSE_S = 0.02
_SETTLED_MAX_S = 900.0


class Ledger:
    """What all threads write to, and what they read of each other."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.asked: list[Asked] = []
        self.seen: list[Seen] = []
        self.over_tcp: list[tuple[str, bytes, float]] = []
        """subscriber, content and moment of what was read over TCP, where nothing says which message it is"""
        self.cancelled: set[str] = set()
        self.poison: set[bytes] = set()
        self.healed = False
        self.over = threading.Event()
        self._lock = threading.Lock()

    def dice(self) -> float:
        with self._lock:
            return self.chance.random()

    def takes(self, subscriber: str, id_: str, content: bytes, *, replay: bool) -> bool:
        """A subscriber has been given a message: note it, and say whether it acknowledges."""
        with self._lock:
            well = self.healed or (content not in self.poison and self.chance.random() >= REFUSED_SHARE)
            self.seen.append(Seen(subscriber, id_, content, time.monotonic(), well, replay))
        return well

    def read_over_tcp(self, subscriber: str, content: bytes) -> None:
        """A consumer over TCP has a whole message. Those have no answers: what was written to them is acknowledged."""
        with self._lock:
            self.over_tcp.append((subscriber, content, time.monotonic()))


class Endpoint(Recorder):
    """A webhook of one subscriber name of every queue that has one of it."""

    def __init__(self, ledger: Ledger, name: str) -> None:
        def answer(request: Received) -> int:
            at = f"{request.headers['syncbrok-queue']}/{name}"
            replay = "syncbrok-replay" in request.headers
            return 200 if ledger.takes(at, request.id, request.body, replay=replay) else 503

        super().__init__(answer)


def _line(ledger: Ledger, chance: random.Random, queue: str, name: str) -> dict[str, Any]:
    """One message as a line of a batch."""
    line: dict[str, Any] = {"content": name, "idempotency_key": name}
    recent = [one.id for one in ledger.asked[-30:]]
    if recent and chance.random() < 0.5:
        line["parents"] = sorted(set(chance.sample(recent, min(len(recent), chance.randrange(1, 3)))))
        line["parent_failure"] = chance.choice(("fail", "fail", "hold", "deliver"))
    if chance.random() < 0.4:
        line["key"] = f"key-{chance.randrange(KEYS)}"
    if chance.random() < 0.15:
        line["delay"] = round(chance.uniform(0.05, 0.8), 3)
    if queue == "letters" and chance.random() < 0.15:
        ledger.poison.add(name.encode())
    return line


class Publisher(threading.Thread):
    """Publishes single messages and batches until told to stop. What had no answer is repeated with its keys until it
    has one."""

    def __init__(self, broker: BrokerProcess, ledger: Ledger, number: int, seed: int) -> None:
        super().__init__(name=f"publisher {number}", daemon=True)
        self._broker = broker
        self._ledger = ledger
        self._chance = random.Random(seed)
        self._number = number
        self._count = 0

    def run(self) -> None:
        while not self._ledger.over.is_set():
            queue = self._chance.choice(("customers", "accounts", "letters"))
            if self._chance.random() < 0.3:
                self._batch(queue)
            else:
                self._single(queue)

    def _next_name(self) -> str:
        self._count += 1
        return f"message {self._number}.{self._count}"

    def _single(self, queue: str) -> None:
        line = _line(self._ledger, self._chance, queue, self._next_name())
        headers = {"Idempotency-Key": line["idempotency_key"]}
        for member, header in (("key", "Syncbrok-Key"), ("delay", "Syncbrok-Delay")):
            if member in line:
                headers[header] = str(line[member])
        if "parents" in line:
            headers |= {"Syncbrok-Parent": ",".join(line["parents"]), "Syncbrok-Parent-Failure": line["parent_failure"]}
        expires_s = 0.0
        sent_s = time.monotonic()
        if self._chance.random() < 0.05:
            lasts_s = round(self._chance.uniform(0.3, 2.0), 3)
            headers["Syncbrok-Expires"] = f"{lasts_s}s"
            expires_s = sent_s + lasts_s
        reply = self._until_answered(f"/v1/queues/{queue}/messages", line["content"].encode(), headers)
        if expires_s:  # counted from the attempt that was accepted, of which this one does not know which it was
            expires_s = time.monotonic() + lasts_s
        self._note(reply["id"], reply["sequence"], queue, line, sent_s, expires_s)

    def _batch(self, queue: str) -> None:
        lines = [
            _line(self._ledger, self._chance, queue, self._next_name()) for _ in range(self._chance.randrange(2, 8))
        ]
        for position, line in enumerate(lines[1:], 1):
            if self._chance.random() < 0.5:
                line["parents"] = [*line.get("parents", []), f"#{self._chance.randrange(position) + 1}"]
        body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        sent_s = time.monotonic()
        headers = {"Content-Type": "application/x-ndjson"}
        ids = self._until_answered(f"/v1/queues/{queue}/messages:batch", body, headers)["ids"]
        for id_, line in zip(ids, lines, strict=True):
            line["parents"] = [ids[int(one[1:]) - 1] if one[0] == "#" else one for one in line.get("parents", [])]
            self._note(id_, _sequence(id_), queue, line, sent_s, 0.0)

    def _note(self, id_: str, sequence: int, queue: str, line: dict[str, Any], sent_s: float, expires_s: float) -> None:
        self._ledger.asked.append(
            Asked(
                id_,
                sequence,
                queue,
                line["content"].encode(),
                sent_s,
                tuple(line.get("parents", ())),
                line.get("parent_failure", "fail"),
                line.get("key", ""),
                line.get("delay", 0.0),
                expires_s,
            )
        )

    def _until_answered(self, path: str, body: bytes, headers: dict[str, str]) -> Any:
        while True:
            try:
                reply = self._broker.request("POST", path, body, headers)
            except OSError:
                self._ledger.over.wait(_PAUSE_S)  # it is being killed
                continue
            if reply.status in (200, 201):
                return reply.json()
            assert reply.status in (429, 503), (reply.status, reply.body)
            self._ledger.over.wait(_PAUSE_S)


def _sequence(id_: str) -> int:
    """An id names its place (docs/architecture.md, 4): 12 bits of the sequence before the variant, 30 after."""
    value = int(id_.replace("-", ""), 16)
    return (value >> 64 & 0xFFF) << 30 | (value >> 32 & 0x3FFFFFFF)


class Operator(threading.Thread):
    """Cancels now and then, replays dead letters, moves a subscriber between two endpoints, pauses another."""

    def __init__(self, broker: BrokerProcess, ledger: Ledger, seed: int, homes: tuple[str, str]) -> None:
        super().__init__(name="operator", daemon=True)
        self._broker = broker
        self._ledger = ledger
        self._chance = random.Random(seed)
        self._homes = homes

    def run(self) -> None:
        while not self._ledger.over.wait(0.15):
            try:
                self._chance.choice((self._cancel, self._replay, self._move, self._pause))()
            except OSError:
                continue

    def _cancel(self) -> None:
        recent = self._ledger.asked[-5:]
        if recent:
            id_ = self._chance.choice(recent).id
            # Before it is asked: an answer that is lost may have done it.
            self._ledger.cancelled.add(id_)
            self._broker.request("DELETE", f"/v1/messages/{id_}")

    def _replay(self) -> None:
        self._broker.request("POST", "/v1/queues/letters/dead-letters/replay", {})

    def _move(self) -> None:
        path = "/v1/queues/customers/subscribers/crm"
        self._broker.request("PATCH", path, {"endpoint": self._chance.choice(self._homes)})

    def _pause(self) -> None:
        path = "/v1/queues/accounts/subscribers/bill"
        self._broker.request("PATCH", path, {"paused": True})
        self._ledger.over.wait(0.2)
        resume(self._broker)


def resume(broker: BrokerProcess) -> None:
    broker.request("PATCH", "/v1/queues/accounts/subscribers/bill", {"paused": False})


class Worker(threading.Thread):
    """A consumer that pulls for a group, acknowledges most and refuses some."""

    def __init__(self, broker: BrokerProcess, ledger: Ledger, stop: threading.Event) -> None:
        super().__init__(name="worker", daemon=True)
        self._broker = broker
        self._ledger = ledger
        self._stop_asked = stop

    def run(self) -> None:
        asked = {"group": "workers", "max": 20, "wait": 1, "lease": "2s"}
        while not self._stop_asked.is_set():
            try:
                reply = self._broker.request("POST", "/v1/queues/accounts/pull", asked)
                for message in reply.json()["messages"] if reply.status == 200 else ():
                    content = message["content"].encode()
                    well = self._ledger.takes("accounts/workers", message["id"], content, replay="replay" in message)
                    self._broker.request("POST", f"/v1/leases/{message['lease']}:{'ack' if well else 'nack'}", {})
            except (OSError, ValueError):
                self._stop_asked.wait(_PAUSE_S)


class Reader(threading.Thread):
    """A group over a WebSocket."""

    def __init__(self, broker: BrokerProcess, ledger: Ledger, stop: threading.Event) -> None:
        super().__init__(name="reader", daemon=True)
        self._broker = broker
        self._ledger = ledger
        self._stop_asked = stop

    def run(self) -> None:
        asyncio.run(self._read())

    async def _read(self) -> None:
        url = f"{self._broker.url}/v1/queues/letters/stream?group=readers&start=beginning&window=8"
        async with aiohttp.ClientSession() as session:
            while not self._stop_asked.is_set():
                try:
                    async with session.ws_connect(url, heartbeat=5.0) as socket:
                        await self._take(socket)
                except (aiohttp.ClientError, OSError, TimeoutError):
                    await asyncio.to_thread(self._stop_asked.wait, _PAUSE_S)

    async def _take(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        while not self._stop_asked.is_set():
            try:
                frame = await socket.receive(timeout=0.5)
            except TimeoutError:
                continue
            if frame.type is not aiohttp.WSMsgType.TEXT:
                return
            told = json.loads(frame.data)
            if told["type"] == "message":
                content = told["content"].encode() if "content" in told else base64.b64decode(told["content_base64"])
                well = self._ledger.takes("letters/readers", told["id"], content, replay="replay" in told)
                await socket.send_json({"type": "ack" if well else "nack", "sequence": told["sequence"]})


def _tcp_readers(
    broker: BrokerProcess, ledger: Ledger, ports: dict[str, int], stop: threading.Event
) -> list[TcpReader]:
    """One of each format that keeps messages for who is away, declared to count before anything is published."""
    readers = []
    for at, reader in OVER_TCP.items():
        queue, name = at.split("/")
        readers.append(reader(ports[name], queue, lambda content, at=at: ledger.read_over_tcp(at, content), stop))
        readers[-1].start()
        path = f"/v1/queues/{queue}/subscribers/{name}"
        eventually_blocking(lambda: broker.request("GET", path).status == 200, f"{at} is a subscriber", 20)  # noqa: B023
        assert broker.request("PATCH", path, {"counts": True}).status == 200
    return readers


def life(
    storage: Path,
    seed: int,
    kills: int,
    between: Callable[[int], None] = lambda _: None,
    made: Callable[..., BrokerProcess] = BrokerProcess,
) -> Life:
    """A broker, or what ``made`` gives instead, lives under all of it and is killed ``kills`` times; ``between`` may do
    more while it is dead. Then the endpoints are mended, dead letters are replayed, and what remains is what the judge
    gets."""
    ledger = Ledger(seed)
    crm, other, bill, post = (Endpoint(ledger, name) for name in ("crm", "crm", "bill", "post"))
    queues = QUEUES.replace("CRM", crm.url).replace("BILL", bill.url).replace("POST", post.url)
    stop = threading.Event()
    frontends = [at.split("/")[1] for at in OVER_TCP]
    with crm, other, bill, post, made(storage, queues=queues, frontends=frontends) as broker:
        for queue, group in (("accounts", "workers"), ("letters", "readers")):  # before anything they are to count for
            broker.request("POST", f"/v1/queues/{queue}/subscribers", {"name": group, "pull": True})
        over_tcp = _tcp_readers(broker, ledger, broker.tcp, stop)
        consumers = (Worker(broker, ledger, stop), Reader(broker, ledger, stop))
        publishers = [Publisher(broker, ledger, i, seed + 1 + i) for i in range(3)]
        operator = Operator(broker, ledger, seed + 9, (crm.url, other.url))
        for thread in (*consumers, *publishers, operator):
            thread.start()
        for number in range(kills):
            wanted = len(ledger.asked) + 20 + int(ledger.dice() * 150)
            eventually_blocking(lambda: len(ledger.asked) >= wanted, "some more messages accepted", 120)  # noqa: B023
            broker.kill()
            between(number)
            broker.start()
        # A fast machine is through before chance has brought everything up once.
        eventually_blocking(lambda: min(_so_far(ledger).values()) > 0, lambda: f"some of all in {_so_far(ledger)}", 120)
        ledger.over.set()
        for thread in (*publishers, operator):
            thread.join(80)
            assert not thread.is_alive(), thread.name
        _mend(broker, ledger)
        stop.set()
        for thread in (*consumers, *over_tcp):
            thread.join(20)
            assert not thread.is_alive(), thread.name
        ends = {one.id: _end(broker, one.id) for one in ledger.asked}
        assert broker.terminate() == 0, broker.output()[-2_000:]
    return _life(ledger, ends)


def _so_far(ledger: Ledger) -> dict[str, int]:
    return counts(_life(ledger, {}))


def _life(ledger: Ledger, ends: dict[str, str | None]) -> Life:
    asked, seen = list(ledger.asked), list(ledger.seen)
    cancelled, poison = frozenset(ledger.cancelled), frozenset(ledger.poison)
    # A frame does not say that it is a replay: what may have been replayed counts as one, and only as taken.
    unsure = {one.id for one in seen if one.replay} | cancelled | {one.id for one in asked if one.expires_s}
    by_content = {one.content: one.id for one in asked}
    for subscriber, content, at_s in list(ledger.over_tcp):
        id_ = by_content.get(content, "unknown")
        seen.append(Seen(subscriber, id_, content, at_s, well=True, replay=id_ in unsure))
    return Life(SCOPES, SUBSCRIBERS, frozenset(OVER_TCP), asked, seen, ends, poison, cancelled)


def _mend(broker: BrokerProcess, ledger: Ledger) -> None:
    """Everything is acknowledged from here on, and what died is sent again, until nothing waits."""
    resume(broker)
    ledger.healed = True
    for _ in range(3):
        _replay_all(broker)
        _until_settled(broker, ledger)


def _until_settled(broker: BrokerProcess, ledger: Ledger) -> None:
    """Wait until nothing waits: for 90 s in which no subscriber is given anything and nothing ends, which is stuck;
    while that goes on, for a quarter of an hour."""

    def stands() -> tuple[int, int, int]:
        return len(ledger.seen), len(ledger.over_tcp), waiting(broker)

    def how_it_stands() -> str:
        return f"{waiting(broker)} wait, replays under way too; of the messages {_stuck(broker, ledger)}"

    deadline = time.monotonic() + _SETTLED_MAX_S
    while waiting(broker):
        before = stands()
        eventually_blocking(lambda: _settled(broker, ledger) or stands() != before, how_it_stands, 90)  # noqa: B023
        assert time.monotonic() < deadline, f"deliveries go on and on: {how_it_stands()}"


def _replay_all(broker: BrokerProcess) -> None:
    for queue in SCOPES:
        broker.request("POST", f"/v1/queues/{queue}/dead-letters/replay", {})


def _settled(broker: BrokerProcess, ledger: Ledger) -> bool:
    """Whether nothing waits. What is on hold for a parent that was cancelled or has expired is cancelled too: no replay
    mends that, and what depends on it would wait as well. What is on hold for one that died after the last replay, as
    one may whose leases ran out on a busy machine, is mended by the next."""
    if waiting(broker) == 0:
        return True
    bad = spoilt(ledger.asked, ledger.cancelled)
    held = _held(broker)
    for id_ in held:
        if id_ in bad:
            broker.request("DELETE", f"/v1/messages/{id_}")
    if not bad.issuperset(held):
        _replay_all(broker)
    return False


def _held(broker: BrokerProcess) -> list[str]:
    """What is on hold, as the queues list it: to ask for each message takes a minute where the machine is busy."""
    found = []
    for queue in SCOPES:
        after: int | None = 0
        while after is not None:
            path = f"/v1/queues/{queue}/messages?state=held&limit=1000&after={after}"
            page = broker.request("GET", path).json()
            found += [one["id"] for one in page["messages"]]
            after = page["next"]
    return found


def _waiting(broker: BrokerProcess, ledger: Ledger) -> list[tuple[str, str | None]]:
    """What has not ended, with its state."""
    ends = ((one.id, _end(broker, one.id)) for one in ledger.asked)
    return [(id_, end) for id_, end in ends if end not in ("complete", "dead", "expired", "dropped")]


def _stuck(broker: BrokerProcess, ledger: Ledger) -> list[tuple[str, str | None, str]]:
    """The first of what has not ended, with its state and what the broker says of why."""
    first = _waiting(broker, ledger)[:20]
    return [(id_, end, broker.request("GET", f"/v1/messages/{id_}").json().get("waits_for")) for id_, end in first]


def _end(broker: BrokerProcess, id_: str) -> str | None:
    reply = broker.request("GET", f"/v1/messages/{id_}")
    return str(reply.json()["state"]) if reply.status == 200 else None


def wrong_with(lived: Life, storage: Path) -> list[str]:
    """What the judge says, and what ``syncbrok log verify`` says of the log."""
    return [*broken(lived), *verified(storage)]


__all__ = ["counts", "life", "wrong_with"]
