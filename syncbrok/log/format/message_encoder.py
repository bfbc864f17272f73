"""Messages -> the bytes of their records. Pure.

Consecutive messages with common attributes are encoded as columns: the fields that differ are written into an array of
all headers, and only two checksums are left for each message. That halves the time. The array itself costs as much as
ten messages, so fewer are encoded one by one.
"""

from itertools import repeat
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from syncbrok.log.format.bodies import extra_meta, text
from syncbrok.log.format.layout import (
    CRC_STRUCT,
    EXTRA,
    FAILURE_SHIFT,
    HAS_IDEMPOTENCY,
    HEAD_STRUCT,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    NEWEST_VERSION,
    SCOPE_SHIFT,
    VERSION,
    Buffer,
    Kind,
    Stretch,
)
from syncbrok.model.facts import Attributes, Extras, Keyed, Messages

_MESSAGE: Final = int(Kind.MESSAGE)
_MANY: Final = 12


class EncodedRun(NamedTuple):
    """``pieces`` one after the other are the records; ``sizes_bytes`` has the length of each."""

    pieces: list[bytes]
    sizes_bytes: list[int]
    stretches: list[Stretch]
    """of messages without extras, where there are many; positions are those of records"""


def encode_messages(
    messages: Messages, records: EncodedRun, unit_ends: Buffer, batch: int, synced_through: int
) -> None:
    """Add their records to ``records``. ``unit_ends``: a byte for each message, 1 for those that end a client's unit
    (``UNIT_END``), else 0."""
    first, time_us, ids, stretches, contents, extras, keyed, _ = messages
    assert 16 * len(contents) == len(ids), "messages are written with their contents"
    pieces, sizes_bytes, _ = records
    start, last_type, shared, shared_crc = 0, "", b"", 0
    for end, attributes in stretches:
        if end - start >= _MANY:
            _as_columns(messages, start, end, attributes, records, unit_ends, batch, synced_through)
            start = end
            continue
        queue, scope, failure, content_type = attributes
        if content_type is not last_type:
            last_type, shared = content_type, text(content_type)
            shared_crc = crc32c(shared)
        alike = failure << FAILURE_SHIFT | scope << SCOPE_SHIFT
        for at in range(start, end):
            content, sequence = contents[at], first + at
            flags, meta, meta_crc, root, depth, items = alike | unit_ends[at], shared, shared_crc, sequence, 0, 0
            version = VERSION
            more = extras.get(at) if keyed is None else messages.extras_at(at)
            if more is not None:
                root, depth, items = more.root, more.depth, len(more.parents)
                version = NEWEST_VERSION if more.erase_after_us else VERSION
                more_flags, block = extra_meta(more)
                flags |= more_flags
                meta = block + shared
                meta_crc = crc32c(meta)
            head = HEAD_STRUCT.pack(
                MAGIC,
                version,
                _MESSAGE,
                flags,
                len(meta) + len(content),
                len(meta),
                sequence,
                batch,
                synced_through,
                time_us,
                ids[16 * at : 16 * at + 16],
                root,
                queue,
                depth,
                items,
                crc32c(content, meta_crc),
            )
            pieces += (head, CRC_STRUCT.pack(crc32c(head)), meta, content)
            sizes_bytes.append(HEADER_BYTES + len(meta) + len(content))
        start = end


def _as_columns(
    messages: Messages,
    start: int,
    end: int,
    attributes: Attributes,
    records: EncodedRun,
    unit_ends: Buffer,
    batch: int,
    synced_through: int,
) -> None:
    first, count, contents = messages.sequence + start, end - start, messages.contents
    if count < len(contents):
        contents = contents[start:end]
    queue, scope, failure, content_type = attributes
    written = text(content_type)
    extras = {at - start: more for at, more in messages.extras.items() if start <= at < end}
    metas = _metas(messages.keyed, extras, start, end, written)
    # The bytes that all share stand behind each header already.
    shared = written if metas is None else b""
    flags = failure << FAILURE_SHIFT | scope << SCOPE_SHIFT
    alike = HEAD_STRUCT.pack(
        MAGIC, VERSION, _MESSAGE, flags, 0, 0, 0, batch, synced_through, messages.time_us, b"", 0, queue, 0, 0, 0
    )
    before_bytes = HEADER_BYTES + len(shared)
    raw = bytearray((alike + bytes(CRC_STRUCT.size) + shared) * count)
    heads = np.ndarray(count, HEADER, raw, strides=(before_bytes,))
    meta_sizes = len(shared) if metas is None else np.fromiter(map(len, metas.data), np.int64, count)
    sizes = np.fromiter(map(len, contents), np.int64, count) + meta_sizes
    heads["flags"] |= np.frombuffer(unit_ends, np.uint8)[start:end]
    heads["meta_bytes"] = meta_sizes
    heads["body_bytes"] = sizes
    heads["sequence"] = heads["root"] = np.arange(first, first + count, dtype=np.uint64)
    heads["id"] = np.frombuffer(messages.ids, "V16")[start:end]
    if metas is not None:
        heads["flags"] |= metas.flags
    if extras:
        places, others = list(extras), extras.values()
        heads["version"][places] = [NEWEST_VERSION if more.erase_after_us else VERSION for more in others]
        heads["root"][places] = [more.root for more in others]
        heads["depth"][places] = [more.depth for more in others]
        heads["items"][places] = [len(more.parents) for more in others]
    meta_crcs = repeat(crc32c(shared)) if metas is None else map(crc32c, metas.data)
    heads["body_crc"] = list(map(crc32c, contents, meta_crcs))
    checked = np.ndarray(count, f"V{HEAD_STRUCT.size}", raw, strides=(before_bytes,))
    heads["header_crc"] = list(map(crc32c, checked.tolist()))
    columns = [np.ndarray(count, f"V{before_bytes}", raw).tolist(), contents]
    if metas is None:
        records.stretches.append(Stretch(len(records.sizes_bytes), first, count, queue))
    else:
        columns.insert(1, metas.data)
    pieces = [b""] * (len(columns) * count)
    for at, column in enumerate(columns):
        pieces[at :: len(columns)] = column
    records.pieces.extend(pieces)
    records.sizes_bytes.extend((sizes + HEADER_BYTES).tolist())


class _Metas(NamedTuple):
    """The meta of each message (the bytes between header and content), and the flags that describe it."""

    data: list[bytes]
    flags: "npt.NDArray[np.uint16] | int"


def _metas(keyed: Keyed | None, extras: dict[int, Extras], start: int, end: int, written_type: bytes) -> _Metas | None:
    """The metas of the messages from ``start`` to before ``end``; None if each is the content type alone."""
    if keyed is not None:
        return _Metas(_keyed_metas(keyed, start, end, written_type), HAS_IDEMPOTENCY)
    if not extras:
        return None
    data, flags = [written_type] * (end - start), [0] * (end - start)
    for at, more in extras.items():
        flags[at], block = extra_meta(more)
        data[at] = block + written_type
    return _Metas(data, np.array(flags, np.uint16))


def _keyed_metas(keyed: Keyed, start: int, end: int, written_type: bytes) -> list[bytes]:
    """The extras, of which these have key and fingerprint, and the type."""
    keys, fingerprints = list(map(text, keyed.keys[start:end])), keyed.fingerprints[start:end]
    blocks = np.zeros(len(keys), EXTRA)
    blocks["idempotency_key_bytes"] = list(map(len, keys))
    blocks["fingerprint_bytes"] = list(map(len, fingerprints))
    columns = (blocks.view(f"V{EXTRA.itemsize}").tolist(), fingerprints, keys, repeat(written_type, len(keys)))
    return list(map(b"".join, zip(*columns, strict=True)))
