"""Rows of messages, by the thousand: 4,096 neighbouring sequences as a handful of arrays. Pure; see ``message_table``.

The column ``state`` holds the state of each message that has not ended. It changes here and nowhere else, by an event
and the table in ``lifecycle``: ``change`` for one row, ``change_run`` for neighbours, ``count_down`` for those of which
the last delivery has ended. All others read it, and its type says so. What a checkpoint holds is no event: ``restore``
takes it over as it stands.
"""

from array import array
from collections.abc import Iterator
from typing import Final, Protocol, cast

from syncbrok.delivery.scheduler.lifecycle import NEXT, ForbiddenTransition, MessageEvent, MessageState

CHUNK: Final = 4096
CHUNK_SHIFT: Final = 12
CHUNK_MASK: Final = CHUNK - 1
_MANY: Final = 16
"""rows that are sooner counted down one by one than by slices"""


class Sparse(dict[int, int]):
    """A column of a thinned chunk: what is not in it has the value of an ended message."""

    __slots__ = ("absent",)

    def __init__(self, absent: int) -> None:
        super().__init__()
        self.absent = absent

    def __missing__(self, key: int) -> int:
        return self.absent


class States(Protocol):
    """The states of a chunk's messages, to read. Of a thin chunk only those of messages that have not ended."""

    def __getitem__(self, place: int, /) -> int: ...

    def __contains__(self, place: int, /) -> bool: ...

    def __iter__(self) -> Iterator[int]: ...

    def count(self, state: int, start: int, stop: int, /) -> int:
        """Not of a thin chunk."""


class MessageChunk:
    """The rows of 4,096 neighbouring sequences. ``open`` counts those that have not ended."""

    __slots__ = ("_states", "edge_count", "edge_start", "edges", "first_child", "flags", "last_child", "left", "links",
                 "open", "queue", "state", "thin")  # fmt: skip

    state: States
    """the column that ``_states`` is, for everybody to read"""

    def __init__(self) -> None:
        self.queue: array[int] | Sparse = array("I", bytes(4 * CHUNK))
        self.left: array[int] | Sparse = array("H", bytes(2 * CHUNK))
        self.flags: bytearray | Sparse = bytearray(CHUNK)
        self._keep_states_in(bytearray(CHUNK))
        self.open = 0
        self.thin = False
        self.edges: array[int] = array("Q")
        self.links: array[int] = array("Q")
        self.edge_start: array[int] | None = None
        self.edge_count: bytearray | None = None
        self.first_child: array[int] | None = None
        self.last_child: array[int] | None = None

    def change(self, i: int, event: MessageEvent) -> int:
        """The event happens to the message at this place; its state from now on. Raises ``ForbiddenTransition``."""
        states = self._states
        after = NEXT[event][states[i]]
        if not after:
            raise ForbiddenTransition(states[i], event)
        states[i] = after
        return after

    def change_run(self, start: int, stop: int, event: MessageEvent) -> None:
        """As ``change`` for each place from ``start`` to before ``stop``; where it is forbidden to one, to none."""
        states = self._states
        if isinstance(states, Sparse):
            for i in range(start, stop):
                self.change(i, event)
            return
        before = states[start:stop]
        after = before.translate(NEXT[event])
        if 0 in after:
            raise ForbiddenTransition(before[after.index(0)], event)
        states[start:stop] = after

    def count_down(self, places: list[int], event: MessageEvent) -> list[int]:
        """One less is left of the message at each of these places; ``change`` where that was the last one. The queues
        of those, one number each."""
        states, left, queue, following = self._states, self.left, self.queue, NEXT[event]
        start, stop = places[0], places[0] + len(places)
        if (
            len(places) >= _MANY
            and places[-1] == stop - 1
            and isinstance(left, array)
            and isinstance(queue, array)
            and left[start:stop] == array("H", (1,)) * len(places)
            and places == list(range(start, stop))
        ):  # neighbours of which each has one left, as in a backlog or in a wide tree
            self.change_run(start, stop, event)
            left[start:stop] = array("H", bytes(2 * len(places)))
            return queue[start:stop].tolist()
        ended: list[int] = []
        for i in places:
            before = left[i]
            assert before, f"more deliveries of a message in queue {queue[i]} ended than were counted"
            left[i] = before - 1
            if before == 1:
                after = following[states[i]]
                if not after:
                    raise ForbiddenTransition(states[i], event)
                states[i] = after
                ended.append(queue[i])
        return ended

    def accept(self, i: int, queue: int, flags: int, left: int, event: MessageEvent) -> None:
        """The row of a new message."""
        if self.thin:
            self._make_rows(i, i + 1)
        self.change(i, event)
        self.queue[i], self.left[i], self.flags[i] = queue, left, flags
        self.open += 1

    def accept_run(self, start: int, queues: "array[int]", left: "array[int]", event: MessageEvent) -> None:
        """Rows of new messages without flags, at neighbouring places from ``start`` on."""
        stop = start + len(queues)
        if self.thin:
            self._make_rows(start, stop)
        self.change_run(start, stop, event)
        if isinstance(self.queue, Sparse) or isinstance(self.left, Sparse):
            for i in range(start, stop):
                self.queue[i], self.left[i] = queues[i - start], left[i - start]
        else:
            self.queue[start:stop], self.left[start:stop] = queues, left
        self.open += stop - start

    def _make_rows(self, start: int, stop: int) -> None:
        """A thin chunk has none for what is new to it."""
        if isinstance(self._states, Sparse):
            for i in range(start, stop):
                self.flags[i] = 0
                self._states.setdefault(i, MessageState.NONE)

    def restore(self, queue: "array[int]", states: bytearray, left: "array[int]", flags: bytearray) -> None:
        """All rows as a checkpoint holds them."""
        self.queue, self.left, self.flags = queue, left, flags
        self._keep_states_in(states)

    def _keep_states_in(self, states: bytearray | Sparse) -> None:
        self._states = states
        self.state = cast("States", states)

    def open_rows(self, start: int = 0) -> Iterator[int]:
        """Places from ``start`` on of the messages that have not ended, in order."""
        states = self._states
        if isinstance(states, Sparse):
            yield from sorted(i for i, state in states.items() if 0 < state < MessageState.COMPLETE and i >= start)
            return
        for i in range(start, CHUNK):
            if 0 < states[i] < MessageState.COMPLETE:
                yield i

    def make_thin(self) -> None:
        """Keep only the rows of messages that have not ended."""
        rows = list(self.open_rows())
        queue, left, flags = Sparse(0), Sparse(0), Sparse(0)
        states = Sparse(MessageState.COMPLETE)
        for i in rows:
            queue[i], states[i], left[i], flags[i] = self.queue[i], self._states[i], self.left[i], self.flags[i]
        self.queue, self.left, self.flags = queue, left, flags
        self._keep_states_in(states)
        self.thin = True
