"""Requests refused for their token are counted, logged at a bounded rate, and answered late where they guess."""

import logging

import pytest

from syncbrok.frontends.over_http.requests.refused_tokens import RefusedTokens
from syncbrok.model.errors import Forbidden, SyncbrokError, Unauthorized, WrongToken

WRONG = WrongToken("this token is not known here")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def note(refused: RefusedTokens, why: SyncbrokError = WRONG, client: str = "192.0.2.1") -> float:
    return refused.note(why, client, "GET", "/v1/queues")


def test_who_guesses_is_answered_later_and_later() -> None:
    """INTERFACES 1, tokens: up to a second, by client; a minute of quiet is a new beginning. Nobody else waits, nor who
    has no token or lacks a scope."""
    clock = Clock()
    refused = RefusedTokens(clock)
    delays = [note(refused) for _ in range(40)]
    assert delays == sorted(delays)
    assert (delays[0], delays[-1]) == (0.02, 1.0)
    assert note(refused, client="192.0.2.2") == 0.02
    assert note(refused, Unauthorized("a token")) == note(refused, Forbidden("not this")) == 0.0
    clock.now = 61.0
    assert note(refused) == 0.02
    assert refused.counts == {"wrong": 42, "missing": 1, "scope": 1}


def test_what_is_remembered_of_clients_is_bounded() -> None:
    """DESIGN 1, bounded: who comes with a new address each time fills no memory."""
    refused = RefusedTokens(Clock())
    for number in range(3_000):
        note(refused, client=str(number))
    assert len(refused._wrong) == 1_024


def test_lines_are_bounded_and_say_how_many_are_missing(caplog: pytest.LogCaptureFixture) -> None:
    """INTERFACES 1, tokens: who, what and why, but no flood."""
    caplog.set_level(logging.WARNING)
    clock = Clock()
    refused = RefusedTokens(clock)
    for _ in range(50):
        note(refused)
    clock.now = 1.0
    note(refused, Forbidden("token 'shop' may not do this"))
    lines = [one for one in caplog.records if one.msg == "syncbrok.http.token_refused"]
    assert len(lines) == 21
    last = vars(lines[-1])
    assert (last["left_out"], last["reason"], last["client"]) == (30, "scope", "192.0.2.1")
    assert (last["method"], last["path"], last["detail"]) == ("GET", "/v1/queues", "token 'shop' may not do this")
