"""Durations counted into buckets, and percentiles out of them.

A bucket is 2 % wide, so a percentile is right to 1 %; the maximum is exact. Counts of buckets are small whatever was
counted, take one hash aggregate, and add up: percentiles of an hour, a queue or everything come out of the same counts,
where percentiles of raw rows would need them sorted anew for each.
"""

from collections.abc import Iterable
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

WIDTH: Final = 1.02
QUANTILES: Final = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))


def bucket_of(duration_us: Column) -> Column:
    """The number of the bucket of a duration; less than nothing (a clock was set back) is nothing."""
    return f.floor(f.log(f.greatest(duration_us, f.lit(0)) + 1) / f.log(f.lit(WIDTH))).cast("int")


def micros_between(start: str, end: str) -> Column:
    return f.unix_micros(end) - f.unix_micros(start)


def counted(rows: DataFrame, keys: Iterable[str], duration_us: Column) -> DataFrame:
    """``rows`` by ``keys`` and bucket: ``n`` of them, ``max_us`` and ``sum_us``. Rows whose duration is null are left
    out."""
    timed = rows.withColumn("us", f.greatest(duration_us, f.lit(0))).where(f.col("us").isNotNull())
    return (
        timed.withColumn("bucket", bucket_of(f.col("us")))
        .groupBy(*keys, "bucket")
        .agg(f.count("*").alias("n"), f.max("us").alias("max_us"), f.sum("us").alias("sum_us"))
    )


def percentiles(buckets: DataFrame, keys: Iterable[str], prefix: str) -> DataFrame:
    """Of what ``counted`` gave, by ``keys`` (any of those it was counted by): ``{prefix}_n``, ``{prefix}_p50_us``,
    ``..p90_us``, ``..p99_us``, ``..max_us``."""
    keys = list(keys)
    together = buckets.groupBy(*keys, "bucket").agg(f.sum("n").alias("n"), f.max("max_us").alias("max_us"))
    whole = Window.partitionBy(*keys) if keys else Window.partitionBy(f.lit(0))
    summed = together.withColumns({"up_to": f.sum("n").over(whole.orderBy("bucket")), "all": f.sum("n").over(whole)})
    middle = f.round(f.pow(f.lit(WIDTH), f.col("bucket") + 0.5) - 1).cast("bigint")
    found = summed.groupBy(*keys).agg(
        f.sum("n").alias(f"{prefix}_n"),
        *(
            f.min(f.when(f.col("up_to") >= f.ceil(f.col("all") * share), middle)).alias(f"{prefix}_{name}_us")
            for name, share in QUANTILES
        ),
        f.max("max_us").alias(f"{prefix}_max_us"),
    )
    most = f.col(f"{prefix}_max_us")
    return found.withColumns(
        {f"{prefix}_{name}_us": f.least(f.col(f"{prefix}_{name}_us"), most) for name, _ in QUANTILES}
    )
