"""The log as a data source of Spark: ``spark.read.format("syncbrok")`` and ``readStream``; its sink is ``sink``.

A path is a broker's storage directory, its URL, or an archive with Delta tables (``tables``).
Options: ``kind`` (messages, deliveries, facts, states, queues, subscribers), ``columns`` (a comma list: Spark prunes
none for a source in Python), ``queue`` (a name, a comma list, or a JSON list where a name holds a comma or begins with
``[``), ``since`` and ``until`` (on ``time``; RFC 3339 or Unix seconds; from and before), ``startingSequence`` and
``endingSequence`` (the first and the last), ``verify`` (checksums; true), ``url`` (of a broker, in place of a path),
``token``, ``ca``, ``retryTimeout`` (2m) and ``answerTimeout`` (60s) for it, ``partitionBytes`` (512 MiB) and
``minPartitions`` (as many as this machine has cores). A batch is one snapshot of the log: what was on the disk when it
was planned."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from syncbrok.model.errors import BadSetting
from syncbrok.pipeline import log_snapshot
from syncbrok.pipeline.decode.plan import plan
from syncbrok.pipeline.decode.sidecar_rows import may_know
from syncbrok.pipeline.log_snapshot import LogSnapshot
from syncbrok.pipeline.schema import DERIVED, ddl
from syncbrok.pipeline.source.known_queues import check_queues
from syncbrok.pipeline.source.one_sentence import in_one_sentence
from syncbrok.pipeline.source.options import ReadOptions, batch_options, stream_options
from syncbrok.pipeline.source.partition import (
    LogPartition,
    StatePartition,
    TablePartition,
    freeze_what_is_imported,
    read_partition,
)
from syncbrok.pipeline.source.stream import SyncbrokStreamReader
from syncbrok.pipeline.states import state_reader

if TYPE_CHECKING:
    from syncbrok.pipeline.tables.table_snapshot import TableSnapshot

_INDEX_FACTOR = 16
"""A task costs as long as counting so many more records by their sidecars as it could decode."""

_PACKED = 4
"""A file of an archive has about so many times more rows than a log of as many bytes."""


class SyncbrokReader(DataSourceReader):
    """Reads logs, or tables of archives, once, as one batch."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """The partitions of one snapshot of each log and table. Raises ``LogCorrupt``, ``LogUnreachable`` and
        ``BadSetting``."""
        query = self._options.query
        with in_one_sentence():
            logs = [log_snapshot.take_snapshot(place) for place in self._options.places]
            tables = self._tables()
            uuids = [(str(one.place), one.uuid.hex()) for one in logs]
            _refuse_same([*uuids, *((str(one.place), one.log) for one in tables)])
            check_queues(logs, query.queues, tables)
            least = -(-self._options.least // (len(logs) + len(tables)))
            of_logs = [one for log in logs for one in self._of_log(log, least)]
            return of_logs + [one for table in tables for one in self._of_table(table, least)]

    def _tables(self) -> "list[TableSnapshot]":
        """The tables of the archives, now."""
        if not self._options.archives:
            return []
        from syncbrok.pipeline.tables.table_snapshot import take_tables  # noqa: PLC0415  # who reads a log needs none

        return [take_tables(place, self._options.query.kind) for place in self._options.archives]

    def _of_table(self, table: "TableSnapshot", least: int) -> list[InputPartition]:
        parts = table.shared_out(self._options.query, max(1, self._options.partition_bytes // _PACKED), least)
        uuid, with_log = bytes.fromhex(table.log), self._options.with_log
        return [TablePartition(table.place, files, uuid, table.through, with_log=with_log) for files in parts]

    def _of_log(self, log: LogSnapshot, least: int) -> list[InputPartition]:
        query = self._options.query
        if query.kind in DERIVED:
            planned = state_reader.plan(log, query, self._options.partition_bytes, least)
            return [StatePartition(one, log.uuid, with_log=self._options.with_log) for one in planned]
        parts, rule = plan(log, query)
        target_bytes = self._options.partition_bytes
        if may_know(query):
            target_bytes *= _INDEX_FACTOR
        packed = log_snapshot.share_out(parts, target_bytes, least)
        return [LogPartition(slices, log.uuid, rule, with_log=self._options.with_log) for slices in packed]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._options.query)


def _refuse_same(logs: Sequence[tuple[str, str]]) -> None:
    """Raises ``BadSetting`` where two of them (place and uuid) are one log: each of its rows would be there twice."""
    seen: dict[str, str] = {}
    for place, uuid in logs:
        if uuid in seen:
            raise BadSetting(
                f"{seen[uuid]} and {place} are the same log, {uuid}; give it once. A log together with its archive "
                "is LogAndArchive (docs/pipeline.md)"
            )
        seen[uuid] = place


class SyncbrokDataSource(DataSource):
    """The format ``syncbrok``. Register it once: ``spark.dataSource.register(SyncbrokDataSource)``."""

    @classmethod
    def name(cls) -> str:
        return "syncbrok"

    def schema(self) -> str:
        freeze_what_is_imported()
        # A stream's options too: Spark 4.3 buries errors of ``streamReader`` under one of its own.
        with in_one_sentence():
            return ddl(stream_options(self.options).read.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        freeze_what_is_imported()
        with in_one_sentence():
            return SyncbrokReader(batch_options(self.options, schema.fields))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        options = stream_options(self.options, schema.fields)
        kind = options.read.query.kind
        if kind in DERIVED:
            raise BadSetting(
                f"kind {kind} follows from all of the log and makes no stream: read it as a batch", kind=kind
            )
        return SyncbrokStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        from syncbrok.pipeline.sink.writers import SyncbrokArrowWriter  # noqa: PLC0415  # who only reads needs none of it

        with in_one_sentence():
            return SyncbrokArrowWriter(dict(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802  # Spark's name
        from syncbrok.pipeline.sink.writers import SyncbrokStreamArrowWriter  # noqa: PLC0415  # who only reads needs none of it

        with in_one_sentence():
            return SyncbrokStreamArrowWriter(dict(self.options), schema, overwrite)
