"""The journal keeps what it has acknowledged, and says of it what it must.

Broken by hand to see these fail: ``synced_through`` one too high; the watermark saved at every write, or never; a
sidecar trusted whose checksum does not fit; a segment in use before it is known where it is durable.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncbrok.log.format import codec
from syncbrok.log.format.codec import Decoded
from syncbrok.log.format.records import SegmentOpened
from syncbrok.log.journal import FileJournal
from syncbrok.log.segments import segment, watermark
from syncbrok.log.segments.segment import SEGMENT_HEADER_BYTES, ActiveSegment
from syncbrok.model import limits
from syncbrok.model.errors import LogFailed, LogLocked
from syncbrok.model.facts import Outcome, StoredMessage, SubscriberSet
from syncbrok.model.journal import JournalOptions
from syncbrok.model.limits import KIB
from syncbrok.model.message import SubscriberSettings
from syncbrok.model.names import SubscriberId, make_message_id
from tests.support.log.journals import (
    START_US,
    Clock,
    append_snapshot,
    ended,
    everything,
    message,
    open_journal,
    opened,
    publish,
    records,
    roll,
)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[FileJournal]:
    opened = open_journal(tmp_path / "log")
    yield opened
    opened.close()


def headers(path: Path) -> list[codec.Header]:
    return [place.what.header for place in segment.read_records(path) if isinstance(place.what, Decoded)]


# -- writing -----------------------------------------------------------------------------------------------------------


def test_what_was_written_is_there_after_a_restart(tmp_path: Path) -> None:
    """DESIGN section 1: accepted is written and fsynced; it is read back with its content, and replayed without."""
    journal = open_journal(tmp_path)
    messages = publish(journal, 3) + publish(journal, 1, content=b"x" * 5_000)
    outcomes = ended(journal, [3])
    assert journal.durable_sequence == outcomes.sequence == 6
    assert repr(journal) == "<FileJournal open segments=1 next=7>"
    key, uuid = journal.id_key, journal.uuid
    journal.close()
    again = open_journal(tmp_path)
    assert (again.id_key, again.uuid, again.next_sequence) == (key, uuid, 7)
    assert again.recovery.clean
    assert again.read_many([5, 2, 1, 4, 3]) == [messages[3], messages[0], None, messages[2], messages[1]]
    bare = [one._replace(content=b"") for one in messages]
    assert list(again.facts(1)) == [*bare, outcomes]
    assert [row for _, row in again.rows_of(3)] == list(outcomes.rows)
    again.close()


def test_a_batch_says_what_was_synced_before_it(journal: FileJournal) -> None:
    """DESIGN section 4: each record names its write, and how far the log was on the disk then; the last one of each
    unit is marked."""
    publish(journal, 3, unit_ends={1, 2})
    publish(journal, 2, unit_ends={1})
    seen = headers(journal.sections()[0].path)[1:6]
    assert [one.synced_through for one in seen] == [1, 1, 1, 4, 4]
    assert [one.ends_unit for one in seen] == [False, True, True, False, True]
    assert seen[0].batch == seen[2].batch < seen[3].batch == seen[4].batch


def test_with_an_interval_durable_is_what_was_synced(tmp_path: Path) -> None:
    """RULES 1: under ``interval`` a write does not make durable; ``sync`` does, and batches say so."""
    journal = open_journal(tmp_path, sync="interval", interval_ms=100)
    publish(journal, 2)
    publish(journal, 2)
    assert (journal.durable_sequence, journal.next_sequence) == (1, 6)
    journal.sync()
    assert journal.durable_sequence == 5
    publish(journal)
    assert journal.durable_sequence == 5
    assert [one.synced_through for one in headers(journal.sections()[0].path)] == [0, 1, 1, 1, 1, 5]
    roll(journal)
    assert journal.durable_sequence == 8
    publish(journal)
    journal.close()
    assert len(everything(tmp_path)) == 9


def test_batches_are_written_in_order_and_by_one_thread(journal: FileJournal) -> None:
    """A second writer, or a batch out of turn, is a programmer's error and raises at once."""
    first = journal.prepare([message(journal.id_key, 2)])
    second = journal.prepare([message(journal.id_key, 3)])
    with pytest.raises(AssertionError):
        journal.append(second)
    journal.append(first)
    journal.append(second)
    with pytest.raises(AssertionError):
        journal.append(second)
    with journal._writing, pytest.raises(RuntimeError, match="one writer"):
        publish(journal)
    publish(journal)


def test_a_unit_does_not_reach_over_batches(journal: FileJournal) -> None:
    """RULES 5: the last record of a batch ends a unit."""
    with pytest.raises(AssertionError):
        publish(journal, 3, unit_ends={0})


def test_the_watermark_moves_once_a_second(tmp_path: Path) -> None:
    """DESIGN section 4: it follows the log by about a second, at each roll, and wholly when the log is closed; a quiet
    log is caught up with by ``sync``."""
    clock = Clock()
    journal = open_journal(tmp_path, clock)

    def durable() -> int:
        mark = watermark.read(tmp_path)
        assert mark is not None
        return mark.durable

    publish(journal)
    assert durable() == 1
    clock.now_us += 1_000_000
    publish(journal)
    assert durable() == 3
    publish(journal)
    clock.now_us += 1_000_000
    journal.sync()
    assert durable() == 4
    written = (tmp_path / watermark.NAME).read_bytes()
    clock.now_us += 1_000_000
    journal.sync()
    assert (tmp_path / watermark.NAME).read_bytes() == written  # nothing new: the disk may rest
    publish(journal)
    roll(journal)
    assert durable() == 7
    publish(journal)
    journal.close()
    mark = watermark.read(tmp_path)
    assert mark is not None
    assert (mark.durable, mark.clean, mark.base) == (8, True, 7)


class Interrupted(FileJournal):
    """Another thread saves the watermark, as retention does, at each moment at which a segment ends or begins."""

    @property
    def _active(self) -> ActiveSegment | None:
        return self.__dict__.get("active")

    @_active.setter
    def _active(self, active: ActiveSegment | None) -> None:
        self._interrupt()
        self.__dict__["active"] = active
        self._interrupt()

    @property
    def durable_sequence(self) -> int:
        return self.__dict__["durable"]  # type: ignore[no-any-return]

    @durable_sequence.setter
    def durable_sequence(self, sequence: int) -> None:
        self._interrupt()
        self.__dict__["durable"] = sequence
        self._interrupt()

    def _interrupt(self) -> None:
        if "_preallocated" not in self.__dict__ or self._changing.locked():
            return  # it is being opened, or the other thread has to wait
        self._mark(clean=False)
        mark = watermark.read(self._directory)
        if mark is not None:
            of_its = headers(segment.segment_path(self._directory, mark.base))
            vouched = [one.record_bytes for one in of_its if one.sequence <= mark.durable]
            assert len(vouched) == mark.durable - mark.base + 1
            assert mark.offset == SEGMENT_HEADER_BYTES + sum(vouched)


def test_a_watermark_saved_meanwhile_fits_the_log(tmp_path: Path) -> None:
    """Log format, watermark: the record after ``durable`` goes to ``offset``, whoever saves it; retention does so
    beside the writer."""
    journal = opened(Interrupted, tmp_path)
    append_snapshot(journal)
    for _ in range(3):
        publish(journal, 5)
        roll(journal)
        publish(journal)
    journal.close()


@pytest.mark.parametrize("sync", ["always", "interval"])
def test_what_an_older_version_would_misread_is_vouched_for_at_once(tmp_path: Path, sync: str) -> None:
    """INTERFACES, log format: an older version may take a record of version 2 above the watermark for a write that was
    cut short, and cut it off with all behind it. So the watermark moves over the first one of each segment as soon as
    that is durable; for others it need not."""
    journal = open_journal(tmp_path, Clock(), sync=sync)

    def uncounted() -> int:
        sequence = journal.next_sequence
        settings = SubscriberSettings("http://127.0.0.1:1/", counts=False)
        name = SubscriberId(f"s{sequence}")
        fact = SubscriberSet(sequence, START_US + sequence, sequence, 1, name, sequence, settings)
        journal.append(journal.prepare((fact,)))
        if sync == "interval":
            journal.sync()
        return sequence

    def vouched() -> int:
        mark = watermark.read(tmp_path)
        assert mark is not None
        return mark.durable

    for _ in range(2):
        publish(journal, 2)
        before = vouched()
        assert before < journal.next_sequence - 1, "the clock stands still"
        misread = uncounted()
        assert vouched() == misread
        uncounted()
        assert vouched() == misread, "the older version refuses the log by then"
        roll(journal)
    journal.close()
    versions = [header.version for path in sorted(tmp_path.glob("*.log")) for header in headers(path)]
    assert versions.count(2) == 4


def test_the_lock_names_who_holds_it(tmp_path: Path, journal: FileJournal) -> None:
    """One broker to a log: a second is told the process that has it."""
    publish(journal)
    with pytest.raises(LogLocked, match=f"process {os.getpid()}"):
        open_journal(tmp_path / "log")
    journal.close()
    open_journal(tmp_path / "log").close()


# -- rolling -----------------------------------------------------------------------------------------------------------


def test_segments_follow_each_other(tmp_path: Path) -> None:
    """A full segment is sealed, its room given back, and the next begins with a snapshot; all are read as one log."""
    journal = open_journal(tmp_path, segment_bytes=8 * KIB)
    written: list[StoredMessage] = []
    while len(journal.sections()) < 4:
        written += publish(journal, 7, content=b"c" * 100)
        if journal.wants_snapshot:
            roll(journal)
    facts = records(journal)
    assert [fact.sequence for fact in facts] == list(range(1, journal.next_sequence))
    for info in journal.sections()[:-1]:
        assert info.sealed
        assert info.path.stat().st_size == info.bytes
        assert segment.scrub_bytes(segment.read_segment(info.path)) is None
        first = next(fact for fact in facts if fact.sequence == info.base)
        assert (type(first), first.time_us) == (SegmentOpened, info.first_time_us)
        assert info.records == info.last - info.base + 1
    assert journal.read_many([one.sequence for one in written]) == written
    for after in (0, 1, 5, journal.sections()[1].last, journal.next_sequence - 2, journal.next_sequence):
        assert [fact.sequence for fact in records(journal, after)] == list(range(after + 1, journal.next_sequence))
    infos = journal.sections()
    journal.close()
    assert {path.suffix for path in tmp_path.iterdir()} == {".log", ".idx", ""}
    again = open_journal(tmp_path)
    assert again.sections() == infos
    assert again.read_many([one.sequence for one in written]) == written
    again.close()


def test_a_batch_may_be_larger_than_a_segment(journal: FileJournal) -> None:
    """The size of a segment is when to roll, not a limit of what is accepted."""
    written = publish(journal, 3, content=bytes(range(256)) * 400)
    assert journal.wants_snapshot
    roll(journal)
    assert not journal.wants_snapshot
    assert journal.read_many([2, 3, 4]) == written


def test_a_snapshot_as_large_as_a_segment_does_not_roll_for_ever(tmp_path: Path) -> None:
    """DESIGN 1, bounded: what every segment begins with may grow with history (messages that ended badly, queues). As
    much again is written behind it before the next segment begins."""
    journal = open_journal(tmp_path, segment_bytes=limits.segment_bytes_min)
    bad = tuple((sequence, Outcome.DEAD) for sequence in range(1, limits.segment_bytes_min // 8))
    append_snapshot(journal, bad=bad)
    assert journal.sections()[-1].bytes > limits.segment_bytes_min
    assert not journal.wants_snapshot
    journal.close()
    journal = opened(FileJournal, tmp_path, segment_bytes=limits.segment_bytes_min)
    assert not journal.wants_snapshot, "found again it is as it was made"
    while not journal.wants_snapshot:
        publish(journal, 100)
    assert journal.sections()[-1].bytes > 2 * limits.segment_bytes_min
    journal.close()


def test_a_lost_sidecar_is_built_again(tmp_path: Path) -> None:
    """Sidecars are never trusted over the log, and their loss costs time only."""
    journal = open_journal(tmp_path)
    written = publish(journal, 600, key="k")
    roll(journal)
    journal.close()
    sidecar = segment.segment_path(tmp_path, 1).with_suffix(".idx")
    whole = sidecar.read_bytes()
    for damaged in (None, b"", whole[:-1], whole[:300] + b"?" + whole[301:]):
        sidecar.unlink()
        if damaged is not None:
            sidecar.write_bytes(damaged)
        again = open_journal(tmp_path)
        assert again.queue_sequences(1, 0, 10_000) == [one.sequence for one in written]
        again.close()
        assert sidecar.read_bytes() == whole


# -- checkpoints -------------------------------------------------------------------------------------------------------


def test_a_checkpoint_belongs_to_its_record(tmp_path: Path) -> None:
    """A checkpoint is valid only with the record it names: not for a log that went another way."""
    journal = open_journal(tmp_path / "log", sync="interval")
    assert journal.load_checkpoint() is None
    publish(journal, 2)
    journal.save_checkpoint(3, {"state": b"too early: not durable"})
    assert journal.load_checkpoint() is None
    journal.sync()
    journal.save_checkpoint(3, {"state": b"abc", "more": b""})
    assert journal.load_checkpoint() == (3, {"state": b"abc", "more": b""})
    roll(journal)
    journal.close()
    journal = open_journal(tmp_path / "log")
    assert journal.load_checkpoint() == (3, {"state": b"abc", "more": b""})
    journal.close()
    shutil.copy(tmp_path / "log" / "checkpoint", tmp_path)
    other = open_journal(tmp_path / "other")
    publish(other, 2)
    shutil.copy(tmp_path / "checkpoint", tmp_path / "other")
    assert other.load_checkpoint() is None
    other.close()


def test_ids_are_those_of_the_log(journal: FileJournal) -> None:
    """The id key is the log's for ever, so that an id is known to be one of its own (RULES 2)."""
    (one,) = publish(journal)
    assert one.id == make_message_id(START_US // 1_000, one.sequence, journal.id_key)
    facts = records(journal)
    assert [type(fact) for fact in facts] == [SegmentOpened, StoredMessage]
    assert JournalOptions().sync == "always"
    assert issubclass(LogFailed, Exception)
