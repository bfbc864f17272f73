"""Facts as events with names: which message, queue and subscriber a number is."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from syncbrok.model.facts import (
    ALL_SUBSCRIBERS,
    Fact,
    FactsLost,
    Outcome,
    Outcomes,
    QueueDeleted,
    QueueSet,
    Rearmed,
    Row,
    StoredMessage,
    SubscriberDeleted,
    SubscriberSet,
)
from syncbrok.space.queries.deliveries import reason_text
from syncbrok.space.queries.reading import MessageHead, Reading
from syncbrok.space.queries.sources import Sources
from syncbrok.space.reports import Event

_NOBODY: Final[MessageHead | None] = None


class BreakerTurned(NamedTuple):
    """A circuit breaker has opened or closed. No fact: after a restart it is closed, and the log does not tell of it.
    ``sequence``: of the newest fact; ``origin``: it is that of an origin, else the subscriber's."""

    sequence: int
    time_us: int
    queue: int
    subscriber: int
    opened: bool
    origin: str


class Happened(NamedTuple):
    """A durable fact, and the messages it has brought to a good end; or a breaker that has turned."""

    fact: Fact | BreakerTurned
    completed: frozenset[int]


def size(fact: Fact | BreakerTurned) -> int:
    """The number of events that a fact becomes, without completions; at least 1."""
    if isinstance(fact, Outcomes):
        return len(fact.rows) or 1
    if isinstance(fact, Rearmed):
        return len(fact.entries) or 1
    return 1


def weight(happened: Happened) -> int:
    """The rough number of events, at least 1. Buffers are measured in it."""
    return size(happened.fact) + len(happened.completed)


def first_of(happened: Happened, events: int) -> Happened:
    """The first so many of its events, completions aside; itself where it has no more."""
    fact = happened.fact
    if size(fact) <= events:
        return happened
    if isinstance(fact, Outcomes):
        rows = fact.rows[:events]
        return Happened(fact._replace(rows=rows), happened.completed & {row.message for row in rows})
    if isinstance(fact, Rearmed):
        return Happened(fact._replace(entries=fact.entries[:events]), happened.completed)
    return happened


class EventRendering:
    """Describes for one listener; ``queue`` (number) narrows it to one, None takes all."""

    def __init__(self, sources: Sources, reading: Reading, queue: int | None) -> None:
        self._registry = sources.registry
        self._reading = reading
        self._queue = queue

    async def events(self, some: Sequence[Happened]) -> tuple[Event, ...]:
        """The events of these facts, in their order. Messages whose record is gone have no id."""
        heads = await self._reading.heads(self._named(some))
        events: list[Event] = []
        for happened in some:
            events += self._describe(happened, heads)
        return tuple(events)

    def _named(self, some: Sequence[Happened]) -> set[int]:
        named: set[int] = set()
        for happened in some:
            if isinstance(happened.fact, Outcomes):
                named.update(row.message for row in happened.fact.rows if self._may_concern(row))
            elif isinstance(happened.fact, Rearmed):
                named.update(entry.message for entry in happened.fact.entries if self._concerns(entry.queue))
        return named

    def _concerns(self, queue: int) -> bool:
        """Whether this is the queue listened to, or all are."""
        return self._queue is None or self._queue == queue

    def _may_concern(self, row: Row) -> bool:
        """Whether the row may be of the queue listened to; one that ends a message everywhere does not say."""
        if self._queue is None or row.subscriber == ALL_SUBSCRIBERS:
            return True
        subscriber = self._registry.subscriber_numbered(row.subscriber)
        return subscriber is None or subscriber.queue == self._queue

    def _describe(self, happened: Happened, heads: dict[int, MessageHead]) -> list[Event]:
        fact = happened.fact
        match fact:
            case StoredMessage():
                return self._published(fact, happened.completed)
            case Outcomes():
                return self._outcomes(fact, happened.completed, heads)
            case Rearmed():
                return self._rearmed(fact, heads)
            case QueueSet() if self._concerns(fact.number):
                return [Event(fact.sequence, "queue", fact.time_us, queue=fact.name, by=fact.by)]
            case QueueDeleted() if self._concerns(fact.number):
                name = self._registry.queue_name(fact.number)
                return [Event(fact.sequence, "queue_deleted", fact.time_us, queue=name, by=fact.by)]
            case SubscriberSet() if self._concerns(fact.queue):
                return [self._subscriber_set(fact)]
            case SubscriberDeleted():
                return self._subscriber_deleted(fact)
            case BreakerTurned() if self._concerns(fact.queue):
                return [self._breaker(fact)]
            case FactsLost():
                text = f"the records from {fact.first} to {fact.last} are lost: {fact.why}"
                return [Event(fact.sequence, "gap", fact.time_us, text=text)]
        return []

    def _published(self, fact: StoredMessage, completed: frozenset[int]) -> list[Event]:
        if not self._concerns(fact.queue):
            return []
        queue = self._registry.queue_name(fact.queue)
        events = [Event(fact.sequence, "published", fact.time_us, queue=queue, message=fact.id, parents=fact.parents)]
        if completed:
            events.append(Event(fact.sequence, "complete", fact.time_us, queue=queue, message=fact.id))
        return events

    def _outcomes(self, fact: Outcomes, completed: frozenset[int], heads: dict[int, MessageHead]) -> list[Event]:
        events: list[Event] = []
        whole: list[Event] = []
        told: set[int] = set()
        for row in fact.rows:
            head = heads.get(row.message, _NOBODY)
            if row.outcome is Outcome.LATE or not self._may_concern(row) or (head and not self._concerns(head.queue)):
                continue
            queue = self._queue_of(row, head)
            events.append(self._row(fact, row, queue, head))
            if row.message in completed and row.message not in told:
                told.add(row.message)
                message = head.id if head else None
                whole.append(Event(fact.sequence, "complete", row.time_us, queue=queue, message=message))
        return events + whole

    def _row(self, fact: Outcomes, row: Row, queue: str, head: MessageHead | None) -> Event:
        everywhere = row.subscriber == ALL_SUBSCRIBERS
        return Event(
            id=fact.sequence,
            kind=row.outcome.name.lower(),
            time_us=row.time_us + row.latency_us,
            queue=queue,
            message=head.id if head else None,
            subscriber="" if everywhere else self._registry.subscriber_id(row.subscriber),
            attempt=row.attempt,
            status=row.status,
            reason=reason_text(row.reason),
            latency_us=row.latency_us,
            due_us=row.due_us,
        )

    def _queue_of(self, row: Row, head: MessageHead | None) -> str:
        if head is not None:
            return self._registry.queue_name(head.queue)
        subscriber = self._registry.subscriber_numbered(row.subscriber)
        return "" if subscriber is None else self._registry.queue_name(subscriber.queue)

    def _rearmed(self, fact: Rearmed, heads: dict[int, MessageHead]) -> list[Event]:
        events = []
        for entry in fact.entries:
            if not self._concerns(entry.queue):
                continue
            head = heads.get(entry.message)
            events.append(
                Event(
                    fact.sequence,
                    "replayed",
                    fact.time_us,
                    queue=self._registry.queue_name(entry.queue),
                    message=head.id if head else None,
                    count=len(entry.subscribers),
                )
            )
        return events

    def _breaker(self, fact: BreakerTurned) -> Event:
        return Event(
            fact.sequence,
            "breaker_opened" if fact.opened else "breaker_closed",
            fact.time_us,
            queue=self._registry.queue_name(fact.queue),
            subscriber=self._registry.subscriber_id(fact.subscriber),
            text=fact.origin,
        )

    def _subscriber_set(self, fact: SubscriberSet) -> Event:
        return Event(
            fact.sequence,
            "subscriber",
            fact.time_us,
            queue=self._registry.queue_name(fact.queue),
            subscriber=fact.id,
            reason=fact.settings.disabled_by.name.lower() if fact.settings.disabled_us else "",
            by=fact.by,
        )

    def _subscriber_deleted(self, fact: SubscriberDeleted) -> list[Event]:
        queue = self._registry.subscriber_queue(fact.number)
        if not self._concerns(queue):
            return []
        name = self._registry.subscriber_id(fact.number)
        queue_name = self._registry.queue_name(queue) if queue else ""
        return [Event(fact.sequence, "subscriber_deleted", fact.time_us, queue=queue_name, subscriber=name, by=fact.by)]
