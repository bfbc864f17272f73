"""Every call of the disk fails, once and from then on, each in turn; then a small disk is filled and emptied under a
broker (``tests/whole/disk/test_disk_faults.py``; needs strace, and root to mount a disk)."""

import itertools
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.disk import bad_disk, several_publishers, small_disk
from tests.support.disk.bad_disk import Answered, Fault
from tests.support.http.recorder import Recorder

Kind = tuple[str, str, str]
"""as in ``bad_disk.KINDS``"""
Outcome = tuple[bool, list[str]]
"""whether so many calls were made, and what is wrong"""
_SMALL_DISKS = 20
_LIVES = 40
"""of the broker on the last one, under several publishers"""


def every_call_fails(seconds: float) -> int:
    """A broker for each call, error and k, several side by side, as ``in_turn`` says, until the time is over. What is
    wrong is printed, and then the answer is 1. The kinds come in another order each time, so that of many short runs
    each tries something else."""
    kinds: list[Kind] = list(bad_disk.KINDS)
    random.SystemRandom().shuffle(kinds)
    deadline = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as directory, Recorder() as subscriber:
        prepared = Path(directory) / "prepared"
        before = bad_disk.prepare(prepared, subscriber)

        def one(kind: Kind, k: int) -> Outcome | None:
            return None if time.monotonic() > deadline else _kth_fails(prepared, before, kind, k, subscriber)

        with ThreadPoolExecutor(os.cpu_count() or 1) as side_by_side:
            kept, left_out = in_turn(kinds, one, side_by_side.map)
    print(f"{len(kept)} faults of the disk, {kept.count(False)} of them broke a promise")
    if left_out:
        print(left_out)
    return int(not all(kept)) or _small_disks(seconds)


def in_turn(
    kinds: Sequence[Kind],
    one: Callable[[Kind, int], Outcome | None],
    mapped: Callable[..., Iterable[Outcome | None]],
) -> tuple[list[bool], str]:
    """The first call of each kind fails, then the second, until none makes so many: for each fault whether the promises
    were kept, and what had no time, in words ("": nothing). ``one`` makes the k-th call of a kind fail; it answers None
    where the time is over. ``mapped``: ``map``, or that of an executor."""
    kept: list[bool] = []
    for k in itertools.count(1):
        found = list(zip(kinds, mapped(one, kinds, itertools.repeat(k)), strict=True))
        kept += [not outcome[1] for _, outcome in found if outcome is not None]
        untried = sum(outcome is None for _, outcome in found)
        if untried:
            what = f"{untried} of {len(kinds)} kinds of faults were not tried at it; more --seconds try them"
            return kept, f"the time was over at call number {k}: {what}, and later calls"
        kinds = [kind for kind, outcome in found if outcome is not None and outcome[0]]
        if not kinds:
            break
    return kept, ""


def _kth_fails(prepared: Path, before: list[Answered], kind: Kind, k: int, subscriber: Recorder) -> Outcome:
    """The k-th call of this kind fails."""
    call, error, plus = kind
    storage = prepared.with_name(f"{call}-{error}{plus}")
    fault = Fault(call, error, f"{k}{plus}")
    wrong = bad_disk.ordeal(prepared, before, storage, fault, subscriber)
    print(*wrong or [f"{fault}: ok"], sep="\n", flush=True)
    return bad_disk.was_hit(storage), wrong


def _small_disks(seconds: float) -> int:
    """1 where one of them broke a promise, which is printed. The last begins within ``seconds``, but one there is."""
    deadline = time.monotonic() + seconds
    with Recorder() as subscriber:
        for number in range(1, _SMALL_DISKS + 1):
            if number > 1 and time.monotonic() > deadline:
                break
            seed = random.SystemRandom().randrange(2**32)
            with tempfile.TemporaryDirectory() as directory:
                done, wrong = small_disk.ordeal(Path(directory), subscriber, seed)
            print(f"small disk {number}: seed {seed}, {done}", *wrong, sep="\n", flush=True)
            if wrong:
                return 1
    return _several_publishers()


def _several_publishers() -> int:
    """1 where a small disk under several publishers broke a promise, which is printed."""
    with tempfile.TemporaryDirectory() as directory:
        done, wrong = several_publishers.ordeal(Path(directory), _LIVES, mib=32)
    print(f"several publishers: {done}", *wrong, sep="\n", flush=True)
    return int(bool(wrong))
