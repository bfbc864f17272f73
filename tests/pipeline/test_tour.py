"""docs/pipeline.md and the tour do what they say."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from syncbrok.cli.main import group
from syncbrok.pipeline.schema import DERIVED, KINDS, columns_of
from tests.support.broker.process import ROOT

PAGE = (ROOT / "docs" / "pipeline.md").read_text()
TOUR = ROOT / "examples" / "pipeline_tour.py"


def commands() -> list[list[str]]:
    """Every ``syncbrok pipeline JOB ...`` that the page or the tour's text tells somebody to type."""
    lines = re.findall(r"^    (syncbrok pipeline .*)$", PAGE, re.MULTILINE)
    return [shlex.split(line)[2:] for line in lines]


@pytest.mark.slow
def test_the_tour_runs_every_job(tmp_path: Path) -> None:
    """From an empty folder: a broker killed in the middle, an audit that finds nothing, an archive, a report and a tree
    to look at, and a replay that is only shown."""
    ran = subprocess.run(
        [sys.executable, str(TOUR), "--folder", str(tmp_path / "tour")],
        cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"
    assert "$ kill -9" in ran.stdout
    for job in ("archive", "audit", "report", "lineage", "replay"):
        assert f"$ syncbrok pipeline {job}" in ran.stdout
    out = tmp_path / "tour" / "out"
    assert "</html>" in (out / "report.html").read_text()
    assert "<svg" in (out / "lineage" / "tree.svg").read_text()
    assert list((out / "archive" / "messages").rglob("*.parquet"))
    assert "nothing is published yet" in ran.stdout + ran.stderr


def test_the_commands_of_the_page_are_commands() -> None:
    """Each job and each flag that docs/pipeline.md shows exists."""
    assert len(commands()) >= 6
    for job, *given in commands():
        found = group.get_command(click.Context(group), "pipeline")
        assert isinstance(found, click.Group)
        command = found.get_command(click.Context(found), job)
        assert command is not None, job
        known = {flag for parameter in command.params for flag in parameter.opts}
        assert {word for word in given if word.startswith("--")} <= known, (job, given)


def test_the_page_names_every_column() -> None:
    """The tables of docs/pipeline.md have every column of every kind, in backticks."""
    named = set(re.findall(r"`([a-z_]+)`", PAGE))
    missing = {kind: {one.name for one in columns_of(kind)} - named for kind in (*KINDS, *DERIVED)}
    assert not any(missing.values()), missing
