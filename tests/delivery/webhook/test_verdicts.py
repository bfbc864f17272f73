"""What the body of a 2xx may say where the subscriber's ``verdicts`` are on."""

from collections.abc import AsyncIterator

import pytest

from syncbrok.delivery.handler import NEVER, SKIP
from syncbrok.delivery.webhook.address_guard import AddressGuard
from syncbrok.delivery.webhook.webhook import Webhook
from syncbrok.model.facts import Reason
from syncbrok.model.message import Format
from tests.support.delivery.endpoint import Answers, Endpoint, delivery, reply, send, subscriber

RETRY = b'{"status": "RETRY"}'


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with Endpoint() as running:
        yield running


@pytest.fixture
async def handler() -> AsyncIterator[Webhook]:
    made = Webhook(AddressGuard(loopback_allowed=True), lambda _: ())
    yield made
    await made.close()


@pytest.mark.parametrize("status", ["200 OK", "202 Accepted"])
@pytest.mark.parametrize(
    ("body", "reason", "then"),
    [
        (RETRY, Reason.RECEIVER, None),
        (b'{"status":"DROP","why":"old"}', Reason.RECEIVER, SKIP),
        (b' {"status": "DEAD"}', Reason.RECEIVER, NEVER),
        (b'{"status": "retry"}', Reason.NONE, None),
        (b'{"status": "OK"}', Reason.NONE, None),
        (b'{"status": ["RETRY"]}', Reason.NONE, None),
        (b'["RETRY"]', Reason.NONE, None),
        (b"RETRY", Reason.NONE, None),
        (b"", Reason.NONE, None),
        (b'{"status": "RETRY"' + b" " * 20_000 + b"}", Reason.NONE, None),
    ],
)
async def test_a_body_says_what_becomes_of_it(
    endpoint: Endpoint, handler: Webhook, status: str, body: bytes, reason: Reason, then: float | None
) -> None:
    """INTERFACES 3: three words; anything else, and what is longer than is read of an answer, is a plain 2xx."""
    endpoint.answer = lambda _: reply(status, body)
    answers = Answers()
    send(handler, subscriber(endpoint.url, verdicts=True), [delivery(1)], answers.done)
    (answer,) = await answers.wait_for(1)
    assert (answer.reason, answer.retry_after_s, answer.status) == (reason, then, int(status[:3]))
    assert answer.detail == (b"" if reason is Reason.NONE else body)


@pytest.mark.parametrize("status", ["500 Oops", "404 Not Found"])
async def test_of_other_answers_the_status_says_it(endpoint: Endpoint, handler: Webhook, status: str) -> None:
    """A body of a failure is nothing but kept."""
    endpoint.answer = lambda _: reply(status, b'{"status": "DROP"}')
    answers = Answers()
    send(handler, subscriber(endpoint.url, verdicts=True), [delivery(1)], answers.done)
    (answer,) = await answers.wait_for(1)
    assert (answer.reason, answer.retry_after_s) == (Reason.STATUS, None)


async def test_the_same_bytes_mean_another_thing_to_another(endpoint: Endpoint, handler: Webhook) -> None:
    """Subscribers behind one origin share connections, and what is known of its usual answers, but not its meaning."""
    endpoint.answer = lambda _: reply("200 OK", RETRY)
    plain, reading = subscriber(endpoint.url), subscriber(endpoint.url, number=2, verdicts=True)
    original = subscriber(endpoint.url, Format.ORIGINAL, 3, verdicts=True)
    for _ in range(3):
        for to, reason in ((plain, Reason.NONE), (reading, Reason.RECEIVER), (original, Reason.RECEIVER)):
            answers = Answers()
            send(handler, to, [delivery(1)], answers.done)
            (answer,) = await answers.wait_for(1)
            assert answer.reason is reason
    assert endpoint.connections == 1
