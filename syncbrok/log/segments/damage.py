"""Examines a rotten sealed segment: looks at every byte, names the records that are hit, and reads on behind them.
Pure.

Damage costs the records it hit and no others. If a damaged record's header is whole, or a single byte of it has changed
(``correction``), the next record is found by its length; else the bytes are searched (``scan``). A message that is hit
is told as far as the log still says: its queue, its id, its parents. Its content is lost.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from syncbrok.log.format import bodies
from syncbrok.log.format.codec import Corrupt, Header, Kind, encode, gather, read_header, walk_verified
from syncbrok.log.format.correction import corrected, corrected_whole
from syncbrok.log.format.layout import EXTRAS, HEAD_STRUCT, HEADER_BYTES, HEADER_STRUCT, MAGIC, NEWEST_VERSION, VERSION
from syncbrok.log.format.records import Gap, SegmentSealed
from syncbrok.log.segments.scan import resume
from syncbrok.log.segments.segment import SEGMENT_HEADER_BYTES, unpack_segment_header
from syncbrok.model.facts import Carried, StoredMessage
from syncbrok.model.names import id_text, issued_by, sequence_of

_KINDS = frozenset(Kind)
_SURVIVED = frozenset({Kind.MESSAGE, Kind.CARRIED, Kind.SEGMENT_SEALED})


class DamagedRecords(NamedTuple):
    """The records ``first`` to ``last``, from ``offset`` to ``end`` of a segment, cannot be read. With ``last`` below
    ``first`` it is the segment's own header and no record. ``header``: that of a single record, where it is known.
    ``fact``: a lost message as far as the log tells of it, without content."""

    first: int
    last: int
    offset: int
    end: int
    why: str
    header: Header | None = None
    fact: StoredMessage | Carried | None = None

    @property
    def records(self) -> int:
        """The number of records hit; the segment's own header counts as one."""
        return max(self.last - self.first + 1, 1)

    @property
    def message(self) -> StoredMessage | None:
        """The message that is lost."""
        return self.fact.message if isinstance(self.fact, Carried) else self.fact

    @property
    def survived(self) -> bool:
        """Whether the state of the log can be told without it: a message is known to be lost, and a seal says nothing
        that the records before it do not. Without a row, a queue or a subscriber it can not."""
        if self.last < self.first:
            return True
        kind = self.header.kind if self.header is not None else None
        return kind in _SURVIVED and (self.fact is not None or kind == Kind.SEGMENT_SEALED)

    def describe(self) -> str:
        """The loss, in words."""
        if self.last < self.first:
            return f"offset {self.offset}: the segment's own header ({self.why})"
        if self.last > self.first:
            return f"offset {self.offset}: {self.records} records, sequences {self.first} to {self.last} ({self.why})"
        what = "a record of unknown kind" if self.header is None else _NAMES.get(self.header.kind, "a record")
        if self.message is not None:
            what += f" {id_text(self.message.id)}"
        return f"offset {self.offset}: {what}, sequence {self.first} ({self.why})"


class Examined(NamedTuple):
    """A sealed segment as far as it can be read. ``data`` are its bytes, where the records of ``offsets`` can be taken
    for verified: messages that are lost are among them, without anything that is not known of them."""

    data: bytearray
    offsets: npt.NDArray[np.int64]
    damages: tuple[DamagedRecords, ...]


_NAMES: dict[int, str] = {
    Kind.MESSAGE: "message",
    Kind.CARRIED: "carried message",
    Kind.OUTCOMES: "outcomes",
    Kind.REARMED: "a replay",
    Kind.SEGMENT_OPENED: "the segment's snapshot",
    Kind.SEGMENT_SEALED: "the segment's seal",
    Kind.GAP: "a gap",
}
_NAMES.update({kind: "a declaration" for kind in Kind if kind not in _NAMES})


def examine(data: bytes, base: int, last: int, id_key: bytes = bytes(16)) -> Examined:
    """Examine the bytes of the sealed segment whose records have the sequences ``base`` to ``last``. ``id_key`` is the
    log's; with it the parents of a damaged message can be told."""
    pieces: list[npt.NDArray[np.int64]] = []
    patches: list[tuple[int, bytes]] = []
    damages: list[DamagedRecords] = []
    own = unpack_segment_header(data)
    if isinstance(own, Corrupt) or own.base != base:
        why = own.why if isinstance(own, Corrupt) else f"it says that its first sequence is {own.base}"
        damages.append(DamagedRecords(base, base - 1, 0, SEGMENT_HEADER_BYTES, why))
    at, expected = SEGMENT_HEADER_BYTES, base
    while at < len(data):
        offsets, stopped = walk_verified(data, at, len(data))
        good, expected = _in_order(gather(data, offsets), expected, last)
        pieces.append(offsets[:good])
        at = stopped if good == len(offsets) else int(offsets[good])
        if at >= len(data):
            break
        damage, patch = _damaged(data, at, expected, last, id_key)
        damages.append(damage)
        if patch:
            pieces.append(np.array([at], np.int64))
            patches.append((at, patch))
        at, expected = damage.end, damage.last + 1
    if expected <= last:
        damages.append(DamagedRecords(expected, last, len(data), len(data), "the file ends before them"))
    known = bytearray(data)
    for at, patch in patches:
        known[at : at + len(patch)] = patch
    return Examined(known, np.concatenate(pieces) if pieces else np.empty(0, np.int64), tuple(damages))


def with_gaps(data: bytes, found: Examined) -> bytes:
    """The segment as salvage would leave it, for readers of all of it: a ``Gap`` replaces each lost message, and a new
    seal replaces a rotten one. All other records that can be read (``survived``) stay; the rest is left out."""
    pieces: list[bytes] = []
    at = 0
    for damage in found.damages:
        pieces.append(data[at : damage.offset])
        at = damage.end
        if damage.last < damage.first:
            pieces.append(data[damage.offset : damage.end])  # the segment's own header, which nobody asks again
        elif damage.header is not None and damage.header.kind == Kind.SEGMENT_SEALED:
            seal = SegmentSealed(damage.last, damage.header.time_us, len(found.offsets), 0)
            pieces.append(encode(seal, batch=damage.header.batch, synced_through=damage.last - 1))
        elif damage.header is not None:
            gap = Gap(damage.last, damage.header.time_us, damage.first, damage.last, damage.why)
            pieces.append(encode(gap, batch=damage.header.batch, synced_through=damage.header.synced_through))
    return b"".join((*pieces, data[at:]))


def _in_order(heads: npt.NDArray[np.void], expected: int, last: int) -> tuple[int, int]:
    """The number of leading records whose sequences follow each other from ``expected`` on, and the sequence after
    them."""
    sequences = heads["sequence"].astype(np.int64)
    steps = np.diff(sequences, prepend=expected - 1)
    fits = ((steps == 1) | ((heads["kind"] == Kind.GAP) & (steps > 1))) & (sequences <= last)
    good = len(fits) if fits.all() else int(np.argmin(fits))
    return good, int(sequences[good - 1]) + 1 if good else expected


def _damaged(data: bytes, at: int, expected: int, last: int, id_key: bytes) -> tuple[DamagedRecords, bytes]:
    """The damage at ``at``, where the record of ``expected`` should be, and the bytes that stand in for it if it was a
    message."""
    found = read_header(data, at)
    header = found if isinstance(found, Header) else corrected_header(data, at)
    if header is None or header.sequence != expected:
        why = getattr(found, "why", "the record is cut short")
        if isinstance(found, Header):
            why = f"a record of sequence {found.sequence} cannot follow here"
        end = resume(memoryview(data), at, None, expected - 1, last + 1)
        following = read_header(data, end)
        behind = following.sequence if isinstance(following, Header) else last + 1
        if isinstance(following, Header) and following.kind == Kind.GAP:
            behind = expected + 1
        return DamagedRecords(expected, max(behind - 1, expected), at, end, why), b""
    body = data[at + HEADER_BYTES : at + header.record_bytes]
    whole = len(body) == header.body_bytes and crc32c(body) == header.body_crc
    why = found.why if isinstance(found, Corrupt) else "the body's checksum does not fit"
    fact, patch = None, b""
    if header.kind in (Kind.MESSAGE, Kind.CARRIED) and len(body) == header.body_bytes:
        fact, patch = _known_part(header, body, id_key, whole=whole)
    return DamagedRecords(expected, expected, at, at + HEADER_BYTES + len(body), why, header, fact), patch


def corrected_header(data: bytes, at: int) -> Header | None:
    """The header at ``at`` as it was before one byte of it changed; None where more than one byte did."""
    head = bytes(data[at : at + HEAD_STRUCT.size])
    stored = bytes(data[at + HEAD_STRUCT.size : at + HEADER_BYTES])
    if len(stored) < HEADER_BYTES - HEAD_STRUCT.size:
        return None
    found = corrected_whole(head, int.from_bytes(stored, "little"))
    if found is None:
        return None
    header = Header._make(HEADER_STRUCT.unpack(found + crc32c(found).to_bytes(4, "little")))
    sound = header.magic == MAGIC and VERSION <= header.version <= NEWEST_VERSION and header.kind in _KINDS
    return header if sound and header.meta_bytes <= header.body_bytes else None


def _known_part(
    header: Header, body: bytes, id_key: bytes, *, whole: bool
) -> tuple[StoredMessage | Carried | None, bytes]:
    """A damaged message as far as its record still tells, and its header and meta as bytes that say no more than
    that."""
    if not whole:
        body = corrected(body, header.body_crc, header.meta_bytes) or body
    try:
        fact = _message(header, body)
        message = fact.message if isinstance(fact, Carried) else fact
        # Bytes without a right checksum are believed only where they prove themselves: an id has a tag.
        proven = whole or (
            all(issued_by(one, id_key) and sequence_of(one) < header.sequence for one in message.parents)
            and message.sequence == sequence_of(message.id)
        )
    except bodies.BAD_BODY:
        proven = False
    if proven:
        return fact, HEADER_STRUCT.pack(*header) + body[: header.meta_bytes]
    if header.kind == Kind.CARRIED:
        return None, b""
    header = header._replace(flags=header.flags & ~EXTRAS, meta_bytes=0, items=0)
    return bodies.published(header, b"", content=False), HEADER_STRUCT.pack(*header)


def _message(header: Header, body: bytes) -> StoredMessage | Carried:
    if header.kind == Kind.CARRIED:
        return bodies.carried(header, body, content=False)
    return bodies.published(header, body, content=False)
