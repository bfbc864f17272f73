"""The audit: proves from the facts alone that a log keeps its promises, or names the records that break them.

    found = audit(messages, deliveries, facts)     # the findings, as a DataFrame
    whole = prove(messages, deliveries, facts)     # the same, with what waits, and how much was looked at

The rules and what they say stand in ``audit_rules``. ``log.order`` judges the same record by record in plain Python and
is what this is tested against; here the facts of a message meet by one shuffle, windows say how each delivery stood
before each row, and one join for each parent compares the two, so that it scales with the cluster. Nothing of the
broker's scheduler is used, and nothing of ``pipeline.completion`` either, which the report shows people: what judges
must not share a mistake with what is judged.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from typing import Any, Final, NamedTuple

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from syncbrok.pipeline.audit import chains as audit_chains
from syncbrok.pipeline.audit import events as audit_events
from syncbrok.pipeline.audit import facts as audit_facts
from syncbrok.pipeline.audit import gates as audit_gates
from syncbrok.pipeline.audit import keys as audit_keys
from syncbrok.pipeline.audit import sequences as audit_sequences
from syncbrok.pipeline.audit import standing as audit_standing
from syncbrok.pipeline.audit import waiting as audit_waiting
from syncbrok.pipeline.audit.declared import declared
from syncbrok.pipeline.audit.gates import Log
from syncbrok.pipeline.audit.lookup import Lookup
from syncbrok.pipeline.audit.rules import VIOLATION, Violation
from syncbrok.pipeline.audit.standing import ADDRESSEE, ATTEMPTS, CARRY, END, STRANGE

MESSAGE_COLUMNS: Final = (
    "sequence", "time", "queue", "id", "parent_sequences", "key", "scope", "parent_failure", "not_before", "expires",
    "only_subscriber", "carried",
)  # fmt: skip
DELIVERY_COLUMNS: Final = (
    "sequence", "position", "message", "subscriber_number", "attempt", "outcome", "reason", "due", "after",
)  # fmt: skip
FACT_COLUMNS: Final = ("sequence", "time", "kind", "detail")
"""what is asked of each kind: Spark prunes no columns of a source in Python"""

_PARTITION_RECORDS: Final = 250_000
_PARTITIONS_MAX: Final = 8_192

Step = Callable[[str], None]


class Proof(NamedTuple):
    """What an audit found and how much it looked at. ``violations``: rule, sequence, message, subscriber, what;
    ``waiting``: message, subscriber, record, queue, time_us, why, ...: every delivery that has not ended. ``counts``
    says how many records, messages, edges, rows, attempts and ends were judged."""

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
) -> Proof:  # fmt: skip
    """As ``audit``, with everything it saw. ``step`` is told what it is at."""
    spark = facts.sparkSession
    step("records")
    extent = audit_sequences.extent(facts)
    rare = audit_facts.rare(facts)
    known = declared(audit_facts.declarations(rare.facts), extent.first)
    small = [*known.violations, *audit_sequences.violations(facts, extent, known.gaps)]
    lookup = Lookup(spark, known, extent.first, extent.last)
    step("deliveries")
    events = _events(messages, deliveries, rare, lookup, extent.records)
    pairs = audit_events.pairs(events, extent.first, lookup.doubt_since(f.col("message")))
    with _sorted_aggregates(spark):
        told = _kept(audit_standing.messages(audit_standing.judged(pairs)))
    stood = told.where("record is not null")
    counts = _counts(stood) | {"records": extent.records, "segments": rare.counts.get("segment_opened", 0)}
    bad = audit_facts.bad(rare.facts)
    has_bad = bool(bad.limit(1).count()) if rare.counts.get("segment_opened") else False
    if counts["chained"]:
        step("messages that count nobody")
        stood = _kept(audit_chains.with_chains(stood, bad if has_bad else None))
    log = Log(
        stood,
        audit_facts.rearmed(rare.facts) if rare.counts.get("rearmed") else None,
        bad if has_bad else None,
        lookup.doubt_since(f.col("parent")),
        extent.first,
    )
    step("parents")
    met = _kept(audit_gates.edges(log))
    at_end = audit_waiting.AtEnd(extent.end_us, lookup.frozen(), counts["keyed"] > 0)
    waits = _kept(audit_waiting.waiting(stood, met, at_end))
    parts = [
        spark.createDataFrame(small, VIOLATION),
        _wrong(told),
        audit_gates.parents(met, stood),
        audit_gates.gates(met, log),
        audit_gates.inversions(met, stood),
    ]
    if counts["keyed"]:
        parts.append(audit_keys.keys(stood))
    if settled or pending_us_max is not None:
        parts.append(audit_waiting.overdue(waits, facts, extent.end_us, None if settled else pending_us_max))
    found = reduce(DataFrame.unionByName, [part.select(*Violation._fields) for part in parts])
    if since_us is not None:
        recent: Any = facts.where(f.unix_micros("time") >= since_us).agg(f.min("sequence").alias("first")).collect()
        found = found.where(f.col("sequence") >= f.lit(recent[0].first or extent.last + 1))
    return Proof(_kept(found), waits, counts)


def _events(
    messages: DataFrame, deliveries: DataFrame, rare: audit_facts.Rare, lookup: Lookup, records: int
) -> DataFrame:
    """All events of all messages, with what was known of each message then."""
    carried = audit_facts.carried(rare.facts) if rare.counts.get("carried_message") else None
    parts = [audit_events.accepted(messages, carried, lookup), audit_events.rows(deliveries, lookup)]
    replayed = bool(rare.counts.get("rearmed"))
    if replayed:
        parts.append(audit_events.replays(audit_facts.rearmed(rare.facts), lookup))
    if carried is not None:
        parts.append(audit_events.carriage(carried, lookup))
    return audit_events.told(parts, min(records // _PARTITION_RECORDS + 1, _PARTITIONS_MAX), replayed=replayed)


def _counts(stood: DataFrame) -> dict[str, int]:
    """One pass over all messages, which also makes what is kept of them."""
    attempts = f.filter("events", lambda one: one.attempt > 0)
    row: Any = stood.agg(
        f.count(f.lit(1)).alias("messages"),
        f.sum(f.size("parents")).alias("edges"),
        f.sum(f.size("counted")).alias("deliveries"),
        f.sum(f.size(attempts)).alias("attempts"),
        f.sum(f.size(f.filter("events", lambda one: one["mode"] != 0))).alias("attempts_judged"),
        f.sum(f.size(f.filter("events", lambda one: one.ends))).alias("ends"),
        f.count(f.when(f.col("key") != "", 1)).alias("keyed"),
        f.count(f.when((f.size("counted") == 0) & (f.size("parents") > 0), 1)).alias("chained"),
        f.count("complete").alias("complete"),
    ).collect()[0]
    return {name: int(value or 0) for name, value in row.asDict().items()}


def _wrong(stood: DataFrame) -> DataFrame:
    """What each event is wrong about by itself."""
    wrong = f.filter("events", lambda one: one.wrong > 0)
    each = stood.where(f.size(wrong) > 0).select("message", f.explode(wrong).alias("one"))
    one = f.col("one")
    named = f.concat(f.upper(f.coalesce(one.outcome, f.lit(""))), f.lit(" (attempt "), one.attempt, f.lit(")"))
    said = {
        STRANGE: ("addressee", f.lit("no such message was accepted")),
        ADDRESSEE: ("addressee", f.lit("the message is not for this subscriber")),
        END: ("end", f.concat(named, f.lit(" after its end in record "), one.ended_by)),
        ATTEMPTS: ("attempts", f.concat(f.lit("attempt "), one.attempt, f.lit(" after attempt "), one.attempts_before)),
        CARRY: ("carried", f.concat(f.lit("is carried as "), f.upper(one.outcome), f.lit(" where it has not ended"))),
    }
    reports = [
        f.when(one.wrong.bitwiseAND(bit) != 0, f.struct(f.lit(rule).alias("rule"), what.alias("what")))
        for bit, (rule, what) in said.items()
    ]
    found = each.select(
        "message", one.seq.alias("sequence"), one.s.alias("subscriber"),
        f.inline(f.filter(f.array(*reports), lambda report: report.isNotNull())),
    )  # fmt: skip
    return found.select("rule", "sequence", "message", "subscriber", "what")


@contextmanager
def _sorted_aggregates(spark: SparkSession) -> Iterator[None]:
    """What is sorted by message already is gathered in that order; a hash table of lists would be given up after 128
    messages and everything sorted once more: half of the time."""
    name = "spark.sql.execution.useObjectHashAggregateExec"
    before = spark.conf.get(name)
    spark.conf.set(name, "false")
    try:
        yield
    finally:
        spark.conf.set(name, str(before))


def _kept(frame: DataFrame) -> DataFrame:
    """Worked out now, once, and kept without how it was made: the plans of the steps that follow stay small. On the
    disk where it is too much for memory; where the session has a checkpoint directory, there, so that the loss of an
    executor costs a step and not the audit."""
    if frame.sparkSession.sparkContext.getCheckpointDir():
        return frame.checkpoint()
    return frame.localCheckpoint(storageLevel=StorageLevel.MEMORY_AND_DISK)
