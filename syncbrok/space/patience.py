"""Waits for a disk that reads nothing for the time being.

Internal readers, which would give up a message that they cannot read, read with ``Patience``.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from syncbrok.model.errors import LogUnreadable
from syncbrok.space.reader_threads import RunBlocking

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger(__name__)

_PAUSE_S: Final = 1.0
"""between two tries"""


class Patience:
    """Runs readers of the log, and repeats them while the disk reads nothing of it at all (RULES 28).

    An unreadable page costs its records. A disk that is cut off costs none, though none can be read: internal work
    waits for it, and the log says so. Work in memory and writes go on. Clients that ask are refused for now.
    """

    def __init__(self, run_blocking: RunBlocking) -> None:
        self._run_blocking = run_blocking
        self._waits = False

    async def __call__(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """The result of ``work``, which runs in a reader's thread."""
        while True:
            try:
                found = await self._run_blocking(work, *arguments, **named)
            except LogUnreadable as problem:
                if not self._waits:
                    self._waits = True
                    _log.critical("syncbrok.space.disk_unreadable", extra={"detail": problem.detail})
                await asyncio.sleep(_PAUSE_S)
                continue
            if self._waits:
                self._waits = False
                _log.warning("syncbrok.space.disk_readable")
            return found
