"""The log as a data source of Spark: ``spark.read.format("syncbrok")`` and ``readStream``; its sink is ``sink``.

Options: ``kind`` (messages, deliveries, facts), ``columns`` (a comma list: Spark prunes none for a source in Python),
``queue`` (a name or a comma list), ``since`` and ``until`` (on ``time``; RFC 3339 or Unix seconds; from and before),
``verify`` (checksums; true), ``pushdown`` (filters are handed down, where ``spark.sql.python.filterPushdown.enabled``
is on; false), ``partitionBytes`` (256 MiB) and ``minPartitions`` (as many as this machine has cores). A batch is one
look at the log: what was on the disk when it was planned.
"""

import gc
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition

from syncbrok.pipeline import decode, log_files, schema
from syncbrok.pipeline.decode_query import CarriedRule, Query
from syncbrok.pipeline.log_files import Slice
from syncbrok.pipeline.source_filters import take
from syncbrok.pipeline.source_options import ReadOptions, read_options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class LogPartition(InputPartition):
    """What one task reads."""

    def __init__(self, slices: list[Slice], uuid: bytes, rule: CarriedRule) -> None:
        self.slices = slices
        self.uuid = uuid
        self.rule = rule

    def __repr__(self) -> str:
        return f"LogPartition(sequences {self.slices[0].first} to {self.slices[-1].last})"


def read_partition(partition: InputPartition, query: Query) -> Iterator["pa.RecordBatch"]:
    """The rows of a partition."""
    # Spark's worker collects garbage after each task: with all that is imported left out, 2 ms instead of 33.
    gc.freeze()
    if isinstance(partition, LogPartition):  # where there is nothing to read Spark makes a partition of its own
        for one in partition.slices:
            yield from decode.read(one, partition.uuid, query, partition.rule)


class SyncbrokReader(DataSourceReader):
    """Reads a log once."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._query = options.query

    def partitions(self) -> list[InputPartition]:
        """One look at the log, shared out. Raises ``LogCorrupt`` and ``BadSetting``."""
        log = log_files.look(log_files.directory_of(self._options.path))
        parts = log_files.share_out(log_files.slices(log), self._options.partition_bytes, self._options.least)
        return [LogPartition(slices, log.uuid, CarriedRule()) for slices in parts]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        return read_partition(partition, self._query)


class FilteringReader(SyncbrokReader):
    """The same, which takes filters; Spark refuses such a reader where handing down is switched off."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # Spark's name
        self._query, left = take(self._query, filters)
        return left


class SyncbrokDataSource(DataSource):
    """Register it once: ``spark.dataSource.register(SyncbrokDataSource)``."""

    @classmethod
    def name(cls) -> str:
        return "syncbrok"

    def schema(self) -> str:
        return schema.ddl(read_options(self.options).query.columns)

    def reader(self, schema: "StructType") -> DataSourceReader:
        options = read_options(self.options, schema.names)
        return FilteringReader(options) if options.pushdown else SyncbrokReader(options)

    def writer(self, schema: "StructType", overwrite: bool) -> Any:
        from syncbrok.pipeline.sink import SyncbrokArrowWriter  # noqa: PLC0415  # who only reads needs none of it

        return SyncbrokArrowWriter(dict(self.options), schema)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> Any:  # noqa: N802  # Spark's name
        from syncbrok.pipeline.sink import SyncbrokStreamArrowWriter  # noqa: PLC0415  # who only reads needs none of it

        return SyncbrokStreamArrowWriter(dict(self.options), schema)
