"""Deliveries and messages of replays, whose history has an order: ended, opened again, ended anew.

They are few beside the others and go through windows, event by event; see ``completion`` for the rest.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from syncbrok.pipeline.completion.moments import good, outcome_of, reason_of

COUNTED: Final = "counted"
"""the message was accepted and counts the subscriber"""
TRIED: Final = "tried"
"""an attempt that ended nothing"""
ENDED: Final = "ended"
"""a row of this delivery"""
IF_OPEN: Final = "if_open"
"""a row for all, or what a carried message says: an end of what was open"""
GONE: Final = "gone"
"""the subscriber or its queue was deleted: as ``IF_OPEN``, and what ended badly there is forgiven"""
REARMED: Final = "rearmed"

_DELIVERY: Final = ("message", "subscriber")
_PLACE: Final = ("record", "position")
_CHANGES: Final = (COUNTED, ENDED, IF_OPEN, GONE, REARMED)


def effective(events: DataFrame) -> DataFrame:
    """Of ``events`` (message, subscriber, record, position, at, what, end: packed) those that change how a delivery
    stands; ``closed`` and ``good`` are how it stands after each. An end of what is not open changes nothing."""
    before = Window.partitionBy(*_DELIVERY).orderBy(*_PLACE).rowsBetween(Window.unboundedPreceding, -1)
    changing = events.where(f.col("what").isin(*_CHANGES))
    known = changing.withColumn("before", f.last("what").over(before))
    was_open = f.col("before").isNull() | f.col("before").isin(COUNTED, REARMED)
    ends = (f.col("what") == ENDED) | (f.col("what").isin(IF_OPEN, GONE) & was_open)
    opens = f.col("what").isin(COUNTED, REARMED)
    standing = known.withColumn("ends", ends).where(f.col("ends") | opens | (f.col("what") == GONE))
    forgiven = (f.col("what") == GONE) & ~f.col("ends")
    well = f.coalesce(good(outcome_of(f.col("end")), reason_of(f.col("end"))), f.lit(False))
    return standing.withColumns({"closed": ~opens, "good": forgiven | (f.col("ends") & well)})


def deliveries(changes: DataFrame) -> DataFrame:
    """By delivery: its first end, its latest (null while it is open again) and when it was opened again last."""
    moment = f.struct("record", "position", "end", "at", "what")
    ends = f.when(f.col("ends"), moment)
    latest = f.when(f.col("ends") | (f.col("what") == REARMED), moment)
    rearmed = f.max(f.when(f.col("what") == REARMED, f.col("at")))
    found = changes.groupBy(*_DELIVERY).agg(
        f.min(ends).alias("first"), f.max(latest).alias("latest"), rearmed.alias("rearmed_at")
    )
    stands = f.col("latest.what") != REARMED
    return found.select(
        *_DELIVERY,
        f.col("first.end").alias("first_end"),
        f.col("first.at").alias("first_at"),
        f.when(stands, f.col("latest.end")).alias("last_end"),
        f.when(stands, f.col("latest.at")).alias("last_at"),
        "rearmed_at",
    )


def messages(changes: DataFrame) -> DataFrame:
    """By message with counted subscribers: ``ended_record``, ``ended_at``, ``complete_record``, ``complete_at``: when
    for the first time all of them had ended, and all well."""
    delivery = Window.partitionBy(*_DELIVERY)
    whole = Window.partitionBy("message")
    so_far = whole.orderBy(*_PLACE).rangeBetween(Window.unboundedPreceding, Window.currentRow)
    in_order = delivery.orderBy(*_PLACE)

    def change(name: str) -> Column:
        now = f.col(name).cast("int")
        return now - f.coalesce(f.lag(now).over(in_order), f.lit(0))

    counted = changes.withColumn("counts", f.max((f.col("what") == COUNTED).cast("int")).over(delivery))
    steps = counted.where("counts = 1").withColumns({"closed_change": change("closed"), "good_change": change("good")})
    sums = steps.withColumns(
        {
            "all": f.sum((f.col("what") == COUNTED).cast("int")).over(whole),
            "closed_now": f.sum("closed_change").over(so_far),
            "good_now": f.sum("good_change").over(so_far),
        }
    )
    moment = f.struct("record", "at")
    ended = f.when(f.col("ends") & (f.col("closed_now") == f.col("all")), moment)
    complete = f.when(f.col("ends") & (f.col("good_now") == f.col("all")), moment)
    found = sums.groupBy("message").agg(f.min(ended).alias("ended"), f.min(complete).alias("complete"))
    return found.select(
        "message",
        f.col("ended.record").alias("ended_record"),
        f.col("ended.at").alias("ended_at"),
        f.col("complete.record").alias("complete_record"),
        f.col("complete.at").alias("complete_at"),
    )
