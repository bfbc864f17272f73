"""The pages do what they say: their shell blocks are run for real, and print what they say they print.

A block marked ``<!-- tour -->`` is run by bash, all blocks of a page in one shell, and one marked ``<!-- program -->``
by ``python3`` of that shell; a ``text`` or ``output`` block behind it shows lines that must appear by then, ``…``
standing for anything.
"""

import os
import re
import shutil
import signal
import subprocess
import sysconfig
import venv
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from syncbrok.cli.main import group
from tests.support.broker.process import BrokerProcess, held_port
from tests.support.http.recorder import Recorder
from tests.support.polling import eventually_blocking
from tests.whole.test_tidy import ROOT

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="the pages use curl, which is not installed")

# The script stops at the first command that fails; -f makes curl fail where the broker refuses, with the reason shown.
PRELUDE = 'set -euo pipefail\ncurl() { command curl --show-error --fail-with-body --max-time 20 "$@"; }\n'


class Step(NamedTuple):
    """A block of commands and the lines that must have been printed after it."""

    commands: str
    printed: tuple[str, ...]


def steps(page: str) -> list[Step]:
    block = re.compile(r"^<!-- (tour|program) -->\n```(?:sh|python)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
    text = re.compile(r"^```(?:text|output)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    found = list(block.finditer(page))
    ends = [match.start() for match in found[1:]] + [len(page)]
    return [
        Step(
            match[2] if match[1] == "tour" else f"python3 - <<'PROGRAM'\n{match[2]}PROGRAM\n",
            tuple(line for shown in text.findall(page[match.end() : end]) for line in shown.splitlines()),
        )
        for match, end in zip(found, ends, strict=True)
    ]


def pattern(line: str) -> str:
    return ".*".join(re.escape(part) for part in line.split("…"))


def run_pages(pages: list[Path], folder: Path, ports: dict[str, str]) -> str:
    """Run all steps of ``pages``, one page after the other, in ``folder`` with ``ports`` in the place of those they
    name; returns what they printed."""
    found: list[Step] = []
    for page in pages:
        begun = len(found)
        found += steps(page.read_text())
        assert len(found) > begun, f"{page.name} has no blocks marked <!-- tour -->"
    script = PRELUDE
    for number, step in enumerate(found):
        script += f"{step.commands}\necho; echo '--- step {number} done'\n"
    for named, used in ports.items():
        script = re.sub(rf"(?<=[:= (]){named}\b", used, script)
    output = folder / "output"
    with output.open("wb") as out:
        process = subprocess.Popen(
            ["bash", "-c", script], cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            env={**os.environ, "SYNCBROK_PORT": ports["10000"], "SYNCBROK_URL": f"http://127.0.0.1:{ports['10000']}"},
            start_new_session=True,
        )  # fmt: skip
    try:
        eventually_blocking(lambda: process.poll() is not None, "the end of the pages' commands", 240)
    finally:
        with suppress(ProcessLookupError):  # all it started have ended
            os.killpg(process.pid, signal.SIGKILL)
    said = output.read_text()
    assert process.returncode == 0, said
    check(found, said)
    return said


def check(found: list[Step], said: str) -> None:
    """Every line a page shows was printed, in the page's order within a step, by the end of its step."""
    seen = 0
    for number, step in enumerate(found):
        by_then = said.index(f"--- step {number} done")
        for line in step.printed:
            match = re.compile(pattern(line)).search(said, seen)
            assert match, f"step {number} never printed {line!r}:\n{said}"
            assert match.end() <= by_then, f"step {number} printed {line!r} too late:\n{said}"
            seen = match.end()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder in which the README's commands find what they name, and a virtual environment as ``make serve`` makes
    it: what is installed beside the tests is installed in it."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    shutil.copy(ROOT / "queues.yml", tmp_path)
    environment = tmp_path / ".venv"
    venv.create(environment, symlinks=True)
    site = sysconfig.get_path("purelib", vars={"base": str(environment), "platbase": str(environment)})
    (Path(site) / "installed.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
    command = environment / "bin" / "syncbrok"
    command.write_text(f'#!/bin/sh\nexec "{environment}/bin/python3" -m syncbrok "$@"\n')
    command.chmod(0o755)
    return tmp_path


@needs_curl
def test_the_tour_of_the_readme_runs(checkout: Path) -> None:
    """A newcomer who types the README's five minutes sees what the README shows."""
    with held_port() as broker, held_port() as subscriber:
        run_pages([ROOT / "README.md"], checkout, {"10000": str(broker), "20000": str(subscriber)})


def test_what_a_tour_writes_is_no_change() -> None:
    """Whoever types what the pages say, where they say it, has nothing left over that git would offer to commit."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    toured = (text for page in pages if "<!-- tour -->" in (text := page.read_text()))
    tours = "\n".join(step.commands for text in toured for step in steps(text))
    written = set(re.findall(r"(?:>|\btee) ?([\w-]+\.\w+)", tours))
    assert {"broker.log", "pulled.json"} <= written
    ignored = subprocess.run(["git", "check-ignore", *written], cwd=ROOT, capture_output=True, text=True, check=False)
    assert set(ignored.stdout.split()) == written


@needs_curl
def test_the_pages_run_in_the_order_they_are_read(checkout: Path) -> None:
    """Whoever goes on with docs/frontends.md behind the README, in the same shell and folder, sees what it shows: pull
    and leases, streams, programs with the client, the shell, the formats of four other brokers. No program
    complains."""
    named = ("10000", "20000", "8080", "3000", "5671", "9990", "9991")
    with ExitStack() as held:
        pages = [ROOT / "README.md", ROOT / "docs" / "frontends.md"]
        said = run_pages(pages, checkout, {port: str(held.enter_context(held_port())) for port in named})
    assert not re.search(r"Warning|Traceback", said), said


@needs_curl
def test_the_guide_to_http_runs(broker: BrokerProcess, tmp_path: Path) -> None:
    """Every command of the guide is answered without an error."""
    with Recorder() as recorder:
        subscriber_port = recorder.url.rstrip("/").rpartition(":")[2]
        run_pages([ROOT / "docs" / "http.md"], tmp_path, {"10000": str(broker.port), "20000": subscriber_port})


@needs_curl
def test_the_page_about_order_runs(broker: BrokerProcess, tmp_path: Path) -> None:
    """Who waits in which scope is what the page says."""
    with Recorder() as recorder:
        subscriber_port = recorder.url.rstrip("/").rpartition(":")[2]
        run_pages([ROOT / "docs" / "ordering.md"], tmp_path, {"10000": str(broker.port), "20000": subscriber_port})


def test_commands_named_in_the_pages_exist() -> None:
    """Every ``syncbrok COMMAND`` that a page or an alert tells somebody to type is a command."""
    pages = [ROOT / "README.md", ROOT / "storage" / "README.md", ROOT / "config" / "alerts.yml"]
    named_there = ("operations.md", "http.md", "log-format.md", "performance.md", "faq.md")
    pages += [ROOT / "docs" / name for name in named_there]
    typed = re.compile(r"(?:`|^    |\"|bin/)syncbrok ((?:[a-z][a-z-]+ ?)+)", re.MULTILINE)
    named = {(page.name, command.strip()) for page in pages for command in typed.findall(page.read_text())}
    assert len(named) > 8
    unknown = [(page, command) for page, command in sorted(named) if not is_command(command.split())]
    assert not unknown


def is_command(words: list[str]) -> bool:
    """Whether the words lead to a command, arguments in words aside."""
    found: click.Command = group
    context = click.Context(group)
    for word in words:
        if not isinstance(found, click.Group):
            return True
        inner = found.get_command(context, word)
        if inner is None:
            return False
        found = inner
    return True


def test_a_page_that_lies_is_found_out() -> None:
    """The checker can fail: a line that is not printed, or printed later, is an error."""
    page = "<!-- tour -->\n```sh\necho a\n```\n\n```text\na …\n```\n\n<!-- tour -->\n```sh\necho b\n```\n"
    found = steps(page)
    assert [step.printed for step in found] == [("a …",), ()]
    check(found, "a 1\n--- step 0 done\n--- step 1 done\n")
    for lie in ("b\n--- step 0 done\n--- step 1 done\n", "--- step 0 done\na 1\n--- step 1 done\n"):
        with pytest.raises(AssertionError):
            check(found, lie)
