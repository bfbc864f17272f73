"""The tables of the report, out of what ``counts`` counted: sums over some thousand rows, on the driver.

Every one is by queue, subscriber and hour. An hour is named by its beginning, in UTC; what happened is counted in the
hour in which its record was written, a message in the hour it was accepted in.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from syncbrok.model.units import shown_endpoint
from syncbrok.pipeline.numpy_columns import NEVER, Flags, Longs
from syncbrok.pipeline.report.aggregation import aggregated
from syncbrok.pipeline.report.counts import ATTEMPT, BLAME, DELIVERY, MESSAGE, WAIT, received
from syncbrok.pipeline.report.hour_grid import (
    CountColumns,
    HourGrid,
    Key,
    NamedRows,
    by_text,
    quantile_columns,
    text_of,
    times,
    together,
)
from syncbrok.pipeline.report.latency import percentiles
from syncbrok.pipeline.report.period import BEFORE, Period
from syncbrok.pipeline.schema import TIME
from syncbrok.pipeline.states.declared_facts import DeclaredFacts

_NAMES: Final = ("queue", "subscriber")
_WELL: Final = ("delivered", "late")
_OUTCOMES: Final = ("delivered", "skipped", "dropped", "expired", "dead")
_WAYS: Final = {"completed": "complete", "dead": "dead", "expired": "expired", "dropped": "dropped"}


class SubscriberNames:
    """Looks up a subscriber by its number: its queue and id, its endpoint, whether it is gone."""

    def __init__(self, declared: DeclaredFacts) -> None:
        self._keys: dict[int, Key] = {}
        self._gone: list[int] = []
        self.endpoints: dict[Key, str] = {}
        for one in sorted(declared.subscribers.values(), key=lambda one: one.since):
            self._keys[one.number] = key = (declared.queue_name(one.queue), one.id)
            self.endpoints[key] = shown_endpoint(one.endpoint)
            if one.gone_record:
                self._gone.append(one.number)

    def of(self, counts: CountColumns) -> NamedRows:
        """The queue and id of each row; nothing and nothing where no fact declares it any more."""
        numbers, at = np.unique(counts.of("subscriber"), return_inverse=True)
        return NamedRows([self._keys.get(number, (None, None)) for number in numbers.tolist()], at)

    def stand(self, counts: CountColumns) -> Flags:
        """For each row: true if its subscriber has not been deleted."""
        return ~np.isin(counts.of("subscriber"), np.array(self._gone, np.int64))


class ReportCounts(NamedTuple):
    """All counts of a report, by kind; the subscribers; the period."""

    attempts: CountColumns
    deliveries: CountColumns
    messages: CountColumns
    waits: CountColumns
    blame: CountColumns
    who: SubscriberNames
    period: Period

    @classmethod
    def of(cls, sent: Mapping[str, list[bytes]], who: SubscriberNames, period: Period) -> "ReportCounts":
        """The counts in ``sent``: what the tasks have counted, by kind."""
        each = (received(kind, sent.get(kind, ())) for kind in (ATTEMPT, DELIVERY, MESSAGE, WAIT, BLAME))
        return cls._make((*(CountColumns(rows) for rows in each), who, period))


def tables(counted: ReportCounts, first_sequence: int, last_sequence: int) -> dict[str, pa.Table]:
    """The tables of the report, by name. The sequences are those of the facts read."""
    return {
        "queues": queues(counted),
        "subscribers": subscribers(counted),
        "failures": failures(counted),
        "dead_letters": dead_letters(counted),
        "endpoints": endpoints(counted),
        "blame": blame(counted),
        "latencies": latencies(counted),
        "totals": totals(counted),
        "period": _about(counted.period, first_sequence, last_sequence),
    }


def queues(counted: ReportCounts) -> pa.Table:
    """A table of messages by queue and hour: ``accepted``, ``backlog`` (not ended at the end of the hour),
    ``completed``, ``dead``, ``expired``, ``dropped`` (by how they stand now), percentiles of the time from acceptance
    to completion (``complete_..``) and of waiting for parents (``parents_..``)."""
    messages, waits = counted.messages, counted.waits
    names, (mine, theirs) = together(by_text(messages, "queue"), by_text(waits, "queue"))
    grid = HourGrid(names, counted.period)
    ended = messages.of("ended")
    columns = grid.keys("queue") | _flow(grid, mine, messages)
    for name, way in _WAYS.items():
        columns[name] = _flat(grid.sum(mine, ended, messages.n, messages.among("outcome", way)))
    columns |= grid.percentiles("complete", mine, messages.of("complete"), messages)
    columns |= grid.percentiles("parents", theirs, waits.of("hour"), waits)
    return pa.table(columns)


def subscribers(counted: ReportCounts) -> pa.Table:
    """A table of deliveries by queue, subscriber and hour: ``accepted`` (deliveries owed), ``backlog`` (open at the end
    of the hour), ``delivered``, ``skipped``, ``dropped``, ``expired``, ``dead`` (ends, replays' among them),
    ``attempts``, ``failed`` attempts, percentiles of an attempt (``attempt_..``) and of the time from acceptance to the
    acknowledgement (``delivered_..``)."""
    owed, attempts, who = counted.deliveries, counted.attempts, counted.who
    names, (mine, theirs) = together(who.of(owed), who.of(attempts))
    grid = HourGrid(names, counted.period)
    columns = grid.keys(*_NAMES) | _flow(grid, mine, owed)
    changed = (owed.of("rearmed") != NEVER) & (owed.of("otherwise") == 1)
    for outcome in _OUTCOMES:
        first = grid.sum(mine, owed.of("ended"), owed.n, owed.among("outcome", outcome))
        again = grid.sum(mine, owed.of("again"), owed.n, changed & owed.among("last_outcome", outcome))
        columns[outcome] = _flat(first + again)
    hour = attempts.of("hour")
    columns["attempts"] = _flat(grid.sum(theirs, hour, attempts.n))
    columns["failed"] = _flat(grid.sum(theirs, hour, attempts.n, ~attempts.among("outcome", *_WELL)))
    columns |= grid.percentiles("attempt", theirs, hour, attempts)
    columns |= grid.percentiles("delivered", mine, owed.of("ended"), owed)
    return pa.table(columns)


def failures(counted: ReportCounts) -> pa.Table:
    """A table of attempts that failed, the last ones of dead letters among them: ``attempts`` by reason and HTTP
    status."""
    attempts = counted.attempts
    failed = ~attempts.among("outcome", *_WELL) & ~attempts.among("reason", "none")
    columns = counted.who.of(attempts).columns(*_NAMES) | {"hour": times(attempts.of("hour"))}
    columns |= {"reason": attempts.column("reason"), "status": attempts.column("status")}
    return _summed(columns, {"attempts": attempts.n}, failed)


def dead_letters(counted: ReportCounts) -> pa.Table:
    """A table of the dead letters that stand at the end of the period (not those that a replay has taken up, that were
    dropped, or of subscribers that are gone) and died in it: ``letters`` by queue, subscriber, hour of death and
    reason."""
    owed, died = counted.deliveries, counted.deliveries.of("again")
    stand = (owed.of("dead") == 1) & counted.who.stand(owed) & (died != BEFORE)
    columns = counted.who.of(owed).columns(*_NAMES) | {"hour": times(died), "reason": owed.column("reason")}
    return _summed(columns, {"letters": owed.n}, stand)


def endpoints(counted: ReportCounts) -> pa.Table:
    """A table with a row for each subscriber that was tried in the period: ``attempts``, ``failed``, ``busy_us`` (the
    time of all attempts together), percentiles of an attempt, and its ``endpoint``."""
    attempts = counted.attempts
    names, (at,) = together(counted.who.of(attempts))
    size = len(names)

    def total(values: Longs) -> pa.Array:
        return pa.array(np.bincount(at, values, size).astype(np.int64))

    found = percentiles(at, attempts.of("bucket"), attempts.n, attempts.of("max_us", 0))
    timed = quantile_columns("attempt", found, size)
    del timed["attempt_n"]
    return pa.table(
        {
            **{name: text_of(names, place) for place, name in enumerate(_NAMES)},
            "attempts": total(attempts.n),
            "failed": total(np.where(attempts.among("outcome", *_WELL), 0, attempts.n)),
            "busy_us": total(attempts.of("sum_us", 0)),
            **timed,
            "endpoint": pa.array([counted.who.endpoints.get(name) for name in names], pa.string()),
        }
    )


def blame(counted: ReportCounts) -> pa.Table:
    """A table by queue and subscriber (of the culprit) and hour (in which the wait for it ended): ``waited_us``, the
    time that descendants were kept waiting, all of them added up; ``waiters``, how many waited for it directly or
    further down; ``longest_us``, the longest one step. Queue and subscriber are null for waits for a parent's own
    delay."""
    rows = counted.blame
    columns = counted.who.of(rows).columns(*_NAMES) | {"hour": times(rows.of("hour"))}
    table = pa.table(columns | {name: rows.column(name) for name in ("waited_us", "waiters", "max_us")})
    keys = (*_NAMES, "hour")
    sums = {"waited_us": ("waited_us", "sum"), "waiters": ("waiters", "sum"), "longest_us": ("max_us", "max")}
    found = aggregated(table, keys, **sums)
    waited_us = pc.round(found["waited_us"]).cast(pa.int64())
    return found.set_column(found.column_names.index("waited_us"), "waited_us", waited_us)


def latencies(counted: ReportCounts) -> pa.Table:
    """A table of ``n`` and ``max_us`` by ``what`` (attempt, complete, parents), queue, subscriber, hour and bucket."""
    attempts, messages, waits = counted.attempts, counted.messages, counted.waits
    found = [
        _buckets("attempt", attempts, counted.who.of(attempts).columns(*_NAMES), attempts.of("hour")),
        _buckets("complete", messages, {"queue": messages.column("queue")}, messages.of("complete")),
        _buckets("parents", waits, {"queue": waits.column("queue")}, waits.of("hour")),
    ]
    return pa.concat_tables(found)


def totals(counted: ReportCounts) -> pa.Table:
    """A table of percentiles by queue over the whole period, and one row for all (queue null)."""
    messages, waits = counted.messages, counted.waits
    names, (mine, theirs) = together(by_text(messages, "queue"), by_text(waits, "queue"))
    size = len(names)
    columns: dict[str, pa.Array] = {"queue": pa.array([*(name for (name,) in names), None], pa.string())}
    for prefix, rows, place, hour in (
        ("complete", messages, mine, messages.of("complete")),
        ("parents", waits, theirs, waits.of("hour")),
    ):
        some = (hour >= 0) & (rows.of("bucket") != NEVER)
        place, bucket, n, longest = place[some], rows.of("bucket")[some], rows.n[some], rows.of("max_us", 0)[some]
        both = np.concatenate([place, np.full(len(place), size)])
        found = percentiles(both, np.tile(bucket, 2), np.tile(n, 2), np.tile(longest, 2))
        columns |= quantile_columns(prefix, found, size + 1)
    return pa.table(columns)


def _about(period: Period, first_sequence: int, last_sequence: int) -> pa.Table:
    return pa.table(
        {
            "since": pa.array([period.since], TIME),
            "until": pa.array([period.until], TIME),
            "first_sequence": pa.array([first_sequence], pa.int64()),
            "last_sequence": pa.array([last_sequence], pa.int64()),
            "made_at": pa.array([datetime.now(UTC)], TIME),
        }
    )


def _flow(grid: HourGrid, name: Longs, rows: CountColumns) -> dict[str, pa.Array]:
    """The columns ``accepted`` and ``backlog``, which is arrivals less ends, from the beginning of the log on. A
    delivery that a replay opens again arrives again."""
    hour, n = rows.of("hour"), rows.n
    counts = hour != NEVER
    again = counts & (rows.of("ended") != NEVER) & (rows.of("rearmed") != NEVER)
    backlog = grid.running(
        name,
        [
            (hour, n, counts),
            (rows.of("ended"), -n, counts),
            (rows.of("rearmed"), n, again),
            (rows.of("again"), -n, again & (rows.of("open") == 0)),
        ],
    )
    return {"accepted": _flat(grid.sum(name, hour, n)), "backlog": _flat(backlog)}


def _buckets(what: str, rows: CountColumns, names: Mapping[str, pa.Array], hour: Longs) -> pa.Table:
    columns = {
        "what": pa.array([what] * len(rows), pa.string()),
        **({"subscriber": pa.nulls(len(rows), pa.string())} | dict(names)),
        "hour": times(hour),
        "bucket": rows.column("bucket").cast(pa.int32()),
    }
    some = (hour >= 0) & (rows.of("bucket") != NEVER)
    table = pa.table({**columns, "n": pa.array(rows.n), "max_us": rows.column("max_us")}).filter(pa.array(some))
    keys = ["what", *_NAMES, "hour", "bucket"]
    return aggregated(table, keys, n=("n", "sum"), max_us=("max_us", "max"))


def _summed(columns: Mapping[str, pa.Array], values: Mapping[str, Longs], where: Flags) -> pa.Table:
    """Sums of ``values`` by ``columns``, of the rows ``where``."""
    table = pa.table({**columns, **{name: pa.array(value) for name, value in values.items()}}).filter(pa.array(where))
    return aggregated(table, columns, **{name: (name, "sum") for name in values})


def _flat(values: Longs) -> pa.Array:
    return pa.array(values.reshape(-1))
