"""A subscriber that starts in the past: what came before it, told from the log, takes its place in the cursor. Pure."""

from syncbrok.delivery.scheduler.cursor import Cursor
from syncbrok.delivery.scheduler.dependencies import DependencyTracker
from syncbrok.delivery.scheduler.lifecycle import OF_A_PARENT, MessageState
from syncbrok.delivery.scheduler.message_table import ONLY
from syncbrok.delivery.scheduler.state import SchedulerState


class Backfill:
    """Messages from before a subscriber's time, and those of its that wait for one another there."""

    def __init__(self, state: SchedulerState, dependencies: DependencyTracker) -> None:
        self._state = state
        self._dependencies = dependencies

    def take_up(self, cursor: Cursor, sequence: int, parents: tuple[int, ...]) -> None:
        """A message from before the subscriber's time: it goes when it could go to anybody, after its parents here.

        Messages that nobody was to get any more (cancelled, expired, dead of a parent) are passed by, until a replay
        mends them.
        """
        if cursor.history_taken and cursor.history_taken.discard(sequence):
            return
        table = self._state.table
        bad = table.bad.get(sequence)
        if bad is not None and (bad.state is not MessageState.DEAD or bad.reason in OF_A_PARENT):
            cursor.passed[sequence] = parents
            return
        if table.flags(sequence) & ONLY:
            return
        cursor.block(sequence)
        leader = self._leader(cursor, sequence, parents)
        if leader:
            cursor.behind.setdefault(leader, []).append((sequence, parents))
            self._follow(cursor, leader)
        else:
            self._dependencies.release((sequence,), (cursor,))

    def _leader(self, cursor: Cursor, sequence: int, parents: tuple[int, ...]) -> int:
        """The message that must end before ``sequence`` may go to this subscriber; 0 when it may go now.

        Normally that is an unfinished parent. It is the message itself while its own gate is shut. It is a parent again
        when the message has ended before its parents, because all subscribers that it counted are deleted."""
        table = self._state.table
        waits_here = [parent for parent in parents if not cursor.finished(parent)]
        if waits_here:
            return waits_here[-1]
        state = table.state(sequence)
        if state < MessageState.COMPLETE:
            return 0 if state is MessageState.PENDING and self._dependencies.open_at(sequence, cursor) else sequence
        return next((parent for parent in parents if table.state(parent) < MessageState.COMPLETE), 0)

    def _follow(self, cursor: Cursor, leader: int) -> None:
        if self._state.table.state(leader) < MessageState.COMPLETE:
            self._state.latecomers.setdefault(leader, []).append(cursor.number)

    def restored(self) -> None:
        """The cursors have come out of a checkpoint."""
        for cursor in self._state.cursors.values():
            for leader in cursor.behind:
                self._follow(cursor, leader)

    def leader_ended(self, sequence: int) -> None:
        """A message has ended everywhere."""
        for number in self._state.latecomers.pop(sequence, ()):
            cursor = self._state.cursors.get(number)
            if cursor is not None:
                self.ended(cursor, sequence)

    def mended(self, sequence: int, queue: int) -> None:
        """A replay has made a message complete: those who passed it by are to get it after all."""
        queue_state = self._state.queues.get(queue)
        for cursor in queue_state.cursors if queue_state is not None else ():
            parents = cursor.passed.pop(sequence, None) if cursor.passed else None
            if parents is not None:
                self.take_up(cursor, sequence, parents)

    def ended(self, cursor: Cursor, sequence: int) -> None:
        """A message has ended at a subscriber that catches up: those behind it there may be next."""
        for child, parents in cursor.behind.pop(sequence, ()):
            if cursor.unblock(child):
                self.take_up(cursor, child, parents)
