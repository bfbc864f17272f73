"""Verification finds whatever is wrong with a log and nothing else, and touches nothing."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from crc32c import crc32c

from syncbrok.log.format import codec
from syncbrok.log.format.codec import HEADER_BYTES
from syncbrok.log.index import sidecar
from syncbrok.log.journal import FileJournal
from syncbrok.log.offline import order
from syncbrok.log.offline.verify import Finding, Progress, verify
from syncbrok.log.segments import segment
from syncbrok.log.segments.watermark import Watermark
from syncbrok.model.facts import Fact
from tests.support.log.journals import append_snapshot, opened
from tests.support.log.segment_files import flip, offsets, write_log
from tests.support.log.story import START_US, Story


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
        for _ in range(messages):
            message = story.publish(queue, content=b"content of some length " * 3)
            story.attempt(message, subscriber)
    return story


def findings(directory: Path) -> list[Finding]:
    return [met for met in verify(directory) if isinstance(met, Finding)]


def test_a_whole_log_has_no_findings(tmp_path: Path) -> None:
    """Nothing is found where nothing is wrong; every fact is handed on, and progress ends with all bytes."""
    story = a_story()
    paths = write_log(tmp_path, story)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    facts: list[Fact] = []
    met = list(verify(tmp_path, facts.append))
    assert [one for one in met if isinstance(one, Finding)] == []
    total = sum(path.stat().st_size for path in paths)
    assert met[-1] == Progress(total, total)
    assert [fact.sequence for fact in facts] == [fact.sequence for fact in story.facts]
    assert order.check(facts) == []
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_an_empty_directory_is_a_log_without_records(tmp_path: Path) -> None:
    """A directory before the first start has nothing wrong in it."""
    assert list(verify(tmp_path)) == []


def test_every_byte_of_a_sealed_segment_counts(tmp_path: Path, seed: int) -> None:
    """Whatever byte of a sealed segment changes, it is found, and the file is named."""
    first, *_ = write_log(tmp_path, a_story(2, 1))
    good = first.read_bytes()
    for place in range(seed % 4, len(good), 4):
        flip(first, place)
        found = findings(tmp_path)
        assert found, place
        assert found[0].file == first.name
        first.write_bytes(good)


def test_damage_is_named_and_read_past(tmp_path: Path) -> None:
    """A damaged record is named with file, offset and sequence; what stands behind it is looked at too."""
    _, middle, _ = write_log(tmp_path, a_story())
    where = offsets(middle)
    sequences = sorted(where)
    flip(middle, where[sequences[3]] + HEADER_BYTES)
    flip(middle, where[sequences[6]] + 4)
    found = findings(tmp_path)
    assert [(one.offset, one.sequence) for one in found[:1]] == [(where[sequences[3]], sequences[3])]
    assert where[sequences[6]] in {one.offset for one in found}
    assert all(one.file == middle.name and not one.harmless for one in found)


def family(story: Story) -> int:
    """Write a parent and the first of a key, alone in the second of three segments, and what refers to them later.
    Returns the parent's sequence."""
    story.snapshot()
    queue = story.queue()
    subscriber = story.subscriber(queue)
    story.seal()
    story.snapshot()
    parent, first = story.publish(queue, content=b"parent"), story.publish(queue, key="k", content=b"first")
    story.attempt(parent, subscriber)
    story.attempt(first, subscriber)
    story.seal()
    story.snapshot()
    child, second = story.publish(queue, parent, content=b"child"), story.publish(queue, key="k", content=b"second")
    story.attempt(child, subscriber)
    story.attempt(second, subscriber)
    story.attempt(story.publish(queue), subscriber)
    return parent


def test_damage_breaks_no_promise_about_order(tmp_path: Path) -> None:
    """What refers to records that are lost is no breach of order (RULES 28: damage costs the records it hit), be it
    one, be it a segment: the disk broke them, not the broker. A breach behind the damage is told all the same."""
    for number in range(10):
        story = Story()
        parent = family(story)
        if number == 9:
            story.outcomes(story.row(parent + 1000, 77))
        directory = tmp_path / str(number)
        _, middle, _ = write_log(directory, story)
        if number < 8:
            where = sorted(offsets(middle).items())
            flip(middle, where[number % len(where)][1] + HEADER_BYTES)
        else:
            middle.unlink()
        judge = order.OrderChecker()
        found = [one for one in verify(directory, judge.apply, judge.apply) if isinstance(one, Finding)]
        assert [one for one in found if not one.harmless]
        assert [one.rule for one in judge.violations] == (["addressee"] if number == 9 else []), (number, found)


def rewrite(path: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    """Change the records of a segment as whole records."""
    data = path.read_bytes()
    places = [*sorted(offsets(path).values())]
    ends = [*places[1:], places[-1] + HEADER_BYTES + int.from_bytes(data[places[-1] + 8 : places[-1] + 12], "little")]
    records = [data[start:end] for start, end in zip(places, ends, strict=True)]
    path.write_bytes(data[: places[0]] + b"".join(change(records)) + data[ends[-1] :])


@pytest.mark.parametrize(
    "change",
    [
        lambda records: records[:4] + records[5:],
        lambda records: [*records[:4], records[5], records[4], *records[6:]],
        lambda records: [*records[:5], *records[4:]],
        lambda records: records[1:],
        lambda records: records[:-1],
        lambda records: [*records, records[-1]],
        lambda records: [],
    ],
    ids=["missing", "swapped", "twice", "no snapshot", "no seal", "sealed twice", "empty"],
)
def test_whole_records_in_the_wrong_place(tmp_path: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    """Checksums alone do not see a record that is missing, moved or written twice: sequences and seals do."""
    _, middle, _ = write_log(tmp_path, a_story())
    rewrite(middle, change)
    found = [one for one in findings(tmp_path) if not one.harmless]
    assert found
    assert {one.file for one in found} == {middle.name}


def test_segments_that_are_not_there(tmp_path: Path) -> None:
    """A missing segment is found, whether the first, one in the middle or the last."""
    for number in range(3):
        directory = tmp_path / str(number)
        paths = write_log(directory, a_story())
        paths[number].unlink()
        assert findings(directory), number


def test_a_segment_of_another_log(tmp_path: Path) -> None:
    """A segment that was copied in from another log is found by its uuid."""
    _, middle, _ = write_log(tmp_path, a_story())
    data = middle.read_bytes()
    base = int(middle.stem)
    other = segment.pack_segment_header(segment.SegmentHeader(bytes(16), bytes(16), base, START_US))
    middle.write_bytes(other + data[len(other) :])
    assert "belongs to another log" in findings(tmp_path)[0].what


def test_units_are_whole(tmp_path: Path) -> None:
    """RULES 5: a unit without its last record is found, in the middle of a log and at the end of a sealed segment."""
    story = a_story(2)
    write_log(tmp_path / "whole", story, not_ends=[4, 5, 6])
    assert findings(tmp_path / "whole") == []
    paths = write_log(tmp_path / "cut", story, not_ends=[4, 5, 6])
    data = paths[0].read_bytes()
    at = offsets(paths[0])[7]
    header = codec.read_header(data, at)
    assert isinstance(header, codec.Header)
    again = codec.encode(story.facts[6], batch=header.batch + 1, synced_through=0)
    assert len(again) == header.record_bytes
    paths[0].write_bytes(data[:at] + again + data[at + len(again) :])
    assert any("has no end" in one.what for one in findings(tmp_path / "cut"))


def test_batches_never_fall(tmp_path: Path) -> None:
    """A record of an earlier write behind one of a later is no record of this place."""
    story = a_story(2)
    first, *_ = write_log(tmp_path, story)
    data, at = first.read_bytes(), offsets(first)[9]
    again = codec.encode(story.facts[8], batch=1, synced_through=0)
    first.write_bytes(data[:at] + again + data[at + len(again) :])
    assert any("follows batch" in one.what for one in findings(tmp_path))


def test_seals_count(tmp_path: Path) -> None:
    """A seal says how many records stand before it."""
    story = a_story(2)
    first, *_ = write_log(tmp_path, story)
    seal = segment.read_seal(first)
    assert seal is not None
    wrong = seal[1]._replace(records=seal[1].records + 1)
    again = codec.encode(wrong, batch=seal[0].batch, synced_through=0)
    first.write_bytes(first.read_bytes()[: -len(again)] + again)
    assert ["the seal counts" in one.what for one in findings(tmp_path) if not one.harmless] == [True]


def test_sidecars_are_compared(tmp_path: Path) -> None:
    """A sidecar that does not say what its segment says is found; it is harmless, since it is never trusted."""
    first, *_ = write_log(tmp_path, a_story())
    path = sidecar.path_of(tmp_path, int(first.stem))
    flip(path, path.stat().st_size - 1)
    assert [(one.file, one.harmless) for one in findings(tmp_path)] == [(path.name, True)]
    path.unlink()
    assert findings(tmp_path) == []


def test_beside_a_running_broker(tmp_path: Path) -> None:
    """Above the watermark the last segment may be in the middle of a write; below it nothing may be wrong."""
    *_, last = write_log(tmp_path, a_story())
    where = offsets(last)
    sequences = sorted(where)
    mark = Watermark(tmp_path)
    assert mark.saved is not None
    mark.save(mark.saved._replace(durable=sequences[4], offset=where[sequences[5]], clean=False))
    mark.close()
    flip(last, where[sequences[8]])
    assert findings(tmp_path) == []
    flip(last, where[sequences[2]])
    assert {one.offset for one in findings(tmp_path)} >= {where[sequences[2]]}


def test_a_log_that_grows_meanwhile(tmp_path: Path) -> None:
    """A real journal is written to, rolled and shortened while it is verified: nothing is found, no lock is taken."""
    story = Story()
    journal = opened(FileJournal, tmp_path, lambda: START_US, segment_bytes=4_000, reserve_bytes=4_096)
    stopped = threading.Event()

    def write() -> None:
        while not stopped.is_set():
            if journal.wants_snapshot:
                append_snapshot(journal, time_us=START_US)
            facts = [story.message(journal.next_sequence + number, 1) for number in range(3)]
            journal.append(journal.prepare(facts, {2}))
            if len(journal.sections()) > 12:
                journal.trim_oldest()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        rounds = 0
        while rounds < 20 or (journal.next_sequence < 2_000 and rounds < 2_000):
            assert findings(tmp_path) == []
            rounds += 1
    finally:
        stopped.set()
        writer.join()
        journal.close()
    assert findings(tmp_path) == []
    assert journal.sections()[0].base > 1


def test_an_end_that_is_lost(tmp_path: Path) -> None:
    """A last segment that ends before the watermark has lost what was on the disk."""
    *_, last = write_log(tmp_path, a_story())
    where = offsets(last)
    data = last.read_bytes()
    cut = where[max(where)]
    last.write_bytes(data[:cut].ljust(len(data), b"\0"))
    found = findings(tmp_path)
    assert [one.sequence for one in found] == [max(where)]
    assert "was on the disk up to" in found[0].what


@pytest.mark.parametrize(("at", "value"), [(4, 3), (5, 99)], ids=["version", "kind"])
def test_what_a_later_version_wrote_is_found_at_the_end_too(tmp_path: Path, at: int, value: int) -> None:
    """A whole record that this program does not know is no write under way: a start refuses the log, in the same words
    (INTERFACES, docs/log-format.md)."""
    *_, last = write_log(tmp_path, a_story())
    (tmp_path / "watermark").unlink()
    where = offsets(last)
    start = where[max(where)]
    data = bytearray(last.read_bytes())
    data[start + at] = value
    data[start + 88 : start + 92] = crc32c(data[start : start + 88]).to_bytes(4, "little")
    last.write_bytes(data)
    (found,) = findings(tmp_path)
    assert (found.file, found.offset, found.sequence) == (last.name, start, max(where))
    assert "a later version of Syncbrok wrote it" in found.what


def test_a_watermark_that_cannot_be_read(tmp_path: Path) -> None:
    """A damaged watermark is a finding, not the end of the verification."""
    write_log(tmp_path, a_story())
    (tmp_path / "watermark").write_bytes(b"nothing")
    assert [one.file for one in findings(tmp_path)] == ["watermark"]
