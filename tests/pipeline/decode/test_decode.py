"""What is decoded for thousands of records at once is what decoding each by itself says."""

import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from syncbrok.log.format.codec import gather
from syncbrok.log.index import sidecar
from syncbrok.log.journal import FileJournal
from syncbrok.model.errors import BadSetting, Gone, LogCorrupt
from syncbrok.model.facts import Carried, Erased, Outcomes, StoredMessage
from syncbrok.pipeline import log_snapshot, schema
from syncbrok.pipeline.decode import huge_pages
from syncbrok.pipeline.decode import plan as decode_plan
from syncbrok.pipeline.decode.block_reader import record_blocks
from syncbrok.pipeline.decode.open_segment import OpenSegment
from syncbrok.pipeline.decode.query import CarriedRule, Condition, Query
from syncbrok.pipeline.decode.row_reader import read
from syncbrok.pipeline.log_snapshot import LogSnapshot, SegmentSlice
from tests.support.disk import rot
from tests.support.disk.bad_sector import unreadable
from tests.support.log.journals import opened
from tests.support.log.random_facts import random_story
from tests.support.log.segment_files import flip, offsets, write_log
from tests.support.log.story import Story
from tests.support.pipeline import expected_rows
from tests.support.pipeline.expected_rows import Rows


def query(kind: str, columns: str | None = None, **more: Any) -> Query:
    return Query(kind, schema.columns_of(kind, columns), **more)


@pytest.fixture
def story_log(tmp_path: Path, seed: int) -> LogSnapshot:
    """Three segments of random facts, whose sidecars have a checksum for every 32 records: several blocks each."""
    write_log(tmp_path / "log", random_story(random.Random(seed)), checksums_every=32)
    return log_snapshot.take_snapshot(tmp_path / "log")


def expected(log: LogSnapshot, kind: str) -> Rows:
    found = list(expected_rows.records(Path(str(log.place)), log.durable))
    return {
        "messages": expected_rows.messages,
        "deliveries": expected_rows.deliveries,
        "facts": expected_rows.facts,
    }[kind](found)


@pytest.mark.parametrize("sidecars", ["right", "none", "wrong", "backwards", "wrong sums", "of another segment"])
@pytest.mark.parametrize("kind", schema.KINDS)
def test_rows_are_what_the_records_say(story_log: LogSnapshot, kind: str, sidecars: str) -> None:
    """Every kind, extras, carried messages, any text: all columns of all three kinds are exactly what ``codec.decode``
    makes of each record, with sidecars, without, and with sidecars that lie."""
    first, second = (Path(one.path).with_suffix(".idx") for one in story_log.segments[:2])
    if sidecars == "none":
        first.unlink()
        second.unlink()
    if sidecars == "wrong":
        flip(first, 2_000)
        _lie(second, story_log)
    if sidecars == "backwards":
        _lie(first, story_log, backwards=True)
    if sidecars == "wrong sums":
        _lie(first, story_log, sums=True)
    if sidecars == "of another segment":
        second.write_bytes(first.read_bytes())
    for verify in (True, False):
        expected_rows.assert_same(expected_rows.read(story_log, query(kind, verify=verify)), expected(story_log, kind))


@pytest.mark.parametrize("kind", schema.KINDS)
def test_rows_of_a_log_in_which_messages_were_erased(tmp_path: Path, seed: int, kind: str) -> None:
    """RULES 32: a rewritten segment is read as any other; what is erased is empty there: details, headers;
    contents are null, ``erased`` says why, and the fact names the messages."""
    write_log(tmp_path / "log", random_story(random.Random(seed)))
    journal = opened(FileJournal, tmp_path / "log")
    written = [fact for fact in journal.facts() if isinstance(fact, (StoredMessage, Carried))]
    own = [fact.message.sequence if isinstance(fact, Carried) else fact.sequence for fact in written]
    rows = [row.message for fact in journal.facts() if isinstance(fact, Outcomes) for row in fact.rows]
    named = tuple(fact.id for fact in written[:3] if isinstance(fact, StoredMessage))
    journal.append(journal.prepare([Erased(journal.next_sequence, 1_800_000_000_000_000, 1, named)]))
    assert journal.erase({*own[::2], *rows[::3]}) > 1
    journal.close()
    log = log_snapshot.take_snapshot(tmp_path / "log")
    expected_rows.assert_same(expected_rows.read(log, query(kind, verify=True)), expected(log, kind))


@pytest.mark.parametrize("kind", schema.KINDS)
def test_rows_stay_what_they_were_when_the_next_segment_is_read(story_log: LogSnapshot, kind: str) -> None:
    """Segments are read into the same memory one after the other; a batch that somebody keeps is a copy, each column of
    it."""
    asked = query(kind)
    one = decode_plan.plan(story_log, asked)
    sealed = [part for part in one.parts if part.segment.sealed]
    assert len(sealed) > 1
    kept = [(batch, batch.to_pylist()) for part in sealed for batch in read(part, story_log.uuid, asked, one.rule)]
    memory = huge_pages.borrow(1)
    assert len(memory) >= max(part.segment.end for part in sealed), "nothing was borrowed: this tries nothing"
    memory[:] = bytes(len(memory))
    assert sum(batch.num_rows for batch, _ in kept) > 100
    for batch, then in kept:
        expected_rows.assert_same(batch.to_pylist(), then)


def test_a_segment_too_large_to_be_kept_in_memory_is_read_all_the_same(story_log: LogSnapshot) -> None:
    """Larger segments are mapped: bytes and records are the same, and so is the error where one is damaged."""
    one = story_log.segments[1]
    for verify in (True, False):
        read_in = OpenSegment(one, story_log.uuid, verify=verify)
        mapped = OpenSegment(one, story_log.uuid, verify=verify, read_bytes_max=0)
        assert bytes(mapped.view) == bytes(read_in.view) == Path(one.path).read_bytes()
        assert mapped.every_offset().tolist() == read_in.every_offset().tolist()
    flip(Path(one.path), 20_000)
    said = []
    for bytes_max in (0, one.end):
        with pytest.raises(LogCorrupt) as refused:
            OpenSegment(one, story_log.uuid, verify=True, read_bytes_max=bytes_max)
        said.append(str(refused.value))
    assert said[0] == said[1]


def test_what_the_disk_cannot_read_is_damage(story_log: LogSnapshot) -> None:
    """RULES 28: a page that the disk cannot read is refused in the words for one that has rotted; what nobody compares
    with a checksum is no zeros, but an error that names the file."""
    one = story_log.segments[1]
    path = Path(one.path)
    with unreadable(path, 8_192):
        with pytest.raises(LogCorrupt) as refused:
            OpenSegment(one, story_log.uuid, verify=True)
        with pytest.raises(OSError, match=path.name):
            OpenSegment(one, story_log.uuid, verify=False)
    data = path.read_bytes()
    path.write_bytes(data[:8_192] + bytes(4_096) + data[12_288:])
    with pytest.raises(LogCorrupt) as rotten:
        OpenSegment(one, story_log.uuid, verify=True)
    assert str(refused.value) == str(rotten.value)


def _lie(path: Path, log: LogSnapshot, *, sums: bool = False, backwards: bool = False) -> None:
    """A sidecar with the right checksums of itself, one of whose offsets points between two records or far back, or one
    of whose checksums of records is wrong."""
    one = next(one for one in log.segments if one.base == int(path.stem))
    sealed = sidecar.Sealed(log.uuid, one.base, one.end, one.crc)
    index = sidecar.read(path.parent, sealed)
    assert index is not None
    offsets, checksums = index.positions.offsets.copy(), index.positions.checksums.copy()
    if sums:
        checksums[2] ^= 1
    elif backwards:
        offsets[100] = 0
    else:
        offsets[40] += 4
    index._snapshot = index._snapshot._replace(positions=index.positions._replace(offsets=offsets, checksums=checksums))
    path.write_bytes(sidecar.encode(index, sealed))


@pytest.mark.parametrize("kind", schema.KINDS)
def test_a_query_reads_only_its_rows(story_log: LogSnapshot, kind: str) -> None:
    """``columns``, ``queue``, ``since``, ``until`` and conditions give exactly the rows that looking at each row would
    leave, in the columns' order, whether or not segments were passed over for it."""
    rows = expected(story_log, kind)
    times = sorted(row["time"] for row in rows)
    since, until = times[len(times) // 3], times[2 * len(times) // 3]
    first = rows[len(rows) // 2]["sequence"]
    narrow = query(
        kind,
        "queue,time,sequence",
        queues=frozenset({"queue-1", "queue-4"}),
        since_us=since,
        until_us=until,
        conditions=(Condition("sequence", ">", (first,)), Condition("sequence", "in", tuple(range(1, 1 << 21)))),
    )
    wanted = [
        {name: row[name] for name in ("queue", "time", "sequence")}
        for row in rows
        if row["queue"] in narrow.queues and since <= row["time"] < until and first < row["sequence"] < 1 << 21
    ]
    assert expected_rows.read(story_log, narrow) == wanted
    bases = frozenset(one.base for one in story_log.segments) if kind == "messages" else frozenset[int]()
    parts = decode_plan.narrowed(log_snapshot.slices(story_log), narrow, bases)
    assert expected_rows.read_parts(story_log, parts, narrow) == wanted


def test_segments_without_wanted_rows_are_not_read(story_log: LogSnapshot) -> None:
    """A time or a range of sequences that a segment cannot have spares reading it."""
    middle = story_log.segments[1]
    conditions = (Condition("sequence", ">=", (middle.base + 5,)), Condition("sequence", "<", (middle.last,)))
    (part,) = decode_plan.narrowed(log_snapshot.slices(story_log), query("facts", conditions=conditions))
    assert (part.segment.base, part.first, part.last) == (middle.base, middle.base + 5, middle.last - 1)
    within = query("messages", since_us=middle.first_time_us, until_us=middle.last_time_us)
    (part,) = decode_plan.narrowed(log_snapshot.slices(story_log), within)
    assert part.segment.base == middle.base
    nothing = query("facts", conditions=(Condition("sequence", "in", ()),))
    assert decode_plan.narrowed(log_snapshot.slices(story_log), nothing) == []


@pytest.mark.parametrize(
    ("kind", "columns"),
    [(kind, "sequence") for kind in schema.KINDS]
    + [("messages", "time,sequence"), ("facts", "sequence,time"), ("deliveries", "sequence,position,message")],
)
def test_counts_and_times_come_from_the_sidecars(story_log: LogSnapshot, kind: str, columns: str) -> None:
    """Sequences and times are read without touching a sealed segment: its bytes may be gone. The
    rows are the same, in the same order: the sink names each by its place."""
    rule = CarriedRule()
    whole = query(kind, columns)
    wanted = expected_rows.read(story_log, whole._replace(conditions=(Condition("sequence", ">", (0,)),)), rule)
    assert wanted
    for one in story_log.segments[:2]:
        data = Path(one.path).read_bytes()
        Path(one.path).write_bytes(data[:200] + bytes(len(data) - 200))
    assert expected_rows.read(story_log, whole, rule) == wanted
    halves = log_snapshot.share_out(log_snapshot.slices(story_log), 30_000, 1)
    assert len(halves) > 3
    assert [row for part in halves for row in expected_rows.read_parts(story_log, part, whole, rule)] == wanted


def test_times_of_deliveries_are_not_those_of_their_records(story_log: LogSnapshot, seed: int) -> None:
    """``since`` and ``until`` are on ``time``, when an attempt began, which may be in the segment before that of its
    record: the same rows whether the columns asked for stand in the sidecars or not."""
    rows = expected(story_log, "deliveries")
    names = ("sequence", "position", "message")
    for since_us in random.Random(seed).sample(sorted({row["time"] for row in rows}), 20):
        for bound in ("since_us", "until_us"):
            asked = query("deliveries", ",".join(names), **{bound: since_us})
            wanted = [
                {name: row[name] for name in names}
                for row in rows
                if (row["time"] >= since_us if bound == "since_us" else row["time"] < since_us)
            ]
            assert expected_rows.read(story_log, asked) == wanted


def test_queues_come_from_the_sidecars(story_log: LogSnapshot) -> None:
    """The queue of each message as the sidecar has it is the one in its record, in the order of the log, and a filter
    on queues reads only theirs."""
    found = expected_rows.records(Path(str(story_log.place)), story_log.durable)
    wanted = [
        {name: row[name] for name in ("queue", "time", "sequence")}
        for row in expected_rows.messages(found, carried=False)
    ]
    whole = query("messages", "queue,time,sequence")
    assert expected_rows.read(story_log, whole, CarriedRule()) == wanted
    some = whole._replace(queues=frozenset({"queue-2"}))
    assert expected_rows.read(story_log, some, CarriedRule()) == [row for row in wanted if row["queue"] == "queue-2"]


def test_parts_of_segments_are_whole_together(story_log: LogSnapshot) -> None:
    """A segment split over partitions loses no row and repeats none."""
    for kind in schema.KINDS:
        whole = query(kind)
        parts = log_snapshot.share_out(log_snapshot.slices(story_log), 50_000, 1)
        found = [row for part in parts for row in expected_rows.read_parts(story_log, part, whole)]
        expected_rows.assert_same(found, expected_rows.read(story_log, whole))


@pytest.mark.parametrize("columns", [None, "time,sequence", "sequence", "queue,time,sequence"])
def test_a_salvaged_segment_is_read_around_its_gaps(tmp_path: Path, columns: str | None) -> None:
    """Where sequences are missing the number of a record is not its sequence less the base; rows are the same all the
    same, whatever they are read from."""
    story = Story()
    story.snapshot()
    queue = story.queue()
    for _ in range(3):
        for _ in range(20):
            story.publish(queue)
        story.gap(story.last + 1, story.last + 17)
    story.seal()
    story.snapshot()
    write_log(tmp_path, story, checksums_every=32)
    log = log_snapshot.take_snapshot(tmp_path)
    assert log.segments[0].sealed
    for kind in ("messages", "facts") if columns != "queue,time,sequence" else ("messages",):
        asked = query(kind, columns)
        names = [column.name for column in asked.columns]
        rows = expected(log, kind)
        assert len(rows) >= 60
        assert expected_rows.read(log, asked) == [{name: row[name] for name in names} for row in rows]


def test_a_sealed_segment_comes_in_pieces(story_log: LogSnapshot) -> None:
    """Each block has as many records as the sidecar has a checksum for, each record is in one with its own header, and
    a part of the segment is read without the others. What is damaged ends the reading before its block is given."""
    one = log_snapshot.slices(story_log)[0]

    def sequences(part: SegmentSlice) -> list[list[int]]:
        found: list[list[int]] = []
        for records in record_blocks(part, story_log.uuid, verify=True):
            found.append(records.heads["sequence"].tolist())
            assert gather(records.block.view, records.places)["sequence"].tolist() == found[-1]
        return found

    whole = sequences(one)
    assert len(whole) > 3
    assert {len(some) for some in whole[:-1]} == {32}
    assert [sequence for some in whole for sequence in some] == list(range(one.first, one.last + 1))
    middle = one._replace(first=one.first + 40, last=one.first + 70)
    assert sequences(middle) == [
        list(range(one.first + 40, one.first + 64)),
        list(range(one.first + 64, one.first + 71)),
    ]
    path = Path(one.segment.path)
    hit = next(
        record for record in rot.records(path) if record.sequence >= one.first + 96 and record.kind == rot.OUTCOMES
    )
    flip(path, hit.at + 60)
    assert sum(map(len, sequences(middle))) == 31
    given = record_blocks(one, story_log.uuid, verify=True)  # the first are right, what follows is damaged
    whole_before = (hit.sequence - one.first) // 32
    assert [len(next(given)) for _ in range(whole_before)] == [32] * whole_before
    with pytest.raises(LogCorrupt, match=f"sequences {hit.sequence} to"):
        next(given)


def test_a_gap_stands_in_the_place_of_a_damaged_message(story_log: LogSnapshot) -> None:
    """RULES 28: what the broker survives does not stop a reader: the message that is hit is missing, and among the
    facts a gap names it, as salvage would leave it. Everything else is read as it was."""
    whole = {kind: expected(story_log, kind) for kind in schema.KINDS}
    path = Path(story_log.segments[0].path)
    messages = [record for record in rot.records(path) if record.kind == rot.MESSAGE]
    hit = messages[1], messages[len(messages) // 2]
    flip(path, hit[0].at + 20)
    flip(path, hit[1].end - 1)
    lost = {record.sequence for record in hit}
    for sealed in (True, False):
        expected_rows.assert_same(expected_rows.read(story_log, query("deliveries")), whole["deliveries"])
        # What was carried kept its own sequence, which chance may have made that of a message that is hit.
        left = [row for row in whole["messages"] if row["carried"] or row["sequence"] not in lost]
        expected_rows.assert_same(expected_rows.read(story_log, query("messages")), left)
        facts = {row["sequence"]: row for row in expected_rows.read(story_log, query("facts"))}
        assert {sequence for sequence, row in facts.items() if row["kind"] == "gap"} >= lost
        assert facts.keys() == {row["sequence"] for row in whole["facts"]}
        if sealed:
            path.with_suffix(".idx").unlink()


def test_a_segment_without_sidecar_comes_in_as_many_pieces(story_log: LogSnapshot) -> None:
    """Where no sidecar leads the way, and in the segment that is written to, the same records come, as many at once."""
    for one in log_snapshot.slices(story_log):
        Path(one.segment.path).with_suffix(".idx").unlink(missing_ok=True)
        found = [
            records.heads["sequence"].tolist()
            for records in record_blocks(one, story_log.uuid, verify=True, at_once=32)
        ]
        assert len(found) > 3
        assert {len(some) for some in found[:-1]} == {32}
        assert [sequence for some in found for sequence in some] == list(range(one.first, one.last + 1))


def test_damage_is_named(story_log: LogSnapshot) -> None:
    """One flipped bit of what is no message in a sealed segment, or of anything in the live one, is an error that names
    file, offset and sequences; what is not verified may be read with it, but never past a record that is not one."""
    for number, place in ((0, 3), (0, 10), (0, -1), (2, 30)):
        one = story_log.segments[number]
        path = Path(one.path)
        kept = path.read_bytes()
        able = [
            record
            for record in rot.records(path)
            if number == 2 or record.kind not in (rot.MESSAGE, rot.CARRIED, rot.SEALED)
        ]
        sequence, offset = able[place].sequence, able[place].at
        flip(path, offset + 60)
        with pytest.raises(LogCorrupt, match=rf"{path.name}, offset {offset}, sequences {sequence} to {one.last}"):
            expected_rows.read(story_log, query("messages"))
        path.write_bytes(kept)
        sidecar_path = path.with_suffix(".idx")
        index = sidecar_path.read_bytes() if number == 0 else b""
        sidecar_path.unlink(missing_ok=True)
        flip(path, offset)
        with pytest.raises(LogCorrupt, match=rf"{path.name}, offset {offset}, sequences {sequence} to {one.last}"):
            expected_rows.read(story_log, query("messages", verify=False))
        path.write_bytes(kept)
        if index:
            sidecar_path.write_bytes(index)


def test_bytes_that_nobody_verified_lead_nowhere(story_log: LogSnapshot, seed: int) -> None:
    """Without verifying, damage gives other rows or an error that names the place: nothing is read outside of its
    record, and no other error is raised."""
    chance = random.Random(seed)
    path = Path(story_log.segments[0].path)
    kept = path.read_bytes()
    one = log_snapshot.slices(story_log)[:1]
    headers = list(offsets(path).values())
    for number in range(60):
        offset = chance.choice(headers[1:-1]) + chance.choice((5, 6, 7, 8, 12, 13, 80, 81, 92, 112, 116, 118, 120, 136))
        flip(path, offset, chance.randrange(1, 256))
        with suppress(LogCorrupt):
            expected_rows.read_parts(story_log, one, query(schema.KINDS[number % 3], verify=False))
        path.write_bytes(kept)


def test_a_dropped_segment_is_read_until_it_is_unlinked(story_log: LogSnapshot) -> None:
    """Retention renames a segment first: who planned to read it finishes. Then it is gone, and the error says so."""
    wanted = expected(story_log, "messages")
    path = Path(story_log.segments[0].path)
    dropped = path.rename(path.with_name(f"{path.name}.dropped"))
    path.with_suffix(".idx").unlink()
    expected_rows.assert_same(expected_rows.read(story_log, query("messages")), wanted)
    dropped.unlink()
    with pytest.raises(Gone, match=f"{path.name}, sequences 1 to .* retention dropped"):
        expected_rows.read(story_log, query("messages"))


def test_columns_and_kinds_are_named_when_they_are_wrong() -> None:
    """A mistake in an option is answered with what there is."""
    with pytest.raises(BadSetting, match="sequences is no column of kind messages; there are sequence, time"):
        schema.columns_of("messages", "sequence, sequences")
    with pytest.raises(BadSetting, match="kind is 'message'; it must be one of messages, deliveries, facts"):
        schema.columns_of("message")
    with pytest.raises(BadSetting, match="more than once"):
        schema.columns_of("facts", "time,time")
