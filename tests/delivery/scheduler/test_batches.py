"""RULES 36: which messages stand in one request, by the line of a subscriber and by the scheduler. The clock is the
test's."""

import pytest

from syncbrok.delivery.handler import Attempt, AttemptResult, Delivery, Destination
from syncbrok.delivery.scheduler.batch_line import BatchLine
from syncbrok.delivery.scheduler.scheduler import Scheduler
from syncbrok.model import limits
from syncbrok.model.facts import QueueSet, Reason, StoredMessage, SubscriberSet
from syncbrok.model.message import BatchPolicy, RetryPolicy
from tests.support.delivery.endpoint import NOWHERE, message, message_id
from tests.support.delivery.factlog import FactLog, log_with

SECOND = 1_000_000
TO = Destination(NOWHERE, "orders", 1.0)


def waiting(of: StoredMessage | int, subscriber: int = 1) -> Delivery:
    one = of if isinstance(of, StoredMessage) else message(of)
    return Delivery(Attempt(one.sequence, subscriber, 1, 0, 0, 0), one, TO)


def sequences(deliveries: list[Delivery]) -> list[int]:
    return [one.attempt.message for one in deliveries]


def test_a_batch_goes_when_it_is_full_or_has_waited() -> None:
    """RULES 36: in the order of sequences, as many as ``max``; fewer once the first has waited."""
    line = BatchLine(BatchPolicy(3, 1.0), 9)
    for at, sequence in enumerate((5, 4, 8, 7)):
        line.put(waiting(sequence), at)
    assert sequences(line.next_batch(10)) == [4, 5, 7]
    assert line.next_batch(SECOND - 1) == []
    assert line.due_us() == SECOND + 2
    assert sequences(line.next_batch(SECOND + 2)) == [8]
    assert (len(line), line.requests, line.out, line.due_us()) == (0, 2, 4, None)


def test_requests_are_the_slots_of_the_window() -> None:
    """RULES 36: what is full waits until one of the requests is over; then there is room for as many as go together."""
    line = BatchLine(BatchPolicy(2, 0.0), 1)
    for sequence in range(1, 4):
        line.put(waiting(sequence), 0)
    assert sequences(line.next_batch(0)) == [1, 2]
    assert line.next_batch(SECOND) == []
    assert line.room(3) == 0
    line.answered(2)
    assert line.room(1) == 1
    assert sequences(line.next_batch(SECOND)) == [3]


def test_parents_and_keys_stand_apart() -> None:
    """RULES 36: even where an operator's replay has let both out."""
    line = BatchLine(BatchPolicy(9, 0.0), 9)
    line.put(waiting(message(1, key="k")), 0)
    line.put(waiting(message(2, parents=(message_id(1),))), 0)
    line.put(waiting(message(3, key="k")), 0)
    line.put(waiting(message(4, key="l")), 0)
    assert sequences(line.next_batch(0)) == [1, 4]
    assert sequences(line.next_batch(0)) == [2, 3]


def test_bytes_bound_a_batch() -> None:
    """RULES 36: it is full where the next content would make it too large; a single message is never too large."""
    line = BatchLine(BatchPolicy(9, 1.0), 9)
    large = bytes(limits.delivered_batch_bytes_max // 2)
    for sequence in range(1, 6):
        line.put(waiting(message(sequence, content=large)), 0)
    assert [sequences(line.next_batch(0)) for _ in range(3)] == [[1, 2], [3, 4], []]
    line.put(waiting(message(9, content=large * 3)), 0)
    assert [sequences(line.next_batch(SECOND)) for _ in range(3)] == [[5], [9], []]


def test_what_failed_in_company_has_less_of_it() -> None:
    """RULES 36: the smallest bound of those in a request holds; who may have no company goes at once, and does not end
    that of others."""
    line = BatchLine(BatchPolicy(9, 1.0), 9)
    line.put(waiting(1), 0, 3)
    line.put(waiting(2), 0, 1)
    for sequence in range(3, 7):
        line.put(waiting(sequence), 0)
    assert [sequences(line.next_batch(0)) for _ in range(3)] == [[1, 3, 4], [2], []]
    assert sequences(line.next_batch(SECOND)) == [5, 6]


def test_a_test_goes_alone_and_at_once() -> None:
    """RULES 36: whoever tests a subscriber waits for the answer, and what stands in line is left where it is."""
    line = BatchLine(BatchPolicy(9, 1.0), 9)
    line.put(waiting(1), 0)
    line.put(waiting(message(2, only=1)), 0)
    assert [sequences(line.next_batch(0)) for _ in range(2)] == [[2], []]
    assert sequences(line.clear()) == [1]


def test_what_is_withdrawn_waits_no_more() -> None:
    """RULES 36: nothing of it is left, and the others wait as long as before."""
    line = BatchLine(BatchPolicy(9, 1.0), 9)
    for sequence in range(1, 4):
        line.put(waiting(sequence), sequence)
    assert sequences(line.take_out({1, 7})) == [1]
    assert line.due_us() == SECOND + 2
    assert sequences(line.clear()) == [2, 3]
    assert line.due_us() is None


def batching(window: int = 2, **settings: object) -> FactLog:
    log = log_with(1, retry=RetryPolicy((1.0,) * 9, 0.0))
    log.subscriber(1, 1, batch=BatchPolicy(4, 1.0), window=window, **settings)
    return log


def send(log: FactLog) -> list[list[int]]:
    """Take what there is room for and put it into the line; what goes out now."""
    batches = log.scheduler.batches
    for attempt in log.take():
        line = batches.line(attempt.subscriber)
        assert line is not None
        batches.put(line, waiting(attempt.message), log.now_us)
    return [sequences(one.members) for one in batches.take(log.now_us)[0]]


def answer(log: FactLog, members: list[int], reason: Reason = Reason.NONE, status: int = 200) -> None:
    """One answer for all of a request."""
    line = log.scheduler.batches.line(1)
    assert line is not None
    log.scheduler.batches.over(1, line, len(members))
    by_message = {attempt.message: attempt for attempt in log.out}
    for place, sequence in enumerate(members):
        log.answer(by_message[sequence], AttemptResult(reason, status, place=place, together=len(members)))
    log.commit()


def test_the_scheduler_hands_out_no_more_than_may_go() -> None:
    """RULES 36: one batch beyond those that are out, none while the window's requests are; a slot that is free is
    used at once."""
    log = batching()
    made = [log.publish(1) for _ in range(20)]
    assert send(log) == [made[:4]]
    assert send(log) == [made[4:8]]
    assert send(log) == []
    assert len(log.out) == 8
    answer(log, made[:4])
    assert send(log) == [made[8:12]]


def test_room_that_comes_with_the_settling_is_used() -> None:
    """RULES 36: a request may be over some time before what it brought is settled; whoever looked between the two is
    asked again."""
    log = batching(9)
    made = [log.publish(1) for _ in range(12)]
    assert send(log) == [made[:4]]
    line = log.scheduler.batches.line(1)
    assert line is not None
    log.scheduler.batches.over(1, line, 4)
    assert send(log) == []
    for attempt in list(log.out):
        log.answer(attempt)
    assert send(log) == [made[4:8]]


@pytest.mark.parametrize(
    ("reason", "status", "then"),
    [
        (Reason.STATUS, 500, 2),
        (Reason.STATUS, 400, 2),
        (Reason.RECEIVER, 200, 2),
        (Reason.STATUS, 429, 4),
        (Reason.STATUS, 503, 4),
        (Reason.TIMEOUT, 0, 4),
        (Reason.CONNECT, 0, 4),
    ],
)
def test_a_failure_halves_the_next_attempt(reason: Reason, status: int, then: int) -> None:
    """RULES 36: but not where nobody answered or the endpoint was busy; a restart forgets it, a checkpoint does not."""
    log = batching(breaker=None)
    made = [log.publish(1) for _ in range(4)]
    assert send(log) == [made]
    answer(log, made, reason, status)
    declared = [fact for fact in log.facts if isinstance(fact, QueueSet | SubscriberSet)]
    parts, fresh = log.scheduler.checkpoint(), Scheduler()
    fresh.restore(parts, declared)
    for scheduler in (log.scheduler, fresh):
        assert {one.together for one in scheduler.state.cursors[1].retrying.values()} == {0 if then == 4 else 2}
    log.later(1)
    assert [len(some) for some in send(log)] == [then] * (4 // then)


def test_a_request_is_one_failure_to_a_breaker() -> None:
    """RULES 29 and 36: a breaker that opens after two failures opens after two requests, however many messages those
    had."""
    log = batching()
    made = [log.publish(1) for _ in range(8)]
    log.change(1, breaker=log.scheduler.state.cursors[1].subscriber.settings.breaker.__class__(2, 1.0, 2))
    assert send(log) == [made[:4]]
    answer(log, made[:4], Reason.STATUS, 503)
    assert not log.scheduler._breakers.is_open(log.scheduler.state.cursors[1])
    assert send(log) == [made[4:]]
    answer(log, made[4:], Reason.STATUS, 503)
    assert log.scheduler._breakers.is_open(log.scheduler.state.cursors[1])
    log.later(5)
    log.now_us += SECOND
    assert send(log) == []
    log.now_us += SECOND
    assert [len(some) for some in send(log)] == [1]


def test_one_that_is_stopped_or_declared_otherwise_gives_back_what_waits() -> None:
    """RULES 14 and 36: it goes when that is over, by the settings of then."""
    for changes in ({"paused": True}, {"batch": None}, {"batch": BatchPolicy(2, 0.0)}):
        log = batching(9)
        made = [log.publish(1) for _ in range(3)]
        assert send(log) == []
        log.change(1, **changes)
        batches, gone = log.scheduler.batches.take(log.now_us)
        assert (batches, sequences(gone)) == ([], made)
        log.scheduler.give_back(list(log.out))
        log.out.clear()
        assert len(log.take()) == (0 if "paused" in changes else 3 if changes["batch"] is None else 2)
