"""Ends that are owed while an attempt is out: its outcome comes first, and until it is back nothing is looked at."""

from collections.abc import Callable

import pytest

from syncbrok.delivery.handler import Attempt
from syncbrok.delivery.scheduler import Scheduler
from tests.support.factlog import BROKEN, TWO_RETRIES, FactLog, declared, log_with

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
        assert log.scheduler.owed(log.now_us, 10) == []
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
    assert log.scheduler.owed(log.now_us, 10) == []
    log.answer(first)
    assert log.scheduler.owed(log.now_us, 10) == []
    log.commit()
    assert log.scheduler.next_due_us() is None
    log.answer(second, BROKEN)
    assert log.pump() == []
    assert log.states() == {first.message: "expired"}


def test_a_checkpoint_knows_what_was_to_end() -> None:
    """DESIGN 4: what stands aside while its attempt is out ends after a restart, which knows of no attempt."""
    log, attempt = expired_while_out()
    assert log.scheduler.owed(log.now_us, 10) == []
    fresh = Scheduler()
    fresh.restore(log.scheduler.checkpoint(), declared(log.facts))
    assert fresh.take(log.now_us, log.durable, 10) == []
    assert [row.message for row in fresh.owed(log.now_us, 10)] == [attempt.message]
