"""What attempts say of the messages before them, and that it stays true over restarts (RULES 24)."""

from syncbrok.model.facts import Outcome, RearmedEntry, Reason
from syncbrok.model.message import ParentFailure
from tests.support.delivery.confirmed import JudgedLog
from tests.support.delivery.factlog import BROKEN, OK, TWO_RETRIES, got, to

A, B = 1, 2


def judged(*counts: bool) -> JudgedLog:
    """Queue 1 with subscribers 1, 2, ..., of which these count."""
    log = JudgedLog(TWO_RETRIES)
    log.queue(1)
    for number, one in enumerate(counts, 1):
        log.subscriber(number, 1, counts=one)
    return log


def test_each_attempt_is_told_anew_what_came_through_before_it() -> None:
    """RULES 24: in order, behind one that hangs, and for the retry of that one; a restart changes nothing."""
    for how in ("none", "log", "checkpoint"):
        log = judged(True)
        first = log.publish(1)
        log.pump()
        slow, next_ = log.publish(1), log.publish(1)
        out = log.take()
        assert [one.confirmed for one in out] == [(first, slow - 1)] * 2
        log.answer(out[0], BROKEN)
        log.answer(out[1])
        log.commit()
        log.start_again(how)
        last = log.publish(1)
        (one,) = log.take()
        assert (one.message, one.confirmed) == (last, (next_, slow - 1))
        log.answer(one)
        log.commit()
        log.later(2)
        (again,) = log.take()
        assert (again.message, again.confirmed) == (slow, (first, slow - 1))


def test_what_has_ended_badly_is_not_named() -> None:
    """RULES 24: a message that was cancelled, and one that died, were not delivered; all up to them has ended."""
    log = judged(True)
    good, dead, cancelled = (log.publish(1) for _ in range(3))
    log.end_all(cancelled, Outcome.DROPPED, Reason.CANCELLED)
    for _ in range(3):
        log.pump(lambda attempt: BROKEN if attempt.message == dead else OK)
        log.later(2)
    newest = log.publish(1)
    (one,) = log.take()
    assert one.confirmed == (good, newest - 1)


def test_an_attempt_whose_row_is_lost_has_its_number_again() -> None:
    """RULES 9, 20: a checkpoint is taken while the row of a second attempt is under way, and the machine goes: that
    attempt is made again, as the second one."""
    log = judged(True)
    log.publish(1)
    (first,) = log.take()
    log.answer(first, BROKEN)
    log.commit()
    log.later(2)
    (second,) = log.take()
    log.answer(second)
    log.rows.clear()  # never durable
    log.start_again("checkpoint")
    log.later(2)
    (again,) = log.take()
    assert (again.number, again.message) == (second.number, second.message)


def test_who_counts_no_more_while_it_is_told_its_past_gets_all_that_comes() -> None:
    """RULES 3, 14: one that counts again, and then does not, before it has been told what came before: a cancelled
    message of a key that waited for that keeps nothing back there, and none overtakes another of its key."""
    for taken in (0, 1, 3):
        log = judged(True, True)
        for number in (A, B):
            log.count_otherwise(number)
        log.publish(1, key="a")
        for number in (A, B):
            log.count_otherwise(number)
        log.publish(1, key="a")
        cancelled = log.publish(1, key="a")
        for _ in range(taken):
            log.take(1)
        log.count_otherwise(A)
        log.end_all(cancelled, Outcome.DROPPED, Reason.CANCELLED)
        log.publish(1, key="a")
        for attempt in list(log.out):
            log.answer(attempt)
        for _ in range(4):
            log.feed()
            log.pump()
        assert got(log, A) == got(log, B) == [one.sequence for one in log.messages() if one.sequence != cancelled]


def test_who_does_not_count_gets_what_a_replay_mends() -> None:
    """RULES 14, 21: it was told a message that was cancelled before it went out; a replay sends that to another, and so
    it is complete: it comes here too, as it does where the broker starts again."""
    for how in ("none", "log", "checkpoint"):
        log = judged(True)
        message = log.publish(1)
        log.subscriber(B, 1, counts=False, start=1)
        log.feed()
        log.end_all(message, Outcome.DROPPED, Reason.CANCELLED)
        log.rearm(1, RearmedEntry(message, 1, (A,), (), (0,), ParentFailure.FAIL))
        log.start_again(how)
        made = []
        for _ in range(3):
            log.feed()
            made += to(log.pump())
        assert made == [(message, A), (message, B)]
