"""Rule ``sequence``: every number from the first record of the log to the last is there once, or named by a gap.

Numbers are counted in bitmaps of 32,768, each filled in by the task that has the records. So four kilobytes travel for
32,768 records, and the rows of one bitmap meet at one place. Only incomplete blocks are looked at one by one.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import numpy as np
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from syncbrok.pipeline.audit.declarations import LostRange
from syncbrok.pipeline.audit.row_encoding import Longs
from syncbrok.pipeline.audit.rules import AuditFinding

BLOCK: Final = "block"
BLOCK_ROW: Final = {
    "number": "bigint", "records": "bigint", "first": "bigint", "last": "bigint", "end_us": "bigint", "bits": "binary",
}  # fmt: skip
"""records of neighbouring sequences that one task has met; ``end_us`` is the time of the newest"""

_SIZE: Final = 32_768
"""sequences of a block, as many as Spark's bitmaps have bits"""
_LOOKED_AT_MAX: Final = 1_000
"""blocks looked at closely: a log with more is no log"""


class SequenceBlock(NamedTuple):
    """Records of 32,768 neighbouring sequences: how many, how many different ones, the lowest and the highest."""

    number: int
    records: int
    different: int
    first: int
    last: int


class LogExtent(NamedTuple):
    """The records of a log. ``end_us`` is the time of the newest (Unix microseconds)."""

    records: int
    first: int
    last: int
    end_us: int
    blocks: tuple[SequenceBlock, ...]


class SequenceBitmaps:
    """The sequences that one task meets."""

    def __init__(self) -> None:
        self._rows: dict[int, list[Any]] = {}

    def add(self, sequences: Longs, times_us: Longs) -> None:
        numbers = sequences // _SIZE
        for number in np.unique(numbers).tolist():
            inside = numbers == number
            mine, bits = sequences[inside], np.zeros(_SIZE, bool)
            bits[mine % _SIZE] = True
            packed, end_us = np.packbits(bits), int(times_us[inside].max())
            row = self._rows.setdefault(number, [number, 0, int(mine[0]), 0, end_us, np.zeros_like(packed)])
            row[1] += len(mine)
            row[2], row[3], row[4] = min(row[2], int(mine.min())), max(row[3], int(mine.max())), max(row[4], end_us)
            row[5] |= packed

    def rows(self) -> list[tuple[Any, ...]]:
        return [(*row, bits.tobytes()) for *row, bits in self._rows.values()]


def extent(scanned: DataFrame) -> LogExtent:
    """The extent of the log from the rows of all tasks. The driver gets one of 48 bytes for 32,768 records: 1.5 MB of a
    billion."""
    found = scanned.where(f.col(BLOCK).isNotNull()).select(f"{BLOCK}.*").groupBy("number").agg(
        f.sum("records").alias("records"),
        f.bitmap_count(f.bitmap_or_agg("bits")).alias("different"),
        f.min("first").alias("first"),
        f.max("last").alias("last"),
        f.max("end_us").alias("end_us"),
    )  # fmt: skip
    return _extent(found.collect())


def _extent(rows: Iterable[Any]) -> LogExtent:
    found = sorted(rows, key=lambda row: row["number"])
    if not found:
        return LogExtent(0, 0, 0, 0, ())
    blocks = tuple(SequenceBlock(one.number, one.records, one.different, one.first, one.last) for one in found)
    records, end_us = sum(one.records for one in blocks), max(row.end_us for row in found)
    return LogExtent(records, blocks[0].first, blocks[-1].last, end_us, blocks)


def broken_blocks(found: LogExtent) -> list[SequenceBlock]:
    """The blocks in which, or before which, a sequence may be missing or come twice. Pure."""
    broken: list[SequenceBlock] = []
    through = found.first - 1
    for one in found.blocks:
        whole = one.records == one.different == one.last - one.first + 1 and one.first == through + 1
        if not whole:
            broken.append(one)
        through = one.last
    return broken


def violations(facts: DataFrame, found: LogExtent, gaps: list[LostRange]) -> list[AuditFinding]:
    """Sequences that are missing or come twice, a limited number for each broken block."""
    broken = broken_blocks(found)[:_LOOKED_AT_MAX]
    if not broken:
        return []
    numbers = [one.number for one in broken]
    lasts = {one.number: one.last for one in found.blocks}
    before = Window.partitionBy("number").orderBy("sequence")
    rows: list[Any] = (
        facts.select("sequence", f.floor(f.col("sequence") / _SIZE).alias("number"))
        .where(f.col("number").isin(numbers))
        .select("sequence", "number", f.lag("sequence").over(before).alias("before"))
        .where(f.col("before").isNull() | (f.col("sequence") != f.col("before") + 1))
        .orderBy("sequence")
        .limit(_LOOKED_AT_MAX)
        .collect()
    )
    named = {gap.record: gap for gap in gaps}
    breaks: list[AuditFinding] = []
    for row in rows:
        below = [last for number, last in lasts.items() if number < row.number]
        through = row.before if row.before is not None else max(below, default=found.first - 1)
        gap = named.get(row.sequence)
        first = min(row.sequence, gap.first) if gap else row.sequence
        if first != through + 1 and row.sequence != found.first:
            breaks.append(AuditFinding("sequence", row.sequence, 0, 0, f"sequence {first} follows {through}"))
    return breaks
