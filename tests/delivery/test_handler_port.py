"""What every handler promises (``syncbrok.delivery.handler.Handler``), asked of each: webhooks over real sockets, those
who come for their messages, and the one of endpoints that nothing delivers to.

Broken by hand to see these fail: ``done`` called from inside ``deliver``; a withdrawn attempt that goes out all the
same, or is told twice; a handler that is closed and answers nothing, or keeps what idles; one that keeps an idle
connection of who is forgotten; a consumer's words that are kept whole.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from syncbrok.delivery.consumers import Consumers
from syncbrok.delivery.handler import AttemptResult, Delivery, Handler
from syncbrok.delivery.webhook.address_guard import AddressGuard
from syncbrok.delivery.webhook.webhook import Webhook
from syncbrok.model import limits
from syncbrok.model.budget import Budget
from syncbrok.model.facts import Reason
from syncbrok.model.message import Subscriber
from syncbrok.space.handler_table import UnroutedHandler
from tests.support.delivery.endpoint import HANG, TIME_US, Endpoint, delivery, message, reply, send, subscriber
from tests.support.polling import eventually

ONE, OTHER = 1, 2


class Told:
    """What was called back: by message, None where it was not begun."""

    def __init__(self) -> None:
        self.answers: dict[int, list[AttemptResult | None]] = {}
        self.inside = False
        """``deliver`` is running"""

    def done(self, one: Delivery, answer: AttemptResult | None) -> None:
        assert not self.inside, "called back from inside deliver"
        self.answers.setdefault(one.attempt.message, []).append(answer)

    async def all_of(self, messages: Sequence[int]) -> list[AttemptResult | None]:
        """The one answer of each of these."""
        await eventually(lambda: {*messages} <= {*self.answers}, f"{messages} are answered, not only {self.answers}")
        assert all(len(self.answers[one]) == 1 for one in messages), self.answers
        return [self.answers[one][0] for one in messages]


def named(sequence: int, number: int, timeout_s: float = 10.0) -> Delivery:
    """A delivery whose content is its sequence."""
    one = delivery(of=message(sequence, b"%d" % sequence), timeout_s=timeout_s)
    return one._replace(attempt=one.attempt._replace(subscriber=number))


class Side:
    """A handler and what it delivers to: two peers, numbered like their subscribers."""

    handler: Handler
    delivers = True
    """there is somebody to deliver to"""
    words = b""
    """of who refuses"""

    def __init__(self) -> None:
        self.told = Told()

    async def start(self) -> None: ...

    async def stop(self) -> None:
        await self.handler.close()

    def to(self, number: int) -> Subscriber:
        raise NotImplementedError

    def seen(self, number: int) -> list[int]:
        """Messages that the peer knows of."""
        raise NotImplementedError

    def connected(self, number: int) -> bool:
        """The handler holds a connection to the peer, or the peer a place at the handler."""
        raise NotImplementedError

    async def move(self, number: int) -> None:
        """The subscriber's endpoint has changed: another peer is there from now on."""
        raise NotImplementedError

    def answer(self, *, well: bool | None) -> None:
        """How the peers answer from now on, and what they hold: None, not at all."""
        raise NotImplementedError

    def end_of_work(self) -> None:
        """The peers answer what they have, badly."""
        raise NotImplementedError

    def deliver(self, *messages: int, number: int = ONE, timeout_s: float = 10.0) -> list[int]:
        self.told.inside = True
        given = [named(one, number, timeout_s) for one in messages]
        send(self.handler, self.to(number), given, self.told.done)
        self.told.inside = False
        return list(messages)


class Webhooks(Side):
    async def start(self) -> None:
        self.handler = Webhook(AddressGuard(loopback_allowed=True), lambda _: (), clock_us=lambda: TIME_US)
        self.started: list[Endpoint] = []
        self.endpoints: dict[int, Endpoint] = {}
        self.subscribers: dict[int, Subscriber] = {}
        for number in (ONE, OTHER):
            await self.move(number)

    async def move(self, number: int) -> None:
        endpoint = await Endpoint().__aenter__()
        self.started.append(endpoint)
        self.endpoints[number], self.subscribers[number] = endpoint, subscriber(endpoint.url, number=number)

    async def stop(self) -> None:
        await super().stop()
        for endpoint in self.started:
            await endpoint.__aexit__()

    def connected(self, number: int) -> bool:
        return self.endpoints[number].open > 0

    def to(self, number: int) -> Subscriber:
        return self.subscribers[number]

    def seen(self, number: int) -> list[int]:
        return [int(one.body) for one in self.endpoints[number].requests]

    def answer(self, *, well: bool | None) -> None:
        for endpoint in self.endpoints.values():
            endpoint.answer = lambda _: HANG if well is None else reply("200 OK" if well else "500 X", self.words)

    def end_of_work(self) -> None:
        for endpoint in self.endpoints.values():
            endpoint.hang_up()


class Peer:
    """A consumer that begins with what it is given at once, and answers as it is told."""

    def __init__(self, side: "Consuming") -> None:
        self.side = side
        self.deliveries: list[int] = []
        self.gone = False

    def receive(self, deliveries: Sequence[Delivery]) -> None:
        asyncio.get_running_loop().call_soon(self._begin, [one.attempt.message for one in deliveries])

    def _begin(self, messages: list[int]) -> None:
        for one in messages:
            if one in self.member.leases:
                self.member.begin(one)
                self.deliveries.append(one)
                if self.side.well is not None:
                    self.finish(one, well=self.side.well)

    def finish(self, message: int, *, well: bool) -> None:
        if well:
            self.member.acknowledge((message,))
        else:
            self.member.refuse(message, self.side.words)

    def lapsed(self, messages: Sequence[int]) -> None: ...

    def dismissed(self) -> None:
        self.gone = True


class Consuming(Side):
    async def start(self) -> None:
        self.well: bool | None = True
        self.consumers = Consumers(lambda *_: None, lambda _: False, Budget("leases", 99), lambda _: None)
        self.handler = self.consumers
        self.peers: dict[int, Peer] = {}
        for number in (ONE, OTHER):
            await self.move(number)
        self.subscribers = {number: subscriber("consumer:test", number=number) for number in (ONE, OTHER)}

    async def move(self, number: int) -> None:
        peer = self.peers[number] = Peer(self)
        peer.member = self.consumers.join(number, peer, 99, 60.0)

    def connected(self, number: int) -> bool:
        return not self.peers[number].gone

    def to(self, number: int) -> Subscriber:
        return self.subscribers[number]

    def seen(self, number: int) -> list[int]:
        return self.peers[number].deliveries

    def answer(self, *, well: bool | None) -> None:
        self.well = well

    def end_of_work(self) -> None:
        for peer in self.peers.values():
            for one in list(peer.member.leases):
                peer.finish(one, well=False)


class Unrouted(Side):
    delivers = False

    async def start(self) -> None:
        self.handler = UnroutedHandler()

    def to(self, number: int) -> Subscriber:
        return subscriber(f"gone{self.words.decode()}:somewhere", number=number)

    def seen(self, number: int) -> list[int]:
        return []

    def answer(self, *, well: bool | None) -> None: ...

    def end_of_work(self) -> None: ...


SIDES = {"webhooks": Webhooks, "consumers": Consuming, "unrouted": Unrouted}


@pytest.fixture(params=SIDES)
async def side(request: pytest.FixtureRequest) -> AsyncIterator[Side]:
    made = SIDES[request.param]()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture(params=[name for name, kind in SIDES.items() if kind.delivers])
async def peers(request: pytest.FixtureRequest) -> AsyncIterator[Side]:
    """Those with somebody to deliver to."""
    made = SIDES[request.param]()
    await made.start()
    yield made
    await made.stop()


@pytest.mark.parametrize("well", [True, False])
async def test_each_attempt_is_answered_once_and_later(side: Side, well: bool) -> None:
    """Port, deliver: ``done`` exactly once for each, never from inside, whatever comes of it."""
    side.answer(well=well)
    one, other = side.deliver(*range(1, 30)), side.deliver(*range(30, 40), number=OTHER)
    answers = await side.told.all_of([*one, *other])
    assert all(answer is not None and (answer.reason is Reason.NONE) == (well and side.delivers) for answer in answers)
    if side.delivers:
        assert (sorted(side.seen(ONE)), sorted(side.seen(OTHER))) == (one, other)
    await side.handler.close()
    assert all(len(some) == 1 for some in side.told.answers.values())


async def test_what_a_failed_attempt_tells_is_bounded(side: Side) -> None:
    """Port, AttemptResult: however much a peer says, the first of it is kept; the row of each attempt has it."""
    side.words = b"w" * limits.response_bytes_kept * 2
    side.answer(well=False)
    (answer,) = await side.told.all_of(side.deliver(1))
    assert answer is not None
    assert (answer.reason is not Reason.NONE, answer.latency_us >= 0) == (True, True)
    assert b"w" * 900 in answer.detail
    assert len(answer.detail) == limits.response_bytes_kept


async def test_several_subscribers_in_one_call(peers: Side) -> None:
    """Port, deliver: those to one subscriber stand together, and go to it."""
    given = []
    for number, messages in ((ONE, (1, 2)), (OTHER, (3, 4))):
        to = named(1, number).to._replace(subscriber=peers.to(number))
        given += [named(one, number)._replace(to=to) for one in messages]
    peers.handler.deliver(given, peers.told.done)
    await peers.told.all_of([1, 2, 3, 4])
    assert (sorted(peers.seen(ONE)), sorted(peers.seen(OTHER))) == ([1, 2], [3, 4])


async def test_what_is_made_ready_does_not_go_out(side: Side) -> None:
    """Port, make_ready: nothing goes out and nothing is called back; the delivery comes all the same."""
    first = side.deliver(1)
    await side.told.all_of(first)
    one = named(2, ONE)
    side.handler.make_ready(one._replace(to=one.to._replace(subscriber=side.to(ONE))))
    following = side.deliver(3)
    await side.told.all_of(following)
    assert set(side.told.answers) == {1, 3}
    assert 2 not in side.seen(ONE)


async def test_what_has_not_begun_is_given_back(peers: Side) -> None:
    """Port, withdraw: what has not begun is told as that, once, and never goes out; the others go on."""
    messages = peers.deliver(1, 2, 3)
    peers.handler.withdraw(ONE, {2, 3, 99})
    peers.handler.withdraw(ONE, {2})
    assert await peers.told.all_of([2, 3]) == [None, None]
    (answer,) = await peers.told.all_of(messages[:1])
    assert answer is not None
    assert answer.reason is Reason.NONE
    assert peers.seen(ONE) == [1]


async def test_what_has_begun_is_left_to_its_answer(peers: Side) -> None:
    """Port, withdraw: the peer knows of it, so what it says counts."""
    peers.answer(well=None)
    messages = peers.deliver(1, 2)
    await eventually(lambda: sorted(peers.seen(ONE)) == messages, "both have begun")
    peers.handler.withdraw(ONE, set(messages))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not peers.told.answers
    peers.end_of_work()
    answers = await peers.told.all_of(messages)
    assert all(answer is not None and answer.reason is not Reason.NONE for answer in answers)
    assert sorted(peers.seen(ONE)) == messages, "nothing is sent once more without an answer"


async def test_who_is_forgotten_gets_nothing_more(peers: Side) -> None:
    """Port, forget: what has not begun is given back, what has is answered, and others are not touched."""
    peers.answer(well=None)
    begun = peers.deliver(1)
    await eventually(lambda: peers.seen(ONE) == begun, "it has begun")
    waiting = peers.deliver(2, 3)
    peers.handler.forget(ONE)
    assert await peers.told.all_of(waiting) == [None, None]
    peers.end_of_work()
    (answer,) = await peers.told.all_of(begun)
    assert answer is not None
    assert answer.reason is not Reason.NONE
    peers.answer(well=True)
    (other,) = await peers.told.all_of(peers.deliver(4, number=OTHER))
    assert other is not None
    assert other.reason is Reason.NONE
    assert peers.seen(ONE) == [1]


async def test_who_is_forgotten_is_let_go(peers: Side) -> None:
    """Port, forget: what is idle and nobody else's is closed, other subscribers' is not; who comes under that number
    afterwards, at another endpoint, is delivered to."""
    await peers.told.all_of([*peers.deliver(1), *peers.deliver(2, number=OTHER)])
    peers.handler.forget(ONE)
    await eventually(lambda: not peers.connected(ONE), "it is let go")
    assert peers.connected(OTHER)
    assert peers.seen(ONE) == [1]
    await peers.move(ONE)
    (answer,) = await peers.told.all_of(peers.deliver(3))
    assert answer is not None
    assert answer.reason is Reason.NONE
    assert (peers.seen(ONE), peers.seen(OTHER)) == ([3], [2])


async def test_to_forget_who_is_not_known_is_nothing(side: Side) -> None:
    """Port, forget, withdraw: of one that it does not know, or twice, nothing comes; the others go on."""
    await side.told.all_of(side.deliver(1))
    told = {one: list(answers) for one, answers in side.told.answers.items()}
    for _ in range(2):
        side.handler.forget(OTHER)
        side.handler.withdraw(OTHER, {1})
        side.handler.forget(99)
    assert side.told.answers == told
    (answer,) = await side.told.all_of(side.deliver(2))
    assert answer is not None
    assert (answer.reason is Reason.NONE) == side.delivers


async def test_an_attempt_takes_no_longer_than_it_may(peers: Side) -> None:
    """Port, Destination: an attempt that is not answered in ``timeout_s`` has failed; the others go on."""
    peers.answer(well=None)
    (answer,) = await peers.told.all_of(peers.deliver(1, timeout_s=0.2))
    assert answer is not None
    assert answer.reason is Reason.TIMEOUT
    peers.answer(well=True)
    await peers.told.all_of(peers.deliver(2))


async def test_a_closed_handler_has_answered_everything(side: Side) -> None:
    """Port, close: attempts still out are answered, begun ones with ``CONNECT``; what comes later raises nothing."""
    side.answer(well=None)
    begun = side.deliver(1)
    if side.delivers:
        await eventually(lambda: side.seen(ONE) == begun, "it has begun")
    waiting = side.deliver(2, number=OTHER)
    await side.handler.close()
    (answer,) = await side.told.all_of(begun)
    assert answer is not None
    assert answer.reason is Reason.CONNECT
    (other,) = await side.told.all_of(waiting)
    assert other is None or other.reason is Reason.CONNECT
    (late,) = await side.told.all_of(side.deliver(3))
    assert late is None or late.reason is Reason.CONNECT
    assert 3 not in side.seen(ONE)


async def test_a_closed_handler_holds_no_connection(peers: Side) -> None:
    """Port, close: what idles is closed too, whoever used it; twice is as once."""
    await peers.told.all_of([*peers.deliver(1), *peers.deliver(2, number=OTHER)])
    assert (peers.connected(ONE), peers.connected(OTHER)) == (True, True)
    await peers.handler.close()
    await eventually(lambda: not (peers.connected(ONE) or peers.connected(OTHER)), "its connections are closed")
    await peers.handler.close()
    assert all(len(some) == 1 for some in peers.told.answers.values())
