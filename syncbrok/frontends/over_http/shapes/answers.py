"""Answers. A class is a component of ``/openapi.json``, named without its ``Answer``; its docstring is what clients
read of it there. Fields are written in the order in which they stand here. What is null where it does not apply is
``None``; what is left out there is unset.

Messages as consumers get them are dictionaries, since they are joined with what else is said of each.
"""

from typing import Annotated, Any, Final, NotRequired, TypedDict

from msgspec import UNSET, Meta, Struct, UnsetType, defstruct

from syncbrok.frontends.over_http.shapes.values import (
    Base64Text,
    BreakerText,
    ChangedBy,
    DeliveryStateText,
    IdText,
    MessageStateText,
    ParentFailureText,
    QueueText,
    ScopeText,
    SecretText,
    Start,
    SubscriberText,
    TimeText,
    answered,
)
from syncbrok.model.settings import QUEUE_SETTINGS, SUBSCRIBER_SETTINGS

NEXT: Final = Meta(description="Pass as `after`; null on the last page.")


class JsonAnswer(Struct, gc=False):
    """Nothing in an answer leads back to it: the collector need not look at it."""


# -- queues and subscribers -------------------------------------------------------------------------------------------


class BacklogAnswer(JsonAnswer):
    """The messages of a queue that have not ended."""

    messages: int
    bytes: Annotated[int | None, Meta(description="Of content; null where max_backlog does not bound them.")]


class QueueStatisticsAnswer(JsonAnswer):
    """The figures of a queue. `accepted` counts messages, `delivered` and `failed` attempts, `dead` deliveries that
    ended so, all since the log began."""

    subscribers: int
    last_sequence: int
    waiting: int
    oldest_waiting: IdText | None
    dead_letters: int
    accepted: int
    delivered: int
    failed: int
    dead: int
    backlog: BacklogAnswer
    changed_by: ChangedBy


_NamedQueue: Any = defstruct("_NamedQueue", [("name", QueueText), *answered(QUEUE_SETTINGS)], bases=(JsonAnswer,))


class QueueAnswer(_NamedQueue):  # type: ignore[misc]  # its fields are the rows of the table
    """A queue, its settings and what is in it now."""

    statistics: QueueStatisticsAnswer


class QueuesAnswer(JsonAnswer):
    """A page of queues, by name."""

    queues: list[QueueAnswer]
    next: Annotated[str | None, NEXT]


class SubscriberStatisticsAnswer(JsonAnswer):
    """How a subscriber does."""

    cursor: int
    backlog: int
    blocked: Annotated[int, Meta(description="Passed by: they wait for parents, or their key.")]
    in_flight: int
    retrying: int
    dead_letters: int
    delivered: int
    failed: int
    last_status: int | None
    last_reason: str | None
    last_attempt_at: TimeText | None
    failing_since: TimeText | None
    breaker: BreakerText
    next_probe_at: Annotated[TimeText | None, Meta(description="While the breaker is open.")]
    breaker_since: Annotated[TimeText | None, Meta(description="It is not closed since.")]
    breaker_failing: Annotated[int, Meta(description="How many attempts had failed when it opened; 0: it is closed.")]
    breaker_origin: Annotated[
        str | None, Meta(description="The origin whose breaker it is; null: its own, or it is closed.")
    ]
    changed_by: ChangedBy


_SetSubscriber: Any = defstruct(
    "_SetSubscriber",
    [
        ("id", SubscriberText),
        ("queue", QueueText),
        *answered(SUBSCRIBER_SETTINGS),
        ("secret", Annotated[Any, Meta(extra_json_schema={"enum": ["set", None]})]),
        ("start", Start),
    ],
    bases=(JsonAnswer,),
)


class SubscriberAnswer(_SetSubscriber):  # type: ignore[misc]  # its fields are the rows of the table
    """A subscriber, its settings and how it does."""

    state: Annotated[str, Meta(extra_json_schema={"enum": ["active", "paused", "disabled"]})]
    disabled_reason: Annotated[
        str | None,
        Meta(
            description="Disabled: its endpoint answered 410 (gone), or all has failed for `disable_after` (failing).",
            extra_json_schema={"enum": ["gone", "failing", None]},
        ),
    ]
    disabled_at: TimeText | None
    since: Annotated[int, Meta(description="It has been there since, or counted.")]
    declared: Annotated[bool, Meta(description="Somebody has said that it is to be there; else it came to take.")]
    counts_since: Annotated[
        int | None, Meta(description="It is counted by messages after this sequence; null: by none.")
    ]
    statistics: SubscriberStatisticsAnswer
    job: Annotated[str, Meta(description="Where `start` was changed: the job that does it.")] | UnsetType = UNSET


class SubscribersAnswer(JsonAnswer):
    """A page of subscribers, by id; of all queues: by queue and id."""

    subscribers: list[SubscriberAnswer]
    next: Annotated[str | None, NEXT]


class SecretAnswer(JsonAnswer):
    """The one answer that shows a secret."""

    id: SubscriberText
    secret: SecretText | UnsetType = UNSET
    public_key: Annotated[str, Meta(pattern="^whpk_", description="Of the new key pair (v1a).")] | UnsetType = UNSET


# -- messages ---------------------------------------------------------------------------------------------------------


class ResultAnswer(JsonAnswer):
    """How the delivery to one subscriber ended, by its last attempt."""

    subscriber: SubscriberText
    state: DeliveryStateText
    attempts: int
    status: int | None
    latency_ms: float | None
    reason: str | None
    detail: str | None


class PublishedAnswer(JsonAnswer):
    """A message was accepted; `deliveries` where its publisher waited for them."""

    id: IdText
    queue: QueueText
    sequence: int
    state: MessageStateText
    parents: list[IdText]
    deliveries: list[ResultAnswer] | UnsetType = UNSET


class BatchAnswer(JsonAnswer):
    """Ids of the messages, line by line."""

    ids: list[IdText]


class MistakeAnswer(TypedDict):
    """A mistake in a line of a batch."""

    line: int
    detail: str


class AttemptAnswer(JsonAnswer):
    """One attempt, or the end of a delivery."""

    attempt: Annotated[int, Meta(description="0: ended without an attempt.")]
    time: TimeText | None
    outcome: str
    status: int | None
    latency_ms: float
    reason: str | None
    detail: str | None


class DeliveryAnswer(JsonAnswer):
    """How a message stands with one subscriber."""

    subscriber: SubscriberText
    endpoint: str
    state: DeliveryStateText
    counted: bool
    reason: str | None
    next_attempt_at: TimeText | None
    blocked_by: list[IdText]
    attempts: list[AttemptAnswer]


class MessageAnswer(JsonAnswer):
    """A message, where it stands, and why it waits."""

    id: IdText
    queue: QueueText
    sequence: int
    state: MessageStateText
    accepted_at: TimeText
    parents: list[IdText]
    blocked_by: list[IdText]
    waits_for: str | None
    key: str | None
    idempotency_key: str | None
    scope: ScopeText
    parent_failure: ParentFailureText
    deliver_at: TimeText | None
    expires_at: TimeText | None
    root: Annotated[int, Meta(description="Sequence of the root of its causal graph.")]
    depth: int
    content_type: str | None
    content_bytes: int
    headers: dict[str, str]
    deliveries: list[DeliveryAnswer]
    erased: Annotated[bool, Meta(description="Content, headers and keys were erased.")]
    erase_after: Annotated[str | None, Meta(description="Of its content, once it has ended; null: as its queue says.")]


class MessagesAnswer(JsonAnswer):
    """A page of messages."""

    messages: list[MessageAnswer]
    next: Annotated[int | None, NEXT]


class MinuteAnswer(JsonAnswer):
    """A minute. `accepted` counts messages, `delivered` and `failed` attempts, `dead` deliveries that died; `backlog`
    and `oldest_age_s` are as it ended. `p50_ms`, `p99_ms`: how long those delivered took from acceptance, as far as the
    bounds of the metrics tell; null where none was."""

    at: TimeText
    accepted: int
    delivered: int
    failed: int
    dead: int
    backlog: int
    oldest_age_s: float
    p50_ms: float | None
    p99_ms: float | None


class HistoryAnswer(JsonAnswer):
    """The last hours of the broker, or of a queue."""

    queue: QueueText | None
    minutes: list[MinuteAnswer]


class TokenAnswer(JsonAnswer):
    """A token, without what it is. `scopes` says in which queues it has each, `*` in all."""

    name: str
    scopes: dict[str, list[str]]
    created_at: TimeText | None
    expires_at: TimeText | None
    expired: bool
    configured: Annotated[bool, Meta(description="It stands in the configuration; such a one is not revoked here.")]


class OwnTokenAnswer(JsonAnswer):
    """The token of a request: `scopes` says in which queues it has each, `*` in all."""

    name: Annotated[str, Meta(description="That of the token; `local` where this broker asks for none.")]
    scopes: dict[str, list[str]]
    expires_at: TimeText | None


class TokensAnswer(JsonAnswer):
    """All tokens, by name."""

    tokens: list[TokenAnswer]


class CreatedTokenAnswer(TokenAnswer, kw_only=True):
    """A token that was created; `token` is shown this once."""

    token: str


class DeadLetterAnswer(JsonAnswer):
    """A message that could not be delivered, to whom and why."""

    id: IdText | None
    queue: QueueText
    sequence: int
    subscriber: SubscriberText
    reason: str
    status: int | None
    attempts: int
    time: TimeText | None
    detail: str | None


class DeadLettersAnswer(JsonAnswer):
    """A page of dead letters, in the order of their messages."""

    dead_letters: list[DeadLetterAnswer]
    next: Annotated[int | None, NEXT]


class ReplayedAnswer(JsonAnswer):
    """A message of a replay and to whom it goes."""

    id: IdText
    subscribers: list[SubscriberText]


class ReplayPlanAnswer(JsonAnswer):
    """The messages that go out again, in causal order."""

    replay: Annotated[int | None, Meta(description="Its number; null for a dry run.")]
    dry_run: bool
    messages: int
    deliveries: int
    left: Annotated[int, Meta(description="Dead letters that stay, for they are another subscriber's.")]
    erased: Annotated[int, Meta(description="Messages asked for that stay as they are, since they were erased.")]
    job: Annotated[str | None, Meta(description="The id of the job that it is; null where nothing goes again.")]
    order: list[ReplayedAnswer]


class RetriedAnswer(JsonAnswer):
    """How many deliveries are due now, or would be."""

    retried: int
    dry_run: bool | UnsetType = UNSET


class TriedMessageAnswer(JsonAnswer):
    """The answer of a filter for a message: delivered, filtered, or filter_error with what went wrong."""

    id: IdText
    sequence: int
    result: str
    detail: str | None


class TriedFilterAnswer(JsonAnswer):
    """The answers of a filter for the newest messages of the queue, the newest first; nothing is changed."""

    filter: str
    of: int
    delivered: int
    skipped: int
    failed: int
    messages: list[TriedMessageAnswer]


class DroppedAnswer(JsonAnswer, kw_only=True):
    """How much was, or would be, dropped."""

    id: IdText | UnsetType = UNSET
    dropped: int
    dry_run: bool | UnsetType = UNSET


class CancelledAnswer(JsonAnswer):
    """How many messages are, or would be, cancelled, and how many deliveries that drops."""

    messages: int
    dropped: int
    dry_run: bool


# -- consumers --------------------------------------------------------------------------------------------------------


class StoredAnswer(TypedDict):
    """A message with its content: text as `content`, other bytes as `content_base64`."""

    id: IdText
    queue: QueueText
    sequence: int
    accepted_at: TimeText
    parents: list[IdText]
    key: str | None
    content_type: str | None
    headers: dict[str, str]
    content: NotRequired[str]
    content_base64: NotRequired[Base64Text]


class DeliveredAnswer(StoredAnswer):
    """A message as a consumer receives it."""

    attempt: int
    replay: NotRequired[Annotated[int, Meta(description="Number of the replay it belongs to.")]]
    previous: NotRequired[
        Annotated[int, Meta(description="Greatest sequence below this one that had been delivered to the subscriber.")]
    ]
    complete_through: NotRequired[
        Annotated[int, Meta(description="Everything of the subscriber up to this sequence had ended.")]
    ]
    epoch: NotRequired[Annotated[int, Meta(description="From a cluster: a number that grows with each leader.")]]


class ReceivedAnswer(DeliveredAnswer):
    """A message that is lent, with its content: text as `content`, other bytes as `content_base64`."""

    lease: Annotated[str, Meta(description="Names the loan; to be acknowledged in time.")]


class PulledAnswer(JsonAnswer):
    """Messages that are lent, in causal order."""

    messages: list[ReceivedAnswer]


class AnsweredAnswer(JsonAnswer):
    """How many leases were answered, and which were over already."""

    answered: int
    over: list[str]


# -- the broker -------------------------------------------------------------------------------------------------------


class StatusAnswer(JsonAnswer):
    """How the broker does, in a word."""

    status: str


class LogAnswer(JsonAnswer):
    """The log as it stands; totals count from the start of the broker."""

    sync: str
    sequence: int
    durable_sequence: int
    segments: int
    bytes: int
    commits: int
    commit_seconds_sum: float
    full: bool
    damaged_records: int
    damage: tuple[str, ...]


class TotalsAnswer(JsonAnswer):
    """All queues together."""

    accepted: int
    delivered: int
    failed: int
    dead: int
    in_flight: int
    retrying: int
    waiting: int
    dead_letters: int


class BudgetAnswer(JsonAnswer):
    """How much is taken of what clients share."""

    name: str
    used: int
    total: int


class QueueGlanceAnswer(JsonAnswer):
    """A queue in a line."""

    name: QueueText
    subscribers: int
    ill: Annotated[int, Meta(description="Subscribers that are stopped, or whose last attempt failed.")]
    waiting: int
    dead_letters: int
    accepted: int
    delivered: int
    failed: int


class OverviewAnswer(JsonAnswer):
    """The Space at a glance."""

    state: str
    version: str
    time: TimeText
    in_cluster: Annotated[bool, Meta(description="Whether `/v1/cluster` has something to say.")]
    log: LogAnswer
    deliveries: TotalsAnswer
    budgets: list[BudgetAnswer]
    queues: list[QueueGlanceAnswer]
    queues_in_all: int
    subscribers_in_all: int
    ill: Annotated[
        list[SubscriberAnswer],
        Meta(description="Subscribers that are stopped, failed at last, or are held back; the first of them."),
    ]
    ill_in_all: int
    stuck: Annotated[list[MessageAnswer], Meta(description="Messages that wait longest.")]


# -- the cluster ------------------------------------------------------------------------------------------------------


class LeaderAnswer(JsonAnswer):
    """The node that leads, as far as the node that was asked knows."""

    node: str
    url: str
    pid: int | None


class NodeAnswer(JsonAnswer):
    """A node that was heard lately."""

    node: str
    url: str
    pid: int
    role: Annotated[
        str, Meta(extra_json_schema={"enum": ["following", "stalled", "claiming", "leading", "fenced", "yielded"]})
    ]
    sequence: Annotated[int, Meta(description="The last of the log that it has.")]
    lag_records: Annotated[int, Meta(description="How many it is behind the node that has most.")]
    archive: Annotated[
        str,
        Meta(
            description="Who archives the log before retention drops anything, by its storage.archive: nobody, leader"
            " (a directory) or pipeline; empty where it does not say. All nodes should say the same."
        ),
    ] = ""


class EngineServerAnswer(JsonAnswer):
    """A server of the engine."""

    url: str
    alive: bool
    sync_always: bool


class ClusterAnswer(JsonAnswer):
    """The cluster as the node that was asked knows it."""

    space: str
    epoch: Annotated[int, Meta(description="Of the leader: greater than that of each before it.")]
    leader: LeaderAnswer | None
    nodes: list[NodeAnswer]
    engine: list[EngineServerAnswer] = []


class YieldedAnswer(JsonAnswer):
    """The leader gives way; `to` leads next, whoever claims first if it is null."""

    to: str | None
