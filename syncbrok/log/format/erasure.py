"""Takes what people wrote out of records, and leaves the records where they stand. Pure.

A rewritten record has the length, the sequence and the place that it had, and new checksums. Of a message parents,
fingerprint, times and content type stay; its keys become digests (``names.key_digest``), which take room that key,
headers and content leave: where that is too little the ``Syncbrok-Key`` goes first, then the idempotency key. Of
outcomes the details of some messages become zeros. Both say so by a flag, and are of version 2.
"""

from collections.abc import Container
from typing import Final

from crc32c import crc32c

from syncbrok.log.format import bodies
from syncbrok.log.format.layout import (
    CRC_STRUCT,
    ERASED,
    EXTRAS,
    HEAD_STRUCT,
    HEADER_BYTES,
    NEWEST_VERSION,
    ROW_STRUCT,
    Header,
    Kind,
    read_header,
)
from syncbrok.model.facts import Carried, Fact, Messages, Outcomes, StoredMessage
from syncbrok.model.names import key_digest

_DETAIL_BYTES: Final = 8
"""which of a row's fields says how long its detail is"""


def erased_record(record: bytes, messages: Container[int], id_key: bytes) -> bytes:
    """``record``, which is whole, as it stands once ``messages`` (own sequences) are erased; itself where it says
    nothing of them that must go. ``id_key``: the log's. Raises ``bodies.BAD_BODY``."""
    header = read_header(record, verify=False)
    assert isinstance(header, Header), "a whole record"
    body = record[HEADER_BYTES:]
    if header.kind == Kind.OUTCOMES:
        written = _without_details(header, body, messages)
        return record if written == body else _record(header._replace(flags=header.flags | ERASED), written)
    if header.kind not in (Kind.MESSAGE, Kind.CARRIED) or header.flags & ERASED:
        return record
    if header.kind == Kind.CARRIED:
        own = bodies.carried(header, body, content=False).message.sequence
    else:
        own = header.sequence
    return _erased_message(header, body, id_key) if own in messages else record


def erased_message(message: StoredMessage, id_key: bytes) -> StoredMessage:
    """``message`` as its record tells it once it is erased."""
    if message.erased:
        return message
    _, block = bodies.extra_meta(Messages.of(message).extras_at(0))
    room = len(block) + len(message.content)
    for key, idempotency_key in _digests(message.key, message.idempotency_key, id_key):
        slim = message._replace(key=key, idempotency_key=idempotency_key, headers=(), content=b"", erased=True)
        if len(bodies.extra_meta(Messages.of(slim).extras_at(0)).data) <= room:
            break
    return slim


def erased_rows(fact: Outcomes, messages: Container[int]) -> Outcomes:
    """The fact without what the subscribers of these messages answered."""
    return fact._replace(rows=tuple([row._replace(detail=b"") if row[0] in messages else row for row in fact.rows]))


def redacted(fact: Fact, messages: Container[int], id_key: bytes) -> Fact:
    """The fact as it is told once these messages are erased."""
    match fact:
        case StoredMessage():
            return erased_message(fact, id_key) if fact.sequence in messages else fact
        case Carried():
            own = fact.message
            return fact._replace(message=erased_message(own, id_key)) if own.sequence in messages else fact
        case Outcomes():
            return erased_rows(fact, messages)
    return fact


def _digests(key: str, idempotency_key: str, id_key: bytes) -> tuple[tuple[str, str], ...]:
    """Candidates for what stands in the place of the two keys, the best first; the last one fits always."""
    both = tuple(key_digest(one, id_key) if one else "" for one in (key, idempotency_key))
    return (both[0], both[1]), ("", both[1]), ("", "")


def _erased_message(header: Header, body: bytes, id_key: bytes) -> bytes:
    meta = body[: header.meta_bytes]
    extras, end = bodies.extras_in(meta, header.flags, header.items, header.root, header.depth)
    rest = meta[end:]  # deliveries of a carried message, and the content type
    for key, idempotency_key in _digests(extras.key, extras.idempotency_key, id_key):
        slim = extras._replace(key=key, idempotency_key=idempotency_key, headers=())
        more, block = bodies.extra_meta(slim)
        if len(block) + len(rest) <= len(body):
            break
    written = block + rest
    flags = header.flags & ~EXTRAS | more | ERASED
    return _record(header._replace(flags=flags, meta_bytes=len(written)), written + bytes(len(body) - len(written)))


def _without_details(header: Header, body: bytes, messages: Container[int]) -> bytes:
    """The body of outcomes with zeros for the details of these messages."""
    at, written = header.meta_bytes, bytearray(body)
    for row in ROW_STRUCT.iter_unpack(body[: header.meta_bytes]):
        size = row[_DETAIL_BYTES]
        if size and row[0] in messages:
            written[at : at + size] = bytes(size)
        at += size
    return bytes(written)


def _record(header: Header, body: bytes) -> bytes:
    head = HEAD_STRUCT.pack(*header._replace(version=NEWEST_VERSION)[:-2], crc32c(body))
    return b"".join((head, CRC_STRUCT.pack(crc32c(head)), body))
