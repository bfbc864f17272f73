"""Scheduler, dispatcher and webhook together, over real sockets: the causal promise, with an endpoint that often
fails."""

import asyncio
import random
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import pytest

from syncbrok.delivery.dispatch.dispatcher import Dispatcher
from syncbrok.delivery.handler import Destination
from syncbrok.delivery.webhook.address_guard import AddressGuard
from syncbrok.delivery.webhook.webhook import Webhook
from syncbrok.model.facts import Outcome, Outcomes, Reason, Row, StoredMessage
from syncbrok.model.message import ParentFailure, RetryPolicy, Subscriber
from tests.support.delivery.endpoint import Endpoint, Reply, Request, reply, subscriber
from tests.support.delivery.factlog import FactLog
from tests.support.polling import eventually
from tests.support.servers import close_server

MESSAGES = 300


class Wiring:
    """A ``FactLog`` whose rows become durable a few turns after they are recorded, as in the Space."""

    def __init__(self, webhook: Webhook, timeout_s: float = 5.0) -> None:
        self.log = FactLog(retry=RetryPolicy((0.01,) * 60, 0.2))
        self.log.now_us = time.time_ns() // 1_000
        self.subscribers: dict[int, Subscriber] = {}
        self.dispatcher = Dispatcher(
            self.log.scheduler,
            lambda _: webhook,
            self.read,
            lambda sequences: [self.message(sequence) if sequence % 2 else None for sequence in sequences],
            lambda sequence: bool(sequence % 2),
            self.recorded,
            lambda number: Destination(self.subscribers[number], "q1", timeout_s),
            lambda: self.log.durable,
            lambda: time.time_ns() // 1_000,
            lambda: 0.0,
        )

    def message(self, sequence: int) -> StoredMessage:
        fact = self.log.facts[sequence - 1]
        assert isinstance(fact, StoredMessage)
        return fact

    async def read(self, sequences: Sequence[int]) -> list[StoredMessage | None]:
        await asyncio.sleep(0)
        return [self.message(sequence) for sequence in sequences]

    def recorded(self, rows: list[Row], urgent: bool) -> None:
        self.log.rows.extend(rows)
        asyncio.get_running_loop().call_soon(self.commit)

    def commit(self) -> None:
        self.log.now_us = time.time_ns() // 1_000
        self.log.commit()
        self.dispatcher.wake()


async def test_no_child_goes_before_its_parents_and_nothing_is_lost(seed: int) -> None:
    """DESIGN 1, causal and at least once: over two subscribers, with a third of the attempts failing, every message
    arrives at both, and no attempt of a child is made before its parents were acknowledged by both."""
    chance = random.Random(seed)
    acknowledged: set[tuple[int, str]] = set()
    early: set[tuple[int, str]] = set()
    parents_of: dict[int, tuple[int, ...]] = {}

    def answer(request: Request) -> Reply:
        sequence, who = int(request.headers["syncbrok-sequence"]), request.headers["x-who"]
        needed = {(parent, subscriber) for parent in parents_of[sequence] for subscriber in "ab"}
        early.update(needed - acknowledged)
        if chance.random() < 0.33:
            return reply(chance.choice(["503 No", "500 No", "302 No"]), b"", "Retry-After: 0")
        acknowledged.add((sequence, who))
        return reply()

    webhook = Webhook(AddressGuard(loopback_allowed=True), lambda _: ())
    wiring = Wiring(webhook)
    log = wiring.log
    async with Endpoint(answer) as endpoint:
        log.queue(1)
        for number, who in ((1, "a"), (2, "b")):
            log.subscriber(number, 1)
            wiring.subscribers[number] = subscriber(endpoint.url, number=number, headers=(("x-who", who),))
        published: list[int] = []
        for _ in range(MESSAGES):
            parents = tuple(set(chance.choices(published[-20:], k=chance.randrange(3)))) if published else ()
            published.append(log.publish(1, *parents))
            parents_of[published[-1]] = parents
        run = asyncio.create_task(wiring.dispatcher.run())
        await eventually(lambda: set(log.states().values()) == {"complete"}, "every message is complete", 30.0)
        await wiring.dispatcher.drain(5.0)
        await run
        await webhook.close()
    assert not early
    assert acknowledged == {(sequence, who) for sequence in published for who in "ab"}
    rows = [row for fact in log.facts if isinstance(fact, Outcomes) for row in fact.rows]
    delivered = [(row.message, row.subscriber) for row in rows if row.outcome is Outcome.DELIVERED]
    assert len(delivered) == len(set(delivered)) == 2 * MESSAGES
    assert len(endpoint.requests) == len(rows)


async def test_no_attempt_begins_once_a_message_has_expired(seed: int) -> None:
    """INTERFACES 3, ``Syncbrok-Expires``: not after. The clock that ends what waits is coarse; no first attempt and no
    retry begins in the moments until it strikes, and each message ends expired."""
    chance = random.Random(seed)
    webhook = Webhook(AddressGuard(loopback_allowed=True), lambda _: ())
    wiring = Wiring(webhook)
    log = wiring.log
    async with Endpoint(lambda _: reply("503 No", b"")) as endpoint:
        log.queue(1)
        for number in (1, 2):
            log.subscriber(number, 1, breaker=None)  # else few would be tried at all
            wiring.subscribers[number] = subscriber(endpoint.url, number=number)
        run = asyncio.create_task(wiring.dispatcher.run())
        expires_us: dict[int, int] = {}
        longest_s = 0.3
        begun: list[Row] = []
        async with asyncio.timeout(120.0):
            # On a slow machine nearly all of them have expired before their turn comes: then they get more time.
            while len({row.message for row in begun if row.attempt > 1}) < MESSAGES // 3:
                log.now_us = time.time_ns() // 1_000
                for _ in range(MESSAGES):
                    sequence = log.publish(1, expires_s=chance.choice((1e-6, chance.uniform(0, longest_s))))
                    expires_us[sequence] = wiring.message(sequence).expires_us
                wiring.dispatcher.wake()
                await eventually(lambda: set(log.states().values()) == {"expired"}, "every message has expired", 60.0)
                rows = [row for fact in log.facts if isinstance(fact, Outcomes) for row in fact.rows]
                begun = [row for row in rows if row.attempt]
                longest_s *= 2
        await wiring.dispatcher.drain(5.0)
        await run
        await webhook.close()
    assert [row for row in begun if row.time_us >= expires_us[row.message]] == []


@pytest.mark.parametrize("how", ["cancelled", "expired", "moved", "deleted"])
async def test_no_attempt_begins_late(how: str) -> None:
    """RULES 13, 14, 22: a parent's attempt waits for a connection, since the endpoint accepts none. It is cancelled,
    expires, its subscriber moves or is deleted; the child goes out; then the endpoint accepts again, and is not sent
    the parent."""
    webhook = Webhook(AddressGuard(loopback_allowed=True), lambda _: ())
    wiring = Wiring(webhook, 60.0)
    log = wiring.log
    with deaf_origin() as (deaf, hear):
        async with Endpoint() as endpoint, Endpoint() as later:
            log.queue(1)
            log.queue(2)
            for number, url in ((1, f"http://127.0.0.1:{deaf.getsockname()[1]}/"), (2, endpoint.url)):
                log.subscriber(number, number)
                wiring.subscribers[number] = subscriber(url, number=number)
            parent = log.publish(1, expires_s=2.0 if how == "expired" else 0)  # its attempt is out by then
            child = log.publish(2, parent, policy=ParentFailure.DELIVER)
            run = asyncio.create_task(wiring.dispatcher.run())
            await eventually(lambda: wiring.dispatcher.in_flight == 1, "the parent waits for a connection")
            if how == "cancelled":
                log.end_all(parent, Outcome.DROPPED, Reason.CANCELLED)
            elif how == "moved":
                wiring.subscribers[1] = subscriber(endpoint.url, number=1)
                log.move(1, 1, endpoint.url)
                webhook.forget(1)
            elif how == "deleted":
                log.unsubscribe(1)
                webhook.forget(1)
            wiring.dispatcher.wake()
            await eventually(lambda: log.states()[child] == "complete", "the child is delivered")
            await eventually(lambda: wiring.dispatcher.in_flight == 0, "the parent's attempt is given back")
            went = [int(request.headers["syncbrok-sequence"]) for request in endpoint.requests]
            assert went == ([parent, child] if how == "moved" else [child])
            hear()
            server = await asyncio.start_server(later._serve, sock=deaf)
            if how in ("cancelled", "expired"):  # its dial goes on, for what comes next
                await eventually(lambda: webhook.statistics().connections == 2, "the endpoint accepts again")
            await wiring.dispatcher.drain(5.0)
            await run
            await webhook.close()
            await close_server(server)
            assert later.requests == []


@contextmanager
def deaf_origin() -> Iterator[tuple[socket.socket, Callable[[], None]]]:
    """A socket that listens, and to which nobody gets through: its queue is full, until the function is called."""
    with socket.socket() as deaf, ExitStack() as others:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for _ in range(3):
            other = others.enter_context(socket.socket())
            other.setblocking(False)
            other.connect_ex(deaf.getsockname())
        yield deaf, others.close
