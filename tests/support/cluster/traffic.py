"""Families published to a cluster through any node, each message with a key, until each has its answer."""

import http.client
import json
import random
import threading
import time
from collections.abc import Mapping
from typing import Final, NamedTuple

from tests.support.cluster.judge import Published, digest

RETRY: Final = "[50ms, 100ms, 100ms, 200ms, 200ms, 500ms, 500ms, 1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s]"
SUBSCRIBERS: Final = {"customers": ("crm", "billing"), "cards": ("billing", "shipping")}
_ANSWER_S: Final = 4.0
_PAUSE_S: Final = 0.03
_AGAIN_SHARE: Final = 0.05
_RECENT: Final = 20


def queues(urls: Mapping[str, str]) -> str:
    """The file that declares them; ``urls`` of the subscribers."""
    lines = ["queues:"]
    for queue, names in SUBSCRIBERS.items():
        told = ", ".join(f'{{name: {name}, endpoint: "{urls[name]}"}}' for name in names)
        lines.append(f"  {queue}: {{retry: {RETRY}, subscribers: [{told}]}}")
    return "\n".join(lines) + "\n"


class Home(NamedTuple):
    """A node: its name, its port, and the URL that it advertises."""

    name: str
    port: int
    url: str


class Ledger:
    """What all publishers were answered."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.published: list[Published] = []
        self.refused: list[str] = []
        """answers that no fault of a node explains"""

    def add(self, one: Published) -> None:
        with self._lock:
            self.published.append(one)

    @property
    def count(self) -> int:
        return len(self.published)


class FamilyPublisher(threading.Thread):
    """A parent, its children, a grandchild that has them both as parents; now and then a message of another family is
    one more parent, and a key is published again. It asks the node where it is at home first, the others after that;
    where nobody answers it begins again, for as long as it takes."""

    def __init__(self, homes: list[Home], ledger: Ledger, name: str, seed: int, size_max: int = 200) -> None:
        super().__init__(name=f"publisher {name}", daemon=True)
        self._homes = homes
        self._ledger = ledger
        self._label = name
        self._chance = random.Random(seed)
        self._size_max = size_max
        self._count = 0
        self._stop_asked = threading.Event()
        self._connections: dict[str, http.client.HTTPConnection] = {}
        self._urls = {one.url: one.name for one in homes}

    def run(self) -> None:
        try:
            while not self._stop_asked.is_set():
                self._family()
        except BaseException as error:  # noqa: BLE001 (the judge is told, whatever it is)
            self._ledger.refused.append(f"{self.name}: {error!r}")
        finally:
            for one in self._connections.values():
                one.close()

    def stop(self) -> None:
        """It ends when its family is whole."""
        self._stop_asked.set()

    def _family(self) -> None:
        chance = self._chance
        parent = self._publish("customers", ())
        others = [one.id for one in self._ledger.published[-_RECENT:]]
        children = []
        for queue in ("cards", "customers"):
            more = (chance.choice(others),) if others and chance.random() < 0.3 else ()
            children.append(self._publish(queue, tuple(dict.fromkeys((parent, *more)))))
        self._publish(chance.choice(("cards", "customers")), tuple(children))

    def _publish(self, queue: str, parents: tuple[str, ...]) -> str:
        self._count += 1
        key = f"{self._label}-{self._count}"
        filling = "x" * self._chance.randrange(self._size_max)
        content = f"{key} of {queue} {filling}".encode()
        id_ = self._until_answered(key, queue, parents, content)
        if self._chance.random() < _AGAIN_SHARE:
            self._until_answered(key, queue, parents, content)
        return id_

    def _until_answered(self, key: str, queue: str, parents: tuple[str, ...], content: bytes) -> str:
        headers = {"Idempotency-Key": key, "Content-Type": "text/plain"}
        if parents:
            headers["Syncbrok-Parent"] = ", ".join(parents)
        while True:
            for home in self._homes:
                sent_ns = time.monotonic_ns()
                try:
                    status, leader, body = self._ask(home, f"/v1/queues/{queue}/messages", content, headers)
                except (OSError, http.client.HTTPException):
                    self._connections.pop(home.name).close()
                    continue
                if status in (200, 201):
                    id_ = str(json.loads(body)["id"])
                    node = self._urls.get(leader, home.name)
                    answer = (key, id_, queue, parents, digest(content), node, status, sent_ns, time.monotonic_ns())
                    self._ledger.add(Published(*answer))
                    return id_
                if status not in (429, 503, 507):
                    raise ValueError(f"{status} {body!r} for {headers}")
            self._stop_asked.wait(_PAUSE_S)

    def _ask(self, home: Home, path: str, content: bytes, headers: dict[str, str]) -> tuple[int, str, bytes]:
        connection = self._connections.get(home.name)
        if connection is None:
            connection = http.client.HTTPConnection("127.0.0.1", home.port, timeout=_ANSWER_S)
            self._connections[home.name] = connection
        connection.request("POST", path, content, headers)
        with connection.getresponse() as answer:
            return answer.status, answer.headers.get("Syncbrok-Leader", ""), answer.read()
