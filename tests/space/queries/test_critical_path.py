"""The chain of waits that made a message late, or makes it late."""

from typing import Any

import pytest

from syncbrok.delivery.handler import Attempt
from syncbrok.model.errors import Gone, UnknownMessage
from syncbrok.model.facts import Outcome, RearmedEntry, Reason
from syncbrok.model.message import RetryPolicy
from syncbrok.space.pause import pauses
from syncbrok.space.queries.critical_path import CriticalPath
from syncbrok.space.reports import CriticalPathReport
from tests.support.delivery.factlog import BROKEN, OK, SECOND
from tests.support.space.viewed_log import ViewedLog

PARTS = ("published_us", "scheduled_us", "queued_us", "attempts_us")


@pytest.fixture
def log() -> ViewedLog:
    """Two queues with two subscribers each, of which all is tried once more after ten seconds."""
    log = ViewedLog()
    log.retry = RetryPolicy((10.0,), 0.0)
    for queue in (1, 2):
        log.queue(queue)
        log.subscriber(2 * queue - 1, queue)
        log.subscriber(2 * queue, queue)
    return log


async def path_of(log: ViewedLog, message: int) -> CriticalPathReport:
    """The path, which is whole: its parts are the time from its beginning to its end."""
    path = await log.view.critical_path(log.id(message))
    assert sum(step.own_us for step in path.steps) == path.took_us == (path.ended_us or log.now_us) - path.began_us
    return path


def seconds(step: Any) -> dict[str, int]:
    """The parts of a step that took any time."""
    return {part.removesuffix("_us"): round(getattr(step, part) / SECOND) for part in PARTS if getattr(step, part)}


async def test_the_parent_that_ended_last_is_to_blame(log: ViewedLog) -> None:
    """And of that one the subscriber that took longest, with its attempts; who was quick is passed by."""
    quick, slow = log.publish(1), log.publish(2)
    child = log.publish(1, quick, slow)
    log.pump(lambda attempt: BROKEN if attempt.subscriber == 4 else OK)
    log.later(10)
    log.pump()
    log.later(1)

    path = await path_of(log, child)

    assert [step.sequence for step in path.steps] == [slow, child]
    late, last = path.steps
    assert (late.queue, late.subscriber, late.endpoint, late.attempts) == ("q2", "s4", "http://s4/", 3)
    assert seconds(late) == {"attempts": 10}
    assert (last.subscriber, last.waited_us // SECOND, seconds(last)) == ("s1", 10, {})
    assert late.state == last.state == "complete"


async def test_each_kind_of_wait_has_its_name(log: ViewedLog) -> None:
    """Published late, scheduled for later, queued at a subscriber that is paused, and tried."""
    first = log.publish(1)
    log.pump()
    log.later(5)
    second = log.publish(1, first, delay_s=7)
    log.later(7)
    log.change(1, paused=True)
    log.change(2, paused=True)
    log.pump()
    log.later(3)
    log.change(1, paused=False)
    log.change(2, paused=False)
    out = log.take()
    log.later(2)
    for attempt in out:
        log.answer(attempt)
    log.commit()

    path = await path_of(log, second)

    assert seconds(path.steps[1]) == {"published": 5, "scheduled": 7, "queued": 3, "attempts": 2}


async def test_what_has_not_ended_is_blamed_on_whom_it_waits_for(log: ViewedLog) -> None:
    """Up to now: through the parent that has not ended, though another ended; at the subscriber that has not."""
    done = log.publish(1)
    log.pump()
    log.change(4, paused=True)
    stuck = log.publish(2)
    child = log.publish(1, done, stuck)
    log.pump()
    log.later(30)

    path = await path_of(log, child)

    assert path.ended_us == 0
    assert [(step.sequence, step.state, step.subscriber) for step in path.steps] == [
        (stuck, "pending", "s4"),
        (child, "waiting", "s1"),
    ]
    assert round(path.steps[0].own_us / SECOND) == 30
    assert path.steps[1].own_us == 0


async def test_a_message_by_itself_is_a_path_of_one(log: ViewedLog) -> None:
    """Also one that nobody gets: it was complete at once."""
    log.queue(3)
    alone = log.publish(3)
    child = log.publish(3, alone)
    for message, steps in ((alone, [alone]), (child, [alone, child])):
        path = await path_of(log, message)
        assert [step.sequence for step in path.steps] == steps
        assert path.took_us == 0
        assert path.steps[-1].subscriber is None


async def test_whoever_is_gone_ended_what_waited_for_it(log: ViewedLog) -> None:
    """RULES 14: an unsubscription ends a delivery well, at its own time; what was tried before is told all the same."""
    log.change(1, paused=True)
    parent = log.publish(1)
    child = log.publish(2, parent)
    log.pump()
    log.later(20)
    log.unsubscribe(1)
    log.pump()
    path = await path_of(log, child)
    assert [(step.sequence, round(step.own_us / SECOND)) for step in path.steps] == [(parent, 20), (child, 0)]
    assert path.steps[0].subscriber == "s1"


async def test_a_dead_parent_ended_when_a_replay_mended_it(log: ViewedLog) -> None:
    """RULES 10, 21: it keeps its children until it is complete."""
    log.retry = RetryPolicy((), 0.0)
    log.queue(1)
    parent = log.publish(1)

    def once(attempt: Attempt) -> Any:
        return BROKEN if attempt.subscriber == 1 and not attempt.replay else OK

    log.pump(once)
    assert log.view.message_state(parent) == "dead"
    bad = await path_of(log, parent)
    assert (bad.steps[0].subscriber, bad.took_us) == ("s1", 0)
    log.later(40)
    log.rearm(1, RearmedEntry(parent, 1, (1,), (), (1,)))
    log.pump(once)
    path = await path_of(log, parent)
    assert (path.steps[0].state, round(path.took_us / SECOND)) == ("complete", 40)


async def test_an_operator_ends_it_for_all(log: ViewedLog) -> None:
    """A cancel is one row for everybody."""
    log.change(1, paused=True)
    message = log.publish(1)
    log.pump()
    log.later(4)
    log.end_all(message, Outcome.DROPPED, Reason.CANCELLED)
    path = await path_of(log, message)
    assert (path.steps[0].state, round(path.took_us / SECOND)) == ("dropped", 4)
    assert path.steps[0].subscriber == "s1"


async def test_what_retention_has_dropped_is_where_it_begins(log: ViewedLog) -> None:
    """The path goes as far back as the log."""
    parent = log.publish(1)
    child = log.publish(1, parent)
    log.pump()
    log.journal.trim_through(parent)
    path = await log.view.critical_path(log.id(child))
    assert [step.sequence for step in path.steps] == [child]
    assert not path.truncated
    with pytest.raises(Gone):
        await log.view.critical_path(log.id(parent))
    with pytest.raises(UnknownMessage):
        await log.view.critical_path(b"\xff" * 16)  # type: ignore[arg-type]


async def test_only_what_lies_on_the_way_is_read(log: ViewedLog) -> None:
    """A chain among thousands, many generations with each look at the log; and it ends somewhere."""
    chain = [log.publish(1)]
    for _ in range(300):
        log.publish(2)
        chain.append(log.publish(1, chain[-1]))
    log.pump()
    log.journal.reads = 0
    path = await path_of(log, chain[-1])
    assert [step.sequence for step in path.steps] == chain
    assert log.journal.reads == len(chain) + 1
    (last,) = log.journal.read_many(chain[-1:])
    assert last is not None
    cut = await CriticalPath(log.view._sources, 100).find(last, log.now_us, pauses())
    assert cut.truncated
    assert [step.sequence for step in cut.steps] == chain[-len(cut.steps) :]
    assert 100 <= len(cut.steps) < 300
