"""Jobs of operators: recover and seek a subscriber, replay a selection, drop dead letters (RULES 34).

    asked    a fact: from here on the job goes on over restarts and failovers; its receipt
    plans    in slices, one job at a time; not further ahead of what has ended than some thousands
    waits    until what it sends has ended
    over     a fact: done, cancelled or failed

A crash costs a job nothing that is not in the log: what it had planned is found there, and the plan goes on behind it.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

from syncbrok.delivery.scheduler.scheduler import Scheduler
from syncbrok.model import limits
from syncbrok.model.errors import ClientFault, Conflict, LogFull, Overloaded, SyncbrokError, TooLarge, UnknownJob
from syncbrok.model.facts import (
    ALL_SUBSCRIBERS,
    Action,
    Erased,
    JobChanged,
    Outcome,
    Outcomes,
    Rearmed,
    RearmedEntry,
    Reason,
    Row,
)
from syncbrok.model.jobs import Choice, JobKind, JobState, JobWish, job_id
from syncbrok.model.journal import MessageIndex
from syncbrok.model.message import Subscriber
from syncbrok.model.names import MessageId, QueueName, SubscriberId, sequence_of
from syncbrok.model.sequence_set import SequenceSet
from syncbrok.space.channels import (
    BEGINNING,
    Bound,
    CancelJob,
    DropDeadLetters,
    EraseMessages,
    Planned,
    Recover,
    ReplayMessages,
    Seek,
)
from syncbrok.space.commit.commit_batch import CommitBatch
from syncbrok.space.operations import replay_writer
from syncbrok.space.operations.replay import SLICE, Planner, ReplaySource, Resumed, Wish
from syncbrok.space.operations.replay_sources import AllOf, DeadLettersNamed, reasons_of, source_of
from syncbrok.space.pause import pauses
from syncbrok.space.queries.finding import ids_of
from syncbrok.space.reader_threads import RunBlocking
from syncbrok.space.state.jobs import JobTable, counted
from syncbrok.space.state.registry import Registry

_log = logging.getLogger(__name__)

_TOGETHER: Final = 500
"""messages in one unit of the log"""
_AGAIN_S: Final = 5.0
"""after which a job looks again whether the disk has room"""
_SCANNED: Final = 20_000
"""facts looked at together"""
_COUNTED: Final = 4_096  # messages that have not ended, in one turn of the loop
_DEFECT: Final = "a defect of the broker's own; its log says more"
_SENDING: Final = (JobKind.REPLAY, JobKind.RECOVER)

Append = Callable[[Callable[[CommitBatch], Any]], Awaitable[Any]]
Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]
TellOver = Callable[[JobChanged, CommitBatch], None]


class JobRunner:
    """``append`` runs a step in the next batch; ``planner`` makes the planner of a replay; ``one_at_a_time`` is held
    while something is planned and put into the log; ``tell_over`` puts the event that a job is over into the batch of
    its fact; ``is_erased`` says of a message whether nothing of it is left to send."""

    def __init__(
        self,
        table: JobTable,
        journal: MessageIndex,
        registry: Registry,
        scheduler: Scheduler,
        append: Append,
        run_blocking: RunBlocking,
        planner: Callable[[], Planner],
        one_at_a_time: asyncio.Lock,
        tell_over: TellOver,
        is_erased: Callable[[int], bool],
        erases: str | None = None,
    ) -> None:
        """``erases``: why nothing can be erased here, in words; None where it can."""
        self._erases = erases
        self._table = table
        self._journal = journal
        self._registry = registry
        self._scheduler = scheduler
        self._append = append
        self._run_blocking = run_blocking
        self._planner = planner
        self._one_at_a_time = one_at_a_time
        self._tell_over = tell_over
        self._is_erased = is_erased
        self._planning = asyncio.Lock()
        """held by the one job that plans"""
        self._moved = asyncio.Event()
        self.tasks: dict[int, asyncio.Task[None]] = {}
        """of the jobs that are at work, by number"""
        self._cut_off: set[int] = set()
        self._spawn: Spawn | None = None
        self._work: Final = {
            JobKind.REPLAY: self._send,
            JobKind.RECOVER: self._send,
            JobKind.SEEK: self._pass_over,
            JobKind.DROP: self._drop,
            JobKind.ERASE: self._erase,
        }

    # -- lifetime -------------------------------------------------------------------------------------------------

    def start(self, spawn: Spawn) -> None:
        """Go on with what is not over, in tasks that ``spawn`` makes and owns."""
        self._spawn = spawn
        # A replay that a stop has cut off is not planned again: what was kept of it goes, the rest is asked for anew.
        self._cut_off = {job.number for job in self._table.unfinished if job.kind is JobKind.REPLAY}
        for job in self._table.unfinished:
            self.go_on(job.number)

    def stop(self) -> None:
        """End the tasks. The next start goes on behind what is durable."""
        self._spawn = None
        for task in self.tasks.values():
            task.cancel()

    def progressed(self) -> None:
        """A commit has been applied: whoever waits for what a job sends looks again."""
        if self._scheduler.take_progress():
            self._moved.set()

    def go_on(self, number: int) -> None:
        """Have the job worked on, where it is not yet."""
        if self._spawn is not None and number not in self.tasks:
            task = self.tasks[number] = self._spawn(self._live(number))
            task.add_done_callback(lambda _: self.tasks.pop(number, None))

    # -- what operators ask for -----------------------------------------------------------------------------------

    async def recover(self, item: Recover) -> Planned:
        """RULES 34. Raises ``UnknownQueue``, ``UnknownSubscriber`` and ``Overloaded``."""
        subscriber = self._registry.subscriber(item.queue, item.id)
        since, until = await self._bounds(item.since, item.until)
        wish = JobWish(subscriber.queue, subscriber.number, since, until, item.choice, item.reasons)
        return await self._planned(JobKind.RECOVER, wish, item.by, dry_run=item.dry_run)

    async def seek(self, item: Seek) -> Planned:
        """RULES 34: forward it passes over what waits, back it recovers all. Raises as ``recover``."""
        subscriber = self._registry.subscriber(item.queue, item.id)
        place = self._journal.next_sequence if item.start is None else (await self._bounds(item.start, BEGINNING))[0]
        if item.dry_run:
            self._refuse_too_many()
            return Planned(None, 0, place)
        if self._is_behind(subscriber, place):
            wish = JobWish(subscriber.queue, subscriber.number, 0, place)
            return await self._planned(JobKind.SEEK, wish, item.by)
        wish = JobWish(subscriber.queue, subscriber.number, place, 0, Choice.ALL)
        return await self._planned(JobKind.RECOVER, wish, item.by)

    def _is_behind(self, subscriber: Subscriber, place: int) -> bool:
        """Whether something waits at the subscriber before that place; else it has passed it. Nothing is before the
        first message: a row for it would name message -1, which stops the log."""
        return place > self._journal.first_sequence and (
            self._scheduler.is_being_told(subscriber.number)
            or bool(self._scheduler.waiting_at(subscriber.number, 0, place - 1, 1))
        )

    async def replay_some(self, item: ReplayMessages) -> Planned:
        """RULES 21, of a selection. Raises ``UnknownQueue``, ``UnknownSubscriber``, and ``TooLarge`` for a dry run that
        would have to count too many."""
        queue = self._registry.queue(item.queue).number
        only = self.only(item.queue, item.subscriber)
        wish = JobWish(queue, only, messages=tuple(sorted(item.sequences)), descendants=item.descendants)
        if item.dry_run:
            return Planned(None, await self._planner().count(self.replay_of(wish)), self._journal.first_sequence)
        return await self._planned(JobKind.REPLAY, wish, item.by)

    async def drop(self, item: DropDeadLetters) -> Planned:
        """RULES 34. Raises ``UnknownQueue`` and ``UnknownSubscriber``."""
        queue = self._registry.queue(item.queue).number
        only = self.only(item.queue, item.subscriber)
        _, until = await self._bounds(BEGINNING, item.before)
        wish = JobWish(queue, only, 0, until, Choice.DEAD, item.reasons, tuple(sorted(item.sequences)))
        return await self._planned(JobKind.DROP, wish, item.by, dry_run=item.dry_run)

    async def erase(self, item: EraseMessages) -> Planned:
        """RULES 32. Raises ``UnknownQueue``, ``TooLarge``, and ``Conflict`` where a message has not ended or nothing
        can be erased here. A key goes into no fact: its messages are found now."""
        queue = self._registry.queue(item.queue).number
        if self._erases is not None:
            raise Conflict(self._erases, queue=item.queue)
        until, found = 0, item.sequences
        if item.key:
            found = await self._with_key(queue, item.key)
        elif not found:
            _, until = await self._bounds(BEGINNING, item.before)
        wish = JobWish(queue, 0, 0, until, Choice.ALL, messages=tuple(sorted(found)), force=item.force)
        waiting = self._waiting(wish)
        if waiting and not item.force and not item.dry_run:
            what = (
                f"{waiting} of these messages have not ended and would be dropped: wait until they have, or use force"
            )
            raise Conflict(what, queue=item.queue, waiting=waiting)
        if item.key and not found:
            return Planned(None, 0, self._journal.first_sequence, 0)
        planned = await self._planned(JobKind.ERASE, wish, item.by, dry_run=item.dry_run)
        return planned._replace(waiting=waiting)

    async def _with_key(self, queue: int, key: str) -> tuple[int, ...]:
        most = limits.erased_of_key_max
        sequences = list(await self._run_blocking(self._journal.with_key, key, queue, most + 1))
        if len(sequences) > most:
            raise TooLarge(f"more than {most} messages have this key; erase them by before, or by ids", limit=most)
        return tuple(await self._run_blocking(_of_key, self._journal, sequences, key))

    def _waiting(self, wish: JobWish) -> int:
        """How many of these messages have not ended."""
        if wish.messages:
            return sum(not self._scheduler.ended(one) for one in wish.messages)
        return len(self._scheduler.unended(wish.queue, wish.until - 1, limits.cascade_slice))

    async def cancel(self, item: CancelJob) -> JobChanged:
        """Take back what was not sent. Raises ``UnknownJob``, and ``Conflict`` for one that is over."""
        job = self._table.get(item.number)
        if job is None:
            raise UnknownJob(f"there is no job {job_id(item.number)}", job=job_id(item.number))
        task = self.tasks.get(item.number)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        job = self._newest(job)
        if job.state.is_over:
            raise _over_already(job)
        try:
            if item.by:
                await self._append(lambda batch: batch.say_who(item.by, Action.CANCEL_JOB, job.wish.queue, job.number))
            below = self._journal.next_sequence
            while below:
                below = await self._append(partial(self._take_back, job, below))
            return await self._end(job, JobState.CANCELLED)
        except BaseException:
            self.go_on(job.number)
            raise

    def _take_back(self, job: JobChanged, below: int, batch: CommitBatch) -> int:
        rows, lowest = self._scheduler.withdrawable(job.replay, below, limits.cascade_slice)
        _add(batch, rows)
        return lowest

    async def written(self, job: JobChanged) -> None:
        """All that a job sends was put into the log by who drafted it."""
        total, _, _ = self._figures(job)
        await self._append(partial(self._change, job, state=JobState.RUNNING, armed=True, total=total))
        self.go_on(job.number)

    # -- planning -------------------------------------------------------------------------------------------------

    async def _planned(self, kind: JobKind, wish: JobWish, by: str, *, dry_run: bool = False) -> Planned:
        total = await self._total(kind, wish)
        first = max(wish.since, self._journal.first_sequence)
        if dry_run:
            return Planned(None, total, first)
        job = await self._append(partial(self.draft, kind, wish, by, total))
        _log.info("syncbrok.space.job_created", extra={"job": job_id(job.number), "kind": kind, "total": total})
        self.go_on(job.number)
        return Planned(job, total, first)

    def draft(self, kind: JobKind, wish: JobWish, by: str, total: int, batch: CommitBatch) -> JobChanged:
        """Put the first fact of a job into the batch."""
        batch.claim("/jobs")  # the next one has another number
        self._refuse_too_many()
        number, now_us = batch.sequence, batch.now_us
        replay = self._scheduler.replay_number + 1 if kind in _SENDING else 0
        figures = (replay, False, 0 if replay else total, 0, 0)
        job = JobChanged(number, batch.time_us, number, kind, JobState.PLANNED, by, now_us, now_us, *figures, wish)
        batch.add(job)
        return job

    def _refuse_too_many(self) -> None:
        if len(self._table.unfinished) >= (most := limits.jobs_unfinished_max):
            raise Overloaded(f"{most} jobs are not over; cancel some, or wait", retry_after_s=60)

    async def _total(self, kind: JobKind, wish: JobWish) -> int:
        """How many messages, or dead letters, it is about. Counted at once: for dead letters from what the scheduler
        keeps, for all of a time from the log's index."""
        if wish.messages and kind is JobKind.DROP:
            return await self._named_letters(wish).total(self._scheduler.ended)
        if wish.messages:
            return len(wish.messages)
        if kind is JobKind.SEEK:
            return 0
        if wish.choice is Choice.DEAD:
            counts = [await self._dead_total(number, wish) for number in self._subscribers(wish)]
            return sum(counts)
        source = self._source(wish)
        if isinstance(source, AllOf):
            return await source.total() - (await self._unended(wish) if kind is JobKind.RECOVER else 0)
        total, after, pause = 0, 0, pauses()
        while some := await source.after(after):
            total, after = total + len(some), some[-1]
            await pause()
        return total

    async def _unended(self, wish: JobWish) -> int:
        """How many messages between the bounds have not ended: a replay passes them over."""
        total, after, pause = 0, max(0, wish.since - 1), pauses()
        while some := self._scheduler.unended(wish.queue, wish.until - 1 if wish.until else None, _COUNTED, after):
            total, after = total + len(some), some[-1]
            await pause()
        return total

    async def _dead_total(self, subscriber: int, wish: JobWish) -> int:
        reasons, scheduler = reasons_of(wish), self._scheduler
        total = scheduler.dead_count(subscriber, wish.since, wish.until or self._journal.next_sequence, reasons)
        after, pause = wish.since - 1, pauses()
        while some := scheduler.cascaded_after(subscriber, after, _SCANNED):
            counted = (one for one in some if wish.covers(one))
            total += sum(not reasons or scheduler.dead_letter(one, subscriber) in reasons for one in counted)
            after = some[-1]
            await pause()
        return total

    def only(self, queue: QueueName, subscriber: SubscriberId | None) -> int:
        """The number of the one subscriber that is asked for; 0 for all. Raises ``UnknownSubscriber``."""
        return 0 if subscriber is None else self._registry.subscriber(queue, subscriber).number

    def replay_of(self, wish: JobWish) -> Wish:
        """The replay that a job wishes for."""
        return Wish(self._source(wish), wish.descendants, wish.subscriber)

    def _source(self, wish: JobWish) -> ReplaySource:
        return source_of(wish, self._scheduler, self._subscribers(wish), partial(self._of_queue, wish.queue))

    def _named_letters(self, wish: JobWish) -> DeadLettersNamed:
        return DeadLettersNamed(self._scheduler, self._subscribers(wish), wish)

    def _subscribers(self, wish: JobWish) -> tuple[int, ...]:
        if wish.subscriber:
            return (wish.subscriber,)
        return tuple(subscriber.number for subscriber in self._registry.subscribers(wish.queue))

    async def _of_queue(self, queue: int, after: int, most: int) -> list[int]:
        return list(await self._run_blocking(self._journal.queue_sequences, queue, after, most))

    async def _bounds(self, since: Bound, until: Bound) -> tuple[int, int]:
        """As sequences; 0 for none."""
        return tuple([await self._sequence_at(one) for one in (since, until)])  # type: ignore[return-value]

    async def _sequence_at(self, bound: Bound) -> int:
        return await self._run_blocking(self._journal.first_at, bound.time_us) if bound.time_us else bound.sequence

    # -- the life of a job ----------------------------------------------------------------------------------------

    async def _live(self, number: int) -> None:
        """Go on with the job until it is over, or the broker stops or cannot write: then the next start goes on. Raises
        nothing: whatever becomes of a job, the broker goes on."""
        while (job := self._table.get(number)) is not None and not job.state.is_over:
            try:
                await self._one_life(job)
            except LogFull:
                await asyncio.sleep(_AGAIN_S)
            except SyncbrokError as why:
                if not isinstance(why, ClientFault) or not await self._has_failed(job, why.detail):
                    _log.info("syncbrok.space.job_interrupted", extra={"job": job_id(number), "detail": str(why)})
                    return
            except Exception:  # noqa: BLE001 (a job's defect is its own: what it wrote is whole)
                _log.exception("syncbrok.space.job_failed", extra={"job": job_id(number)})
                await self._has_failed(job, _DEFECT)
                return

    async def _has_failed(self, job: JobChanged, why: str) -> bool:
        """Whether that is in the log now."""
        try:
            await self._end(job, JobState.FAILED, why)
        except SyncbrokError as problem:
            _log.warning("syncbrok.space.job_end_unwritten", extra={"job": job_id(job.number), "detail": str(problem)})
            return False
        return True

    async def _one_life(self, job: JobChanged) -> None:
        if not job.armed:
            async with self._planning:
                if job.state is JobState.PLANNED:
                    job = await self._append(partial(self._change, job, state=JobState.RUNNING))
                if job.number not in self._cut_off:
                    await self._work[job.kind](job)
                total, _, _ = self._figures(job)
                job = await self._append(partial(self._change, job, armed=True, total=total))
        await self._until(lambda: not self._left(job))
        await self._end(job, JobState.DONE)

    async def _until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            self._moved.clear()
            await self._moved.wait()

    def _left(self, job: JobChanged) -> int:
        total, done, failed = self._figures(job)
        return total - done - failed if job.kind in _SENDING else 0

    def _figures(self, job: JobChanged) -> tuple[int, int, int]:
        job = counted(self._newest(job), self._scheduler.progress(job.replay))
        return job.total, job.done, job.failed

    def _change(self, job: JobChanged, batch: CommitBatch, **fields: Any) -> JobChanged:
        """Put the next fact of the job into the batch."""
        batch.claim(f"/jobs/{job.number}")
        job = self._newest(job)
        if job.state.is_over:
            raise _over_already(job)
        _, done, failed = self._figures(job)
        fields = {"done": done, "failed": failed, **fields}
        changed = job._replace(sequence=batch.sequence, time_us=batch.time_us, changed_us=batch.now_us, **fields)
        batch.add(changed)
        return changed

    def _count(self, job: JobChanged, batch: CommitBatch, *, total: int = 0, done: int = 0, failed: int = 0) -> None:
        """So many more, of a job that sends nothing."""
        before = self._newest(job)
        self._change(job, batch, total=before.total + total, done=before.done + done, failed=before.failed + failed)

    def _newest(self, job: JobChanged) -> JobChanged:
        return self._table.get(job.number) or job

    async def _end(self, job: JobChanged, state: JobState, why: str = "") -> JobChanged:
        def step(batch: CommitBatch) -> JobChanged:
            total, _, _ = self._figures(job)
            over = self._change(job, batch, state=state, armed=True, total=total, why=why)
            self._tell_over(over, batch)
            return over

        over: JobChanged = await self._append(step)
        told = {"job": job_id(over.number), "kind": over.kind, "state": state, "done": over.done, "failed": over.failed}
        _log.info("syncbrok.space.job_over", extra=told)
        return over

    # -- sending again --------------------------------------------------------------------------------------------

    async def _send(self, job: JobChanged) -> None:
        """Put into the log what goes again, in causal order."""
        wish = job.wish
        if wish.subscriber and self._registry.subscriber_numbered(wish.subscriber) is None:
            raise Conflict("the subscriber has been deleted", job=job_id(job.number))
        entries = self._entries(self._planner(), self.replay_of(wish), await self._resumed(job))
        while await self._write_some(job, entries):
            await self._until(lambda: self._left(job) < limits.job_ahead_messages_max)

    async def _entries(self, planner: Planner, wish: Wish, resumed: Resumed) -> AsyncIterator[RearmedEntry]:
        async for step in planner.steps(wish, resumed):
            yield step.entry

    async def _write_some(self, job: JobChanged, entries: AsyncIterator[RearmedEntry]) -> bool:
        """Whether there may be more."""
        async with self._one_at_a_time:  # what is erased meanwhile must not be found whole
            some: list[RearmedEntry] = []
            deliveries = 0
            async for entry in entries:
                some.append(entry)
                deliveries += len(entry.subscribers)
                if len(some) >= _TOGETHER or deliveries >= limits.ends_slice:
                    break
            left = [entry for entry in some if not self._is_erased(entry.message)]
            if left:
                only = job.wish.subscriber
                await replay_writer.write(job.replay, left, self._registry, self._append, subscriber=only)
            return bool(some)

    async def _resumed(self, job: JobChanged) -> Resumed:
        """How far the job had come before a start: as the log says."""
        if self._figures(job)[0] == 0:
            return Resumed()
        if self._journal.first_sequence > job.number:
            # The log may tell no more what was armed. To plan that again would send a parent behind its children.
            return Resumed(self._journal.next_sequence)
        taken, children, after = SequenceSet(), set[int](), job.number
        while after < self._journal.durable_sequence:
            found, after = await self._run_blocking(_armed, self._journal, job.replay, after)
            taken.update(sorted(found))
            children.update(await self._run_blocking(_children, self._journal, found))
        through = max(taken.before(self._journal.next_sequence, 1), default=0)
        return Resumed(through, taken, [child for child in children if child > through])

    # -- passing over and dropping --------------------------------------------------------------------------------

    async def _pass_over(self, job: JobChanged) -> None:
        """End what waits at the subscriber before the place, as skipped."""
        subscriber, through = job.wish.subscriber, job.wish.until - 1
        if self._registry.subscriber_numbered(subscriber) is None:
            raise Conflict("the subscriber has been deleted", job=job_id(job.number))
        await self._append(partial(self._pass_history, subscriber, through))
        after = 0
        while after is not None:
            after = await self._append(partial(self._pass_some, job, after))

    def _pass_history(self, subscriber: int, through: int, batch: CommitBatch) -> None:
        if self._scheduler.is_being_told(subscriber):
            _add(batch, [_row(through, subscriber, Outcome.DROPPED, Reason.SEEK)])

    def _pass_some(self, job: JobChanged, after: int, batch: CommitBatch) -> int | None:
        subscriber, through = job.wish.subscriber, job.wish.until - 1
        some = self._scheduler.waiting_at(subscriber, after, through, limits.cascade_slice // 4)
        if not some:
            return None
        _add(batch, [_row(one, subscriber, Outcome.SKIPPED, Reason.SEEK) for one in some])
        self._count(job, batch, total=len(some), done=len(some))
        return some[-1]

    async def _drop(self, job: JobChanged) -> None:
        """Dead letters, away."""
        source = self._named_letters(job.wish) if job.wish.messages else self._source(job.wish)
        after, pause = 0, pauses()
        while some := await source.after(after):
            pairs: list[tuple[int, int]] = []
            for one in some:
                pairs += [(one, to) for to in source.at(one) or ()]
                await pause()
            for at in range(0, len(pairs), limits.cascade_slice):
                await self._append(partial(self._drop_some, job, pairs[at : at + limits.cascade_slice]))
            after = some[-1]

    def _drop_some(self, job: JobChanged, pairs: Sequence[tuple[int, int]], batch: CommitBatch) -> None:
        known = self._scheduler
        left = [(one, to) for one, to in pairs if known.dead_letter(one, to) is not None and known.ended(one)]
        if left:
            _add(batch, [_row(one, to, Outcome.DROPPED, Reason.DISCARDED) for one, to in left])
            self._count(job, batch, done=len(left))

    # -- erasing --------------------------------------------------------------------------------------------------

    async def _erase(self, job: JobChanged) -> None:
        """Say of each message that it is erased; what has not ended is dropped with force, or left."""
        source = self._source(job.wish)
        after = 0
        while some := await source.after(after):
            for at in range(0, len(some), _TOGETHER):
                slice_ = some[at : at + _TOGETHER]
                ids = await self._run_blocking(ids_of, self._journal, slice_)
                async with self._one_at_a_time:  # a replay that is being planned must not find it whole
                    await self._append(partial(self._erase_some, job, ids))
            after = some[-1]

    def _erase_some(self, job: JobChanged, ids: Sequence[MessageId], batch: CommitBatch) -> None:
        left = [one for one in ids if not self._is_erased(sequence_of(one))]
        done = len(ids) - len(left)  # before; an erasure asked for twice is done
        waiting = [one for one in map(sequence_of, left) if not self._scheduler.ended(one)]
        if waiting and job.wish.force:
            _add(batch, [_row(one, ALL_SUBSCRIBERS, Outcome.DROPPED, Reason.ERASED) for one in waiting])
        elif waiting:
            left = [one for one in left if self._scheduler.ended(sequence_of(one))]
        if left:
            batch.add(Erased(batch.sequence, batch.time_us, batch.now_us, tuple(left), by=job.by))
        self._count(job, batch, done=done + len(left), failed=len(ids) - done - len(left))


def _over_already(job: JobChanged) -> Conflict:
    return Conflict(f"job {job_id(job.number)} is {job.state} already", job=job_id(job.number), state=job.state)


def _row(message: int, subscriber: int, outcome: Outcome, reason: Reason) -> Row:
    return Row(message, subscriber, 0, outcome, reason, 0, 0, 0, 0, 0)


def _add(batch: CommitBatch, rows: Sequence[Row]) -> None:
    """Rows without their times, as one fact."""
    if rows:
        timed = tuple([row._replace(time_us=batch.time_us) for row in rows])
        batch.add(Outcomes(batch.sequence, batch.time_us, timed))


def _armed(journal: MessageIndex, replay: int, after: int) -> tuple[list[int], int]:
    """The messages that the replay armed, by the facts behind ``after`` that are looked at together; and how far that
    is."""
    facts = list(islice(journal.facts(after), _SCANNED))
    armed = (fact for fact in facts if type(fact) is Rearmed and fact.replay == replay)
    found = [entry.message for fact in armed for entry in fact.entries]
    return found, facts[-1].sequence if len(facts) == _SCANNED else journal.durable_sequence


def _children(journal: MessageIndex, messages: Sequence[int]) -> set[int]:
    return {child for one in messages for child in journal.children_of(one, limits.replay_children_max)}


def _of_key(journal: MessageIndex, sequences: list[int], key: str) -> list[int]:
    """The messages whose key it is: the index knows hashes only."""
    found: list[int] = []
    for at in range(0, len(sequences), SLICE):
        some = journal.read_many(sequences[at : at + SLICE])
        found += [one.sequence for one in some if one is not None and one.key == key]
    return found
