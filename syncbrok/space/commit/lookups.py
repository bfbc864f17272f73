"""Units that cannot be decided from memory: what they want is read together, then they go back to their channel."""

import asyncio
import logging

from syncbrok.model.errors import LogUnreadable
from syncbrok.model.facts import StoredMessage
from syncbrok.model.journal import MessageIndex
from syncbrok.space.commit.acceptance import LookupResult, Wanted, merge
from syncbrok.space.commit.channel import BoundedChannel, ChannelItem, stopped
from syncbrok.space.reader_threads import RunBlocking

_log = logging.getLogger(__name__)

_read_together = 64


class Lookups:
    """Looks up records for units, one look-up at a time for all units gathered. Publishes that need none go on
    meanwhile. While the disk reads nothing, units that need one are refused."""

    def __init__(self, journal: MessageIndex, run_blocking: RunBlocking, channel: BoundedChannel) -> None:
        self._journal = journal
        self._run_blocking = run_blocking
        self._channel = channel
        self._asked: list[tuple[ChannelItem, Wanted]] = []
        self._some = asyncio.Event()
        self._none = asyncio.Event()
        self._none.set()

    def ask(self, waiting: ChannelItem, wanted: Wanted) -> None:
        self._asked.append((waiting, wanted))
        self._some.set()
        self._none.clear()

    async def run(self) -> None:
        """Look up, for ever."""
        asked: list[tuple[ChannelItem, Wanted]] = []
        try:
            while True:
                await self._some.wait()
                self._some.clear()
                asked, self._asked = self._asked, []
                try:
                    found = await self._run_blocking(look_up, self._journal, frozenset(wanted for _, wanted in asked))
                except LogUnreadable as fault:
                    for waiting, _ in asked:
                        waiting.refuse(LogUnreadable(fault.detail))
                else:
                    for waiting, _ in asked:
                        waiting.found = merge(waiting.found, found)
                    self._channel.put_back(waiting for waiting, _ in asked)
                asked = []
                if not self._asked:
                    self._none.set()
        finally:
            for waiting, _ in (*asked, *self._asked):
                waiting.refuse(stopped())

    async def finish(self) -> None:
        """Wait until every unit with a look-up is back in its channel."""
        await self._none.wait()


def look_up(journal: MessageIndex, wanted: frozenset[Wanted]) -> LookupResult:
    """Read the wanted records. Call it in a reader's thread."""
    found = LookupResult()
    sequences: set[int] = set()
    for one in wanted:
        sequences |= one.messages
        for key in one.keys:
            newest = next(iter(journal.with_idempotency_key(key.key, key.queue, one.since_us)), 0)
            found.older[key] = newest
            if newest:
                sequences.add(newest)
    ordered = sorted(sequences)
    for at in range(0, len(ordered), _read_together):
        together = ordered[at : at + _read_together]
        for sequence, message in zip(together, journal.read_many(together), strict=True):
            _note(journal, found, sequence, message)
    return found


def _note(journal: MessageIndex, found: LookupResult, sequence: int, message: StoredMessage | None) -> None:
    found.looked.add(sequence)
    if message is not None:
        found.messages[sequence] = message._replace(content=b"")
        return
    kind = journal.kind_of(sequence)
    if kind == "lost":
        found.lost[sequence] = journal.lost(sequence)
    elif kind in ("message", "dropped"):
        found.dropped.add(sequence)
