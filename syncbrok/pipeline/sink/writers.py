"""``df.write.format("syncbrok")`` and ``df.writeStream.format("syncbrok")``: publishes rows to a broker.

    df.select("content", "key", "order").write.format("syncbrok").mode("append")
        .option("url", "http://127.0.0.1:10000").option("queue", "orders")
        .option("keyColumn", "order").save()

``sink.row_encoder`` says what the columns are, ``sink.options`` what the options are.

**Nothing twice.** Every row goes out with an idempotency key. So a repeated task, a query that starts again at its
checkpoint, or a request without an answer only repeats keys that the broker knows, and adds nothing (RULES 4). A row's
key comes from its key column, or from the columns of its place in its source (``sink.row_keys``): then it is the same
on any number of cores. Where the option ``keys`` says so it is made of the row's position: query, batch, partition and
number of the row (for a write that is no stream ``run``, else a name made for this write, replaces query and batch).
Then the rows must come in the same partitions and order each time, which another number of cores or a shuffle changes.
And the repetition must fall into the queue's idempotency window (24 h unless the queue says otherwise): later the
broker has forgotten the keys.

A task sends one request at a time, so the broker sees as many at once as there are tasks running (``coalesce`` bounds
them), and the rows of a partition and queue are accepted in their order. A partition is not one unit: rows accepted
before a refused one stay accepted, and running the mended rows again with the same keys publishes the rest.
"""

import logging
import uuid
from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from syncbrok.model.errors import BadSetting
from syncbrok.pipeline.sink.options import SinkOptions, read_options
from syncbrok.pipeline.sink.parent_links import COLUMN, ParentLinks
from syncbrok.pipeline.sink.publisher import AcceptedRequest, PreparedRow, Publisher, RequestBatcher
from syncbrok.pipeline.sink.row_encoder import RowEncoder, check_schema, rows_of
from syncbrok.pipeline.sink.row_keys import KeyRule

log = logging.getLogger(__name__)

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"


class TaskResult(WriterCommitMessage):
    """The result of one task. ``rows_known``: rows in requests in which the broker knew every row already."""

    def __init__(self, partition: int, rows: int, rows_known: int, requests: int, retries: int) -> None:
        self.partition = partition
        self.rows = rows
        self.rows_known = rows_known
        self.requests = requests
        self.retries = retries


class SyncbrokArrowWriter(DataSourceArrowWriter):
    """Publishes the rows of a write. Made once, on the driver, and sent to every task and every repetition of one:
    ``run`` is the same in all."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool = False) -> None:
        self._options, self._rule = _checked(options, schema, overwrite)
        self._run = self._options.run or str(uuid.uuid4())
        if self._options.queue is not None:
            with Publisher(self._options.target) as publisher:
                publisher.check_queue(self._options.queue)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        return _publish(self._options, self._rule, self._run, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _log_sent("syncbrok.pipeline.published", self._run, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _log_sent("syncbrok.pipeline.publish_failed", self._run, messages)


class SyncbrokStreamArrowWriter(DataSourceStreamArrowWriter):
    """Publishes the rows of one batch of a streaming query. Made anew for each batch, in other processes: it has
    nothing of its own to remember."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool = False) -> None:
        self._options, self._rule = _checked(options, schema, overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        return _publish(self._options, self._rule, self._run_of_batch(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        _log_sent("syncbrok.pipeline.published", str(batchId), messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        _log_sent("syncbrok.pipeline.publish_failed", str(batchId), messages)

    def _run_of_batch(self) -> str:
        """A name of query and batch, which are the same after a restart. If Spark does not say them (it does, but
        promises nothing), only keys from columns are safe: else raises ``BadSetting``."""
        if not self._rule.by_position:
            return ""
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY_ID) if context else None
        batch = context.getLocalProperty(_BATCH_ID) if context else None
        if query and batch:
            return f"{self._options.run or query}-{batch}"
        raise BadSetting(
            "this Spark does not tell its tasks which query and batch they belong to, so rows can have no keys "
            "from their positions: name a column of keys with the option keyColumn"
        )


def _checked(options: Mapping[str, str], schema: StructType, overwrite: bool) -> tuple[SinkOptions, KeyRule]:
    if overwrite:
        raise BadSetting('a queue is only added to: .mode("append"), or .outputMode("append") of a stream')
    read = read_options(options)
    return read, check_schema(schema, read.queue, read.key_column, read.run, by_position=read.by_position)


def _publish(options: SinkOptions, rule: KeyRule, run: str, batches: Iterator[pa.RecordBatch]) -> TaskResult:
    """Publish the rows of the partition of this task."""
    context = TaskContext.get()
    partition = context.partitionId() if context else 0
    encoder = RowEncoder(options.queue, rule, run, partition)

    def name(line: PreparedRow) -> str:
        return f"row {line.position} of partition {partition} (idempotency_key {line.key!r})"

    with Publisher(options.target) as publisher:
        sending = RequestBatcher(
            publisher, options.batch_rows, options.batch_bytes, name, "with the same keys they may be published again"
        )
        rows_known = requests = 0
        for accepted in _sent(encoder, batches, sending, ParentLinks(publisher, sending, name)):
            requests += 1
            rows_known += len(accepted.lines) if accepted.was_known else 0
        return TaskResult(partition, encoder.rows, rows_known, requests, publisher.retries)


def _sent(
    encoder: RowEncoder, batches: Iterator[pa.RecordBatch], sending: RequestBatcher, links: ParentLinks
) -> Iterator[AcceptedRequest]:
    """Publish all rows, and yield the requests. Only rows that may be parents of others are remembered, in ``links``.
    Those of a partition all have the same columns."""
    for batch in batches:
        if COLUMN in batch.schema.names:
            for row in rows_of(batch):
                yield from links.add(encoder.one(row), row[COLUMN] or ())
        else:
            for line in encoder.of(batch):
                yield from sending.add(line)
    yield from links.flush()


def _log_sent(event: str, run: str, messages: list[WriterCommitMessage | None]) -> None:
    """Log the tasks that ended. In ``messages`` those that did not are None."""
    sent = [message for message in messages if isinstance(message, TaskResult)]
    told = {
        "run": run,
        "tasks": len(sent),
        "rows": sum(one.rows for one in sent),
        "rows_known": sum(one.rows_known for one in sent),
        "requests": sum(one.requests for one in sent),
        "retries": sum(one.retries for one in sent),
    }
    log.info(event, extra=told)
