"""Erases what is older than its queue wants to keep it (RULES 37): the settings ``retention`` and ``erase_after``;
and what says of itself how long its content is kept.

    line      what of a queue is due; one for each of its settings (``ageing``)
    look      some hundred messages of it: which have ended, from memory; when, from their rows. No content is read
    erase     a fact names those that are due, as where an operator erases; the rest is ``erasing``'s

No state of it stands in the log: a start, or a new leader, looks at everything again and finds most of it erased.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any, Final, NamedTuple

from syncbrok.delivery.scheduler.scheduler import Scheduler
from syncbrok.model.errors import BrokerFault
from syncbrok.model.facts import Erased
from syncbrok.model.journal import MessageIndex
from syncbrok.model.message import QueueSettings
from syncbrok.model.names import MessageId, sequence_of, time_ms_of
from syncbrok.space.commit.commit_batch import CommitBatch
from syncbrok.space.operations.ageing import Line, LinePiece, Met, ended_us
from syncbrok.space.queries.finding import ids_of
from syncbrok.space.reader_threads import RunBlocking
from syncbrok.space.state.erasures import Erasures
from syncbrok.space.state.own_times import OwnTimes
from syncbrok.space.state.registry import Departed, Registry

_log = logging.getLogger(__name__)

_TOGETHER: Final = 500
"""messages looked at, and erased by one fact"""
_PLACES: Final = 64
"""looked up with one call"""
_LOOKS: Final = 16
"""so often is it looked in the time that the shortest setting names"""
_EVERY_S: Final = (0.1, 60.0)
_REST: Final = 4
"""times as long as a step took: where there is much to look at it has a fifth of a core"""
_STRETCH_S: Final = 10.0
"""of looking without a pause; then it is asked anew which queues have what is due"""
_AGAIN_US: Final = 1_000_000
"""what could not be erased now is looked at again then"""


class _Aim(NamedTuple):
    """A setting of a queue (number). ``whole``: the message is gone, not its content alone. ``own_us``: of messages of
    any queue (0) that name this time themselves."""

    queue: int
    whole: bool
    own_us: int = 0


class QueueRetention:
    """``append`` runs a step in the next batch; ``one_at_a_time`` is held where a replay is planned. ``erases``: why
    nothing can be erased here, in words. ``wanted`` is set when a queue may have got such a setting."""

    def __init__(
        self,
        journal: MessageIndex,
        registry: Registry,
        scheduler: Scheduler,
        erasures: Erasures,
        own_times: OwnTimes,
        append: Callable[[Callable[[CommitBatch], Any]], Awaitable[Any]],
        run_blocking: RunBlocking,
        one_at_a_time: asyncio.Lock,
        clock_us: Callable[[], int],
        erases: str | None,
    ) -> None:
        self.wanted = asyncio.Event()
        self._journal = journal
        self._registry = registry
        self._scheduler = scheduler
        self._erasures = erasures
        self._own_times = own_times
        self._append = append
        self._run_blocking = run_blocking
        self._one_at_a_time = one_at_a_time
        self._clock_us = clock_us
        self._erases = erases
        self._lines: dict[_Aim, Line] = {}
        self._looking = asyncio.Lock()

    async def run(self) -> None:
        """For ever: erase what is due; nothing while no queue has such a setting."""
        while True:
            self.wanted.clear()
            async with self._looking:
                _, all_seen = await self._erase_due(time.monotonic() + _STRETCH_S)
            if all_seen:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._pause_s()):
                        await self.wanted.wait()

    def _pause_s(self) -> float | None:
        if not self._lines:
            return None
        shortest_s = min(line.delay_us for line in self._lines.values()) / 1e6
        least_s, most_s = _EVERY_S
        return min(most_s, max(least_s, shortest_s / _LOOKS))

    async def erase_due(self) -> int:
        """Erase what is due now; how many messages. What fails is tried again at the next look."""
        async with self._looking:
            return (await self._erase_due())[0]

    async def _erase_due(self, until_s: float = inf) -> tuple[int, bool]:
        """Take a step with each line in turn, so that none waits for millions of another, until all is seen that was
        due at the beginning, or it is ``until_s`` (monotonic): how many messages were erased, and whether all was seen.
        """
        self._set_lines()
        now_us, erased, lines = self._clock_us(), Counter[_Aim](), dict(self._lines)
        try:
            while lines and time.monotonic() < until_s:
                for aim, line in tuple(lines.items()):
                    began_s = time.monotonic()
                    count, goes_on = await self._step(aim, line, now_us)
                    erased[aim] += count
                    if goes_on:
                        await asyncio.sleep(_REST * (time.monotonic() - began_s))
                    else:
                        del lines[aim]
        except (BrokerFault, OSError) as problem:
            detail = getattr(problem, "detail", str(problem))
            _log.warning("syncbrok.space.queue_retention_stuck", extra={"detail": detail})
            lines.clear()
        for aim, count in (+erased).items():
            queue = self._registry.queue_name(aim.queue) if aim.queue else None
            _log.info("syncbrok.space.due_erased", extra={"queue": queue, "messages": count, "whole": aim.whole})
        return erased.total(), not lines

    def _set_lines(self) -> None:
        """Follow the settings as they stand. A line begins anew where its own has changed."""
        wanted: dict[_Aim, int] = {}
        for queue in self._registry.queues.values():
            wanted.update(_aims(queue.number, queue.settings))
        wanted.update((_Aim(0, whole=False, own_us=one), one) for one in self._own_times.times_us)
        if wanted and self._erases is not None:
            _log.warning("syncbrok.space.queue_retention_stuck", extra={"detail": self._erases})
            wanted = {}
        known = self._lines
        self._lines = {
            aim: known[aim] if aim in known and known[aim].delay_us == delay_us else Line(delay_us)
            for aim, delay_us in wanted.items()
        }

    # -- a line -------------------------------------------------------------------------------------------------------

    async def _step(self, aim: _Aim, line: Line, now_us: int) -> tuple[int, bool]:
        """Look at some of the line: how many messages were erased, and whether there is more that wants to be looked at
        by ``now_us``."""
        piece = line.take(now_us)
        try:
            met, more = await self._look(aim, line, piece, now_us)
        except BaseException:
            line.give_back(piece)
            raise
        due, goes_on = line.judge(piece, met, now_us, more=more)
        count = 0
        if due:
            try:
                count = await self._erase(aim, line, due)
            except BaseException:
                line.again(due, now_us + _AGAIN_US)
                raise
        return count, piece.last is not None or goes_on

    async def _look(self, aim: _Aim, line: Line, piece: LinePiece, now_us: int) -> tuple[list[Met], bool]:
        """The next messages of the piece, and whether others follow in it."""
        journal = self._journal
        if aim.own_us:
            found = self._own_times.after(aim.own_us, piece.first - 1, _TOGETHER)
        else:
            found = await self._run_blocking(journal.queue_sequences, aim.queue, piece.first - 1, _TOGETHER)
        some = [one for one in found if piece.last is None or one <= piece.last]
        settled = self._settled(aim)
        met: list[Met | None] = [None if self._has_ended(one) else Met(one, 0, 0) for one in some]
        met = [Met(one, 0, 0, settled=True) if settled(one) else known for one, known in zip(some, met, strict=True)]
        ended = [one for one, known in zip(some, met, strict=True) if known is None]
        if ended:
            young_us = now_us - line.delay_us if piece.last is None else now_us
            departed = self._registry.all_departed()
            told = await self._run_blocking(_ends, journal, ended, range(young_us + 1, now_us + 1), departed)
            if aim.own_us and (gone := [one.sequence for one in told if one.settled]):
                self._own_times.forget(gone)
            told_of = {one.sequence: one for one in told}
            met = [told_of.get(one) if known is None else known for one, known in zip(some, met, strict=True)]
        before_young = met[: met.index(None)] if None in met else met
        return [one for one in before_young if one is not None], len(found) == _TOGETHER and len(some) == len(found)

    def _settled(self, aim: _Aim) -> Callable[[int], bool]:
        """Says of a message (own sequence) whether a line for that has nothing more to do with it."""
        is_erased, own = self._erasures.holds, self._own_times
        if aim.whole:
            return self._erasures.is_past
        return is_erased if aim.own_us or not own else lambda one: is_erased(one) or one in own

    def _has_ended(self, message: int) -> bool:
        return self._scheduler.ended(message) and not self._scheduler.is_replayed(message)

    # -- erasing ------------------------------------------------------------------------------------------------------

    async def _erase(self, aim: _Aim, line: Line, due: Sequence[int]) -> int:
        ids = await self._run_blocking(ids_of, self._journal, due)
        async with self._one_at_a_time:  # a replay that is being planned must not find it whole
            left = await self._append(partial(self._name_erased, aim, ids))
        line.again(left, self._clock_us() + _AGAIN_US)
        return len(ids) - len(left)

    def _name_erased(self, aim: _Aim, ids: Sequence[MessageId], batch: CommitBatch) -> list[int]:
        """Append the fact; returns those that go on meanwhile, in a replay."""
        settled = self._settled(aim)
        left = [sequence_of(one) for one in ids if not self._has_ended(sequence_of(one))]
        going = [one for one in ids if sequence_of(one) not in left and not settled(sequence_of(one))]
        if going:
            batch.add(Erased(batch.sequence, batch.time_us, batch.now_us, tuple(going), past_retention=aim.whole))
        return left


def _aims(queue: int, settings: QueueSettings) -> Iterable[tuple[_Aim, int]]:
    """The aims that the settings of a queue (number) have, each with its time in microseconds."""
    retention_s, erase_after_s = settings.retention_s, settings.erase_after_s
    if retention_s is not None:
        yield _Aim(queue, whole=True), int(retention_s * 1e6)
    if erase_after_s is not None and (retention_s is None or erase_after_s < retention_s):
        yield _Aim(queue, whole=False), int(erase_after_s * 1e6)


# -- in a reader's thread ---------------------------------------------------------------------------------------------


def _places(journal: MessageIndex, sequences: Sequence[int]) -> Iterator[tuple[int, tuple[MessageId, int] | None]]:
    """Each with its id and queue, some at a time: mostly the first is too young, and none behind it is asked for."""
    for at in range(0, len(sequences), _PLACES):
        some = sequences[at : at + _PLACES]
        yield from zip(some, journal.places_of(some), strict=True)


def _ends(
    journal: MessageIndex, sequences: Sequence[int], young: range, departed: Sequence[tuple[int, Departed]]
) -> list[Met]:
    """These with the times of their ends, up to the first that was accepted (Unix microseconds) in ``young``, that one
    included; one that is gone is settled."""
    accepted: dict[int, tuple[int, int]] = {}
    """when, and in which queue"""
    met: list[Met] = []
    youngest: list[Met] = []
    for one, place in _places(journal, sequences):
        if place is None:
            met.append(Met(one, 0, 0, settled=True))
            continue
        accepted_us = time_ms_of(place[0]) * 1_000
        if accepted_us in young:
            youngest.append(Met(one, accepted_us, accepted_us))
            break
        accepted[one] = accepted_us, place[1]
    for (one, (accepted_us, queue)), rows in zip(
        accepted.items(), journal.timed_rows_of_many(list(accepted)), strict=True
    ):
        gone = [
            (number, it.time_us)
            for number, it in departed
            if it.queue == queue and it.counts and it.since < one < it.until
        ]
        met.append(Met(one, accepted_us, ended_us(accepted_us, [row.row for row in rows], gone)))
    return met + youngest
