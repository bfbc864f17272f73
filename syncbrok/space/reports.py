"""What the view of a Space answers: frozen pictures of queues, subscribers, messages and dead letters."""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from syncbrok.model.facts import Row
from syncbrok.model.message import QueueSettings, SubscriberSettings
from syncbrok.model.names import MessageId, QueueName, SubscriberId

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class QueueReport:
    """A queue and what is in it now. Counts are of messages but for the last four, which count deliveries since the
    broker started."""

    name: QueueName
    settings: QueueSettings
    subscribers: int
    last_sequence: int
    """of the newest message accepted into it, 0 for none"""
    waiting: int
    """accepted, not ended"""
    oldest_waiting: MessageId | None
    dead_letters: int
    accepted: int
    delivered: int
    failed: int
    dead: int


@dataclass(frozen=True, slots=True)
class SubscriberReport:
    """A subscriber and how it does. ``state`` is ``active``, ``paused`` or ``disabled`` (by a 410)."""

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
    """attempts since the broker started, as the next"""
    failed: int
    last_status: int
    last_reason: str
    last_attempt_us: int
    failing_since_us: int
    """0 while the last attempt went well"""


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
class MessageReport:
    """A message and where it stands. ``waits_for`` says in words why it is not on its way, ``""`` where it is."""

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


@dataclass(frozen=True, slots=True)
class TreeNode:
    id: MessageId
    sequence: int
    queue: QueueName
    state: str
    distance: int
    """edges away from the message asked about"""
    parents: tuple[MessageId, ...]


@dataclass(frozen=True, slots=True)
class TreeReport:
    """``nodes`` nearest first, at most ``limits.tree_nodes_max``; ``truncated`` where there are more."""

    nodes: tuple[TreeNode, ...]
    truncated: bool


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter is (message, subscriber) (RULES 20)."""

    id: MessageId
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
