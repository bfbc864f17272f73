"""The time that a report covers, in hours of UTC. Pure."""

from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import numpy as np

from syncbrok.pipeline.numpy_columns import NEVER, Longs

HOUR_US: Final = 3_600_000_000
BEFORE: Final = -1
"""instead of the number of an hour: before the period"""

HOURS_MAX: Final = 100_000
"""eleven years: the tables are made with a place for each hour"""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LEAST: Final = timedelta(microseconds=1)


class Period(NamedTuple):
    """The time of a report: from ``since`` on, before ``until`` (both with a zone). States are those at ``until``. An
    hour is named by its number since 1970."""

    since: datetime
    until: datetime

    @property
    def until_us(self) -> int:
        return (self.until - _EPOCH) // _LEAST

    @property
    def first_hour(self) -> int:
        return (self.since - _EPOCH) // _LEAST // HOUR_US

    @property
    def hours(self) -> int:
        """The number of hours, partly covered ones included."""
        return (self.until_us - 1) // HOUR_US - self.first_hour + 1

    def hours_of(self, times_us: Longs) -> Longs:
        """The hour of each; ``BEFORE`` for a time before the period, ``NEVER`` for none."""
        since_us = (self.since - _EPOCH) // _LEAST
        return np.where(times_us == NEVER, NEVER, np.where(times_us < since_us, BEFORE, times_us // HOUR_US))
