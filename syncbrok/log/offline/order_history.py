"""How everything stands after a run of facts: who was counted, what has ended where and in which record. Pure.

The bookkeeping of ``order``, in plain dictionaries and deliberately not the scheduler's: it judges the scheduler.
Nothing is judged here. Messages, subscribers and queues are named by sequence and number.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from syncbrok.log.format.records import Gap, SegmentOpened
from syncbrok.model.facts import (
    DELETED_SUBSCRIBER,
    Carried,
    Outcome,
    Rearmed,
    RearmedEntry,
    StoredMessage,
    SubscriberSet,
)
from syncbrok.model.message import ParentFailure, Scope
from syncbrok.model.names import sequence_of

BAD_OUTCOMES = frozenset({Outcome.DEAD, Outcome.EXPIRED})


class End(NamedTuple):
    """A delivery ended with this record; ``good``: it counts as acknowledged."""

    record: int
    good: bool


@dataclass(slots=True)
class JudgedDelivery:
    """One message at one subscriber, as the rows have it. ``ends`` are all its ends, oldest first; ``replay`` is the
    number of the replay that has re-armed it, until it ends again; ``retrying``: it has been tried since, and is to be
    tried again; ``was_next``: an attempt of it began when all of its key before it had ended; ``first_after`` and
    ``last_after`` are when its first and its last attempt began, as ``after`` (-1: none), those of replays left out."""

    ends: tuple[End, ...] = ()
    attempts: int = 0
    replay: int = 0
    retrying: bool = False
    first_after: int = -1
    last_after: int = -1
    was_next: bool = False
    rearmed: tuple[int, ...] = ()
    """the records that re-armed it"""
    next_in_replay: int = 0
    """the replay in which an attempt of it began when all of its key before it had ended"""

    def was_in_replay_at(self, after: int) -> bool:
        """Whether a replay had sent it again when record ``after`` was the newest, and it had not ended since."""
        return any(
            record <= after and not any(record < end.record <= after for end in self.ends) for record in self.rearmed
        )


@dataclass(slots=True)
class JudgedMessage:
    """Everything known of one accepted message; a log has millions, so nothing of it is kept that is not asked for.
    ``record`` is where it stands: its own, or the one that carries it; ``counted`` are those that are there by then.
    ``open`` are the counted and the re-armed subscribers at which it has not ended (again); ``ended_at`` and
    ``complete_at`` are the records with which it ended and became complete, 0 while it has not: they never go back
    (RULES 21)."""

    sequence: int
    record: int
    queue: int
    scope: Scope
    policy: ParentFailure
    parents: tuple[int, ...]
    counted: frozenset[int]
    open: frozenset[int]
    only: int
    delayed: bool
    doubtful: bool
    """declared subscribers may have been lost before it was accepted"""
    key: str = ""
    """with which it stands in ``JudgedState.keys``; none for a message to one subscriber alone"""
    ended_at: int = 0
    complete_at: int = 0
    freed: bool = False
    """all that it counted have stopped to count"""
    ended_for_all: int = 0
    """the record with the first row that ended it wherever it had not ended, 0 for none"""
    deliveries: dict[int, JudgedDelivery] = field(default_factory=dict)

    def at(self, subscriber: int) -> JudgedDelivery:
        """Everything known of it at ``subscriber``; to be changed."""
        found = self.deliveries.get(subscriber)
        if found is None:
            found = self.deliveries[subscriber] = JudgedDelivery()
        return found

    def ends(self, subscriber: int) -> tuple[End, ...]:
        found = self.deliveries.get(subscriber)
        return found.ends if found else ()

    def has_ended_at(self, subscriber: int) -> bool:
        return subscriber not in self.open and bool(self.ends(subscriber))

    def rearmed_by(self, subscriber: int) -> int:
        """The number of the replay that it has yet to end in, 0 for none."""
        found = self.deliveries.get(subscriber)
        return found.replay if found else 0


class JudgedReplay(NamedTuple):
    began: int
    entries: dict[int, RearmedEntry]


class JudgedState:
    """Feed it facts in order."""

    def __init__(self) -> None:
        self.messages: dict[int, JudgedMessage] = {}
        self.undecided: dict[int, JudgedMessage] = {}
        """those with open deliveries, or without counted subscribers and not complete"""
        self.cancelled: set[int] = set()
        """those without counted subscribers that a row has ended"""
        self.children: dict[int, list[int]] = {}
        self.queues: set[int] = set()
        self.subscribers: dict[int, SubscriberSet] = {}
        self.starts: dict[int, int] = {}
        """the lowest ``start`` each subscriber has had, or where one that did not count began: it may be sent messages
        from there on, uncounted"""
        self.stopped_counting: dict[int, int] = {}
        """subscriber -> the record with which it stopped to count; only since the log began"""
        self.dropped_through: dict[int, int] = {}
        """subscriber that does not count -> what had ended up to there it did not take in time"""
        self.deleted: set[int] = set()
        self.bad: dict[int, int] = {}
        """those that ended badly and are known from a list of them alone -> the first record after it with a delivery
        of one, 0 for none: from there on a replay may have mended it, which nobody can tell who does not know where it
        had failed"""
        self.replays: dict[int, JudgedReplay] = {}
        self.gap_last = 0
        self.declarations_known = True
        self.keys: dict[tuple[int, str], list[int]] = {}
        """(queue, key) -> the messages of the key, in order"""
        self._audiences: dict[int, tuple[int, frozenset[int]]] = {}
        """of each queue: the ``since`` of its newest subscriber, and all of them; made anew after a change"""

    # -- queues and subscribers ----------------------------------------------------------------------------------------

    def declare(self, fact: SubscriberSet) -> None:
        before = self.subscribers.get(fact.number)
        self.subscribers[fact.number] = fact
        self._audiences.pop(fact.queue, None)
        start = fact.settings.start
        if start is None and not fact.settings.counts:
            start = fact.since
        if start is not None:
            self.starts[fact.number] = min(start, self.starts.get(fact.number, start))
        if before is not None and before.settings.counts and not fact.settings.counts:
            self.stopped_counting[fact.number] = fact.sequence
            self._stop_counting(fact.number, fact.sequence)

    def open_segment(self, fact: SegmentOpened) -> None:
        """Take over the snapshot: what it says stands from here on."""
        for number in set(self.subscribers) - {one.number for one in fact.subscribers}:
            self.delete_subscriber(number, fact.sequence)
        self.queues = {queue.number for queue in fact.queues}
        for one in fact.subscribers:
            self.declare(one)
        for sequence, _ in fact.bad:
            self.bad.setdefault(sequence, 0)
        self.declarations_known = True

    def lose(self, fact: Gap) -> None:
        self.gap_last = max(self.gap_last, fact.last)
        self.declarations_known = False

    def delete_subscriber(self, number: int, record: int) -> None:
        self.subscribers.pop(number, None)
        self._audiences.clear()
        self.deleted.add(number)
        for message in list(self.undecided.values()):
            if number in message.open:
                self.end(message, number, End(record, good=True))

    def _stop_counting(self, number: int, record: int) -> None:
        """Let what has not ended there count it no more; what waited only for that has ended."""
        for message in list(self.undecided.values()):
            if number in message.open & message.counted and not message.rearmed_by(number):
                message.open -= {number}
                message.counted -= {number}
                message.freed = not message.counted
                self._decide(message, record)

    def delete_queue(self, number: int, record: int) -> None:
        for message in list(self.undecided.values()):
            if message.queue == number:
                self.end_all(message, End(record, good=False))
        for subscriber in [one.number for one in self.subscribers.values() if one.queue == number]:
            self.delete_subscriber(subscriber, record)
        self.queues.discard(number)

    # -- messages ------------------------------------------------------------------------------------------------------

    def accept(self, fact: StoredMessage, record: int) -> JudgedMessage:
        """A message stands in ``record``: its own, or the one that carries it. Subscribers are counted by RULES 3."""
        parents = tuple([sequence_of(parent) for parent in fact.parents])
        counted = self._counted(fact)
        message = JudgedMessage(
            fact.sequence,
            record,
            fact.queue,
            fact.scope,
            fact.parent_failure,
            parents,
            counted,
            counted,
            fact.only,
            fact.due_us > 0,
            doubtful=not self.declarations_known,
        )
        if fact.key and not fact.only:
            message.key = fact.key
            insort(self.keys.setdefault((fact.queue, fact.key), []), fact.sequence)
        self.messages[fact.sequence] = self.undecided[fact.sequence] = message
        for parent in parents:
            self.children.setdefault(parent, []).append(fact.sequence)
        if not counted:
            self._decide(message, record)
        return message

    def _counted(self, fact: StoredMessage) -> frozenset[int]:
        newest, everybody = self._audiences.get(fact.queue, (0, frozenset()))
        if not newest:
            known = [one for one in self.subscribers.values() if one.queue == fact.queue and one.settings.counts]
            newest = max((one.since for one in known), default=1)
            everybody = frozenset(one.number for one in known)
            self._audiences[fact.queue] = newest, everybody
        if newest < fact.sequence and not fact.only:
            return everybody
        return frozenset(
            number
            for number in everybody
            if self.subscribers[number].since < fact.sequence and fact.only in (0, number)
        )

    def carry(self, fact: Carried) -> None:
        """Take over what a carried record says: all that is known where the message's own record is gone."""
        if fact.message.sequence in self.messages:
            return
        message = self.accept(fact.message, fact.sequence)
        if any(number == DELETED_SUBSCRIBER for number, _ in fact.ended):
            self.deleted.add(DELETED_SUBSCRIBER)
            message.counted |= {DELETED_SUBSCRIBER}
            message.open |= {DELETED_SUBSCRIBER}
        for number, outcome in fact.ended:
            if number in message.open:
                self.end(message, number, End(fact.sequence, good=outcome not in BAD_OUTCOMES))
        for tried in fact.tried:
            delivery = message.at(tried.subscriber)
            delivery.attempts, delivery.retrying = tried.attempts, tried.subscriber in message.open

    def rearm(self, fact: Rearmed) -> None:
        replay = self.replays.setdefault(fact.replay, JudgedReplay(fact.sequence, {}))
        for entry in fact.entries:
            replay.entries[entry.message] = entry
            message = self.messages.get(entry.message)
            if message is not None:
                message.open |= set(entry.subscribers) - self.deleted
                for number in entry.subscribers:
                    delivery = message.at(number)
                    delivery.replay, delivery.retrying = fact.replay, False
                    delivery.rearmed = (*delivery.rearmed, fact.sequence)
                if message.open:
                    self.undecided[entry.message] = message

    # -- ends ----------------------------------------------------------------------------------------------------------

    def end(self, message: JudgedMessage, subscriber: int, end: End) -> None:
        delivery = message.at(subscriber)
        delivery.ends = (*delivery.ends, end)
        delivery.replay, delivery.retrying = 0, False
        message.open -= {subscriber}
        self._decide(message, end.record)

    def end_all(self, message: JudgedMessage, end: End) -> None:
        """A row for all subscribers: every delivery that has not ended."""
        message.ended_for_all = message.ended_for_all or end.record
        for subscriber in sorted(message.open):
            self.end(message, subscriber, end)
        if not message.counted and not message.complete_at:
            message.ended_at = message.ended_at or end.record
            self.cancelled.add(message.sequence)
            self.undecided.pop(message.sequence, None)
            self._decide_dependents(message.sequence, end.record)

    def may_mend(self, sequence: int, record: int) -> None:
        """A message of which nothing but a bad end is known has been delivered."""
        if self.bad.get(sequence) == 0:
            self.bad[sequence] = record
            self._decide_dependents(sequence, record)

    def state_for(self, message: JudgedMessage, parent: int) -> str:
        """``done``, ``failed`` or ``open``: a parent as the gate of ``message`` by scope ``all`` sees it."""
        either = message.policy is ParentFailure.DELIVER
        found = self.messages.get(parent)
        if found is None:
            return "failed" if self.bad.get(parent) == 0 and not either else "done"
        if found.complete_at or (either and found.ended_at):
            return "done"
        return "failed" if found.ended_at else "open"

    def of_key_before(self, message: JudgedMessage, number: int) -> Iterator[JudgedMessage]:
        """The messages before it of the same key that count the subscriber as it does, the newest first."""
        if number in message.counted:
            yield from (before for before in self.of_key(message) if number in before.counted)

    def of_key(self, message: JudgedMessage) -> Iterator[JudgedMessage]:
        """The messages before it of the same key, the newest first."""
        if message.key:
            line = self.keys[message.queue, message.key]
            for at in range(bisect_left(line, message.sequence) - 1, -1, -1):
                yield self.messages[line[at]]

    def in_doubt(self, message: JudgedMessage) -> bool:
        """Whether a gap may have swallowed something about it."""
        return message.doubtful or message.sequence <= self.gap_last

    def _decide(self, message: JudgedMessage, record: int) -> None:
        """Note whether ``message`` has just ended, and with it the messages without subscribers that wait for it."""
        changed = self._note_end(message, record)
        if not message.open and (
            message.counted or message.freed or message.complete_at or message.sequence in self.cancelled
        ):
            self.undecided.pop(message.sequence, None)
        if changed:
            self._decide_dependents(message.sequence, record)

    def _decide_dependents(self, ended: int, record: int) -> None:
        found = [ended]
        while found:
            for sequence in self.children.get(found.pop(), ()):
                child = self.messages[sequence]
                if not child.counted and self._note_end(child, record):
                    found.append(sequence)
                    if child.complete_at and not child.open:
                        self.undecided.pop(sequence, None)

    def _note_end(self, message: JudgedMessage, record: int) -> bool:
        """Set when ``message`` ended and when it became complete; say whether either has just happened."""
        if message.open & message.counted or message.complete_at:
            return False
        if message.counted or message.freed:
            # The first end is decided by every counted delivery (RULES 10, 12). To mend it, a dead letter of a
            # subscriber that is gone does not matter: nobody could be sent a replay.
            forgiven = self.deleted if message.ended_at else frozenset[int]()
            good = all(message.ends(number)[-1].good or number in forgiven for number in message.counted)
            ended = True
        else:
            states = [self.state_for(message, parent) for parent in message.parents]
            good = all(state == "done" for state in states)
            ended = good or ("failed" in states and message.policy is ParentFailure.FAIL)
        changed = ended and (good or not message.ended_at)
        if ended and not message.ended_at:
            message.ended_at = record
        if good:
            message.complete_at = record
        return changed
