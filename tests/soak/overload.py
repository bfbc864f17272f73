"""Clients take all they can get, at full size: memory, the loop, and what a bystander waits for (DESIGN 1, bounded).

``tests/whole/bounds/test_overload.py`` and ``tests/whole/bounds/test_neighbours.py`` do the same with few of them.
"""

import argparse
import multiprocessing
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.overload.attacks import ATTACKS, BESIDE, MIB, Attack, Target, Watch, attacked, last, publish_large

ALL = {**ATTACKS, **BESIDE}
CALLBACK_MAX_S = 0.05
LATER_MAX_S = 0.02
QUIET_S = 3.0
HOLD_S = 5.0
"""so that the hundredth part of what a bystander asks for is more than its one unluckiest"""


@contextmanager
def rounds(asked: argparse.Namespace) -> Iterator[object]:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    names = [name for name in ALL if asked.only in name]
    yield lambda directory, seed: one_round(directory, seed, names)


def one_round(directory: Path, seed: int, names: list[str]) -> tuple[str, list[str]]:
    """Every attack once, each on a broker of its own; ``seed`` says with which to begin."""
    first = seed % max(len(names), 1)
    wrong = [
        what for name in names[first:] + names[:first] for what in judged(directory / name.replace(" ", "-"), name)
    ]
    return f"{len(names)} attacks", wrong


def judged(directory: Path, name: str) -> list[str]:
    """What is wrong. How long a bystander waits is a matter of the machine and the minute, too: where it was too long
    the attack is made twice more, and it is wrong where two of three were. All else counts each time."""
    directory.mkdir()
    wrong, slow = _made(directory / "1", name)
    if slow:
        again = [_made(directory / number, name) for number in "23"]
        wrong += [what for one in again for what in one[0]]
        all_slow = [slow, *(one[1] for one in again if one[1])]
        wrong += all_slow if len(all_slow) > 1 else []
    return [f"{name}: {what}" for what in wrong]


def _made(directory: Path, name: str) -> tuple[list[str], str]:
    """The attack, once: what is wrong, and whether a bystander waited for too long."""
    directory.mkdir()
    attack = ALL[name]
    with attacked(directory / "storage", descriptors=attack.descriptors) as target:
        publish_large(target, 30, "warm")
        with Watch(target, attack.host) as quiet:
            last(QUIET_S)
        with Watch(target, attack.host) as watch:
            elsewhere(attack, target)
        wrong = [*_costs(watch, attack)]
    # The probe needs a loop of its own, which is slower: it says nothing of memory and delays.
    with attacked(directory / "probed", probed=True) as target:
        target.broker.longest_callback()
        elsewhere(attack, target)
        longest_s, which = target.broker.longest_callback()
    if longest_s > CALLBACK_MAX_S:
        wrong.append(f"a callback took {1e3 * longest_s:.0f} ms: {which}")
    was_s, is_s, disk_s = quiet.told.delay_s(0.99), watch.told.delay_s(0.99), watch.told.disk_delay_s(0.99)
    waits = f"p99 {1e3 * was_s:.1f} -> {1e3 * is_s:.1f} ms"
    more = f"of {len(watch.told.delivered_s)} (disk {1e3 * disk_s:.1f}), longest callback {1e3 * longest_s:.0f} ms"
    print(f"  {name}: {watch.grown_bytes / MIB:.0f} MiB, {waits} {more}", flush=True)
    return wrong, waits if is_s > max(2 * was_s, was_s + LATER_MAX_S) else ""


def elsewhere(attack: Attack, target: Target) -> None:
    """In a process of its own, which the broker and the bystander go before: attackers have machines of their own."""

    def run() -> None:
        os.nice(10)
        attack.run(target._replace(hold_s=HOLD_S), attack.many)

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join()
    assert process.exitcode == 0, "the attack itself failed"


def _costs(watch: Watch, attack: Attack) -> Iterator[str]:
    if watch.grown_bytes >= attack.grown_bytes_max:
        yield f"{watch.grown_bytes / MIB:.0f} MiB more than before"
    if watch.refused:
        yield f"a bystander was refused {len(watch.refused)} times: {watch.refused[:3]}"
    if watch.told.missing:
        yield f"{watch.told.missing} of a bystander's were not delivered"
