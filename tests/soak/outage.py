"""An endpoint is down with very many waiting for it (``tests/whole/bounds/test_outage.py``)."""

import argparse
import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.overload.outage import outage, wrong_with

WAITING = 50_000
DOWN_S = 25.0
"""what was tried first has 30 s before its schedule is over"""


@contextmanager
def rounds(_asked: argparse.Namespace) -> Iterator[object]:
    yield one_round


def one_round(directory: Path, _seed: int) -> tuple[str, list[str]]:
    """One outage: what came of it, and what is wrong."""
    one = asyncio.run(outage(directory / "log", WAITING, DOWN_S))
    done = (
        f"{WAITING} waiting, down for {one.down_s:.0f} s: {one.attempts} attempts of {one.allowed} allowed; "
        f"a neighbour had all after {one.neighbour_s:.0f} s, the endpoint {one.recovered_s:.0f} s after it was back; "
        f"{max(one.alongside)} at once"
    )
    return done, wrong_with(one)
