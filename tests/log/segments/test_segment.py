"""A segment's file: read in blocks of any size, written in one call, made ahead of need."""

from pathlib import Path

import pytest

from syncbrok.log.format import codec
from syncbrok.log.format.codec import Corrupt, Decoded, Incomplete
from syncbrok.log.format.records import SegmentOpened, SegmentSealed
from syncbrok.log.segments import preallocation, segment
from syncbrok.log.segments.preallocation import preallocate
from syncbrok.log.segments.segment import SEGMENT_HEADER_BYTES, ActiveSegment, SegmentHeader, read_records
from syncbrok.model.errors import LogCorrupt, LogFailed, LogFull
from syncbrok.model.limits import KIB, MIB
from tests.support.log.journals import START_US, message

KEY = bytes(range(16))
HEADER = SegmentHeader(bytes(range(16, 32)), KEY, 1, START_US)
OPENED = SegmentOpened(1, START_US, (), (), (), ())


def at_once() -> bool:
    return False


@pytest.fixture
def active(tmp_path: Path) -> ActiveSegment:
    path = tmp_path / preallocation.NAME
    preallocate(path, 64 * KIB, 1 * KIB, at_once)
    return ActiveSegment.create(path, HEADER, codec.encode(OPENED), OPENED, every_write_synced=True)


def append(active: ActiveSegment, sequence: int, content: bytes) -> None:
    active.append(codec.encode(message(KEY, sequence, content=content)), 1, START_US + sequence)


def test_records_are_read_over_blocks(active: ActiveSegment) -> None:
    """A record may lie over the border of two blocks, or be larger than one."""
    sizes = [10, 3 * MIB, 2 * MIB, 0, 9 * MIB, 4 * MIB - 300, 50]
    for sequence, size in enumerate(sizes, 2):
        append(active, sequence, bytes([sequence]) * size)
    places = list(read_records(active.path, end=active.end))
    at = SEGMENT_HEADER_BYTES
    for sequence, place in enumerate(places, 1):
        assert isinstance(place.what, Decoded)
        assert (place.offset, place.what.header.sequence) == (at, sequence)
        at += place.what.header.record_bytes
    assert at == active.end
    assert len(places) == len(sizes) + 1
    bare = list(read_records(active.path, places[3].offset, active.end, content=False))
    assert [place.offset for place in bare] == [place.offset for place in places[3:]]
    active.close()


def test_what_stands_behind_the_records_is_said(active: ActiveSegment) -> None:
    """Reading tells the end of the file from a record cut short and from no record at all."""
    append(active, 2, b"content")
    last = list(read_records(active.path))[-1]
    assert last.offset == active.end
    assert isinstance(last.what, Corrupt)
    assert last.what.offset == active.end
    cut = list(read_records(active.path, end=active.end - 1))[-1]
    assert isinstance(cut.what, Incomplete)
    assert not [place for place in read_records(active.path, end=active.end) if not isinstance(place.what, Decoded)]
    active.close()


def test_a_seal_says_what_stands_before_it(active: ActiveSegment) -> None:
    """DESIGN section 4: a sealed segment ends with count and checksum, and not a byte later."""
    append(active, 2, b"content")
    assert segment.read_seal(active.path) is None
    info = active.seal(3, START_US + 9, 7, 2)
    assert info == segment.SegmentInfo(1, 3, active.path.stat().st_size, 3, START_US, START_US + 9, True, active.path)
    seal = segment.read_seal(active.path)
    assert seal is not None
    assert seal[1] == SegmentSealed(3, START_US + 9, 2, seal[1].crc)
    assert segment.info_of_sealed(active.path, segment.read_first_header(active.path), seal) == info
    assert segment.scrub_bytes(segment.read_segment(active.path)) is None
    assert segment.read_segment_header(active.path) == HEADER


def test_a_blank_is_made_in_a_hurry_too(tmp_path: Path) -> None:
    """A roll does not wait for the zeros of the next segment: without the rest of them the file is as good."""
    path = tmp_path / preallocation.NAME
    asked: list[int] = []

    def hurry() -> bool:
        asked.append(1)
        return len(asked) > 2

    preallocate(path, 5 * MIB + 1, 1 * KIB, hurry)
    assert len(asked) == 3
    assert path.stat().st_size == 5 * MIB + 1
    assert not any(path.read_bytes())
    active = ActiveSegment.create(path, HEADER, codec.encode(OPENED), OPENED, every_write_synced=True)
    assert not path.exists()
    assert [
        place.what.fact for place in read_records(active.path, end=active.end) if isinstance(place.what, Decoded)
    ] == [OPENED]
    active.close()


def test_errors_are_told_apart() -> None:
    """What can be mended by making room is ``LogFull``; any other error of a write leaves the disk unknown."""
    full = Path("/dev/full")
    with full.open("r+b", buffering=0) as file, pytest.raises(LogFull):
        segment.files.write_at(file.fileno(), b"x", 0, full)
    with full.open("rb") as file, pytest.raises(LogFailed):
        segment.files.write_at(file.fileno(), b"x", 0, full)


def test_a_file_that_is_no_segment_is_refused(tmp_path: Path) -> None:
    """Another program's file, a short one and a later format are named for what they are."""
    path = segment.segment_path(tmp_path, 1)
    whole = segment.pack_segment_header(HEADER)
    for data, why in ((b"", "ends in its own header"), (bytes(200), "not a segment"), (whole[:-1] + b"?", "checksum")):
        path.write_bytes(data)
        with pytest.raises(LogCorrupt, match=why):
            segment.read_segment_header(path)
