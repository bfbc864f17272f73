"""The commands against a real broker: what they print for people and machines, and the exit codes scripts rely on."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from syncbrok.cli.main import group
from tests.support.broker.commands import Run, commands, data, dead_end_of, published
from tests.support.broker.process import BrokerProcess, held_port
from tests.support.http.recorder import Recorder

NO_ID = "01a1fbbe-90e1-8000-8000-0006ea1e711f"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all of them: each test has queues of its own."""
    with BrokerProcess(tmp_path_factory.mktemp("cli") / "storage") as running:
        yield running


@pytest.fixture
def run(shop: BrokerProcess) -> Run:
    return commands(shop)


@pytest.fixture
def dead_end(run: Run) -> Iterator[tuple[str, Recorder]]:
    with dead_end_of(run) as made:
        yield made


def test_queues_from_create_to_delete(run: Run) -> None:
    """Created, created again alike, refused where it differs, shown, changed, listed, deleted."""
    assert (
        run("queues", "create", "q1", "--timeout", "5s", "--retry", "1s, 2m", "--window", "8").stdout == "q1 created\n"
    )
    assert (
        run("queues", "create", "q1", "--timeout", "5s", "--retry", "1s,120", "--window", "8").stdout
        == "q1 exists alike\n"
    )
    refused = run("queues", "create", "q1", code=4)
    assert refused.stdout == ""
    assert "other settings" in refused.stderr
    assert "(differs: retry, timeout, window)" in refused.stderr
    shown = data(run("queues", "show", "q1", "--json"))
    assert (shown["timeout"], shown["retry"], shown["window"]) == ("5s", ["1s", "2m"], 8)
    assert data(run("queues", "change", "q1", "--parent-failure", "hold", "--json"))["parent_failure"] == "hold"
    assert "parent failure      hold" in run("queues", "show", "q1").stdout
    assert "q1" in [queue["name"] for queue in data(run("queues", "list", "--json"))]
    assert "q1 deleted; 0 deliveries dropped" in run("queues", "delete", "q1").stdout
    assert "no queue 'q1'" in run("queues", "show", "q1", code=3).stderr


def test_a_wrong_setting_is_refused_with_what_was_expected(run: Run) -> None:
    """The broker's words come through: which setting, and what it takes."""
    assert "timeout: expected a duration" in run("queues", "create", "q2", "--timeout", "long", code=4).stderr
    assert "is not a queue name" in run("queues", "create", "a/../b", code=4).stderr
    run("queues", "create", "q2")
    assert "name" not in run("subscribers", "create", "q2", "ftp://a/", code=4).stdout
    assert "expected NAME=VALUE" in run("subscribers", "create", "q2", "http://a/", "--header", "x", code=2).stderr


def test_subscribers_from_create_to_delete(run: Run, recorder: Recorder, tmp_path: Path) -> None:
    """Created with a secret from a file, listed, changed, paused, resumed, tested, its secret rotated, deleted."""
    run("queues", "create", "subs")
    secret = tmp_path / "secret"
    secret.write_text("whsec_" + "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz\n")
    made = run("subscribers", "create", "subs", recorder.url, "--name", "b", "--secret-file", str(secret),
               "--header", "x-tenant=north", "--start", "beginning")  # fmt: skip
    assert made.stdout == "b\n"
    shown = data(run("subscribers", "show", "subs", "b", "--json"))
    assert (shown["headers"], shown["secret"], shown["state"]) == ({"x-tenant": "set"}, "set", "active")
    assert "whsec" not in run("subscribers", "show", "subs", "b").stdout
    assert "nothing there" in run("subscribers", "deliveries", "subs", "b").stderr
    assert data(run("subscribers", "deliveries", "subs", "b", "--json", "--state", "dead")) == {
        "deliveries": [],
        "next": None,
    }
    assert data(run("subscribers", "change", "subs", "b", "--timeout", "7s", "--json"))["timeout"] == "7s"
    assert data(run("subscribers", "change", "subs", "b", "--timeout", "default", "--json"))["timeout"] is None
    changed = data(
        run("subscribers", "change", "subs", "b", "--breaker", '{"failures": 3}', "--disable-after", "0s", "--json")
    )
    assert (changed["breaker"]["failures"], changed["disable_after"]) == (3, "0s")
    assert data(run("subscribers", "change", "subs", "b", "--breaker", "false", "--json"))["breaker"] is False
    changed = data(run("subscribers", "change", "subs", "b", "--batch", '{"max": 9}', "--json"))
    assert changed["batch"] == {"max": 9, "wait": "200ms"}
    assert data(run("subscribers", "change", "subs", "b", "--batch", "null", "--json"))["batch"] is None
    assert "--breaker: expected JSON" in run("subscribers", "change", "subs", "b", "--breaker", "off", code=2).stderr
    run("subscribers", "create", "subs", "--pull", "--name", "workers")
    group = data(run("subscribers", "show", "subs", "workers", "--json"))
    assert (group["endpoint"], group["counts"], group["declared"]) == ("consumer:pull", True, True)
    assert data(run("subscribers", "change", "subs", "workers", "--not-counts", "--json"))["counts"] is False
    run("subscribers", "delete", "subs", "workers")
    assert "one of the two" in run("subscribers", "create", "subs", code=2).stderr
    run("subscribers", "pause", "subs", "b")
    assert data(run("subscribers", "list", "subs", "--json"))[0]["state"] == "paused"
    run("subscribers", "resume", "subs", "b")
    told = run("subscribers", "test", "subs", "b")
    assert "delivered" in told.stdout
    assert recorder.wait_for(1)[0].headers["x-tenant"] == "north"
    assert run("subscribers", "rotate-secret", "subs", "b").stdout.startswith("whsec_")
    assert recorder.url in run("subscribers", "list").stdout
    assert "b deleted" in run("subscribers", "delete", "subs", "b").stdout
    run("subscribers", "show", "subs", "b", code=3)
    assert run("subscribers", "list", "subs").stderr.startswith("no subscribers; ")
    assert run("subscribers", "list", "subs", "--json").stdout == "[]\n"


def test_a_test_message_that_is_refused_fails_the_command(run: Run, dead_end: tuple[str, Recorder]) -> None:
    """``subscribers test`` tells a script whether the endpoint takes messages."""
    refused = run("subscribers", "test", dead_end[0], "billing", code=1)
    assert "500" in refused.stdout
    assert "billing does not take it: HTTP 500 after 1 attempt" in refused.stderr
    run("subscribers", "pause", dead_end[0], "billing")


def test_a_change_of_nothing_is_refused(run: Run) -> None:
    """Who forgot the flag must not think that something was changed: a mistake on the command line."""
    run("queues", "create", "unchanged")
    run("subscribers", "create", "unchanged", "http://127.0.0.1:9/", "--name", "b")
    for arguments in (("queues", "change", "unchanged"), ("subscribers", "change", "unchanged", "b")):
        refused = run(*arguments, code=2)
        assert refused.stdout == ""
        assert "nothing to change" in refused.stderr


def test_default_is_only_for_what_a_subscriber_has_of_its_queue(run: Run) -> None:
    """A queue has nobody to take it from: the word is refused as it was typed. A subscriber may have it for a name."""
    assert "found 'default'" in run("queues", "create", "defaults", "--timeout", "default", code=4).stderr
    run("queues", "create", "defaults")
    made = run("subscribers", "create", "defaults", "http://127.0.0.1:9/", "--name", "default", "--window", "default")
    assert made.stdout == "default\n"


def test_every_flag_takes_what_its_help_shows(run: Run) -> None:
    """The example that ``--help`` gives of a setting is taken as it stands, and ``null`` takes away what may go."""
    run("queues", "create", "flags")
    run("subscribers", "create", "flags", "http://127.0.0.1:9/", "--name", "b")
    told = " ".join(run("subscribers", "change", "--help").stdout.split())
    shown = re.findall(r"(--[a-z-]+) VALUE ((?:(?! --).)*?) Such as (.+?)\. (?=-)", told)
    assert {"--forward", "--filter", "--rate", "--batch", "--retry"} <= {flag for flag, _, _ in shown}
    for flag, _, example in shown:
        if flag != "--types":  # of the broker's own queue alone
            run("subscribers", "change", "flags", "b", flag, shlex.split(example)[0] if "{" in example else example)
    changed = data(run("subscribers", "change", "flags", "b", "--verdicts", "--json"))
    assert (changed["verdicts"], changed["forward"], changed["rate"]) == (True, ["authorization"], "100/s")
    taken = ("--filter", "null", "--rate", "null", "--batch", "null", "--forward", "null", "--not-verdicts", "--json")
    left = data(run("subscribers", "change", "flags", "b", *taken))
    assert [left[name] for name in ("filter", "rate", "batch", "forward", "verdicts")] == [None, None, None, [], False]
    assert re.search(r"^signatures +scheme: v1$", run("subscribers", "show", "flags", "b").stdout, re.MULTILINE)


def test_whatever_changes_something_answers_machines_too(run: Run, recorder: Recorder) -> None:
    """``--json`` gives what the broker answered, for each command that changes a queue, subscriber or message."""
    run("queues", "create", "machines")
    run("subscribers", "create", "machines", recorder.url, "--name", "b")
    assert data(run("subscribers", "pause", "machines", "b", "--json"))["state"] == "paused"
    id_ = published(run, "machines")
    assert data(run("messages", "cancel", id_, "--json"))["dropped"] == 1
    assert data(run("subscribers", "resume", "machines", "b", "--json"))["state"] == "active"
    assert data(run("subscribers", "rotate-secret", "machines", "b", "--json"))["secret"].startswith("whsec_")
    assert data(run("subscribers", "delete", "machines", "b", "--json"))["dropped"] == 0
    assert data(run("queues", "delete", "machines", "--json"))["dropped"] == 0


def test_publish_prints_the_id_and_nothing_else(run: Run, recorder: Recorder, tmp_path: Path) -> None:
    """The id on standard output, from a file or standard input; what reaches the subscriber is the content."""
    run("queues", "create", "pub")
    run("subscribers", "create", "pub", recorder.url)
    first = published(run, "pub", given=b"\x00binary\xff")
    file = tmp_path / "card.json"
    file.write_text('{"card": 1}')
    second = published(run, "pub", str(file), "--parent", first, "--content-type", "application/json",
                       "--header", "x-color=red", "--wait", "10")  # fmt: skip
    one, two = recorder.wait_for(2)
    assert (one.id, one.body) == (first, b"\x00binary\xff")
    assert (two.id, two.body, two.headers["content-type"]) == (second, b'{"card": 1}', "application/json")
    assert (two.headers["x-color"], two.headers["syncbrok-parents"]) == ("red", first)


def test_publish_again_with_its_key_gives_the_first_id(run: Run) -> None:
    """After no answer, repeating with the same key is safe; with other content it is refused (RULES 4)."""
    run("queues", "create", "again")
    first = published(run, "again", "--idempotency-key", "order 1")
    assert published(run, "again", "--idempotency-key", "order 1") == first
    assert "used" in run("publish", "again", "--idempotency-key", "order 1", given="y", code=4).stderr
    assert data(run("messages", "find", "--idempotency-key", "order 1", "--json"))[0]["id"] == first


def test_publish_tells_what_it_cannot_do(run: Run) -> None:
    """No such queue, no such parent, no such file: each with its exit code, and nothing on standard output."""
    for arguments, code, said in (
        (("nowhere",), 3, "no queue 'nowhere'"),
        (("ways", "--parent", NO_ID), 4, "parent"),
        (("ways", "--parent", "x"), 4, "message id"),
        (("ways", "no-such-file"), 2, "No such file"),
        (("ways", "--wait", "soon"), 2, "--wait: expected a duration"),
        (("ways", "--key", "ä"), 2, "expected printable ASCII"),
        (("ways", "--delay", "never"), 4, "delay"),
        (("ways", "--wait", "90"), 2, "for at most 60 s"),
        (("ways", "--delay", "1h", "--deliver-at", "2030-01-01T00:00:00Z"), 2, "give one of them"),
        (("ways", "--header", "a b=c"), 2, "cannot be the name of a header"),
        (("ways", "--header", "a\nb=c"), 2, "cannot be the name of a header"),
        (("ways", "--header", "a=b\nc"), 2, "expected printable ascii"),
    ):
        run("queues", "create", "ways")
        refused = run("publish", *arguments, given="x", code=code)
        assert refused.stdout == ""
        assert said.lower() in refused.stderr.lower(), refused.stderr


def test_wait_fails_where_a_subscriber_does_not_take_it(run: Run, dead_end: tuple[str, Recorder]) -> None:
    """A script that waits can rely on the exit code: 0 only when every subscriber has it. The id is printed anyway."""
    queue, recorder = dead_end
    refused = run("publish", queue, "--wait", "10", given="x", code=1)
    assert len(refused.stdout.split()) == 1
    assert "billing: dead" in refused.stderr
    assert "HTTP 500" in refused.stderr
    assert "the message ended dead" in refused.stderr
    recorder.answer = lambda _: 200
    assert published(run, queue, "--wait", "10")


def test_wait_fails_when_the_time_is_over(run: Run) -> None:
    """Accepted and not complete: the id is printed, the command fails and says where to look."""
    run("queues", "create", "slow")
    run("subscribers", "create", "slow", "http://127.0.0.1:9/", "--paused")
    late = run("publish", "slow", "--wait", "50ms", given="x", code=1)
    assert "not complete within 50ms" in late.stderr
    assert late.stdout.strip() in late.stderr


def test_lines_are_published_as_one(run: Run) -> None:
    """``--ndjson``: a message a line, all or none, their ids in order."""
    run("queues", "create", "lines")
    ids = run(
        "publish", "lines", "--ndjson", given='{"content": "a"}\n{"content": "b", "parents": ["#1"]}\n'
    ).stdout.split()
    assert data(run("messages", "show", ids[1], "--json"))["parents"] == [ids[0]]
    run("publish", "lines", "--ndjson", given='{"content": "c"}\n{"contend": "d"}\n', code=4)
    assert len(data(run("messages", "list", "lines", "--json"))) == 2
    assert "--key" in run("publish", "lines", "--ndjson", "--key", "k", given="{}", code=2).stderr


def test_messages_are_listed_shown_and_cancelled(run: Run) -> None:
    """Where a message stands and why it waits, for people and machines; its bytes; its tree; its end."""
    run("queues", "create", "look")
    run("subscribers", "create", "look", "http://127.0.0.1:9/", "--name", "p", "--paused")
    parent = published(run, "look", "--key", "k", given=b"\xffparent")
    child = published(run, "look", "--parent", parent)
    table = run("messages", "list", "look").stdout
    assert parent in table
    assert child in table
    assert [one["id"] for one in data(run("messages", "list", "look", "--limit", "1", "--json"))] == [parent]
    backwards = [one["id"] for one in data(run("messages", "list", "look", "--newest", "--json"))]
    assert backwards == [one["id"] for one in data(run("messages", "list", "look", "--json"))][::-1]
    assert backwards[-1] == parent
    assert run("messages", "list", "look", "--state", "dead").stdout == ""
    shown = run("messages", "show", child).stdout
    assert "waits for" in shown
    assert parent in shown
    assert run("messages", "content", parent).stdout_bytes == b"\xffparent"
    assert [node["id"] for node in data(run("messages", "tree", child, "--up", "--json"))["nodes"]][-1] == parent
    assert child in run("messages", "tree", parent).stdout
    assert [step["id"] for step in data(run("messages", "critical-path", child, "--json"))["steps"]] == [parent, child]
    assert run("messages", "critical-path", child).stdout.count(parent) == 1
    assert data(run("messages", "find", "--key", "k", "--json"))[0]["id"] == parent
    assert data(run("history", "--queue", "look", "--hours", "1", "--json"))["queue"] == "look"
    assert run("history").exit_code == 0
    found = data(run("messages", "find", "--text", parent[-12:].upper(), "--order", "asc", "--json"))
    assert [one["id"] for one in found] == [parent]
    assert "1 delivery dropped" in run("messages", "cancel", child).stdout
    assert run("messages", "find", code=2).stdout == ""
    run("messages", "show", NO_ID, code=3)
    run("messages", "show", "../queues/look", code=4)


def test_lists_go_on_over_pages(run: Run) -> None:
    """A list longer than a page of the broker is whole; ``--limit`` cuts it where it says."""
    run("queues", "create", "pages")
    run("publish", "pages", "--ndjson", given='{"content": "x"}\n' * 1_100)
    assert len(data(run("messages", "list", "pages", "--limit", "0", "--json"))) == 1_100
    assert len(data(run("messages", "list", "pages", "--limit", "1050", "--json"))) == 1_050
    assert len(run("messages", "list", "pages").stdout.splitlines()) == 1 + 100


def test_purge_says_how_many_and_asks(run: Run) -> None:
    """Nothing is dropped before it was said how much, and agreed to."""
    run("queues", "create", "full")
    run("subscribers", "create", "full", "http://127.0.0.1:9/", "--paused")
    published(run, "full")
    assert run("queues", "purge", "full", "--dry-run").stdout == "1 message would be dropped\n"
    run("queues", "purge", "full", given="n\n", code=1)
    assert "1 message waits in" in run("queues", "delete", "full", code=4).stderr
    assert run("queues", "purge", "full", "--yes").stdout == "1 message dropped\n"
    published(run, "full")
    assert "1 delivery dropped" in run("queues", "delete", "full", "--force").stdout


def test_what_others_sent_cannot_steer_the_terminal(run: Run) -> None:
    """An answer with escape sequences is shown escaped: a table is no way into somebody's terminal."""
    with Recorder(lambda _: 500) as evil:
        evil.body = b"\x1b[31mred [bold]\x07"
        run("queues", "create", "escape", "--retry", "")
        run("subscribers", "create", "escape", evil.url)
        message = run("publish", "escape", "--wait", "10", given="x", code=1).stdout.strip()
    for shown in (run("messages", "show", message).stdout, run("dead-letters", "list", "escape").stdout):
        assert "\x1b" not in shown
        assert "\\x1b[31mred [bold]\\x07" in shown


@pytest.mark.parametrize(
    "arguments",
    [
        ("queues", "list"),
        ("publish", "q"),
        ("messages", "show", NO_ID),
        ("apply", "queues.yml"),
        ("dead-letters", "list"),
    ],
)
def test_no_broker_is_exit_code_5(arguments: tuple[str, ...]) -> None:
    """Nobody there: the command says where it looked and what to do, and ends with 5."""
    with held_port() as port:
        url = f"http://127.0.0.1:{port}"
        result = CliRunner().invoke(group, [*arguments, "--url", url], input="x")
    assert result.exit_code == 5
    assert result.stdout == ""
    assert f"no broker at {url}: Connection refused" in result.stderr
    assert "syncbrok serve" in result.stderr


def test_every_command_teaches() -> None:
    """``--help`` of each command has an example. The exit codes stand in that of ``syncbrok`` and of ``serve``, and
    other groups and top commands say so."""

    def walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        yield path
        for name in getattr(command, "commands", None) or (command.list_commands(None) if path == () else ()):
            yield from walk(command.get_command(None, name), (*path, name))

    paths = list(walk(group, ()))
    assert len(paths) > 35
    for path in paths:
        result = CliRunner().invoke(group, [*path, "--help"])
        assert result.exit_code == 0, path
        assert f"syncbrok {' '.join(path)}".strip() in result.stdout
        has_table = "75  another process has the log open" in result.stdout
        assert has_table == (path in {(), ("serve",)}), path
        if len(path) == 1 and path != ("serve",):
            assert "syncbrok --help lists the others" in " ".join(result.stdout.split()), path
        assert re.search(r"^ *Examples?\b[^:]*:$", result.stdout, re.MULTILINE) or not path, path
