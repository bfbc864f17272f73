"""The types of the broker's own events (the queue ``syncbrok.events``). A new one is a line here, and a call of
``BrokerEvents.tell`` where its fact is put into a batch."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from syncbrok.model.names import QueueName

EVENTS_QUEUE: Final = QueueName("syncbrok.events")
"""made with its first subscriber; only the broker publishes into it"""


class EventType(StrEnum):
    """The ``type`` of a CloudEvent. ``syncbrok.delivery.*`` are told only to who asks for them: they are many."""

    ENDPOINT_DISABLED = "syncbrok.endpoint.disabled"
    ENDPOINT_ENABLED = "syncbrok.endpoint.enabled"
    BREAKER_OPENED = "syncbrok.breaker.opened"
    BREAKER_CLOSED = "syncbrok.breaker.closed"
    MESSAGE_DEAD = "syncbrok.message.dead"
    JOB_ENDED = "syncbrok.job.ended"
    GROUP_UNCOUNTED = "syncbrok.group.uncounted"
    FILTER_FAILED = "syncbrok.filter.failed"
    TOKEN_CHANGED = "syncbrok.token.changed"  # noqa: S105 (the name of an event)
    LOG_DAMAGED = "syncbrok.log.damaged"
    DELIVERY_DELIVERED = "syncbrok.delivery.delivered"
    DELIVERY_FAILED = "syncbrok.delivery.failed"
    DELIVERY_DEAD = "syncbrok.delivery.dead"
    DELIVERY_EXPIRED = "syncbrok.delivery.expired"
    DELIVERY_DROPPED = "syncbrok.delivery.dropped"
    DELIVERY_SKIPPED = "syncbrok.delivery.skipped"

    @property
    def is_asked_for(self) -> bool:
        """Whether only those get it whose ``types`` name it."""
        return self.startswith("syncbrok.delivery.")


def is_pattern(text: str) -> bool:
    """Whether it is the name of a type, or the beginning of some with ``*`` behind it."""
    return any(_fits(text, kind) for kind in EventType)


def wants(types: Sequence[str] | None, kind: EventType) -> bool:
    """Whether a subscriber with these ``types`` gets events of this kind; None: all that need not be asked for."""
    if types is None:
        return not kind.is_asked_for
    return any(_fits(one, kind) for one in types)


def _fits(pattern: str, kind: str) -> bool:
    return kind.startswith(pattern[:-1]) if pattern.endswith("*") else kind == pattern
