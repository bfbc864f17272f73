"""When ``/metrics`` was answered. A broker whose log has failed waits for one more scrape before it ends: else nobody
who watches learns of it, since the broker that is started after it is well."""

import asyncio
import time
from collections.abc import Callable

from syncbrok.model import limits


class Scrapes:
    """``clock_s`` is monotonic."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._last_s = 0.0
        self._every_s = 0.0
        """between the last two; 0 before there were two"""
        self._answered = asyncio.Event()

    def answered(self) -> None:
        """Note that ``/metrics`` has just been answered."""
        now_s = self._clock_s()
        self._every_s = now_s - self._last_s if self._last_s else 0.0
        self._last_s = now_s
        self._answered.set()

    def next_within_s(self) -> float:
        """How long the next scrape may take to come, half as late again as they come; 0 where none is to be expected:
        nobody scrapes, has stopped to, or does so too seldom to be waited for."""
        if not self._every_s:
            return 0.0
        left_s = self._last_s + 1.5 * self._every_s - self._clock_s()
        return max(0.0, left_s) if left_s <= limits.scrape_awaited_max_s else 0.0

    async def once_more(self) -> bool:
        """Return when ``/metrics`` was answered again, or none is to be expected any more; whether it was."""
        self._answered.clear()
        try:
            async with asyncio.timeout(self.next_within_s()):
                await self._answered.wait()
        except TimeoutError:
            return False
        return True
