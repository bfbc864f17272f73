"""``make soak``: the ordeal of ``tests/test_crash.py`` over and over, with a new seed each time, for as long as asked.

Ends with 1 at the first broken promise, and prints the seed that shows it again.
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.support.traffic import ordeal


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3_600.0)
    parser.add_argument("--cycles", type=int, default=10, help="ends of the broker in each round")
    parser.add_argument("--seed", type=int, help="one round with this seed")
    asked = parser.parse_args()
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


if __name__ == "__main__":
    sys.exit(main())
