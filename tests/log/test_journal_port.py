"""What every journal promises (``syncbrok.model.journal``), asked of each: files, memory, and one behind a network.

What they promise of crashes, failures, full places and damage: ``test_journal_port_faults``.

Broken by hand to see these fail, in files and in memory: a batch appended beside its place; ``durable_sequence`` ahead
under ``interval``; a carried message that is not found by its own sequence; keys oldest first; a trimmed section that
still answers; a checkpoint of more than is durable; a list that ends before it has ``bytes_max``; a snapshot taken when
it is appended, or for another time; a section's age by the time of its first fact; an older copy of a carried message
that keeps its section; content in what is inherited; a log that is open and says that it was closed in good order.
"""

import itertools
import random
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from syncbrok.model.errors import LogFull, LogLocked
from syncbrok.model.facts import (
    Carried,
    Fact,
    FactOrRun,
    Messages,
    Outcome,
    Outcomes,
    QueueSet,
    Reason,
    Row,
    Snapshot,
    StoredMessage,
)
from syncbrok.model.journal import JournalOptions, Log, PreparedBatch
from syncbrok.model.message import QueueSettings
from syncbrok.model.names import QueueName, make_message_id, sequence_of
from tests.support.log.journal_places import PLACES, Place, placed
from tests.support.log.journals import START_US, Clock, append_snapshot, message
from tests.support.log.memory_journal import RemoteJournal

DAY_US = 86_400_000_000


@pytest.fixture(params=list(PLACES))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with placed(request.param, tmp_path) as made:
        yield made


def prepared(journal: Log, *facts: Fact) -> PreparedBatch:
    return journal.prepare([Messages.of(fact) if isinstance(fact, StoredMessage) else fact for fact in facts])


def append(journal: Log, *facts: Fact) -> None:
    journal.append(prepared(journal, *facts))


def publish(journal: Log, count: int = 1, **changes: Any) -> list[StoredMessage]:
    first = journal.next_sequence
    messages = [message(journal.id_key, sequence, **changes) for sequence in range(first, first + count)]
    append(journal, *messages)
    return messages


def told(journal: Log, after: int = 0) -> list[Fact]:
    return list(journal.facts(after))


def bare(facts: list[StoredMessage]) -> list[StoredMessage]:
    return [fact._replace(content=b"") for fact in facts]


# -- appending --------------------------------------------------------------------------------------------------------


def test_what_is_appended_stands_where_it_was_asked_for(place: Place) -> None:
    """Port, append: the next batch begins with ``next_sequence`` and stands there, in order, once."""
    journal = place.open()
    first = journal.next_sequence
    batches = [publish(journal, count) for count in (1, 7, 300, 1)]
    messages = [one for batch in batches for one in batch]
    assert journal.next_sequence == first + len(messages)
    assert told(journal, first - 1) == bare(messages)
    assert told(journal, messages[4].sequence) == bare(messages[5:])
    assert [one.sequence for one in told(journal)] == list(range(1, journal.next_sequence))


def test_a_batch_goes_nowhere_else(place: Place) -> None:
    """Port, append: a batch that does not begin with ``next_sequence`` is refused, and nothing of it is there."""
    journal = place.open()
    early = prepared(journal, message(journal.id_key, journal.next_sequence))
    publish(journal)
    before = told(journal)
    with pytest.raises(AssertionError):
        journal.append(early)
    assert told(journal) == before


def test_the_bytes_of_a_batch_are_known_before_it_is_appended(place: Place) -> None:
    """Port, prepare: who sends a batch elsewhere first has its bytes; content is among them."""
    journal = place.open()
    batch = prepared(journal, message(journal.id_key, journal.next_sequence, content=b"to be found in it"))
    assert (batch.first, batch.last) == (journal.next_sequence, journal.next_sequence)
    assert b"to be found in it" in batch.data


def test_one_writer_at_a_time(place: Place) -> None:
    """Port: a second append, a sync or a close while one is under way is a mistake of the program and raises; the first
    one goes on, and the journal with it."""
    journal = place.open()
    under_way, go_on = threading.Event(), threading.Event()
    journal.before_append = lambda: (under_way.set(), go_on.wait(30))
    batch = prepared(journal, message(journal.id_key, journal.next_sequence))
    writer = threading.Thread(target=journal.append, args=(batch,))
    writer.start()
    assert under_way.wait(30)
    for second in (lambda: journal.append(batch), journal.sync, journal.close):
        with pytest.raises(RuntimeError, match="one writer"):
            second()
    go_on.set()
    writer.join()
    assert told(journal)[-1].sequence == batch.last
    publish(journal)


def test_where_there_is_no_room_nothing_was_appended(place: Place) -> None:
    """Port, LogFull: the sequences are free again, and the same batch goes in once there is room."""
    journal = place.open()
    publish(journal, 3)
    before = told(journal)
    batch = prepared(journal, message(journal.id_key, journal.next_sequence))
    place.fill(full=True)
    with pytest.raises(LogFull):
        journal.append(batch)
    assert journal.next_sequence == batch.first
    assert told(journal) == before
    place.fill(full=False)
    assert journal.has_room()
    again = prepared(journal, message(journal.id_key, journal.next_sequence))
    journal.append(again)
    assert told(journal)[-1].sequence == batch.first


def test_an_append_ends_once_its_fate_is_known(tmp_path: Path) -> None:
    """Port, append: "unknown" is no answer. Who hears it asks again; nothing is there twice, and nothing is missing."""
    journal = RemoteJournal.open(tmp_path, JournalOptions(), Clock())
    append_snapshot(journal)
    messages = [one for _ in range(60) for one in publish(journal)]
    assert journal.unknown > 5, "or this test shows nothing"
    assert told(journal)[1:] == bare(messages)
    assert journal.durable_sequence == messages[-1].sequence


# -- durable ----------------------------------------------------------------------------------------------------------


def test_with_always_it_is_durable_once_it_is_appended(place: Place) -> None:
    """RULES 1: under ``always`` the append returns when it is; a crash then loses nothing."""
    journal = place.open()
    messages = publish(journal, 5)
    assert journal.durable_sequence == messages[-1].sequence
    place.crash()
    again = place.open()
    assert told(again)[: messages[-1].sequence] == told(journal)


def test_with_interval_it_is_durable_once_it_is_synced(place: Place) -> None:
    """RULES 1: a crash may lose what was not, from the end only."""
    journal = place.open(sync="interval")
    kept = publish(journal, 5)
    journal.sync()
    assert journal.durable_sequence == kept[-1].sequence
    publish(journal, 5)
    assert journal.durable_sequence == kept[-1].sequence
    all_of_it = told(journal)
    place.crash()
    again = place.open(sync="interval")
    left = [fact for fact in told(again) if isinstance(fact, StoredMessage)]
    assert left[:5] == bare(kept)
    assert left == [fact for fact in all_of_it if isinstance(fact, StoredMessage)][: len(left)]


@pytest.mark.parametrize("sync", ["always", "interval"])
def test_sync_says_whether_readers_beside_this_process_lag_behind(place: Place, sync: Any) -> None:
    """Port, sync: as long as it says so it is called again, a second later; then they know of all that is durable, and
    a log at rest stays so."""
    journal = place.open(sync=sync)
    for count in (1, 30):
        publish(journal, count)
        calls = 0
        while journal.sync():
            assert calls < 3, "it comes to rest"
            place.clock.now_us += 1_000_000
            calls += 1
        assert place.seen_beside() == journal.durable_sequence == journal.next_sequence - 1
        place.clock.now_us += 1_000_000
        assert journal.sync() is False


def test_a_closed_log_is_opened_as_it_was(place: Place) -> None:
    """Port, close: everything is durable, the report says that it was closed, and it goes on with the next sequence."""
    journal = place.open(sync="interval")
    publish(journal, 5)
    facts, following = told(journal), journal.next_sequence
    journal.close()
    journal.close()
    again = place.open()
    assert again.recovery.clean
    assert (told(again), again.next_sequence, again.id_key) == (facts, following, journal.id_key)
    place.crash()
    again = place.open()
    assert not again.recovery.clean, "though nothing was appended"
    publish(again, 2)
    place.crash()
    assert not place.open().recovery.clean


def test_a_log_is_open_once(place: Place) -> None:
    """Port: two that append to one log would each believe themselves alone."""
    place.open()
    with pytest.raises(LogLocked):
        place.open()


# -- checkpoints ------------------------------------------------------------------------------------------------------


def test_a_checkpoint_comes_back(place: Place) -> None:
    """Port, checkpoints: the newest that was kept, also after a crash; none of more than is durable."""
    journal = place.open(sync="interval")
    assert journal.load_checkpoint() is None
    publish(journal, 5)
    journal.sync()
    through = journal.durable_sequence
    journal.save_checkpoint(through - 1, {"a": b"1"})
    journal.save_checkpoint(through, {"a": b"2", "b": b"\0" * 5_000})
    publish(journal, 5)
    journal.save_checkpoint(journal.next_sequence - 1, {"a": b"too early"})
    place.crash()
    assert place.open().load_checkpoint() == (through, {"a": b"2", "b": b"\0" * 5_000})


# -- questions --------------------------------------------------------------------------------------------------------


class Story:
    """A log of everything that can be asked for, in several sections; the oldest of them may be trimmed."""

    def __init__(self, journal: Log, chance: random.Random) -> None:
        self.journal = journal
        self.chance = chance
        self.messages: dict[int, StoredMessage] = {}
        """by their own sequences: all that were ever published"""
        self.rows: list[tuple[int, Row]] = []
        self.carried: dict[int, int] = {}
        """own sequence -> that of the newest fact that carries it"""

    def go_on(self, sections: int) -> None:
        while len(self.journal.sections()) < sections:
            if self.journal.wants_snapshot:
                append_snapshot(self.journal)
            self.chance.choices((self.publish, self.outcomes, self.queue), (6, 2, 1))[0]()

    def publish(self) -> None:
        facts = []
        first = self.journal.next_sequence
        for sequence in range(first, first + self.chance.choice((1, 1, 2, 20))):
            pick = self.chance.choice
            known = sorted(self.messages)
            parents = self.chance.sample(known, min(len(known), pick((0, 0, 1, 3))))
            facts.append(
                message(
                    self.journal.id_key,
                    sequence,
                    queue=pick((1, 2, 3)),
                    key=pick(("", "a", "b")),
                    idempotency_key=pick(("", "", "i", "j")),
                    parents=tuple(make_message_id(START_US // 1_000, one, self.journal.id_key) for one in parents),
                    content=b"%d " % sequence + b"x" * pick((0, 10, 900)),
                )
            )
        append(self.journal, *facts)
        self.messages.update({one.sequence: one for one in facts})

    def outcomes(self) -> None:
        sequence = self.journal.next_sequence
        known = sorted(self.messages) or [1]
        rows = tuple(
            Row(one, 1, 1, Outcome.DELIVERED, Reason.NONE, 200, START_US, 0, 1, 1)
            for one in self.chance.choices(known, k=self.chance.randrange(1, 5))
        )
        append(self.journal, Outcomes(sequence, START_US + sequence, rows))
        self.rows += [(sequence, row) for row in rows]

    def queue(self) -> None:
        sequence = self.journal.next_sequence
        append(self.journal, QueueSet(sequence, START_US + sequence, 1, QueueName("one"), QueueSettings()))

    def carry(self, own: int) -> None:
        sequence = self.journal.next_sequence
        append(self.journal, Carried(sequence, START_US + sequence, self.messages[own], (), ()))
        self.carried[own] = sequence

    def there(self) -> dict[int, StoredMessage]:
        """Those that can be read."""
        first = self.journal.first_sequence
        return {
            own: one for own, one in sorted(self.messages.items()) if own >= first or self.carried.get(own, 0) >= first
        }


def families(messages: dict[int, StoredMessage]) -> dict[int, list[int]]:
    """The children of each, in order."""
    found: dict[int, list[int]] = {}
    for one, its in messages.items():
        for parent in dict.fromkeys(map(sequence_of, its.parents)):
            found.setdefault(parent, []).append(one)
    return found


def questions_are_answered(journal: Log, story: Story) -> None:
    """Every question, of everything, beside the answer that the story gives."""
    there, first, following = story.there(), journal.first_sequence, journal.next_sequence
    assert journal.read_many(list(range(following + 2))) == [there.get(one) for one in range(following + 2)]
    cached = journal.cached_many(range(first, following))
    assert all(found in (None, there.get(one)) for one, found in zip(range(first, following), cached, strict=True))
    newest = max(story.messages)
    for one in range(following + 2):
        kind = journal.kind_of(one)
        if one == 0 or one >= following:
            assert kind == "unknown"
        elif one in there:
            assert kind == "message"
            assert journal.place_of(one) == (there[one].id, there[one].queue)
            assert journal.lost(one) is None
        else:
            assert kind == ("dropped" if one < first else "other")
    children_of = families(there)
    for own in there:
        assert journal.rows_of(own) == [(at, row) for at, row in story.rows if row.message == own and at >= first]
        assert journal.timed_rows_of(own) == [(at, START_US + at, row) for at, row in journal.rows_of(own)]
        children = children_of.get(own, [])
        assert journal.children_of(own, 99) == children[:99]
        assert journal.children_of(own, 1) == children[:1]
    for queue in (None, 1, 2, 3, 4):
        its = [one for one in there.values() if queue in (None, one.queue)]
        if queue is not None:
            for after in (0, first, newest // 2, following):
                expected = [one.sequence for one in its if one.sequence > after]
                assert journal.queue_sequences(queue, after, 10_000) == expected
                assert journal.queue_sequences(queue, after, 3) == expected[:3]
        for key in ("a", "b", "c"):
            keyed = [one.sequence for one in reversed(its) if one.key == key]
            assert journal.with_key(key, queue, 10_000) == keyed
            assert journal.with_key(key, queue, 2, newest // 2) == [one for one in keyed if one < newest // 2][:2]
        for key in ("i", "k"):
            since_us = START_US + newest // 2
            expected = [one.sequence for one in reversed(its) if one.idempotency_key == key and one.time_us >= since_us]
            assert journal.with_idempotency_key(key, queue, since_us) == expected


@pytest.mark.parametrize("seed", range(3))
def test_each_question_is_answered_from_what_was_appended(place: Place, seed: int) -> None:
    """Port, index: asked of a log of several sections, of one whose oldest sections were trimmed and whose messages
    were carried in part, and once more after it was opened again."""
    journal = place.open()
    chance = random.Random(seed)
    story = Story(journal, chance)
    story.go_on(4)
    newest = max(story.messages)
    assert journal.cached(newest) == story.messages[newest], "what was appended a moment ago needs no disk"
    assert journal.in_memory(newest)
    questions_are_answered(journal, story)
    for _ in range(2):
        oldest = journal.sections()[0]
        for own in [one for one in story.there() if one <= oldest.last]:
            if own in story.carried or chance.random() < 0.3:
                story.carry(own)
        journal.trim_oldest()
        questions_are_answered(journal, story)
    journal.close()
    story.journal = again = place.open()
    questions_are_answered(again, story)


def test_many_bytes_are_read_a_part_at_a_time(place: Place) -> None:
    """Port, read_many: with ``bytes_max`` the list may end early, but not before there are so many bytes, not long
    after, and never empty; what is no message counts for nothing."""
    journal = place.open()
    messages = publish(journal, 40, content=b"x" * 50_000)
    wanted = [one.sequence for one in messages]
    for bytes_max in (1, 50_000, 200_000, 1_000_000):
        found = journal.read_many(wanted, bytes_max)
        assert found == messages[: len(found)]
        assert bytes_max / 50_000 <= len(found) < 40
    missing = [journal.next_sequence + 5] * 300
    assert journal.read_many([*missing, wanted[0]], 100) == [*[None] * 300, messages[0]]
    assert journal.read_many(wanted, 40 * 50_000 + 1) == messages


def test_messages_are_read_in_the_order_asked(place: Place) -> None:
    """Port, read_many: whatever the order, and one asked for twice is there twice, from memory and from elsewhere."""
    journal = place.open()
    messages = {one.sequence: one for one in publish(journal, 30)}
    wanted = [20, 3, 3, 1, 25, 99, 4, 5, 6, 20, 2, 0]
    expected = [messages.get(one) for one in wanted]
    for _ in range(2):
        assert journal.read_many(wanted) == expected
        found = journal.read_many(wanted, 10)
        assert found == expected[: len(found)]
        assert len(found) > 0
        assert journal.read_many([]) == []
        journal.close()
        journal = place.open()


def test_an_empty_log_answers_every_question(place: Place) -> None:
    """Port: before its first snapshot, and when it is opened so once more, it knows of nothing and says so."""
    for _ in range(2):
        journal = place.open(begun=False)
        assert journal.wants_snapshot
        assert (journal.first_sequence, journal.next_sequence, journal.durable_sequence) == (1, 1, 0)
        assert len(journal.id_key) == 16
        assert (journal.recovery.clean, journal.recovery.cut_bytes) == (True, 0)
        assert [*journal.facts(), *journal.facts_or_runs(), *journal.inherited(), *journal.facts(7)] == []
        assert journal.load_checkpoint() is None
        assert journal.read_many([0, 1, 2]) == journal.cached_many([0, 1, 2]) == [None] * 3
        assert journal.read_many([1, 2], 100) == [None, None]
        assert (journal.cached(1), journal.in_memory(1)) == (None, False)
        assert [journal.kind_of(one) for one in (0, 1, 2)] == ["unknown"] * 3
        assert [ask(1) for ask in (journal.lost, journal.place_of)] == [None, None]
        assert journal.rows_of(1) == journal.children_of(1, 9) == journal.queue_sequences(1, 0, 9) == []
        assert journal.with_key("", None, 9) == journal.with_idempotency_key("i", 1, 0) == []
        assert list(journal.sections()) == list(journal.expired(1 << 62)) == []
        assert (dict(journal.damages), dict(journal.damaged)) == ({}, {})
        assert journal.has_room()
        journal.sync()
        journal.sweep(1 << 62)
        journal.close()
    assert append_snapshot(place.open(begun=False)).sequence == 1


# -- sections ---------------------------------------------------------------------------------------------------------


def test_sections_follow_each_other(place: Place) -> None:
    """Port, sections: each begins with its snapshot and where the one before it ends; all but the last are sealed."""
    journal = place.open()
    Story(journal, random.Random(5)).go_on(4)
    sections = journal.sections()
    facts = {fact.sequence: fact for fact in told(journal)}
    assert [section.sealed for section in sections] == [True, True, True, False]
    assert sections[0].first == journal.first_sequence == 1
    for section, following in itertools.pairwise(sections):
        assert following.first == section.last + 1
    for section in sections:
        its = [facts[one] for one in range(section.first, section.last + 1) if one in facts]
        assert isinstance(its[0], Snapshot)
        assert section.records == section.last - section.first + 1
        assert 0 <= section.records - len(its) <= section.sealed, "a journal may need a sequence to end a section"
        assert section.first_time_us == its[0].time_us
        assert section.last_time_us == (facts.get(section.last) or facts[section.last + 1]).time_us
        assert section.bytes > 0
    assert len({section.name for section in sections}) == 4
    assert {type(fact) for fact in facts.values()} == {Snapshot, StoredMessage, Outcomes, QueueSet}


def test_sections_expire_by_the_wall_clock_from_the_oldest_on(place: Place) -> None:
    """Port, expired: by when they were sealed, which the snapshot after them says; the last one never does."""
    journal = place.open()
    Story(journal, random.Random(6)).go_on(4)
    sections = journal.sections()
    sealed_us = [journal.sealed_us(one) for one in sections[:-1]]
    assert sealed_us == [journal.opened_us(one) for one in sections[1:]] == sorted(sealed_us)
    for count, one_us in enumerate(sealed_us):
        assert [one.first for one in journal.expired(one_us)] == [one.first for one in sections[:count]]
        assert [one.first for one in journal.expired(one_us + 1)] == [one.first for one in sections[: count + 1]]
    assert len(journal.expired(1 << 62)) == 3


def test_a_snapshot_is_taken_once_for_its_place(place: Place) -> None:
    """Port, prepare_snapshot: whoever tells what stands now is called back once and at once, with the sequence that the
    snapshot will have and with the time that was given; that is where it stands, and nothing was appended for it."""
    journal = place.open()
    publish(journal, 3)
    for time_us in (START_US + 10, START_US + 10, START_US + 2_000):
        taken: list[tuple[int, int]] = []

        def take(sequence: int, at_us: int, taken: list[tuple[int, int]] = taken) -> Snapshot:
            taken.append((sequence, at_us))
            return Snapshot(sequence, at_us, (), (), (), ())

        following = journal.next_sequence
        batch = journal.prepare_snapshot(take, time_us)
        ((sequence, at_us),) = taken
        assert journal.next_sequence == following <= sequence
        assert (batch.first, batch.last) == (sequence, sequence)
        assert at_us == time_us
        assert (batch.snapshot.sequence, batch.snapshot.time_us) == (sequence, time_us)
        assert batch.data
        journal.append(batch)
        assert len(taken) == 1
        assert journal.next_sequence == sequence + 1
        assert told(journal)[-1] == batch.snapshot
        assert journal.sections()[-1].first == sequence


def test_sections_age_by_the_wall_clock(place: Place) -> None:
    """Port, opened_us, sealed_us: facts that were accepted while the clock was ahead have times of the future, and
    those behind them too; a section does not stay a day longer for it. Asked again when it was opened again."""
    journal = place.open()
    begun: list[tuple[int, int]] = []
    for ahead_us in (DAY_US, DAY_US, DAY_US):
        facts = [message(journal.id_key, journal.next_sequence, time_us=START_US + ahead_us)]
        append(journal, *facts)
        before_us = place.clock()
        append_snapshot(journal, time_us=START_US + ahead_us)
        begun.append((before_us, place.clock()))
    for _ in range(2):
        sections = journal.sections()[:4]
        assert sections[0].last_time_us >= START_US + DAY_US
        for section, following, (before_us, after_us) in zip(sections, sections[1:], begun, strict=False):
            assert before_us <= journal.opened_us(following) <= after_us
            assert journal.sealed_us(section) == journal.opened_us(following)
        assert [one.first for one in journal.expired(place.clock())] == [one.first for one in sections[:3]]
        assert list(journal.expired(begun[0][0])) == []
        newest = journal.sections()[-1]
        assert journal.sealed_us(newest) == newest.last_time_us
        journal.close()
        journal = place.open()


def test_what_is_carried_twice_stands_where_it_was_carried_last(place: Place) -> None:
    """Port, stands_in: the newest that carries a message is what is read, so an older section need not stay for it."""
    journal = place.open()
    (one, other) = publish(journal, 2)
    for _ in range(2):
        append_snapshot(journal)
        append(journal, Carried(journal.next_sequence, START_US, one, (), ()))
    append(journal, Carried(journal.next_sequence, START_US, other, (), ()))
    append_snapshot(journal)
    oldest = journal.sections()[0]
    own = [one.sequence, other.sequence]
    assert [journal.stands_in(section, own) for section in journal.sections()] == [True, False, False, False]
    journal.trim_oldest()
    for _ in range(2):
        assert [journal.stands_in(section, own[:1]) for section in journal.sections()[:3]] == [False, True, False]
        assert [journal.stands_in(section, own[1:]) for section in journal.sections()[:3]] == [False, True, False]
        assert not journal.stands_in(journal.sections()[1], [])
        assert journal.read_many(own) == [one, other]
        assert journal.queue_sequences(1, 0, 9) == own
        journal.check(oldest)
        assert dict(journal.damages) == {}
        journal.close()
        journal = place.open()


def test_what_is_trimmed_is_gone_and_what_it_owed_is_inherited(place: Place) -> None:
    """Port, trim_oldest, inherited: what was carried is told by its own sequence, and how messages ended that are gone
    by the newest snapshot. What stands in a section is told before it goes."""
    journal = place.open()
    story = Story(journal, random.Random(7))
    story.go_on(3)
    first, second = journal.sections()[:2]
    kept = next(one for one in story.messages if one <= first.last)
    gone = next(one for one in story.messages if kept < one <= first.last)
    assert list(journal.inherited()) == []
    assert journal.stands_in(first, [kept])
    assert not journal.stands_in(second, [kept])
    story.carry(kept)
    append_snapshot(journal, bad=((gone, Outcome.DEAD), (kept, Outcome.DEAD)))
    journal.trim_oldest()
    assert journal.first_sequence == second.first == journal.sections()[0].first
    assert told(journal)[0].sequence == second.first
    assert journal.stands_in(journal.sections()[-2], [kept])
    opened, *carried = journal.inherited()
    assert isinstance(opened, Snapshot)
    assert (opened.sequence, opened.bad) == (second.first, ((gone, Outcome.DEAD),))
    assert [one.message for one in carried if isinstance(one, Carried)] == bare([story.messages[kept]])
    journal.sweep(1 << 62)
    for section in journal.sections()[:-1]:
        journal.check(section)
    assert (dict(journal.damages), dict(journal.damaged)) == ({}, {})


def test_recovery_reads_what_was_appended(place: Place) -> None:
    """Port, facts_or_runs: the same facts as in order, but what a run leaves out of its messages."""
    journal = place.open()
    Story(journal, random.Random(8)).go_on(2)
    publish(journal, 500)

    def alone(facts: Iterable[FactOrRun]) -> list[Fact]:
        found: list[Fact] = []
        for fact in facts:
            found += fact.messages() if isinstance(fact, Messages) else (fact,)
        return [one._replace(time_us=0, content_type="") if isinstance(one, StoredMessage) else one for one in found]

    for after in (0, 3, journal.sections()[-1].first, journal.next_sequence - 300):
        assert alone(journal.facts_or_runs(after)) == alone(journal.facts(after))
