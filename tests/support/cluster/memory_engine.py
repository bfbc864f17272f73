"""The stream of an engine in memory, for many tests of what stands on it: answers come late, get lost, or are wrong in
the ways that were seen of a real one. (``tests/cluster/test_engine.py`` asks the real one.)"""

import random
import threading

from syncbrok.cluster.engine import Fate, StreamState
from syncbrok.cluster.stream_messages import StreamMessage


class MemoryEngine:
    """``unsure``: how often of a hundred an append's fate is not told. ``down``: nobody answers."""

    def __init__(self, seed: int, unsure: int = 0) -> None:
        self._chance = random.Random(seed)
        self._lock = threading.Lock()
        self.messages: list[StreamMessage] = []
        self.first = 1
        """those before this place were purged"""
        self.unsure = unsure
        self.down = False
        self.tries = 0
        self.lacking = range(0)
        """places that the server which is read from lacks: its files were damaged, and nobody has mended them yet"""
        self.lagging = 0
        """how many of the last messages it has not got yet"""

    def try_append(self, message: StreamMessage, last: int, timeout_s: float) -> tuple[Fate, int]:
        with self._lock:
            self.tries += 1
            if self.down:
                return Fate.UNKNOWN, 0
            pick = self._chance.randrange(100)
            if pick < self.unsure / 3:
                return Fate.UNKNOWN, 0  # it never arrived
            if pick < self.unsure * 2 / 3:
                return Fate.ELSEWHERE, 0  # said of one that was not stored, as a lost majority does
            if len(self.messages) != last:
                return Fate.ELSEWHERE, 0
            self.messages.append(message._replace(sequence=last + 1))
            if pick < self.unsure:
                return Fate.UNKNOWN, 0  # it was stored, and the answer was lost
            return Fate.STORED, last + 1

    def from_leader(self, sequence: int) -> StreamMessage | None:
        with self._lock:
            if self.down:
                raise OSError("down, says the test")
            return self.messages[sequence - 1] if self.first <= sequence <= len(self.messages) else None

    def read(self, after: int, timeout_s: float) -> list[StreamMessage]:
        with self._lock:
            if self.down:
                raise OSError("down, says the test")
            begin = max(self.first - 1, after)
            there = self.messages[begin : max(begin, len(self.messages) - self.lagging)]
            return [one for one in there if one.sequence not in self.lacking][:256]

    def purge(self, before: int) -> None:
        with self._lock:
            self.first = max(self.first, before)

    def state(self) -> StreamState:
        with self._lock:
            return StreamState(
                self.first, len(self.messages), sum(len(one.body) for one in self.messages[self.first - 1 :])
            )
