"""The pace at which one subscriber gets new connections: a slow start, as TCP has one. Pure.

An endpoint that answers shows that it can carry more, and gets more with each answer on a new connection. One that
says nothing gets a first burst and then few a second, however large its window is. Without that, two hung endpoints
with windows of ten thousand took half of a processor for dials that came to nothing, and every neighbour waited for it.
It is kept for each subscriber and not for the origin: one that hangs must not use up what its neighbours may dial.
"""

from typing import Final

BURST: Final = 64
"""new connections at once, of which nothing was heard"""
SILENT_PER_S: Final = 128
"""further ones, while nothing is heard of them"""
EARNED: Final = 2
"""for each of which something is heard: so they double with each round trip"""


class DialRamp:
    """A bucket of dials. Times are of the monotonic clock, in seconds, and never go back."""

    __slots__ = ("_at_s", "_dials")

    def __init__(self) -> None:
        self._dials: float = BURST
        self._at_s = 0.0

    def allows(self, now_s: float) -> bool:
        """Whether one more may begin now; ``begin`` takes it."""
        self._dials = min(BURST, self._dials + (now_s - self._at_s) * SILENT_PER_S)
        self._at_s = now_s
        return self._dials >= 1

    def begin(self) -> None:
        """One more has begun."""
        self._dials -= 1

    def responded(self) -> None:
        """Somebody is there: a new connection was answered, closed or refused."""
        self._dials = min(BURST, self._dials + EARNED)
