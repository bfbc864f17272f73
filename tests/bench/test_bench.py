"""``syncbrok bench``: it runs from anywhere, and says the same to people and machines. How fast is not asked here."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.broker.process import ROOT


def bench(directory: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "syncbrok", "bench", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_a_configuration_in_the_working_directory_is_not_the_benchmarks(tmp_path: Path) -> None:
    """The broker that is measured has the defaults: tokens that are asked for here must not fail the run. Figure and
    ceiling come as JSON, standard error stays empty where it is no terminal, and no log is left behind."""
    config = tmp_path / "config" / "broker.yml"
    config.parent.mkdir()
    config.write_text(f"http: {{tokens: [{{name: a, sha256: {'0' * 64}, scopes: [read]}}]}}\n")
    logs = tmp_path / "logs"
    logs.mkdir()
    done = bench(tmp_path, "publish", "--quick", "--json", "--storage", str(logs))
    assert (done.returncode, done.stderr) == (0, "")
    (figure,) = json.loads(done.stdout)["figures"]
    assert figure["unit"] == "msg/s"
    assert figure["value"] > 0 < figure["ceiling"]
    assert list(logs.iterdir()) == []


def test_a_job_that_there_is_not(tmp_path: Path) -> None:
    """A mistake on the command line that names the jobs there are; nothing is started."""
    done = bench(tmp_path, "speed")
    assert (done.returncode, done.stdout) == (2, "")
    assert "'publish'" in done.stderr
