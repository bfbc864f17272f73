"""Files and directories that a command cannot use: a sentence that names the one that is meant, never "a defect"."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from syncbrok.cli.serve.serve import misspelt, refuse_misspelt
from syncbrok.model.errors import BadConfig
from syncbrok.yaml_file import variables_in
from tests.support.broker.process import ROOT


def ended(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "syncbrok", *arguments]
    environment = {**os.environ, **variables}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize("below", ["", "below"])
def test_serve_says_that_it_is_the_directory(tmp_path: Path, below: str) -> None:
    """Where the log cannot be kept, that is said, and not that the port may be taken."""
    taken = tmp_path / "file"
    taken.write_text("mine")
    queues = tmp_path / "queues.yml"
    queues.write_text("queues: {}\n")
    result = ended("serve", "--port", "0", "--queues", str(queues), "--storage", str(taken / below))
    assert result.returncode == 1
    assert f"cannot keep the log in {taken / below}: " in result.stderr
    assert "Not a directory" in result.stderr
    assert "--storage" in result.stderr
    assert "listen" not in result.stderr


def test_serve_says_that_it_is_the_address(tmp_path: Path) -> None:
    """A host that is none of this machine's: nothing is said against the directory, which is not made."""
    queues = tmp_path / "queues.yml"
    queues.write_text("queues: {}\n")
    storage = tmp_path / "storage"
    arguments = (
        "--port",
        "0",
        "--host",
        "192.0.2.1",
        "--insecure",
        "open",
        "--queues",
        str(queues),
        "--storage",
        str(storage),
    )
    result = ended("serve", *arguments)
    assert result.returncode == 1
    assert "cannot listen on 192.0.2.1 port 0: " in result.stderr
    assert "--host" in result.stderr
    assert str(storage) not in result.stderr
    assert not storage.exists()


def test_a_segment_that_cannot_be_read_is_no_defect(tmp_path: Path) -> None:
    """Whatever the system refuses is told with the name of the file. A directory in the place of a segment is refused
    whoever asks."""
    segment = tmp_path / "00000000000000000001.log"
    segment.mkdir()
    result = ended("log", "cat", "--storage", str(tmp_path))
    assert (result.returncode, result.stdout) == (1, "")
    assert f"{segment}: Is a directory" in result.stderr
    assert "defect" not in result.stderr


def test_a_misspelt_variable_is_refused(tmp_path: Path) -> None:
    """INTERFACES 1: nothing starts with another port than it was given; the one that may be meant is named. One that a
    file asks for is used, whatever it looks like."""
    queues = tmp_path / "queues.yml"
    queues.write_text("queues: {}\n")
    storage = tmp_path / "storage"
    result = ended("serve", "--queues", str(queues), "--storage", str(storage), SYNCBROK_PROT="1", SYNCBROK_HOSTS="x")
    assert result.returncode == 2
    assert "SYNCBROK_PROT: unknown variable; did you mean SYNCBROK_PORT?" in result.stderr
    assert "SYNCBROK_HOSTS: unknown variable; did you mean SYNCBROK_HOST?" in result.stderr
    assert not storage.exists()
    queues.write_text("queues:\n  a: {timeout: '${SYNCBROK_PROT}'}\n")
    used = variables_in(queues)
    refuse_misspelt(["SYNCBROK_PROT", *used], used)
    with pytest.raises(BadConfig, match="SYNCBROK_PROT"):
        refuse_misspelt(["SYNCBROK_PROT"], variables_in(tmp_path / "none.yml"))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("SYNCBROK_STORGE_PATH", "SYNCBROK_STORAGE_PATH"),
        ("SYNCBROK_HOSTS", "SYNCBROK_HOST"),
        ("SYNCBROK_PORT", None),
        ("SYNCBROK_TOKEN", None),
        ("SYNCBROK_PORT_10000_TCP", None),  # what Kubernetes sets
        ("SYNCBROK_SERVICE_HOST", None),
        ("SYNCBROK_SERVICE_PORT_HTTP", None),
        ("SYNCBROK_PORT_X", None),
        ("SYNCBROK_HTTP_PORT_10000_TCP_ADDR", None),
        ("SYNCBROK_BILLING_SECRET", None),  # what a queues.yml may ask for
        ("PORT", None),
    ],
)
def test_only_what_is_near_to_a_variable_counts_as_misspelt(name: str, meant: str | None) -> None:
    """Neither ours, nor Kubernetes', nor one that is for other programs is refused."""
    assert list(misspelt([name])) == ([] if meant is None else [(name, meant)])
