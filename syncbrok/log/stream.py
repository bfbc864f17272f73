"""The short way from bytes to facts, for where a million of them are read. Pure.

``facts`` takes half the time of ``codec.decode`` for messages without extras, which most are, and goes the long way
for all others. Tuples are made directly: the constructors of named tuples cost twice the rest. ``facts_or_runs`` looks
at the headers of thousands of records at once, and plain neighbours cost it next to nothing.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from syncbrok.log.codec import Corrupt, Decoded, Kind, decode, gather, lockstep
from syncbrok.log.layout import (
    EXTRAS,
    FAILURE_SHIFT,
    HEADER_BYTES,
    HEADER_STRUCT,
    ID_BYTES,
    LENGTH_AT,
    LENGTH_STRUCT,
    MAGIC,
    SCOPE_SHIFT,
    VERSION,
    Buffer,
)
from syncbrok.log.neighbours import content_type
from syncbrok.model.facts import Attributes, Fact, FactOrRun, Messages, Published
from syncbrok.model.limits import offsets_every
from syncbrok.model.message import ParentFailure, Scope

_MESSAGE = int(Kind.MESSAGE)
_SCOPES = tuple(Scope)
_FAILURES = (*ParentFailure, ParentFailure.FAIL)
_GATHER_MAX = 1 << 15
"""headers looked at together (3 MB), and so the longest run"""
_RUN_MIN = 16
"""shorter runs cost less one by one"""
_unpack = HEADER_STRUCT.unpack_from
_length = LENGTH_STRUCT.unpack_from
_new = tuple.__new__


def plain_message(data: bytes, at: int) -> Published | None:
    """The message whose verified record begins at ``at``, without content, if it is one without extras and whole; for
    all else None."""
    body_at = at + HEADER_BYTES
    if body_at > len(data):
        return None
    magic, version, kind, flags, body_bytes, meta_bytes, sequence, *place, _, _ = _unpack(data, at)
    _, _, time_us, own_id, root, queue, depth, items = place
    if magic != MAGIC or version != VERSION or kind != _MESSAGE or flags & EXTRAS or body_at + body_bytes > len(data):
        return None
    type_at, content_at = body_at + items * ID_BYTES, body_at + meta_bytes
    return _new(
        Published,
        (
            sequence,
            time_us,
            own_id,
            queue,
            root,
            depth,
            _SCOPES[flags >> SCOPE_SHIFT & 1],
            _FAILURES[flags >> FAILURE_SHIFT & 3],
            tuple([data[one : one + ID_BYTES] for one in range(body_at, type_at, ID_BYTES)]) if items else (),
            "",
            "",
            b"",
            0,
            0,
            content_type(data[type_at:content_at]),
            (),
            b"",
            0,
        ),
    )


def facts(data: bytes, start: int) -> Iterator[Fact | Corrupt]:
    """The facts from ``start`` on of bytes that were verified, without content. A ``Corrupt`` ends it where no whole
    record stands."""
    at = start
    while at < len(data):
        message = plain_message(data, at)
        if message is not None:
            yield message
            at += HEADER_BYTES + _length(data, at + LENGTH_AT)[0]
            continue
        found = decode(data, at, content=False, verify=False)
        if not isinstance(found, Decoded):
            yield Corrupt(at, found.why if isinstance(found, Corrupt) else "the record is cut short")
            return
        yield found.fact
        at = found.end


def facts_or_runs(
    data: Buffer, offsets: npt.NDArray[np.int64], after: int, together: int = _GATHER_MAX
) -> Iterator[FactOrRun | Corrupt]:
    """The facts with sequences above ``after`` of the verified records at ``offsets``, without content, for whoever
    applies them; so many headers are looked at ``together``. Sixteen and more plain messages that follow each other
    come as one run: without their content types, and its time is that of the last. A ``Corrupt`` ends it where no
    record stands."""
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
) -> Iterator[FactOrRun | Corrupt]:
    plain, breaks = _runs(heads)
    starts = np.flatnonzero(breaks)
    ends = np.append(starts[1:], len(heads)).tolist()
    at = np.append(places, places[-1] + HEADER_BYTES + int(heads["body_bytes"][-1])).tolist()
    for first, end, alike in zip(starts.tolist(), ends, plain[starts].tolist(), strict=True):
        if alike and end - first >= _RUN_MIN:
            yield _run(heads[first:end])
            continue
        for one in range(first, end):
            yield _fact(bytes(data[at[one] : at[one + 1]]), at[one])


def _runs(heads: npt.NDArray[np.void]) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which records are plain messages, and which are not of one run with the record before."""
    sequences, flags = heads["sequence"], heads["flags"]
    plain = (heads["magic"] == MAGIC) & (heads["version"] == VERSION) & (heads["kind"] == _MESSAGE)
    plain &= (flags & EXTRAS == 0) & (heads["items"] == 0)
    plain &= (heads["root"] == sequences) & (heads["depth"] == 0)
    marks = heads["queue"].astype(np.uint64) << np.uint64(3) | flags.astype(np.uint64) >> np.uint64(SCOPE_SHIFT)
    breaks = np.ones(len(heads), dtype=np.bool_)
    breaks[1:] = ~(plain[1:] & plain[:-1]) | (marks[1:] != marks[:-1]) | (np.diff(sequences) != 1)
    return plain, breaks


def _run(heads: npt.NDArray[np.void]) -> Messages:
    first, last = heads[0], heads[-1]
    flags = int(first["flags"])
    attributes = Attributes(
        int(first["queue"]), _SCOPES[flags >> SCOPE_SHIFT & 1], _FAILURES[flags >> FAILURE_SHIFT & 3], ""
    )
    return Messages(int(first["sequence"]), int(last["time_us"]), heads["id"].tobytes(), ((len(heads), attributes),))


def _fact(record: bytes, offset: int) -> Fact | Corrupt:
    message = plain_message(record, 0)
    if message is not None:
        return message
    found = decode(record, 0, content=False, verify=False)
    if isinstance(found, Decoded):
        return found.fact
    return Corrupt(offset, found.why if isinstance(found, Corrupt) else "the record is cut short")


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
