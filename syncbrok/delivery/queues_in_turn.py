"""The line in which subscribers stand for what they may have next: one of each queue in turn.

In a single line a queue of a thousand subscribers puts each of its messages a thousand times before the next one of any
other queue. Pure.
"""

from collections import deque

from syncbrok.delivery.cursor import Cursor


class QueuesInTurn:
    """Cursors that may have work, each at most once (``Cursor.queued``)."""

    def __init__(self) -> None:
        self._lines: dict[int, deque[Cursor]] = {}
        """by queue; none is empty"""
        self._order: deque[deque[Cursor]] = deque()
        """each of them once, the one whose turn is next first"""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, cursor: Cursor) -> None:
        """Behind the others of its queue."""
        self._count += 1
        queue = cursor.subscriber.queue
        line = self._lines.get(queue)
        if line is None:
            line = self._lines[queue] = deque()
            self._order.append(line)
        line.append(cursor)

    def popleft(self) -> Cursor:
        """The first of the queue whose turn it is. Raises ``IndexError`` where there is none."""
        line = self._order.popleft()
        cursor = line.popleft()
        self._count -= 1
        if line:
            self._order.append(line)
        else:
            del self._lines[cursor.subscriber.queue]
        return cursor

    def remove(self, cursor: Cursor) -> None:
        """It goes. Raises ``ValueError`` where it does not stand here."""
        queue = cursor.subscriber.queue
        line = self._lines.get(queue, deque())
        line.remove(cursor)
        self._count -= 1
        if not line:
            del self._lines[queue]
            # By identity: lines that are empty are all alike.
            place = next(place for place, one in enumerate(self._order) if one is line)
            del self._order[place]
