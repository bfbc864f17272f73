"""What the pipeline's source should read out of a log, made the slow way: each record decoded by itself."""

import json
from collections.abc import Iterable, Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from syncbrok.log.format.codec import Decoded, Header, Kind
from syncbrok.log.format.records import SegmentOpened
from syncbrok.log.segments import segment
from syncbrok.model.facts import ALL_SUBSCRIBERS, Carried, Fact, Outcomes, QueueSet, Row, StoredMessage, SubscriberSet
from syncbrok.model.names import MessageId, id_text, sequence_of
from syncbrok.pipeline import log_snapshot, schema
from syncbrok.pipeline.decode import row_reader
from syncbrok.pipeline.decode.query import CarriedRule, Query
from syncbrok.pipeline.log_snapshot import LogSnapshot, SegmentSlice

Rows = list[dict[str, Any]]


class Record(NamedTuple):
    """A record, where it stands, and the names that its segment declares."""

    base: int
    offset: int
    header: Header
    fact: Fact
    queues: dict[int, str]
    subscribers: dict[int, tuple[str, int]]


def records(directory: Path, through: int) -> Iterator[Record]:
    """All records of the log up to sequence ``through``."""
    for base in segment.segment_bases(directory):
        places = list(segment.read_records(segment.segment_path(directory, base)))
        found = [(one.offset, one.what) for one in places if isinstance(one.what, Decoded)]
        queues, subscribers = _names(what.fact for _, what in found if what.fact.sequence <= through)
        for offset, what in found:
            if what.fact.sequence <= through:
                yield Record(base, offset, what.header, what.fact, queues, subscribers)


def _names(facts: Iterable[Fact]) -> tuple[dict[int, str], dict[int, tuple[str, int]]]:
    queues: dict[int, str] = {}
    subscribers: dict[int, tuple[str, int]] = {}
    for fact in facts:
        declared = (*fact.queues, *fact.subscribers) if isinstance(fact, SegmentOpened) else (fact,)
        for one in declared:
            if isinstance(one, QueueSet):
                queues[one.number] = one.name
            if isinstance(one, SubscriberSet):
                subscribers[one.number] = (one.id, one.queue)
    return queues, subscribers


def messages(found: Iterable[Record], *, carried: bool = True) -> Rows:
    rows: Rows = []
    for record in found:
        if isinstance(record.fact, StoredMessage):
            rows.append(_message(record, record.fact))
        elif isinstance(record.fact, Carried) and carried:
            rows.append(_message(record, record.fact.message))
    return rows


def _message(record: Record, fact: StoredMessage) -> dict[str, Any]:
    headers: dict[str, str] = {}
    for name, value in fact.headers:
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return {
        "sequence": fact.sequence,
        "time": fact.time_us,
        "queue": record.queues.get(fact.queue),
        "id": id_text(fact.id),
        "parents": [id_text(parent) for parent in fact.parents],
        "parent_sequences": [sequence_of(parent) for parent in fact.parents],
        "root": fact.root,
        "depth": _signed(fact.depth),
        "key": _text(fact.key) or None,
        "idempotency_key": _text(fact.idempotency_key) or None,
        "headers": {_question(name): _question(value) for name, value in headers.items()},
        "content_type": _text(fact.content_type),
        "content": None if fact.erased else fact.content,
        "scope": fact.scope.name.lower(),
        "parent_failure": fact.parent_failure.name.lower(),
        "not_before": fact.due_us or None,
        "expires": fact.expires_us or None,
        "only_subscriber": _signed(fact.only) or None,
        "carried": isinstance(record.fact, Carried),
        "batch": record.header.batch,
        "erased": fact.erased,
        "erase_after_us": fact.erase_after_us or None,
    }


def deliveries(found: Iterable[Record]) -> Rows:
    return [
        _delivery(record, position, row)
        for record in found
        if isinstance(record.fact, Outcomes)
        for position, row in enumerate(record.fact.rows)
    ]


def _delivery(record: Record, position: int, row: Row) -> dict[str, Any]:
    name, queue = record.subscribers.get(row.subscriber, (None, 0))
    everybody = row.subscriber == ALL_SUBSCRIBERS and name is None
    return {
        "sequence": record.fact.sequence,
        "position": position,
        "recorded": record.fact.time_us,
        "message": row.message,
        "subscriber_number": row.subscriber,
        "subscriber": None if everybody else name,
        "queue": None if name is None else record.queues.get(queue),
        "attempt": row.attempt,
        "outcome": row.outcome.name.lower(),
        "reason": row.reason.name.lower(),
        "status": row.status,
        "time": row.time_us,
        "due": row.due_us or None,
        "after": row.after,
        "latency_us": row.latency_us,
        "detail": row.detail,
    }


def facts(found: Iterable[Record]) -> Rows:
    rows: Rows = []
    for record in found:
        header = record.header
        rows.append(
            {
                "sequence": header.sequence,
                "time": header.time_us,
                "kind": "carried_message" if header.kind == Kind.CARRIED else Kind(header.kind).name.lower(),
                "batch": header.batch,
                "synced_through": header.synced_through,
                "unit_end": header.ends_unit,
                "queue_number": header.queue,
                "queue": record.queues.get(header.queue),
                "id": id_text(header.id) if any(header.id) else None,
                "root": header.root,
                "depth": _signed(header.depth),
                "items": header.items,
                "segment": record.base,
                "offset": record.offset,
                "bytes": header.record_bytes,
                "detail": _said(record.fact),
            }
        )
    return rows


def _said(fact: Fact) -> Any:
    if isinstance(fact, StoredMessage | Outcomes):
        return None
    if isinstance(fact, Carried):
        ended = [[subscriber, outcome.name.lower()] for subscriber, outcome in fact.ended]
        tried = [one._asdict() for one in fact.tried]
        return {"message": fact.message.sequence, "time_us": fact.message.time_us, "ended": ended, "tried": tried}
    return {name: _plain(value) for name, value in fact._asdict().items() if name not in ("sequence", "time_us")}


def _plain(value: Any) -> Any:
    if isinstance(value, IntEnum):
        return value.name.lower()
    if isinstance(value, bytes):
        return id_text(MessageId(value))
    if hasattr(value, "_asdict"):
        return {name: _plain(one) for name, one in value._asdict().items()}
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


def _signed(number: int) -> int:
    """As four bytes with a sign have it."""
    return number - (1 << 32) if number >= 1 << 31 else number


def _text(value: str) -> str:
    return value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def _question(value: str) -> str:
    return value.encode("utf-8", "replace").decode()


EVERY_CARRIED = CarriedRule(0, 1 << 62, 1 << 62)


def read(log: LogSnapshot, query: Query, rule: CarriedRule = EVERY_CARRIED) -> Rows:
    """What the source reads, as ``messages``, ``deliveries`` and ``facts`` above have it: times as microseconds, the
    JSON of facts read."""
    return read_parts(log, log_snapshot.slices(log), query, rule)


def read_parts(
    log: LogSnapshot, parts: Iterable[SegmentSlice], query: Query, rule: CarriedRule = EVERY_CARRIED
) -> Rows:
    """The same of some parts of the log."""
    rows: Rows = []
    for one in parts:
        for batch in row_reader.read(one, log.uuid, query, rule):
            assert batch.schema.equals(schema.arrow_schema(query.columns)), "the types are Spark's"
            for one, column in zip(query.columns, batch.columns, strict=True):
                assert one.nullable or not column.null_count, f"{one.name} is declared never to be null"
            assert 0 < batch.num_rows <= row_reader.BATCH_ROWS
            rows += plain(batch)
    return rows


def assert_same(found: Rows, wanted: Rows) -> None:
    """Fails with the first row that differs and its columns: nobody reads a difference of whole logs, megabytes."""
    for number, (one, other) in enumerate(zip(found, wanted, strict=False)):
        columns = [name for name in other if name not in one or one[name] != other[name]]
        said = ", ".join(f"{name} {one.get(name)!r:.300}, not {other[name]!r:.300}" for name in columns)
        assert not columns, f"row {number} of {len(found)} (wanted {len(wanted)}), sequence {other['sequence']}: {said}"
        assert one.keys() == other.keys()
    assert len(found) == len(wanted), f"{len(found)} rows, not {len(wanted)}"


def plain(batch: pa.RecordBatch) -> Rows:
    columns: dict[str, list[Any]] = {}
    for field, column in zip(batch.schema, batch.columns, strict=True):
        column.validate(full=True)
        if field.type == schema.TIME:
            columns[field.name] = column.cast(pa.int64()).to_pylist()
        elif field.type == schema.HEADERS:
            columns[field.name] = [dict(one) for one in column.to_pylist()]
        elif field.name == "detail" and field.type == schema.TEXT:
            columns[field.name] = [None if one is None else json.loads(one) for one in column.to_pylist()]
        else:
            columns[field.name] = column.to_pylist()
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
