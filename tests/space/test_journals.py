"""A whole Space on each journal: it needs nothing of them but what ``syncbrok.model.journal`` promises.

Broken by hand to see these fail: an append that returns before it knows its fate; a checkpoint that is not there; a
crash that takes what was durable; essential batches refused, or a snapshot that retention asks for.
"""

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from syncbrok.model.errors import LogFailed, LogFull, LogUnavailable
from syncbrok.model.message import Message, QueueSettings, RetryPolicy
from syncbrok.model.names import MessageId
from syncbrok.space.channels import Replay
from tests.support.log.journal_places import PLACES, Place, placed
from tests.support.polling import eventually
from tests.support.space.spaces import ACKNOWLEDGED, REFUSED, Clock, Consumer, Running, running_space

PATIENT = QueueSettings(retry=RetryPolicy((0.001,) * 9, 0.0))


@pytest.fixture(params=list(PLACES))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with placed(request.param, tmp_path) as made:
        yield made


async def families(
    running: Running, count: int, *, first: int = 0, told: Callable[[MessageId], object] = lambda _: None
) -> list[MessageId]:
    """Each a parent in one queue with two children in another, one of them keyed; published side by side. ``told``
    hears of each id as soon as it is acknowledged."""

    async def publish(queue: str, content: bytes, *parents: MessageId, **fields: Any) -> MessageId:
        id_ = await running.publish(queue, content, *parents, **fields)
        told(id_)
        return id_

    async def one(number: int) -> list[MessageId]:
        parent = await publish("a", b"%d parent" % number)
        elder = await publish("b", b"%d first" % number, parent, key="k")
        return [parent, elder, await publish("b", b"%d second" % number, parent, elder)]

    found = await asyncio.gather(*map(one, range(first, first + count)))
    return [id_ for family in found for id_ in family]


def in_order(seen: list[bytes], count: int) -> bool:
    places = {content: at for at, content in enumerate(seen)}
    return all(
        places[b"%d parent" % number] < places[b"%d first" % number] < places[b"%d second" % number]
        for number in range(count)
    )


async def test_a_space_keeps_its_promises_on_any_journal(tmp_path: Path, place: Place) -> None:
    """DESIGN 1: causal, nothing lost, dead letters and replay, an idempotency key known after a restart, on a journal
    in files, in memory, and behind a network that answers late or not at all."""
    bad = {b"3 parent"}
    refuse: Callable[..., bool] = lambda delivery: delivery.message.content in bad  # noqa: E731
    consumer = Consumer(lambda delivery: REFUSED if refuse(delivery) else ACKNOWLEDGED)
    async with running_space(tmp_path, consumer, open_journal=place.open_for_space) as running:
        await running.queue("a", subscribers=["one"])
        await running.queue("b", subscribers=["two"])
        ids = await families(running, 8)
        first = await running.publish("a", b"once", idempotency_key="only")
        await running.ended(first, *ids)
        states = await running.states(*ids)
        assert (states.count("complete"), states.count("dead")) == (21, 3), states
    bad.clear()
    again = Consumer()
    async with running_space(tmp_path, again, open_journal=place.open_for_space) as running:
        assert await running.states(first, *ids) == ["complete", *states], "a restart changes nothing"
        assert await running.publish("a", b"once", idempotency_key="only") == first
        await running.put(Replay(id=ids[9]))
        await running.ended(*ids)
        assert await running.states(*ids) == ["complete"] * 24
        assert again.contents == [b"3 parent", b"3 first", b"3 second"]
    delivered = [content for content, _ in (*consumer.seen, *again.seen) if content != b"once"]
    assert sorted(set(delivered)) == sorted(
        b"%d %s" % (number, name) for number in range(8) for name in (b"parent", b"first", b"second")
    )
    assert in_order([one for one in delivered if not one.startswith(b"3 ")] + again.contents, 8)


class Crash:
    """Crashes the place at a certain append, before or behind it, and says what was known outside by then."""

    def __init__(self, place: Place, chance: random.Random, consumer: Consumer) -> None:
        self._place = place
        self._consumer = consumer
        self._left = chance.randrange(3, 40)
        self.acknowledged: list[MessageId] = []
        """so far"""
        self.known: tuple[list[bytes], list[MessageId]] | None = None
        """contents seen and ids acknowledged when it crashed"""
        journal = place.open_ones[-1]
        setattr(journal, chance.choice(("before_append", "after_append")), self._count)

    def _count(self) -> None:
        self._left -= 1
        if self._left == 0:
            self.now()

    def now(self) -> None:
        """What happens after this is of another world."""
        if self.known is None:
            self._place.crash()
            self.known = self._consumer.contents, list(self.acknowledged)


@pytest.mark.parametrize("sync", ["always", "interval"])
async def test_killed_at_any_append_nothing_is_lost_or_early(
    tmp_path: Path, place: Place, sync: str, seed: int
) -> None:
    """DESIGN 1 and 4, RULES 1 and 13: five lives of a Space, four of them ended before or behind some append, by power
    loss where the journal can tell. Whatever was acknowledged (``always``) comes to its end, and under both policies no
    attempt of a parent follows one of its children, over all lives."""
    chance = random.Random(seed)
    seen: list[bytes] = []
    acknowledged: list[MessageId] = []
    for life in range(5):
        consumer = Consumer(lambda _: REFUSED if chance.random() < 0.2 else ACKNOWLEDGED)
        options = {"sync": sync, "interval_ms": 20 if sync == "interval" else 0}
        async with running_space(tmp_path, consumer, open_journal=place.open_for_space, **options) as running:
            if life == 0:
                await running.queue("a", PATIENT, subscribers=["one"])
                await running.queue("b", PATIENT, subscribers=["two"])
                # Under ``interval`` a power loss takes what was not synced, declarations too.
                await eventually(
                    lambda now=running.space.statistics: now().durable_sequence == now().sequence, "synced"
                )
            crash = Crash(place, chance, consumer)
            if life < 4:
                await families(running, 8, first=8 * life, told=crash.acknowledged.append)
                crash.now()
            elif sync == "always":
                await running.ended(*acknowledged)
                assert await running.states(*acknowledged) == ["complete"] * len(acknowledged)
            contents, more = crash.known or (consumer.contents, [])
            seen += contents
            acknowledged += more
    attempts: dict[bytes, list[int]] = {}
    for at, content in enumerate(seen):
        attempts.setdefault(content, []).append(at)
    for number in range(32):
        parent, first, second = (attempts.get(b"%d %s" % (number, name)) for name in (b"parent", b"first", b"second"))
        assert not first or (parent and parent[-1] < first[0])
        assert not second or (first and first[-1] < second[0])


async def test_a_full_journal_takes_outcomes_and_then_all(tmp_path: Path, place: Place) -> None:
    """RULES 27: publishers are refused while there is no room, what was accepted still ends, and it goes on by itself
    once there is."""
    consumer = Consumer(lambda _: None)
    async with running_space(tmp_path, consumer, open_journal=place.open_for_space) as running:
        await running.queue("a", subscribers=["one"])
        before = await running.publish("a", b"before")
        await eventually(lambda: consumer.held, "the attempt begins")
        place.fill(full=True, essential=9)
        with pytest.raises(LogFull):
            await running.publish("a", b"no room")
        consumer.release()
        await running.ended(before)
        with pytest.raises(LogFull):
            await running.publish("a", b"no room")
        place.fill(full=False)
        await eventually(lambda: not running.space._committer.statistics().full, "it looks for room")
        consumer.answer = lambda _: ACKNOWLEDGED
        after = await running.publish("a", b"after")
        await running.ended(after)
    place.crash()
    async with running_space(tmp_path, Consumer(), open_journal=place.open_for_space) as running:
        assert await running.states(before, after) == ["complete"] * 2
        assert running.consumer.seen == []


async def test_retention_makes_room_on_a_full_journal(tmp_path: Path, place: Place) -> None:
    """RULES 2 and 27: what retention writes so that a section may go, the ends of its messages above all, finds room in
    the reserve; else a full disk would stay full. A parent that failed and is gone has failed."""
    clock = Clock()
    parents: list[MessageId] = []
    consumer = Consumer(lambda _: REFUSED)
    where: dict[str, Any] = {"open_journal": place.open_for_space, "clock_us": clock}
    async with running_space(tmp_path, consumer, **where) as running:
        await running.queue("a")
        await running.subscribe("a", "one", breaker=None)  # each is to be tried
        for _ in range(3):
            parents += (await running.publish_all("a", *[Message(b"x" * 1_000)] * 80)).ids
            await running.ended(*parents)
        clock.forward(8 * 86_400)
        place.fill(full=True, essential=9)
        with pytest.raises(LogFull):
            await running.publish("a", b"no room")
        assert await running.space._maintenance.drop_expired()
        assert running.space._journal.first_sequence > 1
        place.fill(full=False)
    place.crash()
    async with running_space(tmp_path, Consumer(), **where) as running:
        child = await running.publish("a", b"child", parents[0])
        await running.ended(child)
        assert await running.states(child) == ["dead"]


async def test_a_journal_that_fails_ends_the_space(tmp_path: Path, place: Place) -> None:
    """DESIGN 4: nothing is acknowledged any more, the Space ends and says why; the next one has what was."""
    with pytest.raises(LogFailed):  # noqa: PT012
        async with running_space(tmp_path, open_journal=place.open_for_space) as running:
            await running.queue("a", subscribers=["one"])
            before = await running.publish("a", b"before")
            await running.ended(before)
            place.break_down()
            for _ in range(2):
                with pytest.raises(LogUnavailable):
                    await running.publish("a", b"nobody knows")
    async with running_space(tmp_path, Consumer(), open_journal=place.open_for_space) as running:
        assert await running.states(before) == ["complete"]
        await running.ended(await running.publish("a", b"after"))
