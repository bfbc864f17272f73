"""RULES 36: several messages in one request; real brokers and receivers."""

import base64
import json
import random
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from syncbrok.client import Inbox, messages_of, verify
from syncbrok.log.offline.order import check
from tests.support.broker.process import BrokerProcess
from tests.support.http.recorder import Received, Recorder
from tests.support.log.segment_files import facts_in
from tests.support.polling import eventually_blocking

MESSAGES = "/v1/queues/shop/messages"
ONE = "/v1/queues/shop/subscribers/a"
K_LINES = ({"content": "k1", "key": "k"}, {"content": "k2", "key": "k"})
OF_ITS_DELIVERY = {"id", "queue", "sequence", "attempt", "previous", "complete_through"}
SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()


def declare(broker: BrokerProcess, url: str, batch: dict[str, Any] | None, **settings: Any) -> None:
    broker.request("POST", "/v1/queues", {"name": "shop", "retry": settings.pop("retry", ["50ms"] * 9)})
    given = {"name": "a", "endpoint": url, "batch": batch, **settings}
    reply = broker.request("POST", "/v1/queues/shop/subscribers", given)
    assert reply.status == 201, reply.body


def publish(broker: BrokerProcess, *contents: str, **fields: Any) -> list[str]:
    lines = b"".join(json.dumps({"content": one, **fields}).encode() + b"\n" for one in contents)
    reply = broker.request("POST", f"{MESSAGES}:batch", lines, {"Content-Type": "application/x-ndjson"})
    assert reply.status == 201, reply.body
    return list(reply.json()["ids"])


def lines_of(request: Received) -> list[dict[str, Any]]:
    return [json.loads(line) for line in request.body.split(b"\n")[:-1]]


def contents(recorder: Recorder) -> list[list[str]]:
    return [[line["content"] for line in lines_of(request)] for request in recorder.requests]


def all_end(broker: BrokerProcess, ids: list[str]) -> Callable[[], bool]:
    def ended() -> bool:
        return all(broker.request("GET", f"/v1/messages/{id_}").json()["state"] in ("complete", "dead") for id_ in ids)

    return ended


def test_messages_that_may_go_together_go_in_one_request(broker: BrokerProcess) -> None:
    """RULES 36: up to max in one request, in the order of their sequences, without a wait when they are enough; signed
    as a whole as Standard Webhooks say. One answer is that of each."""
    with Recorder() as recorder:
        declare(broker, recorder.url, {"max": 5, "wait": "2s"}, secret=SECRET)
        ids = publish(broker, *[f"m{n}" for n in range(10)])
        requests = sorted(recorder.wait_for(2, 1.5), key=lambda one: lines_of(one)[0]["sequence"])
        together = [[line["content"] for line in lines_of(request)] for request in requests]
        assert together == [[f"m{n}" for n in range(5)], [f"m{n}" for n in range(5, 10)]]
        for at, request in enumerate(requests):
            when = datetime.fromtimestamp(int(request.headers["webhook-timestamp"]), UTC)
            signed = Webhook(SECRET).sign(request.id, when, request.body.decode())  # its verify reads JSON as well
            assert request.headers["webhook-signature"] == signed
            assert verify(request.body, request.headers, SECRET) == request.id
            assert request.id == f"batch-{ids[5 * at]}-5"
            assert request.headers["content-type"] == "application/x-ndjson"
            assert request.headers["syncbrok-queue"] == "shop"
            assert [one.id for one in messages_of(request.body)] == ids[5 * at : 5 * at + 5]
            assert [one.text() for one in messages_of(request.body)] == together[at]
        eventually_blocking(all_end(broker, ids), "the end of all")
        (to,) = broker.request("GET", f"/v1/messages/{ids[3]}").json()["deliveries"]
        assert [(one["attempt"], one["outcome"], one["status"]) for one in to["attempts"]] == [(1, "delivered", 200)]
        assert broker.request("GET", ONE).json()["statistics"]["delivered"] == 10
        assert broker.request("GET", ONE).json()["batch"] == {"max": 5, "wait": "2s"}


def test_an_inbox_applies_each_message_of_a_request_once(broker: BrokerProcess) -> None:
    """RULES 24 and 36: whatever company a message comes again in; and nothing is missing."""
    statuses = [500]
    with Recorder(lambda _: statuses.pop() if statuses else 200) as recorder:
        declare(broker, recorder.url, {"max": 4, "wait": "100ms"}, window=1)
        ids = publish(broker, *[f"m{n}" for n in range(12)])
        eventually_blocking(all_end(broker, ids), "the end of all")
        inbox = Inbox(sqlite3.connect(":memory:"), "a")
        applied = []
        for request in recorder.requests:
            for message in messages_of(request.body):
                with inbox.apply(message) as new:
                    applied += [message.id] * new
        assert sorted(applied) == sorted(ids)
        assert len(recorder.requests) > 3
        assert inbox.gaps() == []


def test_the_first_waits_no_longer_than_wait(broker: BrokerProcess) -> None:
    """RULES 36: a batch that is not full goes when its first message has waited."""
    with Recorder() as recorder:
        declare(broker, recorder.url, {"wait": "300ms"})
        publish(broker, "a")
        publish(broker, "b")
        recorder.wait_for(1, 5)
        assert contents(recorder) == [["a", "b"]]


def test_a_child_follows_in_another_request(broker: BrokerProcess) -> None:
    """RULES 36: never a parent with its child, nor two of a key, however many wait."""
    with Recorder() as recorder:
        declare(broker, recorder.url, {"wait": "200ms"})
        lines = ({"content": "parent"}, {"content": "child", "parents": ["#1"]}, *K_LINES)
        body = b"".join(json.dumps(one).encode() + b"\n" for one in lines)
        ids = broker.request("POST", f"{MESSAGES}:batch", body, {"Content-Type": "application/x-ndjson"}).json()["ids"]
        eventually_blocking(all_end(broker, ids), "the end of all")
        recorder.wait_for(2)
        assert contents(recorder) == [["parent", "k1"], ["child", "k2"]]


def test_a_failure_halves_what_goes_together_next(broker: BrokerProcess) -> None:
    """RULES 36: one message that is refused ends alone, and the others come through; a 503 halves nothing."""
    busy = [503]

    def answer(request: Received) -> int:
        if busy:
            return busy.pop()
        return 400 if "poison" in [line["content"] for line in lines_of(request)] else 200

    with Recorder(answer) as recorder:
        declare(broker, recorder.url, {"max": 8, "wait": "400ms"})
        ids = publish(broker, *[f"m{n}" for n in range(5)], "poison", "m5", "m6")
        eventually_blocking(all_end(broker, ids), "the end of all", 40)
        states = [broker.request("GET", f"/v1/messages/{id_}").json()["state"] for id_ in ids]
        assert states == ["dead" if at == 5 else "complete" for at in range(8)]
        sizes = [len(some) for some in contents(recorder)]
        assert sizes[:2] == [8, 8]
        assert max(sizes[2:]) <= 4
        with_poison = [len(some) for some in contents(recorder) if "poison" in some]
        assert with_poison == sorted(with_poison, reverse=True)
        assert with_poison[-1] == 1
        attempts = {line["id"]: [] for line in lines_of(recorder.requests[0])}
        for request in recorder.requests:
            for line in lines_of(request):
                attempts[line["id"]].append(line["attempt"])
        assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in attempts.values())


def test_a_request_is_one_slot_of_the_window_and_a_token_a_message(broker: BrokerProcess) -> None:
    """RULES 36: with a window of 1 one request is out, whatever waits; a rate bounds messages."""
    out, most = 0, 0

    def answer(_: Received) -> int:
        nonlocal out, most
        out += 1
        most = max(most, out)
        eventually_blocking(lambda: len(go) > 0, "leave")
        out -= 1
        return 200

    go: list[int] = []
    with Recorder(answer) as recorder:
        declare(broker, recorder.url, {"max": 3, "wait": "0s"}, window=1)
        ids = publish(broker, *[f"m{n}" for n in range(9)])
        recorder.wait_for(1)
        go.append(1)
        eventually_blocking(all_end(broker, ids), "the end of all")
        assert most == 1
        assert max(len(some) for some in contents(recorder)) == 3
        broker.request("PATCH", ONE, {"rate": "4/s", "batch": {"max": 100, "wait": "0s"}})
        before = len(recorder.requests)
        publish(broker, *[f"r{n}" for n in range(8)])
        recorder.wait_for(before + 1)
        assert len(lines_of(recorder.requests[before])) <= 4


def test_lines_carry_what_a_publisher_may_send(broker: BrokerProcess) -> None:
    """INTERFACES 3: text, JSON and bytes, headers and keys; without the members of its delivery a line is published
    again and means the same."""
    with Recorder() as recorder:
        declare(broker, recorder.url, {"max": 3, "wait": "5s"})
        (parent,) = publish(broker, "parent")
        lines = (
            {"data": {"a": [1, "\u2028"]}, "key": "k", "parents": [parent], "headers": {"traceparent": "00-1-2-3"}},
            {"content": "a\nb", "headers": {"content-type": "text/csv"}},
            {"content_base64": base64.b64encode(b"\xff\0").decode()},
        )
        body = b"".join(json.dumps(one).encode() + b"\n" for one in lines)
        broker.request("PATCH", ONE, {"batch": {"max": 3, "wait": "100ms"}})
        broker.request("POST", f"{MESSAGES}:batch", body, {"Content-Type": "application/x-ndjson"})
        eventually_blocking(lambda: sum(map(len, map(lines_of, recorder.requests))) == 4, "all of them")
        got = {line["sequence"]: line for request in recorder.requests for line in lines_of(request)}
        _, first, second, third = (got[sequence] for sequence in sorted(got))
        assert (first["data"], first["key"], first["parents"]) == (lines[0]["data"], "k", [parent])
        assert first["headers"] == {"traceparent": "00-1-2-3", "syncbrok-hops": "1"}
        assert (second["content"], second["headers"]["content-type"]) == ("a\nb", "text/csv")
        assert third["content_base64"] == lines[2]["content_base64"]
        broker.request("POST", "/v1/queues", {"name": "again"})
        again = [
            {name: value for name, value in line.items() if name not in OF_ITS_DELIVERY}
            for line in (first, second, third)
        ]
        body = b"".join(json.dumps(one).encode() + b"\n" for one in again)
        assert (
            broker.request(
                "POST", "/v1/queues/again/messages:batch", body, {"Content-Type": "application/x-ndjson"}
            ).status
            == 201
        )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"batch": {"max": 0}}, "max"),
        ({"batch": {"max": 1_001}}, "max"),
        ({"batch": {"wait": "6s"}}, "wait"),
        ({"batch": {"size": 1}}, "batch"),
        ({"batch": True}, "batch"),
        ({"batch": {}, "format": "cloudevents"}, "raw"),
        ({"batch": {}, "format": "original"}, "raw"),
        ({"batch": {}, "pull": True, "endpoint": None}, "batch"),
    ],
)
def test_what_makes_no_sense_is_refused(broker: BrokerProcess, settings: dict[str, Any], words: str) -> None:
    """RULES 36: bounds, formats and groups that come for their messages; 400 says what is wrong, nothing is made."""
    broker.request("POST", "/v1/queues", {"name": "shop"})
    given = {"name": "b", "endpoint": "http://127.0.0.1:9/", **settings}
    given = {name: value for name, value in given.items() if value is not None}
    reply = broker.request("POST", "/v1/queues/shop/subscribers", given)
    assert reply.status == 400
    assert words in reply.json()["detail"]
    assert broker.request("GET", "/v1/queues/shop/subscribers/b").status == 404


def test_what_waits_in_a_batch_is_cancelled_paused_and_taken_on(broker: BrokerProcess) -> None:
    """RULES 36: what has not begun ends at once by a cancel or an expiry, stands still while it is paused, and goes by
    itself once ``batch`` is taken away."""
    with Recorder() as recorder:
        declare(broker, recorder.url, {"wait": "5s"})
        cancelled, paused = publish(broker, "cancelled", "paused")
        assert broker.request("DELETE", f"/v1/messages/{cancelled}").status in (200, 202, 204)
        state = lambda: broker.request("GET", f"/v1/messages/{cancelled}").json()["state"]  # noqa: E731
        eventually_blocking(lambda: state() == "dropped", "the cancel", 3)
        broker.request("PATCH", ONE, {"paused": True})
        publish(broker, "later")
        broker.request("PATCH", ONE, {"paused": False, "batch": None})
        ids = publish(broker, "last")
        eventually_blocking(all_end(broker, [paused, *ids]), "the end of all", 4)
        assert sorted(request.body for request in recorder.wait_for(3)) == [b"last", b"later", b"paused"]


def test_a_file_declares_it_and_it_outlives_a_crash(tmp_path: Path) -> None:
    """RULES 18 and 36: in YAML as in JSON; after kill -9 it holds, and what had not been answered comes again. A test
    goes alone."""
    file = """
queues:
  shop:
    subscribers:
      - {{name: a, endpoint: "{url}", batch: {{max: 3, wait: 5s}}}}
"""
    hold: list[int] = [1]

    def answer(_: Received) -> int:
        eventually_blocking(lambda: not hold, "leave")
        return 200

    with (
        Recorder(answer) as recorder,
        BrokerProcess(tmp_path / "log", queues=file.format(url=recorder.url)) as broker,
    ):
        ids = publish(broker, "a", "b", "c")
        recorder.wait_for(1)
        broker.kill()
        hold.clear()
        broker.start()
        assert broker.request("GET", ONE).json()["batch"] == {"max": 3, "wait": "5s"}
        eventually_blocking(all_end(broker, ids), "the end of all", 4)
        assert contents(recorder) == [["a", "b", "c"]] * 2
        assert broker.request("POST", f"{ONE}/test", {}).status in (200, 201, 202)
        assert len(lines_of(recorder.wait_for(3, 4)[2])) == 1


def test_no_order_is_broken_by_batches_and_kills(tmp_path: Path) -> None:
    """RULES 13 and 36: random trees and keys, failures, and kill -9 between: in no request a parent with its child or
    two of one key, sequences rise, none is lost, and no child is tried before its parent was acknowledged."""
    dice = random.Random(11)
    refused = random.Random(12)

    def noted(request: Received) -> int:
        status = refused.choice([200, 200, 200, 500, 503])
        log.append((request, status))
        return status

    log: list[tuple[Received, int]] = []
    with Recorder(noted) as recorder, BrokerProcess(tmp_path / "log") as broker:
        declare(broker, recorder.url, {"max": 7, "wait": "10ms"}, window=3, retry=["20ms"] * 30, breaker=False)
        made: dict[str, tuple[list[str], str]] = {}
        for round_ in range(12):
            known = list(made)
            lines, wanted = [], []
            for _ in range(15):
                parents = dice.sample(known, min(len(known), dice.choice([0, 0, 1, 2])))
                key = dice.choice(["", "", "x", "y", "z"])
                line = {"content": "m", "parents": parents, "delay": 0, **({"key": key} if key else {})}
                lines.append(json.dumps(line).encode() + b"\n")
                wanted.append((parents, key))
            reply = broker.request(
                "POST", f"{MESSAGES}:batch", b"".join(lines), {"Content-Type": "application/x-ndjson"}
            )
            assert reply.status == 201, reply.body
            made |= dict(zip(reply.json()["ids"], wanted, strict=True))
            if round_ % 4 == 2:
                recorder.wait_for(len(recorder.requests) + 1)
                broker.kill()
                broker.start()
        eventually_blocking(all_end(broker, list(made)), "the end of all", 60)
        assert all(broker.request("GET", f"/v1/messages/{id_}").json()["state"] == "complete" for id_ in made)
    acknowledged: set[str] = set()
    for request, status in log:
        lines_ = lines_of(request)
        ids = [line["id"] for line in lines_]
        sequences = [line["sequence"] for line in lines_]
        assert sequences == sorted(set(sequences))
        assert len(ids) <= 7
        keys = [made[id_][1] for id_ in ids if made[id_][1]]
        assert len(keys) == len(set(keys))
        for id_ in ids:
            assert not set(made[id_][0]) & set(ids)
            assert set(made[id_][0]) <= acknowledged
        if status == 200:
            acknowledged.update(ids)
    assert acknowledged == made.keys()
    assert max(len(lines_of(request)) for request, _ in log) > 1
    assert not check(facts_in(tmp_path / "log"))
