"""Histories for judges of logs: what a real scheduler makes of random traffic, the same with something wrong, and what
no broker would ever write."""

import random
from collections.abc import Sequence

from syncbrok.model.facts import (
    Fact,
    FileApplied,
    Outcome,
    Outcomes,
    Rearmed,
    RearmedEntry,
    Reason,
    Row,
    StoredMessage,
    SubscriberDeleted,
    SubscriberSet,
    Tried,
)
from syncbrok.model.message import ParentFailure, RetryPolicy, Scope
from syncbrok.model.names import sequence_of
from tests.support.delivery.factlog import BROKEN, OK, FactLog, dead_letters
from tests.support.log.story import Story


def history(dice: random.Random, steps: int) -> list[Fact]:  # noqa: C901  # a case for each thing that happens
    """Three queues, one of them without subscribers at first; everything an operator or an endpoint may do."""
    log = FactLog(RetryPolicy((5.0,), 0.0))
    for queue in (1, 2, 3):
        log.queue(queue, window=3)
    for number, queue in ((1, 1), (2, 1), (3, 2)):
        log.subscriber(number, queue)
    replays = 0
    for _ in range(steps):
        match dice.choice(("publish",) * 6 + ("work",) * 8 + ("later", "crash", "cancel", "operate", "replay")):
            case "publish":
                _publish(log, dice)
            case "work":
                log.feed_once(dice.randrange(1, 20))
                log.take(dice.randrange(1, 6))
                for attempt in list(log.out):
                    if dice.random() < 0.7:
                        log.answer(attempt, BROKEN if dice.random() < 0.35 else OK)
                log.rows += log.scheduler.take_pending_ends(log.now_us, 100)
                log.commit()
            case "later":
                log.later(dice.choice((1, 6, 20)))
            case "crash":
                log.restart()
            case "cancel":
                _cancel(log, dice)
            case "operate":
                _operate(log, dice)
            case "replay":
                replays += 1
                _replay(log, dice, replays)
    log.commit()
    return log.facts


def _publish(log: FactLog, dice: random.Random) -> None:
    known = [message.sequence for message in log.messages()]
    parents = dice.sample(known, min(len(known), dice.choice((0, 0, 1, 1, 2))))
    log.publish(
        dice.choice((1, 1, 2, 3)),
        *parents,
        policy=dice.choice(list(ParentFailure)),
        scope=dice.choice(list(Scope)),
        key=dice.choice(("", "", "a", "b")),
        delay_s=dice.choice((0, 0, 0, 3)),
    )


def _cancel(log: FactLog, dice: random.Random) -> None:
    open_ones = [one.sequence for one in log.messages() if not log.scheduler.ended(one.sequence)]
    log.commit()
    open_ones = [one for one in open_ones if not log.scheduler.ended(one)]
    if open_ones:
        log.end_all(dice.choice(open_ones), Outcome.DROPPED, Reason.CANCELLED)


def _operate(log: FactLog, dice: random.Random) -> None:
    cursors = log.scheduler.state.cursors
    number = dice.choice(sorted(cursors))
    subscriber = cursors[number].subscriber
    match dice.choice(("pause", "pause", "add", "remove")):
        case "pause":
            log.change(number, paused=not subscriber.settings.paused)
        case "add":
            used = [fact.number for fact in log.facts if isinstance(fact, SubscriberSet)]  # never given twice
            start = dice.choice((None, None, dice.randrange(1, len(log.facts) + 1)))
            log.subscriber(max(used) + 1, dice.choice((1, 2, 3)), start=start, counts=dice.random() < 0.7)
        case "remove" if len(cursors) > 2:
            log.unsubscribe(number)
        case _:
            pass


def _replay(log: FactLog, dice: random.Random, replay: int) -> None:
    number = dice.choice(sorted(log.scheduler.state.cursors))
    dead = sorted(dead_letters(log.scheduler, number))
    made = {fact.sequence: fact for fact in log.messages()}
    rows = [row for fact in log.facts if isinstance(fact, Outcomes) for row in fact.rows]
    entries = []
    for sequence in dead:
        if sequence in log.scheduler.state.replays:
            continue
        above = [sequence_of(parent) for parent in made[sequence].parents]
        parents = tuple(one for one in above if one in dead or not log.scheduler.ended(one))
        tried = [row.attempt for row in rows if (row.message, row.subscriber) == (sequence, number)]
        policy = made[sequence].parent_failure
        attempts, key = (max(tried, default=0),), made[sequence].key
        entry = RearmedEntry(sequence, made[sequence].queue, (number,), parents, attempts, policy, key)
        entries.append(entry)
    if entries:
        log.rearm(replay, *entries)


def disturbed(dice: random.Random, facts: Sequence[Fact], share: float) -> list[Fact]:
    """The same with about ``share`` of its records wrong. No sequence is missing or double."""
    told: list[Row] = []
    changed: list[Fact] = []
    for fact in facts:
        if isinstance(fact, Outcomes):
            rows = [_wrong(dice, row) if dice.random() < share else row for row in fact.rows]
            rows = [row for row in rows if dice.random() >= share / 2]
            if told and dice.random() < share:
                rows.insert(0, dice.choice(told))
            told += rows
            fact = fact._replace(rows=tuple(rows))
        elif isinstance(fact, SubscriberDeleted | Rearmed) and dice.random() < share:
            fact = FileApplied(fact.sequence, fact.time_us, "lost", "")
        changed.append(fact)
    return changed


def _wrong(dice: random.Random, row: Row) -> Row:
    match dice.choice(("after", "after", "ahead", "attempt", "outcome", "subscriber", "message")):
        case "after":
            return row._replace(after=max(0, row.after - dice.randrange(1, 12)))
        case "ahead":
            return row._replace(after=row.after + dice.randrange(1, 100))
        case "attempt":
            return row._replace(attempt=dice.randrange(0, 3))
        case "outcome":
            return row._replace(outcome=dice.choice(list(Outcome)))
        case "subscriber":
            return row._replace(subscriber=dice.randrange(1, 6))
        case _:
            return row._replace(message=max(1, row.message + dice.choice((-1, 1))))


def scribbled(dice: random.Random, steps: int) -> list[Fact]:
    """Facts as no broker writes them: nearly anything after anything, so that every rule is broken in many ways."""
    scribe = _Scribe(dice)
    for _ in range(steps):
        scribe.step()
    return scribe.story.facts


class _Scribe:
    def __init__(self, dice: random.Random) -> None:
        self.story = Story()
        self._dice = dice
        self._queues = [self.story.queue(name) for name in ("a", "b", "empty")]
        self._subscribers = [self.story.subscriber(queue) for queue in (*self._queues[:2], self._queues[0])]
        self._made: dict[int, StoredMessage] = {}
        self._replays = 0

    def step(self) -> None:
        kinds = ("publish",) * 8 + ("row",) * 30 + ("end", "rearm", "rearm", "carry", "operate", "snapshot", "gap")
        match self._dice.choice(kinds):
            case "publish":
                self._publish()
            case "row" if self._made:
                self._row()
            case "end" if self._made:
                self.story.end(self._message(), self._dice.choice(list(Outcome)[2:5]), self._dice.choice(list(Reason)))
            case "rearm" if self._made:
                self._rearm()
            case "carry" if self._made:
                self._carry()
            case "operate":
                self._operate()
            case "snapshot":
                self.story.snapshot(rules=self._dice.choice((1, 2, 3)))
            case "gap" if self._dice.random() < 0.2:
                self.story.gap(self.story.last + 1, self.story.last + self._dice.randrange(1, 4))
            case _:
                pass

    def _message(self) -> int:
        return self._dice.choice(list(self._made)[-6:])

    def _publish(self) -> None:
        dice, story = self._dice, self.story
        near = list(self._made)[-5:]
        made = story.publish(
            dice.choice(self._queues),
            *dice.sample(near, min(len(near), dice.choice((0, 1, 1, 2)))),
            policy=dice.choice(list(ParentFailure)),
            scope=dice.choice(list(Scope)),
            key=dice.choice(("", "", "k")),
            only=dice.choice((0, 0, 0, 0, 0, dice.choice(self._subscribers))),
        )
        found = story.facts[-1]
        assert isinstance(found, StoredMessage)
        self._made[made] = found

    def _row(self) -> None:
        dice, story = self._dice, self.story
        message = self._message() if dice.random() < 0.98 else dice.randrange(1, story.last + 1)
        likely = (Outcome.DELIVERED,) * 5 + (Outcome.FAILED,) * 4
        story.attempt(
            message,
            dice.choice(self._subscribers),
            dice.choice((*likely, *Outcome)),
            attempt=dice.choice((0, 1, 1, 1, 2, 2, 3)),
            after=max(0, story.last - dice.choice((0, 0, 0, 1, 3, 6))),
            reason=dice.choice((Reason.NONE, Reason.NONE, Reason.NONE, *Reason)),
        )

    def _rearm(self) -> None:
        dice = self._dice
        self._replays += dice.random() < 0.7 or not self._replays
        entries = []
        for message in sorted(dice.sample(list(self._made)[-6:], min(3, len(self._made)))):
            fact = self._made[message]
            whom = tuple(sorted(dice.sample(self._subscribers, dice.randrange(1, 3))))
            parents = tuple(sequence_of(parent) for parent in fact.parents if dice.random() < 0.7)
            key = fact.key if self._replays % 3 else ""  # as an older version wrote it
            entries.append(RearmedEntry(message, fact.queue, whom, parents, (), fact.parent_failure, key))
        self.story.rearm(self._replays, *entries)

    def _carry(self) -> None:
        dice = self._dice
        ended = [(number, dice.choice((Outcome.DELIVERED, Outcome.DEAD))) for number in self._subscribers
                 if dice.random() < 0.3]  # fmt: skip
        tried = [Tried(number, dice.randrange(1, 3), 0) for number in self._subscribers if dice.random() < 0.2]
        self.story.carry(self._made[self._message()], ended, tried)

    def _operate(self) -> None:
        dice, story = self._dice, self.story
        match dice.choice(("add", "add", "remove", "delete")):
            case "add" if self._queues:
                start = dice.choice((None, None, dice.randrange(1, story.last + 1)))
                counts = dice.random() < 0.6
                self._subscribers.append(story.subscriber(dice.choice(self._queues), start=start, counts=counts))
            case "remove" if story.subscribers:
                story.unsubscribe(dice.choice(list(story.subscribers)))
            case "delete" if len(story.queues) > 2 and dice.random() < 0.3:
                number = dice.choice(list(story.queues))
                story.delete_queue(number)
                self._queues.remove(number)
                for one in [fact.number for fact in story.subscribers.values() if fact.queue == number]:
                    del story.subscribers[one]
            case _:
                pass
