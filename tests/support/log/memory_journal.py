"""Journals that keep nothing on a disk: one in memory, and one whose append is a call over a network.

Both pass ``tests/log/test_journal_port.py`` and ``test_journal_port_faults.py``. They are as plain as they can be:
every question is answered by looking at all facts. They are one subject: what the port of a journal asks.
"""

import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from threading import Event, Lock
from typing import Any, ClassVar, NamedTuple, Self

from syncbrok.log.format.codec import encode_batch
from syncbrok.log.format.erasure import redacted
from syncbrok.log.format.records import SegmentOpened
from syncbrok.model.errors import LogCorrupt, LogFailed, LogFull, LogLocked, LogUnreadable
from syncbrok.model.facts import (
    Carried,
    Fact,
    FactOrRun,
    FactsLost,
    Messages,
    Outcomes,
    Row,
    Snapshot,
    StoredMessage,
    Tried,
)
from syncbrok.model.journal import Damage, JournalOptions, KindName, PreparedBatch, Section, TakeSnapshot, TimedRow
from syncbrok.model.names import MessageId, key_digest, sequence_of

_NO_OTHERS = (StoredMessage, Carried, Outcomes, Snapshot)
_RECORDS_MAX = 200
"""of a section, before a snapshot is due"""


class Batch(NamedTuple):
    """See ``PreparedBatch``."""

    first: int
    last: int
    data: bytes
    facts: tuple[Fact, ...]
    ends: tuple[int, ...]
    """where in ``data`` each fact ends"""
    unit_ends: frozenset[int]
    """sequences of the facts that end a unit"""


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


class MemoryDamage(NamedTuple):
    """See ``Damage``."""

    first: int
    last: int
    message: StoredMessage | None

    @property
    def records(self) -> int:
        return self.last - self.first + 1

    @property
    def survived(self) -> bool:
        return self.message is not None

    def describe(self) -> str:
        return f"fact {self.first} is damaged"


class _Report(NamedTuple):
    clean: bool
    cut_bytes: int


class Kept:
    """What is there however often the journal is opened: its disk."""

    def __init__(self) -> None:
        self.facts: dict[int, Fact] = {}  # in order
        self.sizes: dict[int, int] = {}
        self.unit_ends: set[int] = set()
        """sequences of the facts that end a unit"""
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
        self.rotten: dict[int, bool] = {}
        """the damaged facts, and whether it is beyond knowing what they were"""
        self.unarchived = False
        """the oldest section is not archived and must be first"""
        self.dead = False
        """nothing can be read of it now"""
        self.torn_bytes = 0
        """written of a batch that was not written to its end"""

    def leave(self, left: "Kept", torn: PreparedBatch | None, written: int) -> None:
        """Make ``left`` what a crash leaves of this one: what is durable; or, killed in the middle of an append, all
        there was, and of that batch the facts that were ``written`` (bytes) to their end."""
        through = self.durable if torn is None else self.next - 1
        left.facts = {one: fact for one, fact in self.facts.items() if one <= through}
        left.firsts = [one for one in self.firsts if one <= through]
        left.sizes, left.unit_ends, left.id_key = dict(self.sizes), set(self.unit_ends), self.id_key
        left.opened_us, left.checkpoint, left.rotten = dict(self.opened_us), self.checkpoint, dict(self.rotten)
        left.next, left.clean = through + 1, False
        if torn is not None:
            assert isinstance(torn, Batch)
            left.torn_bytes, begin = written, 0
            left.unit_ends |= torn.unit_ends
            for fact, end in zip(torn.facts, torn.ends, strict=True):
                if end <= written:
                    left.facts[fact.sequence], left.sizes[fact.sequence], begin = fact, end - begin, end

    def recover(self) -> int:
        """Cut off the unit that is not there whole; how many bytes those were. What is left is durable."""
        last = max((one for one in self.facts if one in self.unit_ends), default=0)
        cut = max(self.torn_bytes - sum(self.sizes[one] for one in range(self.next, last + 1)), 0)
        for sequence in [one for one in self.facts if one > last]:
            del self.facts[sequence]
        self.next, self.durable, self.torn_bytes = last + 1, last, 0
        return cut


class MemoryJournal:
    """A ``model.journal.Log``. Made by ``open``, of which each directory has one; nothing is written into it."""

    blocks_long = False

    _of: ClassVar[dict[Path, Kept]] = {}

    def __init__(self, kept: Kept, options: JournalOptions, clock_us: Callable[[], int] = lambda: 0) -> None:
        self._kept = kept
        self._clock_us = clock_us
        self._always = options.sync == "always"
        self._writing = Lock()
        self._failed: LogFailed | None = None
        self._closed = False
        self._looked_for: (
            tuple[tuple[int, int, int, int], tuple[dict[int, StoredMessage], dict[int, list[int]]]] | None
        ) = None
        self._hidden: set[int] = set()
        self._found: set[int] = set()
        """damaged facts that are known as such"""
        self.id_key = kept.id_key
        self.recovery = _Report(kept.clean, kept.recover())
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
        first = alone[0].sequence
        assert [one.sequence for one in alone] == list(range(first, first + len(alone)))
        ends = frozenset(first + one for one in (range(len(alone)) if unit_ends is None else unit_ends))
        return Batch(first, alone[-1].sequence, encoded.data, tuple(alone), tuple(encoded.ends), ends)

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

    def _store(self, batch: Batch | OneSnapshot, essential: bool) -> None:
        kept = self._kept
        if not kept.firsts and isinstance(batch, Batch):
            raise LogFull("there is no section")
        if kept.full and not (essential and kept.reserve > 0):
            raise LogFull("no room, says the test")
        kept.reserve -= kept.full
        kept.facts.update({fact.sequence: fact for fact in batch.facts})
        kept.unit_ends |= batch.unit_ends if isinstance(batch, Batch) else {batch.last}
        kept.sizes[batch.last] = len(batch.data)
        kept.next = batch.last + 1
        if self._always or isinstance(batch, OneSnapshot):
            kept.durable = batch.last
        if isinstance(batch, OneSnapshot):
            kept.opened_us[batch.first] = batch.opened_us
            kept.firsts.append(batch.first)

    def sync(self) -> bool:
        with self._alone():
            self._make_durable()
        return False

    def _make_durable(self) -> None:
        self._kept.durable = self._kept.next - 1

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Who is the only writer. A second one meanwhile is a mistake of the program; none writes after a failure."""
        self._take_turn()
        try:
            self._check_usable()
            yield
        except LogFailed as failed:
            self._failed = failed
            raise
        finally:
            self._writing.release()

    def _take_turn(self) -> None:
        if not self._writing.acquire(blocking=False):
            raise RuntimeError("one writer at a time")

    def _check_usable(self) -> None:
        if self._failed is not None or self._closed:
            raise LogFailed("this journal has failed or is closed")

    def close(self) -> None:
        if not self._closed:
            self._take_turn()
            self._closed, self._kept.locked = True, False
            if not self._failed:
                self._kept.durable, self._kept.clean = self._kept.next - 1, True
            self._writing.release()

    # -- reading in order ---------------------------------------------------------------------------------------------

    def _facts(self) -> list[Fact]:
        """All there are at this moment, in order; more may be appended meanwhile."""
        self._check_readable()
        return list(map(self._as_told, list(self._kept.facts.values())))

    def _as_told(self, fact: Fact) -> Fact:
        return redacted(fact, self._hidden, self.id_key) if self._hidden else fact

    def _check_readable(self) -> None:
        if self._kept.dead:
            raise LogUnreadable("nothing can be read, says the test")

    def facts(self, after: int = 0) -> Iterator[Fact]:
        for fact in self._facts():
            if fact.sequence > after:
                at = fact.sequence
                yield FactsLost(at, fact.time_us, at, at, "rotten") if at in self._kept.rotten else _bare(fact)

    def facts_or_runs(self, after: int = 0) -> Iterator[FactOrRun]:
        for fact in self._facts():
            if fact.sequence > after:
                if fact.sequence in self._kept.rotten and self._told(fact) is None:
                    raise LogCorrupt(f"fact {fact.sequence} is damaged")
                yield _bare(fact)

    def _told(self, fact: Fact) -> StoredMessage | None:
        """A damaged message as far as it is known."""
        message = fact.message if isinstance(fact, Carried) else fact
        if not isinstance(message, StoredMessage) or self._kept.rotten[fact.sequence]:
            return None
        return message._replace(content=b"")

    def inherited(self) -> Iterator[Fact]:
        oldest = self.first_sequence
        if oldest <= 1:
            return
        carried = {fact.message.sequence: fact for fact in self._facts() if isinstance(fact, Carried)}
        first, newest = (self._kept.facts[self._kept.firsts[at]] for at in (0, -1))
        assert isinstance(first, Snapshot)
        assert isinstance(newest, Snapshot)
        yield first._replace(bad=tuple(one for one in newest.bad if one[0] not in carried))
        for own in sorted(carried):
            if own < oldest and not self._kept.rotten.get(carried[own].sequence):
                yield _bare(carried[own])

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def save_checkpoint(self, through: int, parts: Mapping[str, bytes]) -> None:
        self._check_usable()
        self._check_readable()
        if through not in self._kept.facts or self._kept.rotten.get(through):
            raise OSError(f"there is no fact {through}, or nobody can tell which")
        if through <= self._kept.durable:
            self._kept.checkpoint = (through, dict(parts))

    def load_checkpoint(self) -> tuple[int, dict[str, bytes]] | None:
        saved = self._kept.checkpoint
        return saved if saved is not None and saved[0] in self._kept.facts else None

    # -- questions ----------------------------------------------------------------------------------------------------

    def _record(self, own: int) -> StoredMessage | Carried | None:
        """The fact that tells of the message with this sequence: its own, or the newest that carries it."""
        self._check_readable()
        if own >= self.first_sequence:
            fact = self._kept.facts.get(own)
            return self._as_told(fact) if isinstance(fact, StoredMessage) else None  # type: ignore[return-value]
        carried = (one for one in reversed(self._facts()) if isinstance(one, Carried))
        return next((one for one in carried if one.message.sequence == own), None)

    def _records(self) -> dict[int, StoredMessage | Carried]:
        """The same of all messages, by their own sequences, lowest first."""
        found: dict[int, StoredMessage | Carried] = {}
        for fact in self._facts():
            if isinstance(fact, StoredMessage):
                found[fact.sequence] = fact
            elif isinstance(fact, Carried) and fact.message.sequence < self.first_sequence:
                found[fact.message.sequence] = fact
        return dict(sorted(found.items()))

    def _known(self) -> tuple[dict[int, StoredMessage], dict[int, list[int]]]:
        """All messages of which something is known, by their own sequences, and the children of each; lowest first.
        They are looked for once for as long as the facts are the same."""
        self._check_readable()
        state = (self._kept.next, self.first_sequence, len(self._kept.rotten), len(self._hidden))
        if self._looked_for is None or self._looked_for[0] != state:
            messages, children = dict[int, StoredMessage](), dict[int, list[int]]()
            for own, fact in self._records().items():
                message = fact.message if isinstance(fact, Carried) else fact
                known = self._told(fact) if fact.sequence in self._kept.rotten else message
                if known is not None:
                    messages[own] = known
                    for parent in dict.fromkeys(map(sequence_of, known.parents)):
                        children.setdefault(parent, []).append(own)
            self._looked_for = state, (messages, children)
        return self._looked_for[1]

    def cached(self, sequence: int) -> StoredMessage | None:
        fact = self._kept.facts.get(sequence)
        gone = sequence in self._kept.rotten or sequence in self._hidden
        return fact if isinstance(fact, StoredMessage) and not gone else None

    def cached_many(self, sequences: Sequence[int]) -> list[StoredMessage | None]:
        return [self.cached(sequence) for sequence in sequences]

    def in_memory(self, sequence: int) -> bool:
        return sequence in self._kept.facts and sequence not in self._kept.rotten

    def read_many(self, sequences: Sequence[int], bytes_max: int | None = None) -> list[StoredMessage | None]:
        found: list[StoredMessage | None] = []
        for sequence in sequences:
            if bytes_max is not None and sum(len(one.content) for one in found if one is not None) >= bytes_max:
                break
            record = self._record(sequence)
            message = record.message if isinstance(record, Carried) else record
            found.append(None if record is None or record.sequence in self._kept.rotten else message)
        return found

    def kind_of(self, sequence: int) -> KindName:
        if not 0 < sequence < self._kept.next:
            return "unknown"
        record = self._record(sequence)
        if record is not None:
            return "lost" if record.sequence in self._kept.rotten else "message"
        return "dropped" if sequence < self.first_sequence else "other"

    def lost(self, sequence: int) -> StoredMessage | None:
        record = self._record(sequence)
        return None if record is None or record.sequence not in self._kept.rotten else self._told(record)

    def place_of(self, sequence: int) -> tuple[MessageId, int] | None:
        record = self._record(sequence)
        message = record.message if isinstance(record, Carried) else record
        unknown = record is None or self._kept.rotten.get(record.sequence)
        return None if message is None or unknown else (message.id, message.queue)

    def places_of(self, sequences: Sequence[int]) -> list[tuple[MessageId, int] | None]:
        return [self.place_of(one) for one in sequences]

    def rows_of(self, sequence: int) -> list[tuple[int, Row]]:
        whole = [fact for fact in self._facts() if fact.sequence not in self._kept.rotten]
        outcomes = [fact for fact in whole if isinstance(fact, Outcomes)]
        return [(fact.sequence, row) for fact in outcomes for row in fact.rows if row.message == sequence]

    def carried_tries(self, sequence: int) -> tuple[Tried, ...]:
        whole = [fact for fact in self._facts() if fact.sequence not in self._kept.rotten]
        carried = [fact for fact in whole if isinstance(fact, Carried) and fact.message.sequence == sequence]
        return carried[-1].tried if carried else ()

    def timed_rows_of(self, sequence: int) -> list[TimedRow]:
        times_us = {fact.sequence: fact.time_us for fact in self._facts()}
        return [TimedRow(record, times_us[record], row) for record, row in self.rows_of(sequence)]

    def timed_rows_of_many(self, sequences: Sequence[int]) -> list[list[TimedRow]]:
        return [self.timed_rows_of(sequence) for sequence in sequences]

    def children_of(self, sequence: int, limit: int) -> list[int]:
        return self._known()[1].get(sequence, [])[:limit]

    def queue_sequences(self, queue: int, after: int, limit: int) -> list[int]:
        return [one for one, its in self._known()[0].items() if its.queue == queue and one > after][:limit]

    def sequences_between(
        self, queues: Collection[int] | None, after: int, before: int, limit: int, *, newest_first: bool
    ) -> list[int]:
        known = self._known()[0].items()
        found = [at for at, one in known if after < at < before and (queues is None or one.queue in queues)]
        return (found[::-1] if newest_first else found)[:limit]

    def others_between(
        self, after: int, before: int, limit: int, *, newest_first: bool
    ) -> list[tuple[int, Fact | None]]:
        some = [one for one in self._facts() if after < one.sequence < before and not isinstance(one, _NO_OTHERS)]
        found = [(one.sequence, None if one.sequence in self._kept.rotten else one) for one in some]
        return (found[::-1] if newest_first else found)[:limit]

    def first_at(self, time_us: int) -> int:
        return next((one.sequence for one in self._facts() if one.time_us >= time_us), self.next_sequence)

    def with_key(self, key: str, queue: int | None, limit: int, before: int | None = None) -> list[int]:
        found = self._of_queue(queue)
        return [one.sequence for one in found if one.key == key and (before is None or one.sequence < before)][:limit]

    def with_idempotency_key(self, key: str, queue: int | None, since_us: int) -> list[int]:
        found = self._of_queue(queue)
        known = (key, key_digest(key, self.id_key))
        return [one.sequence for one in found if one.idempotency_key in known and one.time_us >= since_us]

    def _of_queue(self, queue: int | None) -> list[StoredMessage]:
        """Newest first."""
        return [one for one in reversed(self._known()[0].values()) if queue in (None, one.queue)]

    # -- sections -----------------------------------------------------------------------------------------------------

    def sections(self) -> tuple[MemorySection, ...]:
        return tuple(map(self._section, range(len(self._kept.firsts))))

    def _section(self, at: int) -> MemorySection:
        first = self._kept.firsts[at]
        sealed = at + 1 < len(self._kept.firsts)
        last = (self._kept.firsts[at + 1] if sealed else self._kept.next) - 1
        # A copy is made in one go. A list of the items is not: it makes tuples, so the collector may run in between,
        # and with it whoever listens to that, and then another thread.
        sizes = self._kept.sizes.copy()
        size = sum(bytes_ for end, bytes_ in sizes.items() if first <= end <= last)
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
        return self._kept.unarchived

    def stands_in(self, section: Section, messages: Sequence[int]) -> bool:
        records = [record for one in messages if (record := self._record(one)) is not None]
        return any(section.first <= record.sequence <= section.last for record in records)

    def trim_oldest(self) -> None:
        self._check_usable()
        assert len(self._kept.firsts) > 1, "the last section stays"
        if self._kept.unarchived:
            raise OSError("the oldest section is not archived")
        self._decide_trim()
        del self._kept.firsts[0]
        for sequence in [one for one in self._kept.facts if one < self._kept.firsts[0]]:
            del self._kept.facts[sequence]

    def _decide_trim(self) -> None:
        """From here on the oldest section is gone. Whatever it raises, it stays."""

    def sweep(self, now_us: int) -> None:
        """Nothing is left."""

    def hide(self, messages: Collection[int]) -> None:
        self._hidden |= {*messages}

    def erase_waits_for_snapshot(self, messages: Collection[int], through: int) -> bool:
        facts = [fact for one, fact in self._kept.facts.items() if one >= self._kept.firsts[-1]]
        return any(redacted(fact, messages, self.id_key) != fact for fact in facts)

    def erase(self, messages: Collection[int]) -> int:
        self._check_usable()
        rewritten: set[int] = set()
        for section in self.sections()[:-1]:
            for sequence in range(section.first, section.last + 1):
                fact = self._kept.facts[sequence]
                told = redacted(fact, messages, self.id_key)
                if told != fact:
                    self._kept.facts[sequence] = told
                    rewritten.add(section.first)
        return len(rewritten)

    def check(self, section: Section) -> None:
        self._found |= {one for one in self._kept.rotten if section.first <= one <= section.last}

    @property
    def damages(self) -> Mapping[int, Sequence[Damage]]:
        facts = self._kept.facts
        told = {one: MemoryDamage(one, one, self._told(facts[one])) for one in sorted(self._found) if one in facts}
        by_section = {
            section.first: [damage for one, damage in told.items() if section.first <= one <= section.last]
            for section in self.sections()
        }
        return {first: damages for first, damages in by_section.items() if damages}

    @property
    def damaged(self) -> Mapping[str, str]:
        return {f"section {first}": some[0].describe() for first, some in self.damages.items()}


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


def _bare(fact: Fact) -> Fact:
    """As it is read in order: without content."""
    if isinstance(fact, StoredMessage):
        return fact._replace(content=b"")
    return fact._replace(message=fact.message._replace(content=b"")) if isinstance(fact, Carried) else fact
