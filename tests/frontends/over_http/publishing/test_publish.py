"""Publishing over HTTP to a real Space: what is answered, what is kept, what reaches subscribers (INTERFACES 3)."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from syncbrok.frontends.over_http.publishing.publish import status_of
from syncbrok.model import limits
from syncbrok.model.facts import Reason
from syncbrok.space.channels import Accepted
from tests.support.http.api import Api
from tests.support.http.space import ENDPOINT, ONCE, HttpSpace, MakeHttpSpace
from tests.support.polling import eventually
from tests.support.space.spaces import ACKNOWLEDGED, REFUSED

EVENT = {"ce-specversion": "1.0", "ce-source": "/shop", "ce-type": "t"}


@pytest.fixture
async def running(tmp_path: Path, http_space: MakeHttpSpace) -> AsyncIterator[HttpSpace]:
    async with http_space(tmp_path) as made:
        assert (await made.api.post("/v1/queues", {"name": "orders", **ONCE})).status == 201
        assert (await made.api.post("/v1/queues/orders/subscribers", {"endpoint": ENDPOINT})).status == 201
        yield made


@pytest.fixture
def api(running: HttpSpace) -> Api:
    return running.api


async def published(api: Api, content: bytes, headers: Any = None, status: int = 201) -> Any:
    reply = await api.publish("orders", content, headers)
    assert reply.status == status, reply
    assert reply.headers["Syncbrok-Sync"] == "always"
    assert reply.headers["Location"] == f"/v1/messages/{reply.json()['id']}"
    return reply.json()


async def test_a_publish_is_answered_with_its_place(running: HttpSpace) -> None:
    """INTERFACES 3: 201, Location, {"id", "queue", "sequence", "state", "parents"}; the content byte for byte."""
    content = bytes(range(256)) * 10
    found = await published(running.api, content, {"Content-Type": "image/x; a=b"})
    assert set(found) == {"id", "queue", "sequence", "state", "parents"}
    assert (found["queue"], found["parents"]) == ("orders", [])
    (delivery,) = await eventually(lambda: running.consumer.deliveries, "a delivery")
    assert (delivery.message.content, delivery.message.content_type) == (content, "image/x; a=b")
    assert delivery.message.sequence == found["sequence"]
    reply = await running.api.get(f"/v1/messages/{found['id']}/content")
    assert (reply.body, reply.headers["Content-Type"]) == (content, "image/x; a=b")


async def test_states_of_what_was_just_accepted(running: HttpSpace) -> None:
    """RULES 9: pending, waiting for parents, scheduled; complete at once where nobody is subscribed (RULES 17)."""
    running.consumer.answer = lambda _: None
    parent = await published(running.api, b"parent")
    assert parent["state"] == "pending"
    child = await published(running.api, b"child", {"Syncbrok-Parent": parent["id"]})
    assert (child["state"], child["parents"]) == ("waiting", [parent["id"]])
    assert (await published(running.api, b"later", {"Syncbrok-Delay": "1h"}))["state"] == "scheduled"
    assert (await published(running.api, b"later", {"Syncbrok-Deliver-At": "2999-01-01T00:00:00Z"}))[
        "state"
    ] == "scheduled"
    await running.api.post("/v1/queues", {"name": "alone"})
    assert (await running.api.publish("alone", b"x")).json()["state"] == "complete"


async def test_a_child_waits_for_its_parents(running: HttpSpace) -> None:
    """The product: no attempt of a child before its parents are complete; parents in other queues count too."""
    api, consumer = running.api, running.consumer
    await api.post("/v1/queues", {"name": "customers"})
    await api.post("/v1/queues/customers/subscribers", {"endpoint": ENDPOINT})
    consumer.answer = lambda delivery: None if delivery.message.content.startswith(b"parent") else ACKNOWLEDGED
    first = (await api.publish("customers", b"parent 1")).json()["id"]
    second = await published(api, b"parent 2")
    both = f"{first}, {second['id']}"
    child = await published(api, b"child", {"Syncbrok-Parent": both})
    assert child["parents"] == [first, second["id"]]
    await published(api, b"neighbour")
    await eventually(lambda: len(consumer.seen) == 3, "all but the child")
    assert b"child" not in consumer.contents
    consumer.release()
    await eventually(lambda: b"child" in consumer.contents, "the child")


async def test_an_unknown_parent_is_refused_and_nothing_changes(running: HttpSpace) -> None:
    """RULES 2: 422."""
    unknown = "01a1fba6-f093-8000-8000-000104aafc26"
    reply = await running.api.publish("orders", b"x", {"Syncbrok-Parent": unknown})
    assert reply.problem(422, "unknown-parent")["parent"] == unknown
    assert "line" not in reply.json()
    reply = await running.api.publish("nothing", b"x")
    assert reply.problem(404, "unknown-queue")["queue"] == "nothing"
    assert (await running.api.get("/v1/queues/orders/messages")).json()["messages"] == []


async def test_an_idempotency_key_answers_the_first_id(api: Api) -> None:
    """RULES 4: the same again 200 and the first id, other content 409; a retry counts its expiry from later."""
    key = {"Idempotency-Key": '"k-1"', "Syncbrok-Expires": "60"}
    first = await published(api, b"x", key)
    assert (await published(api, b"x", key, 200))["id"] == first["id"]
    assert (await published(api, b"x", {**key, "Idempotency-Key": "k-1"}, 200))["id"] == first["id"]
    refused = await api.publish("orders", b"other", key)
    assert refused.problem(409, "idempotency-conflict")["id"] == first["id"]
    found = (await api.get("/v1/messages?idempotency_key=k-1")).json()["messages"]
    assert [one["id"] for one in found] == [first["id"]]


async def test_two_different_idempotency_keys_are_refused(running: HttpSpace) -> None:
    """RULES 4: which of the two the publisher would repeat nobody knows: nothing is kept. Quoted or not is one key."""
    refused = await running.api.publish("orders", b"x", [("Idempotency-Key", "a"), ("Idempotency-Key", "b")])
    assert refused.problem(400, "malformed")["header"] == "idempotency-key"
    twice = await running.api.publish("orders", b"x", [("Syncbrok-Key", "a"), ("Syncbrok-Key", "b")])
    assert twice.problem(400, "malformed")["header"] == "syncbrok-key"
    assert running.space.view.queue("orders").accepted == 0
    await published(running.api, b"x", [("Idempotency-Key", "a"), ("Idempotency-Key", '"a"')])


async def test_a_wait_ends_with_every_result(running: HttpSpace) -> None:
    """RULES 8: 200 when every delivery has ended, with each result, dead ones included; RFC 7240: it is said so."""
    await running.api.post("/v1/queues/orders/subscribers", {"name": "bad", "endpoint": ENDPOINT + "bad"})
    endpoints = dict.fromkeys((2,), REFUSED)
    running.consumer.answer = lambda delivery: endpoints.get(delivery.attempt.subscriber, ACKNOWLEDGED)
    reply = await running.api.publish("orders", b"x", {"Prefer": "wait=20"})
    assert (reply.status, reply.headers["Preference-Applied"]) == (200, "wait=20")
    found = reply.json()
    assert found["state"] == "dead"
    results = {one["subscriber"]: one for one in found["deliveries"]}
    assert (results["bad"]["state"], results["bad"]["status"], results["bad"]["attempts"]) == ("dead", 500, 1)
    (good,) = [one for name, one in results.items() if name != "bad"]
    assert (good["state"], good["status"], good["attempts"], good["reason"]) == ("delivered", 200, 1, None)
    assert good["latency_ms"] >= 0


async def test_a_wait_that_is_over_answers_202(running: HttpSpace) -> None:
    """RULES 8: 202 and Location when the time is over. The message goes its way."""
    running.consumer.answer = lambda _: None
    reply = await running.api.publish("orders", b"x", {"Prefer": "wait=0.05"})
    assert (reply.status, reply.headers["Preference-Applied"]) == (202, "wait=0.05")
    assert reply.headers["Location"] == f"/v1/messages/{reply.json()['id']}"
    assert "deliveries" not in reply.json()
    running.consumer.release()
    await running.space.ended(*[delivery.message.id for delivery in running.consumer.deliveries])


async def test_headers_reach_subscribers(running: HttpSpace) -> None:
    """INTERFACES 3: Content-Type, traceparent, ce-* and what is sent as Syncbrok-Forward-NAME; nothing else."""
    headers = {
        **EVENT,
        "ce-id": "1",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "Syncbrok-Forward-X-Tenant": "north",
        "X-Private": "no",
        "Cookie": "no",
        "Authorization": "Bearer no",
    }
    await published(running.api, b"x", headers)
    (delivery,) = await eventually(lambda: running.consumer.deliveries, "a delivery")
    expected = {**EVENT, "ce-id": "1", "traceparent": headers["traceparent"], "x-tenant": "north"}
    assert dict(delivery.message.headers) == expected


async def test_events_cause_events(running: HttpSpace) -> None:
    """INTERFACES 3: source + id is an event's idempotency key; ce-causationid names a parent of the same source by
    its CloudEvents id, or any message by its Syncbrok id."""
    api = running.api
    running.consumer.answer = lambda _: None
    first = await published(api, b"1", {**EVENT, "ce-id": "e-1"})
    assert (await published(api, b"1", {**EVENT, "ce-id": "e-1"}, 200))["id"] == first["id"]
    child = await published(api, b"2", {**EVENT, "ce-id": "e-2", "ce-causationid": "e-1"})
    assert child["parents"] == [first["id"]]
    plain = await published(api, b"3")
    other = {
        **EVENT,
        "ce-source": "/other",
        "ce-id": "e-3",
        "ce-causationid": plain["id"],
        "Syncbrok-Parent": first["id"],
    }
    assert (await published(api, b"4", other))["parents"] == [first["id"], plain["id"]]
    reply = await api.publish("orders", b"5", {**EVENT, "ce-source": "/other", "ce-id": "e-4", "ce-causationid": "e-1"})
    assert reply.problem(422, "unknown-parent")["parent"] == "e-1"


async def test_an_event_of_several_queues_is_waited_for_in_all(running: HttpSpace) -> None:
    """DESIGN 1, causal: whichever of an event's messages a publisher means, its child does not go before that one, in
    a batch of events either."""
    api = running.api
    running.consumer.answer = lambda _: None
    first = await published(api, b"1", {**EVENT, "ce-id": "e-1"})
    await api.post("/v1/queues", {"name": "log"})
    second = (await api.publish("log", b"1", {**EVENT, "ce-id": "e-1"})).json()
    child = await published(api, b"2", {**EVENT, "ce-id": "e-2", "ce-causationid": "e-1"})
    assert set(child["parents"]) == {first["id"], second["id"]}
    assert child["state"] == "waiting"
    event = {name[3:]: value for name, value in EVENT.items() if name.startswith("ce-")}
    media = {"Content-Type": "application/cloudevents-batch+json"}
    events = [{**event, "id": "e-3", "causationid": "e-1"}]
    (third,) = (await api.post("/v1/queues/orders/messages:batch", events, media)).json()["ids"]
    assert set((await api.get(f"/v1/messages/{third}")).json()["parents"]) == {first["id"], second["id"]}
    (subscriber,) = (await api.get("/v1/queues/orders/subscribers")).json()["subscribers"]
    path = f"/v1/queues/orders/subscribers/{subscriber['id']}/test"
    tried = (await api.post(path, b"t", {**EVENT, "ce-id": "e-4", "ce-causationid": "e-1"})).json()
    assert set(tried["parents"]) == {first["id"], second["id"]}


async def test_publishers_share_commits(running: HttpSpace) -> None:
    """DESIGN 4: records of one moment share one fsync; each publisher gets its own id."""
    replies = await asyncio.gather(*(running.api.publish("orders", b"%d" % n) for n in range(50)))
    assert [reply.status for reply in replies] == [201] * 50
    assert len({reply.json()["id"] for reply in replies}) == 50
    assert len({reply.json()["sequence"] for reply in replies}) == 50


@pytest.mark.parametrize(
    ("messages", "known", "sync", "status"),
    [(1, 0, "always", 201), (1, 0, "interval:5", 202), (1, 1, "always", 200), (1, 1, "interval:5", 200),
     (3, 2, "always", 201), (3, 2, "interval:5", 202), (3, 3, "always", 200), (0, 0, "always", 200),
     (3, 2, "quorum", 201), (3, 3, "quorum", 200), (3, 0, "quorum+local", 201)],
)  # fmt: skip
def test_the_receipt_says_which_status_it_is(messages: int, known: int, sync: str, status: int) -> None:
    """RULES 1, 4: one rule for one message, a batch, and many that share a receipt. What is partly new is new."""
    receipt = Accepted(7, bytes(16 * messages), sync, dict.fromkeys(range(known), 3))
    assert status_of(receipt) == status


async def test_a_weaker_policy_answers_202(tmp_path: Path, http_space: MakeHttpSpace) -> None:
    """RULES 1: ``interval:<ms>`` is named in every answer to a publish."""
    journal = {"sync": "interval", "interval_ms": 5}
    async with http_space(tmp_path, journal=journal, sync="interval:5") as made:
        await made.api.post("/v1/queues", {"name": "orders"})
        reply = await made.api.publish("orders", b"x")
        assert (reply.status, reply.headers["Syncbrok-Sync"]) == (202, "interval:5")
        assert (await made.api.batch("orders", {"data": 1})).status == 202


async def test_a_draining_broker_refuses(running: HttpSpace) -> None:
    """Shutdown: readiness fails, publishes get 503; what was accepted is read as before."""
    found = await published(running.api, b"x")
    running.consumer.answer = lambda _: None
    await published(running.api, b"in flight")
    await eventually(lambda: running.consumer.held, "an attempt in flight")
    await running.space.space.drain()
    await eventually(lambda: not running.space.view.ready, "draining")
    reply = await running.api.publish("orders", b"y")
    told = reply.problem(503, "draining")
    assert (told["detail"], reply.headers["Retry-After"]) == (
        "the broker is stopping; try again when it has started",
        "1",
    )
    assert reply.headers["Syncbrok-Sync"] == "always"
    assert (await running.api.get("/readyz")).problem(503, "draining")["state"] == "draining"
    assert (await running.api.get(f"/v1/messages/{found['id']}")).status == 200
    running.consumer.release()


# -- batches ----------------------------------------------------------------------------------------------------------


async def test_a_batch_is_published_in_order(running: HttpSpace) -> None:
    """RULES 5 and INTERFACES 3: 201 {"ids"}; ``#n`` names an earlier line of the same batch."""
    reply = await running.api.batch(
        "orders",
        {"content": "parent", "key": "k", "headers": {"X-Tenant": "north"}},
        {"data": {"n": 1}, "parents": ["#1"]},
        {"content_base64": "AP8=", "parents": ["#1", "#2"], "parent_failure": "hold"},
    )
    assert (reply.status, set(reply.json())) == (201, {"ids"})
    assert reply.headers["Syncbrok-Sync"] == "always"
    ids = reply.json()["ids"]
    await eventually(lambda: len(running.consumer.seen) == 3, "all three")
    assert running.consumer.contents == [b"parent", b'{"n":1}', b"\x00\xff"]
    last = (await running.api.get(f"/v1/messages/{ids[2]}")).json()
    assert (last["parents"], last["parent_failure"], last["depth"]) == (ids[:2], "hold", 2)
    first = (await running.api.get(f"/v1/messages/{ids[0]}")).json()
    assert (first["key"], first["headers"]) == ("k", {"x-tenant": "north"})


async def test_a_batch_is_all_or_nothing(running: HttpSpace) -> None:
    """RULES 4 and 5: one bad line, unknown parent or conflict refuses all of it and says which line."""
    good = {"content": "good"}
    await running.api.batch("orders", {"content": "first", "idempotency_key": "k"})
    unknown = "01a1fba6-f093-8000-8000-000104aafc26"
    for bad, status, slug in (
        (b"{", 400, "malformed"),
        ({"content": "x", "parents": ["#3"]}, 400, "malformed"),
        ({"content": "x", "parents": [unknown]}, 422, "unknown-parent"),
        ({"content": "other", "idempotency_key": "k"}, 409, "idempotency-conflict"),
    ):
        reply = await running.api.batch("orders", good, good, bad, good)
        problem = reply.problem(status, slug)
        assert problem["line"] == 3
        assert problem["detail"].startswith("line 3: ")
        assert reply.headers["Syncbrok-Sync"] == "always"
    assert len((await running.api.get("/v1/queues/orders/messages")).json()["messages"]) == 1


async def test_known_lines_of_a_batch_return_their_first_id(running: HttpSpace) -> None:
    """RULES 4: 201 where something was new, 200 where nothing was; ``#n`` resolves to the first one's id."""
    lines = [{"content": "a", "idempotency_key": "a"}, {"content": "b", "idempotency_key": "b", "parents": ["#1"]}]
    (first,) = (await running.api.batch("orders", lines[0])).json()["ids"]
    reply = await running.api.batch("orders", *lines)
    assert (reply.status, reply.json()["ids"][0]) == (201, first)
    again = await running.api.batch("orders", *lines)
    assert (again.status, again.json()) == (200, reply.json())
    assert (await running.api.get(f"/v1/messages/{reply.json()['ids'][1]}")).json()["parents"] == [first]


async def test_a_batch_may_be_an_array(running: HttpSpace) -> None:
    """RULES 5, INTERFACES 3: a JSON array of the same objects is the same batch: all or nothing, the same answers and
    mistakes, which name an element as they do a line."""
    path, media = "/v1/queues/orders/messages:batch", {"Content-Type": "application/json; charset=utf-8"}
    lines = [{"content": "a", "idempotency_key": "a"}, {"data": [1, "]"], "idempotency_key": "b", "parents": ["#1"]}]
    indented = b"\xef\xbb\xbf\n" + json.dumps(lines, indent=2).encode() + b"\n"
    reply = await running.api.post(path, indented, media)
    one, two = reply.json()["ids"]
    assert (reply.status, list(reply.json())) == (201, ["ids"])
    shown = (await running.api.get(f"/v1/messages/{two}")).json()
    assert (shown["parents"], shown["content_type"]) == ([one], "application/json")
    assert (await running.api.get(f"/v1/messages/{two}/content")).body == b'[1,"]"]'
    again = await running.api.post(path, lines, media)
    assert (again.status, again.json(), again.headers["Syncbrok-Sync"]) == (200, reply.json(), "always")

    wrong = [{"content": "new"}, {"content": 1}, {"content": "x"}, {"delay": "1s"}, 7]
    refused = (await running.api.post(path, wrong, media)).problem(400, "malformed")
    assert [mistake["line"] for mistake in refused["errors"]] == [2, 4, 5]
    assert refused == (await running.api.batch("orders", *wrong)).problem(400, "malformed")
    unknown = [{"content": "new"}, {"content": "x", "parents": ["00000000-0000-8000-8000-000000000000"]}]
    told = (await running.api.post(path, unknown, media)).problem(422, "unknown-parent")
    assert told == (await running.api.batch("orders", *unknown)).problem(422, "unknown-parent")
    for body, line in ((b'[{"content":"new"},]', 2), (b'[{"content":"new"}, {"content":"x"]', 2), (b"[]", None)):
        assert (await running.api.post(path, body, media)).problem(400, "malformed").get("line") == line
    many = b"[" + b'{"content":"x"},' * limits.batch_lines_max + b'{"content":"x"}]'
    assert "lines_max" in (await running.api.post(path, many, media)).problem(413, "too-large")
    there = (await running.api.get("/v1/queues/orders/messages")).json()["messages"]
    assert [message["id"] for message in there] == [one, two], "nothing of what was refused"


async def test_a_batch_of_cloud_events(running: HttpSpace) -> None:
    """INTERFACES 3: application/cloudevents-batch+json; causes within the batch and before it."""
    media = {"Content-Type": "application/cloudevents-batch+json; charset=utf-8"}
    base = {"specversion": "1.0", "source": "/shop", "type": "t"}
    first = await published(running.api, b"0", {**EVENT, "ce-id": "e-0"})
    events = [
        {**base, "id": "e-1", "data": {"n": 1}, "causationid": "e-0"},
        {**base, "id": "e-2", "data": "text", "datacontenttype": "text/plain", "causationid": "e-1"},
    ]
    path = "/v1/queues/orders/messages:batch"
    reply = await running.api.post(path, events, media)
    assert reply.status == 201
    one, two = reply.json()["ids"]
    assert (await running.api.get(f"/v1/messages/{one}")).json()["parents"] == [first["id"]]
    shown = (await running.api.get(f"/v1/messages/{two}")).json()
    assert (shown["parents"], shown["idempotency_key"], shown["content_type"]) == ([one], "/shop e-2", "text/plain")
    assert shown["headers"]["ce-id"] == "e-2"
    assert (await running.api.post(path, events, media)).status == 200
    for wrong in (b"{", b"{}", [7], [{**base}]):
        (await running.api.post(path, wrong, media)).problem(400, "malformed")
    unknown = [*events, {**events[0], "id": "e-9", "causationid": "e-99"}]
    assert (await running.api.post(path, unknown, media)).problem(422, "unknown-parent")["line"] == 3


async def test_a_batch_says_everything_in_its_lines(running: HttpSpace) -> None:
    """A header that means something for one message would silently do nothing for a batch; other media are 415."""
    body = b'{"content":"x"}'
    path = "/v1/queues/orders/messages:batch"
    ndjson = {"Content-Type": "application/x-ndjson"}
    for name in ("Syncbrok-Parent", "Syncbrok-Key", "Syncbrok-Delay", "Idempotency-Key", "ce-id"):
        for written in (name, name.lower(), name.upper()):
            refused = (await running.api.post(path, body, {**ndjson, written: "1"})).problem(400, "malformed")
            assert refused["header"] == written
    for media in ({}, {"Content-Type": "application/json"}, {"Content-Type": "text/plain"}):
        (await running.api.post(path, body, media)).problem(415, "unsupported-media-type")
    assert (await running.api.post(path, body, {"Content-Type": "Application/X-NDJSON; charset=utf-8"})).status == 201


async def test_a_dead_parent_is_told(running: HttpSpace) -> None:
    """RULES 12: a child accepted under a dead parent gets 201, and its policy applies at once."""
    running.consumer.answer = lambda _: REFUSED
    parent = (await running.api.publish("orders", b"x", {"Prefer": "wait=20"})).json()
    assert parent["state"] == "dead"
    child = await published(running.api, b"y", {"Syncbrok-Parent": parent["id"], "Prefer": "wait=20"}, 200)
    assert (child["state"], child["deliveries"][0]["reason"]) == ("dead", Reason.PARENT_FAILED.name.lower())
