"""Bounds how often a subscriber is tried: a token bucket that every attempt takes one token from. Pure."""

from math import ceil

from syncbrok.model.units import parse_rate


class RateBucket:
    """A bucket for the rate ``text`` (such as ``100/s``): it holds what comes in one second, at least one token, and is
    full at first. Kept as the one moment at which it is full again (the virtual scheduling of ITU-T I.371, annex A), so
    nothing has to run while nobody asks. Times in microseconds."""

    __slots__ = ("_full_us", "_holds", "_interval_us", "awaited", "text")

    def __init__(self, text: str) -> None:
        count, unit_s = parse_rate(text)
        self.text = text
        self._interval_us = unit_s * 1e6 / count
        self._holds = max(1, count // unit_s)
        self._full_us = 0.0
        self.awaited = False
        """a timer waits for the next token"""

    def __repr__(self) -> str:
        return f"<RateBucket {self.text}>"

    def room(self, most: int, now_us: int) -> int:
        """How many of ``most`` attempts may begin now."""
        # After the clock was set back it would stay empty for as long as that was.
        self._full_us = min(self._full_us, now_us + self._holds * self._interval_us)
        missing_us = self._full_us - now_us
        if missing_us <= 0:
            return min(most, self._holds)
        return max(min(most, int((self._holds * self._interval_us - missing_us) / self._interval_us + 1e-9)), 0)

    def take(self, count: int, now_us: int) -> None:
        """So many attempts begin; ``room`` has said that they may."""
        self._full_us = max(self._full_us, now_us) + count * self._interval_us

    def give_back(self, count: int = 1) -> None:
        """So many attempts were not begun after all."""
        self._full_us -= count * self._interval_us

    def next_us(self) -> int:
        """When there is a token again, while there is none."""
        return ceil(self._full_us - (self._holds - 1) * self._interval_us - 1e-3)
