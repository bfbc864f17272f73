"""A Space whose log loses its beginning again and again, and whose checkpoints are lost now and then."""

import asyncio
from pathlib import Path

import pytest

from syncbrok.delivery.handler import Delivery
from syncbrok.log.journal import FileJournal
from syncbrok.log.offline.order import check
from syncbrok.model import limits
from syncbrok.model.facts import Carried, Fact, Outcomes, Rearmed, Reason
from syncbrok.model.journal import JournalOptions
from syncbrok.model.message import Message, QueueSettings, RetryPolicy
from syncbrok.model.names import QueueName, SubscriberId, sequence_of
from syncbrok.space.channels import ChangeSubscriber, Replay
from tests.support.log.journals import records
from tests.support.polling import eventually
from tests.support.space.script import Script, on_their_way
from tests.support.space.spaces import (
    ACKNOWLEDGED,
    REFUSED,
    Clock,
    Consumer,
    Running,
    forget_checkpoints,
    running_space,
)

DAY_S = 86_400.0
QUEUE = QueueName("q")
LIVES = 4


class Aging:
    """``facts`` are all there ever were, by sequence: read before retention drops them."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory = directory
        self.script = Script(seed)
        self.clock = Clock()
        self.facts: dict[int, Fact] = {}

    def answer(self, delivery: Delivery):
        """Some are not answered before the end, so that there is something to carry."""
        return None if delivery.message.content[:1] < b"\x10" else self.script.answer(delivery)

    async def live(self, *, first: bool, last: bool) -> None:
        options = {"segment_bytes": limits.segment_bytes_min, "retention_s": DAY_S}
        consumer = Consumer(self.answer)
        async with running_space(self.directory, consumer, clock_us=self.clock, drain_s=0.005, **options) as running:
            if first:
                await self.script.declare(running)
            for _ in range(25):
                await self.script.publish(running)
                if self.script.random.random() < 0.3:
                    await self.script.operate(running)
                if self.script.random.random() < 0.1:
                    self.read(running.space._journal)
                    self.clock.forward(self.script.random.choice((DAY_S / 3, DAY_S / 2)))
                    await running.space._maintenance.drop_expired()
            if last:
                await self.finish(running)
        journal = FileJournal.open(self.directory, JournalOptions(), lambda: 0)
        self.read(journal)
        journal.close()

    def read(self, journal: FileJournal) -> None:
        for fact in records(journal):
            self.facts.setdefault(fact.sequence, fact)

    async def finish(self, running: Running) -> None:
        """Everything is answered well."""
        await self.script.resume(running)
        running.consumer.answer = lambda _: ACKNOWLEDGED

        def over() -> bool:
            running.consumer.release()
            self.clock.forward(1)
            running.space.dispatcher.wake()
            return not on_their_way(running)

        await eventually(over, "all but the held and what waits for them have ended")


@pytest.mark.parametrize("more", range(3))
async def test_nothing_is_early_or_lost_however_old_it_grows(tmp_path: Path, seed: int, more: int):
    """DESIGN 1, RULES 2, 13 and 21: judged from all facts there ever were, dropped ones among them; no message that was
    carried along, and not replayed, became a dead letter because its content was not found; and in the end everything
    has ended."""
    aging = Aging(tmp_path, seed + more)
    for life in range(LIVES):
        await aging.live(first=life == 0, last=life == LIVES - 1)
        if aging.script.random.random() < 0.6:
            forget_checkpoints(tmp_path)
    facts = [aging.facts[sequence] for sequence in sorted(aging.facts)]
    assert [fact.sequence for fact in facts] == list(range(1, len(facts) + 1))
    assert not check(facts)
    carried = {fact.message.sequence for fact in facts if isinstance(fact, Carried)}
    rearmed = {entry.message for fact in facts if isinstance(fact, Rearmed) for entry in fact.entries}
    rows = [row for fact in facts if isinstance(fact, Outcomes) for row in fact.rows]
    assert not [row for row in rows if row.reason is Reason.CONTENT_LOST and row.message in carried - rearmed]


async def test_two_drops_at_once_take_no_more_than_is_old(tmp_path: Path):
    """RULES 14, 15 and DESIGN 1: the Space's own round may be under way when another one is asked for; what has not
    ended is in the log all the same."""
    clock, consumer = Clock(), Consumer(lambda _: None)
    options = {"segment_bytes": limits.segment_bytes_min, "retention_s": DAY_S}
    async with running_space(tmp_path, consumer, clock_us=clock, drain_s=0.005, **options) as running:
        await running.queue("q", subscribers=["a"])
        old = await running.publish("q", b"old")
        await running.space._committer.keep_snapshot()
        clock.forward(2 * DAY_S)
        young = await running.publish("q", b"young")
        await running.space._committer.keep_snapshot()
        await running.publish("q", b"youngest")
        maintenance = running.space._maintenance
        await asyncio.gather(maintenance.drop_expired(), maintenance.drop_expired())
        assert len(running.space._journal.sections()) == 2
    consumer = Consumer()
    async with running_space(tmp_path, consumer, clock_us=clock, **options) as running:
        await running.ended(old, young)
        assert sorted(consumer.contents) == [b"old", b"young", b"youngest"]


async def test_who_does_not_count_holds_no_segment(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """RULES 14: what it has not taken ends there by one row, told in the log and by the metric; a start from what is
    left sends nothing of it."""
    clock, consumer = Clock(), Consumer()
    options = {"segment_bytes": limits.segment_bytes_min, "retention_s": DAY_S}
    async with running_space(tmp_path, consumer, clock_us=clock, **options) as running:
        await running.queue("q", subscribers=["a"])
        await running.subscribe("q", "reader", counts=False, paused=True)
        await running.ended(await running.publish("q", b"old"))
        await running.space._committer.keep_snapshot()
        clock.forward(2 * DAY_S)
        await running.ended(await running.publish("q", b"young"))
        assert await running.space._maintenance.drop_expired() == 1
        assert running.view.statistics().untaken_dropped == 1
        (told,) = [one for one in caplog.records if one.message == "syncbrok.space.untaken_dropped"]
        assert told.__dict__["subscriber"] == "reader"
        assert await running.space._maintenance.drop_expired() == 0
    forget_checkpoints(tmp_path)
    consumer = Consumer()
    async with running_space(tmp_path, consumer, clock_us=clock, **options) as running:
        await running.put(ChangeSubscriber(QueueName("q"), SubscriberId("reader"), {"paused": False}))
        await eventually(lambda: bool(consumer.seen), "the young one comes")
        assert consumer.seen == [(b"young", "reader")]
        assert running.view.statistics().untaken_dropped == 0


async def test_a_replay_of_what_was_carried_goes_on_with_the_numbers(tmp_path: Path):
    """RULES 21: attempt numbers go on, though retention has taken the rows of those before, twice; and a replay that
    waits until its message has gone with its segment ends, and says why."""
    clock = Clock()
    consumer = Consumer(lambda delivery: REFUSED if delivery.to.subscriber.id == "a" else ACKNOWLEDGED)
    options = {"segment_bytes": limits.segment_bytes_min, "retention_s": DAY_S}
    async with running_space(tmp_path, consumer, clock_us=clock, **options) as running:
        await running.queue("q", QueueSettings(retry=RetryPolicy((), 0.0)), subscribers=["a"])
        await running.subscribe("q", "b", paused=True)
        one = await running.publish("q", b"1")
        await eventually(lambda: len(consumer.seen) == 1, "it is refused at a")
        for _ in range(2):
            await running.space._committer.keep_snapshot()
            clock.forward(2 * DAY_S)
            await running.space._committer.keep_snapshot()
            assert await running.space._maintenance.drop_expired() > 0
        await running.put(ChangeSubscriber(QUEUE, SubscriberId("b"), {"paused": False}))
        await running.ended(one)
        await running.put(Replay(id=one))
        await eventually(lambda: len(consumer.seen) == 3, "it goes to a again")
        numbers = [delivery.attempt.number for delivery in consumer.deliveries]
        assert numbers == [1, 1, 2]
        await running.ended(one)
        await running.put(ChangeSubscriber(QUEUE, SubscriberId("a"), {"paused": True}))
        await running.put(Replay(id=one))
        await running.space._committer.keep_snapshot()
        clock.forward(3 * DAY_S)
        await running.space._committer.keep_snapshot()
        assert await running.space._maintenance.drop_expired() > 0
        reasons = [row.reason for fact in records(running.space._journal) if isinstance(fact, Outcomes)
                   for row in fact.rows if row.message == sequence_of(one)]  # fmt: skip
        assert reasons[-1] is Reason.CONTENT_LOST
        assert running.space._state.scheduler.replaying(None) == []


async def test_what_counts_and_is_told_its_past_does_not_hold_retention(tmp_path: Path):
    """RULES 14: as one that does not count: a row ends what went before it was told; and one that is declared to start
    with what has gone gets such a row at once."""
    clock = Clock()
    options = {"segment_bytes": limits.segment_bytes_min, "retention_s": DAY_S}
    async with running_space(tmp_path, Consumer(), clock_us=clock, **options) as running:
        await running.queue("q", subscribers=["a"])
        await running.ended(await running.publish("q", b"1"))
        await running.subscribe("q", "told", start="beginning", paused=True)
        await running.space._committer.keep_snapshot()
        clock.forward(2 * DAY_S)
        assert await running.space._maintenance.drop_expired() == 1
        await running.subscribe("q", "late", start="beginning")
        dropped = [
            (row.subscriber, row.message)
            for fact in records(running.space._journal)
            if isinstance(fact, Outcomes)
            for row in fact.rows
            if row.reason is Reason.RETENTION
        ]
        gone = running.space._journal.first_sequence - 1
        assert dropped == [(2, gone), (3, gone)]
        assert running.view.statistics().untaken_dropped == 1, "of the second nothing was lost that it could have had"


@pytest.mark.parametrize("forgetful", [False, True])
async def test_a_start_that_begins_a_segment_remembers_how_dropped_messages_ended(tmp_path: Path, forgetful: bool):
    """RULES 2 and 11: a parent that failed and is gone has failed for children to come, with and without a checkpoint,
    also where the newest snapshot is that of a start (a broker was killed when its segment was full)."""
    clock, consumer = Clock(), Consumer(lambda _: REFUSED)
    async with running_space(tmp_path, consumer, clock_us=clock, segment_bytes=65_536) as running:
        await running.queue(QUEUE, subscribers=[SubscriberId("a")])
        parent = await running.publish(QUEUE, b"fails")
        await running.ended(parent)
        assert await running.states(parent) == ["dead"]
        for _ in range(3):
            await running.publish_all(QUEUE, *[Message(b"x" * 1_000)] * 80)
        clock.forward(8 * DAY_S)
        assert await running.space._maintenance.drop_expired()
        assert running.space._journal.first_sequence > sequence_of(parent)
        await running.publish_all(QUEUE, *[Message(b"x" * 1_000)] * 40)
        newest = running.space._journal.sections()[-1].first
    async with running_space(tmp_path, consumer, clock_us=clock, segment_bytes=4_096) as running:
        assert running.space._journal.sections()[-1].first > newest
        assert running.space._state.scheduler.message_state(sequence_of(parent)) == "dead"
    if forgetful:
        forget_checkpoints(tmp_path)
    async with running_space(tmp_path, consumer, clock_us=clock, segment_bytes=65_536) as running:
        assert running.space._state.scheduler.message_state(sequence_of(parent)) == "dead"
