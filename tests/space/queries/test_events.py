"""The stream of what happens: every durable fact, in order, from wherever a listener left off."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import pytest

from syncbrok.delivery.handler import AttemptResult
from syncbrok.log.format.records import Gap
from syncbrok.model import limits
from syncbrok.model.errors import Draining, Overloaded, UnknownQueue
from syncbrok.model.facts import ALL_SUBSCRIBERS, Outcome, Outcomes, QueueDeleted, RearmedEntry, Reason, Row
from syncbrok.space.reports import Event
from tests.support.delivery.factlog import BROKEN, OK
from tests.support.space.viewed_log import ViewedLog

GONE = AttemptResult(Reason.GONE, 410)


@pytest.fixture
def log() -> ViewedLog:
    """Queues q1 (subscribers s1, s2) and q2 (s3)."""
    log = ViewedLog()
    log.queue(1)
    log.queue(2)
    log.subscriber(1, 1)
    log.subscriber(2, 1)
    log.subscriber(3, 2)
    return log


async def told(batches: AsyncGenerator[tuple[Event, ...], None], last_kind: str = "queue_deleted") -> list[Event]:
    """Events up to the one of ``last_kind``, which marks the end of a test's story."""
    events: list[Event] = []
    async with asyncio.timeout(10):
        async for batch in batches:
            events += batch
            if batch[-1].kind == last_kind:
                return events
    return events


def end(log: ViewedLog, queue: int = 99) -> None:
    log.add(lambda sequence, now: QueueDeleted(sequence, now, queue))


async def live(log: ViewedLog, act: Callable[[], object], queue: str | None = None) -> list[Event]:
    """What a listener is told of what ``act`` does."""
    with log.view.listen(queue, None) as listener:
        act()
        end(log, 1 if queue else 99)
        async with aclosing(listener.batches()) as batches:
            return (await told(batches))[:-1]


async def resumed(
    log: ViewedLog, after: int, queue: str | None = None, last_kind: str = "queue_deleted"
) -> list[Event]:
    """What a listener is told that comes back with the id of the last event it had."""
    with log.view.listen(queue, after) as listener:
        async with aclosing(listener.batches()) as batches:
            return [event for event in await told(batches, last_kind) if event.kind != last_kind]


def deliver_and_fail(log: ViewedLog) -> Callable[[], None]:
    def act() -> None:
        parent = log.publish(1)
        log.publish(2, parent)
        log.pump(lambda a: GONE if a.subscriber == 3 else OK)

    return act


async def test_everything_that_happens_is_told(log: ViewedLog) -> None:
    """Published, delivered, complete, dead: each with its message, queue, subscriber and attempt, in log order."""
    events = await live(log, deliver_and_fail(log))
    parent, child = (log.id(sequence) for sequence in log.ids)
    assert [(e.kind, e.queue, e.message, e.subscriber, e.attempt, e.reason) for e in events] == [
        ("published", "q1", parent, "", 0, ""),
        ("published", "q2", child, "", 0, ""),
        ("delivered", "q1", parent, "s1", 1, ""),
        ("delivered", "q1", parent, "s2", 1, ""),
        ("complete", "q1", parent, "", 0, ""),
        ("dead", "q2", child, "s3", 1, "gone"),
    ]
    assert events[1].parents == (parent,)
    assert [e.id for e in events] == sorted(e.id for e in events)


async def test_a_failure_says_when_it_is_tried_again(log: ViewedLog) -> None:
    """``failed`` carries status, reason and the time of the next attempt."""

    def act() -> None:
        log.publish(2)
        log.pump(lambda _: BROKEN)

    failed = (await live(log, act))[-1]
    assert (failed.kind, failed.status, failed.reason) == ("failed", 500, "status")
    assert failed.due_us == log.now_us + 1_000_000


async def test_declarations_and_replays_are_told(log: ViewedLog) -> None:
    """Queues and subscribers set and deleted, replays, and gaps of a salvaged log."""
    message = log.publish(1)
    log.pump()

    def act() -> None:
        log.queue(3)
        log.subscriber(4, 3)
        log.unsubscribe(4)
        log.rearm(1, RearmedEntry(message, 1, (1,), ()))
        log.add(lambda sequence, now: Gap(sequence, now, 3, 5, "a bad sector"))

    assert [(e.kind, e.queue, e.subscriber, e.message, e.count) for e in await live(log, act)] == [
        ("queue", "q3", "", None, 0),
        ("subscriber", "q3", "s4", None, 0),
        ("subscriber_deleted", "q3", "s4", None, 0),
        ("replayed", "q1", "", log.id(message), 1),
        ("gap", "", "", None, 0),
    ]


async def test_one_queue_alone_can_be_listened_to(log: ViewedLog) -> None:
    """``?queue=`` tells nothing of other queues, rows for all subscribers included; an unknown one is an error."""

    def act() -> None:
        parent = log.publish(2)
        log.publish(2, parent)
        log.publish(1)
        log.pump(lambda a: GONE if a.subscriber == 3 else OK)

    assert {(e.kind, e.queue) for e in await live(log, act, "q1")} == {
        ("published", "q1"),
        ("delivered", "q1"),
        ("complete", "q1"),
    }
    log.unsubscribe(3)
    missed = await resumed(log, 5, "q2", "subscriber_deleted")
    assert [(e.kind, e.queue) for e in missed] == [
        ("published", "q2"),
        ("published", "q2"),
        ("dead", "q2"),
        ("dead", "q2"),
    ]
    with pytest.raises(UnknownQueue):
        log.view.listen("q9", None)


async def test_who_comes_back_gets_what_it_missed(log: ViewedLog) -> None:
    """``Last-Event-ID`` from any point: exactly the rest of the story that a listener who stayed was told."""
    stayed = await live(log, lambda: [deliver_and_fail(log)() for _ in range(20)])
    for after in range(stayed[0].id - 1, stayed[-1].id):
        assert await resumed(log, after) == [event for event in stayed if event.id > after]


async def test_nothing_is_told_twice_between_log_and_life(log: ViewedLog) -> None:
    """What happens while the log is being read for a listener reaches it once, and complete once."""
    message = log.publish(1)
    first, second = log.take()
    log.answer(first)
    log.commit()
    with log.view.listen(None, 0) as listener:
        async with aclosing(listener.batches()) as batches:
            log.answer(second)  # completes it, live
            log.commit()
            end(log)
            events = await told(batches)
    mine = [(e.kind, e.subscriber) for e in events if e.message == log.id(message)]
    assert mine == [("published", ""), ("delivered", "s1"), ("delivered", "s2"), ("complete", "")]


async def test_what_is_durable_and_not_yet_applied_is_told_once(log: ViewedLog) -> None:
    """After a start nothing has been applied live yet: where a listener comes between the fsync of the first batch and
    its application, the batch reaches it from the log, and not again."""
    message = log.publish(1)
    fact = log.facts[-1]
    log.view._events._applied = 0
    with log.view.listen(None, message - 1) as listener:
        log.view.apply_all((fact,))
        end(log)
        async with aclosing(listener.batches()) as batches:
            assert [e.kind for e in await told(batches)] == ["published", "queue_deleted"]


async def test_what_a_newcomer_catches_up_on_completes_nothing(log: ViewedLog) -> None:
    """A subscriber that starts in the past is uncounted there (RULES 14): no second completion is told."""
    message = log.publish(2)
    log.pump()
    log.subscriber(9, 2, start=1)

    def act() -> None:
        row = Row(message, 9, 1, Outcome.DELIVERED, Reason.NONE, 200, log.now_us, 0, 0, 0)
        log.add(lambda sequence, now: Outcomes(sequence, now, (row,)))

    assert [e.kind for e in await live(log, act)] == ["delivered"]


async def test_a_queue_without_subscribers_completes_at_once(log: ViewedLog) -> None:
    """RULES 17, seen from outside."""
    log.queue(5)
    assert [e.kind for e in await live(log, lambda: log.publish(5))] == ["published", "complete"]


async def test_a_slow_listener_is_cut_off(log: ViewedLog) -> None:
    """Who does not read costs a bounded buffer; what was in it is told, then that it was cut, then nothing. It comes
    back with the id of its last event and has lost nothing."""
    with log.view.listen(None, None) as listener:
        for _ in range(limits.listener_events_max + 10):
            log.publish(1)
        async with aclosing(listener.batches()) as batches:
            events = await told(batches, "cut")
            assert await anext(batches, None) is None
    assert len(events) == limits.listener_events_max + 1
    assert events[-1].id == events[-2].id
    end(log)
    rest = await resumed(log, events[-1].id)
    assert len(rest) == 10
    assert rest[0].id == events[-1].id + 1


async def test_a_full_buffer_holds_no_contents(log: ViewedLog) -> None:
    """Contents of messages do not wait in the buffers of listeners."""
    with log.view.listen(None, None) as listener:
        log.fields = {"content": b"x" * 1_000_000}
        log.publish(1)
        assert [happened.fact.content for happened in listener._facts] == [b""]


async def test_too_much_missed_is_a_gap(log: ViewedLog) -> None:
    """More than ``limits.events_missed_max`` events are not read back: the newest come, and a gap says so first."""
    for _ in range(limits.events_missed_max + 500):
        log.publish(1)
    end(log)
    events = await resumed(log, 0)
    assert events[0].kind == "gap"
    assert events[1].id == events[0].id + 1
    assert len(events) == limits.events_missed_max
    assert events[-1].id == log.durable - 1


async def test_a_rate_is_kept(log: ViewedLog) -> None:
    """``rate`` bounds the events of a second; how many were left out is told."""
    with log.view.listen(None, None, 10) as listener:
        for _ in range(100):
            log.publish(1)
        log.now_us += 1_000_000
        end(log)
        async with aclosing(listener.batches()) as batches:
            events = await told(batches, "thinned")
    assert [e.kind for e in events] == ["published"] * 10 + ["queue_deleted", "thinned"]
    assert events[-1].count == 90


async def test_a_rate_is_kept_within_a_large_record(log: ViewedLog) -> None:
    """A record of many outcomes does not break through the rate: its first events are told, the others counted."""
    messages = [log.publish(2) for _ in range(500)]
    with log.view.listen(None, None, 10) as listener:
        log.pump()
        assert sum(len(happened.fact.rows) for happened in listener._facts) == 10
        log.now_us += 1_000_000
        end(log)
        async with aclosing(listener.batches()) as batches:
            events = await told(batches, "thinned")
    delivered = [e for e in events if e.kind == "delivered"]
    assert [e.message for e in delivered] == [log.id(message) for message in messages[:10]]
    assert events[-1].count == 490


async def test_listeners_are_bounded_and_end_with_the_broker(log: ViewedLog) -> None:
    """One more than ``limits.listeners_max`` is refused; all streams end when the broker stops."""
    listeners = [log.view.listen(None, None) for _ in range(limits.listeners_max)]
    for listener in listeners:
        listener.__enter__()
    with pytest.raises(Overloaded):
        log.view.listen(None, None)
    ends = asyncio.gather(*(told(listener.batches()) for listener in listeners))
    await asyncio.sleep(0)
    log.view.close()
    assert all(events == [] for events in await ends)
    for listener in listeners:
        listener.__exit__(None, None, None)
    assert log.view.statistics().listeners == 0
    with pytest.raises(Draining):
        log.view.listen(None, None)


async def test_events_come_one_by_one_too(log: ViewedLog) -> None:
    """The plain iterator of the view, for whoever wants no batches; left early, it listens no more."""
    log.publish(1)
    events = log.view.events("q1", 0)
    kinds = []
    async for event in events:
        kinds.append(event.kind)
        if event.kind == "published":
            break
    await events.aclose()  # type: ignore[attr-defined]
    assert kinds == ["queue", "subscriber", "subscriber", "published"]
    assert log.view.statistics().listeners == 0


async def test_a_message_ended_everywhere_is_one_event(log: ViewedLog) -> None:
    """A row for all subscribers is told once, for no subscriber by name."""
    message = log.publish(1)

    def act() -> None:
        row = Row(message, ALL_SUBSCRIBERS, 0, Outcome.EXPIRED, Reason.EXPIRED, 0, log.now_us, 0, 0, 0)
        log.add(lambda sequence, now: Outcomes(sequence, now, (row,)))

    events = await live(log, act)
    assert [(e.kind, e.subscriber, e.reason) for e in events] == [("expired", "", "expired")]


async def test_a_breaker_that_turns_is_told_live(log: ViewedLog) -> None:
    """RULES 29: an open and a closed breaker are told, with queue and subscriber, and of what where it is an origin's;
    to who listens to that queue or to all, also right after it has come. The log does not know of them."""

    def turns() -> None:
        log.view.turned(1, opened=True, origin="")
        log.view.turned(3, opened=True, origin="http://h:80")
        log.view.turned(1, opened=False, origin="")
        log.view.turned(99, opened=True, origin="")  # gone meanwhile

    told_of = [("breaker_opened", "q1", "s1", ""), ("breaker_opened", "q2", "s3", "http://h:80"),
               ("breaker_closed", "q1", "s1", "")]  # fmt: skip
    events = await live(log, turns)
    assert [(one.kind, one.queue, one.subscriber, one.text) for one in events] == told_of
    assert [one.kind for one in await live(log, turns, "q1")] == ["breaker_opened", "breaker_closed"]
