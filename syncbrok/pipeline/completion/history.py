"""For whom messages are, and what happened to those of replays, in order; see ``completion``."""

import functools
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from syncbrok.model.facts import ALL_SUBSCRIBERS, Outcome, Reason
from syncbrok.pipeline.completion import replays
from syncbrok.pipeline.completion.declared import Tables
from syncbrok.pipeline.completion.moments import ENDS, packed, packed_as

DELIVERY: Final = ("message", "subscriber")
HAS_PARENTS: Final = 1
SAME: Final = 2
"""bits of ``holds``"""


def addressed(messages: DataFrame, tables: Tables, *more: str) -> DataFrame:
    """``message``, ``accepted_at``, ``ready_at``, ``holds`` and ``subscriber`` with when that is gone: each counted
    delivery, and one row without a subscriber for a message that counts none. ``more`` columns of ``messages`` come
    along."""
    accepted = messages.select(
        f.col("sequence").alias("message"),
        f.col("time").alias("accepted_at"),
        f.greatest("time", "not_before").alias("ready_at"),
        f.col("queue").alias("to"),
        f.col("only_subscriber").cast("bigint").alias("only"),
        (
            f.when(f.size("parent_sequences") > 0, HAS_PARENTS).otherwise(0)
            + f.when(f.col("scope") == "same" if "scope" in messages.columns else f.lit(False), SAME).otherwise(0)
        ).alias("holds"),
        *more,
    )
    counts = (
        (f.col("to") == f.col("queue"))
        & (f.col("since") < f.col("message"))
        & (f.col("gone_record").isNull() | (f.col("gone_record") > f.col("message")))
        & (f.col("only").isNull() | (f.col("only") == f.col("subscriber")))
    )
    some = tables.subscribers.select("subscriber", "queue", "since", "gone_record", "gone_at", "gone_with_queue")
    return accepted.join(f.broadcast(some), counts, "left")


def gone_end() -> Column:
    record = f.col("gone_record")
    by_queue = packed_as(record, Outcome.DROPPED, Reason.QUEUE_DELETED)
    return f.when(f.col("gone_with_queue"), by_queue).otherwise(packed_as(record, Outcome.DROPPED, Reason.UNSUBSCRIBED))


def changes(messages: DataFrame, deliveries: DataFrame, tables: Tables) -> DataFrame | None:
    """What happened to the messages that a replay has taken up, in order (``completion_replays``); None: no replays."""
    if tables.rearmed is None:
        return None
    some = f.broadcast(tables.rearmed.select("message").distinct())
    chosen = messages.join(some.withColumnRenamed("message", "sequence"), "sequence", "left_semi")
    rows = deliveries.join(some, "message", "left_semi").withColumn(
        "end", packed(f.col("sequence"), f.col("outcome"), f.col("reason"))
    )
    whom = addressed(chosen, tables)
    gone = whom.where(f.col("gone_record").isNotNull())
    events = [
        _event(whom, replays.COUNTED, f.col("message"), -1, "accepted_at", f.lit(None)),
        _own_events(rows, tables),
        _whole_events(rows, whom),
        _event(gone, replays.GONE, f.col("gone_record"), 0, "gone_at", gone_end()),
        _event(tables.rearmed, replays.REARMED, f.col("record"), 0, "at", f.lit(None)),
    ]
    if tables.carried_ends is not None:
        end = packed(f.col("record"), f.col("outcome"), f.lit("none"))
        carried = tables.carried_ends.join(some, "message", "left_semi")
        events.append(_event(carried, replays.IF_OPEN, f.col("record"), 0, "at", end))
    return replays.effective(functools.reduce(DataFrame.unionByName, events))


def _own_events(rows: DataFrame, tables: Tables) -> DataFrame:
    """Rows for a subscriber that is gone change nothing."""
    own = rows.where((f.col("subscriber_number") != ALL_SUBSCRIBERS) & f.col("outcome").isin(*ENDS)).withColumn(
        "subscriber", f.col("subscriber_number")
    )
    left = own.join(f.broadcast(tables.subscribers.select("subscriber", "gone_record")), "subscriber", "left")
    standing = left.where(f.col("gone_record").isNull() | (f.col("sequence") <= f.col("gone_record")))
    return _event(standing, replays.ENDED, f.col("sequence"), f.col("position"), "recorded", f.col("end"))


def _whole_events(rows: DataFrame, whom: DataFrame) -> DataFrame:
    whole = rows.where((f.col("subscriber_number") == ALL_SUBSCRIBERS) & f.col("outcome").isin(*ENDS))
    each = whole.join(whom.select(*DELIVERY), "message")
    return _event(each, replays.IF_OPEN, f.col("sequence"), f.col("position"), "recorded", f.col("end"))


def _event(rows: DataFrame, what: str, record: Column, position: Column | int, at: str, end: Column) -> DataFrame:
    place = position if isinstance(position, Column) else f.lit(position)
    return rows.select(
        *DELIVERY,
        record.alias("record"),
        place.alias("position"),
        f.col(at).alias("at"),
        f.lit(what).alias("what"),
        end.cast("bigint").alias("end"),
    )
