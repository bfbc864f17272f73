"""Everything that is durable. A fact is one record of the log (``Outcomes`` and ``Rearmed``: many rows in one); records
that a log has for itself are no facts.

The same facts drive live traffic and recovery: whoever keeps state has an ``apply(fact)`` and nothing else that
changes it. Sequences number all facts of a log from 1, without gaps; times are Unix microseconds.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum, StrEnum
from operator import itemgetter
from typing import Final, NamedTuple

from syncbrok.model.jobs import JobKind, JobState, JobWish
from syncbrok.model.message import ParentFailure, QueueSettings, Scope, SubscriberSettings
from syncbrok.model.names import MessageId, QueueName, SubscriberId

ALL_SUBSCRIBERS = 0xFFFF_FFFF
"""In a row: every delivery of the message that has not ended. One row ends a message of a cascade (RULES 20)."""

PARENTS_TOGETHER: Final = 1_024
"""so many parents of messages are looked at without a look at other work: 5 ms, on a slow machine 10"""

DELETED_SUBSCRIBER = 0
"""No subscriber has this number: in a carried message it stands for those that were deleted before."""


class Outcome(IntEnum):
    """The result that a row records for a delivery. All but ``FAILED`` and ``LATE`` end it."""

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
    RETENTION = 21
    """a subscriber that does not count had not taken it when its segment went. One row stands for all up to its message
    that had not ended there"""
    BREAKER_OPEN = 22
    """its circuit breaker was open until the sum of its schedule after its first attempt was over"""
    FILTERED = 23
    """the subscriber's filter says no"""
    FILTER_ERROR = 24
    """the filter says neither yes nor no of this message"""
    ERASED = 25
    """an operator has erased its content"""
    RECEIVER = 26
    """the endpoint took it and said in its answer what is to become of it (``verdicts``)"""
    AUTH_FAILED = 27
    """the token endpoint of the subscriber's ``auth`` gave no access token"""
    DISCARDED = 30
    """an operator has dropped the dead letter"""
    SEEK = 31
    """an operator has let the subscriber pass it over"""


class QueueSet(NamedTuple):
    """A queue was declared, or its settings changed (same number)."""

    sequence: int
    time_us: int
    number: int
    name: QueueName
    settings: QueueSettings
    by: str = ""
    """who asked for it: the name of a token, ``local`` where none was needed, ``file`` for a bootstrap file; ``""`` for
    the broker itself, for who came to take or to publish, and in the log of an older version"""


class QueueDeleted(NamedTuple):
    sequence: int
    time_us: int
    number: int
    by: str = ""
    """as of ``QueueSet``"""


class SubscriberSet(NamedTuple):
    """A subscriber was added, or changed (same number; ``since`` stays that of its first fact, or becomes that of the
    fact from which on it counts)."""

    sequence: int
    time_us: int
    number: int
    queue: int
    id: SubscriberId
    since: int
    settings: SubscriberSettings
    by: str = ""
    """as of ``QueueSet``"""


class SubscriberDeleted(NamedTuple):
    """Its pending deliveries end ``dropped`` with this fact (RULES 14); no row is written for each."""

    sequence: int
    time_us: int
    number: int
    by: str = ""
    """as of ``QueueSet``"""


class FileApplied(NamedTuple):
    """An entry of a bootstrap file was applied. It is applied again only when its hash changes, and then only those of
    its keys whose own hash has changed (RULES 18)."""

    sequence: int
    time_us: int
    entry: str
    """``queue`` or ``queue/subscriber id``"""
    hash: str
    """of all of it; ``""`` where only some keys of a file are known, which an operator applied"""
    keys: tuple[tuple[str, str], ...] | None = None
    """(name, hash) of each key that the file names; None in the log of an older version, which did not write it"""


class StoredMessage(NamedTuple):
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
    erased: bool = False
    """it was erased: content and headers are gone, the keys are digests (``names.key_digest``) or, where the record has
    no room for those, empty"""
    erase_after_us: int = 0
    """so long after its end its content is erased, whatever its queue says (RULES 37); 0: as its queue says"""


class Attributes(NamedTuple):
    """The attributes that consecutive messages share. ``content_type`` is ``""`` where it was not read."""

    queue: int
    scope: Scope
    parent_failure: ParentFailure
    content_type: str


class Extras(NamedTuple):
    """The attributes that few messages have. The fields are those of ``StoredMessage``."""

    root: int
    depth: int = 0
    parents: tuple[MessageId, ...] = ()
    key: str = ""
    idempotency_key: str = ""
    fingerprint: bytes = b""
    due_us: int = 0
    expires_us: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    only: int = 0
    erase_after_us: int = 0

    @property
    def decide_when(self) -> bool:
        """Whether they have a say in when the message goes, or to whom: else it goes at once, as a bare one does."""
        return bool(self.parents or self.key or self.due_us or self.expires_us or self.only)


class Keyed(NamedTuple):
    """The idempotency keys of messages that have one each, and what goes with them, as columns."""

    keys: Sequence[str]
    fingerprints: Sequence[bytes]
    hashes: Sequence[int]
    """hashes of queue and key, as the message index looks for them; made once, at acceptance"""


class Messages(NamedTuple):
    """Messages accepted one after the other at one time, as columns; one message is a batch of one.

    They are no record. They stand for as many ``StoredMessage`` facts in memory, from acceptance until they are
    applied, and are written as their records; ``messages`` and ``at`` show them as those. Whoever applies facts gives
    them the meaning of their messages, one at a time and in order.
    """

    sequence: int
    """of the first message"""
    time_us: int
    ids: bytes
    """16 bytes a message; how many there are follows from it"""
    stretches: Sequence[tuple[int, Attributes]]
    """neighbours that have their attributes in common: the position at which they end, and those"""
    contents: Sequence[bytes] = ()
    """empty where only facts are read"""
    extras: Mapping[int, Extras] = {}
    """by position, of those that have any; one without has no parents, so it is its own root, at depth 0"""
    keyed: Keyed | None = None
    """where each has an idempotency key, and no message anything else"""
    sizes: bytes = b""
    """of each content how many bytes it has (4 bytes, little-endian), where contents are not read"""

    @property
    def size(self) -> int:
        """The number of messages."""
        return len(self.ids) // 16

    @property
    def last(self) -> int:
        """Sequence of the last message."""
        return self.sequence + len(self.ids) // 16 - 1

    @property
    def parents(self) -> int:
        """The number of parents that all of them name."""
        return sum([len(extras.parents) for extras in self.extras.values()])

    def extras_at(self, position: int) -> Extras:
        """The extras of the message at ``position``."""
        extras = self.extras.get(position)
        if extras is None:
            extras = Extras(self.sequence + position)
            if self.keyed is not None:
                keys, fingerprints, _ = self.keyed
                extras = extras._replace(idempotency_key=keys[position], fingerprint=fingerprints[position])
        return extras

    def attributes_at(self, position: int) -> Attributes:
        """The attributes of the message at ``position``."""
        return self.stretches[bisect_right(self.stretches, position, key=_END)][1]

    def at(self, position: int) -> StoredMessage:
        """The message there, as a fact of its own."""
        return self._view(position, self.attributes_at(position))

    def messages(self) -> Iterator[StoredMessage]:
        """The messages in order, each as a fact of its own."""
        start = 0
        for end, attributes in self.stretches:
            for position in range(start, end):
                yield self._view(position, attributes)
            start = end

    def parts(self, most: int) -> Iterator["Messages"]:
        """The same messages in pieces of at most ``most``, for callers that look at them one by one, and at each of
        their parents: of those a piece has ``PARENTS_TOGETHER`` at most, or one message."""
        assert self.keyed is None, "those are alike"
        for start, end in self._pieces(most):
            among = slice(bisect_right(self.stretches, start, key=_END), bisect_left(self.stretches, end, key=_END) + 1)
            yield Messages(
                self.sequence + start,
                self.time_us,
                self.ids[16 * start : 16 * end],
                [(min(stop, end) - start, attributes) for stop, attributes in self.stretches[among]],
                self.contents[start:end],
                {at - start: self.extras[at] for at in range(start, end) if at in self.extras},
            )

    def _pieces(self, most: int) -> Iterator[tuple[int, int]]:
        """(first position, position behind the last) of each piece."""
        start = parents = 0
        for position in range(self.size):
            more = self.extras.get(position)
            named = 0 if more is None else len(more.parents)
            if position - start == most or (parents + named > PARENTS_TOGETHER and position > start):
                yield start, position
                start, parents = position, 0
            parents += named
        yield start, self.size

    def _view(self, position: int, attributes: Attributes) -> StoredMessage:
        # Past the Python-level __new__ of a NamedTuple, which costs as much as all the rest.
        first, time_us, ids, _, contents, extras, keyed, _ = self
        queue, scope, parent_failure, content_type = attributes
        sequence, id_ = first + position, ids[16 * position : 16 * position + 16]
        content = contents[position] if contents else b""
        if keyed is None and position not in extras:
            bare = (sequence, time_us, id_, queue, sequence, 0, scope, parent_failure, (), "", "")
            return tuple.__new__(StoredMessage, (*bare, b"", 0, 0, content_type, (), content, 0, False, 0))
        more = self.extras_at(position)
        root, depth, parents, key, idempotency_key, fingerprint, due_us, expires_us, headers, only, after_us = more
        placed = (sequence, time_us, id_, queue, root, depth, scope, parent_failure, parents, key, idempotency_key)
        rest = (fingerprint, due_us, expires_us, content_type, headers, content, only, False, after_us)
        return tuple.__new__(StoredMessage, placed + rest)

    @classmethod
    def of(cls, message: StoredMessage) -> "Messages":
        """One message, as a batch of one."""
        extras = Extras(
            message.root,
            message.depth,
            message.parents,
            message.key,
            message.idempotency_key,
            message.fingerprint,
            message.due_us,
            message.expires_us,
            message.headers,
            message.only,
            message.erase_after_us,
        )
        attributes = Attributes(message.queue, message.scope, message.parent_failure, message.content_type)
        sparse = {} if extras == (message.sequence, *_BARE) else {0: extras}
        return cls(message.sequence, message.time_us, message.id, ((1, attributes),), (message.content,), sparse)


_END: Final = itemgetter(0)
_BARE: Final = Extras(0)[1:]


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
    """A message of a replay: ``subscribers`` to deliver to again, and the parents it waits for (those in the replay
    too, and those that have not ended at all).

    ``attempts``: for each of ``subscribers`` the attempts made before, so that their numbers go on.
    """

    message: int
    queue: int
    subscribers: tuple[int, ...]
    parents: tuple[int, ...]
    attempts: tuple[int, ...] = ()
    parent_failure: ParentFailure = ParentFailure.FAIL
    key: str = ""
    """of the message: it waits for those of its key before it. An older version wrote none"""


class Rearmed(NamedTuple):
    """An operator's replay (RULES 21), in slices of one ``replay`` number; parents stand before their children."""

    sequence: int
    time_us: int
    replay: int
    entries: tuple[RearmedEntry, ...]
    subscriber: int = 0
    """number of the only one it is for; 0: it is not narrowed to one, or an older version wrote it"""


class Tried(NamedTuple):
    """A delivery of a carried message that has been tried. ``due_us``: when it is tried again; 0 where it has ended."""

    subscriber: int
    attempts: int
    due_us: int


class Carried(NamedTuple):
    """A message that had not ended, taken along out of a segment that retention drops. ``message`` is what was
    accepted, with its original sequence and content; ``ended`` and ``tried`` say how far its deliveries had come: of
    one that has ended ``tried`` has the number of its last attempt, which a replay goes on from (an older version wrote
    none). One that died at a subscriber that is gone ends dead all the same (RULES 10): it has (``DELETED_SUBSCRIBER``,
    dead)."""

    sequence: int
    time_us: int
    message: StoredMessage
    ended: tuple[tuple[int, Outcome], ...]
    tried: tuple[Tried, ...]


class Erased(NamedTuple):
    """These messages are erased, by an operator or because it was time (RULES 37): from here on nobody is told their
    content, their headers, their keys and what their subscribers answered. The records that say it are rewritten later
    (RULES 32); they all stand before this one, but for attempts that were out. ``clock_us``: the wall clock, from which
    the time until then is counted. ``past_retention``: that of their queue is over, they are gone for whoever asks."""

    sequence: int
    time_us: int
    clock_us: int
    messages: tuple[MessageId, ...]
    past_retention: bool = False
    by: str = ""
    """as of ``QueueSet``"""


class Action(StrEnum):
    """An action of an operator whose own facts have no room for a name."""

    CANCEL = "cancel"
    """of a message"""
    PURGE = "purge"
    CANCEL_JOB = "cancel_job"


class Managed(NamedTuple):
    """An operator did something (``by`` as of ``QueueSet``). It stands with the facts of the action or before the first
    of them, and changes nothing. ``message``: the sequence of the one that it is about, of a job its number; 0 for a
    queue."""

    sequence: int
    time_us: int
    by: str
    action: Action
    queue: int
    message: int = 0


class JobChanged(NamedTuple):
    """A job begins, has planned all that it does, or is over (RULES 34). ``number`` is the sequence of its first fact.

    ``replay``: the number of the replay by which it sends, 0 where it sends nothing. ``armed``: all that it does stands
    in the log. ``total``, ``done`` and ``failed`` count messages, and were so much at this fact. ``created_us`` and
    ``changed_us`` are the wall clock's. ``why``: what it failed of."""

    sequence: int
    time_us: int
    number: int
    kind: JobKind
    state: JobState
    by: str
    created_us: int
    changed_us: int
    replay: int
    armed: bool
    total: int
    done: int
    failed: int
    wish: JobWish
    why: str = ""


RULES: Final = 3
"""version of RULES that this program keeps, for the order checker. 1: the next message of a key goes to a subscriber
once the one before has ended there, whatever became of earlier ones. 2: once all before it have (RULES 6). 3: those
that do not count the subscriber as well"""


class Snapshot(NamedTuple):
    """All queues and subscribers as they stand, and what is known of messages whose own records are gone. With it
    whatever the log says before it may be dropped.

    ``bad``: messages that ended badly and whose records are gone, as (sequence, outcome). ``rules``: the version of
    RULES by which the following facts were made (``RULES``). ``lost``: dead letters among the messages that are gone
    whose content was lost, as (sequence, number of the subscriber). ``jobs``: the last fact of each job that is not
    over.
    """

    sequence: int
    time_us: int
    queues: tuple[QueueSet, ...]
    subscribers: tuple[SubscriberSet, ...]
    applied: tuple[FileApplied, ...]
    bad: tuple[tuple[int, Outcome], ...]
    rules: int = RULES
    lost: tuple[tuple[int, int], ...] = ()
    jobs: tuple[JobChanged, ...] = ()


class FactsLost(NamedTuple):
    """The facts from ``first`` to ``last`` cannot be told any more: the log was damaged where they stood."""

    sequence: int
    time_us: int
    first: int
    last: int
    why: str


RecordedFact = (
    QueueSet
    | QueueDeleted
    | SubscriberSet
    | SubscriberDeleted
    | FileApplied
    | StoredMessage
    | Outcomes
    | Rearmed
    | Carried
    | Erased
    | Managed
    | JobChanged
)
"""A fact that stands in every log as it is told; the others a log says in its own way."""

Fact = RecordedFact | Snapshot | FactsLost

FactOrRun = Fact | Messages
"""The unit of drafting, writing and applying."""


def last_sequence(fact: FactOrRun) -> int:
    """The sequence of the fact, or of the last of the messages."""
    return fact.last if isinstance(fact, Messages) else fact.sequence
