"""A run of messages that are alike -> the bytes of its records, all at once. Pure.

The bytes are those that ``codec`` makes of each message alone (a test holds that). What differs from record to record
is written into a column of all headers; what is left for each is two checksums. 0.5 us a message, where one after the
other costs 2.
"""

from itertools import repeat
from typing import Final, NamedTuple

import numpy as np
from crc32c import crc32c

from syncbrok.log.layout import (
    CRC_STRUCT,
    EXTRA,
    FAILURE_SHIFT,
    HAS_IDEMPOTENCY,
    HEAD_STRUCT,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    SCOPE_SHIFT,
    VERSION,
    Buffer,
    Kind,
)
from syncbrok.model.facts import PublishedRun

_MESSAGE: Final = int(Kind.MESSAGE)


class Records(NamedTuple):
    """``pieces`` one after the other are the records; ``sizes_bytes`` has the length of each."""

    pieces: list[bytes]
    sizes_bytes: list[int]


def encode_run(run: PublishedRun, unit_ends: Buffer, batch: int, synced_through: int) -> Records:
    """``unit_ends``: a byte for each message, 1 for those that end a client's unit (``UNIT_END``), else 0."""
    count, contents = run.size, run.contents
    assert len(unit_ends) == len(contents) == count, "a run is written with its contents"
    metas = _keyed_metas(run) if run.idempotency_keys else None
    # What all have in common stands behind each header already.
    shared = run.content_type.encode("utf-8", "surrogatepass") if metas is None else b""
    flags = run.parent_failure << FAILURE_SHIFT | run.scope << SCOPE_SHIFT
    if metas is not None:
        flags |= HAS_IDEMPOTENCY
    alike = HEAD_STRUCT.pack(
        MAGIC, VERSION, _MESSAGE, flags, 0, 0, 0, batch, synced_through, run.time_us, b"", 0, run.queue, 0, 0, 0
    )
    before_bytes = HEADER_BYTES + len(shared)
    raw = bytearray((alike + bytes(CRC_STRUCT.size) + shared) * count)
    heads = np.ndarray(count, HEADER, raw, strides=(before_bytes,))
    meta_sizes = len(shared) if metas is None else np.fromiter(map(len, metas), np.int64, count)
    sizes = np.fromiter(map(len, contents), np.int64, count) + meta_sizes
    heads["flags"] |= np.frombuffer(unit_ends, np.uint8)
    heads["meta_bytes"] = meta_sizes
    heads["body_bytes"] = sizes
    heads["sequence"] = heads["root"] = np.arange(run.sequence, run.sequence + count, dtype=np.uint64)
    heads["id"] = np.frombuffer(run.ids, "V16")
    heads["body_crc"] = list(map(crc32c, contents, repeat(crc32c(shared)) if metas is None else map(crc32c, metas)))
    checked = np.ndarray(count, f"V{HEAD_STRUCT.size}", raw, strides=(before_bytes,))
    heads["header_crc"] = list(map(crc32c, checked.tolist()))
    columns = [np.ndarray(count, f"V{before_bytes}", raw).tolist(), contents]
    if metas is not None:
        columns.insert(1, metas)
    pieces = [b""] * (len(columns) * count)
    for at, column in enumerate(columns):
        pieces[at :: len(columns)] = column
    return Records(pieces, (sizes + HEADER_BYTES).tolist())


def _keyed_metas(run: PublishedRun) -> list[bytes]:
    """What stands between header and content: the extras, of which these have key and fingerprint, and the type."""
    keys = [key.encode("utf-8", "surrogatepass") for key in run.idempotency_keys]
    blocks = np.zeros(run.size, EXTRA)
    blocks["idempotency_key_bytes"] = list(map(len, keys))
    blocks["fingerprint_bytes"] = list(map(len, run.fingerprints))
    content_type = run.content_type.encode("utf-8", "surrogatepass")
    columns = (blocks.view(f"V{EXTRA.itemsize}").tolist(), run.fingerprints, keys, repeat(content_type, run.size))
    return list(map(b"".join, zip(*columns, strict=True)))
