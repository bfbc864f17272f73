"""Frames of how each delivery stands and when each message became complete, from the facts alone.

``states``       a row for each delivery
``completions``  a row for each message

Ends follow ``OrderChecker`` and RULES 3, 10, 14, 17 and 20. A message counts the subscribers whose first fact stands
before it and that were not gone by then (a test message counts one of them). A row for all subscribers ends all open
deliveries. Deleting a subscriber or a queue drops the open deliveries there. A replay opens a delivery again, and
completion never goes back. A moment is given as the **record** that says so (a sequence; later records could know of
it) and as that record's time, which is when it became durable.

The three data frames are those of the source; the columns that are needed are ``MESSAGES``, ``DELIVERIES`` and
``FACTS`` (``scope`` and ``parent_failure`` may be missing: they are ``all`` and ``fail`` then). They must end at the
same record: those of one ``LogAndArchive`` do. All is lazy but for what ``declared_facts.read`` and
``with_waiting_messages`` look at; who calls both functions reads them before (``declared_facts.read``) and passes that
for ``facts``.

Cost: each kind of rows is read once and brought together by message, in one shuffle of blocks (``message_groups``);
numpy does the rest (``completion_state``). Plans of Spark that say the same take longer to make than a small log takes
to read."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial, reduce
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from syncbrok.pipeline.completion.message_groups import GroupMapper, MessageGroup, map_groups
from syncbrok.pipeline.kept import kept
from syncbrok.pipeline.map_in_arrow import RecordBatches
from syncbrok.pipeline.numpy_columns import NEVER, Longs
from syncbrok.pipeline.row_ranges import ROWS_AT_ONCE, range_by_range
from syncbrok.pipeline.schema import STATES, TIME, ddl
from syncbrok.pipeline.shuffle_blocks import batches_of
from syncbrok.pipeline.states import declared_facts, delivery_states
from syncbrok.pipeline.states.declared_facts import DeclaredFacts, SequenceSpan
from syncbrok.pipeline.states.input_columns import HAS_PARENTS, SAME

MESSAGES: Final = (
    *("sequence", "time", "queue", "only_subscriber", "not_before"),
    *("scope", "parent_failure", "parent_sequences"),
)
DELIVERIES: Final = (
    *("sequence", "position", "recorded", "message", "subscriber_number"),
    *("attempt", "outcome", "reason", "time"),
)
FACTS: Final = ("sequence", "time", "kind", "detail")

_AT_ONCE: Final = "subscribers = 0 and has_parents and complete_record = message"
"""a message without counted subscribers that no row has ended"""
_COMPLETIONS: Final = (
    "message bigint, queue string, accepted_at timestamp, ready_at timestamp, has_parents boolean, same boolean, "
    "subscribers bigint, open bigint, first_attempt_at timestamp, attempts bigint, ended_record bigint, "
    "ended_at timestamp, complete_record bigint, complete_at timestamp, outcome string, rearmed_at timestamp, "
    "last_at timestamp, last_subscriber bigint"
)


def states(messages: DataFrame, deliveries: DataFrame, facts: DataFrame | DeclaredFacts) -> DataFrame:
    """How each delivery of ``messages`` stands, as rows of ``schema.STATES``: what the source reads from a log as kind
    ``states``, of an archive, or of log and archive."""
    return map_groups(*_needed(messages, deliveries), declared_facts.read(facts), GroupMapper(_states, ddl(STATES)))


def completions(messages: DataFrame, deliveries: DataFrame, facts: DataFrame | DeclaredFacts) -> DataFrame:
    """A row for each of ``messages``.

    ``message``, ``queue``, ``accepted_at``, ``ready_at``, ``has_parents``, ``same``: as of ``ends``
    ``subscribers`` (how many it counts), ``open`` (how many of them have not ended, or are open again by a replay)
    ``first_attempt_at``, ``attempts`` (of all its deliveries together)
    ``ended_record``, ``ended_at``: when for the first time every counted delivery had ended; null while not
    ``complete_record``, ``complete_at``: when it became complete; null while it is not
    ``outcome``: how it stands: complete, dead, expired, dropped (by an operator), or null while something is open
    ``rearmed_at``, ``last_at``: when a replay opened it again, and its very last end
    ``last_subscriber``: the number of the one that kept it longest: that has not ended, else that ended badly, else
    that ended last (of several alike the one with the smallest number)
    """
    found = declared_facts.read(facts)
    return _completions(messages, deliveries, with_waiting_messages(messages, deliveries, found))


def _completions(messages: DataFrame, deliveries: DataFrame, found: DeclaredFacts) -> DataFrame:
    return map_groups(*_needed(messages, deliveries), found, GroupMapper(partial(completion_rows, ()), _COMPLETIONS))


def _needed(messages: DataFrame, deliveries: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Both frames with the needed columns alone, as far as they have them."""
    return messages.select(*(name for name in MESSAGES if name in messages.columns)), deliveries.select(*DELIVERIES)


# -- told -------------------------------------------------------------------------------------------------------------


def _states(group: MessageGroup) -> pa.Table:
    return delivery_states.states(group.table, group.state, group.known)


def completion_rows(more: tuple[str, ...], group: MessageGroup) -> pa.Table:
    """The columns of ``completions``, and the message columns named in ``more``."""
    mine = group.state.messages
    come_along = group.table.select(["queue", *more]).take(pa.array(mine.row))
    return pa.table(
        {
            "message": pa.array(mine.message),
            "queue": come_along["queue"],
            "accepted_at": _time(mine.accepted),
            "ready_at": _time(mine.ready),
            "has_parents": pa.array(mine.holds & HAS_PARENTS > 0),
            "same": pa.array(mine.holds & SAME > 0),
            "subscribers": pa.array(mine.subscribers),
            "open": pa.array(mine.open),
            "first_attempt_at": _time(mine.first_attempt),
            "attempts": pa.array(mine.attempts),
            "ended_record": _number(mine.ended),
            "ended_at": _time(mine.ended_at),
            "complete_record": _number(mine.complete),
            "complete_at": _time(mine.complete_at),
            "outcome": mine.outcome,
            "rearmed_at": _time(mine.rearmed_at),
            "last_at": _time(mine.last_at),
            "last_subscriber": _number(mine.last_subscriber),
            **{name: come_along[name] for name in more},
        }
    )


def _number(values: Longs) -> pa.Array:
    return pa.array(values, mask=values == NEVER)


def _time(values: Longs) -> pa.Array:
    return _number(values).cast(TIME)


# -- messages that nobody is subscribed to ----------------------------------------------------------------------------


def with_waiting_messages(
    messages: DataFrame, deliveries: DataFrame, found: DeclaredFacts, rows_at_once: int = ROWS_AT_ONCE
) -> DeclaredFacts:
    """``found`` with ``waiting`` filled in. These are the messages with parents that count no subscriber, that no row
    has ended, and of which a parent was not complete when they were accepted. (If all parents were, such a message was
    complete at once, and no record says so.) In most logs the declarations tell that there are none; in others the
    messages are read. ``rows_at_once``: so many of their edges are in one task."""
    spans = [_within(span) for span in declared_facts.spans_without_subscribers(found)]
    parents = f.size("parent_sequences")
    silent = messages.where((parents > 0) & reduce(Column.__or__, spans)) if spans else None
    counted = None if silent is None else silent.agg(f.sum(parents).alias("edges")).first()
    if counted is None or not counted["edges"]:
        return found
    every = _completions(messages, deliveries, found)
    deliver = f.col("parent_failure") == "deliver" if "parent_failure" in messages.columns else f.lit(False)
    at_once = every.where(_AT_ONCE)
    chosen = at_once.select(f.col("message").alias("sequence"))
    edges = messages.join(chosen, "sequence", "left_semi").select(
        f.col("sequence").alias("child"), deliver.alias("deliver"), f.explode("parent_sequences").alias("message")
    )
    record = f.when(f.col("deliver"), f.col("ended_record")).otherwise(f.col("complete_record"))
    late = record.isNull() | (record > f.col("child"))
    above = every.join(edges, "message").select("child", "message", late.alias("late"), f.expr(_AT_ONCE).alias("same"))
    waiting = range_by_range(above.where("late or same"), "child", counted["edges"], _waiting_in_range, rows_at_once)
    return replace(found, waiting=kept(waiting))


def _waiting_in_range(above: DataFrame, before: DataFrame | None) -> DataFrame:
    if before is not None:
        known = before.withColumn("is_waiting", f.lit(True))
        late = f.col("late") | f.coalesce("is_waiting", f.lit(False))
        above = above.join(known, "message", "left").select("child", "message", late.alias("late"))
    return above.select("child", "message", "late").repartition(1).mapInArrow(_waiting, "message bigint")


def _waiting(batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    """The children in late rows of what is above them and all their descendants. The log does not say when a message
    without counted subscribers is complete that waits for another such message."""
    some = [batch for batch in batches if batch.num_rows]
    if not some:
        return
    above = pa.Table.from_batches(some)
    found = set(above.filter(above["late"])["child"].to_pylist())
    rows = above.sort_by("child")  # an order that has parents before their children
    for child, parent in zip(rows["child"].to_pylist(), rows["message"].to_pylist(), strict=True):
        if parent in found:
            found.add(child)
    yield from batches_of(pa.table({"message": pa.array(sorted(found), pa.int64())}))


def _within(span: SequenceSpan) -> Column:
    """The condition that a message is of ``span``."""
    after = (f.col("queue") == span.queue) & (f.col("sequence") > span.after)
    return after if span.before is None else after & (f.col("sequence") < span.before)
