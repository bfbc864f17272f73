"""A Space whose disk reads nothing at all for a while, as one that is cut off: no message is given up for that."""

from pathlib import Path

import pytest

from syncbrok.model.errors import LogUnreadable
from syncbrok.model.message import Message
from syncbrok.model.names import MessageId, QueueName, SubscriberId, sequence_of
from syncbrok.space.channels import ChangeSubscriber, Replay
from tests.support.disk.bad_sector import dead_disk, unreadable
from tests.support.polling import eventually
from tests.support.space.spaces import Clock, Consumer, Running, running_space

SMALL, DAY_S = 64 * 1024, 86_400.0
QUEUE, NAME = QueueName("q"), SubscriberId("a")
COUNT = 121


async def backlog(directory: Path, clock: Clock) -> tuple[MessageId, ...]:
    """Messages in a sealed segment, and one in the next, that wait for a paused subscriber; the Space has ended."""
    async with running_space(directory, clock_us=clock, segment_bytes=SMALL, retention_s=DAY_S) as running:
        await running.queue("q", subscribers=["a"])
        await running.queue("other", subscribers=["b"])
        await running.put(ChangeSubscriber(QUEUE, NAME, {"paused": True}))
        waiting = await running.publish_all("q", *[Message(b"%d" % number * 500) for number in range(COUNT - 1)])
        late = await running.publish("q", b"behind them")
        assert [one.sealed for one in running.space._journal.sections()] == [True, False]
    return *waiting.ids, late


def reasons(running: Running) -> list[str]:
    scheduler = running.space._state.scheduler
    return [outcome.name for _, outcome in scheduler.bad_messages(1 << 40)]


async def test_delivery_waits_for_a_disk_that_reads_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """RULES 28: where the disk reads nothing of the log, nobody can tell which records are lost: delivery of what must
    be read waits and says so, what is in memory goes out, who asks is told that it cannot be told now, a publish that
    must look something up too, and all is delivered when the disk reads again."""
    clock, consumer = Clock(), Consumer()
    ids = await backlog(tmp_path, clock)
    async with running_space(tmp_path, consumer, clock_us=clock, segment_bytes=SMALL, retention_s=DAY_S) as running:
        with dead_disk(tmp_path):
            await running.put(ChangeSubscriber(QUEUE, NAME, {"paused": False}))
            await eventually(lambda: "syncbrok.space.disk_unreadable" in caplog.messages, "the alarm")
            await running.ended(await running.publish("other", b"now"))
            assert consumer.contents == [b"now"]
            with pytest.raises(LogUnreadable):
                await running.view.message(ids[0])
            with pytest.raises(LogUnreadable):
                await running.put(Replay(id=ids[0]))
            with pytest.raises(LogUnreadable):
                await running.publish("other", b"child", ids[0])
            await running.ended(await running.publish("other", b"now"))
            assert reasons(running) == []
        await running.ended(*ids, await running.publish("other", b"child", ids[0]))
        assert len(consumer.seen) == COUNT + 3
        assert reasons(running) == []
    assert caplog.messages.count("syncbrok.space.disk_unreadable") == 1
    assert caplog.messages.count("syncbrok.space.disk_readable") == 1


async def test_retention_keeps_what_a_disk_that_reads_nothing_holds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """RULES 28: nor does retention end what it cannot read, or drop its segment, until it is known what is lost. One
    page that cannot be read is known: its records end as lost, the others are carried along."""
    clock, consumer = Clock(), Consumer()
    ids = await backlog(tmp_path, clock)
    async with running_space(tmp_path, consumer, clock_us=clock, segment_bytes=SMALL, retention_s=DAY_S) as running:
        journal, maintenance = running.space._journal, running.space._maintenance
        first = journal.sections()[0]
        assert journal.kind_of(sequence_of(ids[0])) == "message"  # its index is in use
        clock.forward(3 * DAY_S)
        with dead_disk(tmp_path):
            assert await maintenance.drop_expired() == 0
            assert "syncbrok.space.retention_stuck" in caplog.messages
            for one in (ids[0], ids[-1]):
                with pytest.raises(LogUnreadable):
                    journal.read_many([sequence_of(one)])
        assert reasons(running) == []
        assert journal.sections()[0] == first
        with unreadable(first.path, first.bytes // 2):
            assert await maintenance.drop_expired() > 0
        assert 0 < len(reasons(running)) < 12
        await running.put(ChangeSubscriber(QUEUE, NAME, {"paused": False}))
        await eventually(lambda: len(consumer.seen) == COUNT - len(reasons(running)), "the others")
