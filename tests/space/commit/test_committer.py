"""The commit loop: one batch, one fsync, everybody answered; and what happens when the disk does not play along."""

import asyncio
import base64
import threading
from pathlib import Path
from typing import Any

import pytest
import standardwebhooks

from syncbrok.delivery.webhook.address_guard import AddressGuard
from syncbrok.delivery.webhook.webhook import Webhook
from syncbrok.log.journal import FileJournal
from syncbrok.log.reading.recent import OpeningBatch
from syncbrok.model import limits
from syncbrok.model.errors import Draining, LogFailed, LogFull, LogUnavailable, Overloaded
from syncbrok.model.facts import Outcome
from syncbrok.model.message import Message, ParentFailure, QueueSettings, RetryPolicy, SubscriberSettings
from syncbrok.model.names import QueueName, id_text
from syncbrok.space.channels import Cancel, ChangeQueue, DeclareQueue, DeleteQueue, Publish, Subscribe
from syncbrok.space.commit.channel import BoundedChannel, ChannelItem
from syncbrok.space.commit.commit_batch import CommitBatch
from syncbrok.space.space import Space
from tests.support.http.recorder import Recorder
from tests.support.polling import eventually
from tests.support.space.spaces import (
    ACKNOWLEDGED,
    NEVER_AGAIN,
    REFUSED,
    Consumer,
    FaultyJournal,
    journal_of,
    running_space,
)

Q = QueueName("q")


class SlowJournal(FileJournal):
    """The real one, whose writes wait for the test."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.may_write = threading.Semaphore(0)
        self.waits = False
        self.batches: list[int] = []

    def append(self, batch: Any, *, essential: bool = False) -> None:
        if isinstance(batch, OpeningBatch):
            super().append(batch, essential=essential)
            return
        if self.waits:
            assert self.may_write.acquire(timeout=10.0)
        self.batches.append(len(batch.ends))
        super().append(batch, essential=essential)


async def test_what_gathers_during_an_fsync_is_one_batch(tmp_path: Path):
    """RULES 1 and DESIGN 2: nothing is acknowledged before its fsync; whatever comes meanwhile shares the next one."""
    async with running_space(tmp_path, open_journal=SlowJournal.open) as running:
        await running.queue("q")
        journal = running.space._journal
        journal.waits = True
        journal.batches.clear()
        publishes = [asyncio.ensure_future(running.publish("q", b"first"))]
        await eventually(lambda: running.space.statistics().committer.writing, "the first batch is under way")
        publishes += [asyncio.ensure_future(running.publish("q", b"%d" % n)) for n in range(200)]
        await eventually(lambda: running.space.statistics().committer.messages.records == 200, "the others gather")
        assert not any(publish.done() for publish in publishes)
        # A disk that hangs is seen while it does: the histogram of commits has nothing of one that does not end.
        assert running.view.statistics().log.committing_s > 0
        journal.may_write.release()
        await publishes[0]
        assert not any(publish.done() for publish in publishes[1:])
        journal.waits = False
        journal.may_write.release()
        await asyncio.gather(*publishes)
        await eventually(lambda: not running.view.statistics().log.committing_s, "nothing is under way")
        await asyncio.gather(*publishes)
        assert journal.batches == [1, 200]


async def test_no_child_goes_before_the_completion_of_its_parents_is_on_the_disk(tmp_path: Path):
    """RULES 13: the parent's outcome is written before the child's attempt, whose row says so by ``after``."""
    async with running_space(tmp_path, open_journal=SlowJournal.open) as running:
        await running.queue("q", subscribers=["a"])
        parent = await running.publish("q", b"parent")
        await running.ended(parent)
        journal = running.space._journal
        journal.waits = True
        unit = asyncio.ensure_future(running.publish_all("q", Message(b"p"), Message(b"c", parents=(0,))))
        await eventually(lambda: running.space.statistics().committer.writing, "the publish is under way")
        journal.may_write.release()
        ids = (await unit).ids
        await eventually(lambda: running.consumer.contents[-1:] == [b"p"], "the parent is delivered")
        await eventually(lambda: running.space.statistics().committer.writing, "its outcome is under way")
        assert b"c" not in running.consumer.contents
        journal.waits = False
        journal.may_write.release()
        await running.ended(*ids)
        assert running.consumer.contents[-2:] == [b"p", b"c"]
        rows = (await running.view.message(ids[1])).deliveries[0].attempts
        parent_row = max(sequence for sequence, _ in journal.rows_of((await running.view.message(ids[0])).sequence))
        assert rows[0].after >= parent_row


async def test_an_answer_overtaken_by_a_cancel_is_late(tmp_path: Path):
    """An answer that comes while the cancel's row is being written changes nothing and says so (``LATE``)."""
    consumer = Consumer(lambda _: None)
    async with running_space(tmp_path, consumer, open_journal=SlowJournal.open) as running:
        await running.queue("q", subscribers=["a"])
        id_ = await running.publish("q", b"m")
        await eventually(lambda: consumer.held, "it is out")
        journal = running.space._journal
        journal.waits = True
        cancel = asyncio.ensure_future(running.put(Cancel(id_)))
        await eventually(lambda: running.space.statistics().committer.writing, "the cancel is under way")
        consumer.release()
        await eventually(lambda: running.space.statistics().committer.rows_waiting, "the answer is settled")
        journal.waits = False
        journal.may_write.release()
        assert await cancel == 1
        sequence = (await running.view.message(id_)).sequence
        await eventually(lambda: len(journal.rows_of(sequence)) == 2, "both are written")
        assert [row.outcome for _, row in journal.rows_of(sequence)] == [Outcome.DROPPED, Outcome.LATE]
        assert await running.states(id_) == ["dropped"]


async def test_webhooks_are_signed_and_a_410_disables(tmp_path: Path):
    """The whole way: published, written, delivered over HTTP, signed, acknowledged, recorded; a 410 disables."""
    key = base64.b64encode(bytes(32)).decode()
    with Recorder() as good, Recorder(lambda _: 410) as gone:
        async with running_space(tmp_path) as running:
            guard = AddressGuard(loopback_allowed=True)
            running.space.handle("http", Webhook(guard, running.space.signing_keys))
            await running.queue("q")
            await running.put(Subscribe(Q, SubscriberSettings(good.url, name="good"), secret=f"whsec_{key}"))
            await running.put(Subscribe(Q, SubscriberSettings(gone.url, name="gone")))
            parent = await running.publish("q", b"[1]", content_type="application/json")
            child = await running.publish("q", b"[2]", parent, parent_failure=ParentFailure.DELIVER)
            await running.ended(parent)
            await eventually(lambda: len(good.requests) == 2, "both have arrived")
            assert [request.body for request in good.requests] == [b"[1]", b"[2]"]
            for request in good.requests:
                standardwebhooks.Webhook(key).verify(request.body, request.headers)
            assert good.requests[0].id == id_text(parent)
            assert running.view.subscriber("q", "gone").state == "disabled"
            assert await running.states(parent, child) == ["dead", "pending"]
            report = await running.view.message(parent)
            assert [(one.state, one.attempts[0].status) for one in report.deliveries] == [
                ("delivered", 200),
                ("dead", 410),
            ]


async def test_the_scheme_of_an_endpoint_has_no_case(tmp_path: Path):
    """INTERFACES 3: ``HTTP://`` is taken as an endpoint, so what is published is delivered there."""
    with Recorder() as recorder:
        async with running_space(tmp_path) as running:
            running.space.handle("http", Webhook(AddressGuard(loopback_allowed=True), running.space.signing_keys))
            await running.queue("q", QueueSettings(retry=RetryPolicy(())))
            await running.put(Subscribe(Q, SubscriberSettings(recorder.url.replace("http://", "HtTP://"))))
            id_ = await running.publish("q", b"m")
            await running.ended(id_)
            assert (await running.states(id_), len(recorder.requests)) == (["complete"], 1)


async def test_outcomes_that_nobody_waits_for_are_written_together(tmp_path: Path):
    """RULES 24: outcomes without waiting children linger some milliseconds; they do not cost an fsync each."""
    async with running_space(tmp_path, Consumer(lambda _: None)) as running:
        await running.queue("q", QueueSettings(window=1_000), subscribers=["a"])
        accepted = await running.publish_all("q", *[Message(b"m")] * 200)
        await eventually(lambda: len(running.consumer.held) == 200, "all are out")
        held, running.consumer.held = running.consumer.held, []
        gathered = False
        for delivery, done in held:
            done(delivery, ACKNOWLEDGED)
            for _ in range(4):  # settled, recorded, and time for a commit to begin
                await asyncio.sleep(0)
            now = running.space.statistics().committer
            gathered = gathered or (now.rows_waiting > 1 and not now.writing)
        assert gathered
        await eventually(lambda: running.view.queue("q").waiting == 0, "all are recorded")
        assert (await running.states(accepted.ids[-1])) == ["complete"]


async def test_a_queue_deleted_by_force_takes_what_was_being_written(tmp_path: Path):
    """RULES 16: a publish whose batch is under way is accepted and dropped with its queue; later ones are refused."""
    async with running_space(tmp_path, Consumer(lambda _: None), open_journal=SlowJournal.open) as running:
        await running.queue("q", subscribers=["a"])
        journal = running.space._journal
        journal.waits = True
        publish = asyncio.ensure_future(running.publish("q", b"m"))
        await eventually(lambda: running.space.statistics().committer.writing, "the publish is under way")
        delete = running.space._intake.steps[DeleteQueue]
        receipt = asyncio.get_running_loop().create_future()
        delete(CommitBatch(1, 1), ChannelItem(DeleteQueue(Q, force=True), receipt, 1, 1))
        await eventually(lambda: running.space.statistics().committer.jobs_waiting, "the deletion waits its turn")
        journal.waits = False
        journal.may_write.release()
        assert (await receipt, await running.states(await publish)) == (1, ["dropped"])


async def test_a_unit_is_one_whole_batch_also_when_it_is_large(tmp_path: Path):
    """RULES 5: a batch of ten thousand lines is one write; its ids are in its order."""
    async with running_space(tmp_path) as running:
        await running.queue("q")
        journal_of(running).batches.clear()
        accepted = await running.publish_all("q", *[Message(b"%d" % n) for n in range(limits.batch_lines_max)])
        assert journal_of(running).batches == [limits.batch_lines_max]
        assert list(accepted.sequences) == sorted(accepted.sequences)
        assert (await running.view.content(accepted.ids[777])).content == b"777"


async def test_a_crash_between_the_log_and_the_scheduler_loses_nothing(tmp_path: Path):
    """DESIGN 3: append to the log before telling the scheduler. What was written is there after the next start."""
    crashed = tmp_path / "crashed"
    async with running_space(tmp_path / "log") as running:
        await running.queue("q", subscribers=["a"])
        journal_of(running).copy_to = crashed
        id_ = await running.publish("q", b"kept")
        await running.ended(id_)
    async with running_space(crashed) as running:
        assert not running.view.statistics().start.clean
        await running.ended(id_)
        assert running.consumer.contents == [b"kept"]


async def test_a_crash_before_the_outcome_is_written_delivers_again(tmp_path: Path):
    """At least once: an attempt whose outcome a crash swallowed is made again, with the same number."""
    crashed = tmp_path / "crashed"
    async with running_space(tmp_path / "log", Consumer(lambda _: None)) as running:
        await running.queue("q", subscribers=["a"])
        first = await running.publish("q", b"m")
        await eventually(lambda: running.consumer.held, "it is out")
        journal_of(running).copy_to = crashed
        await running.publish("q", b"n")
        running.consumer.release()
        await running.ended(first)
    async with running_space(crashed) as running:
        await running.ended(first)
        assert (running.consumer.contents[0], running.consumer.deliveries[0].attempt.number) == (b"m", 1)


async def test_a_full_disk_refuses_publishers_and_goes_on_delivering(tmp_path: Path):
    """DESIGN 4: 507 for publishers, nothing of it kept; outcomes go to the reserve; with room all goes on."""
    consumer = Consumer(lambda _: None)
    async with running_space(tmp_path, consumer) as running:
        await running.queue("q", subscribers=["a"])
        parent = await running.publish("q", b"parent")
        child = await running.publish("q", b"child", parent)
        await eventually(lambda: consumer.held, "the parent is out")
        journal = journal_of(running)
        journal.room, journal.reserve = False, 1_000
        before = running.space.statistics().sequence
        for _ in range(3):
            with pytest.raises(LogFull):
                await running.publish("q", b"refused")
        with pytest.raises(LogFull):
            await running.put(ChangeQueue(Q, {"window": 9}))
        assert running.space.statistics().sequence == before
        assert running.view.statistics().log.full
        consumer.answer = lambda _: None
        consumer.release()
        await eventually(lambda: consumer.contents == [b"parent", b"child"], "the child goes out of the reserve")
        consumer.release()
        await running.ended(child)
        journal.room = True
        await eventually(lambda: not running.space.statistics().committer.full, "there is room again")
        assert await running.publish("q", b"again")
        consumer.answer = Consumer().answer
        consumer.release()
        assert running.view.queue("q").settings.window == limits.window_default


async def test_without_any_room_no_attempt_is_made(tmp_path: Path):
    """DESIGN 4: with the reserve used up an outcome could not be kept, so no attempt is made until there is room; the
    outcomes that wait are written then."""
    consumer = Consumer(lambda _: None)
    async with running_space(tmp_path, consumer) as running:
        await running.queue("q", QueueSettings(window=1), subscribers=["a"])
        ids = [await running.publish("q", b"%d" % n) for n in range(3)]
        await eventually(lambda: consumer.held, "the first is out")
        journal = journal_of(running)
        journal.room = False
        consumer.release()
        await eventually(lambda: running.space.statistics().committer.suspended, "attempts are suspended")
        # What had its slot before is out; nothing more comes.
        out = len(consumer.seen)
        consumer.release()
        await asyncio.sleep(0)
        assert len(consumer.seen) <= out + 1 < 3 + 1
        assert not running.space._state.scheduler.ended(5)
        journal.room = True
        consumer.answer = Consumer().answer
        await eventually(lambda: not running.space.statistics().committer.suspended, "attempts go on")
        consumer.release()
        await running.ended(*ids)
        assert await running.states(*ids) == ["complete"] * 3


async def test_a_failed_log_refuses_everybody_and_stops(tmp_path: Path):
    """DESIGN 4: after a failed write or fsync all waiters are refused and the process must end, with 74."""
    space = Space.open(tmp_path, open_journal=FaultyJournal.open)
    serving = asyncio.create_task(space.run())
    await space.channels.queues.put(DeclareQueue(Q, NEVER_AGAIN))
    space._journal.broken = True
    waiting = [space.channels.messages.put(Publish.of(Q, (Message(b"m"),))) for _ in range(10)]
    with pytest.raises(LogFailed) as failed:
        await serving
    assert failed.value.exit_code == 74
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(result, LogUnavailable) for result in results), results
    with pytest.raises(Draining):
        space.channels.messages.put(Publish.of(Q, (Message(b"m"),)))
    assert space.view.state == "failed"
    reopened = Space.open(tmp_path)  # the lock is free
    assert reopened.view.queue("q").accepted == 0
    reopened.close()


async def test_a_full_channel_says_so(tmp_path: Path):
    """Bounded: a channel that is full refuses with ``Overloaded`` and a time to come back; a large unit fits alone."""
    channel = BoundedChannel(lambda: None, records_max=3, size_bytes_max=100)
    channel.put(Publish.of(Q, (Message(b"x" * 1_000),)))
    with pytest.raises(Overloaded) as caught:
        channel.put(Publish.of(Q, (Message(b""),)))
    assert caught.value.members["retry_after_s"] == 1
    channel.take()
    for _ in range(3):
        channel.put(Publish.of(Q, (Message(b""),)))
    with pytest.raises(Overloaded):
        channel.put(Publish.of(Q, (Message(b""),)))
    assert channel.statistics() == (3, 0, 3, 100, 2)


async def test_draining_refuses_what_comes_and_finishes_what_came(tmp_path: Path):
    """Shutdown: publishes are refused with ``Draining``, what was let in is written, attempts that are out are
    recorded; the log is closed clean."""
    consumer = Consumer(lambda _: None)
    async with running_space(tmp_path, consumer, drain_s=10.0) as running:
        await running.queue("q", subscribers=["a"])
        out = await running.publish("q", b"out")
        await eventually(lambda: consumer.held, "it is out")
        let_in = running.space.channels.messages.put(Publish.of(Q, (Message(b"let in"),)))
        await running.space.drain()
        await eventually(lambda: running.view.state == "draining", "it drains")
        with pytest.raises(Draining):
            await running.publish("q", b"late")
        accepted = await let_in
        consumer.release()
    assert consumer.closed
    async with running_space(tmp_path) as running:
        assert running.view.statistics().start.clean
        assert await running.states(out) == ["complete"]
        await running.ended(*accepted.ids)
        assert running.consumer.contents == [b"let in"]


async def test_what_does_not_answer_in_time_stays_pending(tmp_path: Path):
    """Shutdown: attempts get the drain's time, then they are left; the next start makes them again."""
    consumer = Consumer(lambda _: None)
    async with running_space(tmp_path, consumer, drain_s=0.05) as running:
        await running.queue("q", subscribers=["a"])
        id_ = await running.publish("q", b"m")
        await eventually(lambda: consumer.held, "it is out")
    async with running_space(tmp_path) as running:
        await running.ended(id_)
        assert [delivery.attempt.number for delivery in running.consumer.deliveries] == [1]


async def test_segments_roll_and_each_begins_with_a_snapshot(tmp_path: Path):
    """DESIGN 4: a full segment is sealed; the next begins with everything declared. Publishes go on meanwhile."""
    async with running_space(tmp_path, segment_bytes=limits.segment_bytes_min) as running:
        await running.queue("q", subscribers=["a"])
        ids = []
        for _ in range(8):
            ids += (await running.publish_all("q", *[Message(b"x" * 1_000)] * 30)).ids
        await running.ended(*ids)
        segments = running.space._journal.sections()
        assert len(segments) >= 4
    async with running_space(tmp_path, segment_bytes=limits.segment_bytes_min) as running:
        assert running.view.queue("q").waiting == 0
        assert await running.states(ids[0], ids[-1]) == ["complete", "complete"]


async def test_a_row_for_each_attempt_with_its_reason(tmp_path: Path):
    """Nothing is lost silently: each failed attempt and the end are rows with their reason."""
    async with running_space(tmp_path, Consumer(lambda _: REFUSED)) as running:
        await running.queue("q", subscribers=["a"])
        id_ = await running.publish("q", b"m")
        await running.ended(id_)
        (delivery,) = (await running.view.message(id_)).deliveries
        assert (delivery.state, delivery.reason, delivery.attempts[0].status) == ("dead", "status", 500)
