"""The ports of the log: the promises of a journal, wherever it keeps its facts. A port for each kind.

    Journal       appends facts, says what is durable, gives them back in order, keeps the checkpoint
    MessageIndex  answers questions about messages and their rows by sequence or key
    Sections      says what may be trimmed, trims it, and looks for damage
    Erasure       hides what was erased, and takes it off the disk
    Follower      keeps a copy of a log that is written elsewhere, byte for byte

A Space stands on the first four. The fifth is for whoever keeps copies of one log: no copy is ever ahead of what it
was given, none is cut back, and a section that has ended is the same bytes in each.

``log.journal.FileJournal`` keeps them in segment files. ``tests/log/test_journal_port.py`` and
``test_journal_port_faults.py`` beside it are what each implementation passes: that one, one in memory, and one whose
append is a call over a network and may be answered "unknown".

For all of them: sequences number the facts from 1 without gaps, in the order in which they were appended; a journal may
use some itself (for a seal). Messages are read without their content, unless a method says otherwise.

``LogFailed`` of ``append`` or ``sync`` is final: from then on these, ``save_checkpoint`` and ``trim_oldest`` raise it,
and only ``close`` is left. What was durable before is there when the log is opened again; behind it may be facts that
were being appended, in whole units.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, Protocol, runtime_checkable

from syncbrok.model import limits
from syncbrok.model.facts import Fact, FactOrRun, Row, Snapshot, StoredMessage, Tried
from syncbrok.model.names import MessageId

KindName = Literal["message", "other", "dropped", "lost", "unknown"]
"""of a record: ``dropped`` by retention, ``lost`` to damage or in a gap that salvage left, ``unknown``: not written"""


QUORUM: Final = "quorum"
QUORUM_LOCAL: Final = "quorum+local"
QUORUM_FOLLOWER: Final = "quorum+follower"
"""Who has a batch of a replicated log when its publishers are answered: a quorum of the engine has fsynced it; and the
leader's own file is fsynced too; and another broker has it in its file too."""


class JournalOptions(NamedTuple):
    """The policies that a Space asks of its journal. ``sync``: ``always`` (a batch is durable when ``append`` returns)
    or ``interval`` (when ``sync`` does, which the Space calls every ``interval_ms``; what was written since may be lost
    with the machine). ``retention_s``: the Space trims what is older."""

    sync: Literal["always", "interval"] = "always"
    interval_ms: int = 0
    retention_s: float = limits.retention_default_s


class PreparedBatch(Protocol):
    """Facts encoded for one append. ``data`` are the bytes as they will stand in the log. A replicated journal sends
    them to its peers before the append."""

    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...
    @property
    def data(self) -> bytes: ...


TakeSnapshot = Callable[[int, int], Snapshot]
"""(sequence, time in Unix microseconds): what stands now, as the fact of that sequence and time"""


class PreparedSnapshot(PreparedBatch, Protocol):
    """A batch that is one snapshot. ``data``: the record that a section begins with, as every copy of the log has it.
    It may take long to make, where thousands of queues stand or a million messages ended badly; the writer asks."""

    @property
    def snapshot(self) -> Snapshot: ...


class OpeningReport(Protocol):
    """The result of opening a log. ``clean``: it had been closed in good order. ``cut_bytes``: length of the torn tail
    that was cut off; nothing in it was answered, or others have it."""

    @property
    def clean(self) -> bool: ...
    @property
    def cut_bytes(self) -> int: ...


class Journal(Protocol):
    """``prepare``, ``prepare_snapshot``, ``wants_snapshot`` and the numbers are asked on the event loop and make no
    system call; of a large batch the writer asks ``prepare``, while nobody else prepares. ``has_room`` is asked there
    too, some times a second while there is none: it may ask the disk, and waits for nobody. **One** writer at a time
    calls ``append``, ``sync`` and ``close``: a second one meanwhile is a mistake of the program and raises. All else
    may be called from any thread. Those others may block, for 300 ms and more where a network lies between."""

    @property
    def id_key(self) -> bytes:
        """16 random bytes made with the log: ids of its messages carry a tag that is made with them."""
        ...

    @property
    def recovery(self) -> OpeningReport: ...

    @property
    def first_sequence(self) -> int:
        """The sequence of the oldest fact that is kept; 1 in an empty log."""
        ...

    @property
    def next_sequence(self) -> int:
        """The sequence that the next batch must begin with."""
        ...

    @property
    def durable_sequence(self) -> int:
        """Up to here everything survives whatever the journal promises to survive. What a log is opened with does."""
        ...

    @property
    def blocks_long(self) -> bool:
        """Whether an append waits for more than a disk: then it is made in a thread, and never on the event loop."""
        ...

    # -- appending

    def prepare(self, facts: Sequence[FactOrRun], unit_ends: Collection[int] | None = None) -> PreparedBatch:
        """Encode one append, whose facts' sequences follow each other. ``unit_ends``: positions of the facts that end a
        client's unit, None for all of them; after a crash a unit is there whole or not at all."""
        ...

    def append(self, batch: PreparedBatch, *, essential: bool = False) -> None:
        """Append a prepared batch that begins with ``next_sequence``, or fail: it is never put elsewhere. When this
        returns it is part of the log, and durable where the policy is ``always``. Raises ``LogFull``: nothing was
        appended, and its sequences are free again. Raises ``LogFailed``: never usable again.

        There is no third end. A journal that asks others and hears nothing, or "unknown", asks again until it knows;
        its caller waits, no other append is made meanwhile, and nothing is undone. ``essential``: outcomes, for which
        a journal keeps room in reserve; nothing else takes that, no snapshot either that is not essential.

        The batch of a snapshot begins a section. Where there is no room for another one (``LogFull``) the log takes
        essential batches all the same, into the section that there is, if there is one; the snapshot is prepared
        again when there is room."""
        ...

    def sync(self) -> bool:
        """Everything appended is durable when this returns. Whether something is still to be done for readers beside
        this process: then call it again a second later. Raises ``LogFailed``."""
        ...

    def has_room(self) -> bool:
        """True if appending may be tried again after ``LogFull``."""
        ...

    # -- snapshots

    @property
    def wants_snapshot(self) -> bool:
        """True if the journal is to be given a snapshot before the next batch, so that what stands before it may be
        trimmed one day."""
        ...

    def prepare_snapshot(self, take: TakeSnapshot, time_us: int) -> PreparedSnapshot:
        """A batch of one snapshot, whether it wants one or not; to be appended next. ``take`` is called back for it,
        once and before this returns, with its place: ``next_sequence``, or later where the journal has something to say
        itself before it; and with ``time_us``, which is not before that of the newest fact. (Where an append of one
        has ended the section before and found no room behind that, with the time of the end.)"""
        ...

    # -- reading in order

    def facts(self, after: int = 0) -> Iterator[Fact]:
        """Every fact with a sequence above ``after``, in order; a ``FactsLost`` for those that are damaged. Raises
        ``LogCorrupt``."""
        ...

    def facts_or_runs(self, after: int = 0) -> Iterator[FactOrRun]:
        """The facts as recovery reads them: consecutive messages may come as one ``Messages``, without content types
        and with the time of the last of them; a damaged message comes as far as it is known (``MessageIndex.lost``).
        Raises ``LogCorrupt`` for damaged outcomes or declarations, and where nobody can tell what was damaged: no state
        can be told without it."""
        ...

    def inherited(self) -> Iterator[Fact]:
        """Facts that a reader must know before ``facts_or_runs`` when there is no checkpoint. First the snapshot that
        the log begins with, but with those ``bad`` of the newest one that are not carried: the ends of messages whose
        own records were trimmed. Then the newest copy of each carried message, by their own sequences, damaged ones as
        far as they are known. Nothing where nothing was trimmed."""
        ...

    # -- checkpoints

    def save_checkpoint(self, through: int, parts: Mapping[str, bytes]) -> None:
        """Replace the checkpoint by one of the state after ``through``; of more than is synced none is kept. Raises
        ``OSError``, ``LogUnreadable`` or ``LogFailed``; the one before stays then."""
        ...

    def load_checkpoint(self) -> tuple[int, dict[str, bytes]] | None:
        """(through, parts) of the newest checkpoint that fits this log; None: everything is replayed."""
        ...

    def close(self) -> None:
        """Make everything durable and let go of the log. A failed journal only lets go. Twice is as once."""
        ...


class MessageIndex(Protocol):
    """Answers questions about messages by their own sequences, carried ones included. ``cached``, ``cached_many`` and
    ``in_memory`` make no system call. All other methods may, and raise ``LogUnreadable`` while the disk reads nothing
    at all.

    A message is damaged for ``kind_of`` and ``lost`` from when ``read_many`` or ``Sections.check`` has met the damage.
    One that is still known in part is among the answers by queue and key."""

    @property
    def id_key(self) -> bytes: ...
    @property
    def next_sequence(self) -> int: ...
    @property
    def durable_sequence(self) -> int: ...
    @property
    def first_sequence(self) -> int: ...

    def facts(self, after: int = 0) -> Iterator[Fact]:
        """See ``Journal``."""
        ...

    def cached(self, sequence: int) -> StoredMessage | None:
        """A message appended lately, with its content, from memory alone."""
        ...

    def cached_many(self, sequences: Sequence[int]) -> list[StoredMessage | None]:
        """As ``cached`` for each of these, in ascending order."""
        ...

    def in_memory(self, sequence: int) -> bool:
        """Whether ``cached`` has it, if it is a message."""
        ...

    def read_many(self, sequences: Sequence[int], bytes_max: int | None = None) -> list[StoredMessage | None]:
        """Read these messages with their content, in the given order. An element is None for a message that was trimmed
        and not carried, for a record of another kind, and for a damaged one. With ``bytes_max``, above 0, the list may
        end once the contents come to that many bytes, and ends soon after."""
        ...

    def kind_of(self, sequence: int) -> KindName: ...

    def lost(self, sequence: int) -> StoredMessage | None:
        """A damaged message as far as it is still known, without its content."""
        ...

    def place_of(self, sequence: int) -> tuple[MessageId, int] | None:
        """Id and queue of a message, also of one that was carried, or that cannot be read whole. None where nothing is
        known of it."""
        ...

    def places_of(self, sequences: Sequence[int]) -> list[tuple[MessageId, int] | None]:
        """As ``place_of`` for each of these, in ascending order."""
        ...

    def rows_of(self, sequence: int) -> list[tuple[int, Row]]:
        """(sequence of the fact, row) for every row of a message, oldest first, those for all subscribers too."""
        ...

    def timed_rows_of(self, sequence: int) -> list["TimedRow"]:
        """As ``rows_of``, with the times of the facts."""
        ...

    def timed_rows_of_many(self, sequences: Sequence[int]) -> list[list["TimedRow"]]:
        """``timed_rows_of`` for each of these."""
        ...

    def carried_tries(self, sequence: int) -> tuple[Tried, ...]:
        """The attempts that the newest fact which carries a message tells of, beside its rows; none where none does."""
        ...

    def children_of(self, sequence: int, limit: int) -> list[int]:
        """Messages that name it as a parent, lowest first, at most ``limit``."""
        ...

    def queue_sequences(self, queue: int, after: int, limit: int) -> list[int]:
        """Messages of a queue with sequences above ``after``, lowest first, at most ``limit``; carried ones too."""
        ...

    def sequences_between(
        self, queues: Collection[int] | None, after: int, before: int, limit: int, *, newest_first: bool
    ) -> list[int]:
        """Messages of these queues, of all with None, with sequences above ``after`` and below ``before``, carried ones
        too: at most ``limit``, the newest or the oldest of them, in that order."""
        ...

    def others_between(
        self, after: int, before: int, limit: int, *, newest_first: bool
    ) -> list[tuple[int, Fact | None]]:
        """Facts that are no message and carry none, no outcomes and no snapshot, by sequences above ``after`` and below
        ``before``: at most ``limit``, the newest or the oldest of them, in that order; None for one that cannot be
        read. Each section that is looked at has one at least, of which nothing may be told (None), so ``limit`` bounds
        the work."""
        ...

    def first_at(self, time_us: int) -> int:
        """A sequence behind all facts of earlier times, and behind no other. Times never go back."""
        ...

    def with_key(self, key: str, queue: int | None, limit: int, before: int | None = None) -> list[int]:
        """Messages with this key, newest first, at most ``limit``; with ``before`` only those older than it. None that
        is erased."""
        ...

    def with_idempotency_key(self, key: str, queue: int | None, since_us: int) -> list[int]:
        """Messages with this idempotency key accepted at ``since_us`` or later, newest first; one that is damaged
        counts where it may have had it, an erased one where it had it (``names.key_digest``)."""
        ...


class TimedRow(NamedTuple):
    """A row, the sequence of its fact, and when that was made."""

    record: int
    time_us: int
    row: Row


class Section(Protocol):
    """The part of the log from one snapshot up to the next, which is trimmed as a whole. ``last``: ``first`` - 1 while
    it is empty. ``sealed``: another section has begun after it. ``name`` tells an operator where it is."""

    @property
    def name(self) -> str: ...
    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def records(self) -> int: ...
    @property
    def first_time_us(self) -> int: ...
    @property
    def last_time_us(self) -> int: ...
    @property
    def sealed(self) -> bool: ...


class Damage(Protocol):
    """Facts of a section that cannot be read, from ``first`` to ``last``. ``message``: where they are one message of
    which something is still known. ``survived``: the state can be told without them."""

    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...
    @property
    def records(self) -> int: ...
    @property
    def message(self) -> StoredMessage | None: ...
    @property
    def survived(self) -> bool: ...
    def describe(self) -> str: ...


@runtime_checkable
class Sections(Protocol):
    """Trims and checks sections. Callable from any thread, but only one caller at a time may trim. ``sections``,
    ``damages`` and ``damaged`` are asked on the event loop too and make no system call; all other methods may block."""

    def sections(self) -> Sequence[Section]:
        """Oldest first; the one that is appended to is the last."""
        ...

    def opened_us(self, section: Section) -> int:
        """When the section was begun, by the wall clock. (Times of facts may be ahead of it.)"""
        ...

    def sealed_us(self, section: Section) -> int:
        """When the one after it was begun; the time of its last fact where none was."""
        ...

    def expired(self, before_us: int) -> Sequence[Section]:
        """The sections that are old enough to go, oldest first: sealed before ``before_us``."""
        ...

    def held_back(self, section: Section) -> bool:
        """True if the section must stay, however old, because it has not been archived. Raises ``OSError``."""
        ...

    def stands_in(self, section: Section, messages: Sequence[int]) -> bool:
        """Whether one of these messages (sorted) is read from it: its own record, or the newest that carries it."""
        ...

    def trim_oldest(self) -> None:
        """Remove the oldest section, which must be sealed, from the log. Its unfinished messages must have been carried
        before. Copies it first where an archive is configured. Raises ``LogFailed``; and, with the section left in
        place, ``LogFull``, ``LogUnreadable`` or ``OSError``."""
        ...

    def sweep(self, now_us: int) -> None:
        """Give back the room of what was trimmed a while ago. Raises ``OSError`` or ``LogFailed``."""
        ...

    def check(self, section: Section) -> None:
        """Read all of a sealed section again; what is damaged stands in ``damages`` from then on. One that was trimmed
        meanwhile is passed over."""
        ...

    @property
    def damages(self) -> Mapping[int, Sequence[Damage]]:
        """The known damage, by the first sequence of its section."""
        ...

    @property
    def damaged(self) -> Mapping[str, str]:
        """The known damage in words, by the name of its section."""
        ...


class Erasure(Protocol):
    """Callable from any thread; ``hide`` makes no system call.

    A message that is hidden is told, by every method, as one that is ``erased``; ``cached`` and ``cached_many`` do not
    have it, and its rows have no details. Who opens a log hides what is erased in it and not off the disk."""

    def hide(self, messages: Collection[int]) -> None:
        """From now on these (own sequences) are told as erased."""
        ...

    def erase_waits_for_snapshot(self, messages: Collection[int], through: int) -> bool:
        """Whether ``erase`` must wait until the next section begins: something of these stands in the one that is
        appended to, where it does not reach. They are all that the log says to be erased up to its record
        ``through``."""
        ...

    def erase(self, messages: Collection[int]) -> int:
        """Take the content of these, their headers, their keys and the details of their rows off the disk; in how many
        sections. The same facts stand there then, with the same sequences. Done again it changes nothing. Nothing is
        trimmed meanwhile. Raises ``OSError``, ``LogFull``, ``LogCorrupt`` or ``LogFailed``: some of it may be done."""
        ...


class Log(Journal, MessageIndex, Sections, Erasure, Protocol):
    """The first four ports together: what a Space stands on."""


class LogIdentity(NamedTuple):
    """Tells this log from every other: 16 random bytes each, made with it. ``id_key``: see ``Journal``."""

    uuid: bytes
    id_key: bytes


@runtime_checkable
class Follower(Protocol):
    """A journal that is given what another one of the same log has appended, begun and dropped, in that order: each
    batch's ``data``, that of its snapshots too, and where its oldest section begins. It is opened with the other one's
    ``identity``; without a fact it begins with any snapshot. Who follows prepares nothing of its own meanwhile; it may
    as soon as it follows no more, and its sequences go on.

    Whatever does not go on where this log ends raises ``LogDiverged``, and nothing was written."""

    @property
    def identity(self) -> LogIdentity: ...

    def prepare_copy(self, data: bytes) -> tuple[PreparedBatch, Sequence[FactOrRun]]:
        """The batch that was encoded elsewhere, to be appended next, by ``append`` and with what that promises; and the
        facts in it, as ``facts_or_runs`` tells them. Makes no system call. Raises ``LogDiverged``."""
        ...

    def drop_before(self, first: int) -> None:
        """Remove the sections before the one that begins with ``first``; what is gone already stays gone. Raises
        ``LogDiverged`` where none begins there, and as ``trim_oldest`` does."""
        ...
