"""The safe cursor (RULES 24) as receivers meet it: in headers, in messages that are pulled, over a kill -9."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from syncbrok.client import Inbox, SyncClient
from tests.support.broker.process import BrokerProcess
from tests.support.http.recorder import Received, Recorder
from tests.support.polling import eventually_blocking

QUEUES = (
    "queues: {{shop: {{retry: [50ms, 100ms, 200ms, 1s, 1s, 1s], subscribers: [{{name: books, endpoint: '{url}'}}]}}}}"
)


def _said(request: Received) -> tuple[str | None, str | None]:
    return request.headers.get("syncbrok-previous"), request.headers.get("syncbrok-complete-through")


def _publish(broker: BrokerProcess, body: bytes) -> int:
    """Publish it and wait for its end; its sequence."""
    shown = broker.request("POST", "/v1/queues/shop/messages", body, {"Prefer": "wait=20"}).json()
    assert shown["state"] == "complete", shown
    return int(shown["sequence"])


def test_deliveries_name_the_one_before_also_after_a_kill(tmp_path: Path) -> None:
    """RULES 24: each delivery says what came through before it, from the rows of the process before as well; a replay
    says nothing."""
    with (
        Recorder(lambda _: 200) as books,
        BrokerProcess(tmp_path / "storage", queues=QUEUES.format(url=books.url)) as broker,
    ):
        first = _publish(broker, b"first")
        second = _publish(broker, b"second")
        broker.kill()
        broker.start()
        third = _publish(broker, b"third")
        id_ = broker.request("GET", "/v1/queues/shop/messages?limit=1").json()["messages"][0]["id"]
        broker.request("POST", f"/v1/messages/{id_}/replay", {})
        eventually_blocking(lambda: books.requests[-1].body == b"first" and len(books.requests) > 3, "the replay")
    assert [_said(one) for one in books.requests if one.body == b"first"] == [(None, str(first - 1)), (None, None)]
    assert _said(books.requests[1]) == (str(first), str(second - 1))
    assert [_said(one) for one in books.requests if one.body == b"third"] == [(str(second), str(third - 1))]


class _Receiver:
    """Applies to a database, which may be taken back to how it was."""

    def __init__(self, path: Path) -> None:
        self._path, self._backup = path, path.with_suffix(".backup")
        self._open()
        self.database.execute("create table event (body blob)")
        self.database.commit()

    def _open(self) -> None:
        self.database = sqlite3.connect(self._path, check_same_thread=False)
        self.inbox = Inbox(self.database, "books")

    def receive(self, request: Received) -> int:
        with self.inbox.apply(request.headers) as new:
            if new:
                self.database.execute("insert into event values (?)", (request.body,))
        return 200

    def back_up(self) -> None:
        shutil.copy(self._path, self._backup)

    def restore(self) -> None:
        self.database.close()
        shutil.copy(self._backup, self._path)
        self._open()

    def applied(self) -> list[bytes]:
        with closing(sqlite3.connect(self._path)) as database:
            return [row[0] for row in database.execute("select body from event order by rowid")]


def test_a_restored_database_finds_what_it_lacks_and_gets_it_again(tmp_path: Path) -> None:
    """INTERFACES 3, ``/deliveries``: a receiver whose database is restored from a backup learns from the header that
    something is missing, from the list what, and ``recover`` brings that and nothing twice."""
    receiver = _Receiver(tmp_path / "events.db")
    with (
        closing(receiver.database),
        Recorder(receiver.receive) as books,
        BrokerProcess(tmp_path / "storage", queues=QUEUES.format(url=books.url)) as broker,
        SyncClient(broker.url) as client,
    ):
        _publish(broker, b"kept")
        receiver.back_up()
        lost = [_publish(broker, b"lost"), _publish(broker, b"lost too")]
        receiver.restore()
        _publish(broker, b"later")
        assert receiver.inbox.gaps() == lost[1:]  # the header names the last
        of = receiver.inbox.uncompared()
        assert of is not None
        assert receiver.inbox.compare(of[1], client.deliveries("shop", "books", after=of[0], through=of[1])) == lost
        asked = {"since": lost[0], "until": lost[1] + 1, "state": "all"}
        broker.request("POST", "/v1/queues/shop/subscribers/books/recover", asked)
        eventually_blocking(lambda: len(receiver.applied()) == 4, "what was lost came again")
        assert receiver.inbox.gaps() == []
    first, second, *again = receiver.applied()
    assert [first, second] == [b"kept", b"later"]
    assert sorted(again) == [b"lost", b"lost too"], "neither is a parent of the other: they go out together"


def test_a_group_is_told_with_what_it_pulls(tmp_path: Path) -> None:
    """INTERFACES 3: the numbers are the group's, whoever of it pulls."""
    with BrokerProcess(tmp_path / "storage", queues="queues: {shop: {}}") as broker, SyncClient(broker.url) as client:
        client.pull("shop", "workers", wait_s=0)
        for content in ("a", "b", "c"):
            client.publish("shop", content)
        first = client.pull("shop", "workers", most=1)[0]
        client.acknowledge(first)
        second = client.pull("shop", "workers", most=1)[0]
        assert (first.previous, second.previous) == (0, first.sequence)
        assert second.complete_through == second.sequence - 1
