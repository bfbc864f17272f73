"""A Space over its life: restarts, checkpoints, retention, old keys and old parents; and a seeded run of everything."""

import asyncio
from pathlib import Path

import pytest

from syncbrok.delivery.handler import Delivery
from syncbrok.delivery.scheduler.scheduler import Scheduler
from syncbrok.log.journal import FileJournal
from syncbrok.log.offline.order import OrderChecker
from syncbrok.log.segments import watermark
from syncbrok.model import limits
from syncbrok.model.errors import Gone, IdempotencyConflict
from syncbrok.model.facts import Outcome, Outcomes, QueueSet, StoredMessage
from syncbrok.model.journal import JournalOptions
from syncbrok.model.message import Message, ParentFailure, QueueSettings, RetryPolicy, Scope
from syncbrok.model.names import QueueName, make_message_id
from syncbrok.space.state.registry import Registry
from tests.support.log.journals import records
from tests.support.polling import eventually
from tests.support.space.script import Script, on_their_way
from tests.support.space.spaces import (
    ACKNOWLEDGED,
    NEVER_AGAIN,
    REFUSED,
    Clock,
    Consumer,
    Running,
    forget_checkpoints,
    running_space,
)

Q = QueueName("q")
SMALL = limits.segment_bytes_min
DAY_S = 86_400.0


def attempts(directory: Path, *subscribers: int) -> dict[int, tuple[int, int]]:
    """How many were acknowledged and how many failed, as the rows say; of late answers nobody knows."""
    journal = FileJournal.open(directory, JournalOptions(), lambda: 0)
    rows = [row for fact in journal.facts() if isinstance(fact, Outcomes) for row in fact.rows]
    journal.close()
    made = [
        (row.subscriber, row.outcome is Outcome.DELIVERED)
        for row in rows
        if row.attempt and row.outcome is not Outcome.LATE
    ]
    return {number: (made.count((number, True)), made.count((number, False))) for number in subscribers}


def judge(directory: Path) -> None:
    """Every promise about order, proven from the facts of the log alone."""
    journal = FileJournal.open(directory, JournalOptions(), lambda: 0)
    try:
        checker = OrderChecker()
        for fact in records(journal):
            checker.apply(fact)
        assert checker.violations == []
    finally:
        journal.close()


async def test_a_childs_request_is_made_while_its_parent_is_out(tmp_path: Path):
    """DESIGN 5: a chain's next body is fetched while its parent is in flight; it goes out when the parent is done."""
    consumer = Consumer(lambda d: None if d.message.content == b"parent" else ACKNOWLEDGED)
    async with running_space(tmp_path, consumer) as running:
        await running.queue("q", subscribers=["s"])
        unit = await running.publish_all("q", Message(b"parent"), Message(b"child", parents=(0,)))
        await eventually(lambda: consumer.made_ready, "the child's request")
        assert consumer.made_ready == [(b"child", "s")]
        assert consumer.seen == [(b"parent", "s")]
        consumer.release()
        await running.ended(*unit.ids)
    assert consumer.seen == [(b"parent", "s"), (b"child", "s")]


async def test_a_restart_keeps_everything(tmp_path: Path):
    """What was accepted is delivered after a restart, what had ended stays ended, keys and parents are known; with
    the checkpoint and, when that is gone, from the log alone."""
    consumer = Consumer(lambda d: None if d.message.content == b"waits" else ACKNOWLEDGED)
    async with running_space(tmp_path, consumer, drain_s=0.01) as running:
        await running.queue("q", subscribers=["a", "b"])
        done = await running.publish("q", b"done", idempotency_key="k")
        waits = await running.publish("q", b"waits")
        child = await running.publish("q", b"child", waits, done)
        await running.ended(done)
        before = running.view.queue("q")
        await eventually(lambda: len(consumer.held) == 2, "it is out")
    for checkpoint in (True, False):
        if not checkpoint:
            forget_checkpoints(tmp_path)
        async with running_space(tmp_path, Consumer(lambda _: None), drain_s=0.01) as running:
            assert (running.view.statistics().start.records == 0) is checkpoint
            after = running.view.queue("q")
            assert (after.waiting, after.settings, after.last_sequence) == (2, before.settings, before.last_sequence)
            assert await running.states(done, waits, child) == ["complete", "pending", "waiting"]
            assert (await running.publish("q", b"done", idempotency_key="k")) == done
            with pytest.raises(IdempotencyConflict):
                await running.publish("q", b"other", idempotency_key="k")
    async with running_space(tmp_path) as running:
        await running.ended(waits, child)
        grandchild = await running.publish("q", b"grandchild", child)
        report = await running.view.message(grandchild)
        assert (report.depth, report.root) == (2, (await running.view.message(waits)).sequence)
        await running.ended(grandchild)
    judge(tmp_path)


async def test_a_damaged_checkpoint_costs_time_only(tmp_path: Path):
    """A checkpoint that cannot be read is not believed: the log is replayed."""
    async with running_space(tmp_path) as running:
        await running.queue("q", subscribers=["a"])
        id_ = await running.publish("q", b"m")
        await running.ended(id_)
    file = tmp_path / "checkpoint"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(bytes(data))
    async with running_space(tmp_path) as running:
        assert running.view.statistics().start.records > 0
        assert await running.states(id_) == ["complete"]


async def expire(running: Running) -> int:
    """Fill segments until the first ones are sealed, then run the retention."""
    for _ in range(4):
        await running.publish_all("q", *[Message(b"x" * 1_000)] * 40)
    await eventually(lambda: running.view.queue("q").waiting <= 3, "the filling is delivered")
    return await running.space._maintenance.drop_expired()


async def test_retention_takes_along_what_has_not_ended(tmp_path: Path):
    """RULES 2 and DESIGN 4: expired segments go; what waits is carried with its id, edges and attempts and delivered
    in the end; what ended well is complete for ever, what ended badly is still known to be bad; ``GET`` is 410."""
    clock = Clock()
    refused: list[bytes] = []

    def answer(delivery: Delivery):
        if delivery.message.content == b"bad":
            return REFUSED
        if delivery.message.content == b"waits" and not refused:
            refused.append(b"waits")
            return REFUSED
        return ACKNOWLEDGED

    settings = QueueSettings(retry=RetryPolicy((3_600.0,), 0.0))
    async with running_space(
        tmp_path, Consumer(answer), clock_us=clock, segment_bytes=SMALL, retention_s=DAY_S
    ) as running:
        await running.queue("q", settings, subscribers=["a"])
        await running.queue("strict", NEVER_AGAIN, subscribers=["b"])
        good = await running.publish("q", b"good", idempotency_key="k")
        bad = await running.publish("strict", b"bad")
        await running.ended(good, bad)
        waits = await running.publish("q", b"waits", good)
        child = await running.publish("q", b"child", waits)
        later = await running.publish("q", b"later", delay_us=int(6 * DAY_S * 1e6))
        await eventually(lambda: running.view.subscriber("q", "a").retrying == 1, "the first attempt has failed")
        clock.forward(2 * DAY_S)  # the retry is due as well, when the dispatcher is woken
        assert await expire(running) == 0, "what is newer than the retention stays"
        clock.forward(2 * DAY_S)
        assert await expire(running) >= 2
        for gone in (good, bad):
            with pytest.raises(Gone):
                await running.view.message(gone)
        await running.ended(waits, child)
        assert await running.states(later) == ["scheduled"]
        of_good = await running.publish("q", b"of good", good)
        of_bad = await running.publish("q", b"of bad", bad)
        await running.ended(of_good, of_bad)
        assert await running.states(of_good, of_bad) == ["complete", "dead"]
        names = running.space._journal.sections()
    for _ in range(2):
        async with running_space(tmp_path, clock_us=clock, segment_bytes=SMALL, retention_s=DAY_S) as running:
            assert running.space._journal.sections()[0].base >= names[0].base
            fine = await running.publish("q", b"fine", good)
            again = await running.publish("q", b"again", bad)
            await running.ended(fine, again)
            assert await running.states(fine, again, later) == ["complete", "dead", "scheduled"]
        forget_checkpoints(tmp_path)


async def test_a_segment_that_never_fills_expires_all_the_same(tmp_path: Path):
    """Retention is one age: where little is written the active segment is sealed after an eighth of it."""
    clock = Clock()
    async with running_space(tmp_path, clock_us=clock, retention_s=DAY_S) as running:
        await running.queue("q", subscribers=["a"])
        id_ = await running.publish("q", b"m")
        await running.ended(id_)
        drop = running.space._maintenance.drop_expired
        clock.forward(DAY_S / 7)
        assert [await drop(), len(running.space._journal.sections())] == [0, 2]
        clock.forward(DAY_S)
        assert await drop() == 1
        with pytest.raises(Gone):
            await running.view.message(id_)
        assert running.view.queue("q").subscribers == 1


async def test_a_message_carried_while_it_waits_is_delivered_after_a_restart(tmp_path: Path):
    """DESIGN 4: a carried message keeps its id, sequence, content and attempts over segments and restarts."""
    clock = Clock()
    settings = QueueSettings(retry=RetryPolicy((10 * DAY_S,), 0.0))
    consumer = Consumer(lambda d: REFUSED if d.message.content == b"waits" else ACKNOWLEDGED)
    async with running_space(tmp_path, consumer, clock_us=clock, segment_bytes=SMALL, retention_s=DAY_S) as running:
        await running.queue("q", settings, subscribers=["a", "b"])
        waits = await running.publish("q", b"waits", headers=(("x", "y"),))
        child = await running.publish("q", b"child", waits)
        await eventually(lambda: running.view.subscriber("q", "b").retrying == 1, "the first attempts have failed")
        before = await running.view.message(waits)
        for _ in range(4):
            await running.publish_all("q", *[Message(b"x" * 1_000)] * 40)
        await eventually(lambda: running.view.queue("q").waiting == 2, "the filling is delivered")
        clock.forward(2 * DAY_S)
        assert await running.space._maintenance.drop_expired() >= 2
        assert await running.space._maintenance.drop_expired() == 0
        carried = await running.view.message(waits)
        assert (carried.id, carried.sequence, carried.headers) == (before.id, before.sequence, before.headers)
        assert await running.states(waits, child) == ["pending", "waiting"]
    clock.forward(9 * DAY_S)
    async with running_space(tmp_path, clock_us=clock, segment_bytes=SMALL, retention_s=100 * DAY_S) as running:
        await running.ended(waits, child)
        first = [d for d in running.consumer.deliveries if d.message.content == b"waits"]
        assert [(d.attempt.number, d.message.headers) for d in first] == [(2, (("x", "y"),))] * 2
        assert running.consumer.contents[-1] == b"child"


@pytest.mark.parametrize("checkpoint", [True, False])
async def test_what_waits_for_old_messages_waits_after_a_restart(tmp_path: Path, checkpoint: bool):
    """RULES 2 and 12, DESIGN 4: parents that retention carried along, and one whose bad end is all that is left of it,
    hold their children back whether these were carried too or stand in a younger segment than their parents; with
    the checkpoint and, when that is gone, from what is left of the log."""
    clock = Clock()
    settings = QueueSettings(retry=RetryPolicy((10 * DAY_S,), 0.0))
    dead = QueueSettings(retry=RetryPolicy((DAY_S / 4,), 0.0))
    refuse = Consumer(lambda d: REFUSED if d.message.content in (b"waits", b"dies") else ACKNOWLEDGED)
    async with running_space(tmp_path, refuse, clock_us=clock, segment_bytes=SMALL, retention_s=DAY_S) as running:
        await running.queue("q", settings, subscribers=["a"])
        await running.queue("strict", dead, subscribers=["b"])
        waits, dies = await running.publish("q", b"waits"), await running.publish("strict", b"dies")
        old = await running.publish("q", b"old", dies, parent_failure=ParentFailure.HOLD)
        await running.publish_all("q", *[Message(b"x" * 1_000)] * 160)
        await eventually(lambda: running.view.queue("q").waiting == 2, "the filling is delivered")
        clock.forward(DAY_S / 2)
        young = [
            await running.publish("q", b"young", waits),
            await running.publish("q", b"young", dies, parent_failure=ParentFailure.HOLD),
        ]
        await running.ended(dies)
        assert await running.states(old, *young) == ["held", "waiting", "held"]
        clock.forward(DAY_S * 3 / 4)
        assert await running.space._maintenance.drop_expired() >= 1
        with pytest.raises(Gone):
            await running.view.message(dies)
        assert (await running.view.message(young[0])).sequence > running.space._journal.sections()[0].base
    if not checkpoint:
        forget_checkpoints(tmp_path)
    async with running_space(tmp_path, clock_us=clock, segment_bytes=SMALL, retention_s=100 * DAY_S) as running:
        assert await running.states(old, *young) == ["held", "waiting", "held"]
        last = await running.publish("q", b"last")
        await running.ended(last)
        assert running.consumer.contents == [b"last"]
        clock.forward(10 * DAY_S)
        await running.ended(waits, young[0])
        assert running.consumer.contents == [b"last", b"waits", b"young"]


async def test_old_parents_and_keys_are_looked_up_without_stopping_others(tmp_path: Path):
    """RULES 2 and 4: after a restart neither the recent places nor the bytes are in memory; parents and duplicates
    are found in the log, also from many publishes at once."""
    async with running_space(tmp_path) as running:
        await running.queue("q")
        ids = (await running.publish_all("q", *[Message(b"%d" % n, idempotency_key=f"k{n}") for n in range(300)])).ids
    async with running_space(tmp_path) as running:
        publishes = [running.publish("q", b"c%d" % n, ids[n]) for n in range(300)]
        again = [running.publish("q", b"%d" % n, idempotency_key=f"k{n}") for n in range(300)]
        bare = [running.publish("q", b"bare") for _ in range(10)]
        made = await asyncio.gather(*publishes, *again, *bare)
        assert tuple(made[300:600]) == ids
        report = await running.view.message(made[7])
        assert (report.depth, report.root) == (1, (await running.view.message(ids[7])).sequence)


@pytest.mark.parametrize("restarts", [0, 3])
async def test_whatever_happens_the_order_holds(tmp_path: Path, seed: int, restarts: int):
    """Random publishes with parents in any queue, failures, operations and restarts: in the end every message has
    ended or is held, and the log alone proves that no attempt broke the order; what the broker counted over all its
    lives is what the log says."""
    script = Script(seed + restarts)
    for life in range(restarts + 1):
        async with running_space(tmp_path, Consumer(script.answer), drain_s=0.005, segment_bytes=SMALL) as running:
            if life == 0:
                await script.declare(running)
            for _ in range(40):
                await script.publish(running)
                if script.random.random() < 0.3:
                    await script.operate(running)
            if life < restarts:
                continue
            await script.resume(running)
            await eventually(lambda: not on_their_way(running), "all but the held and what waits for them have ended")
    judge(tmp_path)
    counted = {number: running.space._state.scheduler.subscriber_statistics(number) for number in (1, 2, 4)}
    assert {number: (one.delivered, one.failed) for number, one in counted.items()} == attempts(tmp_path, *counted)


def test_what_lies_before_the_first_segment_has_ended():
    """RULES 2: the first message after a start from the log alone may name a parent whose segment is gone."""
    registry = Registry()
    registry.apply(QueueSet(1, 1, 1, Q, NEVER_AGAIN))
    opened = registry.snapshot(500, 1, ((7, Outcome.DEAD),))
    scheduler = Scheduler()
    scheduler.apply(opened)
    for sequence, parent in ((501, 6), (502, 7)):
        id_ = make_message_id(0, sequence, bytes(16))
        parents = (make_message_id(0, parent, bytes(16)),)
        place = (sequence, 1, id_, 1, sequence, 0)
        scheduler.apply(StoredMessage(*place, Scope.ALL, ParentFailure.FAIL, parents, "", "", b"", 0, 0, "", (), b""))
    assert (scheduler.message_state(501), scheduler.message_state(502)) == ("complete", "waiting")
    assert [row.message for row in scheduler.take_pending_ends(1, 10)] == [502]


async def test_a_broker_at_rest_vouches_for_all_that_it_has_said(tmp_path: Path):
    """DESIGN 4: who reads the log beside a running broker reads up to its watermark. The last records before a rest may
    come less than a second after it was saved, and are vouched for soon after all the same."""
    clock = Clock()
    async with running_space(tmp_path, clock_us=clock, sync="interval", interval_ms=1) as running:
        await running.queue("q")
        await running.publish("q", b"1")
        journal = running.space._journal
        await eventually(lambda: journal.durable_sequence == journal.next_sequence - 1, "the log is synced")
        clock.forward(1.0)
        await eventually(lambda: durable_as_read(tmp_path) == journal.durable_sequence, "a reader sees all of it")


def durable_as_read(directory: Path) -> int:
    mark = watermark.read(directory)
    assert mark is not None
    return mark.durable
