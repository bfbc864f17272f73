"""Messages that are read ahead because they come next in some subscriber's backlog. Pure.

Without it a backlog is read in runs as large as a window's room, and each run waits for its read. With it the next run
is read while this one is being delivered: as soon as half of the messages read ahead for a subscriber have gone out.
If few messages are out, their children are read meanwhile.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Final

from syncbrok.model import limits
from syncbrok.model.facts import StoredMessage

BYTES_MAX: Final = 12 * limits.MIB
"""with 16 MiB 300 leases of a MiB took more than the 64 MiB that one client may cost (DESIGN 1, bounded); with 8 the
messages of many pulls are read twice, and those took more"""
MESSAGES_MAX: Final = 16_384


class Prefetch:
    """``messages``: what has been read, by sequence, oldest read first; the oldest go when there are too many.
    ``wanted``: subscribers for whom the next run should be read."""

    def __init__(self) -> None:
        self.messages: dict[int, StoredMessage] = {}
        # Beside it, because the first of a plain dict is found by walking over all that were taken out before it.
        self._order: deque[int] = deque()
        self.wanted: set[int] = set()
        self.expected: Sequence[int] = ()
        """messages to read, for whoever comes next"""
        self._bytes = 0
        self.marks: dict[int, int] = {}
        """by subscriber, the message at which to read on"""

    def expect(self, subscriber: int, messages: Sequence[int]) -> None:
        """Note messages that will probably go to the subscriber next. They replace earlier ones that have not been read
        yet: there was no time for those."""
        self.expected = messages
        self.marks[subscriber] = messages[len(messages) // 2]

    def passed(self, subscriber: int, sequence: int) -> bool:
        """Whether, with ``sequence`` going out to ``subscriber``, it is time to read on."""
        if sequence < self.marks.get(subscriber, inf):
            return False
        del self.marks[subscriber]
        self.wanted.add(subscriber)
        return True

    def choose(
        self,
        upcoming: Callable[[int, int], Sequence[int]],
        in_memory: Callable[[int], bool],
        count_max: int,
    ) -> list[int]:
        """The messages to read now: those expected, and some for the subscribers that want some; at most ``count_max``
        of either, or one for each subscriber."""
        subscribers, self.wanted = self.wanted, set()
        chosen = [sequence for sequence in self.expected[:count_max] if sequence not in self.messages]
        self.expected = ()
        share = max(count_max // max(len(subscribers), 1), 1)
        for subscriber in subscribers:
            self.marks.pop(subscriber, None)
            # Twice the share: half of that has been read, and stands before what is to be read now.
            following = [sequence for sequence in upcoming(subscriber, 2 * share) if sequence not in self.messages]
            if following and in_memory(following[-1]):
                following = [sequence for sequence in following if not in_memory(sequence)]
            following = following[:share]
            if following:
                self.marks[subscriber] = following[len(following) // 2]
                chosen += following
        return chosen

    def keep(self, messages: Mapping[int, StoredMessage | None]) -> None:
        """Put by what has been read."""
        kept = self.messages
        fresh = {
            sequence: message for sequence, message in messages.items() if message is not None and sequence not in kept
        }
        kept.update(fresh)
        self._order.extend(fresh)
        self._bytes += sum([len(message.content) for message in fresh.values()])
        while self._bytes > BYTES_MAX or len(kept) > MESSAGES_MAX:
            self._bytes -= len(kept.pop(self._order.popleft()).content)

    def forget(self, messages: Iterable[int]) -> None:
        """Put by none of these any more."""
        for sequence in messages:
            found = self.messages.pop(sequence, None)
            if found is not None:
                self._order.remove(sequence)
                self._bytes -= len(found.content)
