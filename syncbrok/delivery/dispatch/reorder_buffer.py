"""Gives consumers their messages in the order in which they were taken from the queue, though some are in memory and
two readers at once fetch the others. Pure.

Parents and children do not need it: a child is taken once its parent is complete. A consumer that reads a queue from
its beginning does: it expects the order in which the queue was written. Webhooks do without: their attempts run
concurrently, so no order between them can be observed.
"""

from collections import deque
from collections.abc import Callable

from syncbrok.delivery.handler import Attempt, Destination
from syncbrok.model import limits
from syncbrok.model.errors import SyncbrokError
from syncbrok.model.facts import StoredMessage

Pair = tuple[Attempt, StoredMessage]


class ReorderBuffer:
    """The attempts for consumers that are being read, and those behind them. ``destination`` as the dispatcher's."""

    def __init__(self, destination: Callable[[int], Destination]) -> None:
        self._destination = destination
        self.lines: dict[int, deque[Attempt]] = {}
        """by subscriber, as they were taken; bounded by its window"""
        self._expected: set[Attempt] = set()
        """of those the ones that are being read"""
        self._here: dict[Attempt, StoredMessage] = {}
        """of those the ones that wait only for others"""
        self._early: set[Attempt] = set()
        """of those the ones behind one that came back: they would go out before it"""

    def read(self, attempt: Attempt) -> None:
        """Its message is to be read: what is taken later for the same consumers goes out after it."""
        try:
            consumed = self._destination(attempt.subscriber).subscriber.consumed
        except (LookupError, SyncbrokError):  # deleted: there is nobody to get it in any order
            return
        if consumed:
            self.lines.setdefault(attempt.subscriber, deque()).append(attempt)
            self._expected.add(attempt)

    def follow(self, attempt: Attempt, message: StoredMessage) -> None:
        """Hold a message that is in memory behind earlier ones for the same consumers that are still being read."""
        self.lines[attempt.subscriber].append(attempt)
        self._here[attempt] = message

    def came_back(self, attempt: Attempt) -> None:
        """Note that the attempt is not out any more and never began. Attempts taken after it for the same consumers
        that are not out yet must come back too (``early``)."""
        line = self.lines.get(attempt.subscriber)
        if line is not None:
            self._early.update(line)

    def early(self, ready: list[Pair]) -> list[Pair]:
        """The pairs among ``ready`` (which ``arrived`` let out) that must not go out now."""
        early = [pair for pair in ready if pair[0] in self._early] if self._early else []
        self._early.difference_update(attempt for attempt, _ in early)
        return early

    def arrived(self, attempt: Attempt, message: StoredMessage | None) -> list[Pair]:
        """Note that a message has been read, or (None) never will be. Returns the pairs that go out now."""
        if attempt not in self._expected:
            return [] if message is None else [(attempt, message)]
        self._expected.remove(attempt)
        line = self.lines[attempt.subscriber]
        if message is None:
            line.remove(attempt)
            self._early.discard(attempt)
        else:
            self._here[attempt] = message
        ready: list[Pair] = []
        while line and (here := self._here.pop(line[0], None)) is not None:
            ready.append((line.popleft(), here))
        if not line:
            del self.lines[attempt.subscriber]
        return ready

    def held_up(self, attempt: Attempt) -> list[StoredMessage]:
        """The messages that are here already and wait for nothing but this one."""
        line = self.lines.get(attempt.subscriber)
        if line is None or line[0] != attempt:
            return []
        return [self._here[one] for one in line if one in self._here]

    def let_go(self, subscriber: int) -> Pair:
        """The last attempt whose message is here and large: it is to be read again. There must be one."""
        for attempt in reversed(self.lines[subscriber]):
            message = self._here.get(attempt)
            if message is not None and len(message.content) > limits.content_uncharged_bytes:
                del self._here[attempt]
                self._expected.add(attempt)
                return attempt, message
        raise LookupError(f"nothing large is held up for subscriber {subscriber}")

    def clear(self) -> int:
        """Nothing goes out any more; how many had only others to wait for."""
        count = len(self._here)
        self.lines.clear()
        self._expected.clear()
        self._here.clear()
        self._early.clear()
        return count
