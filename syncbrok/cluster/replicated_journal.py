"""The journal of a node: the log in files, each batch of which a quorum of the engine has before it is written here.

    append -> the stream (a quorum answers) -> the file -> the caller

So the files of any node are a prefix of the stream, and byte for byte alike. While the node follows, batches come from
the stream and go into the file alone (``prepare_copy``, ``append``).

What a quorum has is durable, whether these files are fsynced or not (``FileOptions.syncs_each``). What is said of the
files alone (the watermark, what records say of those before them, checkpoints) is never ahead of their fsync: a power
failure takes an end of them, and the node reads that again.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

from syncbrok.cluster.archive_notes import ArchiveNotes
from syncbrok.cluster.election import generation_of
from syncbrok.cluster.leadership import Leadership
from syncbrok.cluster.stream_messages import PIECE_BYTES, EraseOrder, StreamKind, StreamMessage, log_name
from syncbrok.log.format.codec import Header, gather, read_header, walk_verified
from syncbrok.log.journal import FileJournal
from syncbrok.log.reading.recent import Batch, OpeningBatch
from syncbrok.log.segments.retention import Copy
from syncbrok.log.segments.segment import SEAL_BYTES, SEGMENT_HEADER_BYTES, read_segment, segment_path
from syncbrok.log.segments.single_writer import SingleWriter
from syncbrok.model.errors import LogDiverged, LogFailed, LogFull
from syncbrok.model.facts import FactOrRun, last_sequence
from syncbrok.model.journal import PreparedBatch

_FILL: Final = 3
"""pieces that end a file of the engine: it begins another one where 8 MiB are full, and forgets whole files only"""


class DamagedYet(OSError):
    """The segment may be mended; it stays, and is asked about again."""


class ReplicatedJournal(FileJournal):
    """See the module. It follows until ``lead``. What ``append`` raises besides is ``Fenced``."""

    blocks_long = True
    refetches = True

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._leadership: Leadership | None = None
        self.vault = b""
        """the secrets as they stand in the stream, sealed; they follow each section's beginning"""
        self.trimmed: Callable[[int], None] = lambda _: None
        """called in the trimming thread of a leader, with the sequence that the log begins with now"""
        self.unmendable: set[int] = set()
        """the first records of damaged segments of which no peer had a whole one when all were asked"""
        self.forget_erased: Callable[[int], None] = lambda _: None
        """called by ``erase`` of a leader, with the sequence before which the stream is to forget all; what it raises
        comes out there"""
        self.order_heard: Callable[[int], None] = lambda _: None
        """called when the stream has an order of erasing that is new, with that sequence"""
        self.order: EraseOrder | None = None
        """the last one that the stream has"""
        self.to_erase: Collection[int] | None = None
        """the messages that it means, once no checkpoint here needs what is to be written anew"""
        self._order_done = False
        self._erase_through = 0
        self._replicating = SingleWriter()
        self.archived = ArchiveNotes(
            self._directory,
            lambda: self.first_sequence,
            self._append_between,
            lambda: self._reserve.ran_short(essential=True),
        )

    @property
    def following(self) -> bool:
        return self._leadership is None

    @property
    def active_checksum(self) -> str:
        """The checksum of the open segment, as its seal would have it now; empty where none is open. Asked by the
        writer alone."""
        return "" if self._active is None else f"{self._active.crc:08x}"

    def lead(self, leadership: Leadership, vault: bytes = b"") -> None:
        """From now on what is appended goes into the stream first. ``vault``: see there. Raises as ``append``: what
        follows each section's beginning is appended now, since the leader before may have died where that was to be,
        and a purge up to there would leave none."""
        self._leadership, self.vault = leadership, vault
        self._append_what_follows()

    def prepare(self, facts: Sequence[FactOrRun], unit_ends: Collection[int] | None = None) -> Batch:
        """See ``Journal``. A batch is one unit, whatever ``unit_ends`` says: a crash that leaves some records of one
        would leave files that end where no message of the stream begins."""
        del unit_ends
        return super().prepare(facts, {last_sequence(facts[-1]) - facts[0].sequence})

    def append(self, batch: PreparedBatch, *, essential: bool = False) -> None:
        """See ``Journal``. There is no ``LogFull`` once the batch is in the stream: room here is looked at before, and
        where that was wrong the log has failed."""
        leadership = self._leadership
        if leadership is None:
            super().append(batch, essential=essential)
            return
        assert isinstance(batch, Batch | OpeningBatch), "prepared by another journal"
        with self._replicating, self._failing_for_good():
            self._writing.check()  # what cannot be written here is not put into the stream
            self.claim_room(batch, essential=essential)
            if isinstance(batch, OpeningBatch):
                self._append_roll(batch, leadership)
            else:
                leadership.append(self._stream_message(batch, leadership))
            try:
                super().append(batch, essential=True)
            except LogFull as full:
                what = f"{full.detail}; the batch of {batch.first} is in the stream and cannot be written here"
                raise LogFailed(what) from full

    def _append_roll(self, batch: OpeningBatch, leadership: Leadership) -> None:
        through, self._erase_through = self._erase_through, 0
        for _ in range(_FILL if through else 0):
            leadership.append(StreamMessage(StreamKind.BEAT, 0, "", bytes(PIECE_BYTES), node=leadership.own_claim.node))
        leadership.append(self._stream_message(batch, leadership))
        if through:
            self.take_order(EraseOrder(batch.first, through))
        self._append_what_follows()

    def _count(self, batch: Batch, at: int) -> None:
        super()._count(batch, at)
        if self._always:
            self.durable_sequence = batch.last

    def _stream_message(self, batch: Batch | OpeningBatch, leadership: Leadership) -> StreamMessage:
        kind = StreamKind.BATCH if isinstance(batch, Batch) else StreamKind.ROLL
        message = StreamMessage(kind, 0, "", batch.data, first=batch.first, last=batch.last, batch=batch.number)
        if kind is StreamKind.BATCH:
            return message
        # A stream that was purged up to here begins with it, so it says what the birth said, and who leads.
        claim = leadership.own_claim
        return message._replace(
            log=log_name(self.identity),
            generation=generation_of(leadership.epoch),
            node=claim.node,
            url=claim.url,
            listeners=claim.body.decode(),
            sealed=self.active_checksum,
        )

    def prepare_copy(self, data: bytes) -> tuple[Batch | OpeningBatch, tuple[FactOrRun, ...]]:
        """See ``Follower``. Of a batch of several units, of the time before the cluster, a crash may have left some
        here: the rest follows."""
        if self._active is None or not _begins_before(data, self.next_sequence):
            return super().prepare_copy(data)
        offsets, _ = walk_verified(data, 0, len(data))
        sequences = gather(data, offsets)["sequence"].astype(np.int64)
        here = int(np.searchsorted(sequences, self.next_sequence))
        if not 0 < here < len(sequences):
            return super().prepare_copy(data)
        size, end = int(offsets[here]), self._active.end
        if read_segment(self._active.path, max(0, end - size), end) != data[:size]:
            raise LogDiverged(f"the end of the log here is not the batch that holds {self.next_sequence} in the stream")
        self._written -= 1  # the number of this batch is given once more
        return super().prepare_copy(data[size:])

    def claim_room(self, batch: Batch | OpeningBatch, *, essential: bool) -> None:
        """As ``check_next``; and take the room that the batch needs here, so that an append of it finds some whatever
        fills the disk meanwhile: it goes into the stream first."""
        self.check_next(batch, essential=essential)
        try:
            self._claim(batch)
        except LogFull:
            if not self._reserve.ran_short(essential=essential):
                raise
            self._claim(batch)

    def _claim(self, batch: Batch | OpeningBatch) -> None:
        if self._active is not None:
            self._active.claim(SEAL_BYTES if isinstance(batch, OpeningBatch) else len(batch.data))
        if isinstance(batch, OpeningBatch):
            self._preallocated.claim(SEGMENT_HEADER_BYTES + len(batch.data))

    def trim_oldest(self) -> None:
        """See ``Sections``. The decision stands in the stream before the segment goes here, and not before nothing
        keeps it here. Who follows archives nothing: the leader has, and has told it."""
        if self._leadership is None:
            self._writing.check()
            self._trim()
            return
        self._ready_to_trim()
        first = self.sections()[1].first
        with self._failing_for_good():
            self._leadership.append(StreamMessage(StreamKind.DROP, 0, "", first=first))
            self._trim()
        self.trimmed(first)

    def _ready_to_trim(self) -> None:
        """Make no copy with zeros of a damaged segment while a peer may have it whole: it would be the last one."""
        first = self.sections()[0].first
        if isinstance(self._files.archive, Path) and first in self.damages and first not in self.unmendable:
            name = segment_path(Path(), first).name
            raise DamagedYet(f"{name} is damaged, and is archived once a peer has sent it, or none has it whole")
        super()._ready_to_trim()

    def _note_archived(self, copy: Copy) -> None:
        """Note a copy of the leader's own, so that the next leader makes no second one."""
        self.archived.add([copy])

    # -- erasure ------------------------------------------------------------------------------------------------------

    @property
    def erased_before(self) -> int | None:
        """The first record of the segment before which all are written anew, as the stream says; 0 where it says
        nothing of any that is still here, None while that is under way. Nodes that say the same have the same bytes."""
        if self._order_here() is None:
            return 0
        return self.order.first if self.order is not None and self._order_done else None

    def _order_here(self) -> EraseOrder | None:
        order = self.order
        return None if order is None or order.first <= self.first_sequence else order

    def take_order(self, order: EraseOrder) -> None:
        """The stream says so."""
        if order != self.order:
            self.order, self.to_erase, self._order_done = order, None, False
            self.order_heard(order.first)

    def erase_waits_for_snapshot(self, messages: Collection[int], through: int) -> bool:
        """See ``Erasure``. The order for the other nodes follows the beginning of a section."""
        ordered = self.order is not None and self.order.through >= through
        if ordered and not super().erase_waits_for_snapshot(messages, through):
            return False
        self._erase_through = through
        return True

    def erase(self, messages: Collection[int], before: int | None = None) -> int:
        """See ``Erasure``. It leads: the others know of it, and the stream forgets it next. Raises ``OSError`` too
        where it does not yet."""
        order = self.order
        if order is None:
            return 0  # no section has begun for it
        count = super().erase(messages, order.first if before is None else before)
        self.to_erase = messages
        self._order_done = self._order_done or self.order is order
        self.forget_erased(order.first)
        return count

    def erase_as_ordered(self) -> None:
        """Write the segments here anew, if that is not done. Raises as ``erase``."""
        order, messages = self.order, self.to_erase
        if order is None or messages is None or self._order_done:
            return
        super().erase(messages, order.first)
        self._order_done = self.order is order

    def erase_again(self) -> None:
        """A segment came from a peer, who may not have written it anew yet."""
        self._order_done = False

    # -- what follows -------------------------------------------------------------------------------------------------

    def _append_what_follows(self) -> None:
        """Append the messages that stand behind each section's beginning, so that a stream that was purged up to one
        tells all."""
        if self.vault:
            self._append_between(StreamMessage(StreamKind.VAULT, 0, "", self.vault))
        self.archived.repeat()
        order = self._order_here()
        if order is not None:
            self._append_between(order.message())

    def _append_between(self, message: StreamMessage) -> None:
        """Append, as the leader, a message that is none of the log's, from any thread. Raises ``Fenced`` and
        ``LogFailed``."""
        assert self._leadership is not None, "who follows appends nothing"
        with self._failing_for_good():
            self._leadership.append(message)

    @contextmanager
    def _failing_for_good(self) -> Iterator[None]:
        """After a ``LogFailed`` inside nothing is written any more, neither to the stream nor here."""
        try:
            yield
        except LogFailed as failed:
            self._writing.fail(failed)
            raise


def _begins_before(data: bytes, sequence: int) -> bool:
    """Whether the first record of a batch has a smaller sequence, where it can be read."""
    header = read_header(data)
    return isinstance(header, Header) and header.sequence < sequence
