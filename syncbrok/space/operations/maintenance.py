"""Does what the Space does beside its work: retention, checkpoints, history for subscribers that start in the past, old
secrets and old idempotency keys. Each is one coroutine; none is ever in the way of a publish.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from syncbrok.model import limits
from syncbrok.model.errors import BrokerFault, LogFailed
from syncbrok.model.event_types import EventType
from syncbrok.model.facts import Carried, Outcome, Outcomes, Snapshot, StoredMessage, Tried
from syncbrok.model.journal import Log, MessageIndex, Section
from syncbrok.model.names import sequence_of
from syncbrok.space.commit.commit_batch import CommitBatch
from syncbrok.space.meters import Meters
from syncbrok.space.operations.declarations import Declarations
from syncbrok.space.operations.losses import Losses
from syncbrok.space.operations.replay import attempts_of
from syncbrok.space.pause import pauses
from syncbrok.space.reader_threads import RunBlocking
from syncbrok.space.state.recovery import save_checkpoint
from syncbrok.space.state.secret_store import SecretStore
from syncbrok.space.state.state import State

_log = logging.getLogger(__name__)

RETENTION_EVERY_S: Final = 60.0
CHECKPOINT_EVERY_S: Final = 300.0
SECRETS_EVERY_S: Final = 60.0
GROUPS_EVERY_S: Final = 60.0
DAMAGE_EVERY_S: Final = 1.0
_DAMAGE_SHOWN: Final = 10
"""damaged places of a segment that an event names"""
_carried_together: Final = 64
_history_together: Final = 256
_history_bytes: Final = 8 * limits.MIB
_history_every_s: Final = 0.05
_lag_every_s: Final = 0.5
"""how often it is asked whether somebody lags who does not count; whoever does has much to do first"""
_checkpoint_pause_s: Final = 30.0
"""at least so long between two: each stops the loop, for 25 ms where 5 million bare messages wait that are all alike,
and for 0.8 s where there are a million dead letters"""
_checkpoint_records_min: Final = 10_000
"""fewer in a segment that goes on are replayed in a moment"""


class Maintenance:
    """``append`` and ``keep_snapshot`` are the committer's; ``patience`` is ``run_blocking`` that waits for the disk.
    ``wake`` is called when there is something to deliver; ``prefetch`` is told of messages that were read and are
    delivered next. ``held_after``: see ``LogReaderTable``."""

    def __init__(
        self,
        journal: Log,
        state: State,
        secret_store: SecretStore,
        declarations: Declarations,
        append: Callable[[Callable[[CommitBatch], Any]], Awaitable[Any]],
        keep_snapshot: Callable[[], Awaitable[None]],
        run_blocking: RunBlocking,
        patience: RunBlocking,
        sync: Callable[[], Awaitable[None]],
        clock_us: Callable[[], int],
        retention_s: float,
        idle_after_s: float,
        meters: Meters,
        wake: Callable[[], None],
        prefetch: Callable[[Mapping[int, StoredMessage]], None],
        held_after: Callable[[], int | None],
    ) -> None:
        self._journal = journal
        self._state = state
        self._secret_store = secret_store
        self._declarations = declarations
        self._append = append
        self._keep_snapshot = keep_snapshot
        self._run_blocking = run_blocking
        self._patience = patience
        self._sync = sync
        self._clock_us = clock_us
        self._retention_us = int(retention_s * 1e6)
        self._meters = meters
        self._idle_after_us = int(idle_after_s * 1e6)
        self._wake = wake
        self._prefetch = prefetch
        self._held_after = held_after
        self._events = declarations.events
        self._damage_told: dict[int, int] = {}
        """by section, how many of its damaged places were told"""
        self._saved_through = state.through
        self._generations = (0, 0)
        """through where the checkpoint and the one before it reach, as far as this process has made them"""
        self._losses = Losses(
            journal, state.scheduler, append, run_blocking, lambda: self._clock_us() - 2 * self._retention_us
        )
        self._has_snapshot = asyncio.Event()
        """set when the log has got one: a checkpoint is worth its while"""
        self.history_wanted = asyncio.Event()
        self.dropping = asyncio.Lock()
        """held while segments go: two rounds at once would each take as many, the second those not carried from"""
        self.dropped_through = journal.first_sequence - 1
        """messages up to here live on only in what was carried, and in the list of those that ended badly"""
        self.held_back = ("", 0)
        """what the segments that are older than the retention and stay wait for, and how many they are"""
        self._bad_kept: frozenset[tuple[int, Outcome]] = frozenset()
        """that list as the newest snapshot has it, as far as it is known"""
        self._lost_kept: frozenset[tuple[int, int]] = frozenset()
        """the same of those whose content was lost"""

    def snapshot_kept(self, snapshot: Snapshot) -> None:
        """The log has got this snapshot."""
        self._bad_kept, self._lost_kept = frozenset(snapshot.bad), frozenset(snapshot.lost)
        self._has_snapshot.set()

    # -- retention ------------------------------------------------------------------------------------------------

    async def retain(self) -> None:
        """For ever: drop what is older than the retention."""
        while True:
            await self.drop_expired()
            await self._sweep()
            self._state.keys.forget_before(self._clock_us() - self._retention_us)
            await asyncio.sleep(RETENTION_EVERY_S)

    async def _sweep(self) -> None:
        try:
            await self._run_blocking(self._journal.sweep, self._clock_us())
        except (OSError, LogFailed) as problem:  # of files that are no part of the log any more
            _log.warning("syncbrok.space.sweep_failed", extra={"detail": str(problem)})

    async def drop_expired(self) -> int:
        """Drop the expired sections, oldest first: what has not ended is carried along, the end of what ended badly is
        kept in a new snapshot, and only then do they go. How many went. A crash anywhere between
        leaves records twice, which changes nothing."""
        before_us = self._clock_us() - self._retention_us
        try:
            expired = await self._run_blocking(self._journal.expired, before_us)
            free = await self._free_to_go(expired)
            if free:
                free = free[: await self._losses.end_before(free)]
            if free:
                return await self._drop(free)
            newest = self._journal.sections()[-1]
            opened_us = await self._run_blocking(self._journal.opened_us, newest)
            if opened_us < before_us + self._retention_us * 7 // 8 and newest.records > 1:
                await self._keep_snapshot()  # where little is written the section would never end, and so never expire
        except BrokerFault as fault:  # no room, or the disk reads nothing; it is tried again in a minute
            _log.error("syncbrok.space.retention_stuck", extra={"detail": fault.detail})
        except OSError as problem:  # the archive
            _log.error("syncbrok.space.archive_failed", extra={"detail": str(problem)})
        return 0

    async def _free_to_go(self, expired: Sequence[Section]) -> list[Section]:
        """The sections before the first that has to stay. Asked before anything is carried along, else the same
        messages would be written again every minute."""
        replaying, waits_for = self._state.scheduler.replaying(None), ""
        free: list[Section] = []
        for section in expired:
            waits_for = await self._run_blocking(self._held_back_by, section, replaying)
            if waits_for:
                break
            free.append(section)
        held = expired[len(free) :]
        if (waits_for, len(held)) != self.held_back:
            self.held_back = (waits_for, len(held))
            what = {"segments": len(held), "bytes": sum(section.bytes for section in held)}
            if held:
                _log.warning(f"syncbrok.space.retention_waits_for_{waits_for}", extra={**what, "first": held[0].first})
            else:
                _log.info("syncbrok.space.retention_waits_no_more")
        return free

    def _held_back_by(self, section: Section, replaying: Sequence[int]) -> str:
        """The reason why a segment that is old enough must stay; "": it may go. A message that has ended is not
        carried along, so its segment is what a replay under way reads it from; for as long again as the retention and
        no longer, else a subscriber that is paused would make the log grow without an end."""
        if self._journal.held_back(section):
            return "archive"
        held_after = self._held_after()
        if held_after is not None and section.last > held_after:
            return "reader"
        in_time = self._journal.sealed_us(section) >= self._clock_us() - 2 * self._retention_us
        return "replay" if in_time and self._journal.stands_in(section, replaying) else ""

    async def _drop(self, expired: Sequence[Section]) -> int:
        through = expired[-1].last
        await self._end_untaken(through)
        await self._end_replayed(expired)
        carried, unread = await self._carry(through)
        if unread:
            return 0  # it has rotted since it was looked at: it is named now, and ends as a loss in a minute
        self.dropped_through = through
        scheduler = self._state.scheduler
        bad, lost = scheduler.bad_messages(through), scheduler.lost_letters(through)
        if not (self._bad_kept.issuperset(bad) and self._lost_kept.issuperset(lost)):
            await self._keep_snapshot()  # else without one, since where there is no room for it dropping makes some
        async with self.dropping:
            while self._journal.sections()[0].last <= through:
                await self._run_blocking(self._journal.trim_oldest)
        await self._end_untaken(through)  # at whoever was declared meanwhile, to start with what has gone
        pause = pauses()
        while scheduler.forget_skipped(through, limits.cascade_slice):
            await pause()
        _log.info("syncbrok.space.segments_dropped", extra={"segments": len(expired), "through": through,
                                                            "carried": carried})  # fmt: skip
        return len(expired)

    async def _carry(self, through: int) -> tuple[int, int]:
        """Append again what has not ended; how many those were, and how many could not be read. They are known by
        their own sequences for ever, so the list does not grow under our hands."""
        carried = unread = after = 0
        while True:
            sequences = self._state.scheduler.unended(None, through, _carried_together, after)
            if not sequences:
                return carried, unread
            messages = await self._run_blocking(self._journal.read_many, sequences)
            found = [message for message in messages if message is not None]
            attempts = await self._run_blocking(_attempts_of_each, self._journal, [one.sequence for one in found])
            await self._append(partial(self._carried, found, attempts))
            carried += len(found)
            unread += sum(
                not self._state.scheduler.ended(sequence)
                for sequence in {*sequences}.difference(message.sequence for message in found)
            )
            after = sequences[-1]

    async def _end_replayed(self, expired: Sequence[Section]) -> None:
        """End what a replay was to send again and is read from these sections: those that wait for it there would be
        let go at a start which does not know of it, and nothing would say why."""
        replaying = self._state.scheduler.replaying(None)
        gone = await self._run_blocking(_standing_in, self._journal, expired, replaying) if replaying else []
        for at in range(0, len(gone), limits.cascade_slice):
            await self._append(partial(self._lost_in_replays, gone[at : at + limits.cascade_slice]))

    def _lost_in_replays(self, messages: Sequence[int], batch: CommitBatch) -> None:
        rows = self._state.scheduler.lost_in_replays(messages, batch.now_us)
        if rows:
            batch.add(Outcomes(batch.sequence, batch.time_us, tuple(rows)))

    async def _end_untaken(self, through: int) -> None:
        if self._state.scheduler.dropped_by_retention(through, 0):
            await self._append(partial(self._drop_untaken, through))

    def _drop_untaken(self, through: int, batch: CommitBatch) -> None:
        """End what had yet to come to those whom it does not count: they do not hold retention (RULES 14)."""
        rows = self._state.scheduler.dropped_by_retention(through, batch.now_us)
        if rows:
            batch.add(Outcomes(batch.sequence, batch.time_us, tuple(rows)))
            batch.after.append(partial(self._untaken_dropped, [row.subscriber for row in rows], through))

    def _untaken_dropped(self, subscribers: Sequence[int], through: int) -> None:
        """Count and log that these did not take all up to ``through``; their rows are durable."""
        self._meters.untaken_dropped += len(subscribers)
        for number in subscribers:
            subscriber = self._state.registry.subscriber_id(number)
            _log.warning("syncbrok.space.untaken_dropped", extra={"subscriber": subscriber, "through": through})

    def _carried(
        self, messages: Sequence[StoredMessage], attempts: Sequence[Mapping[int, int]], batch: CommitBatch
    ) -> None:
        for message, of_each in zip(messages, attempts, strict=True):
            if not self._state.scheduler.ended(message.sequence):
                ended, tried = self._state.scheduler.carry(message.sequence)
                # A replay goes on from there, RULES 21: the rows that say it go.
                tried += tuple(Tried(number, of_each[number], 0) for number, _ in ended if of_each.get(number))
                batch.add(Carried(batch.sequence, batch.time_us, message, ended, tried))
                batch.size_bytes += len(message.content)

    # -- checkpoints ----------------------------------------------------------------------------------------------

    async def checkpoint(self) -> None:
        """For ever: one at every snapshot, since a million outcomes may stand before it in a few records, and one every
        few minutes while there is something new."""
        while True:
            await _either(self._has_snapshot, CHECKPOINT_EVERY_S)
            new = self._state.through - self._saved_through
            worth = new > 1 if self._has_snapshot.is_set() else new >= _checkpoint_records_min
            self._has_snapshot.clear()
            if worth:
                await self.save()
                await asyncio.sleep(_checkpoint_pause_s)

    async def save(self) -> bool:
        """One now, as ``save_checkpoint``. The parts are copied on the loop; a reader makes bytes of them and writes
        them."""
        through, parts = self._state.through, self._state.save()
        await self._sync()  # one of more than is fsynced is not kept: after a power failure it would name what is gone
        size_bytes = await self._run_blocking(save_checkpoint, self._journal, through, parts)
        if not size_bytes:
            return False
        self._saved_through = through
        self._generations = (self._generations[1], through)
        _log.info("syncbrok.space.checkpoint_saved", extra={"through": through, "bytes": size_bytes})
        return True

    async def keep(self) -> None:
        """For ever: where outcomes or declarations have rotted a start needs a checkpoint that covers them, and the one
        before it too, should the newest one rot as well. So both are made as soon as that is known."""
        while True:
            needed = max(
                (one.last for some in self._journal.damages.values() for one in some if not one.survived), default=0
            )
            if needed > min(self._generations):
                _log.warning("syncbrok.space.checkpoint_needed", extra={"covers": needed})
                if not await self.save():
                    await asyncio.sleep(_checkpoint_pause_s)
            await self._tell_damage()
            await asyncio.sleep(DAMAGE_EVERY_S)

    async def _tell_damage(self) -> None:
        """An event for each section in which more is damaged than was told; at a start for each that has any."""
        found = {first: len(some) for first, some in self._journal.damages.items() if some}
        if found == self._damage_told:
            return
        names = {section.first: section.name for section in self._journal.sections()}
        with contextlib.suppress(BrokerFault):  # no room, or it ends
            for first in sorted(first for first, count in found.items() if count > self._damage_told.get(first, 0)):
                some = self._journal.damages.get(first, ())
                data = {"segment": names.get(first), "records": sum(one.records for one in some),
                        "damage": [one.describe() for one in some[:_DAMAGE_SHOWN]]}  # fmt: skip
                await self._append(
                    partial(self._events.emit, kind=EventType.LOG_DAMAGED, source="/log", data=data, of_fact=False)
                )
            self._damage_told = found

    # -- history --------------------------------------------------------------------------------------------------

    async def feed(self) -> None:
        """For ever: give subscribers that start in the past what came before them (RULES 14), and those that do not
        count what they have not been told of."""
        scheduler, erased = self._state.scheduler, self._state.erasures.holds
        while True:
            needing = scheduler.needs_history()
            if not needing:
                # Whoever has enough to do for now is asked again soon; where all have caught up nobody is.
                backfill = scheduler.backfill
                self.history_wanted.clear()
                lags = _lag_every_s if scheduler.may_lag else None
                await _either(self.history_wanted, _history_every_s if backfill else lags)
                continue
            for subscriber, queue, after in needing:
                newest = scheduler.newest
                messages, through = await self._patience(_read_history, self._journal, subscriber, queue, after, newest)
                messages = {one: message for one, message in messages.items() if not erased(one)}  # meanwhile
                self._prefetch(messages)
                edges = [(sequence, tuple(map(sequence_of, one.parents))) for sequence, one in messages.items()]
                keys = {sequence: one.key for sequence, one in messages.items() if one.key}
                scheduler.feed_history(subscriber, edges, keys, through)
            self._wake()

    # -- groups ---------------------------------------------------------------------------------------------------

    async def retire_groups(self) -> None:
        """For ever: groups from which nobody takes anything stop counting, and those that nobody has declared go."""
        before_s = time.monotonic()
        while self._idle_after_us:
            await asyncio.sleep(GROUPS_EVERY_S)
            now_s = time.monotonic()
            await self.retire_unused(int(1e6 * (now_s - before_s)))
            before_s = now_s

    async def retire_unused(self, elapsed_us: int) -> None:
        """Once, so long after the last time."""
        for number in self._state.scheduler.unused(elapsed_us, self._idle_after_us):
            try:
                await self._append(partial(self._declarations.unused, number))
            except BrokerFault:
                return  # no room: another time

    # -- secrets --------------------------------------------------------------------------------------------------

    async def retire_secrets(self) -> None:
        """For ever: forget secrets that were rotated out, and those of subscribers that are gone."""
        while True:
            for number in self._secret_store.rotated_out(self._clock_us()):
                try:
                    await self._append(partial(self._declarations.retire_secret, number))
                except BrokerFault:
                    break  # no room: another time
            if self._secret_store.untidy:
                with contextlib.suppress(BrokerFault):
                    await self._append(lambda batch: batch.before.append(self._secret_store.tidy))
            await asyncio.sleep(SECRETS_EVERY_S)


async def _either(event: asyncio.Event, timeout_s: float | None) -> None:
    """Until the event is set or the time is over."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()


def _standing_in(journal: Log, sections: Sequence[Section], messages: Sequence[int]) -> list[int]:
    """The messages that are read from one of the sections."""
    return [one for one in messages if any(journal.stands_in(section, (one,)) for section in sections)]


def _attempts_of_each(journal: MessageIndex, messages: Sequence[int]) -> list[Mapping[int, int]]:
    """The number of the last attempt by subscriber, for each message."""
    return [attempts_of((row for _, row in journal.rows_of(one)), journal.carried_tries(one)) for one in messages]


def _read_history(
    journal: MessageIndex, subscriber: int, queue: int, after: int, newest: int
) -> tuple[dict[int, StoredMessage], int]:
    """Messages of the queue beyond ``after`` that are for the subscriber (number), by sequence, and through where those
    are all: at least through ``newest``, which was durable before, where the journal has no more."""
    while True:
        sequences = journal.queue_sequences(queue, after, _history_together)
        read = journal.read_many(sequences, _history_bytes)
        # A test message was for somebody else.
        messages = {one.sequence: one for one in read if one is not None and _is_for(one, subscriber)}
        after = sequences[len(read) - 1] if read else after
        if len(sequences) < _history_together and len(read) == len(sequences):
            return messages, max(after, newest)
        if messages:
            return messages, after


def _is_for(message: StoredMessage, subscriber: int) -> bool:
    """Whether the subscriber (number), which catches up, gets it: it is not erased, and no test of another one."""
    return not message.erased and message.only in (0, subscriber)
