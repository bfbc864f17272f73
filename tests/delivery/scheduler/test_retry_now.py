"""An operator says that an endpoint is mended: what waits for another attempt goes now (RULES 26)."""

from syncbrok.delivery.handler import AttemptResult
from syncbrok.delivery.scheduler.scheduler import Scheduler
from syncbrok.model.facts import RearmedEntry, Reason
from syncbrok.model.message import ParentFailure, RetryPolicy, Scope
from tests.support.delivery.factlog import BROKEN, OK, FactLog, dead_letters, declared, log_with, to

DAY_S = 86_400.0


def patient(*subscribers: int, window: int = 64, waits: tuple[float, ...] = (DAY_S, DAY_S)) -> FactLog:
    """What a breaker holds back beside is the subject of ``test_breakers``."""
    return log_with(*subscribers, window=window, retry=RetryPolicy(waits, 0.0), breaker=None)


def test_what_waits_goes_at_the_windows_pace() -> None:
    """RULES 26: all that waits for another attempt at the subscriber is due, and at no other; no more of it is out at
    once than its window holds."""
    log = patient(1, 2, window=4)
    messages = [log.publish(1) for _ in range(10)]
    log.pump(lambda _: BROKEN)
    assert log.pump() == []
    assert log.scheduler.retry_now(1) == 10
    assert [(attempt.message, attempt.subscriber, attempt.number) for attempt in log.take()] == [
        (message, 1, 2) for message in messages[:4]
    ]
    assert log.take() == []
    assert log.scheduler.retry_now(1) == 0  # four are out, the others are due already
    for attempt in list(log.out):
        log.answer(attempt)
    log.commit()
    assert to(log.pump()) == [(message, 1) for message in messages[4:]]
    assert {log.scheduler.delivery_state(one, 2) for one in messages} == {"retrying"}


def test_one_message_goes_alone() -> None:
    """RULES 26: retried by its id, a message goes at that subscriber and nothing else does; what has ended, what has
    never been tried and what is unknown is not retried."""
    log = patient(1)
    first, second = log.publish(1), log.publish(1)
    log.pump(lambda _: BROKEN)
    assert log.scheduler.retry_now(1, first) == 1
    assert to(log.pump()) == [(first, 1)]
    assert log.scheduler.message_state(first) == "complete"
    untried = log.publish(1)
    assert [log.scheduler.retry_now(1, one) for one in (first, untried, 10_000)] == [0, 0, 0]
    assert log.scheduler.retry_now(7, second) == 0


def test_a_retry_spends_an_attempt() -> None:
    """RULES 26: attempts are spent as usual: one that fails has the schedule's next wait before it, counted from now,
    and with none left it is a dead letter; the wait that was cut short brings nothing early."""
    log = patient(1, waits=(10.0, 100.0))
    message = log.publish(1)
    log.pump(lambda _: BROKEN)
    log.later(1)
    log.scheduler.retry_now(1)
    log.pump(lambda _: BROKEN)
    log.later(10)  # when the first wait would have been over
    assert log.pump() == []
    assert log.scheduler.delivery_state(message, 1) == "retrying"
    log.later(90)
    assert [attempt.number for attempt in log.pump(lambda _: BROKEN)] == [3]
    assert dead_letters(log.scheduler, 1) == {message: Reason.STATUS}


def test_a_new_endpoint_brings_nothing_early() -> None:
    """RULES 3: the same where another endpoint takes over: the waits of the old one are forgotten altogether."""
    log = patient(1, waits=(10.0, 100.0))
    message = log.publish(1)
    log.pump(lambda _: BROKEN)
    log.move(1, 1, "http://elsewhere/")
    log.pump(lambda _: BROKEN)
    log.later(11)
    assert log.pump() == []
    assert log.scheduler.delivery_state(message, 1) == "retrying"


def test_resuming_makes_retries_due() -> None:
    """RULES 14: what had failed before a pause, or before a 410 disabled the subscriber, waits no longer when it is
    resumed, also after a restart; a change of anything else makes nothing due."""
    log = patient(1)
    message = log.publish(1)
    log.pump(lambda _: BROKEN)
    log.subscriber(1, 1, window=8)
    assert log.pump() == []
    log.subscriber(1, 1, paused=True)
    assert log.scheduler.retry_now(1) == 0
    assert log.pump() == []
    log.subscriber(1, 1)
    assert to(log.pump(lambda _: BROKEN)) == [(message, 1)]
    log.subscriber(1, 1, disabled_us=log.now_us)
    assert log.pump() == []
    log.subscriber(1, 1)
    log.restart()
    assert to(log.pump()) == [(message, 1)]


def test_what_is_due_is_due_after_a_checkpoint() -> None:
    """RULES 26: no fact says so; a clean restart goes on with what was due, a crash goes back to the schedule."""
    log = patient(1, window=1)
    messages = [log.publish(1) for _ in range(3)]
    log.pump(lambda _: BROKEN)
    assert log.scheduler.retry_now(1) == 3
    after = Scheduler()
    after.restore(log.scheduler.checkpoint(), declared(log.facts))
    log.scheduler = after
    assert to(log.pump()) == [(message, 1) for message in messages]
    others = [log.publish(1) for _ in range(3)]
    log.pump(lambda _: BROKEN)
    assert log.scheduler.retry_now(1) == 3
    log.restart()
    assert log.pump() == []
    log.later(DAY_S)
    assert to(log.pump()) == [(message, 1) for message in others]


def test_what_is_on_hold_is_not_released_by_a_retry() -> None:
    """RULES 11, 12: a gate that has shut behind an attempt stays shut: a child of scope ``same`` whose parent died
    elsewhere waits for a replay, and when that is over goes out once."""
    log = patient(1, 2, waits=(DAY_S, DAY_S, DAY_S))
    parent = log.publish(1)
    child = log.publish(1, parent, scope=Scope.SAME, policy=ParentFailure.HOLD)
    gone = AttemptResult(Reason.GONE, 410)
    log.pump(lambda attempt: gone if attempt.subscriber == 2 else BROKEN if attempt.message == child else OK)
    assert log.scheduler.message_state(child) == "held"
    for _ in range(2):
        log.scheduler.retry_now(1)
        assert log.pump() == []
    log.rearm(1, RearmedEntry(parent, 1, (2,), (), (1,)))
    (again,) = log.take()
    log.answer(again)
    log.commit()
    log.scheduler.retry_now(1)
    assert sorted(to(log.pump())) == [(child, 1), (child, 2)]
