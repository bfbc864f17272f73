"""Moves an archive from one state to the next, whatever happens in between. Pure but for the store it is given.

1. rows are written below ``_syncbrok/staging`` and read back
2. the manifest is written as ``NAME.pending``: it names the files that are about to appear
3. the files are renamed from the staging folder to where they belong
4. ``NAME.pending`` is renamed to ``NAME``: from now on they are part of the archive

``_syncbrok/log`` names the log and is there before the first manifest: it tells an archive that is still empty, because
no segment of its log is sealed, from a mistyped path.

A run that was killed leaves a staging folder, a ``.pending`` and files that no manifest names. Nobody reads those, and
the next run removes them before it does anything else. Only one run at a time may change an archive.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from syncbrok.model.errors import SyncbrokError
from syncbrok.pipeline.archive.manifest import (
    FORMAT,
    ArchiveDamaged,
    DataFile,
    Manifest,
    ManifestName,
    current,
    dump,
    load,
    parse_name,
)

FOLDER: Final = "_syncbrok"
STAGING: Final = f"{FOLDER}/staging"
_PENDING: Final = ".pending"
_OWNER: Final = "log"


class WrittenFile(Protocol):
    """A file that a store has."""

    @property
    def path(self) -> str: ...

    @property
    def written_ms(self) -> int: ...


class CommitStore(Protocol):
    """The file operations that a commit needs (``archive.store.ArchiveStore``)."""

    def full(self, path: str) -> str: ...

    def names(self, folder: str) -> list[str]: ...

    def walk(self, folder: str) -> Iterator[WrittenFile]: ...

    def read_text(self, path: str) -> str: ...

    def write_text(self, path: str, text: str) -> None: ...

    def rename(self, source: str, target: str) -> None: ...

    def rename_all(self, pairs: Iterable[tuple[str, str]]) -> None: ...

    def delete_all(self, paths: Iterable[str]) -> None: ...

    def delete_folder(self, folder: str) -> None: ...

    def sync_folders(self, folders: Iterable[str]) -> None: ...


class AnotherLog(SyncbrokError):
    """The archive is that of another log, or of another past of this one."""

    slug = "another-log"


class CleanupResult(NamedTuple):
    """The result of tidying up after an interrupted run and after compaction."""

    files: int
    manifests: int


def manifests(store: CommitStore) -> list[Manifest]:
    """The current manifests, ordered by range. Raises ``ArchiveDamaged`` and what the store raises."""
    found = [load_at(store, name) for name in current(_names(store))]
    logs = sorted({one.log for one in found})
    if len(logs) > 1:
        raise ArchiveDamaged(
            f"{store.full(FOLDER)} has manifests of several logs ({', '.join(logs)}); each log needs an archive of "
            "its own: move those of the others away"
        )
    return found


def load_at(store: CommitStore, name: ManifestName) -> Manifest:
    path = f"{FOLDER}/{name.file}"
    return load(name, store.read_text(path), store.full(path))


def owner(store: CommitStore) -> str | None:
    """The uuid of the log that the first run noted, for an archive without a manifest; None where no run was here.
    Raises ``ArchiveDamaged`` and what the store raises."""
    if _OWNER not in store.names(FOLDER):
        return None
    path = f"{FOLDER}/{_OWNER}"
    try:
        return str(json.loads(store.read_text(path))["log"])
    except (ValueError, KeyError, TypeError) as problem:
        raise ArchiveDamaged(
            f"{store.full(path)} cannot be read ({type(problem).__name__}: {problem}); where there is no manifest "
            "beside it, remove it and archive again"
        ) from problem


def begin(store: CommitStore, log: str) -> None:
    """Note that this is the archive of ``log``. It has nothing yet."""
    path = f"{FOLDER}/{_OWNER}"
    store.write_text(path + _PENDING, json.dumps({"format": FORMAT, "log": log}))
    store.rename(path + _PENDING, path)
    store.sync_folders([FOLDER])


def commit(store: CommitStore, manifest: Manifest, staged: Sequence[str]) -> None:
    """Make ``manifest`` part of the archive; its file number n is in the staging folder as ``staged[n]``, empty where
    it is where it belongs already."""
    path = f"{FOLDER}/{manifest.name.file}"
    store.write_text(path + _PENDING, dump(manifest))
    store.rename_all((source, file.path) for source, file in zip(staged, manifest.files, strict=True) if source)
    store.rename(path + _PENDING, path)
    store.sync_folders([FOLDER])


def clean(store: CommitStore) -> int:
    """Remove what interrupted runs have left; how many files were between staging and commit."""
    store.delete_folder(STAGING)
    pending = [name for name in store.names(FOLDER) if name.endswith(_PENDING)]
    if not pending:
        return 0
    kept = {file.path for name in _names(store) for file in load_at(store, name).files}
    removed = 0
    for file in pending:
        path = f"{FOLDER}/{file}"
        left = [one.path for one in _pending_files(store, file) if one.path not in kept]
        store.delete_all(left)
        store.delete_all([path])
        removed += len(left)
    return removed


def _pending_files(store: CommitStore, file: str) -> tuple[DataFile, ...]:
    name = parse_name(file.removesuffix(_PENDING))
    if name is None:
        return ()
    path = f"{FOLDER}/{file}"
    try:
        return load(name, store.read_text(path), store.full(path)).files
    except ArchiveDamaged:
        return ()  # killed while it was written: nothing had been renamed by then


def drop_replaced(store: CommitStore, now_ms: int, keep_s: float) -> CleanupResult:
    """Remove the manifests that were replaced at least ``keep_s`` ago, and the files that only they name. A reader that
    began before the replacement and still reads loses its files, so ``keep_s`` must be longer than any job takes."""
    written = {name: one.written_ms for one in store.walk(FOLDER) if (name := parse_name(one.path.rpartition("/")[2]))}
    living = set(current(written))
    replaced = []
    for name in written.keys() - living:
        since_ms = min(at for other, at in written.items() if other.generation > name.generation and other.holds(name))
        if now_ms - since_ms >= keep_s * 1000:
            replaced.append(name)
    if not replaced:
        return CleanupResult(0, 0)
    kept = {file.path for name in written.keys() - set(replaced) for file in load_at(store, name).files}
    gone = {file.path for name in replaced for file in load_at(store, name).files} - kept
    store.delete_all(sorted(gone))
    # Only now: a crash in between leaves the manifest, and the files it names are looked for once more.
    store.delete_all(f"{FOLDER}/{name.file}" for name in replaced)
    return CleanupResult(len(gone), len(replaced))


def _names(store: CommitStore) -> list[ManifestName]:
    return [name for file in store.names(FOLDER) if (name := parse_name(file))]
