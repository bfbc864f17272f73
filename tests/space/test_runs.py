"""A run of messages that are alike means what they mean one by one: drafted, written, applied, and after a crash.

Broken by hand to see these fail: the unit ends of a run shifted by one; checksums of headers made too early; the rows
of a second chunk begun at the place of the first; the ring of the lineage not closed; neighbours of two queues in one
run.
"""

import os
import shutil
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncbrok.delivery.scheduler.scheduler import Scheduler
from syncbrok.frontends.over_http.requests.time_slices import at_once
from syncbrok.log.format import codec
from syncbrok.log.index.columns import TABLES
from syncbrok.log.index.segment_index import SegmentIndex
from syncbrok.log.segments import segment, watermark
from syncbrok.log.segments.segment import SEGMENT_HEADER_BYTES
from syncbrok.model.errors import IdempotencyConflict
from syncbrok.model.facts import (
    Attributes,
    Extras,
    Fact,
    FactOrRun,
    Keyed,
    Messages,
    QueueSet,
    StoredMessage,
    SubscriberSet,
    last_sequence,
)
from syncbrok.model.message import Message, ParentFailure, QueueSettings, Scope, SubscriberSettings
from syncbrok.model.names import MessageId, QueueName, SubscriberId, make_message_id
from syncbrok.space.channels import Accepted, Publish
from syncbrok.space.commit.acceptance import Acceptor
from syncbrok.space.commit.commit_batch import CommitBatch
from syncbrok.space.state.idempotency import KeyIndex, alike_fingerprints, key_hashes
from syncbrok.space.state.lineage import Lineage
from syncbrok.space.state.registry import Registry
from tests.support.log.facts import facts, texts
from tests.support.log.journals import everything, open_journal
from tests.support.polling import eventually
from tests.support.space.spaces import ACKNOWLEDGED, Consumer, running_space

KEY = bytes(range(16))
NOW_US = 1_700_000_000_000_000
Q, OTHER = QueueName("q"), QueueName("other")


def run_of(count: int, first: int = 1, queue: int = 1, contents: list[bytes] | None = None) -> Messages:
    ids = b"".join(make_message_id(NOW_US // 1_000, sequence, KEY) for sequence in range(first, first + count))
    contents = contents or [b"content %d" % sequence for sequence in range(first, first + count)]
    return Messages(
        first, NOW_US, ids, ((count, Attributes(queue, Scope.ALL, ParentFailure.FAIL, "text/plain")),), contents
    )


def keyed(run: Messages) -> Messages:
    """The same with idempotency keys, each of its own length."""
    keys = [f"key {sequence}" * (sequence % 3 + 1) for sequence in range(run.sequence, run.sequence + run.size)]
    queue, _, _, content_type = run.attributes_at(0)
    prints = alike_fingerprints(content_type, run.contents)
    return run._replace(keyed=Keyed(keys, prints, key_hashes(queue, keys)))


def one_by_one(many: list[FactOrRun]) -> list[Fact]:
    return [one for fact in many for one in (fact.messages() if isinstance(fact, Messages) else (fact,))]


# -- written ----------------------------------------------------------------------------------------------------------

runs = st.builds(
    lambda first, contents, attributes: run_of(len(contents), first, 7, contents)._replace(
        stretches=((len(contents), attributes),)
    ),
    st.integers(1, 2**41),
    st.lists(st.binary(max_size=30), min_size=1, max_size=40),
    st.builds(Attributes, st.just(7), st.sampled_from(Scope), st.sampled_from(ParentFailure), texts),
)


def mixed(first: int, stretches: list[tuple[int, int, str, list[int]]]) -> Messages:
    """Of each stretch how many, the queue, the content type, and which of them have extras."""
    ends, extras, count = [], {}, 0
    for size, queue, content_type, places in stretches:
        for place in places:
            parents = (run_of(1, first).ids,) * (place % 3)
            more = Extras(first + 1, 2, parents, "key" * (place % 2), "", b"", place, 9 * (place % 5), (("a", "b"),))
            extras[count + place % size] = more if place % 4 else Extras(first + 1, 1, parents)
        count += size
        ends.append((count, Attributes(queue, Scope.SAME, ParentFailure.HOLD, content_type)))
    return run_of(count, first)._replace(stretches=ends, extras=extras)


mixtures = st.builds(
    mixed,
    st.integers(1, 2**41),
    st.lists(
        st.tuples(st.integers(1, 30), st.integers(1, 3), st.sampled_from(("", "t/p")), st.lists(st.integers(0, 29))),
        min_size=1,
        max_size=6,
    ),
)


@settings(max_examples=200)
@given(st.lists(runs | runs.map(keyed) | mixtures | facts, min_size=1, max_size=4), st.data())
def test_a_run_is_written_as_its_records(many: list[FactOrRun], data: st.DataObject) -> None:
    """The log knows no runs: byte for byte its records are those of the messages alone, wherever units end."""
    single = one_by_one(many)
    ends = data.draw(st.sets(st.integers(0, len(single) - 1)) | st.none())
    together = codec.encode_batch(many, batch=4, synced_through=9, unit_ends=ends)
    alone = [
        codec.encode(fact, batch=4, synced_through=9, ends_unit=ends is None or at in ends)
        for at, fact in enumerate(single)
    ]
    assert together.data == b"".join(alone)
    assert [together.data[a:b] for a, b in zip([0, *together.ends], together.ends, strict=False)] == alone


def test_half_a_run_goes_with_its_unit_and_no_further(tmp_path: Path) -> None:
    """RULES 5: of a run cut by a crash, a batch goes as a whole and single publishes one by one."""
    directory = tmp_path / "log"
    journal = open_journal(directory)
    start = journal.next_sequence
    contents = [b"message %d" % (start + at) for at in range(60)]
    ids = b"".join(make_message_id(NOW_US // 1_000, start + at, journal.id_key) for at in range(60))
    run = run_of(60, start, 1, contents)._replace(ids=ids)
    # Twenty publishes of one message, a batch of thirty, and ten of one message: one run, one write.
    journal.append(journal.prepare([run], [*range(20), 49, *range(50, 60)]))
    assert journal.cached(start + 33) == list(run.messages())[33]
    shutil.copytree(directory, tmp_path / "crashed", ignore=shutil.ignore_patterns("*.tmp", "*.idx"))
    journal.close()
    log = tmp_path / "crashed"
    path = segment.segment_path(log, segment.segment_bases(log)[-1])
    offsets, _ = codec.walk(path.read_bytes(), SEGMENT_HEADER_BYTES, path.stat().st_size)
    (log / watermark.NAME).unlink()
    records = offsets[-60:].tolist()
    for kept, cut in (
        (20, records[49] + 9),
        (20, records[21]),
        (12, records[12] + 99),
        (50, records[50]),
        (57, records[57] + 1),
    ):
        again = tmp_path / f"cut-{cut}"
        shutil.copytree(log, again)
        os.truncate(again / path.name, cut)
        found = [fact.sequence for fact in everything(again) if isinstance(fact, StoredMessage)]
        assert found == list(range(start, start + kept))


def told(kinds: list[tuple[str, int, int]]) -> list[FactOrRun]:
    """Facts that follow each other from sequence 5 on, of these kinds, sizes and queues."""
    made: list[FactOrRun] = []
    sequence = 5
    for kind, size, queue in kinds:
        run = run_of(size, sequence, queue)
        if kind == "run":
            made.append(run)
        elif kind == "mixed":
            made.append(mixed(sequence, [(size, queue, "t/p", [size // 2]), (size, 9, "", []), (1, 8, "", [])]))
            sequence += size + 1
        elif kind == "keyed run":
            made.append(keyed(run))
        else:
            changes = {"key": f"k{size}"} if kind == "keyed" else {"parents": (run_of(1, sequence - 1).ids,)}
            made += [one._replace(**changes) for one in run.messages()]
        sequence += size
    return made


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["run", "run", "keyed run", "keyed", "child", "mixed"]),
            st.integers(1, 300),
            st.integers(1, 3),
        ),
        min_size=1,
        max_size=12,
    ),
    st.lists(st.booleans(), min_size=12, max_size=12),
)
def test_a_run_need_not_be_read_to_be_found(kinds: list[tuple[str, int, int]], asked: list[bool]) -> None:
    """The index of a segment that grew by runs is the one that is built of its bytes."""
    index, whole = SegmentIndex(5), bytes(SEGMENT_HEADER_BYTES)
    made = told(kinds)
    while made:
        some, made = made[:3], made[3:]
        encoded = codec.encode_batch(some, batch=1, synced_through=0)
        index.extend(encoded.data, len(whole), [0, *encoded.ends[:-1]], encoded.stretches)
        whole += encoded.data
        if asked.pop():
            assert index.last == last_sequence(some[-1])
        asked.append(False)
    built = SegmentIndex.build(whole, SEGMENT_HEADER_BYTES, len(whole), 5)
    assert (index.records, index.end, index.times_us) == (built.records, built.end, built.times_us)
    assert index.sparse.tolist() == built.sparse.tolist()
    grown, at_once = index.compact(), built.compact()
    for name in TABLES:
        for one, other in zip(grown.table(name), at_once.table(name), strict=True):
            assert (one.dtype, one.tolist()) == (other.dtype, other.tolist()), name


# -- drafted ----------------------------------------------------------------------------------------------------------


class Bench:
    """Two queues, an acceptor and a batch, all in memory."""

    def __init__(self) -> None:
        registry = Registry()
        registry.apply(QueueSet(1, NOW_US, 1, Q, QueueSettings()))
        held = QueueSettings(scope=Scope.SAME, parent_failure=ParentFailure.HOLD)
        registry.apply(QueueSet(2, NOW_US, 2, OTHER, held))
        self.acceptor = Acceptor(registry, Lineage(1 << 10), KeyIndex(), KEY, lambda _: None, set(), "always")
        self.batch = CommitBatch(3, NOW_US, KEY, 5)
        self.expected: list[tuple[bytes, bytes, str, QueueName]] = []
        self.unit_ends: list[int] = []

    def bare(self, contents: list[bytes], *, one_unit: bool, queue: QueueName = Q, content_type: str = "t/p") -> None:
        together = [contents] if one_unit else [[content] for content in contents]
        units = [Publish(queue, content_type, some, sum(map(len, some))) for some in together]
        accepted = self.acceptor.accept(units, self.batch)
        assert isinstance(accepted, Accepted)
        assert accepted.first == 3 + len(self.expected)
        before = len(self.expected)
        self.expected += [(id_, one, content_type, queue) for id_, one in zip(accepted.ids, contents, strict=True)]
        self.unit_ends += [len(self.expected) - 1] if one_unit else range(before, len(self.expected))

    def publish(self, *messages: Message, queue: QueueName = Q) -> None:
        accepted = self.acceptor.accept([Publish.of(queue, messages)], self.batch)
        if isinstance(accepted, Generator):
            accepted = at_once(accepted)
        assert isinstance(accepted, Accepted)
        self.expected += [
            (id_, one.content, one.content_type, queue) for id_, one in zip(accepted.ids, messages, strict=True)
        ]
        self.unit_ends.append(len(self.expected) - 1)

    def check(self) -> list[FactOrRun]:
        """What is drafted is what was answered, in order and one by one."""
        self.batch.close()
        drafted = self.batch.facts
        assert all(isinstance(fact, Messages) for fact in drafted)
        single = one_by_one(drafted)
        assert [fact.sequence for fact in single] == list(range(3, 3 + len(self.expected)))
        numbers = {Q: 1, OTHER: 2}
        assert [(fact.id, fact.content, fact.content_type, fact.queue) for fact in single] == [
            (id_, content, content_type, numbers[queue]) for id_, content, content_type, queue in self.expected
        ]
        assert all(fact.id == make_message_id(NOW_US // 1_000, fact.sequence, KEY) for fact in single)
        assert all(fact.root == fact.sequence for fact in single)
        assert [fact.scope is Scope.SAME for fact in single] == [fact.queue == 2 for fact in single]
        assert [fact.parent_failure is ParentFailure.HOLD for fact in single] == [fact.queue == 2 for fact in single]
        assert (self.batch.unit_ends, self.batch.records) == (self.unit_ends, len(self.expected))
        assert self.batch.size_bytes == sum(len(content) for _, content, _, _ in self.expected)
        return drafted


def many(count: int) -> list[bytes]:
    return [b"%d" % number * (number % 7) for number in range(count)]


def test_neighbours_are_drafted_together() -> None:
    """Batches and single publishes share their columns, each still a unit of its own."""
    bench = Bench()
    bench.bare(many(3), one_unit=False)
    bench.bare(many(40), one_unit=True)
    bench.bare(many(1), one_unit=False)
    (run,) = bench.check()
    assert isinstance(run, Messages)
    assert len(run.stretches) == 1
    assert bench.batch.unit_ends == [0, 1, 2, 42, 43]


def test_what_differs_is_told_by_position() -> None:
    """Stretches hold neighbours of one queue and one content type; extras only those that have any."""
    bench = Bench()
    bench.bare(many(20), one_unit=True)
    bench.bare(many(20), one_unit=True, queue=OTHER)
    bench.bare(many(20), one_unit=False, queue=OTHER, content_type="other/type")
    bench.publish(Message(b"a", "t/p", key="k"), Message(b"b", "t/p", headers=(("x", "y"),)))
    bench.bare(many(20), one_unit=True)
    bench.publish(Message(b"c", "t/p", idempotency_key="once"))
    bench.bare(many(2), one_unit=False)
    (drafted,) = bench.check()
    assert isinstance(drafted, Messages)
    assert [end for end, _ in drafted.stretches] == [20, 40, 60, 85]
    assert [(at, more.key, more.idempotency_key) for at, more in drafted.extras.items()] == [
        (60, "k", ""),
        (61, "", ""),
        (82, "", "once"),
    ]


def test_many_with_extras_are_applied_in_pieces() -> None:
    """DESIGN 5: what is looked at one by one is drafted in pieces, so that the loop has its turn between two; they are
    the same messages."""
    bench = Bench()
    bench.publish(*[Message(b"%d" % at, "t/p", key="k" * (at % 2)) for at in range(700)])
    bench.bare(many(5), one_unit=True, queue=OTHER)
    pieces = bench.check()
    assert len(pieces) > 2
    assert all(isinstance(one, Messages) and len(one.extras) <= 128 for one in pieces)


@given(
    st.lists(st.tuples(st.integers(1, 30), st.sampled_from((Q, OTHER)), st.sampled_from(("t/p", "j")), st.booleans()))
)
def test_a_draft_holds_what_was_answered(units: list[tuple[int, QueueName, str, bool]]) -> None:
    """However units are mixed: sequences, ids, contents and unit ends are those of the receipts."""
    bench = Bench()
    for count, queue, content_type, one_unit in units:
        if count == 30:
            bench.publish(Message(b"not bare", key="k"), queue=queue)
        else:
            bench.bare(many(count), one_unit=one_unit, queue=queue, content_type=content_type)
    if units:
        bench.check()


# -- applied ----------------------------------------------------------------------------------------------------------


def declared(scheduler: Scheduler, subscribers: int) -> Scheduler:
    scheduler.apply(QueueSet(1, NOW_US, 1, Q, QueueSettings()))
    for number in range(1, subscribers + 1):
        endpoint = SubscriberSettings(endpoint=f"http://s{number}/")
        name = SubscriberId(f"s{number}")
        scheduler.apply(SubscriberSet(1 + number, NOW_US, number, 1, name, 1 + number, endpoint))
    return scheduler


@pytest.mark.parametrize("subscribers", [0, 1, 3])
@pytest.mark.parametrize(("first", "count"), [(5, 1), (5, 20), (4_090, 6), (4_090, 7), (4_095, 9_000), (8_192, 4_096)])
def test_a_run_makes_the_same_books(subscribers: int, first: int, count: int) -> None:
    """The scheduler knows after a run what it knows after its messages, also across the borders of its chunks."""
    run = run_of(count, first)
    at_once, singly = declared(Scheduler(), subscribers), declared(Scheduler(), subscribers)
    at_once.apply(run)
    for fact in run.messages():
        singly.apply(fact)
    for scheduler in (at_once, singly):
        scheduler.apply(run_of(2, first + count + 5))
    assert at_once.checkpoint() == singly.checkpoint()
    states = [[one.message_state(sequence) for sequence in range(first, run.last + 2)] for one in (at_once, singly)]
    assert states[0] == states[1]
    taken = [one.take(NOW_US, run.last, 50) for one in (at_once, singly)]
    assert taken[0] == taken[1]
    assert len(taken[0]) == min(50, subscribers * (count + 2))


def test_a_run_that_is_known_in_part_changes_nothing_of_it() -> None:
    """What recovery applies twice changes nothing, and what is new of it comes in."""
    scheduler = declared(Scheduler(), 1)
    scheduler.apply(run_of(20, 5))
    scheduler.apply(run_of(30, 5))
    scheduler.apply(run_of(30, 5)._replace(contents=()))
    assert scheduler.unended(None, None, 100) == list(range(5, 35))


@pytest.mark.parametrize(("first", "count"), [(1, 5), (60, 9), (63, 64), (10, 64), (100, 65), (3, 200)])
def test_lineage_remembers_a_run(first: int, count: int) -> None:
    """Parents among the newest messages are found without a read, however the run lies in the ring."""
    lineage = Lineage(64)
    run = run_of(count, first)
    lineage.note(run)
    for at, fact in enumerate(run.messages()):
        place = lineage.place(MessageId(fact.id), fact.sequence)
        assert place == ((fact.sequence, 0) if count - at <= 64 else None)


def test_last_sequence_of_a_run() -> None:
    """The log goes on after the last message of a run."""
    assert (last_sequence(run_of(20, 5)), last_sequence(next(run_of(20, 5).messages()))) == (24, 5)


# -- as a whole -------------------------------------------------------------------------------------------------------


async def test_keys_of_a_batch_are_known_by_the_next_process(tmp_path: Path) -> None:
    """RULES 4: a batch with keys that came in as one run is recognised line by line, also after a restart, and its
    messages are found by their keys."""
    contents, keys = [b"line %d" % number for number in range(40)], [f"k{number}" for number in range(40)]
    unit = Publish(Q, "text/x", contents, 400, keys=keys)
    async with running_space(tmp_path) as running:
        await running.queue("q")
        first = await running.put(unit)
        again = await running.put(unit)
        assert (first.new, again.new, again.ids) == ((True,) * 40, (False,) * 40, first.ids)
        (found,) = await running.view.find(None, "k7", 9)
        assert found.id == first.ids[7]
    async with running_space(tmp_path) as running:
        again = await running.put(unit._replace(keys=["new", *keys[1:]]))
        assert (again.new, again.ids[1:]) == ((True, *(False,) * 39), first.ids[1:])
        with pytest.raises(IdempotencyConflict) as refused:
            await running.put(unit._replace(contents=[*contents[:39], b"other"]))
        assert refused.value.members["line"] == 39
        (found,) = await running.view.find(None, "k7", 9)
        assert found.id == first.ids[7]


async def test_a_batch_goes_through_the_broker(tmp_path: Path) -> None:
    """From its receipt to its deliveries, over a restart, a batch of bare messages is its messages: each is found by
    its id, may be a parent, is told to who listens, and goes out in order."""
    contents = [b"line %d" % number for number in range(40)]
    consumer = Consumer(lambda delivery: ACKNOWLEDGED if delivery.message.content < b"line 3" else None)
    async with running_space(tmp_path, consumer, drain_s=0.01) as running:
        await running.queue("q", subscribers=["a"])
        heard: list[MessageId | None] = []
        with running.view.listen(None, None) as listener:
            accepted = await running.put(Publish(Q, "text/x", contents, 400))
            ids = accepted.ids
            async for events in listener.batches():
                heard += [event.message for event in events if event.kind == "published"]
                if len(heard) == 40:
                    break
        assert heard == list(ids)
        child = await running.publish("q", b"child", ids[39])
        report = await running.view.message(child)
        assert (report.root, report.depth) == (accepted.first + 39, 1)
        await eventually(lambda: len(consumer.contents) == 40, "every message of the batch goes out")
        assert consumer.contents == contents
        assert (await running.view.content(ids[7])).content == b"line 7"
    again = Consumer()
    async with running_space(tmp_path, again) as running:
        await running.ended(*ids, child)
        ended_before = {content for content in contents if content < b"line 3"}
        assert again.contents == [*(content for content in contents if content not in ended_before), b"child"]
        for id_, content in zip(ids, contents, strict=True):
            assert (await running.view.content(id_)).content == content
