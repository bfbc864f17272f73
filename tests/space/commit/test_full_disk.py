"""What a Space does while the disk is full (RULES 27); what publishers and deliveries see: ``test_committer``."""

from pathlib import Path

import pytest

from syncbrok.model.errors import IdempotencyConflict, LogFull
from syncbrok.model.message import Message, QueueSettings, RetryPolicy
from syncbrok.model.names import QueueName, SubscriberId
from syncbrok.space.channels import (
    Cancel,
    ChangeSubscriber,
    DeclareQueue,
    DeleteQueue,
    PurgeQueue,
    Replay,
    RetryMessage,
    RetrySubscriber,
    RotateSecret,
    Unsubscribe,
)
from syncbrok.space.state.secret_store import make_secret
from tests.support.polling import eventually
from tests.support.space.spaces import ACKNOWLEDGED, NEVER_AGAIN, REFUSED, Consumer, journal_of, running_space

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


async def test_what_writes_nothing_needs_no_room(tmp_path: Path):
    """RULES 26, 27: an endpoint that has been mended is tried again, and a plan of a replay is told, whatever room
    there is. (Before, both were refused with 507: the messages of a mended endpoint would have waited for a day, or for
    somebody who makes room.)"""
    consumer = Consumer(lambda _: REFUSED)
    async with running_space(tmp_path, consumer) as running:
        await running.queue("q", QueueSettings(retry=RetryPolicy((86_400.0,) * 3, 0.0)), ["a"])
        first, second = await running.publish("q", b"first"), await running.publish("q", b"second")
        await eventually(lambda: running.view.subscriber("q", "a").retrying == 2, "both have failed")
        journal = journal_of(running)
        journal.room, journal.reserve = False, 1_000
        with pytest.raises(LogFull):
            await running.publish("q", b"refused")
        consumer.answer = lambda _: ACKNOWLEDGED
        assert await running.put(RetryMessage(first)) == 1
        await running.ended(first)
        assert await running.put(RetrySubscriber(Q, SubscriberId("a"))) == 1
        await running.ended(second)
        planned = await running.put(Replay(first, dry_run=True))
        assert (planned.number, planned.deliveries) == (0, 1)
        with pytest.raises(LogFull):
            await running.put(Replay(first))


async def test_a_key_that_is_known_is_answered_on_a_full_disk(tmp_path: Path):
    """RULES 4, 27: who repeats a publish because no answer came is told its id. (Before: 507, "nothing was kept", of a
    message that had been accepted.) One that is new is refused, and takes nothing of its key."""
    async with running_space(tmp_path, Consumer()) as running:
        await running.queue("q", NEVER_AGAIN, ["a"])
        once = Message(b"once", idempotency_key="k")
        known = (await running.publish_all("q", once)).ids[0]
        journal = journal_of(running)
        journal.room, journal.reserve = False, 1_000
        new = Message(b"new", idempotency_key="n")
        for refused in (new, new, Message(b"bare")):
            with pytest.raises(LogFull):
                await running.publish_all("q", refused)
        again = await running.publish_all("q", once)
        assert (again.ids[0], again.new) == (known, (False,))
        with pytest.raises(IdempotencyConflict):
            await running.publish_all("q", Message(b"another", idempotency_key="k"))
        with pytest.raises(LogFull):
            await running.publish_all("q", once, new)
        journal.room = True
        await eventually(lambda: not running.space.statistics().committer.full, "there is room again")
        assert (await running.publish_all("q", once, new)).new == (False, True)
