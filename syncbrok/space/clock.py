"""Watches the wall clock for steps.

It is compared with the monotonic clock, which nobody can set. A clock that is slewed differs by less than a thousandth.
A machine that slept looks as if its clock had been set forward, and for due times that is the same.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from syncbrok.model import limits
from syncbrok.space.meters import Meters

_log = logging.getLogger(__name__)

_EVERY_S: Final = 1.0


def wall_us() -> int:
    """Unix time in microseconds."""
    return time.time_ns() // 1_000


async def watch_clock(
    clock_us: Callable[[], int],
    meters: Meters,
    stepped: Callable[[], None],
    monotonic_s: Callable[[], float] = time.monotonic,
    every_s: float = _EVERY_S,
) -> None:
    """Report every step of the clock in the log and in ``meters``, then call ``stepped``, since sleepers must look at
    the clock again. Runs for ever."""
    before_us = clock_us() - int(monotonic_s() * 1e6)
    while True:
        await asyncio.sleep(every_s)
        now_us = clock_us() - int(monotonic_s() * 1e6)
        seconds = (now_us - before_us) / 1e6
        before_us = now_us
        if abs(seconds) >= limits.clock_step_s:
            report_step(seconds, meters, "the clock was set while the broker ran")
            stepped()


def check_start(newest_us: int, now_us: int, meters: Meters) -> None:
    """Report where the clock is behind the newest record of the log: one of the two times was wrong."""
    seconds = (now_us - newest_us) / 1e6
    if newest_us and seconds <= -limits.clock_step_s:
        report_step(seconds, meters, "the clock is behind the newest record of the log")


def report_step(seconds: float, meters: Meters, detail: str) -> None:
    meters.clock_steps += 1
    meters.clock_step_s = seconds
    _log.warning("syncbrok.space.clock_stepped", extra={"seconds": seconds, "detail": detail})
