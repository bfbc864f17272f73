"""From a unit of messages to facts or a refusal, without disk, loop or clock (RULES 1 to 7)."""

from collections.abc import Generator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncbrok.frontends.over_http.requests.time_slices import at_once
from syncbrok.model.errors import Conflict, IdempotencyConflict, Malformed, TooLarge, UnknownParent, UnknownQueue
from syncbrok.model.facts import Messages, QueueSet, StoredMessage
from syncbrok.model.message import Message, ParentFailure, QueueSettings, Scope
from syncbrok.model.names import MessageId, QueueName, make_message_id
from syncbrok.space.channels import Accepted, Publish
from syncbrok.space.commit.acceptance import Acceptor, LookupResult, OldKey, Wanted, merge
from syncbrok.space.commit.commit_batch import CommitBatch
from syncbrok.space.commit.message_ids import make_message_ids
from syncbrok.space.state.idempotency import KeyIndex
from syncbrok.space.state.lineage import Lineage
from syncbrok.space.state.registry import Registry
from tests.support.space.fake_space import messages_of

KEY = bytes(range(16))
NOW_US = 1_700_000_000_000_000
LINES = [
    *(Message(b"bare"), Message(b""), Message(b"typed", "t/p")),
    *(Message(b"keyed", key="k"), Message(b"delayed", delay_us=5)),
]


def drafted(batch: CommitBatch) -> list[StoredMessage]:
    """The messages in it, one by one."""
    batch.close()
    return [message for fact in batch.facts if isinstance(fact, Messages) for message in fact.messages()]


class Bench:
    """An acceptor with everything around it in memory; ``cached`` is what the journal has at hand."""

    def __init__(self, settings: QueueSettings | None = None, lineage: Lineage | None = None) -> None:
        self.registry = Registry()
        self.registry.apply(QueueSet(1, NOW_US, 1, QueueName("q"), settings or QueueSettings()))
        self.registry.apply(QueueSet(2, NOW_US, 2, QueueName("other"), settings or QueueSettings()))
        self.lineage = lineage or Lineage(1 << 10)
        self.keys = KeyIndex()
        self.cached: dict[int, StoredMessage] = {}
        self.closing: set[int] = set()
        self.acceptor = Acceptor(self.registry, self.lineage, self.keys, KEY, self.cached.get, self.closing, "always")
        self.sequence = 3
        self.now_us = NOW_US

    def batch(self) -> CommitBatch:
        return CommitBatch(self.sequence, self.now_us, KEY, 2)

    def commit(self, batch: CommitBatch) -> None:
        """As the Space does once it is durable."""
        batch.close()
        for fact in batch.facts:
            assert isinstance(fact, Messages)
            self.lineage.note(fact)
            self.keys.note(fact)
            for message in fact.messages():
                self.cached[message.sequence] = message
        self.sequence = batch.sequence

    def publish(self, *messages: Message, queue: str = "q", found: LookupResult | None = None) -> Accepted:
        batch = self.batch()
        result = self.accept(Publish.of(QueueName(queue), messages), batch, found)
        assert isinstance(result, Accepted)
        self.commit(batch)
        return result

    def accept(self, unit: Publish, batch: CommitBatch, found: LookupResult | None = None) -> Accepted | Wanted:
        """One unit, to the end of its steps where it takes any."""
        result = self.acceptor.accept([unit], batch, found)
        return at_once(result) if isinstance(result, Generator) else result

    def keyed(self, *pairs: tuple[bytes, str], queue: str = "q") -> Accepted | Wanted:
        """Content and key of each message."""
        contents, keys = zip(*pairs, strict=True)
        batch = self.batch()
        accepted = self.accept(Publish(QueueName(queue), "t/p", contents, 10, keys=keys), batch)
        self.commit(batch)
        return accepted

    def refused(self, error: type[Exception], *messages: Message, queue: str = "q") -> Exception:
        """Accepting these raises, and nothing of it stays."""
        batch = self.batch()
        with pytest.raises(error) as caught:
            self.accept(Publish.of(QueueName(queue), messages), batch, None)
        assert (drafted(batch), batch.sequence, batch.keys) == ([], self.sequence, {})
        return caught.value


def test_ids_of_a_batch_are_those_made_one_by_one():
    """An id names its place: made many at once or one at a time, they are the same."""
    for first, count in ((1, 40), ((1 << 30) - 3, 10), (1 << 41, 500), (77, 1)):
        many = make_message_ids(NOW_US // 1000, first, count, KEY)
        alone = [make_message_id(NOW_US // 1000, sequence, KEY) for sequence in range(first, first + count)]
        assert many == b"".join(alone)


def test_a_message_takes_what_its_queue_says_at_acceptance():
    """RULES 3: scope and policy are frozen when the message is accepted; its own word goes before the queue's."""
    bench = Bench(QueueSettings(scope=Scope.SAME, parent_failure=ParentFailure.HOLD))
    batch = bench.batch()
    unit = Publish.of(QueueName("q"), (Message(b"a"), Message(b"b", parent_failure=ParentFailure.DELIVER)))
    bench.accept(unit, batch, None)
    first, second = drafted(batch)
    assert (first.scope, first.parent_failure) == (Scope.SAME, ParentFailure.HOLD)
    assert second.parent_failure is ParentFailure.DELIVER


def test_a_delay_counts_from_acceptance():
    """RULES 7: a delay is added to the moment of acceptance; the later of it and a given time holds."""
    bench = Bench()
    batch = bench.batch()
    messages = (Message(b"a", delay_us=5), Message(b"b", delay_us=5, due_us=NOW_US + 9), Message(b"c"))
    bench.accept(Publish.of(QueueName("q"), messages), batch, None)
    assert [fact.due_us for fact in drafted(batch)] == [NOW_US + 5, NOW_US + 9, 0]


def test_root_and_depth_follow_the_parents():
    """The root is the first parent's, the depth one more than the deepest parent's; inside a batch as well."""
    bench = Bench()
    a = bench.publish(Message(b"a")).ids[0]
    b = bench.publish(Message(b"b", parents=(a,))).ids[0]
    lone = bench.publish(Message(b"lone"))
    batch = bench.batch()
    unit = Publish.of(
        QueueName("other"),
        (Message(b"c", parents=(lone.ids[0], b)), Message(b"d", parents=(0,)), Message(b"e", parents=(1, a))),
    )
    accepted = bench.accept(unit, batch, None)
    assert [(fact.root, fact.depth) for fact in drafted(batch)] == [
        (lone.sequences[0], 2),
        (lone.sequences[0], 3),
        (lone.sequences[0], 4),
    ]
    assert accepted.parents == {0: (lone.ids[0], b), 1: (accepted.ids[0],), 2: (accepted.ids[1], a)}


def test_a_parent_that_was_never_accepted_is_named():
    """RULES 2: an id that was never issued is refused, with the id and its line; so is one not yet issued."""
    bench = Bench()
    known = bench.publish(Message(b"a")).ids[0]
    for never in (
        make_message_id(NOW_US // 1000, 10_000, KEY),
        MessageId(known[:-1] + bytes((known[-1] ^ 1,))),
        make_message_id(NOW_US // 1000, bench.sequence + 5, KEY),
    ):
        batch = bench.batch()
        found = LookupResult(looked={3})
        unit = Publish.of(QueueName("q"), (Message(b"x"), Message(b"b", parents=(never,))))
        with pytest.raises(UnknownParent) as caught:
            bench.accept(unit, batch, found)
        assert caught.value.members["line"] == 1
        assert batch.records == 0


def test_an_old_parent_is_read_and_a_dropped_one_is_complete():
    """RULES 2: a parent that memory has forgotten is looked up; one that retention has dropped needs no record."""
    bench = Bench(lineage=Lineage(4))
    old = bench.publish(Message(b"old"))
    parent = bench.publish(Message(b"child", parents=old.ids))
    bench.publish(*[Message(b"x")] * 4)
    sequence = parent.sequences[0]
    record = bench.cached.pop(sequence)
    batch = bench.batch()
    unit = Publish.of(QueueName("q"), (Message(b"b", parents=parent.ids),))
    wanted = bench.accept(unit, batch, None)
    assert isinstance(wanted, Wanted)
    assert wanted.messages == {sequence}
    assert batch.records == 0
    bench.accept(unit, batch, LookupResult(messages={sequence: record}, looked={sequence}))
    (child,) = drafted(batch)
    assert (child.root, child.depth) == (old.sequences[0], 2)
    batch = bench.batch()
    bench.accept(unit, batch, LookupResult(dropped={sequence}, looked={sequence}))
    (child,) = drafted(batch)
    assert (child.root, child.depth) == (sequence, 1)


def test_a_line_names_only_lines_before_it():
    """RULES 5: ``#n`` points backwards."""
    bench = Bench()
    for parent in (1, 2, -1):
        bench.refused(Malformed, Message(b"a"), Message(b"b", parents=(parent,)))


def test_a_unit_is_accepted_whole_or_not_at_all():
    """RULES 5: what is wrong with one line refuses all of them."""
    bench = Bench()
    bench.refused(UnknownQueue, Message(b"a"), queue="nowhere")
    bench.refused(Malformed)
    bench.refused(TooLarge, Message(b"a"), Message(b"b", parents=tuple(bytes(15) + bytes((n,)) for n in range(65))))
    bench.closing.add(1)
    bench.refused(Conflict, Message(b"a"))


def test_a_repeated_publish_is_the_first_one():
    """RULES 4: same queue, key and fingerprint: the first id, nothing new; the scope is the queue."""
    bench = Bench()
    first = bench.publish(Message(b"a", idempotency_key="k"))
    again = bench.publish(Message(b"a", idempotency_key="k"))
    assert (again.ids, again.sequences, again.new) == (first.ids, first.sequences, (False,))
    assert bench.publish(Message(b"a", idempotency_key="k"), queue="other").new == (True,)
    assert bench.publish(Message(b"a", idempotency_key="K")).new == (True,)


@pytest.mark.parametrize(
    "other",
    [
        Message(b"b", idempotency_key="k"),
        Message(b"a", "text/plain", idempotency_key="k"),
        Message(b"a", idempotency_key="k", key="group"),
        Message(b"a", idempotency_key="k", delay_us=1),
        Message(b"a", idempotency_key="k", due_us=NOW_US),
        Message(b"a", idempotency_key="k", expires_us=NOW_US),
        Message(b"a", idempotency_key="k", parent_failure=ParentFailure.FAIL),
        Message(b"a", idempotency_key="k", headers=(("ce-type", "x"),)),
    ],
)
def test_another_message_under_a_used_key_is_refused(other: Message):
    """RULES 4: the fingerprint covers body, content type, parents and settings; the answer names the first id."""
    bench = Bench()
    bench.publish(Message(b"a", idempotency_key="k", headers=(("traceparent", "1"),)))
    bench.publish(Message(b"a", idempotency_key="k", headers=(("traceparent", "2"),)))  # of the repetition, not of it
    error = bench.refused(IdempotencyConflict, other)
    assert error.members["idempotency_key"] == "k"


def test_parents_belong_to_the_fingerprint_and_are_looked_at_after_the_key():
    """RULES 4: the key is looked at before the parents: other ones are a conflict, not an unknown parent."""
    bench = Bench()
    parent = bench.publish(Message(b"p")).ids[0]
    first = bench.publish(Message(b"a", idempotency_key="k", parents=(parent,)))
    assert bench.publish(Message(b"a", idempotency_key="k", parents=(parent,))).ids == first.ids
    never = make_message_id(NOW_US // 1000, 10_000, KEY)
    bench.refused(IdempotencyConflict, Message(b"a", idempotency_key="k", parents=(never,)))


@pytest.mark.parametrize("count", [1, 7, 8, 300])
def test_new_keys_are_accepted_in_one_look_as_one_by_one(count: int):
    """RULES 4: the short way makes the facts and the receipt that each line alone would have made."""
    pairs = [(b"content %d" % number, f"key {number}") for number in range(count)]
    short, long = Bench(), Bench()
    accepted = short.keyed(*pairs)
    assert accepted == long.publish(*[Message(content, "t/p", idempotency_key=key) for content, key in pairs])
    assert short.cached == long.cached
    assert short.keys.save() == long.keys.save()
    for bench in (short, long):
        again = bench.publish(Message(b"content 0", "t/p", idempotency_key="key 0"))
        assert (again.new, again.ids) == ((False,), accepted.ids[:1])
        bench.refused(IdempotencyConflict, Message(b"content 0", "t/other", idempotency_key="key 0"))


def test_of_keyed_messages_only_the_new_ones_are_written():
    """RULES 4: one key that is known, or twice in the batch, has its first message, in whichever part of the index its
    key stands; and where the index does not reach back far enough nothing is decided before the log was asked."""
    bench = Bench()
    first = bench.keyed((b"a", "1"), (b"b", "2"))
    assert first.new == (True, True)
    for at, (content, known) in enumerate(((b"a", "1"), (b"b", "2"))):
        again = bench.keyed((b"c", f"c{at}"), (content, known))
        assert (again.new, again.ids[1]) == ((True, False), first.ids[at])
    twice = bench.keyed((b"c", "3"), (b"c", "3"))
    assert (twice.new, twice.ids[0]) == ((True, False), twice.ids[1])
    assert bench.keyed((b"a", "1"), queue="other").new == (True,)
    bench.keys.save()  # folds what is recent into columns
    again = bench.keyed((b"c", "4"), (b"c", "3"))
    assert (again.new, again.ids[1]) == ((True, False), twice.ids[0])
    bench.keys.complete_since_us = NOW_US
    before = bench.sequence
    asked = bench.keyed((b"c", "5"), (b"c", "6"))
    assert isinstance(asked, Wanted)
    assert (asked.keys, bench.sequence) == ({OldKey(1, "5"), OldKey(1, "6")}, before)


def test_keys_of_one_draft_are_known_to_the_next_unit_of_it():
    """RULES 4: a duplicate of one that is not durable yet is recognised whichever form both came in."""
    bench = Bench()
    batch = bench.batch()
    keyed = Publish(QueueName("q"), "t/p", [b"a", b"b"], 2, keys=["1", "2"])
    first = bench.accept(keyed, batch)
    assert first.new == (True, True)
    lines = [Message(b"a", "t/p", idempotency_key="1"), Message(b"b", "t/p", idempotency_key="2")]
    for unit in (keyed, Publish.of(QueueName("q"), lines)):
        again = bench.accept(unit, batch)
        assert (again.ids, again.new) == (first.ids, (False, False))


@given(st.lists(st.sampled_from(LINES), max_size=90), st.integers(0, 89))
def test_bare_messages_among_others_are_accepted_as_those(lines: list[Message], at: int) -> None:
    """RULES 3 to 5: whether a message is told of by position or stands in the columns alone, and whatever stands
    beside it, it is kept as it was published."""
    bench = Bench()
    unit = Publish.of(QueueName("q"), lines)
    assert messages_of(unit) == lines
    if not lines:
        bench.refused(Malformed)
        return
    named = min(at, len(lines) - 1)
    child = Message(b"child", parents=(named,))
    batch = bench.batch()
    accepted = bench.accept(Publish.of(QueueName("q"), (*lines, child)), batch)
    kept = drafted(batch)
    assert [(one.content, one.content_type, one.key) for one in kept] == [
        (one.content, one.content_type, one.key) for one in (*lines, child)
    ]
    assert [one.due_us for one in kept] == [NOW_US + one.delay_us if one.delay_us else 0 for one in (*lines, child)]
    assert tuple(one.id for one in kept) == accepted.ids
    assert all((one.root, one.depth, one.parents) == (one.sequence, 0, ()) for one in kept[:-1])
    assert (kept[-1].root, kept[-1].depth, kept[-1].parents) == (3 + named, 1, (accepted.ids[named],))
    assert batch.unit_ends == [len(lines)]


def test_known_lines_of_a_batch_return_their_first_ids():
    """RULES 4: in a batch known lines return their first id and ``#n`` resolves to it; only what is new is written."""
    bench = Bench()
    first = bench.publish(Message(b"a", idempotency_key="a"))
    batch = (
        Message(b"a", idempotency_key="a"),
        Message(b"b", idempotency_key="b", parents=(0,)),
        Message(b"b", idempotency_key="b", parents=(0,)),
        Message(b"c", parents=(1,)),
    )
    accepted = bench.publish(*batch)
    assert accepted.new == (False, True, False, True)
    assert accepted.ids[0] == first.ids[0]
    assert accepted.ids[1] == accepted.ids[2]
    assert accepted.parents[1] == first.ids
    again = bench.publish(*batch)
    assert again.new == (False, False, False, True)  # the last one has no key
    bench.refused(IdempotencyConflict, Message(b"new"), Message(b"other", idempotency_key="a"))


def test_a_repeated_batch_matches_where_a_parent_line_has_no_key():
    """RULES 4: repeated, a line without a key has another id; its keyed child is still recognised."""
    bench = Bench()
    batch = (Message(b"a"), Message(b"b", idempotency_key="b", parents=(0,)))
    first = bench.publish(*batch)
    again = bench.publish(*batch)
    assert again.new == (True, False)
    assert again.ids[1] == first.ids[1]


def test_two_units_of_one_batch_know_each_others_keys():
    """RULES 4: a duplicate of one in flight gets its id; both receipts are settled by the same fsync."""
    bench = Bench()
    batch = bench.batch()
    unit = Publish.of(QueueName("q"), (Message(b"a", idempotency_key="k"),))
    first = bench.accept(unit, batch, None)
    again = bench.accept(unit, batch, None)
    assert again.ids == first.ids
    assert batch.records == 1


def test_a_key_is_kept_for_its_window():
    """RULES 4: beyond the window of its queue the key may be used anew."""
    bench = Bench(QueueSettings(idempotency_window_s=60.0))
    first = bench.publish(Message(b"a", idempotency_key="k"))
    bench.now_us += 59_000_000
    assert bench.publish(Message(b"a", idempotency_key="k")).ids == first.ids
    bench.now_us += 2_000_000
    later = bench.publish(Message(b"other", idempotency_key="k"))
    assert later.new == (True,)
    assert bench.publish(Message(b"other", idempotency_key="k")).ids == later.ids


def test_what_the_index_has_let_go_is_looked_up_in_the_log():
    """RULES 4: the index is bounded; within the window a key it does not hold is asked of the log's own."""
    bench = Bench()
    bench.keys = KeyIndex(entries_max=4, recent_max=2)
    bench.acceptor._keys = bench.keys
    first = bench.publish(*[Message(b"m", idempotency_key=f"k{n}") for n in range(10)])
    bench.publish(*[Message(b"m", idempotency_key=f"k{n}") for n in range(10, 12)])
    bench.now_us += 1
    assert bench.keys.complete_since_us > 0
    unit = Publish.of(QueueName("q"), (Message(b"m", idempotency_key="k0"),))
    batch = bench.batch()
    wanted = bench.accept(unit, batch, None)
    assert isinstance(wanted, Wanted)
    assert wanted.keys == {OldKey(1, "k0")}
    record = bench.cached[first.sequences[0]]
    found = merge(
        None, LookupResult({record.sequence: record}, set(), {record.sequence}, {OldKey(1, "k0"): record.sequence})
    )
    assert bench.accept(unit, batch, found).ids == first.ids[:1]
    assert bench.accept(unit, batch, LookupResult(older={OldKey(1, "k0"): 0})).new == (True,)


def test_the_key_index_finds_every_key_through_folds_and_a_checkpoint():
    """RULES 4: keys survive being folded into columns, merged, saved and loaded; the newest message of a key wins."""
    bench = Bench()
    bench.keys = KeyIndex(recent_max=16)
    bench.acceptor._keys = bench.keys
    bench.now_us = NOW_US
    expected = {}
    for n in range(500):
        bench.now_us += 90_000_000_000 if n == 250 else 1  # a day later the same keys are new ones
        key = f"k{n % 250}"
        expected[key] = bench.publish(Message(b"%d" % n, idempotency_key=key)).sequences[0]
    loaded = KeyIndex()
    loaded.load(bench.keys.save())
    for index in (bench.keys, loaded):
        bench.acceptor._keys = index
        for n in range(250):
            again = bench.publish(Message(b"%d" % (n + 250), idempotency_key=f"k{n}"))
            assert again.sequences == (expected[f"k{n}"],)
    assert loaded.statistics().entries == 250


@pytest.mark.parametrize("where", ["recent", "folded", "loaded"])
def test_a_key_stands_for_its_newest_message_though_retention_carries_an_older_one(where: str):
    """RULES 4: a key was used again after its window, and only then the first message, which still waited, was carried
    along: repeated, the second publish is known; and so in whichever part of the index its key stands."""
    bench = Bench(QueueSettings(idempotency_window_s=60.0))
    first = bench.publish(Message(b"a", idempotency_key="k"))
    bench.now_us += 61_000_000
    second = bench.publish(Message(b"a", idempotency_key="k"))
    assert second.new == (True,)
    if where != "recent":
        saved = bench.keys.save()  # folds what is recent into columns
        if where == "loaded":
            bench.keys.load(saved)
    bench.keys.note(Messages.of(bench.cached[first.sequences[0]]))
    assert bench.publish(Message(b"a", idempotency_key="k")).ids == second.ids
