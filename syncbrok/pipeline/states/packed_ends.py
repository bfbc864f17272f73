"""The end of a delivery as one number: 64 bits, the record first, so the least of several is the earliest."""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from syncbrok.model.facts import Outcome, Reason
from syncbrok.model.names import SEQUENCE_MAX
from syncbrok.pipeline.numpy_columns import NEVER, Flags, Longs, longs

_OUTCOME_BITS: Final = 3
_REASON_BITS: Final = 5
assert max(Outcome) < 1 << _OUTCOME_BITS
assert max(Reason) < 1 << _REASON_BITS
assert SEQUENCE_MAX < 1 << 63 - _OUTCOME_BITS - _REASON_BITS

_NO_ENDS: Final = (Outcome.FAILED, Outcome.LATE)
_BAD: Final = (Outcome.DEAD, Outcome.EXPIRED)
_BY_OPERATOR: Final = (Reason.CANCELLED, Reason.PURGED, Reason.QUEUE_DELETED, Reason.ERASED)


def packed(record: Longs, outcome: pa.ChunkedArray, reason: pa.ChunkedArray) -> Longs:
    """One number each from ``record`` (sequences), ``outcome`` and ``reason`` (their names; 0 where this version knows
    none)."""
    code = (_codes(outcome, Outcome) << _REASON_BITS) + _codes(reason, Reason)
    return (record << _OUTCOME_BITS + _REASON_BITS) + code


def packed_as(record: int, outcome: Outcome, reason: Reason) -> int:
    return (record << _OUTCOME_BITS + _REASON_BITS) + (outcome << _REASON_BITS) + reason


def record_of(end: Longs) -> Longs:
    return end >> (_OUTCOME_BITS + _REASON_BITS)


def outcome_of(end: Longs) -> Longs:
    return (end >> _REASON_BITS) & ((1 << _OUTCOME_BITS) - 1)


def reason_of(end: Longs) -> Longs:
    return end & ((1 << _REASON_BITS) - 1)


def is_end(row: Longs) -> Flags:
    """For each row: true if it ends its delivery."""
    return ~np.isin(outcome_of(row), [int(one) for one in _NO_ENDS])


def is_good(end: Longs) -> Flags:
    """For each end: true if it counts as acknowledged: not dead, not expired, not dropped by an operator (RULES 10,
    12)."""
    bad = np.isin(outcome_of(end), [int(one) for one in _BAD])
    return ~(bad | np.isin(reason_of(end), [int(one) for one in _BY_OPERATOR]))


def outcome_names(end: Longs) -> pa.Array:
    """The names of the outcomes; null for ``NEVER``."""
    return _names(outcome_of(end), end, Outcome)


def reason_names(end: Longs) -> pa.Array:
    """The names of the reasons; null for ``NEVER`` and where there is none (``delivered``)."""
    return _names(reason_of(end), end, Reason)


def _codes(names: pa.ChunkedArray, members: type[Outcome] | type[Reason]) -> Longs:
    known = [member.name.lower() for member in members]
    codes = np.array([*(int(member) for member in members), 0], np.int64)
    found = codes[longs(pc.index_in(names, pa.array(known, pa.string())), -1)]
    return np.asarray(found, np.int64)


def _names(code: Longs, end: Longs, names: type[Outcome] | type[Reason]) -> pa.Array:
    texts: list[str | None] = [None] * (max(names) + 1)
    for member in names:
        texts[member] = member.name.lower() if member else None
    return pa.array(texts, pa.string()).take(pa.array(np.where(end == NEVER, 0, code)))
