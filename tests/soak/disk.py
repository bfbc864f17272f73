"""Every call of the disk fails, once and from then on, each in turn; then a small disk is filled and emptied under a
broker (``tests/whole/test_disk_faults.py``; needs strace, and root to mount a disk)."""

import itertools
import os
import random
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support import bad_disk, small_disk
from tests.support.bad_disk import Answered, Fault
from tests.support.recorder import Recorder

Kind = tuple[str, str, str]
"""as in ``bad_disk.KINDS``"""
_SMALL_DISKS = 20


def every_call_fails(seconds: float) -> int:
    """A broker for each call, error and k, several side by side: the first call of each kind, then the second, until
    none makes so many, or the time is over. What is wrong is printed, and then the answer is 1."""
    kinds: list[Kind] = list(bad_disk.KINDS)
    deadline = time.monotonic() + seconds
    kept: list[bool] = []
    with tempfile.TemporaryDirectory() as directory, Recorder() as subscriber:
        prepared = Path(directory) / "prepared"
        before = bad_disk.prepare(prepared, subscriber)
        with ThreadPoolExecutor(os.cpu_count() or 1) as side_by_side:
            for k in itertools.count(1):

                def one(kind: Kind, k: int = k) -> tuple[bool, list[str]] | None:
                    return None if time.monotonic() > deadline else _kth_fails(prepared, before, kind, k, subscriber)

                found = dict(zip(kinds, side_by_side.map(one, kinds), strict=True))
                kept += [not outcome[1] for outcome in found.values() if outcome is not None]
                kinds = [kind for kind, outcome in found.items() if outcome is not None and outcome[0]]
                if not kinds:
                    break
    print(f"{len(kept)} faults of the disk, {kept.count(False)} of them broke a promise")
    if time.monotonic() > deadline:
        print(f"the time was over at call number {k} of a kind; more --seconds try the later ones")
    return int(not all(kept)) or _small_disks(seconds)


def _kth_fails(
    prepared: Path, before: list[Answered], kind: Kind, k: int, subscriber: Recorder
) -> tuple[bool, list[str]]:
    """Whether so many calls were made, and what is wrong."""
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
    return 0
