"""Messages and rows by the hundred: the short way of the bare ones ends where the long way does."""

import random

import pytest

from syncbrok.delivery.handler import AttemptResult
from syncbrok.model import limits
from syncbrok.model.facts import Outcome, Outcomes, Reason, Row
from syncbrok.model.message import RetryPolicy, Scope
from tests.support.delivery.factlog import (
    BROKEN,
    NO_RETRIES,
    OK,
    TWO_RETRIES,
    FactLog,
    dead_letters,
    log_with,
    some_answers,
    to,
)


def busy_log(messages: int, subscribers: int, retry: RetryPolicy, seed: int) -> FactLog:
    """Mostly bare messages, some with parents or a key, some for one subscriber alone, some watched."""
    chance = random.Random(seed)
    log = log_with(*range(1, subscribers + 1), retry=retry)
    known: list[int] = []
    for _ in range(messages):
        kind = chance.random()
        if kind < 0.9 or not known:
            known.append(log.publish(1))
        elif kind < 0.94:
            known.append(log.publish(1, chance.choice(known[-50:])))
        elif kind < 0.97:
            known.append(log.publish(1, key=chance.choice("ab")))
        else:
            known.append(log.publish(1, only=1))
        if chance.random() < 0.02:
            log.scheduler.watch(known[-1])
    return log


def cut(log: FactLog, rows_max: int) -> FactLog:
    """The same facts told to a fresh scheduler, the outcomes in facts of at most so many rows."""
    told = FactLog(log.retry)
    for fact in log.facts:
        if type(fact) is Outcomes:
            for at in range(0, len(fact.rows), rows_max):
                told.scheduler.apply(fact._replace(rows=fact.rows[at : at + rows_max]))
        else:
            told.scheduler.apply(fact)
    return told


@pytest.mark.parametrize("subscribers", [1, 3])
@pytest.mark.parametrize("retry", [TWO_RETRIES, NO_RETRIES])
@pytest.mark.parametrize("seed", [1, 2])
def test_rows_mean_the_same_however_they_are_cut_into_facts(subscribers: int, retry: RetryPolicy, seed: int) -> None:
    """What is counted down for hundreds of neighbours at once, live, leaves the state that a restart makes row by
    row."""
    log = busy_log(5_000, subscribers, retry, seed)
    log.pump(some_answers(random.Random(seed), 0.05))
    open_now = log.scheduler.unended(None, None, 10_000)
    live = log.states()
    for rows_max in (1, 7, 10_000):
        told = cut(log, rows_max)
        assert told.scheduler.unended(None, None, 10_000) == open_now
        assert told.scheduler.take(log.now_us, log.durable, 100) == []
        assert {sequence: told.scheduler.message_state(sequence) for sequence in live} == live
        assert told.scheduler.state.table.open == log.scheduler.state.table.open
        for number in range(1, subscribers + 1):
            assert dead_letters(told.scheduler, number) == dead_letters(log.scheduler, number)
            for sequence in open_now:
                assert told.scheduler.delivery_tried(sequence, number) == log.scheduler.delivery_tried(sequence, number)


@pytest.mark.parametrize("subscribers", [0, 3])
def test_single_messages_are_the_same_together_and_one_by_one(subscribers: int, seed: int) -> None:
    """What a commit takes in at once leaves the state, to the last byte of a checkpoint, that a restart makes fact by
    fact; and the same attempts are next."""
    chance = random.Random(seed)
    log = busy_log(3_000, subscribers, TWO_RETRIES, seed)
    log.pump(some_answers(chance, 0.05))
    one_by_one, together = FactLog(log.retry), FactLog(log.retry)
    at = 0
    while at < len(log.facts):
        commit = log.facts[at : at + chance.randrange(1, 100)]
        for fact in commit:
            one_by_one.scheduler.apply(fact)
        together.scheduler.apply_all(commit)
        at += len(commit)
        attempts = [told.scheduler.take(log.now_us, log.durable, 5) for told in (one_by_one, together)]
        assert attempts[0] == attempts[1]
    assert together.scheduler.checkpoint() == one_by_one.scheduler.checkpoint()


def test_every_end_is_told_to_whoever_watches_it() -> None:
    """A watched message among hundreds of others that nobody watches is reported, once."""
    log = log_with(1, 2)
    sequences = [log.publish(1) for _ in range(300)]
    watched = sequences[::37]
    for sequence in watched:
        log.scheduler.watch(sequence)
    log.pump()
    assert sorted(log.scheduler.take_watched()) == watched
    assert log.scheduler.take_watched() == []


def test_a_run_stops_at_the_window_and_at_what_must_wait() -> None:
    """A run of neighbours goes out as far as the window allows, and past a child whose parent is among them."""
    log = log_with(1, window=10)
    bare = [log.publish(1) for _ in range(4)]
    child = log.publish(1, bare[0])
    bare += [log.publish(1) for _ in range(20)]
    assert [attempt.message for attempt in log.take()] == bare[:10]
    for attempt in list(log.out):
        log.answer(attempt)
    log.commit()
    assert [attempt.message for attempt in log.take()] == [child, *bare[10:19]]


def test_answers_of_many_subscribers_are_counted_each_where_it_belongs() -> None:
    """Answers come mixed, good and bad; each counts for its own subscriber when its row is durable, and each slot is
    free. A start comes to the same figures, from the log or a checkpoint and the rows behind it."""
    log = log_with(1, 2, 3, retry=TWO_RETRIES)
    for _ in range(20):
        log.publish(1)
    out = log.take()
    random.Random(5).shuffle(out)
    answers = [
        (attempt, AttemptResult(Reason.NONE, 202) if attempt.message % 5 else AttemptResult(Reason.STATUS, 500))
        for attempt in out
    ]
    rows, _ = log.scheduler.settle(answers, log.now_us, lambda: 0.0)
    assert [(row.message, row.subscriber, row.status) for row in rows] == [
        (attempt.message, attempt.subscriber, answer.status) for attempt, answer in answers
    ]
    failed = sum(attempt.message % 5 == 0 for attempt in out) // 3
    log.rows += rows
    before = len(log.facts)
    for start in (None, 0, before, before + 1):
        if start is None:
            log.commit()
        else:
            log.restart(through=start)
        for number in (1, 2, 3):
            now = log.scheduler.subscriber_statistics(number)
            assert (now.delivered, now.failed, now.in_flight, now.retrying) == (20 - failed, failed, 0, failed)
        queue = log.scheduler.queue_statistics(1)
        assert (queue.accepted, queue.delivered, queue.failed) == (20, 3 * (20 - failed), 3 * failed)


def test_a_message_whose_record_is_gone_is_dead_at_once() -> None:
    """No later attempt would find it either: the retries that are left are of no use."""
    log = log_with(1, retry=TWO_RETRIES)
    log.publish(1)
    (attempt,) = log.take()
    row = log.answer(attempt, AttemptResult(Reason.CONTENT_LOST))
    assert (row.outcome, row.due_us) == (Outcome.DEAD, 0)
    log.commit()
    assert log.states() == {attempt.message: "dead"}


def test_a_child_far_behind_its_parent_does_not_go_out_with_it() -> None:
    """RULES 11 and 13, scope same: a turn looks at many messages in pieces; what one has found is out for the next."""
    log = log_with(1, scope=Scope.SAME)
    parent = log.publish(1, scope=Scope.SAME)
    for _ in range(100):
        log.publish(1, delay_s=1_000)
    child = log.publish(1, parent, scope=Scope.SAME)
    after = log.publish(1)
    assert to(log.take()) == [(parent, 1), (after, 1)]
    log.answer(log.out[0])
    log.commit()
    assert to(log.take()) == [(child, 1)]


def test_one_delivery_too_many_is_noticed() -> None:
    """A row that stands twice in one fact counts once; the state never count below nothing."""
    log = log_with(1, 2)
    message = log.publish(1)
    row: Row = log.answer(log.take()[0])
    log.rows.append(row)
    log.commit()
    assert log.scheduler.pending_deliveries(message) == (2,)
    assert log.scheduler.message_state(message) == "pending"


def test_a_queue_forgets_what_all_its_subscribers_have_behind_them() -> None:
    """The list of what comes next is bounded by what some cursor has not looked at yet; one that is paused keeps its
    part, and gets it when it goes on."""
    log = log_with(1, 2)
    log.subscriber(2, 1, paused=True)
    sequences = [log.publish(1) for _ in range(12_000)]
    (queue_state,) = log.scheduler.state.queues.values()
    assert [attempt.message for attempt in log.pump()] == sequences
    assert len(queue_state.backlog.sequences) == len(sequences)
    log.subscriber(2, 1)
    assert [attempt.message for attempt in log.pump()] == sequences
    assert len(queue_state.backlog.sequences) < len(sequences) // 2
    log.restart(through=len(log.facts))
    assert log.pump() == []
    last = log.publish(1)
    assert to(log.pump()) == [(last, 1), (last, 2)]


def test_a_message_dead_at_one_subscriber_is_dead_whoever_acknowledges_last() -> None:
    """RULES 10: complete only if no delivery is dead, also where both rows stand in one fact, in either order."""
    for first, last in ((OK, BROKEN), (BROKEN, OK)):
        log = log_with(1, 2)
        message = log.publish(1)
        for attempt, answer in zip(log.take(), (first, last), strict=True):
            log.answer(attempt, answer)
        log.commit()
        assert log.states() == {message: "dead"}


def test_catching_up_does_not_count() -> None:
    """RULES 14: a subscriber added late acknowledges what came before it; that completes nothing."""
    log = log_with(1)
    message = log.publish(1)
    (attempt,) = log.take()
    log.subscriber(2, 1, start=1)
    log.scheduler.feed_history(2, [(message, ())], {}, log.scheduler.newest)
    (late,) = log.take()
    assert (late.message, late.subscriber) == (message, 2)
    log.answer(late)
    log.commit()
    assert log.states() == {message: "pending"}
    log.answer(attempt)
    log.commit()
    assert log.states() == {message: "complete"}


def test_a_retry_that_is_due_goes_before_what_was_never_tried() -> None:
    """What waits longest goes first; a long backlog does not starve a retry."""
    log = log_with(1, retry=TWO_RETRIES, window=1)
    first = log.publish(1)
    for _ in range(5):
        log.publish(1)
    log.answer(log.take()[0], BROKEN)
    log.answer(log.take()[0])
    log.later(2)
    assert to(log.take()) == [(first, 1)]


def test_an_answer_from_the_endpoint_that_was_left_is_late() -> None:
    """A subscriber moves while its attempt is out: the message goes to the new endpoint at once, and what the old one
    says of it changes nothing and frees no slot."""
    log = log_with(1, window=1)
    message = log.publish(1)
    log.take()
    log.move(1, 1, "http://new/")
    (again,) = log.take()
    assert (again.message, again.number) == (message, 2)
    assert log.answer(log.out[0]).outcome is Outcome.LATE
    assert log.scheduler.subscriber_statistics(1).in_flight == 1
    log.answer(again)
    log.commit()
    assert log.states() == {message: "complete"}


def test_somebody_who_watches_waits_for_the_end_and_not_for_an_attempt() -> None:
    """RULES 24: a row is urgent when a publisher waits for the end it tells; a failed attempt ends nothing."""
    log = log_with(1, retry=TWO_RETRIES)
    watched, other = log.publish(1), log.publish(1)
    log.scheduler.watch(watched)
    mine, its = log.take()
    assert (mine.message, its.message) == (watched, other)
    log.answer(mine, BROKEN)
    assert not log.urgent
    log.later(2)
    (again,) = log.take()
    log.answer(its)
    assert not log.urgent
    log.answer(again)
    assert log.urgent


def test_confirmed_outcomes_make_room_for_others() -> None:
    """So many outcomes may wait for the disk, not so many in all: deliveries go on as rows become durable."""
    log = log_with(1, 2, 3, 4)
    messages = limits.outcomes_waiting_max // 4 + 1_000
    for _ in range(messages):
        log.publish(1)
    assert len(log.pump()) == 4 * messages
