"""Follows critical paths from tree to tree where the crossings are too many for one task: a join a round, each path one
crossing further, until none goes on. There are as many rounds as the longest path has crossings: two or three in most
logs."""

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from syncbrok.pipeline.kept import kept
from syncbrok.pipeline.lineage.cross_tree_paths import (
    BEYOND,
    STARTS,
    STEPS_MAX,
    CrossTreePaths,
    crossings_of,
    leaving,
)
from syncbrok.pipeline.schema import ddl_of


def followed(nodes: DataFrame) -> CrossTreePaths:
    """The crossings of ``nodes``, with where each tree's path begins and all its starts; computed now. ``beyond`` has
    those rows alone that a tree's path asks for."""
    rows = kept(crossings_of(leaving(nodes), nodes))
    every = rows.select(f.col("top").alias("next"), *(f.col(name).alias(f"{name}_on") for name in _FOLLOWED))
    first = rows.where("path_end_at is not null")
    here = kept(first.withColumns({"origin": f.col("top"), "before": f.lit(0).cast("bigint")}).drop("top"))
    rounds = []
    while not here.isEmpty():
        rounds.append(here)
        going = here.join(every, "next")
        on = {name: f.col(f"{name}_on") for name in _FOLLOWED} | {"before": f.col("before") + f.col("steps") + 1}
        here = kept(going.select("origin", "tree", "path_end_at", *(to.alias(name) for name, to in on.items())))
    if not rounds:
        spark = nodes.sparkSession
        return CrossTreePaths(rows, *(spark.createDataFrame([], ddl_of(schema)) for schema in (BEYOND, STARTS)))
    each = reduce(DataFrame.unionByName, rounds)
    length, last = f.col("steps") + 1, f.struct("before", "next", "next_at", "steps")
    whole = each.groupBy("origin").agg(
        f.max_by(last, "before").alias("last"),
        f.sum(f.when(f.col("root") == f.col("tree"), length).otherwise(0)).alias("steps_back"),
    )
    beyond = whole.select(
        f.col("origin").alias("top"),
        f.col("last.next").alias("start"),
        f.col("last.next_at").alias("start_at"),
        (f.col("last.before") + f.col("last.steps") + 1).alias("steps_beyond"),
        "steps_back",
    )
    of_path = beyond.select(f.col("top").alias("origin"), "start_at", "steps_beyond")
    starts = each.where(f.col("before") < STEPS_MAX).join(of_path, "origin").select(*STARTS.names)
    return CrossTreePaths(rows, beyond.select(*BEYOND.names), starts)


_FOLLOWED = ("sequence", "root", "next", "next_at", "steps")
"""of a crossing, what a path that comes along it goes on with"""
