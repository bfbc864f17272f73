"""Every call of the disk fails, once and from then on, once through (``tests/test_disk_faults.py``; needs strace)."""

import itertools
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support import bad_disk
from tests.support.recorder import Recorder


def every_call_fails() -> int:
    """A broker for each call, error and k, several side by side; what is wrong is printed, and then the answer is 1."""
    kinds = list(itertools.product(bad_disk.CALLS, ("EIO", "ENOSPC"), ("", "+")))
    with tempfile.TemporaryDirectory() as directory, Recorder() as subscriber:
        prepared = Path(directory) / "prepared"
        before = bad_disk.prepare(prepared, subscriber)

        def each_time(kind: tuple[str, str, str]) -> list[bool]:
            call, error, plus = kind
            storage = Path(directory) / f"{call}-{error}{plus}"
            kept: list[bool] = []
            while not kept or bad_disk.was_hit(storage):
                fault = bad_disk.Fault(call, error, f"{len(kept) + 1}{plus}")
                wrong = bad_disk.ordeal(prepared, before, storage, fault, subscriber)
                kept.append(not wrong)
                print(*wrong or [f"{fault}: ok"], sep="\n", flush=True)
            return kept

        with ThreadPoolExecutor(os.cpu_count() or 1) as side_by_side:
            kept = [one for found in side_by_side.map(each_time, kinds) for one in found]
    print(f"{len(kept)} faults of the disk, {kept.count(False)} of them broke a promise")
    return int(not all(kept))
