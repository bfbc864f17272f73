"""Everything known of the messages that have not ended, as columns; and of those that ended badly.

Rows are found by sequence: chunks of 4,096 sequences, each a handful of arrays (8 bytes a message, 16 more an edge).
A chunk goes when every message in it has ended; one that few stragglers hold is thinned to dictionaries, so that an
endpoint that is down for days costs its own messages and not their neighbours' rows. A sequence without a chunk has
ended: well, unless it stands in ``bad``. States change by events, in ``MessageChunk`` alone; the table says which row.

Edges run from a child to its parents (in the child's chunk, in one array) and are threaded the other way as linked
lists: a parent's row holds its first and last child, each edge the next child. Nothing is allocated per edge.
"""

from array import array
from collections.abc import Iterable, Iterator
from typing import Final

from syncbrok.delivery.scheduler.bad_messages import Bad, BadMessages
from syncbrok.delivery.scheduler.lifecycle import ForbiddenTransition, MessageEvent, MessageState, message_after
from syncbrok.delivery.scheduler.message_chunk import CHUNK, CHUNK_MASK, CHUNK_SHIFT, MessageChunk, Sparse
from syncbrok.model.facts import Reason
from syncbrok.model.message import ParentFailure

_THIN_BELOW: Final = CHUNK // 64
_STATES: Final = tuple(MessageState)  # by value: calling the enum costs ten times as much
_RELEASED: Final = MessageEvent.RELEASED  # so does asking it by name
_ENDED_WELL: Final = MessageEvent.ENDED_WELL

KEY_EDGE: Final = 1 << 63
"""Marks the edge that names the chain of the message's key (RULES 6, ``key_chains``); it stands last."""

# Flags of a message, one byte.
SAME: Final = 0x01
"""scope ``same``"""
PER_SUBSCRIBER: Final = 0x02
"""has edges that are judged at each subscriber: scope ``same``, or a key that others had before it"""
POLICY_SHIFT: Final = 2
POLICY: Final = 0x0C
"""``ParentFailure``; one of the next three"""
FAIL: Final = ParentFailure.FAIL << POLICY_SHIFT
HOLD: Final = ParentFailure.HOLD << POLICY_SHIFT
DELIVER: Final = ParentFailure.DELIVER << POLICY_SHIFT
ONLY: Final = 0x10
"""for one subscriber alone; which one stands in ``MessageTable.only``"""
ENDING: Final = 0x20
"""a row that ends it has been asked for: nothing goes out any more"""
HAS_DEAD: Final = 0x40
HAS_EXPIRED: Final = 0x80
ONE_BY_ONE: Final = PER_SUBSCRIBER | ONLY | ENDING | HAS_DEAD | HAS_EXPIRED
"""Of a message with one of these each delivery is looked at by itself: whether it may go, and what its end means. A
message without them is to every subscriber what its state says, and many of those are gone through together. (Scope
and policy say how its parents are judged, and no more.)"""


class MessageTable:
    """All rows, and what ended badly. ``accept`` begins a message's life, ``change`` goes on with it; ``accept_run``
    and ``count_down`` are the same for many."""

    def __init__(self) -> None:
        self.chunks: dict[int, MessageChunk] = {}
        self.bad = BadMessages()
        self.only: dict[int, int] = {}
        self.walking: dict[int, int] = {}
        """parents whose list of children is being worked through in slices, and how often; whoever walks keeps it"""
        self.newest = 0
        """highest sequence applied"""
        self.open = 0

    def chunk(self, sequence: int) -> MessageChunk | None:
        return self.chunks.get(sequence >> CHUNK_SHIFT)

    def accept(
        self, sequence: int, queue: int, flags: int, left: int, event: MessageEvent, edges: tuple[int, ...]
    ) -> None:
        """A new row; ``edges`` are parents' sequences, and the chain of its key marked with ``KEY_EDGE``."""
        chunk = self.chunks.get(sequence >> CHUNK_SHIFT) or self._begin(sequence)
        i = sequence & CHUNK_MASK
        chunk.accept(i, queue, flags, left, event)
        self.open += 1
        self.newest = max(self.newest, sequence)
        if edges:
            self._link(chunk, i, sequence, edges)

    def accept_run(self, first: int, queues: "array[int]", left: "array[int]") -> None:
        """Rows of messages without extras at neighbouring sequences from ``first`` on, newer than all that is applied:
        the queue of each, and how many it is for."""
        assert first > self.newest
        at, count = 0, len(queues)
        self.open += count
        while at < count:
            chunk = self.chunks.get(first + at >> CHUNK_SHIFT) or self._begin(first + at)
            start = first + at & CHUNK_MASK
            stop = min(count, at + CHUNK - start)
            if stop - at == count:
                chunk.accept_run(start, queues, left, _RELEASED)
            else:
                chunk.accept_run(start, queues[at:stop], left[at:stop], _RELEASED)
            at = stop
            self.newest = first + at - 1

    def _begin(self, sequence: int) -> MessageChunk:
        """The chunk of a message that has none yet."""
        self.settle_older()
        chunk = self.chunks[sequence >> CHUNK_SHIFT] = MessageChunk()
        if sequence < self.newest:  # carried from a segment that is gone: few, far apart
            chunk.make_thin()
        return chunk

    def pass_by(self, sequence: int) -> None:
        """A message that is complete as it is accepted (RULES 17): it needs no row, since what has none is complete."""
        self.newest = max(self.newest, sequence)

    def knows(self, sequence: int) -> bool:
        """Whether it has a row or ended badly (for recovery: a message must not be accepted twice)."""
        chunk = self.chunks.get(sequence >> CHUNK_SHIFT)
        if (
            chunk is not None
            and chunk.state[sequence & CHUNK_MASK]
            and not (chunk.thin and sequence & CHUNK_MASK not in chunk.state)
        ):
            return True
        return sequence in self.bad

    def state(self, sequence: int) -> MessageState:
        """``NONE`` for what is newer than anything applied. What has no row had ended before the log began here."""
        chunk = self.chunks.get(sequence >> CHUNK_SHIFT)
        if chunk is not None:
            state = chunk.state[sequence & CHUNK_MASK]
            if state and not (chunk.thin and state == MessageState.COMPLETE):
                return _STATES[state]
        bad = self.bad.get(sequence)
        if bad is not None:
            return bad.state
        return MessageState.COMPLETE if 0 < sequence <= self.newest else MessageState.NONE

    def alike(self, first: int, count: int) -> MessageState | None:
        """The ``state`` of ``count`` neighbours where all have the same and no flags; None where that takes a look at
        each."""
        last = first + count - 1
        if last > self.newest or first >> CHUNK_SHIFT != last >> CHUNK_SHIFT or first < 1:
            return None
        chunk = self.chunks.get(first >> CHUNK_SHIFT)
        if chunk is None:
            return None if self.bad else MessageState.COMPLETE
        start, stop = first & CHUNK_MASK, (last & CHUNK_MASK) + 1
        states, flags = chunk.state, chunk.flags
        if isinstance(flags, Sparse) or flags.count(0, start, stop) != count:
            return None
        state = _STATES[states[start]]
        if states.count(state, start, stop) != count:
            return None
        if state is MessageState.NONE:  # without a row: see ``pass_by``
            return None if self.bad else MessageState.COMPLETE
        return state

    def flags(self, sequence: int) -> int:
        chunk = self.chunks.get(sequence >> CHUNK_SHIFT)
        return chunk.flags[sequence & CHUNK_MASK] if chunk else 0

    def left(self, sequence: int) -> int:
        """How many counted deliveries have not ended; 0 for what has no row."""
        chunk = self.chunks.get(sequence >> CHUNK_SHIFT)
        return chunk.left[sequence & CHUNK_MASK] if chunk else 0

    def one_less(self, sequence: int) -> int:
        """A counted delivery has ended: how many are left."""
        left = self.left(sequence) - 1
        assert left >= 0, f"more deliveries of {sequence} ended than were counted"
        self.chunks[sequence >> CHUNK_SHIFT].left[sequence & CHUNK_MASK] = left
        return left

    def mark(self, sequence: int, flag: int) -> None:
        chunk = self.chunks.get(sequence >> CHUNK_SHIFT)
        if chunk is not None:
            chunk.flags[sequence & CHUNK_MASK] |= flag

    def queue(self, sequence: int) -> int:
        """The queue's number; 0 where it is not known here any more."""
        chunk = self.chunks.get(sequence >> CHUNK_SHIFT)
        number = chunk.queue[sequence & CHUNK_MASK] if chunk else 0
        if not number and sequence in self.bad:
            number = self.bad[sequence].queue
        return number

    def change(self, sequence: int, event: MessageEvent, reason: Reason = Reason.NONE) -> MessageState:
        """The event happens to a message that has been accepted; its state from now on. Its chunk may be gone
        afterwards. Raises ``ForbiddenTransition``."""
        chunk = self.chunks.get(sequence >> CHUNK_SHIFT)
        i = sequence & CHUNK_MASK
        if chunk is None or not 0 < chunk.state[i] < MessageState.COMPLETE:
            return self._change_ended(sequence, event, chunk)
        after = _STATES[chunk.change(i, event)]
        if after >= MessageState.COMPLETE:
            if after is not MessageState.COMPLETE:
                self.bad[sequence] = Bad(after, reason, chunk.queue[i])
            self.only.pop(sequence, None)
            self._close_rows(sequence >> CHUNK_SHIFT, chunk, 1)
        return after

    def _change_ended(self, sequence: int, event: MessageEvent, chunk: MessageChunk | None) -> MessageState:
        """Change what has ended. What ended badly stands in ``bad``, and in a row as well where its chunk is neither
        gone nor thin yet."""
        bad = self.bad.get(sequence)
        if bad is None:  # it has ended well, or is not known at all
            raise ForbiddenTransition(self.state(sequence), event)
        after = message_after(bad.state, event)
        if chunk is not None and chunk.state[sequence & CHUNK_MASK] == bad.state:
            chunk.change(sequence & CHUNK_MASK, event)
        del self.bad[sequence]
        return after

    def restore_bad(self, sequence: int, bad: Bad) -> None:
        """A message ended so, as a checkpoint or a segment's snapshot says."""
        self.bad[sequence] = bad

    def lose(self, sequence: int, subscribers: Iterable[int]) -> None:
        """Note at which subscribers a message that ended badly expired or was dropped."""
        self._set_lost(sequence, {*self.bad[sequence].lost, *subscribers})

    def find(self, sequence: int, subscribers: Iterable[int]) -> None:
        """Note that a replay sends the message to these subscribers again: it is not lost there."""
        if sequence in self.bad:
            self._set_lost(sequence, {*self.bad[sequence].lost}.difference(subscribers))

    def _set_lost(self, sequence: int, subscribers: set[int]) -> None:
        lost = tuple(sorted(subscribers))
        self.bad[sequence] = self.bad[sequence]._replace(lost=lost)

    def count_down(self, number: int, places: list[int]) -> list[int]:
        """As ``one_less`` for each place in the chunk of that number, where no delivery has ended badly, and ``change``
        where it was the last. The queues of those, one number each. The chunk may be gone afterwards."""
        chunk = self.chunks[number]
        ended = chunk.count_down(places, _ENDED_WELL)
        if ended:
            self._close_rows(number, chunk, len(ended))
        return ended

    def edges(self, sequence: int) -> "array[int]":
        """The raw edges of a child: parents' sequences, and one with ``KEY_EDGE`` where it has a key."""
        chunk = self.chunks.get(sequence >> CHUNK_SHIFT)
        if chunk is None or chunk.edge_start is None or chunk.edge_count is None:
            return array("Q")
        start = chunk.edge_start[sequence & CHUNK_MASK]
        return chunk.edges[start : start + chunk.edge_count[sequence & CHUNK_MASK]]

    def parents(self, sequence: int) -> Iterator[int]:
        """The parents of a child that it waits for, or has waited for."""
        return (edge for edge in self.edges(sequence) if not edge & KEY_EDGE)

    def key_chain(self, sequence: int) -> int:
        """The number of the chain of its key; 0 for none."""
        chunk = self.chunks.get(sequence >> CHUNK_SHIFT)
        i = sequence & CHUNK_MASK
        if chunk is None or chunk.edge_start is None or chunk.edge_count is None or not chunk.flags[i] & PER_SUBSCRIBER:
            return 0
        count = chunk.edge_count[i]
        edge = chunk.edges[chunk.edge_start[i] + count - 1] if count else 0
        return edge & ~KEY_EDGE if edge & KEY_EDGE else 0

    def behind_others(self) -> Iterator[tuple[int, int]]:
        """(message, number of the chain of its key) of each that has not ended and came when its key had others, in
        their order."""
        for place in sorted(self.chunks):
            chunk = self.chunks[place]
            if chunk.edge_start is None:
                continue
            first = place << CHUNK_SHIFT
            for i in chunk.open_rows():
                number = self.key_chain(first + i)
                if number:
                    yield first + i, number

    def first_child(self, parent: int) -> int:
        """0 for none."""
        chunk = self.chunks.get(parent >> CHUNK_SHIFT)
        return chunk.first_child[parent & CHUNK_MASK] if chunk and chunk.first_child else 0

    def next_child(self, parent: int, child: int) -> int:
        """The child after ``child`` in the list of ``parent``; 0 at its end."""
        chunk = self.chunks.get(child >> CHUNK_SHIFT)
        if chunk is None or chunk.edge_start is None or chunk.edge_count is None:
            return 0
        start = chunk.edge_start[child & CHUNK_MASK]
        for at in range(start, start + chunk.edge_count[child & CHUNK_MASK]):
            if chunk.edges[at] == parent:
                return chunk.links[at]
        return 0

    def children(self, parent: int) -> Iterator[int]:
        """In the order accepted, ended ones among them."""
        child = self.first_child(parent)
        while child:
            following = self.next_child(parent, child)
            yield child
            child = following

    def waiting(self, queue: int | None, start: int, through: int | None) -> Iterator[int]:
        """Sequences from ``start`` of messages that have not ended, in order, of one queue or of all."""
        for number in sorted(n for n in self.chunks if n >= start >> CHUNK_SHIFT):
            chunk = self.chunks.get(number)
            if chunk is None or not chunk.open:
                continue
            base = number << CHUNK_SHIFT
            if through is not None and base > through:
                return
            for i in chunk.open_rows(max(0, start - base)):
                if queue is not None and chunk.queue[i] != queue:
                    continue
                if through is not None and base + i > through:
                    return
                yield base + i

    def _link(self, chunk: MessageChunk, i: int, child: int, edges: tuple[int, ...]) -> None:
        if chunk.edge_start is None or chunk.edge_count is None:
            chunk.edge_start = array("I", bytes(4 * CHUNK))
            chunk.edge_count = bytearray(CHUNK)
        chunk.edge_start[i] = len(chunk.edges)
        chunk.edge_count[i] = len(edges)
        chunk.edges.extend(edges)
        chunk.links.extend([0] * len(edges))
        for parent in edges:
            if parent & KEY_EDGE:
                continue
            holder = self.chunks.get(parent >> CHUNK_SHIFT)
            if holder is None or not 0 < holder.state[parent & CHUNK_MASK] < MessageState.COMPLETE:
                continue  # ended already: nobody will ask for its children, and the last of them may be gone
            if holder.first_child is None or holder.last_child is None:
                holder.first_child = array("Q", bytes(8 * CHUNK))
                holder.last_child = array("Q", bytes(8 * CHUNK))
            at = parent & CHUNK_MASK
            last = holder.last_child[at]
            if last:
                self._set_link(last, parent, child)
            else:
                holder.first_child[at] = child
            holder.last_child[at] = child

    def _set_link(self, child: int, parent: int, following: int) -> None:
        chunk = self.chunks.get(child >> CHUNK_SHIFT)
        assert chunk is not None  # a chunk stays while a parent of one of its messages has not ended
        assert chunk.edge_start is not None
        assert chunk.edge_count is not None
        start = chunk.edge_start[child & CHUNK_MASK]
        for at in range(start, start + chunk.edge_count[child & CHUNK_MASK]):
            if chunk.edges[at] == parent:
                chunk.links[at] = following
                return

    def _close_rows(self, number: int, chunk: MessageChunk, count: int) -> None:
        chunk.open -= count
        self.open -= count
        if number == self.newest >> CHUNK_SHIFT:
            return  # still growing
        if not chunk.open and not self._threads_a_list(chunk):
            del self.chunks[number]
        elif chunk.open < _THIN_BELOW and not chunk.thin:
            chunk.make_thin()

    def settle_older(self) -> None:
        """Let go of chunks that had ended while the log was still growing in them, or that a list ran through."""
        current = self.newest >> CHUNK_SHIFT
        for number in [n for n, chunk in self.chunks.items() if not chunk.open and n != current]:
            if not self._threads_a_list(self.chunks[number]):
                del self.chunks[number]

    def _threads_a_list(self, chunk: MessageChunk) -> bool:
        """Whether a parent that has not ended would lose children if this chunk went (a child was cancelled)."""
        return any(
            not edge & KEY_EDGE and (edge in self.walking or 0 < self.state(edge) < MessageState.COMPLETE)
            for edge in set(chunk.edges)  # the children of a wide tree have one parent, not four thousand
        )
