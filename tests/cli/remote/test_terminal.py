"""The commands as a person at a terminal of 80 columns meets them: a real pseudo-terminal, a real broker."""

import fcntl
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import sysconfig
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker.commands import Run, commands, data, dead_end_of, published
from tests.support.broker.process import ROOT, BrokerProcess
from tests.support.polling import eventually_blocking

PROGRAM = str(Path(sysconfig.get_path("scripts")) / "syncbrok")
COLUMNS = 80
QUEUE = "orders-of-the-northern-shops"
ENDPOINT = "http://127.0.0.1:9/hooks/of/a/rather/long/path/that/no/column/of/eighty/can/have/beside/others"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("terminal") / "storage") as running:
        yield running


@pytest.fixture(scope="module")
def ids(shop: BrokerProcess) -> list[str]:
    """A parent that waits for its subscriber, and a child that waits for it."""
    run = commands(shop)
    run("queues", "create", QUEUE)
    run("subscribers", "create", QUEUE, ENDPOINT, "--name", "billing-department")
    run("subscribers", "pause", QUEUE, "billing-department")
    parent = published(run, QUEUE)
    return [parent, published(run, QUEUE, "--parent", parent)]


def typed(shop: BrokerProcess, *arguments: str, answer: str = "", code: int = 0) -> str:
    """What the terminal shows of a command, to whose question ``answer`` is typed."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    environment = {**kept, "SYNCBROK_URL": shop.url, "TERM": "xterm"}
    command = [sys.executable, "-m", "syncbrok", *arguments]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        if answer:
            os.write(ours, answer.encode())
        shown = b""
        while piece := _read(ours):
            shown += piece
    os.close(ours)
    assert process.returncode == code, shown
    return re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()).replace("\r\n", "\n")


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65_536)
    except OSError:  # the other end is closed
        return b""


@pytest.mark.parametrize(
    "arguments",
    [("queues", "list"), ("subscribers", "list"), ("messages", "list", QUEUE), ("messages", "tree", "PARENT")],
    ids=" ".join,
)
def test_tables_fit_a_terminal(shop: BrokerProcess, ids: list[str], arguments: tuple[str, ...]) -> None:
    """No line is wider than the terminal, and each name and id stands in one piece, in sentences too."""
    shown = typed(shop, *(ids[0] if one == "PARENT" else one for one in arguments))
    assert max(map(len, shown.splitlines())) <= COLUMNS, shown
    words = {"queues": [QUEUE], "subscribers": [QUEUE, "billing-department"], "messages": ids}[arguments[0]]
    assert all(word in shown for word in words if arguments[1] != "tree" or word == ids[1]), shown
    if arguments[:2] == ("messages", "list"):
        assert shown.count(ids[0]) == 2, "as itself, and as what the other one waits for"


def test_what_destroys_asks_a_person(shop: BrokerProcess, ids: list[str]) -> None:
    """On a terminal a delete says how much it is and asks; no is 1 and changes nothing; --yes does not ask. A script is
    not asked (tests/cli/remote/test_commands.py)."""
    run: Run = commands(shop)
    shown = typed(shop, "subscribers", "delete", QUEUE, "billing-department", answer="n\n", code=1)
    assert "drop the 2 messages that wait for it? [y/N]" in shown.replace("\n", " ")
    for arguments in (
        ("queues", "delete", QUEUE, "--force"),
        ("queues", "erase", QUEUE, "--before", "2100-01-01T00:00:00Z", "--force"),
        ("dead-letters", "drop", QUEUE),
        ("messages", "erase", ids[0], "--force"),
        ("messages", "cancel", ids[0]),
        ("queues", "cancel", QUEUE, "--id", ids[0]),
        ("jobs", "cancel", "job-1"),
        ("tokens", "revoke", "nobody"),
    ):
        assert "? [y/N]" in typed(shop, *arguments, answer="n\n", code=1), arguments
    assert len(data(run("messages", "list", QUEUE, "--json"))) == 2
    run("queues", "create", "empty")
    assert "empty deleted" in typed(shop, "queues", "delete", "empty", "--yes")
    run("queues", "create", "empty")
    assert "empty deleted" in typed(shop, "queues", "delete", "empty", answer="y\n")


def test_an_apply_that_deletes_asks_a_person(shop: BrokerProcess, tmp_path: Path) -> None:
    """Whoever says no to --prune has changed nothing at all; what deletes nothing is not asked about."""
    run: Run = commands(shop)
    run("queues", "create", "pruned")
    kept = [one["name"] for one in data(run("queues", "list", "--json")) if one["name"] != "pruned"]
    file = tmp_path / "queues.yml"
    file.write_text(f"queues: {{brand-new: {{}}, {', '.join(f'{name}: {{}}' for name in kept)}}}\n")
    arguments = ("apply", str(file), "--prune")
    shown = typed(shop, *arguments, answer="n\n", code=1)
    assert "- pruned" in shown
    assert "? [y/N]" in shown
    names = {one["name"] for one in data(run("queues", "list", "--json"))}
    assert "pruned" in names
    assert "brand-new" not in names
    assert "? [y/N]" not in typed(shop, *arguments, "--dry-run")
    assert "? [y/N]" not in typed(shop, *arguments, "--yes")
    assert "pruned" not in {one["name"] for one in data(run("queues", "list", "--json"))}


def test_jobs_show_a_bar(shop: BrokerProcess) -> None:
    """A person sees a bar, one that goes on while the job does and one of how it stands; both fit the terminal."""
    run: Run = commands(shop)
    with dead_end_of(run) as (queue, recorder):
        published(run, queue)
        eventually_blocking(lambda: data(run("dead-letters", "list", queue, "--json")), "a dead letter")
        run("subscribers", "pause", queue, "billing")
        recorder.answer = lambda _: 200
        job = data(run("subscribers", "recover", queue, "billing", "--json"))["id"]
        shown = typed(shop, "jobs", "wait", job, "--timeout", "1s", code=1)
        assert "running ━━━" in shown
        assert "0/1" in shown
        assert "░░░ 0 %" in typed(shop, "jobs", "show", job)
        run("subscribers", "resume", queue, "billing")
        run("jobs", "wait", job)
        shown = typed(shop, "jobs", "show", job)
        assert "███ 100 %" in shown
        assert max(map(len, shown.splitlines())) <= COLUMNS


def test_shells_complete_commands() -> None:
    """Each shell is given what it needs, and commands and options are completed by it; bash itself does so."""
    printed = {shell: _syncbrok("completion", shell) for shell in ("bash", "zsh", "fish")}
    assert all("_SYNCBROK_COMPLETE" in one for one in printed.values())
    for words, found in (("subscr", "subscribers"), ("queues del", "delete"), ("queues delete --y", "--yes")):
        asked = {"COMP_WORDS": f"syncbrok {words}", "COMP_CWORD": str(len(words.split()))}
        assert found in _syncbrok(_SYNCBROK_COMPLETE="bash_complete", **asked)
    if bash := shutil.which("bash"):
        script = printed["bash"] + f"\nCOMP_WORDS=(syncbrok dead-l); COMP_CWORD=1; _syncbrok_completion {PROGRAM}"
        script += '; echo "${COMPREPLY[@]}"'
        done = subprocess.run([bash, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True)
        assert done.stdout.split() == ["dead-letters"], done.stderr


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes_commands() -> None:
    """What ``completion fish`` prints makes fish itself complete commands and options, each with all that it says of
    itself, commas too."""
    script = (
        'syncbrok completion fish | source; complete -C "syncbrok dead-l"; complete -C "syncbrok queues delete --y"'
    )
    command = ["fish", "--no-config", "-c", script]
    done = subprocess.run(command, env=_found_by_name(), capture_output=True, text=True, timeout=60, check=True)
    (letters, said), (yes, _) = (line.split("\t") for line in done.stdout.splitlines())
    assert (letters, yes) == ("dead-letters", "--yes"), done.stderr
    assert said == "List, replay, drop what could not be delivered."


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
@pytest.mark.parametrize(
    ("begun", "whole"),
    [("syncbrok dead-l", "syncbrok dead-letters"), ("syncbrok queues delete --y", "syncbrok queues delete --yes")],
)
def test_zsh_completes_commands(begun: str, whole: str) -> None:
    """What ``completion zsh`` prints makes zsh itself complete, when a person presses the tab key."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    begin = 'PS1=; autoload -Uz compinit; compinit -u -D; eval "$(syncbrok completion zsh)"; echo re""ady\n'
    with subprocess.Popen(
        ["zsh", "-f", "-i"], env=_found_by_name(), stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    ) as shell:
        os.close(theirs)
        try:
            os.write(ours, begin.encode())
            _read_until(ours, "ready\n")
            os.write(ours, f"{begun}\t".encode())
            _read_until(ours, whole)
        finally:
            shell.kill()
    os.close(ours)


def _read_until(descriptor: int, awaited: str, within_s: float = 60.0) -> None:
    """Read what a terminal shows until ``awaited`` stands there, whatever colours are in it."""
    shown, until_s = b"", time.monotonic() + within_s
    while awaited not in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode(errors="replace")).replace("\r\n", "\n"):
        left_s = until_s - time.monotonic()
        assert left_s > 0, shown
        if select.select([descriptor], [], [], left_s)[0]:
            shown += os.read(descriptor, 65_536)


def _found_by_name() -> dict[str, str]:
    """The environment of a shell that finds ``syncbrok``."""
    return {**os.environ, "PATH": f"{Path(PROGRAM).parent}:{os.environ['PATH']}", "TERM": "xterm"}


def _syncbrok(*arguments: str, **variables: str) -> str:
    command, environment = [PROGRAM, *arguments], {**os.environ, **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_who_publishes_for_nobody_is_told(shop: BrokerProcess, tmp_path: Path) -> None:
    """A person learns that a queue has no subscribers, and how it gets one that gets this message too; of a queue that
    has one nothing is said."""
    run: Run = commands(shop)
    (tmp_path / "lines").write_text('{"content":"x"}\n')
    for name in ("nobodys", "somebodys"):
        run("queues", "create", name)
    run("subscribers", "create", "somebodys", ENDPOINT)
    for more in (
        (str(tmp_path / "lines"),),
        ("--ndjson", str(tmp_path / "lines")),
        ("--lines", str(tmp_path / "lines")),
    ):
        shown = typed(shop, "publish", "nobodys", *more)
        assert "has no subscribers" in shown
        assert "subscribers create nobodys ENDPOINT --start beginning" in shown
        assert len(typed(shop, "publish", "somebodys", *more).splitlines()) == 1
