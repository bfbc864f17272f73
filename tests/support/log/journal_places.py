"""Where the journal of one test stands: files, memory, or behind a network. It is opened, has no room or fails when
the test says so, rots, crashes, and is opened again.

``PLACES`` are those that each test of the port is asked of. A journal is added there: its ``Place`` says how such
things happen to it.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Literal

from syncbrok.log.journal import FileJournal
from syncbrok.log.reading.recent import Batch, OpeningBatch
from syncbrok.log.segments import retention, watermark
from syncbrok.log.segments.options import PIPELINE
from syncbrok.log.segments.segment import ActiveSegment, segment_path
from syncbrok.model.errors import LogFailed, LogFull
from syncbrok.model.journal import JournalOptions, PreparedBatch, Section
from tests.support.disk import rot
from tests.support.disk.bad_sector import dead_disk
from tests.support.log.journals import Clock, append_snapshot, opened
from tests.support.log.memory_journal import MemoryJournal, RemoteJournal

SEGMENT_BYTES = 64 * 1024


def _nothing() -> None:
    pass


class _Gate:
    """The segment that is written to, where there is room for it."""

    def __init__(self, active: ActiveSegment, take_room: Callable[[], None]) -> None:
        self._active = active
        self._take_room = take_room

    def append(self, data: bytes, records: int, time_us: int) -> None:
        self._take_room()
        self._active.append(data, records, time_us)


class HeldFiles(FileJournal):
    """The one in files, whose disk is full or slow when the test says so."""

    full = False
    essential_room = 0
    """writes that fit in where the disk is full, once the reserve was given back to it"""
    trim_problem: Exception | None = None
    before_append: Callable[[], object] = staticmethod(_nothing)
    after_append: Callable[[], object] = staticmethod(_nothing)

    def _append(self, active: Any, batch: Batch, *, essential: bool) -> None:
        self.before_append()
        super()._append(_Gate(active, self._take_room), batch, essential=essential)  # type: ignore[arg-type]
        self.after_append()

    def _begin(self, batch: OpeningBatch) -> ActiveSegment:
        self._take_room()
        return super()._begin(batch)

    def _save_mark(self, *, clean: bool, oldest: int) -> None:
        if self.trim_problem is not None:
            raise self.trim_problem
        super()._save_mark(clean=clean, oldest=oldest)

    def _take_room(self) -> None:
        if self.full:
            if (self._directory / "reserve").exists() or not self.essential_room:
                raise LogFull("no room, says the test")
            self.essential_room -= 1

    def has_room(self) -> bool:
        return not self.full and super().has_room()


class _HeldStore(MemoryJournal):
    broken = False
    trim_problem: Exception | None = None
    before_append: Callable[[], object] = staticmethod(_nothing)
    after_append: Callable[[], object] = staticmethod(_nothing)

    def _store(self, batch: Any, essential: bool) -> None:
        self.before_append()
        if self.broken:
            raise LogFailed("it is broken, says the test")
        super()._store(batch, essential)
        self.after_append()

    def _make_durable(self) -> None:
        if self.broken:
            raise LogFailed("it is broken, says the test")
        super()._make_durable()

    def _decide_trim(self) -> None:
        if self.trim_problem is not None:
            raise self.trim_problem


class HeldMemory(_HeldStore):
    """The one in memory, slow when the test says so."""


class HeldRemote(_HeldStore, RemoteJournal):
    """The one behind a network, likewise."""


class Place:
    """See the module. ``clock`` is the wall clock of all that are opened here."""

    refetches: ClassVar[bool] = False
    """what was cut off at a start comes back from elsewhere"""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = Clock()
        self.open_ones: list[Any] = []
        self._crashes = 0

    def open(self, *, begun: bool = True, sync: Literal["always", "interval"] = "always") -> Any:
        """``begun``: with the snapshot that it may want."""
        journal = self._open(JournalOptions(sync), self.clock)
        self.open_ones.append(journal)
        if begun and journal.wants_snapshot:
            append_snapshot(journal)
        return journal

    def open_for_space(
        self,
        directory: Path,
        options: JournalOptions,
        clock_us: Callable[[], int],
        progress: Callable[[int, int], None] | None = None,
    ) -> Any:
        """As a Space opens its journal."""
        journal = self._open(options, clock_us)
        self.open_ones.append(journal)
        return journal

    def close(self) -> None:
        """All that were opened."""
        for journal in self.open_ones:
            journal.close()

    def crash(self, torn: PreparedBatch | None = None, written: int = 0) -> None:
        """What is opened next is what power loss or ``kill -9`` leaves: with ``torn``, in the middle of the append of
        that batch, when so many of its bytes had been written. What is open stays so, beside it."""
        self._crashes += 1
        left = self.directory.with_name(f"log left by crash {self._crashes}")
        self._leave(left, torn, written)
        self.directory = left

    def _open(self, options: JournalOptions, clock_us: Callable[[], int]) -> Any:
        raise NotImplementedError

    def _leave(self, left: Path, torn: PreparedBatch | None, written: int) -> None:
        raise NotImplementedError

    def fill(self, *, full: bool, essential: int = 0) -> None:
        """Whether there is no room for anything but so many essential batches."""
        raise NotImplementedError

    def break_down(self) -> None:
        """From now on whatever is written to the journals that are open fails."""
        raise NotImplementedError

    def damage(self, sequence: int, *, beyond_knowing: bool = False) -> None:
        """The record of this sequence in a sealed section rots, while nobody has the log open: its content, or so much
        that nobody can tell what it was."""
        raise NotImplementedError

    def unreadable(self) -> AbstractContextManager[None]:
        """Nothing of the log can be read meanwhile."""
        raise NotImplementedError

    @contextmanager
    def no_trimming(self, problem: Exception) -> Iterator[None]:
        """Saying that a section is trimmed ends in this meanwhile."""
        for journal in self.open_ones:
            journal.trim_problem = problem
        yield
        for journal in self.open_ones:
            journal.trim_problem = None

    def must_be_archived(self) -> None:
        """Sections of the journals that are open go once they are archived, which none is."""
        raise NotImplementedError

    def archive(self, section: Section) -> None:
        """The oldest section is archived now."""
        raise NotImplementedError

    def seen_beside(self) -> int:
        """The last sequence that a reader beside the process knows to be durable."""
        raise NotImplementedError


class Files(Place):
    """In a directory."""

    def _open(self, options: JournalOptions, clock_us: Callable[[], int]) -> HeldFiles:
        self.directory.mkdir(exist_ok=True)
        in_files = {"segment_bytes": SEGMENT_BYTES, "reserve_bytes": 4_096}
        journal: HeldFiles = opened(HeldFiles, self.directory, clock_us, **options._asdict(), **in_files)
        return journal

    def _leave(self, left: Path, torn: PreparedBatch | None, written: int) -> None:
        left.mkdir()
        for path in sorted(self.directory.iterdir()):
            with suppress(FileNotFoundError):  # beside the writer, a checkpoint may be getting its name
                shutil.copyfile(path, left / path.name)
        if torn is not None:
            active = next(one for one in self.open_ones if one._directory == self.directory).sections()[-1]
            with (left / active.name).open("r+b") as file:
                file.seek(active.bytes)
                file.write(torn.data[:written])

    def fill(self, *, full: bool, essential: int = 0) -> None:
        for journal in self.open_ones:
            journal.full, journal.essential_room = full, essential

    def break_down(self) -> None:
        """What is written goes to a file that can neither be written nor synced."""
        nowhere = os.open(os.devnull, os.O_RDONLY)
        for journal in self.open_ones:
            if journal._active is not None and not journal._writing.closed:
                os.dup2(nowhere, journal._active._descriptor)
        os.close(nowhere)

    def damage(self, sequence: int, *, beyond_knowing: bool = False) -> None:
        path = [one for one in rot.segments(self.directory) if int(one.stem) <= sequence][-1]
        record = next(one for one in rot.records(path) if one.sequence == sequence)
        for at in range(record.at, record.at + 8) if beyond_knowing else (record.content_at,):
            rot.flip(path, at)

    def unreadable(self) -> AbstractContextManager[None]:
        return dead_disk(self.directory)

    def must_be_archived(self) -> None:
        for journal in self.open_ones:
            journal._files = journal._files._replace(archive=PIPELINE)

    def archive(self, section: Section) -> None:
        path = segment_path(self.directory, section.first)
        retention.note(self.directory, [retention.Copy(path.name, section.bytes, retention.file_crc(path), "facts")])

    def seen_beside(self) -> int:
        mark = watermark.read(self.directory)
        return mark.durable if mark is not None else 0


class Memory(Place):
    """In memory, by the name of a directory."""

    kind: ClassVar[type[_HeldStore]] = HeldMemory

    def _open(self, options: JournalOptions, clock_us: Callable[[], int]) -> _HeldStore:
        return self.kind.open(self.directory, options, clock_us)

    def _leave(self, left: Path, torn: PreparedBatch | None, written: int) -> None:
        self.kind.kept_of(self.directory).leave(self.kind.kept_of(left), torn, written)

    def fill(self, *, full: bool, essential: int = 0) -> None:
        kept = self.kind.kept_of(self.directory)
        kept.full, kept.reserve = full, essential

    def break_down(self) -> None:
        for journal in self.open_ones:
            journal.broken = True

    def damage(self, sequence: int, *, beyond_knowing: bool = False) -> None:
        self.kind.kept_of(self.directory).rotten[sequence] = beyond_knowing

    @contextmanager
    def unreadable(self) -> Iterator[None]:
        kept = self.kind.kept_of(self.directory)
        kept.dead = True
        yield
        kept.dead = False

    def must_be_archived(self) -> None:
        self.kind.kept_of(self.directory).unarchived = True

    def archive(self, section: Section) -> None:
        self.kind.kept_of(self.directory).unarchived = False

    def seen_beside(self) -> int:
        return self.kind.kept_of(self.directory).durable


class Remote(Memory):
    """Behind a network."""

    kind = HeldRemote


PLACES: dict[str, type[Place]] = {"files": Files, "memory": Memory, "remote": Remote}


@contextmanager
def placed(name: str, directory: Path) -> Iterator[Place]:
    """The place of this name, whose journals are closed in the end."""
    place = PLACES[name](directory / "log")
    try:
        yield place
    finally:
        place.close()
