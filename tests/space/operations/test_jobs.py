"""Jobs of operators (RULES 34): they go on over restarts, can be cancelled, and keep the order."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from syncbrok.log.offline.order import check
from syncbrok.model import limits
from syncbrok.model.errors import Conflict, LogFull, UnknownJob, UnknownSubscriber
from syncbrok.model.jobs import Choice, JobState
from syncbrok.model.message import ParentFailure
from syncbrok.model.names import MessageId, QueueName, SubscriberId, sequence_of
from syncbrok.space.channels import (
    Bound,
    CancelJob,
    ChangeSubscriber,
    DropDeadLetters,
    Planned,
    Recover,
    Replay,
    ReplayMessages,
    Seek,
    Unsubscribe,
)
from syncbrok.space.reports import DeliveryReport
from tests.support.log.journals import everything
from tests.support.polling import eventually
from tests.support.space.spaces import (
    ACKNOWLEDGED,
    NEVER_AGAIN,
    REFUSED,
    Clock,
    Consumer,
    Running,
    journal_of,
    running_space,
)

Q, A, B = QueueName("q"), SubscriberId("a"), SubscriberId("b")


class Moody(Consumer):
    """Refuses while it is ``bad``; keeps back its answers where it is ``slow``."""

    def __init__(self, *, bad: bool = True, slow: bool = False) -> None:
        self.bad, self.slow = bad, slow
        super().__init__(lambda _: None if self.slow else REFUSED if self.bad else ACKNOWLEDGED)

    def got(self, name: str) -> list[bytes]:
        return [content for content, to in self.seen if to == name]


@pytest.fixture(autouse=True)
def judged(tmp_path: Path) -> Iterator[None]:
    """The log of each test is in order, as ``log.offline.order`` judges it."""
    yield
    assert check(everything(tmp_path)) == []


async def over(running: Running, planned: Planned, state: JobState = JobState.DONE):
    """The report of the job once it is over."""
    assert planned.job is not None
    number = planned.job.number
    await eventually(lambda: running.space.view.job(number).state.is_over, "the job is over")
    report = running.space.view.job(number)
    assert report.state is state, report
    return report


async def dead_family(running: Running, count: int = 3) -> list[MessageId]:
    """Messages that died at both subscribers, each the parent of the next."""
    await running.queue("q", subscribers=["a", "b"])
    made: list[MessageId] = []
    for at in range(count):
        made.append(await running.publish("q", b"%d" % at, *made[-1:]))
    await running.ended(*made)
    return made


async def test_recover_sends_dead_letters_again_to_one_subscriber_in_causal_order(tmp_path: Path) -> None:
    """RULES 34: to that one only, parents first; the dead letters of the other stay, and so do the messages' ends."""
    consumer = Moody()
    async with running_space(tmp_path, consumer) as running:
        made = await dead_family(running)
        dry = await running.put(Recover(Q, A, dry_run=True))
        assert (dry.job, dry.total) == (None, 3)
        consumer.bad = False
        consumer.seen.clear()
        report = await over(running, await running.put(Recover(Q, A)))
        assert (report.total, report.done, report.failed) == (3, 3, 0)
        assert (consumer.got("a"), consumer.got("b")) == ([b"0", b"1", b"2"], [])
        assert await running.states(*made) == ["dead"] * 3
        assert (await running.put(Recover(Q, A, dry_run=True))).total == 0
        assert (await running.put(Recover(Q, B, dry_run=True))).total == 3


async def test_what_is_recovered_is_chosen_by_place_time_and_reason(tmp_path: Path) -> None:
    """RULES 34: ``since`` is inclusive, ``until`` exclusive, each a sequence or a time; and by reason."""
    clock = Clock()
    async with running_space(tmp_path, Moody(), clock_us=clock) as running:
        await running.queue("q", subscribers=["a"])
        made = []
        for at in range(4):
            clock.forward(60)
            made.append(await running.publish("q", b"%d" % at))
            await running.ended(*made)
        first, second, third, _ = map(sequence_of, made)

        async def total(**bounds: object) -> int:
            return (await running.put(Recover(Q, A, dry_run=True, **bounds))).total  # type: ignore[arg-type]

        assert await total(since=Bound(second), until=Bound(third)) == 1
        assert await total(since=Bound(second)) == 3
        assert await total(until=Bound(first)) == 0
        assert await total(reasons=("status",)) == 4
        assert await total(reasons=("timeout",)) == 0
        now_us = clock()
        assert await total(since=Bound(time_us=now_us - 90_000_000)) == 2
        assert await total(until=Bound(time_us=now_us - 90_000_000)) == 2
        assert await total(since=Bound(time_us=now_us + 90_000_000)) == 0


async def test_all_of_a_time_goes_again_and_completion_is_not_changed(tmp_path: Path) -> None:
    """RULES 34: ``state: all`` sends what was delivered too; what dies of it is a dead letter of a message that stays
    complete."""
    consumer = Moody(bad=False)
    async with running_space(tmp_path, consumer) as running:
        made = await dead_family(running)
        assert (await running.put(Recover(Q, A, choice=Choice.ALL, dry_run=True))).total == 3
        consumer.seen.clear()
        consumer.bad = True
        report = await over(running, await running.put(Recover(Q, A, choice=Choice.ALL)))
        assert (report.total, report.done, report.failed) == (3, 0, 3)
        assert consumer.got("b") == []
        assert await running.states(*made) == ["complete"] * 3


async def test_a_seek_forward_passes_over_what_waits(tmp_path: Path) -> None:
    """RULES 34: it ends ``skipped``, which counts as acknowledged; what is out is left, what is later goes."""
    consumer = Moody(slow=True)
    async with running_space(tmp_path, consumer) as running:
        await running.queue("q", settings=replace(NEVER_AGAIN, window=1), subscribers=["a"])
        made = [await running.publish("q", b"%d" % at) for at in range(4)]
        await eventually(lambda: consumer.got("a") == [b"0"], "the first is out")
        child = await running.publish("q", b"child", made[2])
        place = Bound(sequence_of(made[3]))
        report = await over(running, await running.put(Seek(Q, A, place)))
        assert (report.kind, report.total, report.done) == ("seek", 2, 2)
        assert await running.states(*made) == ["pending", "complete", "complete", "pending"]
        consumer.slow = consumer.bad = False
        consumer.release()
        await running.ended(*made, child)
        assert consumer.got("a") == [b"0", b"3", b"child"]
        shown = (await running.space.view.message(made[1])).deliveries[0]
        assert (shown.state, shown.reason) == ("skipped", "seek")


async def test_a_seek_back_sends_all_from_there_again(tmp_path: Path) -> None:
    """RULES 34: as recover with ``all``, also what was passed over."""
    consumer = Moody(bad=False)
    async with running_space(tmp_path, consumer) as running:
        made = await dead_family(running, 4)
        consumer.seen.clear()
        report = await over(running, await running.put(Seek(Q, A, Bound(sequence_of(made[1])))))
        assert (report.kind, report.wish.choice) == ("recover", Choice.ALL)
        assert consumer.got("a") == [b"1", b"2", b"3"]


async def test_one_that_does_not_count_and_lags_can_seek(tmp_path: Path) -> None:
    """RULES 34: what it has not been told of is passed over in one row."""
    consumer = Moody(bad=False)
    async with running_space(tmp_path, consumer) as running:
        await running.queue("q", subscribers=["a"])
        made = [await running.publish("q", b"%d" % at) for at in range(5)]
        await running.ended(*made)
        await running.subscribe("q", "late", start="beginning", paused=True, counts=False)
        await over(running, await running.put(Seek(Q, SubscriberId("late"), Bound(sequence_of(made[3])))))
        await running.put(ChangeSubscriber(Q, SubscriberId("late"), {"paused": False}))
        await eventually(lambda: consumer.got("late") == [b"3", b"4"], "it goes on from there")


@pytest.mark.parametrize("kept", [False, True])
async def test_a_cancel_keeps_what_was_sent_and_takes_back_the_rest(tmp_path: Path, kept: bool) -> None:
    """RULES 34: dead letters are what they were, with their reasons; over a restart as well (``kept``)."""
    consumer = Moody()
    async with running_space(tmp_path, consumer) as running:
        await running.queue("q", settings=replace(NEVER_AGAIN, window=1), subscribers=["a", "b"])
        made = [await running.publish("q", b"%d" % at) for at in range(3)]
        child = await running.publish("q", b"child", made[2])
        await running.ended(*made, child)
        consumer.slow = True
        consumer.seen.clear()
        planned = await running.put(Recover(Q, A))
        await eventually(lambda: consumer.got("a") == [b"0"], "the first is out")
        assert planned.job is not None
        if not kept:
            job = await running.put(CancelJob(planned.job.number))
            assert (job.state, job.done) == (JobState.CANCELLED, 0)
            consumer.slow = consumer.bad = False
            consumer.release()
            await eventually(lambda: running.space.view.subscriber("q", A).delivered == 1, "it was sent")
            await check_taken_back(running, made, child)
            with pytest.raises(Conflict, match="cancelled already"):
                await running.put(CancelJob(planned.job.number))
    if kept:
        consumer.slow = True
        consumer.held.clear()
        async with running_space(tmp_path, consumer) as running:
            await running.put(CancelJob(planned.job.number))
            consumer.slow = consumer.bad = False
            consumer.release()
            await eventually(lambda: running.space.view.subscriber("q", A).delivered == 1, "it was sent")
            await check_taken_back(running, made, child)


async def reports(running: Running, message: MessageId) -> Sequence[DeliveryReport]:
    return (await running.space.view.message(message)).deliveries


async def check_taken_back(running: Running, made: list[MessageId], child: MessageId) -> None:
    letters = (await running.space.view.dead_letters("q", 0, 100)).items
    names = {id_: at for at, id_ in enumerate([*made, child])}
    found = [(names[one.id], one.subscriber, one.reason) for one in letters if one.id]
    assert found == [
        (0, "b", "status"),
        (1, "a", "status"), (1, "b", "status"),
        (2, "a", "status"), (2, "b", "status"),
        (3, "a", "parent_failed"), (3, "b", "parent_failed"),
    ]  # fmt: skip


async def test_a_job_goes_on_after_a_restart(tmp_path: Path) -> None:
    """RULES 34: what was planned and sent before is not sent twice, the rest goes in causal order."""
    consumer = Moody()
    async with running_space(tmp_path, consumer) as running:
        made = await dead_family(running, 40)
        consumer.slow = True
        planned = await running.put(Recover(Q, A))
        await eventually(lambda: len(consumer.held) == 1, "the root is out")
    consumer.bad = consumer.slow = False
    consumer.seen.clear()
    async with running_space(tmp_path, consumer) as running:
        report = await over(running, planned)
        assert (report.total, report.done, report.failed) == (40, 40, 0)
        assert consumer.got("a") == [b"%d" % at for at in range(40)]
        assert (await running.put(Recover(Q, B, dry_run=True))).total == len(made)
    async with running_space(tmp_path, consumer) as running:
        assert running.space.view.jobs(None, 10).items == (report,)


async def test_a_selection_is_replayed_with_what_failed_through_it(tmp_path: Path) -> None:
    """RULES 21, 34."""
    consumer = Moody()
    async with running_space(tmp_path, consumer) as running:
        made = await dead_family(running)
        other = await running.publish("q", b"other")
        await running.ended(other)
        consumer.bad = False
        consumer.seen.clear()
        report = await over(running, await running.put(ReplayMessages(Q, (sequence_of(made[1]),))))
        assert (report.total, report.done) == (2, 2)
        assert consumer.got("a") == consumer.got("b") == [b"1", b"2"]
        assert await running.states(*made, other) == ["dead", "complete", "complete", "dead"]


async def test_dead_letters_that_are_dropped_are_gone_and_what_is_on_hold_for_them_dies(tmp_path: Path) -> None:
    """RULES 34: from the list, and from replays; the message keeps its bad end; children on hold die of it once the
    last of its dead letters is dropped."""
    consumer = Moody()
    async with running_space(tmp_path, consumer) as running:
        made = await dead_family(running)
        held = await running.publish("q", b"held", made[0], parent_failure=ParentFailure.HOLD)
        assert await running.states(held) == ["held"]
        assert (await running.put(DropDeadLetters(Q, A, dry_run=True))).total == 3
        report = await over(running, await running.put(DropDeadLetters(Q, A)))
        assert (report.total, report.done) == (3, 3)
        letters = (await running.space.view.dead_letters("q", 0, 100)).items
        assert [one.subscriber for one in letters] == ["b"] * 3
        assert await running.states(held) == ["held"]
        shown = {one.subscriber: (one.state, one.reason) for one in await reports(running, made[1])}
        assert shown == {"a": ("dropped", "discarded"), "b": ("dead", "parent_failed")}
        await over(running, await running.put(DropDeadLetters(Q)))
        await running.ended(held)
        assert await running.states(*made, held) == ["dead"] * 4
        letters = (await running.space.view.dead_letters("q", 0, 100)).items
        assert [(one.id, one.reason) for one in letters] == [(held, "parent_failed")] * 2
    async with running_space(tmp_path, consumer) as running:
        assert await running.states(*made, held) == ["dead"] * 4
        letters = (await running.space.view.dead_letters("q", 0, 100)).items
        assert [one.id for one in letters] == [held] * 2


async def test_dead_letters_of_named_messages_are_dropped_and_no_others(tmp_path: Path) -> None:
    """RULES 34: a selection goes, at one subscriber or at all; a dry run says how many these are; what else the job is
    told must be true of them as well."""
    async with running_space(tmp_path, Moody()) as running:
        made = await dead_family(running)
        first, _, third = map(sequence_of, made)

        async def letters() -> set[tuple[int, str]]:
            found = (await running.space.view.dead_letters("q", 0, 100)).items
            return {(made.index(one.id), one.subscriber) for one in found}

        both = (first, third)
        assert (await running.put(DropDeadLetters(Q, sequences=both, dry_run=True))).total == 4
        assert (await running.put(DropDeadLetters(Q, None, Bound(third), sequences=both, dry_run=True))).total == 2
        assert (await running.put(DropDeadLetters(Q, reasons=("status",), sequences=both, dry_run=True))).total == 2
        report = await over(running, await running.put(DropDeadLetters(Q, A, sequences=both)))
        assert (report.total, report.done) == (2, 2)
        assert await letters() == {(0, "b"), (1, "a"), (1, "b"), (2, "b")}


async def test_the_dry_run_of_a_selection_says_how_many_messages_would_go(tmp_path: Path) -> None:
    """RULES 21: with those that failed through it; nothing is sent and no job is there."""
    consumer = Moody()
    async with running_space(tmp_path, consumer) as running:
        made = await dead_family(running)
        consumer.bad = False
        consumer.seen.clear()
        planned = await running.put(ReplayMessages(Q, (sequence_of(made[0]),), dry_run=True))
        assert (planned.job, planned.total) == (None, 3)
        assert (await running.put(ReplayMessages(Q, (sequence_of(made[2]),), dry_run=True))).total == 1
        assert consumer.seen == []
        assert await running.states(*made) == ["dead"] * 3


async def test_dead_letters_are_dropped_by_place_and_reason(tmp_path: Path) -> None:
    """RULES 34: those before a place, those of some reasons, and no others."""
    async with running_space(tmp_path, Moody()) as running:
        made = await dead_family(running)
        second = Bound(sequence_of(made[1]))

        async def letters() -> set[tuple[int, str]]:
            found = (await running.space.view.dead_letters("q", 0, 100)).items
            return {(made.index(one.id), one.subscriber) for one in found}

        await over(running, await running.put(DropDeadLetters(Q, A, second)))
        assert await letters() == {(0, "b"), (1, "a"), (1, "b"), (2, "a"), (2, "b")}
        assert (await running.put(DropDeadLetters(Q, None, second, ("parent_failed",), dry_run=True))).total == 0
        await over(running, await running.put(DropDeadLetters(Q, None, reasons=("status",))))
        assert await letters() == {(1, "a"), (1, "b"), (2, "a"), (2, "b")}
        await over(running, await running.put(DropDeadLetters(Q, B, reasons=("parent_failed",))))
        assert await letters() == {(1, "a"), (2, "a")}


async def test_where_the_log_begins_later_a_recover_says_so(tmp_path: Path) -> None:
    """RULES 34: of what retention has taken nothing can be sent; ``from`` is where it can begin."""
    clock = Clock()
    options = {"segment_bytes": limits.segment_bytes_min, "retention_s": 86_400.0}
    async with running_space(tmp_path, Moody(bad=False), clock_us=clock, **options) as running:
        await running.queue("q", subscribers=["a"])
        old = await running.publish("q", b"old")
        await running.ended(old)
        await running.space._committer.keep_snapshot()
        clock.forward(2 * 86_400.0)
        await running.space._committer.keep_snapshot()
        assert await running.space._maintenance.drop_expired() > 0
        young = await running.publish("q", b"young")
        await running.ended(young)
        first = running.space._journal.first_sequence
        assert sequence_of(old) < first
        everything_again = Recover(Q, A, Bound(sequence_of(old)), choice=Choice.ALL)
        for wish in (everything_again._replace(dry_run=True), everything_again):
            planned = await running.put(wish)
            assert (planned.total, planned.first) == (1, first)
        later = await running.put(Recover(Q, A, Bound(sequence_of(young)), choice=Choice.ALL, dry_run=True))
        assert later.first == sequence_of(young)


async def test_what_cannot_be_done_is_said(tmp_path: Path) -> None:
    """RULES 34: an unknown subscriber or job is refused; a job whose subscriber goes away has failed and says why."""
    consumer = Moody()
    async with running_space(tmp_path, consumer) as running:
        await dead_family(running)
        with pytest.raises(UnknownSubscriber):
            await running.put(Recover(Q, SubscriberId("nobody")))
        with pytest.raises(UnknownJob):
            await running.put(CancelJob(4711))
        async with running.space._jobs._planning:  # another job plans meanwhile
            planned = await running.put(Recover(Q, A))
            await running.put(Unsubscribe(Q, A))
        report = await over(running, planned, JobState.FAILED)
        assert report.why == "the subscriber has been deleted"


async def test_a_job_waits_for_room_on_the_disk_and_keeps_nobody_from_ending(tmp_path: Path) -> None:
    """RULES 27, 34: it is planned until there is room; a broker that stops meanwhile leaves it to the next start."""
    async with running_space(tmp_path, Moody()) as running:
        await dead_family(running)
        async with running.space._jobs._planning:
            planned = await running.put(Recover(Q, A))
            await running.put(Unsubscribe(Q, A))
            journal_of(running).room = False
        with pytest.raises(LogFull):
            await running.publish("q", b"no room")
        assert planned.job is not None
        assert running.space.view.job(planned.job.number).state is JobState.PLANNED
        journal_of(running).room = True
    async with running_space(tmp_path, Moody()) as running:
        report = await over(running, planned, JobState.FAILED)
        assert report.why == "the subscriber has been deleted"


async def test_a_replay_is_a_job_too(tmp_path: Path) -> None:
    """RULES 34: a replay of before is answered as ever, and has a job that shows how far it is."""
    consumer = Moody()
    async with running_space(tmp_path, consumer) as running:
        made = await dead_family(running)
        consumer.bad = False
        plan = await running.put(Replay(queue=Q))
        number = plan.job
        await eventually(lambda: running.space.view.job(number).state is JobState.DONE, "it is over")
        report = running.space.view.job(number)
        assert (report.total, report.done, report.failed, report.replay) == (3, 3, 0, plan.number)
        assert await running.states(*made) == ["complete"] * 3


async def test_a_replay_that_was_cut_off_behind_its_plan_is_not_planned_again(tmp_path: Path) -> None:
    """RULES 13, 21: all that it sends was in the log, and the fact that says so was not: the next start sends nothing
    twice, or a child would go before its parent went the second time."""
    consumer = Moody()
    async with running_space(tmp_path, consumer) as running:
        made = await dead_family(running)
        consumer.bad = False

        async def cut_off(_: object) -> None:
            raise LogFull("it was killed, says the test")

        running.space._jobs.stop()
        running.space._jobs.written = cut_off
        with pytest.raises(LogFull):
            await running.put(Replay(id=made[0]))
        await running.ended(*made)
    consumer.seen.clear()
    async with running_space(tmp_path, consumer) as running:
        (job,) = running.space.view.jobs(None, 10).items
        await eventually(lambda: running.space.view.job(job.number).state is JobState.DONE, "it is over")
        assert (running.space.view.job(job.number).total, consumer.seen) == (3, [])
