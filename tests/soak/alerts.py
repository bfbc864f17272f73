"""Each alert of config/alerts.yml fires at a real Prometheus when a real broker is in the bad state that it is for, and
none at a broker that is well (``tests/whole/test_alerts.py``; needs prometheus; strace, faketime and root for some)."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.alerts.bad_states import BAD_STATES
from tests.support.alerts.prometheus import Prometheus
from tests.support.alerts.watching import watch


@contextmanager
def rounds(asked: argparse.Namespace) -> Iterator[object]:
    if Prometheus.command is None:
        print("prometheus is not installed: without it no alert can fire, none was tried (apt-get install prometheus)")
        raise SystemExit(0)
    names = [name for name in BAD_STATES if asked.only in name]
    yield lambda directory, _seed: one_round(directory, names)


def one_round(directory: Path, names: list[str]) -> tuple[str, list[str]]:
    """One state after the other beside a broker that is well: what was seen, and what is wrong."""
    seen = watch(directory, names)
    left_out = "".join(f"; {name} left out for want of {what}" for name, what in seen.left_out.items())
    fired = "".join(
        f"\n  {name}: {BAD_STATES[name].alert} after {after_s:.0f} s" for name, after_s in seen.after_s.items()
    )
    return f"{len(seen.after_s)} bad states, each with its alert{left_out}{fired}", seen.wrong
