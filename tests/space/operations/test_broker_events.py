"""The broker's own events, in the queue ``syncbrok.events`` (INTERFACES 3)."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from syncbrok.delivery.handler import AttemptResult, Delivery
from syncbrok.model.errors import BadName, BadSetting, Forbidden
from syncbrok.model.event_types import EVENTS_QUEUE, EventType, is_pattern
from syncbrok.model.facts import Reason
from syncbrok.model.jobs import job_id
from syncbrok.model.limits import KIB
from syncbrok.model.message import (
    CONSUMER_SCHEME,
    PULL_ENDPOINT,
    BreakerPolicy,
    Message,
    QueueSettings,
    RetryPolicy,
    SubscriberSettings,
)
from syncbrok.model.names import QueueName, SubscriberId, id_text
from syncbrok.space.channels import (
    CancelJob,
    ChangeSubscriber,
    DeclareQueue,
    DeleteQueue,
    Recover,
    Subscribe,
    Unsubscribe,
)
from syncbrok.space.filter_alarms import FilterMinutes
from tests.support.log.segment_files import flip
from tests.support.polling import eventually
from tests.support.space.spaces import ACKNOWLEDGED, GONE, REFUSED, Consumer, Running, consumers_of, running_space

OPS = "ops"
ONCE = BreakerPolicy(failures=1, probe_s=(0.1, 0.1))
DOWN = AttemptResult(Reason.STATUS, 503)


def told(running: Running, to: str = OPS) -> list[tuple[str, str, dict[str, Any]]]:
    """Type, source and data of the events that came to a subscriber of them."""
    found = []
    for delivery in running.consumer.deliveries:
        if delivery.to.subscriber.id == to:
            headers = dict(delivery.message.headers)
            assert headers["ce-specversion"] == "1.0"
            assert headers["ce-id"] == str(delivery.message.sequence)
            found.append((headers["ce-type"], headers["ce-source"], json.loads(delivery.message.content)))
    return found


def kinds(running: Running, to: str = OPS) -> list[str]:
    return [kind for kind, _, _ in told(running, to)]


def others(answer: AttemptResult) -> Consumer:
    """Those of events acknowledge, all others answer this."""

    def answers(delivery: Delivery) -> AttemptResult:
        return ACKNOWLEDGED if delivery.to.queue == EVENTS_QUEUE else answer

    return Consumer(answers)


async def test_what_befalls_endpoints_is_told(tmp_path: Path) -> None:
    """INTERFACES 3: disabled, with the reason; enabled; the breaker, opened and closed; what died, with its id; with
    the source that names queue and subscriber."""
    consumer = others(GONE)
    async with running_space(tmp_path, consumer) as running:
        await running.subscribe(EVENTS_QUEUE, OPS)
        queue = "orders 1"
        await running.queue(queue)
        await running.subscribe(queue, "a", breaker=None)
        dead = await running.publish(queue, b"x")
        await eventually(lambda: len(told(running)) == 2, "it is told that the endpoint is disabled")
        source = "/queues/orders%201/subscribers/a"
        assert {(kind, source_) for kind, source_, _ in told(running)} == {
            ("syncbrok.endpoint.disabled", source),
            ("syncbrok.message.dead", source),
        }
        data = {kind: data for kind, _, data in told(running)}
        assert data["syncbrok.endpoint.disabled"]["reason"] == "gone"
        assert data["syncbrok.endpoint.disabled"]["endpoint"] == "test:a"
        assert (data["syncbrok.message.dead"]["id"], data["syncbrok.message.dead"]["status"]) == (id_text(dead), 410)
        await running.put(ChangeSubscriber(QueueName(queue), SubscriberId("a"), {"paused": False}, by="anna"))
        await eventually(lambda: kinds(running)[2:] == ["syncbrok.endpoint.enabled"], "it is told that it is enabled")
        assert [one["by"] for kind, _, one in told(running) if kind.startswith("syncbrok.endpoint.")] == [None, "anna"]
        consumer.answer = others(DOWN).answer
        await running.queue("q", QueueSettings())
        await running.subscribe("q", "b", breaker=ONCE)
        await running.publish("q", b"x")
        await eventually(lambda: kinds(running)[3:] == ["syncbrok.breaker.opened"], "it is told that it opened")
        await running.put(ChangeSubscriber(QueueName("q"), SubscriberId("b"), {"breaker": None}))
        await eventually(lambda: kinds(running)[4:] == ["syncbrok.breaker.closed"], "and that it closed")


async def test_nothing_is_told_about_the_events_themselves(tmp_path: Path) -> None:
    """INTERFACES 3: a subscriber of the events that fails, dies and is disabled is not told of, to nobody; the others
    get theirs."""
    consumer = Consumer(lambda delivery: GONE if delivery.to.subscriber.id != OPS else ACKNOWLEDGED)
    async with running_space(tmp_path, consumer) as running:
        await running.subscribe(EVENTS_QUEUE, OPS, types=("syncbrok.*",))
        await running.subscribe(EVENTS_QUEUE, "ill", breaker=ONCE)
        await running.queue("q", subscribers=["a"])
        await running.publish("q", b"x")
        await eventually(lambda: running.view.subscriber(EVENTS_QUEUE, "ill").state == "disabled", "ill is disabled")
        await eventually(lambda: len(told(running)) >= 3, "what befell the other is told")
        assert {source for _, source, _ in told(running)} == {"/queues/q/subscribers/a"}
        assert sorted(kinds(running)) == [
            "syncbrok.delivery.dead",
            "syncbrok.endpoint.disabled",
            "syncbrok.message.dead",
        ]


async def test_the_queue_comes_with_its_first_subscriber(tmp_path: Path) -> None:
    """INTERFACES 3: nobody makes it otherwise or publishes there; without subscribers nothing is kept."""
    async with running_space(tmp_path, others(GONE)) as running:
        await running.queue("q", subscribers=["a"])
        await running.ended(await running.publish("q", b"before anybody listens"))
        with pytest.raises(BadName):
            await running.put(DeclareQueue(EVENTS_QUEUE, QueueSettings()))
        await running.subscribe(EVENTS_QUEUE, OPS)
        await running.subscribe(EVENTS_QUEUE, "second")
        for fields in ({}, {"key": "k"}, {"idempotency_key": "k"}):
            with pytest.raises(Forbidden, match="only the broker publishes"):
                await running.publish(EVENTS_QUEUE, b"x", **fields)
        assert running.view.queue(EVENTS_QUEUE).accepted == 0
        for name in (OPS, "second"):
            await running.put(Unsubscribe(EVENTS_QUEUE, SubscriberId(name)))
        await running.put(ChangeSubscriber(QueueName("q"), SubscriberId("a"), {"paused": False}, by="anna"))
        await running.ended(await running.publish("q", b"nobody listens"))
        assert running.view.queue(EVENTS_QUEUE).accepted == 0
        await running.put(DeleteQueue(EVENTS_QUEUE))


async def test_deliveries_are_told_while_somebody_asks(tmp_path: Path) -> None:
    """INTERFACES 3: ``syncbrok.delivery.*`` only to whose ``types`` name them, everything else to the others; a message
    for one of them alone where not all want it."""
    async with running_space(tmp_path, others(ACKNOWLEDGED)) as running:
        await running.subscribe(EVENTS_QUEUE, OPS)
        await running.queue("q", subscribers=["a"])
        await running.ended(await running.publish("q", b"1"))
        assert running.view.queue(EVENTS_QUEUE).accepted == 0
        await running.subscribe(EVENTS_QUEUE, "all", types=("syncbrok.delivery.delivered",))
        id_ = await running.publish("q", b"2")
        await running.ended(id_)
        await eventually(lambda: kinds(running, "all") == ["syncbrok.delivery.delivered"], "the delivery is told")
        assert told(running, "all")[0][2]["id"] == id_text(id_)
        running.consumer.answer = others(REFUSED).answer
        await running.ended(await running.publish("q", b"3"))
        await eventually(lambda: kinds(running) == ["syncbrok.message.dead"], "a death is told to who asks for nothing")
        await running.put(ChangeSubscriber(EVENTS_QUEUE, SubscriberId("all"), {"types": None}))
        await running.ended(await running.publish("q", b"4"))
        await eventually(lambda: kinds(running, "all")[1:] == ["syncbrok.message.dead"], "and to both")
        with pytest.raises(BadSetting, match="only for subscribers of"):
            await running.put(ChangeSubscriber(QueueName("q"), SubscriberId("a"), {"types": ("syncbrok.*",)}))


def test_patterns_of_types() -> None:
    """INTERFACES 3: names of types, and beginnings of some with ``*``; nothing that would never come."""
    assert all(is_pattern(one) for one in (*EventType, "*", "syncbrok.*", "syncbrok.endpoint.*"))
    assert not any(is_pattern(one) for one in ("", "syncbrok", "syncbrok.endpoint", "other.*", "*.dead"))


def rotten(directory: Path) -> Path:
    """The first segment, in which a message has turned."""
    sealed = min(directory.glob("*.log"))
    flip(sealed, sealed.read_bytes().index(b"x" * 1_000) + 5)
    return sealed


async def test_damage_of_the_log_is_told(tmp_path: Path) -> None:
    """RULES 28 and 30: each damaged segment is told of once, and again where more of it is damaged."""
    async with running_space(tmp_path, others(ACKNOWLEDGED), segment_bytes=64 * KIB) as running:
        await running.queue("q")
        for _ in range(3):
            await running.publish_all("q", *[Message(b"x" * 1_000)] * 80)
        await running.publish("q", b"behind them")
    sealed = rotten(tmp_path)
    async with running_space(tmp_path, others(ACKNOWLEDGED), segment_bytes=64 * KIB) as running:
        await running.subscribe(EVENTS_QUEUE, OPS)
        running.space._journal.read_many(list(range(1, 60)))
        await eventually(lambda: kinds(running) == ["syncbrok.log.damaged"], "damage is told")
        (event,) = told(running)
        assert event[1] == "/log"
        assert (event[2]["segment"], event[2]["records"]) == (sealed.name, 1)


async def test_a_group_that_counts_no_more_is_told(tmp_path: Path) -> None:
    """RULES 3 and 30: whom nobody used for ``groups.idle_after`` stops counting, and that is told."""
    async with running_space(tmp_path, others(ACKNOWLEDGED)) as running:
        await running.subscribe(EVENTS_QUEUE, OPS)
        await running.queue("q")
        running.space.handle(CONSUMER_SCHEME, consumers_of(running.space))
        group = SubscriberSettings(PULL_ENDPOINT, name=SubscriberId("g"), declared=True)
        await running.put(Subscribe(QueueName("q"), group))
        number = running.view.subscriber_number("q", "g")
        step = partial(running.space._maintenance._declarations.unused, number)
        await running.space._committer.append(step)
        await eventually(lambda: kinds(running) == ["syncbrok.group.uncounted"], "it is told")
        assert told(running)[0][1] == "/queues/q/subscribers/g"


async def test_a_filter_that_fails_is_told_once_a_minute(tmp_path: Path) -> None:
    """RULES 31: of each subscriber one event, with the message; none of a filter that says no."""
    async with running_space(tmp_path, Consumer()) as running:
        await running.subscribe(EVENTS_QUEUE, OPS)
        await running.queue("q")
        await running.subscribe("q", "a", filter="data.total > 1")
        await running.subscribe("q", "b", filter="data.other > 1")
        await running.subscribe("q", "c", filter="false")
        ids = [id_text(await running.publish("q", b"{}")) for _ in range(3)]
        await eventually(lambda: len(told(running)) >= 2, "both are told")
        await running.subscribe("q", "d", filter="data.last > 1")
        await running.publish("q", b"{}")
        await eventually(lambda: len(told(running)) >= 3, "what comes behind all others is told")
        found = {source: (kind, data) for kind, source, data in told(running)}
        assert set(found) == {f"/queues/q/subscribers/{name}" for name in "abd"}
        assert len(told(running)) == 3
        kind, data = found["/queues/q/subscribers/a"]
        assert (kind, data["reason"], data["outcome"]) == ("syncbrok.filter.failed", "filter_error", "skipped")
        assert data["id"] in ids
        assert "detail" not in data, "it may quote content that is erased later"


def test_a_minute_is_counted_for_each_subscriber() -> None:
    """RULES 31: told again after a minute, and where the clock was set back; another subscriber has its own."""
    minutes = FilterMinutes()
    asked = [(1, 0), (1, 59_999_999), (2, 59_999_999), (1, 60_000_000), (1, 5)]
    assert [minutes.is_due(*one) for one in asked] == [True, False, True, True, True]


async def test_that_a_job_is_over_is_told(tmp_path: Path) -> None:
    """RULES 30 and 34, INTERFACES 3: how it ended, who asked for it and its figures; also of one that is cancelled."""
    async with running_space(tmp_path, others(REFUSED)) as running:
        await running.queue("q", QueueSettings(retry=RetryPolicy((), 0.0)), subscribers=["a"])
        await running.subscribe(EVENTS_QUEUE, OPS, types=("syncbrok.job.*",))
        await running.ended(await running.publish("q", b"dead"))
        wish = Recover(QueueName("q"), SubscriberId("a"), by="ann")
        failed = await running.put(wish)
        await eventually(lambda: len(told(running)) == 1, "the first is over")
        await running.put(ChangeSubscriber(QueueName("q"), SubscriberId("a"), {"paused": True}))
        cancelled = await running.put(wish)
        number = cancelled.job.number
        await eventually(lambda: running.view.job(number).total == 1, "all that it sends is planned")
        await running.put(CancelJob(cancelled.job.number, by="bob"))
        await eventually(lambda: len(told(running)) == 2, "so is the second")
        for (kind, source, data), planned in zip(told(running), (failed, cancelled), strict=True):
            assert (kind, source) == ("syncbrok.job.ended", f"/jobs/{job_id(planned.job.number)}")
            assert (data["id"], data["kind"], data["by"]) == (job_id(planned.job.number), "recover", "ann")
            assert (data["queue"], data["subscriber"], data["total"], data["done"]) == ("q", "a", 1, 0)
        states = [data["state"] for _, _, data in told(running)]
        assert states == ["done", "cancelled"]
        assert told(running)[0][2]["failed"] == 1
