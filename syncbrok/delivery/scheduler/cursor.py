"""One subscriber's place in its queue: what it is getting, what it will get again, what it cannot get yet.

Everything up to ``scanned_through`` has been looked at and is either ended, or in exactly one of the sets below;
everything beyond has not. A hung endpoint therefore costs its window and its retries, not an entry for each message
behind them.

    state          where it stands
    BLOCKED        ``blocked``      its gate was closed when the cursor came by
    PENDING        beyond ``scanned_through``, or ``eligible`` (its gate has opened since), or ``due`` (its retry is)
    IN_FLIGHT      ``in_flight``    handed to a handler
    RETRYING       ``retrying``     an attempt has failed; in none of the above
    ended          ``unconfirmed`` until its row is durable, then nowhere

A delivery is moved from one to another by the methods of ``Cursor`` alone, one for each thing that can happen to it.
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice
from typing import Final, NamedTuple

import numpy as np

from syncbrok.delivery.scheduler.batch_line import BatchLine
from syncbrok.delivery.scheduler.breaker import Breaker
from syncbrok.delivery.scheduler.dead_letters import DeadLetters
from syncbrok.delivery.scheduler.delivered_below import DeliveredBelow
from syncbrok.delivery.scheduler.edges import Told
from syncbrok.delivery.scheduler.key_lines import KeyLines
from syncbrok.delivery.scheduler.lifecycle import DeliveryState
from syncbrok.delivery.scheduler.rate_bucket import RateBucket
from syncbrok.model import limits
from syncbrok.model.facts import Reason
from syncbrok.model.message import Subscriber
from syncbrok.model.sequence_set import SequenceSet

UNCOUNTED: Final = 1 << 63
"""``Cursor.since`` of one that does not count: no message is as new as that"""
_LOOK_SHIFT: Final = 6
"""with so many out, as a power of two, what has ended is looked for again one turn later; with twice as many two"""
_LOOKS: Final = 64
"""messages of each set that are looked at while replays go out"""
_FEW: Final = 64
"""sequences that are sooner extended by one after the other than by an array"""


class TriedState(NamedTuple):
    """A delivery that has been tried: how often, when it is due again, and how many of its attempts were made before
    the last replay (the retry budget starts anew there)."""

    attempts: int
    due_us: int
    before: int = 0
    first_us: int = 0
    """when the first of those that count began; 0: not known any more"""
    together: int = 0
    """in a request of at most so many messages it is tried next; 0: of as many as any"""


class Backlog:
    """The sequences of a queue that some cursor has not looked at yet, oldest first."""

    __slots__ = ("offset", "sequences")

    def __init__(self) -> None:
        self.sequences: array[int] = array("Q")
        self.offset = 0
        """how many have been trimmed away; positions are counted from the first ever"""

    @property
    def end(self) -> int:
        return self.offset + len(self.sequences)

    def position_after(self, sequence: int) -> int:
        return self.offset + bisect_right(self.sequences, sequence)

    def extend(self, first: int, count: int) -> None:
        """By ``count`` sequences that follow each other from ``first`` on."""
        if count < _FEW:
            self.sequences.extend(range(first, first + count))
        else:
            self.sequences.frombytes(np.arange(first, first + count, dtype=np.uint64).tobytes())

    def following(self, position: int, most: int) -> "array[int]":
        """At most ``most`` sequences from a position on, oldest first."""
        at = position - self.offset
        return self.sequences[at : at + most]

    def trim(self, position: int) -> None:
        """Forget what is below ``position``; only in large steps, since it moves the rest."""
        gone = position - self.offset
        if gone >= 8_192 and gone * 2 >= len(self.sequences):
            del self.sequences[:gone]
            self.offset = position


class Cursor:
    """The mutable bookkeeping of one subscriber. Owned by the scheduler; nobody else changes it. Of its sets the others
    only read, but for ``DispatchQueue.settle`` and ``OutcomeApplier.apply``: of a drained backlog, a call for each
    delivery would be a thirtieth there."""

    __slots__ = (
        "abandoned", "backlog", "batch", "blocked", "breaker", "cascaded", "consumer_capacity", "dead", "delivered",
        "delivered_below", "due", "eligible", "ended_out_of_order", "ending", "failed", "failing_since_us", "held_back",
        "history_after", "history_done", "history_taken", "in_flight", "is_mortal", "key_lines", "last_attempt_us",
        "last_reason", "last_status", "number", "passed", "position", "queue", "queued", "rate", "replay_lines",
        "retrying", "scanned_through", "since", "skipped", "stopped", "subscriber", "unconfirmed", "unused_us",
        "window",
    )  # fmt: skip

    rate: RateBucket | None
    """bounds how often it is tried"""
    batch: BatchLine | None
    """several of its messages go out in one request"""

    def __init__(self, subscriber: Subscriber, backlog: Backlog, window: int) -> None:
        """``backlog`` is that of its queue. One that does not count has no place in it: what it gets it is told as
        one that starts in the past is told its history, all along (``Backfill``)."""
        self.rate = self.batch = None
        self.declared(subscriber)
        self.number, self.queue = subscriber.number, subscriber.queue
        self.since = subscriber.since if subscriber.settings.counts else UNCOUNTED
        """messages after it count the subscriber"""
        # messages of its queue in the order of the log; empty where it does not count:
        self.backlog = backlog if subscriber.settings.counts else Backlog()
        # most deliveries in flight: of its own settings, else its queue's; with ``batch`` as many requests:
        self.window = window
        self.consumer_capacity = 0
        """what its consumers have room for; only where the subscriber has consumers and no endpoint to post to"""
        # newest message of the backlog that it has been given; the next one is at ``position``:
        self.scanned_through = self.since
        # place in the backlog of the first message that it has not been given:
        self.position = self.backlog.position_after(self.since)
        self.blocked = SequenceSet()  # wait for something (``Blockers``); bounded by the log, a bit each
        self.eligible = SequenceSet()  # may go out as soon as there is room; bounded by the log, a bit each
        self.due = SequenceSet()  # of ``retrying``: those whose time has come
        # after a restart: what beyond ``scanned_through`` has ended, is in ``retrying``, or was carried:
        self.ended_out_of_order = SequenceSet()
        self.in_flight: dict[int, int] = {}  # sequence -> number of the attempt that is out; bounded by ``window``
        # wait for another attempt; bounded by limits.retrying_per_subscriber_max and the window:
        self.retrying: dict[int, TriedState] = {}
        # answered, and the outcome is not durable yet; bounded by limits.outcomes_waiting_max:
        self.unconfirmed: set[int] = set()
        # of those: how often they had been tried before. Where the row of the last attempt is lost with the process,
        # that attempt is made again, with the same number:
        self.ending: dict[int, TriedState] = {}
        self.dead = DeadLetters()  # but for those of ``cascaded``
        self.skipped = SequenceSet()  # ended without having been for it; bounded by the log, a bit each
        self.delivered_below = DeliveredBelow()  # what may be said with a message of those before it
        self.cascaded = -1
        """messages that died as a whole at it, besides ``dead``; kept by ``state.Cascaded``, -1 until asked for"""
        self.queued = False
        """stands in the scheduler's line of cursors that may have work"""
        self.held_back = False  # holds its share of what all share, and takes no more before some of it is back
        self.abandoned = False  # disabled for so long that all that waits for it dies
        self.history_after = (subscriber.settings.start or 1) - 1
        """through where it has been told; while ``history_done``, and it does not count: the newest of its queue"""
        self.history_done = subscriber.settings.start is None or subscriber.settings.start > subscriber.since
        """it has been told all there is to tell: up to its own time, or, where it does not count, up to now"""
        if self.history_done and not self.is_counted:
            self.history_after = max(self.history_after, subscriber.since)
        self.history_taken = SequenceSet()  # of what the backfill tells it: taken up before a restart
        self.passed: dict[int, Told] = {}
        """catching up: message that nobody was to get any more -> its parents, its key. A part of
        ``MessageTable.bad``, which has no bound; each goes when a replay mends its message"""
        self.key_lines = KeyLines()
        """of what it was told, and what does not count it; bounded as what waits there by itself"""
        self.replay_lines = KeyLines()
        """of what a replay sends to it; kept by ``state.ReplayEntries``"""
        self.delivered = self.failed = 0  # attempts that came through, and that did not, since the log began
        self.last_reason = Reason.NONE  # why the last attempt failed; ``NONE``: it did not
        # HTTP status of the last attempt, 0 for none; when the last answer came, and the first of the failures since an
        # attempt came through, 0 for never:
        self.last_status = self.last_attempt_us = self.failing_since_us = 0
        self.breaker: Breaker | None = None  # from the first failure of its endpoint on; kept by ``Breakers``
        self.is_mortal = False
        """held back by a breaker: what is tried again and due is looked at when its schedule is over"""
        self.unused_us = 0
        """for how long nobody has taken anything though there was something; see ``Scheduler.unused``"""

    def rate_declared(self, text: str | None) -> None:
        """Bound its attempts anew, where the rate is another one: the bucket is full then."""
        if self.rate is None or self.rate.text != text:
            self.rate = None if text is None else RateBucket(text)

    def declared(self, subscriber: Subscriber) -> None:
        """Its settings, now. ``stopped``: paused by an operator or disabled by a 410, counted and frozen (RULES 14)."""
        self.subscriber = subscriber
        self.stopped = subscriber.stopped
        self.rate_declared(subscriber.settings.rate)
        policy = None if subscriber.consumed else subscriber.settings.batch
        if policy != (None if self.batch is None else self.batch.policy):
            self.batch = None if policy is None else BatchLine(policy)

    def set_window(self, window: int) -> None:
        """So many attempts may be out, or requests."""
        if self.batch is not None:
            self.batch.window = window
            window *= self.batch.policy.max
        self.window = window

    def go_on_from(self, old: "Cursor") -> None:
        """Take over what another cursor of the subscriber has begun and been told; that one keeps its own."""
        for name in ("blocked", "eligible", "due", "history_taken"):
            setattr(self, name, SequenceSet.load(getattr(old, name).dump()))
        self.in_flight, self.retrying, self.unconfirmed = dict(old.in_flight), dict(old.retrying), set(old.unconfirmed)
        self.ending = dict(old.ending)
        self.dead, self.passed, self.skipped = old.dead, old.passed, old.skipped
        self.key_lines, self.replay_lines = old.key_lines.copy(), old.replay_lines.copy()
        self.consumer_capacity, self.abandoned = old.consumer_capacity, old.abandoned
        self.history_after, self.history_done = old.history_after, old.history_done
        self.delivered, self.failed = old.delivered, old.failed
        self.last_status, self.last_reason = old.last_status, old.last_reason
        self.last_attempt_us, self.failing_since_us = old.last_attempt_us, old.failing_since_us
        self.breaker, self.is_mortal, self.rate = old.breaker, old.is_mortal, old.rate
        self.delivered_below = DeliveredBelow.load(old.delivered_below.numbers(), old.delivered_below.above())
        self.batch = old.batch

    @property
    def is_counted(self) -> bool:
        """Whether the completion of messages waits for it (RULES 3)."""
        return self.since < UNCOUNTED

    @property
    def idle(self) -> bool:
        """Nothing could be handed out, whatever the room."""
        backlog = self.backlog
        return (
            self.position >= backlog.offset + len(backlog.sequences) and not self.eligible.count and not self.due.count
        )

    @property
    def in_past(self) -> bool:
        """Whether what is new waits: consumers that start in the past get all in order, that which came before them
        first. An endpoint has new messages at once, and so have consumers where many of the old ones wait for
        others."""
        return not self.history_done and self.subscriber.consumed and len(self.blocked) < limits.window_max

    @property
    def unseen(self) -> int:
        """How many messages of the backlog it has not been given."""
        return self.backlog.end - self.position

    def counts(self, sequence: int) -> bool:
        """Whether a message of its queue counts it: its own fact came first (RULES 3)."""
        return sequence > self.since

    def backfill_covers(self, sequence: int) -> bool:
        """Whether it has been told of a message that is for it, if it does not count."""
        first = self.subscriber.settings.start or self.subscriber.since
        return first <= sequence <= self.history_after

    def outstanding(self, sequence: int) -> bool:
        """Whether the delivery has not ended, for a message that counts this subscriber."""
        if sequence > self.scanned_through and sequence not in self.ended_out_of_order:
            return True
        return (
            sequence in self.in_flight
            or sequence in self.retrying
            or sequence in self.eligible
            or sequence in self.blocked
        )

    def untouched(self, sequence: int) -> bool:
        """Whether it lies beyond all that was looked at, and no restart has taken it up."""
        return (
            sequence > self.scanned_through
            and sequence not in self.ended_out_of_order  # where whatever was tried stands as well
            and not (self.blocked and sequence in self.blocked)
            and not (self.eligible and sequence in self.eligible)
        )

    def untaken(self, through: int) -> list[int]:
        """The messages up to ``through`` that it was told of and that have not ended, if it does not count."""
        sets = (self.eligible, self.blocked, self.retrying, self.in_flight)
        return sorted({sequence for one in sets for sequence in one if sequence <= through})

    def finished(self, sequence: int) -> bool:
        """Whether the delivery has ended and that is durable."""
        return not self.outstanding(sequence) and sequence not in self.unconfirmed

    def state(self, sequence: int) -> DeliveryState | None:
        """The state of an outstanding delivery; None for one that has ended, or waits for its row to be durable."""
        if sequence in self.in_flight:
            return DeliveryState.IN_FLIGHT
        if sequence in self.blocked:
            return DeliveryState.BLOCKED
        if sequence in self.eligible or sequence in self.due:
            return DeliveryState.PENDING
        if sequence in self.retrying:
            return DeliveryState.RETRYING
        if sequence > self.scanned_through and sequence not in self.ended_out_of_order:
            return DeliveryState.PENDING
        return None

    def is_open(self, sequence: int) -> bool:
        """Whether a message that it was given has not ended, or not durably."""
        return (
            sequence in self.in_flight
            or sequence in self.unconfirmed
            or sequence in self.retrying
            or (self.blocked.count > 0 and sequence in self.blocked)
            or (self.eligible.count > 0 and sequence in self.eligible)
        )

    def is_alone_out(self) -> bool:
        """Whether one message is out, and nothing else is open that it was given or is still to be told of."""
        return (
            len(self.in_flight) == 1
            and self.history_done
            and not (self.unconfirmed or self.retrying or self.blocked.count or self.eligible.count)
        )

    def look_how_far_ended(self, goes_again: Callable[[int, int], bool] | None) -> None:
        """Note in ``delivered_below`` up to where all that is for it has ended, durably. Something is out.
        ``goes_again``: whether a replay sends a message to a subscriber, where any does: that has ended.

        Looked for again only when what it was decided by has ended, among all that is open; where that is much, only
        every so many turns: the figure may lag behind then."""
        known, flight, unconfirmed = self.delivered_below, self.in_flight, self.unconfirmed
        oldest = known.oldest_open
        if self.is_open(oldest) and (goes_again is None or not goes_again(oldest, self.number)):
            return
        if known.put_off > 0:  # a look costs what so many messages are
            known.put_off -= 1
            return
        if goes_again is None:
            oldest = min(flight)
            if unconfirmed:
                oldest = min(oldest, min(unconfirmed))  # noqa: PLW3301 - by hundreds they are no arguments
            if self.retrying:
                oldest = min(oldest, min(self.retrying))  # noqa: PLW3301
            if self.blocked.count:
                oldest = min(oldest, self.blocked.first())
            if self.eligible.count:
                oldest = min(oldest, self.eligible.first())
        else:
            oldest = min(self._lowest_beside(goes_again), default=0)
        known.put_off = (len(flight) + len(unconfirmed) + len(self.retrying)) >> _LOOK_SHIFT
        known.oldest_open = oldest
        known.advance(oldest - 1 if self.history_done else min(oldest - 1, self.history_after))

    def _lowest_beside(self, goes_again: Callable[[int, int], bool]) -> list[int]:
        """The lowest of each set that no replay sends; 0 where many are to be looked at to say that. A replay of a
        million keeps the others from advancing rather than the loop."""
        lowest = []
        for some in (self.in_flight, self.unconfirmed, self.retrying, self.blocked, self.eligible):
            if some:
                lowest += [one for one in islice(some, _LOOKS) if not goes_again(one, self.number)]
            if len(some) > _LOOKS and (not isinstance(some, SequenceSet) or not lowest):
                return [0]
        return lowest

    # -- what happens to deliveries -----------------------------------------------------------------------------------

    def pop_due(self, most: int) -> list[int]:
        """Take out some of the retries that have come due, at most so many, the lowest first."""
        return self.due.pop_some(most)

    def pop_due_beyond(self, sequence: int) -> int:
        """Take out the next retry that has come due after that of ``sequence``, from the lowest on again where that was
        the last; 0 where there is no other."""
        others = [one for one in self.due if one != sequence]
        if not others:
            return 0
        found = others[bisect_right(others, sequence) % len(others)]
        self.due.discard(found)
        return found

    def pop_one_due(self, sequence: int) -> bool:
        """Take out this one of the retries that have come due; whether it was there."""
        return self.due.discard(sequence)

    def pop_released(self, most: int) -> list[int]:
        """Take out some of those whose gate has opened, at most so many, the lowest first."""
        return self.eligible.pop_some(most)

    def begin(self, sequences: Iterable[int], number: int = 1) -> None:
        """An attempt of each goes out: the next of those it has been tried with, or with this number."""
        flight, tried = self.in_flight, self.retrying
        if not tried:
            flight.update(dict.fromkeys(sequences, number))
            return
        for sequence in sequences:
            flight[sequence] = tried[sequence].attempts + 1 if sequence in tried else number

    def begin_next(self, sequence: int) -> None:
        """``advance`` and ``begin`` for the next of its queue."""
        self.scanned_through = sequence
        self.position += 1
        self.in_flight[sequence] = (
            self.retrying[sequence].attempts + 1 if self.retrying and sequence in self.retrying else 1
        )

    def advance(self, looked: Sequence[int]) -> None:
        """Note that it has looked at these, which come next in its queue."""
        self.position += len(looked)
        self.scanned_through = looked[-1]
        for sequence in looked if self.ended_out_of_order.count else ():
            self.ended_out_of_order.discard(sequence)

    def block(self, sequence: int) -> None:
        """Its gate is closed: it waits until it is released."""
        self.blocked.add(sequence)

    def block_all(self, sequences: Iterable[int]) -> None:
        """As ``block``, for many."""
        self.blocked.update(sequences)

    def release(self, sequences: Collection[int]) -> bool:
        """The gates of these have opened. Those that were blocked may go; the others the cursor has yet to come to, or
        they have gone or ended. Whether there were any."""
        return bool(self.blocked.move(sequences, self.eligible))

    def unblock(self, sequence: int) -> bool:
        """Take it out of those that wait: whether it may go is decided anew. True if it was blocked."""
        return self.blocked.discard(sequence)

    def tell_again(self, sequence: int) -> None:
        """Forget that it was told of a message, which has not been tried: the backfill tells it again."""
        for told in (self.blocked, self.eligible, self.history_taken):
            told.discard(sequence)

    def give_back(self, sequence: int) -> None:
        """Take back a message that was taken and not begun: it can be taken again."""
        del self.in_flight[sequence]
        (self.due if sequence in self.retrying else self.eligible).add(sequence)

    def attempt_over(self, sequence: int) -> None:
        """Its attempt has been answered: the slot of the window is free."""
        del self.in_flight[sequence]

    def take_back(self, sequence: int) -> None:
        """Its attempt, if one is out, is waited for no more: the answer will be late."""
        self.in_flight.pop(sequence, None)

    def ended(self, sequence: int) -> None:
        """Note that it has ended, by an answer or without one; its row is to be durable before anybody may rely on
        that."""
        tried = self.retrying.pop(sequence, None)
        if tried is not None:
            self.ending[sequence] = tried
        self.unconfirmed.add(sequence)

    def pop_waiting(self) -> int:
        """Take out one that the cursor has looked at and that is not out; 0 where there is none."""
        for waiting in (self.blocked, self.due, self.eligible):
            if waiting:
                return waiting.pop_first()
        sequence = next((sequence for sequence in self.retrying if sequence not in self.in_flight), 0)
        self.retrying.pop(sequence, None)
        return sequence

    def make_due(self, sequence: int) -> bool:
        """Let a delivery that waits for another attempt have it next, however long it was to wait. False where none
        does: it is out, due already, or waits for a gate, and goes when that opens."""
        if not self.waits_for_retry(sequence):
            return False
        self.due.add(sequence)
        return True

    def all_due(self) -> int:
        """``make_due`` for all there are; how many."""
        waiting = self.waiting_for_retry()
        self.due.update(waiting)
        return len(waiting)

    def waits_for_retry(self, sequence: int) -> bool:
        """True if this delivery waits for the time of another attempt, and for nothing else."""
        elsewhere = (self.in_flight, self.due, self.blocked, self.eligible)
        return sequence in self.retrying and not any(sequence in one for one in elsewhere)

    def waiting_for_retry(self) -> list[int]:
        """All deliveries of which that is true."""
        waiting = [sequence for sequence in self.retrying if sequence not in self.in_flight]
        for elsewhere in (self.due, self.blocked, self.eligible):
            if elsewhere:
                waiting = [sequence for sequence in waiting if sequence not in elsewhere]
        return waiting

    def taken_over(self) -> None:
        """Make all retries due now, and count attempts in flight as failed and due: the endpoint has changed, and the
        waits were for the old one. An answer from the old one is recorded as late."""
        if self.batch is not None:  # what is out at the old endpoint has no part in the new one's window
            self.batch = BatchLine(self.batch.policy, self.batch.window)
        for sequence, number in self.in_flight.items():
            tried = self.retrying.get(sequence)
            first_us = tried.first_us if tried else 0
            self.retrying[sequence] = TriedState(number, 0, tried.before if tried else number - 1, first_us)
        self.in_flight.clear()
        self.all_due()

    def forget(self, sequence: int) -> None:
        """Its message has ended everywhere, and it does not wait here."""
        self.eligible.discard(sequence)
        self.due.discard(sequence)
        self.retrying.pop(sequence, None)

    def confirm(self, sequence: int) -> bool:
        """The delivery has ended, durably: forget it wherever it stands (but not while it is out at a handler). Whether
        its row was waited for."""
        was_waited_for = sequence in self.unconfirmed
        if self.blocked:
            self.blocked.discard(sequence)
        if self.eligible:
            self.eligible.discard(sequence)
        if self.retrying and self.retrying.pop(sequence, None) is not None:
            self.due.discard(sequence)
        self.unconfirmed.discard(sequence)
        if self.ending:
            self.ending.pop(sequence, None)
        self.remember(sequence)
        return was_waited_for

    def came_through(self, sequences: Sequence[int]) -> None:
        """Note that these, at least one, were delivered, durably."""
        self.delivered += len(sequences)
        self.delivered_below.delivered(sequences)
        for sequence in sequences if self.ending else ():
            self.ending.pop(sequence, None)

    def note_skipped(self, sequence: int, *, is_skipped: bool) -> None:
        """Note how a delivery has ended that may have been skipped before."""
        if is_skipped:
            self.skipped.add(sequence)
        elif self.skipped.count:
            self.skipped.discard(sequence)

    def trying_again(self, sequence: int, tried: TriedState) -> None:
        """An attempt has failed, just now or, as the log says, before a restart; another follows."""
        self.retrying[sequence] = tried
        self.eligible.discard(sequence)
        self.blocked.discard(sequence)
        self.remember(sequence)

    def remember(self, sequence: int) -> None:
        """Note that a message was taken up before the cursor came to it, which happens at a restart only, or is one
        that the backfill has still to tell of."""
        if sequence > self.scanned_through:
            self.ended_out_of_order.add(sequence)
        elif not self.history_done and not self.counts(sequence):
            self.history_taken.add(sequence)
