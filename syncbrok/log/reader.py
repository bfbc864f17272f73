"""What is asked of a log that stands on the disk: records by sequence, and what the indexes know. From any thread.

A sparse index leads to within 256 records of the one that is wanted; the rest is walked. Blocks of up to 1 MiB are read
whole, neighbouring ones together; in larger ones only the headers on the way are read.
"""

import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import Literal

from syncbrok.log import files, segment, stream
from syncbrok.log.blocks import BLOCK_BYTES_MAX, Block, hop_block, hop_header, together, walk_block
from syncbrok.log.catalogue import Catalogue, Part
from syncbrok.log.codec import Corrupt, Header, Kind
from syncbrok.log.descriptors import open_file
from syncbrok.log.index import SegmentIndex, text_hash
from syncbrok.log.segment import SEGMENT_HEADER_BYTES, SegmentInfo, corrupt_error
from syncbrok.model.errors import LogCorrupt
from syncbrok.model.facts import Carried, Fact, Outcomes, Published, Row, SegmentOpened
from syncbrok.model.limits import offsets_every
from syncbrok.model.names import MessageId

SLICE = 256
_FIRST_SLICE = 8
_GROWTH = 4
"""messages between two looks at how many bytes were read"""
_CANDIDATES = 64

KindName = Literal["message", "other", "dropped", "lost", "unknown"]


class Reader:
    """``next_sequence`` tells up to where the log goes."""

    def __init__(self, catalogue: Catalogue, next_sequence: Callable[[], int]) -> None:
        self._catalogue = catalogue
        self._next_sequence = next_sequence

    # -- records ------------------------------------------------------------------------------------------------------

    def messages(self, sequences: Sequence[int], bytes_max: int | None = None) -> list[Published | None]:
        """The messages of these sequences (their own), content included, in the same order. None: dropped by retention
        and carried by no later record, not a message, or damaged on the disk (which ``Catalogue.damaged`` then tells):
        one record that rots must not keep the others from being read. With ``bytes_max`` the list may be shorter: it
        ends where the contents came to about so many bytes, and nothing much beyond is read."""
        if bytes_max is None:
            return self._messages(sequences)
        found: list[Published | None] = []
        count = _FIRST_SLICE  # nobody knows how large they are: 256 of the largest would be 256 MiB
        while bytes_max > 0 and len(found) < len(sequences):
            some = self._messages(sequences[len(found) : len(found) + count])
            found += some
            sizes = [len(message.content) for message in some if message is not None]
            bytes_max -= sum(sizes)
            count = min(SLICE, _GROWTH * count, max(bytes_max // max(*sizes, 1, 1), 1))
        return found

    def _messages(self, sequences: Sequence[int]) -> list[Published | None]:
        records = sorted(set(sequences))
        facts = self._facts(records)
        if len(facts) == len(sequences) and [_own(fact) for fact in facts] == sequences:
            return facts  # type: ignore[return-value]  # a run of a backlog, as it nearly always is
        found = {fact.sequence: fact for fact in facts if isinstance(fact, Published)}
        # Not by the log's oldest sequence: a segment may be dropped at this moment.
        gone = {sequence for sequence in sequences if sequence not in found}
        if gone:
            for fact in self._facts(sorted(self._carried_in(gone))):
                if isinstance(fact, Carried):
                    found[fact.message.sequence] = fact.message
        return [found.get(sequence) for sequence in sequences]

    def _carried_in(self, gone: Iterable[int]) -> Iterator[int]:
        """The records that carry these messages."""
        for sequence in gone:
            for _, index in self._indexes(reversed(self._catalogue.parts)):
                record = index.carried(sequence)
                if record is not None:
                    yield record
                    break

    def _indexes(self, parts: Iterable[Part]) -> Iterator[tuple[Part, SegmentIndex]]:
        """The index of each that retention has not dropped meanwhile."""
        for part in parts:
            try:
                index = self._catalogue.index(part)
            except FileNotFoundError:
                continue
            yield part, index

    def _facts(self, records: Sequence[int]) -> list[Fact]:
        """The facts of these records (sorted), those that are there."""
        facts: list[Fact] = []
        for part, wanted in self._by_part(records):
            before = len(facts)
            try:
                self._facts_of(part, wanted, facts)
            except FileNotFoundError:
                del facts[before:]  # dropped by retention between the look at the catalogue and the opening
            except LogCorrupt as damage:
                del facts[before:]
                self._catalogue.found_damage(part.info, damage.detail)
                self._undamaged(part, wanted, facts)
        return facts

    def _undamaged(self, part: Part, records: Sequence[int], facts: list[Fact]) -> None:
        """One by one, those that can be read."""
        for record in records:
            with suppress(LogCorrupt, FileNotFoundError):
                self._facts_of(part, [record], facts)

    def _by_part(self, records: Sequence[int]) -> Iterator[tuple[Part, list[int]]]:
        part: Part | None = None
        wanted: list[int] = []
        last = 0
        for record in records:
            if record > last:
                if part is not None and wanted:
                    yield part, wanted
                part, wanted = self._catalogue.part_of(record), []
                last = record if part is None else part.info.last if part.active is None else self._next_sequence()
            wanted.append(record)
        if part is not None and wanted:
            yield part, wanted

    def _facts_of(self, part: Part, records: Sequence[int], facts: list[Fact]) -> None:
        """Put the facts of these records of one segment into ``facts``."""
        blocks = self._blocks(part, records)
        if not blocks:
            return
        descriptor = open_file(part.info.path, os.O_RDONLY)
        try:
            for run in together(blocks):
                if len(run) == 1 and run[0].end - run[0].start > BLOCK_BYTES_MAX:
                    hop_block(descriptor, part, run[0], facts)
                    continue
                data = files.read_at(descriptor, run[-1].end - run[0].start, run[0].start)
                for block in run:
                    walk_block(data, run[0].start, part, block, facts)
        finally:
            os.close(descriptor)

    def _blocks(self, part: Part, records: Sequence[int]) -> list[Block]:
        index = self._catalogue.index(part)
        places = list(_places(index, records))
        # Only now, so that what is appended meanwhile makes the last block longer, never too short.
        sparse, end = index.sparse, index.end
        blocks: list[Block] = []
        for record, count, start, walked in places:
            if not blocks or blocks[-1].start != start:
                following = int(sparse.searchsorted(start, "right"))
                blocks.append(Block(start, int(sparse[following]) if following < len(sparse) else end, []))
            blocks[-1].wanted.append((walked, record, count))
        return blocks

    def kind_of(self, sequence: int) -> KindName:
        """What the record of this sequence is; of one that retention dropped: a message if it was carried along."""
        if not 0 < sequence < self._next_sequence():
            return "unknown"
        if sequence < self._catalogue.oldest:
            return "message" if any(self._carried_in((sequence,))) else "dropped"
        header = self.header(sequence)
        if header is None:
            # Retention may have taken it just now; else it is in a gap that salvage left.
            return "dropped" if sequence < self._catalogue.oldest else "lost"
        if header.kind == Kind.GAP:
            return "lost"  # the gap has the last of what it names as its own sequence
        return "message" if header.kind == Kind.MESSAGE else "other"

    def place_of(self, sequence: int) -> tuple[MessageId, int] | None:
        """Id and queue of a message from its record's header alone: also where its body is damaged. None where there is
        none, or the header is damaged too."""
        try:
            header = self.header(sequence)
        except LogCorrupt:
            return None
        return (header.id, header.queue) if header is not None and header.kind == Kind.MESSAGE else None

    def header(self, sequence: int) -> Header | None:
        """The header of the record of this sequence; None where there is none (any more)."""
        part = self._catalogue.part_of(sequence)
        if part is None:
            return None
        try:
            blocks = self._blocks(part, [sequence])
            if not blocks:
                return None
            descriptor = open_file(part.info.path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            return hop_header(descriptor, part, blocks[0].start, blocks[0].wanted[0][0], sequence)[0]
        finally:
            os.close(descriptor)

    def replay(self, after: int = 0) -> Iterator[Fact]:
        """Every fact with a sequence above ``after``, in order, without content. Raises ``LogCorrupt``."""
        for part in self._catalogue.parts:
            index = self._catalogue.index(part)
            if index.last <= after:
                continue
            place, end = index.locate(after + 1), index.end
            data = _verified(part, end)
            for fact in stream.facts(data, place[0] if place else SEGMENT_HEADER_BYTES):
                if isinstance(fact, Corrupt):
                    raise corrupt_error(part.info.path, fact.offset, part.info.base, index.last, fact.why)
                if fact.sequence > after:
                    yield fact

    def inherited(self) -> Iterator[Fact]:
        """What is to be known before anything else where there is no checkpoint: the end of messages that ended badly
        and the newest records that carry one, of those whose own records are gone. In the log they stand behind
        children of these messages, which would be taken for children of complete ones."""
        parts, oldest = self._catalogue.parts, self._catalogue.oldest
        if oldest <= 1:
            return
        records = dict(chain.from_iterable(self._catalogue.index(part).carried_records() for part in parts))
        gone = sorted(sequence for sequence in records if sequence < oldest)
        opened = [
            fact for fact in self._facts(sorted({oldest, parts[-1].info.base})) if isinstance(fact, SegmentOpened)
        ]
        if opened:
            # How one ended that is carried is told by its rows, which stand behind it.
            bad = tuple(one for one in opened[-1].bad if one[0] not in records)
            yield opened[0]._replace(bad=bad)
        for at in range(0, len(gone), SLICE):  # by their own sequences: parents before children
            some = sorted(records[sequence] for sequence in gone[at : at + SLICE])
            carried = [fact for fact in self._facts(some) if isinstance(fact, Carried)]
            yield from sorted(carried, key=lambda fact: fact.message.sequence)

    # -- questions ----------------------------------------------------------------------------------------------------

    def stands_in(self, info: SegmentInfo, messages: Sequence[int]) -> bool:
        """Whether one of these messages (sorted) is read from this segment: its own record stands there, or one that
        carries it. (One that is carried once more has left the older segment for good.)"""
        first = bisect_left(messages, info.base)
        if first < len(messages) and messages[first] <= info.last:
            return True
        gone = set(messages[: bisect_left(messages, self._catalogue.oldest)])
        part = self._catalogue.part_of(info.base) if gone else None
        return part is not None and any(own in gone for own, _ in self._catalogue.index(part).carried_records())

    def rows_of(self, message: int) -> list[tuple[int, Row]]:
        """(sequence of the record, row) for every row of a message, oldest first, those for all subscribers too."""
        places = [
            place
            for _, index in self._indexes(self._catalogue.from_segment_of(message))
            for place in index.rows_of(message)
        ]
        records = {
            fact.sequence: fact.rows
            for fact in self._facts(sorted({record for record, _ in places}))
            if isinstance(fact, Outcomes)
        }
        return [(record, records[record][position]) for record, position in places if record in records]

    def children_of(self, parent: int, limit: int) -> list[int]:
        """Messages that name ``parent``, lowest first, at most ``limit``."""
        found: dict[int, None] = {}
        for part, index in self._indexes(self._catalogue.from_segment_of(parent)):
            found.update(dict.fromkeys(index.children_of(parent)))
            if len(found) >= limit and part.info.base > parent:
                break
        return sorted(found)[:limit]

    def queue_sequences(self, queue: int, after: int, limit: int) -> list[int]:
        """Messages of a queue with sequences above ``after``, lowest first, at most ``limit``; carried ones too."""
        while True:
            oldest = self._catalogue.oldest
            found = self._queue_sequences(queue, after, limit, oldest)
            if oldest == self._catalogue.oldest:
                return found  # else what stood in a segment that was dropped meanwhile stands elsewhere now

    def _queue_sequences(self, queue: int, after: int, limit: int, oldest: int) -> list[int]:
        found: list[int] = []
        if after < oldest - 1:
            carried = {
                sequence
                for _, index in self._indexes(self._catalogue.parts)
                for sequence in index.carried_sequences(queue, after, limit)
                if sequence < oldest
            }
            found = sorted(carried)[:limit]
        for _, index in self._indexes(self._catalogue.from_segment_of(after)):
            if len(found) >= limit:
                break
            found += index.queue_sequences(queue, after, limit - len(found))
        return found

    def with_key(self, key: str, queue: int | None, limit: int, before: int | None = None) -> list[int]:
        """Messages with this key, newest first, at most ``limit``; with ``before`` only those older than it."""
        own, carried = (
            (sequence for sequence in found if before is None or sequence < before)
            for found in self._candidates(text_hash(key))
        )
        return self._newest(chain(own, carried), lambda message: message.key == key, queue, limit)

    def _candidates(self, hashed: int) -> tuple[Iterator[int], Iterator[int]]:
        """Those whose key may be it, newest first: of each segment its own messages, and those it carries. They are as
        old as the segments that went before: met in the newest segment, they would come before what is newer."""
        parts = self._catalogue.parts
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
        hashed = text_hash(key)
        parts = self._catalogue.parts
        young = [part for part in reversed(parts) if part.active is not None or part.info.last_time_us >= since_us]
        candidates = (
            sequence for _, index in self._indexes(young) for sequence in reversed(index.with_idempotency(hashed))
        )
        fits = lambda message: message.idempotency_key == key and message.time_us >= since_us  # noqa: E731
        return self._newest(candidates, fits, queue, None)

    def _newest(
        self, candidates: Iterator[int], fits: Callable[[Published], bool], queue: int | None, limit: int | None
    ) -> list[int]:
        """Those of the candidates (their hashes agree) that fit, each once, newest first."""
        found: dict[int, None] = {}
        while some := list(islice(candidates, _CANDIDATES)):
            for message in self.messages(some):
                if message is not None and (queue is None or message.queue == queue) and fits(message):
                    found[message.sequence] = None
            if limit is not None and len(found) >= limit:
                break
        return sorted(found, reverse=True)[:limit]


def _verified(part: Part, end: int) -> bytes:
    """The bytes of a segment; those of a sealed one fit its seal (recovery has looked at the others)."""
    data = segment.read_segment(part.info.path, 0, end)
    damage = segment.scrub_bytes(data) if part.active is None else None
    if damage is not None:
        raise corrupt_error(part.info.path, damage.offset, part.info.base, part.info.last, damage.why)
    return data


def _places(index: SegmentIndex, records: Sequence[int]) -> Iterator[tuple[int, int, int, int]]:
    """(record, how many neighbours from it on, offset of their block, how many to walk from there) of those records
    that are there. Neighbours are of one block, of which only the first is looked up."""
    start = walked = before = at = 0
    whole, last, every = not index.jumps, index.last, offsets_every
    while at < len(records):
        record = records[at]
        step = record - before
        if whole and before and walked + step < every and record <= last:
            walked += step
        else:
            place = index.locate(record)
            if place is None:
                at += 1
                continue
            start, walked = place
        most = max(min(every - walked, last + 1 - record, len(records) - at), 1) if whole else 1
        count = most if records[at + most - 1] == record + most - 1 else 1
        while count < most and records[at + count] == record + count:
            count += 1
        before = record
        at += count
        yield record, count, start, walked


def _own(fact: Fact) -> int:
    """The sequence of a message, 0 for anything else."""
    return fact[0] if type(fact) is Published else 0
