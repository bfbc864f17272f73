"""A log with one delivery of each kind that there is, written by a real broker, and what that says of each message:
deleted queues and subscribers, cancels, filters, replays under way and done, dropped dead letters, seeks, subscribers
that do not count or catch up, kill -9; the same again after retention has dropped the beginning.
"""

import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.support.broker.process import BrokerProcess
from tests.support.http.recorder import Recorder
from tests.support.pipeline.broker_log import batch, metrics
from tests.support.polling import eventually_blocking

QUEUES: Final = """
queues:
  orders:
    retry: []
    subscribers:
      - {name: good, endpoint: "WELL"}
      - {name: bad, endpoint: "DOWN"}
      - {name: resting, endpoint: "WELL", paused: true}
      - {name: picky, endpoint: "WELL", filter: 'key == "a"'}
  slow: {retry: [1h], subscribers: [{name: late, endpoint: "DOWN"}]}
  held: {parent_failure: hold, subscribers: [{name: desk, endpoint: "WELL"}]}
  after: {subscribers: [{name: desk, endpoint: "WELL"}]}
  closing: {subscribers: [{name: last, endpoint: "WELL", paused: true}, {name: first, endpoint: "WELL"}]}
  leaving: {subscribers: [{name: stays, endpoint: "WELL"}, {name: leaves, endpoint: "WELL", paused: true}]}
  moving:
    subscribers: [{name: ahead, endpoint: "WELL", paused: true}, {name: back, endpoint: "WELL"}]
  dying: {retry: [], subscribers: [{name: ill, endpoint: "DOWN"}, {name: well, endpoint: "WELL"}]}
  ticks: {}
"""
FILLING: Final = 700
"""bare messages that fill a segment or two"""


class StatesLog(NamedTuple):
    """A storage directory and the broker's answers about the messages that it knows, by sequence; the ids of others.
    ``subscribers``: its answers about those, by queue and id."""

    storage: Path
    messages: dict[int, dict[str, Any]]
    gone: list[str]
    subscribers: dict[tuple[str, str], dict[str, Any]]


class _Shop:
    """The broker, and the ids of all that it was given."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.ids: list[str] = []

    def publish(self, queue: str, *lines: dict[str, Any]) -> list[str]:
        found = batch(self.broker, queue, [{"content": "x"} | line for line in lines])
        self.ids += found
        return found

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        reply = self.broker.request(method, path, body)
        assert reply.status < 300, (method, path, reply)
        return reply.json() if reply.body else None

    def is_gone(self, id_: str) -> bool:
        return self.broker.request("GET", f"/v1/messages/{id_}").status == 410

    def subscriber(self, name: str, **settings: Any) -> None:
        queue, _, one = name.partition("/")
        self.ask("PATCH", f"/v1/queues/{queue}/subscribers/{one}", settings)

    def settle(self, still_s: float = 0.4) -> None:
        """Wait until the log has not grown for so long: what waits now waits for an hour."""
        last: list[tuple[float, float]] = []

        def still() -> bool:
            sequence = metrics(self.broker)["syncbrok_log_sequence"]
            if not last or last[0][0] != sequence:
                last[:] = [(sequence, time.monotonic())]
            return time.monotonic() - last[0][1] >= still_s

        eventually_blocking(still, "a log that does not grow", 30)

    def told(self, storage: Path) -> StatesLog:
        """What the broker says now, with the log as it is then."""
        self.settle()
        messages, gone = {}, []
        for id_ in self.ids:
            reply = self.broker.request("GET", f"/v1/messages/{id_}")
            assert reply.status in {200, 410}, reply
            if reply.status == 410:
                gone.append(id_)
            else:
                one = reply.json()
                messages[one["sequence"]] = one
        subscribers = {
            (queue["name"], one["id"]): one
            for queue in self.ask("GET", "/v1/queues?limit=500")["queues"]
            for one in self.ask("GET", f"/v1/queues/{queue['name']}/subscribers?limit=500")["subscribers"]
        }
        self.broker.kill()
        return StatesLog(Path(shutil.copytree(self.broker.storage, storage)), messages, gone, subscribers)


def _first_part(shop: _Shop) -> None:
    """Until the broker is killed."""
    one, two, three, _ = shop.publish("orders", {}, {"key": "a"}, {"key": "a"}, {"delay": "1h"})
    shop.publish("slow", {}, {"parents": [one]})
    shop.publish("held", {"parents": [one]}, {})
    shop.publish("after", {"parents": [two]}, {"parents": [three]})
    shop.publish("closing", {}, {}, {"delay": "1h"})
    shop.publish("leaving", {}, {}, {})
    shop.publish("moving", *[{} for _ in range(6)])
    shop.publish("dying", *[{} for _ in range(6)])
    (cancelled,) = shop.publish("leaving", {"delay": "1h"})
    shop.settle()
    shop.ask("DELETE", f"/v1/messages/{cancelled}")
    shop.ask("DELETE", "/v1/queues/leaving/subscribers/leaves")
    shop.ask("DELETE", "/v1/queues/closing?force=true")
    shop.publish("leaving", {})
    shop.settle()
    shop.broker.kill()
    shop.broker.start()


def _second_part(shop: _Shop, mended: list[bool]) -> None:
    """Mend and move."""
    dead = [one["id"] for one in shop.ask("GET", "/v1/queues/dying/dead-letters")["dead_letters"]]
    mended.append(True)
    shop.ask("POST", f"/v1/messages/{dead[0]}/replay", {})  # to one that is there again
    shop.settle()
    mended.clear()
    shop.ask("POST", f"/v1/messages/{dead[1]}/replay", {})  # it dies again
    shop.settle()
    shop.subscriber("dying/ill", paused=True)
    shop.ask("POST", f"/v1/messages/{dead[2]}/replay", {})  # it waits
    shop.ask("DELETE", "/v1/queues/dying/dead-letters", {"before": _sequence(shop, dead[4])})
    middle = _sequence(shop, shop.publish("moving", {}, {})[0])
    shop.subscriber("moving/ahead", start=middle)
    shop.subscriber("moving/back", start=middle - 1)
    for name, settings in {
        "uncounted": {"counts": False, "paused": True},
        "early": {"start": "beginning", "paused": True},
        "whole": {"start": "beginning"},
    }.items():
        endpoint = shop.ask("GET", "/v1/queues/leaving/subscribers/stays")["endpoint"]
        shop.ask("POST", "/v1/queues/leaving/subscribers", {"name": name, "endpoint": endpoint} | settings)
    shop.publish("leaving", {}, {})
    shop.subscriber("leaving/early", counts=False)  # from here on nobody waits for it
    shop.subscriber("leaving/stays", counts=False)
    shop.publish("ticks", {}, {}, {})
    (lent,) = shop.ask("POST", "/v1/queues/ticks/pull", {"max": 1, "wait": 5, "group": "workers"})["messages"]
    shop.ask("POST", f"/v1/leases/{lent['lease']}:ack")


def _sequence(shop: _Shop, id_: str) -> int:
    found: int = shop.ask("GET", f"/v1/messages/{id_}")["sequence"]
    return found


@contextmanager
def _broker(folder: Path, mended: list[bool]) -> Iterator[BrokerProcess]:
    text = QUEUES
    with ExitStack() as stack:
        for name, recorder in {"WELL": Recorder(), "DOWN": Recorder(lambda _: 200 if mended else 500)}.items():
            text = text.replace(name, stack.enter_context(recorder).url)
        yield stack.enter_context(BrokerProcess(folder / "storage", queues=text, config="storage: {segment: 64KiB}\n"))


def write_logs(folder: Path) -> tuple[StatesLog, StatesLog]:
    """The log as it is before retention, and after it; in some five seconds."""
    mended: list[bool] = []
    with _broker(folder, mended) as broker:
        shop = _Shop(broker)
        _first_part(shop)
        ticks = shop.publish("ticks", *[{} for _ in range(FILLING)])
        _second_part(shop, mended)
        before = shop.told(folder / "before")
        (folder / "storage--config.yml").write_text("storage: {segment: 64KiB, retention: 1s}\n")
        broker.start()
        eventually_blocking(lambda: shop.is_gone(ticks[0]), "a message that retention has dropped", 20)
        after = shop.told(folder / "after")
    return before, after


@pytest.fixture(scope="session")
def states_logs(tmp_path_factory: pytest.TempPathFactory) -> tuple[StatesLog, StatesLog]:
    """See ``write_logs``. Read only."""
    return write_logs(tmp_path_factory.mktemp("states-logs"))
