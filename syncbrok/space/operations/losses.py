"""Ends what has not ended and cannot be read any more, before the segment goes that it stood in (RULES 28)."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from syncbrok.delivery.scheduler.scheduler import Scheduler
from syncbrok.model.facts import ALL_SUBSCRIBERS, Outcome, Outcomes, Reason, Row
from syncbrok.model.journal import Log, Section
from syncbrok.space.commit.commit_batch import CommitBatch
from syncbrok.space.reader_threads import RunBlocking


class Losses:
    """``append`` runs a step in the next batch; see ``Committer.append``. ``patience_us`` says how new a segment must
    be for an attempt that is out to be waited for."""

    def __init__(
        self,
        journal: Log,
        scheduler: Scheduler,
        append: Callable[[Callable[[CommitBatch], Any]], Awaitable[Any]],
        run_blocking: RunBlocking,
        patience_us: Callable[[], int],
    ) -> None:
        self._journal = journal
        self._scheduler = scheduler
        self._append = append
        self._run_blocking = run_blocking
        self._patience_us = patience_us

    async def end_before(self, expired: Sequence[Section]) -> int:
        """Look at every byte of these segments once more, and end what is lost there; how many of them may go. A
        segment with a message that is out at a subscriber waits for the answer: it may have had it whole."""
        for at, section in enumerate(expired):
            await self._run_blocking(self._journal.check, section)
            lost = await self._run_blocking(self._lost_in, section)
            sealed_us = await self._run_blocking(self._journal.sealed_us, section)
            if sealed_us >= self._patience_us() and any(map(self._is_out, lost)):
                return at
            ordered = sorted(lost)
            queues = {self._scheduler.queue_of(one) for one in ordered}
            at_once = min(map(self._scheduler.ended_at_once, queues), default=1)
            for start in range(0, len(ordered), at_once):
                some = {sequence: lost[sequence] for sequence in ordered[start : start + at_once]}
                await self._append(partial(self._end, some))
        return len(expired)

    def _lost_in(self, section: Section) -> dict[int, str]:
        """The messages that have not ended and are read from this segment, and cannot be; what has hit each."""
        hit: dict[int, str] = {}
        for damage in self._journal.damages.get(section.first, ()):
            message = damage.message
            own = range(damage.first, damage.last + 1) if message is None else (message.sequence,)
            hit.update(dict.fromkeys(own, f"its record is damaged: {section.name}, {damage.describe()}"))
        open_ = [sequence for sequence in sorted(hit) if not self._scheduler.ended(sequence)]
        read = self._journal.read_many(open_)
        return {sequence: hit[sequence] for sequence, found in zip(open_, read, strict=True) if found is None}

    def _is_out(self, sequence: int) -> bool:
        state = self._scheduler.delivery_state
        return any(state(sequence, one) == "in_flight" for one in self._scheduler.pending_deliveries(sequence))

    def _end(self, lost: dict[int, str], batch: CommitBatch) -> None:
        rows = tuple(
            Row(
                sequence, ALL_SUBSCRIBERS, 0, Outcome.DEAD, Reason.CONTENT_LOST, 0, batch.time_us, 0, 0, 0, why.encode()
            )
            for sequence, why in lost.items()
            if not self._scheduler.ended(sequence)
        )
        if rows:
            batch.add(Outcomes(batch.sequence, batch.time_us, rows))
