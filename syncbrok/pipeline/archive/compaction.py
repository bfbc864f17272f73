"""Merges small files: rows of one queue and day that lie in several small files are written again into few large ones.

Readers are not harmed. The new files have new names. One manifest of a higher generation names them in place of the old
ones, and everything else as before. The old files stay until no reader can need them
(``archive.commit.drop_replaced``). Counts and checksums of rows are compared before against after, for each queue and
day. Manifests that follow each other become one on the way.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from pyspark.sql import SparkSession

from syncbrok.model.limits import MIB
from syncbrok.pipeline.archive import archive_reader, parquet_rows
from syncbrok.pipeline.archive.commit import commit, manifests
from syncbrok.pipeline.archive.group_writer import ArchiveDiffers, new_folder, now, read_back, write_rows
from syncbrok.pipeline.archive.manifest import DataFile, Manifest, ManifestName, RowChecksum
from syncbrok.pipeline.archive.parquet_rows import FileRows, SequenceRanges
from syncbrok.pipeline.archive.store import ArchiveStore

_BATCH_BYTES: Final = 8_192 * MIB
"""compacted with one commit"""


class CompactionSizes(NamedTuple):
    """The sizes that compaction works by: files below ``small_bytes`` are put together, into files of about
    ``target_bytes``."""

    small_bytes: int = 64 * MIB
    target_bytes: int = 256 * MIB


class CompactionResult(NamedTuple):
    """The result: how many files, of how many bytes, became how many others."""

    files_before: int = 0
    bytes_before: int = 0
    files_after: int = 0
    bytes_after: int = 0


class CompactionBatch(NamedTuple):
    """Small files of one kind, all those of each queue and day."""

    kind: str
    files: tuple[DataFile, ...]

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.files)


def compact_all(
    spark: SparkSession, store: ArchiveStore, progress: Callable[[str], None], sizes: CompactionSizes | None = None
) -> CompactionResult:
    """Compact the archive. Raises as ``archive`` does; what was committed before stays."""
    chosen = sizes or CompactionSizes()
    done = CompactionResult()
    for run in _runs(manifests(store)):
        now_are = run
        for batch in batches([one for manifest in run for one in manifest.files], chosen.small_bytes):
            progress(f"compacting {len(batch.files)} files of {batch.kind}")
            made, after = _compact(spark, store, now_are, batch, chosen)
            now_are = [made]
            done = CompactionResult(
                done.files_before + len(batch.files),
                done.bytes_before + batch.bytes,
                done.files_after + len(after),
                done.bytes_after + sum(one.bytes for one in after),
            )
        if len(now_are) > 1:
            files = [one for manifest in now_are for one in manifest.files]
            commit(store, _joined(now_are, files), [""] * len(files))
    return done


def batches(files: Sequence[DataFile], small_bytes: int, batch_bytes: int = _BATCH_BYTES) -> Iterator[CompactionBatch]:
    """Yield groups of small files that are worth merging: queues and days with at least two, as many together as
    ``batch_bytes`` allow."""
    by_folder: dict[tuple[str, str | None, str], list[DataFile]] = {}
    for one in files:
        if one.bytes < small_bytes:
            by_folder.setdefault((one.kind, one.queue, one.day), []).append(one)
    waiting: dict[str, list[DataFile]] = {}
    for (kind, _, _), small in sorted(by_folder.items(), key=lambda item: tuple(map(str, item[0]))):
        if len(small) < 2:
            continue
        together = waiting.setdefault(kind, [])
        if together and sum(one.bytes for one in (*together, *small)) > batch_bytes:
            yield CompactionBatch(kind, tuple(together))
            together.clear()
        together += small
    yield from (CompactionBatch(kind, tuple(together)) for kind, together in waiting.items() if together)


def _runs(found: Sequence[Manifest]) -> list[list[Manifest]]:
    """The manifests in groups that follow each other without a gap: one manifest over a gap would hide it."""
    runs: list[list[Manifest]] = []
    for one in found:
        if runs and runs[-1][-1].name.last + 1 == one.name.first:
            runs[-1].append(one)
        else:
            runs.append([one])
    return runs


def _joined(found: Sequence[Manifest], files: Sequence[DataFile]) -> Manifest:
    """One manifest over all of ``found``, with these files."""
    generation = 1 + max(one.name.generation for one in found)
    return Manifest(
        ManifestName(found[0].name.first, found[-1].name.last, generation),
        found[0].log,
        now(),
        tuple(segment for one in found for segment in one.segments),
        tuple(archived_range for one in found for archived_range in one.ranges),
        tuple(files),
    )


def _compact(
    spark: SparkSession, store: ArchiveStore, found: Sequence[Manifest], batch: CompactionBatch, sizes: CompactionSizes
) -> tuple[Manifest, list[DataFile]]:
    """The manifest that was committed, and the files that are new in it."""
    name = _joined(found, []).name
    folder, kind = new_folder(name), batch.kind
    parts = -(-batch.bytes // sizes.target_bytes)
    rows = archive_reader.rows_of(spark, store, kind, batch.files)
    ranged = parquet_rows.with_day(rows, kind).repartitionByRange(parts, *parquet_rows.order_of(kind))
    write_rows(spark, ranged, kind, store.full(f"{folder}/{kind}"))
    everything = SequenceRanges([], name.last)
    staged, after = read_back(spark, store, folder, name, everything, lambda _: rows)
    uris = [store.full(one.path) for one in batch.files]
    frame = parquet_rows.files(spark, kind, store.full(kind), uris, archive_reader.long_names(batch.files))
    before = parquet_rows.file_checksums(parquet_rows.checksum_files(frame, kind, everything), everything)
    _compare(kind, _by_folder(before), _by_folder(after))
    replaced = {one.path for one in batch.files}
    kept = [one for manifest in found for one in manifest.files if one.path not in replaced]
    made = _joined(found, [*kept, *(one.file for one in staged)])
    commit(store, made, [*[""] * len(kept), *(one.path for one in staged)])
    store.delete_folder(folder)
    return made, [one.file for one in staged]


def _by_folder(found: Sequence[FileRows]) -> dict[tuple[str, str], RowChecksum]:
    checksums: dict[tuple[str, str], RowChecksum] = {}
    for one in found:
        key = (one.queue or "", one.day)
        checksums[key] = checksums.get(key, RowChecksum()).with_(one.rows.checksum)
    return checksums


def _compare(kind: str, before: dict[tuple[str, str], RowChecksum], after: dict[tuple[str, str], RowChecksum]) -> None:
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            queue, day = key
            were, are = (checksums.get(key, RowChecksum()).rows for checksums in (before, after))
            raise ArchiveDiffers(
                f"{kind} of queue {queue or 'none'} and {day} were not compacted: {were} rows became {are}, or others. "
                "Nothing was changed; check the archive's disk"
            )
