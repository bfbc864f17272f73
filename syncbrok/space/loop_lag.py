"""Watches the event loop: whoever sleeps on it is woken late where something holds it up."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from syncbrok.space.meters import Durations

_EVERY_S: Final = 0.1


async def watch_loop(
    lag: Durations, monotonic_s: Callable[[], float] = time.monotonic, every_s: float = _EVERY_S
) -> None:
    """Sleep again and again, and tell ``lag`` how much longer each sleep was than it should have been. Runs for
    ever."""
    while True:
        until_s = monotonic_s() + every_s
        await asyncio.sleep(every_s)
        lag.observe(max(0.0, monotonic_s() - until_s))
