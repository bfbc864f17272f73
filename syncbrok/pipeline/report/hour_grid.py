"""Counts as arrays with a row for each name and a column for each hour. Pure numpy and Arrow, on the driver."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from syncbrok.pipeline.numpy_columns import NEVER, Flags, Longs, longs
from syncbrok.pipeline.report.latency import QUANTILES, Percentiles, percentiles
from syncbrok.pipeline.report.period import BEFORE, HOUR_US, Period
from syncbrok.pipeline.schema import TIME

Key = tuple[str | None, ...]


class CountColumns:
    """The counts of one kind, as columns."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    def column(self, name: str) -> pa.Array:
        return self._rows[name].combine_chunks()

    def of(self, name: str, missing: int = NEVER) -> Longs:
        """The column ``name`` as numbers, ``missing`` for null; flags as 1 and 0."""
        return longs(self.column(name), missing)

    def among(self, name: str, *words: str) -> Flags:
        """For each row: true if its text is one of ``words``."""
        found = pc.is_in(self.column(name), value_set=pa.array(words, pa.string()))
        return np.asarray(found.to_numpy(zero_copy_only=False), np.bool_)

    @property
    def n(self) -> Longs:
        return self.of("n", 0)


class NamedRows(NamedTuple):
    """The name of each row, as its place in ``keys``."""

    keys: list[Key]
    at: Longs

    def columns(self, *names: str) -> dict[str, pa.Array]:
        """The names of the rows as columns of text."""
        at = pa.array(self.at)
        return {name: text_of(self.keys, place).take(at) for place, name in enumerate(names)}


def text_of(keys: Iterable[Key], place: int) -> pa.Array:
    return pa.array([key[place] for key in keys], pa.string())


def by_text(rows: CountColumns, name: str) -> NamedRows:
    """The rows named by one column."""
    column = rows.column(name).dictionary_encode("encode")
    return NamedRows([(one,) for one in column.dictionary.to_pylist()], column.indices.to_numpy().astype(np.int64))


def together(*each: NamedRows) -> tuple[list[Key], list[Longs]]:
    """All keys that there are, in order, nothing before any text; and for each of ``each`` the places of its rows among
    them."""
    known = sorted(
        {key for one in each for key in one.keys}, key=lambda key: [(one is not None, one or "") for one in key]
    )
    places = {key: at for at, key in enumerate(known)}
    return known, [np.array([places[key] for key in one.keys], np.int64)[one.at] for one in each]


class HourGrid:
    """A table of ``names`` by the hours of ``period``. Rows without a name (a place below 0) and outside the hours are
    left out."""

    def __init__(self, names: Sequence[Key], period: Period) -> None:
        self._names = names
        self._first = period.first_hour
        self._hours = period.hours

    def sum(self, name: Longs, hour: Longs, n: Longs, where: Flags | bool = True) -> Longs:
        """Sums of ``n`` by name and hour."""
        inside = self._inside(name, hour) & where
        at = name[inside] * self._hours + hour[inside] - self._first
        size = len(self._names) * self._hours
        return np.bincount(at, n[inside], size).astype(np.int64).reshape(-1, self._hours)

    def running(self, name: Longs, steps: Iterable[tuple[Longs, Longs, Flags | bool]]) -> Longs:
        """Running totals at the end of each hour. ``steps``: hours, how many came (negative: went), and which rows
        count. Rows before the period make up the total at its beginning."""
        change = np.zeros((len(self._names), self._hours), np.int64)
        opening = np.zeros(len(self._names), np.int64)
        for hour, n, where in steps:
            change += self.sum(name, hour, n, where)
            before = (hour == BEFORE) & (name >= 0) & where
            opening += np.bincount(name[before], n[before], len(self._names)).astype(np.int64)
        return opening[:, None] + np.cumsum(change, axis=1)

    def percentiles(self, prefix: str, name: Longs, hour: Longs, rows: CountColumns) -> dict[str, pa.Array]:
        """Columns ``{prefix}_n``, ``{prefix}_p50_us`` and so on, null where there was nothing."""
        bucket = rows.of("bucket")
        inside = self._inside(name, hour) & (bucket != NEVER)
        at = name[inside] * self._hours + hour[inside] - self._first
        found = percentiles(at, bucket[inside], rows.n[inside], rows.of("max_us", 0)[inside])
        return quantile_columns(prefix, found, len(self._names) * self._hours)

    def keys(self, *columns: str) -> dict[str, pa.Array]:
        """The names as ``columns``, and ``hour``."""
        at = pa.array(np.repeat(np.arange(len(self._names)), self._hours))
        found = {column: text_of(self._names, place).take(at) for place, column in enumerate(columns)}
        return found | {"hour": times(np.tile(np.arange(self._hours) + self._first, len(self._names)))}

    def _inside(self, name: Longs, hour: Longs) -> Flags:
        return (name >= 0) & (hour >= self._first) & (hour < self._first + self._hours)


def quantile_columns(prefix: str, found: Percentiles, size: int) -> dict[str, pa.Array]:
    """Percentile columns with a value for each place from 0 to ``size``; the groups of ``found`` are such places."""
    there = np.zeros(size, np.bool_)
    there[found.groups] = True
    columns = {f"{prefix}_n": found.n}
    columns |= {f"{prefix}_{name}_us": getattr(found, f"{name}_us") for name, _ in QUANTILES}
    columns[f"{prefix}_max_us"] = found.max_us
    made = {}
    for name, values in columns.items():
        spread = np.zeros(size, np.int64)
        spread[found.groups] = values
        made[name] = pa.array(spread, mask=~there)
    return made


def times(hours: Longs) -> pa.Array:
    """The beginnings of hours, as times."""
    return pa.array(hours * HOUR_US, pa.int64()).cast(TIME)
