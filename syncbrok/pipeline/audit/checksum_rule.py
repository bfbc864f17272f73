"""Rule ``checksum``: every byte of the log is as it was written. One pass over the segments, spread over the workers,
which read the files, or ask the broker for them. Damage is reported by file and offset and does not end the audit.

A sealed segment is compared with its seal as a whole, which costs next to nothing; only where that does not fit are its
records checked one by one. Of the active segment the part below the watermark is checked.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import SparkSession

from syncbrok.log.format.codec import Corrupt, Decoded, decode, walk_verified
from syncbrok.log.format.records import SegmentSealed
from syncbrok.log.recovery.evidence import UNKNOWN_BEGINNING, UNKNOWN_END
from syncbrok.log.segments import watermark
from syncbrok.log.segments.scan import UnreadableBytes, scan, span_of
from syncbrok.log.segments.segment import (
    SEAL_BYTES,
    SEGMENT_HEADER_BYTES,
    read_sealed,
    scrub_bytes,
    segment_bases,
    segment_path,
    unpack_segment_header,
)
from syncbrok.model.errors import LogCorrupt
from syncbrok.model.names import SEQUENCE_MAX
from syncbrok.pipeline.audit.rules import AuditFinding
from syncbrok.pipeline.broker_log import BrokerLog, SegmentDropped
from syncbrok.pipeline.log_place import LogDirectory, LogPlace
from syncbrok.pipeline.log_snapshot import place_of

_DAMAGES_MAX: Final = 100
"""named of one segment"""


class SegmentToCheck(NamedTuple):
    """A segment to look at. ``below``: the base of the next one; ``durable_bytes``: how far it is known to be on the
    disk, where it is the last."""

    place: LogPlace
    base: int
    below: int
    durable_bytes: int


class CheckedSegment(NamedTuple):
    """The result for one segment: the last sequence in it (0: gone meanwhile, or not known), its bytes, and what is
    wrong."""

    base: int
    last: int
    bytes: int
    wrong: list[AuditFinding]


class ChecksumResult(NamedTuple):
    segments: int
    bytes: int
    violations: list[AuditFinding]


def checked(spark: SparkSession, storage: Path | BrokerLog) -> ChecksumResult:
    """Check every segment in ``storage``, a directory that all workers must see or a broker that they can reach: how
    many there are, their bytes, and the findings. The driver gets some 100 bytes for each segment, and of a damaged one
    at most ``_DAMAGES_MAX`` findings."""
    wrong: list[AuditFinding] = []
    place = place_of(storage)
    mark = None
    try:
        mark, bases = _listed(place) if isinstance(place, BrokerLog) else _there(Path(place.directory))
    except LogCorrupt as problem:
        wrong.append(AuditFinding("checksum", 0, 0, 0, problem.detail))
        bases = segment_bases(Path(str(place)))
    tasks = [
        SegmentToCheck(place, base, below, mark.offset if mark and mark.base == base else 0)
        for base, below in zip(bases, [*bases[1:], SEQUENCE_MAX], strict=True)
    ]
    context = spark.sparkContext
    partitions = max(1, min(len(tasks), context.defaultParallelism * 4))
    seen = sorted(context.parallelize(tasks, partitions).mapPartitions(_check_all).collect()) if tasks else []
    wrong += [one for segment in seen for one in segment.wrong]
    wrong += missing([one for one in seen if one.bytes], mark)
    return ChecksumResult(len(seen), sum(one.bytes for one in seen), wrong)


def _there(directory: Path) -> tuple[watermark.Mark | None, list[int]]:
    return watermark.read(directory), segment_bases(directory)


def _listed(place: BrokerLog) -> tuple[watermark.Mark | None, list[int]]:
    """As the watermark beside the files would say it."""
    log = place.listed()
    if not log.segments:
        return None, []
    oldest, last = log.segments[0].first, log.segments[-1]
    mark = watermark.Mark(log.uuid, log.durable, last.first, last.bytes, 0, oldest, clean=False)
    return mark, [one.first for one in log.segments]


def _read(place: LogPlace, base: int, bytes_min: int) -> bytes:
    """The segment as it is now: read, not mapped, since the broker may cut the file it writes to while it is looked at.
    Raises ``FileNotFoundError`` and ``LogUnreachable``."""
    path = segment_path(Path(str(place)), base)
    if isinstance(place, LogDirectory):
        return read_sealed(path)
    found = place.open(path.name, base, bytes_min)
    if found is None:
        raise FileNotFoundError(path)
    with closing(found):
        try:
            return found.read(found.size, 0)
        except SegmentDropped:
            raise FileNotFoundError(path) from None


def _check_all(tasks: Iterable[SegmentToCheck]) -> Iterator[CheckedSegment]:
    return map(check, tasks)


def check(task: SegmentToCheck) -> CheckedSegment:
    """Check one segment. Pure but for reading its file."""
    path = segment_path(Path(str(task.place)), task.base)
    try:
        data = _read(task.place, task.base, task.durable_bytes)
    except FileNotFoundError:
        return CheckedSegment(task.base, 0, 0, [])  # retention took it meanwhile
    header = unpack_segment_header(data)
    if isinstance(header, Corrupt):
        return CheckedSegment(task.base, 0, len(data), [_finding(path, 0, task.base, header.why)])
    if header.base != task.base:
        why = f"by its header this is the segment of sequence {header.base}"
        return CheckedSegment(task.base, 0, len(data), [_finding(path, 0, task.base, why)])
    if _is_sealed(data) or task.below != SEQUENCE_MAX:
        damage = scrub_bytes(data)
        end = len(data)
    else:
        places, end = walk_verified(data, SEGMENT_HEADER_BYTES, len(data))
        damage = Corrupt(end, "") if end < task.durable_bytes else None
        end = task.durable_bytes if damage else end
        del places
    if damage is None:
        return CheckedSegment(task.base, _last(data, end), len(data), [])
    wrong = _damages(path, data[:end], task)
    return CheckedSegment(task.base, 0, len(data), wrong or [_finding(path, damage.offset, task.base, damage.why)])


def _is_sealed(data: bytes) -> bool:
    end = len(data) - SEAL_BYTES
    seal = decode(data, end) if end >= SEGMENT_HEADER_BYTES else None
    return isinstance(seal, Decoded) and isinstance(seal.fact, SegmentSealed)


def _last(data: bytes, end: int) -> int:
    """The last sequence of a whole sealed segment: its seal says it; 0 for the one that is written to."""
    if not _is_sealed(data):
        return 0
    seal = decode(data, end - SEAL_BYTES)
    return seal.fact.sequence if isinstance(seal, Decoded) else 0


def _damages(path: Path, data: bytes, task: SegmentToCheck) -> list[AuditFinding]:
    found: list[AuditFinding] = []
    last = task.base - 1
    for met in scan(memoryview(data), SEGMENT_HEADER_BYTES, last=last, below=task.below):
        if not isinstance(met, UnreadableBytes):
            last = span_of(met.record.fact)[1]
            continue
        found.append(_finding(path, met.offset, met.header.sequence if met.header else last + 1, met.why))
        if len(found) == _DAMAGES_MAX:
            break
    return found


def missing(seen: list[CheckedSegment], mark: watermark.Mark | None) -> list[AuditFinding]:
    """Findings for segments that must be there and are not. ``mark`` None: the watermark is gone or cannot be read."""
    found: list[AuditFinding] = []
    if mark is not None and seen and seen[0].base > mark.oldest:
        what = f"the segments of sequences {mark.oldest} to {seen[0].base - 1} are missing before it"
        found.append(AuditFinding("checksum", seen[0].base, 0, 0, what))
    if mark is None and seen and seen[0].base > 1:
        found.append(AuditFinding("checksum", seen[0].base, 0, 0, UNKNOWN_BEGINNING))
    if mark is None and seen and seen[-1].last:
        found.append(AuditFinding("checksum", seen[-1].last, 0, 0, UNKNOWN_END))
    for one, following in pairwise(seen):
        if one.last and one.last != following.base - 1:
            what = f"the segments of sequences {one.last + 1} to {following.base - 1} are missing before it"
            found.append(AuditFinding("checksum", following.base, 0, 0, what))
    if mark is not None and seen and seen[-1].base < mark.base:
        what = f"the log was on the disk up to sequence {mark.durable}, but its segment {mark.base} is not there"
        found.append(AuditFinding("checksum", mark.base, 0, 0, what))
    return found


def _finding(path: Path, offset: int, sequence: int, why: str) -> AuditFinding:
    return AuditFinding("checksum", sequence, 0, 0, f"{path.name} at offset {offset}: {why}")
