"""RULES 31 and 33: which messages a subscriber gets by its filter, how often by its rate, and what that means for all
that waits; real brokers."""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from tests.support.broker.process import BrokerProcess
from tests.support.http.recorder import Recorder
from tests.support.polling import eventually_blocking

SUBSCRIBERS = "/v1/queues/shop/subscribers"
MESSAGES = "/v1/queues/shop/messages"
LARGE = "data.amount > 100"


def declare(broker: BrokerProcess, url: str, name: str = "s", **settings: Any) -> None:
    broker.request("POST", "/v1/queues", {"name": "shop", "retry": ["1s"], "scope": settings.pop("scope", "all")})
    reply = broker.request("POST", SUBSCRIBERS, {"name": name, "endpoint": url, **settings})
    assert reply.status == 201, reply.body


def publish(broker: BrokerProcess, amount: Any, **headers: str) -> str:
    given = {"Content-Type": "application/json", **{name.replace("_", "-"): text for name, text in headers.items()}}
    reply = broker.request("POST", MESSAGES, json.dumps({"amount": amount}).encode(), given)
    assert reply.status in {200, 201, 202}, reply.body
    return str(reply.json()["id"])


def delivery(broker: BrokerProcess, message: str, name: str = "s") -> dict[str, Any]:
    found = broker.request("GET", f"/v1/messages/{message}").json()["deliveries"]
    return next(dict(one) for one in found if one["subscriber"] == name)


def reaches(broker: BrokerProcess, message: str, state: str, name: str = "s") -> Callable[[], bool]:
    return lambda: bool(delivery(broker, message, name)["state"] == state)


def amounts(recorder: Recorder) -> list[Any]:
    return [json.loads(request.body)["amount"] for request in recorder.requests]


def test_the_filter_says_what_a_subscriber_gets(broker: BrokerProcess) -> None:
    """RULES 31: true is delivered, false is skipped with its reason; the other subscriber gets all; it stays so after
    kill -9, and nothing is delivered twice."""
    with Recorder() as large, Recorder() as everything:
        declare(broker, large.url, filter=LARGE)
        declare(broker, everything.url, "all")
        ids = [publish(broker, amount, Prefer="wait=10") for amount in (50, 150, 99, 101)]
        assert amounts(large) == [150, 101]
        assert sorted(amounts(everything)) == [50, 99, 101, 150]
        states = [delivery(broker, one) for one in ids]
        assert [(one["state"], one["reason"]) for one in states] == [
            ("skipped", "filtered"), ("delivered", None), ("skipped", "filtered"), ("delivered", None)
        ]  # fmt: skip
        assert all(broker.request("GET", f"/v1/messages/{one}").json()["state"] == "complete" for one in ids)
        broker.kill()
        broker.start()
        assert [delivery(broker, one)["state"] for one in ids] == ["skipped", "delivered", "skipped", "delivered"]
        publish(broker, 200, Prefer="wait=10")
        assert amounts(large) == [150, 101, 200]


def test_children_of_what_was_skipped_go_on(broker: BrokerProcess) -> None:
    """RULES 10, 11 and 29: a skipped delivery counts as acknowledged; with scope ``same`` as done at that
    subscriber."""
    for scope in ("all", "same"):
        with Recorder() as large:
            broker.request("DELETE", "/v1/queues/shop?force=true")
            declare(broker, large.url, filter=LARGE, scope=scope)
            parent = publish(broker, 5)
            child = publish(broker, 500, Syncbrok_Parent=parent, Prefer="wait=10")
            assert delivery(broker, parent)["state"] == "skipped"
            assert delivery(broker, child)["state"] == "delivered"
            assert amounts(large) == [500], scope


def test_the_filter_is_asked_when_its_turn_has_come(broker: BrokerProcess) -> None:
    """RULES 31: of a retry, and of what waited while the subscriber was paused, the filter decides that is set then."""
    with Recorder(lambda _: 500) as recorder:
        declare(broker, recorder.url, retry=["200ms", "1h"])
        tried = publish(broker, 5)
        eventually_blocking(lambda: len(recorder.requests) == 2, "two attempts")
        broker.request("PATCH", f"{SUBSCRIBERS}/s", {"filter": LARGE, "paused": True})
        waited = publish(broker, 6)
        broker.request("PATCH", f"{SUBSCRIBERS}/s", {"paused": False})
        eventually_blocking(reaches(broker, waited, "skipped"), "skipped")
        broker.request("POST", f"{SUBSCRIBERS}/s/retry")
        eventually_blocking(reaches(broker, tried, "skipped"), "the retry is skipped")
        assert len(recorder.requests) == 2
        broker.request("PATCH", f"{SUBSCRIBERS}/s", {"filter": None})
        publish(broker, 7)
        eventually_blocking(lambda: len(recorder.requests) >= 3, "without a filter it gets all")


def test_keys_keep_their_order_across_what_is_skipped(broker: BrokerProcess) -> None:
    """RULES 6 and 29: of one key what is skipped ends there, and what follows goes."""
    with Recorder() as large:
        declare(broker, large.url, filter=LARGE)
        for amount in (200, 1, 300, 2, 400):
            publish(broker, amount, Syncbrok_Key="k")
        eventually_blocking(lambda: len(large.requests) == 3, "three")
        assert amounts(large) == [200, 300, 400]


def test_a_filter_that_fails_skips_and_says_so(broker: BrokerProcess) -> None:
    """RULES 31: an error or an answer that is no boolean ends the delivery skipped, ``filter_error``, with words; an
    operator is told once a minute; a test message passes by."""
    with Recorder() as recorder:
        declare(broker, recorder.url, filter="data.total > 1")
        ids = [publish(broker, 1, Prefer="wait=10") for _ in range(3)]
        found = [delivery(broker, one) for one in ids]
        assert {(one["state"], one["reason"]) for one in found} == {("skipped", "filter_error")}
        assert "no such name: 'total'" in json.dumps(found)
        assert broker.log_path.read_text().count("syncbrok.space.filter_failed") == 1
        assert not recorder.requests
        assert broker.request("POST", f"{SUBSCRIBERS}/s/test", b"", {"Prefer": "wait=10"}).status == 200
        assert len(recorder.requests) == 1


def test_what_a_filter_kept_back_comes_with_another_one(broker: BrokerProcess) -> None:
    """RULES 31 and 34: recover and a replay ask the filter of then: what ended ``filter_error``, or was filtered, goes
    out once it lets that through, and a replay of what was delivered does not where it no longer does."""
    with Recorder() as recorder:
        declare(broker, recorder.url, filter="data.total > 1")
        ids = [publish(broker, amount, Prefer="wait=10") for amount in (5, 500)]
        assert broker.request("PATCH", f"{SUBSCRIBERS}/s", {"filter": LARGE}).status == 200
        assert broker.request("POST", f"{SUBSCRIBERS}/s/recover", {"state": "skipped"}).status == 202
        eventually_blocking(reaches(broker, ids[1], "delivered"), "it came once the filter was mended")
        eventually_blocking(lambda: delivery(broker, ids[0])["reason"] == "filtered", "that was asked anew as well")
        assert amounts(recorder) == [500]
        broker.request("PATCH", f"{SUBSCRIBERS}/s", {"filter": "data.amount < 100"})
        for one in ids:
            assert broker.request("POST", f"/v1/messages/{one}/replay", {}).status == 200
        eventually_blocking(reaches(broker, ids[0], "delivered"), "it is let through now")
        eventually_blocking(reaches(broker, ids[1], "skipped"), "and the other no more")
        assert amounts(recorder) == [500, 5]


def test_a_filter_that_is_none_is_refused_with_the_place(broker: BrokerProcess) -> None:
    """RULES 31: syntax, unknown names and what could hold a core are a 400 that says where, and nothing is changed."""
    with Recorder() as recorder:
        declare(broker, recorder.url, filter=LARGE)
        wrong = {
            "data.amount >": "line 1, column 14",
            "data.amount > 1 &&\n amount": "'amount'",
            "startswith(key, 'a')": "startsWith",
            "[1].map(x, x).all(y, y > 0)": "line 1, column 15",
            "data.all(x, x in data)": "line 1, column 18",
            "key.matches(data.p)": "pattern",
            "key.matches('(')": "pattern",
            "'" + "a" * 1_024 + "' == key": "1024 bytes",
            "(" * 300 + "true" + ")" * 300: "line 1",
        }
        for text, words in wrong.items():
            for reply in (
                broker.request("PATCH", f"{SUBSCRIBERS}/s", {"filter": text}),
                broker.request("POST", SUBSCRIBERS, {"name": "t", "endpoint": recorder.url, "filter": text}),
            ):
                assert reply.status == 400, text
                assert reply.json()["setting"] == "filter"
                assert words in reply.json()["detail"], reply.json()["detail"]
        assert broker.request("GET", f"{SUBSCRIBERS}/s").json()["filter"] == LARGE
        assert broker.request("GET", f"{SUBSCRIBERS}/t").status == 404


def test_consumers_that_come_get_what_their_filter_lets_through(broker: BrokerProcess) -> None:
    """RULES 31: a group that pulls has a filter too; what is skipped costs none of its room."""
    broker.request("POST", "/v1/queues", {"name": "shop"})
    group = {"name": "workers", "pull": True, "filter": "data.amount % 100 == 0 && headers['x-kind'] == 'order'"}
    assert broker.request("POST", SUBSCRIBERS, group).status == 201
    lines = b"".join(
        json.dumps({"data": {"amount": amount}, "headers": {"x-kind": "order"}}).encode() + b"\n"
        for amount in range(1, 1_001)
    )
    batch = broker.request("POST", f"{MESSAGES}:batch", lines, {"Content-Type": "application/x-ndjson"})
    assert batch.status == 201, batch.body
    taken: list[int] = []
    while len(taken) < 10:
        asked = {"group": "workers", "max": 4, "wait": "5s"}
        pulled = broker.request("POST", "/v1/queues/shop/pull", asked).json()["messages"]
        taken += [json.loads(one["content"])["amount"] for one in pulled]
        broker.request("POST", "/v1/leases:ack", {"leases": [one["lease"] for one in pulled]})
    assert taken == list(range(100, 1_001, 100))


def test_a_filter_is_tried_on_the_newest_messages_and_changes_nothing(broker: BrokerProcess) -> None:
    """RULES 31, INTERFACES 2: the trial says of the newest messages which it would let through, and why not."""
    with Recorder() as recorder:
        declare(broker, recorder.url, filter=LARGE)
        ids = [publish(broker, amount) for amount in (1, 2, "text", 300, 400)]
        eventually_blocking(lambda: len(recorder.requests) == 2, "two are delivered")
        tried = broker.request("POST", f"{SUBSCRIBERS}/s/filter", {"filter": "data.amount > 1", "last": 4})
        assert tried.status == 200, tried.body
        answer = tried.json()
        assert (answer["of"], answer["delivered"], answer["skipped"], answer["failed"]) == (4, 3, 0, 1)
        assert [one["id"] for one in answer["messages"]] == ids[:0:-1]
        assert [one["result"] for one in answer["messages"]] == ["delivered", "delivered", "filter_error", "delivered"]
        assert "overload" in answer["messages"][2]["detail"]
        assert broker.request("POST", f"{SUBSCRIBERS}/s/filter", {}).json()["delivered"] == 2, "the one it has"
        assert broker.request("POST", f"{SUBSCRIBERS}/s/filter", {"filter": "data."}).status == 400
        assert broker.request("POST", f"{SUBSCRIBERS}/s/filter", {"last": 0}).status == 400
        assert broker.request("GET", f"{SUBSCRIBERS}/s").json()["filter"] == LARGE
        assert len(recorder.requests) == 2


def test_a_rate_bounds_webhooks_and_consumers_alike(broker: BrokerProcess) -> None:
    """RULES 33: in no second more attempts than the rate and one full bucket. What waits says why; a pulling group is
    bounded as well; what is no rate is refused."""
    with Recorder() as recorder:
        declare(broker, recorder.url, rate="20/s")
        ids = [publish(broker, amount) for amount in range(60)]
        last = f"/v1/messages/{ids[-1]}"
        eventually_blocking(
            lambda: "its rate" in (broker.request("GET", last).json()["waits_for"] or ""), "it says why"
        )
        eventually_blocking(lambda: len(recorder.requests) == 60, "all are delivered")
        began = sorted(delivery(broker, one)["attempts"][0]["time"] for one in ids)
        moments = [datetime.fromisoformat(one).timestamp() for one in began]
        assert all(later - first >= 1 for first, later in zip(moments, moments[41:], strict=False))
        assert sorted(amounts(recorder)) == list(range(60))
    group = {"name": "slow", "pull": True, "rate": "1/h", "start": "beginning"}
    assert broker.request("POST", SUBSCRIBERS, group).status == 201
    pulled = broker.request("POST", "/v1/queues/shop/pull", {"group": "slow", "max": 9, "wait": "5s"}).json()[
        "messages"
    ]
    assert len(pulled) == 1
    reply = broker.request("PATCH", f"{SUBSCRIBERS}/s", {"rate": "20"})
    assert (reply.status, reply.json()["setting"]) == (400, "rate")
