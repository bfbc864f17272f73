"""The exclusive lock of a log: its file says which process has the directory open."""

import fcntl
import os
from pathlib import Path
from typing import Self

from syncbrok.log.segments.descriptors import naming, open_file
from syncbrok.log.segments.files import NO_ROOM, make_directory, opening_problem
from syncbrok.log.segments.storage_access import refuse_open_storage
from syncbrok.model.errors import LogLocked


class DirectoryLock:
    """Holds the lock of the log in ``directory``, which is made, from its making until ``release``; as a context, until
    the end of that. Making one raises ``LogLocked``, ``BadConfig`` for a directory through which others could lead the
    log astray, and what ``opening_problem`` says."""

    def __init__(self, directory: Path) -> None:
        path = directory / "lock"
        try:
            make_directory(directory)
            refuse_open_storage(directory)
            self._descriptor = open_file(path, os.O_RDWR | os.O_CREAT)
        except OSError as problem:
            raise opening_problem(problem, directory) from problem
        try:
            with naming(path):
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.ftruncate(self._descriptor, 0)
                os.pwrite(self._descriptor, b"%d\n" % os.getpid(), 0)
        except BlockingIOError as problem:
            holder = os.pread(self._descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            self.release()
            raise LogLocked(
                f"the log in {directory} is open in process {holder}; stop it first", process=holder
            ) from problem
        except OSError as problem:
            if problem.errno not in NO_ROOM:  # without room it says no number, and is held all the same
                self.release()
                raise opening_problem(problem, directory) from problem

    def release(self) -> None:
        """Let another process have the log."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
