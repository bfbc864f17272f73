"""Histories for judges of logs: what a real scheduler makes of random traffic, and the same with something wrong."""

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
    SubscriberDeleted,
    SubscriberSet,
)
from syncbrok.model.message import ParentFailure, RetryPolicy, Scope
from syncbrok.model.names import sequence_of
from tests.support.factlog import BROKEN, OK, FactLog


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
                log.take(dice.randrange(1, 6))
                for attempt in list(log.out):
                    if dice.random() < 0.7:
                        log.answer(attempt, BROKEN if dice.random() < 0.35 else OK)
                log.rows += log.scheduler.owed(log.now_us, 100)
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
    cursors = log.scheduler.books.cursors
    number = dice.choice(sorted(cursors))
    subscriber = cursors[number].subscriber
    match dice.choice(("pause", "pause", "add", "remove")):
        case "pause":
            log.subscriber(number, subscriber.queue, paused=not subscriber.settings.paused)
        case "add":
            used = [fact.number for fact in log.facts if isinstance(fact, SubscriberSet)]  # never given twice
            log.subscriber(max(used) + 1, dice.choice((1, 2, 3)))
        case "remove" if len(cursors) > 2:
            log.unsubscribe(number)
        case _:
            pass


def _replay(log: FactLog, dice: random.Random, replay: int) -> None:
    number = dice.choice(sorted(log.scheduler.books.cursors))
    dead = sorted(log.scheduler.dead_letters(number))
    made = {fact.sequence: fact for fact in log.messages()}
    rows = [row for fact in log.facts if isinstance(fact, Outcomes) for row in fact.rows]
    entries = []
    for sequence in dead:
        if sequence in log.scheduler.books.replays:
            continue
        above = [sequence_of(parent) for parent in made[sequence].parents]
        parents = tuple(one for one in above if one in dead or not log.scheduler.ended(one))
        tried = [row.attempt for row in rows if (row.message, row.subscriber) == (sequence, number)]
        policy = made[sequence].parent_failure
        entry = RearmedEntry(sequence, made[sequence].queue, (number,), parents, (max(tried, default=0),), policy)
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
    match dice.choice(("after", "after", "attempt", "outcome", "subscriber", "message")):
        case "after":
            return row._replace(after=max(0, row.after - dice.randrange(1, 12)))
        case "attempt":
            return row._replace(attempt=dice.randrange(0, 3))
        case "outcome":
            return row._replace(outcome=dice.choice(list(Outcome)))
        case "subscriber":
            return row._replace(subscriber=dice.randrange(1, 6))
        case _:
            return row._replace(message=max(1, row.message + dice.choice((-1, 1))))
