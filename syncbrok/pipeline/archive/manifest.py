"""The manifests of an archive, and which of them are current. Pure; the bytes are JSON.

A manifest names a range of sequences, the files that hold its rows, the segments they came from, and counts and
checksums of the rows. It is the only evidence: a file that no manifest names is not part of the archive. Its name is
``{first:020d}-{last:020d}.{generation:06d}.json``. Archiving writes generation 0. Compacting writes one manifest of a
higher generation over the ranges of several; from the moment its name is there, the manifests inside its range are no
longer current. So one rename moves the archive from one state to the next, and readers that chose the older state still
find its files.
"""

import json
import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, Final, NamedTuple

from syncbrok.model.errors import SyncbrokError

FORMAT: Final = 1
_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{20})\.([0-9]{6})\.json")
_MASK64: Final = (1 << 64) - 1


class ArchiveDamaged(SyncbrokError):
    """Something that the archive must have is missing or cannot be read."""

    slug = "archive-damaged"


class ManifestName(NamedTuple):
    """The name of a manifest, which says all that decides whether it counts."""

    first: int
    last: int
    generation: int = 0

    @property
    def stem(self) -> str:
        """The start of the names of all files of this range."""
        plain = f"{self.first:020d}-{self.last:020d}"
        return f"{plain}.{self.generation:06d}" if self.generation else plain

    @property
    def file(self) -> str:
        return f"{self.first:020d}-{self.last:020d}.{self.generation:06d}.json"

    def holds(self, other: "ManifestName") -> bool:
        return self.first <= other.first and other.last <= self.last


class RowChecksum(NamedTuple):
    """Count and checksum of rows in any order. ``xor`` and ``sum`` are of the 64-bit hashes of all columns: two equal
    rows cancel each other in the one and not in the other."""

    rows: int = 0
    xor: int = 0
    sum: int = 0

    def with_(self, other: "RowChecksum") -> "RowChecksum":
        return RowChecksum(self.rows + other.rows, self.xor ^ other.xor, (self.sum + other.sum) & _MASK64)


class ArchivedRange(NamedTuple):
    """Count and checksum of the rows of a kind with sequences from ``first`` to ``last``."""

    kind: str
    first: int
    last: int
    checksum: RowChecksum


class ArchivedSegment(NamedTuple):
    """A segment of the log whose facts are archived. ``crc`` is the CRC-32C of the whole file, ``seal_crc`` the one in
    its seal."""

    base: int
    last: int
    bytes: int
    crc: int
    seal_crc: int


class DataFile(NamedTuple):
    """A Parquet file. ``path`` is relative to the archive; ``queue`` None: the rows have none. ``first`` and ``last``
    are the lowest and the highest sequence in it, ``from_us`` and ``to_us`` the earliest and the latest time."""

    kind: str
    queue: str | None
    day: str
    path: str
    rows: int
    bytes: int
    first: int
    last: int
    from_us: int
    to_us: int


class Manifest(NamedTuple):
    """A manifest: what is archived of a range of sequences, and in which files. ``log`` is the log's uuid (32 hex
    digits); ``written`` RFC 3339."""

    name: ManifestName
    log: str
    written: str
    segments: tuple[ArchivedSegment, ...]
    ranges: tuple[ArchivedRange, ...]
    files: tuple[DataFile, ...]

    def rows(self, kind: str) -> int:
        return sum(one.rows for one in self.files if one.kind == kind)


class MissingSequences(NamedTuple):
    """Sequences that neither the archive nor the log has."""

    first: int
    last: int


# -- which manifests count --------------------------------------------------------------------------------------------


def parse_name(file: str) -> ManifestName | None:
    """The name of a manifest; None where the file is something else."""
    matched = _NAME.fullmatch(file)
    return ManifestName(*map(int, matched.groups())) if matched else None


def current(names: Iterable[ManifestName]) -> list[ManifestName]:
    """The current manifests, ordered by range. Raises ``ArchiveDamaged`` where two of them name the same sequences."""
    chosen: list[ManifestName] = []
    # From the newest generation down, the widest first: whatever holds a name has been met before it.
    for name in sorted(names, key=lambda one: (-one.generation, one.first, -one.last)):
        if not any(other.holds(name) for other in chosen):
            chosen.append(name)
    chosen.sort()
    for one, next_one in pairwise(chosen):
        if next_one.first <= one.last:
            raise ArchiveDamaged(
                f"the manifests {one.file} and {next_one.file} both name sequences {next_one.first} to "
                f"{min(one.last, next_one.last)}; one of them does not belong to this archive: move it away"
            )
    return chosen


def gaps(ranges: Iterable[ManifestName], before: int) -> list[MissingSequences]:
    """Sequences from 1 on and below ``before`` that lie in none of ``ranges`` (in order)."""
    missing: list[MissingSequences] = []
    through = 0
    for one in (*ranges, ManifestName(before, before)):
        end = min(one.first, before) - 1
        if end > through:
            missing.append(MissingSequences(through + 1, end))
        through = max(through, one.last)
    return missing


# -- JSON -------------------------------------------------------------------------------------------------------------


def dump(manifest: Manifest) -> str:
    """The manifest as one JSON object. Rows are plain lists, so that a large archive's manifest stays small."""
    value = {
        "format": FORMAT,
        "log": manifest.log,
        "first": manifest.name.first,
        "last": manifest.name.last,
        "generation": manifest.name.generation,
        "written": manifest.written,
        "segments": [one._asdict() for one in manifest.segments],
        "checks": [
            {"kind": one.kind, "first": one.first, "last": one.last, **one.checksum._asdict()}
            for one in manifest.ranges
        ],
        "files": [one._asdict() for one in manifest.files],
    }
    return json.dumps(value, indent=0)


def load(name: ManifestName, text: str, where: str) -> Manifest:
    """The manifest from its JSON. Raises ``ArchiveDamaged`` naming ``where``."""
    try:
        value = json.loads(text)
        if value["format"] != FORMAT:
            raise ArchiveDamaged(
                f"{where} is of format {value['format']}; this program reads format {FORMAT}: use a newer one"
            )
        manifest = _manifest(value)
    except (ValueError, KeyError, TypeError) as problem:
        raise ArchiveDamaged(
            f"{where} cannot be read ({type(problem).__name__}: {problem}); restore it from a copy, or archive these "
            "sequences again from the log where it still has them"
        ) from problem
    if manifest.name != name:
        raise ArchiveDamaged(f"{where} is by its content the manifest {manifest.name.file}; give it its name back")
    return manifest


def _manifest(value: Mapping[str, Any]) -> Manifest:
    return Manifest(
        ManifestName(int(value["first"]), int(value["last"]), int(value["generation"])),
        str(value["log"]),
        str(value["written"]),
        tuple(ArchivedSegment(**one) for one in value["segments"]),
        tuple(
            ArchivedRange(one["kind"], one["first"], one["last"], RowChecksum(one["rows"], one["xor"], one["sum"]))
            for one in value["checks"]
        ),
        tuple(DataFile(**one) for one in value["files"]),
    )
