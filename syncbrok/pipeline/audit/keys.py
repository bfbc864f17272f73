"""Rule ``key``: of one key the next message goes to a subscriber when the one before has ended there (RULES 6)."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from syncbrok.pipeline.audit.standing import NORMAL, is_open


def chains(messages: DataFrame) -> DataFrame:
    """Each message of a key at each subscriber it counts, with the one ``before`` it in that line: message, s, ``rows``
    (attempts that are judged), and of the one before ``before`` (its sequence), ``before_end`` (its first end there),
    ``before_doubt`` and ``before_is_open`` (it has not ended there to this day)."""
    of_key = messages.where(f.col("key").isNotNull() & (f.col("key") != "") & f.col("own")).where(
        f.coalesce("only", f.lit(0)) == 0
    )
    mine = f.filter("events", lambda one: one.s == f.col("s"))
    each = of_key.select(
        "queue_no", "key", "message", "doubt", "events", f.explode("counted").alias("s")
    ).withColumn("mine", mine)  # fmt: skip
    ends = f.filter("mine", lambda one: one.ends)
    flat = each.select(
        "queue_no", "key", "message", "doubt", "s",
        f.array_min(f.transform(ends, lambda one: f.struct(one.seq.alias("seq"), one.pos.alias("pos")))).alias("end"),
        f.filter("mine", lambda one: one["mode"] == NORMAL).alias("rows"),
        is_open("mine", f.lit(True)).alias("is_open"),
    )  # fmt: skip
    line = Window.partitionBy("queue_no", "key", "s").orderBy("message")
    return flat.select(
        "message", "s", "rows",
        f.lag("message").over(line).alias("before"),
        f.lag("end").over(line).alias("before_end"),
        f.lag("doubt").over(line).alias("before_doubt"),
        f.lag("is_open").over(line).alias("before_is_open"),
    )  # fmt: skip


def keys(messages: DataFrame) -> DataFrame:
    """The findings."""
    rows = chains(messages).where("before is not null").select(
        "message", "s", "before", "before_end", "before_doubt", f.explode("rows").alias("row")
    )  # fmt: skip
    here = f.struct(f.col("row.seq").alias("seq"), f.col("row.pos").alias("pos"))
    had_ended = f.coalesce(f.col("before_end") < here, f.lit(False))
    is_doubtful = f.coalesce(f.col("before_doubt") < f.col("row.seq"), f.lit(False))
    what = f.concat(f.lit("message "), f.col("before"), f.lit(" of the same key before it has not ended"))
    return rows.where(~had_ended & ~is_doubtful).select(
        f.lit("key").alias("rule"), f.col("row.seq").alias("sequence"), "message", f.col("s").alias("subscriber"),
        what.alias("what"),
    )  # fmt: skip
