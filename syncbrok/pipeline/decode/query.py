"""What a reader wants of the log: kind, columns, and which rows. Pure."""

from typing import NamedTuple

import numpy as np

from syncbrok.pipeline.decode.gather import Array
from syncbrok.pipeline.schema import Column

TIME_MIN_US, TIME_MAX_US = -(1 << 62), 1 << 62
RECORDED_AFTER_US, RECORDED_BEFORE_US = 86_400_000_000, 3_600_000_000
"""A row of a delivery, whose time is when its attempt began, is recorded a day after that at most; a clock set back may
make it an hour before."""


class Condition(NamedTuple):
    """A column of numbers (times as Unix microseconds) is compared with ``values``: one, or several for ``in``."""

    column: str
    operation: str
    values: tuple[int, ...]

    def holds(self, found: Array) -> Array:
        """For which of the values found it holds."""
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
    """``columns`` of ``kind``; of ``queues`` (None: all) only, with a time from ``since_us`` on and before
    ``until_us``, and where every condition holds. Of the facts those of ``fact_kinds`` (None: all), and the last record
    of each slice: where the log ends is known all the same."""

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
        """The conditions, those on the time among them."""
        found = self.conditions
        if self.since_us > TIME_MIN_US:
            found = (*found, Condition("time", ">=", (self.since_us,)))
        if self.until_us < TIME_MAX_US:
            found = (*found, Condition("time", "<", (self.until_us,)))
        return found


class CarriedRule(NamedTuple):
    """Which carried messages are rows: those whose own sequence is from ``low`` on and before ``below``, by a record up
    to sequence ``through`` that is not ``superseded`` by a later one of the same message. Nothing by default."""

    low: int = 0
    below: int = 0
    through: int = 0
    superseded: tuple[int, ...] = ()
