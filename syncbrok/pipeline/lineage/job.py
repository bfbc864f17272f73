"""Trees of messages, who waited for whom, and which chain of waits made a tree late.

    found = lineage(messages, completions)
    found.trees.orderBy("took_us", ascending=False).show()

``nodes``           a row a message (``lineage_trees`` says what the columns mean)
``edges``           a row a parent of a message (``lineage_nodes.edges_of``)
``trees``           a row a tree (``trees_of``)
``critical_paths``  a row a step of each tree's critical path (``lineage_paths``)

Root and depth are those the broker recorded. Where they are missing (rows of elsewhere) they are derived first
(``lineage_places``). A salvaged log with gaps needs nothing of the kind: what is left of a tree still says whose it is.
"""

from typing import Final, NamedTuple

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as f

from syncbrok.pipeline.completion import declared as completion_declared
from syncbrok.pipeline.completion import ends as completion
from syncbrok.pipeline.lineage.crossings import crossing, found
from syncbrok.pipeline.lineage.nodes import ALONG, edges_of, placed_nodes, placed_nodes_of_log
from syncbrok.pipeline.lineage.paths import critical_paths_of, late_trees_of
from syncbrok.pipeline.lineage.places import with_places
from syncbrok.pipeline.settings import UNMEASURED, set_for_now, unset

MESSAGES: Final = tuple(dict.fromkeys((*completion.MESSAGES, *ALONG)))
DELIVERIES: Final = completion.DELIVERIES
FACTS: Final = completion.FACTS
"""the columns of a log that are read of each kind"""

_WRITING: Final = {
    # As in the archive: Parquet's own type, which costs a fraction of Spark's default to write.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Joins hash instead of sorting where every partition is small: half the time, and no more memory than there is.
    "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold": "128MB",
    **UNMEASURED,
}
"""settings of Spark while the tables are written, each where nobody has set it"""


class Lineage(NamedTuple):
    nodes: DataFrame
    edges: DataFrame
    trees: DataFrame
    critical_paths: DataFrame


def lineage(messages: DataFrame, completions: DataFrame) -> Lineage:
    """Everything about the trees of ``messages``. ``completions`` is what ``completion`` made of the same log.
    Parents that are not among ``messages`` (retention, a gap, another time range) count as done from the beginning.

    Nothing is computed until a table is asked for, and each is computed for itself: ``write`` is four times cheaper
    than asking for all four."""
    return _lineage(placed_nodes(with_places(messages), completions))


def lineage_of_log(messages: DataFrame, deliveries: DataFrame, facts: DataFrame) -> Lineage:
    """The same of the three kinds of rows of a log, with the root and depth that the broker recorded: each kind is read
    once. The columns that are needed are ``MESSAGES`` and those of ``completion``."""
    found = completion.heard(messages, deliveries, completion_declared.read(facts))
    return _lineage(placed_nodes_of_log(messages, deliveries, found))


def _lineage(nodes: DataFrame) -> Lineage:
    crossings = crossing(nodes)
    return Lineage(nodes, edges_of(nodes), late_trees_of(nodes, crossings), critical_paths_of(nodes, crossings))


def write(made: Lineage, out: str) -> Lineage:
    """The four tables as Parquet below ``out``, in place of what an earlier run wrote there; and as they are read back,
    so that what is asked of them next costs no second run."""
    spark = made.nodes.sparkSession
    with set_for_now(spark, unset(spark, _WRITING)):
        observed = Observation()
        nodes = made.nodes.observe(observed, f.count_if("crosses").alias("crossings"))
        nodes.write.mode("overwrite").parquet(f"{out}/nodes")
        nodes = spark.read.schema(made.nodes.schema).parquet(f"{out}/nodes")
        # Most logs have none, and then no join looks for them.
        crossings = found(nodes) if observed.get.get("crossings") else None
        tables = {
            "edges": edges_of(nodes),
            "trees": late_trees_of(nodes, crossings),
            "critical_paths": critical_paths_of(nodes, crossings),
        }
        for name, table in tables.items():
            table.write.mode("overwrite").parquet(f"{out}/{name}")
    read = {name: spark.read.schema(table.schema).parquet(f"{out}/{name}") for name, table in tables.items()}
    return Lineage(nodes, read["edges"], read["trees"], read["critical_paths"])


def trees_of(messages: DataFrame) -> DataFrame:
    """From the messages alone, one pass: of each ``root`` how many ``messages`` there are and how ``deep`` they go,
    when the first and the last were accepted and the time between (``span_us``)."""
    return (
        messages.groupBy("root")
        .agg(
            f.count("*").alias("messages"),
            f.max("depth").alias("depth"),
            f.min("time").alias("first_at"),
            f.max("time").alias("last_at"),
        )
        .withColumn("span_us", f.unix_micros("last_at") - f.unix_micros("first_at"))
    )


def summary(trees: DataFrame) -> list[tuple[str, object]]:
    """What is said of all trees together, in a person's words."""
    deepest = f.max_by("root", f.struct("depth", -f.col("root")))
    largest = f.max_by("root", f.struct("messages", -f.col("root")))
    row = trees.agg(
        f.count("*").alias("trees"),
        f.sum("messages").alias("messages"),
        f.max("depth").alias("depth"),
        deepest.alias("deepest"),
        f.max("messages").alias("size"),
        largest.alias("largest"),
        f.sum("waiting").alias("waiting"),
    ).first()
    if row is None or not row["trees"]:
        return []
    return [
        ("trees", f"{row['trees']:,} with {row['messages']:,} messages, {row['waiting']:,} of them not ended"),
        ("deepest", f"{row['depth']:,} (root {row['deepest']})"),
        ("largest", f"{row['size']:,} messages (root {row['largest']})"),
    ]


def slowest(trees: DataFrame, count: int) -> DataFrame:
    """The trees that took longest from the first message to the last completion."""
    return trees.orderBy(f.desc_nulls_last("took_us"), f.desc("messages"), "root").limit(count)
