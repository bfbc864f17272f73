"""Handing out attempts and taking back their answers: the hot path of the scheduler.

Cursors that may have work stand in a line; each hands out what its window has room for and goes to the end. What a
cursor hands out, in this order: retries that have come due, messages whose gate has opened, and then whatever comes
next in its queue. A slot of the window is free as soon as the answer is read; only children wait for the fsync of the
outcome (RULES 24).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np

from syncbrok.delivery.handler import NEVER, SKIP, SKIPPING, Attempt, AttemptResult, Confirmed
from syncbrok.delivery.scheduler.backfill import Backfill
from syncbrok.delivery.scheduler.blockers import Blockers, has_keys_before
from syncbrok.delivery.scheduler.breaker import NO_ANSWER
from syncbrok.delivery.scheduler.breakers import Breakers
from syncbrok.delivery.scheduler.chunk_scans import WORTH_IT, waiting_neighbours
from syncbrok.delivery.scheduler.cursor import Cursor, TriedState
from syncbrok.delivery.scheduler.lifecycle import MessageState
from syncbrok.delivery.scheduler.message_chunk import CHUNK_MASK, CHUNK_SHIFT, Sparse, States
from syncbrok.delivery.scheduler.message_table import ONE_BY_ONE, ONLY
from syncbrok.delivery.scheduler.rate_bucket import RateBucket
from syncbrok.delivery.scheduler.retry import wait_us
from syncbrok.delivery.scheduler.shares import Shares
from syncbrok.delivery.scheduler.state import RATE_DUE, SchedulerState
from syncbrok.model import limits
from syncbrok.model.facts import Outcome, Reason, Row
from syncbrok.model.sequence_set import as_range

_PENDING: Final = int(MessageState.PENDING)
_WAITING: Final = int(MessageState.WAITING)
_COMPLETE: Final = int(MessageState.COMPLETE)
_DELIVERED: Final = Outcome.DELIVERED
_ACKNOWLEDGED: Final = Reason.NONE
_FINAL: Final = (Reason.NONE, Reason.GONE, Reason.CONTENT_LOST, Reason.ERASED)
"""no later attempt follows: it came through, the endpoint wants no more, or there is nothing left to send"""
_BUSY: Final = (429, 503)
"""of an endpoint that may take it all the same, later"""
_SHARE: Final = 64
"""attempts a cursor hands out before the next one has its turn"""
_LOOKS: Final = 2_048
"""messages a cursor passes by in one turn without finding enough to hand out"""
_NO_ROWS: Final = Sparse(MessageState.NONE)
"""the columns of messages that have ended long ago"""
_TRIM_MASK: Final = (1 << 12) - 1
"""so many messages, as a power of two, a cursor goes on before its queue is asked to forget"""


class DispatchQueue:
    """Takes attempts from cursors, and answers back."""

    def __init__(
        self, state: SchedulerState, blockers: Blockers, backfill: Backfill, shares: Shares, breakers: Breakers
    ) -> None:
        self._state = state
        self._blockers = blockers
        self._breakers = breakers
        self._backfill = backfill
        self._shares = shares

    def take(self, now_us: int, durable: int, limit: int) -> list[Attempt]:  # noqa: C901 - see "decided here"
        """At most ``limit`` attempts to make now, and of no subscriber more than its share. ``durable`` is the last
        durable sequence: it goes into each."""
        attempts: list[Attempt] = []
        state, shares, line = self._state, self._shares, self._state.rotation
        state.let_back_in(shares.room, limit)
        plenty_below, origins = shares.plenty_below(limit), self._breakers.origins
        lent = 0
        turns = len(line) + limit
        new = tuple.__new__  # past the Python-level __new__ of a NamedTuple, which takes three times as long
        while line.count and len(attempts) < limit and state.unconfirmed < limits.outcomes_waiting_max and turns:
            turns -= 1
            cursor = line.popleft()
            cursor.queued = False
            # How many attempts it may begin in this turn is decided here, and nowhere else: who stands in this line
            # (``SchedulerState.activate``) only may be asked. (A method of its own would cost a twentieth where many
            # queues have one message each.)
            flight, taken = cursor.in_flight, len(attempts)
            room = cursor.window - len(flight) if cursor.batch is None else cursor.batch.room(len(flight))
            if cursor.stopped or room <= 0:
                continue
            if room > _SHARE or room > limit - taken:
                room = min(limit - taken, _SHARE)
            if len(flight) >= plenty_below:
                room = min(room, shares.room(cursor, taken - lent, lent))
                if room <= 0:
                    state.hold_back(cursor)
                    continue
            watched = cursor.breaker is not None or origins
            if watched:
                room = self._breakers.room(cursor, room, now_us)
                if room <= 0:
                    continue
            if cursor.rate is not None:
                room = self._room_by_rate(cursor, cursor.rate, room, now_us)
                if room <= 0:
                    continue
            room_new = room
            if cursor.retrying:  # with too many in retry no new ones are begun, until they clear (RULES 15)
                room_new = min(room, limits.retrying_per_subscriber_max - len(cursor.retrying) - len(flight))
            found = self._next(cursor, room, room_new) if not watched else self._watched(cursor, room, room_new)
            if cursor.rate is not None:
                cursor.rate.take(sum(map(self._pays, found)), now_us)
            number, confirmed = cursor.number, self._confirmed(cursor, found) if found else None
            for message in found:  # a comprehension would be a call more, for what is often one message
                of = confirmed or cursor.delivered_below.below(message)
                attempts.append(new(Attempt, (message, number, flight[message], durable, now_us, 0, of)))
            if len(found) == room:  # else there was no more
                state.activate(cursor)
            if cursor.consumer_capacity and cursor.subscriber.consumed:
                lent += len(found)
        return [self._in_replay(attempt) for attempt in attempts] if state.replays else attempts

    def _confirmed(self, cursor: Cursor, found: Sequence[int]) -> Confirmed | None:
        """The numbers that go with all of these; None where some lie below what has been delivered, and each has its
        own."""
        known, replays = cursor.delivered_below, self._state.replays
        lowest = found[0] if len(found) == 1 else min(found)
        if lowest > known.greatest and not replays and cursor.is_alone_out():
            return known.alone(lowest)
        cursor.look_how_far_ended(replays.goes_to if replays else None)
        return known.newest() if lowest > known.greatest else None

    def _room_by_rate(self, cursor: Cursor, rate: RateBucket, room: int, now_us: int) -> int:
        """How many of ``room`` attempts the subscriber's rate allows now. Where there are none it stands in line again
        when there is one."""
        allowed = rate.room(room, now_us)
        if allowed <= 0 and not rate.awaited:
            rate.awaited = True
            self._state.timers.add(rate.next_us(), RATE_DUE, cursor.number)
        return allowed

    def _pays(self, message: int) -> bool:
        """Whether an attempt of it takes a token: one of a test does not."""
        return not self._state.table.flags(message) & ONLY

    def _nothing_went_out(self, cursor: Cursor, message: int) -> None:
        """Give breaker and rate back the room that an attempt took which was not made."""
        if cursor.breaker is not None or self._breakers.origins:
            self._breakers.is_back(cursor, message)
        if cursor.rate is not None and self._pays(message):
            cursor.rate.give_back()

    def rate_due(self, number: int) -> None:
        """A subscriber's bucket has a token again."""
        cursor = self._state.cursors.get(number)
        if cursor is not None and cursor.rate is not None:
            cursor.rate.awaited = False
            self._state.activate(cursor)

    def _in_replay(self, attempt: Attempt) -> Attempt:
        """The attempt, numbered on from those before the replay if one sends its message to this subscriber."""
        entry = self._state.replays.get(attempt.message)
        if entry is None or attempt.subscriber not in entry.left:
            return attempt
        message, subscriber, number, after, started_us, *_ = attempt
        cursor = self._state.cursors[subscriber]
        if message not in cursor.retrying:
            number = entry.attempts.get(subscriber, 0) + 1
            cursor.begin((message,), number)
        return Attempt(message, subscriber, number, after, started_us, entry.number)

    def _next(self, cursor: Cursor, room: int, room_new: int) -> list[int]:
        """The messages that go to the cursor now, in that order: at most ``room``, and no more than ``room_new`` once
        there are no more retries. First retries that have come due, then messages whose gate has opened since the
        cursor passed them, then what comes next in its queue. They are out from now on."""
        found: list[int] = []
        while cursor.due.count and len(found) < room:
            self._choose(cursor, cursor.pop_due(room - len(found)), room, found)
        while cursor.eligible.count and len(found) < room_new:
            self._choose(cursor, cursor.pop_released(room_new - len(found)), room_new, found)
        if len(found) >= room_new or (not cursor.history_done and cursor.in_past):
            return found
        backlog = cursor.backlog
        sequences = backlog.sequences
        if backlog.offset + len(sequences) - cursor.position == 1 and not cursor.ended_out_of_order.count:
            # One message, as many queues get them now and then: half of what else is done for it would be in vain.
            sequence = sequences[-1]
            chunk = self._state.table.chunks.get(sequence >> CHUNK_SHIFT)
            i = sequence & CHUNK_MASK
            if (
                chunk is not None
                and chunk.state[i] == _PENDING
                and not chunk.flags[i] & ONE_BY_ONE
                and (cursor.history_done and not cursor.key_lines)
            ):
                cursor.begin_next(sequence)
                if not cursor.position & _TRIM_MASK:
                    self._trim(cursor)
                found.append(sequence)
                return found
        self._following(cursor, room_new, found)
        return found

    def _watched(self, cursor: Cursor, room: int, room_new: int) -> list[int]:
        """``_next`` where a breaker looks on."""
        probed = self._breakers.probed(cursor)
        found = self._next(cursor, room, room_new) if probed is None else self._probe(cursor, room_new, probed)
        self._breakers.begun(cursor, found)
        return found

    def _probe(self, cursor: Cursor, room_new: int, probed: int) -> list[int]:
        """One message, another than the last probe took where there is one: that may fail by its own fault. Rather one
        that has been tried: what has not waits, and its schedule has not begun."""
        found: list[int] = []
        for _ in range(_SHARE):
            sequence = cursor.pop_due_beyond(probed)
            if not sequence:
                break
            self._choose(cursor, (sequence,), 1, found)
            if found:
                return found
        if room_new > 0:
            is_due = cursor.pop_one_due(probed)
            found = self._next(cursor, 1, 1)
            if is_due:
                cursor.make_due(probed)
        return found or self._next(cursor, 1, room_new)

    def _following(self, cursor: Cursor, most: int, found: list[int]) -> None:
        """Add to ``found``, until those are ``most``, what comes next in the cursor's queue and may go. One that meets
        many that may not comes back for more."""
        backlog = cursor.backlog
        looks = _LOOKS
        while looks > 0:
            candidates = backlog.following(cursor.position, WORTH_IT)
            if not candidates:
                return
            before = len(found)
            looked = self._choose(cursor, candidates, most, found, True)
            self._pass(cursor, candidates if looked == len(candidates) else candidates[:looked])
            if looked < WORTH_IT or len(found) == most:
                return
            looks -= looked
            if len(found) == before and candidates[-1] in cursor.blocked:
                looks -= self._block_neighbours(cursor, candidates[-1], looks)
        self._state.activate(cursor)

    def _choose(
        self, cursor: Cursor, candidates: Sequence[int], most: int, found: list[int], is_new: bool = False
    ) -> int:
        """Add to ``found`` the candidates that may go to the cursor, in their order, until they are ``most``: they are
        out from now on. Block those that must wait. Returns how many were looked at. ``is_new``: they come next in its
        queue, and what of them has ended is passed by."""
        keyed = has_keys_before(cursor) or cursor.replay_lines
        choose = self._choose_each if keyed else self._choose_many
        return choose(cursor, candidates, most, found, is_new)

    def _choose_many(self, cursor: Cursor, candidates: Sequence[int], most: int, found: list[int], is_new: bool) -> int:
        """``_choose``: of most their state and flags tell; ``_may_go`` looks at the others one by one."""
        chunks = self._state.table.chunks
        ahead = cursor.ended_out_of_order if is_new and cursor.ended_out_of_order.count else ()
        number = looked = -1
        states: States | Sparse = _NO_ROWS
        flags: bytearray | Sparse = _NO_ROWS
        most -= len(found)
        going: list[int] = []
        blocked: list[int] = []
        for looked, sequence in enumerate(candidates, 1):  # noqa: B007 - is used behind it
            if sequence >> CHUNK_SHIFT != number:
                number = sequence >> CHUNK_SHIFT
                chunk = chunks.get(number)
                states, flags = (chunk.state, chunk.flags) if chunk is not None else (_NO_ROWS, _NO_ROWS)
            i = sequence & CHUNK_MASK
            state = states[i]
            if ahead and sequence in ahead:
                continue
            if flags[i] & ONE_BY_ONE or state != _PENDING:
                if state == _WAITING and not flags[i] & ONE_BY_ONE:
                    blocked.append(sequence)
                    continue
                if (is_new and not 0 < state < _COMPLETE) or not self._may_go(sequence, cursor):
                    continue
            going.append(sequence)
            if len(going) == most:
                break
        if blocked:
            cursor.block_all(blocked)
        if going:  # before others are looked at, which may be their children
            cursor.begin(going)
            found += going
        return looked

    def _choose_each(self, cursor: Cursor, candidates: Sequence[int], most: int, found: list[int], is_new: bool) -> int:
        """``_choose`` where keys of what has ended elsewhere may keep others back: each is out before the next one,
        which may be of its key, is looked at."""
        looked = 0
        for looked, sequence in enumerate(candidates, 1):  # noqa: B007 - is used behind it
            has_ended = is_new and not 0 < self._state.table.state(sequence) < MessageState.COMPLETE
            if has_ended or (is_new and sequence in cursor.ended_out_of_order) or not self._may_go(sequence, cursor):
                continue
            cursor.begin((sequence,))
            found.append(sequence)
            if len(found) == most:
                break
        return looked

    def _may_go(self, sequence: int, cursor: Cursor) -> bool:
        """Whether a message that is looked at by itself may go to the cursor; blocked where it may not yet."""
        table = self._state.table
        if not self._state.replays or not self._state.replays.goes_to(sequence, cursor.number):
            if table.state(sequence) >= MessageState.COMPLETE:
                if cursor.counts(sequence):
                    return False  # it has ended
            elif table.flags(sequence) & ONLY and table.only.get(sequence) != cursor.number:
                return False  # it is for another one
        blocker = self._blockers.of(sequence, cursor)
        if blocker is not None:
            self._backfill.keep_back(cursor, sequence, blocker)
        return blocker is None

    def _pass(self, cursor: Cursor, looked: Sequence[int]) -> None:
        """The cursor has looked at these."""
        cursor.advance(looked)
        if cursor.position & _TRIM_MASK < len(looked):
            self._trim(cursor)

    def _trim(self, cursor: Cursor) -> None:
        """Now and then the cursor's queue forgets what all of its cursors have behind them."""
        queue_state = self._state.queues[cursor.queue]
        queue_state.backlog.trim(min(other.position for other in queue_state.cursors))

    def _block_neighbours(self, cursor: Cursor, last: int, most: int) -> int:
        """Many wait, up to ``last``: of those that follow it block all at once that wait as well. How many."""
        chunk = self._state.table.chunk(last)
        following = cursor.backlog.following(cursor.position, most)
        if chunk is None or cursor.ended_out_of_order or not following:
            return 0
        count = waiting_neighbours(chunk, last >> CHUNK_SHIFT, np.frombuffer(following, np.uint64))
        if count:
            looked = following[:count]
            cursor.block_all(as_range(looked))
            self._pass(cursor, looked)
        return count

    def settle(
        self, answers: Iterable[tuple[Attempt, AttemptResult]], now_us: int, jitter: Callable[[], float]
    ) -> list[Row]:
        """The rows to log of what came of these attempts; the window's slots are free. ``jitter`` is in -1..1.

        First attempts that were acknowledged come by the hundred, and what would be looked up for each of them is
        looked up once for those of one subscriber; all others are settled one by one."""
        cursors, chunks, replays = self._state.cursors, self._state.table.chunks, self._state.replays
        rows: list[Row] = []
        new, origins = tuple.__new__, self._breakers.origins
        subscriber, acknowledged, status = -1, 0, 0
        cursor: Cursor | None = None
        flight: dict[int, int] = {}
        for attempt, answer in answers:
            message, number, count, after, started_us, replay, _ = attempt
            if number != subscriber:
                self._acknowledged(cursor, acknowledged, status, now_us)
                subscriber, acknowledged = number, 0
                cursor = cursors.get(number)
                flight = cursor.in_flight if cursor is not None else {}
                if (
                    cursor is not None
                    and (cursor.breaker is not None or origins)
                    and (cursor.batch is not None or self._breakers.watch(cursor))
                ):
                    flight = {}  # each of its answers is settled by itself
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
            _, status, _, latency_us, detail, _, _ = answer
            fields = (message, number, 1, _DELIVERED, _ACKNOWLEDGED, status, started_us, 0, after, latency_us, detail)
            rows.append(new(Row, fields))
        self._acknowledged(cursor, acknowledged, status, now_us)
        if self._state.still_out:
            self._state.no_longer_out([row[0] for row in rows])
        return rows

    def give_back(self, attempts: Iterable[Attempt]) -> None:
        """Take back attempts that were not begun. Each stands again where it can be taken; that it may still go is
        looked at then."""
        for attempt in attempts:
            cursor = self._state.cursors.get(attempt.subscriber)
            if cursor is None or cursor.in_flight.get(attempt.message) != attempt.number:
                continue  # deleted, or given up when the endpoint changed
            cursor.give_back(attempt.message)
            self._nothing_went_out(cursor, attempt.message)
            self._state.no_longer_out((attempt.message,))
            self._state.activate(cursor)

    def retry_now(self, subscriber: int, message: int | None = None) -> int:
        """Make due what waits for another attempt at the subscriber, or this message alone; how many that is. Nothing
        durable (RULES 26). None of one that is paused or disabled."""
        cursor = self._state.cursors.get(subscriber)
        if cursor is None or cursor.stopped:
            return 0
        count = cursor.all_due() if message is None else int(cursor.make_due(message))
        self._breakers.probe_now(cursor)
        self._state.activate(cursor)
        return count

    def stands(self, attempt: Attempt) -> bool:
        """See ``Scheduler``."""
        cursor = self._state.cursors.get(attempt.subscriber)
        return (
            cursor is not None
            and cursor.in_flight.get(attempt.message) == attempt.number
            and attempt.message not in self._state.still_out
            and not self._ended_meanwhile(attempt, cursor)
        )

    def _acknowledged(self, cursor: Cursor | None, count: int, status: int, now_us: int) -> None:
        """Count first attempts of a cursor that were acknowledged, ``count`` of them, the last one with this status."""
        if not count or cursor is None:
            return
        self._state.unconfirmed += count
        cursor.last_status, cursor.last_reason, cursor.last_attempt_us = status, _ACKNOWLEDGED, now_us
        cursor.failing_since_us = 0
        if cursor.breaker is not None or self._breakers.origins:
            self._breakers.are_well(cursor, count)
        # One that had room stands in the line, or has nothing to hand out: no need to look.
        is_short = len(cursor.in_flight) + count >= cursor.window or cursor.batch is not None
        if not cursor.queued and (is_short or cursor.retrying):
            self._state.activate(cursor)

    def _settle_one(self, attempt: Attempt, answer: AttemptResult, now_us: int, jitter: Callable[[], float]) -> Row:
        cursor = self._state.cursors.get(attempt.subscriber)
        if cursor is None:
            return _row(attempt, answer, Outcome.LATE)
        if cursor.in_flight.get(attempt.message) != attempt.number:
            self._breakers.is_back(cursor, attempt.message)
            return _row(attempt, answer, Outcome.LATE)  # given up when the endpoint changed, and made again
        cursor.attempt_over(attempt.message)
        self._state.activate(cursor)
        is_unwanted = answer.retry_after_s == SKIP
        if answer.reason in SKIPPING or answer.reason is Reason.ERASED:
            self._nothing_went_out(cursor, attempt.message)
        else:
            self._note(cursor, Reason.NONE if is_unwanted else answer.reason, answer.status, now_us)
            if answer.reason is not _ACKNOWLEDGED or cursor.breaker is not None or self._breakers.origins:
                self._breakers.answered(cursor, attempt, answer, now_us)
        if self._ended_meanwhile(attempt, cursor):
            return _row(attempt, answer, Outcome.LATE)
        if answer.reason in SKIPPING:
            self._state.ended(cursor, attempt.message)
            return _row(attempt._replace(number=0), answer, Outcome.SKIPPED)
        if is_unwanted:
            self._state.ended(cursor, attempt.message)
            return _row(attempt, answer, Outcome.SKIPPED)
        due_us = self._next_try_us(cursor, attempt, answer, now_us, jitter)
        if due_us:
            known = cursor.retrying.get(attempt.message)
            first_us = attempt.started_us if known is None else known.first_us
            before = self._tried_before(cursor, attempt)
            tried = TriedState(attempt.number, due_us, before, first_us, _together(known, answer))
            self._state.try_again(cursor, attempt.message, tried)
            return _row(attempt, answer, Outcome.FAILED, due_us)
        self._state.ended(cursor, attempt.message)
        if answer.reason is Reason.ERASED:  # none was made
            end = (attempt.message, attempt.subscriber, 0, Outcome.DROPPED, Reason.ERASED, 0, now_us, 0, 0, 0)
            return Row(*end)
        return _row(attempt, answer, Outcome.DELIVERED if answer.reason is _ACKNOWLEDGED else Outcome.DEAD)

    def _next_try_us(
        self, cursor: Cursor, attempt: Attempt, answer: AttemptResult, now_us: int, jitter: Callable[[], float]
    ) -> int:
        """When to try again, Unix microseconds; 0 for never."""
        if answer.reason in _FINAL or answer.retry_after_s == NEVER:
            return 0
        policy = cursor.subscriber.settings.retry or self._state.queues[cursor.subscriber.queue].queue.settings.retry
        failures = attempt.number - self._tried_before(cursor, attempt)
        wait = wait_us(policy, failures, jitter(), answer.retry_after_s)
        return 0 if wait is None else now_us + wait

    @staticmethod
    def _tried_before(cursor: Cursor, attempt: Attempt) -> int:
        """How many attempts the retry budget does not count: those before the last replay."""
        tried = cursor.retrying.get(attempt.message)
        return attempt.number - 1 if tried is None else tried.before

    def _ended_meanwhile(self, attempt: Attempt, cursor: Cursor) -> bool:
        """Whether a cancel, a purge or an expiry has ended the delivery while its attempt was out."""
        entry = self._state.replays.get(attempt.message)
        if entry is not None and attempt.subscriber in entry.left:
            # One that was out when its message was cancelled has no part in a replay: that makes its own.
            return attempt.replay != entry.number
        if attempt.replay:
            return True
        # Who catches up is sent what has ended, also while a replay sends it to others.
        return cursor.counts(attempt.message) and self._state.table.state(attempt.message) >= MessageState.COMPLETE

    def _note(self, cursor: Cursor, reason: Reason, status: int, now_us: int) -> None:
        """An answer came."""
        cursor.last_status, cursor.last_reason, cursor.last_attempt_us = status, reason, now_us
        cursor.failing_since_us = 0 if reason is Reason.NONE else cursor.failing_since_us or now_us
        after_s = cursor.subscriber.settings.disable_after_s
        if reason is not Reason.NONE and after_s and now_us - cursor.failing_since_us >= after_s * 1e6:
            self._state.failed_too_long.add(cursor.number)

    def end_overdue(self, now_us: int, limit: int) -> list[Row]:
        """Rows that end what a breaker held back until its schedule was over, at most ``limit``."""
        rows: list[Row] = []
        overdue = self._breakers.overdue
        while overdue and len(rows) < limit:
            cursor, sequence = overdue.popleft()
            if self._state.cursors.get(cursor.number) is not cursor or not cursor.pop_one_due(sequence):
                continue
            has_ended = self._state.table.state(sequence) >= MessageState.COMPLETE
            if has_ended and cursor.is_counted and sequence not in self._state.replays:
                continue
            self._state.ended(cursor, sequence)
            rows.append(Row(sequence, cursor.number, 0, Outcome.DEAD, Reason.BREAKER_OPEN, 0, now_us, 0, 0, 0))
        return rows

    def abandon(self, cursor: Cursor, now_us: int, limit: int) -> list[Row]:
        """Rows that end what waits for a subscriber disabled for too long (RULES 14), at most ``limit``."""
        rows: list[Row] = []
        while len(rows) < limit:
            sequence = self._next_abandoned(cursor)
            if not sequence:
                break
            self._state.ended(cursor, sequence)
            number = cursor.subscriber.number
            rows.append(Row(sequence, number, 0, Outcome.DEAD, Reason.SUBSCRIBER_DISABLED, 0, now_us, 0, 0, 0))
        return rows

    def _next_abandoned(self, cursor: Cursor) -> int:
        while sequence := cursor.pop_waiting():
            has_ended = self._state.table.state(sequence) >= MessageState.COMPLETE
            if not has_ended or not cursor.is_counted or sequence in self._state.replays:
                return sequence
        found: list[int] = []
        self._following(cursor, 1, found)
        for sequence in found:
            cursor.attempt_over(sequence)  # before it has begun
        return found[0] if found else 0


def _together(known: TriedState | None, answer: AttemptResult) -> int:
    """In a request of how many at most a message is tried next: of half as many where one of them may be what the
    endpoint does not take; not where nobody answered, or was busy."""
    if answer.together > 1 and answer.reason not in NO_ANSWER and answer.status not in _BUSY:
        return answer.together // 2
    return 0 if known is None else known.together


def _row(attempt: Attempt, answer: AttemptResult, outcome: Outcome, due_us: int = 0) -> Row:
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
