"""A query of the log: kind, columns, and which rows. Pure."""

from typing import NamedTuple

import numpy as np

from syncbrok.pipeline.decode.arrow_arrays import Array
from syncbrok.pipeline.schema import Column

TIME_MIN_US, TIME_MAX_US = -(1 << 62), 1 << 62
RECORDED_AFTER_US, RECORDED_BEFORE_US = 86_400_000_000, 3_600_000_000
"""A delivery row's time is when its attempt began. Its record follows at most a day later, or, after a clock was set
back, has a time up to an hour earlier."""


class Condition(NamedTuple):
    """A column of numbers (times as Unix microseconds) is compared with ``values``: one, or several for ``in``."""

    column: str
    operation: str
    values: tuple[int, ...]

    def holds(self, found: Array) -> Array:
        """For each of the found values: true if the condition holds."""
        one = self.values[0] if self.values else 0
        match self.operation:
            case "=":
                return np.equal(found, one)
            case "<":
                return np.less(found, one)
            case "<=":
                return np.less_equal(found, one)
            case ">":
                return np.greater(found, one)
            case ">=":
                return np.greater_equal(found, one)
            case _:
                return np.isin(found, np.array(self.values, dtype=np.int64))


class Query(NamedTuple):
    """Rows of ``kind`` with ``columns``: of ``queues`` (None: all), with times from ``since_us`` on and before
    ``until_us``, where every condition holds. Of facts those of ``fact_kinds`` (None: all), and always the last record
    of each slice, so that the end of the log is known."""

    kind: str
    columns: tuple[Column, ...]
    queues: frozenset[str] | None = None
    since_us: int = TIME_MIN_US
    until_us: int = TIME_MAX_US
    conditions: tuple[Condition, ...] = ()
    verify: bool = True
    fact_kinds: frozenset[str] | None = None

    @property
    def names(self) -> frozenset[str]:
        """The columns' names."""
        return frozenset(column.name for column in self.columns)

    def everything(self) -> tuple[Condition, ...]:
        """All conditions, those on the time among them."""
        found = self.conditions
        if self.since_us > TIME_MIN_US:
            found = (*found, Condition("time", ">=", (self.since_us,)))
        if self.until_us < TIME_MAX_US:
            found = (*found, Condition("time", "<", (self.until_us,)))
        return found


class CarriedRule(NamedTuple):
    """The rule by which carried messages are rows or not. The own sequence is at least ``low`` and less than ``below``,
    the carrying record is at most ``through`` and is not ``superseded`` by a later one of the same message. By default
    none are."""

    low: int = 0
    below: int = 0
    through: int = 0
    superseded: tuple[int, ...] = ()
