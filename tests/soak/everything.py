"""The broker killed while everything is asked of it at once (``tests/whole/crash/test_crash_everything.py``)."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.crash.everything_traffic import counts, life, wrong_with


@contextmanager
def rounds(asked: argparse.Namespace) -> Iterator[object]:
    def one_round(directory: Path, seed: int) -> tuple[str, list[str]]:
        lived = life(directory / "storage", seed, asked.cycles)
        return f"killed {asked.cycles} times, {counts(lived)}", wrong_with(lived, directory / "storage")

    yield one_round
