"""The HTTP handler: takes deliveries, keeps a route to each subscriber and a pool of connections to each origin.

See ``http_request`` for what goes out, ``http_response`` for what an answer means, ``connection`` for the sockets and
``guard`` for what may be dialled. All deadlines are watched here.
"""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from syncbrok.delivery.attempt_guard import AttemptGuard
from syncbrok.delivery.handler import AttemptResult, Delivery, Destination, Done
from syncbrok.delivery.trace_context import TraceContexts
from syncbrok.delivery.webhook.address_guard import AddressGuard
from syncbrok.delivery.webhook.connection import Exchange, WebhookConnection
from syncbrok.delivery.webhook.connection_pool import IDLE_MAX_S, Pool
from syncbrok.delivery.webhook.connector import Connector
from syncbrok.delivery.webhook.dial_room import DialRoom
from syncbrok.delivery.webhook.endpoint_tls import EndpointTls
from syncbrok.delivery.webhook.http_request import RequestForm, SharedTails
from syncbrok.delivery.webhook.http_response import kept
from syncbrok.delivery.webhook.resolver import DnsResolver, Resolver
from syncbrok.delivery.webhook.subscriber_route import SubscriberRoute
from syncbrok.delivery.webhook.traced_request import TracedForm
from syncbrok.model import limits
from syncbrok.model.budget import Budget
from syncbrok.model.credentials import NONE
from syncbrok.model.errors import SyncbrokError
from syncbrok.model.facts import Reason
from syncbrok.model.message import Subscriber

log = logging.getLogger(__name__)

TICK_S = 0.05
"""one coarse timer for all deadlines: a timeout is noticed at most this much late"""
IDLE_SWEEP_S = 5.0


class WebhookStatistics(NamedTuple):
    subscribers: int
    """that were sent something lately"""
    connections: int


class Webhook:
    """The ``Handler`` of http and https endpoints.

    ``secrets`` gives the raw key bytes to sign with, by subscriber number, newest first; empty: unsigned.
    ``credentials`` gives those of a subscriber's settings, by its number and the ``credentials`` of its settings; it
    raises ``LookupError`` where they are lost.
    ``clock_us`` is Unix time in microseconds. ``tls`` replaces the system's trust store (tests).
    ``resolver`` is asked for the addresses of names; by default the system's name servers are.
    ``descriptors``: of the process; connections take theirs from it. ``attempt_guard`` is asked before the first byte
    of each request; the epoch of its lease goes out with it. ``traces``: whose spans the requests name.
    """

    def __init__(
        self,
        guard: AddressGuard,
        secrets: Callable[[int], Sequence[bytes]],
        *,
        clock_us: Callable[[], int] = lambda: time.time_ns() // 1_000,
        tls: ssl.SSLContext | None = None,
        resolver: Resolver | None = None,
        descriptors: Budget | None = None,
        attempt_guard: AttemptGuard | None = None,
        credentials: Callable[[int, int], Mapping[str, str]] = lambda _number, _sequence: NONE,
        traces: TraceContexts | None = None,
    ) -> None:
        self._secrets = secrets
        self._credentials = credentials
        self._attempt_guard = attempt_guard or AttemptGuard()
        self._new_form = RequestForm if traces is None else partial(TracedForm, traces)
        self._clock_us = clock_us
        self._connector = Connector(guard, resolver or DnsResolver(), tls)
        self._routes: dict[int, SubscriberRoute] = {}
        self._pools: dict[tuple[bool, str, int, bytes], Pool] = {}
        self._tails = SharedTails()
        descriptors = descriptors or Budget("descriptors", limits.descriptors_max)
        self._room = DialRoom(descriptors, lambda: self._pools.values())  # noqa: PLW0108 (a sweep replaces it)
        self._timer: asyncio.TimerHandle | None = None
        self._ticks = 0
        self._closed = False

    def statistics(self) -> WebhookStatistics:
        """A picture of this moment."""
        return WebhookStatistics(len(self._routes), sum(len(pool.open) for pool in self._pools.values()))

    def deliver(self, deliveries: Sequence[Delivery], done: Done) -> None:
        """See ``Handler``.

        All requests are made before the first is written. Writing them one after the other keeps the endpoints busy;
        with the making of a request between two writes they fall asleep each time, and waking them doubles the cost
        of a write."""
        made, behind = self._start(deliveries, done, time.monotonic())
        for connection, request in made:
            connection.write(request)
        for route in behind:
            route.dial_for_waiting()
        if self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _start(
        self, deliveries: Sequence[Delivery], done: Done, now_s: float
    ) -> tuple[list[tuple[WebhookConnection, bytes]], list[SubscriberRoute]]:
        """Put each delivery on an idle connection, or into the line of its route. Returns the requests to write now,
        and the routes in which deliveries wait."""
        timestamp_s = self._now_text()
        made: list[tuple[WebhookConnection, bytes]] = []
        behind: list[SubscriberRoute] = []
        to: Destination | None = None
        for delivery in deliveries:
            if delivery[2] is not to:
                to = delivery[2]
                route, why_not = self._usable_route(to)
                if route is not None:
                    pool, render, signers = route.pool, route.form.render, route.signers
                    may_send = route.token_line is None or route.may_send(now_s)
                    take_idle = pool.take_idle if may_send else _take_none
                    deadline_s = now_s + to.timeout_s
                    route.used_s = now_s
                    if deadline_s < pool.next_check_s:  # noqa: PLR1730 - min() costs three times as much here
                        pool.next_check_s = deadline_s
            if route is None:
                _refuse(delivery, done, why_not)
                continue
            connection = take_idle(now_s)
            if connection is None:
                route.wait(Exchange(delivery, done, now_s, deadline_s))
                behind.append(route)
                continue
            connection.hold(route, delivery, done, now_s, deadline_s)
            try:
                made.append((connection, render(delivery, timestamp_s, signers)))
            except Exception as error:  # noqa: BLE001 - whatever is in a message, it is answered and the others go on
                route.unmade(connection, error)
        return made, list(dict.fromkeys(behind))

    def make_ready(self, delivery: Delivery) -> None:
        """See ``Handler``."""
        subscriber = delivery.to.subscriber
        route = self._routes.get(subscriber.number)
        if route is not None and route.form.subscriber is subscriber:
            route.make_ready(delivery, self._now_text())

    def _now_text(self) -> str:
        return str(self._clock_us() // 1_000_000)

    def withdraw(self, subscriber: int, messages: Collection[int]) -> None:
        """See ``Handler``."""
        route = self._routes.get(subscriber)
        if route is not None:
            route.withdraw(messages)

    def forget(self, subscriber: int) -> None:
        """See ``Handler``."""
        route = self._routes.pop(subscriber, None)
        if route is not None:
            route.withdraw(None)
            self._room.forget(route)
            route.pool.leave(route)

    async def close(self) -> None:
        """See ``Handler``."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._routes.clear()
        self._room.close()
        pools = list(self._pools.values())
        dials = [dial for pool in pools for dial in pool.shut()]
        await asyncio.gather(*dials, return_exceptions=True)
        await self._connector.close()
        while any(pool.open for pool in pools):  # noqa: ASYNC110 - a transport closes within a turn or two
            await asyncio.sleep(0)
        self._pools.clear()

    def _usable_route(self, to: Destination) -> tuple[SubscriberRoute | None, str]:
        """The way there, signing with the secrets of now; or none, and why."""
        if self._closed:
            return None, "the broker is stopping"
        subscriber = to.subscriber
        number = subscriber.number
        try:
            route = self._routes.get(number)
            if route is None or route.to is not to:
                route = self._route(subscriber, to.queue)
                route.to = to
            keys = self._secrets(number)
            if keys != route.keys:
                route.sign_with(keys)
        except (SyncbrokError, LookupError, ValueError, OSError) as error:  # a bad endpoint, a secret that is lost
            why = {"subscriber": subscriber.id, "error": str(error)}
            log.warning("syncbrok.delivery.subscriber_unusable", extra=why)
            return None, str(error)
        return route, ""

    def _route(self, subscriber: Subscriber, queue: str) -> SubscriberRoute:
        """The way to it. A settled one is found at once; settings that changed give it another form, and an endpoint
        elsewhere another pool."""
        route = self._routes.get(subscriber.number)
        if route is not None and route.form.subscriber == subscriber and route.form.queue == queue:
            return route
        form = self._form(subscriber, queue)
        tls = EndpointTls.of(subscriber.settings.auth, form.credentials)
        origin = (*form.target[:3], b"" if tls is None else tls.digest)
        pool = self._pools.get(origin)
        if route is not None:
            if form.target == route.form.target and pool is route.pool:
                route.reform(form)
                return route
            self.forget(subscriber.number)
        if pool is None:
            pool = self._pools[origin] = Pool(
                form.target, self._connector, self._room, self._clock_us, self._attempt_guard, tls
            )
        route = self._routes[subscriber.number] = SubscriberRoute(form, pool)
        return route

    def _form(self, subscriber: Subscriber, queue: str) -> RequestForm:
        credentials = self._credentials(subscriber.number, subscriber.settings.credentials)
        return self._new_form(subscriber, queue, self._tails, self._attempt_guard.lease.epoch, credentials)

    def _tick(self) -> None:
        now_s = time.monotonic()
        self._ticks += 1
        for pool in list(self._pools.values()):  # an exchange that ends may lead to a new one
            if pool.next_check_s <= now_s:
                pool.expire(now_s)
        if self._ticks % round(IDLE_SWEEP_S / TICK_S) == 0:
            self._sweep(now_s)
        again = bool(self._pools) and not self._closed
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick) if again else None

    def _sweep(self, now_s: float) -> None:
        idle_since_s = now_s - IDLE_MAX_S
        for pool in self._pools.values():
            pool.sweep(now_s)
        busy = {sender for pool in self._pools.values() for sender in pool.senders()}
        for number, route in list(self._routes.items()):
            if route.used_s <= idle_since_s and not route.waits and route not in busy:
                del self._routes[number]
                self._room.forget(route)
                route.pool.leave(route)
        self._pools = {origin: pool for origin, pool in self._pools.items() if not pool.empty}


def _take_none(_: float) -> WebhookConnection | None:
    return None


def _refuse(delivery: Delivery, done: Done, words: str) -> None:
    answer = AttemptResult(Reason.CONNECT, detail=kept(words.encode("utf-8", "replace")))
    asyncio.get_running_loop().call_soon(done, delivery, answer)
