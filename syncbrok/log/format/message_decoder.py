"""Decodes consecutive messages in one pass; backlogs are delivered from it. Pure.

That is several times as fast as record by record. Both checksums of every record that comes from a disk are verified.
"""

import struct
from typing import Final

from crc32c import crc32c

from syncbrok.log.format.bodies import BAD_BODY, extras_in
from syncbrok.log.format.layout import (
    ERASED,
    EXTRAS,
    FAILURE_SHIFT,
    HEADER_BYTES,
    MAGIC,
    NEWEST_VERSION,
    SCOPE_SHIFT,
    VERSION,
    Kind,
)
from syncbrok.model.facts import Extras, StoredMessage
from syncbrok.model.limits import KIB
from syncbrok.model.message import ParentFailure, Scope

_SCOPES: Final = tuple(Scope)
_FAILURES: Final = (*ParentFailure, ParentFailure.FAIL)
_HEADER: Final = struct.Struct("<QIIQ16xq16sQIIIII")
"""a header without batch and ``synced_through``; magic, version, kind and flags are one number, the flags on top"""
_FLAGS_SHIFT: Final = 48
_KIND_MASK: Final = (1 << _FLAGS_SHIFT) - 1
_MESSAGE: Final = MAGIC | VERSION << 32 | int(Kind.MESSAGE) << 40
_NEWER: Final = MAGIC | NEWEST_VERSION << 32 | int(Kind.MESSAGE) << 40
_ERASED: Final = ERASED << _FLAGS_SHIFT
_HEADER_CRC_BYTES: Final = 4
_COPIED_BYTES_MAX: Final = 2 * KIB
_KEEP_INTERPRETER: Final = 0
"""for ``crc32c``, which would let others have the interpreter while it looks at more than 32 KiB: that takes some
microseconds, and to get it back from a busy event loop up to five milliseconds"""
_TYPES_MAX: Final = 1_000
_types: dict[bytes, str] = {}
"""content types as they were met, bounded"""

assert _HEADER.size == HEADER_BYTES


def content_type(written: bytes) -> str:
    """As it stands in a record. There are few, and decoding each anew costs as much as the header."""
    found = _types.get(written)
    if found is None:
        if len(_types) >= _TYPES_MAX:
            _types.clear()
        found = _types[written] = written.decode("utf-8", "surrogatepass")
    return found


def read_messages(
    data: bytes,
    at: int,
    sequence: int,
    count: int,
    found: list[StoredMessage],
    *,
    content: bool = True,
    verify: bool = True,
) -> int:
    """Put the messages of the records from ``at`` on into ``found``: those of ``sequence`` and the next, ``count`` in
    all. ``content`` False: without theirs (``b""``). It ends before the first that is anything but a whole and
    undamaged record of a message; the offset where it ended is the answer, and ``found`` says how many there were.
    ``verify`` False: for bytes that have never left memory, or were verified."""
    unpack, new, seen = _HEADER.unpack_from, tuple.__new__, 0
    scope, failure, flags, media = Scope.ALL, ParentFailure.FAIL, 0, ""
    extras = Extras(0)
    meta_seen, items_seen, flags_seen = b"", 0, 0
    view = memoryview(data)
    last_at = len(data) - HEADER_BYTES
    for expected in range(sequence, sequence + count):
        if at > last_at:
            break
        first, body_bytes, meta_bytes, own, time_us, name, root, queue, depth, items, body_crc, header_crc = unpack(
            data, at
        )
        body_at = at + HEADER_BYTES
        end = body_at + body_bytes
        if first & _KIND_MASK != _MESSAGE and (first & _KIND_MASK != _NEWER or first & _ERASED):
            break
        if own != expected or end > len(data):
            break
        # One copy less of a large content; of a small one the copy is cheaper than the view.
        body = data[body_at:end] if body_bytes <= _COPIED_BYTES_MAX else view[body_at:end]
        if verify and (
            crc32c(data[at : body_at - _HEADER_CRC_BYTES]) != header_crc
            or crc32c(body, 0, _KEEP_INTERPRETER) != body_crc
        ):
            break
        if first != seen:
            seen, flags = first, first >> _FLAGS_SHIFT
            scope, failure = _SCOPES[flags >> SCOPE_SHIFT & 1], _FAILURES[flags >> FAILURE_SHIFT & 3]
            flags &= EXTRAS
        meta = bytes(body[:meta_bytes])
        if meta != meta_seen or items != items_seen or flags != flags_seen:  # mostly alike: also the children of a tree
            try:
                extras, type_at = extras_in(meta, flags, items, root, depth)
            except BAD_BODY:
                break  # whoever decodes it alone says why
            media = content_type(meta[type_at:])
            meta_seen, items_seen, flags_seen = meta, items, flags
        _, _, parents, key, idempotency_key, fingerprint, due_us, expires_us, headers, only, after_us = extras
        # Past the Python-level __new__ of a NamedTuple, which costs as much as all the rest.
        fields = (own, time_us, name, queue, root, depth, scope, failure, parents, key, idempotency_key, fingerprint)
        more = (due_us, expires_us, media, headers, bytes(body[meta_bytes:]) if content else b"", only, False, after_us)
        found.append(new(StoredMessage, fields + more))
        at = end
    return at
