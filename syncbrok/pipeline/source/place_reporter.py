"""Tells a broker how far a stream has come, under the name of a reader. No Spark.

A place is told when it has moved, and every so often when it has not: a reader that is silent for too long holds
nothing back any more. A broker that does not answer is told the next time; the stream does not wait for it.
"""

import time
from collections.abc import Callable
from typing import Final

from syncbrok.pipeline.broker_log import BrokerLog

_AGAIN_S: Final = 10.0


class PlaceReporter:
    """``hold``: whether retention is to wait for the reader, None: as it was. ``clock_s`` never goes back."""

    def __init__(
        self, place: BrokerLog, reader: str, hold: bool | None, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._place = place
        self._reader = reader
        self._hold = hold
        self._clock_s = clock_s
        self._told: int | None = None
        self._told_s = 0.0

    def report(self, through: int) -> None:
        """All up to this sequence is in the sink. Raises ``BadSetting`` where the broker refuses the reader."""
        now_s = self._clock_s()
        if through == self._told and now_s < self._told_s + _AGAIN_S:
            return
        if self._place.tell_reader(self._reader, through, self._hold):
            self._told, self._told_s = through, now_s
