"""Takes erased messages off the disk, in time (RULES 32).

Together: each round writes segments of 64 MiB anew, so it waits until half of the time is over that an erasure may
take. The other half is for what fails meanwhile. What has been done by a round is known from the records themselves; a
round that a crash cut short is begun again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from syncbrok.model.errors import BrokerFault
from syncbrok.model.journal import Log
from syncbrok.space.reader_threads import RunBlocking
from syncbrok.space.state.erasures import Erasures

_log = logging.getLogger(__name__)

_LOOKS: Final = 16
"""so often is it looked in the time that an erasure may take"""
_EVERY_S_MAX: Final = 60.0


class ErasureRounds:
    """``keep_snapshot`` begins a new section of the log; ``save`` makes a checkpoint; ``dropping`` is held while
    sections go."""

    def __init__(
        self,
        journal: Log,
        erasures: Erasures,
        keep_snapshot: Callable[[], Awaitable[None]],
        save: Callable[[], Awaitable[bool]],
        run_blocking: RunBlocking,
        dropping: asyncio.Lock,
        clock_us: Callable[[], int],
        within_s: float,
    ) -> None:
        self._journal = journal
        self._erasures = erasures
        self._keep_snapshot = keep_snapshot
        self._save = save
        self._run_blocking = run_blocking
        self._dropping = dropping
        self._clock_us = clock_us
        self._within_s = within_s

    async def run(self) -> None:
        """For ever: do what is due."""
        while True:
            await asyncio.sleep(min(_EVERY_S_MAX, self._within_s / _LOOKS))
            await self.erase_due()

    async def erase_due(self) -> int:
        """Erase what has waited for half of its time, and all that waits beside it; how many messages. What fails is
        tried again at the next look."""
        self._erasures.forget_before(self._journal.first_sequence)
        pending = self._erasures.pending
        if not pending:
            return 0
        waited_us = self._clock_us() - min(fact.clock_us for fact in pending)
        if 0 <= waited_us < self._within_s * 500_000:
            return 0
        messages = sum(fact.size for fact in pending)
        try:
            await self._erase(pending[-1].sequence)
        except (BrokerFault, OSError) as problem:
            late = waited_us > self._within_s * 1_000_000
            detail = getattr(problem, "detail", str(problem))
            _log.error("syncbrok.space.erasure_stuck", extra={"detail": detail, "messages": messages, "late": late})
            return 0
        self._erasures.through = pending[-1].sequence
        await self._save()
        _log.info("syncbrok.space.erased", extra={"messages": messages, "through": self._erasures.through})
        return messages

    async def _erase(self, through: int) -> None:
        # Those of earlier rounds too: the nodes of a cluster write the same bytes, whichever rounds they have missed.
        messages = self._erasures.messages_through(through)
        async with self._dropping:
            if await self._run_blocking(self._journal.erase_waits_for_snapshot, messages, through):
                await self._keep_snapshot()
            # Both checkpoints: what they hold is of now, and the record that each ends with is not rewritten below.
            for _ in range(2):
                if not await self._save():
                    raise BrokerFault("no checkpoint could be written, and a start may need one of before")
            await self._run_blocking(self._journal.erase, messages)
