"""Proves from the facts alone that a log keeps its promises about order. Pure; dictionaries only, meant to be read.

It shares no code with the scheduler, so it can judge it: tests, ``log verify`` and the audit feed it every fact of a
log in order. Each rule has a short name, which a ``Violation`` carries:

=============  ======================================================================================================
``sequence``   sequences go up by one; what is missing is named by a ``Gap``
``snapshot``   a ``SegmentOpened`` names the queues and subscribers that the facts before it declare
``parents``    a message's parents were accepted before it (RULES 2) and its id names its own sequence
``gate``       no attempt whose ``after`` is below the record that completed each parent (RULES 11, 12, 13)
``inversion``  no attempt of a parent began after one of its child (RULES 13); not judged inside replays
``end``        at most one end for each (message, subscriber), no attempt of an ended delivery that is not ``LATE``
``attempts``   attempt numbers of a delivery go up, over restarts and replays (RULES 21)
``addressee``  rows name known messages, and subscribers that the message is for (RULES 3, 14); a replay that is
               narrowed to one subscriber goes to nobody else (RULES 21)
``key``        per (queue, key, subscriber) no attempt of a later one begins before every earlier one has ended, by a
               record up to its ``after`` (RULES 6). Where a segment's ``rules`` are 1: before the one before has
``carried``    a carried message has ended nowhere that the facts say it has not
=============  ======================================================================================================

What it takes for granted, where the rules leave room: a counted message without counted subscribers is complete once
its own parents are; deliveries dropped by an operator (cancel, purge, queue deletion) make a failed parent, those
dropped by an unsubscription an acknowledged one; rows for a deleted subscriber change nothing and are not judged; an
uncounted (catch-up) delivery waits until each parent has ended, whichever way, and at a subscriber that does not count
as for the gate that is one for all, and until each parent that is for it has ended there, whichever way; inside a
replay a delivery waits for the parents that are in the replay too, and for the others until they have ended once. What
a ``Gap`` may have swallowed is not judged, nor is what a carried message and a subscriber that was gone by then had to
do with each other.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from syncbrok.log.format.records import Gap, Record, SegmentOpened
from syncbrok.log.offline.order_history import BAD_OUTCOMES, End, JudgedMessage, JudgedReplay, JudgedState
from syncbrok.model.facts import (
    ALL_SUBSCRIBERS,
    DELETED_SUBSCRIBER,
    RULES,
    Carried,
    Outcome,
    Outcomes,
    QueueDeleted,
    QueueSet,
    Rearmed,
    Reason,
    Row,
    StoredMessage,
    SubscriberDeleted,
    SubscriberSet,
)
from syncbrok.model.message import ParentFailure, Scope
from syncbrok.model.names import SEQUENCE_MAX, sequence_of


def _says_of_one(row: Row) -> bool:
    """False where it drops a dead letter, which has ended, or stands for all that a subscriber was not told of."""
    return row.reason is not Reason.DISCARDED and (row.reason, row.outcome) != (Reason.SEEK, Outcome.DROPPED)


_BY_OPERATOR = frozenset({Reason.CANCELLED, Reason.PURGED, Reason.QUEUE_DELETED, Reason.ERASED})


class Violation(NamedTuple):
    """A promise that the log does not keep. ``sequence`` is the record that breaks it; ``message`` and ``subscriber``
    are 0 where none is concerned."""

    rule: str
    sequence: int
    message: int
    subscriber: int
    what: str


class WaitingDelivery(NamedTuple):
    """A delivery that has not ended. ``why`` is ``parents``, ``held``, ``owed`` (a parent failed and the end that
    follows is not written yet), ``paused``, ``key``, ``retrying``, ``delayed`` or ``ready``. ``subscriber`` is 0 for
    a message without counted subscribers."""

    message: int
    subscriber: int
    why: str


def check(facts: Iterable[Record]) -> list[Violation]:
    """Every violation in ``facts``, which are a log's in order (a prefix may be missing, as after retention)."""
    checker = OrderChecker()
    for fact in facts:
        checker.apply(fact)
    return checker.violations


class OrderChecker:
    """Feed it facts; read ``violations`` and ``waiting()`` at any time."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self._now = JudgedState()
        self._first = 0
        self._last = 0
        self._rules = RULES
        self._inverted: set[tuple[int, int]] = set()

    def apply(self, fact: Record) -> None:
        """Take the next fact in."""
        self._follow(fact)
        match fact:
            case StoredMessage():
                self._judge_parents(fact)
                self._now.accept(fact, fact.sequence)
            case Outcomes():
                for row in fact.rows:
                    if row.reason is Reason.RETENTION:
                        self._now.dropped_through[row.subscriber] = row.message
                    elif _says_of_one(row):
                        self._row(row, fact.sequence)
            case Rearmed():
                self._judge_replay(fact)
                self._now.rearm(fact)
            case Carried():
                self._judge_carried(fact)
                self._now.carry(fact)
            case SegmentOpened():
                self._judge_snapshot(fact)
                self._rules = fact.rules
                self._now.open_segment(fact)
            case _:
                self._declared(fact)

    def _declared(self, fact: Record) -> None:
        match fact:
            case QueueSet():
                self._now.queues.add(fact.number)
            case SubscriberSet():
                self._now.declare(fact)
            case SubscriberDeleted():
                self._now.delete_subscriber(fact.number, fact.sequence)
            case QueueDeleted():
                self._now.delete_queue(fact.number, fact.sequence)
            case Gap():
                self._now.lose(fact)
            case _:
                pass

    def waiting(self) -> list[WaitingDelivery]:
        """Every delivery that has not ended, with the reason, by message."""
        found: list[WaitingDelivery] = []
        for sequence, message in sorted(self._now.undecided.items()):
            if not message.open and not message.counted:
                found.append(WaitingDelivery(sequence, 0, self._why(message, 0)))
            found += [WaitingDelivery(sequence, number, self._why(message, number)) for number in sorted(message.open)]
        return found

    def _why(self, message: JudgedMessage, number: int) -> str:
        states = {self._state(message, number, parent) for parent in message.parents}
        subscriber = self._now.subscribers.get(number)
        delivery = message.deliveries.get(number)
        failed, held = "failed" in states, message.policy is ParentFailure.HOLD
        reasons = {
            "owed": failed and not held,
            "held": failed and held,
            "parents": "open" in states,
            "paused": bool(subscriber and (subscriber.settings.paused or subscriber.settings.disabled_us)),
            "retrying": delivery is not None and delivery.retrying,
            "key": self._is_behind(message, number),
            "delayed": message.delayed and not message.rearmed_by(number),
        }
        return next((reason for reason, holds in reasons.items() if holds), "ready")

    def _is_behind(self, message: JudgedMessage, number: int) -> bool:
        """Whether one before it of the same key keeps it back."""
        if replay := message.rearmed_by(number):
            return bool(self._now.replays[replay].entries[message.sequence].key) and any(
                before.rearmed_by(number) or (number in before.counted and not before.ends(number))
                for before in self._now.of_key(message)
            )
        return any(not before.ends(number) for before in self._now.of_key_before(message, number)) or (
            self._rules > 2
            and any(
                number not in before.counted
                and self._comes_uncounted(before, number)
                and not self._has_ended_apart(before, number, SEQUENCE_MAX)
                for before in self._now.of_key(message)
            )
        )

    def _state(self, message: JudgedMessage, number: int, parent: int) -> str:
        """``done``, ``failed`` or ``open``: a parent as the delivery of ``message`` at ``number`` waits for it."""
        replay, found = self._now.replays.get(message.rearmed_by(number)), self._now.messages.get(parent)
        if replay is None:
            return self._now.state_for(message, parent)
        if found is None:
            return "done"
        if parent not in replay.entries or parent not in replay.entries[message.sequence].parents:
            ends = found.ends(number) if _is_by_one(message, found.queue, number, found.counted) else ()
            return "done" if ends or found.ended_at else "open"
        entry = replay.entries[parent]
        by_one = _is_by_one(message, entry.queue, number, entry.subscribers)
        # What has ended in the replay, and whether well.
        goods = [
            [end.good for end in found.ends(gate) if end.record > replay.began]
            for gate in ((number,) if by_one else entry.subscribers)
        ]
        if not all(goods):
            return "open"
        either = message.policy is ParentFailure.DELIVER
        return "done" if either or all(any(there) for there in goods) else "failed"

    # -- facts ---------------------------------------------------------------------------------------------------------

    def _follow(self, fact: Record) -> None:
        first = last = fact.sequence
        if isinstance(fact, Gap):
            first, last = min(first, fact.first), max(last, fact.last)
        if not self._first:
            self._first = first
        elif first != self._last + 1:
            self._report("sequence", fact.sequence, 0, 0, f"sequence {first} follows {self._last}")
        self._last = max(self._last, last)

    def _judge_snapshot(self, fact: SegmentOpened) -> None:
        if fact.sequence == self._first or not self._now.declarations_known:
            return
        queues = {queue.number for queue in fact.queues} ^ self._now.queues
        known = {(one.number, one.queue, one.since) for one in self._now.subscribers.values()}
        subscribers = {(one.number, one.queue, one.since) for one in fact.subscribers} ^ known
        if queues or subscribers:
            what = f"differs from the facts before it in queues {sorted(queues)}, subscribers {sorted(subscribers)}"
            self._report("snapshot", fact.sequence, 0, 0, what)

    def _judge_parents(self, fact: StoredMessage) -> None:
        if sequence_of(fact.id) != fact.sequence:
            self._report("parents", fact.sequence, fact.sequence, 0, f"its id names sequence {sequence_of(fact.id)}")
        for parent in map(sequence_of, fact.parents):
            known = parent in self._now.messages or self._is_gone(parent)
            if parent >= fact.sequence or not known:
                self._report("parents", fact.sequence, fact.sequence, 0, f"parent {parent} was not accepted before it")

    def _judge_replay(self, fact: Rearmed) -> None:
        """RULES 21: one that is narrowed to a subscriber goes to nobody else."""
        for entry in fact.entries if fact.subscriber else ():
            for number in entry.subscribers if entry.message in self._now.messages else ():
                if number != fact.subscriber:
                    what = f"replay {fact.replay}, which is for subscriber {fact.subscriber} only, sends it there"
                    self._report("addressee", fact.sequence, entry.message, number, what)

    def _judge_carried(self, fact: Carried) -> None:
        message = self._now.messages.get(fact.message.sequence)
        if message is None or self._now.in_doubt(message):
            return
        for number, outcome in fact.ended:
            if self._is_open_at(message, number):
                what = f"is carried as {outcome.name} where it has not ended"
                self._report("carried", fact.sequence, fact.message.sequence, number, what)

    def _is_open_at(self, message: JudgedMessage, number: int) -> bool:
        """Whether it has not ended there; at those who are gone, whether it has ended badly at none of them."""
        if number != DELETED_SUBSCRIBER:
            return number in message.open
        return all(message.ends(one)[-1].good for one in message.counted & self._now.deleted)

    def _is_gone(self, sequence: int) -> bool:
        """Dropped by retention, or lost in a gap."""
        return sequence < self._first or sequence <= self._now.gap_last

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _row(self, row: Row, record: int) -> None:
        message = self._now.messages.get(row.message)
        if message is None:
            if not self._is_gone(row.message):
                self._report("addressee", record, row.message, row.subscriber, "no such message was accepted")
            elif row.outcome is Outcome.DELIVERED:
                self._now.may_mend(row.message, record)
            return
        end = End(record, row.outcome not in BAD_OUTCOMES and row.reason not in _BY_OPERATOR)
        if row.subscriber == ALL_SUBSCRIBERS:
            self._now.end_all(message, end)
            return
        if row.subscriber in self._now.deleted:
            return
        if not self._now.in_doubt(message):
            self._judge(message, row, record)
        if row.attempt and row.outcome is not Outcome.LATE:
            delivery = message.at(row.subscriber)
            delivery.attempts = max(row.attempt, delivery.attempts)
        if row.outcome is Outcome.FAILED:
            message.at(row.subscriber).retrying = True
        elif row.outcome is not Outcome.LATE:
            self._now.end(message, row.subscriber, end)

    def _judge(self, message: JudgedMessage, row: Row, record: int) -> None:
        number, late = row.subscriber, row.outcome is Outcome.LATE
        if not self._is_for(message, number):
            self._report("addressee", record, row.message, number, "the message is not for this subscriber")
        if message.has_ended_at(number) and not late:
            what = (
                f"{row.outcome.name} (attempt {row.attempt}) after its end in record {message.ends(number)[-1].record}"
            )
            self._report("end", record, row.message, number, what)
        if not row.attempt:
            return
        # Nothing can have begun behind its own record: such a claim neither opens a gate nor accuses anybody.
        row = row._replace(after=min(row.after, record - 1))
        attempts = message.deliveries[number].attempts if number in message.deliveries else 0
        if row.attempt <= attempts and not late:
            what = f"attempt {row.attempt} after attempt {attempts}"
            self._report("attempts", record, row.message, number, what)
        if message.rearmed_by(number):
            if not late:
                self._judge_gate(message, row, record)
                self._judge_key_in_replay(message, row, record)
            return
        if late and len(message.ends(number)) > 1:
            return  # which of its lives the attempt belongs to is not known
        self._judge_gate(message, row, record)
        self._judge_key(message, row, record)
        self._judge_inversion(message, row, record)

    def _is_for(self, message: JudgedMessage, number: int) -> bool:
        if number in message.counted or number in message.open:
            return True
        return self._comes_uncounted(message, number)

    def _comes_uncounted(self, message: JudgedMessage, number: int) -> bool:
        """Whether it is for the subscriber because of where that one starts."""
        subscriber = self._now.subscribers.get(number)
        if subscriber is None or subscriber.queue != message.queue or message.only not in (0, number):
            return False
        return number in self._now.starts and self._now.starts[number] <= message.sequence

    def _judge_gate(self, message: JudgedMessage, row: Row, record: int) -> None:
        replay = self._now.replays.get(message.rearmed_by(row.subscriber))
        inside = replay.entries[row.message].parents if replay else ()
        for parent in message.parents:
            if replay and parent in inside and parent in replay.entries:
                done = self._done_in_replay(replay, message, row, parent)
            else:
                done = self._done(message, row, parent, either=bool(replay))
            if not done:
                what = f"attempt {row.attempt} began after record {row.after}, its parent {parent} was not done by then"
                self._report("gate", record, row.message, row.subscriber, what)

    def _done(self, message: JudgedMessage, row: Row, parent: int, *, either: bool) -> bool:
        found = self._now.messages.get(parent)
        is_apart = not either and self._takes_apart(message, row)
        either = either or message.policy is ParentFailure.DELIVER or row.subscriber not in message.counted
        if found is None:
            mended = self._now.bad.get(parent)
            return either or mended is None or 0 < mended <= row.after
        if self._now.in_doubt(found):
            return True
        if is_apart:
            return self._done_apart(message, row, found)
        if _is_by_one(message, found.queue, row.subscriber, found.counted):
            return any(end.record <= row.after and (end.good or either) for end in found.ends(row.subscriber))
        at = found.ended_at if either else found.complete_at
        return 0 < at <= row.after

    def _takes_apart(self, message: JudgedMessage, row: Row) -> bool:
        """Whether the subscriber did not count when the attempt began, and not for this message alone."""
        subscriber = self._now.subscribers.get(row.subscriber)
        return (
            subscriber is not None
            and not subscriber.settings.counts
            and row.subscriber not in message.counted
            and row.after >= max(subscriber.since, self._now.stopped_counting.get(row.subscriber, 0))
        )

    def _done_apart(self, message: JudgedMessage, row: Row, found: JudgedMessage) -> bool:
        """Whether a parent is complete and has ended at the subscriber too, either way. A message that has ended itself
        may go though its parent was not: nobody it counted was left, or it was to go out all the same."""
        after, number = row.after, row.subscriber
        either = message.policy is ParentFailure.DELIVER or 0 < message.ended_at <= after
        if not 0 < (found.ended_at if either else found.complete_at) <= after:
            return False
        ends = found.ends(number)
        was_passed_by = not ends and 0 < found.ended_for_all <= after
        # What a carried one had come to at others nobody says, nor what retention had dropped before this one came.
        is_known = found.record == found.sequence > self._now.dropped_through.get(number, 0) and (
            found.sequence > self._now.subscribers[number].since or number in found.deliveries
        )
        if not is_known or was_passed_by or not self._is_for(found, number):
            return True
        return any(end.record <= after for end in ends)

    def _done_in_replay(self, replay: JudgedReplay, message: JudgedMessage, row: Row, parent: int) -> bool:
        entry, found = replay.entries.get(parent), self._now.messages.get(parent)
        if entry is None or found is None or self._now.in_doubt(found):
            return True
        either = message.policy is ParentFailure.DELIVER
        by_one = _is_by_one(message, entry.queue, row.subscriber, entry.subscribers)
        whom = (row.subscriber,) if by_one else entry.subscribers
        if not whom:
            return all(self._done_in_replay(replay, found, row, above) for above in entry.parents)
        return all(
            any(replay.began < end.record <= row.after and (end.good or either) for end in found.ends(number))
            for number in whom
        )

    def _judge_key(self, message: JudgedMessage, row: Row, record: int) -> None:
        open_one = self._of_key_open(message, row, record)
        if open_one is not None:
            what = f"message {open_one.sequence} of the same key before it had not ended by then"
            self._report("key", record, row.message, row.subscriber, what)
        elif self._rules > 1:
            message.at(row.subscriber).was_next = True

    def _judge_key_in_replay(self, message: JudgedMessage, row: Row, record: int) -> None:
        """Judge whether all of its key before it had ended there: those that were being replayed, and those that never
        had. (A replay of an older version says no key.)"""
        number, own = row.subscriber, message.at(row.subscriber)
        if not self._now.replays[own.replay].entries[row.message].key:
            return
        for before in self._now.of_key(message):
            found = before.deliveries.get(number)
            if self._now.in_doubt(before) or before.record != before.sequence:
                continue
            if found is not None and found.next_in_replay == own.replay:
                break  # all before that one had ended when its attempt began
            never_ended = number in before.counted and not any(end.record <= row.after for end in before.ends(number))
            if never_ended or (found is not None and found.was_in_replay_at(row.after)):
                what = f"message {before.sequence} of the same key before it had not ended by then"
                self._report("key", record, row.message, number, what)
                return
        own.next_in_replay = own.replay

    def _open_apart(self, message: JudgedMessage, row: Row) -> JudgedMessage | None:
        """One of those that do not count the subscriber, and come there all the same."""
        number = row.subscriber
        for before in self._now.of_key(message):
            if number in before.counted or self._now.in_doubt(before) or not self._comes_uncounted(before, number):
                continue
            if not self._has_ended_apart(before, number, row.after):
                return before
            found = before.deliveries.get(number)
            if found is not None and found.was_next:
                break
        return None

    def _has_ended_apart(self, before: JudgedMessage, number: int, after: int) -> bool:
        """Whether nothing was to come there any more of a message that does not count the subscriber, when
        record ``after`` was the newest."""
        ends = before.ends(number)
        return (
            (bool(ends) and ends[0].record <= after)
            or 0 < before.ended_for_all <= after
            or before.sequence <= self._now.dropped_through.get(number, 0)
            or before.record != before.sequence
        )

    def _of_key_open(self, message: JudgedMessage, row: Row, record: int) -> JudgedMessage | None:
        """A message of the same key before it that had not ended there when the attempt began."""
        number = row.subscriber
        apart = self._open_apart(message, row) if self._rules > 2 else None
        if apart is not None:
            return apart
        for before in self._now.of_key_before(message, number):
            ends = before.ends(number)
            if self._rules == 1:
                if before.record != before.sequence:
                    continue
                return None if ends or self._now.in_doubt(before) else before
            if self._now.in_doubt(before):
                continue
            # What a carried record says has happened may have been at any time before it.
            if not ends or ends[0].record > max(min(row.after, record - 1), before.record):
                return before
            if before.deliveries[number].was_next:
                return None  # all before that one had ended when its attempt began
        return None

    def _judge_inversion(self, message: JudgedMessage, row: Row, record: int) -> None:
        number, after = row.subscriber, row.after
        delivery = message.at(number)
        delivery.first_after = after if delivery.first_after < 0 else min(after, delivery.first_after)
        delivery.last_after = max(after, delivery.last_after)
        pairs = [(parent, message) for found in message.parents if (parent := self._now.messages.get(found))]
        if number in message.counted:
            pairs += [(message, self._now.messages[child]) for child in self._now.children.get(row.message, ())]
        for parent, child in pairs:
            names = (parent.sequence, child.sequence)
            if names not in self._inverted and _is_inverted(parent, child):
                self._inverted.add(names)
                what = f"an attempt of parent {names[0]} began after one of its child {names[1]}"
                self._report("inversion", record, row.message, number, what)

    def _report(self, rule: str, record: int, message: int, subscriber: int, what: str) -> None:
        self.violations.append(Violation(rule, record, message, subscriber, what))


def _is_by_one(message: JudgedMessage, queue: int, number: int, whom: Collection[int]) -> bool:
    """Whether the delivery of ``message`` at ``number`` waits for a parent of ``queue`` there alone (RULES 11)."""
    return message.scope is Scope.SAME and queue == message.queue and number in whom


def _is_inverted(parent: JudgedMessage, child: JudgedMessage) -> bool:
    """Whether an attempt of ``parent`` began later than one of ``child``, where the child's scope compares them."""
    lasts = {number: parent.deliveries[number].last_after for number in parent.counted & parent.deliveries.keys()}
    if not lasts:
        return False
    same = child.scope is Scope.SAME and parent.queue == child.queue
    last_of_all = max(lasts.values())
    for number, delivery in child.deliveries.items():
        # Whether a carried parent counted one that is gone by then, too, is not known any more.
        by_one = same and (number in parent.counted or delivery.first_after < parent.record)
        if (lasts.get(number, -1) if by_one else last_of_all) > delivery.first_after >= 0:
            return True
    return False
