"""Fact <-> bytes. Pure; Spark executors import it too. Little-endian, packed, every record::

     0      4 5 6      8       12      16        24     32              40       48
    +------+-+-+------+-------+-------+---------+------+---------------+--------+
    |magic |v|k|flags |body   |meta   |sequence |batch |synced_through |time_us |      v version, k kind
    +------+-+-+------+-------+-------+---------+------+---------------+--------+
    48             64      72      76      80      84        88         92          92+meta   92+body
    +--------------+-------+-------+-------+-------+---------+----------+-----------+---------+
    |message id    |root   |queue  |depth  |items  |body_crc |header_crc| meta      | content |
    +--------------+-------+-------+-------+-------+---------+----------+-----------+---------+

The package's docstring (``syncbrok.log``) is the specification; ``HEADER`` is the same bytes as a numpy type. Bytes
that are not a record are an answer here, never an exception: ``Decoded``, ``Incomplete`` (the buffer ends before the
record does) and ``Corrupt`` have three different fates in recovery.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from syncbrok.log.format import bodies
from syncbrok.log.format.declaration_bodies import decode_body, encode_body
from syncbrok.log.format.layout import (
    CRC_STRUCT,
    EXTRA,
    EXTRAS,
    FAILURE_SHIFT,
    HAS_DUE,
    HAS_EXPIRES,
    HAS_HEADERS,
    HAS_IDEMPOTENCY,
    HAS_KEY,
    HAS_ONLY,
    HEAD_STRUCT,
    HEADER,
    HEADER_BYTES,
    ID_BYTES,
    LATER,
    LENGTH_AT,
    MAGIC,
    NEWEST_VERSION,
    ROW,
    ROW_BYTES,
    SCOPE_SHIFT,
    SEALED_STRUCT,
    UNIT_END,
    VERIFY_STRUCT,
    VERSION,
    WALK_STRUCT,
    Buffer,
    Corrupt,
    Header,
    Incomplete,
    Kind,
    Stretch,
    read_header,
)
from syncbrok.log.format.message_encoder import EncodedRun, encode_messages
from syncbrok.log.format.records import Gap, Record, RecordOrRun, SegmentOpened, SegmentSealed
from syncbrok.model.facts import (
    Carried,
    Erased,
    Fact,
    FactOrRun,
    FileApplied,
    JobChanged,
    Managed,
    Messages,
    Outcomes,
    QueueDeleted,
    QueueSet,
    Rearmed,
    Reason,
    StoredMessage,
    SubscriberDeleted,
    SubscriberSet,
)
from syncbrok.model.names import NO_ID

__all__ = [
    "EXTRA",
    "EXTRAS",
    "FAILURE_SHIFT",
    "HAS_DUE",
    "HAS_EXPIRES",
    "HAS_HEADERS",
    "HAS_IDEMPOTENCY",
    "HAS_KEY",
    "HAS_ONLY",
    "HEADER",
    "HEADER_BYTES",
    "ID_BYTES",
    "ROW",
    "ROW_BYTES",
    "SCOPE_SHIFT",
    "UNIT_END",
    "Buffer",
    "Corrupt",
    "Decoded",
    "EncodedRecords",
    "Header",
    "Incomplete",
    "Kind",
    "decode",
    "encode",
    "encode_batch",
    "gather",
    "lockstep",
    "read_header",
    "walk",
    "walk_verified",
]

_KIND_OF: dict[type, Kind] = {
    QueueSet: Kind.QUEUE_SET,
    QueueDeleted: Kind.QUEUE_DELETED,
    SubscriberSet: Kind.SUBSCRIBER_SET,
    SubscriberDeleted: Kind.SUBSCRIBER_DELETED,
    FileApplied: Kind.FILE_APPLIED,
    Rearmed: Kind.REARMED,
    SegmentOpened: Kind.SEGMENT_OPENED,
    Gap: Kind.GAP,
    Erased: Kind.ERASED,
    JobChanged: Kind.JOB,
    Managed: Kind.MANAGED,
}
_NEWER = (Reason.RETENTION, Reason.ERASED, Reason.DISCARDED, Reason.SEEK)
"""of rows that mean more than that one delivery ended"""
_HEADER_RAW = np.dtype(("V", HEADER_BYTES))
_VERSION_AT = 4
"""in a header"""
_MESSAGE = int(Kind.MESSAGE)  # a member of an enum costs 0.1 us to look up, 3 % of encoding a message
_DECLARED: dict[int, type] = {int(kind): fact for fact, kind in _KIND_OF.items()}


# -- encode -----------------------------------------------------------------------------------------------------------


class EncodedRecords(NamedTuple):
    """Records one after the other; record ``i`` is ``data[ends[i - 1]:ends[i]]``. ``stretches`` are those of messages
    without extras. ``misread``: an older version would misread one of them."""

    data: bytes
    ends: list[int]
    stretches: tuple[Stretch, ...] = ()
    misread: bool = False


def encode(fact: Record, *, batch: int = 0, synced_through: int = 0, ends_unit: bool = True) -> bytes:
    """One record. Raises ``struct.error`` where a number of the fact does not fit its field: a programmer's error."""
    return encode_batch((fact,), batch=batch, synced_through=synced_through, unit_ends=(0,) if ends_unit else ()).data


def encode_batch(
    facts: Sequence[FactOrRun] | Sequence[RecordOrRun],
    *,
    batch: int,
    synced_through: int,
    unit_ends: Iterable[int] | None = None,
) -> EncodedRecords:
    """The records of one write. ``unit_ends``: positions of those that end a unit, None: all of them. Raises
    ``TypeError`` for facts that are records of the log's own (``records.facts_of``)."""
    records = EncodedRun([], [], [])
    pieces, sizes_bytes, stretches = records
    marks = _marks(facts, unit_ends)
    misread = False
    for fact in facts:
        at = len(sizes_bytes)
        if isinstance(fact, StoredMessage):
            fact = Messages.of(fact)
        if isinstance(fact, Messages):
            encode_messages(fact, records, marks[at : at + fact.size], batch, synced_through)
            if fact.extras:
                misread = misread or any(more.erase_after_us for more in fact.extras.values())
        else:
            pieces.append(_other(fact, marks[at], batch, synced_through))
            sizes_bytes.append(len(pieces[-1]))
            misread = misread or pieces[-1][_VERSION_AT] != VERSION
    return EncodedRecords(b"".join(pieces), list(accumulate(sizes_bytes)), tuple(stretches), misread)


def _marks(facts: Sequence[FactOrRun] | Sequence[RecordOrRun], unit_ends: Iterable[int] | None) -> bytearray:
    """A byte for each record: ``UNIT_END`` where a unit ends."""
    count = sum([fact.size if isinstance(fact, Messages) else 1 for fact in facts])
    if unit_ends is None:
        return bytearray((UNIT_END,)) * count
    marks = bytearray(count)
    for position in unit_ends:
        marks[position] = UNIT_END
    return marks


def _other(fact: Fact | Record, flags: int, batch: int, synced_through: int) -> bytes:
    match fact:
        case Outcomes():
            rows, details = bodies.rows_out(fact.rows)
            return _record(Kind.OUTCOMES, flags, batch, synced_through, fact, rows, details, items=len(fact.rows))
        case Carried():
            more, meta = bodies.carried_meta(fact)
            return _record(
                Kind.CARRIED,
                flags | more,
                batch,
                synced_through,
                fact,
                meta,
                fact.message.content,
                items=len(fact.message.parents),
                queue=fact.message.queue,
                message=fact.message,
            )
        case SegmentSealed():
            meta = SEALED_STRUCT.pack(fact.records, fact.crc)
            return _record(Kind.SEGMENT_SEALED, flags, batch, synced_through, fact, meta)
        case _:
            queue, items, meta = encode_body(fact)
            kind = _KIND_OF[type(fact)]
            return _record(kind, flags, batch, synced_through, fact, meta, items=items, queue=queue)


def _record(
    kind: Kind,
    flags: int,
    batch: int,
    synced_through: int,
    fact: Any,
    meta: bytes,
    content: bytes = b"",
    *,
    items: int = 0,
    queue: int = 0,
    message: StoredMessage | None = None,
) -> bytes:
    head = HEAD_STRUCT.pack(
        MAGIC,
        NEWEST_VERSION if _would_be_misread(fact) else VERSION,
        kind,
        flags,
        len(meta) + len(content),
        len(meta),
        fact.sequence,
        batch,
        synced_through,
        fact.time_us,
        NO_ID if message is None else message.id,
        0 if message is None else message.root,
        queue,
        0 if message is None else message.depth,
        items,
        crc32c(content, crc32c(meta)),
    )
    return b"".join((head, CRC_STRUCT.pack(crc32c(head)), meta, content))


def _would_be_misread(fact: Fact | Record) -> bool:
    """Whether a program that reads version 1 alone would misread the fact: it would let messages wait for a subscriber
    that does not count, take the row that ends all that retention took for the end of one, know no key in a replay,
    go on delivering what was erased, and list what was dropped. (Of messages, those with a time to erase them after:
    it would take that for a content type.)"""
    match fact:
        case SubscriberSet():
            return not fact.settings.counts
        case SegmentOpened():
            return any(not one.settings.counts for one in fact.subscribers)
        case Outcomes():
            # Those are records of their own.
            return bool(fact.rows) and fact.rows[0].reason in _NEWER
        case Carried():
            return fact.message.erase_after_us > 0
        case Rearmed():
            return any(entry.key for entry in fact.entries)
        case Erased() | JobChanged() | Managed():
            return True
        case _:
            return False


# -- decode -----------------------------------------------------------------------------------------------------------


class Decoded(NamedTuple):
    """A whole record; the next one begins at ``end``."""

    fact: Record
    header: Header
    end: int


def decode(
    buffer: Buffer, offset: int = 0, *, content: bool = True, verify: bool = True
) -> Decoded | Incomplete | Corrupt:
    """The record at ``offset``. ``content`` False: a message's content is left out (``b""``), though verified.
    ``verify`` False: for bytes whose checksums were looked at before."""
    header = read_header(buffer, offset, verify=verify)
    if type(header) is not Header:
        return header  # type: ignore[return-value]  # mypy narrows NamedTuples by isinstance only, which costs twice
    end = offset + HEADER_BYTES + header.body_bytes
    if end > len(buffer):
        return Incomplete(offset, HEADER_BYTES + header.body_bytes)
    body = bytes(buffer[offset + HEADER_BYTES : end])
    if verify and crc32c(body) != header.body_crc:
        return Corrupt(offset, "the body's checksum does not fit")
    try:
        fact = _fact(header, body, content=content)
    except bodies.BAD_BODY as problem:
        # Only another program's record gets here: its checksums fit.
        return Corrupt(offset, f"the body cannot be read: {problem}")
    return Decoded(fact, header, end)


def _fact(header: Header, body: bytes, *, content: bool) -> Record:
    kind = header.kind
    if kind == _MESSAGE:
        return bodies.published(header, body, content=content)
    if kind == Kind.OUTCOMES:
        return bodies.outcomes(header, body)
    if kind == Kind.CARRIED:
        return bodies.carried(header, body, content=content)
    if kind == Kind.SEGMENT_SEALED:
        return SegmentSealed(header.sequence, header.time_us, *SEALED_STRUCT.unpack(body))
    if kind not in _DECLARED:
        raise ValueError(f"a record of kind {kind} is not known to this program; {LATER}")
    return decode_body(_DECLARED[kind], header.sequence, header.time_us, body)


# -- many records at once ---------------------------------------------------------------------------------------------


def walk(buffer: Buffer, start: int, end: int) -> tuple[npt.NDArray[np.int64], int]:
    """Offsets of the whole records from ``start`` to at most ``end``, by their lengths alone (nothing is verified but
    the magic), and where the walk stopped: ``end``, or the first byte that belongs to no whole record."""
    offsets: list[int] = []
    at = start
    unpack = WALK_STRUCT.unpack_from
    while at + HEADER_BYTES <= end:
        magic, body_bytes = unpack(buffer, at)
        following = at + HEADER_BYTES + body_bytes
        if magic != MAGIC or following > end:
            break
        offsets.append(at)
        at = following
    return np.array(offsets, dtype=np.int64), at


def walk_verified(buffer: bytes, start: int, end: int) -> tuple[npt.NDArray[np.int64], int]:
    """As ``walk``, but it stops at the first record with a wrong checksum."""
    offsets: list[int] = []
    at = start
    unpack = VERIFY_STRUCT.unpack_from
    while (body_at := at + HEADER_BYTES) <= end:
        magic, body_bytes, body_crc, header_crc = unpack(buffer, at)
        following = body_at + body_bytes
        if magic != MAGIC or following > end:
            break
        if crc32c(buffer[at : body_at - 4]) != header_crc or crc32c(buffer[body_at:following]) != body_crc:
            break
        offsets.append(at)
        at = following
    return np.array(offsets, dtype=np.int64), at


def gather(buffer: Buffer, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.void]:
    """The headers at ``offsets`` (each at least a header before the end of ``buffer``) as an array of ``HEADER``."""
    if len(buffer) < HEADER_BYTES or not len(offsets):
        return np.empty(0, dtype=HEADER)
    places = len(buffer) - HEADER_BYTES + 1
    # As opaque bytes: numpy takes records with named fields one field at a time, which costs four times as much.
    raw = np.ndarray(places, dtype=_HEADER_RAW, buffer=buffer, strides=(1,))
    return raw[offsets].view(HEADER)


def lockstep(buffer: Buffer, sparse: npt.NDArray[np.int64], every: int, records: int) -> npt.NDArray[np.int64]:
    """The offsets of all ``records`` from those of each ``every``-th, the gaps walked all at once: 20 M records/s,
    where ``walk`` does 2 M. The bytes must have been verified before."""
    # A row for each step, turned once in the end: written where it will stand it would touch a page for every number.
    steps = np.empty((every, len(sparse)), dtype=np.int64)
    lengths = np.ndarray(len(buffer) - HEADER_BYTES + 1, dtype="<u4", buffer=buffer, offset=LENGTH_AT, strides=(1,))
    at = np.array(sparse, dtype=np.int64)
    for step in steps:
        step[:] = at
        # Past the last record only the last row goes on walking, over bytes that are no record: held inside the buffer.
        at = np.minimum(at + HEADER_BYTES + lengths[at], len(lengths) - 1)
    return np.ascontiguousarray(steps.T).reshape(-1)[:records]
