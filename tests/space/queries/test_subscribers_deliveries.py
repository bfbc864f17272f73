"""What became of the messages of a queue at one subscriber (``GET .../deliveries``)."""

import pytest

from syncbrok.model.errors import UnknownSubscriber
from syncbrok.model.facts import Outcome, Reason
from syncbrok.space.queries.deliveries import SoughtDeliveries
from tests.support.delivery.factlog import BROKEN, OK
from tests.support.space.viewed_log import ViewedLog, log_of_two_queues


async def told(log: ViewedLog, subscriber: int = 1, **asked: object) -> list[tuple[int, str, int]]:
    """(sequence, state, number of the last attempt) of each."""
    sought = SoughtDeliveries("q1", f"s{subscriber}", **asked)  # type: ignore[arg-type]
    page = await log.view.deliveries(sought, 100)
    return [
        (one.sequence, one.report.state, max((row.attempt for row in one.report.attempts), default=0))
        for one in page.items
    ]


@pytest.fixture
def log() -> ViewedLog:
    return log_of_two_queues()


async def test_each_message_of_its_queue_says_how_it_stands_there(log: ViewedLog) -> None:
    """In the order accepted, of nobody else: delivered, retrying, blocked, cancelled, for another one."""
    log.subscriber(2, 1)
    first, second = log.publish(1), log.publish(1)
    log.publish(2)
    log.pump(lambda attempt: BROKEN if attempt.message == second and attempt.subscriber == 1 else OK)
    blocked, cancelled, test = log.publish(1, second), log.publish(1), log.publish(1, only=2)
    log.end_all(cancelled, Outcome.DROPPED, Reason.CANCELLED)
    assert await told(log) == [
        (first, "delivered", 1),
        (second, "retrying", 1),
        (blocked, "blocked", 0),
        (cancelled, "dropped", 0),
    ]
    assert (test, "pending", 0) in await told(log, 2)
    log.later(10)
    log.pump(lambda _: BROKEN)
    assert (second, "dead", 2) in await told(log)


async def test_a_page_is_bounded_and_goes_on(log: ViewedLog) -> None:
    """``after`` and ``through`` cut a range, which is what a gap is; with ``state`` a page may be empty and go on."""
    made = [log.publish(1) for _ in range(10)]
    log.pump(lambda attempt: BROKEN if attempt.message == made[7] else OK)
    assert [one for one, _, _ in await told(log, after=made[2], through=made[5])] == made[3:6]
    seen, after, pages = [], 0, 0
    while True:
        page = await log.view.deliveries(SoughtDeliveries("q1", "s1", after, state="retrying"), 3)
        seen += [one.sequence for one in page.items]
        pages += 1
        if page.next is None:
            break
        after = page.next
    assert (seen, pages) == ([made[7]], 4)
    whole = await log.view.deliveries(SoughtDeliveries("q1", "s1", through=made[9]), 10)
    assert (len(whole.items), whole.next) == (10, None)


async def test_who_does_not_count_or_came_late_is_told_what_is_for_it(log: ViewedLog) -> None:
    """RULES 14: from where it starts; what it has not been told of yet is pending there."""
    before = log.publish(1)
    log.pump()
    log.subscriber(2, 1, counts=False, start=1)
    log.subscriber(3, 1)
    new = log.publish(1)
    assert [one for one, _, _ in await told(log, 2)] == [before, new]
    assert [one for one, _, _ in await told(log, 3)] == [new]
    log.feed()
    log.pump()
    assert await told(log, 2) == [(before, "delivered", 1), (new, "delivered", 1)]
    with pytest.raises(UnknownSubscriber):
        await told(log, 9)
