"""Reads the rare facts of a log, once: subscribers with their lifetimes, replays, and the progress of deliveries of
carried messages.

These facts are few beside messages and outcomes. One job brings them to the driver, where ``declared`` reads them in
order. The result is sent to every task.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from syncbrok.model.facts import DELETED_SUBSCRIBER
from syncbrok.model.names import SEQUENCE_MAX
from syncbrok.pipeline.schema import TIME

_SNAPSHOT: Final = (
    "struct<queues:array<struct<number:bigint,name:string,settings:struct<scope:string>>>,"
    "subscribers:array<struct<number:bigint,queue:bigint,id:string,since:bigint,"
    "settings:struct<endpoint:string,counts:boolean,start:bigint,paused:boolean,disabled_us:bigint>>>>"
)


class DeclaredFact(NamedTuple):
    """A fact that declares something: ``detail`` as the source gives it, parsed."""

    sequence: int
    time_us: int
    kind: str
    detail: dict[str, Any]


@dataclass(slots=True)
class DeclaredQueue:
    """A queue as it stands at the end of the log. ``declared_us``: 0 where that was before the log begins;
    ``deleted_us``: 0 while it is there."""

    name: str
    settings: dict[str, Any]
    declared_us: int = 0
    deleted_us: int = 0


@dataclass(slots=True)
class DeclaredSubscriber:
    """A subscriber over the whole log. A message of a sequence above ``since`` counts it (where it never counts: none).
    It is gone with the fact that deleted it or its queue, or with which it stopped to count, or with the first snapshot
    that does not name it any more; 0 while it is not.

    ``settings`` and ``said_since``: as its last fact says them. ``declared_us``: 0 where that was before the log
    begins. ``deleted``: the record with which it, and not its counting alone, ended, 0 while it is there."""

    number: int
    queue: int
    id: str
    since: int
    endpoint: str
    gone_record: int = 0
    gone_us: int = 0
    gone_with_queue: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    said_since: int = 0
    declared_us: int = 0
    deleted: int = 0
    deleted_us: int = 0

    @property
    def counts(self) -> bool:
        """Whether it counts at the end. (An older version did not say: whoever was there counted.)"""
        return self.settings.get("counts") is not False

    @property
    def is_stopped(self) -> bool:
        """Whether it is paused or disabled at the end."""
        return bool(self.settings.get("paused") or self.settings.get("disabled_us"))

    def go(self, fact: DeclaredFact, *, with_queue: bool = False, only_its_counting: bool = False) -> None:
        if not self.gone_record:
            self.gone_record, self.gone_us, self.gone_with_queue = fact.sequence, fact.time_us, with_queue
        if not (self.deleted or only_its_counting):
            self.deleted, self.deleted_us = fact.sequence, fact.time_us


@dataclass(slots=True)
class DeclaredFacts:
    """The contents of the rare facts."""

    queues: dict[int, DeclaredQueue] = field(default_factory=dict)
    """by number"""
    born: dict[int, int] = field(default_factory=dict)
    """by number the record that declared a queue; 0: an earlier one"""
    scopes: dict[int, set[str]] = field(default_factory=dict)
    """by number every scope that a queue has had"""
    subscribers: dict[int, DeclaredSubscriber] = field(default_factory=dict)
    rearmed: list[tuple[int, int, int, int]] = field(default_factory=list)
    """message, subscriber, record, time: a delivery that a replay opened again"""
    carried_ends: list[tuple[int, int, int, int, str]] = field(default_factory=list)
    """message, subscriber, record, time, outcome: it had ended when it was carried"""
    carried_attempts: list[tuple[int, int, int, int]] = field(default_factory=list)
    """message, subscriber, attempts, time: how often it had been tried then; the time is 0 where it is not tried again
    """
    records: list[int] = field(default_factory=list)
    """the sequences of all these facts: none of them is a message"""

    waiting: list[int] = field(default_factory=list)
    """messages without counted subscribers that still have a reason to wait (``completions.with_waiting_messages``)"""

    def queue_name(self, number: int) -> str | None:
        """The name of a queue; None where it is not known."""
        known = self.queues.get(number)
        return None if known is None else known.name

    def apply(self, fact: DeclaredFact) -> None:
        """Take the next fact in."""
        self.records.append(fact.sequence)
        _TAKES[fact.kind](self, fact)

    def _queue(self, fact: DeclaredFact) -> None:
        self._named(fact.detail, fact.time_us)
        self.born.setdefault(fact.detail["number"], fact.sequence)

    def _named(self, queue: dict[str, Any], declared_us: int) -> None:
        settings = queue.get("settings") or {}
        known = self.queues.get(queue["number"])
        if known is None:
            self.queues[queue["number"]] = DeclaredQueue(queue["name"], settings, declared_us)
        else:
            known.name, known.settings = queue["name"], settings
        scope = settings.get("scope")
        self.scopes.setdefault(queue["number"], set()).update([scope] if scope else [])

    def _queue_gone(self, fact: DeclaredFact) -> None:
        self._without(fact.detail["number"], fact)
        for one in self.subscribers.values():
            if one.queue == fact.detail["number"]:
                one.go(fact, with_queue=True)

    def _without(self, queue: int, fact: DeclaredFact) -> None:
        known = self.queues.get(queue)
        if known is not None and not known.deleted_us:
            known.deleted_us = fact.time_us

    def _subscriber_gone(self, fact: DeclaredFact) -> None:
        if fact.detail["number"] in self.subscribers:
            self.subscribers[fact.detail["number"]].go(fact)

    def _rearmed(self, fact: DeclaredFact) -> None:
        self.rearmed += [
            (entry["message"], number, fact.sequence, fact.time_us)
            for entry in fact.detail["entries"]
            for number in entry["subscribers"]
        ]

    def _subscriber(self, said: dict[str, Any], fact: DeclaredFact) -> None:
        number, settings = said["number"], said["settings"]
        known = self.subscribers.get(number)
        if known is None:
            known = DeclaredSubscriber(number, said["queue"], said["id"], SEQUENCE_MAX, "")
            known.declared_us = fact.time_us if fact.kind == "subscriber_set" else 0
            self.subscribers[number] = known
        known.id, known.endpoint = said["id"], settings["endpoint"]
        known.settings, known.said_since = settings, said["since"]
        if known.counts:
            known.since = min(known.since, said["since"])
        elif known.since < SEQUENCE_MAX:
            known.go(fact, only_its_counting=True)

    def _snapshot(self, fact: DeclaredFact) -> None:
        for queue in fact.detail["queues"]:
            self._named(queue, 0)
            self.born.setdefault(queue["number"], 0)
        for number in self.queues.keys() - {one["number"] for one in fact.detail["queues"]}:
            self._without(number, fact)
        for one in fact.detail["subscribers"]:
            self._subscriber(one, fact)
        for number in self.subscribers.keys() - {one["number"] for one in fact.detail["subscribers"]}:
            self.subscribers[number].go(fact)

    def _carried(self, fact: DeclaredFact) -> None:
        message = fact.detail["message"]
        is_gone = message < self.records[0]  # else the rows tell of whom it died at that has been deleted
        self.carried_ends += [
            (message, number, fact.sequence, fact.time_us, outcome)
            for number, outcome in fact.detail["ended"]
            if is_gone or number != DELETED_SUBSCRIBER
        ]
        self.carried_attempts += [
            (message, one["subscriber"], one["attempts"], fact.time_us if one["due_us"] else 0)
            for one in fact.detail["tried"]
        ]


_TAKES: Final[dict[str, Callable[[DeclaredFacts, DeclaredFact], None]]] = {
    "queue_set": DeclaredFacts._queue,  # noqa: SLF001 (the table of what each fact does)
    "queue_deleted": DeclaredFacts._queue_gone,  # noqa: SLF001
    "subscriber_set": lambda found, fact: found._subscriber(fact.detail, fact),  # noqa: SLF001
    "subscriber_deleted": DeclaredFacts._subscriber_gone,  # noqa: SLF001
    "segment_opened": DeclaredFacts._snapshot,  # noqa: SLF001
    "rearmed": DeclaredFacts._rearmed,  # noqa: SLF001
    "carried_message": DeclaredFacts._carried,  # noqa: SLF001
}


class SequenceSpan(NamedTuple):
    """Sequences after ``after`` and before ``before`` (None: to the end) of messages to a queue."""

    queue: str
    after: int
    before: int | None


def spans_without_subscribers(found: DeclaredFacts) -> list[SequenceSpan]:
    """The spans of sequences in which messages may have been accepted that count no subscriber. Pure."""
    spans = []
    records = sorted(found.records)
    for number, queue in found.queues.items():
        name, after = queue.name, found.born[number]
        for one in sorted((one for one in found.subscribers.values() if one.queue == number), key=_since):
            # Between what declares a queue and what subscribes to it there is often no message.
            if one.since > after and one.since - after > bisect_right(records, one.since) - bisect_right(
                records, after
            ):
                spans.append(SequenceSpan(name, after, one.since + 1))
            after = max(after, one.gone_record or SEQUENCE_MAX)
        if after < SEQUENCE_MAX:
            spans.append(SequenceSpan(name, after, None))
    return spans


def _since(one: DeclaredSubscriber) -> int:
    return one.since


KINDS: Final = tuple(_TAKES)
"""of the facts that declare something"""


def declared(facts: Iterable[DeclaredFact]) -> DeclaredFacts:
    """The contents of ``facts``, which are in the order of the log. Pure."""
    found = DeclaredFacts()
    for fact in facts:
        found.apply(fact)
    return found


def read(facts: "DataFrame | DeclaredFacts") -> DeclaredFacts:
    """Read the declarations in ``facts`` (columns sequence, time, kind, detail) by one job. A ``DeclaredFacts`` is
    returned as it is."""
    return facts if isinstance(facts, DeclaredFacts) else declared(_rare(facts))


def _rare(facts: DataFrame) -> Iterator[DeclaredFact]:
    # A snapshot stands in every segment, so only the fields of it that are needed travel.
    slim = f.to_json(f.from_json("detail", _SNAPSHOT))
    some = facts.where(f.col("kind").isin(*_TAKES)).select(
        "sequence",
        "time",
        "kind",
        f.when(f.col("kind") == "segment_opened", slim).otherwise(f.col("detail")).alias("detail"),
    )
    found = some.toArrow().sort_by("sequence")
    times = found["time"].cast(TIME).cast(pa.int64())
    for batch in found.set_column(1, "time", times).to_batches():
        for sequence, time_us, kind, detail in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield DeclaredFact(sequence, time_us, kind, orjson.loads(detail))
