"""Publishes messages of a log again, parents before children, each child below the new copy of its parent.

The rows come in the order of their sequences, in which parents stand before children; one writer takes them all, so
what has the same key or goes to the same queue keeps its order too. A batch a queue is being filled. A parent that is
in the batch its child goes to is named by its line (``#3``), one that was published before by its new id; one that
waits in another queue's batch has that sent first. So a chain in one queue takes as many requests as it has batches,
and only one that changes the queue at every step takes a request a step.

Each message has the idempotency key NAME/ORIGINAL ID. A replay that was cut short is run again from the beginning: what
the broker has already it answers with the id it gave it, which is how the children learn it; nothing is kept here.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa

from syncbrok.model.limits import MIB
from syncbrok.pipeline.sink.lines import BadRow, Lines
from syncbrok.pipeline.sink.publisher import Publisher, Refused, Target

HEADER: Final = "replay-of"
"""what subscribers get with a replayed message: the id of the original"""
COLUMNS: Final = ("sequence", "id", "queue", "parents", "is_parent", "key", "headers", "content_type", "content",
                  "parent_failure")  # fmt: skip
RESULT_DDL: Final = "sequence bigint, id string, queue string, new_id string, known boolean"
_RESULT: Final = pa.schema(
    [
        ("sequence", pa.int64()),
        ("id", pa.string()),
        ("queue", pa.string()),
        ("new_id", pa.string()),
        ("known", pa.bool_()),
    ]
)
_LINES: Final = pa.schema(
    [
        ("content", pa.binary()),
        ("content_type", pa.string()),
        ("parents", pa.list_(pa.string())),
        ("key", pa.string()),
        ("headers", pa.map_(pa.string(), pa.string())),
        ("idempotency_key", pa.string()),
        ("parent_failure", pa.string()),
    ]
)
_BATCH_ROWS: Final = 1_000
_BATCH_BYTES: Final = 4 * MIB
_ROW_BYTES: Final = 512
"""of a line beside content and headers, roughly; content may grow by a third as base64"""


class Order(NamedTuple):
    """What to do, sent to the task that does it."""

    target: Target
    name: str
    queue: str | None
    """where everything goes; None: each message to its own queue"""
    dropped_parents: frozenset[str]
    """ids that the broker does not know: left out"""


class Replaying:
    """Rows in, results out. Remembers the new ids of those messages that have children in the selection."""

    def __init__(self, order: Order, publisher: Publisher) -> None:
        self._order = order
        self._publisher = publisher
        self._waiting: dict[str, list[dict[str, Any]]] = {}
        self._waiting_bytes: dict[str, int] = {}
        self._place: dict[str, tuple[str, int]] = {}
        """of what waits, by its old id: queue and line"""
        self._new_ids: dict[str, str] = {}

    def add(self, row: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
        """Take a row; what was published meanwhile comes out."""
        queue = self._order.queue or row["queue"]
        parents = []
        for parent in row["parents"] or ():
            place = self._place.get(parent)
            if place is not None and place[0] != queue:
                yield from self._send(place[0])
                place = None
            if place is not None:
                parents.append(f"#{place[1] + 1}")
            elif parent not in self._order.dropped_parents:
                parents.append(self._new_ids.get(parent, parent))
        waiting = self._waiting.setdefault(queue, [])
        self._place[row["id"]] = (queue, len(waiting))
        waiting.append({**row, "parents": parents})
        size = _ROW_BYTES + len(row["content"]) * 4 // 3 + sum(map(len, parents))
        self._waiting_bytes[queue] = self._waiting_bytes.get(queue, 0) + size
        if len(waiting) >= _BATCH_ROWS or self._waiting_bytes[queue] >= _BATCH_BYTES:
            yield from self._send(queue)

    def flush(self) -> Iterator[tuple[Any, ...]]:
        """Publish what still waits. A child in one queue never waits for a parent in another's batch: ``add`` sent
        it."""
        for queue in list(self._waiting):
            yield from self._send(queue)

    def _send(self, queue: str) -> Iterator[tuple[Any, ...]]:
        rows = self._waiting.pop(queue, [])
        self._waiting_bytes.pop(queue, None)
        if not rows:
            return
        lines = Lines(queue, None, self._order.name, 0)
        texts = [line.text for line in lines.of(self._batch(rows))]
        try:
            published = self._publisher.publish(queue, texts)
        except Refused as refused:
            raise _told(refused, rows) from None
        for row, new_id in zip(rows, published.ids, strict=True):
            del self._place[row["id"]]
            if row["is_parent"]:
                self._new_ids[row["id"]] = new_id
            yield row["sequence"], row["id"], queue, new_id, published.was_known

    def _batch(self, rows: list[dict[str, Any]]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([self._line(row) for row in rows], _LINES)

    def _line(self, row: Mapping[str, Any]) -> dict[str, Any]:
        headers = {**dict(row["headers"] or ()), HEADER: row["id"]}
        same = {name: row[name] for name in ("content", "parents", "key", "parent_failure")}
        same["content_type"] = row["content_type"] or None
        return {**same, "headers": list(headers.items()), "idempotency_key": f"{self._order.name}/{row['id']}"}


def published(order: Order, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a task does: the rows, in order, to the broker; a row of ``RESULT_DDL`` for each comes out."""
    with Publisher(order.target) as publisher:
        replaying = Replaying(order, publisher)
        done: list[tuple[Any, ...]] = []
        for batch in batches:
            for row in batch.to_pylist():
                done += replaying.add(row)
            yield _results(done)
            done = []
        done += replaying.flush()
        yield _results(done)


def _results(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [()] * len(_RESULT)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _RESULT, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_RESULT)


def _told(refused: Refused, rows: list[dict[str, Any]]) -> BadRow:
    if refused.line is None or refused.line >= len(rows):
        where = f"a batch of {len(rows)} messages, from {rows[0]['id']} on,"
    else:
        where = f"message {rows[refused.line]['id']}"
    return BadRow(f"{where} is refused: {refused.detail}. What was published before stays; run it again to go on")
