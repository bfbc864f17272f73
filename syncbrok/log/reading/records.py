"""Records of the log by their own sequences, each verified; what has rotted is named, and costs only itself. From any
thread.

The index knows where each record stands, so nothing is read or walked over that stands elsewhere, and neighbours are
read together.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, islice, takewhile
from typing import Final

from syncbrok.log.format.codec import Buffer, Decoded, Header, decode
from syncbrok.log.format.records import Record
from syncbrok.log.index.segment_list import Part, SegmentList
from syncbrok.log.reading.extents import READ_BYTES_MAX, read_group, read_header_at, together
from syncbrok.log.segments import files
from syncbrok.log.segments.descriptors import reading
from syncbrok.model.errors import LogCorrupt
from syncbrok.model.limits import MIB

_UNKNOWN_BYTES: Final = MIB // 2


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

    def fitting(self, records: Sequence[int], bytes_max: int) -> int:
        """How many of these records, from the first on, take no more bytes of the log than that; at least one. For one
        that is nowhere, because another carries it, the room of a large one is left."""
        sizes: dict[int, int] = {}
        with suppress(FileNotFoundError):  # retention has just dropped one of their segments
            for part, wanted in self._by_part(sorted(set(records))):
                index = self._segment_list.index(part)
                if len(wanted) == len(records) == wanted[-1] - wanted[0] + 1 and wanted[0] == records[0]:
                    return max((extent.records for extent in islice(index.extents(wanted, bytes_max), 1)), default=1)
                places = [(record, index.extent(record)) for record in wanted]
                sizes.update((record, place[1] - place[0]) for record, place in places if place is not None)
        so_far = accumulate(sizes.get(record, _UNKNOWN_BYTES) for record in records)
        return max(sum(1 for _ in takewhile(lambda taken: taken <= bytes_max, so_far)), 1)

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
        extents = list(self._segment_list.index(part).extents(records, READ_BYTES_MAX))
        if not extents:
            return
        with reading(part.info.path) as file:
            for group in together(extents):
                read_group(file.fileno(), part, group, facts)

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
                    self._note_damage(part, sequence, met)
            damage = self._segment_list.damage_of(sequence)
            if damage is not None:
                return damage.header
            try:
                return self._header(part, sequence)
            except LogCorrupt:
                self._segment_list.check_disk()
        except FileNotFoundError:
            return None
        return None

    def headers(self, sequences: Sequence[int]) -> list[Header | None]:
        """As ``header`` for each of these, in ascending order; a segment is looked up and opened once for all of its
        records, which is most of what one of them costs."""
        found: dict[int, Header] = {}
        for part, wanted in self._by_part(sequences):
            if len(wanted) > 1 and not self._segment_list.is_damaged(part):
                found.update(self._headers_of(part, wanted))
        return [found[one] if one in found else self.header(one) for one in sequences]

    def _headers_of(self, part: Part, sequences: Sequence[int]) -> Iterator[tuple[int, Header]]:
        """Headers of one segment that stand where its index says. ``header`` knows what to do about the others."""
        try:
            index = self._segment_list.index(part)
            with reading(part.info.path) as file:
                for one in sequences:
                    place = index.extent(one)
                    if place is not None:
                        with suppress(LogCorrupt):
                            yield one, read_header_at(file.fileno(), part, place[0], one)
        except FileNotFoundError:
            return  # dropped by retention between the look at the segment list and the opening

    def _header(self, part: Part, sequence: int) -> Header | None:
        """The header of the record that the index names; None where it names none. Raises ``LogCorrupt`` where another
        record, or none, stands there."""
        place = self._segment_list.index(part).extent(sequence)
        if place is None:
            return None
        with reading(part.info.path) as file:
            return read_header_at(file.fileno(), part, place[0], sequence)

    def _note_damage(self, part: Part, sequence: int, met: LogCorrupt) -> None:
        """Name what was met where the header of a record should stand."""
        if part.active is None:
            self._segment_list.examine(part.info)
            return
        self._segment_list.check_disk()
        self._segment_list.found_damage(part.info, met.detail)
        self._name_unread(part, [sequence])
