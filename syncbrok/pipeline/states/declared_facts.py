"""Reads the rare facts of a log, once: subscribers with their lifetimes, replays, and the progress of deliveries of
carried messages.

One job brings the declarations to the driver, where they are read in order; the result is sent to every task. They are
as many as operators have declared something, some 300 bytes each, and do not grow with the messages. The snapshots that
begin segments repeat them, so a snapshot comes as its digest, 80 bytes a segment, and each content once. What facts say
of single messages may be as much as these are, and goes where they are.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from syncbrok.model.facts import DELETED_SUBSCRIBER
from syncbrok.model.names import SEQUENCE_MAX
from syncbrok.pipeline.schema import TIME, ddl_of

_SETTINGS: Final = ("endpoint", "counts", "start", "paused", "disabled_us")
"""of a subscriber, those that are needed"""
ABOUT_MESSAGES: Final = ("rearmed", "carried_message")
"""kinds of facts that say something of single messages"""
_DECLARING: Final = pa.schema(
    [("sequence", pa.int64()), ("time_us", pa.int64()), ("kind", pa.string()), ("said", pa.string())]
)
ABOUT: Final = pa.schema([("message", pa.int64()), *_DECLARING])
_SNAPSHOT: Final = "segment_opened"
_CONTENT: Final = "content"
"""of a snapshot, instead of the kind of a fact"""
_DIGEST_CHARS: Final = 32


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

    waiting: DataFrame | None = None
    """messages (column ``message``) without counted subscribers that still have a reason to wait; None: there are none
    (``completions.with_waiting_messages``)"""
    about: DataFrame | None = None
    """facts that say something of single messages, where they stay in Spark"""

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


def read(facts: "DataFrame | DeclaredFacts", again: DataFrame | None = None) -> DeclaredFacts:
    """Read the declarations in ``facts`` (columns sequence, time, kind, detail) by one job. What facts say of single
    messages stays in Spark (``about``): it may be as much as the messages are. ``again``: the same rows, where
    ``facts`` can be read only once. A ``DeclaredFacts`` is returned as it is."""
    if isinstance(facts, DeclaredFacts):
        return facts
    rows = _of_kinds(facts, KINDS).mapInArrow(_declaring, ddl_of(_DECLARING)).distinct().toArrow()
    found = in_order(rows)
    if rows["said"].null_count:
        found.about = _of_kinds(facts if again is None else again, ABOUT_MESSAGES)
    return found


def in_order(rows: pa.Table) -> DeclaredFacts:
    """The declarations in the rows that tasks have sent (``_declaring``). Pure."""
    told = list(zip(*(rows.sort_by("sequence")[name].to_pylist() for name in _DECLARING.names), strict=True))
    contents = {said[:_DIGEST_CHARS]: said[_DIGEST_CHARS:] for *_, kind, said in told if kind == _CONTENT}
    found, standing = DeclaredFacts(), None
    for sequence, time_us, kind, said in told:
        if said is None or kind == _CONTENT:
            continue
        if kind == _SNAPSHOT and said == standing:  # it says what stands already
            found.records.append(sequence)
            continue
        standing = said if kind == _SNAPSHOT else None
        detail = orjson.loads(contents[said] if kind == _SNAPSHOT else said)
        found.apply(DeclaredFact(sequence, time_us, kind, detail))
    return found


def _of_kinds(facts: DataFrame, kinds: Sequence[str]) -> DataFrame:
    return facts.where(f.col("kind").isin(*kinds)).select("sequence", "time", "kind", "detail")


def _declaring(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of the facts that declare something, and one of a kind that says something of messages, where there is any.
    A snapshot stands in every segment: its digest travels, and once a task, as a row of its own, the digest followed by
    the fields that are needed."""
    about: dict[str, tuple[int, int, str, None]] = {}
    contents: dict[str, str] = {}
    for batch in batches:
        rows: list[tuple[int, int, str, str | None]] = []
        times = batch["time"].cast(TIME).cast(pa.int64()).to_pylist()
        columns = (batch[name].to_pylist() for name in ("sequence", "kind", "detail"))
        for sequence, kind, detail, time_us in zip(*columns, times, strict=True):
            if kind in ABOUT_MESSAGES:
                about.setdefault(kind, (sequence, time_us, kind, None))
            else:
                rows.append((sequence, time_us, kind, _named(contents, detail) if kind == _SNAPSHOT else detail))
        yield from _batch(rows)
    yield from _batch([*about.values(), *((0, 0, _CONTENT, digest + said) for digest, said in contents.items())])


def _named(contents: dict[str, str], detail: str) -> str:
    """The digest of a snapshot; what it says is put among ``contents``."""
    said = _slim(detail)
    digest = hashlib.blake2b(said.encode(), digest_size=_DIGEST_CHARS // 2).hexdigest()
    contents[digest] = said
    return digest


def _batch(rows: Sequence[tuple[int, int, str, str | None]]) -> Iterator[pa.RecordBatch]:
    if rows:
        columns = zip(zip(*rows, strict=True), _DECLARING.types, strict=True)
        yield pa.record_batch([pa.array(column, kind) for column, kind in columns], _DECLARING)


def _slim(detail: str) -> str:
    said = orjson.loads(detail)
    queues = [one | {"settings": _only(one.get("settings") or {}, ("scope",))} for one in said["queues"]]
    subscribers = [one | {"settings": _only(one["settings"], _SETTINGS)} for one in said["subscribers"]]
    return orjson.dumps({"queues": queues, "subscribers": subscribers}).decode()


def _only(settings: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: settings[name] for name in names if name in settings}


# -- what facts say of messages ---------------------------------------------------------------------------------------


def about_messages(facts: pa.Table) -> pa.Table:
    """Take ``facts`` of the kinds ``ABOUT_MESSAGES`` apart: a row (``ABOUT``) for each message that they speak of."""
    rows: dict[str, list[Any]] = {name: [] for name in ABOUT.names}
    times = facts["time"].cast(TIME).cast(pa.int64()).to_pylist()
    columns = (facts[name].to_pylist() for name in ("sequence", "kind", "detail"))
    for sequence, kind, detail, time_us in zip(*columns, times, strict=True):
        said = orjson.loads(detail)
        parts = [{"entries": [one]} for one in said["entries"]] if kind == "rearmed" else [said]
        for part in parts:
            message = part["entries"][0]["message"] if kind == "rearmed" else part["message"]
            told = (message, sequence, time_us, kind, orjson.dumps(part).decode())
            for name, value in zip(ABOUT.names, told, strict=True):
                rows[name].append(value)
    return pa.table(rows, ABOUT)


def put_together(about: pa.Table, first: int) -> DeclaredFacts:
    """The facts that ``about_messages`` has taken apart, of some messages. ``first``: the first record of the log."""
    found = DeclaredFacts(records=[first])
    columns = (about.sort_by("sequence")[name].to_pylist() for name in ABOUT.names)
    for _, sequence, time_us, kind, said in zip(*columns, strict=True):
        found.apply(DeclaredFact(sequence, time_us, kind, orjson.loads(said)))
    return found
