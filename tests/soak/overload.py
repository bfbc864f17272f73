"""Clients take all they can get, at full size (``tests/test_overload.py``): memory, neighbours, the loop."""

import argparse
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.overload import ATTACKS, MIB, Target, Watch, attacked, last, publish_large

GROWN_MAX = 64 * MIB
CALLBACK_MAX_S = 0.05
QUIET_S = 3.0


@contextmanager
def rounds(_asked: argparse.Namespace) -> Iterator[object]:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield one_round


def one_round(directory: Path, seed: int) -> tuple[str, list[str]]:
    """Every attack once, each on a broker of its own; ``seed`` says with which to begin."""
    names = list(ATTACKS)
    names = names[seed % len(names) :] + names[: seed % len(names)]
    wrong = [what for name in names for what in judged(directory / name.replace(" ", "-"), name)]
    return f"{len(names)} attacks", wrong


def judged(directory: Path, name: str) -> list[str]:
    directory.mkdir()
    attack, _, count = ATTACKS[name]
    with attacked(directory / "storage") as target:
        publish_large(target, 30, "warm")
        with Watch(target) as quiet:
            last(QUIET_S)
        with Watch(target) as watch:
            attack(target, count)
        wrong = [*_costs(watch), *_delays(quiet, watch)]
    # The probe needs a loop of its own, which is slower: it says nothing of memory and delays.
    with attacked(directory / "probed", probed=True) as target:
        wrong += _holds(target, name, count)
    was, is_ = 1e3 * quiet.latency_s(0.99), 1e3 * watch.latency_s(0.99)
    print(f"  {name}: {watch.grown_bytes / MIB:.0f} MiB, p99 {was:.1f} -> {is_:.1f} ms", flush=True)
    return [f"{name}: {what}" for what in wrong]


def _costs(watch: Watch) -> Iterator[str]:
    if watch.grown_bytes >= GROWN_MAX:
        yield f"{watch.grown_bytes / MIB:.0f} MiB more than before"
    if watch.refused:
        yield f"a neighbour was refused {len(watch.refused)} times: {watch.refused[:3]}"


def _delays(quiet: Watch, watch: Watch) -> Iterator[str]:
    was_s, is_s = quiet.latency_s(0.99), watch.latency_s(0.99)
    if is_s > max(2 * was_s, was_s + 0.02):
        yield f"a neighbour's 99th percentile was {1e3 * was_s:.1f} ms and is {1e3 * is_s:.1f}"


def _holds(target: Target, name: str, count: int) -> Iterator[str]:
    target.broker.longest_callback()
    ATTACKS[name][0](target, count)
    seconds, which = target.broker.longest_callback()
    if seconds > CALLBACK_MAX_S:
        yield f"a callback took {1e3 * seconds:.0f} ms: {which}"
