"""The batch lines there are (RULES 36): what stands in them is taken, and has not begun. Pure."""

from collections.abc import Collection
from typing import NamedTuple

from syncbrok.delivery.handler import Delivery
from syncbrok.delivery.scheduler.batch_line import BatchLine
from syncbrok.delivery.scheduler.state import SchedulerState


class GatheredBatch(NamedTuple):
    """Messages to go out as one request, in order; ``line`` is to be told when that is over."""

    subscriber: int
    line: BatchLine
    members: list[Delivery]


class Batches:
    """Says which messages go out as one request now. The dispatcher puts what has been read, and may go, into the line
    of its subscriber."""

    def __init__(self, state: SchedulerState) -> None:
        self._state = state
        self.lines: dict[int, BatchLine] = {}
        """by subscriber, those in which something waits"""

    def __len__(self) -> int:
        """How many deliveries wait."""
        return sum(map(len, self.lines.values()))

    def line(self, subscriber: int) -> BatchLine | None:
        """None for one without batches."""
        cursor = self._state.cursors.get(subscriber)
        return None if cursor is None else cursor.batch

    def put(self, line: BatchLine, delivery: Delivery, now_us: int) -> None:
        """It may go out, in the line of its subscriber."""
        sequence, number = delivery.attempt.message, delivery.attempt.subscriber
        cursor = self._state.cursors.get(number)
        tried = cursor.retrying.get(sequence) if cursor is not None else None
        self.lines[number] = line
        line.put(delivery, now_us, 0 if tried is None else tried.together)

    def take(self, now_us: int) -> tuple[list[GatheredBatch], list[Delivery]]:
        """The batches to send now; and deliveries that must not begin, because their subscriber is stopped, gone, or
        declared otherwise."""
        ready: list[GatheredBatch] = []
        gone: list[Delivery] = []
        for number, line in list(self.lines.items()):
            cursor = self._state.cursors.get(number)
            if cursor is None or cursor.stopped or cursor.batch is not line:
                gone += line.clear()
                del self.lines[number]
                continue
            while members := line.next_batch(now_us):
                ready.append(GatheredBatch(number, line, members))
                self._state.activate(cursor)
            if not line:
                del self.lines[number]
        return ready, gone

    def over(self, subscriber: int, line: BatchLine, messages: int) -> None:
        """A request with so many messages is over: another may go."""
        line.answered(messages)
        cursor = self._state.cursors.get(subscriber)
        if cursor is not None:
            self._state.activate(cursor)

    def next_due_us(self) -> int | None:
        """When to take though nothing has happened; None for never."""
        return min((due for line in self.lines.values() if (due := line.due_us()) is not None), default=None)

    def withdraw(self, subscriber: int, messages: Collection[int]) -> list[Delivery]:
        """Take out those of these messages (sequences) that wait: they must not begin."""
        line = self.lines.get(subscriber)
        return [] if line is None else line.take_out(messages)

    def forget(self, messages: Collection[int]) -> list[Delivery]:
        """As ``withdraw``, at every subscriber."""
        return [delivery for line in self.lines.values() for delivery in line.take_out(messages)]

    def clear(self) -> list[Delivery]:
        """Nothing goes out any more: all that wait."""
        gone = [delivery for line in self.lines.values() for delivery in line.clear()]
        self.lines.clear()
        return gone
