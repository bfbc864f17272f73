"""Breakers in the scheduler: what goes to an endpoint that fails, what dies meanwhile, how it comes back."""

from syncbrok.delivery.handler import Attempt, AttemptResult
from syncbrok.model.facts import Outcomes, Reason, Row
from syncbrok.model.message import BreakerPolicy, RetryPolicy
from tests.support.delivery.factlog import BROKEN, OK, FactLog, log_with, to

WAITS = RetryPolicy((10.0, 100.0, 1_000.0), 0.0)
REFUSED = AttemptResult(Reason.CONNECT)
BAD = AttemptResult(Reason.STATUS, 400)


def state_of(log: FactLog, subscriber: int = 1) -> str:
    report = log.scheduler.breaker(subscriber)
    assert report is not None
    return report.state


def failing(count: int = 30, window: int = 10) -> FactLog:
    """One subscriber whose breaker has just opened: ten of its messages were tried."""
    log = log_with(1, retry=WAITS, window=window)
    for _ in range(count):
        log.publish(1)
    assert len(log.pump(lambda _: BROKEN)) == window
    assert state_of(log) == "open"
    return log


def rows_of(log: FactLog, reason: Reason) -> list[Row]:
    return [row for fact in log.facts if isinstance(fact, Outcomes) for row in fact.rows if row.reason is reason]


def test_an_open_breaker_lets_only_probes_through() -> None:
    """RULES 29: after ten failures nothing is tried but a probe after 5 s, 10 s, 20 s ..., each time of another
    message; a neighbour in the same queue gets all."""
    log = log_with(1, 2, retry=WAITS, window=10)
    messages = [log.publish(1) for _ in range(30)]

    def answers(attempt: Attempt) -> AttemptResult:
        return OK if attempt.subscriber == 2 else BROKEN

    first = log.pump(answers)
    assert {one.message for one in first if one.subscriber == 2} == set(messages)
    assert sum(one.subscriber == 1 for one in first) == 10
    probes: list[Attempt] = []
    for wait_s in (5, 10, 20, 40):
        log.later(wait_s / 2)
        assert log.pump(answers) == []
        log.later(wait_s / 2)
        probe = log.pump(answers)
        assert len(probe) == 1
        probes += probe
    assert len({one.message for one in probes}) == 4
    assert state_of(log, 2) == "closed"


def test_what_was_taken_and_has_not_begun_is_taken_back() -> None:
    """RULES 29: when it opens, nothing that is out is to begin any more, at the subscriber, or at all of an origin that
    is not reached; what has begun is answered as ever. A neighbour keeps what it has."""
    log = FactLog(WAITS)
    log.queue(1, window=40)
    for number, endpoint in enumerate(("http://down/1", "http://down/2", "http://up/"), 1):
        log.subscriber(number, 1, endpoint=endpoint)
    for _ in range(40):
        log.publish(1)
    out = log.take()
    assert len(out) == 120
    first, others = [one for one in out if one.subscriber == 1], [one for one in out if one.subscriber == 2]
    for one in first[:10]:
        log.answer(one, REFUSED)
    assert state_of(log) == "open"
    given_up = log.scheduler.given_up()
    assert set(given_up) == {1, 2}
    assert given_up[1] >= {one.message for one in first[10:]}
    assert given_up[2] == {one.message for one in others}
    log.scheduler.give_back(first[11:] + others)
    log.answer(first[10], REFUSED)
    assert log.take() == []
    log.later(5)
    assert len(log.take()) == 1, "a probe of the origin"


def test_it_comes_back_without_a_stampede() -> None:
    """RULES 29: after a probe that was answered 1, 2, 4 and 8 may be out at once, then the window."""
    log = failing(200, window=16)
    log.later(5)
    sizes: list[int] = []
    while taken := log.take():
        sizes.append(len(taken))
        for attempt in taken:
            log.answer(attempt)
        log.commit()
    assert sizes[:5] == [1, 2, 4, 8, 16]
    assert max(sizes) == 16
    assert state_of(log) == "closed"


def test_a_message_of_its_own_fault_does_not_keep_it_open() -> None:
    """RULES 29: 4xx is the message's own, and a probe takes another message each time: one that no endpoint could take
    does not stand for all."""
    log = failing()
    poison = log.scheduler.state.cursors[1].retrying.copy()
    bad = min(poison)
    log.later(10)
    for _ in range(2):
        log.pump(lambda attempt: BROKEN if attempt.message == bad else OK)
        log.later(20)
    assert state_of(log) == "closed"
    assert set(log.states().values()) == {"complete", "pending"}
    other = log_with(1, retry=WAITS)
    for _ in range(30):
        other.publish(1)
    assert len(other.pump(lambda _: BAD)) == 30
    assert state_of(other) == "closed"


def test_what_was_tried_dies_when_its_schedule_is_over_and_the_rest_waits() -> None:
    """RULES 29: held back, a delivery that was tried dies no later than the sum of its schedule after its first
    attempt, reason ``breaker_open``; what was never tried waits however long that takes."""
    log = failing()
    began_us = log.now_us
    tried = set(log.scheduler.state.cursors[1].retrying)
    while log.now_us < began_us + 1_111_000_000:
        log.later(1)
        log.pump(lambda _: BROKEN)
    dead = rows_of(log, Reason.BREAKER_OPEN)
    assert dead
    assert {row.message for row in dead} <= tried
    assert all(row.time_us <= began_us + 1_111_000_000 + 3 * 131_072 + 1_000_000 for row in dead)
    assert all(log.scheduler.message_state(one) == "dead" for one in tried)
    waiting = [one for one, state in log.states().items() if state == "pending"]
    untried = [one for one in waiting if one not in log.scheduler.state.cursors[1].retrying]
    assert untried
    for _ in range(5):  # and comes through in the end
        log.later(300)
        log.pump()
    assert {log.scheduler.message_state(one) for one in untried} == {"complete"}


def test_a_first_attempt_is_remembered_over_a_restart() -> None:
    """RULES 29: the sum is counted from the first attempt, whether the state comes from the log or a checkpoint."""
    log = failing(12)
    first_us = {one: tried.first_us for one, tried in log.scheduler.state.cursors[1].retrying.items()}
    assert all(first_us.values())
    for how in ("checkpoint", "log"):
        log.start_again(how)
        assert {one: tried.first_us for one, tried in log.scheduler.state.cursors[1].retrying.items()} == first_us


def test_it_is_closed_after_a_restart() -> None:
    """RULES 29: nothing about a breaker is durable."""
    for how in ("checkpoint", "log"):
        log = failing()
        log.start_again(how)
        assert state_of(log) == "closed"
        log.later(5)
        assert len(log.pump(lambda _: BROKEN)) == 10


def test_an_origin_that_cannot_be_reached_is_probed_once_for_all() -> None:
    """RULES 29: failures to connect of many subscribers of one origin open its breaker: one probe for all of them, and
    after its answer all go on. One elsewhere, and one without a breaker, are tried."""
    log = FactLog(WAITS)
    log.queue(1)
    for number in range(1, 21):
        log.subscriber(number, 1, endpoint=f"http://down:80/{number}")
    log.subscriber(21, 1, endpoint="http://up/")
    log.subscriber(22, 1, endpoint="http://down/22", breaker=None)

    def answers(attempt: Attempt) -> AttemptResult:
        return OK if attempt.subscriber == 21 else REFUSED

    log.publish(1)
    log.pump(answers)
    before = len(log.attempts)
    log.publish(1)
    second = log.pump(answers)
    assert sorted(one.subscriber for one in second) == [21, 22]
    assert [turned.origin for turned in log.scheduler.take_turned()] == ["http://down:80"]
    log.later(5)
    assert len([one for one in log.pump(answers) if one.subscriber <= 20]) == 1
    log.later(300)
    log.pump()
    for _ in range(3):
        log.later(1_000)
        log.pump()
    assert set(log.states().values()) == {"complete"}
    assert not log.scheduler._breakers.origins
    assert before < len(log.attempts)


def test_an_operator_can_have_it_probe_now() -> None:
    """RULES 26 and 29: retry now, and resuming, make the next probe due; another endpoint begins with a closed one."""
    log = failing()
    log.scheduler.retry_now(1)
    assert len(log.pump(lambda _: BROKEN)) == 1
    log.change(1, paused=True)
    log.change(1, paused=False)
    assert len(log.pump(lambda _: BROKEN)) == 1
    log.move(1, 1, "http://elsewhere/")
    assert state_of(log) == "closed"
    assert len(to(log.pump())) == 30


def test_breakers_go_with_their_subscribers() -> None:
    """RULES 29: what is deleted or switched off leaves nothing behind, and nobody waits for it."""
    log = failing()
    log.change(1, breaker=None)
    assert state_of(log) == "closed"
    assert len(log.pump(lambda _: BROKEN)) == 20
    log.subscriber(2, 1, endpoint="http://down/", breaker=BreakerPolicy(failures=1))
    for _ in range(10):
        log.publish(1)
    log.pump(lambda _: REFUSED)
    log.unsubscribe(2)
    log.unsubscribe(1)
    assert not log.scheduler._breakers.origins
    assert not log.scheduler._breakers._open


def test_consumers_that_come_have_none_and_are_disabled_all_the_same() -> None:
    """RULES 14 and 29: who refuses what he has fetched is asked on, breaker or not; failing for too long disables."""
    log = FactLog(WAITS)
    log.queue(1)
    log.subscriber(1, 1, endpoint="consumer:pull", disable_after_s=60.0)
    for _ in range(30):
        log.publish(1)
    log.scheduler.offer(1, 100)
    assert len(log.pump(lambda _: AttemptResult(Reason.NACK))) == 30
    assert state_of(log) == "closed"
    assert not log.scheduler.take_failed_too_long()
    log.later(60)
    assert log.pump(lambda _: AttemptResult(Reason.NACK))
    assert log.scheduler.take_failed_too_long() == {1}
    assert not log.scheduler.take_failed_too_long()
