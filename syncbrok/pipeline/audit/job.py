"""The audit: proves from the facts alone that a log keeps its promises, or names the records that break them.

    found = audit(messages, deliveries, facts)     # the findings, as a DataFrame
    whole = prove(messages, deliveries, facts)     # the same, with what waits, and how much was looked at

``rules`` has the rules. ``OrderChecker`` judges the same record by record in plain Python, and this job is tested
against it. Here one shuffle brings the facts of a message together (``histories``), a second brings each message to its
parents (``causal_rules``), a third brings the few unfinished deliveries to their obstacles (``waiting_rule``). The rows
that meet are judged as columns of numpy, with hardly a plan for Spark to make: a small log takes seconds, and a large
one scales with the cluster. No code of the broker's scheduler is used, and none of ``pipeline.completion``, which the
report shows to people: a judge must not share a mistake with the code it judges.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial, reduce
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from syncbrok.pipeline.audit import (
    causal_rules,
    end_propagation,
    events,
    fact_scan,
    histories,
    key_rule,
    row_kinds,
    sequence_rule,
    waiting_rule,
)
from syncbrok.pipeline.audit.audience import Audiences
from syncbrok.pipeline.audit.declarations import declared
from syncbrok.pipeline.audit.retention_drops import Drops
from syncbrok.pipeline.audit.row_encoding import Kinds, ddl, struct
from syncbrok.pipeline.audit.rules import VIOLATION, AuditFinding
from syncbrok.pipeline.kept import kept
from syncbrok.pipeline.spark_conf import UNMEASURED, set_for_now, unset

MESSAGE_COLUMNS: Final = (
    "sequence", "time", "queue", "id", "parent_sequences", "key", "scope", "parent_failure", "not_before", "expires",
    "only_subscriber", "carried",
)  # fmt: skip
DELIVERY_COLUMNS: Final = (
    "sequence", "position", "message", "subscriber_number", "attempt", "outcome", "reason", "due", "after",
)  # fmt: skip
FACT_COLUMNS: Final = ("sequence", "time", "kind", "detail")
"""what is asked of each kind: Spark prunes no columns of a source in Python"""

_PARTITION_RECORDS: Final = 125_000
_PARTITIONS_MAX: Final = 8_192

Step = Callable[[str], None]
Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class AuditResult(NamedTuple):
    """The result of an audit. ``violations``: rule, sequence, message, subscriber, what. ``waiting``: every
    delivery that has not ended (``waiting_rule.WAITING``). ``counts``: how many records, messages, edges, rows,
    attempts and ends were judged."""

    violations: DataFrame
    waiting: DataFrame
    counts: dict[str, int]


def audit(
    messages: DataFrame, deliveries: DataFrame, facts: DataFrame, *, since_us: int | None = None,
    settled: bool = False, pending_us_max: int | None = None,
) -> DataFrame:  # fmt: skip
    """The findings of a whole log: rule, sequence, message, subscriber, what. The three frames are those of the
    source's kinds, with at least ``MESSAGE_COLUMNS``, ``DELIVERY_COLUMNS`` and ``FACT_COLUMNS``.

    What waits without a reason is a finding where the log is at rest (``settled``: the broker had nothing left to do),
    or once it has waited for longer than ``pending_us_max``; else it is not judged. With ``since_us`` (Unix
    microseconds) only what records written from then on break is answered; everything before is read all the same."""
    return prove(
        messages, deliveries, facts, since_us=since_us, settled=settled, pending_us_max=pending_us_max
    ).violations


def prove(
    messages: DataFrame, deliveries: DataFrame, facts: DataFrame, *, since_us: int | None = None,
    settled: bool = False, pending_us_max: int | None = None, step: Step = lambda _: None,
) -> AuditResult:  # fmt: skip
    """The findings and waiting deliveries of a whole log, and how much was judged; see ``audit``. ``step`` is told what
    it is at."""
    spark = facts.sparkSession
    with set_for_now(spark, unset(spark, UNMEASURED)):
        log = _scanned(facts, step)
        step("deliveries")
        history_rows = _histories(messages, deliveries, log)
        counts = _counts(history_rows) | {"records": log.extent.records, "segments": log.said.counts["segment_opened"]}
        step("parents")
        settled_ones = None
        if counts["chained"]:
            histories, edges, bad = (_of(history_rows, kind) for kind in ("history", "edge", "bad"))
            settled_ones = kept(end_propagation.propagated_ends(histories, edges, bad))
        drops = _drops(deliveries, log.audiences)
        met = _met(history_rows, settled_ones, log, drops) if counts["edges"] else None
        lined = None
        if counts["keyed"]:
            lined = kept(key_rule.judged_keys(_of(history_rows, "line"), log.partitions, log.said.rules, drops))
        waits = _waits(counts["waiting"], history_rows, met, lined, settled_ones, log)
        counts["waiting"] = waits.count() if counts["waiting"] else 0
        parts = [_of(frame, "found") for frame in (history_rows, met, lined) if frame is not None]
        if log.found:
            parts.append(facts.sparkSession.createDataFrame(log.found, VIOLATION))
        if counts["waiting"] and (settled or pending_us_max is not None):
            parts.append(waiting_rule.overdue(waits, facts, log.extent.end_us, None if settled else pending_us_max))
        found = reduce(DataFrame.unionByName, [part.select(*AuditFinding._fields) for part in parts])
        if since_us is not None:
            recent: Any = facts.where(f.unix_micros("time") >= since_us).agg(f.min("sequence").alias("first")).collect()
            found = found.where(f.col("sequence") >= f.lit(recent[0].first or log.extent.last + 1))
        return AuditResult(kept(found), waits, counts)


class _Log(NamedTuple):
    """The result of one pass over all records. ``claims`` and ``bad``: rows of ``fact_scan.KINDS``, None without any.
    ``partitions``: the number of partitions for a shuffle of all messages."""

    extent: sequence_rule.LogExtent
    said: fact_scan.FactScan
    audiences: Audiences
    at_end: waiting_rule.LogEnd
    found: list[AuditFinding]
    claims: DataFrame | None
    bad: DataFrame | None
    partitions: int


def _scanned(facts: DataFrame, step: Step) -> _Log:
    step("records")
    scanned = kept(facts.select(*FACT_COLUMNS).mapInArrow(fact_scan.scan, ddl(fact_scan.KINDS)))
    extent = sequence_rule.extent(scanned)
    said = fact_scan.put_together(fact_scan.fact_rows(scanned))
    known = declared(said.declarations, extent.first)
    return _Log(
        extent,
        said,
        Audiences(known, extent.first),
        waiting_rule.LogEnd(extent.end_us, frozenset(known.frozen())),
        [*known.violations, *sequence_rule.violations(facts, extent, known.gaps)],
        scanned if said.claims else None,
        scanned if said.counts["bad"] else None,
        min(extent.records // _PARTITION_RECORDS + 1, _PARTITIONS_MAX),
    )


def _histories(messages: DataFrame, deliveries: DataFrame, log: _Log) -> DataFrame:
    """The history of each message: rows of ``row_kinds.HISTORY_KINDS``."""
    parts = [events.accepted(messages), events.rows(deliveries)]
    if log.claims is not None:
        parts.append(events.claims(log.claims))
    if log.bad is not None:
        parts.append(events.ended_badly(log.bad))
    return _judged(
        parts, log.partitions, partial(histories.histories, known=log.audiences), ddl(row_kinds.HISTORY_KINDS)
    )


def _met(history_rows: DataFrame, settled: DataFrame | None, log: _Log, drops: Mapping[int, Drops]) -> DataFrame:
    """Rows of ``causal_rules.CAUSAL_OUTPUT``: each message was brought beside its parents."""
    rows = {"history": (_of(history_rows, "history"), "message"), "edge": (_of(history_rows, "edge"), "parent"),
            "bad": (_of(history_rows, "bad") if log.bad else None, "message"),
            "settled": (settled, "message")}  # fmt: skip
    task = partial(causal_rules.judged_edges, known=log.audiences, began=log.said.began, drops=drops)
    return _judged(_united(rows, causal_rules.CAUSAL_INPUT), log.partitions, task, ddl(causal_rules.CAUSAL_OUTPUT))


def _drops(deliveries: DataFrame, known: Audiences) -> dict[int, list[tuple[int, int]]]:
    """The ``retention_drops.Drops`` by subscriber; none where every subscriber has always counted. They are 24 bytes
    for each segment that is dropped and each subscriber that does not count and had not taken all of it."""
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    if any(one.uncounted for one in known.subscribers.values()):
        rows: Any = deliveries.where(f.col("reason") == "retention").select("sequence", "message", "subscriber_number")
        for sequence, message, subscriber in sorted(rows.collect()):
            found[subscriber].append((sequence, message))
    return found


def _waits(
    maybe: int,
    history_rows: DataFrame,
    met: DataFrame | None,
    lined: DataFrame | None,
    settled: DataFrame | None,
    log: _Log,
) -> DataFrame:
    """The deliveries that have not ended, ``maybe`` at most."""
    if not maybe:
        return history_rows.sparkSession.createDataFrame([], waiting_rule.WAITING)
    rows = {"open": _of(history_rows, "open"), "state": _of(met, "state") if met else None,
            "behind": _of(lined, "behind") if lined else None, "settled": settled}  # fmt: skip
    named = {name: (frame, "message") for name, frame in rows.items()}
    task = partial(waiting_rule.waiting, at_end=log.at_end)
    return _judged(_united(named, waiting_rule.WAITING_INPUT), log.partitions, task, waiting_rule.WAITING)


def _judged(parts: list[DataFrame], partitions: int, task: Task, result: str) -> DataFrame:
    """The rows, in ``result``, that ``task`` makes of ``parts``: rows that have the same value in the first column meet
    in one task. That column is called the same in all parts."""
    together = reduce(DataFrame.unionByName, parts)
    meeting = together.columns[0]
    return kept(together.repartition(partitions, meeting).drop(meeting).mapInArrow(task, result))


def _united(rows: dict[str, tuple[DataFrame | None, str]], kinds: Kinds) -> list[DataFrame]:
    """Rows of all ``kinds``, one frame a kind. Each row has a column ``to``, which says where it goes: the value of the
    column that is named beside its frame."""
    parts = []
    for kind, (frame, to) in rows.items():
        if frame is not None:
            own = f.struct(*kinds[kind])
            empty = {name: f.lit(None).cast(struct(fields)) for name, fields in kinds.items()}
            parts.append(frame.select(f.col(to).alias("to"), *((own if name == kind else empty[name]).alias(name)
                                                               for name in kinds)))  # fmt: skip
    return parts


def _of(frame: DataFrame, kind: str) -> DataFrame:
    return frame.where(f.col(kind).isNotNull()).select(f"{kind}.*")


def _counts(history_rows: DataFrame) -> dict[str, int]:
    names = list(row_kinds.HISTORY_KINDS["count"])
    row: Any = _of(history_rows, "count").agg(*(f.sum(name).alias(name) for name in names)).collect()[0]
    return {name: int(row[name] or 0) for name in names}
