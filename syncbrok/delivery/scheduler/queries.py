"""How things stand: what can be asked of the scheduler, by people and by the parts of the Space that must know.

Read-only, and cheap enough for the event loop: whatever could be long takes a limit.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from typing import Final, NamedTuple

from syncbrok.delivery.scheduler.blockers import BlockedBy, Blocker, Blockers
from syncbrok.delivery.scheduler.breakers import BreakerReport, Breakers, Turned
from syncbrok.delivery.scheduler.chunk_scans import first_unended
from syncbrok.delivery.scheduler.cursor import Cursor
from syncbrok.delivery.scheduler.edges import HISTORY
from syncbrok.delivery.scheduler.lifecycle import BAD_STATE, DeliveryState, MessageState
from syncbrok.delivery.scheduler.message_table import HAS_DEAD, ONLY, PER_SUBSCRIBER
from syncbrok.delivery.scheduler.state import QueueState, SchedulerState, is_at
from syncbrok.model import limits
from syncbrok.model.facts import DELETED_SUBSCRIBER, Outcome, Reason, Tried

_OUTCOMES = {state: outcome for outcome, state in BAD_STATE.items()}
_LETTERS_MIN = 64
_LOOKS = 64
"""subscribers that are looked at for dead letters in the time of one page"""
_ENDED_AS = {
    MessageState.DEAD: DeliveryState.DEAD,
    MessageState.EXPIRED: DeliveryState.EXPIRED,
    MessageState.DROPPED: DeliveryState.DROPPED,
}
"""at whoever was to get the message after all others"""


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """``waiting`` and ``dead_letters`` are now; the rest is what the log has said since it began, as far as it is there
    or a checkpoint remembers: ``delivered`` and ``failed`` attempts, late answers apart."""

    waiting: int
    oldest_waiting: int
    """sequence; 0 for none, and where it lies so far behind others that who asks next gets to know it"""
    last_sequence: int
    dead_letters: int
    accepted: int
    delivered: int
    failed: int
    dead: int
    backlog: int
    """messages that have not ended; ``waiting`` counts replays too"""
    backlog_bytes: int | None
    """of their contents; None where the queue does not bound those"""


class Standing(NamedTuple):
    """The backlog of a queue: messages, bytes of their contents where those are counted; and whether there is a
    subscriber whom what is published waits for."""

    messages: int
    bytes: int
    is_delivered: bool


NOTHING: Final = Standing(0, 0, is_delivered=True)


class Unsized(NamedTuple):
    """Messages of a queue (number) that have not ended, of whose contents nobody has said how large they are: the
    first of them, all up to ``through``."""

    queue: int
    messages: list[int]
    through: int


@dataclass(frozen=True, slots=True)
class SubscriberStatistics:
    """``dead_letters`` and what stands before it are now; ``delivered`` and ``failed`` count attempts since the log
    began."""

    cursor: int
    backlog: int
    blocked: int
    in_flight: int
    retrying: int
    dead_letters: int
    delivered: int
    failed: int
    last_status: int
    last_reason: Reason
    last_attempt_us: int
    failing_since_us: int
    breaker: BreakerReport


class SchedulerQueries:
    """The reading half of the scheduler."""

    def __init__(self, state: SchedulerState) -> None:
        self.state = state
        self._blockers = Blockers(state)
        self._breakers = Breakers(state)
        self.turned: Final = self._breakers.turned
        """the breakers of which ``take_turned`` tells"""

    @property
    def replay_number(self) -> int:
        """The number of the newest replay; 0 for none yet."""
        return self.state.replay_number

    def message_state(self, sequence: int) -> str:
        """One of the message states of RULES 9, or ``unknown`` for a sequence beyond all messages."""
        entry = self.state.replays.get(sequence)
        if entry is not None:
            return "held" if entry.held else "waiting" if entry.waiting else "pending"
        state = self.state.table.state(sequence)
        if state is MessageState.NONE:
            return "unknown"
        if state is MessageState.PENDING and self.state.table.flags(sequence) & PER_SUBSCRIBER:
            cursors = list(self._counted(sequence))
            if cursors and all(sequence in cursor.blocked for cursor in cursors if cursor.outstanding(sequence)):
                return "waiting"
        return state.name.lower()

    def message_states(self, first: int, count: int) -> list[str]:
        """``message_state`` of ``count`` neighbours; those without extras that stand alike cost one look."""
        alike = None if self.state.replays else self.state.table.alike(first, count)
        if alike is None:
            return [self.message_state(sequence) for sequence in range(first, first + count)]
        return [alike.name.lower()] * count

    def ended(self, sequence: int) -> bool:
        """Whether every counted delivery of it has ended, durably."""
        return sequence not in self.state.replays and self.state.table.state(sequence) >= MessageState.COMPLETE

    def delivery_state(self, sequence: int, subscriber: int) -> str:
        """One of the delivery states of RULES 9."""
        cursor = self.state.cursors.get(subscriber)
        if cursor is None:
            return "dropped"
        return self._delivery_state(sequence, cursor).name.lower()

    def _delivery_state(self, sequence: int, cursor: Cursor) -> DeliveryState:
        state = cursor.state(sequence)
        if state is None and not cursor.is_counted and sequence > cursor.history_after:
            state = DeliveryState.PENDING  # it has yet to be told
        if state is None and sequence in cursor.unconfirmed:
            return DeliveryState.IN_FLIGHT  # how it has ended nobody is told before that is durable
        if state is None:
            return self._ended_state(sequence, cursor)
        entry = self.state.replays.get(sequence)
        if entry is None and cursor.counts(sequence):
            message = self.state.table.state(sequence)
            if message >= MessageState.COMPLETE:
                return self._ended_state(sequence, cursor)
            if state is DeliveryState.PENDING and message is not MessageState.PENDING:
                state = DeliveryState.BLOCKED
        return DeliveryState.PAUSED if cursor.stopped and state is not DeliveryState.IN_FLIGHT else state

    def _ended_state(self, sequence: int, cursor: Cursor) -> DeliveryState:
        number = cursor.subscriber.number
        entry = self.state.replays.get(sequence)
        if entry is not None and number in entry.left:
            waits_as = DeliveryState.PAUSED if cursor.stopped else DeliveryState.BLOCKED
            return waits_as if entry.waiting else DeliveryState.IN_FLIGHT
        if self.dead_letter(sequence, number) is not None:
            return DeliveryState.DEAD
        if sequence in cursor.skipped:
            return DeliveryState.SKIPPED
        passed = self.state.table.bad.get(sequence) if sequence in cursor.passed else None
        if passed is not None:
            return _ENDED_AS[passed.state]
        bad = self.state.table.bad.get(sequence)
        if bad is None:
            return DeliveryState.DELIVERED
        if number in bad.lost or (not cursor.counts(sequence) and bad.state is not MessageState.DEAD):
            return DeliveryState.EXPIRED if bad.state is MessageState.EXPIRED else DeliveryState.DROPPED
        return DeliveryState.DELIVERED

    def delivery_tried(self, sequence: int, subscriber: int) -> tuple[int, int]:
        """(attempts that have failed since it was last sent anew, due at in Unix microseconds or 0) of a delivery that
        has not ended."""
        cursor = self.state.cursors.get(subscriber)
        tried = cursor.retrying.get(sequence) if cursor else None
        return (tried.attempts - tried.before, tried.due_us) if tried else (0, 0)

    def waiting_for_retry(self, subscriber: int, message: int | None = None) -> int:
        """How many deliveries of the subscriber, or of this message there, ``retry_now`` would make due."""
        cursor = self.state.cursors.get(subscriber)
        if cursor is None or cursor.stopped:
            return 0
        return len(cursor.waiting_for_retry()) if message is None else int(cursor.waits_for_retry(message))

    def consumers(self, subscriber: int) -> tuple[int, int] | None:
        """The consumers of a subscriber that come for its messages: (how many they have, how many they have room for,
        those they have included); None for one that is posted to."""
        cursor = self.state.cursors.get(subscriber)
        return (
            (len(cursor.in_flight), cursor.consumer_capacity)
            if cursor is not None and cursor.subscriber.consumed
            else None
        )

    def blocked_by(self, sequence: int) -> tuple[int, ...]:
        """The messages it waits for: parents that are not complete, and one before it of its key; where neither is
        there, what keeps it back at the first subscriber that has to wait."""
        entry = self.state.replays.get(sequence)
        if entry is not None:
            return tuple(sorted(entry.waiting)) or self._first_blocked_by(sequence, entry.left)
        if self.ended(sequence):
            return ()
        table, keys = self.state.table, self.state.keys
        chain = keys.of(sequence)
        before = 0 if chain is None else keys.before(chain, sequence)
        blockers = [parent for parent in table.parents(sequence) if table.state(parent) is not MessageState.COMPLETE]
        if before and before not in blockers:
            blockers.append(before)
        return tuple(blockers) or self._first_blocked_by(sequence, self.counted(sequence))

    def _first_blocked_by(self, sequence: int, subscribers: Iterable[int]) -> tuple[int, ...]:
        for number in sorted(subscribers):
            blocker = self.blocked_at(sequence, number)
            if blocker is not None and blocker.message not in (HISTORY, sequence):
                return (blocker.message,)
        return ()

    def blocked_at(self, sequence: int, subscriber: int) -> Blocker | None:
        """The blocker of a delivery at the subscriber; None where nothing keeps it back."""
        cursor = self.state.cursors.get(subscriber)
        if cursor is None or sequence not in cursor.blocked:
            return None
        if cursor.counts(sequence) or self.state.replays.goes_to(sequence, subscriber):
            return self._blockers.of(sequence, cursor)
        # What it had to wait for there stands where it waits: the log alone may know its parents.
        for prerequisite, waiting in self.state.edges.of(subscriber).items():
            if sequence in waiting:
                parents, _ = waiting[sequence] or ((), "")
                why = BlockedBy.PARENT if prerequisite in parents else BlockedBy.KEY
                return Blocker(BlockedBy.GATE if prerequisite == sequence else why, prerequisite, True)
        return None

    def held_by(self, sequence: int) -> tuple[int, ...]:
        """The messages that must be replayed for one on hold: parents that ended badly, or did when they were sent
        again."""
        entry = self.state.replays.get(sequence)
        if entry is not None:
            return tuple(sorted(entry.held))
        table = self.state.table
        return tuple(parent for parent in table.parents(sequence) if parent in table.bad)

    def counted(self, sequence: int) -> tuple[int, ...]:
        """Numbers of the subscribers it counts that are still there (RULES 3)."""
        return tuple(cursor.subscriber.number for cursor in self._counted(sequence))

    def is_counted(self, sequence: int, subscriber: int) -> bool:
        """Whether the subscriber is one of ``counted``."""
        table, cursor = self.state.table, self.state.cursors.get(subscriber)
        if cursor is None or cursor.queue != table.queue(sequence) or not cursor.counts(sequence):
            return False
        return not table.flags(sequence) & ONLY or table.only.get(sequence) in (None, subscriber)

    def _counted(self, sequence: int) -> Iterator[Cursor]:
        table = self.state.table
        queue_state = self.state.queues.get(table.queue(sequence))
        only = table.only.get(sequence) if table.flags(sequence) & ONLY else None
        for cursor in queue_state.cursors if queue_state else ():
            if cursor.counts(sequence) and only in (None, cursor.subscriber.number):
                yield cursor

    def pending_deliveries(self, sequence: int) -> tuple[int, ...]:
        """Numbers of the subscribers at whom it has not ended."""
        entry = self.state.replays.get(sequence)
        if entry is not None:
            return tuple(sorted(entry.left))
        if self.ended(sequence):
            return ()
        return tuple(cursor.subscriber.number for cursor in self._counted(sequence) if cursor.outstanding(sequence))

    def watch(self, sequence: int) -> None:
        """Report its end by ``take_watched``; at once where it has ended."""
        if self.ended(sequence):
            self.state.watched_ended.append(sequence)
        else:
            self.state.watched.add(sequence)

    def unwatch(self, sequence: int) -> None:
        self.state.watched.discard(sequence)

    def take_watched(self) -> list[int]:
        """Watched messages that have ended since the last call."""
        ended, self.state.watched_ended = self.state.watched_ended, []
        return ended

    def unended(self, queue: int | None, through: int | None, limit: int, after: int = 0) -> list[int]:
        """The oldest messages beyond ``after`` that have not ended."""
        return list(islice(self.state.table.waiting(queue, after + 1, through), limit))

    def ended_at_once(self, queue: int) -> int:
        """How many messages of the queue may be ended at all its subscribers in one piece (``limits.ends_slice``)."""
        return min(limits.cascade_slice, max(1, limits.ends_slice // max(1, self.subscribers_of(queue))))

    def subscribers_of(self, queue: int) -> int:
        """How many subscribers the queue has, those that do not count too."""
        queue_state = self.state.queues.get(queue)
        return 0 if queue_state is None else len(queue_state.cursors) + len(queue_state.uncounted)

    def queue_of(self, sequence: int) -> int:
        """The queue (number) of a message that has not ended, or is being delivered again."""
        return self.state.queue_of(sequence)

    def replaying(self, queue: int | None) -> list[int]:
        """Messages of the queue (None: of all) that have ended and are being delivered again (RULES 21), in order."""
        return sorted(sequence for sequence, entry in self.state.replays.items() if queue in (None, entry.queue))

    def is_replayed(self, sequence: int) -> bool:
        """Whether the message has ended before and is being delivered again (RULES 21)."""
        return sequence in self.state.replays

    def waiting_on(self, queue: int) -> int:
        """Messages that wait in the queue, and those elsewhere on hold for one that ended badly there (RULES 16)."""
        queue_state = self.state.queues.get(queue)
        table, on_hold = self.state.table, self.state.edges.on_hold
        held = sum(len(children) for parent, children in on_hold.items() if table.queue(parent) == queue)
        return (queue_state.waiting if queue_state else 0) + held + len(self.replaying(queue))

    def dead_after(
        self, subscribers: Sequence[int], sequence: int, most: int, *, newest_first: bool = False
    ) -> list[int]:
        """The messages behind ``sequence`` that are dead letters of any of these subscribers, and perhaps a few more,
        in order: the lowest ``most``, fewer where there are many subscribers to look at. With ``newest_first`` the
        highest of those below it, from the highest down."""
        most = min(most, max(_LETTERS_MIN, most // (1 + len(subscribers) // _LOOKS)))
        found: set[int] = set()
        queues: set[int] = set()
        for number in subscribers:
            cursor = self.state.cursors.get(number)
            if cursor is not None:
                queues.add(cursor.queue)
                if cursor.dead:
                    found.update((cursor.dead.before if newest_first else cursor.dead.after)(sequence, most))
        for queue in queues:
            cascaded = self.state.queues[queue].cascaded.sequences
            found.update((cascaded.before if newest_first else cascaded.after)(sequence, most))
        return sorted(found, reverse=newest_first)[:most]

    def dead_count(self, subscriber: int, first: int, end: int, reasons: Collection[Reason] = ()) -> int:
        """How many dead letters it has of messages from ``first`` to before ``end``, of these reasons (none: any),
        those of cascades apart."""
        cursor = self.state.cursors.get(subscriber)
        return 0 if cursor is None else cursor.dead.count_between(first, end, reasons)

    def cascaded_after(self, subscriber: int, sequence: int, most: int) -> list[int]:
        """The messages behind ``sequence`` that died as a whole and are dead letters of the subscriber, in order."""
        cursor = self.state.cursors.get(subscriber)
        return [] if cursor is None else self.state.queues[cursor.queue].cascaded.after(cursor, sequence, most)

    def skipped_after(self, subscriber: int, sequence: int, most: int) -> list[int]:
        """The messages behind ``sequence`` that were skipped at the subscriber, in order."""
        cursor = self.state.cursors.get(subscriber)
        return [] if cursor is None else cursor.skipped.after(sequence, most)

    def waiting_at(self, subscriber: int, sequence: int, through: int, most: int) -> list[int]:
        """The messages behind ``sequence`` and up to ``through`` that have not ended at the subscriber and are not out
        there, in order; of those that it has yet to be told of none. What a replay sends is apart."""
        cursor = self.state.cursors.get(subscriber)
        if cursor is None:
            return []
        replays = self.state.replays
        told = [one for one in cursor.untaken(through) if one > sequence and not cursor.counts(one)]
        waiting = self.state.table.waiting(cursor.queue, sequence + 1, through) if cursor.is_counted else iter(())
        counted = (one for one in waiting if self.is_counted(one, subscriber) and cursor.outstanding(one))
        found = (
            one
            for one in merge(told, counted)
            if one not in cursor.in_flight and one not in cursor.unconfirmed and one not in replays
        )
        return list(islice(found, most))

    def is_being_told(self, subscriber: int) -> bool:
        """Whether there is more to tell it from the log."""
        cursor = self.state.cursors.get(subscriber)
        return cursor is not None and not cursor.history_done

    def progress(self, replay: int) -> tuple[int, int, int] | None:
        """(messages armed, ended well, ended badly) of the replay of a job that is not over; else None."""
        progress = self.state.progress.get(replay)
        return None if progress is None else (progress.total, progress.done, progress.failed)

    def take_progress(self) -> bool:
        """Whether a replay of a job has come further since the last call."""
        moved, self.state.has_progressed = self.state.has_progressed, False
        return moved

    def dead_letter(self, sequence: int, subscriber: int) -> Reason | None:
        """Why the message is a dead letter of this subscriber; None where it is none. What ended the message for
        others later on, in a replay that was not for this one, does not change it."""
        cursor = self.state.cursors.get(subscriber)
        if cursor is None:
            return None
        reason = cursor.dead.get(sequence)
        died = self.state.queues[cursor.queue].cascaded.get(sequence) if reason is None else None
        return died[0] if died is not None and is_at(cursor, sequence, died) else reason

    def is_lost(self, sequence: int) -> bool:
        """Whether a dead letter says of this message that its content was lost."""
        return any(self.dead_letter(sequence, number) is Reason.CONTENT_LOST for number in self.state.cursors)

    def lost_letters(self, through: int) -> tuple[tuple[int, int], ...]:
        """(sequence, number of the subscriber) of the dead letters up to ``through`` whose content was lost."""
        found = [
            (sequence, cursor.number)
            for cursor in self.state.cursors.values()  # of one that does not count, too (RULES 20)
            for sequence, reason in cursor.dead.items()
            if reason is Reason.CONTENT_LOST and sequence <= through
        ]
        found += [
            (sequence, cursor.number)
            for queue_state in self.state.queues.values()
            for sequence, died in queue_state.cascaded.items()
            if died[0] is Reason.CONTENT_LOST and sequence <= through
            for cursor in queue_state.cursors
            if is_at(cursor, sequence, died)
        ]
        return tuple(sorted(found))

    def queue_statistics(self, number: int) -> QueueStatistics:
        queue_state = self.state.queues[number]
        return QueueStatistics(
            queue_state.waiting + self.state.replays.of_queue[number],
            self._oldest(queue_state),
            queue_state.last_sequence,
            sum(len(cursor.dead) + queue_state.cascaded.count_at(cursor) for cursor in queue_state.cursors)
            + sum(len(cursor.dead) for cursor in queue_state.uncounted),
            queue_state.accepted,
            queue_state.delivered,
            queue_state.failed,
            queue_state.dead,
            queue_state.waiting,
            None if queue_state.sizes is None else queue_state.sizes.total,
        )

    def standing(self, number: int) -> Standing:
        """See ``Standing``."""
        queue_state = self.state.queues[number]
        size_bytes = 0 if queue_state.sizes is None else queue_state.sizes.total
        return Standing(queue_state.waiting, size_bytes, bool(queue_state.cursors))

    def unsized(self, most: int) -> Unsized | None:
        """Some whose sizes ``note_sizes`` is to be told; None where all are known."""
        for number in self.state.sized:
            sizes = self.state.queues[number].sizes
            assert sizes is not None
            after, through = sizes.unknown
            if through:
                some = list(islice(self.state.table.waiting(number, after + 1, through), most))
                last = some[-1] if len(some) == most else through
                return Unsized(number, [one for one in some if one not in sizes], last)
        return None

    def note_sizes(self, unsized: Unsized, size_bytes: Sequence[int]) -> None:
        """Take in how large the contents of these are; those that have ended meanwhile are passed over."""
        queue_state = self.state.queues.get(unsized.queue)
        if queue_state is None or queue_state.sizes is None:
            return
        for message, size in zip(unsized.messages, size_bytes, strict=True):
            if 0 < self.state.table.state(message) < MessageState.COMPLETE:
                queue_state.sizes.add(message, size)
        queue_state.sizes.looked_through(unsized.through)

    def _oldest(self, queue_state: QueueState) -> int:
        if not queue_state.waiting:
            queue_state.oldest_hint = queue_state.last_sequence + 1
            return 0
        # The oldest never gets older, but for carried messages, whose numbers lie below everything else here.
        for start in (queue_state.oldest_hint, 0):
            oldest, following = first_unended(self.state.table, queue_state.queue.number, start)
            if oldest or following:  # between millions of other queues' messages: the next who asks goes on there
                queue_state.oldest_hint = oldest or following
                break
        return oldest

    def subscriber_statistics(self, number: int) -> SubscriberStatistics:
        cursor = self.state.cursors[number]
        return SubscriberStatistics(
            cursor.scanned_through if cursor.is_counted else cursor.history_after,
            cursor.unseen + len(cursor.eligible),
            len(cursor.blocked),
            len(cursor.in_flight),
            len(cursor.retrying)
            - sum(map(cursor.retrying.__contains__, cursor.in_flight)),  # of the two the smaller by far
            len(cursor.dead) + self.state.queues[cursor.queue].cascaded.count_at(cursor),
            cursor.delivered,
            cursor.failed,
            cursor.last_status,
            cursor.last_reason,
            cursor.last_attempt_us,
            cursor.failing_since_us,
            self._breakers.report(cursor),
        )

    def rate_next_us(self, subscriber: int, now_us: int) -> int:
        """When the rate of a subscriber allows the next attempt; 0 where it does now, or it has none."""
        cursor = self.state.cursors.get(subscriber)
        rate = None if cursor is None else cursor.rate
        return 0 if rate is None or rate.room(1, now_us) > 0 else rate.next_us()

    def breaker(self, subscriber: int) -> BreakerReport | None:
        """How the breaker of a subscriber stands; None where there is no such subscriber."""
        cursor = self.state.cursors.get(subscriber)
        return None if cursor is None else self._breakers.report(cursor)

    def take_failed_too_long(self) -> set[int]:
        """Subscribers that have failed for as long as their ``disable_after`` says, each told as long as it does."""
        failed, self.state.failed_too_long = self.state.failed_too_long, set()
        return failed

    def give_back_turned(self, turned: Sequence[Turned]) -> None:
        """Nobody could be told of these: they come again."""
        self.turned.extendleft(reversed(turned))

    def take_turned(self) -> list[Turned]:
        """The breakers that have opened or closed since the last call."""
        some = list(self.turned)
        self.turned.clear()
        return some

    def carry(self, sequence: int) -> tuple[tuple[tuple[int, Outcome], ...], tuple[Tried, ...]]:
        """How far the deliveries of a message have come that retention takes along: (ended, tried)."""
        queue_state = self.state.queues.get(self.state.table.queue(sequence))
        counted = list(self._counted(sequence))
        ended = [(cursor.number, _ended_as(sequence, cursor)) for cursor in counted if cursor.finished(sequence)]
        died = any(outcome is Outcome.DEAD for _, outcome in ended)
        if not died and self.state.table.flags(sequence) & HAS_DEAD:
            ended.append((DELETED_SUBSCRIBER, Outcome.DEAD))
        told = [
            cursor
            for cursor in (queue_state.everybody if queue_state else ())
            if not cursor.counts(sequence) and cursor.backfill_covers(sequence) and sequence not in cursor.passed
        ]
        ended += [(cursor.number, _ended_as(sequence, cursor)) for cursor in told if cursor.finished(sequence)]
        tried = [
            Tried(cursor.number, state.attempts, state.due_us)
            for cursor in (*counted, *told)
            if (state := cursor.retrying.get(sequence)) is not None
        ]
        return tuple(ended), tuple(tried)

    def bad_messages(self, through: int) -> tuple[tuple[int, Outcome], ...]:
        """(sequence, how it ended) of messages up to ``through`` that ended badly."""
        return tuple(
            (sequence, _OUTCOMES[bad.state]) for sequence, bad in self.state.table.bad.items() if sequence <= through
        )

    def awaited(self, message: int) -> bool:
        """Whether somebody waits for the message's end, as in ``Scheduler.settle``."""
        return bool(self.state.table.first_child(message)) or self._is_awaited_by_others(message)

    def _is_awaited_by_others(self, message: int) -> bool:
        """By others than its children."""
        state = self.state
        if message in state.watched or message in state.edges:
            return True
        chain = state.keys.of(message)
        return chain is not None and message < chain.messages[-1]


def _ended_as(sequence: int, cursor: Cursor) -> Outcome:
    """The outcome of a delivery that has ended, as a record that carries its message says it."""
    if sequence in cursor.dead:
        return Outcome.DEAD
    return Outcome.SKIPPED if sequence in cursor.skipped else Outcome.DELIVERED
