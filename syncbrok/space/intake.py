"""Dispatches items from the channels: one step for each class of item.

Publishes and declarations become facts in the next batch. Work that takes longer than one batch is a job with a task of
its own; its receipt is resolved when the job is done.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from types import GeneratorType
from typing import Any, Final

from syncbrok.delivery.leader_lease import LeaderLease
from syncbrok.model import limits
from syncbrok.model.errors import BrokerFault, ClientFault, NoQuorum, Overloaded, SyncbrokError
from syncbrok.space.channels import (
    Accepted,
    Cancel,
    CancelJob,
    CancelMessages,
    ChangeQueue,
    ChangeSubscriber,
    CreateToken,
    DeclareQueue,
    DeleteQueue,
    DropDeadLetters,
    EraseMessage,
    EraseMessages,
    Publish,
    PurgeQueue,
    Recover,
    Replay,
    ReplayMessages,
    RetryMessage,
    RetrySubscriber,
    RevokeToken,
    RotateSecret,
    Seek,
    Subscribe,
    Unsubscribe,
)
from syncbrok.space.commit.acceptance import Acceptor, Slowly, SomeRefused, Wanted
from syncbrok.space.commit.channel import ChannelItem, SharedItem, stopped
from syncbrok.space.commit.commit_batch import ELSEWHERE, CommitBatch, RetryNextBatch, Step
from syncbrok.space.commit.lookups import Lookups
from syncbrok.space.operations.declarations import Declarations
from syncbrok.space.operations.jobs import JobRunner
from syncbrok.space.operations.operations import Operations
from syncbrok.space.operations.token_changes import TokenChanges

_log = logging.getLogger(__name__)

_MAY_BE_OLD: Final = "this node led last and has no answer of a quorum now: what it would refuse another may take"

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


class Intake:
    """``steps`` is what the committer asks. ``start`` is given what makes a task of a job and owns it."""

    def __init__(
        self,
        acceptor: Acceptor,
        lookups: Lookups,
        declarations: Declarations,
        operations: Operations,
        jobs: JobRunner,
        tokens: TokenChanges,
        lease: LeaderLease,
    ) -> None:
        """``lease``: while it does not hold nobody is told that a request is wrong."""
        self._lease = lease
        self._acceptor = acceptor
        self._lookups = lookups
        self._jobs: set[asyncio.Task[None]] = set()
        self._spawn: Spawn | None = None
        steps: dict[type, Step] = {
            Publish: self._publish,
            DeclareQueue: _about("name", declarations.declare_queue),
            ChangeQueue: _about("name", declarations.change_queue),
            Subscribe: _about("queue", declarations.subscribe),
            ChangeSubscriber: _about("queue", declarations.change_subscriber),
            Unsubscribe: _about("queue", declarations.unsubscribe),
            RotateSecret: _about("queue", declarations.rotate_secret),
            CreateToken: lambda batch, waiting: tokens.create(waiting.item, batch),
            RevokeToken: lambda batch, waiting: tokens.revoke(waiting.item, batch),
            DeleteQueue: partial(self._job, operations.delete_queue),
            PurgeQueue: partial(self._job, operations.purge),
            Cancel: partial(self._job, operations.cancel),
            CancelMessages: partial(self._job, operations.cancel_some),
            EraseMessage: partial(self._job, operations.erase),
            Replay: partial(self._job, operations.replay),
            ReplayMessages: partial(self._job, jobs.replay_some),
            Recover: partial(self._job, jobs.recover),
            Seek: partial(self._job, jobs.seek),
            DropDeadLetters: partial(self._job, jobs.drop),
            EraseMessages: partial(self._job, jobs.erase),
            CancelJob: partial(self._job, jobs.cancel),
            RetryMessage: partial(self._job, operations.retry_message),
            RetrySubscriber: partial(self._job, operations.retry_subscriber),
        }
        self.steps = {item: partial(self._of_now, step) for item, step in steps.items()}

    @property
    def jobs(self) -> int:
        """The number of jobs at work."""
        return len(self._jobs)

    def start(self, spawn: Spawn) -> None:
        self._spawn = spawn

    def stop(self) -> None:
        """Cancel all jobs. Slices that are durable stay; whoever asks again does the rest."""
        self._spawn = None
        for job in self._jobs:
            job.cancel()

    def _of_now(self, step: Step, batch: CommitBatch, waiting: ChannelItem) -> Any:
        """A step whose refusals are of now. Nothing is written for one, so the log does not fence it: a leader of
        before, which has not heard of the next one, would tell a publisher that its parent was never accepted."""
        try:
            return step(batch, waiting)
        except ClientFault as why:
            raise self._refusal(why) from why

    def _refusal(self, why: SyncbrokError) -> SyncbrokError:
        return NoQuorum(_MAY_BE_OLD) if isinstance(why, ClientFault) and not self._lease.holds() else why

    def _publish(self, batch: CommitBatch, waiting: ChannelItem) -> Any:
        units = waiting.units
        if batch.claimed:
            deferred = dict.fromkeys(place for place, unit in enumerate(units) if unit.queue in batch.claimed)
            if len(deferred) == len(units):
                raise RetryNextBatch
            if deferred:
                assert isinstance(waiting, SharedItem)
                batch.deferred.append(waiting.split_off(deferred))
                units = waiting.units
        try:
            result = self._acceptor.accept(units, batch, waiting.found)
            return result if type(result) is Accepted else self._decided(result, waiting)
        except SomeRefused as some:
            assert isinstance(waiting, SharedItem)
            waiting.refuse_some({place: self._refusal(why) for place, why in some.why.items()})
            return self._decided(self._acceptor.accept(waiting.units, batch), waiting) if waiting.units else ELSEWHERE

    def _decided(self, result: Any, waiting: ChannelItem) -> Any:
        if type(result) is Wanted:
            self._lookups.ask(waiting, result)
            return ELSEWHERE
        return self._decided_in_steps(result, waiting) if type(result) is GeneratorType else result

    def _decided_in_steps(self, steps: Slowly, waiting: ChannelItem) -> Slowly:
        try:
            return self._decided((yield from steps), waiting)
        except ClientFault as why:
            raise self._refusal(why) from why

    def _job(self, work: Callable[[Any], Awaitable[Any]], batch: CommitBatch, waiting: ChannelItem) -> Any:
        queue = getattr(waiting.item, "name", None)
        if queue in batch.claimed:
            raise RetryNextBatch
        if self._spawn is None:
            raise stopped()
        if len(self._jobs) >= (most := limits.operations_max):
            raise Overloaded(f"{most} operations are at work; try again in a few seconds", retry_after_s=5)
        task = self._spawn(self._settling(work, waiting))
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)
        return ELSEWHERE

    async def _settling(self, work: Callable[[Any], Awaitable[Any]], waiting: ChannelItem) -> None:
        try:
            waiting.resolve(await work(waiting.item))
        except SyncbrokError as why:
            waiting.refuse(self._refusal(why))
        except asyncio.CancelledError:
            waiting.refuse(stopped())
            raise
        except Exception:  # noqa: BLE001 (an operation's defect is its own: what it wrote is whole)
            _log.exception("syncbrok.space.job_failed", extra={"item": type(waiting.item).__name__})
            waiting.refuse(BrokerFault("the broker could not do it because of a defect of its own; its log says more"))


def _about(field: str, work: Callable[[Any, CommitBatch], Any]) -> Step:
    """A step on a queue's declarations; ``field`` of the item names the queue."""

    def step(batch: CommitBatch, waiting: ChannelItem) -> Any:
        if getattr(waiting.item, field) in batch.claimed:
            raise RetryNextBatch
        return work(waiting.item, batch)

    return step
