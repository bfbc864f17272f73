"""The policy ``interval``: what may wait for the fsync, and what may not."""

import threading
from functools import partial
from pathlib import Path
from typing import Any

from syncbrok.log.offline.order import check
from syncbrok.log.segments import checkpoint
from syncbrok.model.facts import Outcome, Reason, Row
from syncbrok.model.message import Message
from syncbrok.space.commit.outcome_buffer import OutcomeBuffer
from tests.support.log.journals import records
from tests.support.polling import eventually
from tests.support.space.spaces import FaultyJournal, running_space


async def test_under_an_interval_the_answer_comes_before_the_fsync(tmp_path: Path):
    """RULES 1: the policy ``interval`` answers at once and says so."""
    async with running_space(tmp_path, sync="interval", interval_ms=500) as running:
        await running.queue("q", subscribers=["a"])
        accepted = await running.publish_all("q", *[Message(b"x")] * 20)
        assert accepted.sync == "interval:500"
        assert running.space.statistics().durable_sequence < accepted.sequences[-1]
        await eventually(
            lambda: running.space.statistics().durable_sequence == running.space.statistics().sequence, "all is synced"
        )


async def test_under_an_interval_children_wait_for_the_fsync(tmp_path: Path):
    """RULES 13 excepts no policy: a child goes out when the completion of its parents is on the disk, whether it waited
    for that or comes when they have just ended, or their queue has no subscriber. The log alone proves it."""
    async with running_space(tmp_path, sync="interval", interval_ms=60_000) as running:
        await running.queue("q", subscribers=["a"])
        await running.queue("nobody")
        together = await running.publish_all("q", Message(b"p"), Message(b"c", parents=(0,)))
        await running.ended(*together.ids)
        parent = await running.publish("q", b"p")
        await running.ended(parent)
        alone = await running.publish("nobody", b"p")
        children = [await running.publish("q", b"c", one) for one in (parent, alone)]
        await running.ended(*children)
        assert running.consumer.contents == [b"p", b"c", b"p", b"c", b"c"]
        assert check(records(running.space._journal)) == []


async def test_under_an_interval_the_next_of_a_key_waits_for_the_fsync(tmp_path: Path):
    """RULES 6: it goes out when the end of the one before it is on the disk, also where that had ended before this one
    was accepted. The log alone proves it."""
    async with running_space(tmp_path, sync="interval", interval_ms=60_000) as running:
        await running.queue("q", subscribers=["a"])
        for content in (b"1", b"2", b"3"):
            accepted = await running.publish_all("q", Message(content, key="k"))
            ended = partial(running.space._state.scheduler.ended, accepted.sequences[0])  # nobody waits for its end
            await eventually(ended, "the end of the one before")
        assert running.consumer.contents == [b"1", b"2", b"3"]
        assert check(records(running.space._journal)) == []


async def test_under_an_interval_a_checkpoint_is_kept_all_the_same(tmp_path: Path):
    """DESIGN 4: one of more than is fsynced is not kept, so what it covers is fsynced for it: while something is always
    being written, and at the end."""
    async with running_space(tmp_path, sync="interval", interval_ms=60_000) as running:
        await running.queue("q")
        for content in (b"1", b"2"):
            await running.publish("q", content)
            through = running.space._state.through
            assert _checkpointed(tmp_path) < through
            if content == b"1":
                assert await running.space._maintenance.save()
                assert _checkpointed(tmp_path) == through
    assert _checkpointed(tmp_path) == through


def _checkpointed(directory: Path) -> int:
    """Through where the newest checkpoint below it says how things stand; 0 without one."""
    heads = [checkpoint.read_head(path) for path in directory.rglob(checkpoint.NAME)]
    return max((head.through for head in heads if head is not None), default=0)


def test_who_comes_to_wait_for_an_outcome_under_way_is_known_when_it_is_written() -> None:
    """RULES 13: nobody waited for it when it came, and then a child was accepted; its commit is synced all the same."""
    rows = OutcomeBuffer()
    rows.put([Row(1, 1, 1, Outcome.DELIVERED, Reason.NONE, 200, 0, 0, 0, 0)] * 2, urgent=False)
    assert not rows.urgent
    rows.written(0, (), opened=True)
    assert rows.urgent
    rows.put(rows.first(1, lambda _: 1), urgent=False)
    rows.written(2, (), opened=False)
    assert not rows.urgent


async def test_a_sync_that_ends_with_the_space_begins_no_other(tmp_path: Path):
    """RELIABILITY C, shutdown: an orderly stop is one, however long the last things take."""

    class SlowAtTheEnd(FaultyJournal):
        syncing = threading.Event()
        ending = False

        def sync(self) -> bool:
            self.syncing.set()
            if self.ending:
                threading.Event().wait(0.5)
            super().sync()
            return True  # the watermark is behind

        def save_checkpoint(self, *arguments: Any) -> None:
            threading.Event().wait(2.5)  # the next sync would be due in 1.1 s
            super().save_checkpoint(*arguments)

    async with running_space(tmp_path, open_journal=SlowAtTheEnd.open, sync="interval", interval_ms=20) as running:
        await running.queue("q")
        await eventually(SlowAtTheEnd.syncing.is_set, "a sync")
        SlowAtTheEnd.ending = True
        SlowAtTheEnd.syncing.clear()
        await running.publish("q", b"x")
        await eventually(SlowAtTheEnd.syncing.is_set, "another is under way")
    assert not running.space._committer._meters.failed
