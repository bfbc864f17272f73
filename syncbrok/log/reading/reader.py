"""Answers questions about a log on disk: records by sequence, and look-ups in the indexes. Callable from any thread.

``records`` finds and verifies the single record.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from itertools import chain, islice

import numpy as np

from syncbrok.log.format import stream
from syncbrok.log.format.codec import Corrupt, Decoded, Header, Kind, decode
from syncbrok.log.format.records import Gap, Record, SegmentOpened
from syncbrok.log.index.segment_index import SegmentIndex, text_hash
from syncbrok.log.index.segment_list import Part, SegmentList
from syncbrok.log.reading.records import RecordReader
from syncbrok.log.segments import segment
from syncbrok.log.segments.segment import SEGMENT_HEADER_BYTES, SegmentInfo, corrupt_error
from syncbrok.model.facts import Carried, Outcomes, StoredMessage, Tried
from syncbrok.model.journal import KindName, TimedRow
from syncbrok.model.names import MessageId, key_digest

SLICE = 256
_CANDIDATES = 64
_RECORDS_TOGETHER = 8
"""each may have thousands of rows, with what endpoints answered"""


class Reader:
    """``next_sequence`` tells up to where the log goes."""

    def __init__(self, segment_list: SegmentList, next_sequence: Callable[[], int]) -> None:
        self._segment_list = segment_list
        self._next_sequence = next_sequence
        self._records = RecordReader(segment_list, next_sequence)

    # -- records ------------------------------------------------------------------------------------------------------

    def header(self, sequence: int) -> Header | None:
        """See ``RecordReader``."""
        return self._records.header(sequence)

    def messages(self, sequences: Sequence[int], bytes_max: int | None = None) -> list[StoredMessage | None]:
        """The messages of these sequences (their own), content included, in the same order. None: dropped by retention
        and carried by no later record, not a message, or damaged on the disk (``SegmentList.damaged`` tells it):
        one record that rots must not keep the others from being read. With ``bytes_max`` the list may be shorter: it
        ends where the contents came to about so many bytes, and nothing much beyond is read."""
        if bytes_max is None:
            return self._messages(sequences)
        found: list[StoredMessage | None] = []
        while bytes_max > 0 and len(found) < len(sequences):
            rest = sequences[len(found) :] if found else sequences
            count = self._records.fitting(rest, bytes_max)
            some = self._messages(rest if count == len(rest) else rest[:count])
            found += some
            bytes_max -= sum([len(message.content) for message in some if message is not None])
        return found

    def _messages(self, sequences: Sequence[int]) -> list[StoredMessage | None]:
        records = sorted(set(sequences))
        facts = self._records.facts(records)
        if len(facts) == len(sequences) and [_own(fact) for fact in facts] == sequences:
            return facts  # type: ignore[return-value]  # a run of a backlog, as it nearly always is
        found = {fact.sequence: fact for fact in facts if isinstance(fact, StoredMessage)}
        # Not by the log's oldest sequence: a segment may be dropped at this moment.
        gone = {sequence for sequence in sequences if sequence not in found}
        if gone:
            for fact in self._records.facts(sorted(self._carried_in(gone))):
                if isinstance(fact, Carried):
                    found[fact.message.sequence] = fact.message
        return [found.get(sequence) for sequence in sequences]

    def _carried_in(self, gone: Iterable[int]) -> Iterator[int]:
        """The records that carry these messages."""
        for sequence in gone:
            for _, index in self._indexes(reversed(self._segment_list.parts)):
                record = index.carried(sequence)
                if record is not None:
                    yield record
                    break

    def _indexes(self, parts: Iterable[Part]) -> Iterator[tuple[Part, SegmentIndex]]:
        """The index of each that retention has not dropped meanwhile."""
        for part in parts:
            try:
                index = self._segment_list.index(part)
            except FileNotFoundError:
                continue
            yield part, index

    def carried_tries(self, sequence: int) -> tuple[Tried, ...]:
        """The attempts that the newest record which carries a message tells of; none where none does."""
        record = next(self._carried_in((sequence,)), None)
        facts = self._records.facts([record]) if record is not None else []
        return next((fact.tried for fact in facts if isinstance(fact, Carried)), ())

    def kind_of(self, sequence: int) -> KindName:
        """The kind of the record of this sequence. Of records that retention dropped only carried messages are
        known."""
        if not 0 < sequence < self._next_sequence():
            return "unknown"
        if sequence < self._segment_list.oldest:
            carried = next(self._carried_in((sequence,)), None)
            if carried is None:
                return "dropped"
            return "message" if self._segment_list.damage_of(carried) is None else "lost"
        header = self._records.header(sequence)
        if header is None:
            # Retention may have taken it just now; else it is damaged, or in a gap that salvage left.
            return "dropped" if sequence < self._segment_list.oldest else "lost"
        if header.kind == Kind.GAP:
            return "lost"  # the gap has the last of what it names as its own sequence
        if header.kind != Kind.MESSAGE:
            return "other"
        return "message" if self._segment_list.damage_of(sequence) is None else "lost"

    def lost(self, sequence: int) -> StoredMessage | None:
        """A damaged message (its own sequence) as far as the log still tells, without content; None for others."""
        record = sequence if sequence >= self._segment_list.oldest else next(self._carried_in((sequence,)), 0)
        damage = self._segment_list.damage_of(record)
        return damage.message if damage is not None else None

    def places_of(self, sequences: Sequence[int]) -> list[tuple[MessageId, int] | None]:
        """Id and queue of each of these (ascending), also of one that cannot be read whole; None where there is no such
        message, or nothing is known of it."""
        headers = self._records.headers(sequences)
        return [self._place(one, header) for one, header in zip(sequences, headers, strict=True)]

    def _place(self, sequence: int, header: Header | None) -> tuple[MessageId, int] | None:
        lost = self.lost(sequence)
        if lost is not None:
            return lost.id, lost.queue
        if header is not None:
            return (header.id, header.queue) if header.kind == Kind.MESSAGE else None
        record = next(self._carried_in((sequence,)), None)
        facts = self._records.facts([record]) if record is not None else []
        return next(((fact.message.id, fact.message.queue) for fact in facts if isinstance(fact, Carried)), None)

    def replay(self, after: int = 0) -> Iterator[Record]:
        """Every fact with a sequence above ``after``, in order, without content; a ``Gap`` for records that are
        damaged. Raises ``LogCorrupt``."""
        for part in self._segment_list.parts:
            index = self._segment_list.index(part)
            if index.last <= after:
                continue
            place, end = index.extent(after + 1), index.end
            path = part.info.path
            data = segment.read_segment(path, 0, end) if part.active is not None else segment.read_sealed(path)
            if part.active is None and (self._segment_list.is_damaged(part) or segment.scrub_bytes(data) is not None):
                yield from self._replay_damaged(part, after)
                continue
            for fact in stream.facts(data, place[0] if place else SEGMENT_HEADER_BYTES):
                if isinstance(fact, Corrupt):
                    raise corrupt_error(part.info.path, fact.offset, part.info.base, index.last, fact.why)
                if fact.sequence > after:
                    yield fact

    def _replay_damaged(self, part: Part, after: int) -> Iterator[Record]:
        """Yield the facts of a damaged segment, with gaps in place of what cannot be read."""
        found = self._segment_list.examine(part.info)
        time_us = part.info.first_time_us
        lost = {
            damage.offset: damage for damage in found.damages if damage.last > after and damage.last >= damage.first
        }
        for at in sorted({*found.offsets.tolist(), *lost}):
            damage = lost.get(at)
            if damage is not None:
                yield Gap(damage.last, time_us, damage.first, damage.last, damage.why)
                continue
            record = decode(found.data, at, content=False, verify=False)
            if isinstance(record, Decoded) and record.fact.sequence > after:
                time_us = record.fact.time_us
                yield record.fact

    def inherited(self) -> Iterator[Record]:
        """Yield the facts that a reader must know before anything else when there is no checkpoint: the ends of
        messages that ended badly, and the newest carried record of messages whose own records are gone. In the log
        these come after children of the messages, so in log order the parents would count as complete. Without
        content, as all facts in order."""
        parts, oldest = self._segment_list.parts, self._segment_list.oldest
        if oldest <= 1:
            return
        records = dict(chain.from_iterable(self._segment_list.index(part).carried_records() for part in parts))
        gone = sorted(sequence for sequence in records if sequence < oldest)
        opened = [
            fact
            for fact in self._records.facts(sorted({oldest, parts[-1].info.base}))
            if isinstance(fact, SegmentOpened)
        ]
        if opened:
            # How one ended that is carried is told by its rows, which stand behind it.
            bad = tuple(one for one in opened[-1].bad if one[0] not in records)
            yield opened[0]._replace(bad=bad)
        for at in range(0, len(gone), SLICE):  # by their own sequences: parents before children
            some = sorted(records[sequence] for sequence in gone[at : at + SLICE])
            carried = {fact.sequence: fact for fact in self._records.facts(some) if isinstance(fact, Carried)}
            for record in some:
                damage = self._segment_list.damage_of(record)
                if record not in carried and damage is not None and isinstance(damage.fact, Carried):
                    carried[record] = damage.fact
            for fact in sorted(carried.values(), key=lambda fact: fact.message.sequence):
                yield fact._replace(message=fact.message._replace(content=b""))

    # -- questions ----------------------------------------------------------------------------------------------------

    def stands_in(self, info: SegmentInfo, messages: Sequence[int]) -> bool:
        """Whether one of these messages (sorted) is read from this segment: its own record stands there, or one that
        carries it. (One that is carried once more has left the older segment for good.)"""
        first = bisect_left(messages, info.base)
        if first < len(messages) and messages[first] <= info.last:
            return True
        gone = set(messages[: bisect_left(messages, self._segment_list.oldest)])
        part = self._segment_list.part_of(info.base) if gone else None
        if part is None:
            return False
        here = {own for own, _ in self._segment_list.index(part).carried_records() if own in gone}
        return any(record <= info.last for record in self._carried_in(here))

    def rows_of_many(self, messages: Collection[int]) -> dict[int, list[TimedRow]]:
        """Every row of each of these messages, oldest first, those for all subscribers too, with its record and the
        time of that. A record in which several have rows is read once."""
        places: dict[int, list[tuple[int, int]]] = {}
        """record -> (message, position of the row)"""
        parts = self._segment_list.from_segment_of(min(messages, default=0))
        wanted = np.array(sorted(messages), np.int64)
        for _, index in self._indexes(parts):
            for message, record, position in index.rows_of_any(wanted):
                places.setdefault(record, []).append((message, position))
        found: dict[int, list[TimedRow]] = {message: [] for message in messages}
        records = sorted(places)
        for at in range(0, len(records), _RECORDS_TOGETHER):
            for fact in self._records.facts(records[at : at + _RECORDS_TOGETHER]):
                if isinstance(fact, Outcomes):
                    for message, position in places[fact.sequence]:
                        rows = fact.rows[position : position + 1]
                        found[message] += [
                            TimedRow(fact.sequence, fact.time_us, row) for row in rows if row.message == message
                        ]
        return found

    def children_of(self, parent: int, limit: int) -> list[int]:
        """At most ``limit`` messages that name ``parent``, lowest first. All segments behind it are asked, even for a
        few: a carried message stands behind messages that came after it."""
        indexes = self._indexes(self._segment_list.from_segment_of(parent))
        return sorted({child for _, index in indexes for child in index.children_of(parent)})[:limit]

    def queue_sequences(self, queue: int, after: int, limit: int) -> list[int]:
        """Messages of a queue with sequences above ``after``, lowest first, at most ``limit``; carried ones too."""
        while True:
            oldest = self._segment_list.oldest
            found = self._queue_sequences(queue, after, limit, oldest)
            if oldest == self._segment_list.oldest:
                return found  # else what stood in a segment that was dropped meanwhile stands elsewhere now

    def _queue_sequences(self, queue: int, after: int, limit: int, oldest: int) -> list[int]:
        found: list[int] = []
        if after < oldest - 1:
            carried = {
                sequence
                for _, index in self._indexes(self._segment_list.parts)
                for sequence in index.carried_sequences(queue, after, limit)
                if sequence < oldest
            }
            found = sorted(carried)[:limit]
        for _, index in self._indexes(self._segment_list.from_segment_of(after)):
            if len(found) >= limit:
                break
            found += index.queue_sequences(queue, after, limit - len(found))
        return found

    def sequences_between(
        self, queues: Collection[int] | None, after: int, before: int, limit: int, *, newest_first: bool
    ) -> list[int]:
        """Messages of these queues (None: of all) between two sequences, at most ``limit``, the newest or the oldest;
        carried ones too."""
        while True:
            oldest = self._segment_list.oldest
            own = self._own_between(queues, max(after, oldest - 1), before, limit, newest_first)
            carried = self._carried_between(queues, after, min(before, oldest)) if after < oldest - 1 else []
            if oldest == self._segment_list.oldest:
                # What is carried is older than what stands in the log.
                return [*own, *reversed(carried)][:limit] if newest_first else [*carried, *own][:limit]

    def _own_between(
        self, queues: Collection[int] | None, after: int, before: int, limit: int, newest_first: bool
    ) -> list[int]:
        found: list[int] = []
        parts = [part for part in self._segment_list.from_segment_of(after) if part.info.base < before]
        for _, index in self._indexes(reversed(parts) if newest_first else parts):
            if len(found) >= limit:
                break
            found += index.sequences_between(queues, after, before, limit - len(found), newest_first=newest_first)
        return found

    def _carried_between(self, queues: Collection[int] | None, after: int, before: int) -> list[int]:
        return sorted(
            {
                sequence
                for _, index in self._indexes(self._segment_list.parts)
                for sequence in index.carried_between(queues, after, before)
            }
        )

    def others_between(
        self, after: int, before: int, limit: int, *, newest_first: bool
    ) -> list[tuple[int, Record | None]]:
        """See ``MessageIndex``."""
        found: list[int] = []
        parts = [part for part in self._segment_list.from_segment_of(after) if part.info.base < before]
        for _, index in self._indexes(reversed(parts) if newest_first else parts):
            if len(found) >= limit:
                break
            found += index.others_between(after, before, limit - len(found), newest_first=newest_first)
        read = {fact.sequence: fact for fact in self._records.facts(sorted(found))}
        return [(one, read.get(one)) for one in found]

    def first_at(self, time_us: int) -> int:
        """The sequence of the first record of that time or later; the next one where there is none."""
        for _, index in self._indexes(self._segment_list.parts):
            found = index.first_at(time_us)
            if found is not None:
                return found
        return self._next_sequence()

    def with_key(
        self, key: str, queue: int | None, limit: int, before: int | None = None, without: Container[int] = ()
    ) -> list[int]:
        """Messages with this key, newest first, at most ``limit``; with ``before`` only those older than it, and none
        of ``without``."""
        own, carried = (
            (sequence for sequence in found if before is None or sequence < before)
            for found in self._candidates(text_hash(key))
        )
        fits = lambda message: message.key == key and message.sequence not in without  # noqa: E731
        return self._newest(chain(own, carried), fits, queue, limit)

    def _candidates(self, hashed: int) -> tuple[Iterator[int], Iterator[int]]:
        """Two streams of sequences whose key may be the one of this hash, newest first: messages of each segment, and
        messages carried into it. They are separate because carried ones are older than every segment that is left; in
        one stream they would come before newer messages."""
        parts = self._segment_list.parts
        own = (
            sequence
            for part, index in self._indexes(reversed(parts))
            for sequence in reversed(index.with_key(hashed))
            if sequence >= part.info.base
        )

        def carried() -> Iterator[int]:
            yield from sorted(
                {
                    sequence
                    for part, index in self._indexes(parts)
                    for sequence in index.with_key(hashed)
                    if sequence < part.info.base
                },
                reverse=True,
            )

        return own, carried()

    def with_idempotency_key(self, key: str, queue: int | None, since_us: int) -> list[int]:
        """Messages with this idempotency key accepted at ``since_us`` or later, newest first."""
        # One that is erased has the digest in its place, once its record is rewritten.
        digest = key_digest(key, self._segment_list.id_key)
        hashes = (text_hash(digest), text_hash(key))
        parts = self._segment_list.parts
        young = [part for part in reversed(parts) if part.active is not None or part.info.last_time_us >= since_us]
        candidates = (
            sequence
            for _, index in self._indexes(young)
            for sequence in sorted((one for hashed in hashes for one in index.with_idempotency(hashed)), reverse=True)
        )
        # An index entry of a damaged message is reason enough to refuse its key to another message.
        fits = lambda message: message.idempotency_key in (key, digest, "") and message.time_us >= since_us  # noqa: E731
        return self._newest(candidates, fits, queue, None)

    def _newest(
        self, candidates: Iterator[int], fits: Callable[[StoredMessage], bool], queue: int | None, limit: int | None
    ) -> list[int]:
        """The newest ``limit`` candidates that fit, each once, newest first. The hashes of all candidates agree."""
        found: dict[int, None] = {}
        while some := list(islice(candidates, _CANDIDATES)):
            for sequence, read in zip(some, self.messages(some), strict=True):
                message = self.lost(sequence) if read is None else read
                if message is not None and (queue is None or message.queue == queue) and fits(message):
                    found[message.sequence] = None
            if limit is not None and len(found) >= limit:
                break
        return sorted(found, reverse=True)[:limit]


def _own(fact: Record) -> int:
    """The sequence of a message, 0 for anything else."""
    return fact[0] if type(fact) is StoredMessage else 0
