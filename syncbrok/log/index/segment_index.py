"""Finds records in one segment of the log. Pure: bytes and arrays in, numbers out.

The index of a sealed segment is built once, or read from its sidecar. The index of the active segment grows while
readers ask. The writer thread calls ``extend``, which only puts the bytes aside. The first reader after that turns them
into columns. Readers look at one immutable ``_IndexSnapshot``, which is swapped as a whole. The lock is only for those
who make the next snapshot, so the writer never waits for a reader.
"""

from collections.abc import Collection, Iterator, Sequence
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from syncbrok.log.format.codec import Buffer, gather, walk
from syncbrok.log.format.layout import Stretch
from syncbrok.log.index import columns
from syncbrok.log.index.columns import Columns, Table, text_hash
from syncbrok.log.index.record_positions import RecordPositions
from syncbrok.model import limits

__all__ = ["SegmentIndex", "text_hash"]

_PENDING_BYTES_MAX = 256 * limits.KIB
_MERGE_EVERY = 8
_MERGED_RECORDS_MAX = 65_536
"""Parts are merged eight at a time and left alone from this size on: the longest merge takes some milliseconds, and a
full segment has some twenty parts."""


class _Pending(NamedTuple):
    buffer: Buffer
    offset: int
    starts: Sequence[int] | None
    stretches: Sequence[Stretch]


class _IndexSnapshot(NamedTuple):
    """Everything known up to ``last``. ``jumps`` are the places where sequences are missing (written by salvage):
    the sequence after each, and how many are missing up to there."""

    parts: tuple[Columns, ...]
    positions: RecordPositions
    sparse: npt.NDArray[np.uint32]
    jumps: tuple[tuple[int, int], ...]
    records: int
    last: int
    end: int
    first_time_us: int
    last_time_us: int


class Extent(NamedTuple):
    """``records`` that follow each other, from ``sequence`` on: they stand between two offsets of the file."""

    sequence: int
    records: int
    start: int
    end: int


class SegmentIndex:
    """The index of the segment whose first sequence is ``base``. Offsets count from the start of its file."""

    def __init__(self, base: int, *, checksums_every: int = limits.checksums_every) -> None:
        self.base = base
        nothing = np.empty(0, np.uint32)
        self._snapshot = _IndexSnapshot((), RecordPositions.nothing(checksums_every), nothing, (), 0, base - 1, 0, 0, 0)
        self._pending: list[_Pending] = []
        self._pending_bytes = 0
        self._folding = Lock()

    @classmethod
    def build(
        cls,
        buffer: Buffer,
        start: int,
        end: int,
        base: int,
        offsets: npt.NDArray[np.int64] | None = None,
        *,
        checksums_every: int = limits.checksums_every,
    ) -> "SegmentIndex":
        """The index of the verified records from ``start`` to ``end`` in ``buffer``, which begins with the file.
        ``offsets``: where the records begin, if the caller knows."""
        index = cls(base, checksums_every=checksums_every)
        if offsets is None:
            offsets, _ = walk(buffer, start, end)
        if len(offsets):
            fresh = columns.extract(buffer, offsets, base)
            index._snapshot = _grown(index._snapshot, buffer, offsets, fresh, 0, end)
        return index

    @classmethod
    def restore(
        cls,
        base: int,
        tables: Columns,
        positions: RecordPositions,
        sparse: npt.NDArray[np.uint32],
        jumps: tuple[tuple[int, int], ...],
        *,
        last: int,
        end: int,
        first_time_us: int,
        last_time_us: int,
    ) -> "SegmentIndex":
        """As it was before it was written to a sidecar."""
        index = cls(base)
        known = ((tables,), positions, sparse, jumps, tables.records, last, end, first_time_us, last_time_us)
        index._snapshot = _IndexSnapshot(*known)
        return index

    # -- growing -------------------------------------------------------------------------------------------------------

    def extend(
        self,
        buffer: Buffer,
        first_offset: int,
        starts: Sequence[int] | None = None,
        stretches: Sequence[Stretch] = (),
    ) -> None:
        """Add appended records. ``buffer`` holds them whole and must never change again; ``first_offset`` is its place
        in the file. ``starts``: where each record begins in ``buffer``, if the caller knows; ``stretches``: which of
        them are bare messages. For one thread only. Cheap, except that every 256 KiB that no reader has asked about are
        indexed at once."""
        self._pending.append(_Pending(buffer, first_offset, starts, stretches))
        self._pending_bytes += len(buffer)
        if self._pending_bytes >= _PENDING_BYTES_MAX:
            self._current()

    def _current(self) -> _IndexSnapshot:
        if self._pending:
            with self._folding:
                self._fold()
        return self._snapshot

    def _fold(self) -> None:
        pending = self._pending[:]
        if not pending:
            return  # another thread was first
        self._pending_bytes = 0
        whole = pending[0].buffer if len(pending) == 1 else b"".join(one.buffer for one in pending)
        first = pending[0].offset
        starts: list[int] = []
        stretches: list[Stretch] = []
        at = 0
        for one in pending:
            assert one.offset == first + at, "what is appended follows what stands"
            known = one.starts if one.starts is not None else walk(one.buffer, 0, len(one.buffer))[0].tolist()
            stretches += [Stretch(len(starts) + position, *more) for position, *more in one.stretches]
            starts += [at + start for start in known] if at else known
            at += len(one.buffer)
        offsets = np.array(starts, dtype=np.int64)
        if len(offsets):
            fresh = _columns(whole, offsets, self.base, stretches)
            self._snapshot = _grown(self._snapshot, whole, offsets, fresh, first, first + at)
        # Only now: whoever sees nothing put aside must see it in the snapshot.
        del self._pending[: len(pending)]

    def compact(self) -> Columns:
        """All in one part, as it is written to the sidecar."""
        with self._folding:
            self._fold()
            now = self._snapshot
            if len(now.parts) != 1:
                merged = columns.merge(now.parts) if now.parts else columns.nothing()
                self._snapshot = now._replace(parts=(merged,))
            return self._snapshot.parts[0]

    def become(self, other: "SegmentIndex") -> None:
        """Go on as ``other``, an index of the same records that are all there will be."""
        with self._folding:
            assert (other.base, other.last) == (self.base, self._snapshot.last)
            self._snapshot = other._snapshot  # noqa: SLF001  # one of its own kind

    # -- as a whole ----------------------------------------------------------------------------------------------------

    @property
    def last(self) -> int:
        """The last sequence; ``base`` - 1 while there is none."""
        return self._current().last

    @property
    def records(self) -> int:
        return self._current().records

    @property
    def end(self) -> int:
        """The offset at which the last record ends."""
        return self._current().end

    @property
    def times_us(self) -> tuple[int, int]:
        """When the first and the last record were written; (0, 0) while there is none."""
        now = self._current()
        return now.first_time_us, now.last_time_us

    @property
    def sparse(self) -> npt.NDArray[np.uint32]:
        """The offset of each 256th record, beginning with the first."""
        return self._current().sparse

    @property
    def positions(self) -> RecordPositions:
        """The offset and the time of each record, and checksums of parts."""
        return self._current().positions

    @property
    def jumps(self) -> tuple[tuple[int, int], ...]:
        """(sequence, how many are missing before it) for each sequence that does not follow its predecessor."""
        return self._current().jumps

    # -- asking --------------------------------------------------------------------------------------------------------

    def extent(self, sequence: int) -> tuple[int, int] | None:
        """Offsets of the record of ``sequence`` and of its end; None where this segment has no such record."""
        now = self._current()
        position = self._position(now, sequence)
        return None if position is None else (_offset(now, position), _end_offset(now, position))

    def extents(self, sequences: Sequence[int], bytes_max: int) -> Iterator[Extent]:
        """The places of those of these records (ascending) that are here, neighbours together, in pieces of at most
        ``bytes_max`` that have one record at least. None is empty, whatever a page of the sidecar has become."""
        now = self._current()
        at = 0
        while at < len(sequences):
            first = sequences[at]
            position = self._position(now, first)
            if position is None:
                at += 1
                continue
            most = 1 if now.jumps else min(now.last + 1 - first, len(sequences) - at)
            count = most if sequences[at + most - 1] == first + most - 1 else 1
            while count < most and sequences[at + count] == first + count:
                count += 1
            at += count
            yield from _pieces(now, first, position, count, bytes_max)

    def _position(self, now: _IndexSnapshot, sequence: int) -> int | None:
        """The place of a record among those of the segment, from 0; None if it is not here."""
        if not self.base <= sequence <= now.last:
            return None
        missing = 0
        for after, total in now.jumps:
            if sequence < after:
                if sequence >= after - (total - missing):
                    return None
                break
            missing = total
        return sequence - self.base - missing

    def queue_sequences(self, queue: int, after: int, limit: int) -> list[int]:
        """Messages accepted into ``queue`` here, with sequences above ``after``, lowest first."""
        found: list[int] = []
        now = self._current()
        if after >= now.last:
            return found
        above = after - self.base
        for part in now.parts:
            (here,) = _equal(part.queues, queue)
            if above >= 0:
                here = here[here.searchsorted(here.dtype.type(above), "right") :]
            found += (here[: limit - len(found)].astype(np.int64) + self.base).tolist()
            if len(found) >= limit:
                break
        return found

    def sequences_between(
        self, queues: Collection[int] | None, after: int, before: int, limit: int, *, newest_first: bool
    ) -> list[int]:
        """Messages accepted into these queues (None: any) here, above ``after`` and below ``before``: at most
        ``limit``, the newest or the oldest of them, in that order."""
        found: list[int] = []
        now = self._current()
        low, high = max(after + 1, self.base) - self.base, min(before - 1, now.last) - self.base
        for part in reversed(now.parts) if newest_first else now.parts:
            if len(found) >= limit or low > high:
                break
            here = _places(part, queues, low, high)
            here = here[::-1] if newest_first else here
            found += (here[: limit - len(found)].astype(np.int64) + self.base).tolist()
        return found

    def others_between(self, after: int, before: int, limit: int, *, newest_first: bool) -> list[int]:
        """Records here, above ``after`` and below ``before``, but for the first, that are no message, carry none and
        have no rows: at most ``limit``, the newest or the oldest of them, in that order."""
        now = self._current()
        low, high = max(after + 1, self.base + 1) - self.base, min(before - 1, now.last) - self.base
        if low > high:
            return []
        is_other = np.ones(now.last - self.base + 1, bool)
        for part in now.parts:
            for places in (part.queues[1], part.carried[1], part.rows[1]):
                is_other[places] = False
        missing = 0
        for sequence, total in now.jumps:
            is_other[sequence - (total - missing) - self.base : sequence - self.base] = False
            missing = total
        found = np.flatnonzero(is_other[low : high + 1]) + (low + self.base)
        chosen: list[int] = (found[::-1] if newest_first else found)[:limit].tolist()
        return chosen

    def carried_between(self, queues: Collection[int] | None, after: int, before: int) -> set[int]:
        """Messages of these queues (None: any) carried into here, by their own sequences above ``after`` and below
        ``before``."""
        found: set[int] = set()
        for part in self._current().parts:
            own, _, its = part.carried
            chosen = (own > after) & (own < before)
            if queues is not None:
                chosen &= np.isin(its, np.array(list(queues), its.dtype))
            found.update(own[chosen].tolist())
        return found

    def first_at(self, time_us: int) -> int | None:
        """The sequence of the first record of that time or later; None where all are earlier."""
        now = self._current()
        position = int(now.positions.times_us.searchsorted(np.uint64(max(time_us, 0)), "left"))
        if position >= now.records:
            return None
        missing = 0
        for after, total in now.jumps:
            if self.base + position + missing < after - (total - missing):
                break
            missing = total
        return self.base + position + missing

    def queue_count(self, queue: int) -> int:
        """The number of messages accepted into ``queue`` in this segment."""
        return sum(len(_equal(part.queues, queue)[0]) for part in self._current().parts)

    def carried_sequences(self, queue: int, after: int, limit: int) -> list[int]:
        """Messages of ``queue`` carried into here, by their own sequences above ``after``, lowest first. All are below
        ``base``: a reader of a queue asks every segment for these before it reads the messages accepted there."""
        found: set[int] = set()
        for part in self._current().parts:
            own, _, queues = part.carried
            found.update(own[(queues == queue) & (own > after)].tolist())
        return sorted(found)[:limit]

    def rows_of(self, message: int) -> list[tuple[int, int]]:
        """(sequence of the record, position of the row in it) for each row of a message, oldest first."""
        return [(record, position) for _, record, position in self.rows_of_any(np.array([message], np.int64))]

    def rows_of_any(self, messages: npt.NDArray[np.int64]) -> list[tuple[int, int, int]]:
        """(message, sequence of the record, position of the row in it) for each row of these messages, which are in
        order; of each message the oldest first."""
        found: list[tuple[int, int, int]] = []
        for part in self._current().parts:
            about, places, positions = part.rows
            at = _among(about, messages)
            records = (places[at].astype(np.int64) + self.base).tolist()
            found += zip(about[at].tolist(), records, positions[at].tolist(), strict=True)
        return found

    def children_of(self, parent: int) -> list[int]:
        """The messages recorded here that name ``parent``, lowest first."""
        found: set[int] = set()
        for (children,) in self._equals("edges", parent):
            found.update(children.tolist())
        return sorted(found)

    def carried(self, message: int) -> int | None:
        """The sequence of the newest record here that carries ``message`` (its own sequence); None where none does."""
        newest = None
        for places, _ in self._equals("carried", message):
            newest = int(places[-1]) + self.base
        return newest

    def records_about(self, messages: npt.NDArray[np.int64]) -> set[int]:
        """Sequences of the records here that carry one of these messages, which are in order, or have rows of it."""
        found: set[int] = set()
        for part in self._current().parts:
            for table in ("carried", "rows"):
                about, places = part.table(table)[:2]
                chosen = places[_among(about, messages)]
                found.update((chosen.astype(np.int64) + self.base).tolist())
        return found

    def carried_records(self) -> Iterator[tuple[int, int]]:
        """(own sequence, sequence of the record) of every message carried into here; of each the newest comes last."""
        for part in self._current().parts:
            own, places, _ = part.carried
            yield from zip(own.tolist(), (places.astype(np.int64) + self.base).tolist(), strict=True)

    def with_key(self, hashed: int) -> list[int]:
        """Sequences of messages whose key may be the one behind the hash ``hashed`` (``text_hash``), oldest record
        first."""
        return [sequence for (found,) in self._equals("keys", hashed) for sequence in found.tolist()]

    def with_idempotency(self, hashed: int) -> list[int]:
        """The same for idempotency keys, in any queue."""
        return [sequence for (found,) in self._equals("idempotency", hashed) for sequence in found.tolist()]

    def _equals(self, table: str, value: int) -> Iterator[Table]:
        for part in self._current().parts:
            columns_of = part.table(table)
            if len(columns_of[0]):
                found = _equal(columns_of, value)
                if len(found[0]):
                    yield found


def _offset(now: _IndexSnapshot, position: int) -> int:
    return int(now.positions.offsets[position])


def _end_offset(now: _IndexSnapshot, position: int) -> int:
    """Where the record at ``position`` ends."""
    return _offset(now, position + 1) if position + 1 < len(now.positions.offsets) else now.end


def _pieces(now: _IndexSnapshot, sequence: int, position: int, count: int, bytes_max: int) -> Iterator[Extent]:
    """The extents of ``count`` neighbours, of which the first, ``sequence``, stands at ``position``."""
    while count:
        start, size = _offset(now, position), count
        end = _end_offset(now, position + count - 1)
        if end - start > bytes_max and count > 1:
            offsets = now.positions.offsets[position + 1 : position + count]
            size = max(int(offsets.searchsorted(min(start + bytes_max, now.end), "right")), 1)
            end = _end_offset(now, position + size - 1)
        yield Extent(sequence, size, start, max(min(end, now.end), start + 1))
        sequence, position, count = sequence + size, position + size, count - size


def _equal(table: Table, value: int) -> Table:
    """The rows of the table whose first column is ``value``, without that column."""
    key = table[0]
    # A Python int beside an array of another type would turn the whole array into that of both.
    wanted = key.dtype.type(value)
    first = int(key.searchsorted(wanted, "left"))
    last = int(key.searchsorted(wanted, "right")) if first < len(key) and key[first] == wanted else first
    return tuple([column[first:last] for column in table[1:]])


def _among(key: npt.NDArray[Any], wanted: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The places in ``key``, which is in order, of all values that are ``wanted``, which are in order too."""
    values = wanted.astype(key.dtype)
    first, end = key.searchsorted(values, "left"), key.searchsorted(values, "right")
    counts = end - first
    begins = np.repeat(first - (counts.cumsum() - counts), counts)
    places: npt.NDArray[np.int64] = begins + np.arange(len(begins))
    return places


def _places(part: Columns, queues: Collection[int] | None, low: int, high: int) -> npt.NDArray[np.uint32]:
    """The places of messages of these queues (None: of any) from ``low`` to ``high``, lowest first."""
    own, places = part.queues
    if queues is not None and len(queues) == 1:
        (places,) = _equal(part.queues, next(iter(queues)))
    elif len(own) and own[0] != own[-1]:  # sorted by queue
        chosen = (places >= low) & (places <= high)
        if queues is not None:
            chosen &= np.isin(own, np.array(list(queues), own.dtype))
        return np.sort(places[chosen])
    elif queues is not None and len(own) and int(own[0]) not in queues:
        places = places[:0]
    first, behind = places.searchsorted(np.array([low, high + 1], np.int64))
    found: npt.NDArray[np.uint32] = places[first:behind]
    return found


def _columns(buffer: Buffer, offsets: npt.NDArray[np.int64], base: int, stretches: Sequence[Stretch]) -> Columns:
    """The columns of the records at ``offsets``. Those in ``stretches`` are known without reading them."""
    if not stretches:
        return columns.extract(buffer, offsets, base)
    bare = columns.bare(stretches, base)
    if bare.records == len(offsets):
        return bare
    others = np.ones(len(offsets), dtype=np.bool_)
    for stretch in stretches:
        others[stretch.position : stretch.position + stretch.size] = False
    return columns.interleaved(columns.extract(buffer, offsets[others], base), bare)


def _grown(
    now: _IndexSnapshot, buffer: Buffer, offsets: npt.NDArray[np.int64], fresh: Columns, shift: int, end: int
) -> _IndexSnapshot:
    """``now`` and the records at ``offsets`` of ``buffer``, which stands at ``shift`` in the file up to ``end``;
    ``fresh`` are their columns."""
    heads = gather(buffer, offsets[[0, -1]])
    first, last = heads["sequence"].tolist()
    first_time_us, last_time_us = heads["time_us"].tolist()
    jumps = now.jumps
    if last - now.last != len(offsets):
        jumps = _jumped(now, gather(buffer, offsets)["sequence"].astype(np.int64))
    skip = -now.records % limits.offsets_every
    sparse = (offsets[skip :: limits.offsets_every] + shift).astype(np.uint32)
    assert first > now.last, "sequences go up"
    return _IndexSnapshot(
        _merged((*now.parts, fresh)),
        now.positions.grown(buffer, offsets, shift, end),
        np.concatenate((now.sparse, sparse)),
        jumps,
        now.records + len(offsets),
        last,
        end,
        now.first_time_us if now.records else first_time_us,
        last_time_us,
    )


def _jumped(now: _IndexSnapshot, sequences: npt.NDArray[np.int64]) -> tuple[tuple[int, int], ...]:
    lost = np.diff(sequences, prepend=now.last) - 1
    missing = now.jumps[-1][1] if now.jumps else 0
    found = list(now.jumps)
    for at in np.flatnonzero(lost).tolist():
        missing += int(lost[at])
        found.append((int(sequences[at]), missing))
    return tuple(found)


def _merged(parts: tuple[Columns, ...]) -> tuple[Columns, ...]:
    """The last eight become one, unless the oldest of them is larger than all the others: then it would be merged
    again and again."""
    while len(parts) >= _MERGE_EVERY:
        sizes = [part.records for part in parts[-_MERGE_EVERY:]]
        if sizes[0] > sum(sizes[1:]) or sum(sizes) > _MERGED_RECORDS_MAX:
            break
        parts = (*parts[:-_MERGE_EVERY], columns.merge(parts[-_MERGE_EVERY:]))
    return parts
