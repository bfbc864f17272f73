"""The list of what retention knows to be archived, as the job asks and tells it: the file ``archived`` beside the log
of one machine, or whoever leads a cluster; over the network there is none.
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Protocol

from syncbrok.log.segments import retention
from syncbrok.log.segments.retention import Copy


class RetentionList(Protocol):
    """The list of one log; ``log`` is its uuid in hexadecimal."""

    def alone(self, log: str) -> AbstractContextManager[None]:
        """Inside no other job elsewhere archives this log. Raises ``SyncbrokError`` where one does."""
        ...

    def copies(self, log: str) -> Iterable[Copy]:
        """The copies that are noted. Raises ``SyncbrokError`` for another log."""
        ...

    def note(self, log: str, copies: Sequence[Copy]) -> int:
        """Note these; how many were new. Once it returns retention may drop their segments."""
        ...


class NoList:
    """None is kept: what retention knows of a log that is read over the network stays as it is."""

    def alone(self, log: str) -> AbstractContextManager[None]:
        """See ``RetentionList``: nobody else is asked."""
        del log
        return nullcontext()

    def copies(self, log: str) -> Iterable[Copy]:
        """See ``RetentionList``: none."""
        del log
        return ()

    def note(self, log: str, copies: Sequence[Copy]) -> int:
        """See ``RetentionList``: nowhere."""
        del log, copies
        return 0


class MarkerFile:
    """The list of a log that one machine alone writes, in its ``directory``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def alone(self, log: str) -> AbstractContextManager[None]:
        """See ``RetentionList``: there is no other place to run one, and here the directory is locked."""
        del log
        return nullcontext()

    def copies(self, log: str) -> Iterable[Copy]:
        """See ``RetentionList``; the file is that of the directory's log."""
        del log
        return retention.copies(self._directory)

    def note(self, log: str, copies: Sequence[Copy]) -> int:
        """See ``RetentionList``. Raises ``OSError`` and ``LogFailed``."""
        del log
        new = retention.not_noted(self._directory, copies)
        if new:
            retention.note(self._directory, new)
        return len(new)
