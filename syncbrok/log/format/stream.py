"""Bytes to facts, for where a million of them are read. Pure.

``facts`` reads messages without extras in one pass and all others by ``codec.decode``, which takes twice the time.
``facts_or_runs`` looks at the headers of thousands of records at once, and messages without extras cost it next to
nothing.
"""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from syncbrok.log.format import bodies
from syncbrok.log.format.codec import Corrupt, Decoded, Kind, decode, gather, lockstep
from syncbrok.log.format.layout import (
    ERASED,
    EXTRAS,
    FAILURE_SHIFT,
    HAS_IDEMPOTENCY,
    HEADER_BYTES,
    ID_BYTES,
    LENGTH_AT,
    LENGTH_STRUCT,
    MAGIC,
    NEWEST_VERSION,
    SCOPE_SHIFT,
    SEQUENCE_AT,
    VERSION,
    Buffer,
)
from syncbrok.log.format.message_decoder import read_messages
from syncbrok.log.format.records import Record, RecordOrRun
from syncbrok.model.facts import Attributes, Extras, Messages, StoredMessage
from syncbrok.model.limits import offsets_every
from syncbrok.model.message import ParentFailure, Scope

_MESSAGE = int(Kind.MESSAGE)
_SCOPES = tuple(Scope)
_FAILURES = (*ParentFailure, ParentFailure.FAIL)
_GATHER_MAX = 1 << 15
"""headers looked at together (3 MB), and so the most messages that come together"""
_MARK_BITS = 8
"""of the flags, those of scope and policy"""
_TOGETHER = 256
_length = LENGTH_STRUCT.unpack_from


def facts(data: bytes, start: int) -> Iterator[Record | Corrupt]:
    """The facts from ``start`` on of bytes that were verified, without content. A ``Corrupt`` ends it where no whole
    record stands."""
    at = start
    while at < len(data):
        messages: list[StoredMessage] = []
        sequence = int.from_bytes(data[at + SEQUENCE_AT : at + SEQUENCE_AT + 8], "little")
        at = read_messages(data, at, sequence, _TOGETHER, messages, content=False, verify=False)
        yield from messages
        if not messages:
            fact = _fact(data, at, at)
            yield fact
            if isinstance(fact, Corrupt):
                return
            at += HEADER_BYTES + _length(data, at + LENGTH_AT)[0]


def facts_or_runs(
    data: Buffer, offsets: npt.NDArray[np.int64], after: int, together: int = _GATHER_MAX
) -> Iterator[RecordOrRun | Corrupt]:
    """Yield the facts with sequences above ``after`` among the verified records at ``offsets``, without content;
    ``together`` headers are looked at in one pass. Consecutive messages come as one ``Messages``, without content
    types; its time is that of the last message, which is exact for those with idempotency keys. Where no record stands,
    a ``Corrupt`` is the last element."""
    for start in range(0, len(offsets), together):
        places = offsets[start : start + together]
        heads = gather(data, places)
        skipped = int(heads["sequence"].searchsorted(np.uint64(after), "right"))
        if skipped < len(heads):
            for found in _gathered(data, places[skipped:], heads[skipped:]):
                yield found
                if isinstance(found, Corrupt):
                    return


def _gathered(
    data: Buffer, places: npt.NDArray[np.int64], heads: npt.NDArray[np.void]
) -> Iterator[RecordOrRun | Corrupt]:
    """Yield the facts of the records with these ``heads`` at these ``places``."""
    count, sequences, flags = len(heads), heads["sequence"], heads["flags"]
    messages = (heads["magic"] == MAGIC) & (heads["kind"] == _MESSAGE)
    messages &= (heads["version"] == VERSION) | ((heads["version"] == NEWEST_VERSION) & (flags & ERASED == 0))
    has_extras = (flags & EXTRAS != 0) | (heads["items"] != 0) | (heads["root"] != sequences) | (heads["depth"] != 0)
    begins = np.ones(count, dtype=np.bool_)
    begins[1:] = ~(messages[1:] & messages[:-1]) | (np.diff(sequences) != 1)
    # How long an idempotency key is kept is counted from its message's own time: none stands before that of another.
    keyed, same = flags & HAS_IDEMPOTENCY != 0, np.diff(heads["time_us"]) == 0
    begins[1:] |= keyed[:-1] & ~(keyed[1:] & same)
    marks = heads["queue"].astype(np.uint64) << np.uint64(_MARK_BITS) | flags.astype(np.uint64) >> np.uint64(
        SCOPE_SHIFT
    )
    differ = begins.copy()
    differ[1:] |= marks[1:] != marks[:-1]
    stretches, starts, others = np.flatnonzero(differ), np.flatnonzero(begins), np.flatnonzero(has_extras & messages)
    ends = np.append(starts[1:], count)
    alike = zip([*stretches.tolist()[1:], count], marks[stretches].tolist(), strict=True)
    extras_of = zip(others.tolist(), _extras(data, places[others] + HEADER_BYTES, heads[others]), strict=True)
    other, more = next(extras_of, (count, None))
    ids = heads["id"].tobytes()
    sizes = (heads["body_bytes"] - heads["meta_bytes"]).tobytes()
    for start, end, is_message, at, body_bytes, first, time_us in zip(
        starts.tolist(),
        ends.tolist(),
        messages[starts].tolist(),
        places[starts].tolist(),
        heads["body_bytes"][starts].tolist(),
        sequences[starts].tolist(),
        heads["time_us"][ends - 1].tolist(),
        strict=True,
    ):
        parts = []
        for stop, mark in alike:
            parts.append((stop - start, _attributes(mark)))
            if stop == end:
                break
        if not is_message:
            yield _fact(bytes(data[at : at + HEADER_BYTES + body_bytes]), 0, at)
            continue
        extras = {}
        while other < end:
            if isinstance(more, Extras):
                extras[other - start] = more
            elif more is not None:
                yield more
                return
            other, more = next(extras_of, (count, None))
        names, large = ids[ID_BYTES * start : ID_BYTES * end], sizes[4 * start : 4 * end]
        yield Messages(first, time_us, names, parts, (), extras, sizes=large)


@lru_cache(4_096)
def _attributes(mark: int) -> Attributes:
    return Attributes(mark >> _MARK_BITS, _SCOPES[mark & 1], _FAILURES[mark >> FAILURE_SHIFT - SCOPE_SHIFT & 3], "")


def _extras(data: Buffer, metas: npt.NDArray[np.int64], heads: npt.NDArray[np.void]) -> Iterator[Extras | Corrupt]:
    """The extras of the messages with these ``heads``, whose metas begin at ``metas`` in ``data``."""
    numbers = [heads[name].tolist() for name in ("meta_bytes", "flags", "items", "root", "depth")]
    for at, meta_bytes, *header in zip(metas.tolist(), *numbers, strict=True):
        try:
            yield bodies.extras_in(bytes(data[at : at + meta_bytes]), *header)[0]
        except bodies.BAD_BODY as problem:
            yield Corrupt(at - HEADER_BYTES, f"the body cannot be read: {problem}")


def _fact(data: bytes, at: int, place: int) -> Record | Corrupt:
    """The fact in the record at ``at`` in ``data``, whose offset in the log is ``place``."""
    found = decode(data, at, content=False, verify=False)
    if isinstance(found, Decoded):
        return found.fact
    return Corrupt(place, found.why if isinstance(found, Corrupt) else "the record is cut short")


def indexed_offsets(
    data: Buffer, sparse: npt.NDArray[np.uint32], records: int, start: int, end: int
) -> npt.NDArray[np.int64] | None:
    """The offsets of all ``records`` from ``start`` to ``end``, found from the ``sparse`` ones of an index; None where
    walking would not give the same: an index is never trusted over its segment."""
    if not len(sparse) or int(sparse.max()) > min(len(data), end) - HEADER_BYTES:
        return None
    offsets = lockstep(data, sparse.astype(np.int64), offsets_every, records)
    if not len(offsets) or offsets[0] != start or offsets[-1] > end - HEADER_BYTES or len(data) < end:
        return None
    lengths = np.ndarray(len(data) - HEADER_BYTES + 1, dtype="<u4", buffer=data, offset=LENGTH_AT, strides=(1,))
    follow = np.diff(offsets, append=end) == HEADER_BYTES + lengths[offsets].astype(np.int64)
    return offsets if follow.all() else None
