"""When messages were accepted, by sequence: from memory, without a look at one. Pure.

Neighbours have times close to each other, and a batch has one time. So points are enough: of the newest batches one
each, and the longer ago the further apart in time, so that an age is wrong by no more than half a percent.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, Protocol

POINTS_MAX: Final = 2_048
"""of each distance, twice as many for a moment"""
_APART_US: Final = (1, *(1_000 * 8**level for level in range(1, 9)))
"""the last is four hours, so points for a year"""


class TimedSection(Protocol):
    """A section of the log."""

    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...
    @property
    def first_time_us(self) -> int: ...
    @property
    def last_time_us(self) -> int: ...


class AcceptanceTimes:
    """``note`` each batch, in log order. Of what was in the log before only the ends of sections are known."""

    __slots__ = ("_known_from", "_levels")

    def __init__(self) -> None:
        self._levels = [(apart_us, array("Q"), array("Q")) for apart_us in _APART_US]  # sequences, times
        self._known_from = 0

    def begin(self, sections: Iterable[TimedSection]) -> None:
        """Take over what a log holds, oldest section first."""
        for section in sections:
            if section.last >= section.first:
                self.note(section.first, section.first_time_us)
                self.note(section.last, section.last_time_us)
                self._known_from = section.last

    def note(self, sequence: int, time_us: int) -> None:
        """A batch that begins with ``sequence`` was accepted then."""
        for apart_us, sequences, times in self._levels:
            if times and time_us < times[-1] + apart_us:
                return
            sequences.append(sequence)
            times.append(time_us)
            if len(times) > 2 * POINTS_MAX:
                del sequences[:POINTS_MAX], times[:POINTS_MAX]

    def knows(self, sequence: int) -> bool:
        """Whether it was accepted while times were noted."""
        return sequence > self._known_from and bool(self._levels[0][1])

    def of(self, sequence: int) -> int:
        """About when it was accepted; 0 where nothing is known. Of what was in the log before: as if messages had come
        evenly."""
        oldest_us = 0
        for _, sequences, times in self._levels:
            if sequences and sequences[0] <= sequence:
                break
            oldest_us = times[0] if times else oldest_us
        else:
            return oldest_us
        at = bisect_right(sequences, sequence) - 1
        if sequence >= self._known_from or at + 1 == len(times):
            return times[at]
        share = (sequence - sequences[at]) / (sequences[at + 1] - sequences[at])
        return times[at] + int(share * (times[at + 1] - times[at]))
