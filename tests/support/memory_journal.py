"""Journals that keep nothing on a disk: one in memory, and one whose append is a call over a network.

Both pass ``tests/log/test_journal_port.py``. They are as plain as they can be: every question is answered by looking at
all facts.
"""

import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from threading import Event, Lock
from typing import Any, ClassVar, NamedTuple, Self

from syncbrok.log.format.codec import encode_batch
from syncbrok.log.format.records import SegmentOpened
from syncbrok.model.errors import LogFailed, LogFull, LogLocked
from syncbrok.model.facts import Carried, Fact, FactOrRun, Messages, Outcomes, Published, Row, Snapshot
from syncbrok.model.journal import Damage, JournalOptions, KindName, PreparedBatch, Section, TakeSnapshot
from syncbrok.model.names import MessageId, sequence_of

_RECORDS_MAX = 200
"""of a section, before a snapshot is due"""


class Batch(NamedTuple):
    """See ``PreparedBatch``."""

    first: int
    last: int
    data: bytes
    facts: tuple[Fact, ...]


class OneSnapshot(NamedTuple):
    """See ``PreparedSnapshot``."""

    first: int
    last: int
    data: bytes
    facts: tuple[Snapshot]
    opened_us: int

    @property
    def snapshot(self) -> Snapshot:
        return self.facts[0]


class MemorySection(NamedTuple):
    """See ``Section``."""

    name: str
    first: int
    last: int
    bytes: int
    records: int
    first_time_us: int
    last_time_us: int
    sealed: bool


class _Report(NamedTuple):
    clean: bool
    cut_bytes: int


class Kept:
    """What is there however often the journal is opened: its disk."""

    def __init__(self) -> None:
        self.facts: dict[int, Fact] = {}  # in order
        self.sizes: dict[int, int] = {}
        self.firsts: list[int] = []
        """of the sections"""
        self.opened_us: dict[int, int] = {}
        """by the first of each section"""
        self.next = 1
        self.durable = 0
        self.checkpoint: tuple[int, dict[str, bytes]] | None = None
        self.id_key = bytes(range(16))
        self.clean = True
        self.locked = False
        self.full = False
        self.reserve = 0
        """essential batches that still fit in where it is full"""

    def crash(self) -> None:
        """Power is lost: what is not durable is gone."""
        for sequence in [one for one in self.facts if one > self.durable]:
            del self.facts[sequence]
        self.firsts = [one for one in self.firsts if one <= self.durable]
        self.next, self.locked, self.clean = self.durable + 1, False, False


class MemoryJournal:
    """A ``model.journal.Log``. Made by ``open``, of which each directory has one; nothing is written into it."""

    _of: ClassVar[dict[Path, Kept]] = {}

    def __init__(self, kept: Kept, options: JournalOptions, clock_us: Callable[[], int] = lambda: 0) -> None:
        self._kept = kept
        self._clock_us = clock_us
        self._always = options.sync == "always"
        self._writing = Lock()
        self._failed = self._closed = False
        self.id_key = kept.id_key
        self.recovery = _Report(kept.clean, 0)
        kept.clean, kept.locked = False, True

    @classmethod
    def open(
        cls,
        directory: Path,
        options: JournalOptions,
        clock_us: Callable[[], int],
        progress: Callable[[int, int], None] | None = None,
    ) -> Self:
        kept = cls._of.setdefault(directory, Kept())
        if kept.locked:
            raise LogLocked(f"the log of {directory} is open already")
        return cls(kept, options, clock_us)

    @classmethod
    def kept_of(cls, directory: Path) -> Kept:
        return cls._of.setdefault(directory, Kept())

    # -- numbers ------------------------------------------------------------------------------------------------------

    @property
    def first_sequence(self) -> int:
        return self._kept.firsts[0] if self._kept.firsts else 1

    @property
    def next_sequence(self) -> int:
        return self._kept.next

    @property
    def durable_sequence(self) -> int:
        return self._kept.durable

    @property
    def wants_snapshot(self) -> bool:
        return not self._kept.firsts or self._kept.next - self._kept.firsts[-1] >= _RECORDS_MAX

    def has_room(self) -> bool:
        return not self._kept.full

    # -- appending ----------------------------------------------------------------------------------------------------

    def prepare(self, facts: Sequence[FactOrRun], unit_ends: Collection[int] | None = None) -> Batch:
        encoded: Any = encode_batch(facts, batch=1, synced_through=0, unit_ends=unit_ends)
        alone = [one for fact in facts for one in (fact.messages() if isinstance(fact, Messages) else (fact,))]
        assert [one.sequence for one in alone] == list(range(alone[0].sequence, alone[0].sequence + len(alone)))
        return Batch(alone[0].sequence, alone[-1].sequence, encoded.data, tuple(alone))

    def prepare_snapshot(self, take: TakeSnapshot, time_us: int) -> OneSnapshot:
        opened_us, sequence = self._clock_us(), self._kept.next
        snapshot = take(sequence, time_us)
        data = encode_batch((SegmentOpened.of(snapshot, opened_us),), batch=1, synced_through=0).data
        return OneSnapshot(sequence, sequence, data, (snapshot,), opened_us)

    def append(self, batch: PreparedBatch, *, essential: bool = False) -> None:
        assert isinstance(batch, Batch | OneSnapshot)
        with self._alone():
            assert batch.first == self._kept.next, f"batch {batch.first}, next is {self._kept.next}"
            self._store(batch, essential)
            if isinstance(batch, OneSnapshot):
                self._kept.firsts.append(batch.first)
                self._kept.opened_us[batch.first] = batch.opened_us
                self._kept.durable = batch.first

    def _store(self, batch: Batch | OneSnapshot, essential: bool) -> None:
        kept = self._kept
        if kept.full and not (essential and kept.reserve > 0):
            raise LogFull("no room, says the test")
        kept.reserve -= kept.full
        kept.facts.update({fact.sequence: fact for fact in batch.facts})
        kept.sizes[batch.last] = len(batch.data)
        kept.next = batch.last + 1
        if self._always:
            kept.durable = batch.last

    def sync(self) -> bool:
        with self._alone():
            self._kept.durable = self._kept.next - 1
        return False

    def _alone(self) -> "_Alone":
        if self._failed or self._closed:
            raise LogFailed("this journal has failed or is closed")
        return _Alone(self._writing)

    def close(self) -> None:
        if not self._closed:
            self._closed, self._kept.locked = True, False
            if not self._failed:
                self._kept.durable, self._kept.clean = self._kept.next - 1, True

    # -- reading in order ---------------------------------------------------------------------------------------------

    def facts(self, after: int = 0) -> Iterator[Fact]:
        for fact in list(self._kept.facts.values()):
            if fact.sequence > after:
                yield _bare(fact)

    def facts_or_runs(self, after: int = 0) -> Iterator[FactOrRun]:
        return self.facts(after)

    def inherited(self) -> Iterator[Fact]:
        oldest = self.first_sequence
        if oldest <= 1:
            return
        carried = {fact.message.sequence: fact for fact in self._kept.facts.values() if isinstance(fact, Carried)}
        first, newest = (self._kept.facts[self._kept.firsts[at]] for at in (0, -1))
        assert isinstance(first, Snapshot)
        assert isinstance(newest, Snapshot)
        yield first._replace(bad=tuple(one for one in newest.bad if one[0] not in carried))
        for own in sorted(carried):
            if own < oldest:
                yield _bare(carried[own])

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def save_checkpoint(self, through: int, parts: Mapping[str, bytes]) -> None:
        if through not in self._kept.facts:
            raise OSError(f"there is no fact {through}")
        if through <= self._kept.durable:
            self._kept.checkpoint = (through, dict(parts))

    def load_checkpoint(self) -> tuple[int, dict[str, bytes]] | None:
        saved = self._kept.checkpoint
        return saved if saved is not None and saved[0] in self._kept.facts else None

    # -- questions ----------------------------------------------------------------------------------------------------

    def _messages(self) -> dict[int, Published]:
        """All that can be read, by their own sequences, lowest first."""
        found = {}
        for fact in self._kept.facts.values():
            if isinstance(fact, Published):
                found[fact.sequence] = fact
            elif isinstance(fact, Carried) and fact.message.sequence not in found:
                found[fact.message.sequence] = fact.message
        return dict(sorted(found.items()))

    def cached(self, sequence: int) -> Published | None:
        fact = self._kept.facts.get(sequence)
        return fact if isinstance(fact, Published) else None

    def cached_many(self, sequences: Sequence[int]) -> list[Published | None]:
        return [self.cached(sequence) for sequence in sequences]

    def in_memory(self, sequence: int) -> bool:
        return sequence in self._kept.facts

    def read_many(self, sequences: Sequence[int], bytes_max: int | None = None) -> list[Published | None]:
        found: list[Published | None] = []
        messages = self._messages()
        for sequence in sequences:
            if bytes_max is not None and sum(len(one.content) for one in found if one is not None) >= bytes_max:
                break
            found.append(messages.get(sequence))
        return found

    def kind_of(self, sequence: int) -> KindName:
        if not 0 < sequence < self._kept.next:
            return "unknown"
        if sequence < self.first_sequence:
            return "message" if sequence in self._messages() else "dropped"
        return "message" if isinstance(self._kept.facts[sequence], Published) else "other"

    def lost(self, sequence: int) -> Published | None:
        return None

    def place_of(self, sequence: int) -> tuple[MessageId, int] | None:
        message = self._kept.facts.get(sequence)
        return (message.id, message.queue) if isinstance(message, Published) else None

    def rows_of(self, sequence: int) -> list[tuple[int, Row]]:
        outcomes = [fact for fact in self._kept.facts.values() if isinstance(fact, Outcomes)]
        return [(fact.sequence, row) for fact in outcomes for row in fact.rows if row.message == sequence]

    def children_of(self, sequence: int, limit: int) -> list[int]:
        return [one for one, its in self._messages().items() if sequence in map(sequence_of, its.parents)][:limit]

    def queue_sequences(self, queue: int, after: int, limit: int) -> list[int]:
        return [one for one, its in self._messages().items() if its.queue == queue and one > after][:limit]

    def with_key(self, key: str, queue: int | None, limit: int, before: int | None = None) -> list[int]:
        found = self._of_queue(queue)
        return [one.sequence for one in found if one.key == key and (before is None or one.sequence < before)][:limit]

    def with_idempotency_key(self, key: str, queue: int | None, since_us: int) -> list[int]:
        found = self._of_queue(queue)
        return [one.sequence for one in found if one.idempotency_key == key and one.time_us >= since_us]

    def _of_queue(self, queue: int | None) -> list[Published]:
        """Newest first."""
        return [one for one in reversed(self._messages().values()) if queue in (None, one.queue)]

    # -- sections -----------------------------------------------------------------------------------------------------

    def sections(self) -> tuple[MemorySection, ...]:
        return tuple(map(self._section, range(len(self._kept.firsts))))

    def _section(self, at: int) -> MemorySection:
        first = self._kept.firsts[at]
        sealed = at + 1 < len(self._kept.firsts)
        last = (self._kept.firsts[at + 1] if sealed else self._kept.next) - 1
        size = sum(bytes_ for end, bytes_ in self._kept.sizes.items() if first <= end <= last)
        times = (self._kept.facts[one].time_us for one in (first, last))
        return MemorySection(f"section {first}", first, last, size, last - first + 1, *times, sealed)

    def opened_us(self, section: Section) -> int:
        return self._kept.opened_us[section.first] or section.first_time_us

    def sealed_us(self, section: Section) -> int:
        following = next((one for one in self.sections() if one.first == section.last + 1), None)
        return section.last_time_us if following is None else self.opened_us(following)

    def expired(self, before_us: int) -> tuple[MemorySection, ...]:
        return tuple(takewhile(lambda one: one.sealed and self.sealed_us(one) < before_us, self.sections()[:-1]))

    def held_back(self, section: Section) -> bool:
        return False

    def stands_in(self, section: Section, messages: Sequence[int]) -> bool:
        if any(section.first <= one <= section.last for one in messages):
            return True
        gone = [one for one in messages if one < self.first_sequence]
        its = [self._kept.facts[one] for one in range(section.first, section.last + 1)]
        return any(isinstance(fact, Carried) and fact.message.sequence in gone for fact in its)

    def trim_oldest(self) -> None:
        assert len(self._kept.firsts) > 1, "the last section stays"
        del self._kept.firsts[0]
        for sequence in [one for one in self._kept.facts if one < self._kept.firsts[0]]:
            del self._kept.facts[sequence]

    def sweep(self, now_us: int) -> None:
        """Nothing is left."""

    def check(self, section: Section) -> None:
        """Nothing rots here."""

    @property
    def damages(self) -> Mapping[int, Sequence[Damage]]:
        return {}

    @property
    def damaged(self) -> Mapping[str, str]:
        return {}


class RemoteJournal(MemoryJournal):
    """One that is far away: an append takes as long as a call over a network does, and the answer may be "unknown":
    then it was stored or not. It asks until it knows; its caller hears of nothing but the end."""

    slowest_s = 0.01
    """of a call; a network would take 0.3"""

    def __init__(self, kept: Kept, options: JournalOptions, clock_us: Callable[[], int] = lambda: 0) -> None:
        super().__init__(kept, options, clock_us)
        self._chance = random.Random(kept.next)
        self._network = Event()  # never set: a call takes its time
        self.unknown = 0

    def _store(self, batch: Batch | OneSnapshot, essential: bool) -> None:
        while self._kept.next <= batch.last:  # what is there last: mine, or what mine is to follow
            self._network.wait(self._chance.uniform(0.001, self.slowest_s))
            fate = self._chance.random()
            if fate < 0.2:
                self.unknown += 1  # it never arrived
                continue
            super()._store(batch, essential)
            if fate < 0.4:
                self.unknown += 1  # it did, and the answer was lost


class _Alone:
    """Who is the only writer. A second one meanwhile is a mistake of the program."""

    def __init__(self, writing: Lock) -> None:
        self._writing = writing

    def __enter__(self) -> None:
        if not self._writing.acquire(blocking=False):
            raise RuntimeError("one writer at a time")

    def __exit__(self, *_: object) -> None:
        self._writing.release()


def _bare(fact: Fact) -> Fact:
    """As it is read in order: without content."""
    if isinstance(fact, Published):
        return fact._replace(content=b"")
    return fact._replace(message=fact.message._replace(content=b"")) if isinstance(fact, Carried) else fact
