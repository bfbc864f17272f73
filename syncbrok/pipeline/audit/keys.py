"""Rule ``key``: at one subscriber, no attempt of a message begins before every earlier message of its key has ended
there (RULES 6).

Each segment tells which version of RULES its records were made by. Before version 2 a broker looked at the neighbour
alone: then only the end of the message just before must stand ahead of the later one's row.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from syncbrok.model.facts import RULES
from syncbrok.pipeline.audit.tables import FOUND, NEVER, NORMAL, RowEvent, ddl, events_of, gathered, packed_rows

_BEFORE: Final = {
    "pair": {
        "message": "bigint", "s": "bigint", "is_open": "boolean", "events": "binary", "all_done": "bigint",
        "before": "bigint", "before_done": "bigint", "neighbour": "bigint", "neighbour_end_seq": "bigint",
        "neighbour_end_pos": "bigint", "neighbour_doubt": "bigint",
    },
}  # fmt: skip
"""what is judged: a message of a key at a subscriber. When ``all_done`` before it; of those that are not in doubt when
it is not, the one that was done last, and when; the one next to it that stands in its own record"""
_NOBODY: Final = -1
"""for none of those before"""
LINED: Final = {
    # At a subscriber where a message has not ended: whether one before it has not, and the record that ended the last.
    "behind": {"message": "bigint", "s": "bigint", "is_open": "boolean", "ended": "bigint"},
    "found": FOUND,
}
"""what comes out"""
Rules = Sequence[tuple[int, int]]
"""(record, rules): those by which the records from there on were made, in order"""


def lined(lines: DataFrame, partitions: int, rules: Rules) -> DataFrame:
    """Rows of ``LINED`` from those of kind ``line``: each message of a key at each subscriber it counts, beside those
    before it in that line."""
    line = Window.partitionBy("queue", "key", "s").orderBy("message").rowsBetween(Window.unboundedPreceding, -1)
    # Among earlier ones that are as certain as this one: a message that a gap has put in doubt proves nothing.
    sure = Window.partitionBy("queue", "key", "s", "doubt").orderBy("message").rowsBetween(
        Window.unboundedPreceding, -1
    )  # fmt: skip
    own = f.when(f.col("own"), f.struct("message", "end_seq", "end_pos", "doubt"))
    each = (
        lines.repartition(partitions, "queue", "key", "s")
        .withColumn("all_done", f.max("done").over(line))
        .withColumn("before", f.max(f.struct("done", "message")).over(sure))
        .withColumn("neighbour", f.last(own, ignorenulls=True).over(line))
        .where("all_done is not null")
    )
    fields = {"before": "before.message", "before_done": "before.done", "neighbour": "neighbour.message"}
    fields |= {f"neighbour_{name}": f"neighbour.{name}" for name in ("end_seq", "end_pos", "doubt")}
    named = [f.coalesce(column, f.lit(_NOBODY)).alias(name) for name, column in fields.items()]
    pair = f.struct(*(name for name in _BEFORE["pair"] if name not in fields), *named)
    # An end is NEVER where there is none: every attempt is before it.
    last = f.greatest(f.col("before.done"), f.col("neighbour.end_seq"))
    maybe_early = f.col("first_after") < f.coalesce(last, f.lit(_NOBODY))
    judged = partial(_judged, rules=rules)
    return each.where(maybe_early | f.col("is_open")).select(pair.alias("pair")).mapInArrow(judged, ddl(LINED))


def _judged(batches: Iterable[pa.RecordBatch], rules: Rules) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = gathered([batch], _BEFORE)["pair"].to_pylist()
        yield from packed_rows(LINED, "behind", [
            (row["message"], row["s"], row["all_done"] == NEVER, row["all_done"]) for row in rows if row["is_open"]
        ])  # fmt: skip
        yield from packed_rows(LINED, "found", [
            ("key", event.seq, row["message"], row["s"], f"message {early} of its key before it had not ended by then")
            for row in rows for event in events_of(row["events"]) if event.flags & NORMAL
            for early in [_overtaken(row, event, _rules_at(rules, event.seq))] if early
        ])  # fmt: skip


def _overtaken(row: dict[str, Any], event: RowEvent, rules: int) -> int:
    """A message before it that had not ended when the attempt began; 0 for none."""
    if rules > 1:
        return row["before"] if row["before_done"] > event.after else 0
    is_open = (row["neighbour_end_seq"], row["neighbour_end_pos"]) >= (event.seq, event.pos)
    return row["neighbour"] if is_open and row["neighbour_doubt"] >= event.seq else 0


def _rules_at(rules: Rules, record: int) -> int:
    at = bisect_left(rules, (record, 0)) - 1
    return rules[at][1] if at >= 0 else RULES
