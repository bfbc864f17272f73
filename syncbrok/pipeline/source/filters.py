"""Takes the filters that Spark hands down, as far as they can be judged from the log's own numbers. Each one taken is
judged exactly, so Spark need not look again; the others go back to it."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from syncbrok.pipeline.decode.query import Condition, Query
from syncbrok.pipeline.schema import DERIVED

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OPERATIONS: dict[type, str] = {
    EqualTo: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}
_NUMBERS = {
    "messages": frozenset({"sequence", "time", "root", "depth", "batch"}),
    "deliveries": frozenset(
        {
            "sequence",
            "recorded",
            "message",
            "subscriber_number",
            "attempt",
            "status",
            "time",
            "after",
            "latency_us",
        }
    ),
    "facts": frozenset({"sequence", "time", "batch", "synced_through", "queue_number", "root", "depth", "items"}),
}


def take(query: Query, filters: Iterable[Filter]) -> tuple[Query, list[Filter]]:
    """The query with the filters that it can judge, and the filters that it cannot."""
    left: list[Filter] = []
    for one in filters:
        narrower = _with(query, one)
        if narrower is None:
            left.append(one)
        else:
            query = narrower
    return query, left


def _with(query: Query, one: Any) -> Query | None:
    column = ".".join(getattr(one, "attribute", ()))
    values = one.value if isinstance(one, In) else (getattr(one, "value", None),)
    if query.kind in DERIVED:
        return None
    if column == "queue" and isinstance(one, EqualTo | In) and all(isinstance(value, str) for value in values):
        names = frozenset(values)
        return query._replace(queues=names if query.queues is None else query.queues & names)
    operation = "in" if isinstance(one, In) else _OPERATIONS.get(type(one))
    numbers = [_number(value) for value in values]
    if operation is None or column not in _NUMBERS[query.kind] or None in numbers:
        return None
    known = tuple(number for number in numbers if number is not None)
    return query._replace(conditions=(*query.conditions, Condition(column, operation, known)))


def _number(value: object) -> int | None:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return (value - _EPOCH) // timedelta(microseconds=1)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 else None
