"""Salvage keeps everything that can still be read, says what it could not, and leaves the damaged log alone."""

import random
from pathlib import Path

import pytest

from syncbrok.log.format import codec
from syncbrok.log.format.codec import HEADER_BYTES
from syncbrok.log.format.records import Gap, SegmentOpened, SegmentSealed
from syncbrok.log.journal import FileJournal, FileOptions
from syncbrok.log.offline import order
from syncbrok.log.offline.salvage import SalvageReport, salvage
from syncbrok.log.offline.verify import Finding, verify
from syncbrok.log.segments import segment, watermark
from syncbrok.log.segments.segment import SEGMENT_HEADER_BYTES
from syncbrok.model.errors import Conflict, Malformed
from syncbrok.model.facts import Fact, FileApplied, StoredMessage
from syncbrok.model.journal import JournalOptions
from tests.support.log.journals import records
from tests.support.log.segment_files import UUID, facts_in, flip, offsets, write_log
from tests.support.log.story import ID_KEY, START_US, Story


def a_story(segments: int = 3, messages: int = 6) -> Story:
    """Segments of some messages and their deliveries; the last one is not sealed."""
    story = Story()
    story.snapshot()
    queue = story.queue()
    subscriber = story.subscriber(queue)
    for number in range(segments):
        if number:
            story.seal()
            story.snapshot()
        last = 0
        for _ in range(messages):
            last = story.publish(queue, *([last] if last else []))
            story.attempt(last, subscriber)
    return story


def salvaged(source: Path, target: Path) -> tuple[SalvageReport, list[Fact]]:
    """Salvage, and look at the result with every check there is: it must be a log in which nothing is wrong."""
    before = {path: path.read_bytes() for path in source.iterdir()}
    report = salvage(source, target)
    assert {path: path.read_bytes() for path in source.iterdir()} == before
    facts: list[Fact] = []
    assert [met for met in verify(target, facts.append) if isinstance(met, Finding)] == []
    # A snapshot made anew lacks subscribers whose facts are lost too: then rows name strangers, and the notes say so.
    assert report.notes or order.check(facts) == []
    return report, facts_in(target)


def kept(facts: list[Fact]) -> dict[int, Fact]:
    """By sequence; seals left out, since they count and sum up."""
    return {fact.sequence: fact for fact in facts if not isinstance(fact, SegmentSealed)}


def test_a_whole_log_is_copied(tmp_path: Path) -> None:
    """Of a log without damage every record is kept, with another uuid and the same id key; secrets come along."""
    story = a_story()
    paths = write_log(tmp_path / "old", story)
    (tmp_path / "old" / "secrets.json").write_text("{}")
    report, facts = salvaged(tmp_path / "old", tmp_path / "new")
    assert kept(facts) == kept(story.facts)
    assert (report.lost, report.lost_records, report.segments, report.last) == ([], 0, 3, story.last)
    header = segment.read_segment_header(tmp_path / "new" / paths[0].name)
    assert header.id_key == ID_KEY
    assert header.uuid != UUID
    mark = watermark.read(tmp_path / "new")
    assert mark is not None
    assert (mark.uuid, mark.durable, mark.clean) == (header.uuid, story.last, True)
    assert (tmp_path / "new" / "secrets.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("segment_number", [0, 1, 2])
@pytest.mark.parametrize("what", ["body", "header"])
def test_one_flipped_byte_costs_one_record(tmp_path: Path, segment_number: int, what: str) -> None:
    """A flipped byte in the middle of any segment: everything else is kept, the one record is named by a gap."""
    story = a_story()
    path = write_log(tmp_path / "old", story)[segment_number]
    where = offsets(path)
    sequence = sorted(where)[6]
    flip(path, where[sequence] + (HEADER_BYTES + 3 if what == "body" else 20))
    report, facts = salvaged(tmp_path / "old", tmp_path / "new")
    found = kept(facts)
    gap = found.pop(sequence)
    assert isinstance(gap, Gap)
    assert (gap.first, gap.last) == (sequence, sequence)
    assert found == {number: fact for number, fact in kept(story.facts).items() if number != sequence}
    assert [(lost.first, lost.last, lost.file, lost.offset) for lost in report.lost] == [
        (sequence, sequence, path.name, where[sequence])
    ]


def test_the_numbers_given_last_are_kept_beside_a_queue_of_their_name(tmp_path: Path) -> None:
    """INTERFACES 5: a snapshot that is lost is made anew with all that was applied, also where a file declares a queue
    under the name that the numbers given last stand under."""
    story = Story()
    numbers, file = ("#numbers", "70 90"), ("#numbers", "ab" * 16)
    opened = {"queues": (), "subscribers": (), "bad": ()}
    story.add(SegmentOpened, applied=(FileApplied(1, START_US, *numbers),), **opened)
    story.publish(story.queue("#numbers"))
    story.add(FileApplied, *file)
    story.seal()
    lost = story.snapshot()
    story.publish(1)
    path = write_log(tmp_path / "old", story)[1]
    flip(path, offsets(path)[lost] + HEADER_BYTES + 3)
    _, facts = salvaged(tmp_path / "old", tmp_path / "new")
    made = kept(facts)[lost]
    assert isinstance(made, SegmentOpened)
    assert sorted((one.entry, one.hash) for one in made.applied) == [numbers, file]


def test_any_byte_of_a_segment_may_be_wrong(tmp_path: Path, seed: int) -> None:
    """Whatever single byte is wrong, at most one record (here: or one unit of one) is lost and the rest is a log."""
    story = a_story(2, 1)
    path = write_log(tmp_path / "old", story)[0]
    good = path.read_bytes()
    whole = kept(story.facts)
    for place in range(seed % 7, len(good), 7):
        flip(path, place)
        target = tmp_path / str(place)
        report = salvage(tmp_path / "old", target)
        found = kept(facts_in(target))
        changed = [number for number, fact in whole.items() if found.get(number) != fact]
        assert len(changed) <= 1, place
        assert report.lost_records <= 1
        for number in changed:
            assert isinstance(found[number], Gap | SegmentOpened)
        path.write_bytes(good)


def test_a_missing_segment_is_named(tmp_path: Path) -> None:
    """A segment that is gone is one gap; the segments around it are kept."""
    story = a_story()
    _, middle, last = write_log(tmp_path / "old", story)
    middle.unlink()
    report, facts = salvaged(tmp_path / "old", tmp_path / "new")
    first_lost, next_base = int(middle.stem) - 1, int(last.stem)
    assert [(lost.first, lost.last) for lost in report.lost] == [(first_lost, next_base - 2)]
    expected = {number: fact for number, fact in kept(story.facts).items() if not first_lost <= number < next_base}
    found = kept(facts)
    assert {number: fact for number, fact in found.items() if not isinstance(fact, Gap)} == expected


def test_an_end_that_is_lost_is_not_given_again(tmp_path: Path) -> None:
    """Sequences the watermark knows of stay taken: ids that were given out never name another message."""
    story = a_story()
    *_, last = write_log(tmp_path / "old", story)
    where = offsets(last)
    last.write_bytes(last.read_bytes()[: where[sorted(where)[4]]])
    report, facts = salvaged(tmp_path / "old", tmp_path / "new")
    assert report.last == story.last
    assert facts[-1] == facts[-1]._replace(first=sorted(where)[4], last=story.last)
    last.unlink()
    report, _ = salvaged(tmp_path / "old", tmp_path / "again")
    assert report.last == story.last


def test_units_go_as_a_whole(tmp_path: Path) -> None:
    """RULES 5: a batch of which one record is lost is not kept in part; the messages around it are."""
    story = a_story()
    unit = [20, 21, 22, 23]
    path = write_log(tmp_path / "old", story, not_ends=unit[:-1])[1]
    where = offsets(path)
    assert set(unit) < set(where)
    flip(path, where[22] + HEADER_BYTES)
    report, facts = salvaged(tmp_path / "old", tmp_path / "new")
    assert [(lost.first, lost.last) for lost in report.lost] == [(20, 23)]
    assert "checksum" in report.lost[0].why
    found = kept(facts)
    assert isinstance(found[23], Gap)
    assert {number for number in kept(story.facts) if number not in found} == {20, 21, 22}


def test_what_names_the_log_may_be_lost(tmp_path: Path) -> None:
    """Segment headers, snapshots and seals are made anew of what is left."""
    story = a_story()
    first, middle, _ = write_log(tmp_path / "old", story)
    flip(first, 30)
    flip(middle, SEGMENT_HEADER_BYTES + 5)
    middle.write_bytes(middle.read_bytes()[:-10])
    report, facts = salvaged(tmp_path / "old", tmp_path / "new")
    assert report.lost == []
    assert len(report.notes) == 1
    snapshot = next(fact for fact in facts if fact.sequence == int(middle.stem))
    assert snapshot._replace(time_us=0) == kept(story.facts)[snapshot.sequence]._replace(time_us=0)
    assert segment.read_segment_header(tmp_path / "new" / first.name).id_key == ID_KEY


@pytest.mark.parametrize(("strangers", "place"), [(1, 30), (3, HEADER_BYTES + 11)])
def test_foreign_bytes_inside_a_message_are_content(tmp_path: Path, strangers: int, place: int) -> None:
    """A message may carry pieces of a log: when it is damaged they are not taken for records. Where its own header is
    whole not even several in a row are, whose sequences could follow."""
    story = Story()
    story.snapshot()
    queue = story.queue()
    story.publish(queue)
    stranger = Story(story.last + 1)
    for number in range(strangers):
        stranger.queue(f"stranger{number}")
    inside = b"".join(codec.encode(fact, batch=9) for fact in stranger.facts)
    carrier = story.publish(queue, content=b"text" + inside + b"text")
    after = story.publish(queue)
    path = write_log(tmp_path / "old", story)[0]
    flip(path, offsets(path)[carrier] + place)
    _, facts = salvaged(tmp_path / "old", tmp_path / "new")
    found = kept(facts)
    assert isinstance(found[carrier], Gap)
    assert found[after] == kept(story.facts)[after]


def test_damage_on_damage(tmp_path: Path, seed: int) -> None:
    """Whatever is done to the files, the result is a log in which nothing is wrong and nothing is invented."""
    dice = random.Random(seed)
    story = a_story(3, 8)
    whole = kept(story.facts)
    for round_number in range(15):
        source = tmp_path / f"old{round_number}"
        for path in write_log(source, story):
            data = bytearray(path.read_bytes())
            for _ in range(dice.randrange(4)):
                start = dice.randrange(len(data))
                data[start : start + dice.randrange(200)] = dice.randbytes(dice.randrange(200))
            path.write_bytes(data)
        _, facts = salvaged(source, tmp_path / f"new{round_number}")
        for number, fact in kept(facts).items():
            assert fact == whole[number] or isinstance(fact, Gap | SegmentOpened)


def opened(directory: Path) -> FileJournal:
    options = FileOptions(segment_bytes=64 * 1024, reserve_bytes=4_096)
    return FileJournal.open(directory, JournalOptions(), lambda: START_US + 10**12, in_files=options)


def test_the_result_is_a_log_to_go_on_with(tmp_path: Path) -> None:
    """What was salvaged opens like any log: what is kept is read by its sequence, what is lost is not there, and new
    messages go on behind it."""
    story = a_story()
    _, middle, last = write_log(tmp_path / "old", story)
    where = offsets(middle)
    lost = sorted(where)[3]
    flip(middle, where[lost] + 9)
    last.write_bytes(last.read_bytes()[: offsets(last)[max(offsets(last))]])
    salvage(tmp_path / "old", tmp_path / "new")
    journal = opened(tmp_path / "new")
    try:
        assert journal.recovery.clean
        assert journal.id_key == ID_KEY
        messages = {fact.sequence: fact for fact in story.facts if isinstance(fact, StoredMessage)}
        read = journal.read_many(sorted(messages))
        assert read == [messages[number] if number != lost else None for number in sorted(messages)]
        gaps = [fact for fact in records(journal) if isinstance(fact, Gap)]
        assert [(gap.first, gap.last) for gap in gaps] == [(lost, lost), (story.last, story.last)]
        assert journal.next_sequence == story.last + 1
        more = story.message(story.last + 1, 1)
        journal.append(journal.prepare([more]))
    finally:
        journal.close()
    journal = opened(tmp_path / "new")
    assert journal.read_many([story.last + 1]) == [more]
    journal.close()
    assert [met for met in verify(tmp_path / "new") if isinstance(met, Finding)] == []


def test_a_missing_segment_opens_too(tmp_path: Path) -> None:
    """A gap as wide as a segment, and a segment whose head is gone, are no reason for the new log not to open."""
    story = a_story(4)
    first, second, third, last = write_log(tmp_path / "old", story)
    second.unlink()
    flip(third, SEGMENT_HEADER_BYTES + 5)
    last.unlink()
    salvage(tmp_path / "old", tmp_path / "new")
    journal = opened(tmp_path / "new")
    assert journal.next_sequence == story.last + 1
    for path in (first, third):
        base = int(path.stem)
        assert journal.read_many([base + 5]) == [fact for fact in story.facts if fact.sequence == base + 5]
    journal.close()


def test_only_into_a_new_directory(tmp_path: Path) -> None:
    """A target that holds anything is refused, and so is a source that holds no log; nothing is written."""
    write_log(tmp_path / "old", a_story())
    target = tmp_path / "new"
    target.mkdir()
    (target / "something").write_text("here")
    with pytest.raises(Conflict):
        salvage(tmp_path / "old", target)
    assert [path.name for path in target.iterdir()] == ["something"]
    with pytest.raises(Conflict):
        salvage(tmp_path / "old", tmp_path / "old")
    with pytest.raises(Malformed):
        salvage(target, tmp_path / "newer")
    assert not (tmp_path / "newer").exists()


def test_progress_is_told(tmp_path: Path) -> None:
    """Progress goes from segment to segment and ends with all bytes."""
    paths = write_log(tmp_path / "old", a_story())
    told: list[tuple[int, int]] = []
    salvage(tmp_path / "old", tmp_path / "new", lambda done, total: told.append((done, total)))
    total = sum(path.stat().st_size for path in paths)
    assert len(told) == 3
    assert told[-1] == (total, total)
