"""How long deliveries take from acceptance (syncbrok/space/meters.py), and how late the loop is (loop_lag.py)."""

import asyncio
import time
from pathlib import Path

from syncbrok.delivery.handler import AttemptResult
from syncbrok.model.facts import Outcome, Reason, Row
from syncbrok.space.channels import Replay
from syncbrok.space.loop_lag import watch_loop
from syncbrok.space.meters import LAG_BOUNDS_S, SAMPLES_MAX, Durations, Latencies
from tests.support.polling import eventually
from tests.support.space.spaces import Clock, Consumer, running_space

SECOND = 1_000_000


def row(message: int, took_s: float, outcome: Outcome = Outcome.DELIVERED, subscriber: int = 1) -> Row:
    """Of an attempt that ended so long after ``SECOND``, half a second after it began."""
    began_us = int((1 + took_s - 0.5) * SECOND)
    return Row(message, subscriber, 1, outcome, Reason.NONE, 200, began_us, 0, 0, SECOND // 2)


def by_subscriber(one: Row) -> int:
    """The queue of a row: 7 to begin with, none of the subscriber 9."""
    return 0 if one.subscriber == 9 else 6 + one.subscriber


def latencies() -> Latencies:
    found = Latencies()
    found.accepted_at.note(1, SECOND)
    return found


def test_a_delivery_is_timed_from_acceptance_to_the_answer() -> None:
    """INTERFACES 3, ``syncbrok_queue_latency_seconds``: by queue, of deliveries that went well; not of what is not to
    be timed. Where a commit has few, each."""
    found = latencies()
    rows = [row(1, 2), row(2, 4, Outcome.FAILED), row(3, 50, subscriber=2), row(4, 5, subscriber=9), row(5, 0.5)]
    for one in (*rows, row(6, 3)):
        found.observe([one], by_subscriber)
    told = found.of(7)
    assert (told.count, told.sum_s) == (3, 5.5)
    assert [count for bound, count in told.buckets if bound in (0.25, 0.5, 1.0, 2.5, 10.0)] == [0, 1, 1, 2, 3]
    assert (found.of(8).count, found.of(8).sum_s) == (1, 50)
    assert found.of(9).count == 0
    assert len(found.of(9).buckets) == len(told.buckets)
    found.keep({8})
    assert (found.of(7).count, found.of(8).count) == (0, 1)


def test_a_commit_of_thousands_costs_no_more_looks_than_one_of_two() -> None:
    """INTERFACES 3, two of a commit stand for all, another two the next time: there is no work for each message."""
    found, looked = latencies(), []

    def queue_of(one: Row) -> int:
        looked.append(one.message)
        return 7

    rows = [row(message, message / 1_000) for message in range(1, 4_001)]
    for _ in range(2_000):
        found.observe(rows, queue_of)
    told = found.of(7)
    assert len(looked) == 2_000 * SAMPLES_MAX
    assert len({*looked}) == 4_000 // SAMPLES_MAX * SAMPLES_MAX
    assert told.count == 2_000 * 4_000
    assert abs(told.sum_s / told.count - 2.0) < 0.01
    halves = dict(told.buckets)
    assert abs(halves[1.0] / told.count - 0.25) < 0.01


async def test_a_queue_tells_how_old_and_how_slow(tmp_path: Path) -> None:
    """INTERFACES 3, ``/metrics``: the age of what has not ended, also after a restart; the time of each delivery, but
    of no replay, and not of what was there before its subscriber."""
    clock, consumer = Clock(), Consumer(lambda _: None)
    async with running_space(tmp_path, consumer, clock_us=clock) as running:
        await running.queue("q", subscribers=("s",))
        assert await running.view.oldest_us([running.view.queue("q")]) == {}
        accepted_us = clock()
        id_ = await running.publish("q", b"slow")
        await eventually(lambda: consumer.held, "it is out")
        clock.forward(30)
        (oldest_us,) = (await running.view.oldest_us([running.view.queue("q")])).values()
        assert 0 <= oldest_us - accepted_us < SECOND / 10
        consumer.release(AttemptResult(Reason.NONE, 200, latency_us=30 * SECOND))
        await running.ended(id_)
        assert running.view.statistics().latencies["q"].count == 1
        assert 29 < running.view.statistics().latencies["q"].sum_s < 31
        assert await running.view.oldest_us([running.view.queue("q")]) == {}

        clock.forward(1_000)
        consumer.answer = Consumer().answer
        await running.put(Replay(id_, descendants=True))
        await running.subscribe("q", "late", start="beginning", counts=False)
        await eventually(lambda: len(consumer.seen) == 3, "both are told")
        await running.ended(await running.publish("q", b"quick"))
        assert running.view.statistics().latencies["q"].sum_s < 31
        assert running.view.statistics().latencies["q"].count >= 2
        consumer.answer = lambda _: None
        accepted_us = clock()
        await running.publish("q", b"stays")
    clock.forward(5_000)
    async with running_space(tmp_path, Consumer(lambda _: None), clock_us=clock) as running:
        await running.queue("other")
        (oldest_us,) = (await running.view.oldest_us([running.view.queue("q")])).values()
        assert 0 <= oldest_us - accepted_us < SECOND / 10
        await eventually(lambda: running.view.statistics().loop_lag.count, "the loop is watched", 5)


async def test_a_loop_that_is_held_up_is_told_of() -> None:
    """INTERFACES 3, ``syncbrok_loop_lag_seconds``: what holds the loop is seen by those who wait meanwhile."""
    lag = Durations(LAG_BOUNDS_S)
    watching = asyncio.create_task(watch_loop(lag, every_s=0.01))
    await asyncio.sleep(0)
    until_s = time.monotonic() + 0.3
    while time.monotonic() < until_s:
        pass
    await eventually(lambda: lag.count, "the next one wakes")
    watching.cancel()
    assert dict(lag.report().buckets)[0.25] < lag.count
    assert lag.report().max_s >= 0.28
