"""Decides who gets what, when: parents, due times, windows. Pure: takes facts and the time, returns attempts to make.

Facts come in by ``apply``, in log order, live and at recovery alike; nothing else changes what is durable here.
Attempts go out by ``take`` and come back by ``settle``, which answers the row to log; what the row means for others
happens when it is applied, that is: when it is on disk (RULES 13). Ends that the rules demand without an attempt -
cascades, expiries, subscribers disabled for too long - are asked for by ``take_pending_ends``; they too take effect
when applied.

After a crash the same facts lead to the same state; attempts that were out are simply made again, and ends that were
pending are pending again.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import dropwhile, islice, takewhile

from syncbrok.delivery.handler import Attempt, AttemptResult
from syncbrok.delivery.scheduler import snapshot
from syncbrok.delivery.scheduler.admission import Admission
from syncbrok.delivery.scheduler.backfill import Backfill
from syncbrok.delivery.scheduler.bad_messages import Bad
from syncbrok.delivery.scheduler.batches import Batches
from syncbrok.delivery.scheduler.content_sizes import ContentSizes
from syncbrok.delivery.scheduler.cursor import Cursor
from syncbrok.delivery.scheduler.dependencies import DependencyTracker
from syncbrok.delivery.scheduler.dispatch_queue import DispatchQueue
from syncbrok.delivery.scheduler.forced_ends import ForcedEnds
from syncbrok.delivery.scheduler.lifecycle import BAD_STATE, MessageState
from syncbrok.delivery.scheduler.message_chunk import CHUNK_MASK, CHUNK_SHIFT
from syncbrok.delivery.scheduler.outcomes import OutcomeApplier
from syncbrok.delivery.scheduler.queries import SchedulerQueries
from syncbrok.delivery.scheduler.replays import Replays
from syncbrok.delivery.scheduler.shares import Shares, own_shares
from syncbrok.delivery.scheduler.state import DISABLED_OVER, QueueState, SchedulerState
from syncbrok.model import limits
from syncbrok.model.facts import (
    Carried,
    Erased,
    FactOrRun,
    FactsLost,
    JobChanged,
    Messages,
    Outcome,
    Outcomes,
    QueueDeleted,
    QueueSet,
    Rearmed,
    Reason,
    Row,
    Snapshot,
    StoredMessage,
    SubscriberDeleted,
    SubscriberSet,
)
from syncbrok.model.message import PULL_ENDPOINT, Queue, Subscriber
from syncbrok.model.names import sequence_of


class Scheduler(SchedulerQueries):
    """The scheduler of a Space; how things stand is asked by the methods of ``SchedulerQueries``.

    ``hold_max_us`` is how long a message is held for a mended parent (RULES 12), ``None``: the default retention;
    ``now_us`` as in ``set_time``; ``shares``: what all subscribers have together, and each a share of."""

    def __init__(self, hold_max_us: int | None = None, now_us: int = 0, shares: Shares | None = None) -> None:
        super().__init__(SchedulerState(now_us=now_us))
        self.suspended = False
        """set by the Space while outcomes cannot be logged: nothing goes out"""
        self._inherited_through = 0
        """of messages up to here nothing is learned from old snapshots: what they say may be out of date"""
        hold_max_us = int(limits.retention_default_s * 1e6) if hold_max_us is None else hold_max_us
        self._dependencies = DependencyTracker(self.state, self._blockers, hold_max_us)
        self._backfill = Backfill(self.state, self._blockers, self._dependencies)
        shares = shares or own_shares()
        self._dispatch_queue = DispatchQueue(self.state, self._blockers, self._backfill, shares, self._breakers)
        self._replays = Replays(self.state, self._dependencies, self._backfill, hold_max_us)
        self._admission = Admission(self.state, self._dependencies, self._backfill)
        self._outcomes = OutcomeApplier(self.state, self._dependencies, self._replays, self._backfill)
        self._ends = ForcedEnds(self.state, self._dependencies, self._dispatch_queue, self._breakers)
        self.batches = Batches(self.state)
        self._leaving: list[tuple[Cursor, Iterator[int]]] = []

    def __repr__(self) -> str:
        return (
            f"<Scheduler: {self.state.table.open} messages waiting, {len(self.state.queues)} queues, "
            f"{len(self.state.cursors)} subscribers>"
        )

    def checkpoint(self) -> dict[str, bytes]:
        """The state as named bytes, all facts applied so far in it; see ``snapshot``."""
        return snapshot.encoded(self.copied())

    def copied(self) -> dict[str, snapshot.Part]:
        """As ``checkpoint``, in milliseconds where a million wait; ``snapshot.encoded`` makes bytes of what is none."""
        self._finish_leaving(None)
        self._tell_dependents()
        while self._dependencies.busy:
            self._dependencies.work(limits.cascade_slice)
            self._tell_dependents()
        return snapshot.dump(self.state)

    def restore(self, parts: Mapping[str, bytes], declared: Iterable[QueueSet | SubscriberSet]) -> None:
        """Fill a fresh scheduler from a checkpoint and the queues and subscribers that stood then. Raises
        ``ValueError`` or ``KeyError`` where the parts are not of this version; then it is of no use any more."""
        for fact in declared:
            self.apply(fact)
        snapshot.load(self.state, parts)

    # -- facts --------------------------------------------------------------------------------------------------------

    def set_time(self, now_us: int) -> None:
        """Tell it what the wall clock says, before facts are applied: holds begin then, however far ahead of it the
        facts' own times are (RULES 25). Where nobody has told, they begin at the facts' times."""
        self.state.now_us = now_us

    def apply_all(self, facts: Iterable[FactOrRun]) -> None:
        """As ``apply`` for each."""
        for fact in facts:
            self.apply(fact)

    def apply(self, fact: FactOrRun) -> None:  # noqa: C901 - one case for each kind of fact
        """A fact that is durable, or many messages (their contents are not looked at). Facts come in log order; what
        recovery applies twice changes nothing."""
        self.state.time_us = max(self.state.time_us, fact.time_us)
        match fact:
            case Messages():
                self._admission.published(fact)
            case StoredMessage():
                self._admission.published(Messages.of(fact))
            case Outcomes():
                self._outcomes.apply(fact.rows)
            case QueueSet():
                self._queue_set(fact)
            case QueueDeleted():
                self._queue_deleted(fact)
            case SubscriberSet():
                self._subscriber_set(fact)
            case SubscriberDeleted():
                self._subscriber_deleted(fact)
            case Rearmed():
                self._replays.rearm(fact)
            case Carried():
                self._admission.carried(fact)
            case Snapshot():
                self._snapshot(fact)
            case FactsLost():
                self._ended_before(fact.last)
            case Erased():
                self._erased(fact)
            case JobChanged():
                self._replays.job(fact)
            case _:
                pass
        self._applied()

    def inherit(self, facts: Iterable[FactOrRun]) -> None:
        """Take in what is known of messages whose own records are gone (``Journal.inherited``), before any fact of the
        log."""
        for fact in facts:
            self.apply(fact)
            if isinstance(fact, Snapshot):
                self._inherited_through = fact.sequence - 1
                for cursor in self.state.cursors.values():
                    cursor.scanned_through = max(cursor.scanned_through, self._inherited_through)

    def withdrawable(self, replay: int, below: int, most: int) -> tuple[list[Row], int]:
        """See ``Replays``."""
        return self._replays.withdrawable(replay, below, most)

    def forget_skipped(self, through: int, limit: int) -> bool:
        """Forget which messages up to ``through`` were skipped, of those that have ended: the log has them no more. At
        most ``limit`` of each subscriber; True where there may be others."""
        more = False
        for cursor in self.state.cursors.values():
            old = [*takewhile(lambda sequence: sequence <= through, cursor.skipped.lowest(limit))]
            gone = [sequence for sequence in old if self.ended(sequence)]
            for sequence in gone:
                cursor.skipped.discard(sequence)
            more |= len(old) == limit and bool(gone)
        return more

    def _applied(self) -> None:
        if self._dependencies.busy:
            self._dependencies.work(limits.cascade_slice // 16)
        if self.state.prerequisites:
            self._tell_dependents()

    def _tell_dependents(self) -> None:
        prerequisites = self.state.prerequisites
        while prerequisites:
            message = prerequisites.popleft()
            if self.state.table.state(message) >= MessageState.COMPLETE:
                self._replays.prerequisite_ended(message)
            self._backfill.prerequisite_ended(message)

    def _erased(self, fact: Erased) -> None:
        """Take attempts back that have not begun, at subscribers that do not count or catch up: each ends when its
        message is to be read again. What is past its queue's retention is no dead letter any more."""
        messages = {sequence_of(one) for one in fact.messages}
        for cursor in self.state.cursors.values():
            if not messages.isdisjoint(cursor.in_flight):
                self.state.give_up(cursor, messages.intersection(cursor.in_flight))
        if fact.past_retention:
            self._outcomes.forget_letters(messages)

    def _queue_set(self, fact: QueueSet) -> None:
        queue = Queue(fact.number, fact.name, fact.settings)
        queue_state = self.state.queues.get(fact.number)
        if queue_state is None:
            queue_state = self.state.queues[fact.number] = QueueState(queue)
            self._set_sizes(queue_state)
            return
        queue_state.queue = queue
        self._set_sizes(queue_state)
        for cursor in queue_state.everybody:
            self._set_window(cursor)

    def _set_sizes(self, queue_state: QueueState) -> None:
        """Count bytes where the queue bounds them, and nowhere else. What waits already is looked up later."""
        bound, number = queue_state.queue.settings.max_backlog, queue_state.queue.number
        if bound is None or bound.bytes is None:
            queue_state.sizes = None
            self.state.sized.discard(number)
        elif queue_state.sizes is None:
            queue_state.sizes = ContentSizes()
            self.state.sized.add(number)
            if queue_state.waiting:
                queue_state.sizes.lacks(1, self.state.table.newest)

    def _queue_deleted(self, fact: QueueDeleted) -> None:
        queue_state = self.state.queues.get(fact.number)
        if queue_state is None:
            return
        for cursor in queue_state.everybody:
            self._remove(cursor, fact.sequence)
        self._finish_leaving(None)
        self.state.rotation.forget(fact.number)
        self.state.sized.discard(fact.number)
        del self.state.queues[fact.number]

    def _subscriber_set(self, fact: SubscriberSet) -> None:
        subscriber = Subscriber(fact.number, fact.queue, fact.id, fact.since, fact.settings)
        queue_state = self.state.queues.get(fact.queue)
        if queue_state is None:
            return
        cursor = self.state.cursors.get(fact.number)
        if cursor is None:
            cursor = Cursor(subscriber, queue_state.backlog, limits.window_default)
            self.state.cursors[fact.number] = cursor
            queue_state.beside(cursor).append(cursor)
        elif cursor.is_counted != fact.settings.counts:
            cursor = self._count_otherwise(cursor, subscriber, fact.sequence)
        old = cursor.subscriber.settings
        if (old.endpoint, old.breaker) != (fact.settings.endpoint, fact.settings.breaker):
            self._breakers.begin_anew(cursor)
        if old.endpoint != fact.settings.endpoint:
            self.state.let_go(cursor)
            cursor.taken_over()
            cursor.failing_since_us = 0
        was_stopped = cursor.stopped
        cursor.declared(subscriber)
        if was_stopped and not cursor.stopped:
            cursor.all_due()
            cursor.failing_since_us = 0  # nothing was tried meanwhile, and somebody believes that it is mended
            self._breakers.probe_now(cursor)
        self._set_window(cursor)
        disabled_us = fact.settings.disabled_us
        if disabled_us:
            over_us = disabled_us + int(limits.disabled_max_s * 1e6)
            self.state.timers.add(over_us, DISABLED_OVER, fact.number)
        else:
            cursor.abandoned = False
            self.state.abandoned.discard(fact.number)
        self.state.activate(cursor)

    def _count_otherwise(self, old: Cursor, subscriber: Subscriber, sequence: int) -> Cursor:
        """Let a subscriber count from now on, or no more; its new cursor, which goes on with what the old one had
        begun. The old one leaves as that of a deleted subscriber does, and so frees what waited for it."""
        queue_state = self.state.queues[subscriber.queue]
        new = Cursor(subscriber, queue_state.backlog, old.window)
        new.declared(old.subscriber)
        new.go_on_from(old)
        if old.queued:
            self.state.rotation.remove(old)
        if old.held_back:
            self.state.held_back.remove(old)
        self.state.cursors[new.number] = new
        queue_state.beside(old).remove(old)
        queue_state.beside(new).append(new)
        if new.is_counted:
            return new
        self._backfill.stop_counting(old, new)
        self._leaving.append((old, self.state.table.waiting(old.queue, old.since + 1, sequence)))
        self._finish_leaving(limits.cascade_slice)
        return new

    def _set_window(self, cursor: Cursor) -> None:
        queue_state = self.state.queues[cursor.subscriber.queue]
        window = cursor.subscriber.settings.window or queue_state.queue.settings.window
        cursor.set_window(min(window, cursor.consumer_capacity) if cursor.subscriber.consumed else window)
        self.state.activate(cursor)

    def _subscriber_deleted(self, fact: SubscriberDeleted) -> None:
        cursor = self.state.cursors.get(fact.number)
        if cursor is not None:
            self._remove(cursor, fact.sequence)
            self._finish_leaving(limits.cascade_slice)

    def _remove(self, cursor: Cursor, sequence: int) -> None:
        number = cursor.subscriber.number
        queue_state = self.state.queues[cursor.subscriber.queue]
        self.state.unconfirmed -= len(cursor.unconfirmed)
        queue_state.beside(cursor).remove(cursor)
        if cursor.queued:
            self.state.rotation.remove(cursor)
        if cursor.held_back:
            self.state.held_back.remove(cursor)
        del self.state.cursors[number]
        self._breakers.begin_anew(cursor)
        self.state.let_go(cursor)
        self.state.abandoned.discard(number)
        self.state.edges.forget(number)
        self._replays.lost_subscriber(number)
        if not cursor.is_counted:
            return
        counted = self.state.table.waiting(cursor.subscriber.queue, cursor.subscriber.since + 1, sequence)
        self._leaving.append((cursor, counted))

    def _finish_leaving(self, messages_max: int | None) -> None:
        """Count deleted subscribers out of the messages that still count them; all of them with None."""
        while self._leaving and (messages_max is None or messages_max > 0):
            cursor, counted = self._leaving[0]
            for sequence in counted:
                only = self.state.table.only.get(sequence)
                if only is None or only == cursor.subscriber.number:
                    self._outcomes.lost_subscriber(sequence, cursor)
                if messages_max is not None:
                    messages_max -= 1
                    if messages_max <= 0:
                        return
            self._leaving.pop(0)

    def _snapshot(self, fact: Snapshot) -> None:
        for queue in fact.queues:
            if queue.number not in self.state.queues:
                self._queue_set(queue)
        for subscriber in fact.subscribers:
            if subscriber.number not in self.state.cursors:
                self._subscriber_set(subscriber)
        table = self.state.table
        self._ended_before(fact.sequence)  # of those that were dropped before it
        for sequence, outcome in fact.bad:
            if sequence > self._inherited_through and not table.knows(sequence):
                table.restore_bad(sequence, Bad(BAD_STATE[outcome], Reason.NONE, 0))
        for sequence, number in fact.lost:
            cursor = self.state.cursors.get(number)
            if cursor is not None and self.dead_letter(sequence, number) is None:
                cursor.dead[sequence] = Reason.CONTENT_LOST

        for job in fact.jobs:
            self._replays.job(job)

    def _ended_before(self, sequence: int) -> None:
        """A message up to there that the log does not tell of has ended: nobody waits for it."""
        self.state.table.newest = max(self.state.table.newest, sequence)

    # -- attempts -----------------------------------------------------------------------------------------------------

    def take(self, now_us: int, durable: int, limit: int) -> list[Attempt]:
        """At most ``limit`` attempts to make now; ``durable`` is the last durable sequence (RULES 13)."""
        self._ends.wake_due(now_us)
        if self._dependencies.busy:
            self._dependencies.work(limits.cascade_slice)
        if self._leaving:
            self._finish_leaving(limits.cascade_slice)
        if self.state.prerequisites:
            self._tell_dependents()
        if self.suspended:
            return []
        return self._dispatch_queue.take(now_us, durable, limit)

    def upcoming(self, subscriber: int, limit: int) -> Sequence[int]:
        """At most ``limit`` messages that come next in the subscriber's queue, oldest first, so that they can be read
        in good time. Some may not go out after all: they have ended, or must wait."""
        cursor = self.state.cursors.get(subscriber)
        if cursor is None or cursor.stopped:
            return ()
        # Those whose gate has opened go first; there are many of them where a wide tree has opened.
        released = cursor.eligible.lowest(limit) if cursor.eligible.count else []
        return [*released, *cursor.backlog.following(cursor.position, limit - len(released))]

    def children(self, message: int, limit: int) -> list[int]:
        """At most ``limit`` of the messages that wait for this one, whether for others too or not, in the order in
        which they were accepted; the next of its key stands last."""
        found = list(islice(self.state.table.children(message), limit))
        if not self.state.keys.several:
            return found
        chain = self.state.keys.of(message)
        following = self.state.keys.after(chain, message) if chain is not None and len(found) < limit else 0
        return [*found, following] if following else found

    def settle(
        self, answers: Iterable[tuple[Attempt, AttemptResult]], now_us: int, jitter: Callable[[], float]
    ) -> tuple[list[Row], bool]:
        """The rows to log for these answers, one each, and whether somebody waits for one of them to be durable:
        children, the next of its key, or a publisher (RULES 24). The window's slots are free at once. ``jitter`` is in
        -1..1."""
        rows = self._dispatch_queue.settle(answers, now_us, jitter)
        return rows, self._urgent(rows)

    def give_back(self, attempts: Iterable[Attempt]) -> None:
        """Take back attempts that were not begun: they go out again as if they had never been taken."""
        self._dispatch_queue.give_back(attempts)

    def given_up(self) -> dict[int, set[int]]:
        """By subscriber, messages with an attempt out that should not begin any more (``stands``), told once: the
        message has ended or is to end, or the subscriber is deleted or its endpoint elsewhere."""
        given_up = self.state.given_up
        if given_up:
            self.state.given_up = {}
        return given_up

    def retry_now(self, subscriber: int, message: int | None = None) -> int:
        """Make due what waits for another attempt at the subscriber, or this message alone; how many that is (RULES
        26)."""
        return self._dispatch_queue.retry_now(subscriber, message)

    def stands(self, attempt: Attempt) -> bool:
        """Whether an attempt that was taken may begin now."""
        return self._dispatch_queue.stands(attempt)

    def expire(self, attempt: Attempt) -> bool:
        """Whether a message whose time is over ends without this attempt (RULES 9). What had ended before may be sent
        all the same: by an operator's replay, or to a subscriber that catches up."""
        return self._ends.expire(attempt)

    def offer(self, subscriber: int, room: int) -> None:
        """How many deliveries the consumers of a subscriber have room for, those they have included (0: nobody is
        there). Nothing durable: at a start there is room for none."""
        cursor = self.state.cursors.get(subscriber)
        if cursor is not None:
            cursor.consumer_capacity = room
            if room:
                cursor.unused_us = 0
            self._set_window(cursor)

    def unused(self, elapsed_us: int, idle_after_us: int) -> list[int]:
        """Groups of consumers that pull (numbers of subscribers) of which nobody has taken anything for so long: one
        that counts while something could be taken and it was not paused, one that nobody has declared at any time.
        ``elapsed_us`` has gone by since this was asked last, by a clock that nobody sets."""
        found: list[int] = []
        for cursor in self.state.cursors.values():
            settings = cursor.subscriber.settings
            if settings.endpoint != PULL_ENDPOINT or (not settings.counts and settings.declared):
                continue
            could_be_taken = not cursor.idle and not cursor.stopped
            if cursor.consumer_capacity or cursor.in_flight or (settings.counts and not could_be_taken):
                cursor.unused_us = 0
                continue
            cursor.unused_us += elapsed_us
            if cursor.unused_us >= idle_after_us:
                found.append(cursor.number)
        return found

    def take_pending_ends(self, now_us: int, limit: int) -> list[Row]:
        """At most ``limit`` rows that end deliveries without an attempt; each is asked for once and takes effect when
        it is applied. Children mostly wait for these."""
        return self._ends.take_pending_ends(now_us, limit)

    @property
    def owes_ends(self) -> bool:
        """Whether ``take_pending_ends`` has left some."""
        return bool(self.state.pending_ends or self._breakers.overdue)

    def dropped_by_retention(self, through: int, now_us: int) -> list[Row]:
        """A row for each subscriber that has not taken all that has ended up to there and does not count it: to be
        logged before those records go. It stands for all of them."""
        return [
            Row(through, cursor.number, 0, Outcome.DROPPED, Reason.RETENTION, 0, now_us, 0, 0, 0)
            for cursor in self.state.cursors.values()
            if self._backfill.untaken(cursor, through)
        ]

    def lost_in_replays(self, messages: Iterable[int], now_us: int) -> list[Row]:
        """A row for each delivery of these messages that is left of a replay: to be logged before the records go that
        they are read from. An attempt that is out comes back late."""
        return [
            Row(message, number, 0, Outcome.DEAD, Reason.CONTENT_LOST, 0, now_us, 0, 0, 0, b"dropped by retention")
            for message in messages
            if (entry := self.state.replays.get(message)) is not None
            if message not in self.state.asked  # its end is on its way already, as where an answer has come
            for number in sorted(entry.left)
            if message not in self.state.cursors[number].unconfirmed
        ]

    def next_due_us(self) -> int | None:
        """When to call ``take`` and ``take_pending_ends`` again though nothing has happened; 0 for at once, None for
        never."""
        if self._dependencies.busy or self._leaving or self.owes_ends or (self.state.rotation and not self.suspended):
            return 0
        return self.state.timers.next_due_us()

    def _urgent(self, rows: Iterable[Row]) -> bool:
        state = self.state
        chunks = state.table.chunks
        others = bool(state.watched or state.edges or state.keys.several)
        number, children = -1, None
        for row in rows:
            message = row[0]
            if message >> CHUNK_SHIFT != number:
                number = message >> CHUNK_SHIFT
                chunk = chunks.get(number)
                children = chunk.first_child if chunk is not None else None
            if (
                (children and children[message & CHUNK_MASK]) or (others and self._is_awaited_by_others(message))
            ) and row.outcome is not Outcome.FAILED:
                return True
        return False

    # -- history for subscribers that start in the past ---------------------------------------------------------------

    @property
    def backfill(self) -> bool:
        """Whether some subscriber started in the past and is not yet through with it."""
        return any(not cursor.history_done for cursor in self.state.cursors.values())

    @property
    def may_lag(self) -> bool:
        """Whether there is a subscriber that does not count: it is told what is new as it comes, until it lags."""
        return any(queue_state.uncounted for queue_state in self.state.queues.values())

    @property
    def newest(self) -> int:
        """The highest sequence of a message that was accepted, as far as the facts have been applied."""
        return self.state.table.newest

    def needs_history(self) -> list[tuple[int, int, int]]:
        """(subscriber, queue, after sequence) of those that catch up and have little left to do."""
        return [
            (cursor.subscriber.number, cursor.subscriber.queue, cursor.history_after)
            for cursor in self.state.cursors.values()
            if not cursor.history_done
            and not cursor.stopped
            and len(cursor.eligible) < limits.history_ahead_max
            and len(cursor.blocked) - self._backfill.waiting_for_history(cursor) < limits.window_max
        ]

    def feed_history(
        self, subscriber: int, messages: Sequence[tuple[int, tuple[int, ...]]], keys: Mapping[int, str], through: int
    ) -> None:
        """Messages (sequence, parents' sequences) of the queue that came before the subscriber, or that one which does
        not count has not been told of, in order, and which keys some have. ``through``: up to there these are all."""
        cursor = self.state.cursors.get(subscriber)
        if cursor is None or cursor.history_done:
            return
        # Of one that does not count there is no end: once nothing that is known here is left it is told what comes.
        last = min(self.state.table.newest, cursor.since)
        # What it has been told meanwhile, or retention has ended there while the log was read, is not told again.
        untold = dropwhile(lambda one: one[0] <= cursor.history_after, messages)
        self._backfill.feed(cursor, list(takewhile(lambda one: one[0] <= last, untold)), keys)
        cursor.history_after = max(cursor.history_after, min(through, last))
        if through >= min(self.state.queues[cursor.queue].last_sequence, cursor.since):
            self._backfill.history_complete(cursor)
        self.state.activate(cursor)
