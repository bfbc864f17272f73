"""Subscribers of one origin share its connections, and nothing else: none waits for another, whatever that one does."""

import asyncio
import sys
import time
from collections import deque
from collections.abc import AsyncIterator

import pytest

from syncbrok.delivery.webhook.address_guard import AddressGuard
from syncbrok.delivery.webhook.connection_pool import IDLE_MAX_S
from syncbrok.delivery.webhook.subscriber_route import DIALS_MAX
from syncbrok.delivery.webhook.webhook import Webhook, WebhookStatistics
from syncbrok.model.facts import Reason
from syncbrok.model.message import Format, Subscriber
from tests.support.delivery.endpoint import (
    HANG,
    TIME_US,
    Answers,
    Endpoint,
    Reply,
    Request,
    delivery,
    reply,
    send,
    subscriber,
)
from tests.support.held_memory import held_by
from tests.support.polling import eventually

A, B = 1, 2
"""numbers of the two subscribers that most of these tests are about; their paths are /1 and /2"""


@pytest.fixture
async def webhook() -> AsyncIterator[Webhook]:
    handler = Webhook(AddressGuard(loopback_allowed=True), lambda _: (), clock_us=lambda: TIME_US)
    yield handler
    await handler.close()


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with Endpoint() as running:
        yield running


def at(endpoint: Endpoint, number: int, kind: Format = Format.RAW) -> Subscriber:
    """A subscriber whose endpoint is ``/number`` of the origin."""
    return subscriber(f"{endpoint.url}{number}", kind, number)


def to(request: Request, number: int) -> bool:
    return request.line == f"POST /{number} HTTP/1.1"


def first_of_a_hangs(request: Request) -> Reply:
    return HANG if to(request, A) and request.headers["syncbrok-sequence"] == "0" else reply()


async def ask(webhook: Webhook, to: Subscriber, count: int = 1, timeout_s: float = 10.0) -> list[Reason]:
    """What came of so many deliveries to the subscriber at once."""
    answers = Answers()
    send(webhook, to, [delivery(i, timeout_s=timeout_s) for i in range(count)], answers.done)
    return [answer.reason for answer in await answers.wait_for(count)]


async def test_many_subscribers_share_few_connections(webhook: Webhook, endpoint: Endpoint) -> None:
    """A thousand subscribers that are sent something now and then need no thousand connections."""
    for number in range(1, 51):
        assert await ask(webhook, at(endpoint, number)) == [Reason.NONE]
    assert [request.line for request in endpoint.requests] == [f"POST /{number} HTTP/1.1" for number in range(1, 51)]
    assert webhook.statistics() == WebhookStatistics(50, 1)
    assert endpoint.connections == 1


async def test_a_subscriber_for_which_nothing_waits_is_small(webhook: Webhook, endpoint: Endpoint) -> None:
    """There may be ten thousand: once all of them have got a message, for which most had to wait, no line is kept for
    any."""
    count = 300
    answers = Answers()
    with held_by("*/delivery/webhook/subscriber_route.py") as held_bytes:
        for number in range(1, count + 1):
            send(webhook, at(endpoint, number), [delivery(number, timeout_s=600.0)], answers.done)
        assert {answer.reason for answer in await answers.wait_for(count)} == {Reason.NONE}
        assert endpoint.connections < count, "none had to wait"
        await eventually(lambda: held_bytes() < count * sys.getsizeof(deque()), "no line is kept", 10)


async def test_one_that_hangs_costs_the_other_nothing(webhook: Webhook, endpoint: Endpoint) -> None:
    """DESIGN 1, bounded: A never answers, with three times as many attempts out as may be dialled for at once. What B
    is sent in the same moment, and later, is answered at once; and A has had all of its window."""
    endpoint.answer = lambda request: HANG if to(request, A) else reply()
    hanging, count = Answers(), 3 * DIALS_MAX
    send(webhook, at(endpoint, A), [delivery(i) for i in range(count)], hanging.done)
    assert await ask(webhook, at(endpoint, B), 20) == [Reason.NONE] * 20
    await eventually(lambda: sum(to(request, A) for request in endpoint.requests) == count, "all of A is on its way")
    for _ in range(20):
        assert await ask(webhook, at(endpoint, B)) == [Reason.NONE]
    assert not hanging.all
    assert webhook.statistics().connections <= count + 20


async def test_one_that_hangs_before_it_answers_anything(webhook: Webhook, endpoint: Endpoint) -> None:
    """A takes the connections that B has left idle, and keeps them; B dials others, however short its timeout."""
    assert await ask(webhook, at(endpoint, B), 5) == [Reason.NONE] * 5
    endpoint.answer = lambda request: HANG if to(request, A) else reply()
    hanging = Answers()
    send(webhook, at(endpoint, A), [delivery(i, timeout_s=600.0) for i in range(30)], hanging.done)
    assert await ask(webhook, at(endpoint, B), 30, timeout_s=5.0) == [Reason.NONE] * 30
    assert not hanging.all


async def test_each_has_its_own_deadline(webhook: Webhook, endpoint: Endpoint) -> None:
    """A timeout ends the attempt it belongs to and no other of the origin."""
    endpoint.answer = lambda _: HANG
    short, long = Answers(), Answers()
    send(webhook, at(endpoint, A), [delivery(i, timeout_s=0.2) for i in range(3)], short.done)
    send(webhook, at(endpoint, B), [delivery(i, timeout_s=600.0) for i in range(3)], long.done)
    assert [answer.reason for answer in await short.wait_for(3)] == [Reason.TIMEOUT] * 3
    assert not long.all
    await eventually(lambda: endpoint.open == 3, "the connections of those that timed out are closed")


async def test_a_slow_one_is_not_waited_for(webhook: Webhook, endpoint: Endpoint) -> None:
    """A takes five hundred turns of the loop for an answer and has many out; B has fifty answers before A's first."""
    slow = Reply((*[b""] * 500, *reply().data))
    endpoint.answer = lambda request: slow if to(request, A) else reply()
    behind = Answers()
    send(webhook, at(endpoint, A), [delivery(i) for i in range(40)], behind.done)
    assert await ask(webhook, at(endpoint, B), 50) == [Reason.NONE] * 50
    assert not behind.all
    assert [answer.reason for answer in await behind.wait_for(40)] == [Reason.NONE] * 40


async def test_free_connections_go_to_each_in_turn(webhook: Webhook, endpoint: Endpoint) -> None:
    """The server takes no more connections, and the one there is serves A, with a hundred waiting, and B, with three,
    in turn: B does not stand behind all of A."""
    assert await ask(webhook, at(endpoint, A)) == [Reason.NONE]
    endpoint.stop_listening()
    answers = Answers()
    send(webhook, at(endpoint, A), [delivery(i) for i in range(100)], answers.done)
    send(webhook, at(endpoint, B), [delivery(i) for i in range(100, 103)], answers.done)
    assert [answer.reason for answer in await answers.wait_for(103)] == [Reason.NONE] * 103
    order = [given.attempt.message for given, _ in answers.all]
    assert max(order.index(i) for i in range(100, 103)) < 10
    assert endpoint.connections == 1


async def test_nobody_waits_long_for_connections_that_hang(webhook: Webhook, endpoint: Endpoint) -> None:
    """The server takes no more connections, and those there are hang with A: B is told so, its retries can begin, and
    it does not sit out its timeout."""
    endpoint.answer = lambda _: HANG
    hanging = Answers()
    send(webhook, at(endpoint, A), [delivery(i) for i in range(2)], hanging.done)
    await eventually(lambda: len(endpoint.requests) == 2, "A has all there is")
    endpoint.stop_listening()
    assert await asyncio.wait_for(ask(webhook, at(endpoint, B), 5, timeout_s=600.0), 10.0) == [Reason.CONNECT] * 5
    assert not hanging.all


async def test_a_path_that_hangs_up_fails_alone(webhook: Webhook, endpoint: Endpoint) -> None:
    """The server closes the connection of whatever asks for A's path, also one that B has used before: each of A's
    attempts fails after its one redial (RULES 23), none of B's does."""
    endpoint.answer = lambda request: Reply((), close=True) if to(request, A) else reply()
    for _ in range(5):
        assert await ask(webhook, at(endpoint, B), 4) == [Reason.NONE] * 4
        refused, served = await asyncio.gather(
            ask(webhook, at(endpoint, A), 4),
            ask(webhook, at(endpoint, B), 4),
        )
        assert refused == [Reason.PROTOCOL] * 4
        assert served == [Reason.NONE] * 4


async def test_a_path_that_is_refused_fails_alone(webhook: Webhook, endpoint: Endpoint) -> None:
    """403 for A's path over a connection that serves B as well: each has its own answer."""
    endpoint.answer = lambda request: reply("403 Forbidden") if to(request, A) else reply("204 No Content")
    for _ in range(10):
        assert await ask(webhook, at(endpoint, A)) == [Reason.STATUS]
        assert await ask(webhook, at(endpoint, B)) == [Reason.NONE]
    assert endpoint.connections == 1


async def test_formats_are_not_mixed(webhook: Webhook, endpoint: Endpoint) -> None:
    """The same bytes over the same connection acknowledge in one format and not in the other, in whatever order."""
    endpoint.answer = lambda _: reply("200 OK", b"fine")
    for _ in range(3):
        assert await ask(webhook, at(endpoint, A)) == [Reason.NONE]
        assert await ask(webhook, at(endpoint, B, Format.ORIGINAL)) == [Reason.NOT_TRUE]
    endpoint.answer = lambda _: reply("200 OK", b"true")
    for _ in range(3):
        assert await ask(webhook, at(endpoint, B, Format.ORIGINAL)) == [Reason.NONE]
        assert await ask(webhook, at(endpoint, A)) == [Reason.NONE]
    assert endpoint.connections == 1


async def test_each_has_its_own_headers_and_signature(endpoint: Endpoint) -> None:
    """What is sent to one is not sent to the other, though the connection is the same; none where there is no key."""
    keys = {1: (b"one" * 8,), 2: (b"two" * 8,), 3: ()}
    webhook = Webhook(AddressGuard(loopback_allowed=True), keys.__getitem__, clock_us=lambda: TIME_US)
    for _ in range(2):
        for number in keys:
            url = f"{endpoint.url}{number}"
            own = subscriber(url, number=number, headers=(("Authorization", f"Bearer {number}"),))
            assert await ask(webhook, own) == [Reason.NONE]
    asked = [request.headers for request in endpoint.requests]
    assert [headers["authorization"] for headers in asked] == ["Bearer 1", "Bearer 2", "Bearer 3"] * 2
    signatures = [headers.get("webhook-signature") for headers in asked]
    assert signatures[:3] == signatures[3:]
    assert len({*signatures[:3]}) == 3
    assert signatures[2] is None
    assert endpoint.connections == 1
    await webhook.close()


async def test_one_that_is_deleted_leaves_the_others_alone(webhook: Webhook, endpoint: Endpoint) -> None:
    """``Handler.forget`` with exchanges out, waiting and answered: all of its attempts come back, and the other goes on
    over the connections there are. With the last subscriber the connections go."""
    endpoint.answer = first_of_a_hangs
    gone = Answers()
    send(webhook, at(endpoint, A), [delivery(i, timeout_s=0.3) for i in range(10)], gone.done)
    assert await ask(webhook, at(endpoint, B)) == [Reason.NONE]
    webhook.forget(A)
    assert webhook.statistics().subscribers == 1
    dialled = endpoint.connections
    for _ in range(5):
        assert await ask(webhook, at(endpoint, B)) == [Reason.NONE]
    assert endpoint.connections == dialled
    reasons = [answer.reason for answer in await gone.wait_for(10)]
    assert sorted(reasons) == sorted([Reason.TIMEOUT] + [Reason.NONE] * 9)
    webhook.forget(B)
    await eventually(lambda: endpoint.open == 0, "nobody uses the origin any more")
    assert webhook.statistics() == WebhookStatistics(0, 0)


async def test_one_that_is_deleted_while_it_waits(webhook: Webhook, endpoint: Endpoint) -> None:
    """RULES 14: what waits for a connection is given back and never sent, what another of its origin waits for comes;
    and nothing stays open."""
    gone, other = Answers(), Answers()
    send(webhook, at(endpoint, A), [delivery(i) for i in range(100)], gone.done)
    send(webhook, at(endpoint, B), [delivery(i) for i in range(100, 110)], other.done)
    webhook.forget(A)
    assert [answer.reason for answer in await other.wait_for(10)] == [Reason.NONE] * 10
    assert (gone.all, sorted(gone.given_back)) == ([], list(range(100)))
    webhook.forget(B)
    await eventually(lambda: endpoint.open == 0, "all are closed")
    assert {request.line for request in endpoint.requests} == {f"POST /{B} HTTP/1.1"}


async def test_one_that_is_deleted_is_not_sent_anything_again(webhook: Webhook, endpoint: Endpoint) -> None:
    """RULES 13, 23: a connection that closes before any byte of an answer is dialled once more, but not for one that
    has been deleted or has moved meanwhile: its attempt has failed. Another of its origin is dialled for."""
    assert await ask(webhook, at(endpoint, A), 2) == [Reason.NONE] * 2
    endpoint.answer = lambda _: HANG
    gone, other = Answers(), Answers()
    send(webhook, at(endpoint, A), [delivery(1)], gone.done)
    send(webhook, at(endpoint, B), [delivery(2)], other.done)
    await eventually(lambda: len(endpoint.requests) == 4, "both are out")
    webhook.forget(A)
    endpoint.answer = lambda _: reply()
    endpoint.hang_up()
    assert [answer.reason for answer in await other.wait_for(1)] == [Reason.NONE]
    assert [answer.reason for answer in await gone.wait_for(1)] == [Reason.PROTOCOL]
    assert [to(request, A) for request in endpoint.requests[4:]] == [False]


async def test_what_waits_for_long_is_still_found(webhook: Webhook, endpoint: Endpoint) -> None:
    """RULES 14: what is out or waits longer than its route idles is not lost sight of when the subscriber goes."""
    out, waiting = Answers(), Answers()
    endpoint.answer = lambda _: HANG
    send(webhook, at(endpoint, A), [delivery(1, timeout_s=600.0)], out.done)
    await eventually(lambda: len(endpoint.requests) == 1, "one is out")
    send(webhook, at(endpoint, B), [delivery(2, timeout_s=600.0)], waiting.done)
    webhook._sweep(time.monotonic() + IDLE_MAX_S + 1.0)
    assert webhook.statistics().subscribers == 2
    webhook.forget(B)
    await eventually(lambda: waiting.given_back == [2], "it is given back")


async def test_an_endpoint_that_moves_within_its_origin(webhook: Webhook, endpoint: Endpoint) -> None:
    """RULES 3: the new path is used at once, with attempts to the old one still out and waiting. The one that is out
    ends there, the others are given back."""
    endpoint.answer = first_of_a_hangs
    old, new = Answers(), Answers()
    send(webhook, at(endpoint, A), [delivery(0, timeout_s=0.3)], old.done)
    await eventually(lambda: len(endpoint.requests) == 1, "one is out")
    send(webhook, at(endpoint, A), [delivery(i) for i in range(1, 10)], old.done)
    webhook.forget(A)  # as the Space does when the endpoint of a subscriber changes
    send(webhook, subscriber(f"{endpoint.url}moved", number=A), [delivery(i) for i in range(10, 20)], new.done)
    assert [answer.reason for answer in await new.wait_for(10)] == [Reason.NONE] * 10
    await old.wait_for(1)
    assert sorted(old.given_back) == list(range(1, 10))
    lines = {int(request.headers["syncbrok-sequence"]): request.line for request in endpoint.requests}
    assert lines == {0: "POST /1 HTTP/1.1", **dict.fromkeys(range(10, 20), "POST /moved HTTP/1.1")}


async def test_an_origin_that_goes_away_fails_all_of_them(webhook: Webhook, endpoint: Endpoint) -> None:
    """With no connection left there is nothing to wait for: each attempt is told so at once, whoever's it is."""
    assert await ask(webhook, at(endpoint, A), 5) == [Reason.NONE] * 5
    endpoint.stop_listening()
    endpoint.hang_up()
    await eventually(lambda: webhook.statistics().connections == 0, "the connections are gone")
    for number in (A, B):
        assert await asyncio.wait_for(ask(webhook, at(endpoint, number), 5), 5.0) == [Reason.CONNECT] * 5
