"""What a Space does while the disk is full (RULES 27); what publishers and deliveries see: ``test_committer``."""

from pathlib import Path

import pytest

from syncbrok.model.errors import LogFull
from syncbrok.model.names import QueueName, SubscriberId
from syncbrok.space.channels import (
    Cancel,
    ChangeSubscriber,
    DeclareQueue,
    DeleteQueue,
    PurgeQueue,
    RotateSecret,
    Unsubscribe,
)
from syncbrok.space.state.secret_store import make_secret
from tests.support.polling import eventually
from tests.support.spaces import NEVER_AGAIN, Consumer, journal_of, running_space

Q = QueueName("q")


async def test_what_ends_work_or_lets_it_go_on_is_done_on_a_full_disk(tmp_path: Path):
    """RULES 27: an operator can delete, cancel, purge, let a subscriber go on and move its endpoint; a declaration that
    changes nothing is answered; what would make the log larger is refused, and a new secret too."""
    consumer = Consumer()
    async with running_space(tmp_path, consumer) as running:
        await running.queue("q")
        await running.subscribe("q", "a", paused=True)
        await running.subscribe("q", "gone", paused=True)
        await running.queue("unused")
        await running.queue("purged")
        await running.subscribe("purged", "b", paused=True)
        kept, cancelled = await running.publish("q", b"kept"), await running.publish("q", b"cancelled")
        purged = await running.publish("purged", b"purged")
        journal = journal_of(running)
        journal.room, journal.reserve = False, 1_000
        with pytest.raises(LogFull):
            await running.publish("q", b"refused")
        assert await running.put(Cancel(cancelled)) == 2
        assert await running.put(Unsubscribe(Q, SubscriberId("gone")))
        assert await running.put(DeleteQueue(QueueName("unused"))) == 0
        assert await running.put(PurgeQueue(QueueName("purged"))) == 1
        assert (await running.put(DeclareQueue(Q, NEVER_AGAIN))).what == "unchanged"
        for refused in (DeclareQueue(QueueName("new"), NEVER_AGAIN), RotateSecret(Q, SubscriberId("a")),
                        ChangeSubscriber(Q, SubscriberId("a"), {}, make_secret())):  # fmt: skip
            with pytest.raises(LogFull):
                await running.put(refused)
        assert (await running.put(ChangeSubscriber(Q, SubscriberId("a"), {"paused": False}))).what == "changed"
        await running.ended(kept, cancelled, purged)
        assert consumer.contents == [b"kept"]
        with pytest.raises(LogFull):
            await running.publish("q", b"still full")
        journal.room = True
        await eventually(lambda: not running.space.statistics().committer.full, "there is room again")
        assert (await running.put(DeclareQueue(QueueName("new"), NEVER_AGAIN))).what == "created"
