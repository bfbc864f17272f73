"""What every journal promises (``syncbrok.model.journal``) of crashes, failures, places without room, and damage; and
to those who read while it is written to.

Broken by hand to see these fail, in files and in memory: each record of a batch takes itself for the end of a unit; a
failure forgotten after it was raised once, and a checkpoint saved after it; a failed journal that says that it was
closed in good order; a snapshot that takes what the reserve gave; essential batches refused where no section fits;
those taken where there is none; a stale snapshot put elsewhere; a damaged message told as one of another kind, left out
of what is inherited, of an answer by its idempotency key, or told with its content; one that the disk does not read
now, told as lost; a section gone before it was said to be trimmed, or before it was archived; the checkpoint of before
gone with the one that could not be saved.
"""

import itertools
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from syncbrok.model.errors import LogCorrupt, LogFailed, LogFull, LogUnreadable
from syncbrok.model.facts import (
    Carried,
    Fact,
    FactOrRun,
    FactsLost,
    Messages,
    Outcome,
    Outcomes,
    Reason,
    Row,
    Snapshot,
    StoredMessage,
)
from syncbrok.model.journal import Log
from tests.support.log.journal_places import PLACES, Place, placed
from tests.support.log.journals import START_US, append_snapshot, ended, message, publish


@pytest.fixture(params=list(PLACES))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with placed(request.param, tmp_path) as made:
        yield made


def told(journal: Log) -> list[Fact]:
    return list(journal.facts())


def alone(facts: Iterator[FactOrRun]) -> list[Fact]:
    return [one for fact in facts for one in (fact.messages() if isinstance(fact, Messages) else (fact,))]


def nothing(sequence: int, time_us: int) -> Snapshot:
    return Snapshot(sequence, time_us, (), (), (), ())


# -- crashes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit_ends", [{2, 3, 7}, {7}, None], ids=str)
def test_a_unit_is_there_whole_or_not_at_all(place: Place, unit_ends: set[int] | None) -> None:
    """RULES 5, port, prepare: a journal that is killed at any moment of an append has whole units of it, the first
    ones, and everything before it; it says that it has cut off the rest, and goes on behind what is left."""
    journal = place.open()
    publish(journal, 3)
    before = told(journal)
    start = journal.next_sequence
    alike = [message(journal.id_key, start + one, content=b"of one length") for one in range(8)]
    batch = journal.prepare(alike, unit_ends)
    whole = {0, *(1 + one for one in (unit_ends or range(8)))}
    for written in (*range(0, len(batch.data), 31), len(batch.data)):
        alive = place.directory
        place.crash(batch, written)
        again = place.open()
        facts = told(again)
        kept = [fact.sequence for fact in facts if isinstance(fact, StoredMessage)][3:]
        assert facts[: len(before)] == before
        assert kept == list(range(start, start + len(kept)))
        assert len(kept) in whole, f"{written} of {len(batch.data)} bytes"
        assert again.durable_sequence == again.next_sequence - 1 == start + len(kept) - 1
        assert not again.recovery.clean
        left = written % len(batch.data) if place.refetches else written - len(batch.data) * len(kept) // 8
        assert (again.recovery.cut_bytes > 0) == (left > 0)
        publish(again)
        again.close()
        after = place.open()
        assert told(after)[: len(facts)] == facts
        assert len(told(after)) == len(facts) + 1
        after.close()
        place.directory = alive
    assert len(kept) == 8, "its last byte was written"


def test_what_it_is_opened_with_is_durable(place: Place) -> None:
    """Port, durable_sequence: whoever reads a fact after a crash may rely on it, another crash does not take it."""
    journal = place.open(sync="interval")
    publish(journal, 5)
    for _ in range(3):
        place.crash()
        again = place.open(sync="interval")
        facts = told(again)
        assert again.durable_sequence == again.next_sequence - 1 >= facts[-1].sequence
        place.crash()
        assert told(place.open())[: len(facts)] == facts


# -- failures ---------------------------------------------------------------------------------------------------------


def _snapshot(journal: Log) -> None:
    append_snapshot(journal)


def _append(journal: Log) -> None:
    journal.append(journal.prepare([message(journal.id_key, journal.next_sequence)]))


def _append_essential(journal: Log) -> None:
    ended(journal, [2], essential=True)  # type: ignore[arg-type]


def _checkpoint(journal: Log) -> None:
    journal.save_checkpoint(2, {"a": b"after it failed"})


CALLS: list[Callable[[Any], object]] = [
    _append,
    _append_essential,
    _snapshot,
    lambda journal: journal.sync(),
    _checkpoint,
    lambda journal: journal.trim_oldest(),
]


@pytest.mark.parametrize(
    ("sync", "first"),
    [("always", _append), ("interval", _append), ("always", _snapshot), ("interval", lambda journal: journal.sync())],
    ids=["append", "append under interval", "snapshot", "sync"],
)
def test_a_failure_is_final(place: Place, sync: Any, first: Callable[[Log], None]) -> None:
    """DESIGN 4, port, LogFailed: nothing is acknowledged or thrown away after it, whatever is asked, and what was
    durable before is there when the log is opened again, with whole facts behind it or none; so is the checkpoint."""
    journal = place.open(sync=sync)
    publish(journal, 3)
    append_snapshot(journal)
    publish(journal, 2)
    journal.sync()
    before, durable = told(journal), journal.durable_sequence
    journal.save_checkpoint(durable, {"a": b"1"})
    if sync == "interval":
        publish(journal, 2)
    facts = told(journal)
    place.break_down()
    with pytest.raises(LogFailed):
        first(journal)
    for call in CALLS * 2:
        with pytest.raises(LogFailed):
            call(journal)
    assert journal.durable_sequence == durable
    journal.close()
    journal.close()
    again = place.open()
    left = told(again)
    assert left[: len(before)] == before
    assert left == facts[: len(left)] or (first is not _snapshot and left[: len(facts)] == facts)
    assert not again.recovery.clean
    assert again.load_checkpoint() == (durable, {"a": b"1"})
    publish(again)
    assert told(again)[: len(left)] == left


# -- what could not be done -------------------------------------------------------------------------------------------


def test_a_checkpoint_that_cannot_be_saved_leaves_the_one_before(place: Place) -> None:
    """Port, save_checkpoint: where the fact that it would end with cannot be read, or nothing can, it raises; the one
    before is there, now and at the next start."""
    journal = place.open()
    first, lost = publish(journal, 2)
    append_snapshot(journal)
    journal.close()
    place.damage(lost.sequence, beyond_knowing=True)
    again = place.open()
    saved = (first.sequence, {"a": b"1"})
    again.save_checkpoint(*saved)
    for through in (lost.sequence, again.next_sequence + 5):
        with pytest.raises(OSError, match=str(through)):
            again.save_checkpoint(through, {"a": b"2"})
        assert again.load_checkpoint() == saved
    with place.unreadable(), pytest.raises(LogUnreadable):
        again.save_checkpoint(first.sequence, {"a": b"3"})
    assert again.load_checkpoint() == saved
    place.crash()
    assert place.open().load_checkpoint() == saved


@pytest.mark.parametrize("problem", [LogFull("no room"), LogUnreadable("no disk"), OSError("no archive")], ids=repr)
def test_a_section_that_cannot_be_trimmed_stays(place: Place, problem: Exception) -> None:
    """Port, trim_oldest: whatever it raises but ``LogFailed``, the section is there and the log goes on; the next try
    may go well."""
    journal = place.open()
    messages = publish(journal, 3)
    append_snapshot(journal)
    facts, sections = told(journal), list(journal.sections())
    with place.no_trimming(problem), pytest.raises(type(problem)):
        journal.trim_oldest()
    assert (told(journal), list(journal.sections()), journal.first_sequence) == (facts, sections, 1)
    assert journal.read_many([one.sequence for one in messages]) == messages
    assert journal.kind_of(messages[0].sequence) == "message"
    publish(journal)
    journal.trim_oldest()
    assert journal.first_sequence == journal.sections()[0].first == sections[1].first


def test_what_must_be_archived_is_held_back_until_it_is(place: Place) -> None:
    """Port, held_back, trim_oldest: however old a section is, it stays as long as it is to be archived and has not
    been; where nothing archives, none is held back."""
    journal = place.open()
    messages = publish(journal, 3)
    append_snapshot(journal)
    first = journal.sections()[0]
    assert not journal.held_back(first)
    place.must_be_archived()
    for _ in range(2):
        assert journal.held_back(first)
        with pytest.raises(OSError):  # noqa: PT011 (of whoever archives)
            journal.trim_oldest()
    assert list(journal.expired(1 << 62)) == [first]
    assert journal.first_sequence == first.first
    assert journal.read_many([one.sequence for one in messages]) == messages
    place.archive(first)
    assert not journal.held_back(first)
    journal.trim_oldest()
    assert journal.first_sequence > first.last


# -- no room ----------------------------------------------------------------------------------------------------------


def test_the_reserve_is_for_what_is_essential(place: Place) -> None:
    """RULES 27, port, LogFull: outcomes find room where messages and snapshots do not, until that is used up too; then
    all wait until there is room."""
    journal = place.open()
    publish(journal, 3)
    place.fill(full=True, essential=2)
    for _ in range(2):
        for refused in (_append, _snapshot):
            with pytest.raises(LogFull):
                refused(journal)
        ended(journal, [2], essential=True)
    facts = told(journal)
    for refused in (_append, _snapshot, _append_essential):
        with pytest.raises(LogFull):
            refused(journal)
    assert not journal.has_room()
    assert told(journal) == facts
    assert isinstance(facts[-1], Outcomes)
    place.fill(full=False)
    assert journal.has_room()
    _append(journal)
    append_snapshot(journal)
    place.crash()
    assert told(place.open())[: len(facts)] == facts


def test_where_no_section_fits_the_log_goes_on_in_the_one_there_is(place: Place) -> None:
    """RULES 27, port, LogFull at a snapshot: no section was begun and none ended; essential batches go into the one
    that there is, in order. The snapshot of before fits nowhere then; one that is prepared again does once there is
    room."""
    journal = place.open()
    publish(journal, 3)
    (section,) = journal.sections()
    place.fill(full=True, essential=1)
    stale = journal.prepare_snapshot(nothing, START_US + 100)
    with pytest.raises(LogFull):
        journal.append(stale)
    assert journal.next_sequence == 5
    assert list(journal.sections()) == [section]
    ended(journal, [2], essential=True)
    assert [(one.first, one.last, one.sealed) for one in journal.sections()] == [(1, 5, False)]
    place.fill(full=False)
    assert journal.has_room()
    with pytest.raises(AssertionError):
        journal.append(stale)
    begun = append_snapshot(journal)
    sections = journal.sections()
    assert [one.sealed for one in sections] == [True, False]
    assert sections[1].first == begun.sequence
    assert [fact.sequence for fact in told(journal)] == [*range(1, 6), begun.sequence]
    facts = told(journal)
    place.crash()
    assert told(place.open()) == facts


def test_an_essential_snapshot_takes_the_reserve(place: Place) -> None:
    """Port, LogFull: a start begins its section from the reserve, so that it can go on at all."""
    journal = place.open()
    publish(journal, 3)
    place.fill(full=True, essential=2)
    journal.append(journal.prepare_snapshot(nothing, START_US + 100), essential=True)
    assert [one.sealed for one in journal.sections()] == [True, False]
    ended(journal, [2], essential=True)
    with pytest.raises(LogFull):
        _append(journal)
    with pytest.raises(LogFull):
        _append_essential(journal)


def test_an_empty_log_without_room_has_no_section_to_go_on_in(place: Place) -> None:
    """Port, LogFull: there it refuses everything; the first snapshot is the first fact, as soon as there is room."""
    journal = place.open(begun=False)
    place.fill(full=True)
    with pytest.raises(LogFull):
        append_snapshot(journal)
    place.fill(full=True, essential=9)
    with pytest.raises(LogFull):
        _append_essential(journal)
    assert journal.wants_snapshot
    assert (journal.first_sequence, journal.next_sequence, journal.durable_sequence) == (1, 1, 0)
    assert told(journal) == list(journal.sections()) == []
    place.fill(full=False)
    assert journal.has_room()
    assert append_snapshot(journal).sequence == 1
    place.crash()
    assert len(told(place.open())) == 1


# -- several at once --------------------------------------------------------------------------------------------------


def test_readers_need_not_wait_for_the_writer(place: Place) -> None:
    """Port, Journal: all but the writer's calls may come from any thread, while it appends and begins sections; whoever
    asks is told of everything that had been appended by then."""
    journal = place.open()
    first = publish(journal, 50, key="k", idempotency_key="i")
    own = [one.sequence for one in first]
    rounds: list[int] = []
    met: list[BaseException] = []
    over = threading.Event()

    def look() -> None:
        appended = journal.next_sequence - 1
        sections = journal.sections()
        assert all(one.first == before.last + 1 for before, one in itertools.pairwise(sections))
        assert [one.sealed for one in sections] in ([True] * len(sections), [True] * (len(sections) - 1) + [False])
        assert sections[-1].last >= appended

    def read() -> None:
        look()
        appended = journal.next_sequence - 1
        facts = [fact.sequence for fact in journal.facts(own[-1])]
        assert facts == sorted(set(facts))
        assert len(facts) >= appended - own[-1] - len(journal.sections())
        assert journal.read_many(own[::7]) == first[::7]
        queued = journal.queue_sequences(1, 0, 100_000)
        assert queued[:50] == own
        assert queued == sorted(set(queued))
        keyed = journal.with_key("k", 1, 100_000)
        assert keyed[-50:] == own[::-1]
        assert journal.with_idempotency_key("i", 1, 0)[-1] == own[0]
        assert all(one.message == own[0] for _, one in journal.rows_of(own[0]))
        assert journal.children_of(own[0], 9) == []
        assert journal.kind_of(appended) in ("message", "other")
        assert (journal.lost(own[3]), journal.place_of(own[3])) in ((None, None), (None, (first[3].id, 1)))
        expired = journal.expired(1 << 62)
        assert list(expired) == list(journal.sections())[: len(expired)]
        assert (dict(journal.damages), dict(journal.damaged)) == ({}, {})
        rounds.append(appended)

    def again_and_again(ask: Callable[[], None]) -> None:
        while not (over.is_set() or met):
            try:
                ask()
            except BaseException as problem:  # noqa: BLE001 - told by the test, not by a thread
                met.append(problem)

    readers = [threading.Thread(target=again_and_again, args=(ask,)) for ask in (look, read, read)]
    patience = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for reader in readers:
            reader.start()
        while not met and (len(journal.sections()) < 4 or len(rounds) < 30):
            if journal.wants_snapshot:
                append_snapshot(journal)
            publish(journal, 20, key="k", content=b"x" * 500)
            ended(journal, own[:3])
    finally:
        over.set()
        for reader in readers:
            reader.join()
        sys.setswitchinterval(patience)
    assert not met, "".join(traceback.format_exception(met[0]))
    assert max(rounds) > own[-1]


# -- damage -----------------------------------------------------------------------------------------------------------


class Rotten:
    """A log whose first section holds six messages: of ``lost`` the content has rotted, ``child`` is its child."""

    def __init__(self, place: Place, *, beyond_knowing: bool) -> None:
        journal = place.open()
        first = journal.next_sequence
        self.messages = [
            message(journal.id_key, first + one, key="k", idempotency_key=f"i{one}", content=b"%d" % one * 100)
            for one in range(6)
        ]
        self.lost, self.child = self.messages[2], self.messages[4]
        journal.append(journal.prepare(self.messages))
        append_snapshot(journal)
        journal.close()
        place.damage(self.lost.sequence, beyond_knowing=beyond_knowing)
        self.journal = place.open()
        self.bare = self.lost._replace(content=b"")
        self.others = [one for one in self.messages if one is not self.lost]


def test_a_damaged_message_is_lost_and_told_as_far_as_it_is_known(place: Place) -> None:
    """RULES 28, port: its content is gone, its neighbours are read; id, queue and keys answer as before, a start goes
    on, and the damage is named once it was looked for."""
    log = Rotten(place, beyond_knowing=False)
    journal, own = log.journal, log.lost.sequence
    assert [len(journal.damages), len(journal.damaged)] in ([0, 0], [1, 1])
    wanted = [one.sequence for one in log.messages]
    assert journal.read_many(wanted) == [None if one is log.lost else one for one in log.messages]
    assert {one: journal.kind_of(one) for one in wanted} == {one: "lost" if one == own else "message" for one in wanted}
    assert journal.cached(own) is None
    lost = journal.lost(own)
    assert lost is not None
    assert lost._replace(content_type=log.lost.content_type) == log.bare
    assert [journal.lost(one.sequence) for one in log.others] == [None] * 5
    assert journal.place_of(own) == (log.lost.id, log.lost.queue)
    assert journal.with_idempotency_key("i2", 1, 0) == [own]
    assert journal.with_idempotency_key("i2", 1, log.lost.time_us + 1) == []
    assert journal.queue_sequences(1, 0, 99) == wanted
    assert journal.with_key("k", 1, 99) == wanted[::-1]
    facts = told(journal)
    (gap,) = [fact for fact in facts if isinstance(fact, FactsLost)]
    assert (gap.sequence, gap.first, gap.last) == (own, own, own)
    assert [fact.sequence for fact in facts[:7]] == list(range(1, 8))
    applied = next(fact for fact in alone(journal.facts_or_runs()) if fact.sequence == own)
    assert isinstance(applied, StoredMessage)
    assert (applied.id, applied.queue, applied.key, applied.content) == (log.lost.id, 1, "k", b"")
    section = journal.sections()[0]
    journal.check(section)
    assert list(journal.damaged) == [section.name]
    (damage,) = journal.damages[section.first]
    assert (damage.first, damage.last, damage.records, damage.survived) == (own, own, 1, True)
    assert damage.message is not None
    assert damage.message.id == log.lost.id
    assert damage.describe()


@pytest.mark.parametrize("rotten", [False, True], ids=["whole", "damaged elsewhere"])
def test_where_nothing_can_be_read_nothing_is_taken_for_damaged(place: Place, rotten: bool) -> None:
    """RULES 28, port, LogUnreadable: while the disk reads nothing at all, a question is answered as ever or raises
    that; afterwards all is as before, and nobody was told of damage that is none."""
    journal = place.open()
    messages = publish(journal, 5, key="k", idempotency_key="i")
    own = messages[2].sequence
    ended(journal, [own])
    append_snapshot(journal)
    journal.close()
    if rotten:
        place.damage(messages[0].sequence)
    journal = place.open()
    section = journal.sections()[0]
    questions: list[Callable[[], object]] = [
        lambda: journal.kind_of(own),
        lambda: journal.lost(own),
        lambda: journal.place_of(own),
        lambda: journal.rows_of(own),
        lambda: journal.children_of(own, 9),
        lambda: journal.queue_sequences(1, 0, 9),
        lambda: journal.with_key("k", 1, 9),
        lambda: journal.with_idempotency_key("i", 1, 0),
        lambda: journal.read_many([own, own + 1]),
        lambda: journal.stands_in(section, [own]),
        lambda: told(journal),
        lambda: alone(journal.facts_or_runs()),
        lambda: (journal.check(section), list(journal.damages))[1],
        journal.sections,
    ]
    answers = [ask() for ask in questions]
    damage = dict(journal.damages), dict(journal.damaged)
    assert [len(one) for one in damage] == [rotten, rotten]
    with place.unreadable():
        for ask, answer in zip(questions, answers, strict=True):
            with suppress(LogUnreadable):
                assert ask() == answer
        with pytest.raises(LogUnreadable):
            journal.read_many([own])
        assert (dict(journal.damages), dict(journal.damaged)) == damage
    assert [ask() for ask in questions] == answers
    assert (dict(journal.damages), dict(journal.damaged)) == damage
    publish(journal)


def test_where_nobody_can_tell_what_rotted_no_state_can_be_told(place: Place) -> None:
    """RULES 28, port, facts_or_runs: it may have been anything, so a start without a checkpoint behind it is refused;
    all else is read."""
    log = Rotten(place, beyond_knowing=True)
    journal, own = log.journal, log.lost.sequence
    with pytest.raises(LogCorrupt):
        list(journal.facts_or_runs())
    assert list(journal.facts_or_runs(own))
    assert journal.read_many([one.sequence for one in log.messages]) == [
        None if one is log.lost else one for one in log.messages
    ]
    assert journal.kind_of(own) == "lost"
    assert journal.lost(own) is None
    assert journal.place_of(own) is None
    assert [(fact.first, fact.last) for fact in told(journal) if isinstance(fact, FactsLost)] == [(own, own)]
    section = journal.sections()[0]
    journal.check(section)
    (damage,) = journal.damages[section.first]
    assert (damage.first, damage.last, damage.message, damage.survived) == (own, own, None, False)


def test_a_damaged_copy_is_inherited_all_the_same(place: Place) -> None:
    """RULES 28, port, inherited: a message that is carried and has rotted there is told as far as it is known, with
    what had become of it, beside the others; ``lost`` are those of the snapshot that the log begins with."""
    journal = place.open()
    first, second, third = publish(journal, 3)
    row = Row(first.sequence, 1, 1, Outcome.DELIVERED, Reason.NONE, 200, START_US, 0, 1, 1)
    journal.append(journal.prepare([Outcomes(journal.next_sequence, START_US + 9, (row,))]))
    append_snapshot(journal, lost=((1, 7),), bad=((1, Outcome.DEAD),))
    carried = []
    for one in (first, second):
        carried.append(Carried(journal.next_sequence, START_US + 10, one, ((1, Outcome.DELIVERED),), ()))
        journal.append(journal.prepare([carried[-1]]))
    append_snapshot(journal, lost=((1, 7), (third.sequence, 7)), bad=((third.sequence, Outcome.DEAD),))
    journal.trim_oldest()
    journal.close()
    place.damage(carried[0].sequence)
    again = place.open()
    assert again.read_many([first.sequence, second.sequence]) == [None, second]
    assert again.kind_of(first.sequence) == "lost"
    lost = again.lost(first.sequence)
    assert lost is not None
    assert lost.id == first.id
    assert again.place_of(first.sequence) == (first.id, first.queue)
    opened, *copies = again.inherited()
    assert isinstance(opened, Snapshot)
    assert (opened.bad, opened.lost) == (((third.sequence, Outcome.DEAD),), ((1, 7),))
    assert [(one.message.id, one.message.content, one.ended) for one in copies if isinstance(one, Carried)] == [
        (one.id, b"", ((1, Outcome.DELIVERED),)) for one in (first, second)
    ]
