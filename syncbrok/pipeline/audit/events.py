"""Everything that happens to a delivery, one row each and in the order of the log, with how things stood before it.

Facts about one message come together by one shuffle: its acceptance, the rows about it, replays that re-arm it, records
that carry it. Windows over them then say what ``log.order`` keeps in dictionaries. An event is about a message and a
subscriber ``s``, at (``seq``, ``pos``) in the log:

=============  =====================================================================================================
``ACCEPTED``   the message stands in this record: its own, or the one that carries it; ``s`` is 0
``ROW``        a row for one subscriber
``ALL``        a row that ends all: what it means for each subscriber; and once more for the message, with ``s`` 0
``PURGED``     its queue was deleted
``GONE``       the subscriber was deleted
``REARMED``    a replay sends it again
``CARRIED``    the record that carries it says that it had ended there
``TRIED``      the same, that it had been tried (``attempt`` times)
``CLAIMED``    a record carries it, though the log still has its own, and says that it had ended there
``STRANGER``   a row about a message that was not known, though it should be
=============  =====================================================================================================
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from syncbrok.pipeline.audit.lookup import Lookup
from syncbrok.pipeline.audit.rules import ALL as EVERYBODY
from syncbrok.pipeline.audit.rules import BAD_OUTCOMES, BY_OPERATOR

ACCEPTED: Final = 0
ROW: Final = 1
ALL: Final = 2
PURGED: Final = 3
GONE: Final = 4
REARMED: Final = 5
CARRIED: Final = 6
TRIED: Final = 7
CLAIMED: Final = 8
STRANGER: Final = 9

_ABOUT: Final = ("queue_no", "queue_gone", "only", "counted", "counted_gone", "doubt")
"""of a message: what its events are judged by"""
_KEPT: Final = ("queue", "time_us", "key", "is_same", "policy", "parents", "id", "not_before_us", "expires_us", "own")
"""of a message: what is asked for later"""
_NULLS: Final = {
    "queue_no": "bigint", "queue_gone": "bigint", "only": "int", "counted": "array<bigint>",
    "counted_gone": "array<bigint>", "doubt": "bigint", "queue": "string", "time_us": "bigint", "key": "string",
    "is_same": "boolean", "policy": "string", "parents": "array<bigint>", "id": "string", "not_before_us": "bigint",
    "expires_us": "bigint", "own": "boolean", "attempt": "int", "is_late": "boolean", "is_end": "boolean",
    "good": "boolean", "after": "bigint", "due_us": "bigint", "replay": "bigint", "outcome": "string",
    "s_queue": "bigint", "s_begins": "bigint", "s_gone": "bigint",
    "s_starts": "array<struct<record: bigint, start: bigint>>",
}  # fmt: skip


def accepted(messages: DataFrame, carried: DataFrame | None, lookup: Lookup) -> DataFrame:
    """An event for each message. Where only carried records are left of one, the first of them is its record."""
    own = messages.select(
        "sequence",
        "queue",
        f.unix_micros("time").alias("time_us"),
        "id",
        f.coalesce("parent_sequences", f.array().cast("array<bigint>")).alias("parents"),
        "key",
        (f.col("scope") == "same").alias("is_same"),
        f.col("parent_failure").alias("policy"),
        f.unix_micros("not_before").alias("not_before_us"),
        f.unix_micros("expires").alias("expires_us"),
        f.col("only_subscriber").alias("only"),
        (~f.col("carried")).alias("own"),
    )
    if carried is None:
        placed = own.withColumn("record", f.col("sequence"))
    else:
        first = carried.groupBy("message").agg(f.min("record").alias("first"))
        placed = own.join(f.broadcast(first), f.col("sequence") == f.col("message"), "left").withColumn(
            "record", f.when(f.col("own"), f.col("sequence")).otherwise(f.coalesce("first", "sequence"))
        )
        # A message may be carried more than once; its first carried record counts, the others are claims.
        again = Window.partitionBy("sequence").orderBy(f.desc("own"), "record")
        lost = placed.where(~f.col("own")).withColumn("nth", f.row_number().over(again)).where("nth = 1")
        placed = placed.where("own").unionByName(lost.drop("nth"))
    doubt = lookup.doubt_since(f.col("sequence"), f.col("record")).alias("doubt")
    return lookup.with_audience(placed).select(
        f.col("sequence").alias("message"), f.col("record").alias("seq"), f.lit(-1).alias("pos"),
        f.lit(ACCEPTED).alias("ev"), f.lit(0).cast("bigint").alias("s"), doubt,
        *(one for one in _ABOUT if one != "doubt"), *_KEPT,
    )  # fmt: skip


def rows(deliveries: DataFrame, lookup: Lookup) -> DataFrame:
    """An event for each row of an outcomes record."""
    is_good = ~f.col("outcome").isin(*BAD_OUTCOMES) & ~f.col("reason").isin(*BY_OPERATOR)
    return lookup.with_subscriber(
        deliveries.select(
            "message",
            f.col("sequence").alias("seq"),
            f.col("position").alias("pos"),
            f.when(f.col("subscriber_number") == EVERYBODY, ALL).otherwise(ROW).alias("ev"),
            f.col("subscriber_number").alias("s"),
            "attempt",
            (f.col("outcome") == "late").alias("is_late"),
            (~f.col("outcome").isin("failed", "late")).alias("is_end"),
            is_good.alias("good"),
            # Nothing can have begun behind its own record: such a claim must not open a gate.
            f.least("after", f.col("sequence") - 1).alias("after"),
            f.unix_micros("due").alias("due_us"),
            "outcome",
        )
    )


def replays(rearmed: DataFrame, lookup: Lookup) -> DataFrame:
    """An event for each message and subscriber that a replay re-arms."""
    each = rearmed.select(
        "message", f.col("record").alias("seq"), f.col("position").alias("pos"), f.lit(REARMED).alias("ev"),
        f.explode("subscribers").alias("s"), "replay",
    )  # fmt: skip
    return lookup.with_subscriber(each)


def carriage(carried: DataFrame, lookup: Lookup) -> DataFrame:
    """What carried records say of deliveries, as claims: ``pairs`` sees which of them are all that is known."""
    ended = carried.select("message", "record", f.posexplode("ended").alias("pos", "one")).select(
        "message", f.col("record").alias("seq"), "pos", f.lit(CLAIMED).alias("ev"), f.col("one.s").alias("s"),
        f.col("one.good").alias("good"), f.col("one.outcome").alias("outcome"),
    )  # fmt: skip
    tried = carried.select("message", "record", f.posexplode("tried").alias("pos", "one")).select(
        "message", f.col("record").alias("seq"), "pos", f.lit(TRIED).alias("ev"), f.col("one.s").alias("s"),
        f.col("one.attempts").alias("attempt"), f.col("one.due_us").alias("due_us"),
    )  # fmt: skip
    return lookup.with_subscriber(ended.unionByName(tried, allowMissingColumns=True))


def told(parts: list[DataFrame], partitions: int, *, replayed: bool) -> DataFrame:
    """All events, brought together by message, each with what was known of its message then (``about``) and whom
    replays had sent it to again (``again``); ``replayed``: there are any."""
    names = ["message", "seq", "pos", "ev", "s", *_NULLS]
    full = [_filled(part).select(*names) for part in parts]
    together = full[0]
    for part in full[1:]:
        together = together.unionByName(part)
    so_far = Window.partitionBy("message").orderBy("seq", "pos")
    said = f.when(f.col("ev") == ACCEPTED, f.struct(f.col("seq").alias("record"), *_ABOUT))
    ever = f.when(f.col("ev") == REARMED, f.col("s"))
    return (
        together.repartition(partitions, "message")
        .withColumn("about", f.last(said, ignorenulls=True).over(so_far))
        .withColumn("again", f.collect_set(ever).over(so_far) if replayed else f.array().cast("array<bigint>"))
        .drop(*_ABOUT)
    )


def _filled(part: DataFrame) -> DataFrame:
    missing = {name: f.lit(None).cast(kind) for name, kind in _NULLS.items() if name not in part.columns}
    return part.withColumns(missing) if missing else part


def pairs(events: DataFrame, first: int, doubt: Column) -> DataFrame:
    """The same, an event for each subscriber it means something to. What is about a message that was not known then is
    left out, but for rows that have no excuse (``STRANGER``): it was not dropped by retention, which has left the log
    from ``first`` on, nor lost in a gap (``doubt``: since when, by the row's ``message``). Rows for a subscriber that
    had been deleted are left out as well."""
    here = [f.col(name) for name in ("seq", "pos", "ev", "s", "good")]
    keep = _event(*here)
    counted, gone = f.col("about.counted"), f.col("about.counted_gone")
    queue_gone = f.col("about.queue_gone")
    deleted = f.filter(
        f.transform(counted, lambda s, at: _event(gone[at], f.lit(1), f.lit(GONE), s, f.lit(True))),
        lambda one: one.seq.isNotNull(),
    )
    everybody = f.array_union(counted, f.col("again"))
    nobody = f.array(f.lit(0).cast("bigint"))
    all_of_it = f.when(queue_gone > f.col("seq"), f.concat(nobody, counted))
    purged = _each(all_of_it, queue_gone, f.lit(0), PURGED, good=False)
    born = f.concat(f.array(keep), deleted, purged)
    ended = f.concat(
        f.array(_event(f.col("seq"), f.col("pos"), f.lit(ALL), f.lit(0).cast("bigint"), f.col("good"))),
        f.transform(everybody, lambda s: _event(f.col("seq"), f.col("pos"), f.lit(ALL), s, f.col("good"))),
    )
    again = f.concat(
        f.array(keep),
        f.when(
            f.col("s_gone") > f.col("seq"),
            f.array(_event(f.col("s_gone"), f.lit(1), f.lit(GONE), f.col("s"), f.lit(True))),
        ).otherwise(f.array().cast(_EVENTS)),
        _each(f.when(queue_gone > f.col("seq"), f.array("s")), queue_gone, f.lit(0), PURGED, good=False),
    )
    is_birth = f.col("seq") == f.col("about.record")
    carried = f.array(_event(f.col("seq"), f.col("pos"), f.lit(CARRIED), f.col("s"), f.col("good")))
    is_known = f.coalesce((f.col("about.record") < f.col("seq")) | is_birth, f.lit(False))
    is_gone = (f.col("message") < first) | f.coalesce(doubt < f.col("seq"), f.lit(False))
    is_strange = f.col("ev").isin(ROW, ALL) & ~is_known & ~is_gone
    strange = f.array(_event(f.col("seq"), f.col("pos"), f.lit(STRANGER), f.col("s"), f.col("good")))
    means = (
        f.when(~is_known, strange)
        .when(f.col("ev") == ACCEPTED, born)
        .when(f.col("ev") == ALL, ended)
        .when(f.col("ev") == REARMED, again)
        .when((f.col("ev") == CLAIMED) & is_birth, carried)
        .otherwise(f.array(keep))
    )
    is_late_for = (f.col("ev") == ROW) & (f.coalesce(f.col("s_gone"), f.col("seq")) < f.col("seq"))
    is_moot = (f.col("ev") == TRIED) & ~is_birth
    others = [name for name in events.columns if name not in ("seq", "pos", "ev", "s", "good", "again", "about")]
    about = [f.col(f"about.{name}").alias(name) for name in ("record", "queue_no", "only", "counted", "doubt")]
    meant = events.where((is_known & ~is_late_for & ~is_moot) | is_strange).select(*others, *about, f.inline(means))
    # From here on only the acceptance itself says whom the message counts.
    return meant.withColumn("is_counted", f.coalesce(f.array_contains("counted", f.col("s")), f.lit(False))).withColumn(
        "counted", f.when(f.col("ev") == ACCEPTED, f.col("counted"))
    )


_EVENTS: Final = "array<struct<seq: bigint, pos: int, ev: int, s: bigint, good: boolean>>"


def _event(seq: Column, pos: Column, ev: Column, s: Column, good: Column) -> Column:
    return f.struct(seq.alias("seq"), pos.alias("pos"), ev.alias("ev"), s.alias("s"), good.alias("good"))


def _each(numbers: Column, seq: Column, pos: Column, ev: int, *, good: bool) -> Column:
    made = f.transform(numbers, lambda s: _event(seq, pos, f.lit(ev), s, f.lit(good)))
    return f.coalesce(made, f.array().cast(_EVENTS))
