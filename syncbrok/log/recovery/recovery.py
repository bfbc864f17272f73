"""Turns a directory as a crash left it into a log that can be written to.

Only the end of the last segment may be mended, and only by cutting off records that were never acknowledged. The table
in ``recovery_table`` decides whether it may, from the facts found here. Doing it twice, or being killed in the middle,
ends in the same log: the cut bytes are copied and fsynced first.
"""

import os
import time
import uuid as uuids
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from syncbrok.log.format import stream
from syncbrok.log.format.codec import UNIT_END, Corrupt, Header, Incomplete, Kind, gather, read_header, walk_verified
from syncbrok.log.format.layout import HEADER_BYTES, MAGIC, NEWEST_VERSION, VERSION
from syncbrok.log.index import sidecar
from syncbrok.log.index.segment_index import SegmentIndex
from syncbrok.log.recovery import rotten_ends
from syncbrok.log.recovery.evidence import UNKNOWN_BEGINNING, UNKNOWN_END, gather_evidence, known_through
from syncbrok.log.recovery.recovery_table import NO_SEAL, REFETCHED, Signs, Verdict, evaluate_signs
from syncbrok.log.segments import checkpoint, files, preallocation, segment, watermark
from syncbrok.log.segments.reserve import Reserve
from syncbrok.log.segments.segment import SEGMENT_HEADER_BYTES, SegmentHeader, SegmentInfo, corrupt_error
from syncbrok.log.segments.watermark import Mark
from syncbrok.model.errors import LogCorrupt, LogDiverged, LogFull
from syncbrok.model.journal import LogIdentity

_UNFINISHED = (
    preallocation.NAME,
    f"{watermark.NAME}.tmp",
    f"{checkpoint.NAME}.tmp",
    "*.idx.tmp",
    "*.broken.tmp",
    "*.log.tmp",
)
_MAGIC_BYTES = MAGIC.to_bytes(4, "little")
_CLOSED = Signs(
    last=True, sealed=False, blank=True, half_unit=False, vouched=False, follows=False, covered=False, later=False
)


class Scan(NamedTuple):
    """The result of reading one segment. ``records`` whole records that belong to whole units end at offset ``end``;
    ``last`` is the sequence of the last of them, ``crc`` the CRC of all their bytes. ``bad`` is the offset where whole
    records end, ``problem`` says what stands there."""

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
    offsets: npt.NDArray[np.int64]
    """where the ``records`` begin"""


class Active(NamedTuple):
    """The last segment, not sealed, as ``segment.ActiveSegment`` wants it, and what is where in it."""

    info: SegmentInfo
    crc: int
    places: SegmentIndex


class RecoveryReport(NamedTuple):
    """The result of a start. ``clean``: the log had been closed in good order. ``cut_bytes`` of a torn tail, from
    sequence ``cut_from`` on, were saved in ``broken`` and cut off (0: none). ``rewritten_bytes`` were above the
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
    where the last segment is sealed; ``durable`` is the last sequence, ``batch`` the number of the last write.
    ``lost_through``: records up to there stood here and were cut off, as far as anything here says; 0: none."""

    header: SegmentHeader | None
    sealed: tuple[SegmentInfo, ...]
    leftovers: tuple[Path, ...]
    active: Active | None
    durable: int
    batch: int
    mark: Mark | None
    report: RecoveryReport
    lost_through: int = 0

    def identity(self, directory: Path, wanted: LogIdentity | None) -> LogIdentity:
        """Its own; of an empty log the wanted one, or a new one. Raises ``LogDiverged``."""
        if self.header is None:
            return wanted or LogIdentity(uuids.uuid4().bytes, os.urandom(16))
        own = LogIdentity(self.header.uuid, self.header.id_key)
        if wanted not in (None, own):
            raise LogDiverged(f"{directory} holds another log than the one that it is to be a copy of")
        return own


Progress = Callable[[int, int], None]
"""(segments looked at, segments in all)"""


def recover(directory: Path, progress: Progress | None = None, *, refetches: bool = False) -> Recovered:
    """Recover the log in ``directory``, whose lock the caller holds. On a full disk the reserve is released for it.
    ``refetches``: others have what is cut off, so a damaged end is. Raises ``LogCorrupt``, ``LogFull``,
    ``LogFailed``."""
    try:
        return _recover(directory, progress, refetches=refetches)
    except LogFull:
        if not Reserve(directory, 0).release():
            raise
        return _recover(directory, progress, refetches=refetches)


def _recover(directory: Path, progress: Progress | None, *, refetches: bool) -> Recovered:
    started_s = time.monotonic()
    for name in _UNFINISHED:
        for leftover in directory.glob(name):
            with files.if_there_is_room():
                leftover.unlink()
    mark = watermark.read(directory)
    oldest = mark.oldest if mark else 0
    paths = [segment.segment_path(directory, base) for base in segment.segment_bases(directory)]
    leftovers = tuple(path for path in paths if int(path.stem) < oldest)
    paths = [path for path in paths if int(path.stem) >= oldest]
    if not paths:
        _check_empty(directory, mark)
        return Recovered(None, (), leftovers, None, 0, 0, mark, RecoveryReport(True, 0, 0, 0, 0, None, 0, 0.0))
    if mark is None and int(paths[0].stem) > 1:
        raise corrupt_error(paths[0], 0, 1, int(paths[0].stem) - 1, UNKNOWN_BEGINNING)
    last = segment.read_segment_header(paths[-1])
    sealed = _check_sealed(paths, last, oldest or None, progress)
    data, scan, index = _scan_last(paths[-1], last, sealed, mark)
    row = evaluate_signs(scan.signs)
    lost_through = 0
    if refetches and row.name in REFETCHED and scan.records:
        known = known_through(gather_evidence(directory, last.base), last.uuid)
        lost_through = max(known, mark.durable if mark else 0, _synced_behind(data, scan.bad, scan.last, 0) or 0)
    elif row.verdict is Verdict.CORRUPT:
        raise corrupt_error(paths[-1], scan.bad, scan.last + 1, None, f"{row.why} ({scan.problem})")
    if row.verdict is Verdict.SEALED and mark is None:
        # A crash cannot leave this: no segment is sealed before there is a watermark (``FileJournal._begin``).
        raise corrupt_error(paths[-1], scan.end, scan.last + 1, None, UNKNOWN_END)
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
    if index is None:
        index = SegmentIndex.build(data, SEGMENT_HEADER_BYTES, scan.end, scan.header.base, scan.offsets)
    active = Active(info, scan.crc, index)
    return Recovered(scan.header, sealed, leftovers, active, scan.last, scan.batch, mark, report, lost_through)


def _check_empty(directory: Path, mark: Mark | None) -> None:
    """A directory without a segment is an empty log only where nothing beside them says that there was one."""
    known = [one.file for one in gather_evidence(directory, 0) if one.through]
    if mark and mark.durable:
        known.insert(0, f"a {watermark.NAME}")
    if known:
        raise LogCorrupt(f"{directory} has {known[0]} but no segment; restore the segments, or remove it all")


def _check_sealed(
    paths: list[Path], last: SegmentHeader, oldest: int | None, progress: Progress | None
) -> tuple[SegmentInfo, ...]:
    """The sealed segments, all but the last of ``paths`` (``last`` is its header), each of the same log and where the
    one before it ends."""
    found: list[SegmentInfo] = []
    for number, path in enumerate(paths[:-1]):
        header = rotten_ends.segment_header(path, last)
        info = rotten_ends.sealed_info(path, header, int(paths[number + 1].stem))
        if info is None:
            raise corrupt_error(path, path.stat().st_size, header.base, None, NO_SEAL.why)
        if number == 0 and oldest is not None and header.base != oldest:
            raise corrupt_error(path, 0, oldest, header.base - 1, "segments before this one are missing")
        if found:
            _check_follows(path, header, found[-1], last)
        found.append(info)
        if progress:
            progress(number + 1, len(paths))
    return tuple(found)


def _check_follows(path: Path, header: SegmentHeader, before: SegmentInfo, last: SegmentHeader) -> None:
    expected = before.last + 1
    if header.base != expected:
        why = "segments before this one are missing" if header.base > expected else "the segment overlaps another"
        raise corrupt_error(path, 0, min(expected, header.base), max(expected, header.base) - 1, why)
    first = rotten_ends.segment_header(before.path, last)
    if (first.uuid, first.id_key) != (header.uuid, header.id_key):
        raise corrupt_error(path, 0, header.base, None, "the segment belongs to another log")


# -- the last segment -------------------------------------------------------------------------------------------------


def _scan_last(
    path: Path, header: SegmentHeader, sealed: tuple[SegmentInfo, ...], mark: Mark | None
) -> tuple[bytes, Scan, SegmentIndex | None]:
    """The bytes of the last segment, the records in them, and the index written beside it at a clean close, if it still
    fits."""
    if sealed:
        _check_follows(path, header, sealed[-1], header)
    elif mark and mark.oldest and header.base != mark.oldest:
        raise corrupt_error(path, 0, mark.oldest, header.base - 1, "segments before this one are missing")
    if mark and mark.uuid != header.uuid:
        raise corrupt_error(path, 0, header.base, None, "the watermark belongs to another log")
    data = segment.read_segment(path)
    if mark and mark.clean and mark.base == header.base:
        closed = _as_closed(path, data, header, mark)
        if closed is not None:
            return data, *closed
    known = known_through(gather_evidence(path.parent, header.base), header.uuid)
    return data, scan_segment(data, header, max(known, mark.durable if mark else 0), last=True), None


def _as_closed(path: Path, data: bytes, header: SegmentHeader, mark: Mark) -> tuple[Scan, SegmentIndex] | None:
    """The index that was written when the log was closed, and what looking at every record would say; None where the
    segment is not byte for byte what it was then: every record is looked at one by one in that case."""
    end = mark.offset
    if not SEGMENT_HEADER_BYTES < end <= len(data) or np.frombuffer(data, np.uint8, offset=end).any():
        return None
    crc = crc32c(memoryview(data)[SEGMENT_HEADER_BYTES:end])
    index = sidecar.read(path.parent, sidecar.Sealed(header.uuid, header.base, end, crc))
    if index is None or (index.last, index.end) != (mark.durable, end):
        return None
    offsets = stream.indexed_offsets(data, index.sparse, index.records, SEGMENT_HEADER_BYTES, end)
    if offsets is None:
        return None
    first, last = gather(data, offsets[[0, -1]])
    scan = Scan(
        header,
        _CLOSED,
        end,
        index.records,
        index.last,
        int(last["batch"]),
        crc,
        int(first["time_us"]),
        int(last["time_us"]),
        end,
        "",
        len(data),
        offsets,
    )
    return scan, index


def scan_segment(data: bytes, header: SegmentHeader, durable: int, *, last: bool) -> Scan:
    """Look at every record of a segment's bytes. ``durable``: what the watermark, or another file, vouches for."""
    whole, stopped = walk_verified(data, SEGMENT_HEADER_BYTES, len(data))
    heads = gather(data, whole)
    good = _in_order(heads, header.base)
    at = int(whole[good]) if good < len(whole) else stopped
    ends = np.flatnonzero(heads["flags"][:good] & UNIT_END)
    kept = int(ends[-1]) + 1 if len(ends) else 0
    end = at if kept == good else int(whole[kept])
    sequence, batch = (int(heads[name][good - 1]) if good else 0 for name in ("sequence", "batch"))
    kept_sequence, kept_batch, kept_time_us = (
        int(heads[name][kept - 1]) if kept else missing
        for name, missing in (("sequence", header.base - 1), ("batch", 0), ("time_us", 0))
    )
    blank = data.count(0, at) == len(data) - at
    synced = None if blank else _synced_behind(data, at, sequence or header.base - 1, batch)
    signs = Signs(
        last=last,
        sealed=bool(good and heads["kind"][good - 1] == Kind.SEGMENT_SEALED),
        blank=blank,
        half_unit=kept != good,
        vouched=kept_sequence < max(durable, header.base),
        follows=synced is not None,
        covered=synced is not None and synced > kept_sequence,
        later=bool(good < len(whole) and not _is_known(heads["version"][good])),
    )
    return Scan(
        header,
        signs,
        end,
        kept,
        kept_sequence,
        kept_batch,
        crc32c(memoryview(data)[SEGMENT_HEADER_BYTES:end]),
        int(heads["time_us"][0]) if good else 0,
        kept_time_us,
        at,
        _problem(data, at),
        len(data),
        whole[:kept],
    )


def _is_known(versions: Any) -> Any:
    """True for each version of a record that this program reads."""
    return (versions >= VERSION) & (versions <= NEWEST_VERSION)


def _in_order(heads: npt.NDArray[np.void], base: int) -> int:
    """The number of leading records that are of versions known here and in order: no unnamed gap in the sequences, no
    batch number that falls, nothing behind a seal."""
    sequences = heads["sequence"].astype(np.int64)
    steps = np.diff(sequences, prepend=base - 1)
    fits = (steps == 1) | ((heads["kind"] == Kind.GAP) & (steps > 1))
    fits &= _is_known(heads["version"]) & (heads["meta_bytes"] <= heads["body_bytes"])
    fits[1:] &= (heads["batch"][1:] >= heads["batch"][:-1]) & (heads["kind"][:-1] != Kind.SEGMENT_SEALED)
    return len(fits) if fits.all() else int(np.argmin(fits))


def _problem(data: bytes, at: int) -> str:
    """Says in words what is wrong with the bytes at ``at``, where the whole records end."""
    header = read_header(data, at)
    match header:
        case Incomplete():
            return "the file ends"
        case Corrupt(why=why):
            return why
    if at + header.record_bytes > len(data):
        return "the file ends in the record's body"
    if crc32c(data[at + HEADER_BYTES : at + header.record_bytes]) != header.body_crc:
        return "the body's checksum does not fit"
    return f"a record of sequence {header.sequence} and batch {header.batch}, which cannot follow"


def _synced_behind(data: bytes, bad: int, sequence: int, batch: int) -> int | None:
    """The greatest ``synced_through`` among valid records of later batches behind the damage at ``bad``; None without
    any. If the damaged record's header is whole its body is skipped, since a message may contain anything, also a piece
    of a log."""
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
    vouches = mark is not None and mark.base == scan.header.base and mark.offset <= scan.end
    start = mark.offset if mark and vouches else SEGMENT_HEADER_BYTES
    data = segment.read_segment(path, start, scan.end)
    descriptor = os.open(path, os.O_RDWR)
    try:
        files.write_at(descriptor, data, start, path)
        files.sync(descriptor, path)
    finally:
        os.close(descriptor)
    return len(data)
