"""Long work of a request in time slices: between two of them others have their turn, see ``Turns``."""

from collections.abc import Generator
from functools import partial
from time import perf_counter
from typing import TypeVar

from aiohttp import web

from syncbrok.frontends.bounds.turns import TURN_S
from syncbrok.frontends.over_http.requests.middleware import client_of
from syncbrok.space.pause import Pause, pauses

T = TypeVar("T")


def at_once(steps: Generator[None, None, T]) -> T:
    """The result of the steps, without a pause: for work that takes a millisecond at most in all."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def pauses_of(request: web.Request) -> Pause:
    """The pauses in the answer to a request: other clients have their turn."""
    return pauses(partial(client_of(request).turn, goes_on=True))


async def in_slices(request: web.Request, steps: Generator[None, None, T]) -> T:
    """The result of the steps. A step is not divided any more, so it should take a millisecond at most."""
    client = client_of(request)
    while True:
        until_s = perf_counter() + TURN_S
        try:
            while perf_counter() < until_s:
                next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await client.turn(goes_on=True)
