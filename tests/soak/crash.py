"""The ordeal of ``tests/whole/crash/test_crash.py``: kill -9 under traffic, over and over."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.crash.traffic import ordeal


@contextmanager
def rounds(asked: argparse.Namespace) -> Iterator[object]:
    def one_round(directory: Path, seed: int) -> tuple[str, list[str]]:
        politely = seed % 4 == 0
        survived = ordeal(directory / "storage", seed, asked.cycles, politely=politely)
        how = "stopped" if politely else "killed"
        return f"{how} {asked.cycles} times, {survived.messages} messages", survived.wrong

    yield one_round
