"""``python -m tests.soak``: see the package."""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import tests.soak
from tests.soak import alerts, cluster, crash, disk, everything, inbox, openapi, outage, overload, overrun, power, rot

Round = Callable[[Path, int], tuple[str, list[str]]]
"""One attack in an empty directory, with this seed: what was done, and what is wrong."""
ROUNDS: dict[str, Callable[[argparse.Namespace], AbstractContextManager[Round]]] = {
    "alerts": alerts.rounds,
    "crash": crash.rounds,
    "everything": everything.rounds,
    "inbox": inbox.rounds,
    "openapi": openapi.rounds,
    "rot": rot.rounds,
    "overload": overload.rounds,
    "outage": outage.rounds,
    "overrun": overrun.rounds,
    "power": power.rounds,
    "cluster": cluster.rounds,
}


_TOLD = (
    ("alerts", alerts),
    ("crash", crash),
    ("everything", everything),
    ("inbox", inbox),
    ("openapi", openapi),
    ("rot", rot),
    ("overload", overload),
    ("outage", outage),
    ("overrun", overrun),
    ("power", power),
    ("disk", disk),
    ("cluster", cluster),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=tests.soak.__doc__, formatter_class=argparse.RawTextHelpFormatter)
    told = "\n".join(f"{name}: {module.__doc__}" for name, module in _TOLD)
    parser.add_argument("--what", choices=(*ROUNDS, "disk"), default="crash", help=told)
    parser.add_argument("--seconds", type=float, default=3_600.0)
    parser.add_argument("--cycles", type=int, default=10, help="crash: ends of the broker in each round")
    parser.add_argument("--only", default="", help="alerts, overload, cluster: those whose names have this in them")
    parser.add_argument("--lasts", type=float, help="outage, overrun: seconds of each, as long as promised by default")
    parser.add_argument("--seed", type=int, help="one round with this seed")
    asked = parser.parse_args()
    if asked.what == "disk":
        return disk.every_call_fails(asked.seconds)
    with ROUNDS[asked.what](asked) as one_round:
        return for_as_long_as_asked(one_round, asked)


def for_as_long_as_asked(one_round: Round, asked: argparse.Namespace) -> int:
    deadline = time.monotonic() + asked.seconds
    number = 0
    while number == 0 or (time.monotonic() < deadline and asked.seed is None):
        seed = asked.seed if asked.seed is not None else random.SystemRandom().randrange(2**32)
        try:
            with tempfile.TemporaryDirectory() as directory:
                done, wrong = one_round(Path(directory), seed)
        except BaseException:
            print(f"round {number + 1}: seed {seed}, broken off", flush=True)
            raise
        number += 1
        print(f"round {number}: seed {seed}, {done}", flush=True)
        if wrong:
            print(*wrong[:20], sep="\n")
            return 1
    print(f"{number} rounds: no promise broken")
    return 0


if __name__ == "__main__":
    sys.exit(main())
