"""Queues, subscribers, dead letters, waiting publishers and the figures of ``/metrics``."""

import asyncio
import threading
from typing import NamedTuple

import pytest

from syncbrok.delivery.handler import AttemptResult
from syncbrok.model import limits
from syncbrok.model.errors import Overloaded, UnknownMessage, UnknownQueue, UnknownSubscriber
from syncbrok.model.facts import QueueSet, Reason
from syncbrok.model.message import QueueSettings
from syncbrok.model.names import QueueName, make_message_id
from syncbrok.space.budgets import Budgets
from syncbrok.space.meters import Durations
from tests.support.delivery.factlog import BROKEN, OK
from tests.support.polling import eventually
from tests.support.space.viewed_log import ViewedLog

GONE = AttemptResult(Reason.GONE, 410, detail=b"no more")


@pytest.fixture
def log() -> ViewedLog:
    """Queue q1 with subscribers s1 and s2."""
    log = ViewedLog()
    log.queue(1)
    log.subscriber(1, 1)
    log.subscriber(2, 1)
    return log


class OneSection(NamedTuple):
    """A section of the log."""

    first: int
    last: int
    first_time_us: int
    last_time_us: int


def declare(log: ViewedLog, *names: str) -> None:
    for number, name in enumerate(names, start=100):
        log.add(lambda s, now, n=number, q=name: QueueSet(s, now, n, QueueName(q), QueueSettings()))  # type: ignore[misc]


async def test_queues_come_sorted_in_pages(log: ViewedLog) -> None:
    """Every queue once, by name, until ``next`` is None."""
    declare(log, "zebra", "ant", "mole")
    assert [q.name for q in log.view.queues(None, 10)[0]] == ["ant", "mole", "q1", "zebra"]
    first, after = log.view.queues(None, 2)
    second, end = log.view.queues(after, 2)
    assert ([q.name for q in first], [q.name for q in second], end) == (["ant", "mole"], ["q1", "zebra"], None)
    assert log.view.queues("zebra", 5) == ([], None)


async def test_a_queue_tells_what_is_in_it(log: ViewedLog) -> None:
    """Waiting, the oldest of them by id, dead letters, and what has been done since the start."""
    done, dead, stuck = (log.publish(1) for _ in range(3))
    log.pump(lambda a: {done: OK, dead: GONE, stuck: BROKEN}[a.message])

    report = log.view.queue("q1")

    assert (report.subscribers, report.waiting, report.dead_letters) == (2, 1, 2)
    assert (report.oldest_waiting, report.last_sequence) == (stuck, stuck)
    assert await log.view.oldest_waiting([report]) == {"q1": log.id(stuck)}
    assert (report.accepted, report.delivered, report.failed, report.dead) == (3, 2, 4, 2)
    with pytest.raises(UnknownQueue):
        log.view.queue("q9")


async def test_a_list_of_queues_reads_few_messages_from_the_disk(log: ViewedLog) -> None:
    """The loop is not held up by a list: what memory cannot name is read for a bounded number of queues, once."""
    for number in range(10, 40):
        log.queue(number)
        log.subscriber(number, number)
        log.publish(number)
    queues = log.view.queues(None, 100)[0]
    first = await log.view.oldest_waiting(queues)
    assert log.journal.reads == 16
    assert len(first) == 16
    waiting = [report.name for report in queues if report.waiting]
    assert [*(await log.view.oldest_waiting(queues))] == waiting


async def test_the_age_of_what_was_there_before_is_read_bit_by_bit(log: ViewedLog) -> None:
    """INTERFACES 3, ``syncbrok_queue_oldest_age_seconds``: of what came before the start a bounded number is read for
    one scrape, each once, and the others are told about; what has come since is not read at all."""
    accepted_us = {}
    for number in range(10, 110):
        log.queue(number)
        log.subscriber(number, number)
        log.now_us += 1_000_000 * number
        log.publish(number)
        accepted_us[f"q{number}"] = log.now_us
    times = log.meters.latencies.accepted_at
    times.begin([OneSection(1, len(log.facts), log.facts[0].time_us, log.now_us)])
    queues = log.view.queues(None, 1_000)[0]

    first = await log.view.oldest_us(queues)
    assert log.journal.reads == 64
    assert {*first} == {*accepted_us}
    assert len([name for name, time_us in first.items() if accepted_us[name] == time_us]) >= 64
    assert await log.view.oldest_us(queues) == accepted_us
    assert await log.view.oldest_us(queues) == accepted_us
    assert log.journal.reads == 100

    log.now_us += 5_000_000
    times.note(log.publish(1), log.now_us)
    assert await log.view.oldest_us([log.view.queue("q1")]) == {"q1": log.now_us}
    assert log.journal.reads == 100


async def test_a_scrape_does_not_wait_for_a_disk_that_hangs(log: ViewedLog) -> None:
    """INTERFACES 3, ``/metrics``: it is how an operator hears of the disk, so it is answered without, about."""
    sequence, hangs = log.publish(1), threading.Event()
    log.meters.latencies.accepted_at.begin([OneSection(1, sequence, 7, 7)])
    real = log.journal.read_many
    log.journal.read_many = lambda *given: (hangs.wait(9), real(*given))[1]  # type: ignore[method-assign]
    async with asyncio.timeout(5):
        assert await log.view.oldest_us([log.view.queue("q1")]) == {"q1": 7}
    hangs.set()
    assert await log.view.oldest_us([log.view.queue("q1")]) == {"q1": log.now_us}


async def test_figures_ask_the_journal_for_nothing_that_may_block(log: ViewedLog) -> None:
    """Port, MessageIndex: all but what is cached may block, for 300 ms and more where a network lies between. A list of
    queues, one queue and the figures of ``/metrics`` ask for none of that on the event loop; ids are read beside it."""
    loop, asked = threading.get_ident(), set[int]()
    for name in ("read_many", "lost", "kind_of", "place_of", "rows_of", "queue_sequences", "facts"):
        real = getattr(log.journal, name)
        setattr(log.journal, name, lambda *given, real=real: (asked.add(threading.get_ident()), real(*given))[1])
    log.publish(1)
    log.take()
    (report,) = log.view.queues(None, 9)[0]
    assert log.view.queue("q1") == report == log.view.statistics().queues[0]
    assert not asked
    assert await log.view.oldest_waiting([report]) == {"q1": log.id(report.oldest_waiting)}
    assert asked - {loop}
    assert loop not in asked


async def test_a_subscriber_tells_how_it_does(log: ViewedLog) -> None:
    """Health: what it has in hand, what it answered last, since when it fails."""
    log.publish(1)
    log.pump(lambda a: OK if a.subscriber == 1 else BROKEN)
    log.publish(1)
    log.take()
    well, ill = log.view.subscribers("q1", None, 10)[0]
    assert (well.id, well.state, well.delivered, well.in_flight, well.failing_since_us) == ("s1", "active", 1, 1, 0)
    assert (ill.failed, ill.retrying, ill.last_status, ill.last_reason) == (1, 1, 500, "status")
    assert ill.failing_since_us == log.now_us
    log.subscriber(1, 1, paused=True)
    log.subscriber(2, 1, disabled_us=log.now_us)
    assert [s.state for s in log.view.subscribers("q1", None, 10)[0]] == ["paused", "disabled"]
    assert log.view.subscribers("q1", "s1", 10)[0][0] == log.view.subscriber("q1", "s2")
    with pytest.raises(UnknownSubscriber):
        log.view.subscriber("q1", "s9")


async def test_a_budget_tells_how_many_hold_some_of_it(log: ViewedLog) -> None:
    """``syncbrok_budget_owners``, whoever counts: a budget of its own (bytes, descriptors), or a subscriber's cursor,
    which knows what of attempts and of leases it holds."""
    budgets = Budgets.of(4_096)
    budgets.receiving.take("somebody", 7)
    log.meters.budgets = budgets.all
    log.subscriber(3, 1, endpoint="consumer:group")
    log.scheduler.offer(3, 10)

    def owners() -> dict[str, int]:
        return {one.name: one.owners for one in log.view.statistics().budgets if one.owners}

    assert owners() == {"receiving": 1}
    log.publish(1)
    log.take()
    assert owners() == {"receiving": 1, "attempts": 2, "leases": 1}


async def test_dead_letters_of_all_subscribers_in_the_order_of_the_log(log: ViewedLog) -> None:
    """One list for the queue, merged over subscribers, cascades expanded (RULES 20), each with its last attempt."""
    one = log.publish(1)
    two = log.publish(1)
    child = log.publish(1, one)
    log.pump(lambda a: OK if (a.message, a.subscriber) == (two, 1) else GONE)

    page = await log.view.dead_letters("q1", 0, 100)

    assert [(d.sequence, d.subscriber, d.reason, d.status, d.attempts, d.detail) for d in page.items] == [
        (one, "s1", "gone", 410, 1, b"no more"),
        (one, "s2", "gone", 410, 1, b"no more"),
        (two, "s2", "gone", 410, 1, b"no more"),
        (child, "s1", "parent_failed", 0, 0, b""),
        (child, "s2", "parent_failed", 0, 0, b""),
    ]
    assert page.next is None
    assert page.items[0].id == log.id(one)
    assert page.items[3].time_us == log.now_us


async def test_dead_letters_come_in_pages_of_whole_messages(log: ViewedLog) -> None:
    """No letter is lost or told twice between two pages."""
    published = [log.publish(1) for _ in range(5)]
    log.pump(lambda _: GONE)
    found: list[tuple[int, str]] = []
    after: int | None = 0
    while after is not None:
        page = await log.view.dead_letters("q1", after, 3)
        found += [(letter.sequence, letter.subscriber) for letter in page.items]
        after = page.next
    assert found == [(sequence, name) for sequence in published for name in ("s1", "s2")]
    first = await log.view.dead_letters("q1", 0, 2)
    assert ([letter.sequence for letter in first.items], first.next) == ([published[0]] * 2, published[0])


async def test_a_publisher_waits_until_every_delivery_has_ended(log: ViewedLog) -> None:
    """``Prefer: wait`` is answered when the last delivery of the last message ends, dead ones included (RULES 8)."""
    messages = [log.publish(1), log.publish(1)]
    waiting = asyncio.ensure_future(log.view.wait([log.id(m) for m in messages], 30))
    await eventually(lambda: log.view.statistics().waiters, "somebody waits")
    log.pump(lambda a: BROKEN if a.message == messages[1] else OK)
    assert not waiting.done()
    for _ in range(2):
        log.later(1)
        log.pump(lambda _: BROKEN)
    assert await waiting is True
    assert await log.view.wait([log.id(m) for m in messages], 0) is True


async def test_a_publisher_waits_no_longer_than_it_asked(log: ViewedLog) -> None:
    """When the time is over it is told so, and nothing is kept of it."""
    message = log.publish(1)
    assert await log.view.wait([log.id(message)], 0.01) is False
    assert log.view.statistics().waiters == 0
    assert not log.scheduler.state.watched
    with pytest.raises(UnknownMessage):
        await log.view.wait([make_message_id(1, 1, b"z" * 16)], 1)


async def test_waiters_are_bounded(log: ViewedLog) -> None:
    """One more than ``limits.waiters_max`` is told to come back; the others wait on."""
    id_ = log.id(log.publish(1))
    waiting = [asyncio.ensure_future(log.view.wait([id_], 60)) for _ in range(limits.waiters_max)]
    await eventually(lambda: log.view.statistics().waiters == limits.waiters_max, "all wait")
    with pytest.raises(Overloaded):
        await log.view.wait([id_], 60)
    log.pump()
    assert all(await asyncio.gather(*waiting))


async def test_statistics_add_up(log: ViewedLog) -> None:
    """What ``/metrics`` shows is the sum of what queues and subscribers show."""
    log.queue(2)
    log.subscriber(3, 2)
    for queue in (1, 1, 2):
        log.publish(queue)
    log.pump(lambda a: BROKEN if a.subscriber == 2 else OK)
    log.meters.commit(records=3, size_bytes=600, seconds=0.003)

    report = log.view.statistics()

    assert (report.state, report.log.sequence, report.log.durable_sequence) == ("serving", log.durable, log.durable)
    assert (report.deliveries.delivered, report.deliveries.failed, report.deliveries.retrying) == (3, 2, 2)
    assert report.deliveries.waiting == 2
    assert {queue.name for queue in report.queues} == {"q1", "q2"}
    assert [s.id for s in report.subscribers] == ["s1", "s2", "s3"]
    assert (report.log.records_written, report.log.bytes_written, report.log.commits.count) == (3, 600, 1)
    assert report.process.pid > 0
    assert report.process.resident_bytes > 1_000_000


def test_a_histogram_counts_each_duration_once() -> None:
    """Buckets are cumulative, bounds are inclusive, and what is beyond the last one is in the count alone."""
    durations = Durations((0.001, 0.01))
    for seconds in (0.0005, 0.001, 0.005, 9.0):
        durations.observe(seconds)
    report = durations.report()
    assert report.buckets == ((0.001, 2), (0.01, 3))
    assert (report.count, report.max_s) == (4, 9.0)
    assert report.sum_s == pytest.approx(9.0065)
