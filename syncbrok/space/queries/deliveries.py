"""Deliveries as people read them: the attempts of a message sorted by subscriber, and dead letters with their story."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from syncbrok.model import limits
from syncbrok.model.facts import Reason, Row, StoredMessage
from syncbrok.model.journal import MessageIndex
from syncbrok.model.message import Scope, Subscriber
from syncbrok.model.names import SEQUENCE_MAX, MessageId, QueueName, SubscriberId, sequence_of
from syncbrok.model.units import shown_endpoint
from syncbrok.space.pause import pauses
from syncbrok.space.queries.message_rows import MessageRows, last_end, of_its_death
from syncbrok.space.queries.reading import SLICE, Reading, rows_of
from syncbrok.space.queries.sources import Sources
from syncbrok.space.queries.wait_explanation import ENDED_DELIVERIES
from syncbrok.space.reports import DeadLetter, DeliveryReport, Page

Reasons = dict[int, list[tuple[int, Reason]]]
"""message -> its dead letters as (subscriber number, why); in the order of the log"""
_BADLY = ("dead", "expired", "dropped")


class SoughtDeliveries(NamedTuple):
    """The deliveries that are sought: of the messages of ``queue`` to ``subscriber``, beyond the sequence ``after`` and
    up to ``through`` (None: to the end); with ``state`` those alone that stand so there."""

    queue: str
    subscriber: str
    after: int = 0
    through: int | None = None
    state: str | None = None


class DeliveryReports:
    """Makes the reports. Keeps nothing between two of them."""

    def __init__(self, sources: Sources, reading: Reading) -> None:
        self._registry = sources.registry
        self._schedule = sources.schedule
        self._is_past = sources.erasures.is_past
        self._journal = sources.journal
        self._run_blocking = sources.run_blocking
        self._reading = reading

    def states(self, message: StoredMessage) -> Iterator[DeliveryReport]:
        """The counted deliveries of a message, without their attempts. One after the other: there may be thousands."""
        open_parents = self._open_parents(message)
        for number in self._counted(message):
            yield self._report(message, number, (), open_parents, counted=True)

    def with_attempts(self, message: StoredMessage, rows: MessageRows) -> Iterator[DeliveryReport]:
        """All deliveries of a message with their attempts: counted ones first, those of deleted subscribers after the
        others, then those of subscribers that do not count, or that caught up on it. One after the other, as
        ``states``."""
        counted = dict.fromkeys(self._counted(message))
        # At those who do not count a message that nobody else was to get has not ended with that.
        apart = dict.fromkeys(self._registry.uncounted(message.queue, message.sequence, message.only))
        numbers = dict.fromkeys((*counted, *rows.subscribers, *apart))
        # A carried message may have lost its rows: then nobody can tell whether a deleted subscriber had it.
        whole = message.time_us >= self._journal.sections()[0].first_time_us
        departed = {
            number: gone
            for number, gone in self._registry.departed(message.queue, message.sequence)
            if message.only in (0, number) and (whole or number in numbers)
        }
        open_parents = self._open_parents(message)
        for number in dict.fromkeys((*numbers, *departed)):
            gone = departed.get(number)
            if gone is not None:  # a later end of the whole message found this delivery ended already
                its_rows = rows.of(number, skipped=gone.counts, until_us=gone.time_us)
            elif number in apart:
                its_rows = rows.of(number, skipped=False)
            else:
                its_rows = rows.of(number, from_start=number in counted)
            is_counted = number in counted if gone is None else gone.counts or number in counted
            yield self._report(message, number, its_rows, open_parents, counted=is_counted)

    def at(self, message: StoredMessage, rows: MessageRows, subscriber: Subscriber) -> DeliveryReport | None:
        """The delivery of a message of its queue to one subscriber, with its attempts; None where it is not for it."""
        number, settings = subscriber.number, subscriber.settings
        if message.only not in (0, number):
            return None
        is_counted = subscriber.counted_by(message.sequence)
        starts_before = (settings.start or subscriber.since) <= message.sequence
        if not (is_counted or starts_before or number in rows.subscribers):
            return None
        # As ``with_attempts``.
        own = rows.of(number, skipped=settings.counts, from_start=is_counted or not settings.counts)
        return self._report(message, number, own, (), counted=is_counted)

    async def dead_letters(self, queue: int, after: int, limit: int, *, newest_first: bool) -> Page[DeadLetter]:
        """Dead letters of a queue (number), of all its subscribers, in the order of the log or against it, beyond the
        sequence ``after``. The letters of one message stay together, so a page may hold a few more than ``limit``."""
        numbers = [subscriber.number for subscriber in self._registry.subscribers(queue)]
        ahead_of = partial(self._schedule.dead_after, numbers, newest_first=newest_first)
        chosen: Reasons = {}
        looked, count, more, pause = after, 0, False, pauses()
        if newest_first and not after:
            looked = SEQUENCE_MAX
        while not more and (ahead := ahead_of(looked, limit + 1)):
            for sequence in ahead:
                died = [(number, self._schedule.dead_letter(sequence, number)) for number in numbers]
                is_past = self._is_past(sequence)
                letters = [(number, reason) for number, reason in died if reason is not None and not is_past]
                more = bool(letters) and count >= limit
                if more:
                    break
                if letters:
                    chosen[sequence] = letters
                    count += len(letters)
                await pause()
            looked = ahead[-1]
        return Page(await self._letters(chosen), next(reversed(chosen)) if more else None)

    # -- parts --------------------------------------------------------------------------------------------------------

    def _counted(self, message: StoredMessage) -> tuple[int, ...]:
        return self._registry.counted(message.queue, message.sequence, message.only)

    def _report(
        self,
        message: StoredMessage,
        number: int,
        rows: Sequence[Row],
        open_parents: tuple[MessageId, ...],
        *,
        counted: bool,
    ) -> DeliveryReport:
        subscriber = self._registry.subscriber_numbered(number)
        state = self._schedule.delivery_state(message.sequence, number)
        died = self._schedule.dead_letter(message.sequence, number)
        if died is not None:
            rows = of_its_death(rows, died)
        end = last_end(rows) if state in ENDED_DELIVERIES else None
        if end is not None:
            state = end.outcome.name.lower()  # the log knows more: skipped, or ended before the message was dropped
        reason = ""
        if state in _BADLY or (state == "skipped" and end is not None):
            reason = reason_text(Reason.UNSUBSCRIBED if end is None and subscriber is None else _reason(end))
        due_us = 0
        if state in ("retrying", "paused"):
            due_us = self._schedule.delivery_tried(message.sequence, number)[1]
        return DeliveryReport(
            subscriber=self._registry.subscriber_id(number),
            endpoint="" if subscriber is None else shown_endpoint(subscriber.settings.endpoint),
            state=state,
            counted=counted,
            attempts=tuple(rows),
            next_attempt_us=due_us,
            reason=reason,
            blocked_by=self._blocked_by(message, number, open_parents) if state == "blocked" else (),
        )

    def _open_parents(self, message: StoredMessage) -> tuple[MessageId, ...]:
        """The parents that close the message's gate. Looked for once: at each of its subscribers they are the same."""
        if not message.parents:
            return ()
        blockers = set(self._schedule.blocked_by(message.sequence))
        return tuple(parent for parent in message.parents if sequence_of(parent) in blockers)

    def _blocked_by(
        self, message: StoredMessage, number: int, open_parents: tuple[MessageId, ...]
    ) -> tuple[MessageId, ...]:
        """The parents that close the gate at this subscriber, or the message before it of its key there. With scope
        ``same`` parents of the same queue that it has had already do not (RULES 11)."""
        parents = open_parents
        if parents and message.scope is Scope.SAME:
            parents = tuple(parent for parent in parents if not self._had(sequence_of(parent), number))
        if parents:
            return parents
        blocker = self._schedule.blocked_at(message.sequence, number)
        known = None if blocker is None else self._reading.known(blocker.message)
        return () if known is None or known == message.id else (known,)

    def _had(self, parent: int, number: int) -> bool:
        if not self._schedule.is_counted(parent, number):
            return False
        return self._schedule.delivery_state(parent, number) in ("delivered", "skipped")

    async def _letters(self, chosen: Reasons) -> tuple[DeadLetter, ...]:
        heads = await self._reading.heads(chosen)
        # A lost message is listed even if the log no longer tells its id: an operator must hear of it.
        sequences = [sequence for sequence in chosen if sequence in heads or _is_lost(chosen[sequence])]
        found: list[DeadLetter] = []
        for at in range(0, len(sequences), SLICE):
            some = sequences[at : at + SLICE]
            for sequence, rows in zip(some, await self._run_blocking(_rows, self._journal, some), strict=True):
                head = heads.get(sequence)
                queue_number = head.queue if head else self._registry.subscriber_queue(chosen[sequence][0][0])
                queue = self._registry.queue_name(queue_number)
                for number, reason in chosen[sequence]:
                    name = self._registry.subscriber_id(number)
                    subscriber = self._registry.subscriber_numbered(number)
                    counted = subscriber is not None and subscriber.counted_by(sequence)
                    its_rows = of_its_death(rows.of(number, from_start=counted), reason)
                    id_ = head.id if head else None
                    found.append(_letter(id_, sequence, queue, name, reason, its_rows))
        return tuple(found)


def _is_lost(letters: Sequence[tuple[int, Reason]]) -> bool:
    return any(reason is Reason.CONTENT_LOST for _, reason in letters)


def _letter(
    id_: MessageId | None, sequence: int, queue: QueueName, name: SubscriberId, reason: Reason, rows: Sequence[Row]
) -> DeadLetter:
    tried = next((row for row in reversed(rows) if row.attempt), None)
    end = last_end(rows)
    shown = tried or end
    return DeadLetter(
        id=id_,
        sequence=sequence,
        queue=queue,
        subscriber=name,
        reason=reason_text(reason),
        status=tried.status if tried else 0,
        attempts=tried.attempt if tried else 0,
        time_us=end.time_us if end else 0,
        detail=shown.detail[: limits.response_bytes_kept] if shown else b"",
    )


def reason_text(reason: Reason) -> str:
    """As answers show it: the name in lower case, ``""`` for none."""
    return "" if reason is Reason.NONE else Reason(reason).name.lower()


def _reason(end: Row | None) -> Reason:
    return Reason.NONE if end is None else end.reason


def _rows(journal: MessageIndex, sequences: Sequence[int]) -> list[MessageRows]:
    return [rows_of(journal, sequence) for sequence in sequences]
