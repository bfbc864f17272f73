"""Says what keeps a delivery back (RULES 6, 7, 11 to 14, 21): one question, whichever way the message comes to a
subscriber.

==========  ==========================================================================================================
live        the message counts the subscriber: its own gate, then the messages of its key before it there
uncounted   it comes there because of where the subscriber starts, or since that does not count: its parents there,
            those of its key there, then its own gate
again       a replay sends it: its parents in the replay, then those of its key, in whatever replay, and live
==========  ==========================================================================================================

The **gate** of a message is what is one for all its subscribers (its time, its parents, a hold), and for a child of
scope ``same`` and a message with a key what is judged at each. Nothing here changes who waits: ``DispatchQueue`` blocks
what is kept back, ``DependencyTracker`` and ``Backfill`` ask again when what it waited for has ended. A gate is judged
from what is known, not counted down: a counter that is off by one holds a message for ever, a judgement made again is
right.
"""

from enum import IntEnum
from typing import NamedTuple

from syncbrok.delivery.scheduler.cursor import Cursor
from syncbrok.delivery.scheduler.edges import HISTORY
from syncbrok.delivery.scheduler.lifecycle import MessageState
from syncbrok.delivery.scheduler.message_table import DELIVER, ENDING, ONLY, PER_SUBSCRIBER, POLICY
from syncbrok.delivery.scheduler.state import ReplayEntry, SchedulerState


class BlockedBy(IntEnum):
    GATE = 0
    """its own, which is one for all"""
    PARENT = 1
    KEY = 2
    """a message of its key before it"""
    PAST = 3
    """it has a key, and not all is known there of what came before the subscriber's time"""


class Blocker(NamedTuple):
    """Why a delivery may not go now. ``message``: whose end is waited for, or, if it is the message itself, whose gate;
    ``HISTORY`` for ``PAST``. ``is_private``: it waits by itself at this subscriber (``Edges``), so nobody else lets it
    go."""

    why: BlockedBy
    message: int
    is_private: bool


class Blockers:
    """Judges what may go to whom."""

    def __init__(self, state: SchedulerState) -> None:
        self._state = state

    def of(self, sequence: int, cursor: Cursor) -> Blocker | None:
        """The blocker of a message that is for the subscriber and has not ended there; None if it may go now."""
        replays = self._state.replays
        if replays:
            entry = replays.get(sequence)
            if entry is not None and cursor.number in entry.left:
                return self.again(sequence, entry, cursor)
        return self.live(sequence, cursor) if cursor.counts(sequence) else self.uncounted(sequence, cursor)

    def live(self, sequence: int, cursor: Cursor) -> Blocker | None:
        """The blocker of a message that counts the subscriber."""
        blocker = self.gate(sequence, cursor)
        if blocker is None and has_keys_before(cursor):
            key = self._state.keys.key_of(sequence)
            if key and not cursor.history_done:
                return Blocker(BlockedBy.PAST, HISTORY, True)
            before = self.before_of_key(sequence, cursor, key) if key else 0
            if before:
                return Blocker(BlockedBy.KEY, before, True)
        return blocker

    def uncounted(self, sequence: int, cursor: Cursor, parents: tuple[int, ...] = (), key: str = "") -> Blocker | None:
        """The blocker of a message that comes to the subscriber and does not count it. ``parents`` and ``key``: its
        own, where it has not waited for them there yet.

        A message may have ended before its parents, if all that it counted are deleted: it waits for those."""
        table = self._state.table
        waits_here = [parent for parent in parents if not cursor.finished(parent)]
        if waits_here:
            return Blocker(BlockedBy.PARENT, waits_here[-1], True)
        before = self.before_of_key(sequence, cursor, key) if key else 0
        if before:
            return Blocker(BlockedBy.KEY, before, True)
        if table.state(sequence) >= MessageState.COMPLETE:
            above = next((parent for parent in parents if table.state(parent) < MessageState.COMPLETE), 0)
            return Blocker(BlockedBy.PARENT, above, True) if above else None
        blocker = self.gate(sequence, cursor)
        if blocker is None:
            return None
        if blocker.why is BlockedBy.PARENT:
            # Its parents are judged at each subscriber, at this one by all: nothing tells when the last is complete.
            open_ones = (one for one in table.parents(sequence) if table.state(one) < MessageState.COMPLETE)
            return Blocker(BlockedBy.PARENT, next(open_ones, sequence), True)
        return Blocker(BlockedBy.GATE, sequence, True)

    def again(self, sequence: int, entry: ReplayEntry, cursor: Cursor) -> Blocker | None:
        """The blocker of a message that a replay sends to the subscriber. What is live does not wait for it."""
        if entry.waiting:
            return Blocker(BlockedBy.PARENT, min(entry.waiting), False)
        if not entry.key:
            return None
        state = self._state
        before = cursor.replay_lines.first(entry.key)
        if not 0 < before < sequence:
            before = state.keys.live_before(entry.queue, entry.key, sequence, cursor)
        if before:
            return Blocker(BlockedBy.KEY, before, False)
        before = self.before_of_key(sequence, cursor, entry.key)
        return Blocker(BlockedBy.KEY, before, True) if before else None

    def gate(self, sequence: int, cursor: Cursor) -> Blocker | None:
        """The gate of a message that has not ended, as the subscriber meets it; None where it is open."""
        table = self._state.table
        flags = table.flags(sequence)
        if table.state(sequence) is not MessageState.PENDING or flags & ENDING:
            return Blocker(BlockedBy.GATE, sequence, False)
        if not flags & PER_SUBSCRIBER:
            return None
        for parent in table.parents(sequence):
            if not self._is_over(parent, flags, cursor):
                return Blocker(BlockedBy.PARENT, parent, False)
        chain = self._state.keys.of(sequence) if cursor.counts(sequence) else None
        before = 0 if chain is None else self._state.keys.first_at(chain, cursor, sequence)
        return Blocker(BlockedBy.KEY, before, False) if before else None

    def before_of_key(self, sequence: int, cursor: Cursor, key: str) -> int:
        """The last message of the key before ``sequence`` that does not count the subscriber and has not ended there; 0
        for none. What goes again in a replay has ended: nothing live waits for it."""
        if not cursor.key_lines:
            return 0
        goes_to, number = self._state.replays.goes_to, cursor.number
        return cursor.key_lines.last_before(key, sequence, lambda one: cursor.finished(one) or goes_to(one, number))

    def _is_over(self, parent: int, flags: int, cursor: Cursor) -> bool:
        """Whether a parent in the message's own queue has ended as the child needs it, at the subscriber alone where
        the parent counts that."""
        table = self._state.table
        state = table.state(parent)
        if state >= MessageState.COMPLETE:
            return state is MessageState.COMPLETE or flags & POLICY == DELIVER
        counted = (
            table.queue(parent) == cursor.subscriber.queue
            and cursor.counts(parent)
            and (not table.flags(parent) & ONLY or table.only.get(parent) == cursor.subscriber.number)
        )
        return counted and cursor.finished(parent) and parent not in cursor.dead


def has_keys_before(cursor: Cursor) -> bool:
    """Whether messages from before the subscriber's time may keep back later ones of their keys there."""
    return cursor.is_counted and (bool(cursor.key_lines) or not cursor.history_done)
