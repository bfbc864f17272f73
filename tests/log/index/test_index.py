"""The index of a segment answers what a look at every record would; its sidecar is never trusted."""

import os
import threading
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from syncbrok.log.format import codec
from syncbrok.log.index import sidecar
from syncbrok.log.index.segment_index import SegmentIndex, text_hash
from syncbrok.log.index.sidecar import Sealed
from syncbrok.model.facts import ALL_SUBSCRIBERS, Carried, Fact, Outcome, Outcomes, StoredMessage
from syncbrok.model.names import sequence_of
from tests.support.log.story import Story

BASE = 1_000
FILE_HEADER = 128
SEALED = Sealed(bytes(range(16)), BASE, 12_345, 0xDEAD_BEEF)

QUEUES = st.integers(1, 3)
KEYS = st.sampled_from(["", "a", "b", "\u00e4\u00f6"])
EARLIER = st.integers(1, 60)
"""how far back of the newest sequence something lies; may reach below the base"""


@st.composite
def stories(draw: st.DrawFn) -> Story:
    """Up to some hundred facts of every kind that is indexed, sometimes with a hole as salvage leaves it."""
    story = Story(BASE)
    for _ in range(draw(st.integers(1, 40))):
        match draw(st.integers(0, 5)):
            case 0 | 1 | 2:
                parents = [story.last - back for back in draw(st.lists(EARLIER, max_size=3))]
                story.publish(draw(QUEUES), *parents, key=draw(KEYS), idempotency_key=draw(KEYS))
            case 3:
                rows = draw(st.lists(st.tuples(EARLIER, st.sampled_from([1, 2, ALL_SUBSCRIBERS])), max_size=5))
                story.outcomes(*[story.row(story.last - back, who, detail=b"why") for back, who in rows])
            case 4:
                old = story.last - draw(EARLIER) - 60
                story.carry(story.message(old, draw(QUEUES), [old - 1], key=draw(KEYS)), [(1, Outcome.DEAD)])
            case _:
                story.gap(story.last + 1, story.last + draw(st.integers(1, 300)))
    return story


class Naive:
    """What the facts say, one after the other."""

    def __init__(self, facts: list[Fact]) -> None:
        self.facts = facts
        self.messages: list[StoredMessage] = [
            fact.message if isinstance(fact, Carried) else fact
            for fact in facts
            if isinstance(fact, StoredMessage | Carried)
        ]

    def children(self, parent: int) -> list[int]:
        return sorted({one.sequence for one in self.messages if parent in map(sequence_of, one.parents)})

    def rows(self, message: int) -> list[tuple[int, int]]:
        outcomes = [fact for fact in self.facts if isinstance(fact, Outcomes)]
        return [
            (fact.sequence, place) for fact in outcomes for place, row in enumerate(fact.rows) if row.message == message
        ]

    def queue(self, queue: int, after: int) -> list[int]:
        fresh = [fact for fact in self.facts if isinstance(fact, StoredMessage)]
        return [one.sequence for one in fresh if one.queue == queue and one.sequence > after]

    def carried(self, queue: int, after: int) -> list[int]:
        moved = [fact.message for fact in self.facts if isinstance(fact, Carried)]
        return sorted({one.sequence for one in moved if one.queue == queue and one.sequence > after})


def encoded(story: Story) -> codec.EncodedRecords:
    return codec.encode_batch(story.facts, batch=1, synced_through=0)


def agree_on_ranges(index: SegmentIndex, story: Story, naive: Naive) -> None:
    for queues in (None, {1}, {2, 3, 9}):
        own = sorted(one for queue in queues or (1, 2, 3, 4) for one in naive.queue(queue, 0))
        moved = {one for queue in queues or (1, 2, 3, 4) for one in naive.carried(queue, 0)}
        for after, before in ((0, story.last + 9), (BASE - 80, BASE + 7), (BASE + 7, story.last)):
            expected = [one for one in own if after < one < before]
            assert index.sequences_between(queues, after, before, 3, newest_first=False) == expected[:3]
            assert index.sequences_between(queues, after, before, 1_000, newest_first=True) == expected[::-1]
            assert index.carried_between(queues, after, before) == {one for one in moved if after < one < before}
    told = [fact for fact in story.facts if not isinstance(fact, StoredMessage | Carried)]
    others = [fact.sequence for fact in told if fact.sequence > BASE and not (isinstance(fact, Outcomes) and fact.rows)]
    for after, before in ((0, story.last + 9), (BASE + 7, story.last), (BASE - 80, BASE + 7)):
        expected = [one for one in others if after < one < before]
        assert index.others_between(after, before, 3, newest_first=False) == expected[:3]
        assert index.others_between(after, before, 1_000, newest_first=True) == expected[::-1]
    times_us = {fact.time_us for fact in story.facts}
    for time_us in (0, *times_us, max(times_us) + 1):
        assert index.first_at(time_us) == next((one.sequence for one in story.facts if one.time_us >= time_us), None)


def agree(index: SegmentIndex, story: Story, data: bytes) -> None:
    """Everything the index can be asked, asked."""
    naive = Naive(story.facts)
    recorded = {fact.sequence for fact in story.facts}
    asked = {one + near for one in recorded for near in (-1, 0, 1)} | {story.last - back for back in (0, 30, 90, 100)}
    for sequence in sorted(asked):
        assert index.children_of(sequence) == naive.children(sequence)
        assert index.rows_of(sequence) == naive.rows(sequence)
        found = index.extent(sequence)
        assert (found is not None) == (sequence in recorded)
        if found is not None:
            assert sequence_at(data, *found) == sequence
    for bytes_max in (1, 500, 1 << 20):
        agree_on_extents(index, sorted(asked), recorded, data, bytes_max)
    for queue in (1, 2, 3, 4):
        for after in (0, BASE - 80, BASE, BASE + 7, story.last):
            for limit in (1, 3, 1_000):
                assert index.queue_sequences(queue, after, limit) == naive.queue(queue, after)[:limit]
                assert index.carried_sequences(queue, after, limit) == naive.carried(queue, after)[:limit]
        assert index.queue_count(queue) == len(naive.queue(queue, 0))
    agree_on_ranges(index, story, naive)
    for key in ("a", "b", "\u00e4\u00f6", "unknown"):
        assert index.with_key(text_hash(key)) == [one.sequence for one in naive.messages if one.key == key]
        same = [one.sequence for one in naive.messages if one.idempotency_key == key]
        assert index.with_idempotency(text_hash(key)) == same
    for fact in story.facts:
        if isinstance(fact, Carried):
            newest = [one for one in story.facts if isinstance(one, Carried) and one.message.id == fact.message.id][-1]
            assert index.carried(fact.message.sequence) == newest.sequence
    assert index.carried(story.last + 1) is None
    assert (index.records, index.last) == (len(story.facts), story.facts[-1].sequence)
    starts = codec.walk(data, 0, len(data))[0].tolist()
    positions = index.positions
    assert positions.offsets.tolist() == [FILE_HEADER + start for start in starts]
    assert positions.times_us.tolist() == [fact.time_us for fact in story.facts]
    assert positions.checksums.tolist() == [crc32c(data[:start]) for start in starts[:: positions.every]]
    assert index.times_us == (story.facts[0].time_us, story.facts[-1].time_us)


def sequence_at(data: bytes, start: int, end: int) -> int:
    """The sequence of the one record that stands between these offsets of the file."""
    found = codec.decode(data, start - FILE_HEADER)
    assert isinstance(found, codec.Decoded)
    assert found.end == end - FILE_HEADER
    return found.header.sequence


def agree_on_extents(index: SegmentIndex, asked: list[int], recorded: set[int], data: bytes, bytes_max: int) -> None:
    """All of them that are here and no others, in order; each extent is whole records that follow each other, and no
    larger than allowed unless it is one."""
    found: list[int] = []
    for extent in index.extents(asked, bytes_max):
        offsets, _ = codec.walk(data, extent.start - FILE_HEADER, extent.end - FILE_HEADER)
        headers = [codec.read_header(data, offset) for offset in offsets.tolist()]
        sequences = [header.sequence for header in headers if isinstance(header, codec.Header)]
        assert sequences == [*range(extent.sequence, extent.sequence + extent.records)]
        assert extent.end - extent.start <= bytes_max or extent.records == 1
        found += sequences
    assert found == [sequence for sequence in asked if sequence in recorded]


@settings(max_examples=40)
@given(stories())
def test_built_from_a_whole_segment(story: Story) -> None:
    """Built from the bytes of a sealed segment it says what a look at every record says."""
    data = encoded(story).data
    whole = bytes(FILE_HEADER) + data
    agree(SegmentIndex.build(whole, FILE_HEADER, len(whole), BASE, checksums_every=7), story, data)


@settings(max_examples=40)
@given(stories(), st.data())
def test_grown_record_by_record(story: Story, data: st.DataObject) -> None:
    """Grown in batches of any size, asked now and then in between, it says the same as one built at once."""
    made = encoded(story)
    index = SegmentIndex(BASE, checksums_every=5)
    at = first = 0
    while first < len(made.ends):
        last = min(first + data.draw(st.integers(1, 8)), len(made.ends))
        batch = made.data[at : made.ends[last - 1]]
        starts = [0, *[end - at for end in made.ends[first : last - 1]]] if data.draw(st.booleans()) else None
        index.extend(batch, FILE_HEADER + at, starts)
        if data.draw(st.booleans()):
            assert index.last == story.facts[last - 1].sequence
        at, first = made.ends[last - 1], last
    agree(index, story, made.data)
    index.compact()
    agree(index, story, made.data)


@settings(max_examples=40)
@given(stories())
def test_a_sidecar_says_what_the_index_says(story: Story) -> None:
    """Written to a sidecar and read back it is the same index."""
    made = encoded(story)
    whole = bytes(FILE_HEADER) + made.data
    index = SegmentIndex.build(whole, FILE_HEADER, len(whole), BASE, checksums_every=3)
    read = sidecar.decode(sidecar.encode(index, SEALED), SEALED)
    assert read is not None
    agree(read, story, made.data)


def a_long_story(records: int) -> Story:
    story = Story(BASE)
    for number in range(records):
        message = story.publish(number % 3 + 1, *([story.last] if number % 5 == 1 else []), key=f"k{number % 7}")
        if number % 4 == 0:
            story.outcomes(story.row(message, 1), story.row(message - 1, 2))
    return story


def test_offsets_are_sparse_and_exact() -> None:
    """DESIGN 4: one offset for 256 records; walked in lockstep they are the offsets of all."""
    story = a_long_story(3_000)
    made = encoded(story)
    index = SegmentIndex.build(made.data, 0, len(made.data), BASE)
    assert len(index.sparse) == -(-len(story.facts) // 256)
    dense = codec.lockstep(made.data, index.sparse.astype("i8"), 256, index.records)
    assert dense.tolist() == [0, *made.ends[:-1]]


def test_a_segment_that_grows_while_it_is_asked() -> None:
    """What was appended before a question is in the answer, whichever threads ask at that time."""
    story = a_long_story(4_000)
    made = encoded(story)
    index = SegmentIndex(BASE)
    starts = [0, *made.ends[:-1]]
    appended = BASE - 1
    wrong: list[str] = []

    def ask() -> None:
        while appended < story.last:
            known = appended
            if known >= BASE and (index.last < known or index.extent(known) is None):
                wrong.append(f"{known} was appended and is not found")
            rows = index.rows_of(BASE)
            if known > BASE and len(rows) != 1:
                wrong.append(f"rows of the first message: {rows}")

    readers = [threading.Thread(target=ask) for _ in range(3)]
    for reader in readers:
        reader.start()
    for fact, start, end in zip(story.facts, starts, made.ends, strict=True):
        index.extend(made.data[start:end], start, (0,))
        appended = fact.sequence
    for reader in readers:
        reader.join()
    assert wrong == []
    assert index.records == len(story.facts)
    whole = SegmentIndex.build(made.data, 0, len(made.data), BASE)
    assert sidecar.encode(index, SEALED) == sidecar.encode(whole, SEALED)


def test_a_sidecar_is_never_trusted(tmp_path: Path) -> None:
    """DESIGN 4: whatever byte of a sidecar is wrong, or whichever segment it is of, it is as if it were missing."""
    index = SegmentIndex.build(data := encoded(a_long_story(20)).data, 0, len(data), BASE)
    assert sidecar.read(tmp_path, SEALED) is None
    sidecar.write(tmp_path, index, SEALED)
    path = sidecar.path_of(tmp_path, BASE)
    good = path.read_bytes()
    assert sidecar.read(tmp_path, SEALED) is not None
    for other in (
        SEALED._replace(uuid=bytes(16)),
        SEALED._replace(file_bytes=12_346),
        SEALED._replace(crc=1),
    ):
        assert sidecar.read(tmp_path, other) is None
    for place in range(len(good)):
        assert sidecar.decode(good[:place], SEALED) is None
        assert sidecar.decode(good[:place] + bytes([good[place] ^ 0x10]) + good[place + 1 :], SEALED) is None
    path.write_bytes(b"")
    assert sidecar.read(tmp_path, SEALED) is None


def test_the_beginning_of_a_sidecar_is_not_trusted_either(tmp_path: Path) -> None:
    """DESIGN 4: who asks no more than how many rows a table has reads the beginning alone. Whatever bit of it is wrong,
    the answer is right, or none."""
    index = SegmentIndex.build(data := encoded(a_long_story(20)).data, 0, len(data), BASE)
    assert sidecar.rows(tmp_path, SEALED, "rows") is None
    sidecar.write(tmp_path, index, SEALED)
    right = {table: sidecar.rows(tmp_path, SEALED, table) for table in ("rows", "edges", "carried")}
    assert (right["rows"], right["edges"], right["carried"]) == (len(index.compact().rows[0]), 4, 0)
    for other in (SEALED._replace(uuid=bytes(16)), SEALED._replace(base=BASE + 1), SEALED._replace(crc=1)):
        assert sidecar.rows(tmp_path, other, "rows") is None
    path = sidecar.path_of(tmp_path, BASE)
    good = path.read_bytes()
    with path.open("r+b", buffering=0) as file:  # a file written anew for each bit takes the disk half a minute
        for place in range(min(len(good), 2_048)):
            for bit in range(8):
                os.pwrite(file.fileno(), bytes([good[place] ^ 1 << bit]), place)
                found = {table: sidecar.rows(tmp_path, SEALED, table) for table in right}
                assert found == right or set(found.values()) == {None}, (place, bit)
            os.pwrite(file.fileno(), good[place : place + 1], place)
    for place in range(min(len(good), 2_048)):
        path.write_bytes(good[:place])
        assert sidecar.rows(tmp_path, SEALED, "carried") in (None, 0)


@pytest.mark.parametrize("queue", [1, 4])
def test_an_index_of_nothing(queue: int) -> None:
    """A segment that was just opened answers like any other."""
    index = SegmentIndex(BASE)
    assert (index.records, index.last, index.end) == (0, BASE - 1, 0)
    assert index.queue_sequences(queue, 0, 10) == index.children_of(5) == index.rows_of(5) == []
    assert index.extent(BASE) is None
    restored = sidecar.decode(sidecar.encode(index, SEALED), SEALED)
    assert restored is not None
    assert restored.records == 0
