"""Handing out attempts and taking back their answers: the hot path of the scheduler.

Cursors that may have work stand in a line; each hands out what its window has room for and goes to the end. What a
cursor hands out, in this order: retries that have come due, messages whose gate has opened, and then whatever comes
next in its queue. A slot of the window is free as soon as the answer is read; only children wait for the fsync of the
outcome (RULES 24).
"""

from array import array
from collections.abc import Callable, Iterable
from typing import Final

import numpy as np

from syncbrok.delivery.books import Books
from syncbrok.delivery.chunk import CHUNK_MASK, CHUNK_SHIFT, Chunk
from syncbrok.delivery.cursor import Cursor, TriedState
from syncbrok.delivery.gates import Gates
from syncbrok.delivery.handler import NEVER, Answer, Attempt
from syncbrok.delivery.ledger import ENDING, ONE_BY_ONE, ONLY
from syncbrok.delivery.lifecycle import MessageState
from syncbrok.delivery.retry import wait_us
from syncbrok.delivery.runs import Runs
from syncbrok.delivery.shares import Shares
from syncbrok.delivery.stretches import WORTH_IT, waiting_neighbours
from syncbrok.model import limits
from syncbrok.model.facts import Outcome, Reason, Row

_PENDING: Final = int(MessageState.PENDING)
_WAITING: Final = int(MessageState.WAITING)
_COMPLETE: Final = int(MessageState.COMPLETE)
_DELIVERED: Final = Outcome.DELIVERED
_ACKNOWLEDGED: Final = Reason.NONE
_FINAL: Final = (Reason.NONE, Reason.GONE, Reason.CONTENT_LOST)
"""no later attempt follows: it came through, the endpoint wants no more, or there is nothing left to send"""
_SHARE: Final = 64
"""attempts a cursor hands out before the next one has its turn"""
_LOOKS: Final = 2_048
"""messages a cursor passes by in one turn without finding one to hand out"""


class Line:
    """Takes attempts from cursors, and answers back."""

    def __init__(self, books: Books, gates: Gates, shares: Shares) -> None:
        self._books = books
        self._gates = gates
        self._shares = shares
        self._runs = Runs(books)

    def take(self, now_us: int, durable: int, limit: int) -> list[Attempt]:
        """At most ``limit`` attempts to make now, and of no subscriber more than its share. ``durable`` is the last
        durable sequence: it goes into each."""
        attempts: list[Attempt] = []
        line = self._books.line
        self._books.let_back_in(self._shares.room, limit)
        plenty_below = self._shares.plenty_below(limit)
        lent = 0
        turns = len(line) + limit
        take_last = self._runs.take_last
        new = tuple.__new__  # past the Python-level __new__ of a NamedTuple, which takes three times as long
        while line and len(attempts) < limit and self._books.unconfirmed < limits.outcomes_waiting_max and turns:
            turns -= 1
            cursor = line.popleft()
            cursor.queued = False
            if cursor.stopped:
                continue
            before = len(attempts)
            most = limit - before
            scarce = len(cursor.flight) >= plenty_below
            if scarce:
                most = min(most, self._shares.room(cursor, before - lent, lent))
                if most <= 0:
                    self._books.hold_back(cursor)
                    continue
            last = take_last(cursor)
            if last:
                cursor.flight[last] = 1
                attempts.append(new(Attempt, (last, cursor.number, 1, durable, now_us, 0)))
            elif self._take_from(cursor, now_us, durable, most, attempts):
                self._books.activate(cursor)
            if scarce and cursor.subscriber.consumed:
                lent += len(attempts) - before
        return attempts

    def _take_from(self, cursor: Cursor, now_us: int, durable: int, most: int, attempts: list[Attempt]) -> bool:
        """Whether the cursor may have more than it was asked for."""
        number = cursor.number
        replays = self._books.replays
        tried = cursor.tried
        new = tuple.__new__
        share = min(cursor.window - len(cursor.flight), _SHARE, most)
        while share > 0:
            run = self._runs.take(cursor, share)
            if run:
                share -= len(run)
                cursor.flight.update(dict.fromkeys(run, 1))
                attempts += [new(Attempt, (sequence, number, 1, durable, now_us, 0)) for sequence in run]
                if cursor.idle:
                    return False
                continue
            sequence = self._next(cursor)
            if not sequence:
                return sequence is not None
            share -= 1
            replay = 0
            before = tried[sequence].attempts if sequence in tried else 0
            if replays and sequence in replays and number in replays[sequence].left:
                replay = replays[sequence].number
                # One that was out when its message was cancelled may be out still, and its answer is late.
                before = max(before or replays[sequence].attempts.get(number, 0), cursor.flight.get(sequence, 0))
            cursor.flight[sequence] = before + 1
            attempts.append(new(Attempt, (sequence, number, before + 1, durable, now_us, replay)))
        return True

    def _next(self, cursor: Cursor) -> int | None:
        """The next message for the cursor; 0 after many that are not; None when there is none."""
        while cursor.due:
            sequence = cursor.due.pop_first()
            if sequence in cursor.tried and self._may_go(sequence, cursor):
                if sequence in self._books.replays or self._gates.key_open_at(sequence, cursor):
                    return sequence
                cursor.block(sequence)  # tried too early by a broker that kept less of an order
        if cursor.retries_room <= 0:
            return None
        while cursor.ready:
            sequence = cursor.ready.pop_first()
            if self._may_go(sequence, cursor):
                return sequence
        return None if cursor.in_past else self._advance(cursor)

    def _may_go(self, sequence: int, cursor: Cursor) -> bool:
        """Whether what was found in one of the cursor's sets has not ended in between."""
        if self._books.replays:
            entry = self._books.replays.get(sequence)
            if entry is not None and cursor.subscriber.number in entry.left:
                return True
        ledger = self._books.ledger
        state = ledger.state(sequence)
        if state >= MessageState.COMPLETE:
            return not cursor.counts(sequence)
        if state is not MessageState.PENDING or ledger.flags(sequence) & ENDING:
            cursor.block(sequence)
            return False
        return True

    def _advance(self, cursor: Cursor) -> int | None:
        """Look at what comes next in the queue until there is one that may go."""
        chunks = self._books.ledger.chunks
        backlog = cursor.backlog
        sequences = backlog.sequences
        at, end = cursor.position - backlog.offset, len(sequences)
        stop = min(end, at + _LOOKS)
        found: int | None = None
        parking: list[int] = []
        while at < stop:
            sequence = sequences[at]
            at += 1
            cursor.seen = sequence
            chunk = chunks.get(sequence >> CHUNK_SHIFT)
            if (cursor.ahead and cursor.ahead.discard(sequence)) or chunk is None:
                continue
            i = sequence & CHUNK_MASK
            state = chunk.state[i]
            if state >= _COMPLETE:
                continue
            if state == _WAITING and not chunk.flags[i] & ONE_BY_ONE:
                parking.append(sequence)
                if len(parking) == WORTH_IT and not cursor.ahead:
                    at += self._park(cursor, chunk, sequence, sequences[at:stop])
                continue
            if parking and chunk.flags[i]:  # it may ask whether one of these is finished here: they must be parked
                cursor.parked.update(parking)
                parking.clear()
            if (state == _PENDING and not chunk.flags[i] & ONE_BY_ONE) or self._special(sequence, state, cursor):
                found = sequence
                break
        if parking:
            cursor.parked.update(parking)
        self._runs.step(cursor, backlog.offset + at)
        if found is None and at < end:
            return 0
        return found

    @staticmethod
    def _park(cursor: Cursor, chunk: Chunk, sequence: int, following: "array[int]") -> int:
        """Many wait, up to ``sequence``: of those that follow it park all at once that wait as well. How many."""
        count = waiting_neighbours(chunk, sequence >> CHUNK_SHIFT, np.frombuffer(following, np.uint64))
        if count:
            first, cursor.seen = following[0], following[count - 1]
            together = cursor.seen - first == count - 1
            cursor.parked.update(range(first, cursor.seen + 1) if together else following[:count])
        return count

    def _special(self, sequence: int, state: int, cursor: Cursor) -> bool:
        """Whether a message that is not plain may go to this cursor; parked where it may not yet."""
        ledger = self._books.ledger
        if ledger.flags(sequence) & ONLY and ledger.only.get(sequence) != cursor.subscriber.number:
            return False
        if state == _PENDING and self._gates.open_at(sequence, cursor):
            return True
        cursor.block(sequence)
        return False

    def settle(self, answers: Iterable[tuple[Attempt, Answer]], now_us: int, jitter: Callable[[], float]) -> list[Row]:
        """What came of these attempts, as the rows to log; the window's slots are free. ``jitter`` is in -1..1.

        First attempts that were acknowledged come by the hundred, and what would be looked up for each of them is
        looked up once for those of one subscriber; all others are settled one by one."""
        cursors, chunks, replays = self._books.cursors, self._books.ledger.chunks, self._books.replays
        rows: list[Row] = []
        new = tuple.__new__
        subscriber, acknowledged, status = -1, 0, 0
        cursor: Cursor | None = None
        flight: dict[int, int] = {}
        for attempt, answer in answers:
            message, number, count, after, started_us, replay = attempt
            if number != subscriber:
                self._acknowledged(cursor, acknowledged, status, now_us)
                subscriber, acknowledged = number, 0
                cursor = cursors.get(number)
                flight = cursor.flight if cursor is not None else {}
            chunk = chunks.get(message >> CHUNK_SHIFT)
            if (
                answer[0] is not _ACKNOWLEDGED
                or count != 1
                or flight.get(message) != 1
                or replay
                or cursor is None
                or (message > cursor.since and (chunk is None or chunk.state[message & CHUNK_MASK] != _PENDING))
                or (replays and message in replays)
            ):
                self._acknowledged(cursor, acknowledged, status, now_us)
                acknowledged = 0
                rows.append(self._settle_one(attempt, answer, now_us, jitter))
                continue
            del flight[message]  # ``Cursor.attempt_over``
            cursor.unconfirmed.add(message)  # and ``ended``
            acknowledged += 1
            _, status, _, latency_us, detail = answer
            fields = (message, number, 1, _DELIVERED, _ACKNOWLEDGED, status, started_us, 0, after, latency_us, detail)
            rows.append(new(Row, fields))
        self._acknowledged(cursor, acknowledged, status, now_us)
        if self._books.still_out:
            self._books.no_longer_out([row[0] for row in rows])
        return rows

    def give_back(self, attempts: Iterable[Attempt]) -> None:
        """These were not begun. Each stands again where it can be taken; that it may still go is looked at then."""
        for attempt in attempts:
            cursor = self._books.cursors.get(attempt.subscriber)
            if cursor is None or cursor.flight.get(attempt.message) != attempt.number:
                continue  # deleted, or given up when the endpoint changed
            cursor.give_back(attempt.message)
            self._books.no_longer_out((attempt.message,))
            self._books.activate(cursor)

    def retry_now(self, subscriber: int, message: int | None = None) -> int:
        """What waits for another attempt at the subscriber, or this message alone, is due; how many that is. Nothing
        durable (RULES 26). None of one that is paused or disabled."""
        cursor = self._books.cursors.get(subscriber)
        if cursor is None or cursor.stopped:
            return 0
        count = cursor.all_due() if message is None else int(cursor.make_due(message))
        self._books.activate(cursor)
        return count

    def stands(self, attempt: Attempt) -> bool:
        """See ``Scheduler``."""
        cursor = self._books.cursors.get(attempt.subscriber)
        return (
            cursor is not None
            and cursor.flight.get(attempt.message) == attempt.number
            and attempt.message not in self._books.still_out
            and not self._ended_meanwhile(attempt, cursor)
        )

    def _acknowledged(self, cursor: Cursor | None, count: int, status: int, now_us: int) -> None:
        """So many first attempts of a cursor were acknowledged, the last one with this status."""
        if not count or cursor is None:
            return
        self._books.unconfirmed += count
        cursor.last_status, cursor.last_reason, cursor.last_attempt_us = status, _ACKNOWLEDGED, now_us
        cursor.failing_since_us = 0
        # One that had room stands in the line, or has nothing to hand out: no need to look.
        if not cursor.queued and (len(cursor.flight) + count >= cursor.window or cursor.tried):
            self._books.activate(cursor)

    def _settle_one(self, attempt: Attempt, answer: Answer, now_us: int, jitter: Callable[[], float]) -> Row:
        cursor = self._books.cursors.get(attempt.subscriber)
        if cursor is None:
            return _row(attempt, answer, Outcome.LATE)
        if cursor.flight.get(attempt.message) != attempt.number:
            return _row(attempt, answer, Outcome.LATE)  # given up when the endpoint changed, and made again
        cursor.attempt_over(attempt.message)
        self._note(cursor, answer.reason, answer.status, now_us)
        self._books.activate(cursor)
        if self._ended_meanwhile(attempt, cursor):
            return _row(attempt, answer, Outcome.LATE)
        due_us = self._next_try_us(cursor, attempt, answer, now_us, jitter)
        if due_us:
            tried = TriedState(attempt.number, due_us, self._tried_before(cursor, attempt))
            self._books.try_again(cursor, attempt.message, tried)
            return _row(attempt, answer, Outcome.FAILED, due_us)
        self._books.ended(cursor, attempt.message)
        return _row(attempt, answer, Outcome.DELIVERED if answer.reason is _ACKNOWLEDGED else Outcome.DEAD)

    def _next_try_us(
        self, cursor: Cursor, attempt: Attempt, answer: Answer, now_us: int, jitter: Callable[[], float]
    ) -> int:
        """When to try again, Unix microseconds; 0 for never."""
        if answer.reason in _FINAL or answer.retry_after_s == NEVER:
            return 0
        policy = cursor.subscriber.settings.retry or self._books.queues[cursor.subscriber.queue].queue.settings.retry
        failures = attempt.number - self._tried_before(cursor, attempt)
        wait = wait_us(policy, failures, jitter(), answer.retry_after_s)
        return 0 if wait is None else now_us + wait

    @staticmethod
    def _tried_before(cursor: Cursor, attempt: Attempt) -> int:
        """How many attempts the retry budget does not count: those before the last replay."""
        tried = cursor.tried.get(attempt.message)
        return attempt.number - 1 if tried is None else tried.before

    def _ended_meanwhile(self, attempt: Attempt, cursor: Cursor) -> bool:
        """Whether a cancel, a purge or an expiry has ended the delivery while its attempt was out."""
        entry = self._books.replays.get(attempt.message)
        if entry is not None and attempt.subscriber in entry.left:
            # One that was out when its message was cancelled has no part in a replay: that makes its own.
            return attempt.replay != entry.number
        if attempt.replay:
            return True
        # Who catches up is sent what has ended, also while a replay sends it to others.
        return cursor.counts(attempt.message) and self._books.ledger.state(attempt.message) >= MessageState.COMPLETE

    def _note(self, cursor: Cursor, reason: Reason, status: int, now_us: int) -> None:
        """An answer came."""
        cursor.last_status, cursor.last_reason, cursor.last_attempt_us = status, reason, now_us
        cursor.failing_since_us = 0 if reason is Reason.NONE else cursor.failing_since_us or now_us

    def abandon(self, cursor: Cursor, now_us: int, limit: int) -> list[Row]:
        """Rows that end what waits for a subscriber disabled for too long (RULES 14), at most ``limit``."""
        rows: list[Row] = []
        while len(rows) < limit:
            sequence = self._next_abandoned(cursor)
            if not sequence:
                break
            self._books.ended(cursor, sequence)
            number = cursor.subscriber.number
            rows.append(Row(sequence, number, 0, Outcome.DEAD, Reason.SUBSCRIBER_DISABLED, 0, now_us, 0, 0, 0))
        return rows

    def _next_abandoned(self, cursor: Cursor) -> int | None:
        while sequence := cursor.pop_waiting():
            if self._books.ledger.state(sequence) < MessageState.COMPLETE or sequence in self._books.replays:
                return sequence
        return self._advance(cursor)


def _row(attempt: Attempt, answer: Answer, outcome: Outcome, due_us: int = 0) -> Row:
    return Row(
        attempt.message,
        attempt.subscriber,
        attempt.number,
        outcome,
        answer.reason,
        answer.status,
        attempt.started_us,
        due_us,
        attempt.after,
        answer.latency_us,
        answer.detail,
    )
