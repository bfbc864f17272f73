"""The answers of the view: frozen reports of queues, subscribers, messages and dead letters."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, Self, TypeVar

from syncbrok.model.facts import Row
from syncbrok.model.jobs import JobKind, JobState, JobWish
from syncbrok.model.message import QueueSettings, SubscriberSettings
from syncbrok.model.names import MessageId, QueueName, SubscriberId

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class QueueReport:
    """A queue and what is in it now. The last four count since the log began, as ``QueueStatistics`` says: messages
    ``accepted``, attempts ``delivered`` and ``failed``, deliveries that ended ``dead``."""

    name: QueueName
    settings: QueueSettings
    subscribers: int
    last_sequence: int
    """of the newest message accepted into it, 0 for none"""
    waiting: int
    """accepted, not ended"""
    oldest_waiting: int
    """sequence of the one of these that waits longest, 0 for none; ``View.oldest_waiting`` tells its id"""
    dead_letters: int
    accepted: int
    delivered: int
    failed: int
    dead: int
    backlog: int = 0
    """messages that have not ended"""
    backlog_bytes: int | None = None
    """of their contents; None where the queue does not bound those"""
    changed_by: str = ""
    """who declared or changed it last; ``""``: not known, or nobody"""


STANDINGS: Final = ("ill", "failing", "open", "probing", "paused", "disabled", "active")
"""what ``SubscriberReport.stands`` can be asked"""


@dataclass(frozen=True, slots=True)
class SubscriberReport:
    """A subscriber and how it does. ``state`` is ``active``, ``paused`` or ``disabled``."""

    queue: QueueName
    id: SubscriberId
    settings: SubscriberSettings
    since: int
    state: str
    cursor: int
    """sequence it has been looked at up to"""
    backlog: int
    """messages of its queue beyond the cursor"""
    in_flight: int
    retrying: int
    dead_letters: int
    delivered: int
    """attempts since the log began, late answers apart; as the next"""
    failed: int
    last_status: int
    last_reason: str
    last_attempt_us: int
    failing_since_us: int
    """0 while the last attempt went well"""
    breaker: str = "closed"
    """``closed``, ``open`` or ``probing``: its circuit breaker, or its origin's where that is not closed"""
    probe_us: int = 0
    """open: when the next probe is due, else 0"""
    breaker_since_us: int = 0
    """when it opened first, since it was closed; 0 where it is"""
    breaker_failing: int = 0
    """how many attempts had failed when it opened"""
    breaker_origin: str = ""
    """the origin whose breaker it is; ``""``: its own"""
    blocked: int = 0
    """messages it was passed by because they wait for parents, or before it in their key"""
    changed_by: str = ""
    """as of ``QueueReport``"""

    def stands(self, standing: str) -> bool:
        """Whether it stands so: one of ``STANDINGS``. ``ill``: it is stopped, its last attempt failed, or a breaker
        holds it back."""
        failing = self.state == "active" and self.failing_since_us > 0
        match standing:
            case "ill":
                return failing or self.state != "active" or self.breaker != "closed"
            case "failing":
                return failing
            case "open" | "probing":
                return self.breaker == standing
        return self.state == standing


@dataclass(frozen=True, slots=True)
class DeliveryReport:
    """One delivery. ``state`` is one of RULES 9; ``attempts`` are its rows, oldest first (only where asked for)."""

    subscriber: SubscriberId
    endpoint: str
    state: str
    counted: bool
    attempts: tuple[Row, ...]
    next_attempt_us: int
    reason: str
    """why it is dead, dropped or expired; ``""`` otherwise"""
    blocked_by: tuple[MessageId, ...]


@dataclass(frozen=True, slots=True)
class SubscribersDelivery:
    """A message at one subscriber."""

    id: MessageId
    sequence: int
    report: DeliveryReport


@dataclass(frozen=True, slots=True)
class MessageReport:
    """A message and its state. ``waits_for`` says in words why it is not on its way; ``""`` if it is."""

    id: MessageId
    sequence: int
    queue: QueueName
    state: str
    time_us: int
    parents: tuple[MessageId, ...]
    blocked_by: tuple[MessageId, ...]
    """parents (and the key's predecessor) that have not ended"""
    waits_for: str
    key: str
    idempotency_key: str
    scope: str
    parent_failure: str
    due_us: int
    expires_us: int
    root: int
    depth: int
    content_type: str
    content_bytes: int
    headers: tuple[tuple[str, str], ...]
    deliveries: tuple[DeliveryReport, ...] = field(default=())
    erased: bool = False
    """content, headers and keys are gone"""
    erase_after_us: int = 0


def shown_bytes(report: MessageReport) -> int:
    """About how many bytes an answer takes that shows it: most are ids, headers and deliveries."""
    ids = len(report.parents) + len(report.blocked_by)
    size = 400 + sum([len(name) + len(value) for name, value in report.headers])
    for one in report.deliveries:
        ids += len(one.blocked_by)
        size += 150 + len(one.endpoint) + 200 * len(one.attempts)
    return size + 40 * ids


@dataclass(frozen=True, slots=True)
class TreeNode:
    id: MessageId
    sequence: int
    queue: QueueName
    state: str
    """``gone`` for a parent that retention has dropped: only its id is known then"""
    distance: int
    """edges away from the message asked about"""
    parents: tuple[MessageId, ...]


@dataclass(frozen=True, slots=True)
class TreeReport:
    """``nodes`` nearest first, at most ``limits.tree_nodes_max`` with ``limits.tree_edges_max`` parents in all;
    ``truncated`` where there are more."""

    nodes: tuple[TreeNode, ...]
    truncated: bool


@dataclass(frozen=True, slots=True)
class PathStep:
    """A message on a critical path. From the end of the one before it on the path it had not been published for
    ``published_us``, had a time before which it must not go for ``scheduled_us``, could go and was not tried for
    ``queued_us``, and was tried, waits between attempts included, for ``attempts_us``; those are the time that it takes
    of the path. ``waited_us``: how long it waited, accepted, for the one before it."""

    id: MessageId
    sequence: int
    queue: QueueName
    state: str
    subscriber: SubscriberId | None
    """it kept the message longest; None where the message counts nobody"""
    endpoint: str
    attempts: int
    """of all whom it counts"""
    accepted_us: int
    ended_us: int
    """when it kept those behind it no longer; 0 for not yet"""
    published_us: int
    waited_us: int
    scheduled_us: int
    queued_us: int
    attempts_us: int

    @property
    def own_us(self) -> int:
        """Its part of the path."""
        return self.published_us + self.scheduled_us + self.queued_us + self.attempts_us


@dataclass(frozen=True, slots=True)
class CriticalPathReport:
    """``steps`` from where the path begins to the message asked about; the path takes ``took_us``, up to now where that
    has not ended (``ended_us`` 0). ``truncated``: it begins further back."""

    steps: tuple[PathStep, ...]
    began_us: int
    ended_us: int
    took_us: int
    truncated: bool


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter is (message, subscriber) (RULES 20). ``id`` is None where the message is lost and the log does not
    even tell that any more."""

    id: MessageId | None
    sequence: int
    queue: QueueName
    subscriber: SubscriberId
    reason: str
    status: int
    attempts: int
    time_us: int
    detail: bytes


@dataclass(frozen=True, slots=True)
class Content:
    content: bytes
    content_type: str


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    items: tuple[T, ...]
    next: int | None
    """pass as ``after`` for the next page; None where this was the last"""


@dataclass(frozen=True, slots=True)
class JobReport:
    """A job of an operator. ``total``, ``done`` and ``failed`` count messages, of a job that drops them dead letters;
    of one that sends, the total is what it has planned so far. ``changed_us``: of its last fact; where it is over,
    when."""

    number: int
    kind: JobKind
    state: JobState
    by: str
    queue: QueueName
    subscriber: SubscriberId | None
    wish: JobWish
    created_us: int
    changed_us: int
    replay: int
    total: int
    done: int
    failed: int
    why: str


@dataclass(frozen=True, slots=True)
class Histogram:
    """A histogram of durations since the broker started. ``buckets``: (upper bound in seconds, number of durations up
    to it), bounds rising, numbers cumulative. ``count`` includes durations above the last bound."""

    buckets: tuple[tuple[float, int], ...]
    count: int
    sum_s: float
    max_s: float


class MinuteReport(NamedTuple):
    """A minute of the history, see ``Figures``; ``p50_ms``, ``p99_ms``: None where nothing was delivered in it."""

    at_us: int
    accepted: int
    delivered: int
    failed: int
    dead: int
    backlog: int
    oldest_ms: int
    p50_ms: float | None
    p99_ms: float | None


NO_DURATIONS: Final = Histogram((), 0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class LogReport:
    """The log as it stands. Totals count from the start of the broker."""

    sync: str
    """``always`` or ``interval:<ms>``"""
    sequence: int
    """of the last fact given out"""
    durable_sequence: int
    segments: int
    bytes: int
    oldest_us: int
    """time of the first record kept, 0 for an empty log"""
    commits: Histogram
    """one observation per batch: from handing it to the writer to its fsync"""
    records_written: int
    bytes_written: int
    full: bool
    """appending is refused for want of room (507)"""
    failed: bool
    """the log must not be used any more; the broker is stopping"""
    damaged: int = 0
    """sealed segments in which a checksum does not fit"""
    damaged_records: int = 0
    """records in them that cannot be read"""
    damage: tuple[str, ...] = ()
    """the first of them in words, with file and offset"""
    committing_s: float = 0.0
    """for how long the batch that is under way has been; 0 for none"""


@dataclass(frozen=True, slots=True)
class DeliveryTotals:
    """All queues together; what they count is what ``QueueStatistics`` says."""

    delivered: int
    failed: int
    """attempts that failed, those that ended dead included"""
    dead: int
    in_flight: int
    retrying: int
    waiting: int
    """messages accepted and not ended"""
    dead_letters: int

    @classmethod
    def of(cls, queues: Collection[QueueReport], subscribers: Collection[SubscriberReport]) -> Self:
        """The sums of these queues and of these subscribers."""
        return cls(
            delivered=sum(queue.delivered for queue in queues),
            failed=sum(queue.failed for queue in queues),
            dead=sum(queue.dead for queue in queues),
            in_flight=sum(subscriber.in_flight for subscriber in subscribers),
            retrying=sum(subscriber.retrying for subscriber in subscribers),
            waiting=sum(queue.waiting for queue in queues),
            dead_letters=sum(queue.dead_letters for queue in queues),
        )


@dataclass(frozen=True, slots=True)
class StartReport:
    """The result of a start: what recovery found."""

    started_us: int
    clean: bool
    """the broker before this one closed its log"""
    records: int
    """facts replayed"""
    torn_bytes: int
    """cut off the end of the log and saved as ``.broken``"""
    recovery_s: float


@dataclass(frozen=True, slots=True)
class ProcessReport:
    """The broker's process. ``resident_bytes`` and ``open_files`` are 0 where the system does not tell."""

    version: str
    python: str
    pid: int
    cpu_s: float
    resident_bytes: int
    open_files: int


class BudgetReport(NamedTuple):
    """How much of a budget is taken, and by how many owners."""

    name: str
    used: int
    total: int
    owners: int


class LogReaderReport(NamedTuple):
    """A named reader of the log: through where it has read, and how many durable records are behind that. ``hold``: it
    asks that retention keeps them; ``holding``: it does now. ``heard_us``: when the reader told its place last."""

    name: str
    sequence: int
    lag: int
    hold: bool
    holding: bool
    heard_us: int


@dataclass(frozen=True, slots=True)
class SpaceReport:
    """Everything ``/metrics`` and ``/readyz`` show. ``state`` is ``starting``, ``serving``, ``draining`` or
    ``failed``; only ``serving`` is ready."""

    state: str
    time_us: int
    log: LogReport
    deliveries: DeliveryTotals
    start: StartReport
    process: ProcessReport
    queues: tuple[QueueReport, ...]
    subscribers: tuple[SubscriberReport, ...]
    waiters: int
    """publishers that wait for their message to end (``Prefer: wait``)"""
    listeners: int
    """open event streams"""
    clock_steps: int = 0
    untaken_dropped: int = 0
    breakers_opened: int = 0
    spans_sent: int = 0
    spans_lost: int = 0
    clock_step_s: float = 0.0
    """how often the wall clock was set while the broker ran, and by how much the last time (negative: back)"""
    budgets: tuple[BudgetReport, ...] = ()
    latencies: Mapping[QueueName, Histogram] = field(default_factory=dict)
    """by queue: from a message's acceptance to its delivery, see ``Latencies``"""
    loop_lag: Histogram = NO_DURATIONS
    """how much later than it was to the event loop woke somebody"""
    log_readers: tuple[LogReaderReport, ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened and is durable. ``id`` is the sequence of its record; several events may share one.

    ``kind``: ``published``, ``delivered``, ``skipped``, ``failed`` (an attempt; another follows), ``dead``,
    ``expired``, ``dropped``, ``complete`` (every delivery of the message has ended and none is dead or expired),
    ``replayed``, ``queue`` or ``queue_deleted``, ``subscriber`` or ``subscriber_deleted``, ``breaker_opened`` or
    ``breaker_closed`` (told live only; ``text`` says of what, where it is an origin's), ``gap`` (events between
    the one asked for and this one are not told), ``thinned`` (``count`` events were left out to keep to the listener's
    rate), ``cut`` (the last one: the listener was too slow; ``text`` says how to go on). ``by``: whoever declared,
    changed or deleted the queue or subscriber, as facts have it. What does not apply is ``""``, ``0`` or ``None``.
    """

    id: int
    kind: str
    time_us: int
    queue: str = ""
    message: MessageId | None = None
    subscriber: str = ""
    attempt: int = 0
    status: int = 0
    reason: str = ""
    latency_us: int = 0
    due_us: int = 0
    parents: tuple[MessageId, ...] = ()
    text: str = ""
    count: int = 0
    by: str = ""


class ActionReport(NamedTuple):
    """An action of somebody, as the log tells it. ``queue``, ``subscriber``: ``""`` where it was about none.
    ``message``: the one that it was about, of several the first, as far as the log still has it. ``messages``: how many
    those were. ``job``: its number, 0 for none."""

    sequence: int
    time_us: int
    by: str
    action: str
    queue: QueueName
    subscriber: str
    message: MessageId | None
    messages: int
    job: int


class TriedMessage(NamedTuple):
    """A filter's answer for a message: ``delivered``, ``filtered``, or ``filter_error`` with what went wrong."""

    id: MessageId
    sequence: int
    result: str
    detail: str
