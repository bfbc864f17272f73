"""Messages as Arrow columns: those of their own records, and those that retention carried along. Pure, no Spark."""

import json
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from syncbrok.log.format.layout import (
    CARRIED_STRUCT,
    ENDED_STRUCT,
    ERASE_AFTER_STRUCT,
    ERASED,
    EXTRA,
    EXTRAS,
    FAILURE_SHIFT,
    HAS_ERASE_AFTER,
    HAS_HEADERS,
    HAS_IDEMPOTENCY,
    HAS_KEY,
    HEADER_BYTES,
    ID_BYTES,
    SCOPE_SHIFT,
    TRIED_STRUCT,
    Kind,
)
from syncbrok.log.index.columns import sequences_of
from syncbrok.model.message import ParentFailure, Scope
from syncbrok.pipeline import schema
from syncbrok.pipeline.decode.arrow_arrays import (
    Array,
    NameLookup,
    cut,
    empties,
    flags,
    gather_field,
    lists,
    nothing,
    numbers,
    repeated,
    same_text,
    spread,
    text,
    uuid_text,
)
from syncbrok.pipeline.decode.record_block import BlockRecords
from syncbrok.pipeline.decode.segment_names import SegmentNames

_OWN = np.dtype([("sequence", "<u8"), ("time_us", "<i8"), ("ended", "<u4"), ("tried", "<u4")])
_ERASE_AFTER = np.dtype("<i8")
_ID_PAIR = np.dtype([("high", ">u8"), ("low", ">u8")])
_RAW_ID = np.dtype(("V", ID_BYTES))
_SCOPES = NameLookup({int(scope): scope.name.lower() for scope in Scope})
_FAILURES = NameLookup({**{int(failure): failure.name.lower() for failure in ParentFailure}, 3: "fail"})
_ID_SHIFT = 4
assert _OWN.itemsize == CARRIED_STRUCT.size
assert 1 << _ID_SHIFT == ID_BYTES


class DecodedMessages:
    """The messages of ``records``, carried or not, as Arrow columns. A column is made when it is asked for, and what
    several need is made once."""

    def __init__(self, records: BlockRecords, names: SegmentNames | None, carried: Array | None = None) -> None:
        """``names``: None where no queue will be asked for; ``carried``: which of them are, where that is known."""
        self.heads = records.heads
        self._block = records.block
        self._view = records.block.view
        self._data = pa.py_buffer(self._view)
        self._names = names
        self._places = records.places
        if carried is not None:
            self.carried = carried

    def column(self, name: str) -> pa.Array:
        return _COLUMNS[name](self)

    def of_queues(self, wanted: frozenset[str]) -> Array:
        """For each message: true if it is in one of the queues."""
        assert self._names is not None
        self._names.know(queues=self.queues)
        return self._names.queues.among(self.queues, wanted)

    def number(self, name: str) -> Array:
        """A column of numbers, for conditions: a time is microseconds."""
        match name:
            case "sequence":
                found: Array = self.own("sequence").view(np.int64)
            case "time":
                found = self.own("time_us")
            case _:
                found = self.heads[name]
        return found

    # -- parts of the records ------------------------------------------------------------------------------------------

    @cached_property
    def queues(self) -> Array:
        return np.ascontiguousarray(self.heads["queue"])

    @cached_property
    def flags(self) -> Array:
        return np.ascontiguousarray(self.heads["flags"])

    @cached_property
    def meta_bytes(self) -> Array:
        return np.ascontiguousarray(self.heads["meta_bytes"])

    @cached_property
    def body_bytes(self) -> Array:
        return np.ascontiguousarray(self.heads["body_bytes"])

    @cached_property
    def bodies(self) -> Array:
        found: Array = self._places + HEADER_BYTES
        return found

    @cached_property
    def items(self) -> Array:
        """The number of parents of each message."""
        return np.ascontiguousarray(self.heads["items"])

    @cached_property
    def contents(self) -> Array:
        fits = (self.meta_bytes <= self.body_bytes) & (self.items <= self.meta_bytes >> _ID_SHIFT)
        self._block.check(self._places, fits, "the parts of the record are longer than it")
        found: Array = self.bodies + self.meta_bytes
        return found

    @cached_property
    def extras_at(self) -> Array:
        found: Array = np.minimum(self.bodies + self.items.astype(np.int64) * ID_BYTES, self.contents)
        return found

    @cached_property
    def flagged(self) -> Array:
        return np.flatnonzero(self.flags & EXTRAS)

    @cached_property
    def extras(self) -> Array:
        """The extras of all; zeros where a message has none."""
        found = np.zeros(len(self._places), dtype=EXTRA)
        at = self.extras_at[self.flagged]
        self._check_room(self.flagged, at + EXTRA.itemsize)
        found[self.flagged] = gather_field(self._view, at, EXTRA)
        return found

    def _check_room(self, some: Array, ends: Array) -> None:
        """Raise ``LogCorrupt`` unless the parts of ``some`` of the messages end before their contents begin."""
        self._block.check(self._places[some], ends <= self.contents[some], "texts longer than the meta")

    @cached_property
    def texts_at(self) -> tuple[Array, Array, Array, Array]:
        """The offsets of key, idempotency key and headers, and of the end of those."""
        start = self.extras_at.copy()
        if not len(self.flagged):
            return start, start, start, start
        start[self.flagged] += EXTRA.itemsize
        key = start + self.extras["fingerprint_bytes"]
        idempotency_key = key + self.extras["key_bytes"]
        headers = idempotency_key + self.extras["idempotency_key_bytes"]
        end = headers + self.extras["headers_bytes"]
        self._check_room(self.flagged, end[self.flagged])
        return key, idempotency_key, headers, end

    @cached_property
    def extras_end(self) -> Array:
        found: Array = self.texts_at[3] + np.where(self.flags & HAS_ERASE_AFTER, ERASE_AFTER_STRUCT.size, 0)
        self._check_room(self.flagged, found[self.flagged])
        return found

    @cached_property
    def carried(self) -> Array:
        return np.flatnonzero(self.heads["kind"] == Kind.CARRIED)

    @cached_property
    def owns(self) -> Array:
        """The own sequences and times of carried messages."""
        at = self.extras_end[self.carried]
        self._check_room(self.carried, at + _OWN.itemsize)
        return gather_field(self._view, at, _OWN)

    def own(self, name: str) -> Array:
        column = np.array(self.heads[name])
        if len(self.carried):
            column[self.carried] = self.owns[name]
        return column

    @cached_property
    def type_at(self) -> Array:
        at = self.extras_end
        if len(self.carried):
            at = at.copy()
            ended, tried = self.owns["ended"].astype(np.int64), self.owns["tried"].astype(np.int64)
            at[self.carried] += CARRIED_STRUCT.size + ended * ENDED_STRUCT.size + tried * TRIED_STRUCT.size
            self._check_room(self.carried, at[self.carried])
        return at

    @cached_property
    def parents(self) -> Array:
        assert len(self.contents) == len(self.items)  # looks at their room
        message_places, position = spread(self.items)
        return gather_field(self._view, self.bodies[message_places] + position * ID_BYTES, _RAW_ID)

    # -- columns -------------------------------------------------------------------------------------------------------

    def as_long(self, name: str) -> pa.Array:
        return numbers(self.heads[name], schema.LONG)

    def as_queue(self) -> pa.Array:
        assert self._names is not None
        return self._names.queue_names(self.queues)

    def as_parent_ids(self) -> pa.Array:
        if not self.items.any():
            return empties(schema.TEXTS, len(self._places))
        return lists(self.items, uuid_text(self.parents))

    def as_parent_sequences(self) -> pa.Array:
        if not self.items.any():
            return empties(schema.LONGS, len(self._places))
        found = sequences_of(np.ascontiguousarray(self.parents).view(_ID_PAIR))
        return lists(self.items, numbers(found, schema.LONG))

    def _some(self, bit: int, start: int) -> pa.Array | None:
        """One of the extras' texts, null where ``bit`` is not set; None where no message has it."""
        if not len(self.flagged):
            return None
        valid = (self.flags & bit) != 0
        if not valid.any():
            return None
        return cut(self._data, self.texts_at[start], self.texts_at[start + 1], valid)

    def as_text(self, bit: int, start: int) -> pa.Array:
        found = self._some(bit, start)
        if found is None:
            return nothing(schema.TEXT, len(self._places))
        # An idempotency key's flag says also that there is a fingerprint alone.
        lengths = self.texts_at[start + 1] - self.texts_at[start]
        return text(found) if lengths[(self.flags & bit) != 0].all() else _no_empty(text(found))

    def as_headers(self) -> pa.Array:
        found = self._some(HAS_HEADERS, 2)
        if found is None:
            return empties(schema.HEADERS, len(self._places))
        parts = found.dictionary_encode()
        known: list[list[tuple[str, str]]] = []
        for number, one in enumerate(parts.dictionary.to_pylist()):
            try:
                known.append(_pairs(one))
            except (ValueError, TypeError):
                other = parts.indices.fill_null(-1).to_numpy(zero_copy_only=False) != number
                self._block.check(self._places, other, "the headers cannot be read")
        known.append([])
        return pa.array(known, schema.HEADERS).take(parts.indices.fill_null(len(known) - 1))

    def as_content_type(self) -> pa.Array:
        same = same_text(self._view, self.type_at, self.contents)
        if same is not None:
            return repeated(same.decode("utf-8", "replace"), len(self._places))
        return text(cut(self._data, self.type_at, self.contents))

    def as_content(self) -> pa.Array:
        starts, ends, meta_bytes = self.contents, self.bodies + self.body_bytes, self.meta_bytes
        erased = (self.flags & ERASED) != 0
        if erased.any():
            return cut(self._data, starts, np.where(erased, starts, ends), ~erased)
        if (meta_bytes == meta_bytes[0]).all() and (ends[:-1] == self._places[1:]).all():
            # Neighbours that all begin alike: whole records are an array without a copy, and cut by one call.
            borders = np.empty(len(ends) + 1, dtype=np.int32)
            borders[:-1], borders[-1] = self._places, ends[-1]
            whole = pa.Array.from_buffers(pa.binary(), len(starts), [None, pa.py_buffer(borders), self._data])
            # Always with a stop: without one pyarrow 26 fails on large arrays.
            return pc.binary_slice(whole, HEADER_BYTES + int(meta_bytes[0]), _NO_STOP)
        return cut(self._data, starts, ends)

    def as_extra_number(self, name: str, kind: pa.DataType) -> pa.Array:
        if not len(self.flagged):
            return nothing(kind, len(self._places))
        found = self.extras[name]
        return numbers(found, kind, found != 0)

    def as_erase_after(self) -> pa.Array:
        has = (self.flags & HAS_ERASE_AFTER) != 0
        if not has.any():
            return nothing(schema.LONG, len(self._places))
        found = np.zeros(len(self._places), dtype=_ERASE_AFTER)
        found[has] = gather_field(self._view, self.extras_end[has] - ERASE_AFTER_STRUCT.size, _ERASE_AFTER)
        return numbers(found, schema.LONG, has)

    def as_is_carried(self) -> pa.Array:
        return flags(self.heads["kind"] == Kind.CARRIED)

    def as_is_erased(self) -> pa.Array:
        return flags((self.flags & ERASED) != 0)

    def as_scope(self) -> pa.Array:
        return _SCOPES.take(self.flags >> SCOPE_SHIFT & 1)

    def as_parent_failure(self) -> pa.Array:
        return _FAILURES.take(self.flags >> FAILURE_SHIFT & 3)


def own_sequences(records: BlockRecords) -> Array:
    """The sequences that the messages had themselves, wherever they were carried."""
    return DecodedMessages(records, None).number("sequence")


def _no_empty(values: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(values, ""), None, values)


def _pairs(data: bytes) -> list[tuple[str, str]]:
    """The entries of a map from headers as they are kept."""
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


_NO_STOP = 1 << 30
"""longer than any record"""
_COLUMNS: dict[str, Callable[[DecodedMessages], pa.Array]] = {
    "sequence": lambda one: numbers(one.own("sequence"), schema.LONG),
    "time": lambda one: numbers(one.own("time_us"), schema.TIME),
    "queue": DecodedMessages.as_queue,
    "id": lambda one: uuid_text(one.heads["id"]),
    "parents": DecodedMessages.as_parent_ids,
    "parent_sequences": DecodedMessages.as_parent_sequences,
    "root": lambda one: one.as_long("root"),
    "depth": lambda one: numbers(one.heads["depth"], schema.INT),
    "key": lambda one: one.as_text(HAS_KEY, 0),
    "idempotency_key": lambda one: one.as_text(HAS_IDEMPOTENCY, 1),
    "headers": DecodedMessages.as_headers,
    "content_type": DecodedMessages.as_content_type,
    "content": DecodedMessages.as_content,
    "scope": DecodedMessages.as_scope,
    "parent_failure": DecodedMessages.as_parent_failure,
    "not_before": lambda one: one.as_extra_number("due_us", schema.TIME),
    "expires": lambda one: one.as_extra_number("expires_us", schema.TIME),
    "only_subscriber": lambda one: one.as_extra_number("only", schema.INT),
    "carried": DecodedMessages.as_is_carried,
    "batch": lambda one: one.as_long("batch"),
    "erased": DecodedMessages.as_is_erased,
    "erase_after_us": DecodedMessages.as_erase_after,
}
