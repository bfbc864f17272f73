"""Looks up how large the contents are of what waited already when its queue began to bound their bytes (RULES 35)."""

import asyncio
from functools import partial
from typing import Final

from syncbrok.delivery.scheduler.scheduler import Scheduler
from syncbrok.model.journal import Log
from syncbrok.space.reader_threads import RunBlocking
from syncbrok.space.state.recovery import sizes_of

_TOGETHER: Final = 500
"""messages that are read in one go: some milliseconds"""


class BacklogSizes:
    """``wanted`` is set when a queue may have begun to bound bytes."""

    def __init__(self, journal: Log, scheduler: Scheduler, run_blocking: RunBlocking) -> None:
        self.wanted = asyncio.Event()
        self._journal = journal
        self._scheduler = scheduler
        self._run_blocking = run_blocking

    async def run(self) -> None:
        """Look them up, until cancelled."""
        while True:
            await self.wanted.wait()
            self.wanted.clear()
            while (some := self._scheduler.unsized(_TOGETHER)) is not None:
                sizes = await self._run_blocking(partial(sizes_of, self._journal, some.messages))
                self._scheduler.note_sizes(some, sizes)
