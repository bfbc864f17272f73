"""What comes in through the channels, and who works on it: one step for each class of item.

Publishes and declarations become facts in the next draft. What takes longer than one batch is a job with a task of
its own; its receipt is settled when the job is done.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final

from syncbrok.model.errors import BrokerFault, Overloaded, SyncbrokError
from syncbrok.space.channels import (
    Cancel,
    ChangeQueue,
    ChangeSubscriber,
    DeclareQueue,
    DeleteQueue,
    Publish,
    PublishBatch,
    PublishPlain,
    PurgeQueue,
    Replay,
    RetryMessage,
    RetrySubscriber,
    RotateSecret,
    SendTest,
    Subscribe,
    Unsubscribe,
)
from syncbrok.space.commit.acceptance import Acceptor, Slowly, Wanted
from syncbrok.space.commit.channel import ChannelItem, WaitingPlain, stopped
from syncbrok.space.commit.commit_batch import ELSEWHERE, CommitBatch, Later, Step
from syncbrok.space.commit.lookups import Lookups
from syncbrok.space.operations.declarations import Declarations
from syncbrok.space.operations.operations import Operations
from syncbrok.space.state.registry import Registry

_log = logging.getLogger(__name__)

_jobs_max: Final = 64
_AT_ONCE: Final = 64
"""lines that are decided without a look at the time: at most some milliseconds, with all the parents they may have"""

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


class Intake:
    """``steps`` is what the committer asks. ``start`` is given what makes a task of a job and owns it."""

    def __init__(
        self,
        registry: Registry,
        acceptor: Acceptor,
        lookups: Lookups,
        declarations: Declarations,
        operations: Operations,
    ) -> None:
        self._registry = registry
        self._acceptor = acceptor
        self._lookups = lookups
        self._jobs: set[asyncio.Task[None]] = set()
        self._spawn: Spawn | None = None
        self.steps: dict[type, Step] = {
            Publish: self._publish,
            PublishPlain: self._publish_plain,
            PublishBatch: self._publish_batch,
            SendTest: self._send_test,
            DeclareQueue: _about("name", declarations.declare_queue),
            ChangeQueue: _about("name", declarations.change_queue),
            Subscribe: _about("queue", declarations.subscribe),
            ChangeSubscriber: _about("queue", declarations.change_subscriber),
            Unsubscribe: _about("queue", declarations.unsubscribe),
            RotateSecret: _about("queue", declarations.rotate_secret),
            DeleteQueue: partial(self._job, operations.delete_queue),
            PurgeQueue: partial(self._job, operations.purge),
            Cancel: partial(self._job, operations.cancel),
            Replay: partial(self._job, operations.replay),
            RetryMessage: partial(self._job, operations.retry_message),
            RetrySubscriber: partial(self._job, operations.retry_subscriber),
        }

    @property
    def jobs(self) -> int:
        """At work now."""
        return len(self._jobs)

    def start(self, spawn: Spawn) -> None:
        self._spawn = spawn

    def stop(self) -> None:
        """Cancel all jobs: each slice that is durable stays, the rest is done by whoever asks again."""
        self._spawn = None
        for job in self._jobs:
            job.cancel()

    def _publish(self, draft: CommitBatch, waiting: ChannelItem) -> Any:
        unit: Publish = waiting.item
        if unit.queue in draft.touched:
            raise Later
        return self._decide(unit, draft, waiting)

    def _decide(self, unit: Publish, draft: CommitBatch, waiting: ChannelItem, only: int = 0) -> Any:
        if len(unit.messages) > _AT_ONCE:
            return self._decide_in_steps(self._acceptor.accept_in_steps(unit, draft, waiting.found, only), waiting)
        return self._decided(self._acceptor.accept(unit, draft, waiting.found, only), waiting)

    def _decide_in_steps(self, steps: Slowly, waiting: ChannelItem) -> Slowly:
        return self._decided((yield from steps), waiting)

    def _decided(self, result: Any, waiting: ChannelItem) -> Any:
        if type(result) is Wanted:
            self._lookups.ask(waiting, result)
            return ELSEWHERE
        return result

    def _publish_batch(self, draft: CommitBatch, waiting: ChannelItem) -> Any:
        item: PublishBatch = waiting.item
        if item.queue in draft.touched:
            raise Later
        accepted = self._acceptor.accept_batch(item, draft) if waiting.found is None else None
        return self._decide(item.lines(), draft, waiting) if accepted is None else accepted

    def _publish_plain(self, draft: CommitBatch, waiting: ChannelItem) -> Any:
        item: PublishPlain = waiting.item
        assert isinstance(waiting, WaitingPlain)
        if draft.touched:
            later = dict.fromkeys(place for place, kind in enumerate(item.kinds) if kind.queue in draft.touched)
            if later:
                draft.later.append(waiting.split_off(later))
        accepted, refused = self._acceptor.accept_each(item, draft)
        if refused:
            waiting.refuse_some(refused)
        return ELSEWHERE if accepted is None else accepted

    def _send_test(self, draft: CommitBatch, waiting: ChannelItem) -> Any:
        item: SendTest = waiting.item
        if item.queue in draft.touched:
            raise Later
        only = self._registry.subscriber(item.queue, item.id).number
        unit = Publish(item.queue, (item.message,))
        return self._decide(unit, draft, waiting, only)

    def _job(self, work: Callable[[Any], Awaitable[Any]], draft: CommitBatch, waiting: ChannelItem) -> Any:
        queue = getattr(waiting.item, "name", None)
        if queue in draft.touched:
            raise Later
        if self._spawn is None:
            raise stopped()
        if len(self._jobs) >= _jobs_max:
            raise Overloaded(f"{_jobs_max} operations are at work; try again in a few seconds", retry_after_s=5)
        task = self._spawn(_settling(work, waiting))
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)
        return ELSEWHERE


def _about(field: str, work: Callable[[Any, CommitBatch], Any]) -> Step:
    """A step on a queue's declarations; ``field`` of the item names the queue."""

    def step(draft: CommitBatch, waiting: ChannelItem) -> Any:
        if getattr(waiting.item, field) in draft.touched:
            raise Later
        return work(waiting.item, draft)

    return step


async def _settling(work: Callable[[Any], Awaitable[Any]], waiting: ChannelItem) -> None:
    try:
        waiting.settle(await work(waiting.item))
    except SyncbrokError as why:
        waiting.refuse(why)
    except asyncio.CancelledError:
        waiting.refuse(stopped())
        raise
    except Exception:  # noqa: BLE001 (an operation's defect is its own: what it wrote is whole)
        _log.exception("syncbrok.space.job_failed", extra={"item": type(waiting.item).__name__})
        waiting.refuse(BrokerFault("the broker could not do it because of a defect of its own; its log says more"))
