"""Finds who did what: the facts that name somebody, a bounded stretch of the log at a time.

The index leads to the few facts that are neither messages nor outcomes. A page ends after ``limits.search_s`` of
looking at those, wherever it has come to: ``next`` is the last one looked at.
"""

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Final, NamedTuple

from syncbrok.model import limits
from syncbrok.model.facts import (
    Action,
    Erased,
    Fact,
    JobChanged,
    Managed,
    QueueDeleted,
    QueueSet,
    SubscriberDeleted,
    SubscriberSet,
)
from syncbrok.model.jobs import JobKind
from syncbrok.model.names import QueueName, sequence_of
from syncbrok.space.channels import BEGINNING, Bound
from syncbrok.space.pause import Pause
from syncbrok.space.queries.reading import MessageHead, Reading
from syncbrok.space.queries.sources import Sources
from syncbrok.space.reports import ActionReport, Page

ManagedFact = QueueSet | QueueDeleted | SubscriberSet | SubscriberDeleted | Erased | Managed | JobChanged
_DECLARED: Final = {
    QueueSet: "queue_set",
    QueueDeleted: "queue_deleted",
    SubscriberSet: "subscriber_set",
    SubscriberDeleted: "subscriber_deleted",
    Erased: "erased",
}
ACTIONS: Final = (*_DECLARED.values(), *map(str, Action), *map(str, JobKind))
"""all kinds of them, as ``syncbrok log cat`` calls them"""
_TOGETHER: Final = 64
"""facts asked of the index at once; each sealed section has one at least"""


class SoughtActions(NamedTuple):
    """The actions that are sought: those of which all of it is true. ``queue`` may be one that is deleted. ``since``:
    inclusive, ``until``: exclusive."""

    by: str | None = None
    action: str | None = None
    queue: str | None = None
    since: Bound = BEGINNING
    until: Bound = BEGINNING
    newest_first: bool = True


class Actions:
    """Keeps nothing between two pages."""

    def __init__(self, sources: Sources, reading: Reading) -> None:
        self._journal, self._registry, self._run_blocking = sources.journal, sources.registry, sources.run_blocking
        self._reading = reading

    async def page(
        self,
        sought: SoughtActions,
        position: int,
        limit: int,
        may_see: Callable[[QueueName], bool] | None,
        pause: Pause,
    ) -> Page[ActionReport]:
        """At most ``limit`` actions beyond the sequence ``position`` (0: from the first on), in queues that
        ``may_see``. It may have fewer, or none, though more follow."""
        until_s = perf_counter() + limits.search_s
        after, before = await self._range(sought, position)
        found: list[ActionReport] = []
        while True:
            some = await self._run_blocking(
                self._journal.others_between, after, before, _TOGETHER, newest_first=sought.newest_first
            )
            for report in await self._reports([fact for _, fact in some], sought):
                if may_see is None or may_see(report.queue):
                    found.append(report)
                if len(found) == limit:
                    return Page(tuple(found), report.sequence)
            if len(some) < _TOGETHER:
                return Page(tuple(found), None)
            last = some[-1][0]
            after, before = (after, last) if sought.newest_first else (last, before)
            if perf_counter() >= until_s:
                return Page(tuple(found), last)
            await pause()

    async def _range(self, sought: SoughtActions, position: int) -> tuple[int, int]:
        """The sequences between which they may be, both ends excluded."""
        since, until = sought.since, sought.until
        after = max(since.sequence - 1, 0)
        before = min(until.sequence or self._journal.durable_sequence + 1, self._journal.durable_sequence + 1)
        if since.time_us:
            after = await self._run_blocking(self._journal.first_at, since.time_us) - 1
        if until.time_us:
            before = min(before, await self._run_blocking(self._journal.first_at, until.time_us))
        if position and sought.newest_first:
            before = min(before, position)
        elif position:
            after = max(after, position)
        return after, before

    async def _reports(self, facts: Sequence[Fact | None], sought: SoughtActions) -> list[ActionReport]:
        """The facts that are sought, as reports, in their order."""
        chosen = [
            fact
            for fact in facts
            if isinstance(fact, ManagedFact)
            and fact.by
            and sought.by in (None, fact.by)
            and sought.action in (None, _action(fact))
            and not (isinstance(fact, JobChanged) and fact.number != fact.sequence)  # how it goes on
        ]
        heads = await self._reading.heads(filter(None, map(_message, chosen)))
        reports = [self._report(fact, heads) for fact in chosen]
        return [one for one in reports if sought.queue in (None, one.queue)]

    def _report(self, fact: ManagedFact, heads: Mapping[int, MessageHead]) -> ActionReport:
        registry = self._registry
        head = heads.get(_message(fact))
        queue, subscriber, job = 0, "", 0
        match fact:
            case QueueSet() | QueueDeleted():
                queue = fact.number
            case SubscriberSet():
                queue, subscriber = fact.queue, fact.id
            case SubscriberDeleted():
                queue, subscriber = registry.subscriber_queue(fact.number), registry.subscriber_id(fact.number)
            case Erased():
                queue = 0 if head is None else head.queue
            case Managed():
                queue, job = fact.queue, fact.message if fact.action is Action.CANCEL_JOB else 0
            case JobChanged():
                queue, job = fact.wish.queue, fact.number
                subscriber = registry.subscriber_id(fact.wish.subscriber) if fact.wish.subscriber else ""
        return ActionReport(
            sequence=fact.sequence,
            time_us=fact.time_us,
            by=fact.by,
            action=_action(fact),
            queue=fact.name if isinstance(fact, QueueSet) else registry.queue_name(queue) if queue else QueueName(""),
            subscriber=subscriber,
            message=None if head is None else head.id,
            messages=len(fact.messages) if isinstance(fact, Erased) else int(head is not None),
            job=job,
        )


def _action(fact: ManagedFact) -> str:
    if isinstance(fact, Managed):
        return str(fact.action)
    return str(fact.kind) if isinstance(fact, JobChanged) else _DECLARED[type(fact)]


def _message(fact: ManagedFact) -> int:
    """The sequence of the message, or of the first of those, that it is about; 0 for none."""
    if isinstance(fact, Erased):
        return sequence_of(fact.messages[0])
    return fact.message if isinstance(fact, Managed) and fact.action is Action.CANCEL else 0
