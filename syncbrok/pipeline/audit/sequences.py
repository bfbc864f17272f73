"""Rule ``sequence``: every number from the first record of the log to the last is there once, or named by a gap.

Numbers are counted in bitmaps of 32,768, each worked out where the records are: what is brought together is a few
kilobytes for 32,768 records. Only stretches that are not whole are looked at one by one.
"""

from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from syncbrok.pipeline.audit.declared import Lost
from syncbrok.pipeline.audit.rules import Violation

_STRETCH: Final = 32_768
"""positions of Spark's bitmaps, which begin at 1"""
_LOOKED_AT_MAX: Final = 1_000
"""stretches looked at closely: a log with more is no log"""


class Stretch(NamedTuple):
    """Records of 32,768 neighbouring sequences: how many, how many different ones, the lowest and the highest."""

    number: int
    records: int
    different: int
    first: int
    last: int


class Extent(NamedTuple):
    """The records of a log. ``end_us`` is the time of the newest (Unix microseconds)."""

    records: int
    first: int
    last: int
    end_us: int
    stretches: tuple[Stretch, ...]


def extent(facts: DataFrame) -> Extent:
    """One pass over all records; brings back one row for 32,768 of them."""
    stretches = facts.groupBy(f.bitmap_bucket_number("sequence").alias("number")).agg(
        f.count(f.lit(1)).alias("records"),
        f.bitmap_count(f.bitmap_construct_agg(f.bitmap_bit_position("sequence"))).alias("different"),
        f.min("sequence").alias("first"),
        f.max("sequence").alias("last"),
        f.max(f.unix_micros("time")).alias("end_us"),
    )
    rows: list[Any] = stretches.orderBy("number").collect()
    found = tuple(Stretch(row.number, row.records, row.different, row.first, row.last) for row in rows)
    if not found:
        return Extent(0, 0, 0, 0, ())
    return Extent(
        sum(one.records for one in found), found[0].first, found[-1].last, max(row.end_us for row in rows), found
    )


def broken_stretches(found: Extent) -> list[Stretch]:
    """Those in which, or before which, a sequence may be missing or come twice. Pure."""
    broken: list[Stretch] = []
    through = found.first - 1
    for one in found.stretches:
        whole = one.records == one.different == one.last - one.first + 1 and one.first == through + 1
        if not whole:
            broken.append(one)
        through = one.last
    return broken


def violations(facts: DataFrame, found: Extent, gaps: list[Lost]) -> list[Violation]:
    """What is missing or double, at most some per broken stretch."""
    broken = broken_stretches(found)[:_LOOKED_AT_MAX]
    if not broken:
        return []
    numbers = [one.number for one in broken]
    lasts = {one.number: one.last for one in found.stretches}
    before = Window.partitionBy("number").orderBy("sequence")
    rows: list[Any] = (
        facts.select("sequence", f.bitmap_bucket_number("sequence").alias("number"))
        .where(f.col("number").isin(numbers))
        .select("sequence", "number", f.lag("sequence").over(before).alias("before"))
        .where(f.col("before").isNull() | (f.col("sequence") != f.col("before") + 1))
        .orderBy("sequence")
        .limit(_LOOKED_AT_MAX)
        .collect()
    )
    named = {gap.record: gap for gap in gaps}
    breaks: list[Violation] = []
    for row in rows:
        below = [last for number, last in lasts.items() if number < row.number]
        through = row.before if row.before is not None else max(below, default=found.first - 1)
        gap = named.get(row.sequence)
        first = min(row.sequence, gap.first) if gap else row.sequence
        if first != through + 1 and row.sequence != found.first:
            breaks.append(Violation("sequence", row.sequence, 0, 0, f"sequence {first} follows {through}"))
    return breaks
