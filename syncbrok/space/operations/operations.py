"""Does what operators ask for and what takes more than one batch or a look at the disk: cancel, purge, forced deletion,
replay; and retry, which looks for a message. Each is worked in slices that a crash can leave half done and a repetition
finishes; all but cancels and retries one at a time.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from syncbrok.delivery.scheduler.scheduler import Scheduler
from syncbrok.model import limits
from syncbrok.model.errors import Conflict, SubscriberStopped, TooLarge
from syncbrok.model.facts import (
    ALL_SUBSCRIBERS,
    Action,
    Erased,
    JobChanged,
    Outcome,
    Outcomes,
    QueueDeleted,
    RearmedEntry,
    Reason,
    Row,
    StoredMessage,
)
from syncbrok.model.jobs import JobKind, JobWish
from syncbrok.model.journal import MessageIndex
from syncbrok.model.message import Subscriber
from syncbrok.model.names import MessageId, SubscriberId, id_text, sequence_of
from syncbrok.model.units import many
from syncbrok.space.channels import (
    Cancel,
    Cancelled,
    CancelMessages,
    DeleteQueue,
    EraseMessage,
    PurgeQueue,
    Replay,
    ReplayPlan,
    RetryMessage,
    RetrySubscriber,
)
from syncbrok.space.commit.commit_batch import CommitBatch
from syncbrok.space.operations import replay_writer
from syncbrok.space.operations.broker_events import BrokerEvents
from syncbrok.space.operations.jobs import JobRunner
from syncbrok.space.operations.replay import MessageHistory, Planner
from syncbrok.space.queries.finding import find_message, found
from syncbrok.space.reader_threads import RunBlocking
from syncbrok.space.state.erasures import Erasures
from syncbrok.space.state.jobs import JobTable
from syncbrok.space.state.registry import Registry

T = TypeVar("T")

_log = logging.getLogger(__name__)

_plan_shown: Final = 1_000


class Operations:
    """``append`` runs a step in the next batch; see ``Committer.append``. ``wake`` has attempts made that are due."""

    def __init__(
        self,
        journal: MessageIndex,
        registry: Registry,
        scheduler: Scheduler,
        append: Callable[[Callable[[CommitBatch], Any]], Awaitable[Any]],
        run_blocking: RunBlocking,
        forget: Callable[[Subscriber], None],
        closing: set[int],
        wake: Callable[[], None],
        jobs: JobTable,
        events: BrokerEvents,
        erasures: Erasures,
        erases: str | None = None,
    ) -> None:
        """``erases``: why nothing can be erased here, in words; None where it can."""
        self._journal = journal
        self._registry = registry
        self._scheduler = scheduler
        self._append = append
        self._run_blocking = run_blocking
        self._forget = forget
        self._closing = closing
        self._wake = wake
        self._erases = erases
        self._erasures = erasures
        self.one_at_a_time = asyncio.Lock()
        """held while something is planned and put into the log"""
        parts = (append, run_blocking, self.planner, self.one_at_a_time, events.job_over, erasures.holds, erases)
        self.jobs = JobRunner(jobs, journal, registry, scheduler, *parts)

    # -- what waits -----------------------------------------------------------------------------------------------

    async def cancel(self, item: Cancel) -> int:
        """RULES 22. Raises ``UnknownMessage`` and ``Gone``."""
        queue = (await self._find(item.id)).queue
        done: Cancelled = await self._append(partial(self._cancel_some, item.by, queue, [sequence_of(item.id)]))
        return done.deliveries

    async def cancel_some(self, item: CancelMessages) -> Cancelled:
        """RULES 22. Raises ``UnknownQueue``."""
        number = self._registry.queue(item.queue).number
        newest_first = sorted(item.messages, reverse=True)
        at_once = self._scheduler.ended_at_once(number)
        messages = deliveries = 0
        for at in range(0, len(newest_first), at_once):
            some = newest_first[at : at + at_once]
            if item.dry_run:
                done = self._cancellable(some)
                await asyncio.sleep(0)
            else:
                done = await self._append(partial(self._cancel_some, item.by, number, some))
            messages, deliveries = messages + done.messages, deliveries + done.deliveries
        if messages and not item.dry_run:
            _log.info("syncbrok.space.messages_cancelled", extra={"queue": item.queue, "messages": messages})
        return Cancelled(messages, deliveries)

    def _cancellable(self, sequences: Sequence[int]) -> Cancelled:
        waiting = [sequence for sequence in sequences if not self._scheduler.ended(sequence)]
        return Cancelled(len(waiting), sum(len(self._scheduler.pending_deliveries(one)) for one in waiting))

    def _cancel_some(self, by: str, queue: int, sequences: Sequence[int], batch: CommitBatch) -> Cancelled:
        # One without subscribers may still be waiting: no delivery ends with it.
        waiting = [sequence for sequence in sequences if not self._scheduler.ended(sequence)]
        if not waiting:
            return Cancelled(0, 0)
        dropped = self._drop(batch, waiting, Reason.CANCELLED)
        for sequence in waiting if by else ():
            batch.say_who(by, Action.CANCEL, queue, sequence)
            batch.join_unit()
        return Cancelled(len(waiting), dropped)

    async def purge(self, item: PurgeQueue) -> int:
        """Raises ``UnknownQueue``."""
        number = self._registry.queue(item.name).number
        if item.dry_run:
            return self._scheduler.queue_statistics(number).waiting
        through = self._journal.next_sequence - 1
        async with self.one_at_a_time:
            if item.by:  # before its many batches: a crash may leave it half done
                await self._append(lambda batch: batch.say_who(item.by, Action.PURGE, number))
            messages, _ = await self._drop_all(number, through, Reason.PURGED)
        _log.info("syncbrok.space.queue_purged", extra={"queue": item.name, "messages": messages})
        return messages

    async def delete_queue(self, item: DeleteQueue) -> int:
        """RULES 16. Raises ``UnknownQueue`` and ``Conflict``."""
        number = self._registry.queue(item.name).number
        if not item.force:
            return int(await self._append(partial(self._delete_unused, number, item.by)))
        async with self.one_at_a_time:
            self._closing.add(number)
            try:
                _, dropped = await self._drop_all(number, None, Reason.QUEUE_DELETED)
                dropped += int(await self._append(partial(self._delete, number, item.by)))
            finally:
                self._closing.discard(number)
        _log.info("syncbrok.space.queue_deleted", extra={"queue": item.name, "deliveries_dropped": dropped})
        return dropped

    def _delete_unused(self, number: int, by: str, batch: CommitBatch) -> int:
        name = self._registry.queue_name(number)
        waiting = self._scheduler.waiting_on(number)
        if waiting:
            wait = many(waiting, "message waits", "messages wait")
            raise Conflict(
                f"{wait} in queue {name!r} or on it; wait, purge it, or delete it with force",
                queue=name,
                waiting=waiting,
            )
        return self._delete(number, by, batch)

    def _delete(self, number: int, by: str, batch: CommitBatch) -> int:
        batch.claim(self._registry.queue_name(number))
        dropped = 0
        rest = self._scheduler.unended(number, None, limits.commit_records_max)
        if rest:
            dropped = self._drop(batch, rest, Reason.QUEUE_DELETED)
        batch.add(QueueDeleted(batch.sequence, batch.time_us, number, by))
        for subscriber in self._registry.subscribers(number):
            batch.after.append(partial(self._forget, subscriber))
        return dropped

    async def _drop_all(self, queue: int, through: int | None, reason: Reason) -> tuple[int, int]:
        """End what waits in the queue: (messages, deliveries)."""
        messages = deliveries = 0
        after = 0
        while True:
            at_once = self._scheduler.ended_at_once(queue)
            slice_ = self._scheduler.unended(queue, through, at_once, after)
            if not slice_:
                break
            deliveries += await self._append(partial(self._drop, sequences=slice_, reason=reason))
            messages += len(slice_)
            after = slice_[-1]
        again = self._scheduler.replaying(queue)
        at_once = self._scheduler.ended_at_once(queue)
        for at in range(0, len(again), at_once):
            slice_ = again[at : at + at_once]
            deliveries += await self._append(partial(self._drop, sequences=slice_, reason=reason))
            messages += len(slice_)
        return messages, deliveries

    def _drop(self, batch: CommitBatch, sequences: Sequence[int], reason: Reason) -> int:
        """One row for each message; what is out at a handler comes back ``LATE``. How many deliveries that ends."""
        rows = tuple(
            Row(sequence, ALL_SUBSCRIBERS, 0, Outcome.DROPPED, reason, 0, batch.time_us, 0, 0, 0)
            for sequence in sequences
        )
        batch.add(Outcomes(batch.sequence, batch.time_us, rows))
        return sum(len(self._scheduler.pending_deliveries(sequence)) for sequence in sequences)

    # -- erasure --------------------------------------------------------------------------------------------------

    async def erase(self, item: EraseMessage) -> int:
        """RULES 32. Raises ``UnknownMessage``, ``Gone`` and ``Conflict``."""
        if self._erases is not None:
            raise Conflict(self._erases, id=id_text(item.id))
        async with self.one_at_a_time:  # a replay that is being planned must not find it whole
            if (await self._find(item.id)).erased:
                return 0
            dropped = int(await self._append(partial(self._erase, item)))
        _log.info("syncbrok.space.message_erased", extra={"id": id_text(item.id), "deliveries_dropped": dropped})
        return dropped

    def _erase(self, item: EraseMessage, batch: CommitBatch) -> int:
        sequence, dropped = sequence_of(item.id), 0
        if not self._scheduler.ended(sequence):
            if not item.force:
                state = self._scheduler.message_state(sequence)
                raise Conflict(f"message {id_text(item.id)} is {state} and would be dropped: wait until it has ended, "
                               "or erase it with force", id=id_text(item.id), state=state)  # fmt: skip
            dropped = self._drop(batch, [sequence], Reason.ERASED)
        batch.add(Erased(batch.sequence, batch.time_us, batch.now_us, (item.id,), by=item.by))
        return dropped

    # -- replay ---------------------------------------------------------------------------------------------------

    async def replay(self, item: Replay) -> ReplayPlan:
        """RULES 21. Raises ``UnknownMessage``, ``Gone``, ``UnknownQueue``, ``UnknownSubscriber``, ``Conflict`` for a
        message that has not ended or whose queue is deleted, and ``TooLarge``."""
        async with self.one_at_a_time:
            asked = await self._asked(item)
            planner = self.planner()
            entries: list[RearmedEntry] = []
            shown: list[tuple[MessageId, tuple[SubscriberId, ...]]] = []
            async for step in planner.steps(self.jobs.replay_of(asked)):
                entries.append(step.entry)
                if len(shown) < _plan_shown:
                    shown.append((step.id, tuple(map(self._registry.subscriber_id, step.entry.subscribers))))
                if len(entries) > (most := limits.replay_messages_max):
                    raise TooLarge(
                        f"more than {most} messages; narrow the replay to one subscriber or message", limit=most
                    )
            job = None if item.dry_run or not entries else await self._written(item, asked, entries)
            number = 0 if job is None else job.replay
            if job is not None:
                _log.info("syncbrok.space.replayed", extra={"replay": number, "messages": len(entries),
                                                            "skipped": planner.skipped})  # fmt: skip
            deliveries = sum(len(entry.subscribers) for entry in entries)
            counts = (len(entries), deliveries, tuple(shown), planner.skipped, planner.left, planner.erased)
            return ReplayPlan(number, *counts, 0 if job is None else job.number)

    async def _written(self, item: Replay, asked: JobWish, entries: list[RearmedEntry]) -> JobChanged:
        """Put the plan into the log; the job that it is."""
        draft = partial(self.jobs.draft, JobKind.REPLAY, asked, item.by, len(entries))
        job: JobChanged = await self._append(draft)
        try:
            only = asked.subscriber
            await replay_writer.write(job.replay, entries, self._registry, self._append, subscriber=only)
        except BaseException:
            self.jobs.go_on(job.number)
            raise
        await self.jobs.written(job)
        return job

    def planner(self) -> Planner:
        """For one replay."""
        return Planner(self._scheduler, self._registry, self._messages, self._histories)

    async def _asked(self, item: Replay) -> JobWish:
        if item.id is not None:
            sequence = sequence_of(item.id)
            message = await self._find(item.id)
            if not self._registry.is_there(message.queue):
                name = self._registry.queue_name(message.queue)
                raise Conflict(f"message {id_text(item.id)} cannot be replayed: its queue {name!r} has been deleted, "
                               "its subscribers too; publish it again", id=id_text(item.id), queue=name)  # fmt: skip
            only = self.jobs.only(self._registry.queue_name(message.queue), item.subscriber)
            if not self._scheduler.ended(sequence):
                state = self._scheduler.message_state(sequence)
                raise Conflict(f"message {id_text(item.id)} is {state}; only what has ended can be replayed: wait, or "
                               "cancel it first", id=id_text(item.id), state=state)  # fmt: skip
            return JobWish(message.queue, only, messages=(sequence,), descendants=item.descendants)
        assert item.queue is not None
        number = self._registry.queue(item.queue).number
        return JobWish(number, self.jobs.only(item.queue, item.subscriber), descendants=item.descendants)

    # -- retry ----------------------------------------------------------------------------------------------------

    async def retry_subscriber(self, item: RetrySubscriber) -> int:
        """RULES 26. Raises ``UnknownQueue``, ``UnknownSubscriber`` and ``SubscriberStopped``."""
        subscriber = self._registry.subscriber(item.queue, item.id)
        if subscriber.stopped:
            raise _stopped(subscriber, item.queue)
        if item.dry_run:
            return self._scheduler.waiting_for_retry(subscriber.number)
        count = self._retried(self._scheduler.retry_now(subscriber.number), item.queue)
        self._wake()  # where nothing was tried, a breaker's next probe is due all the same
        return count

    async def retry_message(self, item: RetryMessage) -> int:
        """RULES 26. Raises ``UnknownMessage``, ``Gone``, ``UnknownSubscriber`` and ``SubscriberStopped``."""
        message = await self._find(item.id)
        sequence, queue = message.sequence, self._registry.queue_name(message.queue)
        asked = self._registry.subscribers(message.queue)
        if item.subscriber is not None:
            asked = (self._registry.subscriber(queue, item.subscriber),)
        retry = self._scheduler.waiting_for_retry if item.dry_run else self._scheduler.retry_now
        count = sum(retry(one.number, sequence) for one in asked)
        if not count:
            for one in asked:
                if one.stopped and self._scheduler.delivery_tried(sequence, one.number)[0]:
                    raise _stopped(one, queue)
        return count if item.dry_run else self._retried(count, queue)

    def _retried(self, count: int, queue: str) -> int:
        if count:
            self._wake()
            _log.info("syncbrok.space.retried", extra={"queue": queue, "deliveries": count})
        return count

    # -- the disk -------------------------------------------------------------------------------------------------

    async def _find(self, id_: MessageId) -> StoredMessage:
        """Raises what ``found`` raises."""
        reading = self._run_blocking(find_message, self._journal, id_)
        return await found(reading, id_, self._scheduler.is_lost, self._erasures.is_past)

    async def _messages(self, sequences: list[int]) -> list[StoredMessage | None]:
        return await self._run_blocking(_read_messages, self._journal, sequences)

    async def _histories(self, sequences: list[int]) -> list[MessageHistory]:
        return await self._run_blocking(_read_histories, self._journal, sequences)


def _stopped(subscriber: Subscriber, queue: str) -> SubscriberStopped:
    return SubscriberStopped(
        f"subscriber {subscriber.id!r} of queue {queue!r} {subscriber.why_stopped}: nothing is tried there; resume it, "
        "and what waits for another attempt is due",
        queue=queue,
        subscriber=subscriber.id,
    )


def _read_messages(journal: MessageIndex, sequences: list[int]) -> list[StoredMessage | None]:
    return [message and message._replace(content=b"") for message in journal.read_many(sequences)]


def _read_histories(journal: MessageIndex, sequences: list[int]) -> list[MessageHistory]:
    return [
        MessageHistory(
            tuple(row for _, row in journal.rows_of(sequence)),
            journal.carried_tries(sequence),
            tuple(journal.children_of(sequence, limits.replay_children_max)),
        )
        for sequence in sequences
    ]
