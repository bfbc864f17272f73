"""A whole Space on each journal: it needs nothing of them but what ``syncbrok.model.journal`` promises.

Broken by hand to see these fail: an append that returns before it knows its fate; a checkpoint that is not there.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from syncbrok.log.journal import FileJournal
from syncbrok.model.message import Message
from syncbrok.model.names import MessageId
from syncbrok.space.channels import Replay
from syncbrok.space.space import OpenJournal
from tests.support.memory_journal import MemoryJournal, RemoteJournal
from tests.support.spaces import ACKNOWLEDGED, REFUSED, Consumer, Running, running_space

JOURNALS: list[OpenJournal] = [FileJournal.open, MemoryJournal.open, RemoteJournal.open]


@pytest.fixture(params=JOURNALS, ids=["files", "memory", "remote"])
def open_journal(request: pytest.FixtureRequest) -> OpenJournal:
    opened: OpenJournal = request.param
    return opened


async def families(running: Running, count: int) -> list[MessageId]:
    """Each a parent in one queue with two children in another, one of them keyed; published side by side."""

    async def one(number: int) -> list[MessageId]:
        parent = await running.publish("a", b"%d parent" % number)
        first = await running.publish("b", b"%d first" % number, parent, key="k")
        second = await running.publish_all("b", Message(b"%d second" % number, parents=(parent, first)))
        return [parent, first, *second.ids]

    return [id_ for family in await asyncio.gather(*map(one, range(count))) for id_ in family]


def in_order(seen: list[bytes], count: int) -> bool:
    places = {content: at for at, content in enumerate(seen)}
    return all(
        places[b"%d parent" % number] < places[b"%d first" % number] < places[b"%d second" % number]
        for number in range(count)
    )


async def test_a_space_keeps_its_promises_on_any_journal(tmp_path: Path, open_journal: OpenJournal) -> None:
    """DESIGN 1: causal, nothing lost, dead letters and replay, an idempotency key known after a restart, on a journal
    in files, in memory, and behind a network that answers late or not at all."""
    bad = {b"3 parent"}
    refuse: Callable[..., bool] = lambda delivery: delivery.message.content in bad  # noqa: E731
    consumer = Consumer(lambda delivery: REFUSED if refuse(delivery) else ACKNOWLEDGED)
    async with running_space(tmp_path, consumer, open_journal=open_journal) as running:
        await running.queue("a", subscribers=["one"])
        await running.queue("b", subscribers=["two"])
        ids = await families(running, 8)
        first = await running.publish("a", b"once", idempotency_key="only")
        await running.ended(first, *ids)
        states = await running.states(*ids)
        assert (states.count("complete"), states.count("dead")) == (21, 3), states
    bad.clear()
    again = Consumer()
    async with running_space(tmp_path, again, open_journal=open_journal) as running:
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
