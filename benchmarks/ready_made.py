"""What Spark itself costs with rows from Python: a data source that gives one batch of a log over and over, decoded
once. The log can be read no faster than this through ``pyspark.sql.datasource``, however fast it is decoded.

Options: ``columns``, and ``rows`` to give in all.
"""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from syncbrok.pipeline import log_snapshot
from syncbrok.pipeline.decode import row_reader
from syncbrok.pipeline.decode.query import CarriedRule
from syncbrok.pipeline.source.data_source import SyncbrokDataSource
from syncbrok.pipeline.source.options import ReadOptions, read_options
from syncbrok.pipeline.source.partition import freeze_what_is_imported

_PARTITIONS: Final = 4


class _Rows(InputPartition):
    def __init__(self, count: int) -> None:
        self.count = count


class _Reader(DataSourceReader):
    def __init__(self, options: ReadOptions, rows: int) -> None:
        self._options = options
        self._rows = rows

    def partitions(self) -> list[InputPartition]:
        return [_Rows(self._rows // _PARTITIONS) for _ in range(_PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        freeze_what_is_imported()
        log = log_snapshot.take_snapshot(self._options.place)
        first = log_snapshot.slices(log)[0]
        batch = next(row_reader.read(first, log.uuid, self._options.query, CarriedRule()))
        assert isinstance(partition, _Rows)
        left = partition.count
        while left > 0:
            yield batch.slice(0, left)
            left -= batch.num_rows


class ReadyMade(SyncbrokDataSource):
    """``spark.dataSource.register(ReadyMade)``, then ``format("ready-made")``."""

    @classmethod
    def name(cls) -> str:
        return "ready-made"

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._rows = int(self.options.pop("rows"))  # which the source has not, and refuses

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(read_options(self.options, schema.fields), self._rows)
