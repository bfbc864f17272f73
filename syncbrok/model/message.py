"""Messages of publishers, and queues and subscribers of operators. Frozen: durable things never change in memory."""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from syncbrok.model import limits
from syncbrok.model.names import MessageId, QueueName, SubscriberId

CONSUMER_SCHEME = "consumer"
"""scheme of the endpoint of a subscriber whose consumers connect to the broker: ``consumer:NAME``"""
PULL_ENDPOINT = "consumer:pull"
"""endpoint of a group of consumers that pull over HTTP"""
HOPS = "syncbrok-hops"
"""a header: how many deliveries brought a message here. Kept among those of the message where it is not 0, sent with
every delivery as one more"""


class Scope(IntEnum):
    """When a parent counts as done for a child (RULES 11)."""

    ALL = 0
    """done at every counted subscriber"""
    SAME = 1
    """done at the subscriber the child is going to"""


class ParentFailure(IntEnum):
    """The policy for a child whose parent ends badly (RULES 12)."""

    FAIL = 0
    HOLD = 1
    DELIVER = 2


class DisabledBy(IntEnum):
    """Why a subscriber is disabled, where it is (RULES 14)."""

    GONE = 0
    """its endpoint answered 410"""
    FAILING = 1
    """all that was tried has failed for as long as its ``disable_after`` says"""


class Format(IntEnum):
    """The form of a delivery on the wire (INTERFACES sections 2 and 3)."""

    RAW = 0
    ORIGINAL = 1
    CLOUDEVENTS = 2
    CLOUDEVENTS_STRUCTURED = 3


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Waits between attempts, in seconds, each spread by +-``jitter`` of itself. No wait left: a dead letter."""

    delays_s: tuple[float, ...] = limits.retry_delays_default_s
    jitter: float = limits.retry_jitter


class Signature(NamedTuple):
    """One way in which deliveries to a subscriber are signed. ``scheme`` is ``v1`` or ``v1a`` of Standard Webhooks, or
    ``hmac``: then ``hash``, ``header``, the ``form`` of its value and what is ``signed``, as another sender has them.
    ``public_key`` verifies ``v1a``; ``""`` until the broker has made it. No secret stands here (RULES 19)."""

    scheme: str
    hash: str = ""
    header: str = ""
    form: str = ""
    signed: str = ""
    public_key: str = ""


class EndpointAuth(NamedTuple):
    """How an endpoint knows the broker. ``scheme`` is ``basic`` (of ``username``), ``bearer``, ``oauth2`` (by
    ``token_url``, ``client_id`` and ``scope``, which may be none) or ``""``. ``has_certificate``: the broker shows one
    of its own; ``has_authority``: the endpoint is verified by other authorities than the system's. What is secret
    stands with the credentials (RULES 19)."""

    scheme: str = ""
    username: str = ""
    token_url: str = ""
    client_id: str = ""
    scope: str = ""
    has_certificate: bool = False
    has_authority: bool = False


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """When the circuit breaker of an endpoint opens: after ``failures`` in a row, or when ``share`` of the newest
    ``of`` answers were failures. Open, it probes after the first of ``probe_s`` seconds, then after twice as long each
    time, at most the second."""

    failures: int = 10
    share: float = 0.5
    of: int = 100
    probe_s: tuple[float, float] = (5.0, 300.0)


class BatchPolicy(NamedTuple):
    """How many messages one request has at most, and how long the first of them waits for others."""

    max: int = limits.delivered_batch_default
    wait_s: float = limits.delivered_batch_wait_default_s


class BacklogBound(NamedTuple):
    """How much may stand in a queue that has not ended: so many messages, and so many bytes of content in all. None:
    as many as come."""

    messages: int | None = None
    bytes: int | None = None

    def holds(self, messages: int, size_bytes: int) -> bool:
        """Whether so much may stand in the queue."""
        return (self.messages is None or messages <= self.messages) and (self.bytes is None or size_bytes <= self.bytes)


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The settings of a queue."""

    scope: Scope = Scope.ALL
    parent_failure: ParentFailure = ParentFailure.FAIL
    retry: RetryPolicy = RetryPolicy()
    timeout_s: float = limits.timeout_default_s
    window: int = limits.window_default
    idempotency_window_s: float = limits.idempotency_window_default_s
    max_backlog: BacklogBound | None = None
    """None: none"""
    retention_s: float | None = None
    """so long after its end a message is gone (RULES 37); None: when the log drops it"""
    erase_after_s: float | None = None
    """so long after its end a message's content is erased (RULES 37); None: never"""


@dataclass(frozen=True, slots=True)
class SubscriberSettings:
    """The settings of a subscriber. ``None`` means that the queue's setting holds.

    ``secret_count``: how many of its secrets are kept (0, 1, or 2 during a rotation); the secrets themselves are never
    in a fact (RULES 19). ``start``: the sequence to deliver from, ``None`` for now; messages before the
    subscriber's own fact do not count it. ``disabled_us``: when it was disabled (Unix microseconds), else 0.
    ``counts``: whether the completion of a message waits for it (RULES 3). ``credentials``: the sequence of the fact
    with which its credentials were last kept, beside its secrets (RULES 19); 0 without any.
    """

    endpoint: str
    name: str | None = None
    format: Format = Format.RAW
    retry: RetryPolicy | None = None
    timeout_s: float | None = None
    window: int | None = None
    start: int | None = None
    paused: bool = False
    disabled_us: int = 0
    secret_count: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    filter: str | None = None
    """a CEL expression: which messages it gets (RULES 31)"""
    rate: str | None = None
    """how often it is tried at most, such as ``100/s`` (RULES 33)"""
    counts: bool = True
    breaker: BreakerPolicy | None = BreakerPolicy()
    """None: it has none. It means nothing where its consumers come for their messages"""
    types: tuple[str, ...] | None = None
    """of one of the broker's own events: which it gets (``event_types``); None: all that need not be asked for"""
    disable_after_s: float = limits.disable_after_default_s
    """0: never"""
    disabled_by: DisabledBy = DisabledBy.GONE
    """means something only where ``disabled_us`` is set"""
    declared: bool = False
    """of a group of consumers that pull: somebody has said that it is to be there; one that its first pull made goes
    when nobody uses it"""
    signatures: tuple[Signature, ...] = (Signature("v1"),)
    auth: EndpointAuth | None = None
    verdicts: bool = False
    """the body of a 2xx may say that it is to be retried, skipped, or dead"""
    forward: tuple[str, ...] = ()
    """headers of publishers that go out to it though they say who somebody is"""
    batch: BatchPolicy | None = None
    """several messages go out to it in one request (RULES 36)"""
    credentials: int = 0


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue as declared. ``number`` is its name in records: given once, never used again."""

    number: int
    name: QueueName
    settings: QueueSettings = field(default_factory=QueueSettings)
    by: str = ""
    """who declared or changed it last (see ``QueueSet``); what the broker itself changes leaves it"""


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A subscriber as declared. ``since`` is the sequence of the fact from which on it counts, or has been there: its
    first one, or a later one that made it count. Later messages count it, where its settings say so (RULES 3)."""

    number: int
    queue: int
    id: SubscriberId
    since: int
    settings: SubscriberSettings
    by: str = ""
    """as of ``Queue``"""

    def counted_by(self, sequence: int) -> bool:
        """Whether a message of its queue counts it."""
        return self.settings.counts and sequence > self.since

    @property
    def stopped(self) -> bool:
        """Paused by an operator or disabled: counted and frozen (RULES 14)."""
        return self.settings.paused or self.settings.disabled_us > 0

    @property
    def why_stopped(self) -> str:
        """For a sentence with the subscriber before it."""
        if not self.settings.disabled_us:
            return "is paused"
        if self.settings.disabled_by is DisabledBy.GONE:
            return "answered 410 and is disabled"
        return "has failed for so long without a success that it is disabled"

    @property
    def consumed(self) -> bool:
        """True if its consumers come for their messages, instead of an endpoint that they are posted to."""
        return self.settings.endpoint.startswith(CONSUMER_SCHEME + ":")


class Message(NamedTuple):
    """One message as a publisher hands it over. A tuple, since one is made for every line of every batch.

    ``parents`` holds ids, or for a message of the same unit its 0-based position as an int (pointing backwards).
    ``parent_failure`` is the queue's where ``None``. ``due_us`` and ``expires_us`` are Unix
    microseconds, 0 for none; ``delay_us`` is counted from acceptance and is added by the Space.
    ``headers`` are what reaches subscribers, names in lower case. ``erase_after_us``: so long after its end its content
    is erased, 0 for as its queue says.
    """

    content: bytes
    content_type: str = ""
    parents: tuple[MessageId | int, ...] = ()
    key: str = ""
    idempotency_key: str = ""
    parent_failure: ParentFailure | None = None
    due_us: int = 0
    delay_us: int = 0
    expires_us: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    erase_after_us: int = 0
