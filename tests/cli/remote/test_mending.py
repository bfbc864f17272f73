"""What the commands do about what did not arrive: list it, show it, try it again now, replay it."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker.commands import Run, commands, data, dead_end_of, published
from tests.support.broker.process import ROOT, BrokerProcess
from tests.support.http.recorder import Recorder
from tests.support.polling import eventually_blocking


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


def test_dead_letters_are_found_and_replayed(run: Run, dead_end: tuple[str, Recorder]) -> None:
    """What to do when something does not arrive: list, show, mend, replay; descendants come with their parent."""
    queue, recorder = dead_end
    parent = published(run, queue)
    child = published(run, queue, "--parent", parent)
    letters = eventually_blocking(
        lambda: (found := data(run("dead-letters", "list", queue, "--json"))) and len(found) == 2 and found,
        "two dead letters",
    )
    assert {one["id"]: one["reason"] for one in letters} == {parent: "status", child: "parent_failed"}
    assert parent in run("dead-letters", "list").stdout
    assert "500" in run("dead-letters", "show", parent).stdout
    assert data(run("dead-letters", "show", child, "--json"))["deliveries"][0]["state"] == "dead"
    newest = data(run("dead-letters", "list", queue, "--newest", "--json"))
    assert newest == data(run("dead-letters", "list", queue, "--json"))[::-1]
    dry = run("dead-letters", "replay", queue, "--dry-run").stdout
    assert "2 messages, 2 deliveries would go out again" in dry
    assert dry.index(parent) < dry.index(child)
    recorder.answer = lambda _: 200
    assert data(run("dead-letters", "replay", queue, "--json"))["messages"] == 2
    assert [one.id for one in recorder.wait_for(3)[1:]] == [parent, child]
    eventually_blocking(lambda: data(run("messages", "show", child, "--json"))["state"] == "complete", "the child ends")
    assert "no dead letters" in run("dead-letters", "list", queue).stderr
    assert f"no delivery of message {child} is a dead letter" in run("dead-letters", "show", child, code=3).stderr
    # RULES 21: what was delivered stays unless asked for; the flag that once said so is still taken.
    assert "1 message, 1 delivery would go" in run("messages", "replay", parent, "--dry-run").stdout
    assert "1 message, 1 delivery would go" in run("messages", "replay", parent, "--no-descendants", "--dry-run").stdout
    assert "2 messages" in run("messages", "replay", parent, "--descendants", "--dry-run").stdout


def test_what_has_failed_is_tried_again_now(run: Run) -> None:
    """RULES 26: once an endpoint is mended, what failed there need not wait; all of a subscriber, or one message."""
    with Recorder(lambda _: 500) as recorder:
        run("queues", "create", "patient", "--retry", "1h,1h")
        run("subscribers", "create", "patient", recorder.url, "--name", "hook")
        first, second = published(run, "patient"), published(run, "patient")

        def retrying() -> int:
            figures = data(run("subscribers", "show", "patient", "hook", "--json"))["statistics"]
            return int(figures["retrying"])

        eventually_blocking(lambda: retrying() == 2, "both have failed once")
        assert run("subscribers", "retry", "patient", "hook", "--dry-run").stdout == (
            "2 messages would be tried again now\n"
        )
        assert run("messages", "retry", first, "--dry-run").stdout == "1 delivery would be tried again now\n"
        recorder.answer = lambda _: 200
        assert run("messages", "retry", first, "--subscriber", "hook").stdout == "1 delivery is tried again now\n"
        eventually_blocking(lambda: data(run("messages", "show", first, "--json"))["state"] == "complete", "the first")
        assert run("subscribers", "retry", "patient", "hook").stdout == "1 message is tried again now\n"
        eventually_blocking(lambda: data(run("messages", "show", second, "--json"))["state"] == "complete", "the other")
        assert data(run("subscribers", "retry", "patient", "hook", "--json")) == {"retried": 0}
        assert "dead-letters replay patient" in run("subscribers", "retry", "patient", "hook").stderr
        assert f"messages replay {first}" in run("messages", "retry", first).stderr
        run("subscribers", "pause", "patient", "hook")
        assert (
            "is paused: nothing is tried there; resume it"
            in run("subscribers", "retry", "patient", "hook", code=4).stderr
        )


def test_times_are_shown_alike(run: Run) -> None:
    """A person reads each time of a subscriber as tables show it, those of an open breaker too; none is ``None``."""
    with Recorder(lambda _: 500) as recorder:
        run("queues", "create", "broken", "--retry", "1h,1h", "--max-backlog", '{"messages": 9}')
        run("subscribers", "create", "broken", recorder.url, "--name", "hook", "--breaker", '{"failures": 1}')
        published(run, "broken")
        command = ("subscribers", "show", "broken", "hook")
        eventually_blocking(
            lambda: data(run(*command, "--json"))["statistics"]["breaker"] == "open", "the breaker is open"
        )
        shown = run(*command).stdout
    times = re.findall(r"^(last attempt at|failing since|next probe at|breaker since) +(.*)$", shown, re.MULTILINE)
    assert [name for name, _ in times] == ["last attempt at", "failing since", "next probe at", "breaker since"]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", time) for _, time in times), shown
    shown = run("queues", "show", "broken").stdout
    assert re.search(r"^backlog +messages: 1, bytes: ", shown, re.MULTILINE), shown
    assert "None" not in shown


def test_a_replay_to_one_says_what_is_left(run: Run) -> None:
    """RULES 21: narrowed to one subscriber the others' dead letters stay, and the plan says how many."""
    with Recorder(lambda _: 500) as recorder:
        run("queues", "create", "two", "--retry", "")
        for name in ("a", "b"):
            run("subscribers", "create", "two", recorder.url, "--name", name)
        parent = published(run, "two")
        child = published(run, "two", "--parent", parent)
        eventually_blocking(
            lambda: data(run("messages", "show", child, "--json"))["state"] == "dead", "the family is dead"
        )
        dry = run("messages", "replay", parent, "--subscriber", "a", "--dry-run").stdout
        assert "2 messages, 2 deliveries would go out again" in dry
        assert "2 dead letters of other subscribers would stay" in dry
        recorder.answer = lambda _: 200
        done = run("dead-letters", "replay", "two", "--subscriber", "a").stdout
        assert "2 dead letters of other subscribers stay" in done
        eventually_blocking(lambda: len(data(run("dead-letters", "list", "two", "--json"))) == 2, "those of b stay")


def test_a_subscriber_is_recovered_and_the_job_shows_how_far_it_is(run: Run, dead_end: tuple[str, Recorder]) -> None:
    """RULES 34: a dry run counts, the job is listed, shown, and over once all has arrived; what is dropped is gone."""
    queue, recorder = dead_end
    messages = [published(run, queue) for _ in range(3)]
    eventually_blocking(lambda: len(data(run("dead-letters", "list", queue, "--json"))) == 3, "three dead letters")
    name = data(run("subscribers", "list", queue, "--json"))[0]["id"]
    dry = run("subscribers", "recover", queue, name, "--dry-run").stdout
    assert dry.startswith("3 messages from sequence")
    assert run("subscribers", "recover", queue, name, "--reason", "timeout", "--dry-run").stdout.startswith("0 ")
    recorder.answer = lambda _: 200
    since = str(data(run("messages", "show", messages[1], "--json"))["sequence"])
    job = data(run("subscribers", "recover", queue, name, "--since", since, "--json"))
    shown = eventually_blocking(
        lambda: (found := data(run("jobs", "show", job["id"], "--json")))["state"] == "done" and found, "it is done"
    )
    assert (shown["total"], shown["done"], shown["failed"]) == (2, 2, 0)
    assert job["id"] in run("jobs", "list").stdout
    assert [one["id"] for one in data(run("dead-letters", "list", queue, "--json"))] == messages[:1]
    assert "is done already" in run("jobs", "cancel", job["id"], code=4).stderr
    assert "no job" in run("jobs", "show", "job-1", code=3).stderr
    assert run("dead-letters", "drop", queue, "--dry-run").stdout.startswith("1 message from")
    run("dead-letters", "drop", queue)
    eventually_blocking(lambda: not data(run("dead-letters", "list", queue, "--json")), "it is dropped")


def test_a_job_is_waited_for(run: Run, dead_end: tuple[str, Recorder]) -> None:
    """RULES 34: whoever waits reads a line with each tenth and at the end the job; it is 1 where the time is over or
    the job was cancelled, and then it says which. A replay says which job it is."""
    queue, recorder = dead_end
    message = published(run, queue)
    eventually_blocking(lambda: data(run("dead-letters", "list", queue, "--json")), "a dead letter")
    run("subscribers", "pause", queue, "billing")
    recorder.answer = lambda _: 200
    job = data(run("subscribers", "recover", queue, "billing", "--json"))["id"]
    late = run("jobs", "wait", job, "--timeout", "1s", code=1).stderr
    assert f"{job} is running and not over within 1s" in late
    assert "--timeout: expected a duration" in run("jobs", "wait", job, "--timeout", "soon", code=2).stderr
    run("jobs", "cancel", job)
    assert f"{job} cancelled" in run("jobs", "wait", job, code=1).stderr
    replayed = run("messages", "replay", message).stdout.splitlines()[-1]
    job = replayed.split()[3]
    assert replayed == f"syncbrok jobs wait {job} says when they have ended"
    run("subscribers", "resume", queue, "billing")
    waited = run("jobs", "wait", job, "--timeout", "1m")
    assert waited.stderr.splitlines()[-1] == f"{job} done: 1 of 1"
    assert re.search(r"^progress +100 %$", waited.stdout, re.MULTILINE)
    assert re.search(r"^progress +100 %$", run("jobs", "show", job).stdout, re.MULTILINE)
    assert data(run("jobs", "wait", job, "--json"))["state"] == "done"
    assert "no job" in run("jobs", "wait", "job-1", code=3).stderr


def test_a_job_is_waited_for_while_the_broker_starts_again(tmp_path: Path) -> None:
    """RULES 34: a job survives a kill of the broker, and so does who waits for it."""
    with BrokerProcess(tmp_path / "storage") as broker, dead_end_of(commands(broker)) as (queue, recorder):
        run = commands(broker)
        published(run, queue)
        eventually_blocking(lambda: data(run("dead-letters", "list", queue, "--json")), "a dead letter")
        run("subscribers", "pause", queue, "billing")
        recorder.answer = lambda _: 200
        job = data(run("subscribers", "recover", queue, "billing", "--json"))["id"]
        arguments = [sys.executable, "-m", "syncbrok", "jobs", "wait", job, "--url", broker.url]
        with subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as waits:
            assert waits.stderr is not None
            while f"{job} running" not in waits.stderr.readline():
                assert waits.poll() is None
            broker.kill()
            broker.start()
            run("subscribers", "resume", queue, "billing")
            assert waits.wait(60) == 0


def test_a_subscriber_seeks(run: Run) -> None:
    """RULES 34: forward it passes over what waits."""
    with Recorder() as recorder:
        run("queues", "create", "seeking")
        run("subscribers", "create", "seeking", recorder.url, "--name", "s")
        run("subscribers", "pause", "seeking", "s")
        passed, kept = published(run, "seeking"), published(run, "seeking")
        place = str(data(run("messages", "show", kept, "--json"))["sequence"])
        assert "seek" in run("subscribers", "seek", "seeking", "s", place).stdout
        eventually_blocking(
            lambda: data(run("messages", "show", passed, "--json"))["state"] == "complete", "it is passed over"
        )
        run("subscribers", "resume", "seeking", "s")
        assert [one.id for one in recorder.wait_for(1)] == [kept]


def test_messages_of_a_key_are_erased(run: Run, dead_end: tuple[str, Recorder]) -> None:
    """RULES 32: a dry run counts, the job erases, and nobody is told what they said."""
    queue, _ = dead_end
    message = published(run, queue, "--key", "anna")
    eventually_blocking(lambda: data(run("dead-letters", "list", queue, "--json")), "it died")
    assert run("queues", "erase", queue, "--key", "anna", "--dry-run").stdout.startswith("1 message from")
    run("queues", "erase", queue, "--key", "anna")
    eventually_blocking(lambda: data(run("messages", "show", message, "--json")).get("erased"), "it is erased")
    again = run("queues", "erase", queue, "--key", "anna").stdout
    assert again.startswith("0 messages"), "nobody knows that key any more"


def test_a_selection_is_cancelled_replayed_and_dropped(run: Run, tmp_path: Path) -> None:
    """RULES 21, 22, 34: only the messages that were named, by ``--id`` or one a line; a dry run does nothing. One is
    one in words, two are two; without any the command is a mistake."""
    run("queues", "create", "chosen", "--retry", "")
    run("subscribers", "create", "chosen", "http://127.0.0.1:9/", "--name", "hook", "--paused")
    ids = [published(run, "chosen") for _ in range(4)]
    listed = tmp_path / "ids"
    listed.write_text(f"{ids[0]}\n\n{ids[1]}\n")
    two = ("--ids", str(listed))
    assert (
        run("queues", "cancel", "chosen", *two, "--dry-run").stdout
        == "2 messages of chosen, 2 deliveries would be dropped\n"
    )
    assert (
        run("queues", "cancel", "chosen", "--id", ids[0], "--id", ids[0]).stdout
        == "1 message of chosen, 1 delivery dropped\n"
    )
    assert data(run("queues", "cancel", "chosen", "--ids", "-", "--json", given=f"{ids[1]}\n"))["dropped"] == 1
    assert "--id ID" in run("queues", "cancel", "chosen", code=2).stderr
    run("subscribers", "resume", "chosen", "hook")
    eventually_blocking(lambda: len(data(run("dead-letters", "list", "chosen", "--json"))) == 2, "two dead letters")
    assert run("queues", "replay", "chosen", "--id", ids[2], "--dry-run").stdout.startswith("1 message from sequence")
    job = data(run("queues", "replay", "chosen", "--id", ids[2], "--json"))
    over = data(run("jobs", "wait", job["id"], "--json"))
    assert (over["kind"], over["total"]) == ("replay", 1)
    assert run("dead-letters", "drop", "chosen", "--id", ids[3], "--dry-run").stdout.startswith("1 message from")
    run("jobs", "wait", data(run("dead-letters", "drop", "chosen", "--id", ids[3], "--json"))["id"])
    assert [one["id"] for one in data(run("dead-letters", "list", "chosen", "--json"))] == [ids[2]]


def test_who_did_what_is_listed(run: Run) -> None:
    """INTERFACES 3: each action with who asked for it, the newest first; narrowed by queue, kind, name and time."""
    run("queues", "create", "acted")
    run("subscribers", "create", "acted", "http://127.0.0.1:9/", "--name", "hook", "--paused")
    message = published(run, "acted")
    run("messages", "cancel", message)
    done = data(run("actions", "list", "--queue", "acted", "--json"))
    assert [one["action"] for one in done] == ["cancel", "subscriber_set", "queue_set"]
    assert {one["by"] for one in done} == {"local"}
    assert data(run("actions", "list", "--queue", "acted", "--order", "asc", "--limit", "1", "--json")) == done[2:]
    table = run("actions", "list", "--queue", "acted", "--action", "cancel", "--by", "local").stdout
    assert message in table
    assert "queue_set" not in table
    assert "nothing was done" in run("actions", "list", "--queue", "acted", "--by", "nobody").stderr
