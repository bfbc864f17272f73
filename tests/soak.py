"""``make soak``: the ordeal of ``tests/test_crash.py`` over and over, with a new seed each time, for as long as asked.

Ends with 1 at the first broken promise, and prints the seed that shows it again. With ``--disk`` once through every
call of the disk instead (``tests/test_disk_faults.py``; needs strace): each fails once, and from then on.
"""

import argparse
import itertools
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.support import bad_disk
from tests.support.recorder import Recorder
from tests.support.traffic import ordeal


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3_600.0)
    parser.add_argument("--cycles", type=int, default=10, help="ends of the broker in each round")
    parser.add_argument("--seed", type=int, help="one round with this seed")
    parser.add_argument("--disk", action="store_true", help="every call of the disk fails once, and from then on")
    asked = parser.parse_args()
    if asked.disk:
        return every_call_fails()
    deadline = time.monotonic() + asked.seconds
    rounds = messages = 0
    while rounds == 0 or (time.monotonic() < deadline and asked.seed is None):
        seed = asked.seed if asked.seed is not None else random.SystemRandom().randrange(2**32)
        politely = seed % 4 == 0
        with tempfile.TemporaryDirectory() as directory:
            survived = ordeal(Path(directory) / "storage", seed, asked.cycles, politely=politely)
        rounds += 1
        messages += survived.messages
        how = "stopped" if politely else "killed"
        print(f"round {rounds}: seed {seed}, {how} {asked.cycles} times, {survived.messages} messages", flush=True)
        if survived.wrong:
            print(*survived.wrong[:20], sep="\n")
            return 1
    print(
        f"{rounds} rounds, {rounds * asked.cycles} ends of the broker, {messages} messages: nothing lost, nothing early"
    )
    return 0


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


if __name__ == "__main__":
    sys.exit(main())
