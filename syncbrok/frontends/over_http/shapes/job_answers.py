"""Answers about jobs, erasing and who did what; see ``shapes.answers``."""

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from syncbrok.frontends.over_http.shapes.answers import NEXT, JsonAnswer
from syncbrok.frontends.over_http.shapes.values import IdText, QueueText, SubscriberText, TimeText
from syncbrok.model.jobs import JobKind, JobState
from syncbrok.space.queries.actions import ACTIONS


class JobAnswer(JsonAnswer, rename={"first": "from"}):
    """A job of an operator. `total`, `done` and `failed` count messages; of a job that drops them, dead letters."""

    id: str
    kind: Annotated[str, Meta(extra_json_schema={"enum": [*JobKind]})]
    state: Annotated[str, Meta(extra_json_schema={"enum": [*JobState]})]
    by: Annotated[
        str | None,
        Meta(description="The token that asked for it; null where yours, for some queues only, may not know of it."),
    ]
    queue: QueueText
    subscriber: SubscriberText | None
    choice: Annotated[str | None, Meta(description="dead, skipped or all; null for messages that were named.")]
    since: Annotated[int | None, Meta(description="Sequence of the first message; null for no bound.")]
    until: Annotated[int | None, Meta(description="Sequence beyond the last message; null for no bound.")]
    reasons: list[str]
    created_at: TimeText
    ended_at: TimeText | None
    replay: Annotated[int | None, Meta(description="Number of the replay by which it sends; null where it does not.")]
    total: int
    done: int
    failed: int
    why: Annotated[str | None, Meta(description="Of what it failed.")]
    first: Annotated[int | None, Meta(description="First sequence it can begin with, when it begins.")]


class JobPlanAnswer(JsonAnswer, rename={"first": "from"}):
    """The size of a job that was only looked at."""

    dry_run: bool
    total: int
    first: Annotated[int, Meta(description="The first sequence it can begin with: the log may begin later.")]
    waiting: (
        Annotated[int, Meta(description="Of an erasure: how many have not ended, which it refuses without `force`.")]
        | UnsetType
    ) = UNSET


class ErasedFactAnswer(JsonAnswer):
    """Messages that were erased together."""

    sequence: Annotated[int, Meta(description="Of the fact that says so; pass the last as `after`.")]
    time: TimeText
    ids: list[IdText]
    sequences: Annotated[list[int], Meta(description="Of the messages, in the order of `ids`.")]


class ErasedFactsAnswer(JsonAnswer):
    """A page of what was erased, in the order of the log."""

    erased: list[ErasedFactAnswer]
    next: Annotated[int | None, NEXT]


class ActionAnswer(JsonAnswer):
    """An action: somebody did it."""

    sequence: Annotated[int, Meta(description="Of the fact that says so.")]
    time: TimeText
    by: Annotated[
        str | None,
        Meta(description="The token that did it; null where yours, for some queues only, may not know of it."),
    ]
    action: Annotated[str, Meta(extra_json_schema={"enum": [*ACTIONS]})]
    queue: QueueText | None
    subscriber: SubscriberText | None
    message: Annotated[IdText | None, Meta(description="The message that it was about; of several the first.")]
    messages: Annotated[int, Meta(description="How many messages it names.")]
    job: Annotated[str | None, Meta(description="The job that it began, or cancelled.")]


class ActionsAnswer(JsonAnswer):
    """A page of what was done."""

    actions: list[ActionAnswer]
    next: Annotated[int | None, NEXT]


class JobsAnswer(JsonAnswer):
    """A page of jobs, the newest first."""

    jobs: list[JobAnswer]
    next: Annotated[str | None, NEXT]
