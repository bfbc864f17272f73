"""Rule ``key``: of one key the next message goes to a subscriber when the one before has ended there (RULES 6)."""

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from syncbrok.pipeline.audit.tables import FOUND, NEVER, NORMAL, ddl, events_of, gathered, packed_rows

_FIELDS: Final = ("message", "doubt", "end_seq", "end_pos", "is_open")
_BEFORE: Final = {
    "pair": {
        "message": "bigint", "s": "bigint", "is_open": "boolean", "events": "binary", "before": "bigint",
        "before_doubt": "bigint", "before_end_seq": "bigint", "before_end_pos": "bigint", "before_is_open": "boolean",
    },
}  # fmt: skip
LINED: Final = {
    # The message before it, at a subscriber where a message has not ended: whether it has, and with which record.
    "behind": {"message": "bigint", "s": "bigint", "is_open": "boolean", "ended": "bigint"},
    "found": FOUND,
}
"""what comes out"""


def lined(lines: DataFrame, partitions: int) -> DataFrame:
    """Rows of ``LINED`` from those of kind ``line``: each message of a key at each subscriber it counts, beside the one
    before it in that line."""
    line = Window.partitionBy("queue", "key", "s").orderBy("message")
    before = f.lag(f.struct(*_FIELDS)).over(line)
    each = lines.repartition(partitions, "queue", "key", "s").withColumn("before", before).where("before is not null")
    # An end is NEVER where there is none: every attempt is before it.
    maybe_early = (f.col("first_seq") <= f.col("before.end_seq")) & (f.col("first_seq") < NEVER)
    pair = f.struct(
        "message", "s", "is_open", "events", f.col("before.message").alias("before"),
        f.col("before.doubt").alias("before_doubt"), f.col("before.end_seq").alias("before_end_seq"),
        f.col("before.end_pos").alias("before_end_pos"), f.col("before.is_open").alias("before_is_open"),
    )  # fmt: skip
    return each.where(maybe_early | f.col("is_open")).select(pair.alias("pair")).mapInArrow(_judged, ddl(LINED))


def _judged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = gathered([batch], _BEFORE)["pair"].to_pylist()
        yield from packed_rows(LINED, "behind", [
            (row["message"], row["s"], row["before_is_open"], row["before_end_seq"]) for row in rows if row["is_open"]
        ])  # fmt: skip
        yield from packed_rows(LINED, "found", [
            ("key", event.seq, row["message"], row["s"], f"message {row['before']} of its key before it has not ended")
            for row in rows for event in events_of(row["events"])
            if event.flags & NORMAL and row["before_doubt"] >= event.seq
            and (row["before_end_seq"], row["before_end_pos"]) >= (event.seq, event.pos)
        ])  # fmt: skip
