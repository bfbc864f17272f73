"""The webhook handler of a node in a cluster: it looks at its lease before the first byte of each request, and says
whose time it is (CLUSTER, R5)."""

from collections.abc import AsyncIterator

import pytest

from syncbrok.delivery.attempt_guard import AttemptGuard
from syncbrok.delivery.webhook.address_guard import AddressGuard
from syncbrok.delivery.webhook.webhook import Webhook
from syncbrok.model.facts import Reason
from syncbrok.model.message import Format
from tests.support.delivery.endpoint import TIME_US, Answers, Endpoint, delivery, reply, send, subscriber
from tests.support.delivery.leader import HeldLease
from tests.support.polling import eventually


@pytest.fixture
def lease() -> HeldLease:
    return HeldLease()


@pytest.fixture
async def webhook(lease: HeldLease) -> AsyncIterator[Webhook]:
    guard = AddressGuard(loopback_allowed=True)
    handler = Webhook(guard, lambda _: (), clock_us=lambda: TIME_US, attempt_guard=AttemptGuard(lease))
    yield handler
    await handler.close()


@pytest.mark.parametrize("kind", list(Format))
async def test_each_delivery_says_whose_time_it_is(webhook: Webhook, kind: Format) -> None:
    """Every format carries ``Syncbrok-Epoch``."""
    async with Endpoint() as endpoint:
        answers = Answers()
        send(webhook, subscriber(endpoint.url, kind), (delivery(),), answers.done)
        await answers.wait_for(1)
    assert endpoint.requests[0].headers["syncbrok-epoch"] == "7"


async def test_nothing_is_written_once_the_lease_is_over(webhook: Webhook, lease: HeldLease) -> None:
    """The look is the last thing before the write: on a connection that is dialled first, and on one that is kept. What
    was not written is given back, and its connection carries the next."""
    async with Endpoint() as endpoint:
        answers, to = Answers(), subscriber(endpoint.url)
        lease.held = False
        send(webhook, to, (delivery(1),), answers.done)
        await eventually(lambda: answers.given_back == [1], "the one that was to be dialled for")
        lease.held = True
        send(webhook, to, (delivery(2),), answers.done)
        await answers.wait_for(1)
        lease.held = False
        send(webhook, to, (delivery(3),), answers.done)
        await eventually(lambda: answers.given_back == [1, 3], "the one that had a connection")
        lease.held = True
        send(webhook, to, (delivery(4),), answers.done)
        await answers.wait_for(2)
        assert [one.headers["syncbrok-sequence"] for one in endpoint.requests] == ["2", "4"]
        assert endpoint.connections == 1


async def test_an_endpoint_that_knows_a_later_leader_is_believed(webhook: Webhook, lease: HeldLease) -> None:
    """409 with a later epoch costs the message no attempt and makes the node find out who leads. An earlier epoch,
    another status, or a later epoch once the node knows that it leads, is an answer as any other."""
    async with Endpoint() as endpoint:
        answers, to = Answers(), subscriber(endpoint.url)
        endpoint.answer = lambda _: reply("409 Conflict", b"", "Syncbrok-Epoch: 8")
        send(webhook, to, (delivery(1),), answers.done)
        await eventually(lambda: answers.given_back == [1], "the attempt is given back")
        assert lease.doubts == 1
        for status, epoch in (("409 Conflict", 7), ("409 Conflict", 6), ("500 X", 8)):
            endpoint.answer = lambda _, status=status, epoch=epoch: reply(status, b"", f"Syncbrok-Epoch: {epoch}")
            send(webhook, to, (delivery(2),), answers.done)
        found = await answers.wait_for(3)
        assert [one.reason for one in found] == [Reason.STATUS] * 3
        assert lease.doubts == 1
        lease.proved = True
        endpoint.answer = lambda _: reply("409 Conflict", b"", "Syncbrok-Epoch: 8")
        send(webhook, to, (delivery(3),), answers.done)
        assert (await answers.wait_for(4))[3].reason == Reason.STATUS
