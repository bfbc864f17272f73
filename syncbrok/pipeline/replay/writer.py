"""Publishes messages of a log again, parents before children, each child below the new copy of its parent.

The rows come in the order of their sequences, in which parents stand before children; one writer takes them all, so
what has the same key or goes to the same queue keeps its order too. A batch a queue is being filled. A parent that is
in the batch its child goes to is named by its line (``#3``), one that was published before by its new id, also where
the broker took only a part of the batch at a time; one that waits in another queue's batch has that sent first. So a
chain in one queue takes as many requests as it has batches, and only one that changes the queue at every step takes a
request a step.

Each message has the idempotency key NAME/ORIGINAL ID. A replay that was cut short is run again from the beginning: what
the broker has already it answers with the id it gave it, which is how the children learn it; nothing is kept here.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa

from syncbrok.model.limits import MIB
from syncbrok.pipeline.sink.publisher import AcceptedRequest, PreparedRow, Publisher, PublishTarget, RequestBatcher
from syncbrok.pipeline.sink.row_encoder import RowEncoder
from syncbrok.pipeline.sink.row_keys import KEY, KeyRule

HEADER: Final = "replay-of"
"""what subscribers get with a replayed message: the id of the original"""
COLUMNS: Final = ("sequence", "id", "queue", "parents", "children", "key", "headers", "content_type", "content",
                  "parent_failure", "erase_after_us")  # fmt: skip
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
_BATCH_ROWS: Final = 1_000
_BATCH_BYTES: Final = 4 * MIB


class ReplayTask(NamedTuple):
    """The instructions that a task is sent."""

    target: PublishTarget
    name: str
    queue: str | None
    """where everything goes; None: each message to its own queue"""
    dropped_parents: frozenset[str]
    """ids that the broker does not know: left out"""


class _WaitingCopy(NamedTuple):
    """A message whose copy waits for its request, as line ``number`` (from 1) of those for its queue."""

    queue: str
    number: int
    sequence: int
    children: int
    """that are still to come"""


class ReplayWriter:
    """Takes rows and gives results. Remembers the new id of a message until the last of its children in the selection
    has come."""

    def __init__(self, task: ReplayTask, publisher: Publisher) -> None:
        self._task = task
        self._lines = RowEncoder(None, KeyRule((KEY,)), task.name, 0)
        self._batches = RequestBatcher(
            publisher,
            _BATCH_ROWS,
            _BATCH_BYTES,
            lambda line: f"message {self._old_id(line)}",
            "what was published stays; run it again to go on",
        )
        self._waiting: dict[str, _WaitingCopy] = {}
        """what has no new id yet, by its old one"""
        self._new_ids: dict[str, str] = {}
        self._children: dict[str, int] = {}
        """of those that have a new id: how many are still to come"""

    def add(self, row: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
        """Take a row, and yield the results of what was published meanwhile."""
        queue = self._task.queue or row["queue"]
        for parent in row["parents"] or ():
            waiting = self._waiting.get(parent)
            if waiting is not None and waiting.queue != queue:
                yield from self._done(self._batches.send(waiting.queue))
        line = self._lines.one(self._copy(row, queue))
        number = self._batches.waiting(queue) + 1
        self._waiting[row["id"]] = _WaitingCopy(queue, number, row["sequence"], row["children"])
        yield from self._done(self._batches.add(line))
        if row["id"] in self._waiting:  # those before it may have been sent to make room
            self._waiting[row["id"]] = self._waiting[row["id"]]._replace(number=self._batches.waiting(queue))

    def flush(self) -> Iterator[tuple[Any, ...]]:
        """Publish what still waits, and yield the results. A child in one queue never waits for a parent in another's
        batch: ``add`` sent it."""
        yield from self._done(self._batches.flush())

    def _done(self, requests: Iterator[AcceptedRequest]) -> Iterator[tuple[Any, ...]]:
        for accepted in requests:
            for line, new_id in zip(accepted.lines, accepted.ids, strict=True):
                old_id = self._old_id(line)
                done = self._waiting.pop(old_id)
                if done.children:
                    self._new_ids[old_id], self._children[old_id] = new_id, done.children
                yield done.sequence, old_id, accepted.queue, new_id, accepted.was_known

    def _copy(self, row: Mapping[str, Any], queue: str) -> dict[str, Any]:
        """The copy as a row, from which the sink makes a line."""
        same = {name: row[name] for name in ("content", "key", "parent_failure")}
        same["content_type"] = row["content_type"] or None
        after_us = row.get("erase_after_us")
        same["erase_after"] = None if after_us is None else after_us / 1e6
        parents = [self._parent(one) for one in row["parents"] or () if one not in self._task.dropped_parents]
        headers = {**dict(row["headers"] or ()), HEADER: row["id"]}
        key = f"{self._task.name}/{row['id']}"
        return {**same, "queue": queue, "parents": parents, "headers": headers, "idempotency_key": key}

    def _parent(self, old_id: str) -> str:
        waiting = self._waiting.get(old_id)
        if waiting is not None:
            self._waiting[old_id] = waiting._replace(children=waiting.children - 1)
            return f"#{waiting.number}"
        new_id = self._new_ids.get(old_id, old_id)
        if old_id in self._children:
            self._children[old_id] -= 1
            if not self._children[old_id]:
                del self._new_ids[old_id], self._children[old_id]
        return new_id

    def __len__(self) -> int:
        """The number of messages that are remembered."""
        return len(self._waiting) + len(self._new_ids)

    def _old_id(self, line: PreparedRow) -> str:
        return line.key.removeprefix(f"{self._task.name}/")


def published(task: ReplayTask, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The work of a task: publish the rows, in order, and yield a row of ``RESULT_DDL`` for each."""
    with Publisher(task.target) as publisher:
        replaying = ReplayWriter(task, publisher)
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
