"""Durations counted into buckets, and percentiles out of them.

A bucket is 2 % wide, so a percentile is right to 1 %; the maximum is exact. Counts of buckets are small whatever was
counted, take one hash aggregate, and add up: percentiles of an hour, a queue or everything come out of the same counts,
where percentiles of raw rows would need them sorted anew for each.
"""

from typing import Final, NamedTuple

import numpy as np

from syncbrok.pipeline.numpy_columns import Longs, group_starts, reduced

WIDTH: Final = 1.02
QUANTILES: Final = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))


def buckets_of(durations_us: Longs) -> Longs:
    """The numbers of the buckets of durations; less than nothing (a clock was set back) is nothing."""
    buckets: Longs = np.floor(np.log1p(np.maximum(durations_us, 0)) / np.log(WIDTH)).astype(np.int64)
    return buckets


def middle_us(bucket: int) -> float:
    """The middle of a bucket of durations."""
    return float(WIDTH ** (bucket + 0.5) - 1)


class Percentiles(NamedTuple):
    """The number of durations of each of ``groups`` (ascending), and their percentiles."""

    groups: Longs
    n: Longs
    p50_us: Longs
    p90_us: Longs
    p99_us: Longs
    max_us: Longs


def percentiles(group: Longs, bucket: Longs, n: Longs, max_us: Longs) -> Percentiles:
    """Percentiles by group, from buckets with ``n`` durations each, the longest of them ``max_us``. A bucket may come
    several times."""
    order = np.lexsort((bucket, group))
    group, bucket, n, max_us = group[order], bucket[order], n[order], max_us[order]
    starts = group_starts(group)
    up_to = np.cumsum(n)
    before = up_to[starts] - n[starts]
    whole = reduced(np.add, n, starts)
    longest = reduced(np.maximum, max_us, starts)
    found = []
    for _, share in QUANTILES:
        at = np.searchsorted(up_to, before + np.ceil(whole * share).astype(np.int64))
        middle = np.rint(WIDTH ** (bucket[at] + 0.5) - 1).astype(np.int64)
        found.append(np.minimum(middle, longest))
    return Percentiles(group[starts], whole, found[0], found[1], found[2], longest)
