"""When each delivery ended and when each message became complete, from the facts alone.

``ends``         a row for each (message, subscriber) that the message is for, or that rows are about
``completions``  a row for each message

What is taken as an end, and for whom, follows ``log.order`` and RULES 3, 10, 14, 17 and 20: a message counts the
subscribers whose first fact stands before it and that were not gone by then (a test message one of them); a row for all
subscribers ends what is open; who deletes a subscriber or a queue drops what is open there; a replay opens a delivery
again, and completion never goes back. A moment is given as the **record** that says so (a sequence: what stands behind
it in the log could know of it) and as that record's time, which is when it became durable.

The three data frames are those of the source; the columns that are needed are ``MESSAGES``, ``DELIVERIES`` and
``FACTS`` (``scope`` and ``parent_failure`` may be missing: they are ``all`` and ``fail`` then). They must end at the
same record: those of one ``Whole`` do. All is lazy but for the rare facts, which are read at once; who calls both
functions reads them before (``completion_declared.read``) and passes that for ``facts``.

Cost: deliveries are brought together by message once and counted in a hash aggregate. Only messages of a replay, whose
history has an order, go through windows (``completion_replays``).
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from syncbrok.model.facts import ALL_SUBSCRIBERS
from syncbrok.pipeline.completion import declared, replays
from syncbrok.pipeline.completion.declared import Tables
from syncbrok.pipeline.completion.history import DELIVERY, HAS_PARENTS, SAME, addressed, changes, gone_end
from syncbrok.pipeline.completion.moments import ENDS, good, outcome_of, packed, reason_of, record_of

MESSAGES: Final = (
    *("sequence", "time", "queue", "only_subscriber", "not_before"),
    *("scope", "parent_failure", "parent_sequences"),
)
DELIVERIES: Final = (
    *("sequence", "position", "recorded", "message", "subscriber_number"),
    *("attempt", "outcome", "reason", "time"),
)
FACTS: Final = ("sequence", "time", "kind", "detail")


def ends(messages: DataFrame, deliveries: DataFrame, facts: DataFrame | Tables) -> DataFrame:
    """A row for each counted delivery, and for each other one that rows are about (a subscriber that catches up, a
    message that is not in ``messages``); a message without counted subscribers has one row whose subscriber is null.

    ``message``, ``subscriber`` (number), ``subscriber_id``, ``queue``, ``counted``
    ``accepted_at``, ``ready_at`` (when it could have gone, its parents apart: a delay is over then), ``has_parents``,
    ``same`` (its scope): null where not counted
    ``first_attempt_at``, ``attempts`` (the number of the last one; 0: none)
    ``ended_record``, ``ended_at``, ``outcome``, ``reason``: its first end; null while it has none
    ``last_record``, ``last_at``, ``last_outcome``, ``last_reason``: how it stands; differs from the first end only
    after a replay, and is null while that has opened it again
    ``rearmed_at``: when the latest replay opened it again, null for none
    ``gone_record``: of the fact that deleted the subscriber
    """
    tables = declared.read(facts)
    who = tables.subscribers.select(
        "subscriber", "subscriber_id", f.col("queue").alias("of"), "gone_record", "gone_at", "gone_with_queue"
    )
    joined = (
        _gathered(messages, deliveries, tables)
        .join(f.broadcast(who), "subscriber", "left")
        .join(f.broadcast(tables.queues), "queue_code", "left")
    )
    joined = _with_replays(joined, messages, deliveries, tables)
    end, at = _first_end()
    first, first_at = _unless_replayed("first", end, at)
    last, last_at = _unless_replayed("last", end, at)
    named = joined.withColumns({"first": first, "first_when": first_at, "last": last, "last_when": last_at})
    return named.select(
        *DELIVERY,
        "subscriber_id",
        f.coalesce("queue", "of").alias("queue"),
        (f.col("counted") & f.col("subscriber").isNotNull()).alias("counted"),
        "accepted_at",
        "ready_at",
        (f.col("holds").bitwiseAND(HAS_PARENTS) > 0).alias("has_parents"),
        (f.col("holds").bitwiseAND(SAME) > 0).alias("same"),
        "first_attempt_at",
        f.coalesce("attempts", f.lit(0)).alias("attempts"),
        *_told("first", "ended_record", "ended_at", "outcome", "reason"),
        *_told("last", "last_record", "last_at", "last_outcome", "last_reason"),
        "rearmed_at",
        "gone_record",
    )


def completions(
    messages: DataFrame, deliveries: DataFrame, facts: DataFrame | Tables, ended: DataFrame | None = None
) -> DataFrame:
    """A row for each of ``messages``; ``ended`` is what ``ends`` made of the same data where that is at hand.

    ``message``, ``queue``, ``accepted_at``, ``ready_at``, ``has_parents``, ``same``: as of ``ends``
    ``subscribers`` (how many it counts), ``open`` (how many of them have not ended, or are open again by a replay)
    ``first_attempt_at``, ``attempts`` (of all its deliveries together)
    ``ended_record``, ``ended_at``: when for the first time every counted delivery had ended; null while not
    ``complete_record``, ``complete_at``: when it became complete; null while it is not
    ``outcome``: how it stands: complete, dead, expired, dropped (by an operator), or null while something is open
    ``rearmed_at``, ``last_at``: when a replay opened it again, and its very last end
    ``last_subscriber``: the number of the one that kept it longest: that has not ended, else that ended badly, else
    that ended last (of several alike any)

    Of messages without counted subscribers, one that waits below another of its kind that waits itself is taken for
    complete: the log says nothing of either, and only one step up is looked at.
    """
    tables = declared.read(facts)
    ended = ends(messages, deliveries, tables) if ended is None else ended
    told = _by_message(ended)
    history = changes(messages, deliveries, tables)
    if history is not None:
        told = _mended(told, replays.messages(history))
    waiting = _waiting_for_parents(messages, ended, told)
    return _decided(told.join(f.broadcast(waiting), "message", "left"))


_MOMENTS: Final = ("ended_record", "ended_at", "complete_record", "complete_at")


# -- deliveries -------------------------------------------------------------------------------------------------------


def _own_rows(deliveries: DataFrame, tables: Tables) -> DataFrame:
    """``message``, ``subscriber``, ``own_end`` and ``own_at`` (null: it ended nothing), ``attempt``, ``attempt_at``."""
    ends_it = f.col("outcome").isin(*ENDS)
    rows = deliveries.where(f.col("subscriber_number") != ALL_SUBSCRIBERS).select(
        "message",
        f.col("subscriber_number").alias("subscriber"),
        f.when(ends_it, packed(f.col("sequence"), f.col("outcome"), f.col("reason"))).alias("own_end"),
        f.when(ends_it, f.col("recorded")).alias("own_at"),
        f.col("attempt").cast("bigint").alias("attempts"),
        f.when(f.col("attempt") > 0, f.col("time")).alias("attempt_at"),
    )
    if tables.carried_ends is not None:
        end = packed(f.col("record"), f.col("outcome"), f.lit("none"))
        carried = tables.carried_ends.select(*DELIVERY, end.alias("own_end"), f.col("at").alias("own_at"))
        rows = rows.unionByName(carried, allowMissingColumns=True)
    if tables.carried_attempts is not None:
        rows = rows.unionByName(tables.carried_attempts, allowMissingColumns=True)
    return rows


def _whole_rows(deliveries: DataFrame) -> DataFrame:
    """``message``, ``whole_end``, ``whole_at``: the first row that ended all that was open of it."""
    whole = deliveries.where((f.col("subscriber_number") == ALL_SUBSCRIBERS) & f.col("outcome").isin(*ENDS))
    end = packed(f.col("sequence"), f.col("outcome"), f.col("reason"))
    return whole.groupBy("message").agg(f.min(end).alias("whole_end"), f.min("recorded").alias("whole_at"))


def _gathered(messages: DataFrame, deliveries: DataFrame, tables: Tables) -> DataFrame:
    """One row for each delivery, of numbers and times alone."""
    whole = _whole_rows(deliveries).withColumnRenamed("message", "sequence")
    codes = tables.queues.withColumnRenamed("queue", "to")
    whom = addressed(messages.join(whole, "sequence", "left"), tables, "whole_end", "whole_at")
    counted = whom.join(f.broadcast(codes), "to", "left").select(
        *DELIVERY,
        f.lit(True).alias("counted"),
        "accepted_at",
        "ready_at",
        "holds",
        "queue_code",
        "whole_end",
        "whole_at",
    )
    together = counted.unionByName(_own_rows(deliveries, tables), allowMissingColumns=True).repartition("message")
    return together.groupBy(*DELIVERY).agg(
        *(
            f.max(name).alias(name)
            for name in ("counted", "accepted_at", "ready_at", "holds", "queue_code", "attempts")
        ),
        *(f.min(name).alias(name) for name in ("whole_end", "whole_at", "own_end", "own_at")),
        f.min("attempt_at").alias("first_attempt_at"),
    )


def _first_end() -> tuple[Column, Column]:
    """The packed end of a delivery that no replay has opened again, and its time."""
    own, whole, gone = f.col("own_end"), f.col("whole_end"), f.col("gone_record")
    end = f.least(own, whole)
    at = f.when(own <= f.coalesce(whole, own), f.col("own_at")).otherwise(f.col("whole_at"))
    dropped = f.col("counted") & gone.isNotNull() & (end.isNull() | (record_of(end) > gone))
    return f.when(dropped, gone_end()).otherwise(end), f.when(dropped, f.col("gone_at")).otherwise(at)


def _unless_replayed(which: str, end: Column, at: Column) -> tuple[Column, Column]:
    replayed = f.col("replayed")
    return (
        f.when(replayed, f.col(f"{which}_end")).otherwise(end),
        f.when(replayed, f.col(f"{which}_at")).otherwise(at),
    )


def _told(end: str, record: str, at: str, outcome: str, reason: str) -> tuple[Column, ...]:
    """A packed end as columns of these names."""
    return (
        record_of(f.col(end)).alias(record),
        f.col(f"{end}_when").alias(at),
        outcome_of(f.col(end)).alias(outcome),
        reason_of(f.col(end)).alias(reason),
    )


# -- replays ----------------------------------------------------------------------------------------------------------


def _with_replays(joined: DataFrame, messages: DataFrame, deliveries: DataFrame, tables: Tables) -> DataFrame:
    """With ``first_end``, ``first_at``, ``last_end``, ``last_at`` and ``replayed``, null where no replay has been."""
    history = changes(messages, deliveries, tables)
    if history is None:
        return joined.withColumns({name: f.lit(None).cast(kind) for name, kind in _REPLAYED.items()})
    exact = replays.deliveries(history).withColumn("replayed", f.lit(True))
    return joined.join(f.broadcast(exact), list(DELIVERY), "left")


_REPLAYED: Final = {"first_end": "bigint", "first_at": "timestamp", "last_end": "bigint", "last_at": "timestamp"} | {
    "rearmed_at": "timestamp",
    "replayed": "boolean",
}


def _mended(told: DataFrame, mended: DataFrame) -> DataFrame:
    exact = mended.select(
        "message", *(f.col(name).alias(f"replay_{name}") for name in _MOMENTS), f.lit(True).alias("re")
    )
    return told.join(f.broadcast(exact), "message", "left").withColumns(
        {name: f.when(f.col("re"), f.col(f"replay_{name}")).otherwise(f.col(name)) for name in _MOMENTS}
    )


# -- messages ---------------------------------------------------------------------------------------------------------


def _by_message(ended: DataFrame) -> DataFrame:
    """A row for each message with an accepted delivery or none, replays apart; ``nobody``: it counts no subscriber."""
    own = ended.where(f.col("counted") | f.col("subscriber").isNull())
    counted, closed = f.col("counted"), f.col("ended_record").isNotNull()
    bad = ~good(f.col("outcome"), f.col("reason"))
    bad_now = ~good(f.col("last_outcome"), f.col("last_reason"))
    stands_bad = bad_now & (f.col("gone_record").isNull() | (f.col("last_outcome") == "dropped"))

    def worst(outcome: str) -> Column:
        return f.max((f.col("last_outcome") == outcome) & stands_bad).alias(f"some_{outcome}")

    found = own.groupBy("message", "queue").agg(
        f.max(f.col("subscriber").isNull()).alias("nobody"),
        f.max("accepted_at").alias("accepted_at"),
        f.max("has_parents").alias("has_parents"),
        f.max("same").alias("same"),
        f.max("ready_at").alias("ready_at"),
        f.max("rearmed_at").alias("rearmed_at"),
        f.max("last_at").alias("last_at"),
        f.sum(counted.cast("int")).alias("subscribers"),
        f.sum((counted & f.col("last_record").isNull()).cast("int")).alias("open"),
        f.sum((~closed).cast("int")).alias("unended"),
        f.min("first_attempt_at").alias("first_attempt_at"),
        f.sum("attempts").alias("attempts"),
        f.max("ended_record").alias("last_end"),
        f.max("ended_at").alias("last_end_at"),
        f.max(f.when(bad, f.coalesce(f.col("gone_record"), f.lit(_NEVER)))).alias("bad_until"),
        *(worst(outcome) for outcome in ("dead", "expired", "dropped")),
        f.max_by("subscriber", _holds_longest(stands_bad)).alias("last_subscriber"),
    )
    closed_all = f.col("unended") == 0
    well = closed_all & f.coalesce(f.col("bad_until") < f.col("last_end"), f.lit(True))
    return found.withColumns(
        {
            "ended_record": f.when(closed_all, f.col("last_end")),
            "ended_at": f.when(closed_all, f.col("last_end_at")),
            "complete_record": f.when(well, f.col("last_end")),
            "complete_at": f.when(well, f.col("last_end_at")),
        }
    )


def _holds_longest(bad: Column) -> Column:
    last = f.col("last_record")
    return f.when(last.isNull(), f.lit(_NEVER)).when(bad, last + f.lit(_NEVER >> 1)).otherwise(last)


_NEVER: Final = 1 << 62


def _waiting_for_parents(messages: DataFrame, ended: DataFrame, told: DataFrame) -> DataFrame:
    """``message`` and ``waiting``: of those that count no subscriber, have parents and no row that ended them, the ones
    of which a parent was not complete when they were accepted. (Where all were, they were complete at once, and no
    record says so.)"""
    silent = ended.where(f.col("subscriber").isNull() & f.col("ended_record").isNull() & f.col("has_parents"))
    some = f.broadcast(silent.select(f.col("message").alias("sequence")))
    deliver = f.col("parent_failure") == "deliver" if "parent_failure" in messages.columns else f.lit(False)
    edges = messages.join(some, "sequence", "left_semi").select(
        f.col("sequence").alias("child"), deliver.alias("deliver"), f.explode("parent_sequences").alias("message")
    )
    record = f.when(f.col("deliver"), f.col("ended_record")).otherwise(f.col("complete_record"))
    delayed = f.col("nobody") & f.col("ended_record").isNull() & (f.col("ready_at") > f.col("accepted_at"))
    open_ = (record.isNull() & ~f.col("nobody")) | (record > f.col("child"))
    late = told.join(f.broadcast(edges), "message").where(open_ | delayed)
    return late.select(f.col("child").alias("message")).distinct().withColumn("waiting", f.lit(True))


def _decided(told: DataFrame) -> DataFrame:
    """The columns of ``completions``."""
    silent = f.col("nobody") & f.col("ended_record").isNull() & f.col("waiting").isNull()
    at_once = silent & (f.col("ready_at") <= f.col("accepted_at"))
    moments = {
        "ended_record": f.when(at_once, f.col("message")).otherwise(f.col("ended_record")),
        "ended_at": f.when(at_once, f.col("accepted_at")).otherwise(f.col("ended_at")),
        "complete_record": f.when(at_once, f.col("message")).otherwise(f.col("complete_record")),
        "complete_at": f.when(at_once, f.col("accepted_at")).otherwise(f.col("complete_at")),
    }
    outcome = (
        f.when(f.col("complete_record").isNotNull(), "complete")
        .when(f.col("ended_record").isNull() | (f.col("open") > 0), None)
        .when(f.col("some_dropped"), "dropped")
        .when(f.col("some_expired"), "expired")
        .otherwise("dead")
    )
    return told.withColumns(moments).select(
        *("message", "queue", "accepted_at", "ready_at", "has_parents", "same", "subscribers", "open"),
        *("first_attempt_at", "attempts", *_MOMENTS),
        outcome.alias("outcome"),
        *("rearmed_at", "last_at", "last_subscriber"),
    )
