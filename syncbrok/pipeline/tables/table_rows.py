"""Rows of an archive's Parquet files, read by pyarrow in a task: columns and rows as a query wants them. No Spark."""

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs, parquet

from syncbrok.model.errors import Gone
from syncbrok.pipeline import schema
from syncbrok.pipeline.decode.query import Condition, Query
from syncbrok.pipeline.object_store import ArchivePlace

_ROWS: Final = 8_192
"""in a batch"""
_COMPARED: Final = {"<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}


class TableFile(NamedTuple):
    """A Parquet file of a table; ``path`` is relative to the table. ``queue``: that of all its rows, None where they
    have none or several. The extremes are of ``sequence`` and ``time``; None where nobody says."""

    path: str
    bytes: int
    queue: str | None
    day: str
    first: int | None
    last: int | None
    from_us: int | None
    to_us: int | None

    def may_have(self, condition: Condition) -> bool:
        """False if no row of the file can hold ``condition``."""
        known = {"sequence": (self.first, self.last), "time": (self.from_us, self.to_us)}
        low, high = known.get(condition.column, (None, None))
        one = condition.values[0]
        match condition.operation:
            case "<" | "<=":
                return low is None or low <= one
            case ">" | ">=":
                return high is None or high >= one
            case _:
                return True


def read_files(place: ArchivePlace, files: Sequence[TableFile], query: Query, through: int) -> Iterator[pa.RecordBatch]:
    """The rows of ``query`` in these files of the table of its kind, up to sequence ``through``. Raises ``Gone`` where
    a file was removed since the table was looked at, and what pyarrow raises."""
    system = place.file_system()
    for one in files:
        path = place.full(f"{query.kind}/{one.path}")
        try:
            yield from _rows(path, system, one.queue, query, through)
        except FileNotFoundError as problem:
            raise Gone(
                f"{path} was removed while it was to be read: it was compacted and nobody keeps it any longer, or "
                "something in it was erased. Read again: the table has other files now"
            ) from problem


def _rows(path: str, system: fs.FileSystem, queue: str | None, query: Query, through: int) -> Iterator[pa.RecordBatch]:
    conditions = (*query.everything(), Condition("sequence", "<=", (through,)))
    with parquet.ParquetFile(path, filesystem=system, pre_buffer=True) as file:
        # A file of before lacks columns that came later.
        there = set(file.schema_arrow.names)
        asked = {one.name for one in query.columns} | {one.column for one in conditions}
        asked |= {name for name, values in _lists(query) if values is not None}
        wanted = schema.arrow_schema(query.columns)
        for batch in file.iter_batches(_ROWS, columns=sorted(asked & there), use_threads=False):
            fitting = batch.filter(_fits(batch, conditions, query))
            if fitting.num_rows:
                columns = [_column(one, fitting, queue) for one in query.columns]
                yield pa.RecordBatch.from_arrays(columns, schema=wanted)


def _column(one: schema.Column, batch: pa.RecordBatch, queue: str | None) -> pa.Array:
    if one.name not in batch.schema.names:
        nothing = False if one.name == "erased" else None
        return pa.repeat(pa.scalar(queue if one.name == "queue" else nothing, one.arrow), batch.num_rows)
    found = batch[one.name]
    if one.name == "erased":
        found = pc.fill_null(found, False)
    return found if found.type == one.arrow else found.cast(one.arrow)


def _lists(query: Query) -> list[tuple[str, frozenset[str] | None]]:
    """Columns of facts that are compared with names; of other kinds whole files were chosen by queue."""
    return [("queue", query.queues), ("kind", query.fact_kinds)] if query.kind == "facts" else []


def _fits(batch: pa.RecordBatch, conditions: Sequence[Condition], query: Query) -> pa.Array:
    """For each row: true if it is wanted."""
    found = [_COMPARED[one.operation](batch[one.column], _value(one)) for one in conditions]
    for name, values in _lists(query):
        if values is not None:
            found.append(pc.is_in(batch[name], pa.array(sorted(values), schema.TEXT)))
    return reduce(pc.and_, found)


def _value(condition: Condition) -> pa.Scalar:
    return pa.scalar(condition.values[0], schema.TIME if condition.column == "time" else schema.LONG)
