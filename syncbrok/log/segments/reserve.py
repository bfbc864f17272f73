"""A file that only takes up room: released when the disk is full, so that outcomes can still be written."""

import os
from contextlib import suppress
from pathlib import Path

from syncbrok.log.segments import files
from syncbrok.log.segments.descriptors import naming, open_file

NAME = "reserve"


class Reserve:
    """``short`` from the moment a write found no room until there is room again."""

    def __init__(self, directory: Path, size_bytes: int) -> None:
        self._path = directory / NAME
        self._directory = directory
        self._size_bytes = size_bytes
        self.short = False

    def make(self) -> bool:
        """Take up the room; False where there is none. Raises ``OSError`` where the disk fails otherwise."""
        if not self._size_bytes:
            return True
        with files.if_there_is_room(), naming(self._path):
            descriptor = open_file(self._path, os.O_RDWR | os.O_CREAT)
            try:
                if files.give_room(descriptor, self._size_bytes):
                    return True
                os.ftruncate(descriptor, 0)
            finally:
                os.close(descriptor)
        return False

    def ran_short(self, *, essential: bool) -> bool:
        """A write has found no room. True: the reserve was given back to the disk for what is ``essential``, and the
        write may be tried once more."""
        self.short = True
        return essential and self.release()

    def release(self) -> bool:
        """Give the room back to the disk. False where there was none to give."""
        with files.if_there_is_room(), suppress(FileNotFoundError):
            if self._path.stat().st_size:
                self._path.unlink()
                return True
        return False

    def has_room(self) -> bool:
        """Whether appending may be tried again: there is room for the reserve, and twice as much beside it."""
        if not self.short:
            return True
        try:
            disk = os.statvfs(self._directory)
            if disk.f_bavail * disk.f_frsize < 3 * self._size_bytes or not self.make():
                return False
        except OSError:
            return False
        self.short = False
        return True
