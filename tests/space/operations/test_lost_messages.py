"""A message whose content was lost, when the segment has gone that it stood in: as long as its dead letter is listed,
all who ask for it are told why it was not delivered (RULES 28)."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from syncbrok.model.errors import Lost
from syncbrok.model.message import Message
from syncbrok.model.names import MessageId, QueueName, SubscriberId, sequence_of
from syncbrok.space.channels import Cancel, ChangeSubscriber, Replay, RetryMessage
from tests.support.disk.rot import flip, segments
from tests.support.polling import eventually
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
QUEUE, A, B = QueueName("q"), SubscriberId("a"), SubscriberId("b")
CONTENT = b"what the disk forgets"
OPTIONS: dict[str, Any] = {"segment_bytes": 65_536, "retention_s": DAY_S}


class Ends(NamedTuple):
    """How the content is lost: ``rots`` (a bit turns) or its segment goes as it is; how the message had ended before,
    if it had, and was sent again; whether the subscribers take again before that segment goes, or when it has gone."""

    rots: bool
    before: str = ""
    taken_before: bool = False
    taken_after: bool = False


ENDS = {
    "nobody takes it": Ends(rots=True),  # one row ends it at both before the segment goes
    "its turn comes": Ends(rots=True, taken_before=True),  # a row for each
    "sent again": Ends(rots=True, before="complete", taken_before=True),
    "sent again too late": Ends(rots=False, before="complete", taken_after=True),  # RULES 21
    "dead, sent again too late": Ends(rots=False, before="dead", taken_after=True),
}


async def old_ones_have_gone(running: Running, clock: Clock) -> None:
    """What the start of this Space found too old it drops by itself."""
    journal, before_us = running.space._journal, clock() - int(DAY_S * 1e6)
    await eventually(lambda: not journal.expired(before_us), "segments that are too old have gone")


async def fill(running: Running) -> None:
    """Three segments and more."""
    for _ in range(3):
        await running.publish_all(QUEUE, *[Message(b"x" * 1_000)] * 80)


async def pause(running: Running) -> None:
    for one in (A, B):
        await running.put(ChangeSubscriber(QUEUE, one, {"paused": True}))


async def let_go(running: Running) -> None:
    for one in (A, B):
        await running.put(ChangeSubscriber(QUEUE, one, {"paused": False}))
    scheduler = running.space._state.scheduler
    await eventually(lambda: not (scheduler.unended(None, None, 1) or scheduler.replaying(None)), "all has ended")


async def listed(running: Running) -> list[tuple[int, str]]:
    letters = (await running.view.dead_letters(QUEUE, 0, 1_000)).items
    return [(one.sequence, one.subscriber) for one in letters if one.reason == "content_lost"]


async def told(running: Running, id_: MessageId) -> None:
    for ask in (
        running.view.message(id_),
        running.view.content(id_),
        running.view.tree(id_, "up", 1),
        running.put(Replay(id=id_)),
        running.put(Cancel(id_)),
        running.put(RetryMessage(id_, None)),
    ):
        with pytest.raises(Lost):
            await ask


@pytest.mark.parametrize("forgetful", [False, True])
@pytest.mark.parametrize("ends", ENDS.values(), ids=ENDS)
async def test_a_lost_message_is_lost_as_long_as_its_dead_letter_is_listed(
    tmp_path: Path, ends: Ends, forgetful: bool
) -> None:
    """RULES 28: its segment gone, it is ``lost`` and not only older than the retention, and listed, with and without a
    checkpoint; also when the segment has gone in which the row stood that ended it."""
    clock, consumer = Clock(), Consumer(lambda _: REFUSED if ends.before == "dead" else ACKNOWLEDGED)
    async with running_space(tmp_path, consumer, clock_us=clock, **OPTIONS) as running:
        await running.queue(QUEUE)
        for one in (A, B):
            await running.subscribe(QUEUE, one, breaker=None)  # what fills the log is to fail at once
        if not ends.before:
            await pause(running)
        id_ = await running.publish(QUEUE, CONTENT)
        if ends.before:
            await running.ended(id_)
            assert await running.states(id_) == [ends.before]
            await pause(running)
            await running.put(Replay(id=id_, subscriber=A))
        await fill(running)
    if ends.rots:
        path = segments(tmp_path)[0]
        flip(path, path.read_bytes().index(CONTENT))
    async with running_space(tmp_path, consumer, clock_us=clock, **OPTIONS) as running:
        if ends.taken_before:
            await let_go(running)
        await fill(running)
    clock.forward(2.1 * DAY_S)
    letters: list[tuple[int, str]] = []
    for _ in range(4):
        async with running_space(tmp_path, consumer, clock_us=clock, **OPTIONS) as running:
            await old_ones_have_gone(running, clock)
            assert running.space._journal.first_sequence > sequence_of(id_)
            if ends.taken_after and not letters:
                await let_go(running)
            letters = letters or await listed(running)
            assert {sequence for sequence, _ in letters} == {sequence_of(id_)}
            assert await listed(running) == letters
            await told(running, id_)
        if forgetful:
            forget_checkpoints(tmp_path)
        async with running_space(tmp_path, consumer, clock_us=clock, **OPTIONS) as running:
            assert await listed(running) == letters
            await told(running, id_)
            await fill(running)
        clock.forward(2.1 * DAY_S)  # the next start finds all of that too old


@pytest.mark.parametrize("forgetful", [False, True])
async def test_it_is_listed_of_one_that_does_not_count(tmp_path: Path, forgetful: bool) -> None:
    """RULES 20, 28: lost at one that does not count and delivered to all others, it is listed and ``lost`` as long,
    with and without a checkpoint."""
    clock, consumer = Clock(), Consumer(lambda _: ACKNOWLEDGED)
    async with running_space(tmp_path, consumer, clock_us=clock, **OPTIONS) as running:
        await running.queue(QUEUE, subscribers=[A])
        await running.subscribe(QUEUE, B, counts=False, paused=True)
        id_ = await running.publish(QUEUE, CONTENT)
        await running.ended(id_)
        await fill(running)
    path = segments(tmp_path)[0]
    flip(path, path.read_bytes().index(CONTENT))
    letters = [(sequence_of(id_), str(B))]
    async with running_space(tmp_path, consumer, clock_us=clock, **OPTIONS) as running:
        await running.put(ChangeSubscriber(QUEUE, B, {"paused": False}))
        await eventually(lambda: running.space._state.scheduler.is_lost(sequence_of(id_)), "its turn comes")
        assert await listed(running) == letters
        await fill(running)
    for _ in range(3):
        clock.forward(2.1 * DAY_S)
        async with running_space(tmp_path, consumer, clock_us=clock, **OPTIONS) as running:
            await old_ones_have_gone(running, clock)
            assert running.space._journal.first_sequence > sequence_of(id_)
            await fill(running)
        if forgetful:
            forget_checkpoints(tmp_path)
        async with running_space(tmp_path, consumer, clock_us=clock, **OPTIONS) as running:
            assert await listed(running) == letters
            await told(running, id_)
