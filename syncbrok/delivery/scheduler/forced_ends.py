"""Ends without an attempt: those that the clock brings, and those that a rule demands.

Two steps. ``DependencyTracker.force_end`` marks the message, so that no new attempt of it starts. Its end record is
asked for once no attempt of it is out, because an attempt that is out may still succeed, and then its outcome wins.
Until then the end waits in ``SchedulerState.still_out``, however long a consumer keeps the message.
"""

from collections.abc import Callable, Mapping
from typing import Final

from syncbrok.delivery.handler import Attempt
from syncbrok.delivery.scheduler.breakers import Breakers
from syncbrok.delivery.scheduler.dependencies import DependencyTracker
from syncbrok.delivery.scheduler.dispatch_queue import DispatchQueue
from syncbrok.delivery.scheduler.lifecycle import MessageState
from syncbrok.delivery.scheduler.message_table import ENDING
from syncbrok.delivery.scheduler.state import (
    BREAKER_DUE,
    DISABLED_OVER,
    DUE,
    EXPIRES,
    HOLD_OVER,
    RATE_DUE,
    ForcedEnd,
    SchedulerState,
)
from syncbrok.model import limits
from syncbrok.model.facts import ALL_SUBSCRIBERS, Outcome, Reason, Row

_CURSORS_AT_ONCE: Final = 65_536
"""looked at for attempts that are out: some milliseconds"""


class ForcedEnds:
    """Says whose end the clock demands, and asks for the rows of all such ends."""

    def __init__(
        self, state: SchedulerState, dependencies: DependencyTracker, line: DispatchQueue, breakers: Breakers
    ) -> None:
        self._state = state
        self._breakers = breakers
        self._dependencies = dependencies
        self._dispatch_queue = line
        self._at_its_time: Final[Mapping[int, Callable[[int, int], None]]] = {
            DUE: self._delay_over,
            EXPIRES: self._expires,
            HOLD_OVER: self._hold_over,
            DISABLED_OVER: self._disabled_over,
            BREAKER_DUE: self._breaker_due,
            RATE_DUE: self._rate_due,
        }

    def wake_due(self, now_us: int) -> None:
        """Do what the clock brings: retries, and by the kind of each other timer what ``_at_its_time`` says."""
        state = self._state
        first_us = state.timers.next_due_us()
        if first_us is None or first_us > now_us:
            return
        for kind, value in state.timers.pop_due(now_us):
            if kind < DUE:
                self._retry_due(kind, value, now_us)
            else:
                self._at_its_time[kind](value, now_us)

    def _retry_due(self, number: int, sequence: int, now_us: int) -> None:
        cursor = self._state.cursors.get(number)
        # One that was made due before its time may have failed again since, and waits for another time.
        tried = cursor.retrying.get(sequence) if cursor is not None else None
        if cursor is None or tried is None or tried.due_us > now_us:
            return
        if cursor.make_due(sequence):
            self._state.activate(cursor)
            if cursor.is_mortal:
                self._breakers.look_at_its_end(cursor, sequence)
        elif cursor.is_mortal:
            self._breakers.is_over(cursor, sequence, now_us)

    def _breaker_due(self, number: int, _now_us: int) -> None:
        self._breakers.probe_due(number)

    def _rate_due(self, number: int, _now_us: int) -> None:
        self._dispatch_queue.rate_due(number)

    def _delay_over(self, sequence: int, _now_us: int) -> None:
        self._dependencies.re_evaluate(sequence, due=True)

    def _expires(self, sequence: int, _now_us: int) -> None:
        if self._has_not_ended(sequence):
            self._dependencies.force_end(sequence, Outcome.EXPIRED, Reason.EXPIRED)

    def _hold_over(self, sequence: int, now_us: int) -> None:
        entry = self._state.replays.get(sequence)
        if entry is not None:
            if entry.held and entry.hold_over_us <= now_us:
                self._state.pending_ends.append(ForcedEnd(sequence, Outcome.EXPIRED, Reason.HOLD_EXPIRED, entry.number))
        elif self._state.table.state(sequence) is MessageState.HELD and self._has_not_ended(sequence):
            self._dependencies.force_end(sequence, Outcome.EXPIRED, Reason.HOLD_EXPIRED)

    def _has_not_ended(self, sequence: int) -> bool:
        """Nor is about to."""
        table = self._state.table
        return 0 < table.state(sequence) < MessageState.COMPLETE and not table.flags(sequence) & ENDING

    def _disabled_over(self, number: int, now_us: int) -> None:
        cursor = self._state.cursors.get(number)
        if cursor is None:
            return
        disabled_us = cursor.subscriber.settings.disabled_us
        if 0 < disabled_us <= now_us - int(limits.disabled_max_s * 1e6):
            cursor.abandoned = True
            self._state.abandoned.add(number)

    def expire(self, attempt: Attempt) -> bool:
        """Whether a message whose time is over ends without this attempt, which the wheel tells a bucket too late."""
        table, sequence = self._state.table, attempt.message
        if attempt.replay or not 0 < table.state(sequence) < MessageState.COMPLETE:
            return False
        self._dispatch_queue.give_back((attempt,))
        if not table.flags(sequence) & ENDING:
            self._dependencies.force_end(sequence, Outcome.EXPIRED, Reason.EXPIRED)
        return True

    def take_pending_ends(self, now_us: int, limit: int) -> list[Row]:
        """See ``Scheduler``."""
        rows: list[Row] = []
        pending_ends = self._state.pending_ends
        looked_at = 0
        for _ in range(min(len(pending_ends), limit)):
            if looked_at >= _CURSORS_AT_ONCE:
                break
            forced = pending_ends.popleft()
            queue_state = self._state.queues.get(self._state.queue_of(forced.message))
            if self._over(forced) or queue_state is None:
                continue
            looked_at += len(queue_state.cursors)
            out = [cursor for cursor in queue_state.cursors if forced.message in cursor.in_flight]
            if out:
                self._state.still_out.setdefault(forced.message, []).append(forced)
                for cursor in out:
                    self._state.give_up(cursor, (forced.message,))
                continue
            self._state.asked[forced.message] = forced
            rows.append(Row(forced.message, ALL_SUBSCRIBERS, 0, forced.outcome, forced.reason, 0, now_us, 0, 0, 0))
        if self._breakers.overdue:
            rows.extend(self._dispatch_queue.end_overdue(now_us, limit - len(rows)))
        for number in self._state.abandoned:
            rows.extend(self._dispatch_queue.abandon(self._state.cursors[number], now_us, limit - len(rows)))
        return rows

    def _over(self, forced: ForcedEnd) -> bool:
        """Whether what it is about has ended otherwise."""
        entry = self._state.replays.get(forced.message)
        if forced.replay:
            return entry is None or entry.number != forced.replay
        return entry is not None or self._state.table.state(forced.message) >= MessageState.COMPLETE
