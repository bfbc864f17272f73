"""Works through rows that follow from each other, a range at a time, in the order of the log.

What becomes of a message may follow from its parents, and theirs from their own: a chain that only one task can go
along. Parents are older than their children. So the rows are cut by the children's sequences into ranges that one task
holds. Each range is given what came out of those before it.
"""

from collections.abc import Callable
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from syncbrok.pipeline.kept import kept

ROWS_AT_ONCE: Final = 1 << 20
"""rows that one task holds, some hundred bytes each"""

Work = Callable[[DataFrame, DataFrame | None], DataFrame]
"""the results for some rows; given those of all ranges before, None where there are none"""


def range_by_range(rows: DataFrame, child: str, count: int, work: Work, rows_at_once: int = ROWS_AT_ONCE) -> DataFrame:
    """The results of ``work`` for all ``rows``, of which there are about ``count``: at once, or where these are too
    many range by range of the column ``child``. All rows of a child are in one range."""
    ranges = -(-count // rows_at_once)
    if ranges < 2:
        return work(rows, None)
    rows = kept(rows)
    shares = [at / ranges for at in range(1, ranges)]
    found = rows.agg(f.percentile_approx(child, shares, max(10_000, 10 * ranges)).alias("borders")).first()
    borders = sorted(set(found["borders"] or ())) if found is not None else []
    results: list[DataFrame] = []
    for first, last in zip([None, *borders], [*borders, None], strict=True):
        before = reduce(DataFrame.unionByName, results) if results else None
        results.append(kept(work(rows.where(_between(child, first, last)), before)))
    return reduce(DataFrame.unionByName, results)


def _between(child: str, first: int | None, last: int | None) -> Column:
    after = f.lit(True) if first is None else f.col(child) > first
    return after if last is None else after & (f.col(child) <= last)
