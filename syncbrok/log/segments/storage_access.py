"""Refuses a storage directory through which others lead the log astray: by a symbolic link among its files, or a file
that everybody may write to. Whoever can put a link there has the broker, which may be root, write into another file.

That everybody may write to the directory is only logged: a volume of a container, or a file system in memory, is often
made so, and its user may be unable to change it.
"""

import logging
import os
import stat
from pathlib import Path

from syncbrok.model.errors import BadConfig

_log = logging.getLogger(__name__)


def refuse_open_storage(directory: Path) -> None:
    """Raises ``BadConfig``, which says what to do, and ``OSError``. The directory itself may be reached by a link: who
    starts the broker has named it."""
    mode = directory.stat().st_mode
    if mode & stat.S_IWOTH:
        told = {"directory": str(directory), "mode": f"{stat.S_IMODE(mode):04o}", "mend": f"chmod o-w {directory}"}
        _log.warning("syncbrok.log.storage_open", extra=told)
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_symlink():
                raise BadConfig(
                    f"{entry.path} is a symbolic link to {Path(entry.path).readlink()}: files of the log are never "
                    "links. Put the file itself there, or remove the link"
                )
            if entry.is_file(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_mode & stat.S_IWOTH:
                raise BadConfig(f"everybody may write to {entry.path}: chmod o-w {entry.path}, and look at who did")
