"""Events for machines: what the broker says of itself in the queue ``syncbrok.events``, as CloudEvents.

An event stands in the batch of the fact it tells, behind it and in one unit with it: a crash keeps both or none. It is
a message like any other from then on. Nothing is told about that queue and its subscribers; and nothing while the disk
is full, since what is left is for outcomes.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import quote

import orjson

from syncbrok.delivery.scheduler.breakers import Turned
from syncbrok.model.errors import SyncbrokError
from syncbrok.model.event_types import EVENTS_QUEUE, EventType, wants
from syncbrok.model.facts import ALL_SUBSCRIBERS, Attributes, Extras, JobChanged, Outcome, Reason, Row
from syncbrok.model.jobs import job_id
from syncbrok.model.message import Subscriber
from syncbrok.model.names import MessageId, id_text
from syncbrok.model.units import render_time, shown_endpoint
from syncbrok.space.commit.commit_batch import CommitBatch
from syncbrok.space.filter_alarms import FilterMinutes
from syncbrok.space.state.registry import Registry

_log = logging.getLogger(__name__)

_DELIVERY: Final = {
    Outcome.DELIVERED: EventType.DELIVERY_DELIVERED,
    Outcome.FAILED: EventType.DELIVERY_FAILED,
    Outcome.DEAD: EventType.DELIVERY_DEAD,
    Outcome.EXPIRED: EventType.DELIVERY_EXPIRED,
    Outcome.DROPPED: EventType.DELIVERY_DROPPED,
    Outcome.SKIPPED: EventType.DELIVERY_SKIPPED,
}

Ids = Callable[[set[int]], Awaitable[Mapping[int, MessageId]]]
"""ids of messages by sequence, those that can be read"""


class BrokerEvents:
    """``queue_of`` gives the queue (number) of a message that has not ended."""

    def __init__(self, registry: Registry, queue_of: Callable[[int], int], ids: Ids) -> None:
        self._registry = registry
        self._queue_of = queue_of
        self._ids = ids
        self._filter_minutes = FilterMinutes()

    def emit(
        self, batch: CommitBatch, kind: EventType, source: str, data: Mapping[str, Any], *, of_fact: bool = True
    ) -> list[int]:
        """Put an event into the batch, to those who want it; their sequences. ``of_fact``: it tells the fact that the
        batch ends with."""
        queue = self._registry.find(EVENTS_QUEUE)
        if queue is None or batch.essential or EVENTS_QUEUE in batch.claimed:
            return []
        subscribers = self._registry.subscribers(queue.number)
        wanting = [one.number for one in subscribers if wants(one.settings.types, kind)]
        content = orjson.dumps(data)
        settings = queue.settings
        attributes = Attributes(queue.number, settings.scope, settings.parent_failure, "application/json")
        told = []
        for only in (0,) if 0 < len(wanting) == len(subscribers) else wanting:
            sequence = batch.sequence
            headers = (
                ("ce-id", str(sequence)),
                ("ce-source", source),
                ("ce-specversion", "1.0"),
                ("ce-time", render_time(batch.now_us)),
                ("ce-type", kind.value),
            )
            batch.publish(((1, attributes),), (content,), {0: Extras(sequence, headers=headers, only=only)})
            if of_fact:
                batch.join_unit()
            told.append(sequence)
        return told

    def about(
        self,
        batch: CommitBatch,
        kind: EventType,
        subscriber: Subscriber,
        data: Mapping[str, Any] = {},
        *,
        of_fact: bool = True,
    ) -> list[int]:
        """As ``emit``, of a subscriber; not of those of the events themselves."""
        name = self._registry.queue_name(subscriber.queue)
        if name == EVENTS_QUEUE:
            return []
        source = f"/queues/{quote(name, safe='')}/subscribers/{quote(subscriber.id, safe='')}"
        about = {
            "queue": name,
            "subscriber": subscriber.id,
            "endpoint": shown_endpoint(subscriber.settings.endpoint),
            **data,
        }
        return self.emit(batch, kind, source, about, of_fact=of_fact)

    def job_over(self, job: JobChanged, batch: CommitBatch) -> None:
        """A job is over, as the fact says that the batch ends with."""
        queue = self._registry.queue_name(job.wish.queue)
        subscriber = self._registry.subscriber_id(job.wish.subscriber) if job.wish.subscriber else None
        data = {
            "id": job_id(job.number),
            "kind": job.kind,
            "state": job.state,
            "by": job.by or None,
            "queue": queue,
            "subscriber": subscriber,
            "total": job.total,
            "done": job.done,
            "failed": job.failed,
            "why": job.why or None,
        }
        self.emit(batch, EventType.JOB_ENDED, f"/jobs/{job_id(job.number)}", data)

    def turned(self, some: Sequence[Turned], batch: CommitBatch, *, of_fact: bool = False) -> None:
        """Breakers have opened or closed: by answers whose rows the batch ends with, or otherwise."""
        for one in some:
            known = self._registry.subscriber_numbered(one.subscriber)
            if known is not None:
                kind = EventType.BREAKER_OPENED if one.opened else EventType.BREAKER_CLOSED
                data = {"origin": one.origin or None, "failing": one.failing, "since": render_time(one.since_us)}
                self.about(batch, kind, known, data, of_fact=of_fact)

    def outcomes(self, rows: Sequence[Row], batch: CommitBatch) -> None:
        """The rows that the batch ends with: what is dead, and each delivery where somebody asks for those. The ids are
        read before it is written."""
        queue = self._registry.find(EVENTS_QUEUE)
        if queue is None:
            return
        types = [one.settings.types for one in self._registry.subscribers(queue.number)]
        of_rows = (EventType.MESSAGE_DEAD, EventType.FILTER_FAILED, *_DELIVERY.values())
        kinds = {kind for kind in of_rows if any(wants(one, kind) for one in types)}
        unnamed: dict[int, tuple[int, dict[str, Any]]] = {}
        for row in rows if kinds else ():
            for kind in sorted(_kinds_of(row) & kinds):
                if kind is EventType.FILTER_FAILED and not self._filter_minutes.is_due(row.subscriber, batch.now_us):
                    continue
                data = _row_data(row)
                for sequence in self._row(batch, kind, row, data):
                    unnamed[sequence] = row.message, data
        if unnamed:
            batch.before.append(partial(self._name, batch, unnamed))

    def _row(self, batch: CommitBatch, kind: EventType, row: Row, data: dict[str, Any]) -> list[int]:
        if row.subscriber != ALL_SUBSCRIBERS:
            known = self._registry.subscriber_numbered(row.subscriber)
            if known is None:
                return []
            name = self._registry.queue_name(known.queue)
            data.update({"queue": name, "subscriber": known.id, "endpoint": shown_endpoint(known.settings.endpoint)})
            return self.about(batch, kind, known, data)
        name = self._registry.queue_name(self._queue_of(row.message))
        data.update({"queue": name, "subscriber": None})
        return [] if name == EVENTS_QUEUE else self.emit(batch, kind, f"/queues/{quote(name, safe='')}", data)

    async def _name(self, batch: CommitBatch, unnamed: Mapping[int, tuple[int, dict[str, Any]]]) -> None:
        try:
            ids = await self._ids({message for message, _ in unnamed.values()})
        except (SyncbrokError, OSError) as problem:  # the event is worth more than the id in it
            _log.warning("syncbrok.space.event_ids_unread", extra={"detail": str(problem)})
            return
        for sequence, (message, data) in unnamed.items():
            if message in ids:
                batch.rewrite(sequence, orjson.dumps({**data, "id": id_text(ids[message])}))


def _kinds_of(row: Row) -> set[EventType]:
    """All that may be told of it. Never its ``detail``: that may quote content, and an event outlives an erasure."""
    found = {_DELIVERY[row.outcome]} if row.outcome in _DELIVERY else set()
    if row.outcome is Outcome.DEAD:
        found.add(EventType.MESSAGE_DEAD)
    if row.reason is Reason.FILTER_ERROR:
        found.add(EventType.FILTER_FAILED)
    return found


def _row_data(row: Row) -> dict[str, Any]:
    return {
        "id": None,
        "sequence": row.message,
        "outcome": row.outcome.name.lower(),
        "reason": row.reason.name.lower() if row.reason else None,
        "attempt": row.attempt or None,
        "status": row.status or None,
        "time": render_time(row.time_us + row.latency_us),
        "next_attempt_at": render_time(row.due_us) if row.due_us else None,
    }
