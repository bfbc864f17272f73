"""A cache of addresses: a burst of dials asks once, and a name server that is away does not stop deliveries.

    fresh           looked up a moment ago: used without asking, a failure too
    last good       looked up again. Until an answer comes, and if no server can be asked, the last good addresses are
                    used, for at most an hour; not after an answer that the name no longer exists
    unknown         looked up, and waited for

A name is looked up once at a time, however many wait for it, and as many names at a time as the resolver takes.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from time import monotonic

from syncbrok.delivery.webhook.resolver import Address, LookUpFailed, Resolver, numeric
from syncbrok.model import limits

log = logging.getLogger(__name__)

FRESH_S = 5.0
"""addresses change, and the name servers know for how long they may be kept: ask again soon"""
FAILED_S = 2.0
"""a failure is told again for so long"""
PATIENCE_S = 1.0
"""how long an answer is waited for where there are last good addresses"""


@dataclass(slots=True)
class _Known:
    """``addresses`` are the last good ones. Times are of the monotonic clock, in seconds."""

    addresses: Sequence[Address] = ()
    good_until_s: float = -inf
    fresh_until_s: float = -inf
    failure: LookUpFailed | None = None
    """what the last look-up came to, where there are no addresses to use"""
    doubted: bool = False
    """the last look-up failed, and the addresses are used all the same"""


class KnownAddresses:
    """A cache of the addresses of at most ``names_max`` names. ``now_s`` is a monotonic clock."""

    def __init__(
        self, resolver: Resolver, now_s: Callable[[], float] = monotonic, names_max: int = limits.names_kept_max
    ) -> None:
        self._resolver = resolver
        self._now_s = now_s
        self._names_max = names_max
        self._known: dict[str, _Known] = {}  # the one learnt about last at the end
        self._running: dict[str, asyncio.Task[_Known]] = {}
        self._free = asyncio.Semaphore(resolver.running_max)

    def __repr__(self) -> str:
        return f"<KnownAddresses of {len(self._known)} names, {len(self._running)} look-ups running>"

    async def addresses(self, host: str) -> Sequence[Address]:
        """The addresses of ``host``, a name or a numeric address. Raises ``LookUpFailed``."""
        if found := numeric(host):
            return found
        host = host.lower()
        known = self._known.get(host) or _Known()
        if self._now_s() >= known.fresh_until_s:
            asking = self._running.get(host)
            if asking is None:
                asking = asyncio.get_running_loop().create_task(self._ask(host), name="syncbrok look-up")
                self._running[host] = asking
            if self._now_s() < known.good_until_s:
                await asyncio.wait({asking}, timeout=PATIENCE_S)
                if not asking.done():
                    return known.addresses
            known = await asyncio.shield(asking)
        if known.failure is not None:
            raise LookUpFailed(str(known.failure), definite=known.failure.definite)
        return known.addresses

    async def close(self) -> None:
        """Stop looking names up."""
        running = list(self._running.values())
        for asking in running:
            asking.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self._resolver.close()

    async def _ask(self, host: str) -> _Known:
        """Learn about the name; never raises."""
        try:
            async with self._free:
                try:
                    known = self._learnt(await self._resolver.look_up(host))
                except LookUpFailed as failure:
                    known = self._failed(host, failure)
                except Exception as error:
                    log.exception("syncbrok.delivery.look_up_broke", extra={"host": host})
                    known = self._failed(host, LookUpFailed(repr(error), definite=False))
        finally:
            del self._running[host]
        self._keep(host, known)
        return known

    def _learnt(self, addresses: Sequence[Address]) -> _Known:
        now_s = self._now_s()
        return _Known(addresses, now_s + limits.addresses_good_max_s, now_s + FRESH_S)

    def _failed(self, host: str, failure: LookUpFailed) -> _Known:
        now_s = self._now_s()
        known = self._known.get(host) or _Known()
        if failure.definite or now_s >= known.good_until_s:
            return _Known(fresh_until_s=now_s + FAILED_S, failure=failure)
        if not known.doubted:  # said once, not every other second for an hour
            log.warning("syncbrok.delivery.last_addresses_used", extra={"host": host, "error": str(failure)})
        return _Known(known.addresses, known.good_until_s, now_s + FAILED_S, doubted=True)

    def _keep(self, host: str, known: _Known) -> None:
        self._known.pop(host, None)
        self._known[host] = known
        if len(self._known) > self._names_max:
            del self._known[next(iter(self._known))]
