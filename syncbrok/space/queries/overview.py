"""Queues, subscribers and the Space as a whole, in figures. From memory, but for the ids of messages long waiting."""

from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from typing import Final, TypeVar

from syncbrok.model.errors import SyncbrokError
from syncbrok.model.message import Queue, Subscriber
from syncbrok.model.names import MessageId
from syncbrok.space.meters import process_report
from syncbrok.space.queries.deliveries import reason_text
from syncbrok.space.queries.reading import Reading
from syncbrok.space.queries.sources import Sources
from syncbrok.space.reports import (
    BudgetReport,
    DeliveryTotals,
    LogReport,
    QueueReport,
    SpaceReport,
    SubscriberReport,
)

_reads_max = 16
"""messages read from the disk, on the event loop, for one list of queues: those that memory does not name. Each is one
short read, mostly of the page cache; a queue beyond that shows no id until the next list."""

_DAMAGE_TOLD = 10
"""damaged places that are told in words"""


_STEP: Final = 100

T = TypeVar("T")


class Overview:
    """Makes the reports. Keeps nothing between two of them."""

    def __init__(self, sources: Sources, reading: Reading) -> None:
        self._sources = sources
        self._reading = reading

    def queues(self, queues: Iterable[Queue], *, oldest: bool = True) -> tuple[QueueReport, ...]:
        """``oldest`` False: without the ids of the messages waiting longest (a figure needs none)."""
        reads_left = _reads_max
        reports = []
        for queue in queues:
            counts = self._sources.schedule.queue_statistics(queue.number)
            waiting = self._reading.known(counts.oldest_waiting) if oldest and counts.oldest_waiting else None
            if oldest and counts.oldest_waiting and waiting is None and reads_left:
                reads_left -= 1
                waiting = self._read_id(counts.oldest_waiting)
            reports.append(
                QueueReport(
                    name=queue.name,
                    settings=queue.settings,
                    subscribers=len(self._sources.registry.subscribers(queue.number)),
                    last_sequence=counts.last_sequence,
                    waiting=counts.waiting,
                    oldest_waiting=waiting,
                    dead_letters=counts.dead_letters,
                    accepted=counts.accepted,
                    delivered=counts.delivered,
                    failed=counts.failed,
                    dead=counts.dead,
                )
            )
        return tuple(reports)

    def _read_id(self, sequence: int) -> MessageId | None:
        journal = self._sources.journal
        message = journal.read_many([sequence])[0] or journal.lost(sequence)
        if message is None:
            return None
        self._reading.remember(message)
        return message.id

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
            blocked=counts.blocked,
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
        """A step for so many queues or subscribers that it takes no more than some milliseconds."""
        sources, registry = self._sources, self._sources.registry
        queues: list[QueueReport] = []
        for some in _pieces(list(registry.queues.values())):
            there = [queue for queue in some if registry.queues.get(queue.name) is queue]  # some turns have passed
            queues += self.queues(there, oldest=False)
            yield
        subscribers: list[SubscriberReport] = []
        for those in _pieces(registry.all_subscribers()):
            for subscriber in those:
                with suppress(LookupError, SyncbrokError):  # deleted meanwhile
                    subscribers.append(self.subscriber(subscriber))
            yield
        return SpaceReport(
            state=state,
            time_us=sources.clock_us(),
            log=self._log(),
            deliveries=_totals(queues, subscribers),
            start=sources.meters.start,
            process=process_report(),
            queues=tuple(queues),
            subscribers=tuple(subscribers),
            waiters=waiters,
            listeners=listeners,
            clock_steps=sources.meters.clock_steps,
            untaken_dropped=sources.meters.untaken_dropped,
            clock_step_s=sources.meters.clock_step_s,
            budgets=tuple(BudgetReport(one.name, one.used, one.total, one.owners) for one in sources.meters.budgets),
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
            damage=tuple(f"{name}, {damage.describe()}" for name, damage in damages[:_DAMAGE_TOLD]),
        )


def _pieces(whole: list[T]) -> Iterator[list[T]]:
    for at in range(0, len(whole), _STEP):
        yield whole[at : at + _STEP]


def _totals(queues: Iterable[QueueReport], subscribers: Iterable[SubscriberReport]) -> DeliveryTotals:
    queues, subscribers = tuple(queues), tuple(subscribers)
    return DeliveryTotals(
        delivered=sum(queue.delivered for queue in queues),
        failed=sum(queue.failed for queue in queues),
        dead=sum(queue.dead for queue in queues),
        in_flight=sum(subscriber.in_flight for subscriber in subscribers),
        retrying=sum(subscriber.retrying for subscriber in subscribers),
        waiting=sum(queue.waiting for queue in queues),
        dead_letters=sum(queue.dead_letters for queue in queues),
    )
