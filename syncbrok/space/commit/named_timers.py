"""Timers of which there is at most one of each kind."""

import asyncio
from collections.abc import Callable


class Timers:
    """``call`` runs what a timer was started for, so that its owner decides what becomes of an exception."""

    def __init__(self, call: Callable[[Callable[[], None]], None]) -> None:
        self._call = call
        self._running: dict[str, asyncio.TimerHandle] = {}

    def start(self, what: str, delay_s: float, work: Callable[[], None]) -> None:
        """Unless one of this kind is running."""
        if what not in self._running:
            self._running[what] = asyncio.get_running_loop().call_later(delay_s, self._over, what, work)

    def stop(self) -> None:
        """Cancel all."""
        for timer in self._running.values():
            timer.cancel()
        self._running.clear()

    def _over(self, what: str, work: Callable[[], None]) -> None:
        del self._running[what]
        self._call(work)
