"""Columns of numbers as numpy arrays: from Arrow, looked up, and summed by groups. Pure."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

NEVER: Final = int(np.iinfo(np.int64).min)
"""instead of a number or a time: there is none"""
NONE: Final = -1
"""instead of a place: there is none"""


def longs(column: pa.ChunkedArray | pa.Array, missing: int = NEVER) -> Longs:
    """``column`` as int64 numbers, ``missing`` where there are none."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return np.asarray(pc.fill_null(column.cast(pa.int64()), missing).to_numpy(zero_copy_only=False), np.int64)


def places_in_order(known: Longs, wanted: Longs) -> Longs:
    """The place of each of ``wanted`` in ``known``, which ascends; ``NONE`` where it is not there."""
    if not len(known):
        return np.full(len(wanted), NONE, np.int64)
    at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[at] == wanted, at, NONE)


def places_of(known: Longs, wanted: Longs) -> Longs:
    """The place of each of ``wanted`` in ``known`` (unique, in any order); ``NONE`` where it is not there."""
    order = np.argsort(known, kind="stable")
    return taken(order, places_in_order(known[order], wanted), NONE)


def taken(values: Longs, places: Longs, missing: int = NEVER) -> Longs:
    """``values`` at ``places``; ``missing`` where a place is ``NONE``."""
    if not len(values):
        return np.full(len(places), missing, np.int64)
    return np.where(places == NONE, missing, values[places])


def spread(counts: Longs) -> tuple[Longs, Longs]:
    """Two columns with a row for each item of lists that have so many: the number of its list, and its position
    there."""
    list_places = np.repeat(np.arange(len(counts)), counts)
    return list_places, np.arange(len(list_places)) - np.repeat(np.cumsum(counts) - counts, counts)


def group_starts(*keys: npt.NDArray[np.integer[Any]]) -> Longs:
    """The places at which groups begin, in rows that are sorted by ``keys``: neighbours with the same keys are one."""
    changed = np.zeros(max(len(keys[0]) - 1, 0), np.bool_)
    for key in keys:
        changed |= key[1:] != key[:-1]
    return np.flatnonzero(np.append([True], changed)[: len(keys[0])])


def reduced(ufunc: np.ufunc, values: Longs, starts: Longs) -> Longs:
    """``ufunc`` over each group of ``values``; ``starts`` as of ``group_starts``."""
    return np.asarray(ufunc.reduceat(values, starts)) if len(starts) else np.empty(0, np.int64)
