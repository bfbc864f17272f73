"""Rows of several kinds in one frame, and as numpy arrays where a task has them. Pure: no Spark is needed here.

What must meet in one place comes there by one shuffle: a frame has a struct for each kind of row, and of these one is
filled in in each row. Nothing in them is null: what has not happened, or is not there, is ``NEVER``.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from syncbrok.model.facts import Outcome
from syncbrok.model.message import ParentFailure
from syncbrok.pipeline.audit.rules import BAD_OUTCOMES, AuditFinding

NEVER: Final = 2**62
"""a record later than all"""

Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Kinds = Mapping[str, Mapping[str, str]]
"""kind of row -> its fields and their types, as Spark names them"""

OUTCOMES: Final = tuple(one.name.lower() for one in Outcome)
"""by their numbers, which begin at 1"""
DELIVERED, FAILED, LATE = int(Outcome.DELIVERED), int(Outcome.FAILED), int(Outcome.LATE)
BAD: Final = frozenset(OUTCOMES.index(one) + 1 for one in BAD_OUTCOMES)
POLICIES: Final = tuple(one.name.lower() for one in ParentFailure)
"""by their numbers, which begin at 0"""
FAIL, HOLD, DELIVER = int(ParentFailure.FAIL), int(ParentFailure.HOLD), int(ParentFailure.DELIVER)

FOUND: Final = {"rule": "string", "sequence": "bigint", "message": "bigint", "subscriber": "bigint", "what": "string"}
"""a finding; see ``rules.VIOLATION``"""

COUNTED: Final = 1
ENDS: Final = 2
GOOD: Final = 4
NORMAL: Final = 8
REPLAYED: Final = 16
REPLAY_SHIFT: Final = 8
"""``flags`` of an event. COUNTED: the message counts the subscriber. ENDS: its delivery ends; GOOD: it ends well. The
attempt is judged by the rules for everyone (NORMAL) or by those inside a replay (REPLAYED), whose number stands in the
bits from REPLAY_SHIFT on"""
JUDGED: Final = NORMAL | REPLAYED


class RowEvent(NamedTuple):
    """The event of a message at subscriber ``s`` that the row at (``seq``, ``pos``) records."""

    s: int
    seq: int
    pos: int
    after: int
    attempt: int
    flags: int


_WIDTH: Final = len(RowEvent._fields)
_ARROW: Final = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "array<bigint>": pa.list_(pa.int64()),
}


def ddl(kinds: Kinds) -> str:
    """The columns of a frame of these kinds, as Spark reads them."""
    return ", ".join(f"{name} {struct(fields)}" for name, fields in kinds.items())


def struct(fields: Mapping[str, str]) -> str:
    return f"struct<{', '.join(f'{field}: {kind}' for field, kind in fields.items())}>"


def packed(kinds: Kinds, name: str, columns: Mapping[str, Any]) -> pa.RecordBatch:
    """A batch of rows of the kind ``name``, as Spark takes them. ``columns``: arrays or lists, by field."""
    arrays = [_array(columns[field], _ARROW[kind]) for field, kind in kinds[name].items()]
    own = pa.StructArray.from_arrays(arrays, names=list(kinds[name]))
    others = {one: pa.nulls(len(own), _arrow(fields)) for one, fields in kinds.items() if one != name}
    return pa.RecordBatch.from_arrays([others.get(one, own) for one in kinds], names=list(kinds))


def packed_rows(kinds: Kinds, name: str, rows: Sequence[Sequence[Any]]) -> list[pa.RecordBatch]:
    """The same from ``rows`` with values in the order of the fields, in a list; an empty list for no rows."""
    if not rows:
        return []
    return [packed(kinds, name, dict(zip(kinds[name], zip(*rows, strict=True), strict=True)))]


def found(kinds: Kinds, violations: Iterable[AuditFinding]) -> list[pa.RecordBatch]:
    return packed_rows(kinds, "found", list(violations))


def gathered(batches: Iterable[pa.RecordBatch], kinds: Kinds) -> dict[str, pa.Table]:
    """All rows of a partition, one table for each kind."""
    parts: dict[str, list[pa.RecordBatch]] = {name: [] for name in kinds}
    for batch in batches:
        for name, part in parts.items():
            rows = batch.column(batch.schema.get_field_index(name)).drop_null()
            if len(rows):
                part.append(pa.RecordBatch.from_struct_array(rows))
    return {
        name: pa.Table.from_batches(part).combine_chunks() if part else pa.schema(_arrow(kinds[name])).empty_table()
        for name, part in parts.items()
    }


def longs(table: pa.Table, name: str) -> Longs:
    found: Longs = table.column(name).to_numpy().astype(np.int64, copy=False)
    return found


def flags(table: pa.Table, name: str) -> Flags:
    found: Flags = table.column(name).to_numpy().astype(bool, copy=False)
    return found


def lists(table: pa.Table, name: str) -> tuple[Longs, Longs]:
    """A column of lists of numbers: how many each has, and all of them one behind the other."""
    column = table.column(name).combine_chunks()
    counts = column.value_lengths().fill_null(0).to_numpy().astype(np.int64)
    return counts, column.flatten().to_numpy().astype(np.int64, copy=False)


def texts(table: pa.Table, name: str) -> list[str]:
    found: list[str] = table.column(name).to_pylist()
    return found


def events_packed(columns: Sequence[Longs], counts: Longs) -> pa.Array:
    """Events as bytes, ``counts`` of them for each message; ``columns`` are those of ``RowEvent``."""
    return numbers_packed(np.column_stack([np.asarray(one, np.int64) for one in columns]).ravel(), counts * _WIDTH)


def numbers_packed(numbers: Longs, counts: Longs) -> pa.Array:
    """Numbers as bytes, an array of ``counts`` numbers in each place."""
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts * 8, out=offsets[1:])
    data = pa.py_buffer(np.ascontiguousarray(numbers, np.int64))
    return pa.Array.from_buffers(pa.binary(), len(counts), [None, pa.py_buffer(offsets), data])


def events_of(data: bytes) -> list[RowEvent]:
    return [RowEvent(*one) for one in np.frombuffer(data, np.int64).reshape(-1, _WIDTH).tolist()]


def numbers_of(data: bytes) -> list[int]:
    found: list[int] = np.frombuffer(data, np.int64).tolist()
    return found


def ranges(begins: Longs, widths: Longs) -> Longs:
    """All numbers of ranges, each from ``begins`` on and of length ``widths``, one range behind the other."""
    starts = np.cumsum(widths) - widths
    return np.repeat(begins - starts, widths) + np.arange(int(widths.sum()))


def places(ordered: Longs, wanted: Longs) -> tuple[Longs, Flags]:
    """Two arrays: the place of each of ``wanted`` among the ascending numbers ``ordered``, and true where it is
    there."""
    if not len(ordered):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), bool)
    at = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1).astype(np.int64)
    return at, ordered[at] == wanted


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):
        return values if values.type == kind else values.cast(kind)
    return pa.array(values, kind)


def _arrow(fields: Mapping[str, str]) -> pa.DataType:
    return pa.struct([(field, _ARROW[kind]) for field, kind in fields.items()])
