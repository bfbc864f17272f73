"""Drops of retention, looked up by record. One row ends all messages up to one that do not count a subscriber.
Pure."""

from bisect import bisect_left
from collections.abc import Sequence

Drops = Sequence[tuple[int, int]]
"""(record, message) of one subscriber, in order: all up to the message has ended there by that record"""


def dropped_before(drops: Drops, record: int) -> int:
    """The message up to which all has ended by a record before ``record``, 0 for none."""
    at = bisect_left(drops, (record, 0))
    return drops[at - 1][1] if at else 0
