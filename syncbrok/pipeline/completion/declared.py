"""What the rare facts of a log declare, read once: subscribers with their lifetimes, replays, and how far the
deliveries of carried messages had come.

These facts are few beside messages and outcomes. One job brings them to the driver, where ``declared`` goes along with
them in order; what comes out goes back to Spark as small tables.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

_SNAPSHOT: Final = (
    "struct<queues:array<struct<number:bigint,name:string>>,subscribers:array<struct<number:bigint,queue:bigint,"
    "id:string,since:bigint,settings:struct<endpoint:string>>>>"
)
_TIME: Final = pa.timestamp("us", tz="UTC")
_SUBSCRIBERS: Final = pa.schema(
    [
        ("subscriber", pa.int64()),
        ("queue_number", pa.int64()),
        ("queue", pa.string()),
        ("subscriber_id", pa.string()),
        ("since", pa.int64()),
        ("endpoint", pa.string()),
        ("gone_record", pa.int64()),
        ("gone_at", _TIME),
        ("gone_with_queue", pa.bool_()),
    ]
)
_QUEUES: Final = pa.schema([("queue", pa.string()), ("queue_code", pa.int64())])
_REARMED: Final = pa.schema(
    [("message", pa.int64()), ("subscriber", pa.int64()), ("record", pa.int64()), ("at", _TIME)]
)
_CARRIED_ENDS: Final = pa.schema(
    [
        ("message", pa.int64()),
        ("subscriber", pa.int64()),
        ("record", pa.int64()),
        ("at", _TIME),
        ("outcome", pa.string()),
    ]
)
_CARRIED_ATTEMPTS: Final = pa.schema([("message", pa.int64()), ("subscriber", pa.int64()), ("attempts", pa.int64())])


class RareFact(NamedTuple):
    """A fact that declares something: ``detail`` as the source gives it, parsed."""

    sequence: int
    time_us: int
    kind: str
    detail: dict[str, Any]


@dataclass(slots=True)
class Subscriber:
    """Over the whole log. A message of a sequence above ``since`` counts it. It is gone with the fact that deleted it
    or its queue, or with the first snapshot that does not name it any more; 0 while it is not."""

    number: int
    queue: int
    id: str
    since: int
    endpoint: str
    gone_record: int = 0
    gone_us: int = 0
    gone_with_queue: bool = False

    def go(self, fact: RareFact, *, with_queue: bool = False) -> None:
        if not self.gone_record:
            self.gone_record, self.gone_us, self.gone_with_queue = fact.sequence, fact.time_us, with_queue


@dataclass(slots=True)
class Declared:
    """What the facts declare. Rows are tuples in the order of the columns that the methods of ``Tables`` name."""

    queues: dict[int, str] = field(default_factory=dict)
    subscribers: dict[int, Subscriber] = field(default_factory=dict)
    rearmed: list[tuple[int, int, int, int]] = field(default_factory=list)
    carried_ends: list[tuple[int, int, int, int, str]] = field(default_factory=list)
    carried_attempts: list[tuple[int, int, int]] = field(default_factory=list)

    def apply(self, fact: RareFact) -> None:
        """Take the next fact in."""
        _TAKES[fact.kind](self, fact)

    def _queue(self, fact: RareFact) -> None:
        self.queues[fact.detail["number"]] = fact.detail["name"]

    def _queue_gone(self, fact: RareFact) -> None:
        for one in self.subscribers.values():
            if one.queue == fact.detail["number"]:
                one.go(fact, with_queue=True)

    def _subscriber_gone(self, fact: RareFact) -> None:
        if fact.detail["number"] in self.subscribers:
            self.subscribers[fact.detail["number"]].go(fact)

    def _rearmed(self, fact: RareFact) -> None:
        self.rearmed += [
            (entry["message"], number, fact.sequence, fact.time_us)
            for entry in fact.detail["entries"]
            for number in entry["subscribers"]
        ]

    def _subscriber(self, said: dict[str, Any]) -> None:
        number, endpoint = said["number"], said["settings"]["endpoint"]
        known = self.subscribers.get(number)
        if known is None:
            self.subscribers[number] = Subscriber(number, said["queue"], said["id"], said["since"], endpoint)
        else:
            known.id, known.endpoint = said["id"], endpoint

    def _snapshot(self, fact: RareFact) -> None:
        self.queues |= {queue["number"]: queue["name"] for queue in fact.detail["queues"]}
        for one in fact.detail["subscribers"]:
            self._subscriber(one)
        for number in self.subscribers.keys() - {one["number"] for one in fact.detail["subscribers"]}:
            self.subscribers[number].go(fact)

    def _carried(self, fact: RareFact) -> None:
        message = fact.detail["message"]
        self.carried_ends += [
            (message, number, fact.sequence, fact.time_us, outcome) for number, outcome in fact.detail["ended"]
        ]
        self.carried_attempts += [(message, one["subscriber"], one["attempts"]) for one in fact.detail["tried"]]


_TAKES: Final[dict[str, Callable[[Declared, RareFact], None]]] = {
    "queue_set": Declared._queue,  # noqa: SLF001 (the table of what each fact does)
    "queue_deleted": Declared._queue_gone,  # noqa: SLF001
    "subscriber_set": lambda found, fact: found._subscriber(fact.detail),  # noqa: SLF001
    "subscriber_deleted": Declared._subscriber_gone,  # noqa: SLF001
    "segment_opened": Declared._snapshot,  # noqa: SLF001
    "rearmed": Declared._rearmed,  # noqa: SLF001
    "carried_message": Declared._carried,  # noqa: SLF001
}


def declared(facts: Iterable[RareFact]) -> Declared:
    """``facts`` in the order of the log. Pure."""
    found = Declared()
    for fact in facts:
        found.apply(fact)
    return found


class Tables(NamedTuple):
    """What is declared, for Spark.

    ``subscribers``       subscriber (its number), queue_number, queue, subscriber_id, since, endpoint, gone_record,
                          gone_at, gone_with_queue (null, null and false where it is not gone)
    ``queues``            queue, queue_code: a number for each name
    ``rearmed``           message, subscriber, record, at: a delivery that a replay opened again; None: no replays
    ``carried_ends``      message, subscriber, record, at, outcome: it had ended when it was carried; None: none carried
    ``carried_attempts``  message, subscriber, attempts: how often it had been tried then; None: none carried
    """

    subscribers: DataFrame
    queues: DataFrame
    rearmed: DataFrame | None
    carried_ends: DataFrame | None
    carried_attempts: DataFrame | None


def read(facts: "DataFrame | Tables") -> Tables:
    """One job over ``facts`` (columns sequence, time, kind, detail); what was read already is given back as it is."""
    return facts if isinstance(facts, Tables) else tables(facts.sparkSession, declared(_rare(facts)))


def tables(spark: SparkSession, found: Declared) -> Tables:
    """The tables of what was found."""
    subscribers = [
        (
            one.number,
            one.queue,
            found.queues.get(one.queue),
            one.id,
            one.since,
            one.endpoint,
            one.gone_record or None,
            one.gone_us or None,
            one.gone_with_queue,
        )
        for one in found.subscribers.values()
    ]
    queues = {name: number for number, name in found.queues.items()}
    return Tables(
        _table(spark, subscribers, _SUBSCRIBERS),
        _table(spark, list(queues.items()), _QUEUES),
        _table(spark, found.rearmed, _REARMED) if found.rearmed else None,
        _table(spark, found.carried_ends, _CARRIED_ENDS) if found.carried_ends else None,
        _table(spark, found.carried_attempts, _CARRIED_ATTEMPTS) if found.carried_attempts else None,
    )


def _rare(facts: DataFrame) -> Iterator[RareFact]:
    # Of a snapshot, which stands in every segment, only what is asked for travels.
    slim = f.to_json(f.from_json("detail", _SNAPSHOT))
    some = facts.where(f.col("kind").isin(*_TAKES)).select(
        "sequence",
        "time",
        "kind",
        f.when(f.col("kind") == "segment_opened", slim).otherwise(f.col("detail")).alias("detail"),
    )
    found = some.toArrow().sort_by("sequence")
    times = found["time"].cast(_TIME).cast(pa.int64())
    for batch in found.set_column(1, "time", times).to_batches():
        for sequence, time_us, kind, detail in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield RareFact(sequence, time_us, kind, orjson.loads(detail))


def _table(spark: SparkSession, rows: list[Any], schema: pa.Schema) -> DataFrame:
    columns = zip(*rows, strict=True) if rows else ((),) * len(schema)
    arrays = [pa.array(column, one.type) for column, one in zip(columns, schema, strict=True)]
    return spark.createDataFrame(pa.table(arrays, schema=schema))
