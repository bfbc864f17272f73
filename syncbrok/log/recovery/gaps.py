"""Finds the segments that a directory lacks of a log whose sealed segments another machine holds as well, and puts it
right with copies. Nothing here is believed of a file but what its ends say, and nothing half is: a copy comes under its
name once it is whole, the watermark says where the log begins and ends once all copies are there, and a crash in
between leaves a directory that lacks less.

All of it is done before the log is opened, under its lock.
"""

import logging
from pathlib import Path
from typing import NamedTuple

from syncbrok.log.recovery.recovery import scan_segment
from syncbrok.log.segments import checkpoint, files, retention, segment, watermark
from syncbrok.log.segments.sealed_segments import SealedSegment, bases, sealed_segment
from syncbrok.log.segments.segment import SEGMENT_HEADER_BYTES, segment_path
from syncbrok.log.segments.watermark import Mark, Watermark
from syncbrok.model.errors import LogCorrupt

_log = logging.getLogger(__name__)


class Span(NamedTuple):
    """The sequences ``first`` to ``last``."""

    first: int
    last: int


class LogEnds(NamedTuple):
    """The ends of the log in a directory. ``oldest``: the first sequence of the log, 0 where there is none.
    ``last_base``: of its last file; ``sealed``: that one is. ``gaps``: what is missing or cannot be read before it,
    whole segments."""

    oldest: int
    last_base: int
    sealed: SealedSegment | None
    gaps: tuple[Span, ...]


def find_ends(directory: Path) -> LogEnds:
    """The ends of each segment in ``directory``, and whether they meet. Raises ``OSError``."""
    found = bases(directory)
    if not found:
        return LogEnds(0, 0, None, ())
    mark = _mark(directory)
    oldest = at = mark.oldest if mark and mark.oldest else found[0]
    gaps: list[Span] = []
    for base, following in zip(found, [*found[1:], 0], strict=True):
        if base > at:
            gaps.append(Span(at, base - 1))
        if not following:
            break
        seal = _sound(segment_path(directory, base))
        if seal is None or seal.last >= following:
            gaps.append(Span(base, following - 1))
            at = following
        else:
            at = seal.last + 1
    return LogEnds(oldest, found[-1], _sound(segment_path(directory, found[-1])), tuple(gaps))


def _sound(path: Path) -> SealedSegment | None:
    """The seal of the file; None where that or its header cannot be read."""
    try:
        segment.read_segment_header(path)
        return sealed_segment(path)
    except LogCorrupt:
        return None


def _mark(directory: Path) -> Mark | None:
    try:
        return watermark.read(directory)
    except LogCorrupt:
        return None


def last_record(directory: Path, ends: LogEnds) -> tuple[int, int]:
    """The last whole record of the log whose last segment is open, and the offset where it ends. Raises ``LogCorrupt``
    for a header that cannot be read, and ``OSError``."""
    path = segment_path(directory, ends.last_base)
    header = segment.read_segment_header(path)
    scan = scan_segment(segment.read_segment(path), header, 0, last=True)
    return scan.last, scan.end


def temporary(directory: Path, wanted: SealedSegment) -> Path:
    """The path under which a copy is written until it is whole; a start removes what is left there."""
    return directory / f"{wanted.name}.tmp"


def put_in_place(directory: Path, wanted: SealedSegment) -> None:
    """Give the copy in its temporary file, which is whole and fsynced, its name, durably. The sidecar of what stood
    there goes first: it may be of other bytes."""
    path = segment_path(directory, wanted.first)
    with files.new_names(directory):
        path.with_suffix(".idx").unlink(missing_ok=True)
        temporary(directory, wanted).rename(path)


def begin_at(directory: Path, oldest: int, last: SealedSegment | None, uuid: bytes, now_us: int) -> None:
    """From now on the log begins with the segment ``oldest``; what is before it goes. ``last``: it ends with this one,
    which is sealed; None: with the open segment that is there, as the watermark has it. Raises ``LogFull``,
    ``LogFailed``, ``LogCorrupt`` and ``OSError``."""
    before = watermark.read(directory)
    if last is not None:
        mark = Mark(uuid, last.last, last.first, last.bytes, now_us, oldest, clean=False)
    else:
        base = bases(directory)[-1]
        mark = Mark(uuid, 0, base, SEGMENT_HEADER_BYTES, now_us, oldest, clean=False)
        if before is not None and before.base == base:
            mark = before._replace(oldest=oldest, clean=False)
    saving = Watermark(directory)
    try:
        saving.save(mark)
    finally:
        saving.close()
    gone = [segment_path(directory, base) for base in segment.segment_bases(directory) if base < oldest]
    retention.drop_leftovers(gone, now_us)
    _log.warning("syncbrok.log.begins_later", extra={"oldest": oldest, "dropped": len(gone)})


def leave(directory: Path, now_us: int) -> None:
    """Nothing of the log that is here is part of it any more. The watermark goes last: while it is there a start knows
    that there was more. Raises ``OSError``, ``LogFull`` and ``LogFailed``."""
    for name in (checkpoint.NAME, checkpoint.NAME_BEFORE):
        (directory / name).unlink(missing_ok=True)
    for base in reversed(segment.segment_bases(directory)):
        retention.drop(segment_path(directory, base), now_us)
    with files.new_names(directory):
        (directory / watermark.NAME).unlink(missing_ok=True)
    _log.warning("syncbrok.log.left", extra={"directory": str(directory)})


def left_over(directory: Path) -> int:
    """The last sequence that the watermark of a directory without segments vouches for; 0 where nothing does."""
    mark = _mark(directory)
    return mark.durable if mark and not bases(directory) else 0
