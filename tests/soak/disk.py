"""Every call of the disk fails, once and from then on, once through (``tests/test_disk_faults.py``; needs strace)."""

import itertools
import tempfile
from pathlib import Path

from tests.support import bad_disk
from tests.support.recorder import Recorder


def every_call_fails() -> int:
    """A broker for each call, error and k; what is wrong is printed, and then the answer is 1."""
    tried = wrong = 0
    with tempfile.TemporaryDirectory() as directory, Recorder() as subscriber:
        prepared, storage = Path(directory) / "prepared", Path(directory) / "log"
        before = bad_disk.prepare(prepared, subscriber)
        for call, error, plus in itertools.product(bad_disk.CALLS, ("EIO", "ENOSPC"), ("", "+")):
            for k in itertools.count(1):
                fault = bad_disk.Fault(call, error, f"{k}{plus}")
                found = bad_disk.ordeal(prepared, before, storage, fault, subscriber)
                tried, wrong = tried + 1, wrong + bool(found)
                print(fault, *(found or ["ok"]), sep="\n    " if found else " ", flush=True)
                if not bad_disk.was_hit(storage):
                    break
    print(f"{tried} faults of the disk, {wrong} of them broke a promise")
    return 1 if wrong else 0
