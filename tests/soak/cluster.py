"""The nodes and the engine of a cluster are killed, stopped, cut off, emptied and filled under families of messages
(``tests/whole/cluster/test_cluster.py``); ``--only`` chooses among the scenarios, ``--seed`` makes one round of
them."""

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from tests.soak import cluster_contents, cluster_disks, cluster_failovers

Scenario = Callable[[Path, int], tuple[str, list[str]]]
SCENARIOS: Final[dict[str, Scenario]] = {
    **cluster_failovers.SCENARIOS,
    **cluster_disks.SCENARIOS,
    **cluster_contents.SCENARIOS,
}

LONG_S: Final = 7_200.0
"""from which on a million wait, not a hundred thousand"""


@contextmanager
def rounds(asked: argparse.Namespace) -> Iterator[object]:
    scenarios = dict(SCENARIOS)
    if asked.seconds >= LONG_S:
        scenarios["very many wait"] = partial(cluster_contents.very_many_wait, many=1_000_000)
    names = [asked.only] if asked.only in SCENARIOS else [name for name in SCENARIOS if asked.only in name]
    if not names:
        raise SystemExit(f"--only {asked.only}: there are {', '.join(SCENARIOS)}")
    yield lambda directory, seed: one_round(directory, seed, {name: scenarios[name] for name in names})


def one_round(directory: Path, seed: int, scenarios: dict[str, Scenario]) -> tuple[str, list[str]]:
    """Each once, on a cluster of its own."""
    wrong = []
    for name, scenario in scenarios.items():
        place = directory / name.replace(" ", "-")
        place.mkdir()
        began_s = time.monotonic()
        done, found = scenario(place, seed)
        print(f"  {name}: {done} ({time.monotonic() - began_s:.0f} s)", flush=True)
        wrong += [f"{name}: {what}" for what in found]
    return f"{len(scenarios)} scenarios", wrong
