"""Decides which segments retention drops, and drops them.

Segments go oldest first, never the active one and never one that holds a record younger than the retention. With an
archive, a segment goes only once its copy there is fsynced, has been read back and is noted in the marker file. If the
pipeline archives, it goes only once the pipeline has noted exactly the bytes that stand there now. Dropping takes two
steps: renamed now, unlinked after a grace period, so that readers that have it by name can finish.

The marker file ``archived`` stands beside the segments. A line is ``name size crc`` (decimal, CRC-32C of the whole
file in eight hexadecimal digits) of a segment that the broker copied, or ``name size crc pipeline place`` of one whose
facts the pipeline wrote to ``place`` (a URI, with %20 for a space); a program that knows only the first passes over the
second. In a cluster each line stands in the stream before it stands here (``cluster.archive_notes``). The file is never
evidence of what is in the log, only of what was archived.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import takewhile
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar
from urllib.parse import quote, unquote

from crc32c import crc32c

from syncbrok.log.segments import files
from syncbrok.log.segments.descriptors import naming, reading
from syncbrok.log.segments.options import PIPELINE, Archive
from syncbrok.model import limits
from syncbrok.model.errors import LogFailed, LogFull

MARKER = "archived"
DROPPED = ".dropped"
_CHUNK_BYTES = limits.MIB


class AgedSegment(Protocol):
    """The fields that the decision needs. ``last_time_us`` is the time of the newest record; the clock may be behind
    it."""

    @property
    def last_time_us(self) -> int: ...

    @property
    def sealed(self) -> bool: ...


S = TypeVar("S", bound=AgedSegment)


class Copy(NamedTuple):
    """A line of the marker file: a segment that was archived and read back. ``place`` is where the pipeline wrote its
    facts, empty where the broker copied the file."""

    name: str
    size: int
    crc: int
    place: str = ""


class ArchiveFailed(OSError):
    """The copy in the archive is not what was written; the segment stays."""


class NotArchived(OSError):
    """The pipeline has not archived this segment; it stays."""


def expired(
    segments: Sequence[S], before_us: int, sealed_us: Callable[[S], int] = attrgetter("last_time_us")
) -> tuple[S, ...]:
    """The segments that are old enough to go, oldest first: sealed before ``before_us``. ``segments`` are all of the
    log, in order; a younger segment keeps all behind it, also where a clock that was set back made it younger than they
    are. ``sealed_us`` tells when a segment was sealed."""
    return tuple(takewhile(lambda one: one.sealed and sealed_us(one) < before_us, segments[:-1]))


def may_drop(path: Path, archive: Archive) -> bool:
    """Whether nothing forbids dropping this segment: no archive is configured, its verified copy is there, or the
    pipeline has archived these bytes (reads the whole file then, so that nothing else of this name goes)."""
    if archive is None:
        return True
    size = path.stat().st_size
    noted = [copy for copy in copies(path.parent) if copy.name == path.name and copy.size == size]
    if archive == PIPELINE:
        archived = {copy.crc for copy in noted if copy.place}
        return bool(archived) and file_crc(path) in archived
    kept = archive / path.name
    return any(not copy.place for copy in noted) and kept.is_file() and kept.stat().st_size == size


def file_crc(path: Path) -> int:
    """CRC-32C of a whole segment. Where the disk cannot read all of it, the sum is a wrong one."""
    return _each(_segment_chunks(path, files.read_around))[1]


def copies(directory: Path) -> Iterator[Copy]:
    """The lines of the marker file; those that cannot be read are passed over."""
    try:
        text = (directory / MARKER).read_text(errors="replace")
    except FileNotFoundError:
        return
    yield from parse_lines(text)


def not_noted(directory: Path, archived: Iterable[Copy]) -> list[Copy]:
    """The copies in ``archived`` that the marker file does not have yet, once each. Raises ``OSError``."""
    known = set(copies(directory))
    return [one for one in dict.fromkeys(archived) if one not in known]


def parse_lines(text: str) -> Iterator[Copy]:
    """As ``copies``, of lines that stand elsewhere."""
    return filter(None, map(parse_line, text.splitlines()))


def parse_line(line: str) -> Copy | None:
    """The copy that a line of the marker file names; None where it cannot be read."""
    words = line.split(" ")
    by_pipeline = len(words) == 5 and words[3] == PIPELINE
    if (len(words) == 3 or by_pipeline) and words[1].isdecimal() and len(words[2]) == 8:
        with suppress(ValueError):
            return Copy(words[0], int(words[1]), int(words[2], 16), unquote(words[4]) if by_pipeline else "")
    return None


def note(directory: Path, archived: Iterable[Copy]) -> None:
    """Add lines to the marker file; they are on the disk when this returns. Raises ``OSError`` or ``LogFailed``."""
    lines = "".join(f"{line_of(copy)}\n" for copy in archived)
    with naming(directory / MARKER), (directory / MARKER).open("ab+") as marker:
        # A crash may have left half a line: what follows must not become part of it.
        if marker.tell() and os.pread(marker.fileno(), 1, marker.tell() - 1) != b"\n":
            lines = "\n" + lines
        marker.write(lines.encode())
        marker.flush()
        os.fsync(marker.fileno())
    files.sync_directory(directory)


def forget(directory: Path) -> None:
    """Take all lines out of the marker file; they are gone from the disk when this returns. Raises ``OSError`` or
    ``LogFailed``."""
    with suppress(FileNotFoundError), naming(directory / MARKER), (directory / MARKER).open("rb+") as marker:
        marker.truncate()
        os.fsync(marker.fileno())


def line_of(copy: Copy) -> str:
    """As the marker file has it, without the end of the line."""
    by_pipeline = f" {PIPELINE} {quote(copy.place, safe='/:@+,=')}" if copy.place else ""
    return f"{copy.name} {copy.size} {copy.crc:08x}{by_pipeline}"


Noted = Callable[[Copy], object]
"""puts a line into the marker file; it is on the disk on return"""


def archive_first(path: Path, archive: Archive, noted: Noted, *, damaged: bool, writer: str) -> bool:
    """Do what must be done before the segment goes; returns whether it was copied now. ``damaged``: the segment is
    known to be damaged. Raises ``OSError``, what ``noted`` raises, and ``NotArchived`` where only the pipeline can
    archive it."""
    if may_drop(path, archive):
        return False
    if not isinstance(archive, Path):
        raise NotArchived(f"{path} is not in the pipeline's archive")
    archive_segment(path, archive, noted, damaged=damaged, writer=writer)
    return True


def archive_segment(
    path: Path, archive: Path, noted: Noted | None = None, *, damaged: bool = False, writer: str = ""
) -> Copy:
    """Copy the segment, fsync, read the copy back, note it: by ``noted``, else in the marker file beside the segment.
    ``writer`` names this broker where others write to the same archive: none touches a copy that another has begun.

    If the disk cannot read parts of a segment known to be ``damaged``, the copy has zeros there
    (``files.read_around``); otherwise the segment, and all behind it, would stay for ever. Raises ``OSError`` naming
    the file (``ArchiveFailed`` where the copy differs); then the segment and earlier archives are untouched.
    """
    try:
        files.make_directory(archive)
    except (LogFailed, LogFull) as problem:
        raise ArchiveFailed(problem.detail) from problem
    unfinished = archive / f"{path.name}{writer and '.'}{writer}.tmp"
    with files.unfinished(unfinished):
        chunks = _segment_chunks(path, files.read_around if damaged else files.read_at)
        with naming(unfinished), unfinished.open("wb") as target:
            size, crc = _each(chunks, target.write)
            target.flush()
            os.fsync(target.fileno())
            # Otherwise the copy would be read back from memory, which says nothing about the disk.
            os.posix_fadvise(target.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        with reading(unfinished) as copied:
            if _each(iter(partial(copied.read, _CHUNK_BYTES), b"")) != (size, crc):
                raise ArchiveFailed(f"the copy {unfinished} differs from {path}; is the archive's disk sound?")
        unfinished.replace(archive / path.name)
    try:
        files.sync_directory(archive)
    except (LogFailed, LogFull) as problem:
        # Another disk than the log's, perhaps: its failure must not stop the log.
        raise ArchiveFailed(problem.detail) from problem
    copy = Copy(path.name, size, crc)
    if noted is None:
        note(path.parent, [copy])
    else:
        noted(copy)
    return copy


def drop(path: Path, now_us: int) -> None:
    """The segment and its sidecar are no longer part of the log once this returns; their bytes go with a later
    ``sweep``. A crash in between leaves a sidecar without a segment, which the next sweep takes away. Raises
    ``OSError`` or ``LogFailed``."""
    sidecar = path.with_suffix(".idx")
    for one in (path, sidecar):
        if one.exists():
            # The time of dropping is kept as the time of modification; set first, so that it is never missing.
            os.utime(one, ns=(now_us * 1000, now_us * 1000))
            one.rename(one.with_name(one.name + DROPPED))
    files.sync_directory(path.parent)


def drop_leftovers(paths: Iterable[Path], now_us: int) -> None:
    """``drop`` segments that are no part of the log any more but still have a segment's name. If the disk is too full
    even for that they stay until later. Raises ``OSError`` or ``LogFailed``."""
    for path in paths:
        with suppress(LogFull), files.if_there_is_room():
            drop(path, now_us)


def sweep(directory: Path, now_us: int, grace_s: float = limits.unlink_grace_s) -> list[str]:
    """Unlink what was dropped at least ``grace_s`` ago (a clock set back counts as long ago); answer their names."""
    gone: list[str] = []
    with os.scandir(directory) as entries:
        names = [entry.name for entry in entries]
    for name in sorted(names):
        path = directory / name
        orphan = name.endswith(".idx") and path.with_suffix(".log").name not in names
        if not name.endswith(DROPPED) and not orphan:
            continue
        try:
            age_us = now_us - path.stat().st_mtime_ns // 1000
            if orphan or age_us < 0 or age_us >= grace_s * 1e6:
                path.unlink()
                gone.append(name)
        except FileNotFoundError:
            continue  # another sweep was first
    return gone


def _segment_chunks(path: Path, read: Callable[[int, int, int], bytes]) -> Iterator[bytes]:
    """All of a sealed segment, piece by piece."""
    with reading(path) as file:
        size = os.fstat(file.fileno()).st_size
        for at in range(0, size, _CHUNK_BYTES):
            yield read(file.fileno(), min(_CHUNK_BYTES, size - at), at)


def _each(chunks: Iterator[bytes], write: Callable[[bytes], object] = lambda _: None) -> tuple[int, int]:
    """Size and CRC of all ``chunks``, handed on to ``write``."""
    size = crc = 0
    for chunk in chunks:
        write(chunk)
        crc = crc32c(chunk, crc)
        size += len(chunk)
    return size, crc
