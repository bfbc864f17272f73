"""The place that the bytes of a log come from: the port, and the directory of a broker on this machine. No Spark.

A place goes to the tasks with the segments that it holds, so it is a value, and its ``repr`` keeps what is secret.
"""

import mmap
import os
from pathlib import Path
from typing import NamedTuple, Protocol

from syncbrok.log.index import sidecar
from syncbrok.log.index.segment_index import SegmentIndex
from syncbrok.log.segments import files
from syncbrok.log.segments.retention import DROPPED


class SegmentFile(Protocol):
    """The bytes of one segment. ``size``: of all of it, when it was opened."""

    size: int

    def read(self, length: int, offset: int) -> bytes:
        """Up to ``length`` bytes; fewer only at the end. Raises ``OSError``, as ``read_into``."""
        ...

    def read_into(self, view: memoryview, offset: int, *, unreadable_as_zeros: bool) -> int:
        """Fill the view, or as much of it as there is up to the end, with at least one byte before that; how many.
        Parts that a disk cannot read become zeros where the checksum will show them as damage."""
        ...

    def whole(self) -> memoryview:
        """All of it, in memory that nobody gives back."""
        ...

    def close(self) -> None: ...


class LogPlace(Protocol):
    """A place that holds a log. ``str()`` tells a person where that is."""

    def options(self) -> dict[str, str]:
        """The options of a reader of this place."""
        ...

    def open(self, path: str, base: int, end: int) -> SegmentFile | None:
        """The segment that begins with ``base``, of which bytes up to ``end`` are asked for; None where retention has
        taken it away."""
        ...

    def index_of(self, path: str, sealed: sidecar.Sealed) -> SegmentIndex | None:
        """The index of that segment; None where there is none to be trusted."""
        ...

    def index_rows(self, path: str, sealed: sidecar.Sealed, table: str) -> int | None:
        """See ``sidecar.rows``."""
        ...

    def may_be_closed(self, path: str) -> bool:
        """Whether the last segment may have been closed in good order, with a sidecar."""
        ...


class LogDirectory(NamedTuple):
    """The storage directory of a broker. ``path`` of its methods is that of a segment's file."""

    directory: str

    def __str__(self) -> str:
        return self.directory

    def options(self) -> dict[str, str]:
        """See ``LogPlace``."""
        return {"path": self.directory}

    def open(self, path: str, base: int, end: int) -> SegmentFile | None:
        """See ``LogPlace``. A dropped one is there under its other name until it is unlinked."""
        del base, end
        for name in (path, path + DROPPED):
            try:
                return OpenFile(os.open(name, os.O_RDONLY))
            except FileNotFoundError:
                continue
        return None

    def index_of(self, path: str, sealed: sidecar.Sealed) -> SegmentIndex | None:
        """See ``LogPlace``."""
        return sidecar.read(Path(path).parent, sealed)

    def index_rows(self, path: str, sealed: sidecar.Sealed, table: str) -> int | None:
        """See ``LogPlace``."""
        return sidecar.rows(Path(path).parent, sealed, table)

    def may_be_closed(self, path: str) -> bool:
        """See ``LogPlace``."""
        return Path(path).with_suffix(".idx").exists()


class OpenFile:
    """A file of this machine; see ``SegmentFile``."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.size = os.fstat(descriptor).st_size

    def read(self, length: int, offset: int) -> bytes:
        """See ``SegmentFile``."""
        return files.read_at(self._descriptor, length, offset)

    def read_into(self, view: memoryview, offset: int, *, unreadable_as_zeros: bool) -> int:
        """See ``SegmentFile``."""
        try:
            return os.preadv(self._descriptor, [view], offset)
        except OSError:
            if not unreadable_as_zeros:
                raise
            view[:] = files.read_around(self._descriptor, len(view), offset)
            return len(view)

    def whole(self) -> memoryview:
        """See ``SegmentFile``; mapped."""
        return memoryview(mmap.mmap(self._descriptor, self.size, mmap.MAP_SHARED | mmap.MAP_POPULATE, mmap.PROT_READ))

    def close(self) -> None:
        os.close(self._descriptor)
