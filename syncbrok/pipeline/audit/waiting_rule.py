"""Rule ``waiting``: what was acknowledged and has not ended has a reason to wait.

A log that is being written always holds deliveries that are on their way or in line; they are no loss. So each delivery
that has not ended is named with its reason, and those that have none are findings only where the log is said to be at
rest, or once they are older than a given age. The age is counted from the record since which nothing keeps the delivery
back, to the newest record of the log; a broker that was down in between has aged them too.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from syncbrok.pipeline.audit.causal_rules import ALL_OF_IT, CAUSAL_INPUT, CAUSAL_OUTPUT
from syncbrok.pipeline.audit.key_rule import KEY_OUTPUT
from syncbrok.pipeline.audit.row_encoding import HOLD, NEVER, flags, gathered, longs
from syncbrok.pipeline.audit.row_kinds import HISTORY_KINDS
from syncbrok.pipeline.audit.rules import NO_REASONS, REASONS

WAITING_INPUT: Final = {
    "open": HISTORY_KINDS["open"],
    "state": CAUSAL_OUTPUT["state"],
    "behind": KEY_OUTPUT["behind"],
    "settled": CAUSAL_INPUT["settled"],
}
"""what comes in"""
WAITING: Final = (
    "message bigint, subscriber bigint, record bigint, queue string, time_us bigint, why string, since_record bigint, "
    "due_us bigint"
)
"""the rows that come out. ``subscriber``: 0 for a message without counted subscribers. ``since_record``: the newest
record that it had to wait for. ``due_us``: when it was due, null where that is not known"""


class LogEnd(NamedTuple):
    """The end of a log: the time of its newest record, and which subscribers are paused or disabled then."""

    end_us: int
    frozen: frozenset[int]


class _State(NamedTuple):
    """How the parents of a delivery stand, all together."""

    is_failed: bool = False
    is_open: bool = False
    done: int = -1


def waiting(batches: Iterable[pa.RecordBatch], at_end: LogEnd) -> Iterator[pa.RecordBatch]:
    """Rows of ``WAITING``, one for each delivery that has not ended, with its reason. ``batches`` have all
    ``WAITING_INPUT`` of the messages of a partition."""
    tables = gathered(batches, WAITING_INPUT)
    over = tables["settled"].filter(_is_past(tables["settled"], "complete")).column("message").to_pylist()
    done, states, behind = set(over), _states(tables["state"]), _behind(tables["behind"])
    rows = []
    for one in tables["open"].to_pylist():
        message, s = one["message"], one["s"]
        if s or message not in done:
            state = states.get((message, s if one["is_rearmed"] else ALL_OF_IT), _State())
            rows.append(_row(one, state, behind.get((message, s)), at_end))
    if rows:
        names = [field.split()[0] for field in WAITING.split(", ")]
        kinds = [pa.string() if name in ("queue", "why") else pa.int64() for name in names]
        columns = zip(*rows, strict=True)
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)], names=names
        )


def _is_past(table: pa.Table, name: str) -> pa.Array:
    return pa.array(longs(table, name) < NEVER)


def _states(table: pa.Table) -> dict[tuple[int, int], _State]:
    found: dict[tuple[int, int], _State] = defaultdict(_State)
    columns = [longs(table, "message"), longs(table, "s"), flags(table, "is_failed"), flags(table, "is_open"),
               longs(table, "done")]  # fmt: skip
    for message, s, is_failed, is_open, done in zip(*(one.tolist() for one in columns), strict=True):
        so_far = found[message, s]
        found[message, s] = _State(so_far.is_failed or is_failed, so_far.is_open or is_open, max(so_far.done, done))
    return found


def _behind(table: pa.Table) -> dict[tuple[int, int], tuple[bool, int]]:
    return {(one["message"], one["s"]): (one["is_open"], one["ended"]) for one in table.to_pylist()}


def _row(one: dict[str, Any], state: _State, behind: tuple[bool, int] | None, at_end: LogEnd) -> tuple[Any, ...]:
    if one["is_rearmed"]:
        # It was due before, and what an operator sends again does not expire: it has ended once already.
        one = one | {"not_before_us": 0, "expires_us": NEVER}
    since = [one["record"], state.done, one["touched"]]
    if behind is not None and behind[1] != NEVER:
        since.append(behind[1])
    is_expired = one["expires_us"] < at_end.end_us
    is_retry = one["retry_us"] != NEVER
    due = one["expires_us"] if is_expired else one["retry_us"] if is_retry else one["not_before_us"]
    why = _why(one, state, at_end, is_behind=behind is not None and behind[0])
    return (
        one["message"], one["s"], one["record"], one["queue"], one["time_us"], why, max(since),
        due or None,
    )  # fmt: skip


def _why(one: dict[str, Any], state: _State, at_end: LogEnd, *, is_behind: bool) -> str:
    is_retry, is_late = one["retry_us"] != NEVER, one["retry_us"] <= at_end.end_us
    reasons = {
        "overdue": one["expires_us"] < at_end.end_us,
        "owed": state.is_failed and one["policy"] != HOLD,
        "held": state.is_failed,
        "parents": state.is_open,
        "paused": one["s"] in at_end.frozen,
        "retrying": is_retry and not is_late,
        "key": not is_retry and is_behind,
        "delayed": not is_retry and one["not_before_us"] > at_end.end_us,
    }
    if is_retry and is_late and not any(reasons[why] for why in ("owed", "held", "parents", "paused")):
        return "overdue"
    return next((why for why, holds in reasons.items() if holds), "ready")


def overdue(found: DataFrame, facts: DataFrame, end_us: int, pending_us_max: int | None) -> DataFrame:
    """Findings: deliveries that have waited without a reason for longer than ``pending_us_max``; None: for however
    short."""
    loose = found.where(f.col("why").isin(*NO_REASONS))
    since = f.lit("")
    if pending_us_max is not None:
        times = facts.select(f.col("sequence").alias("since_record"), f.unix_micros("time").alias("record_us"))
        aged = loose.join(times, "since_record", "left")
        began = f.greatest(f.coalesce("record_us", "time_us"), "due_us")
        loose = aged.withColumn("age_us", f.lit(end_us) - began).where(f.col("age_us") > pending_us_max)
        since = f.concat(f.lit(" for "), f.floor(f.col("age_us") / 1_000_000), f.lit(" s"))
    return loose.select(
        f.lit("waiting").alias("rule"), f.col("record").alias("sequence"), "message", "subscriber",
        f.concat(f.lit("has not ended"), since, f.lit(": "), _meaning()).alias("what"),
    )  # fmt: skip


def _meaning() -> Column:
    said = f.lit(REASONS["ready"])
    for reason in NO_REASONS:
        said = f.when(f.col("why") == reason, REASONS[reason]).otherwise(said)
    return said
