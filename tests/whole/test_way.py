"""docs/way.svg shows the way that a message takes through the code today."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.whole.test_tidy import ROOT
from tools.way import STEPS, Round, always


def test_the_picture_of_the_way_is_up_to_date(tmp_path: Path) -> None:
    """A newcomer finds on the picture the files that a message passes: change the way, run ``make docs``."""
    drawn = tmp_path / "way.svg"
    walk = [sys.executable, "-m", "tools.way", str(drawn)]
    done = subprocess.run(walk, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert (ROOT / "docs" / "way.svg").read_text() == drawn.read_text(), "run: make docs"


def rounds(*without: str) -> list[Round]:
    steps = [(n, step) for n, part in enumerate(STEPS) for step in part.steps if step not in without]
    return [({step: {f"{step[1]}.py"} for step in steps}, steps)]


def test_a_step_that_is_gone_is_told() -> None:
    """A function that a step began with and that is renamed is named, so that who renamed it mends the picture."""
    assert always(rounds())[2, "DependencyTracker.release"] == {"DependencyTracker.release.py"}
    with pytest.raises(LookupError, match=r"DependencyTracker\.release is not passed"):
        always(rounds("DependencyTracker.release"))


def test_a_file_that_one_round_did_not_pass_is_not_drawn() -> None:
    """What was due by chance (a timer, a mark in the log) is no part of the way."""
    usual, rare = rounds() + rounds()
    rare[0][0, "Applier.apply"].add("rare.py")
    assert always([usual, rare])[0, "Applier.apply"] == {"Applier.apply.py"}
