"""Goes over all records once: which sequences there are, and the contents of the rare facts.

Messages and outcomes have rows of their own. The other facts are few and come out of the pass by kind. Declarations are
brought to one place and put in order. Lists that may be long (entries of replays, carried messages, bad ends) stay in
Spark, a row for each message.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from syncbrok.log.format.records import Gap, SegmentOpened
from syncbrok.model.errors import SyncbrokError
from syncbrok.model.facts import QueueDeleted, QueueSet, SubscriberDeleted, SubscriberSet
from syncbrok.model.message import QueueSettings, SubscriberSettings
from syncbrok.model.names import QueueName, SubscriberId
from syncbrok.pipeline.audit.declarations import Declaration
from syncbrok.pipeline.audit.row_encoding import packed_rows
from syncbrok.pipeline.audit.sequence_rule import BLOCK, BLOCK_ROW, SequenceBitmaps

_DECLARATIONS: Final = ("queue_set", "queue_deleted", "subscriber_set", "subscriber_deleted", "gap")
_MANY: Final = pa.array(["message", "outcomes"])
"""kinds that have rows of their own"""
_COUNTS: Final = "counts"
_SNAPSHOT: Final = "segment_opened"
_CONTENT: Final = "content"
"""of a snapshot, instead of the kind of a fact: its digest, and what it declares"""

REARMED: Final = 0
CARRIED: Final = 1
"""``of`` of a claim: a replay sends the message again, a record carries it"""

CLAIM: Final = {"message": "bigint", "record": "bigint", "position": "int", "of": "int", "said": "string"}
"""what a rare fact says of a message; ``said`` is JSON"""
BAD: Final = {"message": "bigint", "since": "bigint"}
"""a message that ended badly and whose record is gone, with the record that says so"""
KINDS: Final = {
    BLOCK: BLOCK_ROW,
    "fact": {"sequence": "bigint", "kind": "string", "said": "string"},
    "claim": CLAIM,
    "bad": BAD,
}


class NotAFact(SyncbrokError):
    """Raised for a row of kind ``facts`` that does not say what its kind must say."""

    slug = "not-a-fact"


class FactScan(NamedTuple):
    """The contents of the rare facts, as one pass found them. ``counts``: records that are neither messages nor
    outcomes, by kind, and the entries of ``bad``. ``began``: the first record of each replay, a few bytes for each that
    an operator has asked for."""

    declarations: list[Declaration]
    counts: Counter[str]
    began: dict[int, int]

    @property
    def rules(self) -> list[tuple[int, int]]:
        """(record, rules): those by which the records from there on were made, in order."""
        return [(one.sequence, one.rules) for one in self.declarations if isinstance(one, SegmentOpened)]

    @property
    def claims(self) -> int:
        """The number of records with claims about messages that were accepted before."""
        return self.counts["rearmed"] + self.counts["carried_message"]


def scan(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of ``KINDS`` from a part of all records: sequence, time, kind, detail. Raises ``NotAFact``."""
    bitmaps, counted = SequenceBitmaps(), _ScanCounts()
    for batch in batches:
        if not batch.num_rows:
            continue
        table = pa.Table.from_batches([batch])
        times = table.column("time").cast(pa.int64()).to_numpy()
        bitmaps.add(table.column("sequence").to_numpy(), times)
        rare = table.filter(pc.invert(pc.is_in(table.column("kind"), value_set=_MANY)))
        for sequence, kind, detail in zip(*(rare.column(one).to_pylist() for one in ("sequence", "kind", "detail")),
                                          strict=True):  # fmt: skip
            counted.counts[kind] += 1
            yield from _rows(counted, kind, sequence, detail)
    yield from packed_rows(KINDS, BLOCK, bitmaps.rows())
    yield from packed_rows(KINDS, "fact", [(0, _COUNTS, counted.said())])


class _ScanCounts:
    """The counts of one task. A snapshot that repeats another one is told once."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.began: dict[int, int] = {}
        self.snapshots: set[str] = set()

    def said(self) -> str:
        return orjson.dumps({"counts": self.counts, "began": list(self.began.items())}).decode()


def _rows(counted: _ScanCounts, kind: str, sequence: int, detail: str) -> Iterator[pa.RecordBatch]:
    try:
        if kind in _DECLARATIONS:
            yield from packed_rows(KINDS, "fact", [(sequence, kind, detail)])
        elif kind == "rearmed":
            said = orjson.loads(detail)
            replay, only = int(said["replay"]), int(said.get("subscriber", 0))
            counted.began[replay] = min(sequence, counted.began.get(replay, sequence))
            entries = [
                (
                    int(one["message"]),
                    sequence,
                    at,
                    REARMED,
                    orjson.dumps({"replay": replay, "for": only, **one}).decode(),
                )
                for at, one in enumerate(said["entries"])
            ]
            yield from packed_rows(KINDS, "claim", entries)
        elif kind == "carried_message":
            message = int(orjson.loads(detail)["message"])
            yield from packed_rows(KINDS, "claim", [(message, sequence, 0, CARRIED, detail)])
        elif kind == _SNAPSHOT:
            said = orjson.loads(detail)
            bad = [(int(message), sequence) for message, _ in said.get("bad", ())]
            counted.counts["bad"] += len(bad)
            yield from packed_rows(KINDS, "bad", bad)
            yield from packed_rows(KINDS, "fact", _snapshot(counted, sequence, said))
    except (ValueError, TypeError, KeyError) as problem:
        raise _not_a_fact(kind, sequence, detail, problem) from problem


def _snapshot(counted: _ScanCounts, sequence: int, said: dict[str, Any]) -> list[tuple[int, str, str]]:
    """Rows of kind ``fact`` for a snapshot: the digest of its rules, queues and subscribers, 32 characters; and these
    as JSON behind the digest, where this task has not told them yet."""
    declared = orjson.dumps([said["queues"], said["subscribers"], said.get("rules", 1)])
    name = hashlib.blake2b(declared, digest_size=16).hexdigest()
    rows = [(sequence, _SNAPSHOT, name)]
    if name not in counted.snapshots:
        counted.snapshots.add(name)
        rows.append((0, _CONTENT, name + declared.decode()))
    return rows


def fact_rows(scanned: DataFrame) -> list[tuple[int, str, str]]:
    """The rows of kind ``fact``, on the driver: each content of a snapshot once, however many tasks have told it. So
    they are some 300 bytes for each declaration of an operator, 80 for each segment, and a row a task."""
    rows = scanned.where("fact is not null").select("fact.*")
    others = rows.where(f.col("kind") != _CONTENT)
    found: Any = others.unionByName(rows.where(f.col("kind") == _CONTENT).distinct()).collect()
    return [tuple(row) for row in found]


def put_together(rows: Iterable[tuple[int, str, str]]) -> FactScan:
    """Put together the rows of kind ``fact``, declarations in the order of the log. Raises ``NotAFact``."""
    in_order = sorted(rows)
    named = {said[:32]: said[32:] for _, kind, said in in_order if kind == _CONTENT}
    snapshots = {name: declaration(_SNAPSHOT, 0, said) for name, said in named.items()}
    counts: Counter[str] = Counter()
    began: dict[int, int] = {}
    declarations: list[Declaration] = []
    for sequence, kind, said in in_order:
        if kind == _COUNTS:
            counted = orjson.loads(said)
            counts.update(counted["counts"])
            for replay, record in counted["began"]:
                began[replay] = min(record, began.get(replay, record))
        elif kind == _SNAPSHOT:
            declarations.append(snapshots[said]._replace(sequence=sequence))
        elif kind != _CONTENT:
            declarations.append(declaration(kind, sequence, said))
    return FactScan(declarations, counts, began)


def declaration(kind: str, sequence: int, detail: str) -> Declaration:
    """The fact in a row, with the fields that the audit needs. Raises ``NotAFact``."""
    try:
        said = orjson.loads(detail)
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
                queues, subscribers, rules = said
                return SegmentOpened(
                    sequence, 0, tuple(_queue(one, sequence) for one in queues),
                    tuple(_subscriber(one, sequence) for one in subscribers), (), (), rules=int(rules),
                )  # fmt: skip
            case _:
                return Gap(sequence, 0, int(said["first"]), int(said["last"]), str(said["why"]))
    except (ValueError, TypeError, KeyError) as problem:
        raise _not_a_fact(kind, sequence, detail, problem) from problem


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
        counts=bool(given.get("counts", True)),  # an older version did not say: whoever was there counted
    )
    name = SubscriberId(str(said["id"]))
    return SubscriberSet(sequence, 0, int(said["number"]), int(said["queue"]), name, int(said["since"]), settings)


def _not_a_fact(kind: str, sequence: int, detail: str, problem: Exception) -> NotAFact:
    return NotAFact(
        f"the {kind} of sequence {sequence} cannot be read from {detail!r:.200} "
        f"({type(problem).__name__}: {problem}); was the table made by another version?"
    )
