"""Many rows as one value. Pure Arrow.

Rows that go from one Python task to the next cost Spark as much for each value as all that is found out about them. So
they travel in **parcels**: an Arrow stream of all rows of a table that go to the same place, one of ``PLACES``. Spark
brings the parcels of a place together and does not look inside.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from syncbrok.pipeline import arrow_stream
from syncbrok.pipeline.lineage.forest import Longs

PLACES: Final = 512
"""what is about a root, or about a message, is at one of so many: a billion messages make two million at each"""
PARCELS: Final = pa.schema([("place", pa.int32()), ("kind", pa.int32()), ("rows", pa.binary())])
DDL: Final = "place int, kind int, rows binary"


def parcels(table: pa.Table, keys: Longs, kind: int) -> pa.Table:
    """``table`` parcelled by the place of each row's key (a sequence)."""
    place = keys % PLACES
    order = np.argsort(place, kind="stable")
    sorted_, places = table.take(pa.array(order)).combine_chunks(), place[order]
    starts = np.flatnonzero(np.append([True], np.diff(places) != 0)[: len(places)])
    ends = np.append(starts[1:], len(places))[: len(starts)]
    made = [arrow_stream.written(sorted_.slice(start, end - start)) for start, end in zip(starts, ends, strict=True)]
    columns = [places[starts].astype(np.int32), np.full(len(starts), kind, np.int32), pa.array(made, pa.binary())]
    return pa.table(columns, schema=PARCELS)


def opened(received: pa.Table, schema: pa.Schema) -> pa.Table:
    """All rows of some parcels."""
    return pa.concat_tables([schema.empty_table(), *_tables(received)]).combine_chunks()


def together(received: pa.Table, rows_max: int) -> Iterator[pa.Table]:
    """Parcels place by place, those of several places where they have few rows: about ``rows_max``."""
    received = received.sort_by("place")
    places, rows = received["place"].to_numpy(), [one.num_rows for one in _tables(received)]
    start = held = 0
    for at, count in enumerate(rows):
        if held >= rows_max and places[at] != places[at - 1]:
            yield received.slice(start, at - start)
            start, held = at, 0
        held += count
    if start < len(rows):
        yield received.slice(start)


def _tables(received: pa.Table) -> Iterator[pa.Table]:
    return (arrow_stream.read(one.as_buffer()) for one in received["rows"])
