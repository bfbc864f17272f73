"""A bad day: one endpoint answers 503 for a while with many messages waiting for it, another one is well."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import web

from tests.support.broker.process import BrokerProcess
from tests.support.polling import eventually

WINDOW = 64
FAILURES = 10
SLOW_S = 0.02
BREAKER = {"failures": FAILURES, "probe": ["200ms", "1s"]}
RETRY = ["500ms"] * 30 + ["1m"] * 30
"""half an hour: what was tried before the breaker opened outlives the outage"""
NDJSON = {"Content-Type": "application/x-ndjson"}


class Outage(NamedTuple):
    """The figures of one: attempts during it, and how long it was; how many requests were at the endpoint as each came
    after it; seconds until a neighbour had all, and until the endpoint had."""

    attempts: int
    down_s: float
    alongside: list[int]
    neighbour_s: float
    recovered_s: float
    dead: int

    @property
    def allowed(self) -> int:
        """Attempts that the breaker may let through: what was out as it opened, and a probe after 0.2, 0.6, 1.4, 2.4 s
        and each second then."""
        return WINDOW + FAILURES + 4 + int(self.down_s)


class Patient:
    """An endpoint that is well or not, and takes ``SLOW_S`` for each answer."""

    def __init__(self) -> None:
        self.is_well = True
        self.asked = 0
        self.taken: set[str] = set()
        self.alongside: list[int] = []
        self._here = 0
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        await request.read()
        self.asked += 1
        self._here += 1
        self.alongside.append(self._here)
        due_s = time.monotonic() + SLOW_S
        await eventually(lambda: time.monotonic() >= due_s, "it has taken its time")
        self._here -= 1
        if not self.is_well:
            return web.Response(status=503)
        self.taken.add(request.headers["webhook-id"])
        return web.Response()


@asynccontextmanager
async def patient() -> AsyncIterator[Patient]:
    one, app = Patient(), web.Application()
    app.router.add_post("/", one.answer)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    one.url = f"{site.name}/"
    try:
        yield one
    finally:
        await runner.cleanup()


async def ask(broker: BrokerProcess, method: str, path: str, body: Any = None, headers: Any = None) -> Any:
    """The JSON of its answer."""
    reply = await asyncio.to_thread(broker.request, method, path, body, headers)
    assert reply.status < 300, reply
    return reply.json()


async def declared(broker: BrokerProcess, ill: Patient, well: Patient, **settings: Any) -> None:
    await ask(broker, "POST", "/v1/queues", {"name": "q", "retry": RETRY, "window": WINDOW})
    for name, endpoint in (("ill", ill), ("well", well)):
        given = {"name": name, "endpoint": endpoint.url, "breaker": BREAKER, **settings}
        await ask(broker, "POST", "/v1/queues/q/subscribers", given)


async def outage(directory: Path, waiting: int, down_s: float) -> Outage:
    """One of about ``down_s``, with so many messages waiting."""
    async with patient() as ill, patient() as well:
        with BrokerProcess(directory) as broker:
            await declared(broker, ill, well)
            ill.is_well, began_s = False, time.monotonic()
            for at in range(0, waiting, 1_000):
                lines = b'{"content": "x"}\n' * min(1_000, waiting - at)
                await ask(broker, "POST", "/v1/queues/q/messages:batch", lines, NDJSON)
            await eventually(lambda: len(well.taken) == waiting, "the neighbour has all", 600.0)
            neighbour_s = time.monotonic() - began_s
            await eventually(lambda: time.monotonic() >= began_s + down_s, "it has been down for so long", down_s + 30)
            was_down_s, attempts = time.monotonic() - began_s, ill.asked
            ill.alongside.clear()
            ill.is_well, back_s = True, time.monotonic()
            await eventually(lambda: len(ill.taken) == waiting, "the endpoint has all", 600.0)
            recovered_s = time.monotonic() - back_s
            letters = await ask(broker, "GET", "/v1/queues/q/dead-letters")
            dead = len(letters["dead_letters"])
    return Outage(attempts, was_down_s, ill.alongside, neighbour_s, recovered_s, dead)


def wrong_with(one: Outage) -> list[str]:
    """Which of the promises did not hold (RULES 29)."""
    wrong = []
    if one.attempts > one.allowed:
        wrong.append(f"{one.attempts} attempts in {one.down_s:.1f} s of an outage, {one.allowed} are allowed")
    for first, last, most in ((0, 1, 1), (1, 3, 2), (3, 7, 4), (7, 15, 8), (15, 31, 16)):
        if max(one.alongside[first:last], default=0) > most:
            wrong.append(f"{max(one.alongside[first:last])} at once among the answers {first} to {last} after it")
    if one.dead:
        wrong.append(f"{one.dead} died")
    return wrong
