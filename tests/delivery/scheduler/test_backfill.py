"""Subscribers that start in the past, among cancels, replays and others that leave (RULES 14)."""

import random

import pytest

from syncbrok.log.offline.order import check
from syncbrok.model.facts import Outcome, RearmedEntry, Reason
from syncbrok.model.message import ParentFailure, RetryPolicy, Scope
from syncbrok.model.names import sequence_of
from tests.support.delivery.factlog import FactLog, log_with, some_answers, to


def latecomer(log: FactLog, number: int, queue: int = 1) -> None:
    log.subscriber(number, queue, start=1)
    log.feed()


@pytest.mark.parametrize("outcome", [Outcome.DROPPED, Outcome.EXPIRED])
def test_what_died_of_a_parent_is_passed_by(outcome: Outcome) -> None:
    """RULES 12 and 14: nobody was to get it any more, whichever way the parent failed."""
    log = log_with(1)
    log.subscriber(1, 1, paused=True)
    parent = log.publish(1)
    child = log.publish(1, parent)
    log.end_all(parent, outcome, Reason.CANCELLED)
    log.pump()
    assert log.scheduler.message_state(child) == "dead"
    latecomer(log, 2)
    assert log.pump() == []


@pytest.mark.parametrize("restart", ["none", "log", "checkpoint"])
def test_what_was_passed_by_comes_when_a_replay_mends_it(restart: str) -> None:
    """RULES 14 and 21: who starts at the beginning gets it once it is complete, after its parents; not only at the
    next start of the broker, and once."""
    log = log_with(1)
    log.subscriber(1, 1, paused=True)
    parent = log.publish(1)
    child, grandchild = log.publish(1, parent), log.publish(1, parent + 1)
    log.end_all(parent, Outcome.DROPPED, Reason.CANCELLED)
    log.pump()
    latecomer(log, 2)
    assert log.pump() == []
    log.start_again(restart)
    if restart == "log":
        log.feed()
    family = ((parent, ()), (child, (parent,)), (grandchild, (child,)))
    log.rearm(1, *(RearmedEntry(message, 1, (1,), parents, (0,)) for message, parents in family))
    log.subscriber(1, 1)
    got = to(log.pump())
    assert [message for message, number in got if number == 2] == [parent, child, grandchild]
    assert [message for message, number in got if number == 1] == [parent, child, grandchild]
    assert not check(log.facts)
    log.restart()
    log.feed()
    assert log.pump() == []


def test_a_replay_to_others_does_not_keep_a_latecomer_from_catching_up() -> None:
    """RULES 14 and 21: what it acknowledges meanwhile has ended there, and is not sent to it again at each start."""
    log = log_with(1)
    message = log.publish(1)
    log.pump()
    log.subscriber(1, 1, paused=True)
    log.rearm(1, RearmedEntry(message, 1, (1,), (), (1,)))
    latecomer(log, 2)
    (attempt,) = log.take()
    assert (attempt.message, attempt.subscriber, attempt.replay) == (message, 2, 0)
    assert log.answer(attempt).outcome is Outcome.DELIVERED
    log.commit()
    log.restart()
    log.feed()
    assert log.pump() == []
    log.subscriber(1, 1)
    assert to(log.pump()) == [(message, 1)]


@pytest.mark.parametrize("restart", ["none", "log", "checkpoint"])
@pytest.mark.parametrize("fed", ["before", "after"])
def test_what_ended_before_its_parents_waits_for_them_at_a_latecomer(restart: str, fed: str) -> None:
    """RULES 13: those that the message counted are deleted, so it has ended though its parent has not; it is not sent
    before the parent's end, and it is sent then, whether the latecomer was told of it before or after."""
    log = log_with(1)
    log.queue(2)
    log.subscriber(3, 2)
    log.subscriber(1, 1, paused=True)
    parent = log.publish(1)
    child = log.publish(2, parent)
    log.subscriber(4, 2, start=1)
    if fed == "before":
        log.feed()
    log.unsubscribe(3)
    log.feed()
    assert log.pump() == []
    assert log.scheduler.message_state(child) == "complete"
    log.start_again(restart)
    log.feed()
    assert log.pump() == []
    log.subscriber(1, 1)
    assert to(log.pump()) == [(parent, 1), (child, 4)]


def test_ends_that_become_durable_together_are_heard_of() -> None:
    """RULES 13: the first row has a latecomer wait for what the second one ends."""
    log = log_with(3)
    log.queue(2)
    log.subscriber(2, 2, paused=True)
    first, second = log.publish(1), log.publish(2)
    log.pump()
    child = log.publish(1, second, first)
    log.unsubscribe(3)
    latecomer(log, 4)
    log.subscriber(2, 2)
    taken = sorted(log.take(), key=lambda one: one.message)
    assert to(taken) == [(first, 4), (second, 2)]
    for attempt in taken:
        log.answer(attempt)
    log.commit()
    assert to(log.pump()) == [(child, 4)]


@pytest.mark.parametrize("seed", range(40))
def test_a_latecomer_gets_everything_once_and_nothing_early(seed: int) -> None:
    """RULES 13 and 14 over random histories: the facts keep every promise, everything ends, and a start from the log
    sends nothing again: what a replay mends has come to those who had passed it by."""
    chance = random.Random(seed)
    log = log_with(1, 2, retry=RetryPolicy((5.0,), 0.0), window=4)
    log.queue(2, Scope.SAME)
    log.subscriber(3, 2)
    log.queue(3)  # nobody listens to it
    for _ in range(110):
        _act(log, chance)
        if chance.random() < 0.02:
            log.restart(through=chance.choice((None, chance.randint(1, len(log.facts)))))
        log.later(chance.choice((0, 0, 1, 3)))
    for cursor in list(log.scheduler.state.cursors.values()):
        if cursor.subscriber.settings.paused:
            log.subscriber(cursor.number, cursor.queue, start=cursor.subscriber.settings.start)
    for _ in range(8):
        log.feed()
        log.pump()
        log.later(30)
    assert not check(log.facts)
    left = {log.scheduler.message_state(one) for one in log.scheduler.unended(None, None, 10_000)}
    assert left <= {"held", "waiting"}
    assert not left or "held" in left
    log.restart()
    log.feed()
    assert to(log.pump()) == []


def _act(log: FactLog, chance: random.Random) -> None:
    known = [message.sequence for message in log.messages() if message.queue != 3]
    cursors = log.scheduler.state.cursors
    match chance.choices(("publish", "pump", "cancel", "replay", "pause", "come", "go", "fill"), _OFTEN)[0]:
        case "publish":
            parents = chance.sample(known[-12:], min(len(known[-12:]), chance.choice((0, 0, 1, 1, 2))))
            log.publish(
                chance.choice((1, 2)),
                *parents,
                policy=chance.choice(list(ParentFailure)),
                scope=chance.choice(list(Scope)),
                key=chance.choice(("", "", "k")),
                delay_s=chance.choice((0, 0, 0, 2)),
                expires_s=chance.choice((0, 0, 0, 0, 9)),
            )
        case "pump":
            log.feed()
            log.pump(some_answers(chance, 0.25))
        case "cancel":
            waiting = [one for one in known if not log.scheduler.ended(one)]
            if waiting:
                log.end_all(chance.choice(waiting), Outcome.DROPPED, Reason.CANCELLED)
        case "replay":
            _replay(log, chance)
        case "pause":
            one = cursors[chance.choice(sorted(cursors))].subscriber
            log.subscriber(one.number, one.queue, paused=chance.random() < 0.5, start=one.settings.start)
        case "come":
            start = chance.choice((1, chance.randint(1, len(log.facts))))
            log.subscriber(4 + len(log.facts), chance.choice((1, 2)), start=start)
        case "go" if len(cursors) > 2:
            log.unsubscribe(chance.choice(sorted(cursors)))
        case "fill":
            log.publish_run(3, chance.choice((3_000, 4_096)))


_OFTEN = (12, 6, 1.5, 2, 0.7, 0.5, 0.3, 0.3)


def _replay(log: FactLog, chance: random.Random) -> None:
    """Some that have ended, to some of those whom they count."""
    ended = [
        one
        for one in log.messages()
        if one.queue != 3 and log.scheduler.ended(one.sequence) and log.can_be_read(one.sequence)
    ]
    entries: list[RearmedEntry] = []
    for one in sorted(chance.sample(ended, min(len(ended), chance.choice((1, 1, 3))))):
        counted = log.scheduler.counted(one.sequence)
        if not counted:
            continue
        again = {entry.message for entry in entries}
        numbers = tuple(sorted(chance.sample(counted, chance.randint(1, len(counted)))))
        parents = tuple(p for p in map(sequence_of, one.parents) if p in again or not log.scheduler.ended(p))
        attempts = tuple(log.tries(one.sequence, number) for number in numbers)
        entries.append(RearmedEntry(one.sequence, one.queue, numbers, parents, attempts, one.parent_failure))
    if entries:
        log.rearm(len(log.facts), *entries)
