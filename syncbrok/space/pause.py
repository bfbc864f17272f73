"""Pauses in long answers: between two pieces of work others have the event loop.

Whoever asks a long question says how it pauses. A frontend knows whose question it is and gives each client its turn
(``Turns``); the view only says where a pause may be. A pause is asked for often and need not be made each time.
"""

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Final

Pause = Callable[[], Awaitable[None]]

_TURN_S: Final = 0.002


async def _let_others() -> None:
    await asyncio.sleep(0)


def pauses(others: Pause = _let_others) -> Pause:
    """A pause that lets ``others`` go on whenever some milliseconds have gone by; else it costs a look at the clock.
    Without ``others`` the loop has a turn."""
    until_s = perf_counter() + _TURN_S

    async def pause() -> None:
        nonlocal until_s
        if perf_counter() >= until_s:
            await others()
            until_s = perf_counter() + _TURN_S

    return pause
