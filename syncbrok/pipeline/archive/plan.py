"""Compares a log with its archive: which part is still to be archived, and which is there already. Pure.

A log and its archive must tell one story: the same uuid, and for segments that both have, the same bytes. They part
when a storage directory is restored from a backup and goes on from there: then the archive has another future of the
same past. Nothing is archived in that case, since two facts with one sequence could never be told apart.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from syncbrok.pipeline.archive.commit import AnotherLog
from syncbrok.pipeline.archive.manifest import ArchivedSegment as Archived
from syncbrok.pipeline.archive.manifest import Manifest, ManifestName, MissingSequences, gaps
from syncbrok.pipeline.log_snapshot import LogSnapshot, SegmentSnapshot


class SegmentGroup(NamedTuple):
    """Segments that follow each other and become part of the archive with one commit."""

    segments: tuple[SegmentSnapshot, ...]

    @property
    def name(self) -> ManifestName:
        return ManifestName(self.segments[0].base, self.segments[-1].last)

    @property
    def bytes(self) -> int:
        return sum(one.end for one in self.segments)


class ArchivePlan(NamedTuple):
    """The part of a log that is to be archived, in ``groups``, and what is not. ``known``: segments of the log that the
    archive has; ``gaps``: what neither has any more; ``waiting`` segments are not sealed yet."""

    groups: tuple[SegmentGroup, ...]
    known: tuple[Archived, ...]
    gaps: tuple[MissingSequences, ...]
    waiting: int


def plan(
    log: LogSnapshot,
    archive: Sequence[Manifest],
    group_bytes: int,
    is_rewritten: Callable[[SegmentSnapshot], bool] | None = None,
) -> ArchivePlan:
    """A plan for the sealed segments that the archive lacks, in groups of about ``group_bytes``.
    ``is_rewritten``: see ``check_same``. Raises ``AnotherLog``."""
    check_same(log, archive, is_rewritten)
    ranges = [one.name for one in archive]
    sealed = [one for one in log.segments if one.sealed]
    new = [one for one in sealed if not _covered(one, ranges)]
    archived = {one.base: one for manifest in archive for one in manifest.segments}
    return ArchivePlan(
        tuple(_groups(new, group_bytes)),
        tuple(archived[one.base] for one in sealed if one.base in archived),
        tuple(gaps(ranges, log.oldest)),
        len(log.segments) - len(sealed),
    )


def check_same(
    log: LogSnapshot, archive: Sequence[Manifest], is_rewritten: Callable[[SegmentSnapshot], bool] | None = None
) -> None:
    """Raises ``AnotherLog`` where the archive is one of another log, or of another future of this one.
    ``is_rewritten``: true for a segment from which erased messages were taken; that is sealed anew (RULES 32)."""
    for manifest in archive:
        check_owner(log, manifest.log)
    archived = {one.base: one for manifest in archive for one in manifest.segments}
    ranges = [manifest.name for manifest in archive]
    for one in log.segments:
        same = archived.get(one.base)
        inside = next((name for name in ranges if name.first <= one.last and one.base <= name.last), None)
        if inside is None:
            continue
        if same is None or not one.sealed or (same.last, same.bytes) != (one.last, one.end):
            raise another_past(log, one.base, min(one.last, inside.last))
        if same.seal_crc != one.crc and (is_rewritten is None or not is_rewritten(one)):
            raise another_past(log, one.base, min(one.last, inside.last))
    if ranges and log.segments and log.durable < ranges[-1].last:
        raise another_past(log, log.durable + 1, ranges[-1].last)


def check_owner(log: LogSnapshot, uuid: str) -> None:
    """Raise ``AnotherLog`` where the archive of the log ``uuid`` is not one of this log."""
    if uuid != log.uuid.hex():
        raise AnotherLog(
            f"the archive is that of log {uuid}, {log.place} is log {log.uuid.hex()}; give each log "
            "(a salvaged one too) an archive of its own"
        )


def cut(log: LogSnapshot, archive: Sequence[Manifest]) -> int:
    """The last sequence that a reader of both takes from the archive; the log has all that follows. This is not always
    the end of the archive: where a manifest is missing in the middle, the log may still have what it named."""
    ranges = [one.name for one in archive]
    missing = next((one.base for one in log.segments if not _covered(one, ranges)), None)
    return missing - 1 if missing is not None else log.durable


def range_starts(group: SegmentGroup, ranges_max: int = 64) -> list[int]:
    """The first sequences of the ranges for which rows are counted apart: a range is one segment, or several where
    there are more than ``ranges_max``."""
    each = -(-len(group.segments) // ranges_max)
    return [one.base for one in group.segments[::each]]


def _covered(one: SegmentSnapshot, ranges: Iterable[ManifestName]) -> bool:
    return any(name.first <= one.base and one.last <= name.last for name in ranges)


def _groups(new: Sequence[SegmentSnapshot], group_bytes: int) -> Iterable[SegmentGroup]:
    together: list[SegmentSnapshot] = []
    for one in new:
        apart = together and together[-1].last + 1 != one.base
        if together and (apart or sum(other.end for other in together) + one.end > group_bytes):
            yield SegmentGroup(tuple(together))
            together = []
        together.append(one)
    if together:
        yield SegmentGroup(tuple(together))


def another_past(log: LogSnapshot, first: int, last: int) -> AnotherLog:
    """The error for these sequences, where the log and the archive have the same ones and other facts."""
    return AnotherLog(
        f"sequences {first} to {last} in {log.place} are not those that the archive has of this log; was the "
        "storage directory restored from a backup? Use another archive for what has happened since",
        first=first,
        last=last,
    )
