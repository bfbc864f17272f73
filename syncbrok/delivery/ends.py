"""Ends without an attempt: what the clock brings, and the rows that a rule demands.

A message is doomed first (``gates.doom``): nothing of it goes out any more. Its row is asked for when no attempt of it
is out; that one may still succeed, and its outcome comes first. Until then the end stands aside (``Books.still_out``),
however long a consumer keeps what it was given: nothing is looked at again before the attempt is back.
"""

from syncbrok.delivery.books import DISABLED_OVER, DUE, EXPIRES, HOLD_OVER, Books, Doomed
from syncbrok.delivery.gates import Gates
from syncbrok.delivery.handler import Attempt
from syncbrok.delivery.ledger import ENDING
from syncbrok.delivery.lifecycle import MessageState
from syncbrok.delivery.line import Line
from syncbrok.model import limits
from syncbrok.model.facts import ALL_SUBSCRIBERS, Outcome, Reason, Row


class Ends:
    """Dooms messages, and asks for their ends."""

    def __init__(self, books: Books, gates: Gates, line: Line) -> None:
        self._books = books
        self._gates = gates
        self._line = line

    def wake_due(self, now_us: int) -> None:
        """What the clock brings: retries, delayed messages, expiries, ends of holds and of disabled subscribers."""
        books = self._books
        first_us = books.wheel.next_due_us()
        if first_us is None or first_us > now_us:
            return
        for kind, value in books.wheel.pop_due(now_us):
            if kind < DUE:
                cursor = books.cursors.get(kind)
                # One that was made due before its time may have failed again since, and waits for another time.
                tried = cursor.tried.get(value) if cursor is not None else None
                if cursor is not None and tried is not None and tried.due_us <= now_us and cursor.make_due(value):
                    books.activate(cursor)
            elif kind == DUE:
                self._gates.reconsider(value, due=True)
            elif kind == DISABLED_OVER:
                self._disabled_over(value, now_us)
            elif kind == HOLD_OVER:
                self._hold_over(value, now_us)
            elif kind == EXPIRES and self._has_not_ended(value):
                self._gates.doom(value, Outcome.EXPIRED, Reason.EXPIRED)

    def _hold_over(self, sequence: int, now_us: int) -> None:
        entry = self._books.replays.get(sequence)
        if entry is not None:
            if entry.held and entry.hold_over_us <= now_us:
                self._books.dying.append(Doomed(sequence, Outcome.EXPIRED, Reason.HOLD_EXPIRED, entry.number))
        elif self._books.ledger.state(sequence) is MessageState.HELD and self._has_not_ended(sequence):
            self._gates.doom(sequence, Outcome.EXPIRED, Reason.HOLD_EXPIRED)

    def _has_not_ended(self, sequence: int) -> bool:
        """Nor is about to."""
        ledger = self._books.ledger
        return 0 < ledger.state(sequence) < MessageState.COMPLETE and not ledger.flags(sequence) & ENDING

    def _disabled_over(self, number: int, now_us: int) -> None:
        cursor = self._books.cursors.get(number)
        if cursor is None:
            return
        disabled_us = cursor.subscriber.settings.disabled_us
        if 0 < disabled_us <= now_us - int(limits.disabled_max_s * 1e6):
            cursor.doomed = True
            self._books.abandoned.add(number)

    def expire(self, attempt: Attempt) -> bool:
        """Whether a message whose time is over ends without this attempt, which the wheel tells a bucket too late."""
        ledger, sequence = self._books.ledger, attempt.message
        if attempt.replay or not 0 < ledger.state(sequence) < MessageState.COMPLETE:
            return False
        self._line.give_back((attempt,))
        if not ledger.flags(sequence) & ENDING:
            self._gates.doom(sequence, Outcome.EXPIRED, Reason.EXPIRED)
        return True

    def owed(self, now_us: int, limit: int) -> list[Row]:
        """See ``Scheduler``."""
        rows: list[Row] = []
        dying = self._books.dying
        for _ in range(min(len(dying), limit)):
            doomed = dying.popleft()
            book = self._books.queues.get(self._queue_of(doomed.message))
            if self._over(doomed) or book is None:
                continue
            out = [cursor for cursor in book.cursors if doomed.message in cursor.flight]
            if out:
                self._books.still_out.setdefault(doomed.message, []).append(doomed)
                for cursor in out:
                    self._books.give_up(cursor, (doomed.message,))
                continue
            self._books.asked[doomed.message] = doomed
            rows.append(Row(doomed.message, ALL_SUBSCRIBERS, 0, doomed.outcome, doomed.reason, 0, now_us, 0, 0, 0))
        for number in self._books.abandoned:
            rows.extend(self._line.abandon(self._books.cursors[number], now_us, limit - len(rows)))
        return rows

    def _queue_of(self, sequence: int) -> int:
        entry = self._books.replays.get(sequence)
        return entry.queue if entry is not None else self._books.ledger.queue(sequence)

    def _over(self, doomed: Doomed) -> bool:
        """Whether what it is about has ended otherwise."""
        entry = self._books.replays.get(doomed.message)
        if doomed.replay:
            return entry is None or entry.number != doomed.replay
        return entry is not None or self._books.ledger.state(doomed.message) >= MessageState.COMPLETE
