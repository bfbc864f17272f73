"""Publishers that are answered once another broker has what they published (CLUSTER, ``quorum+follower``)."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from syncbrok.model import limits
from syncbrok.model.journal import JournalOptions
from syncbrok.model.message import Message, QueueSettings
from syncbrok.model.names import QueueName
from syncbrok.space.channels import Accepted, DeclareQueue, Publish
from syncbrok.space.commit.confirmation import ConfirmationLine, HeldAnswers
from syncbrok.space.space import Space, SpaceOptions
from tests.support.polling import eventually

Q = QueueName("q")


def held(through: int, since_s: float) -> HeldAnswers:
    return HeldAnswers(through, since_s, 1, ())


def seen(line: ConfirmationLine, now_s: float) -> list[tuple[int, bool]]:
    return [(one.through, confirmed) for one, confirmed in line.due(now_s)]


def test_each_waits_for_its_own_record_and_no_longer_than_its_patience() -> None:
    """In order; whoever another broker has not reached in time is answered without it."""
    line = ConfirmationLine(2.0, 0.0)
    for through, since_s in ((5, 0.0), (7, 1.0), (9, 1.5)):
        line.add(held(through, since_s))
    assert seen(line, 0.5) == []
    line.confirmed(6, 1.0)
    assert seen(line, 1.6) == [(5, True)]
    line.confirmed(6, 2.9)
    assert seen(line, 2.9) == []
    assert seen(line, 3.1) == [(7, False)]
    line.confirmed(9, 3.2)
    assert seen(line, 3.2) == [(9, True)]
    assert line.records == 0


def test_where_nobody_is_heard_nobody_waits_until_one_is_heard_again() -> None:
    """After 2 L without a follower each answer would take as long; the next one that is heard is waited for again."""
    line = ConfirmationLine(2.0, 0.0)
    line.add(held(5, 9.0))
    assert seen(line, 9.0) == [(5, False)]
    line.confirmed(5, 10.0)
    line.add(held(6, 10.5))
    assert seen(line, 11.0) == []


class Followers:
    """As the test says."""

    def __init__(self, patience_s: float) -> None:
        self.patience_s = patience_s
        self.through, self.heard_s = 0, time.monotonic()
        self.changed: Callable[[], object] = lambda: None

    def confirmed_through(self) -> tuple[int, float]:
        return self.through, self.heard_s

    def listen(self, changed: Callable[[], object]) -> None:
        self.changed = changed

    def have(self, through: int) -> None:
        self.through, self.heard_s = through, time.monotonic()
        self.changed()


class Running:
    """A Space whose publishers wait for ``followers``, as a context manager."""

    def __init__(self, directory: Path, patience_s: float = 600.0) -> None:
        self.followers = Followers(patience_s)
        options = SpaceOptions(JournalOptions(), acknowledge="quorum+follower", copies=self.followers)
        self.space = Space.open(directory, options)

    async def __aenter__(self) -> Self:
        self._run = asyncio.create_task(self.space.run())
        await eventually(lambda: self.space.view.state == "serving", "it serves")
        await self.space.channels.queues.put(DeclareQueue(Q, QueueSettings()))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.space.drain()
        await self._run

    def publish(self, content: bytes, **more: Any) -> "asyncio.Future[Accepted]":
        return self.space.channels.messages.put(Publish.one(Q, Message(content, **more)))

    async def written(self, messages: int) -> None:
        await eventually(lambda: self.space.confirmations.waiting == messages, f"{messages} wait")


async def test_the_answer_comes_once_a_follower_has_it(tmp_path: Path) -> None:
    """And names what was reached; a declaration waits for nobody, and a message is delivered meanwhile."""
    async with Running(tmp_path) as running:
        first = running.publish(b"1")
        await running.written(1)
        sequence = running.space.statistics().sequence
        running.followers.have(sequence - 1)
        second = running.publish(b"2")
        await running.written(2)
        assert not first.done()
        running.followers.have(sequence)
        accepted = await first
        assert (accepted.sync, accepted.weaker, accepted.sequences) == ("quorum+follower", False, (sequence,))
        assert not second.done()
        running.followers.have(sequence + 1)
        assert (await second).sequences == (sequence + 1,)


async def test_who_repeats_is_not_answered_before_it(tmp_path: Path) -> None:
    """RULES 4: 200 and the first id say of the message what its own answer says."""
    async with Running(tmp_path) as running:
        first = running.publish(b"1", idempotency_key="k")
        await running.written(1)
        again = running.publish(b"1", idempotency_key="k")
        await running.written(2)
        running.followers.have(running.space.statistics().sequence)
        assert (await first).ids == (await again).ids
        assert (await again).new == (False,)


async def test_without_a_follower_a_quorum_is_said(tmp_path: Path) -> None:
    """In time, and honestly; counted too."""
    async with Running(tmp_path, patience_s=0.2) as running:
        accepted = await running.publish(b"1")
        assert (accepted.sync, accepted.weaker) == ("quorum", True)
        assert running.space.confirmations.unconfirmed == 1


async def test_the_end_of_the_broker_lets_nobody_wait(tmp_path: Path) -> None:
    """What a quorum has is said to be so when the broker that would have waited ends."""
    async with Running(tmp_path) as running:
        first = running.publish(b"1")
        await running.written(1)
    assert (await first).sync == "quorum"


async def test_so_many_wait_and_no_more(tmp_path: Path) -> None:
    """Held answers are bounded: further messages stay in the channel, which is too. They go on once there is room."""
    unit = Publish(Q, "text/plain", (b"m",) * limits.commit_records_max, limits.commit_records_max, {}, (), None)
    count = -(-limits.channel_items_max // limits.commit_records_max)
    async with Running(tmp_path) as running:
        many = []
        for number in range(1, count + 1):
            many.append(running.space.channels.messages.put(unit))
            await running.written(number * limits.commit_records_max)
        last = running.space.statistics().sequence
        many.append(running.publish(b"one more"))
        await running.space.channels.queues.put(DeclareQueue(QueueName("other"), QueueSettings()))
        assert running.space.confirmations.waiting == count * limits.commit_records_max
        running.followers.have(last)
        await running.written(1)
        running.followers.have(running.space.statistics().sequence)
        assert [one.sync for one in await asyncio.gather(*many)] == ["quorum+follower"] * (count + 1)
