"""RULES 33: how often a subscriber is tried, by its bucket and by the scheduler. The clock is the test's."""

import pytest

from syncbrok.delivery.handler import AttemptResult
from syncbrok.delivery.scheduler.rate_bucket import RateBucket
from syncbrok.model.errors import BadSetting
from syncbrok.model.facts import RearmedEntry, Reason
from syncbrok.model.message import BreakerPolicy, RetryPolicy
from syncbrok.model.units import parse_rate
from tests.support.delivery.factlog import log_with

SECOND_US = 1_000_000


def test_a_bucket_holds_a_second_and_refills_at_its_rate() -> None:
    """RULES 33: full at the start, with what comes in a second; then one token each interval, and never more."""
    bucket = RateBucket("10/s")
    assert bucket.room(64, 0) == 10
    bucket.take(10, 0)
    assert bucket.room(64, 0) == 0
    assert bucket.room(64, bucket.next_us() - 1) == 0
    assert bucket.room(64, bucket.next_us()) == 1
    assert bucket.room(64, SECOND_US // 2) == 5
    bucket.take(5, SECOND_US // 2)
    bucket.give_back(2)
    assert bucket.room(64, SECOND_US // 2) == 2
    assert bucket.room(64, 3_600 * SECOND_US) == 10
    assert bucket.room(3, 3_600 * SECOND_US) == 3


def test_slow_rates_hold_one_token() -> None:
    """RULES 33: 30/m and 5/h let one go at once, and the next after 2 s and 12 min."""
    for text, wait_us in (("30/m", 2 * SECOND_US), ("5/h", 720 * SECOND_US)):
        bucket = RateBucket(text)
        assert bucket.room(9, 0) == 1
        bucket.take(1, 0)
        assert abs(bucket.next_us() - wait_us) <= 1


def test_a_clock_set_back_does_not_stop_it() -> None:
    """RULES 25 and 33: after the clock was set back by a day it waits no longer than an empty bucket does."""
    bucket = RateBucket("2/s")
    bucket.take(2, 86_400 * SECOND_US)
    assert bucket.room(2, 0) == 0
    assert bucket.room(2, SECOND_US // 2) == 1


@pytest.mark.parametrize("text", ["", "0/s", "5", "1/d", "1.5/s", "-1/s", "9999999/s", "1/s ", 5, None])
def test_what_is_no_rate_is_refused(text: object) -> None:
    """RULES 33: a rate is a whole number by a second, a minute or an hour."""
    with pytest.raises(BadSetting):
        parse_rate(text)


def test_every_attempt_takes_a_token_and_spends_no_other() -> None:
    """RULES 33: first attempts and retries alike; what waits is pending, and goes when there is a token again."""
    log = log_with(1, retry=RetryPolicy((1.0,), 0.0))
    log.subscriber(1, 1, rate="2/s")
    messages = [log.publish(1) for _ in range(5)]
    first = log.take()
    assert [attempt.message for attempt in first] == messages[:2]
    assert not log.take()
    assert log.scheduler.delivery_state(messages[2], 1) == "pending"
    assert log.scheduler.rate_next_us(1, log.now_us) > log.now_us
    log.answer(first[0], AttemptResult(Reason.STATUS, 500))
    log.later(1)
    second = log.take()
    assert [attempt.message for attempt in second] == [messages[0], messages[2]], "the retry has paid too"
    log.answer(second[1], AttemptResult(Reason.FILTERED))
    third = log.take()
    assert [attempt.message for attempt in third] == [messages[3]], "what was filtered gave its token back"
    log.scheduler.give_back(third)
    assert [attempt.message for attempt in log.take()] == [messages[3]], "so does what was not begun"
    assert not log.take()


def test_a_new_rate_holds_at_once() -> None:
    """RULES 33: another rate begins with a full bucket; none lets everything go."""
    log = log_with(1)
    log.subscriber(1, 1, rate="1/h")
    messages = [log.publish(1) for _ in range(6)]
    assert len(log.take()) == 1
    log.subscriber(1, 1, rate="2/s")
    assert len(log.take()) == 2
    log.subscriber(1, 1, rate=None)
    assert len(log.take()) == len(messages) - 3


def test_replays_pay_and_tests_do_not() -> None:
    """RULES 33: what is sent again takes a token like any other; a message of ``/test`` takes none."""
    log = log_with(1)
    log.subscriber(1, 1, rate="1/h")
    test, first = log.publish(1, only=1), log.publish(1)
    assert [attempt.message for attempt in log.take() + log.take()] == [test, first]
    second = log.publish(1)
    for attempt in list(log.out):
        log.answer(attempt)
    log.commit()
    log.rearm(1, RearmedEntry(first, 1, (1,), ()))
    assert not log.take(), "neither the replay nor the next one has a token"
    log.later(3_600)
    (paid,) = log.take()
    log.later(3_600)
    (other,) = log.take()
    assert {paid.message, other.message} == {first, second}
    assert not log.take()


def test_probes_pay() -> None:
    """RULES 29 and 33: an open breaker whose probe is due waits for a token as well."""
    log = log_with(1, retry=RetryPolicy((1.0,) * 9, 0.0))
    breaker = BreakerPolicy(failures=1, probe_s=(1.0, 1.0))
    log.subscriber(1, 1, rate="1/m", breaker=breaker)
    log.publish(1)
    (attempt,) = log.take()
    log.answer(attempt, AttemptResult(Reason.STATUS, 503))
    log.later(30)
    assert not log.take(), "the probe is due, and there is no token"
    log.later(30)
    assert len(log.take()) == 1


def test_the_token_is_taken_last() -> None:
    """RULES 33: what waits for its key, for room in the window or for the breaker takes no token; an attempt does."""
    log = log_with(1, retry=RetryPolicy((1.0,) * 9, 0.0))
    log.subscriber(1, 1, rate="2/s", window=2, breaker=BreakerPolicy(failures=1, probe_s=(5.0, 5.0)))
    first, behind = log.publish(1, key="k"), log.publish(1, key="k")
    (attempt,) = log.take()
    assert attempt.message == first
    assert not log.take(), "the other one waits for its key"
    assert log.scheduler.rate_next_us(1, log.now_us) == 0, "and has not taken the second token"
    log.answer(attempt, AttemptResult(Reason.STATUS, 503))
    log.publish(1)
    assert not log.take(), "the breaker is open"
    assert log.scheduler.rate_next_us(1, log.now_us) == 0, "the second token is still there"
    log.later(5)
    assert len(log.take()) == 1, "the probe"
    assert not log.take(), "one probe at a time"
    assert log.scheduler.rate_next_us(1, log.now_us) == 0, "which took one of two"
    assert log.scheduler.delivery_state(behind, 1) == "blocked"
