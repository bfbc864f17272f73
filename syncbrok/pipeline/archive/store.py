"""The folder of an archive, in any file system that Hadoop's client knows (file:, hdfs:, s3a:, abfs:, gs:).

An archive needs two things of it: a renamed file is there whole or not at all, and a listing shows all earlier renames.
HDFS and local disks give both. Object stores have no rename: their client copies the object and removes the first one.
The new object still appears whole or not at all, so a commit is as sound there. It only costs a copy of the bytes, and
a crash may leave both objects: a file that no manifest names is no part of the archive.

On a local disk files are fsynced before the commit, since the broker unlinks its own copy after it. Elsewhere a closed
file is as durable as its store promises.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from syncbrok.log.segments.files import sync_names
from syncbrok.model.errors import LogFailed, LogFull, SyncbrokError

T = TypeVar("T")
_TOGETHER: Final = 16
"""requests to a store at a time; each waits for its answer"""


class ArchiveUnreachable(SyncbrokError):
    """The file system of the archive refused something, or cannot be reached."""

    slug = "archive-unreachable"


class StoredFile(NamedTuple):
    """A file: its path relative to the store, its bytes and when it was last written (Unix milliseconds)."""

    path: str
    bytes: int
    written_ms: int


class ArchiveStore:
    """A folder; paths are relative to it. Every method raises ``ArchiveUnreachable`` where the file system fails."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        self._jvm: Any = spark.sparkContext._jvm  # noqa: SLF001  # Hadoop's client has no other door to Python
        context: Any = spark.sparkContext._jsc  # noqa: SLF001
        self._shown = uri
        root = self._tried("is not a place for an archive", lambda: self._jvm.org.apache.hadoop.fs.Path(uri))
        self._fs: Any = self._tried("cannot be reached", lambda: root.getFileSystem(context.hadoopConfiguration()))
        self._root: Any = self._fs.makeQualified(root)
        self.uri = str(self._root.toString())
        """with scheme and absolute: the same on every machine that sees the same file system"""
        local = str(self._fs.getUri().getScheme()) == "file"
        self.local: Path | None = Path(str(self._root.toUri().getPath())) if local else None
        """the folder on this machine's disk, where it is one"""

    def __repr__(self) -> str:
        return f"<ArchiveStore {self.uri}>"

    def full(self, path: str) -> str:
        """The URI of ``path``, as Spark takes it."""
        return f"{self.uri.rstrip('/')}/{path}" if path else self.uri

    # -- looking ------------------------------------------------------------------------------------------------------

    def names(self, folder: str) -> list[str]:
        """The names in ``folder``; empty where there is no such folder."""
        where = self._path(folder)
        if not self._tried(f"cannot look for {folder}", lambda: self._fs.exists(where)):
            return []
        found = self._tried(f"cannot list {folder}", lambda: self._fs.listStatus(where))
        return sorted(str(one.getPath().getName()) for one in found)

    def walk(self, folder: str) -> Iterator[StoredFile]:
        """Yield all files below ``folder``, which need not exist."""
        if self.local is not None:
            try:
                yield from _walk_local(self.local, folder)
            except OSError as problem:
                raise ArchiveUnreachable(f"{self._shown}: cannot list {folder}: {problem.strerror}") from problem
            return
        where = self._path(folder)
        if not self._tried(f"cannot look for {folder}", lambda: self._fs.exists(where)):
            return
        found = self._tried(f"cannot list {folder}", lambda: self._fs.listFiles(where, True))
        # The path alone is compared: a store may answer with another authority than it was asked with.
        cut = len(str(self._root.toUri().getPath()).rstrip("/")) + 1
        while self._tried(f"cannot list {folder}", found.hasNext):
            one = found.next()
            path = str(one.getPath().toUri().getPath())[cut:]
            yield StoredFile(path, int(one.getLen()), int(one.getModificationTime()))

    def read_text(self, path: str) -> str:
        def read() -> str:
            stream = self._fs.open(self._path(path))
            try:
                data: bytes = self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)
                return bytes(data).decode()
            finally:
                stream.close()

        return str(self._tried(f"cannot read {path}", read))

    def sizes(self, paths: Sequence[str]) -> list[int | None]:
        """The bytes of each file; None where there is none."""
        found: dict[str, int] = {}

        def look(path: str) -> None:
            where = self._path(path)
            if self._fs.exists(where):
                found[path] = int(self._fs.getFileStatus(where).getLen())

        self._each(look, paths)
        return [found.get(path) for path in paths]

    # -- changing -----------------------------------------------------------------------------------------------------

    def write_text(self, path: str, text: str) -> None:
        """Write or overwrite ``path``. Not atomic: a caller that needs the file whole or not at all renames it
        afterwards."""

        def write() -> None:
            stream = self._fs.create(self._path(path), True)
            try:
                stream.write(bytearray(text.encode()))
            finally:
                stream.close()

        self._tried(f"cannot write {path}", write)
        self._sync([path])

    def rename(self, source: str, target: str) -> None:
        """Rename a file. ``target`` must not exist; its folder must."""
        done = self._tried(
            f"cannot rename {source} to {target}",
            lambda: self._fs.rename(self._path(source), self._path(target)),
        )
        if not done:
            raise ArchiveUnreachable(
                f"{self._shown}: {source} could not be renamed to {target}; does it exist already?"
            )

    def rename_all(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Rename many files at once, (source, target) each. A file at a target goes first, folders are made. Durable
        when this returns."""
        wanted = list(pairs)
        folders = sorted({target.rpartition("/")[0] for _, target in wanted})
        self._each(self._make_folder, folders)
        self.delete_all(target for _, target in wanted)
        self._each(lambda pair: self.rename(*pair), wanted)
        self.sync_folders(folders)

    def delete_all(self, paths: Iterable[str]) -> None:
        """Delete these files; those that are not there are passed over."""
        self._each(lambda path: self._fs.delete(self._path(path), False), paths)

    def delete_folder(self, folder: str) -> None:
        """Delete ``folder`` and everything in it, if it exists."""
        self._tried(f"cannot remove {folder}", lambda: self._fs.delete(self._path(folder), True))

    # -- durability ---------------------------------------------------------------------------------------------------

    def settle(self, paths: Iterable[str]) -> None:
        """Fsync these files, and drop them from the page cache, so that the next reader reads the disk. Does
        nothing where the store is not on a local disk."""
        self._sync(paths, forget=True)

    def sync_folders(self, folders: Iterable[str]) -> None:
        """Make the names in these folders, and theirs in those above, durable; those above the store's own too, since
        Hadoop's client has made what was missing of them. Does nothing where the store is not on a local disk."""
        if self.local is None:
            return
        above = {"/".join(folder.split("/")[:depth]) for folder in folders for depth in range(folder.count("/") + 2)}
        self._sync(above)
        try:
            sync_names(self.local)
        except (LogFailed, LogFull) as problem:
            raise ArchiveUnreachable(f"{self._shown}: {problem.detail}") from problem

    def _sync(self, paths: Iterable[str], *, forget: bool = False) -> None:
        if self.local is None:
            return
        for path in paths:
            try:
                descriptor = os.open(self.local / path, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                    if forget:
                        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(descriptor)
            except OSError as problem:
                raise ArchiveUnreachable(f"{self._shown}: fsync of {path} failed: {problem.strerror}") from problem

    # -- how ----------------------------------------------------------------------------------------------------------

    def _make_folder(self, folder: str) -> None:
        # On a local disk Hadoop's client starts a chmod for each folder, and an ls for each file that it lists.
        if self.local is None:
            self._fs.mkdirs(self._path(folder))
            return
        try:
            (self.local / folder).mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise ArchiveUnreachable(f"{self._shown}: cannot make {folder}: {problem.strerror}") from problem

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.full(path))

    def _each(self, work: Callable[[T], object], items: Iterable[T]) -> None:
        wanted = list(items)
        if len(wanted) < _TOGETHER:
            for item in wanted:
                self._tried("failed", partial(work, item))
            return
        with ThreadPoolExecutor(_TOGETHER, thread_name_prefix="syncbrok-archive") as threads:
            for _ in threads.map(lambda item: self._tried("failed", partial(work, item)), wanted):
                pass

    def _tried(self, what: str, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except Py4JJavaError as problem:
            java = problem.java_exception
            reason = f"{java.getClass().getSimpleName()}: {java.getMessage()}"
            raise ArchiveUnreachable(f"{self._shown}: {what}: {reason}") from problem
        except PySparkException as problem:  # a few of Java's exceptions come as Spark's own
            raise ArchiveUnreachable(f"{self._shown}: {what}: {problem}") from problem


def _walk_local(root: Path, folder: str) -> Iterator[StoredFile]:
    for path, _, files in os.walk(root / folder):
        for name in files:
            if name.startswith(".") and name.endswith(".crc"):
                continue  # checksums of Hadoop's local file system, which shows them to nobody either
            found = Path(path, name)
            status = found.stat()
            relative = found.relative_to(root).as_posix()
            yield StoredFile(relative, status.st_size, int(status.st_mtime * 1000))
