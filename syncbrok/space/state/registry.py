"""The queues and subscribers of a Space as declared: numbers, names, settings, and what the bootstrap file applied.

Changed by facts only: live traffic and recovery call the same ``apply``. Waiting messages are the scheduler's business.
"""

import hashlib
from bisect import insort
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson

from syncbrok.delivery.handler import Destination
from syncbrok.model.errors import UnknownQueue, UnknownSubscriber
from syncbrok.model.facts import (
    Fact,
    FileApplied,
    Outcome,
    QueueDeleted,
    QueueSet,
    Snapshot,
    SubscriberDeleted,
    SubscriberSet,
)
from syncbrok.model.message import Queue, Subscriber, SubscriberSettings
from syncbrok.model.names import QueueName, SubscriberId

NUMBERS = "#numbers"
"""An entry of ``Snapshot.applied`` that is not a file's: the numbers given last. Without it a queue deleted in a part
of the log that retention has dropped would give its number to the next one. A queue may be called so too: then its hash
has no blank, and the numbers have one between them."""

_forgotten_max = 10_000
"""how many deleted queues, and subscribers, keep their names in memory for reports about their old messages"""


class RegistryStatistics(NamedTuple):
    queues: int
    subscribers: int
    applied: int


class Departed(NamedTuple):
    """A subscriber that has been deleted: messages of ``queue`` (number) beyond the sequence ``since`` and before
    ``until``, its deletion at ``time_us``, were for it, and have counted it where it ``counts``. (Checkpoints of
    versions that did not know of that have none.)"""

    queue: int
    id: SubscriberId
    since: int
    until: int
    time_us: int
    counts: bool = True


def subscriber_id(settings: SubscriberSettings) -> SubscriberId:
    """Identity is the name, else the endpoint (RULES 18)."""
    if settings.name is not None:
        return SubscriberId(settings.name)
    return SubscriberId("s-" + hashlib.blake2s(settings.endpoint.encode(), digest_size=6).hexdigest())


class Registry:
    """All queues and subscribers. Numbers are given once; names may be used again after a deletion."""

    def __init__(self) -> None:
        self.last_queue_number = 0
        self.last_subscriber_number = 0
        self._queues: dict[QueueName, Queue] = {}
        self._by_number: dict[int, Queue] = {}
        self._names: list[QueueName] = []  # sorted
        self._subscribers: dict[int, dict[SubscriberId, Subscriber]] = {}  # by queue number
        self._destinations: dict[int, Destination] = {}  # by subscriber number
        self.destination: Callable[[int], Destination] = self._destinations.__getitem__
        """The subscriber (number) with the name of its queue and the timeout that applies. Raises ``KeyError``. Asked
        for each delivery: the dictionary's own method, for one of ours would cost more than the look-up."""
        self._applied: dict[str, FileApplied] = {}
        self._deleted_queues: dict[int, QueueName] = {}
        self._departed: dict[int, Departed] = {}

    # -- reading --------------------------------------------------------------------------------------------------

    @property
    def queues(self) -> Mapping[QueueName, Queue]:
        return MappingProxyType(self._queues)

    @property
    def applied(self) -> Mapping[str, str]:
        """Entry of the bootstrap file -> the hash it was last applied with; made anew each time."""
        return {entry: fact.hash for entry, fact in self._applied.items()}

    def last_applied(self, entry: str) -> FileApplied | None:
        """The fact of the entry's last application from a file; None without one."""
        return self._applied.get(entry)

    def names(self) -> list[QueueName]:
        """The names of all queues, sorted. This is the registry's own list: do not change it, do not keep it."""
        return self._names

    def find(self, name: str) -> Queue | None:
        return self._queues.get(QueueName(name))

    def queue(self, name: str) -> Queue:
        """Raises ``UnknownQueue``."""
        queue = self._queues.get(QueueName(name))
        if queue is None:
            raise UnknownQueue(f"there is no queue {name!r}; declare it first", queue=name)
        return queue

    def queue_name(self, number: int) -> QueueName:
        """Also of a queue that has been deleted, as long as it is remembered; then ``deleted-NUMBER``."""
        queue = self._by_number.get(number)
        if queue is not None:
            return queue.name
        return self._deleted_queues.get(number, QueueName(f"deleted-{number}"))

    def is_there(self, queue: int) -> bool:
        """Whether the queue (number) has not been deleted; another one may have its name by now."""
        return queue in self._by_number

    def subscribers(self, queue: int) -> tuple[Subscriber, ...]:
        """The subscribers of a queue (number), in the order they were added; empty where there is no such queue."""
        return tuple(self._subscribers.get(queue, {}).values())

    def counted(self, queue: int, sequence: int, only: int = 0) -> tuple[int, ...]:
        """Numbers of the subscribers that a message of the queue (number) counts and that are still there (RULES 3),
        in the order they were added; of a message for one subscriber alone (``only``) that one. The same however long
        ago it has ended."""
        return tuple(
            subscriber.number
            for subscriber in self._subscribers.get(queue, {}).values()
            if subscriber.counted_by(sequence) and only in (0, subscriber.number)
        )

    def uncounted(self, queue: int, sequence: int, only: int = 0) -> tuple[int, ...]:
        """Numbers of the subscribers that do not count and get a message of the queue (number) all the same."""
        return tuple(
            one.number
            for one in self._subscribers.get(queue, {}).values()
            if not one.settings.counts and only in (0, one.number) and (one.settings.start or one.since) <= sequence
        )

    def subscriber(self, queue: str, id: str) -> Subscriber:  # noqa: A002 (the word of the domain)
        """Raises ``UnknownQueue`` and ``UnknownSubscriber``."""
        found = self._subscribers[self.queue(queue).number].get(SubscriberId(id))
        if found is None:
            raise UnknownSubscriber(f"queue {queue!r} has no subscriber {id!r}", queue=queue, subscriber=id)
        return found

    def find_subscriber(self, queue: int, id: SubscriberId) -> Subscriber | None:  # noqa: A002
        """The subscriber ``id`` of a queue (number); None without one."""
        return self._subscribers.get(queue, {}).get(id)

    def subscriber_numbered(self, number: int) -> Subscriber | None:
        entry = self._destinations.get(number)
        return None if entry is None else entry.subscriber

    def subscriber_id(self, number: int) -> SubscriberId:
        """Also of one that has been deleted, as long as it is remembered; then ``deleted-NUMBER``."""
        entry = self._destinations.get(number)
        if entry is not None:
            return entry.subscriber.id
        departed = self._departed.get(number)
        return SubscriberId(f"deleted-{number}") if departed is None else departed.id

    def subscriber_queue(self, number: int) -> int:
        """Number of its queue; also of one that has been deleted, as long as it is remembered; then 0."""
        entry = self._destinations.get(number)
        if entry is not None:
            return entry.subscriber.queue
        departed = self._departed.get(number)
        return 0 if departed is None else departed.queue

    def departed(self, queue: int, sequence: int) -> Iterator[tuple[int, Departed]]:
        """Subscribers, by number, that a message of the queue (number) was for and that have been deleted since."""
        for number, one in self._departed.items():
            if one.queue == queue and one.since < sequence < one.until:
                yield number, one

    def all_departed(self) -> list[tuple[int, Departed]]:
        """All subscribers that have been deleted, by number."""
        return list(self._departed.items())

    def all_subscribers(self) -> list[Subscriber]:
        return [entry.subscriber for entry in self._destinations.values()]

    def snapshot(self, sequence: int, time_us: int, bad: tuple[tuple[int, Outcome], ...] = ()) -> Snapshot:
        """Everything declared, as the fact of that sequence."""
        applied = [fact._replace(sequence=sequence, time_us=time_us) for fact in self._applied.values()]
        numbers = f"{self.last_queue_number} {self.last_subscriber_number}"
        applied.append(FileApplied(sequence, time_us, NUMBERS, numbers))
        return Snapshot(
            sequence,
            time_us,
            tuple(QueueSet(sequence, time_us, q.number, q.name, q.settings, q.by) for q in self._queues.values()),
            tuple(
                SubscriberSet(sequence, time_us, s.number, s.queue, s.id, s.since, s.settings, s.by)
                for s in self.all_subscribers()
            ),
            tuple(applied),
            bad,
        )

    def save_deleted(self) -> bytes:
        """Deleted subscribers and queues as bytes, for the checkpoint; a snapshot does not name them."""
        return orjson.dumps([list(self._deleted_queues.items()), [[n, [*one]] for n, one in self._departed.items()]])

    def load_deleted(self, saved: bytes) -> None:
        """Raises ``ValueError`` or ``TypeError`` for what ``save_deleted`` did not give."""
        queues, subscribers = orjson.loads(saved)
        self._deleted_queues = {number: QueueName(name) for number, name in queues}
        self._departed = {number: Departed(*fields) for number, fields in subscribers}

    def statistics(self) -> RegistryStatistics:
        return RegistryStatistics(len(self._queues), len(self._destinations), len(self._applied))

    def __repr__(self) -> str:
        return f"<Registry queues={len(self._queues)} subscribers={len(self._destinations)}>"

    # -- changing -------------------------------------------------------------------------------------------------

    def apply(self, fact: Fact) -> None:
        """Facts that declare nothing change nothing."""
        change = _changes.get(type(fact))
        if change is not None:
            change(self, fact)

    def _set_queue(self, fact: QueueSet) -> None:
        old = self._by_number.get(fact.number)
        queue = Queue(fact.number, fact.name, fact.settings, fact.by or ("" if old is None else old.by))
        self._queues[fact.name] = self._by_number[fact.number] = queue
        self.last_queue_number = max(self.last_queue_number, fact.number)
        if old is None:
            insort(self._names, fact.name)
            self._subscribers[fact.number] = {}
            # A queue made anew takes its subscribers from the file again: what was applied belonged to another queue.
            for entry in [entry for entry in self._applied if entry.startswith(fact.name + "/")]:
                del self._applied[entry]
        for subscriber in self._subscribers[fact.number].values():
            self._refresh(subscriber)  # its timeout may be the queue's

    def _delete_queue(self, fact: QueueDeleted) -> None:
        queue = self._by_number.pop(fact.number, None)
        if queue is None:
            return
        del self._queues[queue.name]
        self._names.remove(queue.name)
        for subscriber in list(self._subscribers[fact.number].values()):
            self._remove(subscriber, fact)
        del self._subscribers[fact.number]
        self._forget_keys(queue.name)
        _remember(self._deleted_queues, fact.number, queue.name)

    def _set_subscriber(self, fact: SubscriberSet) -> None:
        if fact.queue not in self._by_number:
            return  # of a queue that a salvaged log lost
        old = self._destinations.get(fact.number)
        by = fact.by or ("" if old is None else old.subscriber.by)
        subscriber = Subscriber(fact.number, fact.queue, fact.id, fact.since, fact.settings, by)
        self.last_subscriber_number = max(self.last_subscriber_number, fact.number)
        self._subscribers[fact.queue][fact.id] = subscriber
        self._refresh(subscriber)

    def _delete_subscriber(self, fact: SubscriberDeleted) -> None:
        entry = self._destinations.get(fact.number)
        if entry is not None:
            self._remove(entry.subscriber, fact)
            self._forget_keys(f"{self.queue_name(entry.subscriber.queue)}/{entry.subscriber.id}")

    def _forget_keys(self, entry: str) -> None:
        """Forget the keys that were applied to a thing that is gone. That the entry was applied is kept: an unchanged
        entry does not make the thing again."""
        applied = self._applied.pop(entry, None)
        if applied is not None and applied.hash:
            self._applied[entry] = applied._replace(keys=None)

    def _file_applied(self, fact: FileApplied) -> None:
        if fact.entry == NUMBERS and " " in fact.hash:
            queue, subscriber = map(int, fact.hash.split())
            self.last_queue_number = max(self.last_queue_number, queue)
            self.last_subscriber_number = max(self.last_subscriber_number, subscriber)
        else:
            self._applied[fact.entry] = fact

    def _take_over(self, fact: Snapshot) -> None:
        """Take over a snapshot. Things that it does not name are removed (records between may have been dropped or
        lost)."""
        for number in self._destinations.keys() - {subscriber.number for subscriber in fact.subscribers}:
            self._remove(self._destinations[number].subscriber, fact)
        for number in self._by_number.keys() - {queue.number for queue in fact.queues}:
            self._delete_queue(QueueDeleted(fact.sequence, fact.time_us, number))
        for queue in fact.queues:
            self._set_queue(queue)
        for subscriber in fact.subscribers:
            self._set_subscriber(subscriber)
        self._applied.clear()
        for entry in fact.applied:
            self._file_applied(entry)

    def _refresh(self, subscriber: Subscriber) -> None:
        queue = self._by_number[subscriber.queue]
        timeout_s = subscriber.settings.timeout_s
        if timeout_s is None:
            timeout_s = queue.settings.timeout_s
        self._destinations[subscriber.number] = Destination(subscriber, queue.name, timeout_s)

    def _remove(self, subscriber: Subscriber, fact: QueueDeleted | SubscriberDeleted | Snapshot) -> None:
        del self._destinations[subscriber.number]
        del self._subscribers[subscriber.queue][subscriber.id]
        counts = subscriber.settings.counts
        departed = Departed(subscriber.queue, subscriber.id, subscriber.since, fact.sequence, fact.time_us, counts)
        _remember(self._departed, subscriber.number, departed)


def _remember(names: dict[int, Any], number: int, name: object) -> None:
    if len(names) >= _forgotten_max:
        del names[next(iter(names))]
    names[number] = name


_changes: Mapping[type, Callable[[Registry, Any], None]] = {
    QueueSet: Registry._set_queue,  # noqa: SLF001 (the table of what each fact does)
    QueueDeleted: Registry._delete_queue,  # noqa: SLF001
    SubscriberSet: Registry._set_subscriber,  # noqa: SLF001
    SubscriberDeleted: Registry._delete_subscriber,  # noqa: SLF001
    FileApplied: Registry._file_applied,  # noqa: SLF001
    Snapshot: Registry._take_over,  # noqa: SLF001
}
