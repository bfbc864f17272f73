"""The line in which subscribers stand for what they may have next: one of each queue in turn.

In a single line a queue of a thousand subscribers puts each of its messages a thousand times before the next one of any
other queue. Pure.
"""

from collections import deque

from syncbrok.delivery.scheduler.cursor import Cursor


class QueueRotation:
    """Cursors that may have work, each at most once (``Cursor.queued``)."""

    def __init__(self) -> None:
        self._lines: dict[int, deque[Cursor]] = {}
        """by queue; an empty one is kept for its next cursor"""
        self._order: deque[deque[Cursor]] = deque()
        """those that are not empty, each once, the one whose turn is next first"""
        self.count = 0
        """as ``len``, without the call"""

    def __len__(self) -> int:
        return self.count

    def append(self, cursor: Cursor) -> None:
        """Behind the others of its queue."""
        self.count += 1
        line = self._lines.get(cursor.queue)
        if line is None:
            line = self._lines[cursor.queue] = deque()
        if not line:
            self._order.append(line)
        line.append(cursor)

    def popleft(self) -> Cursor:
        """The first of the queue whose turn it is. Raises ``IndexError`` where there is none."""
        line = self._order.popleft()
        cursor = line.popleft()
        self.count -= 1
        if line:
            self._order.append(line)
        return cursor

    def remove(self, cursor: Cursor) -> None:
        """Take it out of the line. Raises ``ValueError`` where it does not stand here."""
        line = self._lines.get(cursor.queue, deque())
        line.remove(cursor)
        self.count -= 1
        if not line:
            # By identity: lines that are empty are all alike.
            place = next(place for place, one in enumerate(self._order) if one is line)
            del self._order[place]

    def forget(self, queue: int) -> None:
        """The queue goes, and has no cursors any more."""
        self._lines.pop(queue, None)
