"""Units that share their receipt: bare neighbours are one item, bounded as everything else, and each is answered."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from syncbrok.model import limits
from syncbrok.model.errors import (
    Draining,
    IdempotencyConflict,
    LogFull,
    Overloaded,
    UnknownParent,
    UnknownQueue,
    UnknownSubscriber,
)
from syncbrok.model.message import Message, QueueSettings
from syncbrok.model.names import MessageId, QueueName, SubscriberId, make_message_id
from syncbrok.space.channels import Accepted, ChangeQueue, Publish
from syncbrok.space.commit import channel as channels
from syncbrok.space.commit.channel import BoundedChannel, no_room, stopping
from syncbrok.space.reports import Content
from tests.support.polling import eventually
from tests.support.space.spaces import journal_of, running_space

Q = QueueName("q")


def bare(content: bytes, content_type: str = "text/plain", queue: QueueName = Q) -> Publish:
    return Publish.one(queue, Message(content, content_type))


class Heard:
    """A listener: what each of those it put messages with was told, in the order told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, Any]] = []
        self.calls = 0
        self.breaks = False
        self.known: dict[Any, int] = {}
        self.parents: dict[Any, tuple[MessageId, ...]] = {}

    def accepted(self, units: Sequence[Publish], publishers: Sequence[Any], receipt: Accepted) -> None:
        self._broken()
        assert len(receipt.id_bytes) == 16 * len(publishers) == 16 * len(units)
        self.known |= {publishers[at]: sequence for at, sequence in receipt.known.items()}
        self.parents |= {publishers[at]: parents for at, parents in receipt.parents.items()}
        for at, one in enumerate(publishers):
            self.told.append((one, (receipt.sequences[at], MessageId(receipt.id_bytes[16 * at : 16 * at + 16]))))

    def refused(self, publishers: Sequence[Any], why: BaseException) -> None:
        self._broken()
        self.told += [(one, why) for one in publishers]

    def _broken(self) -> None:
        self.calls += 1
        if self.breaks:
            raise ValueError("a defect of a frontend")

    def why(self, one: Any) -> type:
        return type(dict(self.told)[one])


async def test_neighbours_of_one_listener_are_one_item() -> None:
    """First in, first out: only neighbours with one listener are taken together, nothing overtakes."""
    channel = BoundedChannel(lambda: None)
    heard, other = Heard(), Heard()
    channel.put_shared(bare(b"a"), 1, heard)
    channel.put_shared(bare(b"b"), 2, heard)
    channel.put_shared(bare(b"c", ""), 3, heard)
    channel.put_shared(bare(b"d", ""), 4, other)
    channel.put(Publish.of(Q, (Message(b"e"), Message(b"f"))))
    channel.put_shared(bare(b"g", ""), 5, other)
    assert (len(channel), channel.records) == (4, 7)
    items = [waiting for _ in range(4) if (waiting := channel.take())]
    assert [[unit.contents for unit in one.units] for one in items] == [
        [(b"a",), (b"b",), (b"c",)],
        [(b"d",)],
        [[b"e", b"f"]],
        [(b"g",)],
    ]
    assert [unit.content_type for unit in items[0].units] == ["text/plain", "text/plain", ""]
    assert channel.statistics()[:2] == (0, 0)
    items[0].resolve(Accepted(7, bytes(48), "always"))
    items[1].refuse(LogFull("full"))
    items[0].refuse(LogFull("told already"))
    assert ([one for one, _ in heard.told], other.told) == ([1, 2, 3], []), "accepted: at once; refused: a turn later"
    await asyncio.sleep(0)
    assert [one for one, _ in heard.told] == [1, 2, 3]
    assert other.why(4) is LogFull
    assert (heard.calls, other.calls) == (1, 1)


async def test_an_item_that_was_taken_does_not_grow() -> None:
    """What is being written is settled: who comes later waits for the next commit, also when it is put back."""
    channel = BoundedChannel(lambda: None)
    heard = Heard()
    channel.put_shared(bare(b"a"), 1, heard)
    taken = channel.take()
    assert taken is not None
    channel.put_shared(bare(b"b"), 2, heard)
    assert [unit.contents for unit in taken.units] == [(b"a",)]
    channel.put_back([taken])
    assert (len(channel), channel.records) == (2, 2)
    assert channel.take() is taken


async def test_shared_receipts_are_bounded_as_all_others() -> None:
    """Bounded in records and bytes, refused puts are counted, and no item outgrows a commit."""
    heard = Heard()
    channel = BoundedChannel(lambda: None, records_max=3, size_bytes_max=100)
    channel.put_shared(bare(b"x" * 1_000), 0, heard)  # a large one fits alone
    with pytest.raises(Overloaded) as caught:
        channel.put_shared(bare(b""), 1, heard)
    assert caught.value.members["retry_after_s"] == 1
    channel.take()
    for _ in range(3):
        channel.put_shared(bare(b"x"), 1, heard)
    with pytest.raises(Overloaded):
        channel.put_shared(bare(b""), 1, heard)
    assert channel.statistics() == (3, 3, 3, 100, 2)
    channel.close(stopping)
    with pytest.raises(Draining):
        channel.put_shared(bare(b""), 1, heard)
    channel.refuse_all(no_room)
    await asyncio.sleep(0)
    assert [type(why) for _, why in heard.told] == [LogFull] * 3
    large = BoundedChannel(lambda: None)
    for _ in range(2 * channels._shared_records_max + 1):
        large.put_shared(bare(b""), 1, heard)
    for _ in range(3):
        large.put_shared(bare(bytes(channels._shared_bytes_max // 2 + 1)), 1, heard)
    sizes = [(one.records, one.size_bytes) for _ in range(len(large)) if (one := large.take())]
    assert [records for records, _ in sizes] == [1_024, 1_024, 2, 1, 1]
    assert all(size_bytes <= limits.commit_bytes_wanted for _, size_bytes in sizes)


async def test_each_message_is_kept_and_told_its_own_place(tmp_path: Path) -> None:
    """Written before it is told; sequence and id are those under which its own content is found."""
    heard = Heard()
    async with running_space(tmp_path) as running:
        await running.queue("q")
        messages = running.space.channels.messages
        for at in range(100):
            messages.put_shared(bare(b"content %d" % at), at, heard)
        single = await running.publish("q", b"between")
        for at in range(100, 103):
            messages.put_shared(bare(b"content %d" % at, ""), at, heard)
        await eventually(lambda: len(heard.told) == 103, "all told")
        assert [one for one, _ in heard.told] == list(range(103))
        sequences = [sequence for _, (sequence, _) in heard.told]
        assert sequences == sorted(set(sequences))
        for at, (sequence, id_) in heard.told:
            report = await running.view.message(id_)
            assert (report.sequence, report.queue) == (sequence, "q")
            content = await running.view.content(id_)
            assert content == Content(b"content %d" % at, "text/plain" if at < 100 else "")
        assert (await running.view.message(single)).sequence == sequences[99] + 1


async def test_who_cannot_be_served_is_told_why(tmp_path: Path) -> None:
    """Refusals reach each publisher: of an unknown queue, of a full disk; the others are not claimed by them."""
    heard = Heard()
    async with running_space(tmp_path) as running:
        await running.queue("q")
        messages = running.space.channels.messages
        messages.put_shared(bare(b"a"), "a", heard)
        messages.put_shared(bare(b"b", "", QueueName("nowhere")), "b1", heard)
        messages.put_shared(bare(b"b", "", QueueName("nowhere")), "b2", heard)
        messages.put_shared(bare(b"c"), "c", heard)
        await eventually(lambda: len(heard.told) == 4, "all told")
        assert [heard.why(one) for one in ("a", "b1", "b2", "c")] == [tuple, UnknownQueue, UnknownQueue, tuple]
        journal_of(running).room = False
        messages.put_shared(bare(b"d"), "d", heard)
        await eventually(lambda: len(heard.told) == 5, "told")
        assert heard.why("d") is LogFull
        journal_of(running).room = True
        await eventually(lambda: not running.space._committer.statistics().full, "room again")
        messages.put_shared(bare(b"e"), "e", heard)
        await eventually(lambda: len(heard.told) == 6, "told")
        assert heard.why("e") is tuple
        accepted = running.view.queue("q").accepted
    assert accepted == 3
    with pytest.raises(Draining):
        messages.put_shared(bare(b"f"), "f", heard)


async def test_shared_receipts_wait_for_a_change_of_their_queue(tmp_path: Path) -> None:
    """A change and what comes after it are not one batch: the messages go by the settings after it."""
    heard = Heard()
    async with running_space(tmp_path) as running:
        await running.queue("q")
        changed = running.space.channels.queues.put(ChangeQueue(Q, {"window": 7}))
        running.space.channels.messages.put_shared(bare(b"a"), 1, heard)
        running.space.channels.messages.put_shared(bare(b"b"), 2, heard)
        assert (await changed).what == "changed"
        await eventually(lambda: len(heard.told) == 2, "told")
        assert [one for one, _ in heard.told] == [1, 2]
        assert running.view.queue("q").settings.window == 7


async def test_a_change_holds_up_its_own_queue_only(tmp_path: Path) -> None:
    """Of messages that waited together only those for the changed queue wait for the next commit."""
    heard = Heard()
    async with running_space(tmp_path) as running:
        await running.queue("q")
        await running.queue("other")
        changed = running.space.channels.queues.put(ChangeQueue(Q, {"window": 7}))
        for at in range(6):
            queue = Q if at % 3 == 1 else QueueName("other")
            running.space.channels.messages.put_shared(bare(b"content %d" % at, "", queue), at, heard)
        await changed
        await eventually(lambda: len(heard.told) == 6, "told")
        assert [one for one, _ in heard.told] == [0, 2, 3, 5, 1, 4]
        for at, (_, id_) in heard.told:
            assert (await running.view.content(id_)).content == b"content %d" % at
        assert (running.view.queue("q").accepted, running.view.queue("other").accepted) == (2, 4)
        assert running.space._committer.messages.records == 0


async def test_a_listener_that_breaks_breaks_nobody_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A frontend's defect costs its own answers; the commit loop and the other frontends go on."""
    broken, heard = Heard(), Heard()
    broken.breaks = True
    async with running_space(tmp_path) as running:
        await running.queue("q", QueueSettings())
        messages = running.space.channels.messages
        with caplog.at_level(logging.ERROR, "syncbrok"):
            for at in range(3):
                messages.put_shared(bare(b"x"), at, broken)
                messages.put_shared(bare(b"y"), at, heard)
                await eventually(lambda many=at + 1: len(heard.told) == many, "told")
        assert broken.calls == 3
        assert [one.msg for one in caplog.records].count("syncbrok.space.listener_failed") == 3
        assert running.view.queue("q").accepted == 6
        assert running.view.state == "serving"


async def test_neighbours_to_many_queues_each_have_their_own(tmp_path: Path) -> None:
    """One item may hold messages for many queues, few and many in a row: each stands in its own, under its own place,
    and only those whose queue is not there are refused."""
    heard = Heard()
    async with running_space(tmp_path) as running:
        for number in range(5):
            await running.queue(f"q{number}")
        messages = running.space.channels.messages
        names = [f"q{at % 6}" for at in range(60)] + ["q1"] * 20 + ["q5", "q2", "q2", "q5"] + ["q3"] * 9
        for at, name in enumerate(names):
            messages.put_shared(bare(b"content %d" % at, f"t/{at % 2}", QueueName(name)), at, heard)
        await eventually(lambda: len(heard.told) == len(names), "all told")
        places = {one: what for one, what in heard.told if not isinstance(what, BaseException)}
        assert {heard.why(at) for at, name in enumerate(names) if name == "q5"} == {UnknownQueue}
        assert sorted(places) == [at for at, name in enumerate(names) if name != "q5"]
        sequences = [sequence for sequence, _ in places.values()]
        assert sequences == sorted(set(sequences))
        for at, (sequence, id_) in places.items():
            report = await running.view.message(id_)
            assert (report.sequence, report.queue) == (sequence, names[at])
            assert await running.view.content(id_) == Content(b"content %d" % at, f"t/{at % 2}")
        assert [running.view.queue(f"q{number}").accepted for number in range(5)] == [
            names.count(f"q{number}") for number in range(5)
        ]


async def test_what_has_extras_shares_a_receipt_with_nobody(tmp_path: Path) -> None:
    """RULES 2 to 4 hold whatever way a message came: among bare neighbours, one with parents, with a key, known or
    refused is decided by itself, and nothing overtakes it."""
    heard = Heard()
    async with running_space(tmp_path) as running:
        await running.queue("q")
        parent = await running.publish("q", b"parent")
        never = make_message_id(1_700_000_000_000, 10_000, bytes(16))
        units = [
            bare(b"before"),
            Publish.one(Q, Message(b"child", parents=(parent,))),
            bare(b"between"),
            Publish.one(Q, Message(b"once", idempotency_key="k")),
            Publish.one(Q, Message(b"once", idempotency_key="k")),
            Publish.one(Q, Message(b"other", idempotency_key="k")),
            Publish.one(Q, Message(b"orphan", parents=(never,))),
            Publish.of(Q, (Message(b"for one"),), SubscriberId("nobody")),
            bare(b"after"),
        ]
        for at, unit in enumerate(units):
            running.space.channels.messages.put_shared(unit, at, heard)
        await eventually(lambda: len(heard.told) == len(units), "all told")
        told = dict(heard.told)
        refused = {at: heard.why(at) for at in told if isinstance(told[at], BaseException)}
        assert refused == {5: IdempotencyConflict, 6: UnknownParent, 7: UnknownSubscriber}
        assert heard.known == {4: told[3][0]}
        assert heard.parents == {1: (parent,)}
        assert told[4][1] == told[3][1]
        sequences = [told[at][0] for at in (0, 1, 2, 3, 8)]
        assert sequences == list(range(sequences[0], sequences[0] + 5))
        for at in (0, 1, 2, 3, 8):
            assert (await running.view.content(told[at][1])).content == units[at].contents[0]
        assert (await running.view.message(told[1][1])).parents == (parent,)


async def test_a_unit_with_a_shared_receipt_is_decided_after_a_look_at_the_log(tmp_path: Path) -> None:
    """RULES 4: a key that memory cannot vouch for is looked up; meanwhile who came later goes on, and the unit is told
    when it is decided."""
    heard = Heard()
    async with running_space(tmp_path) as running:
        await running.queue("q")
        running.space._state.keys.complete_since_us = 1 << 62
        messages = running.space.channels.messages
        messages.put_shared(Publish.one(Q, Message(b"keyed", idempotency_key="k")), "keyed", heard)
        messages.put_shared(bare(b"after"), "after", heard)
        await eventually(lambda: len(heard.told) == 2, "both told")
        assert [one for one, _ in heard.told] == ["after", "keyed"]
        for one, (_, id_) in heard.told:
            assert (await running.view.content(id_)).content == one.encode()
        assert running.space._committer.messages.records == 0
