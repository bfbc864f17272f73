"""The names of queues and subscribers, which records know by numbers. A number is given once, so a name holds wherever
it is found: in the segment's snapshot, or where that does not know a number, in what the segment declares after it.
"""

from collections.abc import Callable, Iterable
from functools import cached_property

import pyarrow as pa

from syncbrok.log.format.records import Record, SegmentOpened
from syncbrok.model.facts import ALL_SUBSCRIBERS, QueueSet, SubscriberSet
from syncbrok.pipeline.decode.arrow_arrays import Array, NameLookup


class SegmentNames:
    """The names in one segment."""

    def __init__(self, snapshot: Record, declared: Callable[[], Iterable[Record]]) -> None:
        """``declared``: all that the segment declares, for when the snapshot is not enough."""
        self._declared = declared
        self._queues: dict[int, str] = {}
        self._subscribers: dict[int, tuple[str, int]] = {}
        self._complete = False
        self._add(snapshot)

    def queue_names(self, numbers: Array) -> pa.Array:
        """The name of the queue of each number; null where it has none."""
        found = self.queues.take(numbers)
        if found.null_count and not self._complete:
            self.know(queues=numbers)
            found = self.queues.take(numbers)
        return found

    def know(self, *, queues: Array | None = None, subscribers: Array | None = None) -> None:
        """Read all declarations of the segment where one of the numbers has no name yet."""
        if self._complete:
            return
        missing = queues is not None and not self.queues.has(queues)
        if subscribers is not None:
            single = subscribers[subscribers != ALL_SUBSCRIBERS]
            missing |= not (self.subscribers.has(single) and self.queues_of_subscribers.has(single))
        if missing:
            self._complete = True
            for fact in self._declared():
                self._add(fact)
            for table in ("queues", "subscribers", "queues_of_subscribers"):
                self.__dict__.pop(table, None)

    @cached_property
    def queues(self) -> NameLookup:
        """Looks up queues by their numbers."""
        return NameLookup(self._queues)

    @cached_property
    def subscribers(self) -> NameLookup:
        """Looks up subscribers' ids by their numbers."""
        return NameLookup({number: known[0] for number, known in self._subscribers.items()})

    @cached_property
    def queues_of_subscribers(self) -> NameLookup:
        """Looks up the names of subscribers' queues by the subscribers' numbers."""
        known = {number: self._queues.get(queue) for number, (_, queue) in self._subscribers.items()}
        return NameLookup({number: name for number, name in known.items() if name is not None})

    def _add(self, fact: Record) -> None:
        match fact:
            case SegmentOpened():
                for queue in fact.queues:
                    self._add(queue)
                for subscriber in fact.subscribers:
                    self._add(subscriber)
            case QueueSet():
                self._queues[fact.number] = fact.name
            case SubscriberSet():
                self._subscribers[fact.number] = (fact.id, fact.queue)
            case _:
                pass
