"""Queues, subscribers and the Space as a whole, in figures. From memory, but for the ids of messages long waiting."""

import asyncio
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from syncbrok.model.errors import SyncbrokError
from syncbrok.model.message import Queue, Subscriber
from syncbrok.model.names import MessageId, QueueName
from syncbrok.space.meters import process_report
from syncbrok.space.queries.deliveries import reason_text
from syncbrok.space.queries.reading import SLICE, Reading
from syncbrok.space.queries.sources import Sources
from syncbrok.space.reports import (
    BudgetReport,
    DeliveryTotals,
    Histogram,
    LogReport,
    QueueReport,
    SpaceReport,
    SubscriberReport,
)

_READS_MAX: Final = 16
"""messages read from the disk for one list of queues: those that memory does not name. Each stands elsewhere; a queue
beyond that shows no id until the next list."""

_READ_S: Final = 0.25
"""the longest that a scrape waits for the disk: it must also tell of a disk that hangs"""

_DAMAGE_TOLD = 10
"""damaged places that are told in words"""


_STEP: Final = 50

T = TypeVar("T")


class Overview:
    """Makes the reports. Keeps nothing between two of them, but when messages were accepted that it had to read."""

    def __init__(self, sources: Sources, reading: Reading) -> None:
        self._sources = sources
        self._reading = reading
        self._accepted_us: dict[int, int] = {}

    def queues(self, queues: Iterable[Queue]) -> tuple[QueueReport, ...]:
        reports = []
        for queue in queues:
            counts = self._sources.schedule.queue_statistics(queue.number)
            reports.append(
                QueueReport(
                    name=queue.name,
                    settings=queue.settings,
                    subscribers=len(self._sources.registry.subscribers(queue.number)),
                    last_sequence=counts.last_sequence,
                    waiting=counts.waiting,
                    oldest_waiting=counts.oldest_waiting,
                    dead_letters=counts.dead_letters,
                    accepted=counts.accepted,
                    delivered=counts.delivered,
                    failed=counts.failed,
                    dead=counts.dead,
                    backlog=counts.backlog,
                    backlog_bytes=counts.backlog_bytes,
                    changed_by=queue.by,
                )
            )
        return tuple(reports)

    async def oldest_waiting(self, reports: Sequence[QueueReport]) -> dict[QueueName, MessageId]:
        """See ``View``."""
        oldest = {report.name: report.oldest_waiting for report in reports if report.oldest_waiting}
        unnamed = [sequence for sequence in oldest.values() if self._reading.known(sequence) is None]
        heads = await self._reading.heads({*oldest.values()}.difference(unnamed[_READS_MAX:]))
        return {name: heads[sequence].id for name, sequence in oldest.items() if sequence in heads}

    async def oldest_us(self, reports: Sequence[QueueReport]) -> dict[QueueName, int]:
        """See ``View``."""
        oldest = {report.name: report.oldest_waiting for report in reports if report.oldest_waiting}
        times = self._sources.meters.latencies.accepted_at
        before = {sequence for sequence in oldest.values() if not times.knows(sequence)}
        known = self._accepted_us = {one: time_us for one, time_us in self._accepted_us.items() if one in before}
        missing = sorted(before.difference(known))[:SLICE]
        with suppress(TimeoutError, SyncbrokError):
            async with asyncio.timeout(_READ_S):
                for sequence, stored in zip(missing, await self._reading.messages(missing), strict=True):
                    known[sequence] = times.of(sequence) if stored is None else stored.message.time_us
        return {name: known.get(sequence) or times.of(sequence) for name, sequence in oldest.items()}

    def subscriber(self, subscriber: Subscriber) -> SubscriberReport:
        counts = self._sources.schedule.subscriber_statistics(subscriber.number)
        settings = subscriber.settings
        return SubscriberReport(
            queue=self._sources.registry.queue_name(subscriber.queue),
            id=subscriber.id,
            settings=settings,
            since=subscriber.since,
            state="disabled" if settings.disabled_us else "paused" if settings.paused else "active",
            cursor=counts.cursor,
            backlog=counts.backlog,
            in_flight=counts.in_flight,
            retrying=counts.retrying,
            dead_letters=counts.dead_letters,
            delivered=counts.delivered,
            failed=counts.failed,
            last_status=counts.last_status,
            last_reason=reason_text(counts.last_reason),
            last_attempt_us=counts.last_attempt_us,
            failing_since_us=counts.failing_since_us,
            breaker=counts.breaker.state,
            probe_us=counts.breaker.probe_us,
            breaker_since_us=counts.breaker.since_us,
            breaker_failing=counts.breaker.failing,
            breaker_origin=counts.breaker.origin,
            blocked=counts.blocked,
            changed_by=subscriber.by,
        )

    def space(self, state: str, waiters: int, listeners: int) -> SpaceReport:
        steps = self.space_in_steps(state, waiters, listeners)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                report: SpaceReport = end.value
                return report

    def space_in_steps(self, state: str, waiters: int, listeners: int) -> Generator[None, None, SpaceReport]:
        """A step for a queue, or so many subscribers that it takes no more than a millisecond or two."""
        sources, registry = self._sources, self._sources.registry
        queues: list[QueueReport] = []
        latencies: dict[QueueName, Histogram] = {}
        for queue in list(registry.queues.values()):
            if registry.queues.get(queue.name) is queue:  # some turns have passed
                queues += self.queues((queue,))
                latencies[queue.name] = sources.meters.latencies.of(queue.number)
            yield
        sources.meters.latencies.keep({queue.number for queue in registry.queues.values()})
        subscribers: list[SubscriberReport] = []
        holders = {"attempts": 0, "leases": 0}  # their budgets are told only how much is used, see ``Shares``
        for those in _pieces(registry.all_subscribers()):
            for subscriber in those:
                with suppress(LookupError, SyncbrokError):  # deleted meanwhile
                    subscribers.append(self.subscriber(subscriber))
                    holders["leases" if subscriber.consumed else "attempts"] += subscribers[-1].in_flight > 0
            yield
        totals = DeliveryTotals.of(queues, subscribers)
        yield
        return SpaceReport(
            state=state,
            time_us=sources.clock_us(),
            log=self._log(),
            deliveries=totals,
            start=sources.meters.start,
            process=process_report(),
            queues=tuple(queues),
            subscribers=tuple(subscribers),
            waiters=waiters,
            listeners=listeners,
            clock_steps=sources.meters.clock_steps,
            untaken_dropped=sources.meters.untaken_dropped,
            breakers_opened=sources.meters.breakers_opened,
            spans_sent=sources.meters.spans_sent,
            spans_lost=sources.meters.spans_lost,
            clock_step_s=sources.meters.clock_step_s,
            budgets=tuple(
                BudgetReport(one.name, one.used, one.total, holders.get(one.name, one.owners))
                for one in sources.meters.budgets
            ),
            latencies=latencies,
            loop_lag=sources.meters.loop_lag.report(),
            log_readers=sources.log_readers(),
        )

    def _log(self) -> LogReport:
        journal, meters = self._sources.journal, self._sources.meters
        sections = journal.sections()
        names = {section.first: section.name for section in sections}
        damages = [(names[first], damage) for first in sorted(names) for damage in journal.damages.get(first, ())]
        return LogReport(
            sync=self._sources.sync,
            sequence=journal.next_sequence - 1,
            durable_sequence=journal.durable_sequence,
            segments=len(sections),
            bytes=sum(section.bytes for section in sections),
            oldest_us=sections[0].first_time_us if sections else 0,
            commits=meters.commits.report(),
            records_written=meters.records_written,
            bytes_written=meters.bytes_written,
            full=meters.full,
            failed=meters.failed,
            damaged=len(journal.damaged),
            damaged_records=sum(damage.records for _, damage in damages),
            committing_s=meters.committing_s,
            damage=tuple(f"{name}, {damage.describe()}" for name, damage in damages[:_DAMAGE_TOLD]),
        )


def _pieces(whole: list[T]) -> Iterator[list[T]]:
    for at in range(0, len(whole), _STEP):
        yield whole[at : at + _STEP]
