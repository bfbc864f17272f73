"""Queues and subscribers as the facts declare them, over the length of a log, and what its gaps put in doubt. Pure.

Declarations are few even where messages are many: they are brought to one place, in order, and become tables that say
for any record who was counted then. ``OrderChecker`` keeps the same by going along with every fact; here it is said
once for whole ranges of sequences, which a join can look up.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from syncbrok.log.format.records import Gap, SegmentOpened
from syncbrok.model.facts import QueueDeleted, QueueSet, SubscriberDeleted, SubscriberSet
from syncbrok.model.names import SEQUENCE_MAX
from syncbrok.pipeline.audit.rules import AuditFinding

FOREVER: Final = SEQUENCE_MAX + 1

Declaration = QueueSet | QueueDeleted | SubscriberSet | SubscriberDeleted | SegmentOpened | Gap


class AudienceMember(NamedTuple):
    """A subscriber of an audience: messages of sequences above ``since`` count it. ``gone``: the record that deleted
    it, 0 for none."""

    number: int
    since: int
    gone: int


class Audience(NamedTuple):
    """The subscribers of the queue ``name`` (number ``queue``) for records above ``begins`` up to ``ends``.
    ``queue_gone``: the record that deleted the queue, 0 for none."""

    name: str
    queue: int
    begins: int
    ends: int
    members: tuple[AudienceMember, ...]
    queue_gone: int


@dataclass(slots=True)
class SubscriberSpan:
    """A subscriber over the whole log. ``begins``: the record that declared it first; ``gone``: the one that
    deleted it, or with which it stopped to count, 0 for none. ``starts``: from which sequence on it may catch up,
    as (record that says so, sequence), falling."""

    number: int
    queue: int
    id: str
    begins: int
    gone: int = 0
    frozen: bool = False
    """paused or disabled at the end"""
    starts: list[tuple[int, int]] = field(default_factory=list)
    uncounted: list[tuple[int, int]] = field(default_factory=list)
    """(since, the record that ended that): where it did not count"""


class LostRange(NamedTuple):
    """The contents of a gap record: sequences ``first`` to ``last`` are lost."""

    record: int
    first: int
    last: int


@dataclass(slots=True)
class AuditDeclarations:
    """The declarations of a log, as ``declared`` reads them. ``doubtful``: ranges of records (above the one, up to
    the other) before which declarations may have been lost."""

    audiences: list[Audience]
    subscribers: dict[int, SubscriberSpan]
    gaps: list[LostRange]
    doubtful: list[tuple[int, int]]
    violations: list[AuditFinding]

    def frozen(self) -> list[int]:
        """Subscribers that are paused or disabled at the end."""
        return [one.number for one in self.subscribers.values() if one.frozen and not one.gone]


def declared(facts: Iterable[Declaration], first: int) -> AuditDeclarations:
    """Read the declarations in ``facts``, which are in the order of the log. ``first`` is the log's first record."""
    state = _DeclarationState(first)
    for fact in facts:
        state.apply(fact)
    return state.close()


class _DeclarationState:
    def __init__(self, first: int) -> None:
        self._first = first
        self._names: dict[int, str] = {}
        """of the queues that stand"""
        self._subscribed: dict[int, SubscriberSet] = {}
        self._known: dict[int, SubscriberSpan] = {}
        self._since: dict[int, int] = {}
        """queue -> the record since which its audience is what it is"""
        self._epochs: list[tuple[str, int, int, int, tuple[tuple[int, int], ...]]] = []
        self._queues_gone: dict[int, list[int]] = {}
        self._gaps: list[LostRange] = []
        self._doubtful: list[tuple[int, int]] = []
        self._doubt_since = -1
        self._violations: list[AuditFinding] = []

    def apply(self, fact: Declaration) -> None:
        match fact:
            case QueueSet():
                self._queue(fact, fact.sequence)
            case SubscriberSet():
                self._subscriber(fact, fact.sequence)
            case SubscriberDeleted():
                self._unsubscribe(fact.number, fact.sequence)
            case QueueDeleted():
                self._delete_queue(fact.number, fact.sequence)
            case SegmentOpened():
                self._snapshot(fact)
            case Gap():
                self._gaps.append(LostRange(fact.sequence, fact.first, fact.last))
                if self._doubt_since < 0:
                    self._doubt_since = fact.sequence

    def close(self) -> AuditDeclarations:
        for queue in list(self._names):
            self._end_epoch(queue, FOREVER)
        if self._doubt_since >= 0:
            self._doubtful.append((self._doubt_since, FOREVER))
        audiences = [
            Audience(name, queue, begins, ends, self._members(members), self._queue_gone(queue, begins))
            for name, queue, begins, ends, members in self._epochs
        ]
        return AuditDeclarations(audiences, self._known, self._gaps, self._doubtful, self._violations)

    # -- each kind -----------------------------------------------------------------------------------------------------

    def _queue(self, fact: QueueSet, record: int) -> None:
        if self._names.get(fact.number) != fact.name:
            self._end_epoch(fact.number, record)
            self._names[fact.number] = fact.name
            self._since[fact.number] = record

    def _subscriber(self, fact: SubscriberSet, record: int) -> None:
        before = self._subscribed.get(fact.number)
        changed = before is None or _counts_as(before) != _counts_as(fact)
        for queue in {fact.queue, before.queue if before else fact.queue} if changed else ():
            self._end_epoch(queue, record)
        self._subscribed[fact.number] = fact
        known = self._known.setdefault(fact.number, SubscriberSpan(fact.number, fact.queue, fact.id, record))
        known.queue, known.id = fact.queue, fact.id
        known.frozen = bool(fact.settings.paused or fact.settings.disabled_us)
        start = fact.settings.start
        if fact.settings.counts:
            known.uncounted = [(since, min(ends, record)) for since, ends in known.uncounted]
        else:
            start = fact.since if start is None else start
            if before is None or before.settings.counts:
                known.uncounted.append((fact.since if before is None else record, FOREVER))
            if before is not None and before.settings.counts and not known.gone:
                known.gone = record  # what it gets from here on nobody waits for, and nothing is to be judged by it
        if start is not None and (not known.starts or start < known.starts[-1][1]):
            known.starts.append((record, start))

    def _unsubscribe(self, number: int, record: int) -> None:
        before = self._subscribed.get(number)
        if before is not None:
            self._end_epoch(before.queue, record)
            del self._subscribed[number]
        known = self._known.get(number)
        if known is not None:
            known.gone = known.gone or record

    def _delete_queue(self, number: int, record: int) -> None:
        self._queues_gone.setdefault(number, []).append(record)
        for one in [one.number for one in self._subscribed.values() if one.queue == number]:
            self._unsubscribe(one, record)
        self._end_epoch(number, record)
        self._names.pop(number, None)
        self._since.pop(number, None)

    def _snapshot(self, fact: SegmentOpened) -> None:
        if fact.sequence != self._first and self._doubt_since < 0:
            self._compare(fact)
        for number in set(self._subscribed) - {one.number for one in fact.subscribers}:
            self._unsubscribe(number, fact.sequence)
        for queue in set(self._names) - {one.number for one in fact.queues}:
            self._end_epoch(queue, fact.sequence)
            del self._names[queue], self._since[queue]
        for one in fact.queues:
            self._queue(one, fact.sequence)
        for subscriber in fact.subscribers:
            self._subscriber(subscriber, fact.sequence)
        if self._doubt_since >= 0:
            self._doubtful.append((self._doubt_since, fact.sequence))
            self._doubt_since = -1

    def _compare(self, fact: SegmentOpened) -> None:
        queues = {queue.number for queue in fact.queues} ^ set(self._names)
        subscribed = {(one.number, one.queue, one.since) for one in self._subscribed.values()}
        subscribers = {(one.number, one.queue, one.since) for one in fact.subscribers} ^ subscribed
        if queues or subscribers:
            what = f"differs from the facts before it in queues {sorted(queues)}, subscribers {sorted(subscribers)}"
            self._violations.append(AuditFinding("snapshot", fact.sequence, 0, 0, what))

    # -- epochs --------------------------------------------------------------------------------------------------------

    def _end_epoch(self, queue: int, record: int) -> None:
        """Note the audience of ``queue`` up to ``record``, before it changes."""
        begins, name = self._since.get(queue), self._names.get(queue)
        if begins is None or name is None:
            return
        if begins < record:
            members = tuple(
                (one.number, one.since)
                for one in self._subscribed.values()
                if one.queue == queue and one.settings.counts
            )
            self._epochs.append((name, queue, begins, record, members))
        self._since[queue] = record

    def _members(self, members: tuple[tuple[int, int], ...]) -> tuple[AudienceMember, ...]:
        return tuple(AudienceMember(number, since, self._known[number].gone) for number, since in members)

    def _queue_gone(self, queue: int, begins: int) -> int:
        return next((record for record in self._queues_gone.get(queue, ()) if record > begins), 0)


def _counts_as(fact: SubscriberSet) -> tuple[int, int, bool]:
    """The properties of a subscriber that decide which messages count it."""
    return fact.queue, fact.since, fact.settings.counts
