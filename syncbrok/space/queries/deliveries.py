"""Deliveries as people read them: the attempts of a message sorted by subscriber, and dead letters with their story."""

from collections.abc import Iterable, Mapping, Sequence
from heapq import nsmallest

from syncbrok.model import limits
from syncbrok.model.facts import ALL_SUBSCRIBERS, Outcome, Reason, Row, StoredMessage
from syncbrok.model.journal import MessageIndex
from syncbrok.model.message import Scope
from syncbrok.model.names import MessageId, QueueName, SubscriberId, sequence_of
from syncbrok.space.queries.reading import SLICE, Reading
from syncbrok.space.queries.sources import Sources
from syncbrok.space.queries.wait_explanation import ENDED_DELIVERIES
from syncbrok.space.reports import DeadLetter, DeliveryReport, Page

_ENDS = frozenset(Outcome) - {Outcome.FAILED, Outcome.LATE}
_WELL = (Outcome.DELIVERED, Outcome.SKIPPED)
Reasons = dict[int, list[tuple[int, Reason]]]
"""message -> its dead letters as (subscriber number, why); in the order of the log"""
_BADLY = ("dead", "expired", "dropped")


def by_subscriber(rows: Iterable[Row], counted: Iterable[int]) -> dict[int, list[Row]]:
    """The rows of one message by subscriber (number), oldest first. A row that ends the message everywhere appears
    under each counted subscriber where it had not ended before (RULES 20)."""
    sorted_rows: dict[int, list[Row]] = {number: [] for number in counted}
    ended: dict[int, Outcome] = {}
    for row in rows:
        if row.subscriber != ALL_SUBSCRIBERS:
            sorted_rows.setdefault(row.subscriber, []).append(row)
            if row.outcome in _ENDS:
                ended[row.subscriber] = row.outcome
            elif row.outcome is Outcome.FAILED:
                ended.pop(row.subscriber, None)  # a replay has armed it again
            continue
        for number, its_rows in sorted_rows.items():
            # A delivery that ended badly and ends again was re-armed in between; one that ended well stays as it was.
            if ended.get(number) not in _WELL:
                its_rows.append(row._replace(subscriber=number))
                ended[number] = row.outcome
    return sorted_rows


def last_end(rows: Sequence[Row]) -> Row | None:
    return next((row for row in reversed(rows) if row.outcome in _ENDS), None)


def _of_its_death(rows: Sequence[Row], reason: Reason) -> Sequence[Row]:
    """The rows of a dead letter. A row behind it that ends the message everywhere ended a replay to others; the log
    does not say with the row whom that was for, the scheduler knows who it was not."""
    deaths = (at for at, row in enumerate(rows, 1) if row.outcome is Outcome.DEAD and row.reason == reason)
    died = max(deaths, default=len(rows))
    return [*rows[:died], *(row for row in rows[died:] if row.outcome not in _ENDS)]


class DeliveryReports:
    """Makes the reports. Keeps nothing between two of them."""

    def __init__(self, sources: Sources, reading: Reading) -> None:
        self._registry = sources.registry
        self._schedule = sources.schedule
        self._journal = sources.journal
        self._run_blocking = sources.run_blocking
        self._reading = reading

    def states(self, message: StoredMessage) -> tuple[DeliveryReport, ...]:
        """The counted deliveries of a message, without their attempts."""
        return tuple(self._report(message, number, (), counted=True) for number in self._counted(message))

    def with_attempts(self, message: StoredMessage, rows: Sequence[Row]) -> tuple[DeliveryReport, ...]:
        """All deliveries of a message with their attempts: counted ones first, those of deleted subscribers after the
        others, then those of subscribers that do not count, or that caught up on it."""
        counted = self._counted(message)
        # At those who do not count a message that nobody else was to get has not ended with that.
        theirs = [row for row in rows if (row.subscriber, row.outcome) != (ALL_SUBSCRIBERS, Outcome.SKIPPED)]
        apart = self._registry.uncounted(message.queue, message.sequence, message.only)
        its_rows = by_subscriber(theirs, apart)
        sorted_rows = by_subscriber(rows, counted) | {number: its_rows[number] for number in apart}
        # A carried message may have lost its rows: then nobody can tell whether a deleted subscriber had it.
        whole = message.time_us >= self._journal.sections()[0].first_time_us
        for number, gone in self._registry.departed(message.queue, message.sequence):
            if message.only in (0, number) and (whole or number in sorted_rows):
                # A later end of the whole message found this delivery ended already.
                ends = rows if gone.counts else theirs
                its = [row for row in ends if row.subscriber != ALL_SUBSCRIBERS or row.time_us <= gone.time_us]
                sorted_rows[number] = by_subscriber(its, (number,))[number]
                counted += (number,) if gone.counts else ()
        return tuple(
            self._report(message, number, its_rows, counted=number in counted)
            for number, its_rows in sorted_rows.items()
        )

    async def dead_letters(self, queue: int, after: int, limit: int) -> Page[DeadLetter]:
        """Dead letters of a queue (number), of all its subscribers, in the order of the log, beyond the sequence
        ``after``. The letters of one message stay together, so a page may hold a few more than ``limit``."""
        snapshots = [
            (subscriber.number, self._schedule.dead_letters(subscriber.number))
            for subscriber in self._registry.subscribers(queue)
        ]
        chosen, next_ = await self._run_blocking(_first, snapshots, after, limit)
        return Page(await self._letters(chosen), next_)

    # -- parts --------------------------------------------------------------------------------------------------------

    def _counted(self, message: StoredMessage) -> tuple[int, ...]:
        return self._registry.counted(message.queue, message.sequence, message.only)

    def _report(self, message: StoredMessage, number: int, rows: Sequence[Row], *, counted: bool) -> DeliveryReport:
        subscriber = self._registry.subscriber_numbered(number)
        state = self._schedule.delivery_state(message.sequence, number)
        died = self._schedule.dead_letter(message.sequence, number)
        if died is not None:
            rows = _of_its_death(rows, died)
        end = last_end(rows) if state in ENDED_DELIVERIES else None
        if end is not None:
            state = end.outcome.name.lower()  # the log knows more: skipped, or ended before the message was dropped
        reason = ""
        if state in _BADLY:
            reason = reason_text(Reason.UNSUBSCRIBED if end is None and subscriber is None else _reason(end))
        due_us = 0
        if state in ("retrying", "paused"):
            due_us = self._schedule.delivery_tried(message.sequence, number)[1]
        return DeliveryReport(
            subscriber=self._registry.subscriber_id(number),
            endpoint="" if subscriber is None else subscriber.settings.endpoint,
            state=state,
            counted=counted,
            attempts=tuple(rows),
            next_attempt_us=due_us,
            reason=reason,
            blocked_by=self._blocked_by(message, number) if state == "blocked" else (),
        )

    def _blocked_by(self, message: StoredMessage, number: int) -> tuple[MessageId, ...]:
        """The parents that close the gate at this subscriber, or the message before it of its key there. With scope
        ``same`` parents of the same queue that it has had already do not (RULES 11)."""
        blockers = set(self._schedule.blocked_by(message.sequence))
        parents = [parent for parent in message.parents if sequence_of(parent) in blockers]
        if message.scope is Scope.SAME:
            parents = [parent for parent in parents if not self._had(sequence_of(parent), number)]
        if parents:
            return tuple(parents)
        blocker = self._schedule.blocked_at(message.sequence, number)
        known = None if blocker is None else self._reading.known(blocker.message)
        return () if known is None or known == message.id else (known,)

    def _had(self, parent: int, number: int) -> bool:
        if number not in self._schedule.counted(parent):
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
                sorted_rows = by_subscriber(rows, self._registry.counted(queue_number, sequence))
                for number, reason in chosen[sequence]:
                    name = self._registry.subscriber_id(number)
                    its_rows = _of_its_death(sorted_rows.get(number, ()), reason)
                    id_ = head.id if head else None
                    found.append(_letter(id_, sequence, queue, name, reason, its_rows))
        return tuple(found)


def _is_lost(letters: Sequence[tuple[int, Reason]]) -> bool:
    return any(reason is Reason.CONTENT_LOST for _, reason in letters)


def _first(snapshots: Sequence[tuple[int, Mapping[int, Reason]]], after: int, limit: int) -> tuple[Reasons, int | None]:
    """The first messages beyond ``after`` that hold ``limit`` dead letters, and where the next page begins. Runs in a
    thread, since there may be a million; the snapshots are this call's own."""
    ahead: set[int] = set()
    for _, letters in snapshots:
        ahead.update(nsmallest(limit + 1, (sequence for sequence in letters if sequence > after)))
    chosen: Reasons = {}
    count = 0
    for sequence in sorted(ahead):
        if count >= limit:
            return chosen, max(chosen)
        chosen[sequence] = [(number, letters[sequence]) for number, letters in snapshots if sequence in letters]
        count += len(chosen[sequence])
    return chosen, None


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


def _rows(journal: MessageIndex, sequences: Sequence[int]) -> list[list[Row]]:
    return [[row for _, row in journal.rows_of(sequence)] for sequence in sequences]
