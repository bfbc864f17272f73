"""Answers about one message or one subscriber looked at closely; see ``shapes.answers``."""

from typing import Annotated

from msgspec import Meta

from syncbrok.frontends.over_http.shapes.answers import NEXT, JsonAnswer
from syncbrok.frontends.over_http.shapes.values import (
    DeliveryStateText,
    IdText,
    MessageStateText,
    QueueText,
    TimeText,
    TreeStateText,
)


class PathStepAnswer(JsonAnswer):
    """A message on a critical path, in milliseconds from the end of the one before it: not yet `published`, `scheduled`
    for later, `queued` though it could go, in `attempts`. `own_ms` is their sum, `share` its part of the whole."""

    id: IdText
    queue: QueueText
    sequence: int
    state: MessageStateText
    subscriber: Annotated[str | None, Meta(description="Where it took longest; null where it counts nobody.")]
    endpoint: str
    attempts: int
    accepted_at: TimeText
    ended_at: Annotated[TimeText | None, Meta(description="When it kept those behind it no longer.")]
    published_ms: float
    waited_ms: Annotated[float, Meta(description="For the one before it: time that belongs to that one.")]
    scheduled_ms: float
    queued_ms: float
    attempts_ms: float
    own_ms: float
    share: Annotated[float | None, Meta(description="From 0 to 1; null where the whole took no time.")]


class CriticalPathAnswer(JsonAnswer):
    """The chain of waits that made a message late, from its beginning; up to now where `ended_at` is null."""

    id: IdText
    began_at: TimeText
    ended_at: TimeText | None
    took_ms: float
    steps: list[PathStepAnswer]
    truncated: Annotated[bool, Meta(description="It begins further back.")]


class SubscribersDeliveryAnswer(JsonAnswer):
    """A message at one subscriber."""

    id: IdText
    sequence: int
    state: DeliveryStateText
    reason: Annotated[str | None, Meta(description="Of one that is dead, dropped, expired or skipped.")]
    attempts: Annotated[int, Meta(description="The number of the last attempt; 0 for none.")]
    tried_at: Annotated[TimeText | None, Meta(description="When that began.")]


class DeliveriesAnswer(JsonAnswer):
    """How the messages of a queue stand at one subscriber, in the order accepted."""

    deliveries: list[SubscribersDeliveryAnswer]
    next: Annotated[int | None, NEXT]


class TreeNodeAnswer(JsonAnswer):
    """A message of a causal graph; `state` is `gone` where retention has dropped it."""

    id: IdText
    queue: QueueText
    sequence: int
    state: TreeStateText
    distance: Annotated[int, Meta(description="Edges away from the message asked about.")]
    parents: list[IdText]


class TreeAnswer(JsonAnswer):
    """The causal graph above or below a message, nearest first."""

    id: IdText
    direction: Annotated[str, Meta(extra_json_schema={"enum": ["up", "down"]})]
    depth: int
    nodes: list[TreeNodeAnswer]
    truncated: bool
