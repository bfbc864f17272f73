"""Tells a subscriber message by message: one that starts in the past what came before it, to one that does
not count everything (RULES 3, 13, 14). Pure.

Both wait by themselves: for the parents to have ended there, for those of the same key before, and for the gate that
is one for all. Nobody waits for them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from syncbrok.delivery.scheduler.blockers import Blocker, Blockers
from syncbrok.delivery.scheduler.cursor import Cursor
from syncbrok.delivery.scheduler.dependencies import DependencyTracker
from syncbrok.delivery.scheduler.edges import HISTORY, Told
from syncbrok.delivery.scheduler.lifecycle import OF_A_PARENT, MessageState
from syncbrok.delivery.scheduler.message_table import ONLY
from syncbrok.delivery.scheduler.state import QueueState, SchedulerState
from syncbrok.model import limits
from syncbrok.model.facts import Messages
from syncbrok.model.names import sequence_of
from syncbrok.model.sequence_set import SequenceSet, as_range

_LINES_FEW: Final = 64
"""keys at a subscriber that are not worth tidying up"""


class Backfill:
    """Messages that come to a subscriber without counting it, and those of its that wait for one another there."""

    def __init__(self, state: SchedulerState, blockers: Blockers, dependencies: DependencyTracker) -> None:
        self._state = state
        self._blockers = blockers
        self._dependencies = dependencies

    def published(self, queue_state: QueueState, messages: Messages, first: int, following: int) -> None:
        """Tell those who do not count of new messages: of ``messages`` those from ``first`` to before ``following``,
        which are of the queue and in the table. Only who has been told everything so far is told them now; one that has
        too much to do lags from here on, and is told from the log what comes next."""
        for cursor in queue_state.uncounted:
            if cursor.history_done:
                self._take_up_new(cursor, messages, first, following)
                cursor.history_after = following - 1
                if len(cursor.eligible) > limits.uncounted_ahead_max or len(cursor.blocked) >= limits.window_max:
                    cursor.history_done = False
                self._state.activate(cursor)

    def _take_up_new(self, cursor: Cursor, messages: Messages, first: int, following: int) -> None:
        extras, told = messages.extras, first
        for sequence in range(first, following) if extras else ():
            more = extras.get(sequence - messages.sequence)
            if more is not None and more.decide_when:
                self.let_go(cursor, range(told, sequence))
                told = sequence + 1
                if more.only in (0, cursor.number):
                    self.take_up(cursor, sequence, tuple(map(sequence_of, more.parents)), more.key)
        self.let_go(cursor, range(told, following))

    def let_go(self, cursor: Cursor, messages: Sequence[int]) -> None:
        """Let go messages that wait for nobody."""
        if messages:
            told = as_range(messages)
            cursor.block_all(told)
            self._dependencies.release(told, (cursor,))

    def take_up(self, cursor: Cursor, sequence: int, parents: tuple[int, ...], key: str) -> None:
        """A message that does not count the subscriber: it goes when it could go to anybody, after its parents here and
        after those of its key here.

        Messages that nobody was to get any more (cancelled, expired, dead of a parent) are passed by, until a replay
        mends them.
        """
        if not self._take(cursor, sequence, parents, key):
            self.ended(cursor, sequence)

    def _take(self, cursor: Cursor, sequence: int, parents: tuple[int, ...], key: str) -> bool:
        """``take_up``; False where it is passed by, and those behind it there may be next."""
        if cursor.history_taken and cursor.history_taken.discard(sequence):
            if key and not cursor.finished(sequence):
                self._line_up(cursor, sequence, key)
            return True
        table = self._state.table
        bad = table.bad.get(sequence)
        if bad is not None and (bad.state is not MessageState.DEAD or bad.reason in OF_A_PARENT):
            cursor.passed[sequence] = parents, key
            return False
        if table.flags(sequence) & ONLY and table.only.get(sequence, cursor.number) != cursor.number:
            return True
        cursor.block(sequence)
        if key:
            self._line_up(cursor, sequence, key)
        blocker = self._blockers.uncounted(sequence, cursor, parents, key)
        if blocker is not None:
            self._state.edges.add(cursor.number, blocker.message, sequence, (parents, key))
        else:
            self._dependencies.release((sequence,), (cursor,))
        return True

    def pass_by(self, cursor: Cursor, sequence: int) -> None:
        """A message that was told, and not tried, is not to go to anybody any more. A replay may mend it; where it is
        told again, that is looked at then."""
        cursor.history_taken.discard(sequence)
        if sequence <= cursor.history_after:
            cursor.passed[sequence] = tuple(self._state.table.parents(sequence)), self._state.keys.key_of(sequence)

    def keep_back(self, cursor: Cursor, sequence: int, blocker: Blocker) -> None:
        """Block a message that is next there and may not go, until it is released."""
        cursor.block(sequence)
        if blocker.is_private:
            told: Told | None = None if blocker.message == HISTORY else ((), self._state.keys.key_of(sequence))
            self._state.edges.add(cursor.number, blocker.message, sequence, told)

    def _line_up(self, cursor: Cursor, sequence: int, key: str) -> None:
        lines = cursor.key_lines
        if len(lines) > _LINES_FEW and len(lines) > len(cursor.blocked) + len(cursor.eligible) + len(cursor.in_flight):
            lines.tidy(cursor.finished)
        lines.add(key, sequence)

    def waiting_for_history(self, cursor: Cursor) -> int:
        """How many are blocked until the subscriber has been told all."""
        return len(self._state.edges.of(cursor.number).get(HISTORY, ()))

    def history_complete(self, cursor: Cursor) -> None:
        """The subscriber has been told all that there is to tell."""
        cursor.history_done = True
        if not cursor.is_counted:
            cursor.history_taken = SequenceSet()
        self.ended(cursor, HISTORY)

    def stop_counting(self, old: Cursor, new: Cursor) -> None:
        """The subscriber of the cursors counts no more: what it had yet to come to it is told from the log, what it
        had come to is not told again, and what was blocked there waits by itself."""
        if old.history_done:
            new.history_after = old.scanned_through
        else:
            new.history_taken.update(range(old.since + 1, old.scanned_through + 1))
        new.history_taken.update(list(old.ended_out_of_order))
        new.history_done = False
        for sequence in filter(old.counts, old.in_flight):
            if self._state.table.state(sequence) >= MessageState.COMPLETE and not self._state.replays.goes_to(
                sequence, old.number
            ):
                new.take_back(sequence)  # it has been cancelled, or has expired: its answer is late
        if not old.history_done:
            self._tell_again(old, new)
        # What is out, or is tried again, or has ended and not durably, keeps back what comes after it.
        for sequence in (*new.untaken(self._state.table.newest), *new.unconfirmed):
            key = self._state.keys.key_of(sequence)
            if key:
                self._line_up(new, sequence, key)
        if old.history_done:
            self._judge_anew(new)

    def _tell_again(self, old: Cursor, new: Cursor) -> None:
        """Have the subscriber told again, in order, behind its past, of what has not been tried: nobody knows yet what
        of that past comes before it."""
        again = {one for one in (*old.blocked, *old.eligible) if old.counts(one) and one not in self._state.replays}
        self._state.edges.forget_dependents(new.number, again)
        for sequence in again:
            new.tell_again(sequence)

    def _judge_anew(self, new: Cursor) -> None:
        """Let wait by itself what has not been tried, though its gate for those that count may be open."""
        waiting = {one for children in self._state.edges.of(new.number).values() for one in children}
        keys, parents = self._state.keys, self._state.table.parents
        free = [one for one in new.eligible if keys.key_of(one) or parents(one)]
        for sequence in sorted((*new.blocked, *free)):
            if sequence not in waiting and sequence not in self._state.replays:
                new.tell_again(sequence)
                self._take_up_unended(new, sequence)

    def _take_up_unended(self, cursor: Cursor, sequence: int) -> None:
        """``take_up`` of a message that has not ended, by what is known of it."""
        self.take_up(cursor, sequence, tuple(self._state.table.parents(sequence)), self._state.keys.key_of(sequence))

    def drop_through(self, cursor: Cursor, through: int) -> None:
        """The records of ended messages up to there go: what the subscriber had not taken of them, and does not count
        it, has ended there. What has not ended is carried along, and is told now where it was not yet."""
        table = self._state.table
        last = min(through, cursor.since)
        if not cursor.history_done and cursor.history_after < last:
            untold = list(table.waiting(cursor.queue, cursor.history_after + 1, last))
            cursor.history_after = last
            for sequence in untold:
                if cursor.backfill_covers(sequence):
                    self._take_up_unended(cursor, sequence)
        for sequence in cursor.untaken(last):
            if table.state(sequence) >= MessageState.COMPLETE and sequence not in self._state.replays:
                if sequence in cursor.in_flight:
                    self._state.give_up(cursor, (sequence,))
                    cursor.take_back(sequence)
                self._state.confirm(cursor, sequence)
                self.ended(cursor, sequence)
        for sequence in [one for one in cursor.passed if one <= through]:
            del cursor.passed[sequence]
        self._state.activate(cursor)  # what was out there took room

    def pass_over(self, cursor: Cursor, through: int) -> None:
        """An operator lets the subscriber pass over what it has not been told of up to there."""
        if cursor.history_done or cursor.history_after >= through:
            return
        last = min(through, cursor.since) if cursor.is_counted else through
        cursor.skipped.update(range(cursor.history_after + 1, last + 1))
        cursor.history_after = max(cursor.history_after, last)
        for sequence in [one for one in cursor.passed if one <= through]:
            del cursor.passed[sequence]
        self._state.activate(cursor)

    def untaken(self, cursor: Cursor, through: int) -> bool:
        """Whether ``drop_through`` would end anything."""
        if cursor.is_counted and cursor.subscriber.settings.start is None:
            return False  # nothing comes to it that does not count it; what waits at it may be many
        table, last = self._state.table, min(through, cursor.since)
        if not cursor.history_done and cursor.history_after < min(last, self._state.queues[cursor.queue].last_sequence):
            return True
        return any(table.state(sequence) >= MessageState.COMPLETE for sequence in cursor.untaken(last))

    def prerequisite_ended(self, sequence: int) -> None:
        """A message has ended everywhere, or may go now."""
        for number in tuple(self._state.edges.subscribers.get(sequence, ())):
            cursor = self._state.cursors.get(number)
            if cursor is not None:
                self.ended(cursor, sequence)

    def mended(self, sequence: int, queue: int) -> None:
        """A replay has made a message complete: those who passed it by are to get it after all."""
        queue_state = self._state.queues.get(queue)
        for cursor in queue_state.everybody if queue_state is not None else ():
            told = cursor.passed.pop(sequence, None) if cursor.passed else None
            if told is not None:
                self.take_up(cursor, sequence, *told)

    def ended(self, cursor: Cursor, sequence: int) -> None:
        """A message has ended at a subscriber, or everywhere: those behind it there may be next."""
        if sequence in self._state.edges.of(cursor.number):
            self._dependencies.in_slices(self._go_on_behind(cursor.number, sequence))

    def _go_on_behind(self, number: int, sequence: int) -> Iterator[None]:
        over = [sequence]
        while over and number in self._state.cursors:  # no recursion: a thousand cancelled ones may stand in a row
            for child, told in self._state.edges.take(number, over.pop()).items():
                cursor = self._state.cursors.get(number)  # between two steps it may go, or count no more
                if cursor is None:
                    return
                if cursor.counts(child) or self._state.replays.goes_to(child, number):
                    self._dependencies.release((child,), (cursor,))  # looked at again where it is taken
                elif cursor.unblock(child) and not self._take(cursor, child, *(told or ((), ""))):
                    over.append(child)
                yield

    def feed(self, cursor: Cursor, messages: Iterable[tuple[int, tuple[int, ...]]], keys: Mapping[int, str]) -> None:
        """Messages (sequence, parents' sequences) as the log has them, in order."""
        bad, chunk, taken = self._state.table.bad, self._state.table.chunk, cursor.history_taken
        free: list[int] = []
        for sequence, parents in messages:
            cursor.history_after = sequence
            if parents or sequence in keys or chunk(sequence) is not None or sequence in bad or sequence in taken:
                self.let_go(cursor, free)
                free = []
                self.take_up(cursor, sequence, parents, keys.get(sequence, ""))
            else:
                free.append(sequence)
        self.let_go(cursor, free)
