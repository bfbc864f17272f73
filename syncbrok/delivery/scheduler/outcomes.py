"""Applies durable rows: what one means for the delivery, for its message, for the children, for a replay it belongs to.

Rows are applied in log order, live and at recovery alike, and a row that tells what is known already changes nothing:
carried messages and checkpoints overlap with the log, and that must not count anything twice.
"""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from syncbrok.delivery.scheduler.backfill import Backfill
from syncbrok.delivery.scheduler.cursor import Cursor, TriedState
from syncbrok.delivery.scheduler.dependencies import DependencyTracker
from syncbrok.delivery.scheduler.key_chains import KeyChain
from syncbrok.delivery.scheduler.lifecycle import ENDING, MessageEvent, MessageState
from syncbrok.delivery.scheduler.message_chunk import CHUNK_MASK, CHUNK_SHIFT, MessageChunk
from syncbrok.delivery.scheduler.message_table import HAS_DEAD, HAS_EXPIRED, ONE_BY_ONE, PER_SUBSCRIBER
from syncbrok.delivery.scheduler.replays import Replays
from syncbrok.delivery.scheduler.state import QueueState, ReplayEntry, SchedulerState, is_at
from syncbrok.model.facts import ALL_SUBSCRIBERS, Outcome, Reason, Row

_PENDING: Final = int(MessageState.PENDING)
_COMPLETE: Final = int(MessageState.COMPLETE)
_DELIVERED: Final = Outcome.DELIVERED
_BY_OPERATOR: Final = (Reason.DISCARDED, Reason.SEEK)
"""of rows about one subscriber that an operator asked for"""


class OutcomeApplier:
    """Applies rows to the state."""

    def __init__(
        self,
        state: SchedulerState,
        dependencies: DependencyTracker,
        replays: Replays,
        backfill: Backfill,
    ) -> None:
        self._state = state
        self._dependencies = dependencies
        self._replays = replays
        self._backfill = backfill

    def apply(self, rows: Iterable[Row]) -> None:
        """Apply the rows of one fact, in log order.

        Fast path: an acknowledgement that changes only its own message and that message's children. Consecutive rows
        of this kind are applied together, all others one by one. Its delivery was out in this process or, at a
        restart, the cursor has not reached it yet."""
        state, cursors, chunks = self._state, self._state.cursors, self._state.table.chunks
        others = state.others
        # A message with parents of its own queue may wait at each subscriber; its end does not, but for its key's sake.
        one_by_one = ONE_BY_ONE if state.keys.several else ONE_BY_ONE & ~PER_SUBSCRIBER
        subscriber = number = -1
        cursor: Cursor | None = None
        unconfirmed: set[int] = set()
        since = seen = last_us = 0
        delivered: list[int] = []
        chunk: MessageChunk | None = None
        places: list[int] = []
        for row in rows:
            message = row[0]
            if row[1] != subscriber:
                self._delivered(cursor, delivered, last_us)
                subscriber, delivered = row[1], []
                cursor = cursors.get(subscriber)
                if cursor is not None:
                    unconfirmed, since, seen = cursor.unconfirmed, cursor.since, cursor.scanned_through
            if message >> CHUNK_SHIFT != number:
                self._count_down(number, places)
                number = message >> CHUNK_SHIFT
                chunk = chunks.get(number)
            i = message & CHUNK_MASK
            first_child = chunk.first_child[i] if chunk is not None and chunk.first_child else 0
            if (
                row[3] is _DELIVERED
                and cursor is not None
                and (message in unconfirmed if message <= seen else cursor.untouched(message))
                and not (others and state.concerns_others(message))
                and (
                    chunk is not None
                    and chunk.state[i] == _PENDING
                    and not chunk.flags[i] & one_by_one
                    # Before the last one has ended, only children of scope ``same`` may go.
                    and (not first_child or chunk.left[i] == 1)
                    if message > since
                    else not first_child and not state.replays  # from before its time: nobody counts it
                )
            ):
                if message <= seen:
                    unconfirmed.remove(message)  # ``SchedulerState.confirm``
                    state.unconfirmed -= 1
                else:
                    cursor.remember(message)
                delivered.append(message)
                last_us = row[6]
                if message > since:
                    places.append(i)
                    if first_child:
                        self._dependencies.parent_ended(message, first_child)
            else:
                self._count_down(number, places)
                self._apply_one(row)
                others = state.others
                chunk = chunks.get(number)
        self._count_down(number, places)
        self._delivered(cursor, delivered, last_us)

    def _count_down(self, number: int, places: list[int]) -> None:
        """Deliveries of these messages (places in the chunk of that number) have ended well; ``places`` is emptied."""
        if places:
            queues, chunk = self._state.queues, self._state.table.chunks[number]
            ended = self._state.table.count_down(number, places)
            for queue in ended:
                queues[queue].waiting -= 1
            if self._state.sized:
                over = places if len(ended) == len(places) else [i for i in places if chunk.state[i] >= _COMPLETE]
                for queue in self._state.sized.intersection(ended):
                    sizes = queues[queue].sizes
                    assert sizes is not None
                    sizes.take_some(number, [i for i, one in zip(over, ended, strict=True) if one == queue])
            places.clear()

    def _delivered(self, cursor: Cursor | None, messages: Sequence[int], last_us: int) -> None:
        """Attempts of these at the cursor came through, the last of which began at ``last_us``."""
        if cursor is not None and messages:
            cursor.came_through(messages)
            if cursor.failing_since_us <= last_us:
                cursor.failing_since_us = 0  # at a start; else an answer has said so already
            self._state.queues[cursor.queue].delivered += len(messages)

    def _attempted(self, row: Row, cursor: Cursor) -> None:
        """Attempts are counted where their rows are, so that a start comes to the same figures as the log."""
        if row.outcome is _DELIVERED:
            self._delivered(cursor, (row.message,), row.time_us)
        elif row.outcome is Outcome.SKIPPED:
            cursor.failing_since_us = 0 if row.attempt else cursor.failing_since_us  # its endpoint has answered
        elif row.attempt:
            cursor.failed += 1
            cursor.failing_since_us = cursor.failing_since_us or row.time_us + row.latency_us
            self._state.queues[cursor.queue].failed += 1

    def _apply_one(self, row: Row) -> None:
        """One row, whatever it says."""
        if row.outcome is Outcome.LATE:
            return
        if row.subscriber == ALL_SUBSCRIBERS:
            self._end_all(row)
            return
        cursor = self._state.cursors.get(row.subscriber)
        if row.reason is Reason.RETENTION:
            if cursor is not None:
                self._backfill.drop_through(cursor, row.message)
            return
        if cursor is None:
            return  # its deliveries ended with the fact that removed the subscriber
        if row.reason in _BY_OPERATOR:
            self._by_operator(row, cursor)
            return
        self._attempted(row, cursor)
        self._one_of(row, cursor)

    def _one_of(self, row: Row, cursor: Cursor) -> None:
        """A row of an attempt at the cursor, or of an end there that a rule brings."""
        entry = self._state.replays.get(row.message) if self._state.replays else None
        if entry is not None and row.subscriber in entry.left:
            self._replays.row(row, cursor, entry)
        elif row.outcome is Outcome.FAILED:
            self._failed(row, cursor)
        elif not cursor.finished(row.message) or not cursor.counts(row.message):
            self._state.confirm(cursor, row.message)
            self._ended_at(row, cursor)
        elif row.outcome is Outcome.DEAD and (row.message in cursor.dead or row.reason is Reason.CONTENT_LOST):
            # Known from the record that carries it, which does not say why; or lost, and its own record is gone too.
            cursor.dead[row.message] = row.reason

    def _by_operator(self, row: Row, cursor: Cursor) -> None:
        """A dead letter is dropped, or something is passed over."""
        if row.reason is Reason.DISCARDED:
            self._discard(row.message, cursor)
        elif row.outcome is Outcome.DROPPED:
            self._backfill.pass_over(cursor, row.message)
        elif not cursor.finished(row.message) or not cursor.counts(row.message):
            if row.message in cursor.in_flight:  # it went out while its end was on its way
                self._state.give_up(cursor, (row.message,))
                cursor.take_back(row.message)
                self._state.activate(cursor)
            self._state.confirm(cursor, row.message)
            self._ended_at(row, cursor)

    def _discard(self, message: int, cursor: Cursor) -> None:
        queue_state = self._state.queues[cursor.queue]
        died = queue_state.cascaded.get(message)
        if cursor.dead.pop(message) is None:
            if died is None or not is_at(cursor, message, died):
                return
            at = died[1] or tuple(one.number for one in queue_state.cursors if one.counts(message))
            queue_state.cascaded.pop(message)
            if remaining := tuple(number for number in at if number != cursor.number):
                queue_state.cascaded[message] = died[0], remaining
        if message in self._state.table.bad and cursor.counts(message):
            self._state.table.lose(message, (cursor.number,))
        self._replays.discarded(message)

    def forget_letters(self, messages: AbstractSet[int]) -> None:
        """The retention of their queue is over: nobody can send them again. How they ended stays."""
        first, end = min(messages), max(messages) + 1
        for cursor in self._state.cursors.values():
            if cursor.dead and (count := cursor.dead.count_between(first, end)):
                for message in messages & set(cursor.dead.after(first - 1, count)):
                    cursor.dead.pop(message)
        for queue_state in self._state.queues.values():
            if queue_state.cascaded:
                for message in messages & queue_state.cascaded.keys():
                    queue_state.cascaded.pop(message)

    def _failed(self, row: Row, cursor: Cursor) -> None:
        tried = cursor.retrying.get(row.message)
        if tried is not None and tried.attempts >= row.attempt:
            return  # live: known since the answer came
        if row.message in cursor.in_flight:
            return  # a later attempt is out already
        ended = self._state.table.state(row.message) >= MessageState.COMPLETE
        if cursor.counts(row.message) and (ended or not cursor.outstanding(row.message)):
            return
        first_us = row.time_us if tried is None and row.attempt == 1 else tried.first_us if tried is not None else 0
        self._state.try_again(cursor, row.message, TriedState(row.attempt, row.due_us, 0, first_us))

    def _ended_at(self, row: Row, cursor: Cursor) -> None:
        """A delivery has ended: count it down, and tell the children where they wait for this subscriber alone."""
        table = self._state.table
        queue_state = self._state.queues[cursor.subscriber.queue]
        key = self._state.keys.key_of(row.message) if cursor.replay_lines else ""
        if row.outcome is Outcome.DEAD:
            cursor.dead[row.message] = row.reason
            queue_state.dead += 1
        elif row.outcome is Outcome.SKIPPED:
            cursor.skipped.add(row.message)
        if row.message in self._state.edges.subscribers:
            self._backfill.ended(cursor, row.message)
        if not cursor.counts(row.message):
            return  # nobody waits for it elsewhere
        if not 0 < table.state(row.message) < MessageState.COMPLETE:
            return
        first_child = table.first_child(row.message)
        if row.outcome is Outcome.DEAD:
            table.mark(row.message, HAS_DEAD)
        elif row.outcome is Outcome.EXPIRED:
            table.mark(row.message, HAS_EXPIRED)
        if table.one_less(row.message) == 0:
            chain = self._end(row.message, row.reason)
        else:
            chain = self._state.keys.of(row.message)
            self._dependencies.parent_ended(row.message, first_child, cursor)
        if chain is not None or key:
            self._dependencies.go_on((cursor,), chain, key)

    def _end(self, sequence: int, reason: Reason) -> KeyChain | None:
        flags = self._state.table.flags(sequence)
        if flags & HAS_DEAD:
            return self._dependencies.end(sequence, MessageEvent.ENDED_DEAD, reason)
        if flags & HAS_EXPIRED:
            return self._dependencies.end(sequence, MessageEvent.ENDED_EXPIRED, reason)
        return self._dependencies.end(sequence, MessageEvent.ENDED_WELL)

    def _end_all(self, row: Row) -> None:
        """One row ends every delivery of a message that has not ended (a cascade, an expiry, a cancel)."""
        entry = self._state.replays.get(row.message)
        if entry is not None:
            for number in entry.left:
                cursor = self._state.cursors.get(number)
                if cursor is not None and row.message in cursor.in_flight:
                    self._state.give_up(cursor, (row.message,))
            self._replays.end_all(row, entry)
            return
        table = self._state.table
        if not 0 < table.state(row.message) < MessageState.COMPLETE:
            return
        queue_state = self._state.queues.get(table.queue(row.message))
        for cursor in queue_state.uncounted if queue_state is not None else ():
            self._end_uncounted(row, cursor)
        key = self._state.keys.key_of(row.message) if self._state.replays else ""
        lost = self._end_at_cursors(row, queue_state) if queue_state is not None else ()
        chain = self._dependencies.end(row.message, ENDING[row.outcome], row.reason)
        if (chain is not None or key) and queue_state is not None:
            self._dependencies.go_on(queue_state.cursors, chain, key)
        if lost:
            table.lose(row.message, lost)

    def _end_at_cursors(self, row: Row, queue_state: QueueState) -> tuple[int, ...]:
        """End the message at every subscriber that it counts. Returns those that did not get it, if no dead letter says
        so."""
        lost: tuple[int, ...] = ()
        if row.outcome is Outcome.DEAD:
            queue_state.cascaded[row.message] = (row.reason, self._died_at(row.message, queue_state))
            queue_state.dead += 1
        elif row.outcome is not Outcome.SKIPPED:
            lost = self._still_open(row.message, queue_state)
        for cursor in queue_state.cursors:
            if row.message in cursor.in_flight and cursor.counts(row.message):
                self._state.give_up(cursor, (row.message,))
            if row.outcome is not Outcome.SKIPPED or cursor.counts(row.message):  # else one that catches up may get it
                self._state.confirm(cursor, row.message)
        return lost

    def _end_uncounted(self, row: Row, cursor: Cursor) -> None:
        """End the message at a subscriber that does not count, if it could go there or has been tried: by a cancel, a
        purge, an expiry, or since its content is lost. What waits there for its own gate hears of it by itself."""
        message = row.message
        if row.outcome is Outcome.SKIPPED or message in cursor.blocked or not cursor.outstanding(message):
            return
        is_tried = message in cursor.in_flight or message in cursor.retrying
        if message in cursor.in_flight:
            self._state.give_up(cursor, (message,))
            cursor.take_back(message)
        self._state.confirm(cursor, message)
        if row.outcome is Outcome.DEAD:
            cursor.dead[message] = row.reason
        elif not is_tried:  # as after a start, which knows of no message that was not tried that it was told
            self._backfill.pass_by(cursor, message)
        self._backfill.ended(cursor, message)
        self._state.activate(cursor)

    def _died_at(self, sequence: int, queue_state: QueueState) -> tuple[int, ...] | None:
        """The subscribers at which a message dies as a whole; None for all that it counts, as nearly always. Its scope
        does not tell: a start from a log that has lost its beginning takes a child of scope ``same`` for one without
        parents."""
        at = self._still_open(sequence, queue_state)
        return at if len(at) < sum(cursor.counts(sequence) for cursor in queue_state.cursors) else None

    def _still_open(self, sequence: int, queue_state: QueueState) -> tuple[int, ...]:
        only = self._state.table.only.get(sequence)
        return tuple(
            cursor.subscriber.number
            for cursor in queue_state.cursors
            if cursor.counts(sequence) and only in (None, cursor.subscriber.number) and not cursor.finished(sequence)
        )

    def lost_subscriber(self, sequence: int, cursor: Cursor) -> None:
        """A subscriber that this message counts has been deleted: its delivery counts as dropped (RULES 10, 14)."""
        if 0 < self._state.table.state(sequence) < MessageState.COMPLETE and (
            cursor.outstanding(sequence) or sequence in cursor.unconfirmed
        ):
            entry: ReplayEntry | None = self._state.replays.get(sequence)
            if entry is None and self._state.table.one_less(sequence) == 0:
                self._end(sequence, Reason.UNSUBSCRIBED)
