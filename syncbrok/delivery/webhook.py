"""The HTTP handler: takes deliveries, keeps a route to each subscriber and a pool of connections to each origin.

See ``http_request`` for what goes out, ``http_answer`` for what an answer means, ``connection`` for the sockets and
``guard`` for what may be dialled. All deadlines are watched here.
"""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from syncbrok.delivery.dialling import Dialler
from syncbrok.delivery.guard import Guard
from syncbrok.delivery.handler import Answer, Delivery, Done
from syncbrok.delivery.http_answer import kept
from syncbrok.delivery.http_request import PlainTails, RequestForm
from syncbrok.delivery.pool import IDLE_MAX_S, Pool
from syncbrok.delivery.route import Made, Route
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
    ``clock_us`` is Unix time in microseconds. ``tls`` replaces the system's trust store (tests).
    """

    def __init__(
        self,
        guard: Guard,
        secrets: Callable[[int], Sequence[bytes]],
        *,
        clock_us: Callable[[], int] = lambda: time.time_ns() // 1_000,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._secrets = secrets
        self._clock_us = clock_us
        self._dialler = Dialler(guard, tls)
        self._routes: dict[int, Route] = {}
        self._pools: dict[tuple[bool, str, int], Pool] = {}
        self._gathered: list[Made] | None = None
        self._timestamp_s = ""
        """of this turn, once something was started in it"""
        self._tails = PlainTails()
        self._timer: asyncio.TimerHandle | None = None
        self._ticks = 0
        self._closed = False

    def statistics(self) -> WebhookStatistics:
        """A picture of this moment."""
        return WebhookStatistics(len(self._routes), sum(len(pool.open) for pool in self._pools.values()))

    def deliver(self, subscriber: Subscriber, deliveries: Sequence[Delivery], done: Done) -> None:
        """See ``Handler``."""
        if not deliveries:
            return
        if self._closed:
            self._refuse(deliveries, done, "the broker is stopping")
            return
        number, queue = subscriber.number, deliveries[0].queue
        try:
            route = self._routes.get(number)
            if route is None or route.form.subscriber is not subscriber or route.form.queue != queue:
                route = self._route(subscriber, queue)
            keys = self._secrets(number)
            if keys != route.keys:
                route.sign_with(keys)
        except (SyncbrokError, LookupError, ValueError, OSError) as error:  # a bad endpoint, a secret that is lost
            why = {"subscriber": subscriber.id, "error": str(error)}
            log.warning("syncbrok.delivery.subscriber_unusable", extra=why)
            self._refuse(deliveries, done, str(error))
            return
        if self._gathered is None:
            self._timestamp_s = self._now_text()
        made = route.start(deliveries, done, self._timestamp_s)
        if self._gathered is None:
            self._write(made)
        else:
            self._gathered += made
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def make_ready(self, subscriber: Subscriber, delivery: Delivery) -> None:
        """See ``Handler``."""
        route = self._routes.get(subscriber.number)
        if route is not None and route.form.subscriber is subscriber:
            route.make_ready(delivery, self._now_text())

    def _now_text(self) -> str:
        return str(self._clock_us() // 1_000_000)

    def _write(self, made: list[Made]) -> None:
        """The first requests of a turn go out at once, those to further subscribers together when it is over: as in
        ``Route.start``, writes that follow each other cost half as much."""
        for connection, _, request in made:
            connection.write(request)
        self._gathered = []
        asyncio.get_running_loop().call_soon(self._write_gathered)

    def _write_gathered(self) -> None:
        gathered, self._gathered = self._gathered, None
        for connection, delivery, request in gathered or ():
            if connection.delivery is delivery:  # not lost, answered or shut in between
                connection.write(request)

    @staticmethod
    def _refuse(deliveries: Sequence[Delivery], done: Done, words: str) -> None:
        answer = Answer(Reason.CONNECT, detail=kept(words.encode("utf-8", "replace")))
        loop = asyncio.get_running_loop()
        for delivery in deliveries:
            loop.call_soon(done, delivery, answer)

    def forget(self, subscriber: int) -> None:
        """See ``Handler``."""
        route = self._routes.pop(subscriber, None)
        if route is not None:
            route.pool.leave()

    async def close(self) -> None:
        """See ``Handler``."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._routes.clear()
        pools = list(self._pools.values())
        dials = [dial for pool in pools for dial in pool.shut()]
        await asyncio.gather(*dials, return_exceptions=True)
        while any(pool.open for pool in pools):  # noqa: ASYNC110 - a transport closes within a turn or two
            await asyncio.sleep(0)
        self._pools.clear()

    def _route(self, subscriber: Subscriber, queue: str) -> Route:
        """The way to it. A settled one is found at once; settings that changed give it another form, and an endpoint
        elsewhere another pool."""
        route = self._routes.get(subscriber.number)
        if route is None:
            form = RequestForm(subscriber, queue, self._tails)
        else:
            form = route.form
            if form.subscriber == subscriber and form.queue == queue:
                return route
            form = RequestForm(subscriber, queue, self._tails)
            if form.target == route.form.target:
                route.reform(form)
                return route
            self.forget(subscriber.number)
        origin = form.target[:3]
        pool = self._pools.get(origin)
        if pool is None:
            pool = self._pools[origin] = Pool(form.target, self._dialler, self._clock_us)
        route = self._routes[subscriber.number] = Route(form, pool)
        return route

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
        for number in [number for number, route in self._routes.items() if route.used_s <= idle_since_s]:
            self.forget(number)
        self._pools = {origin: pool for origin, pool in self._pools.items() if not pool.empty}
