"""Rows on their way through a shuffle, many as one value. No Spark.

Rows that go from one Python task to the next cost Spark as much for each value as all that is found out about them. So
they travel in **shuffle blocks**: an Arrow stream of all rows of a table that go to the same bucket, one of
``BUCKETS``. Spark brings the blocks of a bucket together and does not look inside.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from syncbrok.pipeline import arrow_ipc
from syncbrok.pipeline.map_in_arrow import RecordBatches
from syncbrok.pipeline.numpy_columns import Longs, group_starts
from syncbrok.pipeline.schema import ddl_of

ROWS_AT_ONCE: Final = 1 << 20
"""about so many rows of what was brought together are looked at at once"""
ROWS_PER_TABLE: Final = 1 << 18
"""so many are made into blocks at once; neighbours fill a block all the same"""
BUCKETS: Final = 512
"""what is about a root, or about a message, is in one of so many: a billion messages make two million in each"""
NEIGHBOURS: Final = 1 << 12
"""so many neighbouring sequences are in the same bucket, since what belongs together mostly are neighbours: a message
and its deliveries. So blocks are few and what is in them is in order; buckets by the last digits made fifty times as
many"""
FEW_NEIGHBOURS: Final = 1 << 4
"""of roots: each may stand for millions of messages"""
_BATCH_ROWS: Final = 10_000
_BATCH_BYTES: Final = 4 << 20
BLOCK_SCHEMA: Final = pa.schema(
    [("bucket", pa.int32()), ("kind", pa.int32()), ("rows", pa.int32()), ("table", pa.binary())]
)
BLOCK_DDL: Final = ddl_of(BLOCK_SCHEMA)


class ShuffleBlock(NamedTuple):
    """The ``rows`` rows that came to ``bucket`` as one block: ``table`` is its Arrow stream. On what ``kind`` means
    sender and receiver agree."""

    bucket: int
    kind: int
    rows: int
    table: pa.Buffer


def shuffle_blocks(table: pa.Table, keys: Longs, kind: int, neighbours: int = NEIGHBOURS) -> pa.Table:
    """The rows of ``table`` as blocks (``BLOCK_SCHEMA``), by the bucket of each row's key (a sequence). ``neighbours``:
    so many neighbouring keys are in the same bucket."""
    bucket = (keys // neighbours % BUCKETS).astype(np.uint16)
    if (bucket[1:] < bucket[:-1]).any():
        order = np.argsort(bucket, kind="stable")
        table, bucket = table.take(pa.array(order)), bucket[order]
    table = table.combine_chunks()
    starts = group_starts(bucket)
    ends = np.append(starts[1:], len(bucket))[: len(starts)]
    made = [arrow_ipc.serialized(table.slice(start, end - start)) for start, end in zip(starts, ends, strict=True)]
    columns = [bucket[starts], np.full(len(starts), kind), ends - starts, pa.array(made, pa.binary())]
    return pa.table(
        [pa.array(one).cast(field.type) for one, field in zip(columns, BLOCK_SCHEMA, strict=True)], BLOCK_SCHEMA
    )


def received_groups(batches: RecordBatches) -> Iterator[list[ShuffleBlock]]:
    """Yield the blocks of a task in groups of about ``ROWS_AT_ONCE`` rows; all of a bucket are in one group."""
    return grouped_by_bucket(received_blocks(batches), ROWS_AT_ONCE)


def received_blocks(batches: RecordBatches) -> list[ShuffleBlock]:
    """All blocks of a task, by their buckets."""
    found = [
        ShuffleBlock(bucket.as_py(), kind.as_py(), rows.as_py(), table.as_buffer())
        for batch in batches
        for bucket, kind, rows, table in zip(*batch.columns, strict=True)
    ]
    return sorted(found, key=lambda one: one.bucket)


def grouped_by_bucket(blocks: Iterable[ShuffleBlock], rows_max: int) -> Iterator[list[ShuffleBlock]]:
    """Groups of ``blocks``: those of one bucket together, and small buckets together, up to about ``rows_max`` rows."""
    held: list[ShuffleBlock] = []
    rows = 0
    for one in blocks:
        if rows >= rows_max and one.bucket != held[-1].bucket:
            yield held
            held, rows = [], 0
        held.append(one)
        rows += one.rows
    if held:
        yield held


def rows_of_kind(blocks: Iterable[ShuffleBlock], kind: int, schema: pa.Schema) -> pa.Table:
    """All rows of the blocks of ``kind``, one table of ``schema``."""
    tables = (arrow_ipc.deserialized(one.table) for one in blocks if one.kind == kind)
    return pa.concat_tables([schema.empty_table(), *tables]).combine_chunks()


def tables_of(batches: RecordBatches, rows: int = ROWS_PER_TABLE) -> Iterator[pa.Table]:
    """All rows of the batches, in tables of about ``rows`` rows; no empty table."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        if count >= rows:
            yield pa.Table.from_batches(held).combine_chunks()
            held, count = [], 0
    if count:
        yield pa.Table.from_batches(held).combine_chunks()


def batches_of(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """The table in batches that Spark's buffers are right for: of 10,000 rows, or as many as have 4 MiB."""
    rows = _BATCH_BYTES * table.num_rows // max(1, table.nbytes)
    yield from table.combine_chunks().to_batches(max_chunksize=max(1, min(rows, _BATCH_ROWS)))
