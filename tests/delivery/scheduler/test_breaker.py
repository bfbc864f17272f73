"""The state machine of a circuit breaker by itself."""

from itertools import product

import pytest

from syncbrok.delivery.scheduler.breaker import BREAKER, Breaker, BreakerEvent, BreakerState, has_failed, is_unreachable
from syncbrok.model.facts import Reason
from syncbrok.model.message import BreakerPolicy

C, O, P = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.PROBING  # noqa: E741
SECOND = 1_000_000
POLICY = BreakerPolicy(failures=3, share=0.5, of=10, probe_s=(5.0, 15.0))


def opened(now_us: int = 0) -> Breaker:
    breaker = Breaker(1, POLICY)
    for message in range(3):
        breaker.failed(message, 1, now_us)
    assert breaker.state is O
    return breaker


def test_every_state_and_event_has_a_row_or_cannot_happen() -> None:
    """RULES 29: the table is all there is; nothing opens what is open, nothing closes but a ramp that is through."""
    possible = {(C, BreakerEvent.TRIPPED), (O, BreakerEvent.PROBED), (P, BreakerEvent.FAILED), (P, BreakerEvent.RAMPED)}
    for pair in product(BreakerState, BreakerEvent):
        assert (pair in BREAKER) == (pair in possible), pair


def test_the_table_is_what_runs() -> None:
    """RULES 29: an event that the table does not know changes nothing and is refused."""
    breaker = Breaker(1, POLICY)
    with pytest.raises(KeyError):
        breaker.close()
    assert breaker.state is C


@pytest.mark.parametrize(
    ("answers", "opens"),
    [
        ("fff", True),
        ("ffwff", False),
        ("fwfwfwfwf", True),
        ("fwwfwwfwwf", False),
        ("ffwffwffw", True),
        ("w" * 9, False),
    ],
)
def test_it_opens_after_failures_in_a_row_or_by_their_share(answers: str, opens: bool) -> None:
    """RULES 29: so many in a row, or such a share of the newest, those before them counted as well."""
    breaker = Breaker(1, POLICY)
    was_open = False
    for message, answer in enumerate(answers):
        if answer == "f":
            was_open |= breaker.failed(message, 1, 0)
        elif not was_open:
            breaker.is_well(1)
    assert was_open == opens


def test_what_is_old_is_forgotten() -> None:
    """RULES 29: only the newest ``of`` answers count, and a batch of good ones costs one step."""
    breaker = Breaker(1, POLICY)
    for message in range(4):
        breaker.failed(message, 1, 0)
        breaker.is_well(1)
        breaker.is_well(10 if message == 2 else 0)
    assert breaker.state is C
    assert not breaker.rests
    breaker.is_well(1_000_000)
    assert breaker.rests


def test_the_wait_for_a_probe_doubles_up_to_its_longest() -> None:
    """RULES 29: 5 s, 10 s, 15 s, 15 s; nothing goes out before, one message then."""
    breaker, now_us = opened(), 0
    for wait_s in (5, 10, 15, 15):
        assert breaker.room(now_us + wait_s * SECOND - 1) == 0
        now_us += wait_s * SECOND
        assert breaker.room(now_us) == 1
        breaker.begun(7, 1)
        assert breaker.state is P
        assert breaker.room(now_us) == 0
        assert not breaker.failed(7, 1, now_us)  # it has not opened anew
        assert breaker.state is O


def test_after_an_answer_more_may_be_out_step_by_step() -> None:
    """RULES 29: 1, 2, 4, then it is closed where eight have room; one failure on the way opens it."""
    breaker = opened()
    at_once = []
    message = 10
    while breaker.state is not C:
        some = range(message, message := message + (breaker.room(5 * SECOND) or 0))
        at_once.append(len(some))
        for one in some:
            breaker.begun(one, 1)
        for one in some:
            breaker.passed(one, 1, 8)
    assert at_once == [1, 2, 4]
    again = opened()
    again.begun(1, 1)
    again.passed(1, 1, 8)
    again.begun(2, 1)
    again.failed(2, 1, 0)
    assert again.state is O


def test_what_was_begun_before_it_opened_says_nothing_more() -> None:
    """RULES 29: a window that times out after the opening neither fails the probe nor answers it."""
    breaker = opened()
    breaker.begun(9, 1)
    breaker.failed(3, 1, 0)
    breaker.passed(4, 1, 8)
    assert breaker.state is P
    assert breaker.room(0) == 0
    breaker.is_back(9, 1)
    assert breaker.room(0) == 1


def test_failures_are_what_is_no_answer_and_what_says_not_now() -> None:
    """RULES 29: no answer, 408, 429 and 5xx; other answers are about the message. Of an origin: DNS, connect, TLS."""
    failed = {
        status
        for status in (200, 302, 400, 404, 408, 410, 422, 429, 500, 503, 599)
        if has_failed(Reason.STATUS, status)
    }
    assert failed == {408, 429, 500, 503, 599}
    assert has_failed(Reason.TIMEOUT, 0)
    assert not has_failed(Reason.NOT_TRUE, 200)
    assert has_failed(Reason.CONTENT_LOST, 0) is None
    assert {reason for reason in Reason if is_unreachable(reason)} == {Reason.CONNECT, Reason.TLS}
