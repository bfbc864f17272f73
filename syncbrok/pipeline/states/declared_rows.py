"""Rows of kind ``queues`` and ``subscribers``: what is declared at the end of the log. Pure, no Spark."""

from collections.abc import Mapping, Sequence

import orjson
import pyarrow as pa

from syncbrok.pipeline.schema import QUEUES, SUBSCRIBERS, TIME, Column, arrow_schema
from syncbrok.pipeline.states.declared_facts import DeclaredFacts, DeclaredSubscriber


def queues(found: DeclaredFacts, columns: tuple[Column, ...] = QUEUES, names: frozenset[str] | None = None) -> pa.Table:
    """A row for each queue, or those with one of ``names``, deleted ones among them, by number."""
    rows = [
        {
            "queue_number": number,
            "queue": one.name,
            "declared": one.declared_us or None,
            "deleted": one.deleted_us or None,
            "settings": orjson.dumps(one.settings).decode(),
        }
        for number, one in sorted(found.queues.items())
        if names is None or one.name in names
    ]
    return _table(rows, columns)


def subscribers(
    found: DeclaredFacts, columns: tuple[Column, ...] = SUBSCRIBERS, names: frozenset[str] | None = None
) -> pa.Table:
    """A row for each subscriber, or those of queues with one of ``names``, deleted ones among them, by number."""
    rows = [
        {
            "subscriber_number": number,
            "subscriber": one.id,
            "queue_number": one.queue,
            "queue": found.queue_name(one.queue),
            "since": one.said_since,
            "counts": one.counts,
            "state": _state(one),
            "declared": one.declared_us or None,
            "deleted": one.deleted_us or None,
            "settings": orjson.dumps(one.settings).decode(),
        }
        for number, one in sorted(found.subscribers.items())
        if names is None or found.queue_name(one.queue) in names
    ]
    return _table(rows, columns)


def _state(one: DeclaredSubscriber) -> str:
    if one.deleted:
        return "deleted"
    return "disabled" if one.settings.get("disabled_us") else "paused" if one.settings.get("paused") else "active"


def _table(rows: Sequence[Mapping[str, object]], columns: tuple[Column, ...]) -> pa.Table:
    made = {
        column.name: pa.array([row[column.name] for row in rows], pa.int64() if column.arrow == TIME else column.arrow)
        for column in columns
    }
    return pa.table([made[one.name].cast(one.arrow) for one in columns], arrow_schema(columns))
