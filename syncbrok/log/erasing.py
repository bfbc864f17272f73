"""Erases messages: hides them at once from whoever reads, and later takes them out of the files (RULES 32).

Hidden is in memory: the log says in a record of its own which messages are erased, and whoever opens it says so here.
Taken out is on the disk: the segments that hold such a message, a record that carries it, or what its subscribers
answered, are written anew. Nothing else knows whether that has happened yet: a record says it by itself.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Final

import numpy as np
import numpy.typing as npt

from syncbrok.log.format.codec import Decoded, decode
from syncbrok.log.format.erasure import erased_message, erased_record, redacted
from syncbrok.log.index.segment_list import Part, SegmentList
from syncbrok.log.segments import files, retention, segment
from syncbrok.log.segments.options import PIPELINE, Archive
from syncbrok.log.segments.rewriting import replace_records
from syncbrok.model.facts import Fact, StoredMessage
from syncbrok.model.journal import TimedRow
from syncbrok.model.sequence_set import SequenceSet

log = logging.getLogger(__name__)

BROKEN: Final = "*.broken"


class Erasing:
    """``changing``: the journal's lock for the set of segments. ``id_key``: the log's."""

    def __init__(self, directory: Path, segment_list: SegmentList, id_key: bytes, changing: Lock) -> None:
        self._directory = directory
        self._segment_list = segment_list
        self._id_key = id_key
        self._changing = changing
        self._erasing = Lock()
        self._hiding = Lock()
        """held while ``hidden`` is changed, which two threads do"""
        self.hidden = SequenceSet()
        """own sequences of the messages that are erased and may still stand in a file or in memory"""

    # -- at once --------------------------------------------------------------------------------------------------

    def hide(self, messages: Collection[int]) -> None:
        """From now on these are told as erased."""
        with self._hiding:
            self.hidden.update(messages)

    def redacted_messages(self, found: list[StoredMessage | None]) -> list[StoredMessage | None]:
        """These messages as they are told."""
        hidden, id_key = self.hidden, self._id_key
        if not hidden:
            return found
        return [one if one is None or one[0] not in hidden else erased_message(one, id_key) for one in found]

    def redacted_rows(self, message: int, rows: list[TimedRow]) -> list[TimedRow]:
        """These rows of a message as they are told."""
        if message not in self.hidden:
            return rows
        return [one._replace(row=one.row._replace(detail=b"")) for one in rows]

    def redacted_facts(self, facts: Iterable[Fact]) -> Iterator[Fact]:
        """These facts as they are told."""
        for fact in facts:
            yield redacted(fact, self.hidden, self._id_key) if self.hidden else fact

    # -- on the disk ----------------------------------------------------------------------------------------------

    def in_open_segment(self, messages: Collection[int]) -> bool:
        """Whether the segment that is written to says something of these messages that must go."""
        parts = self._segment_list.parts
        if not parts or parts[-1].active is None:
            return False
        wanted = _as_set(messages)
        places = self._places(parts[-1], _in_order(wanted))
        if not places:
            return False
        data = segment.read_segment(parts[-1].info.path, 0, parts[-1].active.end)
        return bool(self._records(data, places, wanted))

    def erase(self, messages: Collection[int], archive: Archive, before: int | None = None) -> int:
        """Take these out of all sealed segments (that begin before ``before``), of their sidecars, and of the tails
        that were cut off; how many segments were written anew. One at a time; from any thread. Raises as
        ``replace_records``: what was done stays done, and doing it again does the rest."""
        wanted = _as_set(messages)
        in_order = _in_order(wanted)
        count = 0
        with self._erasing:
            for part in self._segment_list.from_segment_of(int(in_order[0])) if wanted else ():
                if part.active is None and (before is None or part.info.base < before):
                    count += self._erase_in(part, wanted, in_order, archive)
            self._unlink_tails()
            first = self._segment_list.oldest
            gone = in_order[: in_order.searchsorted(first)]
            with self._hiding:
                for one in gone.tolist():
                    self.hidden.discard(one)
        return count

    def _unlink_tails(self) -> None:
        tails = list(self._directory.glob(BROKEN))
        if tails:
            with files.new_names(self._directory):  # on return they are gone for good: it is noted next that they are
                for path in tails:
                    path.unlink(missing_ok=True)

    def _erase_in(self, part: Part, messages: SequenceSet, in_order: npt.NDArray[np.int64], archive: Archive) -> bool:
        info = part.info
        places = self._places(part, in_order)
        if not places:
            return False
        noted = [one for one in retention.copies(self._directory) if one.name == info.path.name]
        before = retention.file_crc(info.path) if noted else 0

        def make(data: bytes) -> Mapping[int, bytes]:
            return self._records(data, places, messages)

        try:
            if not replace_records(info.path, make, lambda: self._renaming(info.base)):
                self._segment_list.index(part)  # a crash may have left the sidecar of the time before
                return False
        except FileNotFoundError:
            return False  # retention has taken it
        self._segment_list.rewritten(info)
        self._go_on_archived([one for one in noted if one.crc == before], info.path, archive)
        log.info("syncbrok.log.segment_erased", extra={"file": info.path.name, "records": len(places)})
        return True

    @contextmanager
    def _renaming(self, base: int) -> Iterator[bool]:
        with self._changing:
            yield any(part.info.base == base for part in self._segment_list.parts)

    def _go_on_archived(self, noted: Sequence[retention.Copy], path: Path, archive: Archive) -> None:
        """Note that the facts of the new file are archived where those of the old one were by the pipeline; make the
        broker's own copy again."""
        places = [one.place for one in noted if one.place]
        if places and archive == PIPELINE:
            size, crc = path.stat().st_size, retention.file_crc(path)
            retention.note(self._directory, [retention.Copy(path.name, size, crc, place) for place in places])
        if isinstance(archive, Path) and any(not one.place for one in noted) and (archive / path.name).exists():
            retention.archive_segment(path, archive)

    def _places(self, part: Part, messages: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
        """Where the records stand, from offset to offset, that may say something of these messages, which are in
        order."""
        with suppress(FileNotFoundError):
            index = self._segment_list.index(part)
            first, end = messages.searchsorted((index.base, index.last + 1))
            records = {*messages[first:end].tolist(), *index.records_about(messages[:end])}
            places = (index.extent(one) for one in sorted(records))
            return [place for place in places if place is not None]
        return []

    def _records(self, data: bytes, places: Sequence[tuple[int, int]], messages: SequenceSet) -> dict[int, bytes]:
        """The records that must change, by offset, as they shall be. A damaged one stays."""
        found: dict[int, bytes] = {}
        for start, end in places:
            record = data[start:end]
            if isinstance(decode(record), Decoded):
                written = erased_record(record, messages, self._id_key)
                if written != record:
                    found[start] = written
        return found


def _as_set(messages: Collection[int]) -> SequenceSet:
    """The same as a set that costs a bit for each: there may be millions."""
    return messages if isinstance(messages, SequenceSet) else SequenceSet(messages)


def _in_order(messages: SequenceSet) -> npt.NDArray[np.int64]:
    return np.fromiter(messages, np.int64, len(messages))
