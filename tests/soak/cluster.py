"""The nodes and the engine of a cluster are killed, stopped, cut off, emptied and filled under families of messages
(``tests/whole/test_cluster.py``); ``--only`` chooses among the scenarios, ``--seed`` makes one round of them."""

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.soak import cluster_contents, cluster_disks, cluster_failovers

Scenario = Callable[[Path, int], tuple[str, list[str]]]
SCENARIOS: Final[dict[str, Scenario]] = {
    **cluster_failovers.SCENARIOS,
    **cluster_disks.SCENARIOS,
    **cluster_contents.SCENARIOS,
}


@contextmanager
def rounds(asked: argparse.Namespace) -> Iterator[object]:
    names = [asked.only] if asked.only in SCENARIOS else [name for name in SCENARIOS if asked.only in name]
    if not names:
        raise SystemExit(f"--only {asked.only}: there are {', '.join(SCENARIOS)}")
    yield lambda directory, seed: one_round(directory, seed, names)


def one_round(directory: Path, seed: int, names: list[str]) -> tuple[str, list[str]]:
    """Each once, on a cluster of its own."""
    wrong = []
    for name in names:
        place = directory / name.replace(" ", "-")
        place.mkdir()
        began_s = time.monotonic()
        done, found = SCENARIOS[name](place, seed)
        print(f"  {name}: {done} ({time.monotonic() - began_s:.0f} s)", flush=True)
        wrong += [f"{name}: {what}" for what in found]
    return f"{len(names)} scenarios", wrong
