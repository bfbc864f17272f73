"""An operator's replay (RULES 21): messages that have ended, delivered again in causal order.

It lies over the ledger and does not touch it: a message that was complete stays complete for everyone outside, one
that was dead is mended when the last of its deliveries has come through. Inside, a message goes out when its parents
in the same replay have ended.
"""

from syncbrok.delivery.books import Books, Doomed, ReplayEntry
from syncbrok.delivery.cursor import Cursor, TriedState
from syncbrok.delivery.gates import Gates
from syncbrok.delivery.lifecycle import MessageEvent, MessageState
from syncbrok.model.facts import Outcome, Rearmed, RearmedEntry, Reason, Row
from syncbrok.model.message import ParentFailure


class Replays:
    """Owns ``books.replays`` and ``books.followers``."""

    def __init__(self, books: Books, gates: Gates) -> None:
        self._books = books
        self._gates = gates

    def rearm(self, fact: Rearmed) -> None:
        books = self._books
        books.replay_number = max(books.replay_number, fact.replay)
        for armed in fact.entries:
            self._arm(armed, fact.replay)

    def _arm(self, armed: RearmedEntry, number: int) -> None:
        books = self._books
        book = books.queues.get(armed.queue)
        left = {subscriber for subscriber in armed.subscribers if subscriber in books.cursors}
        if book is None or not left:
            return
        attempts = dict(zip(armed.subscribers, armed.attempts, strict=False))
        waiting = {
            parent
            for parent in armed.parents
            if parent in books.replays or books.ledger.state(parent) < MessageState.COMPLETE
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
        for parent in waiting:
            books.followers.setdefault(parent, []).append(armed.message)
        if not waiting:
            self._release(armed.message, entry)

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
        cursor.settle(row.message)
        entry.left.discard(row.subscriber)
        if row.outcome is Outcome.DEAD:
            entry.failed = True
            cursor.dead[row.message] = row.reason
        if not entry.left:
            self._finish(row.message, entry)

    def end_all(self, row: Row, entry: ReplayEntry) -> None:
        """A row that ends what is left of a message in a replay."""
        for number in entry.left:
            cursor = self._books.cursors.get(number)
            if cursor is not None:
                cursor.settle(row.message)
        entry.failed = True
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
        books.asked.pop(sequence, None)
        if sequence in books.watched:
            books.watched.discard(sequence)
            books.watched_ended.append(sequence)
        if not entry.failed and sequence in books.ledger.bad and not self._still_bad(sequence, entry.queue):
            books.ledger.change(sequence, MessageEvent.MENDED)
        for follower in books.followers.pop(sequence, ()):
            self._parent_finished(follower, sequence, failed=entry.failed)
        self._gates.replayed(sequence)
        self._gates.parent_ended(sequence, books.ledger.first_child(sequence))

    def leaders_ended(self) -> None:
        """Messages outside the replays, that some inside wait for, have ended for the first time."""
        while self._books.ended_leaders:
            leader = self._books.ended_leaders.popleft()
            failed = leader in self._books.ledger.bad
            for follower in self._books.followers.pop(leader, ()):
                self._parent_finished(follower, leader, failed=failed)

    def _parent_finished(self, follower: int, parent: int, *, failed: bool) -> None:
        entry = self._books.replays.get(follower)
        if entry is None or parent not in entry.waiting:
            return
        if failed and entry.parent_failure is ParentFailure.FAIL:
            self._books.dying.append(Doomed(follower, Outcome.DEAD, Reason.PARENT_FAILED, entry.number))
            return
        if failed and entry.parent_failure is ParentFailure.HOLD:
            return  # until the parent is replayed again, or an operator cancels it
        entry.waiting.discard(parent)
        if not entry.waiting:
            self._release(follower, entry)

    def _release(self, sequence: int, entry: ReplayEntry) -> None:
        for number in entry.left:
            cursor = self._books.cursors.get(number)
            if cursor is not None:
                cursor.ready.add(sequence)
                self._books.activate(cursor)

    def _still_bad(self, sequence: int, queue: int) -> bool:
        """Whether some subscriber that is still there has not got it."""
        book = self._books.queues.get(queue)
        if book is None:
            return False
        _, at = book.cascaded.get(sequence, (None, ()))
        if at is None or any(sequence in cursor.dead for cursor in book.cursors):
            return True
        return any(number in self._books.cursors for number in (*at, *self._books.ledger.bad[sequence].lost))

    def _counted(self, sequence: int, queue: int) -> tuple[int, ...]:
        return tuple(c.subscriber.number for c in self._books.queues[queue].cursors if c.counts(sequence))

    def state(self, sequence: int) -> MessageState | None:
        """How a message in a replay stands; None for one that is in none."""
        entry = self._books.replays.get(sequence)
        if entry is None:
            return None
        return MessageState.WAITING if entry.waiting else MessageState.PENDING
