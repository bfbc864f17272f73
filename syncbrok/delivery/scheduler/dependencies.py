"""Carries the end of a message on to what it lets go: its children, the next of its key, what is on hold for it (RULES
6, 7, 11, 12).

Whether what waited may go now says ``blockers``. The end of a parent puts its children on a list that is worked
through in slices, so that a parent of a million children does not stop the broker.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice, repeat
from typing import Final

from syncbrok.delivery.scheduler.blockers import Blockers
from syncbrok.delivery.scheduler.chunk_scans import WORTH_IT, lone_children
from syncbrok.delivery.scheduler.cursor import Cursor
from syncbrok.delivery.scheduler.edges import ON_HOLD
from syncbrok.delivery.scheduler.key_chains import KeyChain
from syncbrok.delivery.scheduler.lifecycle import PARENT_REASON, MessageEvent, MessageState
from syncbrok.delivery.scheduler.message_chunk import CHUNK_MASK, CHUNK_SHIFT
from syncbrok.delivery.scheduler.message_table import (
    ENDING,
    FAIL,
    HOLD,
    ONE_BY_ONE,
    POLICY,
    SAME,
)
from syncbrok.delivery.scheduler.state import HOLD_OVER, ForcedEnd, SchedulerState
from syncbrok.model.facts import Outcome, Reason

_WAITING: Final = int(MessageState.WAITING)
_AT_ONCE: Final = 64
"""dependents that are looked at before anything else happens; at 10 us each"""
_CURSORS_A_LOOK: Final = 6
"""subscribers of a message that cost as much as one look at it"""
_RELEASED: Final = MessageEvent.RELEASED  # to ask the enum for it costs ten times as much


class DependencyTracker:
    """Judges gates and carries the end of a parent to its children."""

    def __init__(self, state: SchedulerState, blockers: Blockers, hold_max_us: int) -> None:
        self._state = state
        self._blockers = blockers
        self._hold_max_us = hold_max_us
        self._children_to_walk: deque[tuple[int, int, Cursor | None]] = deque()
        """live edges to be walked: parent, its next child, and the subscriber where the parent has ended"""
        self._walks: deque[Iterator[None]] = deque()
        """of other edges: each step looks at one dependent"""

    @property
    def busy(self) -> bool:
        """Whether dependents still wait to be looked at."""
        return bool(self._children_to_walk or self._walks)

    def evaluate(self, queue: int, flags: int, parents: Iterable[int]) -> tuple[MessageEvent, Reason]:
        """The event that the parents make: RELEASED, BLOCKED, PARENT_BAD (hold), or ENDED_DEAD with the reason it dies
        of."""
        table = self._state.table
        event = MessageEvent.RELEASED
        for parent in parents:
            state = table.state(parent)
            if state is MessageState.COMPLETE:
                continue
            if state < MessageState.COMPLETE:
                if flags & SAME and table.queue(parent) == queue:
                    continue  # judged at each subscriber
                if event is MessageEvent.RELEASED:
                    event = MessageEvent.BLOCKED
            elif parent in self._state.replays:
                event = MessageEvent.BLOCKED if event is MessageEvent.RELEASED else event  # it may be mended yet
            elif flags & POLICY == FAIL:
                return MessageEvent.ENDED_DEAD, PARENT_REASON[state]
            elif flags & POLICY == HOLD:
                event = MessageEvent.PARENT_BAD
        return event, Reason.NONE

    def go_on(self, cursors: Iterable[Cursor], chain: KeyChain | None, key: str) -> None:
        """A message has ended at these subscribers: the next one of its chain may be able to go there, and the next
        one of its key in a replay. None and "" where nobody can stand behind it."""
        state = self._state
        for cursor in cursors:
            following = state.keys.first_at(chain, cursor) if chain is not None else 0
            if following and state.table.state(following) is MessageState.PENDING:
                self._release_where_open(following, (cursor,))
            again = cursor.replay_lines.first(key) if key else 0
            if again and not state.replays[again].waiting:
                self.release((again,), (cursor,))

    def parent_ended(self, parent: int, first_child: int, cursor: Cursor | None = None) -> None:
        """The parent has ended, or with ``cursor`` has ended at that subscriber: look at its children, in slices."""
        if first_child:
            walking = self._state.table.walking
            walking[parent] = walking.get(parent, 0) + 1
            self._children_to_walk.append((parent, first_child, cursor))

    def work(self, children_max: int) -> None:
        """Look at up to ``children_max`` dependents whose turn it is; fewer where each has many subscribers."""
        table = self._state.table
        while self._children_to_walk and children_max > 0:
            parent, child, cursor = self._children_to_walk.popleft()
            if cursor is None and table.state(parent) is MessageState.COMPLETE:
                child, children_max = self._release_alike(parent, child, children_max)
            while child and children_max > 0:
                following = table.next_child(parent, child)
                children_max -= self._looks(child) if cursor is None else 1
                self.re_evaluate(child, cursor)
                child = following
            if child:
                self._children_to_walk.appendleft((parent, child, cursor))
            elif table.walking[parent] == 1:
                del table.walking[parent]
            else:
                table.walking[parent] -= 1
        while self._walks and children_max > 0:
            children_max -= self._step(children_max)

    def _looks(self, child: int) -> int:
        """The cost of a look at a dependent, in looks: one that goes to thousands of subscribers takes milliseconds."""
        queue_state = self._state.queues.get(self._state.table.queue(child))
        return 1 + (len(queue_state.cursors) // _CURSORS_A_LOOK if queue_state is not None else 0)

    def in_slices(self, walk: Iterator[None]) -> None:
        """Look at dependents, one in each step of ``walk``: a few at once, the others as ``work`` has room. Between
        two steps anything may happen: each step looks at what there is then."""
        self._walks.append(walk)
        if len(self._walks) == 1:
            self._step(_AT_ONCE)

    def _step(self, dependents_max: int) -> int:
        """Go on with the first walk; how many dependents were looked at."""
        walk = self._walks[0]
        looked = sum(1 for _ in islice(walk, dependents_max))
        if looked < dependents_max:
            self._walks.popleft()  # one that began meanwhile stands behind it
        return looked

    def _release_alike(self, parent: int, child: int, children_max: int) -> tuple[int, int]:
        """The parent is complete: of its children, from this one on, those that wait for nothing else are pending now.
        The first child that needs a second look (0: none is left), and how many may still be looked at."""
        state = self._state
        chunks = state.table.chunks
        released: dict[int, list[int]] = {}  # by queue
        expected = neighbours = 0
        while child and children_max > 0 and not state.edges.on_hold:
            chunk = chunks.get(child >> CHUNK_SHIFT)
            if chunk is None or chunk.edge_start is None or chunk.edge_count is None:
                break
            i = child & CHUNK_MASK
            if (
                chunk.state[i] != _WAITING
                or chunk.flags[i] & ONE_BY_ONE
                or chunk.edge_count[i] != 1
                or not chunk.left[i]
            ):
                break
            at = chunk.edge_start[i]
            if chunk.edges[at] != parent:
                break
            count, looks = 1, self._looks(child)
            neighbours = neighbours + 1 if child == expected else 0
            if neighbours >= WORTH_IT and not chunk.thin:
                neighbours = 0
                count = lone_children(chunk, child, parent, max(1, children_max // looks))
                at = chunk.edge_start[i + count - 1]
                chunk.change_run(i, i + count, _RELEASED)
                self._gates_opened_alike(range(child, child + count))
            else:
                chunk.change(i, _RELEASED)
                released.setdefault(chunk.queue[i], []).append(child)
            expected = child + count
            child = chunk.links[at]
            children_max -= count * looks
        for children in released.values():
            self._gates_opened_alike(children)
        return child, children_max

    def re_evaluate(self, child: int, cursor: Cursor | None = None, *, due: bool = False) -> None:
        """Judge again a message whose parents, predecessor or time (``due``) have come along."""
        table = self._state.table
        chunk = table.chunk(child)
        if chunk is None:
            return
        i = child & CHUNK_MASK
        state, flags = chunk.state[i], chunk.flags[i]
        if not MessageState.NONE < state < MessageState.COMPLETE or flags & ENDING:
            return
        event, reason = self.evaluate(chunk.queue[i], flags, table.parents(child))
        if event is MessageEvent.ENDED_DEAD:
            self.force_end(child, Outcome.DEAD, reason)
        elif state == MessageState.SCHEDULED and not due:
            return
        elif event is MessageEvent.RELEASED and state != MessageState.PENDING:
            table.change(child, event)
            self._forget_hold(child)
            self.gate_opened(child)
        elif event is MessageEvent.PARENT_BAD and state != MessageState.HELD:
            table.change(child, event)
            self.hold(child)
        elif event is MessageEvent.BLOCKED and state in (MessageState.HELD, MessageState.SCHEDULED):
            table.change(child, event)
            self.wait_on_ended(child)
        elif state == MessageState.PENDING:
            self._release_where_open(child, (cursor,) if cursor else self._cursors_of(child))

    def gate_opened(self, sequence: int) -> None:
        """Its gate has opened, so far as it is one for all. With nobody to go to it is complete (RULES 17: at once,
        which is when nothing it waits for is left)."""
        if self._state.table.left(sequence) == 0:
            # By a row: that its time has come is in no other fact, and what follows from it must be.
            self.force_end(sequence, Outcome.SKIPPED, Reason.NONE)
        else:
            self._release_where_open(sequence, self._cursors_of(sequence))
            self._note_opened((sequence,))

    def _gates_opened_alike(self, messages: Sequence[int]) -> None:
        """The gates of these of one queue, in order, have opened, and no subscriber has one of its own."""
        for cursor in self._cursors_of(messages[0]):
            counted = messages
            if not cursor.counts(messages[0]):
                counted = [message for message in messages if cursor.counts(message)]
            self.release(counted, (cursor,))
        self._note_opened(messages)

    def _note_opened(self, opened: Iterable[int]) -> None:
        """The gates of these have opened, and somebody whom they do not count may wait for that: whether they go there
        ``Backfill`` says."""
        waited_for = self._state.edges.subscribers
        if waited_for:
            self._state.prerequisites.extend(sequence for sequence in opened if sequence in waited_for)

    def _release_where_open(self, sequence: int, cursors: Iterable[Cursor]) -> None:
        gate = self._blockers.gate
        self.release((sequence,), [one for one in cursors if one.counts(sequence) and gate(sequence, one) is None])

    def release(self, messages: Collection[int], cursors: Iterable[Cursor]) -> None:
        """Let messages of one queue go to these subscribers, for what they waited for has come. Whatever waits at a
        subscriber (for parents, for those of its key before it, for its time, in a replay, or in a backfill) is let go
        here and nowhere else. A cursor that has yet to come to a message finds its state changed (``_release_alike``,
        ``re_evaluate``); there is nothing to let go then."""
        for cursor in cursors:
            if cursor.release(messages):
                self._state.activate(cursor)

    def end(self, sequence: int, event: MessageEvent, reason: Reason = Reason.NONE) -> KeyChain | None:
        """The message has ended: decided once, told to its children and to whoever watches. Its chain, for where it
        had not ended before: the next of its key may go on there."""
        state = self._state
        queue_state = state.queues.get(state.table.queue(sequence))
        if queue_state is not None:
            queue_state.waiting -= 1
            if queue_state.sizes is not None:
                queue_state.sizes.take(sequence)
        first_child = state.table.first_child(sequence)
        chain = state.keys.of(sequence)
        if state.table.state(sequence) is MessageState.HELD:
            self._forget_hold(sequence)
        self.parent_ended(sequence, first_child)
        state.table.change(sequence, event, reason)
        state.asked.pop(sequence, None)
        if sequence in state.edges.in_replay or sequence in state.edges.subscribers:
            state.prerequisites.append(sequence)
        state.keys.ended(sequence, chain)
        if sequence in state.watched:
            state.watched.discard(sequence)
            state.watched_ended.append(sequence)
        return chain

    def wait_on_ended(self, child: int) -> None:
        """Remember a child under each parent that has ended badly, whose row may be gone: it is on hold for it, or the
        parent is being replayed."""
        for parent in self._state.table.parents(child):
            if parent in self._state.table.bad:
                self._state.edges.add(ON_HOLD, parent, child)

    def hold(self, child: int) -> None:
        """The child goes on hold, until a replay mends its parent or the hold is over."""
        self.wait_on_ended(child)
        self._state.wake_at(self._state.moment_us + self._hold_max_us, HOLD_OVER, child)

    def replayed(self, parent: int) -> None:
        """A replay of the parent is over, whichever way: children that wait for that are judged again."""
        if parent in self._state.edges.on_hold:
            self.in_slices(self._re_evaluate_all(self._state.edges.take(ON_HOLD, parent)))

    def _re_evaluate_all(self, children: Iterable[int]) -> Iterator[None]:
        for child in children:
            self.re_evaluate(child)
            if self._state.table.state(child) in (MessageState.HELD, MessageState.WAITING):
                self.wait_on_ended(child)
            yield from repeat(None, self._looks(child))

    def force_end(self, sequence: int, outcome: Outcome, reason: Reason) -> None:
        """Ask for the row that ends it; nothing of it goes out any more."""
        self._state.table.mark(sequence, ENDING)
        self._state.pending_ends.append(ForcedEnd(sequence, outcome, reason))

    def _cursors_of(self, sequence: int) -> Iterable[Cursor]:
        queue_state = self._state.queues.get(self._state.table.queue(sequence))
        return queue_state.cursors if queue_state else ()

    def _forget_hold(self, child: int) -> None:
        edges = self._state.edges
        for parent in self._state.table.parents(child) if edges.on_hold else ():
            edges.discard(ON_HOLD, parent, child)
