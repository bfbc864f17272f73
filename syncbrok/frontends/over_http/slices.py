"""Long work of a request in slices, so that the event loop gets to others in between."""

import asyncio
from collections.abc import Generator
from time import perf_counter
from typing import Final, TypeVar

T = TypeVar("T")

SLICE_S: Final = 0.005


async def in_slices(steps: Generator[None, None, T]) -> T:
    """What the steps come to; after each ``SLICE_S`` the loop has its turn. A step is not divided any more."""
    while True:
        until_s = perf_counter() + SLICE_S
        try:
            while perf_counter() < until_s:
                next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)
