"""Binary bodies: messages, carried messages, outcomes. Pure. What reads here raises ``BAD_BODY`` on bytes it cannot
read; ``codec`` turns that into an answer.
"""

import json
import struct
from typing import NamedTuple

import orjson

from syncbrok.log.format import layout
from syncbrok.log.format.layout import FAILURE_SHIFT, SCOPE_SHIFT, Header
from syncbrok.model.facts import Carried, Extras, Messages, Outcome, Outcomes, Reason, Row, StoredMessage, Tried
from syncbrok.model.message import ParentFailure, Scope
from syncbrok.model.names import MessageId

BAD_BODY = (struct.error, ValueError, TypeError, KeyError, IndexError, OverflowError)

_SCOPES = tuple(Scope)
_FAILURES = (*ParentFailure, ParentFailure.FAIL)
_OUTCOMES = {int(outcome): outcome for outcome in Outcome}
_REASONS = {int(reason): reason for reason in Reason}
_UINT32_MAX = 0xFFFF_FFFF
_UINT16_MAX = 0xFFFF
_NOTHING = Extras(0)[3:]


class Meta(NamedTuple):
    """Flags of the header, and bytes that stand before the content."""

    flags: int
    data: bytes


def text(value: str) -> bytes:
    """UTF-8. An accepted text must never stop a batch: what a header brought in undecodable goes through as it came."""
    return value.encode("utf-8", "surrogatepass")


def _text_in(value: bytes) -> str:
    return value.decode("utf-8", "surrogatepass")


# -- messages ---------------------------------------------------------------------------------------------------------


def extra_meta(extras: Extras) -> Meta:
    """The parents and, if the message has any extras, their block, as bytes of a meta."""
    _, _, parents, key, idempotency_key, fingerprint, due_us, expires_us, headers, only, after_us = extras
    if not (key or idempotency_key or fingerprint or due_us or expires_us or headers or only or after_us):
        return Meta(0, b"".join(parents))
    flags = (
        (layout.HAS_KEY if key else 0)
        | (layout.HAS_IDEMPOTENCY if idempotency_key or fingerprint else 0)
        | (layout.HAS_DUE if due_us else 0)
        | (layout.HAS_EXPIRES if expires_us else 0)
        | (layout.HAS_HEADERS if headers else 0)
        | (layout.HAS_ONLY if only else 0)
        | (layout.HAS_ERASE_AFTER if after_us else 0)
    )
    texts = (fingerprint, text(key), text(idempotency_key), _headers_out(headers) if headers else b"")
    fingerprint_bytes, key_bytes, idempotency_key_bytes, headers_bytes = map(len, texts)
    block = layout.EXTRA_STRUCT.pack(
        due_us, expires_us, only, headers_bytes, key_bytes, idempotency_key_bytes, fingerprint_bytes
    )
    last = (layout.ERASE_AFTER_STRUCT.pack(after_us),) if after_us else ()
    return Meta(flags, b"".join((*parents, block, *texts, *last)))


def _headers_out(headers: tuple[tuple[str, str], ...]) -> bytes:
    try:
        return orjson.dumps(headers)
    except TypeError:
        return json.dumps(headers).encode()  # text that is not Unicode: escaped, where orjson refuses it


def _headers_in(data: bytes) -> tuple[tuple[str, str], ...]:
    try:
        pairs = orjson.loads(data)
    except orjson.JSONDecodeError:
        pairs = json.loads(data)
    return tuple([(str(name), str(value)) for name, value in pairs])


def extras_in(meta: bytes, flags: int, items: int, root: int, depth: int) -> tuple[Extras, int]:
    """The extras in ``meta``, as ``extra_meta`` wrote them, and the offset where they end. ``items``, ``root`` and
    ``depth`` are the header's."""
    at = items * layout.ID_BYTES
    if at > len(meta):
        raise ValueError("parents longer than the meta")
    parents = tuple([MessageId(meta[one : one + layout.ID_BYTES]) for one in range(0, at, layout.ID_BYTES)])
    if not flags & layout.EXTRAS:
        return tuple.__new__(Extras, (root, depth, parents, *_NOTHING)), at  # half as dear; most have only parents
    (due_us, expires_us, only, headers_bytes, key_bytes, idempotency_key_bytes, fingerprint_bytes) = (
        layout.EXTRA_STRUCT.unpack_from(meta, at)
    )
    fingerprint_at = at + layout.EXTRA_STRUCT.size
    key_at = fingerprint_at + fingerprint_bytes
    idempotency_key_at = key_at + key_bytes
    headers_at = idempotency_key_at + idempotency_key_bytes
    end = headers_at + headers_bytes
    after_us = 0
    if flags & layout.HAS_ERASE_AFTER:
        (after_us,) = layout.ERASE_AFTER_STRUCT.unpack_from(meta, end)
        end += layout.ERASE_AFTER_STRUCT.size
    if end > len(meta):
        raise ValueError("texts longer than the meta")
    extras = Extras(
        root,
        depth,
        parents,
        _text_in(meta[key_at:idempotency_key_at]),
        _text_in(meta[idempotency_key_at:headers_at]),
        meta[fingerprint_at:key_at],
        due_us,
        expires_us,
        _headers_in(meta[headers_at : headers_at + headers_bytes]) if headers_bytes else (),
        only,
        after_us,
    )
    return extras, end


def published(header: Header, body: bytes, *, content: bool) -> StoredMessage:
    """The message of a record of kind ``MESSAGE``."""
    extras, at = extras_in(body[: header.meta_bytes], header.flags, header.items, header.root, header.depth)
    return _message(header, body, header.sequence, header.time_us, extras, at, content)


def _message(
    header: Header, body: bytes, sequence: int, time_us: int, extras: Extras, type_at: int, content: bool
) -> StoredMessage:
    _, _, _, flags, _, meta_bytes, _, _, _, _, message_id, root, queue, depth, _, _, _ = header
    if type_at > meta_bytes:
        raise ValueError("parts longer than the meta")
    return StoredMessage(
        sequence,
        time_us,
        message_id,
        queue,
        root,
        depth,
        _SCOPES[flags >> SCOPE_SHIFT & 1],
        _FAILURES[flags >> FAILURE_SHIFT & 3],
        extras.parents,
        extras.key,
        extras.idempotency_key,
        extras.fingerprint,
        extras.due_us,
        extras.expires_us,
        body[type_at:meta_bytes].decode("utf-8", "surrogatepass"),
        extras.headers,
        body[meta_bytes:] if content and not flags & layout.ERASED else b"",
        extras.only,
        bool(flags & layout.ERASED),
        extras.erase_after_us,
    )


# -- carried messages -------------------------------------------------------------------------------------------------


def carried_meta(fact: Carried) -> Meta:
    """The header's flags that the fact asks for, and what stands before the content."""
    message = fact.message
    flags, block = extra_meta(Messages.of(message).extras_at(0))
    flags |= message.parent_failure << FAILURE_SHIFT | message.scope << SCOPE_SHIFT
    deliveries = (
        layout.CARRIED_STRUCT.pack(message.sequence, message.time_us, len(fact.ended), len(fact.tried)),
        *[layout.ENDED_STRUCT.pack(subscriber, outcome) for subscriber, outcome in fact.ended],
        *[layout.TRIED_STRUCT.pack(*tried) for tried in fact.tried],
    )
    return Meta(flags, b"".join((block, *deliveries, text(message.content_type))))


def carried(header: Header, body: bytes, *, content: bool) -> Carried:
    """The fact of a record of kind ``CARRIED``."""
    extras, at = extras_in(body[: header.meta_bytes], header.flags, header.items, header.root, header.depth)
    sequence, time_us, ended_count, tried_count = layout.CARRIED_STRUCT.unpack_from(body, at)
    ended_at = at + layout.CARRIED_STRUCT.size
    tried_at = ended_at + ended_count * layout.ENDED_STRUCT.size
    type_at = tried_at + tried_count * layout.TRIED_STRUCT.size
    message = _message(header, body, sequence, time_us, extras, type_at, content)
    ended = tuple(
        (number, _OUTCOMES[outcome]) for number, outcome in layout.ENDED_STRUCT.iter_unpack(body[ended_at:tried_at])
    )
    tried = tuple(Tried(*one) for one in layout.TRIED_STRUCT.iter_unpack(body[tried_at:type_at]))
    return Carried(header.sequence, header.time_us, message, ended, tried)


# -- outcomes ---------------------------------------------------------------------------------------------------------


def rows_out(rows: tuple[Row, ...]) -> tuple[bytes, bytes]:
    """The rows (meta) and their details (content)."""
    pack = layout.ROW_STRUCT.pack
    try:
        meta = [
            pack(message, began, due, after, subscriber, latency, attempt, status, len(detail), outcome, reason)
            for message, subscriber, attempt, outcome, reason, status, began, due, after, latency, detail in rows
        ]
    except struct.error:
        meta = [_cut_to_fit(row) for row in rows]
    return b"".join(meta), b"".join([row.detail for row in rows])


def _cut_to_fit(row: Row) -> bytes:
    """A figure beyond its field (an endpoint's odd status, a clock set back) must not stop the log."""
    return layout.ROW_STRUCT.pack(
        row.message,
        row.time_us,
        row.due_us,
        row.after,
        row.subscriber,
        min(max(row.latency_us, 0), _UINT32_MAX),
        min(row.attempt, _UINT16_MAX),
        min(max(row.status, 0), _UINT16_MAX),
        len(row.detail),
        row.outcome,
        row.reason,
    )


def outcomes(header: Header, body: bytes) -> Outcomes:
    """The fact of a record of kind ``OUTCOMES``."""
    if header.items * layout.ROW_BYTES != header.meta_bytes:
        raise ValueError("rows and meta differ in length")
    rows: list[Row] = []
    new = tuple.__new__  # half the time of the named tuple's own constructor; there are as many rows as messages
    at = header.meta_bytes
    for packed in layout.ROW_STRUCT.iter_unpack(body[:at]):
        message, time_us, due_us, after, subscriber, latency_us, attempt, status, detail_bytes, outcome, reason = packed
        detail = b""
        if detail_bytes:
            detail = body[at : at + detail_bytes]
            at += detail_bytes
            if header.flags & layout.ERASED and not detail.strip(b"\0"):
                detail = b""
        fields = (message, subscriber, attempt, _OUTCOMES[outcome], _REASONS[reason], status)
        rows.append(new(Row, (*fields, time_us, due_us, after, latency_us, detail)))
    if at != header.body_bytes:
        raise ValueError("details and body differ in length")
    return Outcomes(header.sequence, header.time_us, tuple(rows))
