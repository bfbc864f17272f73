"""How everything stands after a run of facts: who was counted, what has ended where and in which record. Pure.

The bookkeeping of ``order``, in plain dictionaries and deliberately not the scheduler's: it judges the scheduler.
Nothing is judged here. Messages, subscribers and queues are named by sequence and number.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from syncbrok.model.facts import Carried, Gap, Outcome, Published, Rearmed, RearmedEntry, SegmentOpened, SubscriberSet
from syncbrok.model.message import ParentFailure
from syncbrok.model.names import sequence_of

BAD_OUTCOMES = frozenset({Outcome.DEAD, Outcome.EXPIRED})


class End(NamedTuple):
    """A delivery ended with this record; ``good``: it counts as acknowledged."""

    record: int
    good: bool


@dataclass(slots=True)
class Message:
    """What is known of one accepted message. ``open`` are the counted and the re-armed deliveries that have not ended
    (again); ``ends`` all ends of each subscriber, oldest first; ``ended_at`` and ``complete_at`` the records with which
    it ended and became complete, 0 while it has not: they never go back (RULES 21)."""

    fact: Published
    parents: tuple[int, ...]
    counted: frozenset[int]
    open: set[int]
    doubtful: bool
    """declared subscribers may have been lost before it was accepted"""
    before: int = 0
    """the message before it of the same key"""
    ended_at: int = 0
    complete_at: int = 0
    ends: dict[int, list[End]] = field(default_factory=dict)
    rearmed: dict[int, int] = field(default_factory=dict)
    """subscribers it has been re-armed for and not ended at since: the number of the replay"""
    attempts: dict[int, int] = field(default_factory=dict)
    first_after: dict[int, int] = field(default_factory=dict)
    """when its first attempt at each subscriber began, as ``after``; replays left out"""
    last_after: dict[int, int] = field(default_factory=dict)
    """the same of the last attempt, counted subscribers only"""

    def has_ended_at(self, subscriber: int) -> bool:
        return bool(self.ends.get(subscriber)) and subscriber not in self.open


class Replay(NamedTuple):
    began: int
    entries: dict[int, RearmedEntry]


class Standing:
    """Feed it facts in order."""

    def __init__(self) -> None:
        self.messages: dict[int, Message] = {}
        self.undecided: dict[int, Message] = {}
        """those with open deliveries, or without counted subscribers and not complete"""
        self.children: dict[int, list[int]] = {}
        self.queues: set[int] = set()
        self.subscribers: dict[int, SubscriberSet] = {}
        self.starts: dict[int, int] = {}
        """the lowest ``start`` each subscriber has had: it may be sent messages from there on, uncounted"""
        self.deleted: set[int] = set()
        self.bad: dict[int, Outcome] = {}
        self.replays: dict[int, Replay] = {}
        self.gap_last = 0
        self.declarations_known = True
        self._keys: dict[tuple[int, str], int] = {}

    # -- queues and subscribers ----------------------------------------------------------------------------------------

    def declare(self, fact: SubscriberSet) -> None:
        self.subscribers[fact.number] = fact
        start = fact.settings.start
        if start is not None:
            self.starts[fact.number] = min(start, self.starts.get(fact.number, start))

    def open_segment(self, fact: SegmentOpened) -> None:
        """What the snapshot says stands from here on."""
        for number in set(self.subscribers) - {one.number for one in fact.subscribers}:
            self.delete_subscriber(number, fact.sequence)
        self.queues = {queue.number for queue in fact.queues}
        for one in fact.subscribers:
            self.declare(one)
        self.bad.update(fact.bad)
        self.declarations_known = True

    def lose(self, fact: Gap) -> None:
        self.gap_last = max(self.gap_last, fact.last)
        self.declarations_known = False

    def delete_subscriber(self, number: int, record: int) -> None:
        self.subscribers.pop(number, None)
        self.deleted.add(number)
        for message in list(self.undecided.values()):
            if number in message.open:
                self.end(message, number, End(record, good=True))

    def delete_queue(self, number: int, record: int) -> None:
        for message in list(self.undecided.values()):
            if message.fact.queue == number:
                self.end_all(message, End(record, good=False))
        for subscriber in [one.number for one in self.subscribers.values() if one.queue == number]:
            self.delete_subscriber(subscriber, record)
        self.queues.discard(number)

    # -- messages ------------------------------------------------------------------------------------------------------

    def accept(self, fact: Published, record: int) -> Message:
        """A message stands in ``record``: its own, or the one that carries it. Subscribers are counted by RULES 3."""
        parents = tuple(sequence_of(parent) for parent in fact.parents)
        counted = frozenset(
            one.number
            for one in self.subscribers.values()
            if one.queue == fact.queue and one.since < fact.sequence and fact.only in (0, one.number)
        )
        message = Message(fact, parents, counted, set(counted), doubtful=not self.declarations_known)
        if fact.key and not fact.only and record == fact.sequence:
            message.before = self._keys.get((fact.queue, fact.key), 0)
            self._keys[fact.queue, fact.key] = fact.sequence
        self.messages[fact.sequence] = self.undecided[fact.sequence] = message
        for parent in parents:
            self.children.setdefault(parent, []).append(fact.sequence)
        self._decide(message, record)
        return message

    def carry(self, fact: Carried) -> None:
        """Where the message's own record is gone, what the carried one says is all that is known."""
        if fact.message.sequence in self.messages:
            return
        message = self.accept(fact.message, fact.sequence)
        for number, outcome in fact.ended:
            if number in message.open:
                self.end(message, number, End(fact.sequence, good=outcome not in BAD_OUTCOMES))
        message.attempts = {tried.subscriber: tried.attempts for tried in fact.tried}

    def rearm(self, fact: Rearmed) -> None:
        replay = self.replays.setdefault(fact.replay, Replay(fact.sequence, {}))
        for entry in fact.entries:
            replay.entries[entry.message] = entry
            message = self.messages.get(entry.message)
            if message is not None:
                message.open.update(set(entry.subscribers) - self.deleted)
                message.rearmed.update(dict.fromkeys(entry.subscribers, fact.replay))
                self.undecided[entry.message] = message

    # -- ends ----------------------------------------------------------------------------------------------------------

    def end(self, message: Message, subscriber: int, end: End) -> None:
        message.ends.setdefault(subscriber, []).append(end)
        message.open.discard(subscriber)
        message.rearmed.pop(subscriber, None)
        self._decide(message, end.record)

    def end_all(self, message: Message, end: End) -> None:
        """A row for all subscribers: every delivery that has not ended."""
        for subscriber in sorted(message.open):
            self.end(message, subscriber, end)
        if not message.counted and not message.complete_at:
            message.ended_at = message.ended_at or end.record
            self.undecided.pop(message.fact.sequence, None)
            self._decide_followers(message, end.record)

    def state_for(self, message: Message, parent: int) -> str:
        """``done``, ``failed`` or ``open``: a parent as the gate of ``message`` by scope ``all`` sees it."""
        either = message.fact.parent_failure is ParentFailure.DELIVER
        found = self.messages.get(parent)
        if found is None:
            return "failed" if parent in self.bad and not either else "done"
        if found.complete_at or (either and found.ended_at):
            return "done"
        return "failed" if found.ended_at else "open"

    def in_doubt(self, message: Message) -> bool:
        """Whether a gap may have swallowed something about it."""
        return message.doubtful or message.fact.sequence <= self.gap_last

    def _decide(self, message: Message, record: int) -> None:
        """Note whether ``message`` has just ended, and with it the messages without subscribers that wait for it."""
        changed = self._note_end(message, record)
        if not message.open and (message.counted or message.complete_at):
            self.undecided.pop(message.fact.sequence, None)
        if changed:
            self._decide_followers(message, record)

    def _decide_followers(self, message: Message, record: int) -> None:
        found = [message]
        while found:
            for sequence in self.children.get(found.pop().fact.sequence, ()):
                child = self.messages[sequence]
                if not child.counted and self._note_end(child, record):
                    found.append(child)
                    if child.complete_at and not child.open:
                        self.undecided.pop(sequence, None)

    def _note_end(self, message: Message, record: int) -> bool:
        """Set when ``message`` ended and when it became complete; say whether either has just happened."""
        if message.open & message.counted or message.complete_at:
            return False
        if message.counted:
            # A dead letter of a subscriber that is gone goes with it: nobody could be sent a replay.
            good = all(message.ends[number][-1].good or number in self.deleted for number in message.counted)
            ended = True
        else:
            states = [self.state_for(message, parent) for parent in message.parents]
            good = all(state == "done" for state in states)
            ended = good or ("failed" in states and message.fact.parent_failure is ParentFailure.FAIL)
        changed = ended and (good or not message.ended_at)
        if ended and not message.ended_at:
            message.ended_at = record
        if good:
            message.complete_at = record
        return changed
