"""From a directory as a crash left it to a log that can be written to.

Only the end of the last segment may be mended, and only by taking away what was never acknowledged; whether it may be
is decided by the table in ``verdict``, from what is seen here. Doing it twice, or being killed in the middle, ends in
the same log: what is cut was copied and fsynced before.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from syncbrok.log import blank, files, segment, watermark
from syncbrok.log.codec import Buffer, Corrupt, Decoded, Header, Incomplete, Kind, read_header
from syncbrok.log.layout import HEADER_BYTES, MAGIC
from syncbrok.log.segment import SEGMENT_HEADER_BYTES, SegmentHeader, SegmentInfo, corrupt_error
from syncbrok.log.verdict import NO_SEAL, Signs, Verdict, judge
from syncbrok.log.watermark import Mark
from syncbrok.model.errors import LogCorrupt
from syncbrok.model.facts import Gap

_UNFINISHED = (blank.NAME, f"{watermark.NAME}.tmp", "*.broken.tmp")
_MAGIC_BYTES = MAGIC.to_bytes(4, "little")


class Scan(NamedTuple):
    """What stands in a segment. ``records`` of them, up to ``end``, belong to whole units and are whole themselves;
    ``last`` is the sequence of the last of them and ``crc`` the CRC of all their bytes. ``bad`` is where the whole
    records end, ``problem`` what stands there."""

    header: SegmentHeader
    signs: Signs
    end: int
    records: int
    last: int
    batch: int
    crc: int
    first_time_us: int
    last_time_us: int
    bad: int
    problem: str
    size: int


class Active(NamedTuple):
    """The last segment, not sealed, as ``segment.ActiveSegment`` wants it."""

    info: SegmentInfo
    crc: int


class RecoveryReport(NamedTuple):
    """What was found and done at the start. ``clean``: the log was closed in good order. ``cut_bytes`` of a torn tail
    were saved in ``broken`` and cut, from sequence ``cut_from`` on (0: nothing). ``rewritten_bytes`` were on no
    watermark and were written again."""

    clean: bool
    segments: int
    records: int
    cut_bytes: int
    cut_from: int
    broken: Path | None
    rewritten_bytes: int
    seconds: float


class Recovered(NamedTuple):
    """A log that can be written to. ``header`` is that of the last segment, None for an empty log; ``active`` is None
    where the last segment is sealed; ``durable`` is the last sequence, ``batch`` the number of the last write."""

    header: SegmentHeader | None
    sealed: tuple[SegmentInfo, ...]
    leftovers: tuple[Path, ...]
    active: Active | None
    durable: int
    batch: int
    mark: Mark | None
    report: RecoveryReport


Progress = Callable[[int, int], None]


def recover(directory: Path, progress: Progress | None = None) -> Recovered:
    """Make the log in ``directory`` (whose lock is held) whole. Raises ``LogCorrupt``, ``LogFull``, ``LogFailed``."""
    started_s = time.monotonic()
    for name in _UNFINISHED:
        for leftover in directory.glob(name):
            leftover.unlink()
    mark = watermark.read(directory)
    oldest = mark.oldest if mark else 0
    paths = [segment.segment_path(directory, base) for base in segment.segment_bases(directory)]
    leftovers = tuple(path for path in paths if int(path.stem) < oldest)
    paths = [path for path in paths if int(path.stem) >= oldest]
    if not paths:
        if mark and mark.durable:
            raise LogCorrupt(f"{directory} has a watermark but no segment; restore the segments, or remove it all")
        return Recovered(None, (), leftovers, None, 0, 0, mark, RecoveryReport(True, 0, 0, 0, 0, None, 0, 0.0))
    sealed = _check_sealed(paths[:-1], oldest or None, progress)
    scan = _scan_last(paths[-1], sealed, mark)
    row = judge(scan.signs)
    if row.verdict is Verdict.CORRUPT:
        raise corrupt_error(paths[-1], scan.bad, scan.last + 1, None, f"{row.why} ({scan.problem})")
    broken = _cut(paths[-1], scan) if scan.end < scan.size and row.verdict is not Verdict.CLEAN else None
    clean = bool(mark and mark.clean and mark.durable == scan.last and row.verdict is not Verdict.TORN)
    rewritten = 0 if clean else _write_again(paths[-1], scan, mark)
    report = RecoveryReport(
        clean,
        len(paths),
        scan.records,
        broken.stat().st_size if broken else 0,
        scan.last + 1 if broken else 0,
        broken,
        rewritten,
        time.monotonic() - started_s,
    )
    info = SegmentInfo(
        scan.header.base,
        scan.last,
        scan.end,
        scan.records,
        scan.first_time_us,
        scan.last_time_us,
        row.verdict is Verdict.SEALED,
        paths[-1],
    )
    if row.verdict is Verdict.SEALED:
        return Recovered(scan.header, (*sealed, info), leftovers, None, scan.last, scan.batch, mark, report)
    return Recovered(scan.header, sealed, leftovers, Active(info, scan.crc), scan.last, scan.batch, mark, report)


def _check_sealed(paths: list[Path], oldest: int | None, progress: Progress | None) -> tuple[SegmentInfo, ...]:
    """The sealed segments, each of the same log and where the one before it ends."""
    found: list[SegmentInfo] = []
    for number, path in enumerate(paths):
        header = segment.read_segment_header(path)
        seal = segment.read_seal(path)
        if seal is None:
            raise corrupt_error(path, path.stat().st_size, header.base, None, NO_SEAL.why)
        info = segment.info_of_sealed(path, seal)
        if number == 0 and oldest is not None and header.base != oldest:
            raise corrupt_error(path, 0, oldest, header.base - 1, "segments before this one are missing")
        if found:
            _check_follows(path, header, found[-1])
        found.append(info)
        if progress:
            progress(number + 1, len(paths) + 1)
    return tuple(found)


def _check_follows(path: Path, header: SegmentHeader, before: SegmentInfo) -> None:
    expected = before.last + 1
    if header.base != expected and not _gap_before(path, expected, header.base):
        why = "segments before this one are missing" if header.base > expected else "the segment overlaps another"
        raise corrupt_error(path, 0, min(expected, header.base), max(expected, header.base) - 1, why)
    first = segment.read_segment_header(before.path)
    if (first.uuid, first.id_key) != (header.uuid, header.id_key):
        raise corrupt_error(path, 0, header.base, None, "the segment belongs to another log")


def _gap_before(path: Path, first: int, base: int) -> bool:
    """Whether the record after the snapshot says that salvage could not recover ``first`` to ``base`` - 1."""
    for number, place in enumerate(segment.read_records(path, content=False)):
        if number == 1 or not isinstance(place.what, Decoded):
            fact = place.what.fact if isinstance(place.what, Decoded) else None
            return isinstance(fact, Gap) and fact.first <= first and fact.last >= base - 1
    return False


# -- the last segment -------------------------------------------------------------------------------------------------


def _scan_last(path: Path, sealed: tuple[SegmentInfo, ...], mark: Mark | None) -> Scan:
    header = segment.read_segment_header(path)
    if sealed:
        _check_follows(path, header, sealed[-1])
    elif mark and mark.oldest and header.base != mark.oldest:
        raise corrupt_error(path, 0, mark.oldest, header.base - 1, "segments before this one are missing")
    if mark and mark.uuid != header.uuid:
        raise corrupt_error(path, 0, header.base, None, "the watermark belongs to another log")
    return scan_segment(segment.read_segment(path), header, mark.durable if mark else 0, last=True)


def scan_segment(data: bytes, header: SegmentHeader, durable: int, *, last: bool) -> Scan:
    """Look at every record of a segment's bytes. ``durable``: what the watermark vouches for."""
    at = kept = SEGMENT_HEADER_BYTES
    sequence, batch, records = header.base - 1, 0, 0
    kept_sequence, kept_records, kept_time_us, kept_batch = sequence, 0, 0, 0
    first_time_us = 0
    sealed = False
    while True:
        found = _whole_record(data, at, sequence + 1, batch)
        if isinstance(found, str) or sealed:
            break
        at += HEADER_BYTES + found.body_bytes
        sequence, batch, records = found.sequence, found.batch, records + 1
        first_time_us = first_time_us or found.time_us
        if found.ends_unit:
            kept, kept_sequence, kept_records, kept_time_us, kept_batch = at, sequence, records, found.time_us, batch
            sealed = found.kind == Kind.SEGMENT_SEALED
    problem = found if isinstance(found, str) else "a record"
    blank = data.count(0, at) == len(data) - at
    synced = 0 if blank else _synced_behind(data, at, sequence, batch)
    vouched = max(durable, header.base)
    signs = Signs(
        last=last,
        sealed=sealed,
        blank=blank,
        half_unit=kept != at,
        vouched=kept_sequence < vouched,
        follows=synced is not None and not blank,
        covered=not blank and synced is not None and synced > kept_sequence,
    )
    crc = crc32c(memoryview(data)[SEGMENT_HEADER_BYTES:kept])
    return Scan(
        header, signs, kept, kept_records, kept_sequence, kept_batch, crc, first_time_us, kept_time_us, at, problem,
        len(data),
    )  # fmt: skip


def _whole_record(data: Buffer, at: int, sequence: int, batch: int) -> Header | str:
    """The header of a whole record that may stand at ``at``, or what is wrong with it."""
    header = read_header(data, at)
    match header:
        case Incomplete():
            return "the file ends"
        case Corrupt(why=why):
            return why
    end = at + HEADER_BYTES + header.body_bytes
    if end > len(data):
        return "the file ends in the record's body"
    body = data[at + HEADER_BYTES : end]
    if crc32c(body) != header.body_crc:
        return "the body's checksum does not fit"
    if header.batch < batch:
        return f"a record of batch {header.batch} after one of batch {batch}"
    if header.sequence != sequence and not (header.kind == Kind.GAP and header.sequence > sequence):
        return f"a record of sequence {header.sequence} where {sequence} belongs"
    return header


def _synced_behind(data: bytes, bad: int, sequence: int, batch: int) -> int | None:
    """The greatest ``synced_through`` of the valid records of later batches behind the damage at ``bad``; None where
    there is none. Where the damaged record's own header is whole its body is passed over: a message may contain
    anything, a piece of a log too."""
    at = bad + 1
    own = read_header(data, bad)
    if isinstance(own, Header) and own.sequence == sequence + 1:
        at = bad + own.record_bytes
    greatest: int | None = None
    while (at := data.find(_MAGIC_BYTES, at)) >= 0:
        found = read_header(data, at)
        if (
            isinstance(found, Header)
            and found.sequence > sequence
            and found.batch >= batch
            and crc32c(data[at + HEADER_BYTES : at + found.record_bytes]) == found.body_crc
        ):
            greatest = max(greatest or 0, found.synced_through)
            at += found.record_bytes
        else:
            at += 1
    return greatest


# -- mending ----------------------------------------------------------------------------------------------------------


def _cut(path: Path, scan: Scan) -> Path | None:
    """Save what stands behind the whole units, then cut it off and give the segment its room again. None: only zeros
    stood there."""
    tail = segment.read_segment(path, scan.end).rstrip(b"\0")
    broken = None
    if tail:
        broken = path.with_name(f"{path.name}.{scan.end}.broken")
        number = 1
        while broken.exists() and broken.read_bytes() != tail:
            number += 1
            broken = path.with_name(f"{path.name}.{scan.end}-{number}.broken")
        files.replace_file(broken, tail)
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.ftruncate(descriptor, scan.end)
        if not scan.signs.sealed:
            files.give_room(descriptor, scan.size)
        os.fsync(descriptor)
    except OSError as problem:
        raise files.write_problem(problem, path) from problem
    finally:
        os.close(descriptor)
    return broken


def _write_again(path: Path, scan: Scan, mark: Mark | None) -> int:
    """Write the records again that the watermark does not vouch for: after an error of the disk the cache may hold
    what the disk does not, and reading it proves nothing. How many bytes that were."""
    start = mark.offset if mark and mark.base == scan.header.base else SEGMENT_HEADER_BYTES
    data = segment.read_segment(path, start, scan.end)
    descriptor = os.open(path, os.O_RDWR)
    try:
        files.write_at(descriptor, data, start, path)
        files.sync(descriptor, path)
    finally:
        os.close(descriptor)
    return len(data)
