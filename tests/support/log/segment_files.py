"""A story as the files of a log, byte for byte as the broker writes them, and ways to damage them."""

from collections.abc import Collection, Iterator
from pathlib import Path

from crc32c import crc32c

from syncbrok.log.format import codec
from syncbrok.log.format.codec import Decoded
from syncbrok.log.format.records import SegmentOpened, SegmentSealed
from syncbrok.log.index import sidecar
from syncbrok.log.index.segment_index import SegmentIndex
from syncbrok.log.segments import segment
from syncbrok.log.segments.segment import SEGMENT_HEADER_BYTES, SegmentHeader
from syncbrok.log.segments.watermark import Mark, Watermark
from syncbrok.model import limits
from syncbrok.model.facts import Fact
from tests.support.log.story import ID_KEY, START_US, Story

UUID = bytes(range(100, 116))


def write_log(
    directory: Path,
    story: Story,
    *,
    not_ends: Collection[int] = (),
    blank_bytes: int = 4_096,
    checksums_every: int = limits.checksums_every,
) -> list[Path]:
    """The story's segments (each begins with a ``SegmentOpened``), sidecars and watermark; their paths. Records of one
    batch are those of one unit; ``not_ends`` are the sequences that do not end theirs. An unsealed last segment gets
    ``blank_bytes`` zeros behind it."""
    directory.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    batch, offset = 0, 0
    for facts in _segments(story.facts):
        base = facts[0].sequence
        path = segment.segment_path(directory, base)
        header = segment.pack_segment_header(SegmentHeader(UUID, ID_KEY, base, START_US))
        data = b""
        for number, fact in enumerate(facts):
            ends_unit = fact.sequence not in not_ends
            if isinstance(fact, SegmentSealed):
                fact = fact._replace(records=number, crc=crc32c(data))
            data += codec.encode(fact, batch=batch, synced_through=facts[0].sequence - 1, ends_unit=ends_unit)
            batch += ends_unit
        sealed = isinstance(facts[-1], SegmentSealed)
        path.write_bytes(header + data + bytes(0 if sealed else blank_bytes))
        if sealed:
            write_sidecar(path, checksums_every)
        offset = len(header + data)
        paths.append(path)
    mark = Watermark(directory)
    bases = [int(path.stem) for path in paths]
    last = story.facts[-1].sequence
    mark.save(Mark(UUID, last, bases[-1], offset, START_US, bases[0], clean=True))
    mark.close()
    return paths


def write_sidecar(path: Path, checksums_every: int = limits.checksums_every) -> None:
    seal = segment.read_seal(path)
    assert seal is not None
    data = path.read_bytes()
    index = SegmentIndex.build(data, SEGMENT_HEADER_BYTES, len(data), int(path.stem), checksums_every=checksums_every)
    sidecar.write(path.parent, index, sidecar.Sealed(UUID, index.base, len(data), seal[1].crc))


def _segments(facts: list[Fact]) -> Iterator[list[Fact]]:
    starts = [number for number, fact in enumerate(facts) if isinstance(fact, SegmentOpened)]
    assert starts[0] == 0, "a log begins with a snapshot"
    for start, end in zip(starts, [*starts[1:], len(facts)], strict=True):
        yield facts[start:end]


def offsets(path: Path) -> dict[int, int]:
    """Where the record of each sequence begins."""
    return {
        place.what.fact.sequence: place.offset
        for place in segment.read_records(path)
        if isinstance(place.what, Decoded)
    }


def flip(path: Path, offset: int, mask: int = 0x20) -> None:
    """Change bits of one byte."""
    data = bytearray(path.read_bytes())
    data[offset] ^= mask
    path.write_bytes(data)


def facts_in(directory: Path) -> list[Fact]:
    """Every fact of a log whose files are whole."""
    paths = [segment.segment_path(directory, base) for base in segment.segment_bases(directory)]
    places = [place for path in paths for place in segment.read_records(path)]
    return [place.what.fact for place in places if isinstance(place.what, Decoded)]
