"""The commit loop: many producers, one batch, one fsync, everybody answered.

The Space's three channels and the outcomes of deliveries come together here. While a batch is being written the next
one gathers::

    idle --something waits--> batch --the writer--> durable --> applied, receipts resolved --> idle or next batch

A batch is made only when the one before is durable and applied, so whatever a step reads is settled, and sequences
are given out once. **The log comes first**: registry, scheduler and everybody who waits hear of a fact when it is
written. A crash between the two loses nothing, since the next start applies it from the log.

Callbacks, not a task: under load a task would see the end of an fsync one turn of the loop later than it must.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from syncbrok.model import limits
from syncbrok.model.errors import BrokerFault, LogFailed, LogFull
from syncbrok.model.facts import FactOrRun, Messages, Outcomes, Rearmed, Row, Snapshot
from syncbrok.model.journal import Journal
from syncbrok.space.commit.channel import (
    BoundedChannel,
    CommitterStatistics,
    mark_retrieved,
    no_room,
    resolve_all,
    stopped,
    stopping,
    unavailable,
)
from syncbrok.space.commit.commit_batch import CommitBatch, RetryNextBatch, Step, run_step
from syncbrok.space.commit.confirmation import Confirmations, Copies
from syncbrok.space.commit.full_disk import refuse_others
from syncbrok.space.commit.named_timers import Timers
from syncbrok.space.commit.outcome_buffer import OutcomeBuffer
from syncbrok.space.commit.writer import Writer
from syncbrok.space.meters import Meters

_log = logging.getLogger(__name__)

_linger_s: Final = 0.005  # so long may an outcome that nobody waits for wait for company (RULES 24)
_records_wanted: Final = 2_048
"""a batch takes no further unit beyond this many: more would not make the fsync cheaper, and holds up the loop"""
_slice_s: Final = 0.005
"""after so long with one large unit the loop has its turn"""
_prepared_at_once: Final = 1_024
_applied_at_once: Final = 1_024
"""by weight: a few milliseconds"""
_mark_s: Final = 1.1 * limits.watermark_every_s  # by then the watermark is due
_room_every_s: Final = 0.25
_slow_s: Final = 0.25


class StateMachine(Protocol):
    """Takes durable facts in, and tells whoever follows them. Called on the event loop."""

    def apply(self, facts: Sequence[FactOrRun]) -> None:
        """Take in facts, in log order; a batch may come in several pieces."""

    def committed(self) -> None:
        """A batch has been applied, its receipts are resolved. Also when only the last durable sequence has moved."""

    def snapshot(self, sequence: int, time_us: int) -> Snapshot:
        """The ``Snapshot`` of the present state, as the fact of that sequence. The journal calls back for it."""

    def kept(self, snapshot: Snapshot) -> None:
        """The log has got this snapshot, and it was applied."""

    def ends(self, row: Row) -> int:
        """How many deliveries at most a row ends that ends its message at all subscribers."""

    def unerased(self, rows: Sequence[Row]) -> Sequence[Row]:
        """The rows as they may be written: without what was answered to messages that are erased by now."""

    def suspend(self, suspended: bool) -> None:
        """Begin no new attempts: their outcomes could not be written. False: go on."""

    def follow(self, rows: Sequence[Row]) -> Sequence[Callable[[CommitBatch], None]]:
        """Steps that follow from rows which are in a batch: each puts its facts there, or raises ``RetryNextBatch``."""


class Committer:
    """Owns the channels and the writer thread. ``steps`` says what to do with each class of item."""

    def __init__(
        self,
        journal: Journal,
        meters: Meters,
        clock_us: Callable[[], int],
        newest_us: int,
        sync_every_s: float | None = None,
        *,
        lazy: bool = False,
        copies: Copies | None = None,
    ) -> None:
        """``newest_us``: time of the newest fact; ``sync_every_s``: where appending does not sync, None: it does, and
        only the watermark follows. ``lazy``: what is appended may be lost until it is synced. ``copies``: publishers
        wait for one of them."""
        self.messages = BoundedChannel(self.wake)
        self.queues = BoundedChannel(self.wake, records_max=limits.declarations_waiting_max)
        self.subscribers = BoundedChannel(self.wake, records_max=limits.declarations_waiting_max)
        self.steps: dict[type, Step] = {}
        self._inner = BoundedChannel(self.wake)  # steps of jobs that are at work already
        self._journal = journal
        self._machine: StateMachine  # from ``run`` on
        self._meters = meters
        self._clock_us = clock_us
        self._last_us = newest_us
        self._is_lazy = lazy
        self._syncs_each = sync_every_s is None
        self._confirmations = None if copies is None else Confirmations(copies, meters)
        self._sync_every_s = sync_every_s or _mark_s
        self._rows = OutcomeBuffer()
        self._snapshots: list[asyncio.Future[None]] = []  # asked for
        self._busy = self._scheduled = self._submitting = self._stopping = False
        self._full = self._suspended = False
        self._batch_out: CommitBatch | None = None  # made, not yet durable
        self._loop: asyncio.AbstractEventLoop | None = None
        self._writer: Writer | None = None
        self._preparing: asyncio.Task[None] | None = None  # what a batch needs beside the log
        self._ended: asyncio.Future[None] | None = None
        self._timers = Timers(self._guarded)

    # -- in -------------------------------------------------------------------------------------------------------

    def record(self, rows: Sequence[Row], urgent: bool) -> None:
        """Outcomes of deliveries, to be written soon; at once where children or publishers wait for one."""
        self._rows.put(rows, urgent)
        if self._rows.hurry:
            if not self._busy and not self._scheduled and self._loop is not None:
                self._guarded(self._begin)  # a child waits: a turn of the loop is a part of its way
        else:
            self._timers.start("linger", _linger_s, self._linger_over)
        if len(self._rows) > limits.outcomes_waiting_max:
            self._suspend(True)

    def append(self, step: Callable[[CommitBatch], Any]) -> "asyncio.Future[Any]":
        """Run ``step`` in the next batch, for the Space's own jobs. The future has its result when the facts are
        applied."""
        return self._inner.put(step)

    async def keep_snapshot(self) -> None:
        """Give the log a snapshot of what is applied now, though it wants none; from the reserve where there is no
        room. Raises ``LogFull``."""
        done = asyncio.get_running_loop().create_future()
        self._snapshots.append(done)
        self.wake()
        await done

    async def sync(self) -> None:
        """All that is appended now is fsynced on return; once ``run`` has ended it is. Raises ``LogFailed``."""
        if self._syncs_each or self._ended is None or self._ended.done():
            return
        assert self._writer is not None
        done = self._ended.get_loop().create_future()
        self._writer.submit(self._journal.sync, partial(self._guarded, self._synced_for, done))
        await done

    def _synced_for(self, done: "asyncio.Future[None]", is_mark_behind: bool, error: BaseException | None) -> None:
        resolve_all((done,), error)
        self._synced(is_mark_behind, error)

    def wake(self) -> None:
        """Something waits."""
        if not self._busy and not self._scheduled and self._loop is not None:
            self._scheduled = True
            self._loop.call_soon(self._guarded, self._begin)

    # -- the life of it -------------------------------------------------------------------------------------------

    async def run(self, machine: StateMachine, started: Callable[[], None]) -> None:
        """Commit, and apply to ``machine``, until ``stop`` was called and everything is written. Raises ``LogFailed``
        when the log must not be used any more."""
        self._loop, self._machine = asyncio.get_running_loop(), machine
        self._ended = self._loop.create_future()
        self._writer = Writer(self._loop, may_block_loop=not self._journal.blocks_long)
        if self._confirmations is not None:
            self._confirmations.listen(partial(self._loop.call_soon_threadsafe, self._guarded, self._confirm))
        started()
        self.wake()
        try:
            await self._ended
        finally:
            if self._confirmations is not None:
                self._confirmations.listen(_nothing)
                self._confirmations.end()
            self._timers.stop()
            if self._preparing is not None:
                await asyncio.wait([self._preparing])
            self._writer.stop()  # at most one write is under way
            self._close_and_refuse(stopped)

    def close(self) -> None:
        """The channels take no more; what is in them is worked off."""
        for channel in (self.messages, self.queues, self.subscribers):
            channel.close(stopping)

    def stop(self) -> None:
        """End the recording and appending: write what waits, then let ``run`` return."""
        self._stopping = True
        self.wake()

    def statistics(self) -> CommitterStatistics:
        return CommitterStatistics(
            self.messages.statistics(),
            self.queues.statistics(),
            self.subscribers.statistics(),
            len(self._rows),
            len(self._inner),
            self._busy,
            self._full,
            self._suspended,
            self._meters.commits.count,
        )

    def __repr__(self) -> str:
        commits, rows = self._meters.commits.count, len(self._rows)
        return f"<Committer commits={commits} waiting={self._waiting()} rows={rows} full={self._full}>"

    # -- one commit -----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """The next thing to do, if the one before is done: a snapshot, a batch, or rest."""
        self._scheduled = False
        if self._busy or self._ended is None or self._ended.done():
            return
        if self._snapshots or (self._journal.wants_snapshot and not self._full):
            self._write_snapshot()
            return
        if not self._due():
            self._go_idle()
            return
        batch = self._make_batch()
        if batch.slow is None:
            self._batch_made(batch)
        else:
            self._busy = True
            self._next_turn(self._continue_batch, batch)

    def _next_turn(self, work: Callable[..., None], *arguments: Any) -> None:
        """On the next turn of the loop, when others have had theirs."""
        assert self._loop is not None
        self._loop.call_soon(self._guarded, work, *arguments)

    def _continue_batch(self, batch: CommitBatch) -> None:
        """A large unit is drafted in slices; nothing else is written meanwhile, but the loop does all else."""
        if not batch.go_on(_slice()):
            self._next_turn(self._continue_batch, batch)
            return
        self._busy = False
        self._batch_made(batch)
        if not self._busy and self.messages:
            self.wake()  # nothing came of it, and it had stopped the look at the others

    def _batch_made(self, batch: CommitBatch) -> None:
        batch.close()
        if batch.before:
            assert self._loop is not None
            self._busy = True
            self._preparing = self._loop.create_task(_all_of(batch.before), name="syncbrok before a commit")
            self._preparing.add_done_callback(partial(self._guarded, self._prepared, batch))
        else:
            self._write_or_resolve(batch)

    def _write_or_resolve(self, batch: CommitBatch) -> None:
        """Go on with a batch that has all it needs: write its facts. Without facts nothing in it is new, and what it
        repeats is durable already."""
        if batch.facts:
            self._submit(batch)
        else:
            self._batch_out = None
            for follow in batch.after:
                follow()
            self._answer(batch)
            self._go_idle()

    def _prepared(self, batch: CommitBatch, preparing: "asyncio.Task[None]") -> None:
        """Go on with a batch whose facts need another file first, now that this is on the disk."""
        assert self._ended is not None
        self._busy, self._preparing = False, None
        error = preparing.exception()
        if self._ended.done():
            return  # something else has failed meanwhile, and who waits for these has been told
        if isinstance(error, LogFull):
            self._no_room(batch, error)
        elif error is not None:
            raise error
        else:
            self._write_or_resolve(batch)
            self.wake()  # what came meanwhile found it busy

    def _submit(self, batch: CommitBatch) -> None:
        assert self._writer is not None
        self._busy = True
        self._meters.committing_since_s = began = time.perf_counter()
        written = partial(self._guarded, self._written, batch, began)
        batch.synced = self._is_lazy and batch.opens_gates()
        if sum(map(_weight, batch.facts)) > _prepared_at_once:  # its encoding, too, is for the thread
            self._writer.submit(partial(self._prepare_and_write, batch), written)
            return
        prepared = self._journal.prepare(batch.facts, batch.unit_ends)
        work = partial(self._write, batch, prepared)
        if batch.synced:
            self._writer.submit(work, written)
            return
        self._submitting = True
        self._writer.write(work, written, len(prepared.data))
        self._submitting = False

    def _prepare_and_write(self, batch: CommitBatch) -> None:
        self._write(batch, self._journal.prepare(batch.facts, batch.unit_ends))

    def _write(self, batch: CommitBatch, prepared: Any) -> None:
        """The writer's work: in its thread, or where it finds that quicker."""
        self._journal.append(prepared, essential=batch.essential)
        if batch.synced:
            self._journal.sync()

    def _written(self, batch: CommitBatch, began: float, _: object, error: BaseException | None) -> None:
        self._busy = False
        self._meters.committing_since_s = 0.0
        if isinstance(error, LogFull):
            self._no_room(batch, error)
            return
        if error is not None:
            raise error
        self._batch_out = None
        seconds = time.perf_counter() - began
        if seconds > _slow_s:
            _log.warning("syncbrok.space.commit_slow", extra={"seconds": seconds, "records": batch.records})
        self._meters.commit(batch.records, batch.size_bytes, seconds)
        self._busy = True
        self._apply(batch, 0)

    def _apply(self, batch: CommitBatch, done: int) -> None:
        """Apply the batch's facts from position ``done`` on, in slices. Durable facts take effect in log order, and
        receipts wait until theirs have."""
        facts = batch.facts
        until_s = time.perf_counter() + _slice_s
        while done < len(facts):
            if time.perf_counter() >= until_s:
                self._next_turn(self._apply, batch, done)
                return
            begin, weight = done, 0
            while done < len(facts) and weight < _applied_at_once:
                weight += _weight(facts[done])
                done += 1
            self._machine.apply(facts[begin:done])
        self._busy = False
        self._rows.written(batch.rows, batch.facts, opened=batch.synced)
        for follow in batch.after:
            follow()
        self._answer(batch)
        self._timers.start("sync", self._sync_every_s, self._sync)
        self._machine.committed()
        if self._suspended and not self._full and len(self._rows) <= limits.outcomes_waiting_max // 2:
            self._suspend(False)
        if self._submitting or (self.messages and not self._rows.hurry):
            if self._due() or self._stopping or self._snapshots or self._journal.wants_snapshot:
                self.wake()  # written here, it must not pile up; publishers just answered come back and share it
        else:
            self._begin()  # what gathered meanwhile: at once, not a turn of the loop later

    def _answer(self, batch: CommitBatch) -> None:
        """Answer the publishers of a batch that is in the log and applied, or hold that until another broker has it."""
        if self._confirmations is None:
            batch.resolve()
            return
        self._confirmations.hold(batch, self._journal.next_sequence - 1)
        if self._confirmations.waits:
            self._timers.start("confirm", self._confirmations.check_every_s, self._confirm)

    def _confirm(self) -> None:
        """Another broker was heard, or time has passed."""
        assert self._confirmations is not None
        self._confirmations.check()
        if self._confirmations.waits:
            self._timers.start("confirm", self._confirmations.check_every_s, self._confirm)
        if self.messages:
            self.wake()  # it may have been full

    def _takes_messages(self) -> int:
        full = self._confirmations is not None and self._confirmations.full and not self._stopping
        return 0 if full else len(self.messages)

    def _due(self) -> int | bool:
        """Whether something is to be written now; outcomes that may linger wait for company."""
        return (bool(self._rows) and (self._rows.hurry or self._stopping)) or self._waiting()

    def _go_idle(self) -> None:
        """Nothing to write now."""
        if self._stopping and (self._full or not (self._rows or self._waiting())):
            if self._syncs_each:
                self._end(None, None)
            else:
                assert self._writer is not None
                self._busy = True
                self._writer.submit(self._journal.sync, partial(self._guarded, self._end))

    def _end(self, _: object, error: BaseException | None) -> None:
        """All is written, and fsynced."""
        if error is not None:
            raise error
        assert self._ended is not None
        if not self._ended.done():
            self._ended.set_result(None)

    # -- batches ---------------------------------------------------------------------------------------------------

    def _waiting(self) -> int:
        return self._takes_messages() or len(self._inner) or len(self.queues) or len(self.subscribers)

    def _make_batch(self) -> CommitBatch:
        """Outcomes first, since children wait for them; then declarations, then messages."""
        self._last_us = max(self._last_us, now_us := self._clock_us())
        expected, journal = min(self.messages.records, _records_wanted), self._journal
        batch = self._batch_out = CommitBatch(journal.next_sequence, self._last_us, journal.id_key, expected, now_us)
        batch.essential = self._full
        stuck = self._full and self._suspended
        if self._rows and not stuck and (self._rows.hurry or self._stopping or self._waiting()):
            self._outcomes(batch)
        if self._inner:
            self._take(self._inner, batch)
        for channel in (self.queues, self.subscribers, self.messages):
            if self._full:
                refuse_others(channel, self.steps, batch)
            if channel and (channel is not self.messages or self._takes_messages()):
                self._take(channel, batch)
        return batch

    def _outcomes(self, batch: CommitBatch) -> None:
        rows = self._rows.first(_records_wanted, self._machine.ends)
        batch.rows, batch.urgent = len(rows), self._rows.urgent
        batch.add(Outcomes(batch.sequence, batch.time_us, tuple(self._machine.unerased(rows))))
        for step in self._machine.follow(rows):
            try:
                step(batch)
            except RetryNextBatch:  # the second one of its queue in this batch
                self.append(step).add_done_callback(mark_retrieved)

    def _take(self, channel: BoundedChannel, batch: CommitBatch) -> None:
        while batch.records < _records_wanted and batch.size_bytes < limits.commit_bytes_wanted:
            waiting = channel.take()
            if waiting is None:
                break
            if not batch.answer(waiting, self.steps.get(type(waiting.item), run_step)):
                batch.deferred.append(waiting)
            if batch.slow is not None:
                break
        if batch.deferred:
            channel.put_back(batch.deferred)
            batch.deferred.clear()

    # -- what can go wrong ----------------------------------------------------------------------------------------

    def _no_room(self, batch: CommitBatch, error: LogFull) -> None:
        """Handle a full disk: nothing of the batch was kept. Publishers are refused. Outcomes go to the reserve; when
        that is used up no attempt starts, since its outcome could not be kept."""
        self._batch_out = None
        batch.refuse(partial(no_room, error))
        for undo in batch.undo:
            undo()
        self._set_full(error.detail)
        if batch.essential:
            self._suspend(True)
        self._rows.hurry = True
        self._begin()

    def _set_full(self, detail: str) -> None:
        if not self._full:
            _log.error("syncbrok.space.log_full", extra={"detail": detail})
        self._full = self._meters.full = True
        self._wait_for_room()

    def _wait_for_room(self) -> None:
        self._timers.start("room", _room_every_s, self._look_for_room)

    def _look_for_room(self) -> None:
        self._full = self._meters.full = not self._journal.has_room()
        if self._full:
            self._wait_for_room()
        else:
            _log.info("syncbrok.space.log_has_room", extra={"rows_waiting": len(self._rows)})
            self._rows.hurry = bool(self._rows)
            if self._suspended and not self._rows:
                self._suspend(False)
        self.wake()

    def _suspend(self, suspended: bool) -> None:
        if suspended != self._suspended:
            self._suspended = suspended
            event = "syncbrok.space.attempts_suspended" if suspended else "syncbrok.space.attempts_resumed"
            _log.warning(event, extra={"rows_waiting": len(self._rows)})
            self._machine.suspend(suspended)

    def _guarded(self, work: Callable[..., None], *arguments: Any) -> None:
        """Run a callback of the loop. An error in it ends ``run``; no caller above it would see it."""
        try:
            work(*arguments)
        except Exception as problem:  # noqa: BLE001
            self._fail(problem)

    def _fail(self, problem: Exception) -> None:
        if isinstance(problem, OSError):  # of the file of secrets: no fact may be written without it
            problem = LogFailed(f"cannot write beside the log: {problem}; look at the disk, then start again")
        self._meters.failed = True
        _log.critical("syncbrok.space.commit_failed", exc_info=problem, extra={"detail": str(problem)})
        if self._batch_out is not None:
            self._batch_out.refuse(unavailable)
        self._close_and_refuse(unavailable)
        if self._ended is not None and not self._ended.done():
            self._ended.set_exception(problem)

    def _close_and_refuse(self, why: Callable[[], BrokerFault]) -> None:
        for channel in (self.messages, self.queues, self.subscribers, self._inner):
            channel.close(why)
            channel.refuse_all(why)
        resolve_all(self._snapshots, why())
        self._snapshots.clear()

    # -- snapshots and time ---------------------------------------------------------------------------------------

    def _write_snapshot(self) -> None:
        assert self._writer is not None
        self._busy = True
        self._last_us = max(self._last_us, self._clock_us())
        prepared = self._journal.prepare_snapshot(self._machine.snapshot, self._last_us)
        asked, self._snapshots = self._snapshots, []
        written = partial(self._guarded, self._snapshot_written, prepared.snapshot, asked)
        # Without room only retention asks for one, and dropping makes some.
        self._writer.submit(partial(self._journal.append, prepared, essential=self._full), written)

    def _snapshot_written(
        self, snapshot: Snapshot, asked: list["asyncio.Future[None]"], _: object, error: BaseException | None
    ) -> None:
        self._busy = False
        if isinstance(error, LogFull):
            self._set_full(error.detail)
        elif error is not None:
            self._snapshots = asked  # refused with everything else
            raise error
        else:
            self._machine.apply((snapshot,))
            self._machine.kept(snapshot)
        resolve_all(asked, error)
        self._begin()

    def _sync(self) -> None:
        """Under ``interval`` what was acknowledged becomes durable now; the watermark follows, under either policy."""
        assert self._writer is not None
        self._writer.submit(self._journal.sync, partial(self._guarded, self._synced))

    def _synced(self, is_mark_behind: bool, error: BaseException | None) -> None:
        if error is not None:
            raise error
        self._machine.committed()
        if is_mark_behind and not self._stopping:
            self._timers.start("mark", _mark_s, self._sync)

    def _linger_over(self) -> None:
        self._rows.hurry = True
        self.wake()


async def _all_of(works: Sequence[Callable[[], Awaitable[None]]]) -> None:
    for work in works:
        await work()


def _nothing() -> None:
    pass


def _weight(fact: FactOrRun) -> int:
    """The amount of work in a fact, in items that are looked at one by one: stretches, or messages with their extras
    and each parent they name; deliveries of what is replayed."""
    if isinstance(fact, Rearmed):
        return sum([len(entry.subscribers) for entry in fact.entries])
    if not isinstance(fact, Messages):
        return 1
    if not fact.extras:
        return len(fact.stretches)
    return len(fact.stretches) + sum([4 + len(extras.parents) for extras in fact.extras.values()])


def _slice() -> Callable[[], bool]:
    """Whether there is time left, from now on."""
    until_s = time.perf_counter() + _slice_s
    return lambda: time.perf_counter() < until_s
