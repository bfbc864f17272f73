"""Messages of a log, chosen by SQL and published again, as new messages, in causal order.

    chosen = select(spark, "SELECT * FROM messages WHERE queue = 'orders'", messages, deliveries, facts)
    plan(chosen).levels.show()
    publish(chosen, Order(Target(url), name, None, frozenset())).count()

A selected message whose parents are selected too waits for their **new** copies; a parent outside of the selection
stays the old one. This is another thing than the broker's own replay (``POST /v1/messages/{id}/replay``), which sends
the same message again, under its old id, to the subscribers it had: here the broker gets a new message, for the
subscribers the queue has now, with new attempts, also in another queue or broker.

Carried over are content, content type, headers, key, ``parent_failure`` and how long after its end the content is kept
(``erase_after``); the original's id goes along as the header ``replay-of``. Delay and expiry are not: they are past.
Test messages (for one subscriber) and what is erased are left out.
"""

import hashlib
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from syncbrok.model.errors import BadSetting
from syncbrok.pipeline.lineage.root_and_depth import with_root_and_depth
from syncbrok.pipeline.replay.writer import COLUMNS, RESULT_DDL, ReplayTask, published

NAME_CHARS_MAX: Final = 200
_VIEWS: Final = ("messages", "deliveries", "facts")
_WHO: Final = ("message", "id", "sequence")
"""which column of a query's result says the message, the first that is there: rows of deliveries have a sequence of
their own"""


class ReplayJobPlan(NamedTuple):
    """The effect of a replay, as tables."""

    queues: DataFrame
    """``queue``, ``messages``, ``bytes``"""
    levels: DataFrame
    """``depth`` in the selection (0: waits for nothing in it), ``messages``; one task works them out, with 20 bytes for
    each message of the selection (``lineage.root_and_depth``)"""
    outside: DataFrame
    """``id`` of each parent that is not selected, ``children`` of it that are, ``in_log``: whether it is in what was
    read"""


def select(
    spark: SparkSession,
    sql: str,
    messages: DataFrame,
    deliveries: DataFrame | None = None,
    facts: DataFrame | None = None,
    replay: str | None = None,
) -> DataFrame:
    """The rows of ``messages`` that ``sql`` chooses, each once. ``sql`` is a query over the views messages, deliveries
    and facts with a column ``message`` (a sequence), ``id`` or ``sequence``. Messages that the replay named ``replay``
    has published are left out, or a second run would publish copies of its copies.

    Raises ``BadSetting``; for wrong SQL Spark's own error.
    """
    for name, frame in zip(_VIEWS, (messages, deliveries, facts), strict=True):
        if frame is not None:
            frame.createOrReplaceTempView(name)
    try:
        result = spark.sql(sql)
        who = next((name for name in _WHO if name in result.columns), None)
        if who is None:
            raise BadSetting(
                f"the query has the columns {', '.join(result.columns)}: one of {', '.join(_WHO)} must say which "
                "messages, as that of all columns of the view messages does"
            )
        keys = result.select(f.col(who).alias("id" if who == "id" else "sequence")).distinct()
        some = messages.where("only_subscriber is null and not erased")
        if replay is not None:
            some = some.where(~f.coalesce(f.col("idempotency_key"), f.lit("")).startswith(f"{replay}/"))
        return some.join(keys, keys.columns[0], "left_semi")
    finally:
        for name in _VIEWS:
            spark.catalog.dropTempView(name)


def default_name(sql: str, queue: str | None) -> str:
    """A name for a replay made of ``sql`` and ``queue``. The same question has the same name, so that asking again
    publishes only new messages."""
    words = " ".join(sql.split())
    return "replay-" + hashlib.sha256(f"{queue or ''}\n{words}".encode()).hexdigest()[:16]


def plan(chosen: DataFrame, messages: DataFrame, queue: str | None = None) -> ReplayJobPlan:
    """The effect that ``publish`` would have with ``chosen``, as tables."""
    to = f.lit(queue) if queue else f.col("queue")
    sizes = chosen.groupBy(to.alias("queue")).agg(
        f.count("*").alias("messages"), f.sum(f.length("content")).alias("bytes")
    )
    levels = (
        with_root_and_depth(chosen.select("sequence", "parent_sequences"))
        .groupBy("depth")
        .agg(f.count("*").alias("messages"))
    )
    edges = chosen.select(f.explode("parents").alias("id"))
    outside = edges.join(chosen.select("id"), "id", "left_anti").groupBy("id").agg(f.count("*").alias("children"))
    there = messages.select("id", f.lit(True).alias("there"))
    known = outside.join(there, "id", "left").select(
        "id", "children", f.coalesce("there", f.lit(False)).alias("in_log")
    )
    return ReplayJobPlan(sizes.orderBy("queue"), levels.orderBy("depth"), known)


def publish(chosen: DataFrame, task: ReplayTask) -> DataFrame:
    """A data frame with a row for each message: ``sequence``, ``id``, ``queue``, ``new_id``, and ``known``: the broker
    had its whole batch already. Messages are published when it is computed. Computing it again publishes nothing twice,
    within the broker's idempotency window.

    One task sends everything, whatever the depth: order is what this is about, and one broker takes it. It holds a
    request of each queue, and some 200 bytes for each message whose last child has yet to come."""
    if not task.name or len(task.name) > NAME_CHARS_MAX or not task.name.isprintable():
        raise BadSetting(f"the name of a replay has 1 to {NAME_CHARS_MAX} printable characters, not {task.name[:80]!r}")
    parents = chosen.select(f.explode("parents").alias("id")).groupBy("id").agg(f.count("*").alias("children"))
    rows = chosen.join(parents, "id", "left").withColumn("children", f.coalesce("children", f.lit(0)))
    in_order = rows.select(*COLUMNS).repartition(1).sortWithinPartitions("sequence")
    return in_order.mapInArrow(lambda batches: published(task, batches), RESULT_DDL)
