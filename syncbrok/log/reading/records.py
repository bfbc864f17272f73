"""Records of the log by their own sequences, each verified; what has rotted is named, and costs only itself. From any
thread.

A sparse index leads to within 256 records of the one that is wanted; the rest is walked. Blocks of up to 1 MiB are read
whole, neighbouring ones together; in larger ones only the headers on the way are read. In a segment that is damaged
nothing is walked over: each record is read from its own place.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from syncbrok.log.format.codec import HEADER_BYTES, Buffer, Decoded, Header, decode, read_header
from syncbrok.log.format.records import Record
from syncbrok.log.index.segment_index import SegmentIndex
from syncbrok.log.index.segment_list import Part, SegmentList
from syncbrok.log.reading.blocks import BLOCK_BYTES_MAX, Block, hop_block, hop_header, together, walk_block
from syncbrok.log.segments import files
from syncbrok.log.segments.descriptors import open_file, reading
from syncbrok.model.errors import LogCorrupt
from syncbrok.model.limits import offsets_every


class RecordReader:
    """``next_sequence`` tells up to where the log goes."""

    def __init__(self, segment_list: SegmentList, next_sequence: Callable[[], int]) -> None:
        self._segment_list = segment_list
        self._next_sequence = next_sequence

    def facts(self, records: Sequence[int]) -> list[Record]:
        """The facts of these records (sorted), those that are there."""
        facts: list[Record] = []
        for part, wanted in self._by_part(records):
            before = len(facts)
            try:
                if self._segment_list.is_damaged(part):
                    self._undamaged(part, wanted, facts)
                else:
                    self._facts_of(part, wanted, facts)
            except FileNotFoundError:
                del facts[before:]  # dropped by retention between the look at the segment list and the opening
            except LogCorrupt as damage:
                del facts[before:]
                if part.active is not None:
                    self._segment_list.found_damage(part.info, damage.detail)
                with suppress(FileNotFoundError):
                    self._undamaged(part, wanted, facts)
        return facts

    def _undamaged(self, part: Part, records: Sequence[int], facts: list[Record]) -> None:
        """Append the readable ones of these records of a damaged segment to ``facts``. Each is read from its own
        offset, so that the reader never walks over rotten bytes. Where one cannot be read, the whole segment is
        examined and the records are looked for once more, because the index may have been wrong."""
        unread = self._each_of(part, records, facts)
        unread = [record for record in unread if self._segment_list.damage_of(record) is None]
        if not unread:
            return
        data: Buffer | None = None
        if part.active is None:
            # From the bytes that were examined: asked again, the disk may read fewer of them.
            data = self._segment_list.examine(part.info).data
            # In those bytes a lost message stands as far as it is known, with a header that fits: it is lost all the
            # same, for the first who asks as for all later ones.
            unread = [record for record in unread if self._segment_list.damage_of(record) is None]
        else:
            self._segment_list.check_disk()
        before = len(facts)
        unread = self._each_of(part, unread, facts, data)
        if part.active is not None:
            self._name_unread(part, unread)
        if len(facts) > before:
            facts[:] = sorted(facts, key=lambda fact: fact.sequence)

    def _name_unread(self, part: Part, records: Sequence[int]) -> None:
        """Name unreadable records of the active segment as damaged. A sealed segment is examined as a whole instead."""
        index = self._segment_list.index(part)
        for record in records:
            place = index.extent(record)
            if place is not None:
                self._segment_list.found_unread(part.info, record, *place)

    def _each_of(
        self, part: Part, records: Sequence[int], facts: list[Record], data: Buffer | None = None
    ) -> list[int]:
        """Put those that can be read into ``facts``; the others. ``data``: the segment's bytes, where they are here."""
        index = self._segment_list.index(part)
        unread: list[int] = []
        with reading(part.info.path) as file:
            for record in records:
                place = index.extent(record)
                if place is None:
                    unread.append(record)
                    continue
                start, end = place
                found = decode(
                    files.read_around(file.fileno(), end - start, start) if data is None else bytes(data[start:end])
                )
                if isinstance(found, Decoded) and found.header.sequence == record:
                    facts.append(found.fact)
                else:
                    unread.append(record)
        return unread

    def _by_part(self, records: Sequence[int]) -> Iterator[tuple[Part, list[int]]]:
        part: Part | None = None
        wanted: list[int] = []
        last = 0
        for record in records:
            if record > last:
                if part is not None and wanted:
                    yield part, wanted
                part, wanted = self._segment_list.part_of(record), []
                last = record if part is None else part.info.last if part.active is None else self._next_sequence()
            wanted.append(record)
        if part is not None and wanted:
            yield part, wanted

    def _facts_of(self, part: Part, records: Sequence[int], facts: list[Record]) -> None:
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
                data = files.read_around(descriptor, run[-1].end - run[0].start, run[0].start)
                for block in run:
                    walk_block(data, run[0].start, part, block, facts)
        finally:
            os.close(descriptor)

    def _blocks(self, part: Part, records: Sequence[int]) -> list[Block]:
        index = self._segment_list.index(part)
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

    def header(self, sequence: int) -> Header | None:
        """The header of the record of this sequence. None where there is no such record (any more), or it is so damaged
        that its kind cannot be told. Raises ``LogUnreadable``."""
        part = self._segment_list.part_of(sequence)
        if part is None:
            return None
        try:
            if not self._segment_list.is_damaged(part):
                try:
                    return self._header(part, sequence)
                except LogCorrupt as met:
                    if part.active is None:
                        self._segment_list.examine(part.info)
                    else:
                        self._segment_list.check_disk()
                        self._segment_list.found_damage(part.info, met.detail)
                        if self._header_at(part, sequence) is None:
                            self._name_unread(part, [sequence])
            damage = self._segment_list.damage_of(sequence)
            if damage is not None:
                return damage.header
            header = self._header_at(part, sequence)
            if header is None:
                self._segment_list.check_disk()
        except FileNotFoundError:
            return None
        return header

    def _header(self, part: Part, sequence: int) -> Header | None:
        """Raises ``LogCorrupt`` where something on the way to it is damaged."""
        blocks = self._blocks(part, [sequence])
        if not blocks:
            return None
        descriptor = open_file(part.info.path, os.O_RDONLY)
        try:
            return hop_header(descriptor, part, blocks[0].start, blocks[0].wanted[0][0], sequence)[0]
        finally:
            os.close(descriptor)

    def _header_at(self, part: Part, sequence: int) -> Header | None:
        """The header of the record that the index names, read without a walk; None where another record, or none,
        stands there."""
        place = self._segment_list.index(part).extent(sequence)
        if place is None:
            return None
        with reading(part.info.path) as file:
            header = read_header(files.read_around(file.fileno(), HEADER_BYTES, place[0]))
        return header if isinstance(header, Header) and header.sequence == sequence else None


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
