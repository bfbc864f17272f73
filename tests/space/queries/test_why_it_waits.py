"""Why a message waits at a subscriber, in words that fit whoever it waits for: an endpoint that is posted to, or
consumers who come for their messages and may stay away."""

import pytest

from syncbrok.delivery.handler import AttemptResult
from syncbrok.model.facts import Reason
from syncbrok.model.message import Scope
from tests.support.delivery.factlog import BROKEN, OK
from tests.support.space.viewed_log import ViewedLog


@pytest.fixture
def log() -> ViewedLog:
    """Queue q1 with a group of consumers s1; queue q2, whose window is 1, with an endpoint s2."""
    log = ViewedLog()
    log.queue(1)
    log.queue(2, window=1)
    log.subscriber(1, 1, endpoint="consumer:s1")
    log.subscriber(2, 2)
    return log


async def why(log: ViewedLog, sequence: int) -> str:
    return (await log.view.message(log.id(sequence))).waits_for


async def test_nobody_is_there_to_take_it(log: ViewedLog) -> None:
    """RULES 9: a message for consumers of whom nobody is there waits for them, and for no turn of its own; neither does
    what hangs on it."""
    message = log.publish(1)
    child = log.publish(2, message)
    log.pump()
    assert await why(log, message) == "subscriber s1 does not take: none of its consumers is there"
    assert (await why(log, child)).endswith(
        "in queue q1, which subscriber s1 does not take: none of its consumers is there"
    )


async def test_those_who_are_there_ask_for_no_more(log: ViewedLog) -> None:
    """RULES 9: what is lent says so, and what is behind it says that nobody asks for more than that."""
    lent, behind = log.publish(1), log.publish(1)
    child = log.publish(2, lent)
    log.scheduler.offer(1, 1)
    assert [attempt.message for attempt in log.take()] == [lent]
    log.commit()
    assert await why(log, lent) == "subscriber s1 has not acknowledged yet: a consumer has it"
    assert (await why(log, child)).endswith(
        "in queue q1, which subscriber s1 has not acknowledged yet: a consumer has it"
    )
    assert (
        await why(log, behind) == "subscriber s1 does not take yet: its consumers ask for no more than the 1 they have"
    )
    log.scheduler.offer(1, 2)
    assert await why(log, behind) == "subscriber s1 has not taken yet: it waits for its turn there"


async def test_what_a_consumer_gave_back(log: ViewedLog) -> None:
    """RULES 9: a message that was refused, or not acknowledged in time, is lent again from a time on, and then only to
    somebody who asks."""
    log.scheduler.offer(1, 5)
    message = log.publish(1)
    log.pump(lambda _: AttemptResult(Reason.NACK))
    words = await why(log, message)
    assert words.startswith("subscriber s1 has given back once; it may be taken again from ")
    log.scheduler.offer(1, 0)
    log.later(2)
    log.pump()
    assert await why(log, message) == (
        "subscriber s1 has given back once and does not take: none of its consumers is there"
    )
    log.scheduler.offer(1, 5)
    log.take()
    assert await why(log, message) == (
        "subscriber s1 has given back once and has not acknowledged yet: a consumer has it"
    )


async def test_an_attempt_that_is_due_waits_for_its_turn(log: ViewedLog) -> None:
    """RULES 9: what has failed and is due again was tried before, and says how often; so does what is being tried."""
    first = log.publish(2)
    log.pump(lambda _: BROKEN)
    second = log.publish(2)
    log.take()
    log.later(2)
    log.take()
    assert await why(log, second) == ""
    assert (
        await why(log, first) == "subscriber s2 has failed once; its next attempt is due and waits for its turn there"
    )
    (attempt,) = log.out
    log.answer(attempt)
    log.commit()
    log.take()
    assert await why(log, first) == "subscriber s2 has failed once and is being tried now"


async def test_it_says_whom_the_scope_same_would_help(log: ViewedLog) -> None:
    """RULES 11: under ``all`` a child waits for each subscriber of its parent. Where one has had the parent, and would
    have the child without waiting for another one's endpoint, its reason to wait says so; in no other case."""
    log.queue(3)
    for number in (3, 4):
        log.subscriber(number, 3)
    parent, elsewhere = log.publish(3), log.publish(2)
    children = [log.publish(3, parent), log.publish(3, parent, elsewhere), log.publish(3, parent, scope=Scope.SAME)]
    hint = "with the scope same"
    assert not any([hint in await why(log, child) for child in children])
    log.pump(lambda attempt: OK if attempt.subscriber == 3 else BROKEN)
    assert log.scheduler.delivery_state(parent, 3) == "delivered"
    first, both, same = [await why(log, child) for child in children]
    assert "which subscriber s4 has failed once" in first
    assert first.endswith("; with the scope same it would already be on its way to subscriber s3")
    assert hint not in both, "a parent elsewhere is judged by all"
    assert hint not in same
