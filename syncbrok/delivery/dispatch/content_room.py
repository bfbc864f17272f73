"""Shares out memory for the content of messages that are going out, and holds attempts that wait for it.
Pure.

The scheduler does not know how large a message is, so it may hand out an attempt whose content has no room now. That
attempt waits here, behind earlier ones of its subscriber. Other subscribers go on.
"""

from collections import deque
from collections.abc import Collection, Hashable, Iterable

from syncbrok.delivery.handler import Attempt
from syncbrok.delivery.scheduler.content_budget import ContentBudget
from syncbrok.model import limits
from syncbrok.model.facts import StoredMessage


class ContentRoom:
    """``waiting``: by subscriber, attempts that there was no room for, oldest first; bounded by the windows."""

    def __init__(self, budget: ContentBudget, short: set[int]) -> None:
        """``short``: has the subscribers for whom some wait, for the scheduler."""
        self._budget = budget
        self._short = short
        self.waiting: dict[int, deque[Attempt]] = {}

    def __len__(self) -> int:
        return sum(map(len, self.waiting.values()))

    @property
    def used_bytes(self) -> int:
        return self._budget.budget.used

    def has(self, subscriber: int) -> bool:
        """Whether anything more of the subscriber may be read now."""
        return self._budget.room(subscriber) > 0

    @property
    def plenty(self) -> bool:
        """``has`` is true of everybody."""
        return not self._budget.budget.used

    def admit(self, subscriber: int, message: StoredMessage) -> bool:
        """Take room for the message; False where there is none."""
        size_bytes = _charged_bytes(message)
        return not size_bytes or self._budget.try_take(subscriber, size_bytes)

    def only_behind(self, held_up: Collection[StoredMessage], subscriber: int) -> bool:
        """Whether the subscriber holds content, and all of it is that of ``held_up``."""
        return 0 < self._budget.held(subscriber) <= sum(map(_charged_bytes, held_up))

    def release(self, subscriber: int, message: StoredMessage) -> None:
        """Its content is held no more."""
        size_bytes = _charged_bytes(message)
        if size_bytes:
            self._budget.give_back(subscriber, size_bytes)

    def wait(self, attempt: Attempt) -> None:
        """Let the attempt wait behind those of its subscriber that wait already."""
        self._line(attempt.subscriber).append(attempt)

    def wait_first(self, attempts: Iterable[Attempt]) -> None:
        """Let these wait, in this order, before those of their subscribers that came after them."""
        for attempt in reversed([*attempts]):
            self._line(attempt.subscriber).appendleft(attempt)

    def sort(self, subscriber: int, order: Iterable[Attempt]) -> None:
        """Let those of a subscriber that wait do so in this order; those that it has not come last."""
        waiting = dict.fromkeys(self.waiting[subscriber])
        sorted_ = [attempt for attempt in order if attempt in waiting]
        self.waiting[subscriber] = deque(dict.fromkeys((*sorted_, *waiting)))

    def _line(self, subscriber: int) -> deque[Attempt]:
        self._short.add(subscriber)
        return self.waiting.setdefault(subscriber, deque())

    def _put_back(self, subscriber: int, line: deque[Attempt]) -> None:
        if line:
            self.waiting[subscriber] = line
        else:
            self._short.discard(subscriber)
            del self.waiting[subscriber]

    def let_in(self, content_bytes: int) -> list[Attempt]:
        """The attempts that may be read now; of one payer, those of the subscriber that was let in longest ago first.
        ``content_bytes``: a guess of the size of each."""
        let_in: list[Attempt] = []
        left_bytes: dict[Hashable, int] = {}
        for subscriber, line in [*self.waiting.items()]:
            payer = self._budget.payer(subscriber)
            room_bytes = left_bytes.setdefault(payer, self._budget.room(subscriber))
            if room_bytes > 0:
                some = [line.popleft() for _ in range(min(len(line), max(room_bytes // content_bytes, 1)))]
                left_bytes[payer] -= len(some) * content_bytes
                let_in += some
                self.waiting[subscriber] = self.waiting.pop(subscriber)  # behind the others
                self._put_back(subscriber, line)
        return let_in

    def messages_waiting(self, subscriber: int) -> set[int]:
        """The messages (sequences) whose attempts wait."""
        return {attempt.message for attempt in self.waiting.get(subscriber, ())}

    def withdraw(self, subscriber: int, messages: Collection[int]) -> list[Attempt]:
        """Remove the waiting attempts of these messages (sequences) and return them."""
        line = self.waiting.get(subscriber, ())
        gone = [attempt for attempt in line if attempt.message in messages]
        if gone:
            self._put_back(subscriber, deque(attempt for attempt in line if attempt.message not in messages))
        return gone

    def clear(self) -> int:
        """Nothing waits any more; how many did."""
        count = len(self)
        self.waiting.clear()
        self._short.clear()
        return count


def _charged_bytes(message: StoredMessage) -> int:
    size_bytes = len(message.content)
    return size_bytes if size_bytes > limits.content_uncharged_bytes else 0
