"""The messages of a key at one subscriber that keep back later ones of it there, though they do not stand in a chain of
``key_chains`` (RULES 6): it was told of them and they do not count it, or a replay sends them again. Pure.
"""

from bisect import bisect_left, insort
from collections.abc import Callable


class KeyLines(dict[str, list[int]]):
    """By key, messages that may not have ended at the subscriber, in order. Bounded as what has begun there."""

    def add(self, key: str, message: int) -> None:
        line = self.setdefault(key, [])
        if not line or message > line[-1]:
            line.append(message)
        elif message not in line:
            insort(line, message)

    def discard(self, key: str, message: int) -> None:
        line = self.get(key, [])
        at = bisect_left(line, message)
        if line[at : at + 1] == [message]:
            del line[at]
            if not line:
                del self[key]

    def first(self, key: str) -> int:
        """The first of the key; 0 for none."""
        line = self.get(key)
        return line[0] if line else 0

    def last_before(self, key: str, message: int, has_ended: Callable[[int], bool]) -> int:
        """The last of the key before ``message`` that has not ended; 0 for none. Forgets those it finds ended."""
        line = self.get(key)
        if line is None:
            return 0
        at = bisect_left(line, message)
        while at and has_ended(line[at - 1]):
            at -= 1
            del line[at]
        if not line:
            del self[key]
        return line[at - 1] if at else 0

    def tidy(self, has_ended: Callable[[int], bool]) -> None:
        """Forget all that have ended."""
        for key, line in list(self.items()):
            line[:] = [message for message in line if not has_ended(message)]
            if not line:
                del self[key]

    def copy(self) -> "KeyLines":
        return KeyLines((key, list(line)) for key, line in self.items())
