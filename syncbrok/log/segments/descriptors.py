"""Opening the log's files where descriptors are short: the log keeps some of its own.

Connections may use up all descriptors of the process, or of the machine. An ``open`` that fails for that has written
nothing, so it says nothing about the disk. It is tried again with a descriptor that the log holds for this; if those
are in use too it waits a moment for one. Only then is it refused, and the state of the disk is still known.
"""

import errno
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from threading import Lock
from typing import Final

from syncbrok.model.errors import NoDescriptors

log = logging.getLogger(__name__)

NONE_LEFT: Final = frozenset({errno.EMFILE, errno.ENFILE})
_SPARES: Final = 8
"""a roll needs two at once, each of the readers' threads one"""
_PATIENCE_S: Final = 2.0
_PAUSE_S: Final = 0.02
_LOG_EVERY_S: Final = 60.0

_spares: list[int] = []  # of the process, as the limit is
_changing: Final = Lock()
_logged_s = -60.0


def keep_spares() -> None:
    """Have the spare ones, as far as there are any to be had. Called when a log is opened, and before each file is."""
    if len(_spares) == _SPARES:
        return
    with _changing, suppress(OSError):
        while len(_spares) < _SPARES:
            _spares.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


def open_file(path: Path | str, flags: int, mode: int = 0o600) -> int:
    """``os.open``, also where the process has no descriptor left. Raises ``NoDescriptors`` where even the log's own
    are in use for too long, and ``OSError`` for everything else. May block: never called on the event loop."""
    if len(_spares) < _SPARES:
        keep_spares()
    patient_until_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return os.open(path, flags | os.O_CLOEXEC, mode)
        except OSError as problem:
            if problem.errno not in NONE_LEFT:
                raise
            _log_refusal(path)
            if _give_one():
                continue
            if time.monotonic() > patient_until_s:
                raise NoDescriptors(
                    f"no descriptor is left to open {path}: {problem.strerror}; nothing was written. Raise the limit "
                    "of open files (ulimit -n, LimitNOFILE=) or close connections",
                ) from problem
        time.sleep(_PAUSE_S)


@contextmanager
def reading(path: Path) -> Iterator[FileIO]:
    """``path`` opened to be read; raises as ``open_file``. An error of the system inside names ``path``: that of a read
    says by itself only that some file could not be read."""
    # Unbuffered: its callers read whole pieces, and two questions to the system less are two thirds of a short read.
    with naming(path), os.fdopen(open_file(path, os.O_RDONLY), "rb", buffering=0) as file:
        yield file


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """An error of the system inside that names no file, or a descriptor only, is about ``path``."""
    try:
        yield
    except OSError as problem:
        if problem.errno is not None and (problem.filename is None or isinstance(problem.filename, int)):
            problem.filename = str(path)
        raise


def _log_refusal(path: Path | str) -> None:
    """Log that no descriptor is left to open ``path``, once in ``_LOG_EVERY_S``."""
    global _logged_s  # noqa: PLW0603 (as the spares: it is about the process)
    now_s = time.monotonic()
    if now_s - _logged_s > _LOG_EVERY_S:
        _logged_s = now_s
        log.warning("syncbrok.log.descriptors_short", extra={"file": str(path), "spares": len(_spares)})


def _give_one() -> bool:
    """Close a spare one, so that the next ``open`` finds it. Whether there was one."""
    with _changing:
        if not _spares:
            return False
        os.close(_spares.pop())
        return True
