"""The look-up tables of a stretch of the log, as sorted numpy columns made from its bytes. Pure.

Six tables, each sorted by its first column (stably: equal rows stay in the order of the log):

===============  ==========  ============================================================================
``queues``       queue       place: the messages accepted here
``carried``      sequence    place of the record, queue: messages carried into here, by their own sequence
``edges``        parent      child: both messages' own sequences
``rows``         message     place of the record, position of the row in it
``keys``         hash        the message's own sequence
``idempotency``  hash        the message's own sequence
===============  ==========  ============================================================================

A place is a sequence less the first sequence of the segment (the base): it fits four bytes.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from syncbrok.log.format.codec import EXTRA, HAS_IDEMPOTENCY, HAS_KEY, HEADER_BYTES, ID_BYTES, ROW_BYTES, Buffer, Kind
from syncbrok.log.format.codec import gather as gather_headers
from syncbrok.log.format.layout import Stretch

Array = npt.NDArray[Any]
Table = tuple[Array, ...]

PLACE = np.dtype("<u4")
SEQUENCE = np.dtype("<u8")
HASH = np.dtype("<u8")
_ID = np.dtype([("high", ">u8"), ("low", ">u8")])
_DIGEST = blake2b(digest_size=8)

TABLES: dict[str, tuple[tuple[str, np.dtype[Any]], ...]] = {
    "queues": (("queue", np.dtype("<u4")), ("place", PLACE)),
    "carried": (("sequence", SEQUENCE), ("place", PLACE), ("queue", np.dtype("<u4"))),
    "edges": (("parent", SEQUENCE), ("child", SEQUENCE)),
    "rows": (("message", SEQUENCE), ("place", PLACE), ("position", np.dtype("<u4"))),
    "keys": (("hash", HASH), ("sequence", SEQUENCE)),
    "idempotency": (("hash", HASH), ("sequence", SEQUENCE)),
}


class Columns(NamedTuple):
    """The tables of a stretch of the log, and how many records it has."""

    records: int
    queues: Table
    carried: Table
    edges: Table
    rows: Table
    keys: Table
    idempotency: Table

    def table(self, name: str) -> Table:
        found: Table = getattr(self, name)
        return found


def text_hash(text: str) -> int:
    """64 bits of a key; looked-up messages are compared with the key itself, so a collision costs only a read.

    A checksum would be cheaper, but whoever chooses keys could then choose a thousand that collide.
    """
    return int(_hashes_of((text.encode("utf-8", "surrogatepass"),))[0])


def _hashes_of(texts: Iterable[bytes]) -> Array:
    """``text_hash`` of each, written."""
    begin, digests = _DIGEST.copy, []
    for text in texts:
        digest = begin()  # a copy costs half of what another does
        digest.update(text)
        digests.append(digest.digest())
    return np.frombuffer(b"".join(digests), HASH)


def extract(buffer: Buffer, offsets: npt.NDArray[np.int64], base: int) -> Columns:
    """The columns of the whole, verified records at ``offsets`` of ``buffer``, in the order of the log."""
    heads = gather_headers(buffer, offsets)
    kinds = heads["kind"]
    places = (heads["sequence"] - np.uint64(base)).astype(PLACE)
    fresh = kinds == Kind.MESSAGE
    moved = kinds == Kind.CARRIED
    either = fresh | moved if moved.any() else fresh
    own = np.ascontiguousarray(heads["sequence"])
    if moved.any():
        own[moved] = sequences_of(_gather(buffer, offsets[moved] + _ID_AT, _ID))
    bodies = offsets + HEADER_BYTES
    outcomes = kinds == Kind.OUTCOMES
    return Columns(
        len(offsets),
        _sorted((np.ascontiguousarray(heads["queue"][fresh]), places[fresh])),
        _sorted((own[moved], places[moved], np.ascontiguousarray(heads["queue"][moved]))),
        _edges(buffer, bodies[either], heads["items"][either], own[either]),
        _rows(buffer, bodies[outcomes], heads["items"][outcomes], places[outcomes]),
        *_hashes(buffer, bodies[either], heads[either], own[either]),
    )


def bare(stretches: Sequence[Stretch], base: int) -> Columns:
    """The columns of bare messages, in order: what ``extract`` would read out of their records."""
    sizes = [stretch.size for stretch in stretches]
    queues = np.repeat(np.array([stretch.queue for stretch in stretches], dtype="<u4"), sizes)
    first, last = stretches[0].sequence - base, stretches[-1].sequence + stretches[-1].size - base
    if last - first == len(queues):
        places = np.arange(first, last, dtype=PLACE)
    else:
        places = np.concatenate(
            [np.arange(one.sequence - base, one.sequence - base + one.size, dtype=PLACE) for one in stretches]
        )
    return nothing()._replace(records=len(places), queues=_sorted((queues, places)))


def interleaved(one: Columns, other: Columns) -> Columns:
    """As ``merge``, where the records of both stand among each other."""
    merged = merge((one, other))
    order = np.lexsort(merged.queues[::-1])
    return merged._replace(queues=tuple(column[order] for column in merged.queues))


def merge(parts: Sequence[Columns]) -> Columns:
    """Columns of several parts that follow each other in the log, as one."""
    if len(parts) == 1:
        return parts[0]
    tables = [
        _sorted(tuple(np.concatenate(column) for column in zip(*(part.table(name) for part in parts), strict=True)))
        for name in TABLES
    ]
    return Columns(sum(part.records for part in parts), *tables)


def nothing() -> Columns:
    """The columns of no record."""
    return Columns(0, *(tuple(np.empty(0, dtype) for _, dtype in columns) for columns in TABLES.values()))


def sequences_of(ids: Array) -> npt.NDArray[np.uint64]:
    """``model.names.sequence_of`` for an array of ids (16 bytes each, as two big-endian numbers)."""
    high, low = ids["high"].astype(np.uint64), ids["low"].astype(np.uint64)
    return (high & np.uint64(0xFFF)) << np.uint64(30) | low >> np.uint64(32) & np.uint64(0x3FFF_FFFF)


_ID_AT = 48
"""where the message id stands in a header"""


def _edges(buffer: Buffer, bodies: Array, items: Array, own: Array) -> Table:
    starts, ramp, repeats = _spread(bodies, items, ID_BYTES)
    return _sorted((sequences_of(_gather(buffer, starts, _ID)), own[repeats]) if len(ramp) else _EMPTY_EDGES)


def _rows(buffer: Buffer, bodies: Array, items: Array, places: Array) -> Table:
    starts, ramp, repeats = _spread(bodies, items, ROW_BYTES)
    return _sorted((_gather(buffer, starts, SEQUENCE), places[repeats], ramp.astype(PLACE)))


def _spread(bodies: Array, items: Array, item_bytes: int) -> tuple[Array, Array, Array]:
    """For each of the items that stand one after the other from ``bodies`` on: its offset, its position, its record."""
    repeats = np.repeat(np.arange(len(items)), items)
    ends = np.cumsum(items, dtype=np.int64)
    ramp = np.arange(len(repeats)) - (ends - items)[repeats]
    return bodies[repeats] + ramp * item_bytes, ramp, repeats


def _hashes(buffer: Buffer, bodies: Array, heads: Array, own: Array) -> tuple[Table, Table]:
    flagged = np.flatnonzero(heads["flags"] & (HAS_KEY | HAS_IDEMPOTENCY))
    if not len(flagged):
        return _EMPTY_HASHES, _EMPTY_HASHES
    at = bodies[flagged] + heads["items"][flagged].astype(np.int64) * ID_BYTES
    extras = _gather(buffer, at, EXTRA)
    keys_at = at + EXTRA.itemsize + extras["fingerprint_bytes"]
    middles = keys_at + extras["key_bytes"]
    ends = middles + extras["idempotency_key_bytes"]
    return (
        _hashed(buffer, keys_at, middles, own[flagged]),
        _hashed(buffer, middles, ends, own[flagged]),
    )


def _hashed(buffer: Buffer, starts: Array, ends: Array, own: Array) -> Table:
    present = ends > starts
    pairs = zip(starts[present].tolist(), ends[present].tolist(), strict=True)
    return _sorted((_hashes_of([bytes(buffer[start:end]) for start, end in pairs]), own[present]))


def _gather(buffer: Buffer, offsets: Array, dtype: np.dtype[Any]) -> Array:
    if not len(offsets):
        return np.empty(0, dtype)
    return np.ndarray(len(buffer) - dtype.itemsize + 1, dtype, buffer, strides=(1,))[offsets]


def _sorted(table: Table) -> Table:
    key = table[0]
    if len(key) < 2 or bool((key[1:] >= key[:-1]).all()):
        return table
    order = np.argsort(key, kind="stable")
    return tuple(column[order] for column in table)


_EMPTY_EDGES: Table = (np.empty(0, SEQUENCE), np.empty(0, SEQUENCE))
_EMPTY_HASHES: Table = (np.empty(0, HASH), np.empty(0, SEQUENCE))
