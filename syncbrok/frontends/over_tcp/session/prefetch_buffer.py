"""The messages that are lent to a connection before its peer is ready for them. Pure.

A peer that takes one message at a time would wait for a turn of the dispatcher after each of its answers; prefetched,
the next ones go out as the answer comes. How many depends on the peer: as long as it empties the buffer quickly there
is room for twice as many, and when one has stayed too long (``Consumers`` takes it back) it is one at a time again.
So a peer that is slow, or gone, keeps nothing from anybody for longer than a moment.
"""

from collections import deque
from collections.abc import Collection, Sequence
from typing import Final, Generic, TypeVar

from syncbrok.delivery.handler import Delivery
from syncbrok.model import limits

PREFETCH_HOLD_S: Final = 0.1
"""longer than that nothing stays: what expires, is cancelled or is paused meanwhile would still go out"""
MESSAGES_MAX: Final = limits.window_default - 1
BYTES_MAX: Final = 128 * limits.KIB

S = TypeVar("S")


class PrefetchBuffer(Generic[S]):
    """Messages that wait to be asked for, each with its subscription, the oldest first. ``room`` says for how many the
    subscriptions together may ask beyond the one that is out."""

    def __init__(self) -> None:
        self._messages: deque[tuple[S, Delivery]] = deque()  # bounded by the windows of the subscriptions
        self.room = 0

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def plenty(self) -> bool:
        """True if there is no hurry to ask for more."""
        return 2 * len(self._messages) > self.room

    def put(self, subscription: S, deliveries: Sequence[Delivery]) -> None:
        self._messages.extend([(subscription, delivery) for delivery in deliveries])

    def take(self) -> tuple[S, Delivery] | None:
        """The one that came first."""
        return self._messages.popleft() if self._messages else None

    def runs_low(self, content_bytes: int) -> bool:
        """The peer could soon have had more, and what it had last was so large. Whether there is more room now."""
        before = self.room
        self.room = min(2 * before + 1, MESSAGES_MAX, BYTES_MAX // max(content_bytes, 1))
        return self.room > before

    def stayed(self, messages: Collection[int]) -> bool:
        """Drop messages (sequences) that were taken back. True if any of them was here: then there is no room any
        more."""
        kept = [one for one in self._messages if one[1].attempt.message not in messages]
        if len(kept) == len(self._messages):
            return False
        self._messages = deque(kept)
        self.room = 0
        return True

    def close(self) -> None:
        """Offer no room until a peer is quick again."""
        self.room = 0

    def drop(self, subscription: S) -> None:
        """Drop the messages of a subscription, which gives them back itself."""
        self._messages = deque([one for one in self._messages if one[0] is not subscription])
