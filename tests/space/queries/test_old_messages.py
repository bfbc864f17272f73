"""A message as people read it when it ended long ago: the scheduler has forgotten it, the log has not."""

import pytest

from syncbrok.model.facts import Outcome, RearmedEntry, Reason
from tests.support.delivery.factlog import BROKEN, OK
from tests.support.space.viewed_log import ViewedLog

FORGOTTEN_AFTER = 10_000
"""facts after which nothing in memory tells of a message that has ended"""


@pytest.fixture
def log() -> ViewedLog:
    """Queue q1 with subscribers s1 and s2, queue q2 with s3."""
    log = ViewedLog()
    log.queue(1)
    log.queue(2)
    log.subscriber(1, 1)
    log.subscriber(2, 1)
    log.subscriber(3, 2)
    return log


def forget(log: ViewedLog) -> None:
    """So much happens elsewhere that the scheduler holds nothing more of what has ended."""
    for _ in range(FORGOTTEN_AFTER // 2):
        log.publish(2)
    log.pump(lambda _: OK)
    log.publish(2)
    log.pump(lambda _: OK)


async def told(log: ViewedLog, sequence: int) -> list[tuple[str, str, bool, int]]:
    report = await log.view.message(log.id(sequence))
    return [(one.subscriber, one.state, one.counted, len(one.attempts)) for one in report.deliveries]


async def test_what_ended_long_ago_is_told_as_on_the_first_day(log: ViewedLog) -> None:
    """RULES 3, 9: who is counted stands in the log and does not change: a message that ended thousands of facts ago
    lists the same deliveries, counted, as when it ended; in a list of messages too."""
    early = log.publish(1)
    log.pump(lambda _: OK)
    log.subscriber(4, 1)
    test = log.publish(1, only=2)
    log.pump(lambda _: OK)
    dropped = log.publish(1)
    log.end_all(dropped, Outcome.DROPPED, Reason.CANCELLED)
    before = [await told(log, one) for one in (early, test, dropped)]
    assert before[0] == [("s1", "delivered", True, 1), ("s2", "delivered", True, 1)]
    assert before[1] == [("s2", "delivered", True, 1)]
    forget(log)
    assert [await told(log, one) for one in (early, test, dropped)] == before
    page = await log.view.messages("q1", 0, 10, None)
    assert [[(one.subscriber, one.state, one.counted) for one in report.deliveries] for report in page.items] == [
        [each[:3] for each in one] for one in before
    ]


async def test_why_an_old_message_waits_that_is_sent_again(log: ViewedLog) -> None:
    """RULES 21: of a message in a replay, however old, the answer names the subscriber that keeps it waiting; so does
    that of a child that waits for it there."""
    old = log.publish(1)
    child = log.publish(1, old)
    log.pump(lambda _: OK)
    forget(log)
    log.rearm(1, RearmedEntry(old, 1, (1,), (), (1,)), RearmedEntry(child, 1, (1,), (old,), (1,)))
    log.pump(lambda _: BROKEN)
    assert (await log.view.message(log.id(old))).waits_for.startswith("subscriber s1 has failed once; ")
    assert "which subscriber s1 has failed once; " in (await log.view.message(log.id(child))).waits_for
