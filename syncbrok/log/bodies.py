"""Binary bodies: messages, carried messages, outcomes. Pure. What reads here raises ``BAD_BODY`` on bytes it cannot
read; ``codec`` turns that into an answer.
"""

import json
import struct
from typing import NamedTuple

import orjson

from syncbrok.log import layout
from syncbrok.log.layout import FAILURE_SHIFT, SCOPE_SHIFT, Header
from syncbrok.model.facts import Carried, Outcome, Outcomes, Published, Reason, Row, Tried
from syncbrok.model.message import ParentFailure, Scope
from syncbrok.model.names import MessageId

BAD_BODY = (struct.error, ValueError, TypeError, KeyError, IndexError, OverflowError)

_SCOPES = tuple(Scope)
_FAILURES = (*ParentFailure, ParentFailure.FAIL)
_OUTCOMES = {int(outcome): outcome for outcome in Outcome}
_REASONS = {int(reason): reason for reason in Reason}
_UINT32_MAX = 0xFFFF_FFFF
_UINT16_MAX = 0xFFFF


class Meta(NamedTuple):
    """The header's flags that the fact asks for, and what stands before the content."""

    flags: int
    data: bytes


def text(value: str) -> bytes:
    """UTF-8. An accepted text must never stop a batch: what a header brought in undecodable goes through as it came."""
    return value.encode("utf-8", "surrogatepass")


def _text_in(value: bytes) -> str:
    return value.decode("utf-8", "surrogatepass")


# -- messages ---------------------------------------------------------------------------------------------------------


def message_meta(message: Published, deliveries: bytes = b"") -> Meta:
    """Parents, extras where there are any, ``deliveries`` (of a carried message), content type."""
    flags = message.parent_failure << layout.FAILURE_SHIFT | message.scope << layout.SCOPE_SHIFT
    more, extras = _extras(message)
    return Meta(flags | more, b"".join((*message.parents, extras, deliveries, text(message.content_type))))


def _extras(message: Published) -> Meta:
    """The block of what most messages do not have; empty where this one has nothing of it."""
    flags = (
        (layout.HAS_KEY if message.key else 0)
        | (layout.HAS_IDEMPOTENCY if message.idempotency_key or message.fingerprint else 0)
        | (layout.HAS_DUE if message.due_us else 0)
        | (layout.HAS_EXPIRES if message.expires_us else 0)
        | (layout.HAS_HEADERS if message.headers else 0)
        | (layout.HAS_ONLY if message.only else 0)
    )
    if not flags:
        return Meta(0, b"")
    key, idempotency_key = text(message.key), text(message.idempotency_key)
    headers = _headers_out(message.headers) if message.headers else b""
    block = layout.EXTRA_STRUCT.pack(
        message.due_us,
        message.expires_us,
        message.only,
        len(headers),
        len(key),
        len(idempotency_key),
        len(message.fingerprint),
    )
    return Meta(flags, b"".join((block, message.fingerprint, key, idempotency_key, headers)))


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


class _Extras(NamedTuple):
    key: str = ""
    idempotency_key: str = ""
    fingerprint: bytes = b""
    due_us: int = 0
    expires_us: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    only: int = 0


_NO_EXTRAS = _Extras()


def _extras_in(body: bytes, at: int, limit: int) -> tuple[_Extras, int]:
    """The block at ``at``, and where it ends (at most ``limit``)."""
    (due_us, expires_us, only, headers_bytes, key_bytes, idempotency_key_bytes, fingerprint_bytes) = (
        layout.EXTRA_STRUCT.unpack_from(body, at)
    )
    fingerprint_at = at + layout.EXTRA_STRUCT.size
    key_at = fingerprint_at + fingerprint_bytes
    idempotency_key_at = key_at + key_bytes
    headers_at = idempotency_key_at + idempotency_key_bytes
    end = headers_at + headers_bytes
    if end > limit:
        raise ValueError("texts longer than the meta")
    extras = _Extras(
        _text_in(body[key_at:idempotency_key_at]),
        _text_in(body[idempotency_key_at:headers_at]),
        body[fingerprint_at:key_at],
        due_us,
        expires_us,
        _headers_in(body[headers_at:end]) if headers_bytes else (),
        only,
    )
    return extras, end


def published(header: Header, body: bytes, *, content: bool) -> Published:
    """The message of a record of kind ``MESSAGE``."""
    at = header.items * 16
    extras = _NO_EXTRAS
    if header.flags & layout.EXTRAS:
        extras, at = _extras_in(body, at, header.meta_bytes)
    return _message(header, body, header.sequence, header.time_us, extras, at, content)


def _message(
    header: Header, body: bytes, sequence: int, time_us: int, extras: _Extras, type_at: int, content: bool
) -> Published:
    _, _, _, flags, _, meta_bytes, _, _, _, _, message_id, root, queue, depth, items, _, _ = header
    if type_at > meta_bytes:
        raise ValueError("parts longer than the meta")
    return Published(
        sequence,
        time_us,
        message_id,
        queue,
        root,
        depth,
        _SCOPES[flags >> SCOPE_SHIFT & 1],
        _FAILURES[flags >> FAILURE_SHIFT & 3],
        tuple([MessageId(body[at : at + 16]) for at in range(0, items * 16, 16)]) if items else (),
        extras.key,
        extras.idempotency_key,
        extras.fingerprint,
        extras.due_us,
        extras.expires_us,
        body[type_at:meta_bytes].decode("utf-8", "surrogatepass"),
        extras.headers,
        body[meta_bytes:] if content else b"",
        extras.only,
    )


# -- carried messages -------------------------------------------------------------------------------------------------


def carried_meta(fact: Carried) -> Meta:
    message = fact.message
    return message_meta(
        message,
        b"".join(
            (
                layout.CARRIED_STRUCT.pack(message.sequence, message.time_us, len(fact.ended), len(fact.tried)),
                *[layout.ENDED_STRUCT.pack(subscriber, outcome) for subscriber, outcome in fact.ended],
                *[layout.TRIED_STRUCT.pack(*tried) for tried in fact.tried],
            )
        ),
    )


def carried(header: Header, body: bytes, *, content: bool) -> Carried:
    """The fact of a record of kind ``CARRIED``."""
    at = header.items * layout.ID_BYTES
    extras = _NO_EXTRAS
    if header.flags & layout.EXTRAS:
        extras, at = _extras_in(body, at, header.meta_bytes)
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
        fields = (message, subscriber, attempt, _OUTCOMES[outcome], _REASONS[reason], status)
        rows.append(new(Row, (*fields, time_us, due_us, after, latency_us, detail)))
    if at != header.body_bytes:
        raise ValueError("details and body differ in length")
    return Outcomes(header.sequence, header.time_us, tuple(rows))
