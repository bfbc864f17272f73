"""The port of handlers. A handler takes messages to one kind of endpoint: webhooks are one, connections of TCP
consumers another.

A handler takes many deliveries at once, to one subscriber or to a hundred, and calls back for each: no task and no
future per message. It owns its connections and nothing else; it decides nothing about retries or order.
"""

import math
from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple, Protocol, Self

from syncbrok.model.facts import Reason, StoredMessage
from syncbrok.model.message import Subscriber


class Confirmed(NamedTuple):
    """The durable knowledge of a subscriber's other messages when an attempt is handed out; 0: none."""

    previous: int
    """the greatest sequence below that of the attempt that had been delivered at the subscriber"""
    complete_through: int
    """everything of the subscriber up to this sequence had ended"""


NOTHING_CONFIRMED: Final = Confirmed(0, 0)


class Attempt(NamedTuple):
    """One try of one message at one subscriber, as the scheduler hands it out."""

    message: int
    """sequence"""
    subscriber: int
    """number"""
    number: int
    """1 for the first try; goes on counting over restarts and replays"""
    after: int
    """the last durable sequence when it was handed out (RULES 13)"""
    started_us: int
    replay: int
    """number of the replay it belongs to, 0 for none"""
    confirmed: Confirmed = NOTHING_CONFIRMED
    """nothing in a replay"""


class Destination(NamedTuple):
    """The destination of a subscriber's messages. The same object as long as nothing about it changes."""

    subscriber: Subscriber
    queue: str
    """its name"""
    timeout_s: float


class Delivery(NamedTuple):
    """An attempt with everything a handler needs to make it."""

    attempt: Attempt
    message: StoredMessage
    to: Destination


class DeliveryBatch(Delivery):
    """Deliveries that go out as one request and have one answer. It looks like the first of them.

    A subclass, so that whatever carries a delivery carries these too, and only who makes a request of it looks."""

    members: tuple[Delivery, ...]

    def __new__(cls, members: Sequence[Delivery], to: Destination) -> Self:
        """``to``: where all of them go, as it is now."""
        made = super().__new__(cls, members[0].attempt, members[0].message, to)
        made.members = tuple(members)
        return made


def members_of(delivery: Delivery) -> tuple[Delivery, ...]:
    """The deliveries that go out in one request with it, itself among them."""
    return delivery.members if isinstance(delivery, DeliveryBatch) else (delivery,)


NEVER: Final = math.inf
SKIP: Final = -math.inf
SKIPPING: Final = frozenset({Reason.FILTERED, Reason.FILTER_ERROR})
"""reasons that end a delivery as skipped: it was not for this subscriber"""


class AttemptResult(NamedTuple):
    """The result of an attempt. ``reason`` ``NONE`` means acknowledged."""

    reason: Reason
    status: int = 0
    retry_after_s: float | None = None
    """what the endpoint asked for with 429 or 503; ``NEVER``: no later attempt could end otherwise; ``SKIP``: it does
    not want the message"""
    latency_us: int = 0
    """from handing the attempt over to the answer read"""
    detail: bytes = b""
    """where it failed: of the body, or of what went wrong in words, the first ``limits.response_bytes_kept``"""
    place: int = 0
    """among the messages that this was the answer to; 0 for the first"""
    together: int = 1
    """how many those were: those of one request"""


Done = Callable[[Delivery, AttemptResult | None], None]
"""Called with the result of a delivery. None: it never began, and goes out again as if it had not been handed out."""


class Handler(Protocol):
    """Takes messages to the endpoints of one kind of subscriber."""

    def deliver(self, deliveries: Sequence[Delivery], done: Done) -> None:
        """Start these attempts; those to one subscriber stand together. Call ``done`` exactly once for each, from the
        event loop, never from inside this call. Never raises: a failure is an ``AttemptResult``."""

    def make_ready(self, delivery: Delivery) -> None:
        """Make now what can be made ahead of a delivery that will probably be started next. Nothing goes out."""

    def withdraw(self, subscriber: int, messages: Collection[int]) -> None:
        """Begin no more attempts of these messages (sequences) at the subscriber (number). Give back those that have
        not begun. Those that have wait for their answer, and are not sent again without one."""

    def forget(self, subscriber: int) -> None:
        """The subscriber (number) was deleted or its endpoint changed. Send nothing more to it and give back what has
        not begun. Close idle connections that nobody else uses; release the others when their answer is read."""

    async def close(self) -> None:
        """Close every connection; attempts still out are answered ``Reason.CONNECT``."""
