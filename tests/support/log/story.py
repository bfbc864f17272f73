"""Facts as a test tells them: declares, publishes and attempts in order, with sequences and times that count up."""

from collections.abc import Iterable

from syncbrok.log.format.records import Gap, SegmentOpened, SegmentSealed
from syncbrok.model.facts import (
    ALL_SUBSCRIBERS,
    RULES,
    Carried,
    Fact,
    Outcome,
    Outcomes,
    QueueDeleted,
    QueueSet,
    Rearmed,
    RearmedEntry,
    Reason,
    Row,
    StoredMessage,
    SubscriberDeleted,
    SubscriberSet,
    Tried,
)
from syncbrok.model.message import ParentFailure, QueueSettings, Scope, SubscriberSettings
from syncbrok.model.names import MessageId, QueueName, SubscriberId, make_message_id

ID_KEY = bytes(range(16))
SECOND_US = 1_000_000
START_US = 1_700_000_000 * SECOND_US


def message_id(sequence: int) -> MessageId:
    """The id every story gives the message of ``sequence``."""
    return make_message_id(START_US // 1000 + sequence, sequence, ID_KEY)


class Story:
    """``facts`` is the log told so far. What is made is named by its sequence (messages) or number (the rest)."""

    def __init__(self, first: int = 1) -> None:
        self.facts: list[Fact] = []
        self.queues: dict[int, QueueSet] = {}
        self.subscribers: dict[int, SubscriberSet] = {}
        self._next = first
        self._number = 0

    @property
    def last(self) -> int:
        return self._next - 1

    def add(self, kind: type, *fields: object, **more: object) -> int:
        """Any fact: its sequence and time are filled in."""
        sequence = self._next
        self._next += 1
        self.facts.append(kind(sequence, START_US + sequence * SECOND_US, *fields, **more))
        return sequence

    def skip(self, records: int) -> None:
        """Leave sequences out."""
        self._next += records

    # -- declarations --------------------------------------------------------------------------------------------------

    def queue(self, name: str = "orders", **more: object) -> int:
        self._number += 1
        self.add(QueueSet, self._number, QueueName(name), QueueSettings(), **more)
        self.queues[self._number] = self.facts[-1]  # type: ignore[assignment]
        return self._number

    def subscriber(self, queue: int, **settings: object) -> int:
        self._number += 1
        made = SubscriberSettings(endpoint="http://127.0.0.1:1/", **settings)  # type: ignore[arg-type]
        self.add(SubscriberSet, self._number, queue, SubscriberId(f"s{self._number}"), self._next, made)
        self.subscribers[self._number] = self.facts[-1]  # type: ignore[assignment]
        return self._number

    def unsubscribe(self, number: int, **more: object) -> int:
        del self.subscribers[number]
        return self.add(SubscriberDeleted, number, **more)

    def delete_queue(self, number: int, **more: object) -> int:
        del self.queues[number]
        return self.add(QueueDeleted, number, **more)

    def snapshot(
        self,
        bad: Iterable[tuple[int, Outcome]] = (),
        rules: int = RULES,
        lost: Iterable[tuple[int, int]] = (),
        **more: object,
    ) -> int:
        declared = (tuple(self.queues.values()), tuple(self.subscribers.values()), (), tuple(bad))
        return self.add(SegmentOpened, *declared, rules=rules, lost=tuple(lost), **more)

    def seal(self) -> int:
        """The end of a segment; what it counts is filled in where it is written (``segment_files``)."""
        return self.add(SegmentSealed, 0, 0)

    # -- messages ------------------------------------------------------------------------------------------------------

    def message(
        self,
        sequence: int,
        queue: int,
        parents: Iterable[int] = (),
        *,
        policy: ParentFailure = ParentFailure.FAIL,
        scope: Scope = Scope.ALL,
        key: str = "",
        idempotency_key: str = "",
        content: bytes = b"content",
        only: int = 0,
        due_us: int = 0,
        erase_after_us: int = 0,
    ) -> StoredMessage:
        return StoredMessage(
            sequence,
            START_US + sequence * SECOND_US,
            message_id(sequence),
            queue,
            sequence,
            0,
            scope,
            policy,
            tuple(message_id(parent) for parent in parents),
            key,
            idempotency_key,
            bytes(16) if idempotency_key else b"",
            due_us,
            0,
            "text/plain",
            (),
            content,
            only,
            erase_after_us=erase_after_us,
        )

    def publish(self, queue: int, *parents: int, **more: object) -> int:
        self.facts.append(self.message(self._next, queue, parents, **more))  # type: ignore[arg-type]
        self._next += 1
        return self._next - 1

    def carry(
        self,
        message: StoredMessage,
        ended: Iterable[tuple[int, Outcome]] = (),
        tried: Iterable[Tried] = (),
    ) -> int:
        return self.add(Carried, message, tuple(ended), tuple(tried))

    def row(
        self,
        message: int,
        subscriber: int,
        outcome: Outcome = Outcome.DELIVERED,
        *,
        after: int | None = None,
        attempt: int = 1,
        reason: Reason = Reason.NONE,
        detail: bytes = b"",
    ) -> Row:
        """A row as of now; ``after`` is the last sequence told unless given."""
        began = self.last if after is None else after
        status = 200 if outcome is Outcome.DELIVERED else 0
        return Row(message, subscriber, attempt, outcome, reason, status, START_US + began, 0, began, 1_000, detail)

    def outcomes(self, *rows: Row) -> int:
        return self.add(Outcomes, rows)

    def attempt(self, message: int, subscriber: int, outcome: Outcome = Outcome.DELIVERED, **more: object) -> int:
        """One attempt in a record of its own."""
        return self.outcomes(self.row(message, subscriber, outcome, **more))  # type: ignore[arg-type]

    def end(self, message: int, outcome: Outcome, reason: Reason, subscriber: int = ALL_SUBSCRIBERS) -> int:
        """An end without an attempt."""
        return self.outcomes(self.row(message, subscriber, outcome, attempt=0, reason=reason))

    def rearm(self, replay: int, *entries: RearmedEntry, subscriber: int = 0) -> int:
        """``subscriber``: the only one it is for."""
        return self.add(Rearmed, replay, entries, subscriber)

    def gap(self, first: int, last: int) -> int:
        """Sequences lost and named: the record has the last of them and stands for all."""
        self._next = last + 1
        self.facts.append(Gap(last, START_US + last * SECOND_US, first, last, "lost"))
        return last
