"""How a message comes into the state: its row, its edges, its first state."""

from array import array
from collections.abc import Collection

from syncbrok.delivery.scheduler.backfill import Backfill
from syncbrok.delivery.scheduler.cursor import TriedState
from syncbrok.delivery.scheduler.dependencies import DependencyTracker
from syncbrok.delivery.scheduler.lifecycle import MessageEvent, MessageState
from syncbrok.delivery.scheduler.message_table import (
    HAS_DEAD,
    HAS_EXPIRED,
    KEY_EDGE,
    ONLY,
    PER_SUBSCRIBER,
    POLICY_SHIFT,
    SAME,
)
from syncbrok.delivery.scheduler.state import DUE, EXPIRES, QueueState, SchedulerState
from syncbrok.model.facts import Attributes, Carried, Extras, Messages, Outcome, Reason, StoredMessage
from syncbrok.model.message import Scope
from syncbrok.model.names import MessageId, sequence_of


class Admission:
    """Takes in messages as they are accepted, and those that retention carries along."""

    def __init__(self, state: SchedulerState, dependencies: DependencyTracker, backfill: Backfill) -> None:
        self._state = state
        self._dependencies = dependencies
        self._backfill = backfill
        self._queues, self._left = array("I"), array("H")
        """rows of messages without extras that are still to be made: they end before the next message looked at"""
        self._open_before: tuple[tuple[MessageId, ...], tuple[int, ...]] = ((), ())
        """parents of the last message that had any, and which of them were not complete"""

    def published(self, messages: Messages) -> None:
        """Messages that are durable, in order."""
        self._open_before = ((), ())
        table = self._state.table
        if messages.sequence > table.newest:
            self._take_in(messages)
            return
        for one in messages.messages():  # recovery may tell what is known, in whole or in part
            if one.sequence > table.newest or not table.knows(one.sequence):
                self._take_in(Messages.of(one))

    def _take_in(self, messages: Messages) -> None:
        first, extras = messages.sequence, messages.extras
        queues, following = self._state.queues, first
        apart = False
        for end, attributes in messages.stretches:
            start, following = following, first + end
            queue_state = queues.get(attributes.queue)
            if queue_state is None:
                self._make_rows(start)
                continue
            cursors, count = queue_state.cursors, following - start
            queue_state.accepted += count
            queue_state.last_sequence = following - 1
            done = start
            for sequence in range(start, following) if extras else ():
                more = extras.get(sequence - first)
                if more is not None and more.decide_when:
                    if done < sequence:
                        self._add_rows(queue_state, messages, done, sequence - done)
                    self._make_rows(sequence)
                    _size_up(queue_state, messages, sequence, 1)
                    left = self._is_counted(more.only) if more.only else len(cursors)
                    self._enter(sequence, attributes, more, queue_state, left)
                    done = sequence + 1
            if done < following:
                self._add_rows(queue_state, messages, done, following - done)
            if cursors:
                if count == 1:
                    queue_state.backlog.sequences.append(start)
                else:
                    queue_state.backlog.extend(start, count)
                self._state.one_more(cursors)
            apart |= bool(queue_state.uncounted)
        self._make_rows(following)
        if apart:
            self._feed_uncounted(messages)

    def _feed_uncounted(self, messages: Messages) -> None:
        """Tell those who do not count of what is in the table now."""
        following = messages.sequence
        for end, attributes in messages.stretches:
            start, following = following, messages.sequence + end
            queue_state = self._state.queues.get(attributes.queue)
            if queue_state is not None:
                self._backfill.published(queue_state, messages, start, following)

    def _is_counted(self, number: int) -> int:
        """1 where a message to this subscriber alone counts it."""
        cursor = self._state.cursors.get(number)
        return int(cursor is None or cursor.is_counted)

    def _add_rows(self, queue_state: QueueState, messages: Messages, first: int, count: int) -> None:
        """Rows for messages without extras. (What has no subscriber needs none: it is complete.)"""
        if not queue_state.cursors:
            self._make_rows(first)
            self._state.table.pass_by(first + count - 1)
            return
        queue_state.waiting += count
        _size_up(queue_state, messages, first, count)
        number, left = queue_state.queue.number, len(queue_state.cursors)
        if count == 1:
            self._queues.append(number)
            self._left.append(left)
        else:
            self._queues.extend(array("I", (number,)) * count)
            self._left.extend(array("H", (left,)) * count)

    def _make_rows(self, following: int) -> None:
        """Make the rows that are still to be made, up to before ``following``."""
        queues, left = self._queues, self._left
        if not queues:
            return
        table, first = self._state.table, following - len(queues)
        if first > table.newest:
            table.accept_run(first, queues, left)
        else:
            table.accept(first, queues[0], 0, left[0], MessageEvent.RELEASED, ())
        self._queues, self._left = array("I"), array("H")

    def _enter(
        self,
        sequence: int,
        attributes: Attributes,
        extras: Extras,
        queue_state: QueueState,
        left: int,
        *,
        carried: bool = False,
    ) -> None:
        """A row for a message with parents, a key, a time, or for one subscriber alone. ``carried``: it had not ended
        when its record went."""
        table, queue = self._state.table, attributes.queue
        parents, chain, flags = self._prerequisites(sequence, attributes, extras, has_key=bool(extras.key and left))
        if left == 0:
            flags &= ~SAME  # with no subscriber to judge a parent at, it is judged by all, or a chain would break here
        if extras.only:
            flags |= ONLY
            table.only[sequence] = extras.only
        event, reason = self._dependencies.evaluate(queue, flags, parents)
        dies = event is MessageEvent.ENDED_DEAD
        if dies:
            event = MessageEvent.BLOCKED
        if extras.due_us:  # whether it is over the clock alone says, never the record's time (RULES 25)
            event = MessageEvent.DELAYED
            self._state.timers.add(extras.due_us, DUE, sequence)
        queue_state.waiting += 1
        table.accept(sequence, queue, flags, left, event, (*parents, chain | KEY_EDGE) if chain else parents)
        if extras.expires_us:
            self._state.wake_at(extras.expires_us, EXPIRES, sequence)
        if dies:
            self._dependencies.force_end(sequence, Outcome.DEAD, reason)
        elif event is MessageEvent.PARENT_BAD:
            self._dependencies.hold(sequence)
        elif event is MessageEvent.RELEASED and left == 0:
            if parents or carried:
                # By a row, as where its parents end later: recovery may know already of a parent that had not ended
                # when this was published or carried, and by the row that is still to come this one was cancelled.
                self._dependencies.force_end(sequence, Outcome.SKIPPED, Reason.NONE)
            else:
                self._dependencies.end(sequence, MessageEvent.SKIPPED)
        else:
            self._dependencies.wait_on_ended(sequence)

    def _prerequisites(
        self, sequence: int, attributes: Attributes, extras: Extras, *, has_key: bool
    ) -> tuple[tuple[int, ...], int, int]:
        """Parents that are not complete, the chain of its key (0: none), and the flags that go with them. (A message
        that nobody gets keeps no other of its key back.)"""
        table = self._state.table
        flags = int(attributes.parent_failure) << POLICY_SHIFT | (SAME if attributes.scope is Scope.SAME else 0)
        parents = self._open_parents(extras.parents)
        chain = self._state.keys.add(attributes.queue, extras.key, sequence) if has_key else 0
        if chain or (flags & SAME and any(table.queue(parent) == attributes.queue for parent in parents)):
            flags |= PER_SUBSCRIBER
        return parents, chain, flags

    def _open_parents(self, parents: tuple[MessageId, ...]) -> tuple[int, ...]:
        """The parents that are not complete. Lines of a batch often have all parents in common, so the next one looks
        only at those that were open for the one before: what is complete stays so while messages are published."""
        state, before = self._state.table.state, self._open_before
        known = before[1]
        if parents != before[0]:
            known = tuple(dict.fromkeys([sequence_of(parent) for parent in parents]))
        found = tuple([parent for parent in known if state(parent) is not MessageState.COMPLETE])
        self._open_before = (parents, found)
        return found

    def carried(self, fact: Carried) -> None:
        """A message whose own record is gone: its row as it stood. Known already while the record was there."""
        message = fact.message
        queue_state = self._state.queues.get(message.queue)
        if queue_state is None or self._state.table.knows(message.sequence):
            return
        self._open_before = ((), ())
        queue_state.last_sequence = max(queue_state.last_sequence, message.sequence)  # or it would be told to nobody
        ended = dict(fact.ended)
        counted = [
            cursor
            for cursor in queue_state.cursors
            if cursor.counts(message.sequence) and message.only in (0, cursor.subscriber.number)
        ]
        open_at = [cursor for cursor in counted if cursor.subscriber.number not in ended]
        if queue_state.sizes is not None:
            queue_state.sizes.lacks(message.sequence, message.sequence)
            if message.content:
                queue_state.sizes.add(message.sequence, len(message.content))
        # A delay that is over is so as soon as the scheduler is told the time.
        one = Messages.of(message)
        self._enter(message.sequence, one.attributes_at(0), one.extras_at(0), queue_state, len(open_at), carried=True)
        for cursor in counted:
            cursor.remember(message.sequence)
        for cursor in open_at:
            cursor.block(message.sequence)
        for number, outcome in fact.ended:
            self._ended_before(message.sequence, number, outcome, queue_state)
        for tried in fact.tried:
            cursor_tried = self._state.cursors.get(tried.subscriber)
            if cursor_tried is not None and tried.subscriber not in ended:
                self._state.try_again(cursor_tried, message.sequence, TriedState(tried.attempts, tried.due_us))
        if self._state.table.state(message.sequence) is MessageState.PENDING:
            self._dependencies.gate_opened(message.sequence)
        self._carried_apart(message, ended, queue_state)

    def _carried_apart(self, message: StoredMessage, ended: Collection[int], queue_state: QueueState) -> None:
        """Tell those whom it does not count, where it has not ended. Who is still to be told of it is so later, and of
        what it has come to there nothing else tells."""
        parents = tuple(map(sequence_of, message.parents))
        for cursor in queue_state.everybody:
            if cursor.counts(message.sequence) or message.only not in (0, cursor.number):
                continue
            if cursor.history_done and not cursor.is_counted:
                # At a start from a log that has it no more this is all that tells of it.
                cursor.history_after = max(cursor.history_after, message.sequence)
            is_told = cursor.backfill_covers(message.sequence)
            if cursor.number in ended:
                if not is_told:
                    cursor.history_taken.add(message.sequence)
                continue
            if message.sequence in cursor.retrying:
                cursor.history_taken.add(message.sequence)
            if is_told:
                self._backfill.take_up(cursor, message.sequence, parents, message.key)

    def _ended_before(self, sequence: int, number: int, outcome: Outcome, queue_state: QueueState) -> None:
        """A delivery of a carried message had ended. Where its row is still in the log, that says why."""
        known = self._state.cursors.get(number)
        if known is not None and outcome is Outcome.SKIPPED:
            known.skipped.add(sequence)
        elif known is not None and not known.counts(sequence):
            if outcome is Outcome.DEAD:
                known.dead[sequence] = Reason.NONE
                queue_state.dead += 1
        elif outcome is Outcome.EXPIRED:
            self._state.table.mark(sequence, HAS_EXPIRED)
        elif outcome is Outcome.DEAD:
            self._state.table.mark(sequence, HAS_DEAD)
            cursor = self._state.cursors.get(number)
            if cursor is not None:
                cursor.dead[sequence] = Reason.NONE
                queue_state.dead += 1


def _size_up(queue_state: QueueState, messages: Messages, first: int, count: int) -> None:
    """Note how large the contents of these are, where the queue bounds that."""
    sizes = queue_state.sizes
    if sizes is None:
        return
    start = first - messages.sequence
    if messages.contents:
        sizes.add_run(first, [len(content) for content in messages.contents[start : start + count]])
    elif messages.sizes:
        sizes.add_run(first, array("I", messages.sizes[4 * start : 4 * (start + count)]))
    else:
        sizes.lacks(first, first + count - 1)
