"""An operator's replay (RULES 21): messages that have ended, delivered again in causal order.

It lies over the table and does not touch it: a message that was complete stays complete for everyone outside, one
that was dead is mended when the last of its deliveries has come through. Inside, a message goes out when its parents
in the same replay have ended; one on hold whose parent failed there again goes when a later replay mends that. A long
replay is written in slices, and what is in the first may have ended, also badly, before its children are in the log.
"""

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import Final

from syncbrok.delivery.scheduler.backfill import Backfill
from syncbrok.delivery.scheduler.cursor import Cursor, TriedState
from syncbrok.delivery.scheduler.dependencies import DependencyTracker
from syncbrok.delivery.scheduler.edges import IN_REPLAY
from syncbrok.delivery.scheduler.lifecycle import MessageEvent, MessageState
from syncbrok.delivery.scheduler.message_table import ENDING
from syncbrok.delivery.scheduler.state import (
    HOLD_OVER,
    ForcedEnd,
    QueueState,
    ReplayEntry,
    ReplayProgress,
    SchedulerState,
    is_at,
)
from syncbrok.model.facts import JobChanged, Outcome, Rearmed, RearmedEntry, Reason, Row
from syncbrok.model.message import ParentFailure

_WELL: Final = (Outcome.DROPPED, Reason.CANCELLED)
"""the end of a second delivery that is taken back, where the first one went well: it stays delivered"""
_LOST: Final = (Outcome.DROPPED, Outcome.EXPIRED)
ENDED_AS: Final = {MessageState.EXPIRED: Outcome.EXPIRED, MessageState.DROPPED: Outcome.DROPPED}
_NOBODY_LEFT: Final = 0
"""stands for those at whom a message failed, where none of them is there any more"""


class Replays:
    """Owns ``state.replays``, the edges of scope ``IN_REPLAY`` and ``state.ended_again``."""

    def __init__(
        self, state: SchedulerState, dependencies: DependencyTracker, backfill: Backfill, hold_max_us: int
    ) -> None:
        self._state = state
        self._dependencies = dependencies
        self._backfill = backfill
        self._hold_max_us = hold_max_us

    def rearm(self, fact: Rearmed) -> None:
        state = self._state
        if fact.replay > state.replay_number:
            state.replay_number = fact.replay
            state.ended_again.clear()
        for armed in fact.entries:
            self._arm(armed, fact.replay)

    def _arm(self, armed: RearmedEntry, number: int) -> None:
        state = self._state
        queue_state = state.queues.get(armed.queue)
        left = {subscriber for subscriber in armed.subscribers if subscriber in state.cursors}
        if queue_state is None or not left or self._is_gone(armed.message):
            return
        tried = dict(zip(armed.subscribers, armed.attempts, strict=False))
        # One that was out when its message was cancelled may be out still, and its answer is late.
        attempts = {
            subscriber: max(tried.get(subscriber, 0), state.cursors[subscriber].in_flight.get(armed.message, 0))
            for subscriber in left
        }
        over = {parent: failed for parent in armed.parents if (failed := self._failed_by_now(parent))}
        waiting: dict[int, set[int]] = {
            parent: set()
            for parent in armed.parents
            if parent in over or parent in state.replays or state.table.state(parent) < MessageState.COMPLETE
        }
        entry = ReplayEntry(number, armed.queue, left, attempts, waiting, armed.parent_failure, armed.key)
        self._taken_over(armed.message, number)
        entry.before = self._before(armed.message, queue_state, left)
        state.replays[armed.message] = entry
        state.table.find(armed.message, left)
        for subscriber in left:
            state.cursors[subscriber].dead.pop(armed.message)
        died = queue_state.cascaded.pop(armed.message, None)
        if died is not None:
            at = died[1] if died[1] is not None else self._counted(armed.message, armed.queue)
            remaining = tuple(subscriber for subscriber in at if subscriber not in left)
            if remaining:
                queue_state.cascaded[armed.message] = (died[0], remaining)
        for parent in waiting.keys() - over.keys():
            state.edges.add(IN_REPLAY, parent, armed.message)
        if not waiting:
            self._release(armed.message, entry)
        for parent, failed in over.items():
            self._parent_finished(armed.message, entry, parent, failed, frozenset())

    def _taken_over(self, sequence: int, number: int) -> None:
        """The message belongs to replay ``number`` from now on, and to none before it."""
        armed, before = self._state.progress.get(number), self._state.replays.get(sequence)
        if before is not None and before.number == number:
            return
        if armed is not None:
            armed.total += 1
            armed.left.add(sequence)
        if before is not None:
            self._ended_in(before, sequence, well=False)

    def _before(self, sequence: int, queue_state: QueueState, left: set[int]) -> dict[int, tuple[Outcome, Reason]]:
        """See ``ReplayEntry.before``."""
        state = self._state
        before = dict(state.replays[sequence].before) if sequence in state.replays else {}
        died, bad = queue_state.cascaded.get(sequence), state.table.bad.get(sequence)
        for number in left:
            cursor = state.cursors[number]
            reason = cursor.dead.get(sequence)
            if reason is None and died is not None and is_at(cursor, sequence, died):
                reason = died[0]
            if reason is not None:
                before[number] = Outcome.DEAD, reason
            elif bad is not None and number in bad.lost:
                before[number] = ENDED_AS.get(bad.state, Outcome.DROPPED), bad.reason
        return before

    def job(self, fact: JobChanged) -> None:
        """Count how far the replay of a job comes, until the job is over."""
        if not fact.replay:
            return
        if fact.state.is_over:
            self._state.progress.pop(fact.replay, None)
            return
        self._state.replay_number = max(self._state.replay_number, fact.replay)
        self._state.progress.setdefault(fact.replay, ReplayProgress(fact.total, fact.done, fact.failed))

    def _failed_by_now(self, parent: int) -> AbstractSet[int]:
        """The subscribers at which a parent has ended badly already, for which a message of the replay waits: in an
        earlier slice of the replay, or, outside of it, after the plan was made."""
        state = self._state
        if parent in state.replays:
            return frozenset()
        if parent in state.ended_again:
            return state.ended_again[parent]
        bad = state.table.bad.get(parent)
        return frozenset() if bad is None else self._still_bad(parent, bad.queue) or {_NOBODY_LEFT}

    def discarded(self, sequence: int) -> None:
        """A dead letter of the message has been dropped. Where it was the last, no replay will mend the message: what
        is on hold for it dies."""
        edges, queue_state = self._state.edges, self._state.queues.get(self._state.queue_of(sequence))
        if queue_state is None or (sequence not in edges.on_hold and sequence not in edges.in_replay):
            return
        died = queue_state.cascaded.get(sequence)
        for cursor in queue_state.everybody:
            if sequence in cursor.dead or (died is not None and is_at(cursor, sequence, died)):
                return
        self._dependencies.in_slices(self._give_up_holds(sequence))

    def _give_up_holds(self, parent: int) -> Iterator[None]:
        state = self._state
        for child in list(state.edges.on_hold.get(parent, ())):
            if state.table.state(child) is MessageState.HELD and not state.table.flags(child) & ENDING:
                self._dependencies.force_end(child, Outcome.DEAD, Reason.PARENT_FAILED)
            yield
        for child in list(state.edges.in_replay.get(parent, ())):
            entry = state.replays.get(child)
            if entry is not None and parent in entry.held:
                state.pending_ends.append(ForcedEnd(child, Outcome.DEAD, Reason.PARENT_FAILED, entry.number))
            yield

    def _is_gone(self, sequence: int) -> bool:
        bad = self._state.table.bad.get(sequence)
        return bad is not None and bad.is_gone

    def row(self, row: Row, cursor: Cursor, entry: ReplayEntry) -> None:
        """A row of a delivery in a replay."""
        if not row.attempt and row.message in cursor.in_flight:
            self._state.give_up(cursor, (row.message,))  # it went out while its end was on its way
        if row.outcome is Outcome.FAILED:
            if row.message in cursor.in_flight or row.message in cursor.unconfirmed:
                return  # a later attempt is out already, or has been answered
            tried = cursor.retrying.get(row.message)
            if tried is None or tried.attempts < row.attempt:
                before = entry.attempts.get(row.subscriber, 0)
                first_us = row.time_us if tried is None else tried.first_us
                self._state.try_again(cursor, row.message, TriedState(row.attempt, row.due_us, before, first_us))
            return
        self._state.confirm(cursor, row.message)
        self._end_at(row.message, entry, cursor)
        cursor.note_skipped(row.message, is_skipped=row.outcome is Outcome.SKIPPED)
        if row.outcome is Outcome.DEAD:
            cursor.dead[row.message] = row.reason
            if cursor.is_counted:
                entry.failed.add(row.subscriber)
        elif row.outcome in _LOST and row.outcome is entry.before.get(row.subscriber, _WELL)[0]:
            entry.failed.add(row.subscriber)
            if row.message in self._state.table.bad:
                self._state.table.lose(row.message, (row.subscriber,))
        self._backfill.ended(cursor, row.message)
        if not entry.left:
            self._finish(row.message, entry)

    def end_all(self, row: Row, entry: ReplayEntry) -> None:
        """A row that ends what is left of a message in a replay."""
        for number in list(entry.left):
            cursor = self._state.cursors.get(number)
            if cursor is None:
                continue
            self._state.confirm(cursor, row.message)
            self._backfill.ended(cursor, row.message)
            if not cursor.is_counted:
                self._end_at(row.message, entry, cursor)
                if row.outcome is Outcome.DEAD:
                    cursor.dead[row.message] = row.reason
        entry.failed |= entry.left
        queue_state = self._state.queues.get(entry.queue)
        if queue_state is not None and row.outcome is Outcome.DEAD and entry.left:
            _, others = queue_state.cascaded.get(row.message, (row.reason, ()))  # whom this replay was not for
            queue_state.cascaded[row.message] = (row.reason, (*(others or ()), *sorted(entry.left)))
        elif row.message in self._state.table.bad:
            # Or a later replay to others would mend it, and what is on hold for it went out early.
            self._state.table.lose(row.message, entry.left)
        for number in list(entry.left):
            known = self._state.cursors.get(number)
            if known is not None:
                self._end_at(row.message, entry, known)
        self._finish(row.message, entry)

    def _end_at(self, sequence: int, entry: ReplayEntry, cursor: Cursor) -> None:
        """Note that it has ended again at this subscriber: the next of its key may go there."""
        self._state.replays.end_at(sequence, cursor.number)
        self._dependencies.go_on((cursor,), None, entry.key)

    def lost_subscriber(self, number: int) -> None:
        """A subscriber has been deleted."""
        for sequence, entry in list(self._state.replays.items()):
            if number in entry.left:
                self._state.replays.end_at(sequence, number)
                if not entry.left:
                    self._finish(sequence, entry)

    def _finish(self, sequence: int, entry: ReplayEntry) -> None:
        state = self._state
        del state.replays[sequence]
        for parent in entry.waiting:
            state.edges.discard(IN_REPLAY, parent, sequence)
        state.asked.pop(sequence, None)
        self._ended_in(entry, sequence, well=not entry.failed)
        if sequence in state.watched:
            state.watched.discard(sequence)
            state.watched_ended.append(sequence)
        if not entry.failed and sequence in state.table.bad and not self._still_bad(sequence, entry.queue):
            state.table.change(sequence, MessageEvent.MENDED)
            self._backfill.mended(sequence, entry.queue)
        if entry.number == state.replay_number and (entry.failed or sequence in state.table.bad):
            state.ended_again[sequence] = entry.failed
        reached = entry.attempts.keys() - entry.failed
        if sequence not in state.table.bad:
            reached.add(_NOBODY_LEFT)
        self._notify_dependents(sequence, entry.failed, reached)
        self._dependencies.replayed(sequence)
        self._dependencies.parent_ended(sequence, state.table.first_child(sequence))

    def _ended_in(self, entry: ReplayEntry, sequence: int, *, well: bool) -> None:
        """The message has ended in the replay, or belongs to another one now."""
        progress = self._state.progress.get(entry.number)
        if progress is not None:
            progress.done += well
            progress.failed += not well
            progress.left.discard(sequence)
            self._state.has_progressed = True

    def withdrawable(self, number: int, below: int, most: int) -> tuple[list[Row], int]:
        """The rows, but for their times, that take back what a replay has not sent yet, of at most ``most`` messages
        below a sequence, and the lowest of those, 0 where there are no more. Each delivery ends as it had ended before.
        Children come before their parents, so that none is told of an end that it does not depend on."""
        state, rows = self._state, list[Row]()
        progress = state.progress.get(number)
        some = [] if progress is None else progress.left.before(below, most)
        for sequence in some:
            entry = state.replays[sequence]
            for subscriber in sorted(entry.left):
                cursor = state.cursors.get(subscriber)
                if cursor is None or not self._is_unsent(sequence, cursor, entry):
                    continue
                outcome, reason = entry.before.get(subscriber, _WELL)
                if outcome is _WELL[0] and sequence in cursor.skipped:
                    outcome, reason = Outcome.SKIPPED, Reason.CANCELLED
                rows.append(Row(sequence, subscriber, 0, outcome, reason, 0, 0, 0, 0, 0))
        return rows, some[-1] if some else 0

    def _is_unsent(self, sequence: int, cursor: Cursor, entry: ReplayEntry) -> bool:
        tried = cursor.retrying.get(sequence)
        sent = tried is not None and tried.attempts > entry.attempts.get(cursor.number, 0)
        return not sent and sequence not in cursor.in_flight and sequence not in cursor.unconfirmed

    def prerequisite_ended(self, prerequisite: int) -> None:
        """A message outside the replays, that some inside wait for, has ended for the first time."""
        bad = self._state.table.bad.get(prerequisite)
        failed = set() if bad is None else self._still_bad(prerequisite, bad.queue) or {_NOBODY_LEFT}
        self._notify_dependents(prerequisite, failed, frozenset())

    def _notify_dependents(self, parent: int, failed: AbstractSet[int], reached: AbstractSet[int]) -> None:
        """``_parent_finished`` for all that wait for it, in slices."""
        if parent in self._state.edges.in_replay:
            dependents, newest = self._state.edges.take(IN_REPLAY, parent), self._state.replay_number
            self._dependencies.in_slices(self._finish_parent(dependents, newest, parent, failed, reached))

    def _finish_parent(
        self, dependents: Iterable[int], newest: int, parent: int, failed: AbstractSet[int], reached: AbstractSet[int]
    ) -> Iterator[None]:
        for dependent in dependents:
            entry = self._state.replays.get(dependent)
            if entry is not None and entry.number <= newest:  # else another replay has taken it up meanwhile
                self._parent_finished(dependent, entry, parent, failed, reached)
            yield

    def _parent_finished(
        self, dependent: int, entry: ReplayEntry, parent: int, failed: AbstractSet[int], reached: AbstractSet[int]
    ) -> None:
        """The parent has ended, or ended again: badly at the subscribers ``failed``, well at those ``reached``."""
        if parent not in entry.waiting:
            return
        missing = (entry.waiting[parent] | failed) - reached
        if missing and entry.parent_failure is ParentFailure.FAIL:
            self._state.pending_ends.append(ForcedEnd(dependent, Outcome.DEAD, Reason.PARENT_FAILED, entry.number))
            return
        if missing and entry.parent_failure is ParentFailure.HOLD:
            self._hold(dependent, entry, parent, missing)
            return
        del entry.waiting[parent]
        if not entry.waiting:
            self._release(dependent, entry)

    def _hold(self, sequence: int, entry: ReplayEntry, parent: int, missing: set[int]) -> None:
        """Until the parent is replayed again and goes well where it failed, or the hold is over (RULES 12)."""
        if not entry.held:
            entry.hold_over_us = self._state.moment_us + self._hold_max_us
            self._state.timers.add(entry.hold_over_us, HOLD_OVER, sequence)
        entry.waiting[parent] = missing
        self._state.edges.add(IN_REPLAY, parent, sequence)

    def _release(self, sequence: int, entry: ReplayEntry) -> None:
        """Let it go again, to whom it is still to go: there it had ended, and begins as one that was blocked."""
        for number in entry.left:
            cursor = self._state.cursors.get(number)
            if cursor is not None:
                cursor.block(sequence)
                self._dependencies.release((sequence,), (cursor,))

    def _still_bad(self, sequence: int, queue: int) -> set[int]:
        """The subscribers that are still there and have not got a message that ended badly."""
        queue_state = self._state.queues.get(queue)
        if queue_state is None:
            return set()
        _, at = queue_state.cascaded.get(sequence, (None, ()))
        missed = {*(self._counted(sequence, queue) if at is None else at), *self._state.table.bad[sequence].lost}
        missed &= self._state.cursors.keys()
        return missed | {cursor.subscriber.number for cursor in queue_state.cursors if sequence in cursor.dead}

    def _counted(self, sequence: int, queue: int) -> tuple[int, ...]:
        return tuple(c.subscriber.number for c in self._state.queues[queue].cursors if c.counts(sequence))
