"""A log without a disk, for the scheduler: facts get sequences, are applied in order, and can be replayed."""

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

from syncbrok.delivery.handler import Attempt, AttemptResult
from syncbrok.delivery.scheduler.scheduler import Scheduler
from syncbrok.log.format.records import Record, SegmentOpened, facts_of
from syncbrok.model.facts import (
    ALL_SUBSCRIBERS,
    RULES,
    Attributes,
    Carried,
    Messages,
    Outcome,
    Outcomes,
    QueueSet,
    Rearmed,
    RearmedEntry,
    Reason,
    Row,
    Snapshot,
    StoredMessage,
    SubscriberDeleted,
    SubscriberSet,
    Tried,
    last_sequence,
)
from syncbrok.model.message import BreakerPolicy, ParentFailure, QueueSettings, RetryPolicy, Scope, SubscriberSettings
from syncbrok.model.names import QueueName, SubscriberId, make_message_id, sequence_of

KEY = bytes(range(16))
OK = AttemptResult(Reason.NONE, 200)
BROKEN = AttemptResult(Reason.STATUS, 500)
SECOND = 1_000_000
TWO_RETRIES = RetryPolicy((1.0, 1.0), 0.0)
NO_RETRIES = RetryPolicy((), 0.0)


class FactLog:
    """Owns the facts and the time; ``commit`` makes waiting rows durable."""

    def __init__(self, retry: RetryPolicy = TWO_RETRIES) -> None:
        self.retry = retry
        self.facts: list[Record] = []
        """as they stand in a log; the scheduler is told what they mean"""
        self.now_us = 1_700_000_000 * SECOND
        self.scheduler = Scheduler()
        self.rows: list[Row] = []
        self.urgent = False
        """whether somebody waits for the row of the newest answer"""
        self.out: list[Attempt] = []
        self.attempts: list[Attempt] = []
        self.ids: dict[int, bytes] = {}
        self.runs: dict[int, Messages] = {}
        """by the sequence of their first message; ``facts`` has their messages"""
        self.gone = 0
        """retention has dropped the facts up to here; ``facts`` keeps them for the judge"""

    @property
    def durable(self) -> int:
        return len(self.facts)

    def add(self, make: Callable[[int, int], Record]) -> int:
        """Append the fact that ``make(sequence, time)`` gives, and apply it; its sequence."""
        fact = make(len(self.facts) + 1, self.now_us)
        self.facts.append(fact)
        self.scheduler.apply_all(facts_of((fact,)))
        return fact.sequence

    def queue(self, number: int, scope: Scope = Scope.ALL, window: int = 64) -> None:
        settings = QueueSettings(scope=scope, retry=self.retry, window=window)
        self.add(lambda sequence, now: QueueSet(sequence, now, number, QueueName(f"q{number}"), settings))

    def subscriber(self, number: int, queue: int, **settings: object) -> None:
        known = [f for f in self.facts if isinstance(f, SubscriberSet) and f.number == number]
        settings.setdefault("endpoint", f"http://s{number}/")
        given = SubscriberSettings(**settings)  # type: ignore[arg-type]
        self.add(
            lambda sequence, now: SubscriberSet(
                sequence, now, number, queue, SubscriberId(f"s{number}"), known[0].since if known else sequence, given
            )
        )
        if not known and given.start is not None and given.start <= self.gone:  # as ``Declarations``
            self.rows.append(Row(self.gone, number, 0, Outcome.DROPPED, Reason.RETENTION, 0, self.now_us, 0, 0, 0))
            self.commit()

    def change(self, number: int, **changes: object) -> None:
        """Some settings of the subscriber, the others as they are."""
        known = next(one for one in reversed(self.facts) if isinstance(one, SubscriberSet) and one.number == number)
        settings = replace(known.settings, **changes)  # type: ignore[arg-type]
        self.add(lambda sequence, now: known._replace(sequence=sequence, time_us=now, settings=settings))

    def count_otherwise(self, number: int) -> None:
        """As ``Declarations``: from the fact on that makes it count it does."""
        known = next(one for one in reversed(self.facts) if isinstance(one, SubscriberSet) and one.number == number)
        counts = not known.settings.counts
        start = known.settings.start or known.since if counts else known.settings.start
        settings = replace(known.settings, counts=counts, start=start)
        since = len(self.facts) + 1 if counts else known.since
        self.add(lambda sequence, now: known._replace(sequence=sequence, time_us=now, since=since, settings=settings))

    def move(self, number: int, queue: int, endpoint: str, **settings: object) -> None:
        """The subscriber gets another endpoint."""
        since = next(f.since for f in self.facts if isinstance(f, SubscriberSet) and f.number == number)
        given = SubscriberSettings(endpoint=endpoint, **settings)  # type: ignore[arg-type]
        name = SubscriberId(f"s{number}")
        self.add(lambda sequence, now: SubscriberSet(sequence, now, number, queue, name, since, given))

    def unsubscribe(self, number: int) -> None:
        self.add(lambda sequence, now: SubscriberDeleted(sequence, now, number))

    def publish(
        self,
        queue: int,
        *parents: int,
        policy: ParentFailure = ParentFailure.FAIL,
        scope: Scope = Scope.ALL,
        key: str = "",
        delay_s: float = 0,
        expires_s: float = 0,
        only: int = 0,
        content: bytes = b"",
    ) -> int:
        def make(sequence: int, now: int) -> StoredMessage:
            self.ids[sequence] = make_message_id(now // 1000, sequence, KEY)
            return StoredMessage(
                sequence=sequence,
                time_us=now,
                id=self.ids[sequence],  # type: ignore[arg-type]
                queue=queue,
                root=sequence,
                depth=0,
                scope=scope,
                parent_failure=policy,
                parents=tuple(self.ids[parent] for parent in parents),  # type: ignore[misc]
                key=key,
                idempotency_key="",
                fingerprint=b"",
                due_us=now + int(delay_s * SECOND) if delay_s else 0,
                expires_us=now + int(expires_s * SECOND) if expires_s else 0,
                content_type="",
                headers=(),
                content=content,
                only=only,
            )

        return self.add(make)

    def publish_run(self, queue: int, count: int) -> None:
        """Bare messages that the scheduler gets as one run."""
        first = len(self.facts) + 1
        for sequence in range(first, first + count):
            self.ids[sequence] = make_message_id(self.now_us // 1000, sequence, KEY)
        ids = b"".join(self.ids[sequence] for sequence in range(first, first + count))
        attributes = Attributes(queue, Scope.ALL, ParentFailure.FAIL, "")
        run = Messages(first, self.now_us, ids, ((count, attributes),))
        self.runs[first] = run
        self.facts.extend(run.messages())
        self.scheduler.apply(run)

    def rearm(self, replay: int, *entries: RearmedEntry) -> None:
        self.add(lambda sequence, now: Rearmed(sequence, now, replay, entries))

    def end_all(self, message: int, outcome: Outcome, reason: Reason) -> None:
        """What an operator's cancel writes."""
        self.rows.append(Row(message, ALL_SUBSCRIBERS, 0, outcome, reason, 0, self.now_us, 0, 0, 0))
        self.commit()

    def take(self, limit: int = 1_000) -> list[Attempt]:
        taken = self.scheduler.take(self.now_us, self.durable, limit)
        self.out += taken
        self.attempts += taken
        return taken

    def answer(self, attempt: Attempt, answer: AttemptResult = OK) -> Row:
        """Settle it; its row waits for ``commit``."""
        self.out.remove(attempt)
        (row,), self.urgent = self.scheduler.settle([(attempt, answer)], self.now_us, lambda: 0.0)
        self.rows.append(row)
        return row

    def commit(self) -> None:
        """Make every waiting row durable, and apply it."""
        if self.rows:
            rows, self.rows = tuple(self.rows), []
            self.add(lambda sequence, now: Outcomes(sequence, now, rows))

    def pump(self, answers: Callable[[Attempt], AttemptResult] = lambda _: OK) -> list[Attempt]:
        """Deliver and commit until nothing more happens without the clock; the attempts made, in order."""
        made: list[Attempt] = []
        while True:
            taken = self.take()
            made += taken
            for attempt in taken:
                self.answer(attempt, answers(attempt))
            self.rows += self.scheduler.take_pending_ends(self.now_us, 1_000)
            if not taken and not self.rows and self.scheduler.next_due_us() != 0:
                return made
            self.commit()

    def feed(self, together: int = 20) -> None:
        """What ``Maintenance`` tells subscribers that start in the past, until they want no more."""
        while self.feed_once(together):
            pass

    def feed_once(self, together: int) -> bool:
        """So many messages each; whether anybody wanted some."""
        hungry = self.scheduler.needs_history()
        for subscriber, queue, after in hungry:
            known = [one for one in self.messages() if one.queue == queue and one.sequence > after]
            old = [one for one in known if one.only in (0, subscriber) and self.can_be_read(one.sequence)]
            told = [(one.sequence, tuple(map(sequence_of, one.parents))) for one in old[:together]]
            keys = {one.sequence: one.key for one in old[:together] if one.key}
            through = old[together - 1].sequence if len(old) > together else self.scheduler.newest
            self.scheduler.feed_history(subscriber, told, keys, through)
        return bool(hungry)

    def later(self, seconds: float) -> None:
        """Time goes by, and a wheel's bucket more."""
        self.now_us += int(seconds * SECOND) + 131_072

    def roll(self) -> int:
        """Begin a segment; the sequence of its first record."""
        known = declared(self.facts)
        queues = tuple(one for one in known if isinstance(one, QueueSet))
        subscribers = tuple(one for one in known if isinstance(one, SubscriberSet))
        bad = self.scheduler.bad_messages(self.gone)
        return self.add(lambda sequence, now: SegmentOpened(sequence, now, queues, subscribers, (), bad, rules=RULES))

    def _replayed_from(self, opened: int) -> list[int]:
        """The messages of replays that are read from the segments before this one."""
        kept = self.facts[self.gone :]
        where = {one.message.sequence: one.sequence for one in kept if isinstance(one, Carried)}
        replaying = self.scheduler.replaying(None)
        return [one for one in replaying if (one if one > self.gone else where.get(one, opened)) < opened]

    def drop_before(self, opened: int) -> None:
        """What retention does with the segments before the one that begins with this sequence (``Maintenance``)."""
        self.rows += self.scheduler.dropped_by_retention(opened - 1, self.now_us)
        self.commit()
        self.rows += self.scheduler.lost_in_replays(self._replayed_from(opened), self.now_us)
        self.commit()
        messages = {message.sequence: message for message in self.messages()}
        for sequence in self.scheduler.unended(None, opened - 1, 10_000):
            ended, tried = self.scheduler.carry(sequence)
            last = [(number, self.tries(sequence, number)) for number, _ in ended]
            tried += tuple(Tried(number, attempts, 0) for number, attempts in last if attempts)
            self.add(partial(Carried, message=messages[sequence], ended=ended, tried=tried))
        self.gone = opened - 1
        self.roll()

    def can_be_read(self, message: int) -> bool:
        """Whether its record, or one that carries it, is still there."""
        kept = self.facts[self.gone :]
        return message > self.gone or any(isinstance(one, Carried) and one.message.sequence == message for one in kept)

    def inherited(self) -> Iterator[Snapshot | Carried]:
        """As ``Journal.inherited``."""
        kept = self.facts[self.gone :]
        carried = {fact.message.sequence: fact for fact in kept if isinstance(fact, Carried)}
        old = [carried[sequence] for sequence in sorted(carried) if sequence <= self.gone]
        opened = [fact for fact in kept if isinstance(fact, SegmentOpened)]
        yield opened[0].snapshot._replace(bad=tuple(one for one in opened[-1].bad if one[0] not in carried))
        yield from old

    def restart(self, through: int | None = None) -> None:
        """Forget everything that is not durable; with ``through``, by way of a checkpoint taken after that fact."""
        self.rows, self.out = [], []
        fresh = Scheduler()
        if through:
            before = Scheduler()
            before.apply_all(facts_of(self.facts[:through]))
            parts = before.checkpoint()
            fresh.restore(parts, declared(self.facts[:through]))
        elif self.gone:
            fresh.inherit(self.inherited())
        at = through or self.gone
        while at < len(self.facts):  # a run that a checkpoint cuts in two is told one by one
            fact = self.runs.get(at + 1, self.facts[at])
            fresh.apply_all(facts_of((fact,)))
            at = last_sequence(fact)
        self.scheduler = fresh

    def start_again(self, how: str) -> None:
        """``none``: it does not; ``log``: from the facts alone; ``checkpoint``: from one of this moment."""
        if how == "log":
            self.restart()
        elif how == "checkpoint":
            parts = self.scheduler.checkpoint()
            self.scheduler = Scheduler()
            self.scheduler.restore(parts, declared(self.facts))

    def tries(self, message: int, subscriber: int) -> int:
        """The number of the last attempt whose row is durable; 0 for none."""
        rows = [row for fact in self.facts if isinstance(fact, Outcomes) for row in fact.rows]
        return max((row.attempt for row in rows if (row.message, row.subscriber) == (message, subscriber)), default=0)

    def states(self) -> dict[int, str]:
        return {fact.sequence: self.scheduler.message_state(fact.sequence) for fact in self.messages()}

    def messages(self) -> list[StoredMessage]:
        return [fact for fact in self.facts if isinstance(fact, StoredMessage)]


def declared(facts: Iterable[Record]) -> list[QueueSet | SubscriberSet]:
    """The queues and subscribers that stand after these facts, queues first."""
    queues: dict[int, QueueSet] = {}
    subscribers: dict[int, SubscriberSet] = {}
    for fact in facts:
        if isinstance(fact, QueueSet):
            queues[fact.number] = fact
        elif isinstance(fact, SubscriberSet):
            subscribers[fact.number] = fact
        elif isinstance(fact, SubscriberDeleted):
            subscribers.pop(fact.number, None)
    return [*queues.values(), *subscribers.values()]


def some_answers(chance: random.Random, share_failing: float) -> Callable[[Attempt], AttemptResult]:
    return lambda _: BROKEN if chance.random() < share_failing else OK


def log_with(
    *subscribers: int,
    retry: RetryPolicy = NO_RETRIES,
    scope: Scope = Scope.ALL,
    window: int = 64,
    breaker: BreakerPolicy | None = BreakerPolicy(),  # noqa: B008 (frozen)
) -> FactLog:
    """Queue 1 with these subscribers."""
    log = FactLog(retry)
    log.queue(1, scope, window)
    for number in subscribers:
        log.subscriber(number, 1, breaker=breaker)
    return log


def got(log: FactLog, subscriber: int) -> list[int]:
    """The messages that were delivered there, in order."""
    rows = [row for fact in log.facts if isinstance(fact, Outcomes) for row in fact.rows]
    return [row.message for row in rows if row.subscriber == subscriber and row.outcome is Outcome.DELIVERED]


def to(attempts: list[Attempt]) -> list[tuple[int, int]]:
    return [(attempt.message, attempt.subscriber) for attempt in attempts]


def dead_letters(scheduler: Scheduler, subscriber: int) -> dict[int, Reason]:
    """Message -> why it is a dead letter of the subscriber."""
    found = {one: scheduler.dead_letter(one, subscriber) for one in scheduler.dead_after((subscriber,), 0, 10_000)}
    return {message: reason for message, reason in found.items() if reason is not None}
