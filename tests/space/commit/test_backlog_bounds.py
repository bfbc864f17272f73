"""What a queue refuses that bounds what has not ended there (RULES 35): exact, whoever publishes, and after a start."""

import asyncio
import random
from array import array
from collections.abc import Sequence
from pathlib import Path

import pytest

from syncbrok.delivery.scheduler.scheduler import Scheduler
from syncbrok.model.errors import BacklogFull, TooLarge
from syncbrok.model.event_types import EVENTS_QUEUE
from syncbrok.model.facts import Messages
from syncbrok.model.message import BacklogBound, Message, QueueSettings, RetryPolicy
from syncbrok.model.names import QueueName
from syncbrok.space.channels import Accepted, ChangeQueue, Publish
from tests.support.polling import eventually
from tests.support.space.spaces import (
    ACKNOWLEDGED,
    REFUSED,
    Consumer,
    Running,
    forget_checkpoints,
    journal_of,
    running_space,
)

Q = QueueName("q")


def bounded(messages: int | None = None, size_bytes: int | None = None) -> QueueSettings:
    return QueueSettings(retry=RetryPolicy((), 0.0), max_backlog=BacklogBound(messages, size_bytes))


def backlog(running: Running) -> tuple[int, int | None]:
    report = running.view.queue("q")
    return report.backlog, report.backlog_bytes


async def test_the_bound_is_exact_whoever_publishes_at_once(tmp_path: Path) -> None:
    """RULES 35: of 200 publishers at once, single and in batches, with and without keys and parents, exactly as many
    messages are accepted as have room, never one more; what was refused has left nothing; when some have ended exactly
    as many are accepted again. Nothing is lost or stuck: all that was accepted is delivered."""
    consumer = Consumer(lambda _: None)
    async with running_space(tmp_path, consumer) as running:
        await running.queue("q", bounded(50), subscribers=["a"])
        parent = await running.publish("q", b"parent")
        three = [[Message(b"batch", idempotency_key=f"{n} {i}") for i in range(3)] for n in range(40)]
        two = [[Message(b"child", parents=(parent,)), Message(b"own")] for _ in range(60)]
        asked = [
            *(running.publish_all("q", Message(b"single")) for _ in range(100)),
            *(running.publish_all("q", *unit) for unit in (*three, *two)),
        ]
        random.Random(7).shuffle(asked)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        refused = [one for one in answers if isinstance(one, BaseException)]
        assert all(isinstance(one, BacklogFull) for one in refused)
        taken = 1 + sum(len(one.ids) for one in answers if not isinstance(one, BaseException))
        assert taken == backlog(running)[0] == running.view.queue("q").accepted
        assert 48 <= taken <= 50, "a batch of three may not fit where one does"
        consumer.answer = lambda _: ACKNOWLEDGED
        consumer.release()
        await eventually(lambda: backlog(running)[0] == 0, "all ended")
        again = await asyncio.gather(*(running.publish("q", b"x") for _ in range(50)), return_exceptions=True)
        assert not [one for one in again if isinstance(one, BaseException)]


async def test_bytes_are_those_of_contents_and_come_back(tmp_path: Path) -> None:
    """RULES 35: the bytes of all contents that have not ended at all subscribers; a message counts until the last of
    them has it, however it ends."""
    consumer = Consumer(lambda delivery: ACKNOWLEDGED if delivery.to.subscriber.id == "a" else None)
    async with running_space(tmp_path, consumer) as running:
        await running.queue("q", bounded(None, 1_000), subscribers=["a", "b"])
        await running.publish_all("q", Message(b"x" * 300), Message(b"y" * 400, key="k"), Message(b""))
        await eventually(lambda: len(consumer.held) == 3, "all are out")
        assert backlog(running) == (3, 700)
        with pytest.raises(BacklogFull, match=r"holds 700 bytes of content.*max_backlog\.bytes is 1000: 301 more"):
            await running.publish("q", b"z" * 301)
        last = await running.publish("q", b"z" * 300)
        consumer.answer = lambda _: REFUSED
        consumer.release(REFUSED)
        await running.ended(last)
        assert backlog(running) == (0, 0)
        with pytest.raises(TooLarge, match="it never has room"):
            await running.publish("q", b"z" * 1_001)


async def test_a_key_that_is_known_is_answered_though_there_is_no_room(tmp_path: Path) -> None:
    """RULES 4, 35: a repeated publish is nothing new, and is told its first id; a child whose parent was refused does
    not exist, and one whose parent waits is refused like any other."""
    async with running_space(tmp_path, Consumer(lambda _: None)) as running:
        await running.queue("q", bounded(1), subscribers=["a"])
        first = await running.publish("q", b"x", idempotency_key="k")
        assert await running.publish("q", b"x", idempotency_key="k") == first
        with pytest.raises(BacklogFull):
            await running.publish("q", b"child", first)
        with pytest.raises(BacklogFull):
            await running.publish("q", b"other", idempotency_key="k2")
        await running.put(ChangeQueue(Q, {"max_backlog": None}))
        assert await running.publish("q", b"other", idempotency_key="k2") != first
        assert backlog(running) == (2, None)


async def test_what_ends_as_it_is_accepted_never_stands_there(tmp_path: Path) -> None:
    """RULES 17, 35: in a queue without subscribers a message ends at once, and none is refused; one that waits for its
    time stands there."""
    async with running_space(tmp_path) as running:
        await running.queue("q", bounded(1, 10))
        await running.publish_all("q", *(Message(b"x" * 100) for _ in range(5)))
        await running.publish("q", b"later", delay_us=3_600_000_000)
        assert backlog(running) == (1, 5)
        with pytest.raises(BacklogFull):
            await running.publish("q", b"", delay_us=3_600_000_000)
        await running.publish("q", b"x" * 100, key="k")


async def test_the_brokers_own_events_are_never_refused(tmp_path: Path) -> None:
    """RULES 30, 35: what tells of facts is written whatever stands in its queue."""
    consumer = Consumer(lambda delivery: None if delivery.to.queue == EVENTS_QUEUE else REFUSED)
    async with running_space(tmp_path, consumer) as running:
        await running.subscribe(EVENTS_QUEUE, "watcher")
        await running.put(ChangeQueue(QueueName(EVENTS_QUEUE), {"max_backlog": BacklogBound(1, 1)}))
        await running.queue("q", bounded(100), subscribers=["a"])
        ids = [await running.publish("q", b"dies") for _ in range(3)]
        await running.ended(*ids)
        await eventually(lambda: running.view.queue(EVENTS_QUEUE).backlog >= 3, "three deaths are told")


@pytest.mark.parametrize("checkpoint", [True, False])
async def test_a_start_comes_to_the_same_figure(tmp_path: Path, checkpoint: bool) -> None:
    """RULES 35: with a checkpoint or without one, over several segments, with ended messages among those that wait:
    the figures of before, and then the same bound."""
    dice = random.Random(3)
    consumer = Consumer(lambda delivery: ACKNOWLEDGED if delivery.message.content.startswith(b"e") else None)
    async with running_space(tmp_path, consumer, segment_bytes=64 * 1024) as running:
        await running.queue("q", bounded(None, 10**7), subscribers=["a"])
        await running.queue("other", bounded(None, 10**7), subscribers=["a"])
        for _ in range(60):
            some = [dice.choice((b"e", b"w")) * dice.randrange(1, 400) for _ in range(dice.randrange(1, 30))]
            await running.publish_all("q", *map(Message, some))
            await running.publish("other", b"w" * 50)
        held = consumer.held
        await eventually(lambda: all(one[0].message.content[:1] == b"w" for one in held), "the others ended")
        before = backlog(running)
        assert running.view.queue("other").backlog_bytes == 3_000
    if not checkpoint:
        forget_checkpoints(tmp_path)
    async with running_space(tmp_path, Consumer(lambda _: None), segment_bytes=64 * 1024) as running:
        after = backlog(running)
        assert after[1] is not None
        assert after[0] >= before[0]
        waiting, place = 0, 0
        while place is not None:
            page = await running.view.messages("q", place, 1_000, None)
            for message in page.items:
                if message.state not in ("complete", "dead"):
                    waiting += len((await running.view.content(message.id)).content)
            place = page.next
        assert after[1] == waiting, "what waits, byte for byte"
        assert running.view.queue("other").backlog_bytes == 3_000


async def test_a_bound_set_later_counts_what_waits_already(tmp_path: Path) -> None:
    """RULES 35: what waited when the bound was set is counted from the log; what ends meanwhile is not. Taken away and
    set again it is counted anew."""
    consumer = Consumer(lambda _: None)
    async with running_space(tmp_path, consumer) as running:
        await running.queue("q", subscribers=["a"])
        for _ in range(30):
            await running.publish_all("q", *(Message(b"x" * 10) for _ in range(100)))
        for bound in (BacklogBound(None, 30_005), None, BacklogBound(5_000, 30_005)):
            await running.put(ChangeQueue(Q, {"max_backlog": bound}))
            expected = None if bound is None else 30_000
            await eventually(lambda want=expected: running.view.queue("q").backlog_bytes == want, "all are counted")
        with pytest.raises(BacklogFull):
            await running.publish("q", b"123456")
        await running.publish("q", b"12345")
        consumer.answer = lambda _: ACKNOWLEDGED
        consumer.release()
        await eventually(lambda: backlog(running) == (0, 0), "all ended")


async def test_units_in_one_batch_are_refused_each_by_itself(tmp_path: Path) -> None:
    """RULES 35: publishers whose messages are written together are each accepted or refused by what stands then; those
    of other queues are not touched."""
    async with running_space(tmp_path, Consumer(lambda _: None)) as running:
        await running.queue("q", bounded(None, 25), subscribers=["a"])
        await running.queue("free", subscribers=["a"])
        asked = ("q", b"1" * 10), ("free", b"2"), ("q", b"3" * 20), ("q", b"4" * 15), ("free", b"5"), ("q", b"6")
        units = [Publish.of(QueueName(name), [Message(content)]) for name, content in asked]
        answers = await asyncio.gather(*(running.put(unit) for unit in units), return_exceptions=True)
        assert [isinstance(one, BacklogFull) for one in answers] == [False, False, True, False, False, True]
        assert backlog(running) == (2, 25)


async def test_a_node_that_follows_is_told_the_sizes_with_the_records(tmp_path: Path) -> None:
    """RULES 35: facts that are read without their contents say how large those are, so that a start, or a takeover,
    reads no content for the figure."""
    async with running_space(tmp_path) as running:
        await running.queue("q", bounded(None, 10**6))
        contents = [b"x" * size for size in (0, 1, 300, 7)]
        parent = (await running.publish_all("q", *map(Message, contents))).ids[0]
        await running.publish("q", b"y" * 42, parent, key="k", headers=(("x-a", "b"),))
        told = [fact.sizes for fact in journal_of(running).facts_or_runs() if isinstance(fact, Messages)]
        sizes = array("I", b"".join(told)).tolist()
        assert sizes == [*map(len, contents), 42]
        scheduler = Scheduler()
        scheduler.apply_all(list(journal_of(running).facts_or_runs()))
        assert scheduler.unsized(10) is None


class Listener:
    """Notes what each publisher that shares a batch was told."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.turned_away: list[int] = []

    def accepted(self, units: Sequence[Publish], publishers: Sequence[int], receipt: Accepted) -> None:
        assert len(units) == len(publishers) == len(receipt.ids)
        self.taken += publishers

    def refused(self, publishers: Sequence[int], why: BaseException) -> None:
        assert isinstance(why, BacklogFull)
        self.turned_away += publishers


async def test_publishers_that_share_a_batch_are_counted_with_all_others_of_it(tmp_path: Path) -> None:
    """RULES 35: those of the fast path, and what stands between them in one batch: the first seven have room."""
    listener = Listener()
    async with running_space(tmp_path, Consumer(lambda _: None)) as running:
        await running.queue("q", bounded(7), subscribers=["a"])
        channel, unit = running.space.channels.messages, Publish.one(Q, Message(b"x"))
        for number in range(3):
            channel.put_shared(unit, number, listener)
        between = channel.put(Publish.of(Q, [Message(b"y", key="k"), Message(b"z")]))
        for number in range(3, 9):
            channel.put_shared(unit, number, listener)
        await between
        await eventually(lambda: len(listener.taken) + len(listener.turned_away) == 9, "all were told")
        assert (sorted(listener.taken), sorted(listener.turned_away)) == ([0, 1, 2, 3, 4], [5, 6, 7, 8])
        assert backlog(running) == (7, None)
