"""Many messages at once for one cursor: those that can go without a second look. Pure.

Never tried, their gate open for everybody, nobody asking for their end: most messages of a backlog and of a wide tree
are so. What is not stays for ``Line`` to look at, one by one; both ways hand out the same messages in the same order.
"""

from collections.abc import Iterable
from typing import Final

from syncbrok.delivery.books import Books
from syncbrok.delivery.chunk import CHUNK_MASK, CHUNK_SHIFT
from syncbrok.delivery.cursor import Cursor
from syncbrok.delivery.ledger import ONE_BY_ONE
from syncbrok.delivery.lifecycle import MessageState

_PENDING: Final = int(MessageState.PENDING)
_COMPLETE: Final = int(MessageState.COMPLETE)
_TRIM_SHIFT: Final = 12
"""so many messages, as a power of two, a cursor goes on before its queue is asked to forget"""
_TRIM_MASK: Final = (1 << _TRIM_SHIFT) - 1


class Runs:
    """Takes runs for cursors, at most as many as asked for; empty where something else is to go first."""

    def __init__(self, books: Books) -> None:
        self._books = books

    def take(self, cursor: Cursor, most: int) -> list[int]:
        if cursor.due.count or self._books.replays:
            return []
        most = min(most, cursor.retries_room)
        if most <= 0:
            return []
        return self._released(cursor, most) if cursor.ready.count else self._following(cursor, most)

    def take_last(self, cursor: Cursor) -> int:
        """The last message of the queue where that is all there is for the cursor, as it is with many queues that get
        a message now and then; 0 where there is more, or it is not plain."""
        backlog = cursor.backlog
        sequences = backlog.sequences
        position = cursor.position
        if (
            position - backlog.offset != len(sequences) - 1
            or cursor.tried
            or not len(cursor.flight) < cursor.window  # and so there is room for retries: no window is beyond it
            or cursor.ready.count
            or cursor.ahead.count
            or not cursor.history_done
            or self._books.replays
        ):
            return 0
        sequence = sequences[-1]
        chunk = self._books.ledger.chunks.get(sequence >> CHUNK_SHIFT)
        i = sequence & CHUNK_MASK
        if chunk is None or chunk.state[i] != _PENDING or chunk.flags[i] & ONE_BY_ONE:
            return 0
        cursor.seen = sequence
        position += 1
        if position & _TRIM_MASK:
            cursor.position = position
        else:
            self.step(cursor, position)
        return sequence

    def _released(self, cursor: Cursor, most: int) -> list[int]:
        """Those whose gate has opened after the cursor had passed them, lowest first."""
        waiting = cursor.ready.pop_some(most)
        run = waiting[: self._plain(waiting, cursor.since)]
        for at, sequence in enumerate(run if cursor.tried else ()):
            if sequence in cursor.tried:
                run = run[:at]
                break
        for sequence in waiting[len(run) :]:
            cursor.ready.add(sequence)
        return run

    def _following(self, cursor: Cursor, most: int) -> list[int]:
        """Those that come next in the queue."""
        if cursor.ahead.count or cursor.in_past:
            return []
        following = cursor.backlog.following(cursor.position, most)
        run = list(following[: self._plain(following, cursor.since)])
        if run:
            self.step(cursor, cursor.position + len(run))
            cursor.seen = run[-1]
        return run

    def _plain(self, sequences: Iterable[int], since: int) -> int:
        """How many of them, from the first on, are pending and plain, or have ended for all others before the cursor's
        time (up to ``since``), where it catches up."""
        chunks = self._books.ledger.chunks
        number, chunk, count = -1, None, 0
        for sequence in sequences:
            if sequence >> CHUNK_SHIFT != number:
                number = sequence >> CHUNK_SHIFT
                chunk = chunks.get(number)
            i = sequence & CHUNK_MASK
            if chunk is None or chunk.state[i] != _PENDING or chunk.flags[i] & ONE_BY_ONE:
                ended = chunk is None or chunk.state[i] >= _COMPLETE or not chunk.state[i]  # see ``Ledger.state``
                if sequence > since or not ended:
                    break
            count += 1
        return count

    def step(self, cursor: Cursor, position: int) -> None:
        """The cursor has come so far; now and then its queue forgets what all of them have behind them."""
        if cursor.position >> _TRIM_SHIFT != position >> _TRIM_SHIFT:
            cursor.position = position
            book = self._books.queues[cursor.subscriber.queue]
            book.backlog.trim(min(other.position for other in book.cursors))
        cursor.position = position
