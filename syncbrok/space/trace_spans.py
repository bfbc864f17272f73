"""Makes spans of facts: what a message waited for, and each of its attempts, as OpenTelemetry names them.

A span is made when its fact is durable, of that and of what the log says of the message. This reads the log, so it runs
in a reader's thread.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from syncbrok.delivery.trace_context import (
    TRACEPARENT,
    SpanPlace,
    TraceContexts,
    attempt_span,
    publish_span,
    read_traceparent,
    wait_span,
)
from syncbrok.model import limits
from syncbrok.model.facts import ALL_SUBSCRIBERS, Messages, Outcome, Reason, Row, StoredMessage
from syncbrok.model.journal import MessageIndex
from syncbrok.model.message import Scope, Subscriber
from syncbrok.model.names import MessageId, id_text, sequence_of
from syncbrok.space.standstills import Standstills
from syncbrok.space.state.lineage import Lineage
from syncbrok.space.state.registry import Registry

_READ_BYTES: Final = 4 * limits.MIB
_TOLD_FROM_US: Final = 1_000
"""a shorter wait is no span"""
_DURABLE_MAX: Final = 65_536
"""messages of which it is remembered when they were durable"""
_ON_ITS_WAY: Final = frozenset({Outcome.FAILED, Outcome.LATE})
_NOT_SENT: Final = frozenset({Reason.FILTERED, Reason.FILTER_ERROR})
_GOOD: Final = frozenset({Outcome.DELIVERED, Outcome.LATE})

Attributes = Mapping[str, str | int]
_Step = tuple[str, int]
"""waited for, until when"""


class TraceSpan(NamedTuple):
    """``parent`` is ``b""`` for the first of a trace; ``error`` ``""`` where all went well."""

    at: SpanPlace
    parent: bytes
    name: str
    kind: Literal["producer", "consumer", "internal"]
    start_us: int
    end_us: int
    attributes: Attributes
    links: tuple[SpanPlace, ...] = ()
    error: str = ""


class Seen(NamedTuple):
    """A fact that became durable at ``now_us``, as far as spans are made of it. Messages have no content here."""

    now_us: int
    messages: Messages | None
    rows: tuple[Row, ...] = ()


class SpanBuilder:
    """Remembers when messages were durable, which the log does not say, and nothing else."""

    def __init__(
        self,
        contexts: TraceContexts,
        journal: MessageIndex,
        registry: Registry,
        lineage: Lineage,
        standstills: Standstills,
    ) -> None:
        self._contexts = contexts
        self._standstills = standstills
        self._journal = journal
        self._registry = registry
        self._lineage = lineage
        self._durable_us: dict[int, int] = {}

    def build(self, seen: Iterable[Seen]) -> list[TraceSpan]:
        """The spans of these, without those of trees that are not recorded. Raises ``LogUnreadable``."""
        seen = list(seen)
        spans = [span for one in seen if one.messages is not None for span in self._published(one.now_us, one.messages)]
        rows = [row for one in seen for row in one.rows if self._may_be_recorded(row)]
        known = self._read({row.message for row in rows})
        for row in rows:
            message = known.get(row.message)
            root = None if message is None else self._root(message)
            if message is not None and root is not None and self._contexts.recorded(root):
                spans += self._waits(message, root, row)
                spans.append(self._attempt(message, root, row))
        return spans

    def _may_be_recorded(self, row: Row) -> bool:
        if not row.attempt or row.reason in _NOT_SENT or row.subscriber == ALL_SUBSCRIBERS:
            return False
        root = self._lineage.root_at(row.message)
        return root is None or self._contexts.recorded(root)

    def _read(self, sequences: Iterable[int]) -> dict[int, StoredMessage]:
        """These messages without their content, of which no more than a little is in memory at a time."""
        rest = sorted(sequences)
        found: dict[int, StoredMessage] = {}
        while rest:
            read = self._journal.read_many(rest, _READ_BYTES)
            found |= {one.sequence: one._replace(content=b"") for one in read if one is not None}
            rest = rest[len(read) or 1 :]
        return found

    def _root(self, message: StoredMessage) -> MessageId | None:
        root = self._contexts.root_of(message)
        if root is None:
            place = self._journal.place_of(message.root)
            if place is not None:
                root = place[0]
                self._contexts.note_root(message.root, root)
        return root

    # -- acceptance ---------------------------------------------------------------------------------------------------

    def _published(self, now_us: int, messages: Messages) -> Iterator[TraceSpan]:
        for message in messages.messages():
            root = self._root(message)
            if root is None or not self._contexts.recorded(root):
                continue
            if len(self._durable_us) >= _DURABLE_MAX:
                self._durable_us.clear()
            self._durable_us[message.sequence] = now_us
            queue = self._registry.queue_name(message.queue)
            first, *others = message.parents or (None,)
            links = [link for parent in others if parent is not None and (link := self._place_of(parent)) is not None]
            given = next((text for name, text in message.headers if name == TRACEPARENT), "")
            outside = read_traceparent(given)
            yield TraceSpan(
                SpanPlace(root, publish_span(message.id)),
                b"" if first is None else publish_span(first),
                f"publish {queue}",
                "producer",
                message.time_us,
                max(now_us, message.time_us),
                {**_about(message, queue), "messaging.operation.name": "publish", "messaging.operation.type": "send"},
                (*links, outside) if outside is not None else tuple(links),
            )

    def _place_of(self, parent: MessageId) -> SpanPlace | None:
        """The span in which a parent was accepted, in the trace of its own root; None where it is not recorded."""
        sequence = sequence_of(parent)
        root = self._lineage.root_at(sequence)
        if root is None:
            message = self._read([sequence]).get(sequence)
            root = None if message is None else self._root(message)
        recorded = root is not None and self._contexts.recorded(root)
        return SpanPlace(root, publish_span(parent)) if root is not None and recorded else None

    # -- attempts -----------------------------------------------------------------------------------------------------

    def _attempt(self, message: StoredMessage, root: MessageId, row: Row) -> TraceSpan:
        queue = self._registry.queue_name(message.queue)
        more: dict[str, str | int] = {
            "messaging.operation.name": "attempt",
            "messaging.operation.type": "process",
            "syncbrok.attempt": row.attempt,
            "syncbrok.outcome": row.outcome.name.lower(),
        }
        error = "" if row.outcome in _GOOD and row.reason is Reason.NONE else row.reason.name.lower()
        if row.status:
            more["http.response.status_code"] = row.status
        if error:
            more["error.type"] = error
            more["syncbrok.reason"] = error
        return TraceSpan(
            SpanPlace(root, attempt_span(message.id, row.subscriber, row.attempt)),
            publish_span(message.id),
            f"attempt {queue}",
            "consumer",
            row.time_us,
            row.time_us + row.latency_us,
            {**_about(message, queue), **self._to(row), **more},
            (),
            error,
        )

    def _to(self, row: Row) -> Attributes:
        name = self._registry.subscriber_id(row.subscriber)
        return {"messaging.destination.subscription.name": name} if name else {}

    def _waits(self, message: StoredMessage, root: MessageId, row: Row) -> Iterator[TraceSpan]:
        """The waits before an attempt, one after the other."""
        began_us, steps = self._steps(message, row)
        queue = self._registry.queue_name(message.queue)
        for place, (why, until_us) in enumerate(steps):
            ended_us = min(until_us, row.time_us)
            if ended_us - began_us >= _TOLD_FROM_US:
                again = sum(one == why for one, _ in steps[:place])
                name = f"{why}/{again}" if again else why
                yield TraceSpan(
                    SpanPlace(root, wait_span(message.id, row.subscriber, row.attempt, name)),
                    publish_span(message.id),
                    f"wait {queue}",
                    "internal",
                    began_us,
                    ended_us,
                    {**_about(message, queue), **self._to(row), "syncbrok.attempt": row.attempt,
                     "syncbrok.waits_for": why},
                )  # fmt: skip
            began_us = max(began_us, ended_us)

    def _steps(self, message: StoredMessage, row: Row) -> tuple[int, list[_Step]]:
        """The time from when on it waited, and until when for what, in this order. Nothing of a replay: no row tells
        its beginning."""
        known = self._registry.subscriber_numbered(row.subscriber)
        if row.attempt == 1:
            began_us = self._durable_us.get(message.sequence, message.time_us)
            if known is not None and message.sequence <= known.since:
                return began_us, []
            steps = [("delay", message.due_us)] if message.due_us else []
            steps.append(("parents", max((self._end(sequence_of(one), message, row) for one in message.parents),
                                         default=0)))  # fmt: skip
            if message.key:
                before = self._journal.with_key(message.key, message.queue, 1, message.sequence)
                steps.append(("key", max((self._end(one, message, row) for one in before), default=0)))
            steps.sort(key=_until)
            return began_us, [*steps, *self._at_last(known, max(began_us, steps[-1][1]), row.time_us)]
        for one in reversed(self._journal.rows_of(message.sequence)):
            before_it = one[1]
            if before_it.subscriber == row.subscriber and before_it.attempt == row.attempt - 1:
                if before_it.outcome is not Outcome.FAILED:
                    break
                began_us, due_us = before_it.time_us + before_it.latency_us, before_it.due_us
                return began_us, [("retry", due_us), *self._at_last(known, max(began_us, due_us), row.time_us)]
        return row.time_us, []

    def _at_last(self, known: Subscriber | None, from_us: int, until_us: int) -> Iterator[_Step]:
        """The steps of a message that waits for its subscriber alone."""
        last = "rate" if known is not None and known.settings.rate else "window"
        if known is not None:
            for since_us, ended_us, why in self._standstills.between(known, from_us, until_us):
                yield last, since_us
                yield why, ended_us
        yield last, until_us

    def _end(self, sequence: int, of: StoredMessage, row: Row) -> int:
        """The time at which a message that this one waited for had ended; 0 where that came after the attempt."""
        there = (row.subscriber, ALL_SUBSCRIBERS) if of.scope is Scope.SAME else None
        ends = (
            one.time_us + one.latency_us
            for _, one in self._journal.rows_of(sequence)
            if one.outcome not in _ON_ITS_WAY and (there is None or one.subscriber in there)
        )
        return max((end_us for end_us in ends if end_us <= row.time_us), default=0)


def _until(step: _Step) -> int:
    return step[1]


def _about(message: StoredMessage, queue: str) -> Attributes:
    return {
        "messaging.system": "syncbrok",
        "messaging.destination.name": queue,
        "messaging.message.id": id_text(message.id),
        "syncbrok.sequence": message.sequence,
    }


def size_of(seen: Sequence[Seen]) -> int:
    """How many messages and rows these are."""
    return sum(len(one.rows) + (0 if one.messages is None else one.messages.size) for one in seen)
