"""Records as Arrow columns, whatever their kind. Pure, no Spark.

What messages and outcomes say has rows of its own; of the others, which are few, each is decoded by itself and what it
says is given as JSON, in the words of ``model.facts``.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from syncbrok.log.format.codec import Decoded, decode
from syncbrok.log.format.layout import HEADER_BYTES, UNIT_END, Kind
from syncbrok.log.format.records import Record
from syncbrok.model.facts import Carried
from syncbrok.model.names import MessageId, id_text
from syncbrok.pipeline import schema
from syncbrok.pipeline.decode.arrow_arrays import Array, NameLookup, flags, numbers, uuid_text
from syncbrok.pipeline.decode.record_block import BlockRecords
from syncbrok.pipeline.decode.segment_names import SegmentNames

KIND_NAMES = {int(kind): kind.name.lower() for kind in Kind} | {int(Kind.CARRIED): "carried_message"}
_KINDS = NameLookup(KIND_NAMES)
_WITH_ROWS = (Kind.MESSAGE, Kind.OUTCOMES)


class DecodedFacts:
    """A row for each of ``records``, as Arrow columns."""

    def __init__(self, records: BlockRecords, names: SegmentNames) -> None:
        self.block = records.block
        self.names = names
        self.places = records.places
        self.heads = records.heads

    def column(self, name: str) -> pa.Array:
        return _COLUMNS[name](self)

    def of_queues(self, wanted: frozenset[str]) -> Array:
        """For each row: true if it is about one of the queues."""
        self.names.know(queues=self.heads["queue"])
        return self.names.queues.among(self.heads["queue"], wanted)

    def of_kinds(self, wanted: frozenset[str]) -> Array:
        """For each row: true if it is of one of the kinds."""
        found: Array = np.isin(self.heads["kind"], [kind for kind, name in KIND_NAMES.items() if name in wanted])
        return found

    def number(self, name: str) -> Array:
        """A column of numbers, for conditions: a time is microseconds."""
        found: Array = self.heads[{"time": "time_us", "queue_number": "queue"}.get(name, name)]
        return found

    def as_long(self, name: str) -> pa.Array:
        return numbers(self.heads[name], schema.LONG)

    def as_queue(self) -> pa.Array:
        return self.names.queue_names(self.heads["queue"])

    def as_id(self) -> pa.Array:
        ids = np.ascontiguousarray(self.heads["id"])
        return uuid_text(ids, np.asarray(ids.view("<u8").reshape(-1, 2).any(axis=1)))

    def as_bytes(self) -> pa.Array:
        return numbers(self.heads["body_bytes"].astype(np.int64) + HEADER_BYTES, schema.LONG)

    def as_detail(self) -> pa.Array:
        found: list[bytes | None] = [None] * len(self.places)
        for at in np.flatnonzero(~np.isin(self.heads["kind"], _WITH_ROWS)).tolist():
            found[at] = self._said(int(self.places[at]), int(self.heads["sequence"][at]))
        return pa.array(found, pa.binary()).cast(pa.string())

    def _said(self, place: int, sequence: int) -> bytes:
        record = decode(self.block.view, place, content=False, verify=False)
        if isinstance(record, Decoded):
            return said(record.fact)
        why = getattr(record, "why", "the record is cut short")
        raise self.block.damaged(self.block.shift + place, sequence, why)


def said(fact: Record) -> bytes:
    """The fact as JSON: its fields except those that every record has; of a carried message its sequence and time, and
    the progress of its deliveries."""
    if isinstance(fact, Carried):
        own = fact.message
        carried = {"message": own.sequence, "time_us": own.time_us, "ended": _plain(fact.ended)}
        return orjson.dumps(carried | {"tried": _plain(fact.tried)})
    known = {name: _plain(value) for name, value in fact._asdict().items() if name not in ("sequence", "time_us")}
    return orjson.dumps(known)


def _plain(value: Any) -> Any:
    if isinstance(value, IntEnum):
        return value.name.lower()
    if isinstance(value, tuple):
        if hasattr(value, "_asdict"):
            return {name: _plain(one) for name, one in value._asdict().items()}
        return [_plain(one) for one in value]
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, bytes):
        return id_text(MessageId(value))  # all the bytes that a fact of those has
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return value


_COLUMNS: dict[str, Callable[[DecodedFacts], pa.Array]] = {
    "sequence": lambda one: one.as_long("sequence"),
    "time": lambda one: numbers(one.heads["time_us"], schema.TIME),
    "kind": lambda one: _KINDS.take(one.heads["kind"]),
    "batch": lambda one: one.as_long("batch"),
    "synced_through": lambda one: one.as_long("synced_through"),
    "unit_end": lambda one: flags((one.heads["flags"] & UNIT_END) != 0),
    "queue_number": lambda one: one.as_long("queue"),
    "queue": DecodedFacts.as_queue,
    "id": DecodedFacts.as_id,
    "root": lambda one: one.as_long("root"),
    "depth": lambda one: numbers(one.heads["depth"], schema.INT),
    "items": lambda one: numbers(one.heads["items"], schema.INT),
    "segment": lambda one: numbers(np.full(len(one.places), one.block.segment.base), schema.LONG),
    "offset": lambda one: numbers(one.places + one.block.shift, schema.LONG),
    "bytes": DecodedFacts.as_bytes,
    "detail": DecodedFacts.as_detail,
}
