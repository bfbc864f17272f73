"""How far the files of a log go, as seen from outside: without asking its broker, which is being measured.

Files of a segment are the same bytes on every node of a cluster, so two places of two nodes compare. Behind the last
record a file that is written to has zeros.
"""

import os
import threading
import time
from bisect import bisect_left
from pathlib import Path
from typing import Final, NamedTuple, Self

_PROBE_BYTES: Final = 4_096
"""no message that is measured has so many zeros"""
_CHUNK_BYTES: Final = 1 << 20
_EVERY_S: Final = 0.005
_PATTERN: Final = "[0-9]*.log"


class Place(NamedTuple):
    """``segment``: the name of its file, which sorts; ``at``: behind the last byte that is not zero."""

    segment: str = ""
    at: int = 0


class LogEnd:
    """``look`` goes on from where it was. ``bytes``: of the log up to there."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._place = Place()
        self._before_bytes = 0

    @property
    def bytes(self) -> int:
        return self._before_bytes + self._place.at

    def look(self) -> Place:
        """Where the log ends now; an empty place while there is none."""
        while True:
            segment, at = self._place
            if segment:
                self._place = Place(segment, _end(self._directory / segment, at))
            later = sorted(one.name for one in self._directory.glob(_PATTERN) if one.name > segment)
            if not later:
                return self._place
            self._before_bytes += self._place.at
            self._place = Place(later[0])


def _end(file: Path, at: int) -> int:
    """Behind the last byte from ``at`` on that is not zero."""
    size_bytes = _PROBE_BYTES
    descriptor = os.open(file, os.O_RDONLY)
    try:
        while more := len(os.pread(descriptor, size_bytes, at).rstrip(b"\0")):
            at += more
            size_bytes = _CHUNK_BYTES if more == size_bytes else _PROBE_BYTES
    finally:
        os.close(descriptor)
    return at


class LagWatch:
    """As a context manager it looks every 5 ms how far the leader's log and those of its followers are. At its end it
    waits until the followers have what the leader had then."""

    def __init__(self, leader: LogEnd, followers: list[LogEnd], within_s: float = 60.0) -> None:
        self._ends = [leader, *followers]
        self._within_s = within_s
        self._seen: list[tuple[float, list[Place]]] = []
        self._looks = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        last: Place | None = None
        until_s = 0.0
        while True:
            places = [one.look() for one in self._ends]
            now_s = time.monotonic()
            self._seen.append((now_s, places))
            if self._ended.is_set():
                if last is None:
                    last, until_s, self._looks = places[0], now_s + self._within_s, len(self._seen)
                if all(one >= last for one in places) or now_s > until_s:
                    return
            time.sleep(_EVERY_S)

    def lags_s(self) -> list[float]:
        """For each look and each follower: how long until its files had what the leader's had at that look; ascending.
        One that never had it is infinitely late. Looks after the end do not count: nobody waits for what the leader
        has written since."""
        at_s = [one for one, _ in self._seen]
        found: list[float] = []
        for number in range(1, len(self._ends)):
            reached = [places[number] for _, places in self._seen]
            for look_s, places in self._seen[: self._looks]:
                at = bisect_left(reached, places[0])
                found.append(max(0.0, at_s[at] - look_s) if at < len(reached) else float("inf"))
        return sorted(found)
