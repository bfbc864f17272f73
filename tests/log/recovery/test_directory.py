"""What a crash leaves of a log is whole again after the next start, or the start is refused.

Broken by hand to see these fail: ``_cut`` at the end of the whole records instead of the whole units; the tail cut
before it is saved; ``_write_again`` left out; bases not compared with the seals before them.
"""

import os
import shutil
from pathlib import Path

import pytest

from syncbrok.log.format import codec
from syncbrok.log.format.records import Gap, SegmentOpened
from syncbrok.log.recovery.recovery import recover
from syncbrok.log.segments import segment, watermark
from syncbrok.log.segments.segment import SEGMENT_HEADER_BYTES, SegmentHeader, read_segment, scrub_bytes
from syncbrok.log.segments.watermark import Mark, Watermark
from syncbrok.model.errors import LogCorrupt
from syncbrok.model.facts import Fact, StoredMessage
from tests.support.log.journals import START_US, ended, everything, killed_before, message, open_journal, publish, roll

KEY = bytes(range(16))
UUID = bytes(range(16, 32))
HEADER = SegmentHeader(UUID, KEY, 1, START_US)


# -- a directory -------------------------------------------------------------------------------------------------------


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two sealed segments and one that was written to when the power went; its watermark is that of the last roll."""
    directory = tmp_path / "log"
    journal = open_journal(directory)
    for _ in range(2):
        publish(journal, 3)
        roll(journal)
    publish(journal, 2)
    publish(journal, 3, unit_ends={0, 2})
    shutil.copytree(directory, tmp_path / "crashed", ignore=shutil.ignore_patterns("*.tmp", "*.idx"))
    journal.close()
    return tmp_path / "crashed"


def contents(facts: list[Fact]) -> list[bytes]:
    return [b"message %d" % fact.sequence for fact in facts if isinstance(fact, StoredMessage)]


def last_of(log: Path) -> tuple[Path, int]:
    """The last segment and where its records end."""
    path = segment.segment_path(log, segment.segment_bases(log)[-1])
    return path, len(path.read_bytes().rstrip(b"\0"))


def test_a_log_is_whole_again_after_a_crash(log: Path) -> None:
    """Nothing acknowledged is lost by a crash, and the start says what it found."""
    recovered = recover(log)
    assert recovered.durable == 16
    assert not recovered.report.clean
    assert recovered.report.broken is None
    assert recovered.report.rewritten_bytes > 0
    facts = everything(log)
    assert [fact.sequence for fact in facts] == list(range(1, 17))
    assert everything(log) == facts


def test_a_start_tells_how_many_segments_it_has_looked_at(log: Path) -> None:
    """Port, Space.open: who waits for a start is told of each sealed segment, of how many in all."""
    told: list[tuple[int, int]] = []
    recover(log, lambda *how_far: told.append(how_far))
    assert told == [(1, 3), (2, 3)]


def test_half_a_unit_goes_with_its_other_half(log: Path) -> None:
    """RULES 5: a batch of a client is kept whole or not at all, also where it was cut on the border of two records."""
    path, _ = last_of(log)
    facts = everything(log)
    offsets, end = codec.walk(path.read_bytes(), SEGMENT_HEADER_BYTES, path.stat().st_size)
    (log / watermark.NAME).unlink()
    for cut in (int(offsets[-1]), int(offsets[-1]) + 50, end - 1):
        again = log.parent / f"cut-{cut}"
        shutil.copytree(log, again)
        os.truncate(again / path.name, cut)
        assert everything(again) == facts[:-2]
        saved = list(again.glob("*.broken"))
        assert [one.read_bytes() for one in saved] == [path.read_bytes()[int(offsets[-2]) : cut]]
        assert everything(again) == facts[:-2]


def test_the_torn_tail_is_saved_before_it_is_cut(log: Path) -> None:
    """What is cut is kept aside, and the log can be written to behind it."""
    path, end = last_of(log)
    with path.open("r+b") as file:
        file.seek(end)
        file.write(b"half a record")
    journal = open_journal(log)
    assert journal.recovery.cut_bytes == 13
    assert journal.recovery.cut_from == 17
    assert journal.recovery.broken is not None
    assert journal.recovery.broken.read_bytes() == b"half a record"
    publish(journal)
    journal.close()
    assert len(everything(log)) == 17
    with path.open("r+b") as file:
        file.seek(last_of(log)[1])
        file.write(b"another")
    (log / watermark.NAME).unlink()
    assert len(everything(log)) == 17
    assert sorted(one.read_bytes() for one in log.glob("*.broken")) == [b"another", b"half a record"]


def test_what_the_watermark_does_not_vouch_for_is_written_again(log: Path) -> None:
    """After an error of the disk the cache is not evidence; a clean start writes nothing."""
    mark = watermark.read(log)
    assert mark is not None
    _, end = last_of(log)
    report = recover(log).report
    assert report.rewritten_bytes == end - mark.offset
    journal = open_journal(log)
    journal.close()
    assert recover(log).report.clean
    assert recover(log).report.rewritten_bytes == 0


def test_a_crash_while_recovering_is_harmless(log: Path) -> None:
    """Killed before any of its system calls, recovery ends in the same log when done again."""
    path, end = last_of(log)
    facts = everything(shutil.copytree(log, log.parent / "reference"))
    with path.open("r+b") as file:
        file.seek(end)
        file.write(b"torn")
    call, killed = 0, True
    while killed:
        call += 1
        again = shutil.copytree(log, log.parent / f"killed-{call}")
        killed = killed_before(call, lambda again=again: open_journal(again).close())
        assert everything(again) == facts, f"killed before call {call}"
        assert [one.read_bytes() for one in again.glob("*.broken")] == [b"torn"]
        shutil.rmtree(again)
    assert call > 15


# -- segments ----------------------------------------------------------------------------------------------------------


def refused(log: Path, *words: str) -> LogCorrupt:
    with pytest.raises(LogCorrupt) as caught:
        recover(log)
    for word in words:
        assert word in caught.value.detail
    return caught.value


def test_missing_segments_are_noticed(log: Path) -> None:
    """A log whose first, middle or last segment is gone is refused, naming the sequences."""
    for base, said in ((1, "sequences 1 to 5"), (6, "sequences 6 to 10"), (11, "segments after this one are missing")):
        again = shutil.copytree(log, log.parent / f"without-{base}")
        segment.segment_path(again, base).unlink()
        refused(again, said)


def test_all_segments_missing_is_noticed(log: Path) -> None:
    """An empty directory with a watermark is not an empty log."""
    for path in log.glob("*.log"):
        path.unlink()
    refused(log, "no segment")


def test_swapped_and_copied_segments_are_noticed(log: Path) -> None:
    """A segment is where its header says, once."""
    first, second = segment.segment_path(log, 1), segment.segment_path(log, 6)
    swapped = shutil.copytree(log, log.parent / "swapped")
    shutil.copy(first, swapped / second.name)
    shutil.copy(second, swapped / first.name)
    refused(swapped, "by its header")
    copied = shutil.copytree(log, log.parent / "copied")
    shutil.copy(second, segment.segment_path(copied, 9))
    refused(copied, "by its header")


def test_a_segment_of_another_log_is_noticed(log: Path, tmp_path: Path) -> None:
    """Segments of two logs are never one log."""
    other = open_journal(tmp_path / "other")
    publish(other, 3)
    roll(other)
    other.close()
    shutil.copy(segment.segment_path(tmp_path / "other", 1), segment.segment_path(log, 1))
    refused(log, "another log")


def test_an_earlier_segment_without_its_seal_is_refused(log: Path) -> None:
    """A segment is sealed before the next one is made, so a missing seal is damage."""
    path = segment.segment_path(log, 6)
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole + b"\0", whole[: -segment.SEAL_BYTES]):
        path.write_bytes(damaged)
        refused(log, "no seal")


def test_what_rots_at_the_ends_of_a_segment_costs_nothing(log: Path) -> None:
    """RULES 28: a seal and a segment's own header say what its records and its neighbours say too. (Of its snapshot
    no more is asked here than that it is there.)"""
    path = segment.segment_path(log, 6)
    whole = path.read_bytes()
    before = recover(log).sealed
    for at in (*range(SEGMENT_HEADER_BYTES + codec.HEADER_BYTES), *range(len(whole) - segment.SEAL_BYTES, len(whole))):
        path.write_bytes(whole[:at] + bytes((whole[at] ^ 0x10,)) + whole[at + 1 :])
        assert recover(log).sealed == before, f"byte {at}"


def test_a_segment_of_another_log_is_refused_though_its_header_is_damaged(log: Path) -> None:
    """RULES 28: a header is put right only where one byte of it has changed, and is compared as ever then."""
    path = segment.segment_path(log, 6)
    whole = path.read_bytes()
    path.write_bytes(whole[:24] + bytes(16) + whole[40:])
    refused(log, "checksum")
    header = segment.unpack_segment_header(whole)
    assert isinstance(header, SegmentHeader)
    other = segment.pack_segment_header(header._replace(uuid=UUID))
    path.write_bytes(other[:60] + b"?" + other[61:] + whole[SEGMENT_HEADER_BYTES:])
    refused(log, "another log")


def test_a_segment_that_was_sealed_last_may_have_room_behind(log: Path) -> None:
    """A crash between the seal and giving the room back costs nothing; anything else behind a seal is refused."""
    segment.segment_path(log, 11).unlink()
    path = segment.segment_path(log, 6)
    whole = path.read_bytes()
    (log / watermark.NAME).unlink()
    mark = Watermark(log)
    mark.save(
        Mark(segment.read_segment_header(path).uuid, 9, 6, len(whole) - segment.SEAL_BYTES, START_US, 1, clean=False)
    )
    mark.close()
    path.write_bytes(whole + bytes(500))
    recovered = recover(log)
    assert recovered.active is None
    assert path.read_bytes() == whole
    path.write_bytes(whole + bytes(500) + b"x")
    refused(log, "behind the segment's seal")


def test_every_flip_in_a_sealed_segment_is_found_by_the_scrub(log: Path) -> None:
    """What start-up trusts the background reads: no byte of a sealed segment may change unnoticed."""
    path = segment.segment_path(log, 6)
    whole = path.read_bytes()
    assert scrub_bytes(read_segment(path)) is None
    for offset in range(len(whole)):
        damaged = bytearray(whole)
        damaged[offset] ^= 1 << offset % 8
        path.write_bytes(damaged)
        assert scrub_bytes(read_segment(path)) is not None, f"byte {offset}"


def test_gaps_that_salvage_names_are_no_damage(log: Path) -> None:
    """A salvaged log starts: what it lacks is named by a ``Gap``, and only that may be lacking."""
    path = segment.segment_path(log, 11)
    header = segment.read_segment_header(path)
    (log / watermark.NAME).unlink()
    opened, gap = SegmentOpened(11, START_US, (), (), (), ()), Gap(15, START_US, 12, 15, "unreadable")
    records = [codec.encode(fact) for fact in (opened, gap, message(header.id_key, 16))]
    path.write_bytes(segment.pack_segment_header(header) + b"".join(records))
    assert recover(log).durable == 16
    path.write_bytes(segment.pack_segment_header(header) + records[0] + records[2])
    recovered = recover(log)
    assert (recovered.durable, recovered.report.cut_from) == (11, 12)


# -- the watermark -----------------------------------------------------------------------------------------------------


def test_one_slot_of_the_watermark_may_be_lost(tmp_path: Path) -> None:
    """A write of the watermark that was cut short leaves the one before; both damaged are refused."""
    marks = [Mark(UUID, number, 1, 128, START_US, 1, clean=False) for number in range(1, 4)]
    saving = Watermark(tmp_path)
    for mark in marks:
        saving.save(mark)
    saving.close()
    assert watermark.read(tmp_path) == marks[2]
    path = tmp_path / watermark.NAME
    whole = path.read_bytes()
    for offset in range(watermark.SLOT_BYTES):
        slots = []
        for slot in (0, watermark.SLOT_STRIDE):
            damaged = bytearray(whole)
            damaged[slot + offset] ^= 1
            path.write_bytes(damaged)
            slots.append(watermark.read(tmp_path))
        assert sorted(slots, key=lambda mark: mark.durable if mark else 0) == marks[1:]
    path.write_bytes(bytes(len(whole)))
    with pytest.raises(LogCorrupt, match="both slots"):
        watermark.read(tmp_path)


def test_the_watermark_of_another_log_is_refused(log: Path) -> None:
    """A watermark says something about its own log only."""
    mark = watermark.read(log)
    assert mark is not None
    saving = Watermark(log)
    saving.save(mark._replace(uuid=UUID))
    saving.close()
    refused(log, "another log")


def test_the_error_names_file_offset_and_sequences(log: Path) -> None:
    """DESIGN section 4: corruption is refused naming file, offset and sequences."""
    path, end = last_of(log)
    journal = open_journal(log)
    ended(journal, [12])
    journal.close()
    data = bytearray(path.read_bytes())
    offsets, _ = codec.walk(data, SEGMENT_HEADER_BYTES, end)
    data[end - 3] ^= 1
    path.write_bytes(data)
    error = refused(log, path.name, f"offset {offsets[-1]}", "from sequence 15 on")
    assert error.members == {"file": path.name, "offset": int(offsets[-1]), "first": 15, "last": None}
