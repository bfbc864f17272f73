"""What the rare facts say, as tables: declarations, replays, what was carried, which messages ended badly long ago.

The column ``detail`` of kind ``facts`` is JSON. Declarations are brought here and put in order; what may be long
(entries of replays, carried messages, lists of bad ends) stays in Spark.
"""

import json
from typing import Any, Final, NamedTuple

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from syncbrok.model.errors import SyncbrokError
from syncbrok.model.facts import Gap, QueueDeleted, QueueSet, SegmentOpened, SubscriberDeleted, SubscriberSet
from syncbrok.model.message import QueueSettings, SubscriberSettings
from syncbrok.model.names import QueueName, SubscriberId
from syncbrok.pipeline.audit.declared import Declaration
from syncbrok.pipeline.audit.rules import BAD_OUTCOMES

_DECLARATIONS: Final = ("queue_set", "queue_deleted", "subscriber_set", "subscriber_deleted", "gap")
_MANY: Final = ("message", "outcomes")
"""kinds that have rows of their own"""
_ENTRIES: Final = (
    "replay bigint, entries array<struct<message: bigint, queue: bigint, subscribers: array<bigint>, "
    "parents: array<bigint>>>"
)
_CARRIED: Final = (
    "message bigint, ended array<array<string>>, tried array<struct<subscriber: bigint, attempts: int, due_us: bigint>>"
)


class NotAFact(SyncbrokError):
    """A row of kind ``facts`` does not say what its kind must say."""

    slug = "not-a-fact"


class Rare(NamedTuple):
    """The facts that are neither messages nor outcomes; ``counts`` by kind."""

    facts: DataFrame
    counts: dict[str, int]


def rare(facts: DataFrame) -> Rare:
    """Read once and kept: they are few."""
    few = facts.where(~f.col("kind").isin(*_MANY)).select("sequence", "time", "kind", "detail")
    kept = few.localCheckpoint(storageLevel=StorageLevel.MEMORY_AND_DISK)
    rows: list[Any] = kept.groupBy("kind").count().collect()
    return Rare(kept, {row["kind"]: row["count"] for row in rows})


def declarations(facts: DataFrame) -> list[Declaration]:
    """In the order of the log. Raises ``NotAFact``."""
    wanted = facts.where(f.col("kind").isin(*_DECLARATIONS)).select("sequence", "kind", "detail")
    found = [declaration(row.kind, row.sequence, row.detail) for row in wanted.collect()]
    return sorted([*found, *_snapshots(facts)], key=lambda fact: fact.sequence)


def declaration(kind: str, sequence: int, detail: str) -> Declaration:
    """The fact that a row says, with what the audit asks of it. Raises ``NotAFact``. Pure."""
    try:
        said = json.loads(detail)
        match kind:
            case "queue_set":
                return _queue(said, sequence)
            case "queue_deleted":
                return QueueDeleted(sequence, 0, int(said["number"]))
            case "subscriber_set":
                return _subscriber(said, sequence)
            case "subscriber_deleted":
                return SubscriberDeleted(sequence, 0, int(said["number"]))
            case "segment_opened":
                return _opened(said, sequence)
            case _:
                return Gap(sequence, 0, int(said["first"]), int(said["last"]), str(said["why"]))
    except (ValueError, TypeError, KeyError) as problem:
        raise NotAFact(
            f"the {kind} of sequence {sequence} cannot be read from {detail!r:.200} "
            f"({type(problem).__name__}: {problem}); was the table made by another version?"
        ) from problem


def _queue(said: dict[str, Any], sequence: int) -> QueueSet:
    return QueueSet(sequence, 0, int(said["number"]), QueueName(str(said["name"])), QueueSettings())


def _subscriber(said: dict[str, Any], sequence: int) -> SubscriberSet:
    given = said["settings"]
    start = given.get("start")
    settings = SubscriberSettings(
        endpoint="",
        start=None if start is None else int(start),
        paused=bool(given.get("paused")),
        disabled_us=int(given.get("disabled_us") or 0),
    )
    name = SubscriberId(str(said["id"]))
    return SubscriberSet(sequence, 0, int(said["number"]), int(said["queue"]), name, int(said["since"]), settings)


def _opened(said: dict[str, Any], sequence: int) -> SegmentOpened:
    queues = tuple(_queue(one, sequence) for one in said["queues"])
    return SegmentOpened(sequence, 0, queues, tuple(_subscriber(one, sequence) for one in said["subscribers"]), (), ())


def _snapshots(facts: DataFrame) -> list[Declaration]:
    """One that says what another has said is brought here and read once."""
    opened = facts.where(f.col("kind") == "segment_opened").select(
        "sequence",
        f.coalesce(f.get_json_object("detail", "$.queues"), f.lit("[]")).alias("queues"),
        f.coalesce(f.get_json_object("detail", "$.subscribers"), f.lit("[]")).alias("subscribers"),
    )
    named = opened.withColumn("name", f.xxhash64("queues", "subscribers"))
    distinct = named.groupBy("name").agg(f.min(f.struct("sequence", "queues", "subscribers")).alias("said"))
    said: dict[int, Any] = {}
    for row in distinct.collect():
        body = f'{{"queues":{row.said.queues},"subscribers":{row.said.subscribers}}}'
        said[row["name"]] = declaration("segment_opened", row.said.sequence, body)
    return [said[row["name"]]._replace(sequence=row.sequence) for row in named.select("sequence", "name").collect()]


def rearmed(facts: DataFrame) -> DataFrame:
    """Entries of replays: record, position, replay, message, queue_no, subscribers, parents."""
    said = facts.where(f.col("kind") == "rearmed").select(
        f.col("sequence").alias("record"), f.from_json("detail", _ENTRIES).alias("said")
    )
    return said.select(
        "record", f.col("said.replay").alias("replay"), f.posexplode("said.entries").alias("position", "one")
    ).select(
        "record", "position", "replay", "one.message", f.col("one.queue").alias("queue_no"), "one.subscribers",
        "one.parents",
    )  # fmt: skip


def carried(facts: DataFrame) -> DataFrame:
    """Carried messages: record, message, ended (``s``, ``outcome`` and whether it is ``good``), tried (``s``,
    ``attempts`` and ``due_us``)."""
    said = facts.where(f.col("kind") == "carried_message").select(
        f.col("sequence").alias("record"), f.from_json("detail", _CARRIED).alias("said")
    )
    ended = f.transform(
        "said.ended",
        lambda one: f.struct(
            one[0].cast("bigint").alias("s"), (~one[1].isin(*BAD_OUTCOMES)).alias("good"), one[1].alias("outcome")
        ),
    )
    tried = f.transform(
        "said.tried",
        lambda one: f.struct(one.subscriber.alias("s"), one.attempts.alias("attempts"), one.due_us.alias("due_us")),
    )
    return said.select("record", "said.message", ended.alias("ended"), tried.alias("tried"))


def bad(facts: DataFrame) -> DataFrame:
    """Messages that ended badly and whose records are gone: message, and ``bad_since``, the record that first says
    so."""
    listed = f.from_json(f.get_json_object("detail", "$.bad"), "array<array<string>>")
    entries = facts.where(f.col("kind") == "segment_opened").select("sequence", f.explode(listed).alias("one"))
    return entries.groupBy(f.col("one")[0].cast("bigint").alias("message")).agg(f.min("sequence").alias("bad_since"))
