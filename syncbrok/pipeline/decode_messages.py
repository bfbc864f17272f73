"""Messages as Arrow columns: those of their own records, and those that retention carried along. Pure, no Spark."""

import json
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from syncbrok.log.codec import gather
from syncbrok.log.columns import sequences_of
from syncbrok.log.layout import (
    CARRIED_STRUCT,
    ENDED_STRUCT,
    EXTRA,
    EXTRAS,
    FAILURE_SHIFT,
    HAS_HEADERS,
    HAS_IDEMPOTENCY,
    HAS_KEY,
    HEADER_BYTES,
    ID_BYTES,
    SCOPE_SHIFT,
    TRIED_STRUCT,
    Kind,
)
from syncbrok.model.message import ParentFailure, Scope
from syncbrok.pipeline import schema
from syncbrok.pipeline.decode_gather import (
    Array,
    Lookup,
    cut,
    flags,
    gather_field,
    lists,
    numbers,
    spread,
    text,
    uuid_text,
)
from syncbrok.pipeline.decode_names import Names
from syncbrok.pipeline.decode_segment import OpenSegment

_OWN = np.dtype([("sequence", "<u8"), ("time_us", "<i8"), ("ended", "<u4"), ("tried", "<u4")])
_ID_PAIR = np.dtype([("high", ">u8"), ("low", ">u8")])
_RAW_ID = np.dtype(("V", ID_BYTES))
_SCOPES = Lookup({int(scope): scope.name.lower() for scope in Scope})
_FAILURES = Lookup({**{int(failure): failure.name.lower() for failure in ParentFailure}, 3: "fail"})
assert _OWN.itemsize == CARRIED_STRUCT.size


class Messages:
    """The messages whose records, carried or not, begin at ``places``, which go up. A column is made when it is asked
    for, and what several need is made once."""

    def __init__(self, opened: OpenSegment, names: Names, places: Array) -> None:
        self._view = opened.view
        self._data = pa.py_buffer(opened.view)
        self._names = names
        self._places = places

    def column(self, name: str) -> pa.Array:
        return _COLUMNS[name](self)

    def number(self, name: str) -> Array:
        """A column of numbers, for conditions: a time is microseconds."""
        match name:
            case "sequence":
                return self._own("sequence").view(np.int64)
            case "time":
                return self._own("time_us")
            case _:
                return self._heads[name]

    # -- parts of the records ------------------------------------------------------------------------------------------

    @cached_property
    def _heads(self) -> Array:
        return gather(self._view, self._places)

    @cached_property
    def _bodies(self) -> Array:
        return self._places + HEADER_BYTES

    @cached_property
    def _items(self) -> Array:
        return self._heads["items"].astype(np.int64)

    @cached_property
    def _contents(self) -> Array:
        return self._bodies + self._heads["meta_bytes"]

    @cached_property
    def _extras_at(self) -> Array:
        return self._bodies + self._items * ID_BYTES

    @cached_property
    def _flagged(self) -> Array:
        return np.flatnonzero(self._heads["flags"] & EXTRAS)

    @cached_property
    def _extras(self) -> Array:
        """The extras of all; zeros where a message has none."""
        found = np.zeros(len(self._places), dtype=EXTRA)
        found[self._flagged] = gather_field(self._view, self._extras_at[self._flagged], EXTRA)
        return found

    @cached_property
    def _texts_at(self) -> tuple[Array, Array, Array, Array]:
        """Where key, idempotency key and headers begin, and where the extras end."""
        start = self._extras_at.copy()
        if not len(self._flagged):
            return start, start, start, start
        start[self._flagged] += EXTRA.itemsize
        key = start + self._extras["fingerprint_bytes"]
        idempotency_key = key + self._extras["key_bytes"]
        headers = idempotency_key + self._extras["idempotency_key_bytes"]
        return key, idempotency_key, headers, headers + self._extras["headers_bytes"]

    @cached_property
    def _carried(self) -> Array:
        return np.flatnonzero(self._heads["kind"] == Kind.CARRIED)

    @cached_property
    def _owns(self) -> Array:
        """What the carried ones were before."""
        return gather_field(self._view, self._texts_at[3][self._carried], _OWN)

    def _own(self, name: str) -> Array:
        plain = np.ascontiguousarray(self._heads[name])
        if len(self._carried):
            plain[self._carried] = self._owns[name]
        return plain

    @cached_property
    def _type_at(self) -> Array:
        at = self._texts_at[3]
        if len(self._carried):
            at = at.copy()
            ended, tried = self._owns["ended"].astype(np.int64), self._owns["tried"].astype(np.int64)
            at[self._carried] += CARRIED_STRUCT.size + ended * ENDED_STRUCT.size + tried * TRIED_STRUCT.size
        return at

    @cached_property
    def _parents(self) -> Array:
        whose, position = spread(self._items)
        return gather_field(self._view, self._bodies[whose] + position * ID_BYTES, _RAW_ID)

    # -- columns -------------------------------------------------------------------------------------------------------

    def _long(self, name: str) -> pa.Array:
        return numbers(self._heads[name], schema.LONG)

    def _queue(self) -> pa.Array:
        self._names.know(queues=self._heads["queue"])
        return self._names.queues.take(self._heads["queue"])

    def _parent_ids(self) -> pa.Array:
        return lists(self._items, uuid_text(self._parents))

    def _parent_sequences(self) -> pa.Array:
        found = sequences_of(np.ascontiguousarray(self._parents).view(_ID_PAIR))
        return lists(self._items, numbers(found, schema.LONG))

    def _some(self, bit: int, start: int) -> pa.Array | None:
        """One of the extras' texts, null where ``bit`` is not set; None where no message has it."""
        valid = (self._heads["flags"] & bit) != 0
        if not valid.any():
            return None
        return cut(self._data, self._texts_at[start], self._texts_at[start + 1], valid)

    def _text(self, bit: int, start: int) -> pa.Array:
        found = self._some(bit, start)
        if found is None:
            return pa.nulls(len(self._places), pa.string())
        # An idempotency key's flag says also that there is a fingerprint alone.
        lengths = self._texts_at[start + 1] - self._texts_at[start]
        return text(found) if lengths[(self._heads["flags"] & bit) != 0].all() else _no_empty(text(found))

    def _headers(self) -> pa.Array:
        found = self._some(HAS_HEADERS, 2)
        if found is None:
            return _EMPTY_MAP.take(pa.array(np.zeros(len(self._places), dtype=np.int32)))
        parts = found.dictionary_encode()
        known = [*[_pairs(one) for one in parts.dictionary.to_pylist()], []]
        return pa.array(known, schema.HEADERS).take(parts.indices.fill_null(len(known) - 1))

    def _content_type(self) -> pa.Array:
        return text(cut(self._data, self._type_at, self._contents))

    def _content(self) -> pa.Array:
        return cut(self._data, self._contents, self._bodies + self._heads["body_bytes"])

    def _extra_number(self, name: str, kind: pa.DataType) -> pa.Array:
        if not len(self._flagged):
            return pa.nulls(len(self._places), kind)
        found = self._extras[name]
        return numbers(found, kind, found != 0)

    def _is_carried(self) -> pa.Array:
        return flags(self._heads["kind"] == Kind.CARRIED)

    def _scope(self) -> pa.Array:
        return _SCOPES.take(self._heads["flags"] >> SCOPE_SHIFT & 1)

    def _parent_failure(self) -> pa.Array:
        return _FAILURES.take(self._heads["flags"] >> FAILURE_SHIFT & 3)


def _no_empty(values: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    return pc.if_else(pc.equal(values, ""), None, values)


def _pairs(data: bytes) -> list[tuple[str, str]]:
    """Headers as they are kept, as a map's entries."""
    try:
        pairs = orjson.loads(data)
    except orjson.JSONDecodeError:
        pairs = json.loads(data)  # text that is not Unicode was escaped
    found: dict[str, str] = {}
    for name, value in pairs:
        found[name] = f"{found[name]}, {value}" if name in found else value
    return [(_unicode(name), _unicode(value)) for name, value in found.items()]


def _unicode(value: Any) -> str:
    return str(value).encode("utf-8", "replace").decode()


_EMPTY_MAP = pa.array([[]], schema.HEADERS)
_COLUMNS: dict[str, Callable[[Messages], pa.Array]] = {
    "sequence": lambda one: numbers(one._own("sequence"), schema.LONG),
    "time": lambda one: numbers(one._own("time_us"), schema.TIME),
    "queue": Messages._queue,
    "id": lambda one: uuid_text(one._heads["id"]),
    "parents": Messages._parent_ids,
    "parent_sequences": Messages._parent_sequences,
    "root": lambda one: one._long("root"),
    "depth": lambda one: numbers(one._heads["depth"], schema.INT),
    "key": lambda one: one._text(HAS_KEY, 0),
    "idempotency_key": lambda one: one._text(HAS_IDEMPOTENCY, 1),
    "headers": Messages._headers,
    "content_type": Messages._content_type,
    "content": Messages._content,
    "scope": Messages._scope,
    "parent_failure": Messages._parent_failure,
    "not_before": lambda one: one._extra_number("due_us", schema.TIME),
    "expires": lambda one: one._extra_number("expires_us", schema.TIME),
    "only_subscriber": lambda one: one._extra_number("only", schema.INT),
    "carried": Messages._is_carried,
    "batch": lambda one: one._long("batch"),
}
