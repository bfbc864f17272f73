"""Many rows as one value. No Spark.

Rows that go from one Python task to the next cost Spark as much for each value as all that is found out about them. So
they travel in **parcels**: an Arrow stream of all rows of a table that go to the same place, one of ``PLACES``. Spark
brings the parcels of a place together and does not look inside.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from syncbrok.pipeline import arrow_stream
from syncbrok.pipeline.in_arrow import Batches
from syncbrok.pipeline.schema import ddl_of

BLOCK_ROWS: Final = 1 << 20
"""about so many rows of what was brought together are looked at at once"""
PARCELLED_ROWS: Final = 1 << 18
"""so many are parcelled at once; neighbours fill a parcel all the same"""
PLACES: Final = 512
"""what is about a root, or about a message, is at one of so many: a billion messages make two million at each"""
NEIGHBOURS: Final = 1 << 12
"""Sequences that stand next to each other are at the same place, since what belongs together mostly does: a message and
its deliveries. So parcels are few and what is in them is in order; places by the last digits made fifty times as
many."""
FEW_NEIGHBOURS: Final = 1 << 4
"""of roots: each may stand for millions of messages"""
_BATCH_ROWS: Final = 10_000
_BATCH_BYTES: Final = 4 << 20
PARCELS: Final = pa.schema([("place", pa.int32()), ("kind", pa.int32()), ("rows", pa.int32()), ("table", pa.binary())])
DDL: Final = ddl_of(PARCELS)

Longs = npt.NDArray[np.int64]


class Parcel(NamedTuple):
    """A ``table`` that came to ``place``, as it was sent, and how many ``rows`` it has. On what ``kind`` means sender
    and receiver agree."""

    place: int
    kind: int
    rows: int
    table: pa.Buffer


def parcels(table: pa.Table, keys: Longs, kind: int, neighbours: int = NEIGHBOURS) -> pa.Table:
    """``table`` parcelled by the place of each row's key (a sequence); so many ``neighbours`` are at the same."""
    place = (keys // neighbours % PLACES).astype(np.uint16)
    if (place[1:] < place[:-1]).any():
        order = np.argsort(place, kind="stable")
        table, place = table.take(pa.array(order)), place[order]
    table = table.combine_chunks()
    starts = np.flatnonzero(np.append([True], place[1:] != place[:-1])[: len(place)])
    ends = np.append(starts[1:], len(place))[: len(starts)]
    made = [arrow_stream.written(table.slice(start, end - start)) for start, end in zip(starts, ends, strict=True)]
    columns = [place[starts], np.full(len(starts), kind), ends - starts, pa.array(made, pa.binary())]
    return pa.table([pa.array(one).cast(field.type) for one, field in zip(columns, PARCELS, strict=True)], PARCELS)


def received(batches: Batches) -> list[Parcel]:
    """All parcels of a task, by their places."""
    found = [
        Parcel(place.as_py(), kind.as_py(), rows.as_py(), table.as_buffer())
        for batch in batches
        for place, kind, rows, table in zip(*batch.columns, strict=True)
    ]
    return sorted(found, key=lambda one: one.place)


def together(parcels: Iterable[Parcel], rows_max: int) -> Iterator[list[Parcel]]:
    """Group parcels: those of one place together, and small places together, up to about ``rows_max`` rows."""
    held: list[Parcel] = []
    rows = 0
    for one in parcels:
        if rows >= rows_max and one.place != held[-1].place:
            yield held
            held, rows = [], 0
        held.append(one)
        rows += one.rows
    if held:
        yield held


def opened(parcels: Iterable[Parcel], kind: int, schema: pa.Schema) -> pa.Table:
    """All rows of those of a kind."""
    tables = (arrow_stream.read(one.table) for one in parcels if one.kind == kind)
    return pa.concat_tables([schema.empty_table(), *tables]).combine_chunks()


def blocks(batches: Batches, rows: int = PARCELLED_ROWS) -> Iterator[pa.Table]:
    """All rows of the batches, about so many at once; no empty table."""
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
    """As Spark's buffers are right for: 10,000 rows, or as many as have 4 MiB."""
    rows = _BATCH_BYTES * table.num_rows // max(1, table.nbytes)
    yield from table.combine_chunks().to_batches(max_chunksize=max(1, min(rows, _BATCH_ROWS)))
