"""The HTTP handler: takes deliveries, keeps one pool of connections per subscriber, and watches the deadlines.

See ``http_request`` for what goes out, ``http_answer`` for what an answer means, ``connections`` for the sockets and
``guard`` for what may be dialled.
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
from syncbrok.delivery.http_request import RequestForm
from syncbrok.delivery.pool import Made, Pool
from syncbrok.model.errors import SyncbrokError
from syncbrok.model.facts import Reason
from syncbrok.model.message import Subscriber

log = logging.getLogger(__name__)

TICK_S = 0.05
"""one coarse timer for all deadlines: a timeout is noticed at most this much late"""
IDLE_SWEEP_S = 5.0


class WebhookStatistics(NamedTuple):
    subscribers: int
    """that have a connection or something waiting for one"""
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
        self._pools: dict[int, Pool] = {}
        self._retired: set[Pool] = set()
        self._gathered: list[Made] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ticks = 0
        self._closed = False

    def statistics(self) -> WebhookStatistics:
        """A picture of this moment."""
        pools = (*self._pools.values(), *self._retired)
        return WebhookStatistics(len(self._pools), sum(pool.open_count for pool in pools))

    def deliver(self, subscriber: Subscriber, deliveries: Sequence[Delivery], done: Done) -> None:
        """See ``Handler``."""
        if not deliveries:
            return
        if self._closed:
            self._refuse(deliveries, done, "the broker is stopping")
            return
        try:
            pool = self._pool(subscriber, deliveries[0].queue)
            pool.sign_with(self._secrets(subscriber.number))
        except (SyncbrokError, LookupError, ValueError, OSError) as error:  # a bad endpoint, a secret that is lost
            why = {"subscriber": subscriber.id, "error": str(error)}
            log.warning("syncbrok.delivery.subscriber_unusable", extra=why)
            self._refuse(deliveries, done, str(error))
            return
        self._write(pool.start(deliveries, done))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def make_ready(self, subscriber: Subscriber, delivery: Delivery) -> None:
        """See ``Handler``."""
        pool = self._pools.get(subscriber.number)
        if pool is not None and pool.form.subscriber is subscriber:
            pool.make_ready(delivery)

    def _write(self, made: list[Made]) -> None:
        """The first requests of a turn go out at once, those to further subscribers together when it is over: as in
        ``Pool.start``, writes that follow each other cost half as much."""
        if self._gathered is not None:
            self._gathered += made
            return
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
        pool = self._pools.pop(subscriber, None)
        if pool is not None:
            pool.retire()
            self._retired.add(pool)

    async def close(self) -> None:
        """See ``Handler``."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pools = [*self._pools.values(), *self._retired]
        dials = [dial for pool in pools for dial in pool.shut()]
        await asyncio.gather(*dials, return_exceptions=True)
        while any(pool.open_count for pool in pools):  # noqa: ASYNC110 - a transport closes within a turn or two
            await asyncio.sleep(0)
        self._pools.clear()
        self._retired.clear()

    def _pool(self, subscriber: Subscriber, queue: str) -> Pool:
        pool = self._pools.get(subscriber.number)
        if pool is not None:
            form = pool.form
            if (form.subscriber is subscriber or form.subscriber == subscriber) and form.queue == queue:
                return pool
            form = RequestForm(subscriber, queue)
            if form.target == pool.form.target:
                pool.reform(form)
                return pool
            self.forget(subscriber.number)
        else:
            form = RequestForm(subscriber, queue)
        pool = self._pools[subscriber.number] = Pool(form, self._dialler, self._clock_us)
        return pool

    def _tick(self) -> None:
        now_s = time.monotonic()
        self._ticks += 1
        for pool in (*self._pools.values(), *self._retired):
            if pool.next_check_s <= now_s:
                pool.expire(now_s)
        if self._ticks % round(IDLE_SWEEP_S / TICK_S) == 0:
            self._sweep(now_s)
        again = bool(self._pools or self._retired) and not self._closed
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick) if again else None

    def _sweep(self, now_s: float) -> None:
        for pool in self._pools.values():
            pool.sweep(now_s)
        self._pools = {number: pool for number, pool in self._pools.items() if not pool.empty}
        self._retired = {pool for pool in self._retired if not pool.empty}
