"""A partition: the work of one task of Spark, batch or stream."""

import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from syncbrok.pipeline import schema
from syncbrok.pipeline.decode import row_reader
from syncbrok.pipeline.decode.query import CarriedRule, Query
from syncbrok.pipeline.log_snapshot import SegmentSlice
from syncbrok.pipeline.object_store import ArchivePlace
from syncbrok.pipeline.source.socket_buffer import give_room, own_sockets
from syncbrok.pipeline.states import state_reader
from syncbrok.pipeline.states.state_reader import StateSlices

if TYPE_CHECKING:
    from syncbrok.pipeline.tables.table_rows import TableFile


class LogPartition(InputPartition):
    """Slices of the log ``uuid``, in order. ``with_log``: its rows say of which log they are."""

    def __init__(self, slices: list[SegmentSlice], uuid: bytes, rule: CarriedRule, *, with_log: bool = False) -> None:
        first, last = slices[0].first, slices[-1].last
        self.slices = slices
        self.uuid = uuid
        self.with_log = with_log
        self.rule = rule._replace(superseded=tuple(one for one in rule.superseded if first <= one <= last))

    def __repr__(self) -> str:
        return f"LogPartition(sequences {self.slices[0].first} to {self.slices[-1].last})"


class StatePartition(InputPartition):
    """The work of a task for the kinds that follow from all records together."""

    def __init__(self, work: StateSlices, uuid: bytes, *, with_log: bool) -> None:
        self.work = work
        self.uuid = uuid
        self.with_log = with_log

    def __repr__(self) -> str:
        return f"StatePartition(messages {self.work.low} to {self.work.high})"


class TablePartition(InputPartition):
    """Files of a table in an archive of the log ``uuid``, of which rows up to sequence ``through`` are read."""

    def __init__(
        self, place: ArchivePlace, files: "list[TableFile]", uuid: bytes, through: int, *, with_log: bool
    ) -> None:
        self.place = place
        self.files = files
        self.uuid = uuid
        self.through = through
        self.with_log = with_log

    def __repr__(self) -> str:
        return f"TablePartition({len(self.files)} files of {self.place})"


def freeze_what_is_imported() -> None:
    """Leave what is imported out of garbage collection. Spark's worker collects garbage after each task, and after each
    question about a source (its schema, its partitions): so it takes 2 ms instead of 33."""
    gc.freeze()


def read_partition(partition: InputPartition, query: Query) -> Iterator[pa.RecordBatch]:
    """The rows of a partition."""
    freeze_what_is_imported()
    give_room(own_sockets())
    if not isinstance(partition, LogPartition | StatePartition | TablePartition):
        return  # where there is nothing to read Spark makes a partition of its own
    for batch in _batches(partition, query):
        yield _with_log(batch, partition.uuid) if partition.with_log else batch


def _batches(partition: LogPartition | StatePartition | TablePartition, query: Query) -> Iterator[pa.RecordBatch]:
    if isinstance(partition, TablePartition):
        from syncbrok.pipeline.tables import table_rows  # noqa: PLC0415  # who reads a log needs none of it

        yield from table_rows.read_files(partition.place, partition.files, query, partition.through)
        return
    if isinstance(partition, StatePartition):
        yield from state_reader.read(partition.work, partition.uuid, query)
        return
    for one in partition.slices:
        yield from row_reader.read(one, partition.uuid, query, partition.rule)


def _with_log(batch: pa.RecordBatch, uuid: bytes) -> pa.RecordBatch:
    """The rows with the column ``schema.LOG``."""
    column = pa.repeat(pa.scalar(uuid.hex(), schema.LOG.arrow), batch.num_rows)
    (field,) = schema.arrow_schema((schema.LOG,))
    return pa.record_batch([*batch.columns, column], batch.schema.append(field))
