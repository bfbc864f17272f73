"""Ends that are owed while an attempt is out: its outcome comes first, and until it is back nothing is looked at."""

from collections.abc import Callable

import pytest

from syncbrok.delivery.handler import Attempt
from syncbrok.delivery.scheduler.scheduler import Scheduler
from syncbrok.model.facts import Outcome, RearmedEntry, Reason
from tests.support.delivery.factlog import BROKEN, TWO_RETRIES, FactLog, declared, log_with

COMES_BACK: dict[str, tuple[Callable[[FactLog, Attempt], object], str]] = {
    "acknowledged": (lambda log, attempt: log.answer(attempt), "complete"),
    "failed": (lambda log, attempt: log.answer(attempt, BROKEN), "expired"),
    "given back": (lambda log, attempt: log.scheduler.give_back([attempt]), "expired"),
    "moved": (lambda log, _: log.move(1, 1, "http://elsewhere/"), "expired"),
    "deleted": (lambda log, _: log.unsubscribe(1), "complete"),
}


def expired_while_out() -> tuple[FactLog, Attempt]:
    """Retries are left; the time of the message is over, and its attempt is out."""
    log = log_with(1, retry=TWO_RETRIES)
    log.publish(1, expires_s=5)
    (attempt,) = log.take()
    log.later(5)
    assert log.take() == []
    return log, attempt


@pytest.mark.parametrize("how", COMES_BACK)
def test_what_expires_while_it_is_out_ends_when_that_is_back(how: str) -> None:
    """DESIGN 1, bounded: an attempt may be out for hours (a lease). Nothing is due meanwhile, and the message ends as
    soon as the attempt is back, however it comes back (RULES 9)."""
    comes_back, state = COMES_BACK[how]
    log, attempt = expired_while_out()
    for _ in range(2):
        assert log.scheduler.take_pending_ends(log.now_us, 10) == []
        assert log.scheduler.next_due_us() is None
    comes_back(log, attempt)
    assert log.pump() == []
    assert log.states() == {attempt.message: state}


def test_it_ends_when_the_last_of_its_attempts_is_back() -> None:
    """RULES 10: out at two subscribers, it ends when both have answered; the first one's answer counts as it is."""
    log = log_with(1, 2, retry=TWO_RETRIES)
    log.publish(1, expires_s=5)
    first, second = log.take()
    log.later(5)
    assert log.take() == []
    assert log.scheduler.take_pending_ends(log.now_us, 10) == []
    log.answer(first)
    assert log.scheduler.take_pending_ends(log.now_us, 10) == []
    log.commit()
    assert log.scheduler.next_due_us() is None
    log.answer(second, BROKEN)
    assert log.pump() == []
    assert log.states() == {first.message: "expired"}


def test_a_checkpoint_knows_what_was_to_end() -> None:
    """DESIGN 4: what stands aside while its attempt is out ends after a restart, which knows of no attempt."""
    log, attempt = expired_while_out()
    assert log.scheduler.take_pending_ends(log.now_us, 10) == []
    fresh = Scheduler()
    fresh.restore(log.scheduler.checkpoint(), declared(log.facts))
    assert fresh.take(log.now_us, log.durable, 10) == []
    assert [row.message for row in fresh.take_pending_ends(log.now_us, 10)] == [attempt.message]


def test_what_has_not_begun_should_not_once_it_has_ended() -> None:
    """RULES 13, 14, 22: an attempt that was taken stands until its message has ended or is to end, or its subscriber is
    deleted or gets another endpoint. It is told once, of that message at that subscriber alone."""
    log = log_with(1, 2, 3, retry=TWO_RETRIES)
    cancelled, expired, other = log.publish(1), log.publish(1, expires_s=5), log.publish(1)
    attempts = {(one.message, one.subscriber): one for one in log.take()}
    stands = log.scheduler.stands
    assert log.scheduler.given_up() == {}
    assert all(map(stands, attempts.values()))
    log.answer(attempts.pop((cancelled, 3)))
    log.end_all(cancelled, Outcome.DROPPED, Reason.CANCELLED)
    assert log.scheduler.given_up() == {1: {cancelled}, 2: {cancelled}}
    log.later(5)
    assert log.take() == []
    assert log.scheduler.take_pending_ends(log.now_us, 10) == []
    assert log.scheduler.given_up() == {1: {expired}, 2: {expired}, 3: {expired}}
    assert [key for key in attempts if stands(attempts[key])] == [(other, 1), (other, 2), (other, 3)]
    log.move(1, 1, "http://elsewhere/")
    log.unsubscribe(2)
    assert {number: other in told for number, told in log.scheduler.given_up().items()} == {1: True, 2: True}
    again = [one for one in log.take() if one.subscriber == 1]
    assert [(one.message, one.number) for one in again] == [(other, 2)]
    assert log.scheduler.take_pending_ends(log.now_us, 10) == []
    assert [key for key in attempts if stands(attempts[key])] == [(other, 3)]
    assert all(map(stands, again))


def test_a_replay_that_ends_is_sent_no_more() -> None:
    """RULES 21, 22: a cancel ends what a replay has not delivered; an attempt of it that is out does not begin."""
    log = log_with(1)
    message = log.publish(1)
    log.pump(lambda _: BROKEN)
    log.rearm(1, RearmedEntry(message, 1, (1,), ()))
    (attempt,) = log.take()
    assert log.scheduler.stands(attempt)
    log.end_all(message, Outcome.DROPPED, Reason.CANCELLED)
    assert log.scheduler.given_up() == {1: {message}}
    assert not log.scheduler.stands(attempt)
