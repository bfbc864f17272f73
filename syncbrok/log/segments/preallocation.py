"""The file that the next segment will be, made ahead of need and off the hot path."""

import os
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from threading import Event

from syncbrok.log.segments import files
from syncbrok.log.segments.descriptors import open_file
from syncbrok.model.errors import LogFull
from syncbrok.model.limits import MIB

NAME = "next.tmp"
_PAUSE_S = 0.01
"""Between one MiB of zeros and the next, so that commits find the disk idle."""


class PreallocatedFile:
    """``next.tmp`` of ``room_bytes``, made by ``background``."""

    def __init__(self, directory: Path, room_bytes: int, background: Executor) -> None:
        self.path = directory / NAME
        self._room_bytes = room_bytes
        self._background = background
        self._made: Future[None] | None = None
        self._hurry = Event()

    def begin(self, least_bytes: int) -> None:
        """Start making it."""
        self._hurry.clear()
        self._made = self._background.submit(self._make, least_bytes)

    def wait(self, least_bytes: int) -> Path:
        """The file with room for at least ``least_bytes``; made now if it has not been. Raises ``LogFull`` or
        ``LogFailed``."""
        made, self._made = self._made, None
        self._hurry.set()
        if made is None or not self._is_enough(made, least_bytes):
            self._make(least_bytes)
        return self.path

    def claim(self, least_bytes: int) -> None:
        """Make it now, if it has not been made with so much room: ``wait`` finds it then. Raises as ``wait``."""
        self.wait(least_bytes)
        self._made = Future()
        self._made.set_result(None)

    def _is_enough(self, made: "Future[None]", least_bytes: int) -> bool:
        try:
            made.result()
        except LogFull:
            return False  # there may be room now
        return self.path.stat().st_size >= least_bytes

    def close(self) -> None:
        """No more is made; what is being made is soon done."""
        self._hurry.set()

    def _make(self, least_bytes: int) -> None:
        room_bytes = max(self._room_bytes, least_bytes)
        preallocate(self.path, room_bytes, least_bytes, lambda: self._hurry.wait(_PAUSE_S))


def preallocate(path: Path, room_bytes: int, least_bytes: int, hurry: Callable[[], bool]) -> None:
    """Make ``path`` ready to become a segment, so that a roll need not wait for room to be found: ``room_bytes``
    of zeros, or where the disk has not so many at least ``least_bytes``. ``hurry`` is called between one MiB and the
    next; it may wait, to leave the disk to others; true: do without the rest. Raises ``LogFull`` or ``LogFailed``.

    The zeros are written, not only allocated: a commit into them then changes no extent, which spares the file
    system's own journal (282 us instead of 575 for 160 KB, 99th percentile 1.1 ms instead of 5.1).
    """
    try:
        descriptor = open_file(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            if files.give_room(descriptor, room_bytes):
                _fill(descriptor, path, room_bytes, hurry)
            else:
                os.ftruncate(descriptor, 0)
                files.write_at(descriptor, bytes(least_bytes), 0, path)
            files.sync_new(descriptor, path)
        finally:
            os.close(descriptor)
    except OSError as problem:
        raise files.write_problem(problem, path) from problem


def _fill(descriptor: int, path: Path, room_bytes: int, hurry: Callable[[], bool]) -> None:
    zeros = bytes(min(MIB, room_bytes))
    for at in range(0, room_bytes, MIB):
        if hurry():
            break
        files.write_at(descriptor, zeros[: room_bytes - at], at, path)
        files.sync_new(descriptor, path)
