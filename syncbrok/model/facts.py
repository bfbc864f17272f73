"""Everything that is durable. A fact is one record of the log (``Outcomes`` and ``Rearmed``: many rows in one).

The same facts drive live traffic and recovery: whoever keeps state has an ``apply(fact)`` and nothing else that
changes it. Sequences number all facts of a log from 1, without gaps; times are Unix microseconds.
"""

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from syncbrok.model.message import ParentFailure, QueueSettings, Scope, SubscriberSettings
from syncbrok.model.names import MessageId, QueueName, SubscriberId

ALL_SUBSCRIBERS = 0xFFFF_FFFF
"""In a row: every delivery of the message that has not ended. One row ends a message of a cascade (RULES 20)."""

DELETED_SUBSCRIBER = 0
"""No subscriber has this number: in a carried message it stands for those that were deleted before."""


class Outcome(IntEnum):
    """What a row says became of a delivery. All but ``FAILED`` and ``LATE`` end it."""

    DELIVERED = 1
    FAILED = 2
    """this attempt failed, the next is due at ``due_us``"""
    DEAD = 3
    EXPIRED = 4
    DROPPED = 5
    SKIPPED = 6
    LATE = 7
    """an attempt that came back after its delivery had ended otherwise (a cancel, a purge): changes nothing"""


class Reason(IntEnum):
    """Why a delivery failed or ended. The names in lower case are what answers and reports show."""

    NONE = 0
    STATUS = 1
    """an answer other than 2xx"""
    TIMEOUT = 2
    CONNECT = 3
    """no connection: refused, unreachable, name not found"""
    TLS = 4
    FORBIDDEN_ADDRESS = 5
    """the guard forbids to dial it"""
    PROTOCOL = 6
    """not an HTTP answer, or the connection broke in the middle of one"""
    NOT_TRUE = 7
    """format ``original``: a 2xx whose body is not ``true``"""
    GONE = 8
    """410: the endpoint wants no more"""
    PARENT_FAILED = 9
    PARENT_EXPIRED = 10
    PARENT_DROPPED = 11
    SUBSCRIBER_DISABLED = 12
    EXPIRED = 13
    CANCELLED = 14
    PURGED = 15
    UNSUBSCRIBED = 16
    QUEUE_DELETED = 17
    HOLD_EXPIRED = 18
    NACK = 19
    """a TCP consumer refused it"""
    CONTENT_LOST = 20
    """its record is no longer in the log (salvaged away, or dropped by retention in that moment)"""


class QueueSet(NamedTuple):
    """A queue was declared, or its settings changed (same number)."""

    sequence: int
    time_us: int
    number: int
    name: QueueName
    settings: QueueSettings


class QueueDeleted(NamedTuple):
    sequence: int
    time_us: int
    number: int


class SubscriberSet(NamedTuple):
    """A subscriber was added, or changed (same number; ``since`` stays that of its first fact)."""

    sequence: int
    time_us: int
    number: int
    queue: int
    id: SubscriberId
    since: int
    settings: SubscriberSettings


class SubscriberDeleted(NamedTuple):
    """Its pending deliveries end ``dropped`` with this fact (RULES 14); no row is written for each."""

    sequence: int
    time_us: int
    number: int


class FileApplied(NamedTuple):
    """An entry of a bootstrap file was applied; it is applied again only when its hash changes, and then of its keys
    those whose own hash has changed (RULES 18)."""

    sequence: int
    time_us: int
    entry: str
    """``queue`` or ``queue/subscriber id``"""
    hash: str
    """of all of it; ``""`` where only some keys of a file are known, which an operator applied"""
    keys: tuple[tuple[str, str], ...] | None = None
    """(name, hash) of each key that the file names; None in the log of an older version, which did not write it"""


class Published(NamedTuple):
    """A message was accepted. ``root`` and ``depth`` are its place in the causal graph: the sequence of the first
    parent's root (its own without parents) and 1 + the deepest parent's depth (0 without).

    ``sequence`` is the message's own number for ever. A message carried out of a segment that retention drops is
    written again in a record of a new sequence; see ``Carried``. ``content`` is ``b""`` where only facts are read.
    """

    sequence: int
    time_us: int
    id: MessageId
    queue: int
    root: int
    depth: int
    scope: Scope
    parent_failure: ParentFailure
    parents: tuple[MessageId, ...]
    key: str
    idempotency_key: str
    fingerprint: bytes
    """16 bytes over body, content type, parents and settings where there is an idempotency key, else empty (RULES 4)"""
    due_us: int
    expires_us: int
    content_type: str
    headers: tuple[tuple[str, str], ...]
    content: bytes
    only: int = 0
    """number of the one subscriber it is for (a test message), 0 for all"""


class PublishedRun(NamedTuple):
    """Messages accepted one after the other at one time, as columns: nothing tells them apart but id, content and the
    idempotency key, which all of them have or none. Else they are plain: no parents, no key to order by, no times of
    their own, no headers, for every subscriber; root and depth are those of a message without parents.

    A run is no record. It stands for as many ``Published`` facts in memory, from acceptance until it is applied, and
    is written as their records, byte for byte; who reads the log meets those. ``contents`` is empty where only facts
    are read. Whoever applies facts gives a run the meaning of its messages, one at a time and in order.
    """

    sequence: int
    """of the first message"""
    time_us: int
    ids: bytes
    """16 bytes a message; how many there are follows from it"""
    queue: int
    scope: Scope
    parent_failure: ParentFailure
    content_type: str
    contents: Sequence[bytes] = ()
    idempotency_keys: Sequence[str] = ()
    """one for each message, or none at all; so too the next two"""
    fingerprints: Sequence[bytes] = ()
    key_hashes: Sequence[int] = ()
    """of queue and idempotency key, as whoever looks for them later wants them: made once, at acceptance"""

    @property
    def size(self) -> int:
        """How many messages."""
        return len(self.ids) // 16

    @property
    def last(self) -> int:
        """Sequence of the last message."""
        return self.sequence + len(self.ids) // 16 - 1

    def messages(self) -> Iterator[Published]:
        """Each message as a fact of its own."""
        for at in range(self.size):
            sequence = self.sequence + at
            yield Published(
                sequence,
                self.time_us,
                MessageId(self.ids[16 * at : 16 * at + 16]),
                self.queue,
                sequence,
                0,
                self.scope,
                self.parent_failure,
                (),
                "",
                self.idempotency_keys[at] if self.idempotency_keys else "",
                self.fingerprints[at] if self.fingerprints else b"",
                0,
                0,
                self.content_type,
                (),
                self.contents[at] if self.contents else b"",
            )


class Row(NamedTuple):
    """One attempt's outcome, or the end of a delivery without an attempt (``attempt`` 0)."""

    message: int
    subscriber: int
    attempt: int
    outcome: Outcome
    reason: Reason
    status: int
    """HTTP status of the answer, 0 for none"""
    time_us: int
    """when the attempt began (``attempt`` > 0), or when the delivery was ended"""
    due_us: int
    """``FAILED``: when the next attempt is due; else 0"""
    after: int
    """the last durable sequence when the attempt began (RULES 13)"""
    latency_us: int
    detail: bytes = b""
    """the first KiB of the answer's body, or what went wrong, where it failed"""


class Outcomes(NamedTuple):
    sequence: int
    time_us: int
    rows: tuple[Row, ...]


class RearmedEntry(NamedTuple):
    """A message of a replay: to whom it goes again, and which of its parents it waits for: those that are in
    the replay too, and those that have not ended at all.

    ``attempts`` stands beside ``subscribers``: how often each has been tried before, so that numbers go on.
    """

    message: int
    queue: int
    subscribers: tuple[int, ...]
    parents: tuple[int, ...]
    attempts: tuple[int, ...] = ()
    parent_failure: ParentFailure = ParentFailure.FAIL


class Rearmed(NamedTuple):
    """An operator's replay (RULES 21), in slices of one ``replay`` number; parents stand before their children."""

    sequence: int
    time_us: int
    replay: int
    entries: tuple[RearmedEntry, ...]
    subscriber: int = 0
    """number of the only one it is for; 0: it is not narrowed to one, or an older version wrote it"""


class Tried(NamedTuple):
    """A delivery of a carried message that has been tried and not ended."""

    subscriber: int
    attempts: int
    due_us: int


class Carried(NamedTuple):
    """A message that had not ended, taken along out of a segment that retention drops. ``message`` is what was
    accepted, with its original sequence and content; ``ended`` and ``tried`` say how far its deliveries had come. One
    that died at a subscriber that is gone ends dead all the same (RULES 10): it has (``DELETED_SUBSCRIBER``, dead)."""

    sequence: int
    time_us: int
    message: Published
    ended: tuple[tuple[int, Outcome], ...]
    tried: tuple[Tried, ...]


RULES: Final = 2
"""what this program keeps of RULES, for whoever judges a log. 1: of one key the next went to a subscriber when the one
before had ended there, whatever became of those before that; 2: when all before it have (RULES 6)"""


class SegmentOpened(NamedTuple):
    """The first record of every segment: all queues and subscribers as they stood, so that a segment can be read
    alone and retention may drop those before it. ``bad`` are the messages that ended badly and whose records are
    gone: (sequence, outcome). ``sealed_us``: the wall clock when the segment before was sealed and this one opened,
    which is behind ``time_us`` where an older record was written while the clock was ahead; 0 where a version wrote it
    that did not say. ``rules`` are those by which the records that follow it were made (``RULES``)."""

    sequence: int
    time_us: int
    queues: tuple[QueueSet, ...]
    subscribers: tuple[SubscriberSet, ...]
    applied: tuple[FileApplied, ...]
    bad: tuple[tuple[int, Outcome], ...]
    sealed_us: int = 0
    rules: int = 1


class SegmentSealed(NamedTuple):
    """The last record of a sealed segment: how many records stand before it and the CRC-32C of all their bytes."""

    sequence: int
    time_us: int
    records: int
    crc: int


class Gap(NamedTuple):
    """Written by salvage: the sequences from ``first`` to ``last`` could not be recovered."""

    sequence: int
    time_us: int
    first: int
    last: int
    why: str


Fact = (
    QueueSet
    | QueueDeleted
    | SubscriberSet
    | SubscriberDeleted
    | FileApplied
    | Published
    | Outcomes
    | Rearmed
    | Carried
    | SegmentOpened
    | SegmentSealed
    | Gap
)

FactOrRun = Fact | PublishedRun
"""What is drafted, written and applied."""


def last_sequence(fact: FactOrRun) -> int:
    """Of the fact, or of the last message of a run."""
    return fact.last if isinstance(fact, PublishedRun) else fact.sequence
