"""System calls of the log, and the meaning of their errors. Only here ``OSError`` of a write is mapped."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from syncbrok.log.segments.descriptors import open_file
from syncbrok.model.errors import LogFailed, LogFull

NO_ROOM = frozenset({errno.ENOSPC, errno.EFBIG, errno.EDQUOT})
"""Errors that go away when room is made. After any other error of a write or fsync the state of the disk is unknown."""
_PAGE_BYTES = 4096
"""the system reads so many bytes at once, and so a read error is about as many"""


def write_problem(problem: OSError, path: Path) -> LogFull | LogFailed:
    """The log's error for an ``OSError`` while writing ``path``."""
    if problem.errno in NO_ROOM:
        return LogFull(
            f"no room for the log: {problem.strerror}; make room on the disk of {path.parent}", file=path.name
        )
    return LogFailed(
        f"writing {path} failed: {problem.strerror}. What is on the disk is unknown, so nothing more is written; "
        "look at the disk, then start again",
        file=path.name,
    )


_NOT_OURS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST,
                       errno.ELOOP, errno.ENAMETOOLONG})  # fmt: skip
"""a directory that this user cannot have: the disk is well"""


def opening_problem(problem: OSError, directory: Path) -> LogFull | LogFailed | OSError:
    """The log's error for an ``OSError`` while opening the log in ``directory``; ``problem`` itself where the directory
    cannot be used, since its owner can mend that."""
    if problem.errno in _NOT_OURS:
        return problem
    if problem.errno in NO_ROOM:
        return LogFull(f"no room to open the log in {directory}: {problem.strerror}; make room on its disk")
    what = (
        f"opening the log in {directory} failed: {problem}"
        if problem.filename is None
        else (
            f"{problem.filename} cannot be read or written: {problem.strerror}. The log in {directory} is left as it is"
        )
    )
    return LogFailed(
        f"{what}; look at the disk, then start again; what can be read is kept with: syncbrok log salvage",
        file=Path(problem.filename or directory).name,
    )


@contextmanager
def if_there_is_room() -> Iterator[None]:
    """Ignores a full disk inside: the work is left undone, and nothing depends on it."""
    try:
        yield
    except OSError as problem:
        if problem.errno not in NO_ROOM:
            raise


def write_at(descriptor: int, data: bytes, offset: int, path: Path) -> None:
    """One ``pwrite``. Raises ``LogFull`` or ``LogFailed``.

    A short write means that a limit (disk, quota, file size) was reached in the middle. The rest is not tried, because
    the caller cuts the file back to where it was good.
    """
    try:
        written = os.pwrite(descriptor, data, offset)
    except OSError as problem:
        raise write_problem(problem, path) from problem
    if written != len(data):
        raise LogFull(f"no room for the log: {written} of {len(data)} bytes written to {path}", file=path.name)


def read_at(descriptor: int, length: int, offset: int) -> bytes:
    """Up to ``length`` bytes; fewer only at the end of the file."""
    data = os.pread(descriptor, length, offset)
    if len(data) in (0, length):
        return data
    pieces = [data]
    got = len(data)
    while got < length:
        data = os.pread(descriptor, length - got, offset + got)
        if not data:
            break
        pieces.append(data)
        got += len(data)
    return b"".join(pieces)


def read_around(descriptor: int, length: int, offset: int) -> bytes:
    """As ``read_at``, for bytes that are compared with their checksum: where the disk cannot read a page, asked twice,
    zeros stand in its place, so that what is beside it is not lost too. Never for the end of a log: zeros say there
    that nothing follows."""
    with suppress(OSError):
        return read_at(descriptor, length, offset)
    pieces: list[bytes] = []
    end = offset + length
    while offset < end:
        following = min(end, (offset // _PAGE_BYTES + 1) * _PAGE_BYTES)
        try:
            pieces.append(read_at(descriptor, following - offset, offset))
        except OSError as problem:
            if problem.errno != errno.EIO:
                raise
            pieces.append(bytes(following - offset))
        offset = following
    return b"".join(pieces)


def can_read(path: Path) -> bool:
    """Whether the disk reads the first page of ``path``: it is asked, not the memory that may have the page."""
    try:
        descriptor = open_file(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, _PAGE_BYTES, os.POSIX_FADV_DONTNEED)
            read_at(descriptor, _PAGE_BYTES, 0)
        finally:
            os.close(descriptor)
    except OSError as problem:
        return problem.errno != errno.EIO
    return True


def read_into(descriptor: int, view: memoryview, offset: int) -> int:
    """Fill ``view`` from ``offset`` on; how many bytes there were, fewer than asked only at the end of the file."""
    got = 0
    while got < len(view):
        more = os.preadv(descriptor, [view[got:]], offset + got)
        if not more:
            break
        got += more
    return got


def sync(descriptor: int, path: Path) -> None:
    """``fdatasync``. Whatever it raises is ``LogFailed``: after a failed fsync the pages count as clean, so that a
    second one would report success for bytes that are lost."""
    try:
        os.fdatasync(descriptor)
    except OSError as problem:
        raise LogFailed(f"fsync of {path} failed: {problem.strerror}; never tried again", file=path.name) from problem


def sync_new(descriptor: int, path: Path) -> None:
    """``sync`` for a new file that nothing relies on before it has its name. So a full disk is ``LogFull``: the file is
    made anew later."""
    try:
        os.fdatasync(descriptor)
    except OSError as problem:
        raise write_problem(problem, path) from problem


def sync_directory(directory: Path) -> None:
    """Make names durable: without it a crash may forget a file that was renamed or removed. Raises ``LogFull`` (names
    are not lost for want of room; ask again) or ``LogFailed``."""
    with new_names(directory):
        pass


@contextmanager
def new_names(directory: Path) -> Iterator[None]:
    """Names that change inside are durable afterwards, as with ``sync_directory``. The directory is opened first: once
    a name has changed, it must not lack a descriptor. Raises ``NoDescriptors``, ``LogFull``, ``LogFailed``."""
    try:
        descriptor = open_file(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as problem:
        raise write_problem(problem, directory) from problem
    try:
        yield
        try:
            os.fsync(descriptor)
        except OSError as problem:
            raise write_problem(problem, directory) from problem
    finally:
        os.close(descriptor)


def make_directory(directory: Path) -> None:
    """``directory`` and those above it are there, and stay there; who it is made for alone looks into it. Raises
    ``LogFailed``, and ``OSError`` where it may not be made."""
    missing = [one for one in (directory, *directory.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(mode=0o700 if one == directory else 0o777, exist_ok=True)
    sync_names(directory, made=len(missing))


def sync_names(directory: Path, made: int = 0) -> None:
    """The names of ``directory`` and of those above it are durable, up to where its file system begins. Those that are
    there already too: who made one may have been killed before its fsync, or the fsync failed. One that this user may
    not read had been made by somebody else, unless it holds one of the ``made`` lowest. Raises as ``sync_directory``.
    """
    here = directory.resolve()
    for depth, one in enumerate((here, *here.parents[:-1])):
        if one.parent.stat().st_dev != here.stat().st_dev:
            break
        if depth < made or os.access(one.parent, os.R_OK):
            sync_directory(one.parent)


def replace_file(path: Path, data: bytes) -> None:
    """``path`` holds ``data`` or, after a crash, what it held before. Raises ``LogFull`` or ``LogFailed``."""
    temporary = path.with_name(path.name + ".tmp")
    with new_names(path.parent):
        try:
            descriptor = open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            try:
                write_at(descriptor, data, 0, temporary)
                sync_new(descriptor, temporary)
            finally:
                os.close(descriptor)
            temporary.rename(path)
        except OSError as problem:
            raise write_problem(problem, path) from problem


@contextmanager
def unfinished(path: Path) -> Iterator[None]:
    """Removes the file at ``path`` if the block fails: on a full disk it would take the room of others."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            path.unlink()
        raise


def give_room(descriptor: int, length: int) -> bool:
    """Allocate ``length`` bytes from the start of a file. False where there is no room or the file system cannot."""
    try:
        os.posix_fallocate(descriptor, 0, length)
    except OSError as problem:
        if problem.errno in NO_ROOM or problem.errno in (errno.EOPNOTSUPP, errno.EINVAL):
            return False
        raise
    return True
