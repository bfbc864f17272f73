"""Charges waits along ways that lead from tree to tree, in rounds.

In a round every tree is in one task, with the claims (``blame.CLAIMS``) that have come to it, and charges what they
waited for there. Claims that go on in another tree are the next round's. Most logs need none of this, others two or
three rounds; each claim goes up one tree further in each, so there is an end.
"""

from collections import defaultdict
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from syncbrok.pipeline.kept import kept
from syncbrok.pipeline.report import shuffle_steps
from syncbrok.pipeline.report.blame import CLAIMS
from syncbrok.pipeline.report.counts import BLAME, GOES_ON, received
from syncbrok.pipeline.report.parent_waits import LAST_PARENTS
from syncbrok.pipeline.report.period import Period


def added_up(rows: DataFrame) -> dict[str, bytes]:
    """The counts in ``rows`` (columns ``kind`` and ``counts``) by kind, as they are sent. One task adds them up, in as
    much memory as the counts of all tasks need that sent some: one table a kind and task."""
    every = rows.where("kind is not null").select("kind", "counts").repartition(1)
    found = every.mapInArrow(shuffle_steps.at_end, shuffle_steps.AFTER_END).collect()
    return {row["kind"]: bytes(row["counts"]) for row in found}


def goes_on(counts: dict[str, bytes]) -> int:
    """The number of steps, or claims, that lead to another tree."""
    sent = [counts[GOES_ON]] if GOES_ON in counts else []
    return sum(received(GOES_ON, sent)["n"].to_pylist())


def blame_over_trees(waited: DataFrame, period: Period) -> list[bytes]:
    """The counts of kind ``BLAME`` of all that waited, rows of ``LAST_PARENTS``."""
    gates = waited.select(f.col("waiter").alias("parent"), f.col("gate_us").alias("above_us"))
    leads_out = waited.where("root != parent_root").select("waiter", "parent")
    above = leads_out.join(gates, "parent").select("waiter", "above_us")
    steps = kept(waited.join(above, "waiter", "left").select(*LAST_PARENTS.names, "above_us"))
    found: dict[str, list[bytes]] = defaultdict(list)
    rows, left = steps.withColumn("at", f.lit(None).cast("bigint")), 1
    while left:
        task = partial(shuffle_steps.at_claims, period)
        charged = kept(rows.repartition("root").mapInArrow(task, shuffle_steps.AFTER_CLAIMS))
        counts = added_up(charged)
        found[BLAME].append(counts[BLAME])
        left = goes_on(counts)
        claims = charged.where("kind is null").select(*CLAIMS.names)
        entered = steps.join(claims.select("root").distinct(), "root", "left_semi")
        rows = entered.unionByName(claims, allowMissingColumns=True)
        rows = rows.select(*shuffle_steps.TO_CLAIMS.names)
    return found[BLAME]
