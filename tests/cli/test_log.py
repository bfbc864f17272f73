"""``syncbrok log``: a sound log is said to be sound, a damaged one is named, and what it still holds is saved."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any, get_args

import pytest
from click.testing import CliRunner, Result

from syncbrok.cli.facts import KINDS
from syncbrok.cli.main import group
from syncbrok.log.format.records import Record
from tests.support.broker.process import ROOT, BrokerProcess
from tests.support.http.recorder import Recorder

MESSAGES = 20


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A log of messages, each with the one before as its parent, delivered; and their ids."""
    storage, ids = tmp_path_factory.mktemp("log") / "storage", []
    with Recorder() as recorder:
        queues = f"queues: {{orders: {{subscribers: [{{name: b, endpoint: '{recorder.url}'}}]}}}}\n"
        with BrokerProcess(storage, queues=queues) as running:
            for number in range(MESSAGES):
                headers = {"Syncbrok-Parent": ids[-1]} if ids else {}
                content = b"\xff%d" % number if number == 1 else b"content %d" % number
                ids.append(running.request("POST", "/v1/queues/orders/messages", content, headers).json()["id"])
            recorder.wait_for(MESSAGES)
            assert running.terminate() == 0
    return storage, ids


@pytest.fixture
def damaged(log: tuple[Path, list[str]], tmp_path: Path) -> Path:
    """A copy of it with a byte flipped in the content of the fourth message."""
    storage = tmp_path / "damaged"
    storage.mkdir()
    for file in log[0].iterdir():
        (storage / file.name).write_bytes(file.read_bytes())
    (segment,) = storage.glob("*.log")
    content = bytearray(segment.read_bytes())
    content[content.index(b"content 3")] ^= 1
    segment.write_bytes(content)
    return storage


def run(command: str, storage: Path, *arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(group, ["log", command, "--storage", str(storage), *arguments])
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return result


def lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def snapshot(storage: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in storage.iterdir()}


def test_a_sound_log(log: tuple[Path, list[str]]) -> None:
    """Every checksum and the promised order hold; nothing in the directory has changed."""
    before = snapshot(log[0])
    assert "0 damaged places, 0 breaches of order" in run("verify", log[0]).stdout
    told = json.loads(run("verify", log[0], "--json").stdout)
    assert (told["findings"], told["violations"]) == ([], [])
    assert told["records"] > MESSAGES
    assert snapshot(log[0]) == before


def test_a_damaged_log(damaged: Path, log: tuple[Path, list[str]]) -> None:
    """Exit 65; file, offset and sequence are named, for people and machines, and what to do."""
    refused = run("verify", damaged, code=65)
    (segment,) = damaged.glob("*.log")
    assert segment.name in refused.stdout
    assert "syncbrok log salvage" in refused.stderr
    findings = json.loads(run("verify", damaged, "--json", code=65).stdout)["findings"]
    sequence = next(one["sequence"] for one in lines(run("cat", log[0], "--json")) if one.get("id") == log[1][3])
    assert (findings[0]["file"], findings[0]["sequence"]) == (segment.name, sequence)


def test_salvage_saves_what_can_be_read(damaged: Path, log: tuple[Path, list[str]], tmp_path: Path) -> None:
    """A new log with everything but the damaged record, which a gap names; it serves. The old one is only read."""
    before = snapshot(damaged)
    out = tmp_path / "recovered"
    told = json.loads(run("salvage", damaged, "--out", str(out), "--json").stdout)
    assert told["lost_records"] == 1
    assert snapshot(damaged) == before
    assert "0 damaged places" in run("verify", out).stdout
    assert "gap" in {one["kind"] for one in lines(run("cat", out, "--json"))}
    with BrokerProcess(out) as broker:
        assert broker.request("GET", f"/v1/messages/{log[1][4]}/content").body == b"content 4"
        assert broker.request("GET", f"/v1/messages/{log[1][3]}").status in (404, 410)
    assert "is not empty" in run("salvage", damaged, "--out", str(out), code=4).stderr


def test_cat_prints_records_in_order(log: tuple[Path, list[str]]) -> None:
    """Every record once, in the order of the log, with names in place of numbers."""
    storage, ids = log
    shown = lines(run("cat", storage, "--json"))
    sequences = [one["sequence"] for one in shown]
    assert sequences == sorted(set(sequences))
    published = [one for one in shown if one["kind"] == "published"]
    assert [one["id"] for one in published] == ids
    assert (published[1]["queue"], published[1]["parents"]) == ("orders", [ids[0]])
    assert "content" not in published[0]
    rows = [row for one in shown if one["kind"] == "outcomes" for row in one["rows"]]
    assert {(row["subscriber"], row["outcome"]) for row in rows} == {("b", "delivered")}
    assert {one["kind"] for one in shown} >= {"segment_opened", "queue_set", "subscriber_set", "file_applied"}


def test_cat_narrows(log: tuple[Path, list[str]]) -> None:
    """By sequence, kind, message and number; content only where asked for, whatever its bytes."""
    storage, ids = log
    everything = lines(run("cat", storage, "--json"))
    after = everything[5]["sequence"]
    assert lines(run("cat", storage, "--json", "--after", str(after), "--limit", "3")) == everything[6:9]
    contents = lines(run("cat", storage, "--json", "--kind", "published", "--content"))
    assert contents[0]["content"] == "content 0"
    assert contents[1]["content_base64"] == "/zE="
    of_one = lines(run("cat", storage, "--json", "--message", ids[2]))
    assert [one["kind"] for one in of_one] == ["published", "outcomes"]
    assert [row["outcome"] for row in of_one[1]["rows"]] == ["delivered"]
    text = run("cat", storage, "--limit", "4").stdout.splitlines()
    assert len(text) == 4
    assert text[0].split()[2] == "segment_opened"
    assert "is not a message id" in run("cat", storage, "--message", "x", code=2).stderr


def test_every_kind_of_record_has_its_name() -> None:
    """Scripts read the names, so they are written down, one for each kind that a log may hold."""
    assert len(set(KINDS)) == len(get_args(Record))
    assert {"published", "outcomes", "segment_opened"} < set(KINDS)


def test_cat_refuses_a_kind_that_there_is_not(log: tuple[Path, list[str]]) -> None:
    """A mistake on the command line, not an empty answer; the kinds there are, are named. The help names them too."""
    refused = run("cat", log[0], "--kind", "publishd", code=2)
    assert refused.stdout == ""
    kinds = {one["kind"] for one in lines(run("cat", log[0], "--json"))}
    told = run("cat", log[0], "--help").stdout
    assert all(kind in refused.stderr and kind in told for kind in kinds)


def test_cat_of_a_message_that_is_not_in_the_log(log: tuple[Path, list[str]]) -> None:
    """Exit 3 and said so; where only the other conditions leave nothing, that is an empty answer and no failure."""
    # An id names a sequence: one with that of a message but otherwise made up, and one far behind the end.
    for absent in (f"{log[1][2][:-4]}0000", "01a1fbbe-90e1-8000-8000-ffffea1e711f"):
        refused = run("cat", log[0], "--message", absent, code=3)
        assert f"has no record of message {absent}" in refused.stderr
        assert refused.stdout == ""
    assert run("cat", log[0], "--message", log[1][2], "--kind", "gap").stdout == ""


def test_cat_while_the_segment_is_cut(tmp_path: Path) -> None:
    """A broker that seals the segment cuts it to what it holds. Whoever reads it meanwhile prints all the same what
    there was when it began, and is not ended by the system (SIGBUS)."""
    storage = tmp_path / "storage"
    with BrokerProcess(storage, queues="queues: {orders: {}}\n") as broker:
        batch = b'{"content": "%s"}\n' % (b"x" * 500) * 3000
        kind = {"Content-Type": "application/x-ndjson"}
        assert broker.request("POST", "/v1/queues/orders/messages:batch", batch, kind).status == 201
        assert broker.terminate() == 0
    (segment,) = storage.glob("*.log")
    command = [sys.executable, "-m", "syncbrok", "log", "cat", "--storage", str(storage), "--kind", "published"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()  # it reads, and soon waits until somebody takes more from the pipe
        os.truncate(segment, 4096)
        printed = len(reader.stdout.read().splitlines())
    assert (reader.returncode, printed) == (0, 2999)


def test_cat_leaves_out_what_cannot_be_read(damaged: Path) -> None:
    """The rest is printed all the same, and the exit code says that something is missing."""
    result = run("cat", damaged, "--json", "--kind", "published", code=65)
    assert len(lines(result)) == MESSAGES - 1
    assert "1 places cannot be read" in result.stderr


def test_a_running_log_can_be_checked(tmp_path: Path) -> None:
    """Verify needs no lock: a backup job may run it beside the broker."""
    with BrokerProcess(tmp_path / "storage", queues="queues: {orders: {}}\n") as broker:
        for _ in range(10):
            broker.request("POST", "/v1/queues/orders/messages", b"x")
        assert "0 damaged places" in run("verify", tmp_path / "storage").stdout
        assert len(lines(run("cat", tmp_path / "storage", "--json", "--kind", "published"))) == 10


def test_salvage_into_what_is_no_directory(log: tuple[Path, list[str]], tmp_path: Path) -> None:
    """A mistake of whoever asked (2), told in a sentence; nothing is written."""
    taken = tmp_path / "file"
    taken.write_text("mine")
    for out in (taken, taken / "below"):
        assert f"cannot make the directory {out}" in run("salvage", log[0], "--out", str(out), code=2).stderr
    assert taken.read_text() == "mine"


def test_no_bar_is_drawn_where_nobody_sees_it(log: tuple[Path, list[str]], tmp_path: Path) -> None:
    """Standard error has nothing at all, not even an empty line, unless it is a terminal: mail from cron stays away."""
    for arguments in (("verify",), ("salvage", "--out", str(tmp_path / "out"))):
        assert run(arguments[0], log[0], *arguments[1:]).stderr == ""


@pytest.mark.parametrize("command", ["verify", "cat", "salvage"])
def test_where_there_is_no_log(tmp_path: Path, command: str) -> None:
    """Exit 3, for a directory without a log as for none; nothing is made."""
    out = ("--out", str(tmp_path / "out")) if command == "salvage" else ()
    for storage in (tmp_path / "none", tmp_path):
        assert f"there is no log in {storage}" in run(command, storage, *out, code=3).stderr
    assert list(tmp_path.iterdir()) == []


def test_where_the_log_stands_further_below(log: tuple[Path, list[str]], tmp_path: Path) -> None:
    """Who names the directory of a cluster's node, or of a demo of three, is told where in it the logs are."""
    for node in ("a", "b"):
        copytree(log[0], tmp_path / "cluster" / node / "log")
    nodes = [str(tmp_path / "cluster" / node / "log") for node in ("a", "b")]
    for storage, found in ((tmp_path / "cluster" / "a", nodes[:1]), (tmp_path / "cluster", nodes)):
        assert f"  there is one in {' and in '.join(found)}\n" in run("verify", storage, code=3).stderr


def test_the_configured_log_is_the_default(
    log: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without --storage it is the log that ``serve`` would use."""
    monkeypatch.chdir(tmp_path)
    found: Callable[..., Result] = CliRunner(env={"SYNCBROK_STORAGE_PATH": str(log[0])}).invoke
    assert found(group, ["log", "verify"]).exit_code == 0
    assert CliRunner().invoke(group, ["log", "verify"]).exit_code == 3
