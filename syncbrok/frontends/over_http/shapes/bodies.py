"""Bodies that are JSON. A class is a component of ``/openapi.json``, named without its ``Body``; its docstring is what
clients read of it there. What may be left out has a default, or is unset."""

from typing import Annotated, Any, ClassVar, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, defstruct, field

from syncbrok.frontends.over_http.shapes.values import (
    Base64Text,
    Duration,
    IdText,
    QueueText,
    SecretText,
    Start,
    SubscriberText,
    TimeText,
    described,
    given,
)
from syncbrok.model import limits
from syncbrok.model.settings import QUEUE_SETTINGS, SUBSCRIBER_SETTINGS

_FROM_FILE: Final = (
    "from_file",
    Annotated[
        bool,
        Meta(
            description="secret, paused and what has credentials are what a file says: each is set only where it said "
            "something else before, or nothing."
        ),
    ],
    False,
)
_BOUND: Final = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]}
_PARENT_FAILURE: Final = next(described(row) for row in QUEUE_SETTINGS if row.name == "parent_failure")


class _Given(Struct, kw_only=True, forbid_unknown_fields=True):
    pass


# -- queues and subscribers -------------------------------------------------------------------------------------------

QueueSettingsBody: Any = defstruct("QueueSettingsBody", given(QUEUE_SETTINGS), bases=(_Given,), kw_only=True)
NewQueueBody: Any = defstruct(
    "NewQueueBody", [("name", QueueText), *given(QUEUE_SETTINGS)], bases=(_Given,), kw_only=True
)
SubscriberSettingsBody: Any = defstruct(
    "SubscriberSettingsBody",
    [
        *given(SUBSCRIBER_SETTINGS),
        (
            "secret",
            Annotated[SecretText | None, Meta(description="null takes it away: no longer signed.")] | UnsetType,
            UNSET,
        ),
        (
            "start",
            Annotated[
                Any,
                Meta(
                    description="Go on from there: now, beginning, a sequence or a time (RFC 3339). A job does it.",
                    extra_json_schema=_BOUND,
                ),
            ]
            | UnsetType,
            UNSET,
        ),
        _FROM_FILE,
    ],
    bases=(_Given,),
    kw_only=True,
)
NewSubscriberBody: Any = defstruct(
    "NewSubscriberBody",
    [
        *given(SUBSCRIBER_SETTINGS),
        (
            "pull",
            Annotated[bool, Meta(description="Instead of an endpoint: a group of this name, whose consumers pull.")]
            | UnsetType,
            UNSET,
        ),
        ("secret", SecretText | UnsetType | None, UNSET),
        ("start", Start, UNSET),
        _FROM_FILE,
    ],
    bases=(_Given,),
    kw_only=True,
)


Scopes = list[Literal["publish", "consume", "read", "admin"]]


class NewTokenBody(_Given):
    """A token to create. `scopes`: a list, or an object that says in which queues it has each; a `*` at the end of a
    queue's name stands for anything."""

    name: Annotated[str, Meta(pattern="^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}$")]
    scopes: Scopes | dict[str, list[str]]
    queues: Annotated[list[str] | None, Meta(description="Where it has the listed scopes; null: in all queues.")] = None
    expires: Annotated[Duration | None, Meta(description="After how long; null: never.")] = None


class NewSecretBody(_Given):
    """The secret to sign with from now on; without one the broker makes it."""

    secret: SecretText | UnsetType | None = UNSET
    grace: (
        Annotated[Duration, Meta(description="How long the old one signs too; 24 h by default, 0 s to 7 d.")]
        | UnsetType
    ) = UNSET
    scheme: Annotated[Literal["v1", "v1a"], Meta(description="v1a: another key pair, which the broker makes.")] = "v1"


class TryFilterBody(_Given):
    """A filter to try; without one that of the subscriber. ``last``: on how many of the newest messages."""

    filter: Annotated[str, Meta(max_length=limits.filter_bytes_max)] | UnsetType | None = UNSET
    last: Annotated[int, Meta(ge=1, le=limits.filter_trial_messages_max)] | UnsetType = UNSET


class DryRunBody(_Given):
    """Whether only to say what would be done."""

    dry_run: bool | UnsetType = UNSET


# -- messages ---------------------------------------------------------------------------------------------------------


class LineBody(_Given):
    """A message of a batch."""

    also: ClassVar = {"oneOf": [{"required": [name]} for name in ("content", "content_base64", "data")]}

    content: str | UnsetType = UNSET
    content_base64: Base64Text | UnsetType = UNSET
    data: Annotated[Any, Meta(description="Any JSON; delivered as application/json.")] = UNSET
    parents: (
        Annotated[
            list[str],
            Meta(
                max_length=limits.parents_max,
                description="Ids, or #n for line n of this batch, which must stand before this one.",
            ),
        ]
        | UnsetType
    ) = UNSET
    key: str | UnsetType = UNSET
    idempotency_key: str | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET
    parent_failure: Annotated[Any, _PARENT_FAILURE] = UNSET
    delay_given: Duration | UnsetType = field(name="delay", default=UNSET)
    deliver_at: Annotated[TimeText, Meta(description="Not before this time.")] | UnsetType = UNSET
    expires: Annotated[TimeText, Meta(description="Not after this time.")] | UnsetType = UNSET
    erase_after: Duration | UnsetType = UNSET


_Descendants = Annotated[bool, Meta(description="Also again what had been delivered of those that come after.")]
_OnlySubscriber = Annotated[SubscriberText | None, Meta(description="Only to this one, descendants too; null for all.")]


class ReplayBody(_Given):
    """Which messages go out again, and to whom."""

    descendants: _Descendants = False
    subscriber: _OnlySubscriber | UnsetType = UNSET
    dry_run: bool = False


_REASONS: Final = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}


class RecoverBody(_Given):
    """A part of the past of a subscriber."""

    since: (
        Annotated[Any, Meta(description="From this sequence or time (RFC 3339) on.", extra_json_schema=_BOUND)]
        | UnsetType
    ) = UNSET
    until: (
        Annotated[Any, Meta(description="To before this sequence or time (RFC 3339).", extra_json_schema=_BOUND)]
        | UnsetType
    ) = UNSET
    state: Annotated[Literal["dead", "skipped", "all"], Meta(description="Which deliveries.")] = "dead"
    reason: (
        Annotated[Any, Meta(description="Only dead letters of these reasons.", extra_json_schema=_REASONS)] | UnsetType
    ) = UNSET
    dry_run: bool = False


class ReplayMessagesBody(_Given):
    """The messages that go out again, and to whom."""

    ids: Annotated[list[IdText], Meta(min_length=1, max_length=limits.replay_ids_max)]
    descendants: _Descendants = False
    subscriber: _OnlySubscriber | UnsetType = UNSET
    dry_run: bool = False


class CancelMessagesBody(_Given):
    """The messages of which nothing more is delivered; those that have ended are passed over."""

    ids: Annotated[list[IdText], Meta(min_length=1, max_length=limits.replay_ids_max)]
    dry_run: bool = False


class EraseBody(_Given):
    """The messages that are erased: one of `key`, `before` and `ids` says which."""

    key: Annotated[str | None, Meta(description="All of this key.")] | UnsetType = UNSET
    before: (
        Annotated[Any, Meta(description="All before this sequence or time (RFC 3339).", extra_json_schema=_BOUND)]
        | UnsetType
    ) = UNSET
    ids: Annotated[list[IdText], Meta(min_length=1, max_length=limits.replay_ids_max)] | UnsetType | None = UNSET
    force: Annotated[bool, Meta(description="Also what has not ended: it is dropped.")] = False
    dry_run: bool = False


class DropDeadLettersBody(_Given):
    """The dead letters that go; without any of these all of the queue."""

    subscriber: Annotated[SubscriberText | None, Meta(description="Only of this one; null for all.")] | UnsetType = (
        UNSET
    )
    before: (
        Annotated[Any, Meta(description="Of messages before this sequence or time.", extra_json_schema=_BOUND)]
        | UnsetType
    ) = UNSET
    reason: Annotated[Any, Meta(description="Only of these reasons.", extra_json_schema=_REASONS)] | UnsetType = UNSET
    ids: Annotated[list[IdText], Meta(min_length=1, max_length=limits.replay_ids_max)] | UnsetType = UNSET
    dry_run: bool = False


class RetryBody(_Given):
    """The subscribers to try again at."""

    subscriber: Annotated[SubscriberText | None, Meta(description="Only at this one; null for all.")] | UnsetType = (
        UNSET
    )
    dry_run: bool = False


# -- consumers --------------------------------------------------------------------------------------------------------


class PullBody(_Given):
    """A pull: of how many messages, for how long, and by which group."""

    max: Annotated[int, Meta(ge=1, le=limits.pull_messages_max)] = 100
    wait: (
        Annotated[Duration, Meta(description="How long to wait for the first message; by default not at all.")]
        | UnsetType
    ) = UNSET
    lease: Annotated[Duration, Meta(description="How long each message is lent; 30 s by default.")] | UnsetType = UNSET
    group: Annotated[SubscriberText, Meta(description="Whose messages: consumers of a group share them.")] = "pull"
    start: Annotated[Start, Meta(description="Where a group that is new begins.")] = "beginning"


class AnswerAckBody(_Given):
    """Nothing can be said."""


class AnswerNackBody(_Given):
    """The reason of a failure, and when to try again."""

    delay_given: (
        Annotated[Duration, Meta(description="Try it again no sooner than this, where the retry schedule is quicker.")]
        | UnsetType
    ) = field(name="delay", default=UNSET)
    reason: Annotated[str, Meta(description="Kept with the attempt.")] | UnsetType = UNSET


class AnswerExtendBody(_Given):
    """How long it is still needed."""

    lease: Annotated[Duration, Meta(description="From now on; 30 s by default.")] | UnsetType = UNSET


class AnswersAckBody(AnswerAckBody, kw_only=True):
    """Which leases are acknowledged."""

    leases: list[str]


class AnswersNackBody(AnswerNackBody, kw_only=True):
    """Which leases are refused, and why."""

    leases: list[str]


class AnswersExtendBody(AnswerExtendBody, kw_only=True):
    """Which leases are extended."""

    leases: list[str]


# -- the cluster ------------------------------------------------------------------------------------------------------


class YieldBody(_Given):
    """The node that leads next; whoever claims first if that is left out."""

    to: str = ""


class ArchivedBody(_Given):
    """Segments that a job has archived."""

    log: Annotated[str, Meta(description="The log's uuid, in hexadecimal: that of another log is refused.")]
    lines: Annotated[list[str], Meta(description="`NAME BYTES CRC pipeline PLACE`, as in the file `archived`.")]
    job: Annotated[
        str, Meta(max_length=1_000, description="Names the job; while one has the lease, another one is refused.")
    ] = ""
    phase: Annotated[
        Literal["begins", "goes_on", "ends"], Meta(description="Of the job: it takes, keeps or returns the lease.")
    ] = "goes_on"


class LogReaderPlaceBody(_Given):
    """How far a reader of the log has come."""

    sequence: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(description="Through where it has read. Null: as before; for a new one nothing."),
    ] = None
    hold: Annotated[
        bool | None,
        Meta(description="Whether retention keeps what it has not read. Null: as before. true needs the scope admin."),
    ] = None
