"""The machine of a Space loses its power, and again while it recovers
(``tests/whole/crash/test_power_loss_space.py``)."""

import argparse
import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.power.space import loses_power_twice, record

STATES = 100


@contextmanager
def rounds(_asked: argparse.Namespace) -> Iterator[object]:
    def one_round(directory: Path, seed: int) -> tuple[str, list[str]]:
        return asyncio.run(_round(directory, seed))

    yield one_round


async def _round(directory: Path, seed: int) -> tuple[str, list[str]]:
    """A new life, and states of it until one is wrong."""
    dice = random.Random(seed)
    life = await record(directory / "recorded", dice)
    for number in range(STATES):
        wrong = await loses_power_twice(life, directory, dice)
        if wrong:
            return f"state {number}", wrong
    return f"{len(life.events)} events, {STATES} states", []
