"""A message that goes round: each delivery counts one more hop, and a publish with too many is refused for good."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from syncbrok.delivery.handler import NEVER
from syncbrok.delivery.webhook.address_guard import AddressGuard
from syncbrok.delivery.webhook.http_request import RequestForm
from syncbrok.delivery.webhook.http_response import LOOP_TYPE
from syncbrok.delivery.webhook.webhook import Webhook
from syncbrok.frontends.over_http.requests.problems import TYPE_PREFIX
from syncbrok.model import limits
from syncbrok.model.errors import Loop
from syncbrok.model.facts import Reason
from syncbrok.model.message import Format
from tests.support.broker.process import BrokerProcess
from tests.support.delivery.endpoint import Answers, Endpoint, Reply, delivery, message, reply, send, subscriber
from tests.support.http.api import Api, Serve
from tests.support.polling import eventually_blocking
from tests.support.space.fake_space import FakeSpace

LONG_WAY = {"TE": "trailers"}
"""a request that has it is not a simple publish; both ways must say the same"""


@pytest.fixture
def space() -> FakeSpace:
    return FakeSpace()


@pytest.fixture
async def api(space: FakeSpace, served: Serve) -> AsyncIterator[Api]:
    async with served(space.channels, space) as running:
        assert (await running.post("/v1/queues", {"name": "orders"})).status == 201
        yield running


@pytest.mark.parametrize("way", [{}, LONG_WAY], ids=["fast", "long"])
async def test_a_publish_with_too_many_hops_is_a_loop(api: Api, space: FakeSpace, way: dict[str, str]) -> None:
    """INTERFACES 3, ``Syncbrok-Hops``: up to 8 are kept with the message, above that it is 409 ``loop``; nothing in
    between is guessed."""
    for hops, kept in (("0", ()), ("3", (("syncbrok-hops", "3"),)), ("008", (("syncbrok-hops", "8"),))):
        assert (await api.publish("orders", b"m", {"Syncbrok-Hops": hops, **way})).status == 201
        assert list(space.contents.values())[-1].headers == kept
    taken = len(space.contents)
    for hops in ("9", "999999999"):
        problem = (await api.publish("orders", b"m", {"syncbrok-hops": hops, **way})).problem(409, "loop")
        assert (problem["hops"], problem["hops_max"]) == (int(hops), limits.hops_max)
        assert "Syncbrok-Hops" in problem["mend"]
    for wrong in ("-1", "many", "1.5", "9" * 10, ""):
        (await api.publish("orders", b"m", {"Syncbrok-Hops": wrong, **way})).problem(400, "malformed")
    two = [("Syncbrok-Hops", "1"), ("Syncbrok-Hops", "2"), *way.items()]
    (await api.publish("orders", b"m", two)).problem(400, "malformed")
    assert len(space.contents) == taken


async def test_the_other_ways_in_count_too(api: Api, space: FakeSpace) -> None:
    """INTERFACES 2 and 3: the original's route, a line of a batch, as a message that was pulled is published, and a
    CloudEvent in structured mode, as a delivery in that format is published again."""
    assert (await api.post("/msg", b"m", {"queue": "orders", "Syncbrok-Hops": "2"})).status == 200
    assert (await api.batch("orders", {"content": "m", "headers": {"syncbrok-hops": "4", "x-a": "b"}})).status == 201
    kept = [one.headers for one in space.contents.values()]
    assert kept == [(("syncbrok-hops", "2"),), (("syncbrok-hops", "4"), ("x-a", "b"))]
    (await api.post("/msg", b"m", {"queue": "orders", "Syncbrok-Hops": "9"})).problem(409, "loop")
    lines = [{"content": "m"}, {"content": "m", "headers": {"Syncbrok-Hops": "9"}}]
    problem = (await api.batch("orders", *lines)).problem(409, "loop")
    assert (problem["line"], problem["hops"], problem["hops_max"]) == (2, 9, limits.hops_max)
    event = {"specversion": "1.0", "id": "1", "source": "/a", "type": "t", "data": 1}
    for hops, status in (("9", 409), ("8", 201)):
        structured = {"Content-Type": "application/cloudevents+json", "Syncbrok-Hops": hops}
        assert (await api.publish("orders", orjson.dumps(event), structured)).status == status
    assert ("syncbrok-hops", "8") in list(space.contents.values())[-1].headers
    assert len(space.contents) == 3


@pytest.mark.parametrize("kind", list(Format))
def test_every_delivery_counts_one_more(kind: Format) -> None:
    """INTERFACES 3, "What a v1 subscriber receives": ``Syncbrok-Hops``, in every format, once; of the message's own
    it is one more."""
    form = RequestForm(subscriber("http://hooks.example/", kind), "orders")
    for headers, wanted in (((), b"1"), ((("x-a", "b"),), b"1"), ((("syncbrok-hops", "4"),), b"5")):
        one = delivery(of=message(headers=headers))
        for request in (form.render(one, "1700000000", ()), form.in_full(one, "1700000000", ())):
            lines = [line for line in request.split(b"\r\n") if line.lower().startswith(b"syncbrok-hops")]
            assert lines == [b"Syncbrok-Hops: " + wanted]


def problem(status: str, type_: str) -> Reply:
    return reply(status, b'{"type": "%b", "detail": "x"}' % type_.encode(), "Content-Type: application/problem+json")


async def test_only_a_loop_is_never_tried_again() -> None:
    """INTERFACES 3: 409 ``loop`` of a broker ends the delivery; any other 409 follows the schedule."""
    assert TYPE_PREFIX + Loop.slug == LOOP_TYPE
    kinds: list[tuple[Reply, Any]] = [
        (problem("409 Conflict", LOOP_TYPE), NEVER),
        (problem("409 Conflict", "urn:syncbrok:problem:conflict"), None),
        (problem("400 Bad", LOOP_TYPE), None),
        (reply("409 Conflict", LOOP_TYPE.encode()), None),
        (reply("409 Conflict", b'["urn:syncbrok:problem:loop"]'), None),
    ]
    webhook = Webhook(AddressGuard(loopback_allowed=True), lambda _: ())
    for answered, wanted in kinds:
        async with Endpoint(lambda _, answered=answered: answered) as endpoint:
            answers = Answers()
            send(webhook, subscriber(endpoint.url), [delivery()], answers.done)
            (answer,) = await answers.wait_for(1)
            assert (answer.reason, answer.retry_after_s) == (Reason.STATUS, wanted)
    await webhook.close()


def chained(broker: BrokerProcess, queue: str, endpoint: str) -> None:
    broker.request("POST", "/v1/queues", {"name": queue, "retry": ["1h"]})
    assert broker.request("POST", f"/v1/queues/{queue}/subscribers", {"endpoint": endpoint}).status == 201


def sequences(broker: BrokerProcess, queue: str) -> list[Any]:
    messages: list[Any] = broker.request("GET", f"/v1/queues/{queue}/messages?limit=1000").json()["messages"]
    return messages


def test_two_brokers_that_feed_each_other_come_to_an_end(tmp_path: Path) -> None:
    """INTERFACES 3, ``Syncbrok-Hops``: a message goes round eight times at most, and then it is a dead letter at once,
    which says why, whatever retries are left."""
    with BrokerProcess(tmp_path / "a") as a, BrokerProcess(tmp_path / "b") as b:
        chained(a, "q", f"{b.url}/v1/queues/q/messages")
        chained(b, "q", f"{a.url}/v1/queues/q/messages")
        a.request("POST", "/v1/queues/q/messages", b"round and round")
        dead = eventually_blocking(
            lambda: a.request("GET", "/v1/queues/q/dead-letters").json()["dead_letters"], "the loop ends"
        )
        assert len(sequences(a, "q")) + len(sequences(b, "q")) == limits.hops_max + 1
        (attempt,) = a.request("GET", f"/v1/messages/{dead[0]['id']}").json()["deliveries"][0]["attempts"]
        assert (attempt["status"], "urn:syncbrok:problem:loop" in attempt["detail"]) == (409, True)


def test_a_broker_does_not_deliver_to_itself_unless_told_so(tmp_path: Path) -> None:
    """INTERFACES 1, ``guard.allow``: the broker's own sockets are refused, those of its TCP frontends too, and another
    service on loopback is not; with address and port allowed one queue feeds another, and hops end a loop."""
    own = "guard: {allow: [127.0.0.0/8]}\n"
    with BrokerProcess(tmp_path / "refusing", config=own, frontends=["framed"]) as broker:
        chained(broker, "q", f"{broker.url.replace('127.0.0.1', 'localhost')}/v1/queues/q/messages")
        chained(broker, "frames", f"http://127.0.0.1:{broker.tcp['framed']}/")
        for queue in ("q", "frames"):
            answer = broker.request("POST", f"/v1/queues/{queue}/messages", b"m").json()
            report = eventually_blocking(lambda id_=answer["id"]: attempted(broker, id_), "it was tried")
            assert (report["reason"], "is this broker itself" in report["detail"]) == ("forbidden_address", True)
        assert len(sequences(broker, "q")) == 1
    with BrokerProcess(tmp_path / "allowing", config="guard: {allow: ['127.0.0.0/8:1-65535']}\n") as broker:
        chained(broker, "q", f"{broker.url}/v1/queues/q/messages")
        broker.request("POST", "/v1/queues/q/messages", b"m")
        eventually_blocking(
            lambda: broker.request("GET", "/v1/queues/q/dead-letters").json()["dead_letters"], "the loop ends"
        )
        assert len(sequences(broker, "q")) == limits.hops_max + 1


def attempted(broker: BrokerProcess, id_: str) -> Any:
    attempts = broker.request("GET", f"/v1/messages/{id_}").json()["deliveries"][0]["attempts"]
    return attempts and attempts[0]
