"""How fast one subscriber gets new connections (syncbrok/delivery/webhook/dial_ramp.py; INTERFACES 5, RULES 23).

Broken by hand to see these fail: a ramp that is never asked; one of the whole origin; one that earns nothing; an
exchange that failed at its deadline though nobody had dialled for it; a ramp that a refused dial uses up.
"""

import time
from collections.abc import AsyncIterator

import pytest

from syncbrok.delivery.webhook.address_guard import AddressGuard
from syncbrok.delivery.webhook.dial_ramp import BURST, EARNED, SILENT_PER_S, DialRamp
from syncbrok.delivery.webhook.webhook import Webhook
from syncbrok.model.facts import Reason
from tests.support.delivery.endpoint import HANG, Answers, Endpoint, delivery, reply, send, subscriber
from tests.support.polling import eventually


@pytest.fixture
async def webhook() -> AsyncIterator[Webhook]:
    handler = Webhook(AddressGuard(loopback_allowed=True), lambda _: ())
    yield handler
    await handler.close()


def begun(ramp: DialRamp, now_s: float) -> int:
    """How many may begin at once, all of which begin."""
    count = 0
    while ramp.allows(now_s):
        ramp.begin()
        count += 1
    return count


def test_silence_gets_a_burst_and_then_few_a_second() -> None:
    """INTERFACES 5, new connections: what nothing is heard of gets more by time alone."""
    ramp = DialRamp()
    assert begun(ramp, 1_000.0) == BURST
    assert begun(ramp, 1_000.0) == 0
    assert begun(ramp, 1_000.25) == SILENT_PER_S // 4
    assert begun(ramp, 5_000.0) == BURST, "however long nothing was asked for"


def test_answers_double_the_connections_with_each_round_trip() -> None:
    """From 64 to more than a thousand in five round trips of a millisecond, which add next to nothing by themselves."""
    ramp = DialRamp()
    now_s, connections, new = 1.0, 0, begun(ramp, 1.0)
    for _ in range(5):
        connections += new
        now_s += 0.001
        opened = 0
        for _ in range(new):
            ramp.responded()
            opened += begun(ramp, now_s)
        assert EARNED * new <= opened <= EARNED * new + 1
        new = opened
    assert connections > 1_000


async def test_a_hung_window_is_not_dialled_for_all_at_once(webhook: Webhook) -> None:
    """INTERFACES 5, turns: a thousand attempts to an endpoint that never answers open the burst and what time adds; a
    neighbour of the same origin, which wants as many connections as may be new at once, has all of its own."""
    async with Endpoint(lambda request: HANG if request.line.startswith("POST /hung") else reply()) as endpoint:
        began_s = time.monotonic()
        nothing, answers = Answers(), Answers()
        hung = subscriber(f"{endpoint.url}hung", number=1)
        send(webhook, hung, [delivery(i, timeout_s=600.0) for i in range(1_000)], nothing.done)
        await eventually(lambda: len(endpoint.requests) >= BURST, "the burst is open")
        await eventually(lambda: len(endpoint.requests) >= 2 * BURST, "it gets more as time goes by")
        assert len(endpoint.requests) <= BURST + (time.monotonic() - began_s) * SILENT_PER_S + 1
        good = subscriber(f"{endpoint.url}good", number=2)
        send(webhook, good, [delivery(i) for i in range(BURST)], answers.done)
        assert {answer.reason for answer in await answers.wait_for(BURST)} == {Reason.NONE}


async def test_who_was_not_dialled_for_has_not_failed(webhook: Webhook) -> None:
    """RULES 23: at its deadline an attempt whose turn to be dialled for never came is given back; those that were sent
    have failed."""
    async with Endpoint(lambda _: HANG) as endpoint:
        answers = Answers()
        send(webhook, subscriber(endpoint.url), [delivery(i, timeout_s=0.5) for i in range(1_000)], answers.done)
        await eventually(lambda: len(answers.all) + len(answers.given_back) == 1_000, "their time is over")
        assert {answer.reason for _, answer in answers.all} == {Reason.TIMEOUT}
        assert len(answers.all) == len(endpoint.requests)
        assert answers.given_back


async def test_an_endpoint_that_refuses_is_told_of_all_at_once(webhook: Webhook) -> None:
    """Somebody is there who says no: that is quick, and every attempt has its answer."""
    async with Endpoint() as endpoint:
        endpoint.stop_listening()
        answers = Answers()
        began_s = time.monotonic()
        send(webhook, subscriber(endpoint.url), [delivery(i) for i in range(2_000)], answers.done)
        await answers.wait_for(2_000)
        assert {answer.reason for _, answer in answers.all} == {Reason.CONNECT}
        assert BURST + (time.monotonic() - began_s) * SILENT_PER_S < 2_000, "sooner than silence would have it"


async def test_a_server_that_keeps_no_connection_is_not_slowed(webhook: Webhook) -> None:
    """Each answer is the first on its connection, and earns the next one."""
    async with Endpoint(lambda _: reply("200 OK", b"", "Connection: close", close=True)) as endpoint:
        answers = Answers()
        began_s = time.monotonic()
        send(webhook, subscriber(endpoint.url), [delivery(i) for i in range(2_000)], answers.done)
        assert {answer.reason for answer in await answers.wait_for(2_000)} == {Reason.NONE}
        assert endpoint.connections == 2_000
        assert BURST + (time.monotonic() - began_s) * SILENT_PER_S < 2_000, "sooner than silence would have it"
