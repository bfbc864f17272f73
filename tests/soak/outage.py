"""An endpoint is down with very many waiting for it (``tests/whole/bounds/test_outage.py``)."""

import argparse
import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.overload.outage import outage, wrong_with

WAITING = 100_000
DOWN_S = 1_200.0


@contextmanager
def rounds(asked: argparse.Namespace) -> Iterator[object]:
    yield lambda directory, _seed: one_round(directory, asked.lasts or DOWN_S)


def one_round(directory: Path, down_s: float) -> tuple[str, list[str]]:
    """One outage: what came of it, and what is wrong."""
    one = asyncio.run(outage(directory / "log", WAITING, down_s))
    done = (
        f"{WAITING} waiting, down for {one.down_s:.0f} s: {one.attempts} attempts of {one.allowed} allowed; "
        f"a neighbour had all after {one.neighbour_s:.0f} s, the endpoint {one.recovered_s:.0f} s after it was back; "
        f"{max(one.alongside)} at once"
    )
    return done, wrong_with(one)
