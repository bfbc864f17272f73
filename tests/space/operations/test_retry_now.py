"""Retry now: what waits for another attempt is tried at once (RULES 26), through the Space and over HTTP."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from syncbrok.model.message import BreakerPolicy, Message, QueueSettings, RetryPolicy
from syncbrok.model.names import MessageId, id_text
from tests.support.http.space import HttpSpace, MakeHttpSpace
from tests.support.polling import eventually
from tests.support.space.spaces import ACKNOWLEDGED, GONE, REFUSED, Running

PATIENT = QueueSettings(retry=RetryPolicy((86_400.0,) * 3, 0.0), window=4)
UNKNOWN = "01890000-0000-8000-8000-000000000000"


@pytest.fixture
async def made(tmp_path: Path, http_space: MakeHttpSpace) -> AsyncIterator[HttpSpace]:
    """Queue q with subscribers a and b, both of whom refuse."""
    async with http_space(tmp_path) as made:
        made.consumer.answer = lambda _: REFUSED
        await made.space.queue("q", PATIENT, ["a", "b"])
        yield made


async def refused(running: Running, count: int) -> list[MessageId]:
    """So many messages, each of which has failed once at a and at b."""
    ids = (await running.publish_all("q", *[Message(b"%d" % number) for number in range(count)])).ids
    await eventually(lambda: running.view.subscriber("q", "a").retrying == count, "all have failed at a")
    await eventually(lambda: running.view.subscriber("q", "b").retrying == count, "and at b")
    running.consumer.seen.clear()
    return list(ids)


async def test_a_subscriber_is_tried_again_at_once(made: HttpSpace) -> None:
    """RULES 26, INTERFACES 3: ``POST .../subscribers/{s}/retry`` answers how many are tried again; they go out at once,
    to that subscriber, and no record is written that says so."""
    ids = await refused(made.space, 10)
    made.consumer.answer = lambda _: ACKNOWLEDGED
    facts = made.space.space.statistics().sequence
    reply = await made.api.post("/v1/queues/q/subscribers/a/retry")
    assert (reply.status, reply.json()) == (200, {"retried": 10})
    await eventually(lambda: len(made.consumer.seen) == 10, "ten attempts")
    assert {who for _, who in made.consumer.seen} == {"a"}
    await eventually(lambda: made.space.view.subscriber("q", "a").delivered == 10, "and their rows")
    written = made.space.space.statistics().sequence - facts
    assert 0 < written <= 10
    assert (await made.api.post("/v1/queues/q/subscribers/a/retry", {})).json() == {"retried": 0}
    assert await made.space.states(*ids) == ["pending"] * 10


async def test_a_dry_run_of_a_retry_counts_and_tries_nothing(made: HttpSpace) -> None:
    """RULES 26, INTERFACES 3: ``dry_run`` answers how many deliveries would be tried, of a subscriber and of a message;
    what would be refused is refused."""
    first, _ = await refused(made.space, 2)
    path = f"/v1/messages/{id_text(first)}/retry"
    subscriber = "/v1/queues/q/subscribers/a/retry"
    for dry in ({"dry_run": True}, None):
        asked = "" if dry else "?dry_run=true"
        assert (await made.api.post(subscriber + asked, dry)).json() == {"retried": 2, "dry_run": True}
        assert (await made.api.post(path + asked, dry)).json() == {"retried": 2, "dry_run": True}
    assert (await made.api.post(path, {"subscriber": "b", "dry_run": True})).json()["retried"] == 1
    assert made.consumer.seen == []
    await made.api.patch("/v1/queues/q/subscribers/a", {"paused": True})
    (await made.api.post(subscriber, {"dry_run": True})).problem(409, "subscriber-stopped")


async def test_a_message_is_tried_again_at_once(made: HttpSpace) -> None:
    """RULES 26, INTERFACES 3: ``POST /v1/messages/{id}/retry`` tries it everywhere, or at the one subscriber named;
    what has ended is not tried, and what is unknown or malformed is refused."""
    first, second = await refused(made.space, 2)
    made.consumer.answer = lambda _: ACKNOWLEDGED
    path = f"/v1/messages/{id_text(first)}/retry"
    for wrong in ({"subscriber": 7}, {"subscribers": "a"}):
        (await made.api.post(path, wrong)).problem(400, "bad-setting")
    (await made.api.post(path, {"subscriber": "nobody"})).problem(404, "unknown-subscriber")
    (await made.api.post(f"/v1/messages/{UNKNOWN}/retry")).problem(404, "unknown-message")
    (await made.api.post("/v1/queues/q/subscribers/nobody/retry")).problem(404, "unknown-subscriber")
    (await made.api.post("/v1/queues/none/subscribers/a/retry")).problem(404, "unknown-queue")
    (await made.api.post("/v1/queues/q/subscribers/a/retry", {"subscriber": "a"})).problem(400, "bad-setting")
    assert made.consumer.seen == []
    assert (await made.api.post(path, {"subscriber": None})).json() == {"retried": 2}
    await made.space.ended(first)
    assert sorted(made.consumer.seen) == [(b"0", "a"), (b"0", "b")]
    assert (await made.api.post(path)).json() == {"retried": 0}
    other = f"/v1/messages/{id_text(second)}/retry"
    assert (await made.api.post(other, {"subscriber": "b"})).json() == {"retried": 1}
    await eventually(lambda: made.consumer.seen[2:] == [(b"1", "b")], "the other one, at b")


async def test_an_open_breaker_probes_at_once_with_what_was_never_tried(made: HttpSpace) -> None:
    """RULES 26, 29: where nothing waits for another attempt the next probe is due all the same, and goes out."""
    await made.space.queue("once", QueueSettings(retry=RetryPolicy((), 0.0), window=1))
    await made.space.subscribe("once", "a", breaker=BreakerPolicy(1, 1.0, 1, (600.0, 600.0)))
    await made.space.publish_all("once", *[Message(b"%d" % number) for number in range(2)])
    await eventually(lambda: made.space.view.subscriber("once", "a").breaker == "open", "its breaker is open")
    assert made.consumer.contents == [b"0"]
    made.consumer.answer = lambda _: ACKNOWLEDGED
    assert (await made.api.post("/v1/queues/once/subscribers/a/retry")).json() == {"retried": 0}
    await eventually(lambda: made.consumer.contents == [b"0", b"1"], "the probe has gone out")


async def test_where_it_is_paused_nothing_is_tried(made: HttpSpace) -> None:
    """RULES 14, 26: 409 where the subscriber is paused or disabled, and it says what to do: resuming it makes what has
    failed due. A message is tried where it can be."""
    (id_,) = await refused(made.space, 1)
    api, path = made.api, f"/v1/messages/{id_text(id_)}/retry"
    await api.patch("/v1/queues/q/subscribers/a", {"paused": True})
    for asked, body in (("/v1/queues/q/subscribers/a/retry", None), (path, {"subscriber": "a"})):
        problem = (await api.post(asked, body)).problem(409, "subscriber-stopped")
        assert "is paused" in problem["detail"]
        assert "resume it" in problem["detail"]
        assert "paused" in problem["mend"]
    made.consumer.answer = lambda _: ACKNOWLEDGED
    assert (await api.post(path)).json() == {"retried": 1}
    await eventually(lambda: made.consumer.seen == [(b"0", "b")], "at b")
    await eventually(lambda: made.space.view.subscriber("q", "b").delivered == 1, "delivered at b")
    (await api.post(path)).problem(409, "subscriber-stopped")
    await api.patch("/v1/queues/q/subscribers/a", {"paused": False})
    await made.space.ended(id_)
    assert made.consumer.seen == [(b"0", "b"), (b"0", "a")]


async def test_a_subscriber_that_a_410_disabled_is_refused_too(tmp_path: Path, http_space: MakeHttpSpace) -> None:
    """RULES 14, 26: the words say why."""
    async with http_space(tmp_path) as made:
        made.consumer.answer = lambda _: GONE
        await made.space.queue("q", PATIENT, ["a"])
        await made.space.publish("q", b"x")
        await eventually(lambda: made.space.view.subscriber("q", "a").state == "disabled", "disabled")
        problem = (await made.api.post("/v1/queues/q/subscribers/a/retry")).problem(409, "subscriber-stopped")
        assert "answered 410 and is disabled" in problem["detail"]
