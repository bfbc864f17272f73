"""A receiver with an inbox, killed again and again on a network that loses something, while its broker is killed too:
in the end each message was applied once, and none before its parent."""

import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple, Self

from syncbrok.client import Inbox, SyncClient
from tests.support.broker.process import ROOT, BrokerProcess
from tests.support.crash.traffic import Acknowledged, Publisher, verified, waiting
from tests.support.http.lossy_proxy import LossyProxy
from tests.support.polling import eventually_blocking

LOST_SHARE = 0.05
PAUSE_S = 0.03
"""of each publisher: what they publish is less than what a receiver takes that is dead half of the time"""
QUEUES = """
queues:
  customers: {retry: RETRY, subscribers: [{name: books, endpoint: "BOOKS", breaker: false}]}
  cards: {retry: RETRY, subscribers: [{name: books, endpoint: "BOOKS", breaker: false}]}
"""
RETRY = f"[{', '.join(['50ms'] * 20 + ['200ms'] * 20 + ['1s'] * 24)}]"


class Receiver:
    """``examples/receive_once.py`` on a database, started anew each time it is killed, on another port each time."""

    def __init__(self, database: Path) -> None:
        self.database = database
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        command = [sys.executable, str(ROOT / "examples" / "receive_once.py"), str(self.database), "--port", "0"]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        assert said, "the receiver has not started"
        self.port = int(said.split()[2].strip())

    def kill(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        self.port = 0
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._process.stdout.close()

    def applied(self) -> list[str]:
        """The ids of what it has applied, in the order it did."""
        database = sqlite3.connect(self.database)
        found = [row[0] for row in database.execute("select id from event order by rowid")]
        database.close()
        return found


class Came(NamedTuple):
    """What came of it."""

    messages: int
    lost: int
    """pieces, on the network"""
    wrong: list[str]


def ordeal(
    folder: Path, seed: int, receiver_kills: int, broker_kills: int, pause_s: float, broker_pause_s: float
) -> Came:
    """The receiver is killed after up to ``pause_s`` each time, the broker every ``broker_pause_s``."""
    chance, pause = random.Random(seed), threading.Event()
    receiver = Receiver(folder / "events.db")
    proxy = LossyProxy(lambda: receiver.port, random.Random(seed + 1), LOST_SHARE)
    with receiver, proxy:
        queues = QUEUES.replace("BOOKS", proxy.url).replace("RETRY", RETRY)
        with BrokerProcess(folder / "storage", queues=queues) as broker:
            publishers = [Publisher(broker, random.Random(seed + 2 + i), PAUSE_S) for i in range(2)]
            for publisher in publishers:
                publisher.start()
            ends = threading.Thread(target=_kill_now_and_then, args=(broker, broker_kills, broker_pause_s))
            ends.start()
            for _ in range(receiver_kills):
                pause.wait(pause_s * chance.random())  # when it is killed is what is random here
                receiver.kill()
                receiver.start()
            ends.join()
            messages = [message for publisher in publishers for message in publisher.stop()]
            eventually_blocking(lambda: waiting(broker) == 0, "everything delivered", 120)
            listed = {queue: _delivered(broker, queue) for queue in ("customers", "cards")}
            assert broker.terminate() == 0, broker.output()
    wrong = [*_judged(messages, receiver.applied()), *_gaps(receiver.database, listed), *verified(folder / "storage")]
    return Came(len(messages), proxy.lost, wrong)


def _kill_now_and_then(broker: BrokerProcess, kills: int, pause_s: float) -> None:
    for _ in range(kills):
        threading.Event().wait(pause_s)
        broker.kill()
        broker.start()


def _delivered(broker: BrokerProcess, queue: str) -> list[dict[str, Any]]:
    with SyncClient(broker.url) as client:
        return client.deliveries(queue, "books", state="delivered")


def _judged(messages: list[Acknowledged], applied: list[str]) -> list[str]:
    """What is missing, was applied twice, or before its parent."""
    place = {id_: at for at, id_ in enumerate(applied)}
    wrong = [f"applied twice: {id_}" for id_, times in Counter(applied).items() if times > 1]
    for message in messages:
        if message.id not in place:
            wrong.append(f"missing: {message.id} of {message.queue}")
        wrong += [
            f"early: {message.id} before its parent {parent}"
            for parent in message.parents
            if place.get(parent, -1) > place.get(message.id, -1)
        ]
    return wrong


def _gaps(database: Path, listed: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Gaps that the inbox was told of, and those that the broker's list shows."""
    connection = sqlite3.connect(database)
    found: list[str] = []
    for queue, deliveries in listed.items():
        inbox = Inbox(connection, queue)
        found += [f"gap: {sequence}" for sequence in inbox.gaps()]
        found += [f"not held: {one}" for one in inbox.compare(max(one["sequence"] for one in deliveries), deliveries)]
    connection.close()
    return found
