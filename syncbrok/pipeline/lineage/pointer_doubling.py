"""Tops, distances and descendants in forests, by pointer doubling: each place points at its parent's place, or at
nothing. Pure numpy.

Everything is found by pointer doubling: results over a distance of 1, 2, 4, ... are combined to results over twice the
distance. A chain of a thousand takes ten rounds and one of a million twenty, each a few passes over arrays; a loop over
levels would take a thousand and a million.
"""

from typing import NamedTuple

import numpy as np

from syncbrok.pipeline.numpy_columns import NONE, Flags, Longs


class TopAncestors(NamedTuple):
    """Two columns: for each place the topmost place that its parents lead to (itself without one), and how many steps
    up it is."""

    top: Longs
    steps: Longs


def above(parents: Longs, weights: Longs | None = None) -> TopAncestors:
    """The top of each place and its distance. ``weights`` are the lengths of the steps from each place to its parent, 1
    by default."""
    top = np.arange(len(parents), dtype=np.int64)
    steps = np.zeros(len(parents), np.int64)
    moving = np.flatnonzero(parents != NONE)
    top[moving] = parents[moving]
    steps[moving] = 1 if weights is None else weights[moving]
    while len(moving):
        middle = top[moving]
        beyond = top[middle]
        further = beyond != middle
        moving, middle, beyond = moving[further], middle[further], beyond[further]
        # Read before anything is written: all of a round goes by what was known when it began.
        added = steps[middle]
        steps[moving] += added
        top[moving] = beyond
    return TopAncestors(top, steps)


def descendants(parents: Longs) -> Longs:
    """The number of descendants of each place, itself not counted."""
    count = len(parents)
    below = np.ones(count)  # those at distances under 1, 2, 4, ...; float64 is exact up to 2**53
    leap = parents.copy()
    moving = np.flatnonzero(leap != NONE)
    while len(moving):
        to = leap[moving]
        below += np.bincount(to, weights=below[moving], minlength=count)
        leap[moving] = leap[to]
        moving = moving[leap[moving] != NONE]
    return below.astype(np.int64) - 1


def upwards(parents: Longs, starts: Longs) -> Flags:
    """For each place: true if it stands on the way up from one of ``starts``, those included."""
    marked = np.zeros(len(parents), np.bool_)
    marked[starts] = True
    leap = parents.copy()
    moving = np.flatnonzero(leap != NONE)
    while len(moving):
        # All that are marked pass it on over the same distance; those marked in this round do so in the next.
        marked[leap[moving[marked[moving]]]] = True
        leap[moving] = leap[leap[moving]]
        moving = moving[leap[moving] != NONE]
    return marked


def greatest_of_each(groups: Longs, *keys: Longs) -> Longs:
    """The place of the greatest of each group, by the first key, then the next; groups in ascending order."""
    order = np.lexsort((*reversed(keys), groups))
    ends = np.flatnonzero(np.append(groups[order][1:] != groups[order][:-1], [True])) if len(order) else order
    return order[ends]
