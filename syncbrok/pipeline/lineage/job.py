"""Trees of messages, who waited for whom, and which chain of waits made a tree late.

    found = lineage(messages, completions)
    found.trees.orderBy("took_us", ascending=False).show()

``nodes``           a row a message (``lineage_trees`` says what the columns mean)
``edges``           a row a parent of a message (``lineage_edges.edges_of``)
``trees``           a row a tree (``trees_of``)
``critical_paths``  a row a step of each tree's critical path (``lineage_paths``)

Root and depth are those the broker recorded. Where they are missing (rows of elsewhere) they are derived first
(``lineage_places``). A salvaged log with gaps needs nothing of the kind: what is left of a tree still says whose it is.
"""

from typing import Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from syncbrok.pipeline.archive.place import Place
from syncbrok.pipeline.completion import declared as completion_declared
from syncbrok.pipeline.completion import ends as completion
from syncbrok.pipeline.lineage.crossings import crossing, found
from syncbrok.pipeline.lineage.edges import edges_of
from syncbrok.pipeline.lineage.files import write_by_tasks
from syncbrok.pipeline.lineage.nodes import ALONG, nodes_and_edges, nodes_in, trees_of_log_together, trees_together
from syncbrok.pipeline.lineage.paths import critical_paths_of, late_trees_of
from syncbrok.pipeline.lineage.places import with_places
from syncbrok.pipeline.lineage.trees import BLOCK_ROWS
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
    together: DataFrame | None = None
    """the trees that ``nodes`` is made of, in parcels; None where it was read back"""


def lineage(messages: DataFrame, completions: DataFrame) -> Lineage:
    """Everything about the trees of ``messages``. ``completions`` is what ``completion`` made of the same log.
    Parents that are not among ``messages`` (retention, a gap, another time range) count as done from the beginning.

    Nothing is computed until a table is asked for, and each is computed for itself: ``write`` is four times cheaper
    than asking for all four."""
    return _lineage(trees_together(with_places(messages), completions))


def lineage_of_log(messages: DataFrame, deliveries: DataFrame, facts: DataFrame) -> Lineage:
    """The same of the three kinds of rows of a log, with the root and depth that the broker recorded: each kind is read
    once. The columns that are needed are ``MESSAGES`` and those of ``completion``."""
    found = completion.heard(messages, deliveries, completion_declared.read(facts))
    return _lineage(trees_of_log_together(messages, deliveries, found))


def _lineage(together: DataFrame) -> Lineage:
    nodes = nodes_in(together)
    crossings = crossing(nodes)
    trees, paths = late_trees_of(nodes, crossings), critical_paths_of(nodes, crossings)
    return Lineage(nodes, edges_of(nodes), trees, paths, together)


def write(made: Lineage, out: str) -> Lineage:
    """The four tables as Parquet below ``out``, in place of what an earlier run wrote there; and as they are read back,
    so that what is asked of them next costs no second run. Raises ``FilesMissing``, ``PlaceFailed``."""
    spark = made.nodes.sparkSession
    with set_for_now(spark, unset(spark, _WRITING)):
        nodes, edges = _write_nodes_and_edges(made, out)
        crossings = found(nodes)
        trees = _write(late_trees_of(nodes, crossings), f"{out}/trees")
        paths = _write(critical_paths_of(nodes, crossings), f"{out}/critical_paths")
    return Lineage(nodes, edges, trees, paths)


def _write_nodes_and_edges(made: Lineage, out: str) -> tuple[DataFrame, DataFrame]:
    """On a disk by the tasks that make them, elsewhere by Spark."""
    folder = Place(made.nodes.sparkSession, out).local
    if folder is None or made.together is None:
        nodes = _write(made.nodes, f"{out}/nodes")
        return nodes, _write(edges_of(nodes), f"{out}/edges")
    write_by_tasks(made.together, nodes_and_edges, folder, BLOCK_ROWS)
    return _read(made.nodes, f"{out}/nodes"), _read(made.edges, f"{out}/edges")


def _write(table: DataFrame, to: str) -> DataFrame:
    table.write.mode("overwrite").parquet(to)
    return _read(table, to)


def _read(table: DataFrame, back: str) -> DataFrame:
    return table.sparkSession.read.schema(table.schema).parquet(back)


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
