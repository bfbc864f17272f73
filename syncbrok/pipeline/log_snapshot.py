"""Takes a snapshot of a log for readers: which segments there are, how far they may be read, and how they
are split for tasks. No Spark.

A log goes on changing while it is read: a broker appends to the last segment, seals it and begins the next; retention
takes segments away at the other end. A reader gets what was known to be durable at the moment of the snapshot, in whole
units: up to the watermark, or further where a later valid record says so by its ``synced_through`` (the watermark is
saved once a second, that is written with every batch). Bytes behind that are not read: they may be a write under way,
or one that a crash cut short. Damage before it is corruption, as it is for recovery (``log.recovery.recovery_table``).
Over the network the broker says itself what is durable.
"""

import os
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import numpy as np

from syncbrok.client.paths import split_urls
from syncbrok.log.format.codec import Header, Kind, gather, read_header, walk_verified
from syncbrok.log.format.layout import UNIT_END
from syncbrok.log.recovery import rotten_ends
from syncbrok.log.recovery.recovery_table import NO_SEAL
from syncbrok.log.segments import files, segment, watermark
from syncbrok.log.segments.scan import FoundRecord, scan
from syncbrok.log.segments.segment import SEGMENT_HEADER_BYTES, SegmentHeader, corrupt_error
from syncbrok.log.segments.watermark import Mark
from syncbrok.model import limits
from syncbrok.model.errors import BadSetting, LogCorrupt
from syncbrok.pipeline.broker_log import BrokerLog, ListedLog, broker_log
from syncbrok.pipeline.log_place import LogDirectory, LogPlace

_SNAPSHOTS_MAX = 20
"""Retention may take a segment away while a snapshot is taken; then it is begun again."""
_BLOCK_BYTES = 4 * limits.MIB
_NO_TIME_US = 1 << 62
"""the time of the last record where more may follow: later than any"""


Place = BrokerLog | LogDirectory


class SegmentSnapshot(NamedTuple):
    """A segment in a snapshot, by its name ``path`` in ``place``. ``last`` is the last sequence that may be read and
    ``end`` the offset at which that record ends. A ``sealed`` one never changes; ``crc`` and ``records`` are what its
    seal says, else 0."""

    path: str
    base: int
    last: int
    end: int
    sealed: bool
    crc: int
    records: int
    first_time_us: int
    last_time_us: int
    place: LogPlace


class LogSnapshot(NamedTuple):
    """A log at one moment. ``segments`` follow each other without a gap; a log that was never written to has none.
    ``oldest``: its first sequence. ``durable``: the last one that may be read."""

    place: LogPlace
    uuid: bytes
    oldest: int
    durable: int
    segments: tuple[SegmentSnapshot, ...]


def directory_of(path: str) -> Path:
    """The directory that a path or a ``file:`` URL names. Raises ``BadSetting`` where there is none."""
    plain = path.removeprefix("file:")
    directory = Path("/" + plain.lstrip("/") if plain != path else plain)
    if not directory.is_dir():
        raise BadSetting(
            f"{path} is no directory; give the broker's storage directory, where the files *.log and watermark are",
            path=path,
        )
    return directory


def place_at(path: str, token: str | None = None, ca: str | None = None, **times: float) -> Place:
    """The place that a path or URL names, a directory or a broker; the others are for a broker, see ``broker_log``.
    Raises ``BadSetting`` for a URL that is none; whether the log is there is found out when it is looked at."""
    return broker_log(path, token, ca, **times) if is_url(path) else LogDirectory(path)


def place_of(given: Path | str | Place) -> Place:
    """As ``place_at``, of a place too."""
    return place_at(str(given)) if isinstance(given, Path | str) else given


def is_url(path: str) -> bool:
    """Whether it names a broker."""
    return path.partition(":")[0].lower() in ("http", "https")


def take_snapshot(place: Place | Path, before: LogSnapshot | None = None, through: int = 0) -> LogSnapshot:
    """The log in ``place`` now. ``before``: an earlier snapshot, whose sealed segments need not be opened again.
    ``through``: a sequence that was seen to be durable, elsewhere in the cluster it may be (``BrokerLog.listed``).
    Raises ``LogCorrupt`` naming file, offset and sequences, ``BadSetting`` where no log is, and ``LogUnreachable``."""
    if isinstance(place, BrokerLog):
        return _listed(place, place.listed(patient=before is not None, through=through), before)
    directory = directory_of(str(place))
    for attempt in range(_SNAPSHOTS_MAX):
        mark = watermark.read(directory)
        bases = [base for base in segment.segment_bases(directory) if mark is None or base >= mark.oldest]
        try:
            return _snapshot(directory, bases, mark, before)
        except (FileNotFoundError, LogCorrupt):
            now = watermark.read(directory)
            moved = (now.oldest if now else 0) != (mark.oldest if mark else 0)
            if not moved or attempt == _SNAPSHOTS_MAX - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def _snapshot(directory: Path, bases: list[int], mark: Mark | None, before: LogSnapshot | None) -> LogSnapshot:
    place = LogDirectory(str(directory))
    if not bases:
        if mark and mark.durable:
            raise LogCorrupt(f"{directory} has a watermark but no segment; restore the segments from a backup")
        if mark is None:
            raise BadSetting(f"{directory} holds no log: no segment (*.log) and no watermark", path=str(directory))
        return LogSnapshot(place, mark.uuid, 1, 0, ())
    last_path = segment.segment_path(directory, bases[-1])
    last_header = segment.read_segment_header(last_path)
    uuid = mark.uuid if mark else last_header.uuid
    if before and before.uuid != uuid:
        before = None  # another log was begun in the same place
    known = {one.base: one for one in before.segments if one.sealed} if before else {}
    found: list[SegmentSnapshot] = []
    for base, following in pairwise(bases):
        one = known.get(base)
        if one is None:
            path = segment.segment_path(directory, base)
            one = _sealed(path, rotten_ends.segment_header(path, last_header), uuid, following)
        _check_follows(one, found[-1] if found else None, mark)
        found.append(one)
    _check_log(last_path, last_header, uuid)
    last = _last(last_path, last_header, mark, before)
    _check_follows(last, found[-1] if found else None, mark)
    if mark and mark.base > last.base:
        raise corrupt_error(last_path, last.end, last.last + 1, mark.durable, "segments after this one are missing")
    return LogSnapshot(place, uuid, bases[0], last.last, (*found, last))


def _sealed(path: Path, header: SegmentHeader, uuid: bytes, following: int) -> SegmentSnapshot:
    """The snapshot of a sealed segment. ``following``: the base of the next one."""
    _check_log(path, header, uuid)
    info = rotten_ends.sealed_info(path, header, following)
    if info is None:
        raise corrupt_error(path, path.stat().st_size, header.base, None, NO_SEAL.why)
    seal = segment.read_seal(path)
    crc = seal[1].crc if seal is not None else 0  # it has rotted: nothing fits then, and every record is looked at
    times_us = (info.first_time_us, info.last_time_us)
    place = LogDirectory(str(path.parent))
    return SegmentSnapshot(str(path), info.base, info.last, info.bytes, True, crc, info.records, *times_us, place)


def _check_log(path: Path, header: SegmentHeader, uuid: bytes) -> None:
    if header.uuid != uuid:
        raise corrupt_error(path, 0, header.base, None, "the segment belongs to another log")


def _check_follows(one: SegmentSnapshot, before: SegmentSnapshot | None, mark: Mark | None) -> None:
    expected = before.last + 1 if before else mark.oldest if mark and mark.oldest else one.base
    if one.base != expected:
        why = "segments before this one are missing" if one.base > expected else "the segment overlaps another"
        first, last = min(expected, one.base), max(expected, one.base) - 1
        raise corrupt_error(Path(one.path), 0, first, last, why)


# -- over the network --------------------------------------------------------------------------------------------------


def _listed(place: BrokerLog, log: ListedLog, before: LogSnapshot | None) -> LogSnapshot:
    if before and before.uuid == log.uuid and log.durable < before.durable:
        return before  # another node of the cluster, which is a moment behind
    host = urlsplit(split_urls(place.url)[0]).netloc
    found: list[SegmentSnapshot] = []
    for one in log.segments:
        last_us = _NO_TIME_US if one.last_time_us is None else one.last_time_us
        known = (one.bytes, one.sealed, one.crc, one.records, one.first_time_us, last_us)
        new = SegmentSnapshot(f"{host}/{one.name}", one.first, one.last, *known, place)
        if found:
            _check_follows(new, found[-1], None)
        found.append(new)
    return LogSnapshot(place, log.uuid, found[0].base if found else 1, log.durable, tuple(found))


# -- the segment that may still be written to --------------------------------------------------------------------------


class _Tail(NamedTuple):
    """The last record that may be read is ``last``, which ends at ``end``. Behind it whole records were found up to
    ``at`` (from ``end`` of the tail before), the last of them ``whole``."""

    last: int
    end: int
    at: int = 0
    whole: int = 0


def _last(path: Path, header: SegmentHeader, mark: Mark | None, before: LogSnapshot | None) -> SegmentSnapshot:
    """The last segment, up to where it is known to be on the disk."""
    base = header.base
    with path.open("rb") as file:
        descriptor = file.fileno()
        size = os.fstat(descriptor).st_size
        first = read_header(files.read_at(descriptor, 2 * segment.SEAL_BYTES, SEGMENT_HEADER_BYTES))
        if not isinstance(first, Header) or first.kind != Kind.SEGMENT_OPENED or first.sequence != base:
            raise corrupt_error(path, SEGMENT_HEADER_BYTES, base, base, "the segment does not begin with its snapshot")
        # A segment is on the disk with its first record before it gets its name.
        start = _Tail(base, SEGMENT_HEADER_BYTES + first.record_bytes)
        if mark and mark.base == base and mark.durable > base:
            start = _Tail(mark.durable, mark.offset)
        seen = before.segments[-1] if before and before.segments else None
        if seen and seen.base == base and seen.last > start.last:
            start = _Tail(seen.last, seen.end)
        if start.end > size:
            raise corrupt_error(path, size, base, start.last, "the file ends before records that were on the disk")
        tail = _read_tail(path, descriptor, start)
    place = LogDirectory(str(path.parent))
    return SegmentSnapshot(str(path), base, tail.last, tail.end, False, 0, 0, first.time_us, _NO_TIME_US, place)


def _read_tail(path: Path, descriptor: int, start: _Tail) -> _Tail:
    """The tail that may be read, from ``start`` on: as far as later records vouch for what stands before them."""
    data = _read_written(descriptor, start.end)
    found = _vouched(data, start)
    if found.at < len(data) and data.count(0, found.at) != len(data) - found.at:
        # Either a write that is going on (what was read first may be older than what was read last), or damage: the
        # bytes before a batch stood when it was written, so reading them again settles it.
        data = _read_written(descriptor, start.end)
        found = _vouched(data, start)
        _check_not_covered(path, memoryview(data)[found.at :], found, start)
    return found


def _read_written(descriptor: int, start: int) -> bytes:
    """The bytes of a file from ``start`` on, up to a block of nothing but zeros."""
    blocks: list[bytes] = []
    while block := files.read_at(descriptor, _BLOCK_BYTES, start + len(blocks) * _BLOCK_BYTES):
        blocks.append(block)
        if len(block) < _BLOCK_BYTES or block.count(0) == len(block):
            break
    return b"".join(blocks)


def _vouched(data: bytes, start: _Tail) -> _Tail:
    offsets, at = walk_verified(data, 0, len(data))
    heads = gather(data, offsets)
    sequences = heads["sequence"].astype(np.int64)
    fits = (np.diff(sequences, prepend=start.last) == 1) | (heads["kind"] == Kind.GAP)
    if not fits.all():
        good = int(np.argmin(fits))
        at = int(offsets[good])
        heads, sequences, offsets = heads[:good], sequences[:good], offsets[:good]
    nothing = start._replace(at=at, whole=int(sequences[-1]) if len(offsets) else start.last)
    if not len(offsets):
        return nothing
    known = np.flatnonzero((sequences <= int(heads["synced_through"].max())) & ((heads["flags"] & UNIT_END) != 0))
    if not len(known):
        return nothing
    place = int(known[-1])
    end = int(offsets[place + 1]) if place + 1 < len(offsets) else at
    return nothing._replace(last=int(sequences[place]), end=start.end + end)


def _check_not_covered(path: Path, view: memoryview, found: _Tail, start: _Tail) -> None:
    """Raise where a later valid record says that the damaged one was on the disk: a torn tail has none behind it."""
    for place in scan(view, 0, last=found.whole, below=1 << 62):
        if isinstance(place, FoundRecord) and place.record.header.synced_through > found.whole:
            why = "a record is damaged that was whole when a later one was written"
            raise corrupt_error(path, start.end + found.at, found.whole + 1, None, why)


# -- sharing out -------------------------------------------------------------------------------------------------------

SPLIT_BYTES_MIN = 16 * limits.MIB
"""A task costs as long as decoding so much."""
PARTITION_BYTES = 512 * limits.MIB


class SegmentSlice(NamedTuple):
    """A part of a segment to read: the records with sequences from ``first`` to ``last``. ``hint``: (sequence, offset)
    of a record at or before ``first``, where the reader begins to look; it is not trusted."""

    segment: SegmentSnapshot
    first: int
    last: int
    hint: tuple[int, int] | None = None

    @property
    def bytes(self) -> int:
        """The bytes of the slice, about."""
        one = self.segment
        return int(one.end * (self.last - self.first + 1) / max(1, one.last - one.base + 1))


def slices(log: LogSnapshot, first: int = 0, last: int | None = None) -> list[SegmentSlice]:
    """The slices with the records from sequence ``first`` to ``last`` (None: to the end of what may be read)."""
    until = log.durable if last is None else min(last, log.durable)
    return [
        SegmentSlice(one, max(first, one.base), min(until, one.last))
        for one in log.segments
        if one.last >= first and one.base <= until
    ]


def share_out(parts: Iterable[SegmentSlice], target_bytes: int, least: int) -> list[list[SegmentSlice]]:
    """Partitions of slices, in order, of about ``target_bytes`` each; at least ``least`` of them if there is enough to
    read: then a segment is split, at a record whose offset the sidecar knows. Above ``least`` the number is a multiple
    of it, since ``least`` are read at once: so all cores have work until the end."""
    waiting = [one for one in parts if one.last >= one.first]
    total = sum(one.bytes for one in waiting)
    rounds = max(1, round(total / (least * target_bytes)))
    count = max(1, min(rounds * least, total // min(SPLIT_BYTES_MIN, target_bytes)))
    share, slack = total / count, total / count / 4
    packed: list[list[SegmentSlice]] = [[]]
    at = 0
    for one in waiting:
        while True:
            border = share * len(packed)
            if at + one.bytes <= border + min(slack, one.bytes / 2) or len(packed) == count:
                packed[-1].append(one)
                at += one.bytes
                break
            head, rest = _split(one, border - at) if border - at > slack else (None, one)
            if head is not None:
                packed[-1].append(head)
                at += head.bytes
            packed.append([])
            one = rest
    return [part for part in packed if part]


def _split(one: SegmentSlice, room_bytes: float) -> tuple[SegmentSlice | None, SegmentSlice]:
    """The first ``room_bytes`` or so, and the rest; None where there is no place to split."""
    records = int((one.last - one.first + 1) * room_bytes / max(1, one.bytes))
    border = one.first + records
    border -= (border - one.segment.base) % limits.offsets_every
    if not one.first < border <= one.last:
        return None, one
    return one._replace(last=border - 1), one._replace(first=border)
