"""Bounds the label values of ``/metrics``: those with the most in hand by name, the others of a group as one sum. Pure.

A counter of that sum must not fall when one of the others gets a name, since whoever scrapes would take that for a
restart and count all of it again. So it is no sum of counters, but of what they have grown by while they had no name.
"""

from collections.abc import Collection, Generator, Sequence
from heapq import nlargest
from operator import itemgetter
from typing import Final, NamedTuple

Label = tuple[str, ...]
"""the label values of a series"""

_STEP: Final = 250
_ORDER: Final = itemgetter(0, 1)


class Ranked(NamedTuple):
    """A candidate: the larger ``weight`` the sooner it is shown. ``counts`` are its counters, none of which falls."""

    label: Label
    group: str
    weight: int
    counts: tuple[float, ...]


class ShownLabels:
    """Remembers from one scrape to the next who is shown by name, and what the others have counted.

    The ``most`` with the largest weight are; each stays for ``kept_us`` after it was last among those, as long as there
    are no more than twice as many."""

    __slots__ = ("_began", "_counts", "_kept_us", "_most", "_rest", "_shown")

    def __init__(self, most: int, kept_us: int) -> None:
        self._most = most
        self._kept_us = kept_us
        self._shown: dict[Label, int] = {}  # when it was last among the largest; that of the longest ago first
        self._counts: dict[Label, tuple[float, ...]] = {}
        self._rest: dict[str, tuple[float, ...]] = {}
        self._began = False

    def rest(self, group: str) -> tuple[float, ...]:
        """Counts, since the first scrape, of those of the group while they had no name; () where all have always had
        one."""
        return self._rest.get(group, ())

    def choose(self, ranked: Sequence[Ranked], now_us: int) -> Generator[None, None, Collection[Label]]:
        """The labels to show by name, of all there are; counts on for the others. In steps of some milliseconds."""
        shown = self._shown
        largest: list[tuple[int, bool, Label]] = []
        there: set[Label] = set()
        for at in range(0, len(ranked), _STEP):
            some = [(one.weight, one.label in shown, one.label) for one in ranked[at : at + _STEP]]
            there.update(one.label for one in ranked[at : at + _STEP])
            largest = nlargest(self._most, largest + some, key=_ORDER)  # of equals those that are shown, then the first
            yield
        for _, _, label in largest:
            shown.pop(label, None)
            shown[label] = now_us
        for label in [one for one, when_us in shown.items() if when_us + self._kept_us < now_us or one not in there]:
            del shown[label]
        for label in list(shown)[: max(0, len(shown) - 2 * self._most)]:
            del shown[label]
        yield
        yield from self._count(ranked, there)
        return frozenset(shown)

    def _count(self, ranked: Sequence[Ranked], there: set[Label]) -> Generator[None, None, None]:
        """Add what those without a name have grown by. What was counted before the first scrape is nobody's: else the
        sum would jump where a start shows others by name than the process before it."""
        counts, rest, shown = self._counts, self._rest, self._shown
        for at, one in enumerate(ranked):
            if at % _STEP == 0:
                yield
            none = tuple([0.0] * len(one.counts))
            before = counts.get(one.label, none if self._began else one.counts)
            counts[one.label] = one.counts
            if one.label not in shown:
                sums = rest.get(one.group, none)
                grown = zip(sums, before, one.counts, strict=True)
                rest[one.group] = tuple([total + max(0.0, now - then) for total, then, now in grown])
        self._began = True
        if len(counts) > len(there):
            for gone in counts.keys() - there:
                del counts[gone]
            for group in rest.keys() - {one.group for one in ranked}:
                del rest[group]
