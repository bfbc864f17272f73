"""One look at a log that a broker goes on writing: what may be read, and how it is shared out."""

from pathlib import Path

import pytest

from syncbrok.log.format.codec import encode_batch
from syncbrok.log.journal import FileJournal
from syncbrok.log.segments import segment, watermark
from syncbrok.model.errors import BadSetting, LogCorrupt
from syncbrok.model.facts import Carried
from syncbrok.pipeline import log_snapshot, schema
from syncbrok.pipeline.decode import plan as decode_plan
from syncbrok.pipeline.decode import row_reader
from syncbrok.pipeline.decode.query import Query
from syncbrok.pipeline.log_place import LogDirectory
from syncbrok.pipeline.log_snapshot import SegmentSlice, share_out, slices, take_snapshot
from tests.support.log.journals import message, open_journal, publish, roll
from tests.support.log.segment_files import flip, offsets

MESSAGES = Query("messages", schema.columns_of("messages", "sequence,carried,time"))


def read(directory: Path, query: Query = MESSAGES) -> list[int]:
    """The sequences of the messages that may be read."""
    log = take_snapshot(directory)
    parts, rule = decode_plan.plan(log, query)
    return [row["sequence"] for one in parts for row in _rows(one, log.uuid, query, rule)]


def _rows(one: SegmentSlice, uuid: bytes, query: Query, rule: decode_plan.CarriedRule) -> list[dict[str, int]]:
    return [row for batch in row_reader.read(one, uuid, query, rule) for row in batch.to_pylist()]


@pytest.fixture
def journal(tmp_path: Path) -> FileJournal:
    opened = open_journal(tmp_path)
    yield opened
    opened.close()


def active(directory: Path) -> Path:
    return segment.segment_path(directory, segment.segment_bases(directory)[-1])


def test_a_running_brokers_log_is_read_up_to_what_is_on_the_disk(tmp_path: Path, journal: FileJournal) -> None:
    """What a later record or the watermark vouches for is read at once; the last batch only then. Zeros behind the last
    record are its room. After a clean stop all is read."""
    publish(journal, 3)
    assert read(tmp_path) == []
    publish(journal, 2)
    assert read(tmp_path) == [2, 3, 4]
    publish(journal)
    assert read(tmp_path) == [2, 3, 4, 5, 6]
    roll(journal)
    publish(journal)
    publish(journal)
    assert read(tmp_path) == [2, 3, 4, 5, 6, 7, 10]
    journal.close()
    assert read(tmp_path) == [2, 3, 4, 5, 6, 7, 10, 11]


def test_a_second_look_opens_only_what_is_new(tmp_path: Path, journal: FileJournal) -> None:
    """A look that knows an earlier one says the same as one that does not."""
    before = take_snapshot(tmp_path)
    for _ in range(3):
        publish(journal, 5)
        publish(journal, 1)
        now = take_snapshot(tmp_path, before)
        assert now == take_snapshot(tmp_path)
        assert now.durable > before.durable
        roll(journal)
        before = now


def test_half_a_unit_is_not_read(tmp_path: Path, journal: FileJournal) -> None:
    """A unit is read whole or not at all, whatever says that its beginning was on the disk."""
    publish(journal, 1)
    first = journal.next_sequence
    unit = [message(journal.id_key, sequence) for sequence in range(first, first + 4)]
    data = encode_batch(unit, batch=99, synced_through=first + 1, unit_ends={3})
    with active(tmp_path).open("r+b") as file:
        file.seek(take_snapshot(tmp_path).segments[-1].end)
        end = max(place.offset + place.what.header.record_bytes for place in _places(tmp_path))
        file.seek(end)
        file.write(data.data)
    assert read(tmp_path) == [2]


def _places(directory: Path) -> list[segment.FilePlace]:
    return [one for one in segment.read_records(active(directory)) if isinstance(one.what, segment.Decoded)]


def test_a_torn_tail_is_not_read(tmp_path: Path, journal: FileJournal) -> None:
    """What a crash cut short stands above the watermark, and nothing behind it says that it was whole: the rest is
    read."""
    publish(journal, 2)
    publish(journal, 2)
    (*_, last) = _places(tmp_path)
    flip(active(tmp_path), last.offset + 100)
    assert read(tmp_path) == [2, 3]
    with active(tmp_path).open("r+b") as file:
        file.truncate(last.offset + 20)
    assert read(tmp_path) == [2, 3]


def test_damage_that_a_later_record_vouches_for_is_an_error(tmp_path: Path, journal: FileJournal) -> None:
    """A damaged record of the live segment that was whole when a later one was written is corruption, as it is for
    recovery, not the end of the log."""
    publish(journal, 2)
    publish(journal, 1)
    publish(journal, 1)
    publish(journal, 1)
    where = offsets(active(tmp_path))
    flip(active(tmp_path), where[4] + 100)
    with pytest.raises(LogCorrupt, match=f"offset {where[4]}, from sequence 4 on: a record is damaged that was whole"):
        read(tmp_path)


def test_damage_below_the_watermark_is_an_error(tmp_path: Path, journal: FileJournal) -> None:
    """The watermark vouches for what stands before it, and for the file's length."""
    publish(journal, 3)
    journal.close()
    where = offsets(active(tmp_path))
    flip(active(tmp_path), where[3] + 100)
    with pytest.raises(LogCorrupt, match=f"offset {where[3]}, sequences 3 to 4: a record is damaged"):
        read(tmp_path)
    with active(tmp_path).open("r+b") as file:
        file.truncate(where[3])
    with pytest.raises(LogCorrupt, match=f"offset {where[3]}, .*the file ends before records that were on the disk"):
        read(tmp_path)


def test_missing_segments_are_an_error(tmp_path: Path, journal: FileJournal) -> None:
    """A gap between segments, and segments missing at either end, are named."""
    for _ in range(4):
        publish(journal, 2)
        roll(journal)
    journal.close()
    first, second, third, *_, last = sorted(tmp_path.glob("*.log"))
    for gone, why in ((second, "sequences 5 to 8: segments before this one"), (last, "segments after this one")):
        gone.rename(gone.with_suffix(".away"))
        with pytest.raises(LogCorrupt, match=why):
            read(tmp_path)
        gone.with_suffix(".away").rename(gone)
    third.write_bytes(third.read_bytes()[:-10])
    with pytest.raises(LogCorrupt, match="has no seal"):
        read(tmp_path)
    assert first.exists()


def test_what_is_no_log_is_said_so(tmp_path: Path) -> None:
    """A wrong path is answered with what to give."""
    with pytest.raises(BadSetting, match="is no directory; give the broker's storage directory"):
        log_snapshot.directory_of(str(tmp_path / "nowhere"))
    with pytest.raises(BadSetting, match="holds no log"):
        take_snapshot(tmp_path)
    assert log_snapshot.directory_of(f"file://{tmp_path}") == tmp_path


def test_only_segments_are_segments(tmp_path: Path, journal: FileJournal) -> None:
    """The next segment's blank file, a saved torn tail, a dropped segment and unfinished files are passed over."""
    publish(journal)
    journal.close()
    for name in ("next.tmp", "00000000000000000001.log.300.broken", "00000000000000000099.log.dropped", "1.log"):
        (tmp_path / name).write_bytes(bytes(500))
    assert read(tmp_path) == [2]


def test_what_retention_carried_along_is_read_once(tmp_path: Path, journal: FileJournal) -> None:
    """A carried message is a row, with its own sequence and time, where its own record is gone: not before that, and
    once, however often it was carried."""
    (kept, *_) = publish(journal, 3)
    roll(journal)
    _carry(journal, kept)
    assert read(tmp_path) == [2, 3, 4]
    _carry(journal, kept)
    journal.trim_oldest()
    publish(journal)
    assert read(tmp_path) == [2]
    roll(journal)
    _carry(journal, kept)
    publish(journal)
    assert read(tmp_path) == [9, 2]
    journal.trim_oldest()
    publish(journal)
    log = take_snapshot(tmp_path)
    parts, rule = decode_plan.plan(log, MESSAGES)
    first, *_ = [row for one in parts for row in _rows(one, log.uuid, MESSAGES, rule)]
    assert (first["sequence"], first["carried"]) == (2, True)
    assert first["time"].timestamp() == kept.time_us / 1e6
    old = MESSAGES._replace(until_us=kept.time_us + 1)
    assert read(tmp_path, old) == [2], "its time is of another part of the log"


def _carry(journal: FileJournal, kept: object) -> None:
    fact = Carried(journal.next_sequence, kept.time_us + journal.next_sequence, kept, (), ())
    journal.append(journal.prepare([fact]))


def test_a_look_while_retention_drops_is_begun_again(tmp_path: Path, journal: FileJournal) -> None:
    """Segments below the watermark's oldest are no part of the log, though their files may still be there."""
    publish(journal)
    roll(journal)
    publish(journal)
    oldest = min(tmp_path.glob("*.log"))
    copy = oldest.read_bytes()
    journal.trim_oldest()
    oldest.write_bytes(copy)
    publish(journal)
    assert take_snapshot(tmp_path).oldest == watermark.read(tmp_path).oldest > 1
    assert read(tmp_path) == [5]


# -- sharing out -------------------------------------------------------------------------------------------------------


def _parts(*sizes: int) -> list[SegmentSlice]:
    found, base, place = [], 1, LogDirectory("log")
    for size in sizes:
        one = log_snapshot.SegmentSnapshot(f"{base}.log", base, base + size // 100 - 1, size, True, 0, 0, 0, 0, place)
        found.append(SegmentSlice(one, one.base, one.last))
        base = one.last + 1
    return found


@pytest.mark.parametrize(
    ("sizes", "target", "least", "expected"),
    [
        ((64,) * 36, 256, 2, 8),
        ((64, 64), 256, 2, 2),
        ((64,), 256, 4, 4),
        ((20,), 256, 8, 1),
        ((), 256, 2, 0),
        ((1_000,), 256, 2, 4),
        ((64,) * 36, 512, 2, 4),
        ((64,) * 36, 512, 4, 4),
        ((64,) * 36, 256, 4, 8),
        ((64,) * 3, 1, 1, None),
    ],
)
def test_partitions_are_even_and_enough(sizes: tuple[int, ...], target: int, least: int, expected: int | None) -> None:
    """About as large as asked for, of whole segments where that is even enough; at least as many as asked for where
    there is enough to read, and of more a multiple of that; every record in exactly one, in order."""
    mib = 1 << 20
    parts = _parts(*[size * mib for size in sizes])
    packed = share_out(parts, target * mib, least)
    covered = [sequence for part in packed for one in part for sequence in (one.first, one.last)]
    assert covered == sorted(covered)
    assert sum(one.last - one.first + 1 for part in packed for one in part) == sum(
        one.last - one.first + 1 for one in parts
    )
    total = sum(sizes)
    if total >= least * 16:
        assert len(packed) >= least
    share = total * mib / max(1, len(packed))
    assert all(sum(one.bytes for one in part) < 1.6 * share + 256 * 100 for part in packed)
    if expected is not None:
        assert len(packed) == expected


def test_slices_are_what_is_asked_for(tmp_path: Path, journal: FileJournal) -> None:
    """A range of sequences over several segments."""
    for _ in range(3):
        publish(journal, 4)
        roll(journal)
    log = take_snapshot(tmp_path)
    found = [(one.first, one.last) for one in slices(log, 3, 9)]
    assert found[0][0] == 3
    assert found[-1][1] == 9
    assert slices(log, log.durable + 1) == []
