"""The ordeal of ``tests/whole/crash/test_inbox.py``: a receiver killed 1,000 times, its broker once a minute."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.crash.inbox_ordeal import ordeal

KILLS = 1_000
PAUSE_S = 1.0
"""the longest time between two kills of the receiver: half a second on the average, and a start of it"""
BROKER_KILLS = 12


@contextmanager
def rounds(_asked: argparse.Namespace) -> Iterator[object]:
    yield one_round


def one_round(directory: Path, seed: int) -> tuple[str, list[str]]:
    """What was done, and what is wrong."""
    came = ordeal(directory, seed, KILLS, BROKER_KILLS, PAUSE_S, broker_pause_s=60.0)
    return f"killed {KILLS} times, the broker {BROKER_KILLS}; {came.messages} messages, {came.lost} lost", came.wrong
