"""How often processes of this node were fenced: a file beside the log, a number.

A fenced process ends at once, so a number in its memory alone would hardly ever be read. The next process on the same
directory, which follows, tells the sum: a counter that grows over restarts, and begins again where the disk is lost.
"""

import logging
from pathlib import Path
from typing import Final

from syncbrok.log.segments import files
from syncbrok.model.errors import LogFailed, LogFull

_log = logging.getLogger(__name__)

NAME: Final = "fenced"


class Fencings:
    """The fencings of the node whose log is in ``directory``."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME
        self.count = self._remembered()

    def _remembered(self) -> int:
        try:
            return int(self._path.read_text("ascii"))
        except (OSError, ValueError):  # there was none, or the file is no number: nothing rests on it
            return 0

    def note(self) -> None:
        """Count one more. From any thread. The process ends, whether that can be written or not."""
        self.count += 1
        try:
            files.replace_file(self._path, b"%d\n" % self.count)
        except (LogFull, LogFailed) as problem:
            _log.warning("syncbrok.cluster.fencing_not_noted", extra={"detail": problem.detail})
