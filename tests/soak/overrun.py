"""Publishers send twice what ten subscribers drain, one of which hangs, and once more without that one
(``tests/whole/bounds/test_overrun.py``)."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.overload.overrun import Load, overrun, wrong_beside, wrong_with

LASTS_S = 600.0
RATE = 20
SIZE_BYTES = 32 << 10


@contextmanager
def rounds(asked: argparse.Namespace) -> Iterator[object]:
    yield lambda directory, _seed: one_round(directory, asked.lasts or LASTS_S)


def one_round(directory: Path, lasts_s: float) -> tuple[str, list[str]]:
    """Both: what came of them, and what is wrong."""
    load = Load(RATE, lasts_s, SIZE_BYTES)
    without = overrun(directory / "without", load, hung=False)
    print(f"  without: {without}", flush=True)
    one = overrun(directory / "with", load)
    return f"{one}", [*wrong_with(without), *wrong_with(one), *wrong_beside(one, without)]
