"""An operator's replay (RULES 21): messages that have ended, delivered again in causal order.

It lies over the ledger and does not touch it: a message that was complete stays complete for everyone outside, one
that was dead is mended when the last of its deliveries has come through. Inside, a message goes out when its parents
in the same replay have ended; one on hold whose parent failed there again goes when a later replay mends that. A long
replay is written in slices, and what is in the first may have ended, also badly, before its children are in the log.
"""

from collections.abc import Set as AbstractSet
from typing import Final

from syncbrok.delivery.books import HOLD_OVER, Books, Doomed, ReplayEntry
from syncbrok.delivery.catching_up import CatchingUp
from syncbrok.delivery.cursor import Cursor, TriedState
from syncbrok.delivery.gates import Gates
from syncbrok.delivery.lifecycle import MessageEvent, MessageState
from syncbrok.model.facts import Outcome, Rearmed, RearmedEntry, Reason, Row
from syncbrok.model.message import ParentFailure

_NOBODY_LEFT: Final = 0
"""stands for those at whom a message failed, where none of them is there any more"""


class Replays:
    """Owns ``books.replays``, ``books.followers`` and ``books.ended_again``."""

    def __init__(self, books: Books, gates: Gates, catching_up: CatchingUp, hold_max_us: int) -> None:
        self._books = books
        self._gates = gates
        self._catching_up = catching_up
        self._hold_max_us = hold_max_us

    def rearm(self, fact: Rearmed) -> None:
        books = self._books
        if fact.replay > books.replay_number:
            books.replay_number = fact.replay
            books.ended_again.clear()
        for armed in fact.entries:
            self._arm(armed, fact.replay)

    def _arm(self, armed: RearmedEntry, number: int) -> None:
        books = self._books
        book = books.queues.get(armed.queue)
        left = {subscriber for subscriber in armed.subscribers if subscriber in books.cursors}
        if book is None or not left or self._is_gone(armed.message):
            return
        tried = dict(zip(armed.subscribers, armed.attempts, strict=False))
        # One that was out when its message was cancelled may be out still, and its answer is late.
        attempts = {
            subscriber: max(tried.get(subscriber, 0), books.cursors[subscriber].flight.get(armed.message, 0))
            for subscriber in left
        }
        over = {parent: failed for parent in armed.parents if (failed := self._failed_by_now(parent))}
        waiting = {
            parent
            for parent in armed.parents
            if parent in over or parent in books.replays or books.ledger.state(parent) < MessageState.COMPLETE
        }
        entry = ReplayEntry(number, armed.queue, left, attempts, waiting, armed.parent_failure)
        books.replays[armed.message] = entry
        books.ledger.find(armed.message, left)
        for subscriber in left:
            books.cursors[subscriber].dead.pop(armed.message, None)
        died = book.cascaded.pop(armed.message, None)
        if died is not None:
            at = died[1] if died[1] is not None else self._counted(armed.message, armed.queue)
            remaining = tuple(subscriber for subscriber in at if subscriber not in left)
            if remaining:
                book.cascaded[armed.message] = (died[0], remaining)
        for parent in waiting - over.keys():
            books.followers.setdefault(parent, {})[armed.message] = None
        if not waiting:
            self._release(armed.message, entry)
        for parent, failed in over.items():
            self._parent_finished(armed.message, parent, failed, frozenset())

    def _failed_by_now(self, parent: int) -> AbstractSet[int]:
        """At whom a parent that a message of the replay waits for has ended badly already: in an earlier slice of the
        replay, or, outside of it, after the plan was made."""
        books = self._books
        if parent in books.replays:
            return frozenset()
        if parent in books.ended_again:
            return books.ended_again[parent]
        bad = books.ledger.bad.get(parent)
        return frozenset() if bad is None else self._still_bad(parent, bad.queue) or {_NOBODY_LEFT}

    def _is_gone(self, sequence: int) -> bool:
        bad = self._books.ledger.bad.get(sequence)
        return bad is not None and bad.is_gone

    def row(self, row: Row, cursor: Cursor, entry: ReplayEntry) -> None:
        """A row of a delivery in a replay."""
        if row.outcome is Outcome.FAILED:
            if row.message in cursor.flight or row.message in cursor.unconfirmed:
                return  # a later attempt is out already, or has been answered
            tried = cursor.tried.get(row.message)
            if tried is None or tried.attempts < row.attempt:
                before = entry.attempts.get(row.subscriber, 0)
                self._books.try_again(cursor, row.message, TriedState(row.attempt, row.due_us, before))
            return
        self._books.confirm(cursor, row.message)
        entry.left.discard(row.subscriber)
        if row.outcome is Outcome.DEAD:
            entry.failed.add(row.subscriber)
            cursor.dead[row.message] = row.reason
        if not entry.left:
            self._finish(row.message, entry)

    def end_all(self, row: Row, entry: ReplayEntry) -> None:
        """A row that ends what is left of a message in a replay."""
        for number in entry.left:
            cursor = self._books.cursors.get(number)
            if cursor is not None:
                self._books.confirm(cursor, row.message)
        entry.failed |= entry.left
        book = self._books.queues.get(entry.queue)
        if book is not None and row.outcome is Outcome.DEAD:
            _, others = book.cascaded.get(row.message, (row.reason, ()))  # whom this replay was not for
            book.cascaded[row.message] = (row.reason, (*(others or ()), *sorted(entry.left)))
        elif row.message in self._books.ledger.bad:
            # Or a later replay to others would mend it, and what is on hold for it went out early.
            self._books.ledger.lose(row.message, entry.left)
        entry.left.clear()
        self._finish(row.message, entry)

    def lost_subscriber(self, number: int) -> None:
        """A subscriber has been deleted."""
        for sequence, entry in list(self._books.replays.items()):
            if number in entry.left:
                entry.left.discard(number)
                if not entry.left:
                    self._finish(sequence, entry)

    def _finish(self, sequence: int, entry: ReplayEntry) -> None:
        books = self._books
        del books.replays[sequence]
        for parent in entry.waiting:
            self._unfollow(parent, sequence)
        books.asked.pop(sequence, None)
        if sequence in books.watched:
            books.watched.discard(sequence)
            books.watched_ended.append(sequence)
        if not entry.failed and sequence in books.ledger.bad and not self._still_bad(sequence, entry.queue):
            books.ledger.change(sequence, MessageEvent.MENDED)
            self._catching_up.mended(sequence, entry.queue)
        if entry.number == books.replay_number and (entry.failed or sequence in books.ledger.bad):
            books.ended_again[sequence] = entry.failed
        reached = entry.attempts.keys() - entry.failed
        if sequence not in books.ledger.bad:
            reached.add(_NOBODY_LEFT)
        for follower in books.followers.pop(sequence, ()):
            self._parent_finished(follower, sequence, entry.failed, reached)
        self._gates.replayed(sequence)
        self._gates.parent_ended(sequence, books.ledger.first_child(sequence))

    def leader_ended(self, leader: int) -> None:
        """A message outside the replays, that some inside wait for, has ended for the first time."""
        bad = self._books.ledger.bad.get(leader)
        failed = set() if bad is None else self._still_bad(leader, bad.queue) or {_NOBODY_LEFT}
        for follower in self._books.followers.pop(leader, ()):
            self._parent_finished(follower, leader, failed, frozenset())

    def _parent_finished(self, follower: int, parent: int, failed: AbstractSet[int], reached: AbstractSet[int]) -> None:
        """The parent has ended, or ended again: badly at the subscribers ``failed``, well at those ``reached``."""
        entry = self._books.replays.get(follower)
        if entry is None or parent not in entry.waiting:
            return
        missing = (entry.held.get(parent, set()) | failed) - reached
        if missing and entry.parent_failure is ParentFailure.FAIL:
            self._books.dying.append(Doomed(follower, Outcome.DEAD, Reason.PARENT_FAILED, entry.number))
            return
        if missing and entry.parent_failure is ParentFailure.HOLD:
            self._hold(follower, entry, parent, missing)
            return
        entry.held.pop(parent, None)
        entry.waiting.discard(parent)
        if not entry.waiting:
            self._release(follower, entry)

    def _hold(self, sequence: int, entry: ReplayEntry, parent: int, missing: set[int]) -> None:
        """Until the parent is replayed again and goes well where it failed, or the hold is over (RULES 12)."""
        if not entry.held:
            entry.hold_over_us = self._books.moment_us + self._hold_max_us
            self._books.wheel.add(entry.hold_over_us, HOLD_OVER, sequence)
        entry.held[parent] = missing
        self._books.followers.setdefault(parent, {})[sequence] = None

    def _unfollow(self, parent: int, sequence: int) -> None:
        followers = self._books.followers.get(parent, {})
        followers.pop(sequence, None)
        if not followers:
            self._books.followers.pop(parent, None)

    def _release(self, sequence: int, entry: ReplayEntry) -> None:
        """It goes again, to whom it is still to go: there it had ended, and begins as one that was blocked."""
        for number in entry.left:
            cursor = self._books.cursors.get(number)
            if cursor is not None:
                cursor.block(sequence)
                self._gates.release((sequence,), (cursor,))

    def _still_bad(self, sequence: int, queue: int) -> set[int]:
        """The subscribers that are still there and have not got a message that ended badly."""
        book = self._books.queues.get(queue)
        if book is None:
            return set()
        _, at = book.cascaded.get(sequence, (None, ()))
        missed = {*(self._counted(sequence, queue) if at is None else at), *self._books.ledger.bad[sequence].lost}
        missed &= self._books.cursors.keys()
        return missed | {cursor.subscriber.number for cursor in book.cursors if sequence in cursor.dead}

    def _counted(self, sequence: int, queue: int) -> tuple[int, ...]:
        return tuple(c.subscriber.number for c in self._books.queues[queue].cursors if c.counts(sequence))
