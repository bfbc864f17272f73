"""Waiting for something to become true: the only place in the tests that sleeps.

A test that needs time to pass passes time as an argument; one that waits for another thread, task or process waits
here, with a deadline and a text that says what did not happen.
"""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_PAUSE_S = 0.005


async def eventually(condition: Callable[[], T], what: str, timeout_s: float = 30.0) -> T:
    """The first true value of ``condition()``; fails the test after ``timeout_s``, naming ``what`` was awaited."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        await asyncio.sleep(_PAUSE_S)
    return value


def eventually_blocking(condition: Callable[[], T], what: str | Callable[[], str], timeout_s: float = 30.0) -> T:
    """As ``eventually``, for tests without an event loop. ``what`` may be a call that says how things stand."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {timeout_s} s: {what if isinstance(what, str) else what()}")
        time.sleep(_PAUSE_S)
    return value
