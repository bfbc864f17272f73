"""How each delivery stood before each event, what is wrong with the event itself, and what became of each message.

``judged`` looks at the events of one message at one subscriber; ``messages`` makes one row of each message, with the
records with which it ended (``ended``) and became complete (``complete``): they never go back (RULES 21). A message
that counts nobody is complete once its parents are; ``audit_chains`` says when that was.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from syncbrok.pipeline.audit.events import ACCEPTED, ALL, CARRIED, CLAIMED, GONE, PURGED, REARMED, ROW, STRANGER, TRIED

ADDRESSEE: Final = 1
END: Final = 2
ATTEMPTS: Final = 4
CARRY: Final = 8
STRANGE: Final = 16
"""bits of ``wrong``"""

NORMAL: Final = 1
REPLAYED: Final = 2
"""``mode`` of an attempt: judged by the rules for everyone, or by those inside a replay; 0: not judged"""

EVENT: Final = (
    "seq", "pos", "s", "ev", "attempt", "after", "outcome", "is_late", "is_counted", "ends", "good", "mode", "wrong",
    "replay_before", "attempts_before", "ended_by", "open_by", "bad_by", "marker", "due_us",
)  # fmt: skip
"""fields of an event as a message keeps it"""


def judged(pairs: DataFrame) -> DataFrame:
    """Each event with how its delivery stood before it, and ``wrong``."""
    pair = Window.partitionBy("message", "s").orderBy("seq", "pos")
    before = pair.rowsBetween(Window.unboundedPreceding, -1)
    ev = f.col("ev")
    is_row = ev == ROW
    is_gone = f.coalesce(f.col("s_gone") < f.col("seq"), f.lit(False))
    # Above 0: open, re-armed by the replay of that number; 0: ended; null: as it was accepted.
    marker = f.when((is_row & f.col("is_end")) | ev.isin(ALL, PURGED, GONE, CARRIED), 0).when(
        (ev == REARMED) & ~is_gone, f.col("replay")
    )
    tried = f.when((is_row & (f.col("attempt") > 0) & ~f.col("is_late")) | (ev == TRIED), f.col("attempt"))
    state, zero = f.col("state"), f.lit(0)
    stood = (
        pairs.withColumn("marker", marker.cast("bigint"))
        .withColumn("state", f.last("marker", ignorenulls=True).over(before))
        .withColumn("attempts_before", f.coalesce(f.max(tried).over(before), zero))
        .withColumn("is_open", f.coalesce(state > 0, f.col("is_counted")))
        .withColumn("replay_before", f.coalesce(f.greatest(state, zero), zero))
        .withColumn(
            "ends",
            f.coalesce(
                (is_row & f.col("is_end")) | (ev.isin(ALL, PURGED, GONE, CARRIED) & f.col("is_open")), f.lit(False)
            )
            & (f.col("s") != 0),
        )
    )
    ended_by = f.last(f.when(f.col("ends"), f.col("seq")), ignorenulls=True).over(before)
    was_good = f.last(f.when(f.col("ends"), f.col("good")), ignorenulls=True).over(before)
    counted = (
        stood.withColumn("ended_by", ended_by)
        .withColumn("was_good", was_good)
        .withColumn("ends_before", f.count(f.when(f.col("ends"), 1)).over(before))
    )
    return _with_deltas(_with_mode(counted))


def _with_mode(stood: DataFrame) -> DataFrame:
    ev, late, attempt = f.col("ev"), f.coalesce("is_late", f.lit(False)), f.coalesce("attempt", f.lit(0))
    is_sure = ~f.coalesce(f.col("doubt") < f.col("seq"), f.lit(False))
    is_judged = (ev == ROW) & is_sure
    may_catch_up = f.exists(
        f.col("s_starts"), lambda one: (one.record < f.col("seq")) & (one.start <= f.col("message"))
    )
    is_its = f.coalesce(f.col("only"), f.lit(0)).isin(0) | (f.col("only") == f.col("s"))
    catches_up = (f.col("s_queue") == f.col("queue_no")) & (f.col("s_begins") < f.col("seq")) & is_its & may_catch_up
    is_for = f.col("is_counted") | f.col("is_open") | f.coalesce(catches_up, f.lit(False))
    had_ended = ~f.col("is_open") & (f.col("ends_before") > 0)
    wrong = (
        f.when(is_judged & ~is_for, ADDRESSEE).otherwise(0)
        + f.when(is_judged & ~late & had_ended, END).otherwise(0)
        + f.when(is_judged & ~late & (attempt > 0) & (attempt <= f.col("attempts_before")), ATTEMPTS).otherwise(0)
        + f.when(ev == STRANGER, STRANGE).otherwise(0)
        + f.when((ev == CLAIMED) & is_sure & f.col("is_open"), CARRY).otherwise(0)
    )
    mode = (
        f.when(~is_judged | (attempt == 0), 0)
        .when(f.col("replay_before") > 0, f.when(late, 0).otherwise(REPLAYED))
        # Which of its lives a late attempt belongs to is not known.
        .when(late & (f.col("ends_before") > 1), 0)
        .otherwise(NORMAL)
    )
    return stood.withColumn("wrong", wrong).withColumn("mode", mode)


def _with_deltas(stood: DataFrame) -> DataFrame:
    """What each event adds to the number of open deliveries among those counted, and of those that ended badly. A dead
    letter of a subscriber that is gone goes with it: nobody could be sent a replay."""
    ends, is_open = f.col("ends"), f.col("is_open")
    was_bad = f.when(f.col("was_good"), 0).otherwise(f.when(f.col("was_good").isNull(), 0).otherwise(1))
    reopens = (f.col("ev") == REARMED) & (f.col("marker") > 0) & ~is_open
    opens = f.when(ends & is_open, -1).when(reopens, 1).otherwise(0)
    bad = f.when(f.col("ev") == GONE, -was_bad).when(ends, f.when(f.col("good"), 0).otherwise(1) - was_bad).otherwise(0)
    is_counted = f.col("is_counted")
    return stood.withColumn("open_by", f.when(is_counted, opens).otherwise(0)).withColumn(
        "bad_by", f.when(is_counted, bad).otherwise(0)
    )


def messages(events: DataFrame) -> DataFrame:
    """One row for each message: what was accepted (``record`` is null where that is not known), its ``events``, and
    the records ``ended`` and ``complete``."""
    ev = f.col("ev")
    is_normal, counted = f.col("mode") == NORMAL, f.col("is_counted")
    first_end = f.col("ends") & counted & (f.col("ends_before") == 0)
    kept = (ev != ACCEPTED) & (f.col("s") != 0)
    born = ("record", "queue", "queue_no", "time_us", "key", "is_same", "policy", "parents", "id", "not_before_us",
            "expires_us", "own", "only", "counted", "doubt")  # fmt: skip
    gathered = events.groupBy("message").agg(
        f.first(f.when(ev == ACCEPTED, f.struct(*born)), ignorenulls=True).alias("born"),
        f.collect_list(f.when(kept, f.struct(*EVENT))).alias("events"),
        f.count(f.when(first_end, 1)).alias("closed"),
        f.max(f.when(first_end, f.col("seq"))).alias("closed_by"),
        f.count(f.when(first_end & ~f.col("good"), 1)).alias("closed_badly"),
        f.max(ev.isin(REARMED, GONE) | (f.col("ends") & (f.col("ends_before") > 0))).alias("is_tangled"),
        f.min(f.when((f.col("s") == 0) & ev.isin(ALL, PURGED), f.col("seq"))).alias("cancelled"),
        f.min(f.when(is_normal & counted, f.col("after"))).alias("first_counted"),
        f.min(f.when(is_normal & ~counted, f.col("after"))).alias("first_uncounted"),
        f.max(f.when(is_normal & counted, f.col("after"))).alias("last_counted"),
        f.max(f.col("mode") == REPLAYED).alias("is_replayed"),
    )
    flat = gathered.select("message", "born.*", *(name for name in gathered.columns if name not in ("message", "born")))
    return _with_ends(flat)


def _with_ends(flat: DataFrame) -> DataFrame:
    count = f.size("counted")
    all_closed = f.col("closed") == count
    followed = _followed(count)
    ended = f.when(f.col("is_tangled"), followed.ended).when(all_closed, f.col("closed_by"))
    complete = f.when(f.col("is_tangled"), followed.complete).when(
        all_closed & (f.col("closed_badly") == 0), f.col("closed_by")
    )
    alone = f.when(f.size("parents") == 0, f.col("record"))
    return (
        flat.withColumn("ended", f.when(count > 0, ended).otherwise(f.least(alone, f.col("cancelled"))))
        .withColumn("complete", f.when(count > 0, complete).otherwise(alone))
    )  # fmt: skip


def _followed(count: Column) -> Column:
    """The records of end and completion where deliveries were opened again, or ended more than once: event by event."""
    kind = "struct<open: int, bad: int, ended: bigint, complete: bigint>"
    none = f.lit(None).cast("bigint")
    start = f.struct(count.alias("open"), f.lit(0).alias("bad"), none.alias("ended"), none.alias("complete")).cast(kind)

    def step(so_far: Column, event: Column) -> Column:
        still_open, bad = so_far.open + event.open_by, so_far.bad + event.bad_by
        decided = event.ends & (still_open == 0)
        ended = f.coalesce(so_far.ended, f.when(decided, event.seq))
        complete = f.coalesce(so_far.complete, f.when(decided & (bad == 0), event.seq))
        return f.struct(
            still_open.alias("open"), bad.alias("bad"), ended.alias("ended"), complete.alias("complete")
        ).cast(kind)

    return f.aggregate(f.array_sort("events"), start, step)


def is_open(events: str, is_counted: Column) -> Column:
    """Whether a delivery is open at the end of the log, by the ``events`` of it (an array)."""
    marked = f.filter(events, lambda one: one.marker.isNotNull())
    last = f.array_max(f.transform(marked, lambda one: f.struct(one.seq, one.pos, one.marker.alias("marker"))))
    return f.coalesce(last.marker > 0, is_counted)
