"""What the journal holds is found by sequence, queue, key, parent and message, from any thread, in any segment.

Broken by hand to see these fail: the end of a block taken before its records were located; records not verified;
carried messages looked for in the oldest segment only.
"""

import random
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncbrok.log.format.codec import encode_batch
from syncbrok.log.index.segment_list import Part, SegmentList
from syncbrok.log.journal import FileJournal
from syncbrok.log.reading.reader import Reader
from syncbrok.log.reading.recent import Batch, Recent
from syncbrok.log.segments import retention, segment
from syncbrok.model.facts import (
    Carried,
    FactOrRun,
    FactsLost,
    Messages,
    Outcome,
    Outcomes,
    Reason,
    Row,
    StoredMessage,
    Tried,
)
from syncbrok.model.limits import KIB, MIB
from syncbrok.model.names import make_message_id
from tests.support.log.journals import (
    START_US,
    ended,
    everything,
    killed_before,
    message,
    open_journal,
    publish,
    records,
    roll,
)
from tests.support.log.segment_files import flip, offsets


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[FileJournal]:
    opened = open_journal(tmp_path / "log")
    yield opened
    opened.close()


# -- reading -----------------------------------------------------------------------------------------------------------


def test_the_newest_messages_need_no_disk(journal: FileJournal, tmp_path: Path) -> None:
    """What was just published is delivered from memory; what is no message, or not there, is not."""
    written = publish(journal, 3)
    ended(journal, [2])
    for path in (tmp_path / "log").glob("*.log"):
        path.rename(path.with_suffix(".away"))
    assert [journal.cached(sequence) for sequence in range(6)] == [None, None, *written, None]
    assert [journal.kind_of(sequence) for sequence in (1, 2, 5)] == ["other", "message", "other"]
    for path in (tmp_path / "log").glob("*.away"):
        path.rename(path.with_suffix(".log"))
    assert journal.kind_of(0) == journal.kind_of(6) == "unknown"


def test_memory_has_what_the_log_has(journal: FileJournal) -> None:
    """Before it is written a message is nowhere; the newest batches, kept as they were, and older ones, decoded, are
    the same messages."""
    fact = message(journal.id_key, journal.next_sequence)
    batch = journal.prepare([Messages.of(fact)])
    assert journal.cached(fact.sequence) is None
    journal.append(batch)
    kept = journal.cached(fact.sequence)
    assert kept == fact
    assert kept.content is fact.content
    written = [fact, *(publish(journal, 1)[0] for _ in range(4))]
    assert [journal.cached(one.sequence) for one in written] == written
    decoded = journal.cached(fact.sequence)
    assert decoded is not None
    assert decoded.content is not fact.content
    assert journal.read_many([one.sequence for one in written]) == written


def test_memory_tells_of_many_what_it_tells_of_each(seed: int) -> None:
    """Neighbours decoded in one pass, gaps, runs, messages with times and keys, rows between them, what is forgotten
    and what is not there yet: any selection is what one look after the other finds."""
    dice = random.Random(seed)
    recent = Recent(bytes_max=6_000)
    sequence = 10
    parents = (make_message_id(1, 1, b"k" * 16),)
    for _ in range(40):
        facts: list[FactOrRun] = []
        for _ in range(dice.randrange(1, 6)):
            kind = dice.randrange(4)
            if kind == 0:
                facts.append(Outcomes(sequence, 5, (Row(3, 1, 1, Outcome.DELIVERED, Reason.NONE, 200, 5, 0, 4, 7),)))
            else:
                fact = message(b"k" * 16, sequence)
                facts.append(fact._replace(parents=parents if kind == 2 else (), due_us=9 if kind == 3 else 0))
            sequence += 1
        kept = [Messages.of(fact) for fact in facts if isinstance(fact, StoredMessage) and dice.random() < 0.5]
        encoded = encode_batch(facts, batch=1, synced_through=1)
        recent.add(Batch(1, facts[0].sequence, sequence - 1, 5, encoded.data, encoded.ends, (), kept))
    everything = list(range(sequence + 3))
    for _ in range(300):
        asked = sorted(dice.sample(everything, dice.randrange(1, len(everything))))
        assert recent.messages(asked) == [recent.message(one) for one in asked]
    found = recent.messages(everything)
    assert any(one is not None for one in found)
    assert all(one is None or one.sequence == at for at, one in enumerate(found))
    together = [one for one in recent.messages(range(sequence - 60, sequence)) if one is not None and one.parents]
    assert together, "no child among them: nothing was tried"
    assert all(one.parents == parents for one in together)


def test_only_the_newest_batches_hold_on_to_messages(journal: FileJournal) -> None:
    """A message takes three times the memory of its record: of 16 MiB of records only the bytes are kept."""
    fact = Messages.of(message(journal.id_key, journal.next_sequence))
    alone = sys.getrefcount(fact)
    journal.append(journal.prepare([fact]))
    assert sys.getrefcount(fact) > alone
    publish(journal, 1)
    publish(journal, 1)
    assert sys.getrefcount(fact) == alone
    assert journal.cached(fact.sequence) == fact.at(0)


def test_any_selection_of_messages_is_read(tmp_path: Path, seed: int) -> None:
    """Neighbours, single ones, over blocks and segments, small and large contents: each is its own."""
    dice = random.Random(seed)
    journal = open_journal(tmp_path, segment_bytes=2 * MIB)
    expected: dict[int, StoredMessage | None] = {}
    for _ in range(40):
        size = dice.choice((0, 10, 300, 20_000))
        for one in publish(journal, dice.randrange(1, 60), content=dice.randbytes(size)):
            expected[one.sequence] = one
        if journal.wants_snapshot:
            roll(journal)
        if dice.random() < 0.3:
            ended(journal, [2])
    asked = [*range(journal.next_sequence + 3)]
    assert journal.read_many(asked) == [expected.get(sequence) for sequence in asked]
    for _ in range(100):
        some = dice.choices(asked, k=dice.randrange(1, 9))
        assert journal.read_many(some) == [expected.get(sequence) for sequence in some]
        assert [journal._reader.kind_of(one) for one in some] == [
            "message" if one in expected else "other" if 0 < one < journal.next_sequence else "unknown" for one in some
        ]
    journal.close()


def test_a_read_with_a_bound_ends_early(tmp_path: Path) -> None:
    """DESIGN 1, bounded: what is asked for beyond the bound is left out, at the end, and a few large messages are no
    reason to read hundreds of them."""
    journal = open_journal(tmp_path)
    written = publish(journal, 700, content=bytes(100))
    sequences = [one.sequence for one in written]
    assert journal.read_many(sequences, 70_000) == written
    assert journal.read_many(sequences, 50_000) == written[:500]
    assert journal.read_many([], 1) == []
    large = [one.sequence for one in publish(journal, 40, content=bytes(100_000))]
    assert 3 <= len(journal.read_many(large, 300_000)) <= 8
    assert 30 <= len(journal.read_many(large, 3_000_000)) <= 32
    journal.close()


def test_readers_do_not_disturb_the_writer(tmp_path: Path) -> None:
    """Any thread reads while one writes and rolls; what was durable when the reading began is found."""
    journal = open_journal(tmp_path, segment_bytes=64 * KIB)
    stop = threading.Event()
    problems: list[BaseException] = []

    def read() -> None:
        dice = random.Random(1)
        try:
            while not stop.is_set():
                last = journal.durable_sequence
                some = sorted(dice.randrange(1, last + 1) for _ in range(20))
                for sequence, found in zip(some, journal.read_many(some), strict=True):
                    assert found is None or found.content.startswith(b"message %d" % sequence)
                    assert (found is None) == (journal.kind_of(sequence) == "other")
                queued = journal.queue_sequences(1, last // 2, 50)
                assert queued == sorted(set(queued))
                assert len(records(journal, max(0, last - 30))) >= min(last, 30)
        except BaseException as problem:  # noqa: BLE001
            problems.append(problem)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for _ in range(150):
        publish(journal, 20)
        if journal.wants_snapshot:
            roll(journal)
    stop.set()
    for reader in readers:
        reader.join()
    journal.close()
    assert not problems, problems
    assert len(segment.segment_bases(tmp_path)) > 3


def test_bit_rot_in_a_message_is_not_delivered(tmp_path: Path) -> None:
    """Every record read is verified: a rotten one is named, not handed out."""
    journal = open_journal(tmp_path)
    publish(journal, 3)
    roll(journal)
    path = journal.sections()[0].path
    data = bytearray(path.read_bytes())
    at = data.index(b"message 3")
    data[at] ^= 1
    path.write_bytes(data)
    assert journal.read_many([2, 4])[0] is not None
    assert [found is None for found in journal.read_many([2, 3, 4])] == [False, True, False]
    assert "sequences 3 to 3" in journal.damaged[path.name]
    replayed = {fact.sequence: fact for fact in journal.facts()}
    assert isinstance(replayed[3], FactsLost)
    assert {2, 4} <= replayed.keys()
    journal.close()
    path.with_suffix(".idx").unlink()
    journal = open_journal(tmp_path)
    assert journal.queue_sequences(1, 0, 10) == [2, 3, 4]
    assert not path.with_suffix(".idx").exists(), "no sidecar is made of bytes that the seal does not fit"
    journal.close()


@pytest.mark.parametrize("byte", [0, 9, 20, 40, 60, 85])
def test_a_message_whose_header_rots_is_lost_for_the_first_who_asks_too(tmp_path: Path, byte: int) -> None:
    """RULES 28: what one byte of a header was is known from the others, so a lost message can be told of; it is lost
    all the same, whoever asks first and so has the segment examined."""
    journal = open_journal(tmp_path)
    publish(journal, 3)
    roll(journal)
    path = journal.sections()[0].path
    flip(path, offsets(path)[3] + byte)
    assert [journal.read_many([3]) for _ in range(2)] == [[None], [None]]
    assert [found is None for found in journal.read_many([2, 4])] == [False, False]
    journal.close()


def test_questions_are_answered_over_all_segments(tmp_path: Path) -> None:
    """Children, rows, queues and keys are found wherever they stand, newest or lowest first as promised."""
    journal = open_journal(tmp_path)
    (parent,) = publish(journal, 1, key="k")
    roll(journal)
    children = publish(journal, 3, parents=(parent.id,), queue=2, key="k")
    roll(journal)
    (last,) = publish(journal, 1, parents=(parent.id,), queue=2, key="other", idempotency_key="once")
    ended(journal, [parent.sequence])
    ended(journal, [parent.sequence, last.sequence])
    of_children = [one.sequence for one in children]
    for _ in range(2):
        assert journal.children_of(parent.sequence, 10) == [*of_children, last.sequence]
        assert journal.children_of(parent.sequence, 2) == of_children[:2]
        assert journal.queue_sequences(2, 0, 10) == [*of_children, last.sequence]
        assert journal.queue_sequences(2, of_children[0], 2) == of_children[1:]
        assert journal.with_key("k", None, 10) == [*reversed(of_children), parent.sequence]
        assert journal.with_key("k", 1, 10) == [parent.sequence]
        assert journal.with_key("k", None, 2) == [*reversed(of_children)][:2]
        assert journal.with_key("k", None, 2, of_children[1]) == [of_children[0], parent.sequence]
        assert journal.with_key("k", None, 2, parent.sequence) == []
        assert journal.with_idempotency_key("once", 2, last.time_us) == [last.sequence]
        assert journal.with_idempotency_key("once", 2, last.time_us + 1) == []
        assert journal.with_idempotency_key("once", 1, 0) == journal.with_idempotency_key("never", 2, 0) == []
        assert [record for record, _ in journal.rows_of(parent.sequence)] == [last.sequence + 1, last.sequence + 2]
        journal.close()
        journal = open_journal(tmp_path)
    journal.close()


# -- retention ---------------------------------------------------------------------------------------------------------


def carry(journal: FileJournal, one: StoredMessage) -> Carried:
    fact = Carried(
        journal.next_sequence, START_US + journal.next_sequence, one, ((1, Outcome.DELIVERED),), (Tried(2, 1, 5),)
    )
    journal.append(journal.prepare([fact]))
    return fact


def test_carried_messages_outlive_their_segment(tmp_path: Path) -> None:
    """DESIGN section 4: a message carried out of a dropped segment is found by its own sequence; others are gone."""
    journal = open_journal(tmp_path)
    kept, gone = publish(journal, 2, content=b"content", key="k")
    roll(journal)
    roll(journal)
    carried = carry(journal, kept)
    (after,) = publish(journal)
    journal.trim_oldest()
    for _ in range(2):
        assert journal.sections()[0].base == 5
        assert journal.sections()[1].base < carried.sequence
        assert journal.read_many([2, 3, carried.sequence, after.sequence]) == [kept, None, None, after]
        assert [journal.kind_of(one) for one in (1, 2, 3, 5)] == ["dropped", "message", "dropped", "other"]
        assert journal.queue_sequences(1, 0, 10) == [kept.sequence, after.sequence]
        assert journal.with_key("k", None, 10) == [kept.sequence]
        assert gone.sequence not in journal.queue_sequences(1, 2, 10)
        assert next(iter(journal.facts())).sequence == 5
        journal.close()
        journal = open_journal(tmp_path)
    assert list(tmp_path.glob("*1.log.dropped"))
    journal.sweep(START_US + 10**9)
    assert not list(tmp_path.glob("*.dropped"))
    journal.close()


def test_what_is_carried_is_found_after_what_is_newer(tmp_path: Path) -> None:
    """Newest first, also where the newest segment holds the oldest message, carried there out of a dropped one: a page
    that named it too early would leave out what is newer, for good."""
    journal = open_journal(tmp_path)
    (kept,) = publish(journal, key="k")
    roll(journal)
    newer = [one.sequence for one in publish(journal, 10, key="k")]
    roll(journal)
    newer += [one.sequence for one in publish(journal, 70, key="k")]
    carry(journal, kept)
    journal.trim_oldest()
    expected = [*reversed(newer), kept.sequence]
    for limit in (64, 75, 100):
        assert journal.with_key("k", None, limit) == expected[:limit]
        assert journal.with_key("k", None, limit, newer[40]) == expected[40:][:limit]
    journal.close()


def test_a_segment_that_goes_at_this_moment_is_looked_for_elsewhere(tmp_path: Path) -> None:
    """DESIGN 4: who has looked at the list of segments and finds the file gone takes a carried message from where it
    was carried to (it was a dead letter, ``content_lost``), and everything else as if the file had been gone before
    (the broker stopped)."""
    journal = open_journal(tmp_path)
    kept, gone = publish(journal, 2, content=b"content", key="k", idempotency_key="once")
    roll(journal)
    (child,) = publish(journal, parents=(gone.id,))
    carry(journal, kept)
    journal.close()
    journal = open_journal(tmp_path)  # no index is in memory
    first = journal.sections()[0].path
    first.rename(first.with_suffix(".away"))
    assert journal.read_many([2, 3, child.sequence]) == [kept, None, child]
    assert journal.place_of(3) is None
    assert journal.children_of(gone.sequence, 10) == [child.sequence]
    assert journal.queue_sequences(1, 0, 10) == [child.sequence]
    assert journal.with_key("k", None, 10) == [kept.sequence]
    assert journal.with_idempotency_key("once", 1, 0) == [kept.sequence]
    assert journal.rows_of(kept.sequence) == []
    first.with_suffix(".away").rename(first)
    journal.close()


class Dropping(SegmentList):
    """The real one, of a journal that drops its oldest segment while somebody asks for the segments behind a place."""

    def __init__(self, journal: FileJournal) -> None:
        super().__init__(journal.uuid, ())
        self.parts, self.journal, self.dropped_while_asked = journal._segment_list.parts, journal, False

    def from_segment_of(self, sequence: int) -> tuple[Part, ...]:
        parts = super().from_segment_of(sequence)
        if not self.dropped_while_asked:
            self.dropped_while_asked = True
            base = self.parts[0].info.base
            self.dropped(base)
            self.journal.trim_oldest()
        return parts


def test_history_is_whole_while_segments_go(tmp_path: Path) -> None:
    """RULES 14: what is carried out of a segment while its queue is read is told, whichever side of the drop it is
    found on."""
    journal = open_journal(tmp_path)
    kept, *_ = publish(journal, 3)
    roll(journal)
    (young,) = publish(journal)
    carry(journal, kept)
    segment_list = Dropping(journal)
    assert Reader(segment_list, lambda: journal.next_sequence).queue_sequences(1, 0, 10) == [
        kept.sequence,
        young.sequence,
    ]
    assert segment_list.dropped_while_asked
    journal.close()


def test_a_drop_is_finished_by_the_next_start(tmp_path: Path) -> None:
    """Killed before any system call of a drop, the segment is either still there or gone, and never missed."""
    log = tmp_path / "log"
    journal = open_journal(log)
    publish(journal, 2)
    roll(journal)
    publish(journal)
    journal.close()
    call, killed = 0, True
    left: set[int] = set()
    while killed:
        call += 1
        again = shutil.copytree(log, tmp_path / f"killed-{call}")

        def work(again: Path = again) -> None:
            journal = open_journal(again)
            journal.trim_oldest()
            journal.close()

        killed = killed_before(call, work)
        left.add(everything(again)[0].sequence)
        shutil.rmtree(again)
    assert left == {1, 4 + 1}


def test_an_archive_comes_before_the_drop(tmp_path: Path) -> None:
    """Where an archive is configured a segment goes only once its copy is there."""
    journal = open_journal(tmp_path / "log", archive=tmp_path / "archive")
    publish(journal)
    roll(journal)
    info = journal.sections()[0]
    whole = info.path.read_bytes()
    journal.trim_oldest()
    assert (tmp_path / "archive" / info.path.name).read_bytes() == whole
    assert [copy.name for copy in retention.copies(tmp_path / "log")] == [info.path.name]
    journal.close()
