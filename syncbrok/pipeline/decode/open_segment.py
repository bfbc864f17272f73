"""The bytes of one whole segment, verified, and where its records begin in them. No Spark.

A sealed segment is read into memory that is used again for the next one (``huge_pages``), and verified part by part
by the checksum of its seal. A segment that retention has dropped stays readable under its other name until it is
unlinked. The offsets of records come from the sidecar; without one, or if it does not lead from one record to the next
up to the seal, from walking over the records. The active segment is read as far as it is known to be on the disk, and
verified record by record.
"""

import logging
import mmap
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
from crc32c import crc32c

from syncbrok.log.format.codec import Decoded, Header, Kind, decode, gather, read_header, walk, walk_verified
from syncbrok.log.format.layout import ERASED, HEADER_BYTES
from syncbrok.log.format.records import Record, SegmentSealed
from syncbrok.log.format.stream import indexed_offsets
from syncbrok.log.index import sidecar
from syncbrok.log.index.segment_index import SegmentIndex
from syncbrok.log.segments import segment
from syncbrok.log.segments.damage import examine, with_gaps
from syncbrok.log.segments.segment import SEAL_BYTES, SEGMENT_HEADER_BYTES, corrupt_error
from syncbrok.model.errors import Gone, LogCorrupt
from syncbrok.pipeline.broker_log import SegmentDropped, SegmentRewritten
from syncbrok.pipeline.decode import huge_pages
from syncbrok.pipeline.decode.arrow_arrays import Array, gather_header
from syncbrok.pipeline.decode.record_block import RecordBlock, led_on
from syncbrok.pipeline.log_place import SegmentFile
from syncbrok.pipeline.log_snapshot import SegmentSnapshot

log = logging.getLogger(__name__)

_TOLD_MAX = 20
"""damaged records that are named in one line"""
_READ_BYTES = 256 << 10
"""read at once, and summed while it is in the cache next to the core"""
_ANEW_MAX = 3
"""over the network a segment may be written anew between two pieces of it; then it is read from the beginning"""
_OF_MESSAGES = (Kind.MESSAGE, Kind.CARRIED, Kind.OUTCOMES)
_DECLARING = (Kind.SEGMENT_OPENED, Kind.QUEUE_SET, Kind.SUBSCRIBER_SET)


class OpenSegment(RecordBlock):
    """A segment's bytes up to the end of what may be read, from the beginning or from a hint on."""

    def __init__(
        self,
        one: SegmentSnapshot,
        uuid: bytes,
        *,
        verify: bool,
        hint: tuple[int, int] | None = None,
        read_bytes_max: int = huge_pages.BYTES_MAX,
        gaps: bool = False,
    ) -> None:
        """Raises ``LogCorrupt``, and ``Gone`` where retention has unlinked the file. ``hint``: see ``SegmentSlice``. A
        sealed file that is longer than ``read_bytes_max`` is mapped. ``gaps``: where only messages are damaged, gaps
        stand in their places (RULES 28)."""
        super().__init__(one, memoryview(b""), 0)
        self._uuid = uuid
        self._verify = verify
        self._gaps = gaps
        self._index: SegmentIndex | None = None
        self._index_looked_for = False
        self._all: Array | None = None
        self._first = one.base
        self._bytes = b""
        self._borrowed: mmap.mmap | None = None
        for looked in range(1, _ANEW_MAX + 1):
            try:
                with opened_file(one) as file:
                    self.view = self._sealed(file, read_bytes_max) if one.sealed else self._read(file, hint)
            except SegmentRewritten:
                self.close()
                if looked == _ANEW_MAX:
                    raise
            else:
                break

    # -- bytes ---------------------------------------------------------------------------------------------------------

    def _sealed(self, file: SegmentFile, read_bytes_max: int) -> memoryview:
        one = self.segment
        size = file.size
        if size != one.end:
            raise self._cut_short(size)
        view, crc = self._mapped(file, size) if size > read_bytes_max else self._filled(file, size)
        if self._verify and crc != one.crc and not self._is_sealed_anew(view, crc):
            mended = self._with_gaps(bytes(view)) if self._gaps else None
            if mended is not None:
                self.close()
                return memoryview(mended)
            damage = segment.scrub_bytes(view)
            offset, why = (damage.offset, damage.why) if damage else (SEGMENT_HEADER_BYTES, "the seal has changed")
            before, _ = walk(view, SEGMENT_HEADER_BYTES, offset)
            first = int(gather(view, before[-1:])["sequence"][0]) + 1 if len(before) else one.base
            raise self.damaged(offset, first, why)
        return view

    def _is_sealed_anew(self, view: memoryview, crc: int) -> bool:
        """True if the segment was written anew since it was looked at: the same records, and a seal of these bytes."""
        seal = decode(view, len(view) - SEAL_BYTES)
        said = seal.fact if isinstance(seal, Decoded) else None
        return isinstance(said, SegmentSealed) and (said.records + 1, said.crc) == (self.segment.records, crc)

    def _with_gaps(self, data: bytes) -> bytes | None:
        """The segment as far as it can be read, named; None where more than messages is damaged."""
        one = self.segment
        found = examine(data, one.base, one.last)
        if not found.damages or not all(damage.survived for damage in found.damages):
            return None
        told = "; ".join(damage.describe() for damage in found.damages[:_TOLD_MAX])
        log.warning("syncbrok.pipeline.segment_damaged", extra={"file": Path(one.path).name, "detail": told,
                                                                "records": len(found.damages)})  # fmt: skip
        mended = with_gaps(data, found)
        self._all, stopped = walk(mended, SEGMENT_HEADER_BYTES, len(mended))
        return mended if stopped == len(mended) and len(self._all) == one.records else None

    def _cut_short(self, size: int) -> LogCorrupt:
        one = self.segment
        return self.damaged(min(size, one.end), one.base, f"the file has {size} bytes, not {one.end} as it was sealed")

    def _filled(self, file: SegmentFile, size: int) -> tuple[memoryview, int]:
        """The file in borrowed memory, and the checksum of its sealed bytes (0 if nothing is to be verified). Each
        part is summed while it is in the processor's cache."""
        self._borrowed = huge_pages.borrow(size)
        view = memoryview(self._borrowed)[:size]
        summed = slice(SEGMENT_HEADER_BYTES, size - SEAL_BYTES if self._verify else 0)
        got, crc = filled(file, view, 0, summed)
        if got < size:
            raise self._cut_short(got)
        return view, crc

    def _mapped(self, file: SegmentFile, size: int) -> tuple[memoryview, int]:
        view = file.whole()
        return view, crc32c(view[SEGMENT_HEADER_BYTES : size - SEAL_BYTES]) if self._verify else 0

    def close(self) -> None:
        """Give the memory back. Nothing may look at the bytes any more; what was made of them, every column among it,
        is a copy."""
        if self._borrowed is not None:
            huge_pages.give_back(self._borrowed)
            self._borrowed = None

    def _read(self, file: SegmentFile, hint: tuple[int, int] | None) -> memoryview:
        one = self.segment
        if hint is not None and self._fits(file, hint):
            self._first, self.shift = hint
        data = file.read(one.end - self.shift, self.shift)
        if len(data) < one.end - self.shift:
            raise self.damaged(
                self.shift + len(data), self._first, "the file ends before records that were on the disk"
            )
        self._bytes = data
        return memoryview(data)

    def _fits(self, file: SegmentFile, hint: tuple[int, int]) -> bool:
        """True if the record of that sequence stands at that offset."""
        sequence, offset = hint
        if not SEGMENT_HEADER_BYTES <= offset < self.segment.end:
            return False
        header = read_header(file.read(HEADER_BYTES, offset))
        return isinstance(header, Header) and header.sequence == sequence

    # -- records -------------------------------------------------------------------------------------------------------

    def offsets(self, first: int, last: int) -> Array:
        """The offsets in ``view`` of the records from sequence ``first`` to ``last``."""
        one = self.segment
        if self._all is None and one.sealed and one.records == one.last - one.base + 1:
            found = self._indexed(first - one.base, last - one.base + 1)
            if found is not None:
                return found
        every = self.every_offset()
        if first <= self._first and last >= one.last:
            return every
        sequences = gather(self.view, every)["sequence"]
        low, high = sequences.searchsorted(np.array([first, last + 1], dtype=sequences.dtype)).tolist()
        return every[low:high]

    def _indexed(self, start: int, stop: int) -> Array | None:
        """The offsets of records number ``start`` to ``stop`` of the segment, by its sidecar; None where the sidecar
        does not lead from each record to the next."""
        one = self.segment
        if self.index is None:
            return None
        offsets = self.index.positions.offsets
        if len(offsets) != one.records or offsets[0] != SEGMENT_HEADER_BYTES:
            return None
        found = offsets[start:stop].astype(np.int64)
        end = int(offsets[stop]) if stop < one.records else one.end
        return found if not len(found) or led_on(self.view, found, end) else None

    @property
    def index(self) -> SegmentIndex | None:
        """The index from the sidecar of the sealed segment; None without one to trust."""
        if not self._index_looked_for:
            self._index, self._index_looked_for = index_of(self.segment, self._uuid), True
        return self._index

    def every_offset(self) -> Array:
        """The offsets in ``view`` of all its records. Raises ``LogCorrupt``."""
        if self._all is None:
            self._all = self._every()
        return self._all

    def _every(self) -> Array:
        one = self.segment
        end = len(self.view)
        if one.sealed:
            found = self._indexed(0, one.records)
            if found is not None:
                return found
            found, stopped = walk(self.view, SEGMENT_HEADER_BYTES, end)
        else:
            start = 0 if self.shift else SEGMENT_HEADER_BYTES
            closed = self._closed()
            if closed is not None:
                return closed
            found, stopped = walk_verified(self._bytes, start, end) if self._verify else walk(self.view, start, end)
        self._check(found, stopped)
        return found

    def _closed(self) -> Array | None:
        """The offsets by the sidecar that was written when the log was closed, where nothing came after."""
        one = self.segment
        if self.shift or not one.place.may_be_closed(one.path):
            return None
        end = len(self.view)
        known = sidecar.Sealed(self._uuid, one.base, end, crc32c(self.view[SEGMENT_HEADER_BYTES:end]))
        index = one.place.index_of(one.path, known)
        if index is None:
            return None
        return indexed_offsets(self.view, index.sparse, index.records, SEGMENT_HEADER_BYTES, end)

    def _check(self, found: Array, stopped: int) -> None:
        """Raise ``LogCorrupt`` unless the walk came to the end, by records that follow each other."""
        heads = gather(self.view, found)
        sequences = heads["sequence"].astype(np.int64)
        fits = (np.diff(sequences, prepend=self._first - 1) == 1) | (heads["kind"] == Kind.GAP)
        if not fits.all():
            at = int(np.argmin(fits))
            expected = int(sequences[at - 1]) + 1 if at else self._first
            raise self.damaged(self.shift + int(found[at]), expected, f"sequence {sequences[at]} cannot follow here")
        if stopped != len(self.view):
            expected = int(sequences[-1]) + 1 if len(sequences) else self._first
            raise self.damaged(self.shift + stopped, expected, "a record is damaged: it cannot be read")

    # -- what is declared ----------------------------------------------------------------------------------------------

    def declared(self) -> Iterator[Record]:
        """Yield all that the segment declares, its snapshot first."""
        if self.shift:
            yield from OpenSegment(self.segment, self._uuid, verify=self._verify, gaps=self._gaps).declared()
            return
        every = self.every_offset()
        kinds = gather_header(self.view, every, "kind")
        for offset in every[np.isin(kinds, _DECLARING)].tolist():
            found = decode(self.view, offset, verify=self._verify)
            if not isinstance(found, Decoded):
                raise self.damaged(offset, self.segment.base, getattr(found, "why", "the record is cut short"))
            yield found.fact


class opened_file:  # noqa: N801  # a context manager of one use, named as what it does
    """The file of a segment, which an error of the system inside names; one that is gone inside is ``Gone`` too."""

    def __init__(self, one: SegmentSnapshot) -> None:
        self._segment = one

    def __enter__(self) -> SegmentFile:
        one = self._segment
        found = one.place.open(one.path, one.base, one.end)
        if found is None:
            raise gone(one)
        self._file = found
        return found

    def __exit__(self, _: object, problem: BaseException | None, *__: object) -> None:
        self._file.close()
        if isinstance(problem, SegmentDropped):
            raise gone(self._segment) from None
        if isinstance(problem, OSError) and problem.filename is None:
            problem.filename = self._segment.path


def filled(file: SegmentFile, view: memoryview, start: int, summed: slice, crc: int = 0) -> tuple[int, int]:
    """Fill ``view`` from the file, from ``start`` on. Returns the number of bytes read (all, or up to the end of the
    file) and ``crc`` continued over those in ``summed``. Parts that the disk cannot read become zeros, which the
    checksum will show as damage."""
    at = 0
    while at < len(view):
        block = view[at : at + _READ_BYTES]
        got = file.read_into(block, start + at, unreadable_as_zeros=summed.stop > summed.start)
        if not got:
            break
        crc = crc32c(view[max(at, summed.start) : min(at + got, summed.stop)], crc)
        at += got
    return at, crc


def declared_in(one: SegmentSnapshot, uuid: bytes, *, verify: bool) -> Iterator[Record]:
    """Yield all that a segment declares, its snapshot first, also where messages in it are damaged."""
    return OpenSegment(one, uuid, verify=verify, gaps=True).declared()


def snapshot_of(one: SegmentSnapshot) -> Record:
    """The first record of a segment: the queues and subscribers as they stood when it was begun. Raises ``LogCorrupt``
    and ``Gone``."""
    at = SEGMENT_HEADER_BYTES
    with opened_file(one) as file:
        first = read_header(file.read(HEADER_BYTES, at))
        size = first.record_bytes if isinstance(first, Header) else HEADER_BYTES
        found = decode(file.read(size, at))
    if not isinstance(found, Decoded):
        raise corrupt_error(Path(one.path), at, one.base, one.base, "the segment's snapshot cannot be read")
    return found.fact


def gone(one: SegmentSnapshot) -> Gone:
    """The error for a segment that was there when the reading was planned."""
    return Gone(
        f"{one.path}, sequences {one.base} to {one.last}: retention dropped the segment while the log was read. Read "
        "again; where that happens often, keep the log for longer (storage.retention) or read from the archive",
        file=Path(one.path).name,
        first=one.base,
        last=one.last,
    )


def has_erased(one: SegmentSnapshot, uuid: bytes) -> bool:
    """True if the segment was written anew without what was erased (RULES 32). Raises as ``OpenSegment``."""
    with closing(OpenSegment(one, uuid, verify=True, gaps=True)) as opened:
        every = opened.every_offset()
        of_messages = np.isin(gather_header(opened.view, every, "kind"), _OF_MESSAGES)
        return bool((of_messages & (gather_header(opened.view, every, "flags") & ERASED != 0)).any())


def index_of(one: SegmentSnapshot, uuid: bytes) -> SegmentIndex | None:
    """The index beside a sealed segment; None where there is none to be trusted."""
    if not one.sealed:
        return None
    return one.place.index_of(one.path, sealed_as(one, uuid))


def sealed_as(one: SegmentSnapshot, uuid: bytes) -> sidecar.Sealed:
    """The segment as its sidecar must name it to be valid."""
    return sidecar.Sealed(uuid, one.base, one.end, one.crc)
